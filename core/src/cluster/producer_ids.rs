//! Ids for idempotent producers, unique in the cluster: handed out from blocks that are reserved in etcd.
//!
//! The key holds the next free id, in decimal. A block is reserved by a transaction that moves it on, if it still is as
//! it was last seen. A reservation whose fate is unknown is never used: it may have been carried out or not, or be
//! carried out later, and the ids of a block that nobody uses are lost without harm.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::Waiter;
use super::reader::txn_response;
use crate::etcd::{self, Compare, Keys, RangeRequest, Refusal, Revision, TxnAnswer, TxnOperation, TxnRequest};
use crate::operation::Outcome;
use crate::planted::{Bug, planted};

/// Where the next free id stands.
const KEY: &[u8] = b"/kafscale/lfs/v1/producer-ids";

/// Ids of one block.
const BLOCK: i64 = 1_000;

/// How often a reservation is tried that others are ahead of.
const ATTEMPTS: u8 = 8;

/// What was last seen in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Of the last put; 0 when there is no key.
    revision: Revision,
    /// The next free id.
    next: i64,
}

/// A reservation under way.
#[derive(Debug)]
struct Reserving {
    block: Range<i64>,
    attempts: u8,
}

/// The ids of one shard.
#[derive(Debug)]
pub(super) struct ProducerIds {
    free: Range<i64>,
    seen: Seen,
    reserving: Option<Reserving>,
    waiters: VecDeque<Waiter>,
}

/// What an input led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Handed {
    /// To be sent to etcd.
    pub(super) order: Option<TxnRequest>,
    /// Who gets which id, or why there is none.
    pub(super) answers: Vec<(Waiter, Result<i64, String>)>,
}

impl ProducerIds {
    pub(super) const fn new() -> Self {
        Self { free: 0..0, seen: Seen { revision: 0, next: 0 }, reserving: None, waiters: VecDeque::new() }
    }

    /// Somebody wants an id.
    pub(super) fn ask(&mut self, waiter: Waiter) -> Handed {
        self.waiters.push_back(waiter);
        let mut handed = Handed::default();
        self.hand_out(&mut handed);
        handed
    }

    /// Nobody is there any more to take this waiter's id.
    pub(super) fn forget(&mut self, waiter: Waiter) {
        self.waiters.retain(|other| *other != waiter);
    }

    /// A transaction is over.
    pub(super) fn on_finished(&mut self, outcome: Outcome<etcd::Response, Refusal>) -> Handed {
        let mut handed = Handed::default();
        let Some(Reserving { block, attempts }) = self.reserving.take() else { return handed };
        let unproven = matches!(outcome, Outcome::Unknown(_));
        match txn_response(outcome) {
            Ok(answer) if answer.succeeded => {
                self.seen = Seen { revision: answer.revision, next: block.end };
                self.free = block;
                self.hand_out(&mut handed);
            }
            Ok(answer) => match seen(answer.answers) {
                Ok(seen) => {
                    self.seen = seen;
                    if attempts < ATTEMPTS {
                        self.reserve(attempts + 1, &mut handed);
                    } else {
                        self.fail("other proxies reserve ids at the same time", &mut handed);
                    }
                }
                Err(text) => self.fail(text, &mut handed),
            },
            Err(_) if unproven && planted(Bug::UnprovenBlockUsed) => {
                self.free = block;
                self.hand_out(&mut handed);
            }
            Err(error) => self.fail(&error.text(), &mut handed),
        }
        handed
    }

    fn hand_out(&mut self, handed: &mut Handed) {
        while let Some(waiter) = self.waiters.pop_front() {
            match self.free.next() {
                Some(id) => handed.answers.push((waiter, Ok(id))),
                None => {
                    self.waiters.push_front(waiter);
                    if self.reserving.is_none() {
                        self.reserve(1, handed);
                    }
                    return;
                }
            }
        }
    }

    fn reserve(&mut self, attempts: u8, handed: &mut Handed) {
        let Seen { revision, next } = self.seen;
        let Some(end) = next.checked_add(BLOCK) else { return self.fail("every id is used up", handed) };
        let key = Bytes::from_static(KEY);
        let compare = match revision {
            0 => Compare::CreateRevision(key.clone(), 0),
            revision => Compare::ModRevision(key.clone(), revision),
        };
        handed.order = Some(TxnRequest {
            compares: vec![compare],
            success: vec![TxnOperation::Put { key: key.clone(), value: end.to_string().into(), lease: 0 }],
            failure: vec![TxnOperation::Range(RangeRequest::of(Keys::One(key)))],
        });
        self.reserving = Some(Reserving { block: next..end, attempts });
    }

    fn fail(&mut self, text: &str, handed: &mut Handed) {
        let waiters = self.waiters.drain(..);
        handed.answers.extend(waiters.map(|waiter| (waiter, Err(format!("no producer id: {text}")))));
    }
}

