//! Removing blobs and multipart uploads that no record refers to.
//!
//! A cleanup is detached from the request that it comes from: a client that has gone does not stop it. It first
//! aborts the multipart upload, so that no completion can come true after the delete, then deletes the object. Each
//! step is tried up to three times; what cannot be removed then is an orphan: it stays, is counted, and is
//! logged with its reason.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::context::Context;
use crate::input::ExchangeId;
use crate::operation::Outcome;
use crate::s3::{Refusal, Request, Response};
use crate::timers::Timer;

use super::Decision;
use super::purpose::Purpose;

/// One try.
const DEADLINE: Duration = Duration::from_secs(10);
/// Waits between tries; as many tries as waits and one.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// A removal under way, unique for the lifetime of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CleanupId(pub u64);

/// What an upload left in the bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// An open multipart upload.
    pub(crate) upload_id: Option<String>,
    /// An object, or what may have become one.
    pub(crate) object: bool,
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
    Abort { upload_id: String },
    Delete,
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
    /// Begins a removal; says whether there is anything to remove.
    pub(crate) fn begin(&mut self, mut unwanted: Unwanted, out: &mut Vec<Decision>) -> bool {
        let step = match (unwanted.leftovers.upload_id.take(), unwanted.leftovers.object) {
            (Some(upload_id), _) => Step::Abort { upload_id },
            (None, true) => Step::Delete,
            (None, false) => return false,
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
        if !is_gone(outcome) {
            tracing::warn!(key = %cleanup.unwanted.key, ?outcome, "a blob without a record could not be removed yet");
            if let Some(wait) = WAITS.get(cleanup.failed_tries) {
                cleanup.failed_tries += 1;
                ctx.timers.set(Timer::Cleanup(id), ctx.now.monotonic + *wait);
                return Progress { told: cleanup.unwanted.tell.take(), orphan: None };
            }
        }
        let given_up = !is_gone(outcome);
        let aborted = matches!(cleanup.step, Step::Abort { .. });
        cleanup.upload_stays |= given_up && aborted;
        if aborted && cleanup.unwanted.leftovers.object {
            cleanup.step = Step::Delete;
            cleanup.failed_tries = 0;
            out.push(cleanup.order(id));
            return Progress::default();
        }
        let orphan = given_up || cleanup.upload_stays;
        let told = cleanup.unwanted.tell.take();
        let cleanup = self.open.remove(&id);
        Progress {
            told,
            orphan: cleanup.filter(|_| orphan).map(|cleanup| (cleanup.unwanted.topic, cleanup.unwanted.key)),
        }
    }

    /// The wait before the next try is over.
    pub(crate) fn on_timer(&self, id: CleanupId, out: &mut Vec<Decision>) {
        out.extend(self.open.get(&id).map(|cleanup| cleanup.order(id)));
    }

    /// Whether nothing is being removed.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Cleanup {
    fn order(&self, id: CleanupId) -> Decision {
        let key = self.unwanted.key.clone();
        let request = match &self.step {
            Step::Abort { upload_id } => Request::AbortMultipartUpload { key, upload_id: upload_id.clone() },
            Step::Delete => Request::DeleteObject { key },
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
            if ctx.timers.is_set(Timer::Cleanup(CleanupId(0))) {
                assert!(out.is_empty(), "waits before the next try");
                ctx.timers.clear(Timer::Cleanup(CleanupId(0)));
                cleanups.on_timer(CleanupId(0), &mut out);
            }
        }
        assert!(out.is_empty() && cleanups.is_empty(), "over");
        (verbs, told, orphan)
    }

    #[test]
    fn abort_then_delete_up_to_three_tries_each() {
        let done = || Outcome::Applied(Response::Done);
        let lost = || Outcome::Unknown("reset".into());
        let slow = || Outcome::NotApplied(Refusal::SlowDown("503".into()));
        let both = || Leftovers { upload_id: Some("u".into()), object: true };
        let object = || Leftovers { upload_id: None, object: true };
        let upload = || Leftovers { upload_id: Some("u".into()), object: false };
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
        ];
        for (leftovers, outcomes, (verbs, told, orphan)) in table {
            assert_eq!(play(leftovers.clone(), &outcomes), (verbs.to_owned(), told, orphan), "{leftovers:?}");
        }
    }

    #[test]
    fn nothing_left_is_nothing_to_do() {
        let unwanted = Unwanted { topic: "t".into(), key: "k".into(), leftovers: Leftovers::default(), tell: None };
        let mut out = Vec::new();
        assert!(!Cleanups::default().begin(unwanted, &mut out));
        assert!(out.is_empty());
    }
}
