//! When the answer to a Fetch leaves, and how long brokers are asked to wait meanwhile.
//!
//! `min_bytes` and `max_wait` of the client hold for its whole request, as in Kafka, although several brokers answer
//! it. KafScale brokers wait the full `max_wait` for every empty partition, one after the other, even when other
//! partitions have data; so they are first asked without a wait, and then with short waits that are shared out among
//! the partitions of one question.

use std::time::Duration;

use crate::time::Monotonic;

/// A partition that no broker has answered yet may take so long, whatever `max_wait` says: reading a cold segment
/// is work, not waiting. Clients that ask with a `max_wait` of some milliseconds would otherwise never see it.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// So long a broker that brought nothing is not asked to wait while others have not answered at all: what they bring may
/// be enough, and a wait that nobody needs holds the next request up.
const FIRST_ROUND: Duration = Duration::from_millis(50);

/// Time that a broker gets beyond `max_wait`, all rounds together.
const WORK: Duration = Duration::from_secs(30);

/// Longest wait of one question for several partitions, or beside other brokers: a record that comes for one of them is
/// held back by the waits for the others, and the next request by waits that are still under way.
const SHARED_SLICE: Duration = Duration::from_millis(200);

/// The least wait that is asked of a broker for one partition. With so many partitions that less is left for each, the
/// pause is made here and the broker is asked without a wait.
const LEAST_WAIT: Duration = Duration::from_millis(5);

/// Partitions are not asked more often than this where a broker answers at once though it was asked to wait.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);

/// What the partitions of a Fetch have brought so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes of records.
    pub(crate) bytes: u64,
    /// Partitions with an answer or a final error.
    pub(crate) answered: usize,
    /// Partitions without any answer yet.
    pub(crate) unanswered: usize,
    /// Something that must not wait for more: an error, or a partition whose broker has more stored than it sends at once.
    pub(crate) urgent: bool,
}

/// What to do with the request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer it.
    Answer,
    /// Look again when something arrives, at the latest then; `None` while only a broker's answer can change anything.
    Wait(Option<Monotonic>),
}

/// When partitions that brought nothing are asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Then, or at once when it is past.
    Until(Monotonic),
    /// The rest of `max_wait` is too short for another question.
    ForGood,
}

/// The waits of one Fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchWait {
    started: Monotonic,
    over: Monotonic,
    /// Longest wait that is asked of a broker at once.
    slice: Duration,
    /// Longest pause before it is asked again without one.
    pause: Duration,
    min_bytes: u64,
}

impl FetchWait {
    /// For a request of so many partitions that starts now; negative `min_bytes` mean 0. `slice` is the longest wait that is
    /// asked of a broker at once, so that nothing queues long behind it.
    pub(crate) fn new(now: Monotonic, partitions: usize, max_wait: Duration, min_bytes: i32, slice: Duration) -> Self {
        Self {
            started: now,
            over: now + max_wait,
            slice: if partitions > 1 { slice.min(SHARED_SLICE) } else { slice },
            pause: slice,
            min_bytes: u64::try_from(min_bytes).unwrap_or(0),
        }
    }

    /// Whether the answer leaves now.
    pub(crate) fn verdict(&self, now: Monotonic, progress: Progress) -> Verdict {
        if progress.unanswered == 0 {
            let enough = progress.urgent || progress.bytes >= self.min_bytes;
            return if enough || now >= self.over { Verdict::Answer } else { Verdict::Wait(Some(self.over)) };
        }
        if progress.answered == 0 {
            return Verdict::Wait(None);
        }
        let patience = self.over.max(self.started + FIRST_ANSWER);
        if now >= patience { Verdict::Answer } else { Verdict::Wait(Some(patience)) }
    }

    /// The wait of the first question, milliseconds for each partition. A request of a single partition can wait at its
    /// broker from the start: it keeps nothing else waiting.
    pub(crate) fn first_wait_ms(&self, partitions: usize) -> i32 {
        if partitions == 1 { millis(self.over.since(self.started).min(self.slice)) } else { 0 }
    }

    /// The wait of a later question to one broker, milliseconds for each of its `partitions`.
    pub(crate) fn wait_ms(&self, now: Monotonic, partitions: usize) -> i32 {
        let share = self.share(now, partitions);
        if share >= LEAST_WAIT { millis(share) } else { 0 }
    }

    /// When to ask again for `partitions` that one broker has just answered without data, and that it was asked for at
    /// `asked_at` with a wait of `wait_ms`.
    pub(crate) fn pause(&self, now: Monotonic, asked_at: Monotonic, wait_ms: i32, partitions: usize) -> Pause {
        let remaining = self.over.since(now);
        if remaining < LEAST_WAIT {
            Pause::ForGood
        } else if self.share(now, partitions) >= LEAST_WAIT {
            // A broker that does not wait though it was asked to must not be asked in a busy loop.
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
            Pause::Until(if wait.is_zero() { now } else { asked_at + wait.max(LEAST_INTERVAL) })
        } else if remaining > self.pause {
            Pause::Until(now + self.pause)
        } else if remaining >= self.pause / 2 {
            Pause::Until(now + remaining / 2)
        } else {
            Pause::ForGood
        }
    }

    /// When partitions that rest until `until` may really be asked for again, with so many that nobody has answered yet.
    pub(crate) fn end_of_rest(&self, until: Monotonic, unanswered: usize) -> Monotonic {
        if unanswered == 0 { until } else { until.max(self.started + FIRST_ROUND) }
    }

