//! Removing blobs and multipart uploads that no record refers to.
//!
//! A cleanup is detached from the request that it comes from: a client that has gone does not stop it. It first
//! aborts the multipart upload, so that no completion can come true after the delete, then deletes the object. Each
//! step is tried up to three times; what cannot be removed then is an orphan: it is counted, logged with its reason, and
//! remembered. While the bucket can be used, orphans that are remembered are tried again, ever more rarely.
//!
//! Nothing fences a PutObject or an UploadPart that was given up: the store may carry it out after the delete or the abort. So
//! that is done once more when it can hardly be on its way any longer.
//!
//! Waiting changes nothing about who may refer to a blob: a cleanup begins when the publication is over and no record can
//! come to refer to the key, and a key is never drawn twice.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::S3Timeouts;
use crate::context::Context;
use crate::input::ExchangeId;
use crate::operation::Outcome;
use crate::planted::{Bug, planted};
use crate::s3::{Refusal, Request, Response};
use crate::time::Monotonic;
use crate::timers::Timer;

use super::Decision;
use super::purpose::Purpose;
use super::s3_call;

/// Waits between tries; as many tries as waits and one.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Orphans that are remembered; further ones are only counted.
const REMEMBERED: usize = 1_000;
/// Orphans that are tried again at once.
const AT_ONCE: usize = 8;
/// An orphan is tried again after this time, then after twice as long each time, up to [`LONGEST_REST`].
const FIRST_REST: Duration = Duration::from_secs(30);
/// See [`FIRST_REST`].
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// After so many rounds an orphan is forgotten, which takes half a day.
const ROUNDS: u32 = 18;

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
    /// As [`LeftUpload::Open`], and a part was given up that may still be stored, even after an abort.
    Late(String),
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
    /// What is to be counted, with topic and key.
    pub(crate) orphan: Option<(Orphan, String, String)>,
}

/// What became of a blob that could not be removed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphan {
    /// It stays for now.
    Left,
    /// It was left before, and is gone.
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Of the upload with this id.
    Abort(String),
    Delete,
    /// The upload was aborted, and is aborted once more in case that a part came later.
    AbortAgain(String),
    /// The object was deleted, and is deleted once more in case that it came later.
    DeleteAgain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Somebody may wait for it, and what fails is counted.
    First,
    /// The blob was counted before; so many rounds have failed since.
    Later(u32),
}

#[derive(Debug)]
struct Cleanup {
    unwanted: Unwanted,
    round: Round,
    step: Step,
    failed_tries: usize,
    /// A step was given up; the others are still worth a try.
    something_stays: bool,
}

/// An orphan that is tried again later.
#[derive(Debug)]
struct Remembered {
    unwanted: Unwanted,
    failed_rounds: u32,
}

/// All removals of a shard.
pub(crate) struct Cleanups {
    timeouts: S3Timeouts,
    next: u64,
    open: BTreeMap<CleanupId, Cleanup>,
    /// By the time at which they are due.
    remembered: BTreeMap<(Monotonic, u64), Remembered>,
}

impl Cleanups {
    /// None is under way.
    pub(crate) fn new(timeouts: S3Timeouts) -> Self {
        Self { timeouts, next: 0, open: BTreeMap::new(), remembered: BTreeMap::new() }
    }

    /// Begins a removal; says whether there is anything that can be removed.
    pub(crate) fn begin(&mut self, unwanted: Unwanted, out: &mut Vec<Decision>) -> bool {
        self.begin_round(unwanted, Round::First, out)
    }

