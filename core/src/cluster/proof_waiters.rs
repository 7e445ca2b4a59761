//! Who waits for a proof of a lease prefix that was ordered after they asked.

use std::mem;
use std::time::Duration;

use super::Waiter;
use super::freshness::Moment;
use crate::time::Monotonic;

/// They are answered within this time, although a long prefix may take longer to read.
const DEADLINE: Duration = Duration::from_secs(5);

/// The waiters of one prefix. A proof that is under way may have been served before the moment that a newcomer asks
/// about, so newcomers share the one after it.
pub(super) struct ProofWaiters {
    /// The read under way was ordered for them.
    asked: Vec<Waiter>,
    /// The next one is for them.
    queued: Vec<Waiter>,
    /// When those in `asked` have waited long enough.
    deadline: Option<Monotonic>,
}

impl ProofWaiters {
    pub(super) const fn new() -> Self {
        Self { asked: Vec::new(), queued: Vec::new(), deadline: None }
    }

    /// Somebody asks; `is_read` says whether the prefix is being read already. Says whether a read is to be ordered now.
    pub(super) fn join(&mut self, now: Moment, waiter: Waiter, is_read: bool) -> bool {
        self.deadline.get_or_insert(now.at + DEADLINE);
        if is_read {
            self.queued.push(waiter);
        } else {
            self.asked.push(waiter);
        }
        !is_read
    }

    /// Whether anybody waits.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.asked.is_empty() || !self.queued.is_empty()
    }

    /// The prefix is proven: whom that answers. When [`ProofWaiters::is_waited_for`] after that, another read is to be
    /// ordered.
    pub(super) fn on_proven(&mut self, now: Moment) -> Vec<Waiter> {
        let answered = mem::replace(&mut self.asked, mem::take(&mut self.queued));
        self.deadline = self.is_waited_for().then(|| now.at + DEADLINE);
        answered
    }

    /// The read has failed: nobody waits for another.
    pub(super) fn on_failed(&mut self) -> Vec<Waiter> {
        self.deadline = None;
        let mut answered = mem::take(&mut self.asked);
        answered.append(&mut self.queued);
        answered
    }

    /// Whose time is over.
    pub(super) fn on_timer(&mut self, now: Moment) -> Vec<Waiter> {
        if self.deadline.is_some_and(|deadline| deadline <= now.at) { self.on_failed() } else { Vec::new() }
    }

    pub(super) const fn deadline(&self) -> Option<Monotonic> {
        self.deadline
    }

    /// Nobody is there any more to take this waiter's answer.
    pub(super) fn forget(&mut self, waiter: Waiter) {
        self.asked.retain(|other| *other != waiter);
        self.queued.retain(|other| *other != waiter);
        if !self.is_waited_for() {
            self.deadline = None;
        }
    }
}
