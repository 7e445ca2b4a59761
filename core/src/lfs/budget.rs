//! A budget of bytes of one shard: memory of uploads, disk of downloads. What is held is taken from it first.
//!
//! Waiting is first come first served, so that a large request is not starved by small ones; and nothing is taken
//! past those that wait.

use std::collections::VecDeque;

use crate::stats::BudgetStats;

/// Bytes, and who waits for them.
pub(crate) struct Budget<W> {
    total: u64,
    free: u64,
    waiting: VecDeque<(W, u64)>,
    waits: u64,
    refusals: u64,
}

/// The answer to a request for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// Taken.
    Granted,
    /// In the queue; [`Budget::next_granted`] tells when.
    Queued,
    /// More than the whole budget: waiting would not help.
    Never,
}

impl<W: PartialEq> Budget<W> {
    pub(crate) fn new(total: u64) -> Self {
        Self { total, free: total, waiting: VecDeque::new(), waits: 0, refusals: 0 }
    }

    /// Takes `bytes`, or waits for them.
    pub(crate) fn reserve(&mut self, who: W, bytes: u64) -> Reserved {
        if bytes > self.total {
            self.refusals += 1;
            Reserved::Never
        } else if self.try_take(bytes) {
            Reserved::Granted
        } else {
            self.waiting.push_back((who, bytes));
            self.waits += 1;
            Reserved::Queued
        }
    }

    /// Takes `bytes` if they are free and nobody waits.
    pub(crate) fn try_take(&mut self, bytes: u64) -> bool {
        let granted = self.waiting.is_empty() && bytes <= self.free;
        if granted {
            self.free -= bytes;
        }
        granted
    }

    /// Gives bytes back.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.free += bytes;
        assert!(self.free <= self.total, "more bytes were given back than taken");
    }

    /// Stops waiting.
    pub(crate) fn forget(&mut self, who: &W) {
        self.waiting.retain(|(waiter, _)| waiter != who);
    }

    /// Has waited long enough, and is refused.
    pub(crate) fn refuse(&mut self, who: &W) {
        self.forget(who);
        self.refusals += 1;
    }

    /// Takes for the first that waits, if it can be served now.
    pub(crate) fn next_granted(&mut self) -> Option<W> {
        let (_, bytes) = self.waiting.front()?;
        if *bytes > self.free {
            return None;
        }
        let (who, bytes) = self.waiting.pop_front()?;
        self.free -= bytes;
        Some(who)
    }

    /// Size, waits and refusals.
    pub(crate) fn stats(&self) -> BudgetStats {
        BudgetStats { limit: self.total, waits: self.waits, refusals: self.refusals }
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> u64 {
        self.total - self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut budget = Budget::new(10);
        assert_eq!(budget.reserve('a', 6), Reserved::Granted);
        assert_eq!(budget.reserve('b', 8), Reserved::Queued);
        assert_eq!(budget.reserve('c', 1), Reserved::Queued, "nobody overtakes");
        assert!(!budget.try_take(1), "nothing is taken past those that wait");
        assert_eq!(budget.reserve('d', 11), Reserved::Never);
        assert_eq!(budget.next_granted(), None);
        budget.release(6);
        assert_eq!(budget.next_granted(), Some('b'));
        assert_eq!(budget.next_granted(), Some('c'));
        assert_eq!(budget.next_granted(), None);
        assert_eq!(budget.taken(), 9);
        assert!(budget.try_take(1));
    }

    #[test]
    fn who_leaves_the_queue_gets_nothing() {
        let mut budget = Budget::new(2);
        assert_eq!(budget.reserve('a', 2), Reserved::Granted);
        assert_eq!(budget.reserve('b', 2), Reserved::Queued);
        assert_eq!(budget.reserve('c', 2), Reserved::Queued);
        budget.forget(&'b');
        budget.release(2);
        assert_eq!(budget.next_granted(), Some('c'));
    }
}