    fn begin_round(&mut self, unwanted: Unwanted, round: Round, out: &mut Vec<Decision>) -> bool {
        let Leftovers { upload, object } = &unwanted.leftovers;
        let step = match (upload, object) {
            (LeftUpload::Open(upload_id) | LeftUpload::Late(upload_id), _) => Step::Abort(upload_id.clone()),
            (LeftUpload::None | LeftUpload::Nameless, LeftObject::Stored | LeftObject::Late) => Step::Delete,
            (LeftUpload::None | LeftUpload::Nameless, LeftObject::None) => return false,
        };
        let id = CleanupId(self.next);
        self.next += 1;
        let cleanup = Cleanup { unwanted, round, step, failed_tries: 0, something_stays: false };
        out.push(cleanup.order(id, &self.timeouts));
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
            if let (Round::First, Some(wait)) = (cleanup.round, WAITS.get(cleanup.failed_tries)) {
                cleanup.failed_tries += 1;
                ctx.timers.set(Timer::Cleanup(id), ctx.now.monotonic + *wait);
                return Progress { told: cleanup.unwanted.tell.take(), orphan: None };
            }
        }
        cleanup.something_stays |= given_up;
        match cleanup.next_step() {
            Some(step @ (Step::Abort(_) | Step::Delete)) => {
                cleanup.go_on(step);
                out.push(cleanup.order(id, &self.timeouts));
                Progress::default()
            }
            Some(step @ (Step::AbortAgain(_) | Step::DeleteAgain)) => {
                cleanup.go_on(step);
                ctx.timers.set(Timer::Cleanup(id), ctx.now.monotonic + self.timeouts.late_upload());
                Progress { told: cleanup.unwanted.tell.take(), orphan: None }
            }
            None => self.end(ctx, id, out),
        }
    }

    fn end(&mut self, ctx: &Context<'_>, id: CleanupId, out: &mut Vec<Decision>) -> Progress {
        let Some(Cleanup { mut unwanted, round, something_stays, .. }) = self.open.remove(&id) else {
            return Progress::default();
        };
        let told = unwanted.tell.take();
        let (topic, key) = (unwanted.topic.clone(), unwanted.key.clone());
        let orphan = match (something_stays && !planted(Bug::FailedDeleteUncounted), round) {
            (false, Round::First) => None,
            (false, Round::Later(_)) => {
                // The store takes removals again: whatever else is due need not wait for the next look at the bucket.
                self.try_again(ctx, out);
                Some(Orphan::Removed)
            }
            (true, Round::First) => {
                self.remember(ctx, unwanted, 0);
                Some(Orphan::Left)
            }
            (true, Round::Later(failed_rounds)) => {
                self.remember(ctx, unwanted, failed_rounds + 1);
                None
            }
        };
        Progress { told, orphan: orphan.map(|orphan| (orphan, topic, key)) }
    }

    fn remember(&mut self, ctx: &Context<'_>, unwanted: Unwanted, failed_rounds: u32) {
        if self.remembered.len() >= REMEMBERED || failed_rounds >= ROUNDS || planted(Bug::FailedDeleteForgotten) {
            return;
        }
        let rest = FIRST_REST.saturating_mul(2_u32.saturating_pow(failed_rounds)).min(LONGEST_REST);
        self.next += 1;
        self.remembered.insert((ctx.now.monotonic + rest, self.next), Remembered { unwanted, failed_rounds });
    }

    /// The bucket can be used: tries again what is due.
    pub(crate) fn try_again(&mut self, ctx: &Context<'_>, out: &mut Vec<Decision>) {
        let begun = self.open.values().filter(|cleanup| cleanup.round != Round::First).count();
        for _ in begun..AT_ONCE {
            let Some(first) = self.remembered.first_entry().filter(|first| first.key().0 <= ctx.now.monotonic) else {
                return;
            };
            let Remembered { unwanted, failed_rounds } = first.remove();
            self.begin_round(unwanted, Round::Later(failed_rounds), out);
        }
    }

    /// The wait before the next try is over.
    pub(crate) fn on_timer(&self, id: CleanupId, out: &mut Vec<Decision>) {
        out.extend(self.open.get(&id).map(|cleanup| cleanup.order(id, &self.timeouts)));
    }

    /// Whether everything was removed or counted, as far as anybody can tell: what is done once more, or later, is not worth
    /// waiting for.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.values().all(|cleanup| match (cleanup.round, &cleanup.step) {
            (Round::First, Step::Abort(_) | Step::Delete) => false,
            (Round::First, Step::AbortAgain(_) | Step::DeleteAgain) | (Round::Later(_), _) => true,
        })
    }

    /// Gives all removals up; says of which blobs that were not counted before, as topic and key.
    pub(crate) fn give_up(&mut self) -> Vec<(String, String)> {
        self.remembered.clear();
        let open = std::mem::take(&mut self.open).into_values();
        let uncounted = open.filter(|cleanup| cleanup.round == Round::First);
        uncounted.map(|cleanup| (cleanup.unwanted.topic, cleanup.unwanted.key)).collect()
    }
}

