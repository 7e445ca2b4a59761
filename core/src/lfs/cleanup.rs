//! Removing blobs and multipart uploads that no record refers to.
//!
//! A cleanup is detached from the request that it comes from: a client that has gone does not stop it. It first
//! aborts the multipart upload, so that no completion can come true after the delete, then deletes the object. Each
//! step is tried up to three times; what cannot be removed then is an orphan: it stays, is counted, and is
//! logged with its reason.
//!
//! Nothing fences a PutObject that was given up: the store may carry it out after the delete. So its object is deleted once
//! more when it can hardly be on its way any longer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::context::Context;
use crate::input::ExchangeId;
use crate::operation::Outcome;
use crate::planted::{Bug, planted};
use crate::s3::{Refusal, Request, Response};
use crate::timers::Timer;

use super::Decision;
use super::purpose::Purpose;

/// One try.
const DEADLINE: Duration = Duration::from_secs(10);
/// Waits between tries; as many tries as waits and one.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// How long a PutObject that was given up may still be on its way.
const LATE_PUT: Duration = Duration::from_secs(60);

/// A removal under way, unique for the lifetime of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CleanupId(pub u64);

/// What an upload left in the bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// Of its parts.
    pub(crate) upload: LeftUpload,
    /// Of its object.
    pub(crate) object: LeftObject,
}

/// A multipart upload that was begun and not completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeftUpload {
    /// There is none.
    #[default]
    None,
    /// It may be open, under this id.
    Open(String),
    /// It may be open, and S3 has not told its id: nobody can abort it.
    Nameless,
}

/// An object that nobody refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeftObject {
    /// There is none.
    #[default]
    None,
    /// It may be there.
    Stored,
    /// It may be there, or come to be there later: a PutObject was given up that may still be carried out.
    Late,
}

/// A blob that is not wanted any more.
#[derive(Clone, Debug)]
pub(crate) struct Unwanted {
    /// Topic, for the log.
    pub(crate) topic: String,
    /// Object key.
    pub(crate) key: String,
    /// What is there of it.
    pub(crate) leftovers: Leftovers,
    /// Who is told once, after the first try has ended.
    pub(crate) tell: Option<ExchangeId>,
}

/// What a step of a cleanup led to.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The first try has ended: this exchange waited for it.
    pub(crate) told: Option<ExchangeId>,
    /// It could not be removed: topic and key of the orphan.
    pub(crate) orphan: Option<(String, String)>,
}

#[derive(Debug)]
enum Step {
    Abort {
        upload_id: String,
    },
    Delete,
    /// The object was deleted, and is deleted once more in case that it came later.
    DeleteAgain,
}

#[derive(Debug)]
struct Cleanup {
    unwanted: Unwanted,
    step: Step,
    failed_tries: usize,
    /// The abort was given up; the delete is still worth a try.
    upload_stays: bool,
}

/// All removals of a shard.
#[derive(Default)]
pub(crate) struct Cleanups {
    next: u64,
    open: BTreeMap<CleanupId, Cleanup>,
}

impl Cleanups {
    /// Begins a removal; says whether there is anything that can be removed.
    pub(crate) fn begin(&mut self, unwanted: Unwanted, out: &mut Vec<Decision>) -> bool {
        let Leftovers { upload, object } = &unwanted.leftovers;
        let step = match (upload, object) {
            (LeftUpload::Open(upload_id), _) => Step::Abort { upload_id: upload_id.clone() },
            (LeftUpload::None | LeftUpload::Nameless, LeftObject::Stored | LeftObject::Late) => Step::Delete,
            (LeftUpload::None | LeftUpload::Nameless, LeftObject::None) => return false,
        };
        let id = CleanupId(self.next);
        self.next += 1;
        let cleanup = Cleanup { unwanted, step, failed_tries: 0, upload_stays: false };
        out.push(cleanup.order(id));
        self.open.insert(id, cleanup);
        true
    }

