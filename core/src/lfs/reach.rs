//! Reaching a broker for a partition: choose, take a kept connection or dial, and try again after a wait.
//!
//! Each attempt looks at the cluster anew and tries every candidate once, so that a broker which appears during
//! the waits is found, and nothing is dialled on knowledge that has gone stale meanwhile.

use std::collections::VecDeque;

use crate::cluster::{Address, NotServing, Question};
use crate::input::ExchangeId;
use crate::planted::{Bug, planted};
use crate::stats::RetryReason;
use crate::time::Monotonic;
use crate::timers::Timer;

use super::Decision;
use super::broker_choice::{self, Asked, Choice};
use super::call::Call;
use super::idle_links::IdleLinks;
use super::link::Link;

/// For which partition.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pub(crate) topic: String,
    pub(crate) index: i32,
}

/// What a call led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Pending,
    /// The link is ready.
    Ready,
    Failed(NotReached),
}

/// Why no broker was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReached {
    /// The cluster may not be used.
    NotServing(NotServing),
    /// No candidate could be connected.
    Unreachable,
    /// Every candidate has refused already.
    NobodyLeft,
}

/// One search for a broker.
#[derive(Debug)]
pub(crate) struct Reach {
    exchange: ExchangeId,
    refused: Vec<Address>,
    attempts_left: u32,
    give_up: Monotonic,
    /// Whether a kept link may be taken.
    takes_kept: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// An attempt begins; these questions were asked for it.
    Choosing(Asked),
    /// A link is being opened; these come after it.
    Dialing(VecDeque<Address>),
    /// All candidates failed; the next attempt comes later.
    Waiting,
}

impl Reach {
    /// A search that leaves out brokers which have `refused`.
    pub(crate) fn new(call: &Call<'_, '_>, exchange: ExchangeId, refused: Vec<Address>, attempts: u32) -> Self {
        let give_up = call.ctx.now.monotonic + call.ctx.config.cluster.connect_total;
        let phase = Phase::Choosing(Asked::default());
        Self { exchange, refused, attempts_left: attempts.max(1), give_up, takes_kept: true, phase }
    }

    /// A search that takes no kept link.
    #[must_use]
    pub(crate) fn by_dialling(mut self) -> Self {
        self.takes_kept = false;
        self
    }

    /// Begins, with the link that is there from before, if any.
    pub(crate) fn start(&mut self, call: &mut Call<'_, '_>, partition: &Partition, link: &mut Option<Link>) -> Reached {
        self.choose(call, partition, link, Asked::default())
    }

    /// A question was answered. What was learned is in the cluster, also when it is only that nothing can be read.
    pub(crate) fn on_answer(
        &mut self,
        call: &mut Call<'_, '_>,
        partition: &Partition,
        link: &mut Option<Link>,
        question: &Question,
    ) -> Reached {
        let Phase::Choosing(asked) = self.phase else { return Reached::Pending };
        self.choose(call, partition, link, asked.and(question))
    }

    /// The link is ready. Dialling takes time, and what was fresh when it began may be too old to send anything now.
    pub(crate) fn on_ready(
        &mut self,
        call: &mut Call<'_, '_>,
        partition: &Partition,
        link: &mut Option<Link>,
    ) -> Reached {
        let (now, target) = (call.ctx.now.monotonic, (partition.topic.as_str(), partition.index));
        if broker_choice::is_fresh(call.cluster, &call.shared.config, now, target) {
            Reached::Ready
        } else {
            self.choose(call, partition, link, Asked::default())
        }
    }

    /// The link has ended before it was ready.
    pub(crate) fn on_down(&mut self, call: &mut Call<'_, '_>, link: &mut Option<Link>) -> Reached {
        match &mut self.phase {
            Phase::Dialing(left) => {
                let left = std::mem::take(left);
                let reached = self.dial(call, link, left);
                if reached == Reached::Pending {
                    call.shared.stats.retries.count(RetryReason::Unreachable);
                }
                reached
            }
            Phase::Choosing(_) | Phase::Waiting => Reached::Pending,
        }
    }

    /// The wait before the next attempt is over.
    pub(crate) fn on_retry(
        &mut self,
        call: &mut Call<'_, '_>,
        partition: &Partition,
        link: &mut Option<Link>,
    ) -> Reached {
        match self.phase {
            Phase::Waiting => self.choose(call, partition, link, Asked::default()),
            Phase::Choosing(_) | Phase::Dialing(_) => Reached::Pending,
        }
    }

    fn choose(
        &mut self,
        call: &mut Call<'_, '_>,
        partition: &Partition,
        link: &mut Option<Link>,
        asked: Asked,
    ) -> Reached {
        let shared = &mut *call.shared;
        let now = call.ctx.now.monotonic;
        let target = (partition.topic.as_str(), partition.index);
        let (candidates, any_will_do) =
            match broker_choice::choose(call.cluster, &shared.config, now, target, asked, shared.turn) {
                Choice::Owned(brokers) => (brokers, false),
                Choice::Open(brokers) => (brokers, true),
                Choice::Ask(question) => {
                    self.phase = Phase::Choosing(asked);
                    call.out.push(Decision::Ask { question, exchange: self.exchange });
                    return Reached::Pending;
                }
                Choice::Refused(reason) => return Reached::Failed(NotReached::NotServing(reason)),
            };
        shared.turn = shared.turn.wrapping_add(1);
        if candidates.is_empty() {
            return Reached::Failed(NotReached::NotServing(NotServing::NoBrokers));
        }
        let mut left = VecDeque::from(candidates);
        left.retain(|candidate| !self.refused.contains(candidate));
        let Some(best) = left.front() else { return Reached::Failed(NotReached::NobodyLeft) };
        if let Some(open) = link {
            let any_will_do = any_will_do || planted(Bug::OldOwnerAsked);
            let fits = if any_will_do { left.contains(open.address()) } else { open.address() == best };
            if open.is_ready() && fits {
                return Reached::Ready;
            }
        }
        if self.takes_kept
            && let Some(kept) = IdleLinks::take(call, self.exchange, best)
        {
            if let Some(old) = link.replace(kept) {
                IdleLinks::keep(call, old);
            }
            return Reached::Ready;
        }
        self.dial(call, link, left)
    }

    fn dial(&mut self, call: &mut Call<'_, '_>, link: &mut Option<Link>, mut left: VecDeque<Address>) -> Reached {
        if let Some(old) = link.take() {
            IdleLinks::keep(call, old);
        }
        let now = call.ctx.now.monotonic;
        if let Some(next) = left.pop_front().filter(|_| now < self.give_up) {
            *link = Some(Link::dial(call, self.exchange, next));
            self.phase = Phase::Dialing(left);
            return Reached::Pending;
        }
        self.attempts_left -= 1;
        let next_attempt = now + call.shared.config.connect_backoff;
        if self.attempts_left == 0 || next_attempt >= self.give_up {
            return Reached::Failed(NotReached::Unreachable);
        }
        self.phase = Phase::Waiting;
        call.ctx.timers.set(Timer::ExchangeRetry(self.exchange), next_attempt);
        Reached::Pending
    }
}