impl Cleanup {
    fn go_on(&mut self, step: Step) {
        self.step = step;
        self.failed_tries = 0;
    }

    /// What comes after a step that has ended, well or not.
    fn next_step(&self) -> Option<Step> {
        let Leftovers { upload, object } = &self.unwanted.leftovers;
        match (&self.step, object) {
            (Step::Abort(_), LeftObject::Stored | LeftObject::Late) => return Some(Step::Delete),
            (Step::Abort(_), LeftObject::None) | (Step::Delete, _) => {}
            (Step::AbortAgain(_) | Step::DeleteAgain, _) => return None,
        }
        match (upload, object) {
            _ if self.something_stays => None,
            (LeftUpload::Late(upload_id), _) => Some(Step::AbortAgain(upload_id.clone())),
            (_, LeftObject::Late) => Some(Step::DeleteAgain),
            (LeftUpload::None | LeftUpload::Open(_) | LeftUpload::Nameless, LeftObject::None | LeftObject::Stored) => {
                None
            }
        }
    }

    fn order(&self, id: CleanupId, timeouts: &S3Timeouts) -> Decision {
        let key = self.unwanted.key.clone();
        let request = match &self.step {
            Step::Abort(upload_id) | Step::AbortAgain(upload_id) => {
                Request::AbortMultipartUpload { key, upload_id: upload_id.clone() }
            }
            Step::Delete | Step::DeleteAgain => Request::DeleteObject { key },
        };
        Decision::S3 { purpose: Purpose::Cleanup(id), deadline: s3_call::deadline(timeouts, &request), request }
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
    use crate::time::Now;
    use crate::timers::Timers;

    struct Bench {
        config: Config,
        timers: Timers,
        random: Random,
        ids: Ids,
        now: Monotonic,
        cleanups: Cleanups,
        out: Vec<Decision>,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                config: Config::default(),
                timers: Timers::default(),
                random: Random::new([0; 32]),
                ids: Ids::default(),
                now: Monotonic::ZERO,
                cleanups: Cleanups::new(S3Timeouts::default()),
                out: Vec::new(),
            }
        }

        fn call<R>(&mut self, tell: impl FnOnce(&mut Cleanups, &mut Context<'_>, &mut Vec<Decision>) -> R) -> R {
            let mut ctx = Context {
                now: Now { monotonic: self.now, unix_ms: 0 },
                config: &self.config,
                timers: &mut self.timers,
                random: &mut self.random,
                ids: &mut self.ids,
            };
            tell(&mut self.cleanups, &mut ctx, &mut self.out)
        }

        fn begin(&mut self, key: &str, leftovers: Leftovers) {
            let unwanted = Unwanted { topic: "t".into(), key: key.into(), leftovers, tell: Some(ExchangeId(1)) };
            assert!(self.call(|cleanups, _, out| cleanups.begin(unwanted, out)));
        }

        /// The one step that is ordered: its verb, its key and its cleanup.
        fn ordered(&mut self) -> (char, String, CleanupId) {
            let Some(Decision::S3 { request, purpose: Purpose::Cleanup(id), .. }) = self.out.pop() else {
                panic!("nothing is ordered")
            };
            if let Request::AbortMultipartUpload { key, .. } = request {
                return ('A', key, id);
            }
            let Request::DeleteObject { key } = request else { panic!("not a removal: {request:?}") };
            ('D', key, id)
        }

        /// Waits for the next timer, if nothing is ordered but something is under way. Says how long it took.
        fn wait(&mut self) -> Duration {
            let before = self.now;
            if let Some(next) = self.timers.next().filter(|_| self.out.is_empty()) {
                self.now = next.at;
                let Some(Timer::Cleanup(id)) = self.timers.pop_due(next.at) else { panic!("another timer") };
                self.call(|cleanups, _, out| cleanups.on_timer(id, out));
            }
            self.now.since(before)
        }
    }

