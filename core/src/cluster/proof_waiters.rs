//! Who waits for a proof of a lease prefix that was ordered after they asked.

use std::mem;
use std::time::Duration;

use super::Waiter;
use super::freshness::Moment;
use crate::time::Monotonic;

/// They are answered within this time, although a long prefix may take longer to read.
const DEADLINE: Duration = Duration::from_secs(5);

/// Those who wait for the same read.
#[derive(Default)]
struct Waiters {
    waiters: Vec<Waiter>,
    /// When the first of them has waited long enough; then the others have to as well.
    deadline: Option<Monotonic>,
}

impl Waiters {
    fn join(&mut self, now: Moment, waiter: Waiter) {
        self.deadline.get_or_insert(now.at + DEADLINE);
        self.waiters.push(waiter);
    }

    fn forget(&mut self, waiter: Waiter) {
        self.waiters.retain(|other| *other != waiter);
        self.deadline = self.deadline.filter(|_| !self.waiters.is_empty());
    }

    fn take_due(&mut self, now: Moment) -> Vec<Waiter> {
        let is_due = self.deadline.is_some_and(|deadline| deadline <= now.at);
        if is_due { mem::take(self).waiters } else { Vec::new() }
    }
}

/// The waiters of one prefix. A proof that is under way may have been served before the moment that a newcomer asks
/// about, so newcomers share the one after it.
#[derive(Default)]
pub(super) struct ProofWaiters {
    /// The read under way was ordered for them.
    asked: Waiters,
    /// The next one is for them.
    queued: Waiters,
}

impl ProofWaiters {
    /// Somebody asks; `is_read` says whether the prefix is being read already. Says whether a read is to be ordered now.
    pub(super) fn join(&mut self, now: Moment, waiter: Waiter, is_read: bool) -> bool {
        if is_read {
            self.queued.join(now, waiter);
        } else {
            self.asked.join(now, waiter);
        }
        !is_read
    }

    /// Whether anybody waits.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.asked.waiters.is_empty() || !self.queued.waiters.is_empty()
    }

    /// The prefix is proven: whom that answers. When [`ProofWaiters::is_waited_for`] after that, another read is to be
    /// ordered.
    pub(super) fn on_proven(&mut self) -> Vec<Waiter> {
        mem::replace(&mut self.asked, mem::take(&mut self.queued)).waiters
    }

    /// The read has failed: nobody waits for another.
    pub(super) fn on_failed(&mut self) -> Vec<Waiter> {
        let mut answered = mem::take(&mut self.asked).waiters;
        answered.append(&mut mem::take(&mut self.queued).waiters);
        answered
    }

    /// Whose time is over.
    pub(super) fn on_timer(&mut self, now: Moment) -> Vec<Waiter> {
        let mut answered = self.asked.take_due(now);
        answered.append(&mut self.queued.take_due(now));
        answered
    }

    /// When somebody has waited long enough.
    pub(super) fn deadline(&self) -> Option<Monotonic> {
        self.asked.deadline.into_iter().chain(self.queued.deadline).min()
    }

    /// Nobody is there any more to take this waiter's answer.
    pub(super) fn forget(&mut self, waiter: Waiter) {
        self.asked.forget(waiter);
        self.queued.forget(waiter);
    }
}
