//! Ownership of partitions and groups: keys in etcd that hang on a lease, one lease for each kind.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use crate::etcd::{Compare, Keys, RangeRequest, Response, TxnAnswer, TxnOperation, TxnRequest};
use crate::time::Monotonic;

/// Time to live of a broker's leases, seconds.
pub(super) const TTL_SECONDS: i64 = 10;
/// etcd clients prolong a lease three times within its life.
const KEEP_ALIVE: Duration = Duration::from_millis(3_333);
/// And try again so soon after a failure.
const KEEP_ALIVE_RETRY: Duration = Duration::from_millis(500);

/// What can be owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Partition,
    Group,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Partition, Self::Group];

    /// The key of a resource: `topic/partition` or a group id.
    fn key(self, resource: &str) -> Bytes {
        match self {
            Self::Partition => format!("/kafscale/partition-leases/{resource}").into(),
            Self::Group => format!("/kafscale/group-leases/{resource}").into(),
        }
    }
}

/// The lease that all resources of a kind hang on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    /// None yet, or it has ended.
    None,
    /// A grant is under way.
    Granting,
    /// It stands until `ends`, as far as this broker knows.
    Held { lease: i64, ends: Monotonic, keep_alive_at: Monotonic, keeping: bool },
    /// The broker is shutting down; nothing is acquired any more.
    Closed,
}

/// What to do about the lease before a resource can be acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing: acquire with this lease.
    Ready(i64),
    /// Order a grant, and wait for it.
    Grant,
    /// Wait for the grant that is under way.
    Wait,
    /// Give up: the broker is shutting down.
    Never,
}

/// How a transaction about a resource ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acquired {
    /// It is ours.
    Ours,
    /// The key holds our id, from an earlier lease: take it over.
    TakeOver,
    /// Another broker has it.
    Theirs,
}

/// What one broker owns of one kind.
#[derive(Debug)]
pub(super) struct Ownership {
    kind: Kind,
    broker: Bytes,
    session: Session,
    owned: BTreeSet<String>,
}

impl Ownership {
    pub(super) fn new(kind: Kind, broker: i32) -> Self {
        Self { kind, broker: broker.to_string().into(), session: Session::None, owned: BTreeSet::new() }
    }

    pub(super) fn owns(&self, resource: &str) -> bool {
        self.owned.contains(resource)
    }

    pub(super) fn owned(&self) -> impl Iterator<Item = &str> {
        self.owned.iter().map(String::as_str)
    }

    pub(super) fn need(&mut self) -> Need {
        match self.session {
            Session::None => {
                self.session = Session::Granting;
                Need::Grant
            }
            Session::Granting => Need::Wait,
            Session::Held { lease, .. } => Need::Ready(lease),
            Session::Closed => Need::Never,
        }
    }

    /// A grant is done; the lease, if there is one.
    pub(super) fn granted(&mut self, now: Monotonic, lease: Option<i64>) {
        if self.session == Session::Granting {
            self.session = lease.map_or(Session::None, |lease| Session::Held {
                lease,
                ends: now + ttl(),
                keep_alive_at: now + KEEP_ALIVE,
                keeping: false,
            });
        }
    }

    /// Creates the key if nobody has it; else tells who does.
    pub(super) fn acquire(&self, resource: &str, lease: i64) -> TxnRequest {
        let key = self.kind.key(resource);
        TxnRequest {
            compares: vec![Compare::CreateRevision(key.clone(), 0)],
            success: vec![TxnOperation::Put { key: key.clone(), value: self.broker.clone(), lease }],
            failure: vec![TxnOperation::Range(RangeRequest::of(Keys::One(key)))],
        }
    }

    /// Hangs a key that holds our id on our present lease.
    pub(super) fn take_over(&self, resource: &str, lease: i64) -> TxnRequest {
        let key = self.kind.key(resource);
        TxnRequest {
            compares: vec![Compare::Value(key.clone(), self.broker.clone())],
            success: vec![TxnOperation::Put { key, value: self.broker.clone(), lease }],
            failure: vec![],
        }
    }

    /// Reads the answer to either transaction, made with `lease`.
    pub(super) fn acquired(&mut self, resource: &str, lease: i64, response: &Response) -> Option<Acquired> {
        let Response::Txn(txn) = response else { return None };
        if txn.succeeded {
            // The lease may have ended meanwhile; then the key hangs on nothing that we prolong.
            let current = matches!(self.session, Session::Held { lease: held, .. } if held == lease);
            return current.then(|| {
                self.owned.insert(resource.to_owned());
                Acquired::Ours
            });
        }
        Some(match txn.answers.first() {
            Some(TxnAnswer::Range(range)) if range.kvs.first().is_some_and(|kv| kv.value == self.broker) => {
                Acquired::TakeOver
            }
            Some(TxnAnswer::Range(_) | TxnAnswer::Put | TxnAnswer::Delete(_)) | None => Acquired::Theirs,
        })
    }

    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        match self.session {
            Session::Held { ends, keep_alive_at, keeping: false, .. } => Some(ends.min(keep_alive_at)),
            Session::Held { ends, keeping: true, .. } => Some(ends),
            Session::None | Session::Granting | Session::Closed => None,
        }
    }

    /// Owns this resource no more. Its key is not touched: somebody else holds it, or takes it away.
    pub(super) fn release(&mut self, resource: &str) {
        self.owned.remove(resource);
    }

    /// Gives up a lease that must have ended, and names one that is to be prolonged now.
    pub(super) fn handle_timeout(&mut self, now: Monotonic) -> Option<i64> {
        let Session::Held { lease, ends, keep_alive_at, keeping } = &mut self.session else { return None };
        if *ends <= now {
            self.lose();
            return None;
        }
        if *keeping || *keep_alive_at > now {
            return None;
        }
        *keeping = true;
        Some(*lease)
    }

    /// A prolongation is done: the seconds that remain, or `None` when nothing is known.
    pub(super) fn kept_alive(&mut self, now: Monotonic, kept: i64, ttl_seconds: Option<i64>) {
        let Session::Held { lease, ends, keep_alive_at, keeping } = &mut self.session else { return };
        if *lease != kept {
            return;
        }
        *keeping = false;
        match ttl_seconds {
            Some(1..) => {
                *ends = now + ttl();
                *keep_alive_at = now + KEEP_ALIVE;
            }
            Some(_) => self.lose(),
            None => *keep_alive_at = now + KEEP_ALIVE_RETRY,
        }
    }

    /// Owns and acquires nothing any more; the lease to revoke.
    pub(super) fn close(&mut self) -> Option<i64> {
        self.owned.clear();
        match std::mem::replace(&mut self.session, Session::Closed) {
            Session::Held { lease, .. } => Some(lease),
            Session::None | Session::Granting | Session::Closed => None,
        }
    }

    fn lose(&mut self) {
        self.session = Session::None;
        self.owned.clear();
    }
}