    /// Plays a removal: each entry is the outcome of the step that is open. Returns the verbs that were ordered, a dash where a
    /// minute went by before one; when the exchange was told (after how many outcomes); and whether it was left.
    fn play(leftovers: Leftovers, outcomes: &[Outcome<Response, Refusal>]) -> (String, Option<usize>, bool) {
        let mut bench = Bench::new();
        bench.begin("k", leftovers);
        let (mut verbs, mut told, mut left) = (String::new(), None, false);
        for (place, outcome) in outcomes.iter().enumerate() {
            let (verb, _, id) = bench.ordered();
            assert!(bench.out.is_empty(), "one step at a time");
            verbs.push(verb);
            assert_eq!(bench.cleanups.is_idle(), verbs.contains('-'), "only what is done once more is not waited for");
            let progress = bench.call(|cleanups, ctx, out| cleanups.on_outcome(ctx, id, outcome, out));
            if progress.told.is_some() {
                assert_eq!(told.replace(place + 1), None, "told once");
            }
            left |= progress.orphan == Some((Orphan::Left, "t".into(), "k".into()));
            if bench.wait() == S3Timeouts::default().late_upload() {
                verbs.push('-');
            }
        }
        assert!(bench.out.is_empty() && bench.cleanups.open.is_empty(), "over");
        assert_eq!(bench.cleanups.remembered.len(), usize::from(left));
        (verbs, told, left)
    }

    fn done() -> Outcome<Response, Refusal> {
        Outcome::Applied(Response::Done)
    }

    fn lost() -> Outcome<Response, Refusal> {
        Outcome::Unknown("reset".into())
    }

    fn slow() -> Outcome<Response, Refusal> {
        Outcome::NotApplied(Refusal::SlowDown("503".into()))
    }

    #[test]
    fn abort_then_delete_up_to_three_tries_each() {
        let no_upload = || Outcome::NotApplied(Refusal::NoSuchUpload);
        let open = || LeftUpload::Open("u".into());
        let late_part = || Leftovers { upload: LeftUpload::Late("u".into()), object: LeftObject::None };
        let late_part_and_object = || Leftovers { upload: LeftUpload::Late("u".into()), object: LeftObject::Stored };
        let both = || Leftovers { upload: open(), object: LeftObject::Stored };
        let object = || Leftovers { object: LeftObject::Stored, ..Leftovers::default() };
        let late = || Leftovers { object: LeftObject::Late, ..Leftovers::default() };
        let upload = || Leftovers { upload: open(), ..Leftovers::default() };
        let table = [
            (object(), vec![done()], ("D", Some(1), false)),
            (object(), vec![Outcome::NotApplied(Refusal::NoSuchKey)], ("D", Some(1), false)),
            (object(), vec![lost(), slow(), done()], ("DDD", Some(1), false)),
            (object(), vec![lost(), lost(), lost()], ("DDD", Some(1), true)),
            (upload(), vec![no_upload()], ("A", Some(1), false)),
            (upload(), vec![slow(), slow(), slow()], ("AAA", Some(1), true)),
            (both(), vec![done(), done()], ("AD", Some(2), false)),
            (both(), vec![lost(), done(), lost(), done()], ("AADD", Some(1), false)),
            (both(), vec![lost(), lost(), lost(), done()], ("AAAD", Some(1), true)),
            (late(), vec![done(), done()], ("D-D", Some(1), false)),
            (late(), vec![lost(), done(), slow(), done()], ("DD-DD", Some(1), false)),
            (late(), vec![done(), lost(), lost(), lost()], ("D-DDD", Some(1), true)),
            (late(), vec![lost(), lost(), lost()], ("DDD", Some(1), true)),
            (late_part(), vec![done(), no_upload()], ("A-A", Some(1), false)),
            (late_part(), vec![done(), lost(), done()], ("A-AA", Some(1), false)),
            (late_part(), vec![slow(), slow(), slow()], ("AAA", Some(1), true)),
            (late_part_and_object(), vec![done(), done(), done()], ("AD-A", Some(2), false)),
        ];
        for (leftovers, outcomes, (verbs, told, left)) in table {
            assert_eq!(
                play(leftovers.clone(), &outcomes),
                (verbs.to_owned(), told, left),
                "{leftovers:?} {outcomes:?}"
            );
        }
    }

    #[test]
    fn where_nothing_can_be_removed_nothing_is_done() {
        for upload in [LeftUpload::None, LeftUpload::Nameless] {
            let leftovers = Leftovers { upload, object: LeftObject::None };
            let unwanted = Unwanted { topic: "t".into(), key: "k".into(), leftovers, tell: None };
            let mut out = Vec::new();
            assert!(!Cleanups::new(S3Timeouts::default()).begin(unwanted, &mut out));
            assert!(out.is_empty());
        }
    }