/// What a transaction that came too late has read.
fn seen(answers: Vec<TxnAnswer>) -> Result<Seen, &'static str> {
    let Some(TxnAnswer::Range(range)) = answers.into_iter().next() else { return Err("an answer of another kind") };
    let Some(kv) = range.kvs.first() else { return Ok(Seen { revision: 0, next: 0 }) };
    let next = std::str::from_utf8(&kv.value).ok().and_then(|text| text.parse().ok()).filter(|next| *next >= 0);
    let next = next.ok_or("/kafscale/lfs/v1/producer-ids holds no number; remove it to begin anew at 0")?;
    Ok(Seen { revision: kv.mod_revision, next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{KeyValue, RangeResponse, TxnResponse};
    use crate::listener::RequestId;

    fn waiter(number: u64) -> Waiter {
        Waiter::Request(RequestId(number))
    }

    fn reserved(revision: Revision) -> Outcome<etcd::Response, Refusal> {
        let answer = TxnResponse { revision, succeeded: true, answers: vec![TxnAnswer::Put] };
        Outcome::Applied(etcd::Response::Txn(answer))
    }

    fn holds(value: Option<&'static [u8]>, mod_revision: Revision) -> Outcome<etcd::Response, Refusal> {
        let kvs: Vec<_> = value
            .map(|value| KeyValue {
                key: Bytes::from_static(KEY),
                value: Bytes::from_static(value),
                create_revision: 1,
                mod_revision,
                lease: 0,
            })
            .into_iter()
            .collect();
        let range = RangeResponse { revision: mod_revision, count: kvs.len() as i64, kvs, more: false };
        let answer = TxnResponse { revision: 99, succeeded: false, answers: vec![TxnAnswer::Range(range)] };
        Outcome::Applied(etcd::Response::Txn(answer))
    }

    /// What a reservation compares and what it writes.
    fn order(handed: &Handed) -> Option<(Compare, &[u8])> {
        let TxnRequest { compares, success, .. } = handed.order.as_ref()?;
        let [TxnOperation::Put { value, lease: 0, .. }] = &success[..] else { panic!("{success:?}") };
        Some((compares[0].clone(), &value[..]))
    }

    fn key() -> Bytes {
        Bytes::from_static(KEY)
    }

    #[test]
    fn the_first_block_of_a_cluster() {
        let mut ids = ProducerIds::new();
        let handed = ids.ask(waiter(1));
        assert_eq!(order(&handed), Some((Compare::CreateRevision(key(), 0), &b"1000"[..])));
        assert_eq!(ids.ask(waiter(2)), Handed::default(), "one reservation at a time");
        assert_eq!(ids.on_finished(reserved(7)).answers, [(waiter(1), Ok(0)), (waiter(2), Ok(1))]);
        for id in 2..1_000 {
            assert_eq!(ids.ask(waiter(9)), Handed { order: None, answers: vec![(waiter(9), Ok(id))] });
        }
        let handed = ids.ask(waiter(3));
        assert_eq!(order(&handed), Some((Compare::ModRevision(key(), 7), &b"2000"[..])));
        assert_eq!(ids.on_finished(reserved(8)).answers, [(waiter(3), Ok(1_000))]);
    }

    #[test]
    fn others_were_ahead() {
        let mut ids = ProducerIds::new();
        ids.ask(waiter(1));
        let handed = ids.on_finished(holds(Some(b"3000"), 5));
        assert_eq!(order(&handed), Some((Compare::ModRevision(key(), 5), &b"4000"[..])));
        assert_eq!(ids.on_finished(reserved(6)).answers, [(waiter(1), Ok(3_000))]);

        let mut ids = ProducerIds::new();
        ids.ask(waiter(1));
        for _ in 1..ATTEMPTS {
            assert!(ids.on_finished(holds(Some(b"3000"), 5)).order.is_some());
        }
        let handed = ids.on_finished(holds(Some(b"3000"), 5));
        assert_eq!(handed.order, None);
        assert!(matches!(&handed.answers[..], [(_, Err(text))] if text.contains("at the same time")), "{handed:?}");
    }

    #[test]
    fn somebody_has_removed_the_key() {
        let mut ids = ProducerIds::new();
        ids.ask(waiter(1));
        ids.on_finished(holds(Some(b"3000"), 5));
        let handed = ids.on_finished(holds(None, 6));
        assert_eq!(order(&handed), Some((Compare::CreateRevision(key(), 0), &b"1000"[..])));
    }

    #[test]
    fn a_block_is_used_only_when_it_is_proven() {
        for (outcome, said) in [
            (Outcome::Unknown("timeout".into()), "timeout"),
            (Outcome::NotApplied(Refusal::Unreachable("refused".into())), "refused"),
            (Outcome::Applied(etcd::Response::LeaseRevoked), "another kind"),
            (holds(Some(b"many"), 5), "holds no number"),
            (holds(Some(b"-1"), 5), "holds no number"),
            (holds(Some(b"9223372036854775807"), 5), "used up"),
        ] {
            let mut ids = ProducerIds::new();
            ids.ask(waiter(1));
            let handed = ids.on_finished(outcome);
            let [(_, Err(text))] = &handed.answers[..] else { panic!("{said}: {handed:?}") };
            assert!(text.contains(said) && handed.order.is_none(), "{text}");
            assert!(ids.free.is_empty() && ids.reserving.is_none());
        }
        let mut ids = ProducerIds::new();
        ids.ask(waiter(1));
        ids.on_finished(Outcome::Unknown("timeout".into()));
        let handed = ids.ask(waiter(2));
        assert_eq!(order(&handed), Some((Compare::CreateRevision(key(), 0), &b"1000"[..])), "if it was not applied");
        let handed = ids.on_finished(holds(Some(b"1000"), 4));
        assert_eq!(order(&handed), Some((Compare::ModRevision(key(), 4), &b"2000"[..])), "if it was");
        assert_eq!(ids.on_finished(reserved(5)).answers, [(waiter(2), Ok(1_000))]);
    }

    #[test]
    fn who_has_left_takes_no_id() {
        let mut ids = ProducerIds::new();
        ids.ask(waiter(1));
        ids.ask(waiter(2));
        ids.forget(waiter(1));
        assert_eq!(ids.on_finished(reserved(7)).answers, [(waiter(2), Ok(0))]);
    }
}