    /// A step has ended.
    pub(crate) fn on_outcome(
        &mut self,
        ctx: &mut Context<'_>,
        id: CleanupId,
        outcome: &Outcome<Response, Refusal>,
        out: &mut Vec<Decision>,
    ) -> Progress {
        let Some(cleanup) = self.open.get_mut(&id) else { return Progress::default() };
        let given_up = !is_gone(outcome);
        if given_up {
            tracing::warn!(key = %cleanup.unwanted.key, ?outcome, "a blob without a record could not be removed yet");
            if let Some(wait) = WAITS.get(cleanup.failed_tries) {
                cleanup.failed_tries += 1;
                ctx.timers.set(Timer::Cleanup(id), ctx.now.monotonic + *wait);
                return Progress { told: cleanup.unwanted.tell.take(), orphan: None };
            }
        }
        match (&cleanup.step, cleanup.unwanted.leftovers.object) {
            (Step::Abort { .. }, LeftObject::Stored | LeftObject::Late) => {
                cleanup.upload_stays = given_up;
                cleanup.go_on(Step::Delete);
                out.push(cleanup.order(id));
                Progress::default()
            }
            (Step::Delete, LeftObject::Late) if !given_up => {
                cleanup.go_on(Step::DeleteAgain);
                ctx.timers.set(Timer::Cleanup(id), ctx.now.monotonic + LATE_PUT);
                Progress { told: cleanup.unwanted.tell.take(), orphan: None }
            }
            (Step::Abort { .. } | Step::Delete | Step::DeleteAgain, _) => {
                let orphan = (given_up || cleanup.upload_stays) && !planted(Bug::FailedDeleteUncounted);
                let told = cleanup.unwanted.tell.take();
                let cleanup = self.open.remove(&id);
                Progress {
                    told,
                    orphan: cleanup.filter(|_| orphan).map(|cleanup| (cleanup.unwanted.topic, cleanup.unwanted.key)),
                }
            }
        }
    }

    /// The wait before the next try is over.
    pub(crate) fn on_timer(&self, id: CleanupId, out: &mut Vec<Decision>) {
        out.extend(self.open.get(&id).map(|cleanup| cleanup.order(id)));
    }

    /// Whether everything was removed, as far as anybody can tell: a second delete is not worth waiting for.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.values().all(|cleanup| matches!(cleanup.step, Step::DeleteAgain))
    }

    /// Gives all removals up; says of which blobs, as topic and key.
    pub(crate) fn give_up(&mut self) -> Vec<(String, String)> {
        let open = std::mem::take(&mut self.open);
        open.into_values().map(|cleanup| (cleanup.unwanted.topic, cleanup.unwanted.key)).collect()
    }
}

impl Cleanup {
    fn go_on(&mut self, step: Step) {
        self.step = step;
        self.failed_tries = 0;
    }

    fn order(&self, id: CleanupId) -> Decision {
        let key = self.unwanted.key.clone();
        let request = match &self.step {
            Step::Abort { upload_id } => Request::AbortMultipartUpload { key, upload_id: upload_id.clone() },
            Step::Delete | Step::DeleteAgain => Request::DeleteObject { key },
        };
        Decision::S3 { purpose: Purpose::Cleanup(id), request, deadline: DEADLINE }
    }
}