    /// An object that could not be removed.
    fn left(bench: &mut Bench, key: &str) {
        bench.begin(key, Leftovers { object: LeftObject::Stored, ..Leftovers::default() });
        let mut counted = 0;
        for _ in 0..=WAITS.len() {
            let (_, _, id) = bench.ordered();
            let progress = bench.call(|cleanups, ctx, out| cleanups.on_outcome(ctx, id, &lost(), out));
            counted += usize::from(progress.orphan.is_some());
            bench.wait();
        }
        assert_eq!(counted, 1);
    }

    #[test]
    fn what_was_left_is_tried_again_ever_more_rarely_until_it_is_gone() {
        let mut bench = Bench::new();
        left(&mut bench, "k");
        for rest in [30, 60, 120, 240, 480, 960, 1920, 3600, 3600] {
            bench.now = bench.now + (Duration::from_secs(rest) - Duration::from_micros(1));
            bench.call(|cleanups, ctx, out| cleanups.try_again(ctx, out));
            assert!(bench.out.is_empty(), "not before {rest} s");
            bench.now = bench.now + Duration::from_micros(1);
            bench.call(|cleanups, ctx, out| cleanups.try_again(ctx, out));
            let (verb, key, id) = bench.ordered();
            assert_eq!((verb, key.as_str()), ('D', "k"));
            assert!(bench.cleanups.is_idle(), "the end of the process does not wait for it");
            let outcome =
                if rest == 3600 && bench.now > Monotonic::ZERO + Duration::from_secs(10_000) { done() } else { slow() };
            let progress = bench.call(|cleanups, ctx, out| cleanups.on_outcome(ctx, id, &outcome, out));
            assert_eq!(progress.told, None);
            let gone = outcome == done();
            assert_eq!(progress.orphan, gone.then(|| (Orphan::Removed, "t".into(), "k".into())), "counted once");
            assert_eq!(bench.cleanups.remembered.len(), usize::from(!gone));
            assert!(bench.timers.next().is_none(), "one try in a round");
        }
    }

    #[test]
    fn what_can_never_be_removed_is_forgotten_at_last() {
        let mut bench = Bench::new();
        left(&mut bench, "k");
        let mut rounds = 0;
        while !bench.cleanups.remembered.is_empty() {
            bench.now = bench.now + LONGEST_REST;
            bench.call(|cleanups, ctx, out| cleanups.try_again(ctx, out));
            let (_, _, id) = bench.ordered();
            bench.call(|cleanups, ctx, out| cleanups.on_outcome(ctx, id, &slow(), out));
            rounds += 1;
        }
        assert_eq!(rounds, ROUNDS);
    }

    #[test]
    fn few_at_once_and_the_next_when_one_is_gone() {
        let mut bench = Bench::new();
        for number in 0..AT_ONCE + 2 {
            left(&mut bench, &number.to_string());
        }
        bench.now = bench.now + FIRST_REST;
        bench.call(|cleanups, ctx, out| cleanups.try_again(ctx, out));
        bench.call(|cleanups, ctx, out| cleanups.try_again(ctx, out));
        assert_eq!(bench.out.len(), AT_ONCE);
        let mut gone = 0;
        while !bench.out.is_empty() {
            let (_, _, id) = bench.ordered();
            let progress = bench.call(|cleanups, ctx, out| cleanups.on_outcome(ctx, id, &done(), out));
            gone += usize::from(progress.orphan.is_some_and(|(orphan, ..)| orphan == Orphan::Removed));
        }
        assert_eq!(gone, AT_ONCE + 2);
        assert!(bench.cleanups.open.is_empty() && bench.cleanups.remembered.is_empty());
    }

    #[test]
    fn no_more_is_remembered_than_fits_and_the_end_counts_nothing_twice() {
        let mut bench = Bench::new();
        for number in 0..REMEMBERED + 5 {
            left(&mut bench, &number.to_string());
        }
        assert_eq!(bench.cleanups.remembered.len(), REMEMBERED);
        bench.now = bench.now + FIRST_REST;
        bench.call(|cleanups, ctx, out| cleanups.try_again(ctx, out));
        bench.begin("new", Leftovers { object: LeftObject::Stored, ..Leftovers::default() });
        assert_eq!(bench.cleanups.give_up(), [("t".to_owned(), "new".to_owned())]);
    }
}