fn ttl() -> Duration {
    Duration::from_secs(TTL_SECONDS.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{KeyValue, RangeResponse, TxnResponse};

    const fn at(millis: u64) -> Monotonic {
        Monotonic::from_millis(millis)
    }

    fn held() -> Ownership {
        let mut ownership = Ownership::new(Kind::Partition, 7);
        assert_eq!(ownership.need(), Need::Grant);
        assert_eq!(ownership.need(), Need::Wait);
        ownership.granted(at(0), Some(1));
        assert_eq!(ownership.need(), Need::Ready(1));
        ownership
    }

    fn answer(succeeded: bool, holder: Option<&'static str>) -> Response {
        let kvs = holder.map(|value| KeyValue {
            key: "k".into(),
            value: value.into(),
            create_revision: 1,
            mod_revision: 1,
            lease: 9,
        });
        let range = RangeResponse { revision: 1, kvs: kvs.into_iter().collect(), count: 1, more: false };
        Response::Txn(TxnResponse { revision: 1, succeeded, answers: vec![TxnAnswer::Range(range)] })
    }

    #[test]
    fn who_may_own() {
        for (response, lease, acquired, owns) in [
            (answer(true, None), 1, Some(Acquired::Ours), true),
            (answer(true, None), 2, None, false),
            (answer(false, Some("7")), 1, Some(Acquired::TakeOver), false),
            (answer(false, Some("8")), 1, Some(Acquired::Theirs), false),
            (answer(false, None), 1, Some(Acquired::Theirs), false),
            (Response::LeaseRevoked, 1, None, false),
        ] {
            let mut ownership = held();
            assert_eq!(ownership.acquired("t/0", lease, &response), acquired, "{response:?}");
            assert_eq!(ownership.owns("t/0"), owns);
        }
    }

    #[test]
    fn a_lease_is_prolonged_in_time_and_lost_when_it_is_not() {
        let mut ownership = held();
        ownership.acquired("t/0", 1, &answer(true, None));
        assert_eq!(ownership.poll_timeout(), Some(at(3_333)));
        assert_eq!(ownership.handle_timeout(at(3_332)), None);
        assert_eq!(ownership.handle_timeout(at(3_333)), Some(1));
        assert_eq!(ownership.handle_timeout(at(3_334)), None, "one at a time");
        ownership.kept_alive(at(4_000), 1, Some(10));
        assert_eq!(ownership.handle_timeout(at(7_333)), Some(1));
        ownership.kept_alive(at(7_400), 1, None);
        assert_eq!(ownership.poll_timeout(), Some(at(7_900)));
        assert_eq!(ownership.handle_timeout(at(13_999)), Some(1));
        assert!(ownership.owns("t/0"));
        assert_eq!(ownership.handle_timeout(at(14_000)), None);
        assert!(!ownership.owns("t/0"));
        assert_eq!(ownership.need(), Need::Grant);
    }

    #[test]
    fn a_lease_that_etcd_no_longer_knows_is_lost() {
        let mut ownership = held();
        ownership.acquired("t/0", 1, &answer(true, None));
        ownership.kept_alive(at(1), 2, Some(0));
        assert!(ownership.owns("t/0"), "that was another lease");
        ownership.kept_alive(at(1), 1, Some(0));
        assert!(!ownership.owns("t/0"));
    }

    #[test]
    fn what_is_released_is_asked_for_again() {
        let mut ownership = held();
        ownership.acquired("t/0", 1, &answer(true, None));
        ownership.acquired("t/1", 1, &answer(true, None));
        ownership.release("t/0");
        assert_eq!(ownership.owned().collect::<Vec<_>>(), ["t/1"]);
        assert_eq!(ownership.acquired("t/0", 1, &answer(false, Some("8"))), Some(Acquired::Theirs));
    }

    #[test]
    fn a_closed_broker_acquires_nothing() {
        let mut ownership = held();
        ownership.acquired("t/0", 1, &answer(true, None));
        assert_eq!(ownership.close(), Some(1));
        assert_eq!((ownership.owns("t/0"), ownership.need(), ownership.close()), (false, Need::Never, None));
        ownership.granted(at(1), Some(3));
        assert_eq!(ownership.need(), Need::Never);
    }

    #[test]
    fn a_failed_grant_is_tried_again_by_the_next_request() {
        let mut ownership = Ownership::new(Kind::Group, 7);
        ownership.need();
        ownership.granted(at(0), None);
        assert_eq!(ownership.need(), Need::Grant);
    }
}
