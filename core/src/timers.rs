//! The one table of deadlines. No part of the machine keeps a deadline anywhere else.
//!
//! Kafka clients have one timer per connection to a broker (its oldest deadline), not one per request.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Source;
use crate::input::{BrokerConnectionId, ClientId, ExchangeId};
use crate::lfs::CleanupId;
use crate::listener::RequestId;
use crate::operation::OperationId;
use crate::time::Monotonic;

/// What a deadline is for. [`crate::Proxy::poll_timeout`] names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When the machine begins: at once.
    Start,
    /// When to read the cluster state again: the interval, or the wait after a failed watch.
    ClusterReload(Source),
    /// When an etcd or S3 operation is given up as `Unknown`.
    Operation(OperationId),
    /// When the oldest request (or the dial) of a broker connection is given up.
    BrokerConnection(BrokerConnectionId),
    /// When an idle Kafka client is closed.
    ClientIdle(ClientId),
    /// When a Kafka client's requests that wait for a broker go on: the next attempt, or the end of all attempts.
    ClientDial(ClientId),
    /// When a Kafka client goes on whose requests bring long answers, so that the driver can say that it does not take them.
    ClientTurn(ClientId),
    /// When a Kafka client is given up whose request is not whole: no room for it, or its bytes do not come in time.
    ClientFrame(ClientId),
    /// When a Kafka client is given up that takes nothing of its answers.
    ClientBlocked(ClientId),
    /// Answers that were written must have left by now, and others wait for their room.
    AnswerRoom,
    /// When a Kafka request goes on: a retry wait, or its own deadline.
    Request(RequestId),
    /// When an HTTP exchange goes on: a retry wait before the next broker.
    ExchangeRetry(ExchangeId),
    /// When an HTTP exchange is given up: no progress of the body, or of the answer.
    ExchangeProgress(ExchangeId),
    /// When the removal of a blob that no record refers to is tried again.
    Cleanup(CleanupId),
    /// When readiness is answered without waiting longer for etcd.
    Readiness(ExchangeId),
    /// When the bucket is looked at again.
    S3Health,
    /// When shutdown goes on: the end of the grace, the end of the drain.
    Shutdown,
}

/// When the machine wants to be called, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// Call `handle_timeout` then; earlier is harmless.
    pub at: Monotonic,
    /// The first due timer.
    pub reason: Timer,
}

/// Deadlines by time and by name.
#[derive(Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Monotonic, Timer)>,
    by_name: BTreeMap<Timer, Monotonic>,
}

impl Timers {
    /// Sets or moves a deadline.
    pub(crate) fn set(&mut self, timer: Timer, at: Monotonic) {
        if let Some(before) = self.by_name.insert(timer, at) {
            if before == at {
                return;
            }
            self.by_time.remove(&(before, timer));
        }
        self.by_time.insert((at, timer));
    }

    /// Sets a deadline unless it is set for the same time or an earlier one.
    pub(crate) fn set_no_later(&mut self, timer: Timer, at: Monotonic) {
        if self.by_name.get(&timer).is_none_or(|before| at < *before) {
            self.set(timer, at);
        }
    }

    /// Removes a deadline; one that is not set is no error.
    pub(crate) fn clear(&mut self, timer: Timer) {
        if let Some(at) = self.by_name.remove(&timer) {
            self.by_time.remove(&(at, timer));
        }
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.by_name.contains_key(&timer)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Timeout> {
        self.by_time.first().map(|(at, reason)| Timeout { at: *at, reason: *reason })
    }

    /// Takes the earliest deadline that is not after `now`.
    pub(crate) fn pop_due(&mut self, now: Monotonic) -> Option<Timer> {
        let (at, timer) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.by_time.remove(&(at, timer));
        self.by_name.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_only_moved_forward_on_purpose() {
        let mut timers = Timers::default();
        let at = Monotonic::from_millis;
        timers.set_no_later(Timer::S3Health, at(20));
        timers.set_no_later(Timer::S3Health, at(30));
        assert_eq!(timers.next().map(|timeout| timeout.at), Some(at(20)));
        timers.set_no_later(Timer::S3Health, at(10));
        assert_eq!(timers.next().map(|timeout| timeout.at), Some(at(10)));
    }

    #[test]
    fn earliest_first_and_moved_deadlines_leave_nothing_behind() {
        let mut timers = Timers::default();
        let at = Monotonic::from_millis;
        timers.set(Timer::S3Health, at(30));
        timers.set(Timer::Shutdown, at(20));
        timers.set(Timer::Shutdown, at(40));
        timers.set(Timer::ClientIdle(ClientId(1)), at(10));
        timers.clear(Timer::ClientIdle(ClientId(1)));
        timers.clear(Timer::ClientIdle(ClientId(1)));
        assert_eq!(timers.next(), Some(Timeout { at: at(30), reason: Timer::S3Health }));
        assert_eq!(timers.pop_due(at(29)), None);
        assert_eq!(timers.pop_due(at(30)), Some(Timer::S3Health));
        assert!(timers.is_set(Timer::Shutdown));
        assert_eq!(timers.pop_due(at(100)), Some(Timer::Shutdown));
        assert_eq!(timers.next(), None);
    }
}