/// Whether the outcome proves that nothing is left to remove.
fn is_gone(outcome: &Outcome<Response, Refusal>) -> bool {
    match outcome {
        Outcome::Applied(_)
        | Outcome::NotApplied(Refusal::NoSuchKey | Refusal::NoSuchUpload | Refusal::NoSuchBucket) => true,
        Outcome::NotApplied(
            Refusal::Unreachable(_) | Refusal::AccessDenied(_) | Refusal::SlowDown(_) | Refusal::Other(_),
        )
        | Outcome::Unknown(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::context::Ids;
    use crate::random::Random;
    use crate::time::{Monotonic, Now};
    use crate::timers::Timers;

    /// Plays a removal: each entry is the outcome of the step that is open. Returns the verbs that were ordered, when
    /// the exchange was told (after how many outcomes), and the orphan.
    fn play(leftovers: Leftovers, outcomes: &[Outcome<Response, Refusal>]) -> (String, Option<usize>, bool) {
        let (config, mut timers, mut random, mut ids) =
            (Config::default(), Timers::default(), Random::new([0; 32]), Ids::default());
        let now = Now { monotonic: Monotonic::ZERO, unix_ms: 0 };
        let mut ctx = Context { now, config: &config, timers: &mut timers, random: &mut random, ids: &mut ids };
        let (mut cleanups, mut out) = (Cleanups::default(), Vec::new());
        let unwanted = Unwanted { topic: "t".into(), key: "k".into(), leftovers, tell: Some(ExchangeId(1)) };
        assert!(cleanups.begin(unwanted, &mut out));
        let (mut verbs, mut told, mut orphan) = (String::new(), None, false);
        for (place, outcome) in outcomes.iter().enumerate() {
            let ordered = out.pop();
            assert!(out.is_empty(), "one step at a time");
            match ordered {
                Some(Decision::S3 { request: Request::AbortMultipartUpload { .. }, .. }) => verbs.push('A'),
                Some(Decision::S3 { request: Request::DeleteObject { .. }, .. }) => verbs.push('D'),
                other => panic!("not a removal: {other:?}"),
            }
            let progress = cleanups.on_outcome(&mut ctx, CleanupId(0), outcome, &mut out);
            if progress.told.is_some() {
                assert_eq!(told.replace(place + 1), None, "told once");
            }
            orphan |= progress.orphan.is_some();
            if let Some(next) = ctx.timers.next() {
                assert!(out.is_empty(), "waits before the next try");
                let again = matches!(cleanups.open[&CleanupId(0)].step, Step::DeleteAgain);
                assert_eq!(cleanups.is_idle(), again, "only a second delete is not waited for");
                assert!(again || next.at < Monotonic::ZERO + LATE_PUT);
                ctx.timers.clear(Timer::Cleanup(CleanupId(0)));
                cleanups.on_timer(CleanupId(0), &mut out);
            }
        }
        assert!(out.is_empty() && cleanups.open.is_empty(), "over");
        (verbs, told, orphan)
    }

    #[test]
    fn abort_then_delete_up_to_three_tries_each() {
        let done = || Outcome::Applied(Response::Done);
        let lost = || Outcome::Unknown("reset".into());
        let slow = || Outcome::NotApplied(Refusal::SlowDown("503".into()));
        let open = || LeftUpload::Open("u".into());
        let both = || Leftovers { upload: open(), object: LeftObject::Stored };
        let object = || Leftovers { object: LeftObject::Stored, ..Leftovers::default() };
        let late = || Leftovers { object: LeftObject::Late, ..Leftovers::default() };
        let upload = || Leftovers { upload: open(), ..Leftovers::default() };
        let table = [
            (object(), vec![done()], ("D", Some(1), false)),
            (object(), vec![Outcome::NotApplied(Refusal::NoSuchKey)], ("D", Some(1), false)),
            (object(), vec![lost(), slow(), done()], ("DDD", Some(1), false)),
            (object(), vec![lost(), lost(), lost()], ("DDD", Some(1), true)),
            (upload(), vec![Outcome::NotApplied(Refusal::NoSuchUpload)], ("A", Some(1), false)),
            (upload(), vec![slow(), slow(), slow()], ("AAA", Some(1), true)),
            (both(), vec![done(), done()], ("AD", Some(2), false)),
            (both(), vec![lost(), done(), lost(), done()], ("AADD", Some(1), false)),
            (both(), vec![lost(), lost(), lost(), done()], ("AAAD", Some(1), true)),
            (late(), vec![done(), done()], ("DD", Some(1), false)),
            (late(), vec![lost(), done(), slow(), done()], ("DDDD", Some(1), false)),
            (late(), vec![done(), lost(), lost(), lost()], ("DDDD", Some(1), true)),
            (late(), vec![lost(), lost(), lost()], ("DDD", Some(1), true)),
        ];
        for (leftovers, outcomes, (verbs, told, orphan)) in table {
            assert_eq!(play(leftovers.clone(), &outcomes), (verbs.to_owned(), told, orphan), "{leftovers:?}");
        }
    }

    #[test]
    fn where_nothing_can_be_removed_nothing_is_done() {
        for upload in [LeftUpload::None, LeftUpload::Nameless] {
            let leftovers = Leftovers { upload, object: LeftObject::None };
            let unwanted = Unwanted { topic: "t".into(), key: "k".into(), leftovers, tell: None };
            let mut out = Vec::new();
            assert!(!Cleanups::default().begin(unwanted, &mut out));
            assert!(out.is_empty());
        }
    }
}
