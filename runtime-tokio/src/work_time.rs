//! How long a shard is at work, and for how long at once: while one connection is served, all others of the shard wait.

use std::time::{Duration, Instant};

/// The longest call is remembered for at least so long, and for at most twice that.
const WINDOW: Duration = Duration::from_secs(60);

/// Time of one shard.
#[derive(Debug)]
pub(crate) struct WorkTime {
    busy: Duration,
    /// Longest call of this window.
    longest: Duration,
    /// Longest call of the window before.
    longest_before: Duration,
    window_began: Instant,
}

impl WorkTime {
    pub(crate) fn new(now: Instant) -> Self {
        Self { busy: Duration::ZERO, longest: Duration::ZERO, longest_before: Duration::ZERO, window_began: now }
    }

    /// The machine was called, and its orders were carried out.
    pub(crate) fn called(&mut self, began: Instant, ended: Instant) {
        self.turn(ended);
        self.longest = self.longest.max(ended.saturating_duration_since(began));
    }

    /// The shard was at work; calls and writes to sockets are in it.
    pub(crate) fn worked(&mut self, began: Instant, ended: Instant) {
        self.busy += ended.saturating_duration_since(began);
    }

    /// Time at work since the start.
    pub(crate) fn busy(&self) -> Duration {
        self.busy
    }

    /// The longest call of the last one or two minutes.
    pub(crate) fn longest(&mut self, now: Instant) -> Duration {
        self.turn(now);
        self.longest.max(self.longest_before)
    }

    fn turn(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.window_began);
        if age < WINDOW {
            return;
        }
        let last = std::mem::take(&mut self.longest);
        self.longest_before = if age < 2 * WINDOW { last } else { Duration::ZERO };
        self.window_began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_adds_up_and_the_longest_call_is_forgotten_after_a_while() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut work = WorkTime::new(start);
        for (began, ended) in [(0, 3), (10, 15), (20, 21)] {
            work.called(at(began), at(ended));
            work.worked(at(began), at(ended + 1));
        }
        assert_eq!(work.busy(), Duration::from_secs(12));
        assert_eq!(work.longest(at(59)), Duration::from_secs(5));
        assert_eq!(work.longest(at(61)), Duration::from_secs(5), "of the window before");
        work.called(at(62), at(63));
        assert_eq!(work.longest(at(122)), Duration::from_secs(1));
        assert_eq!(work.longest(at(500)), Duration::ZERO);
    }
}