    fn share(&self, now: Monotonic, partitions: usize) -> Duration {
        let window = self.over.since(now).min(self.slice);
        window / u32::try_from(partitions.max(1)).unwrap_or(u32::MAX)
    }

    /// How long a part may take from now on: the rest of `max_wait`, and time to work.
    pub(crate) fn deadline(&self, now: Monotonic) -> Duration {
        (self.over + WORK).since(now)
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(500);

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(10_000 + ms)
    }

    fn wait(max_wait_ms: u64, min_bytes: i32) -> FetchWait {
        FetchWait::new(at(0), 101, Duration::from_millis(max_wait_ms), min_bytes, SLICE)
    }

    fn single(max_wait_ms: u64) -> FetchWait {
        FetchWait::new(at(0), 1, Duration::from_millis(max_wait_ms), 1, SLICE)
    }

    #[test]
    fn when_the_answer_leaves() {
        let all = |bytes, urgent| Progress { bytes, answered: 3, unanswered: 0, urgent };
        let some = |bytes| Progress { bytes, answered: 2, unanswered: 1, urgent: false };
        let none = Progress { bytes: 0, answered: 0, unanswered: 3, urgent: false };
        let cases = [
            // max_wait, min_bytes, at, progress, verdict
            (2_000, 100, 0, all(100, false), Verdict::Answer),
            (2_000, 100, 0, all(99, false), Verdict::Wait(Some(at(2_000)))),
            (2_000, 100, 0, all(0, true), Verdict::Answer),
            (2_000, 100, 2_000, all(0, false), Verdict::Answer),
            (2_000, 0, 0, all(0, false), Verdict::Answer),
            (2_000, -1, 0, all(0, false), Verdict::Answer),
            (0, 1, 0, all(0, false), Verdict::Answer),
            // A slow broker holds the others' data back no longer than max_wait.
            (2_000, 100, 0, some(100), Verdict::Wait(Some(at(2_000)))),
            (2_000, 100, 2_000, some(0), Verdict::Answer),
            // A first answer gets its time, however short max_wait is.
            (0, 1, 0, some(100), Verdict::Wait(Some(at(1_000)))),
            (500, 1, 999, some(100), Verdict::Wait(Some(at(1_000)))),
            (500, 1, 1_000, some(100), Verdict::Answer),
            // Nothing is known of any partition.
            (500, 1, 5_000, none, Verdict::Wait(None)),
        ];
        for (max_wait, min_bytes, ms, progress, verdict) in cases {
            assert_eq!(wait(max_wait, min_bytes).verdict(at(ms), progress), verdict, "{max_wait} {ms} {progress:?}");
        }
    }

    #[test]
    fn a_single_partition_waits_at_its_broker_from_the_start() {
        assert_eq!(single(200).first_wait_ms(1), 200);
        assert_eq!(single(5_000).first_wait_ms(1), 500);
        assert_eq!(single(5_000).wait_ms(at(500), 1), 500);
        assert_eq!(wait(5_000, 1).first_wait_ms(2), 0);
    }

    #[test]
    fn the_wait_is_shared_out() {
        let wait = wait(5_000, 1);
        assert_eq!(wait.wait_ms(at(0), 1), 200);
        assert_eq!(wait.wait_ms(at(0), 3), 66);
        assert_eq!(wait.wait_ms(at(4_850), 3), 50);
        assert_eq!(wait.wait_ms(at(0), 40), 5);
        assert_eq!(wait.wait_ms(at(0), 41), 0);
        assert_eq!(wait.wait_ms(at(6_000), 1), 0);
    }

    #[test]
    fn no_busy_loop() {
        let wait = wait(5_000, 1);
        // The first question had no wait: the second follows at once, with one.
        assert_eq!(wait.pause(at(3), at(0), 0, 3), Pause::Until(at(3)));
        // The broker waited as asked.
        assert_eq!(wait.pause(at(203), at(3), 66, 3), Pause::Until(at(69)));
        // It did not.
        assert_eq!(wait.pause(at(4), at(3), 66, 3), Pause::Until(at(69)));
        assert_eq!(wait.pause(at(4), at(3), 5, 40), Pause::Until(at(13)));
        // Too many partitions for a wait each: the pause is made here.
        assert_eq!(wait.pause(at(3), at(0), 0, 101), Pause::Until(at(503)));
        assert_eq!(wait.pause(at(4_600), at(4_599), 0, 101), Pause::Until(at(4_800)));
        assert_eq!(wait.pause(at(4_800), at(4_799), 0, 101), Pause::ForGood);
        // The end is near.
        assert_eq!(wait.pause(at(4_996), at(4_900), 33, 3), Pause::ForGood);
        assert_eq!(wait.pause(at(5_100), at(4_900), 33, 3), Pause::ForGood);
    }

    #[test]
    fn the_first_round_is_not_disturbed() {
        let wait = wait(5_000, 1);
        assert_eq!(wait.end_of_rest(at(3), 0), at(3));
        assert_eq!(wait.end_of_rest(at(3), 1), at(50));
        assert_eq!(wait.end_of_rest(at(60), 1), at(60));
    }

    #[test]
    fn all_rounds_share_one_deadline() {
        assert_eq!(wait(500, 1).deadline(at(0)), Duration::from_millis(30_500));
        assert_eq!(wait(500, 1).deadline(at(30_000)), Duration::from_millis(500));
        assert_eq!(wait(500, 1).deadline(at(40_000)), Duration::ZERO);
    }
}
