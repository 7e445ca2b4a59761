//! Publishing: the record that refers to a stored blob goes to the owner of the partition, at most three brokers.
//!
//! Only a refusal that proves that nothing was written leads to another broker. From the first byte that was handed to a
//! socket until its answer, the fate of the record is not known, and nothing but that answer can end the
//! publication well. How it ended is an [`Ending`]; what follows from it is decided there.

use bytes::{Bytes, BytesMut};

use std::time::Duration;

use crate::broker::Fate;
use crate::cluster::{Address, Question};
use crate::input::ExchangeId;
use crate::lifecycle::Lifecycle;
use crate::planted::{Bug, planted};
use crate::stats::RetryReason;
use crate::timers::Timer;

use super::Decision;
use super::broker_choice;
use super::call::Call;
use super::idle_links::IdleLinks;
use super::link::{Fact, Link};
use super::reach::{NotReached, Partition, Reach, Reached};
use super::record;
use super::verdict::{Answered, Ending};

/// Brokers that are asked at most.
const BROKERS: usize = 3;
/// Connections that may be lost before a byte was handed over.
const UNSENT: u32 = 3;
/// The broker itself gives up after 15 s.
const ANSWER: Duration = Duration::from_secs(20);

/// One publication.
#[derive(Debug)]
pub(crate) struct Publish {
    /// Name of the state: while it is being taken apart, its place is held by another.
    at: &'static str,
    exchange: ExchangeId,
    partition: Partition,
    frame: Bytes,
    correlation_id: i32,
    /// Brokers that have proved that they wrote nothing.
    refused: Vec<Address>,
    unsent: u32,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Looking for a broker. Nothing is on its way.
    Reaching(Reach),
    /// The request was written to the link.
    Sent,
    /// Refused; the wait before the next broker.
    Waiting,
    /// The current owner is being read.
    AskingOwner,
}

/// What a call led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Published {
    Pending,
    /// It is over. The offset of the record is known only when it was acknowledged.
    Ended(Ending, Option<i64>),
}

/// Its moves.
pub(crate) const LIFECYCLE: Lifecycle = Lifecycle {
    name: "Publication of an envelope",
    file: "core/src/lfs/publish.rs",
    start: "Reaching",
    moves: &[
        ("Reaching", "Sent", "connected to the owner"),
        ("Sent", "Waiting", "refused: nothing was written"),
        ("Sent", "Reaching", "the connection was lost before a byte was handed over"),
        ("Waiting", "AskingOwner", "the wait is over"),
        ("Waiting", "Reaching", "the wait is over, static brokers"),
        ("AskingOwner", "Reaching", "the current owner is known"),
    ],
};

impl Phase {
    const fn name(&self) -> &'static str {
        match self {
            Self::Reaching(_) => "Reaching",
            Self::Sent => "Sent",
            Self::Waiting => "Waiting",
            Self::AskingOwner => "AskingOwner",
        }
    }
}

impl Publish {
    fn enter(&mut self, next: Phase) {
        LIFECYCLE.step(&mut self.at, next.name());
        self.phase = next;
    }

    /// Begins, with the link from the check before the upload.
    pub(crate) fn start(
        call: &mut Call<'_, '_>,
        exchange: ExchangeId,
        partition: Partition,
        (key, envelope): (Option<Bytes>, Bytes),
        link: &mut Option<Link>,
    ) -> (Self, Published) {
        let correlation_id = call.correlation_id();
        let frame =
            record::request(&partition.topic, partition.index, key, envelope, call.ctx.now.unix_ms, correlation_id);
        let reach = Reach::new(call, exchange, Vec::new(), call.shared.config.connect_attempts);
        let phase = Phase::Reaching(reach);
        let refused = Vec::new();
        let mut publish =
            Self { at: "Reaching", exchange, partition, frame, correlation_id, refused, unsent: 0, phase };
        if planted(Bug::ClosedLinkUnnoticed) && link.is_none() {
            return (publish, Published::Ended(Ending::Ambiguous, None));
        }
        let open = link.as_ref().is_some_and(Link::is_ready);
        if planted(Bug::TtlUncheckedAfterUpload) && open {
            let published = publish.send(call, link);
            return (publish, published);
        }
        let published = publish.reach(call, link, |reach, call, partition, link| reach.start(call, partition, link));
        (publish, published)
    }

    /// A question was answered.
    pub(crate) fn on_answer(
        &mut self,
        call: &mut Call<'_, '_>,
        link: &mut Option<Link>,
        question: &Question,
    ) -> Published {
        match self.phase {
            // Unreadable or not: the cluster knows by now, and says so when a broker is chosen.
            Phase::AskingOwner => self.next_broker(call, link),
            Phase::Reaching(_) => {
                self.reach(call, link, |reach, call, partition, link| reach.on_answer(call, partition, link, question))
            }
            Phase::Sent | Phase::Waiting => Published::Pending,
        }
    }

    /// Something became of the link.
    pub(crate) fn on_link(&mut self, call: &mut Call<'_, '_>, link: &mut Option<Link>, fact: Fact) -> Published {
        match (&mut self.phase, fact) {
            (Phase::Reaching(_), Fact::Ready) => {
                self.reach(call, link, |reach, call, partition, link| reach.on_ready(call, partition, link))
            }
            (Phase::Reaching(_), Fact::Down) => {
                self.reach(call, link, |reach, call, _, link| reach.on_down(call, link))
            }
            (Phase::Sent, Fact::Answered(frame)) => self.on_answered(call, link, frame),
            (Phase::Sent, Fact::Unanswered(Fate::Unknown)) => Published::Ended(Ending::Ambiguous, None),
            (Phase::Sent, Fact::Unanswered(Fate::NotApplied)) => self.again_unsent(call, link),
            (Phase::Reaching(_), Fact::Answered(_) | Fact::Unanswered(_))
            | (Phase::Sent, Fact::Ready | Fact::Down)
            | (Phase::Waiting | Phase::AskingOwner, _) => Published::Pending,
        }
    }

    /// A wait is over.
    pub(crate) fn on_retry(&mut self, call: &mut Call<'_, '_>, link: &mut Option<Link>) -> Published {
        match self.phase {
            Phase::Reaching(_) => {
                self.reach(call, link, |reach, call, partition, link| reach.on_retry(call, partition, link))
            }
            Phase::Waiting if broker_choice::is_static(call.cluster, &call.shared.config) => {
                self.next_broker(call, link)
            }
            Phase::Waiting => {
                self.enter(Phase::AskingOwner);
                let question =
                    Question::PartitionOwner { topic: self.partition.topic.clone(), partition: self.partition.index };
                call.out.push(Decision::Ask { question, exchange: self.exchange });
                Published::Pending
            }
            Phase::Sent | Phase::AskingOwner => Published::Pending,
        }
    }

    /// Whether the record is on its way: then its answer is awaited, whoever has gone.
    pub(crate) const fn is_sent(&self) -> bool {
        match self.phase {
            Phase::Sent => true,
            Phase::Reaching(_) | Phase::Waiting | Phase::AskingOwner => false,
        }
    }

    fn reach(
        &mut self,
        call: &mut Call<'_, '_>,
        link: &mut Option<Link>,
        go_on: impl FnOnce(&mut Reach, &mut Call<'_, '_>, &Partition, &mut Option<Link>) -> Reached,
    ) -> Published {
        let Phase::Reaching(reach) = &mut self.phase else { return Published::Pending };
        match go_on(reach, call, &self.partition, link) {
            Reached::Pending => Published::Pending,
            Reached::Ready => self.send(call, link),
            Reached::Failed(NotReached::NotServing(_)) => Published::Ended(Ending::Stale, None),
            Reached::Failed(NotReached::Unreachable) => Published::Ended(Ending::NotConnected, None),
            Reached::Failed(NotReached::NobodyLeft) => Published::Ended(Ending::Refused, None),
        }
    }

    fn send(&mut self, call: &mut Call<'_, '_>, link: &mut Option<Link>) -> Published {
        let Some(open) = link.as_mut().filter(|open| open.is_ready()) else { return Published::Pending };
        if call.cluster.lacks_partition(&self.partition.topic, self.partition.index) {
            // Chosen when the topic was another one, or was not listed yet.
            return Published::Ended(Ending::TopicChanged, None);
        }
        let deadline = call.ctx.now.monotonic + ANSWER;
        let facts = open.send(call, self.frame.clone(), self.correlation_id, deadline);
        self.enter(Phase::Sent);
        // What is known at once was not sent: this broker has no version that can carry it.
        if facts.is_empty() { Published::Pending } else { self.on_refused(call, link) }
    }

    fn on_answered(&mut self, call: &mut Call<'_, '_>, link: &mut Option<Link>, frame: BytesMut) -> Published {
        let Some(answer) = record::answer(frame, &self.partition.topic, self.partition.index) else {
            // Whatever else that broker says along this connection is not believed either.
            if let Some(open) = link.take() {
                open.close(call);
            }
            return Published::Ended(Ending::Ambiguous, None);
        };
        match Answered::of(answer.error_code.0) {
            Answered::Acknowledged => Published::Ended(Ending::Acknowledged, Some(answer.base_offset)),
            Answered::Failed(code) => Published::Ended(Ending::Failed(code), None),
            Answered::NotLeader => self.on_refused(call, link),
        }
    }

    fn on_refused(&mut self, call: &mut Call<'_, '_>, link: &mut Option<Link>) -> Published {
        if let Some(open) = link.take() {
            let Partition { topic, index } = self.partition.clone();
            let by = open.address().clone();
            self.refused.push(by.clone());
            IdleLinks::keep(call, open);
            call.out.push(Decision::ForgetPartitionOwner { topic, partition: index, by });
        }
        if self.refused.len() >= BROKERS {
            return Published::Ended(Ending::Refused, None);
        }
        if !broker_choice::listed(call.cluster, &call.shared.config).iter().any(|one| !self.refused.contains(one)) {
            return Published::Ended(Ending::Refused, None);
        }
        call.shared.stats.retries.count(RetryReason::Refused);
        self.enter(Phase::Waiting);
        let at = call.ctx.now.monotonic + call.shared.config.connect_backoff;
        call.ctx.timers.set(Timer::ExchangeRetry(self.exchange), at);
        Published::Pending
    }

    /// The current owner unless it has refused, else one that was not asked; one attempt.
    fn next_broker(&mut self, call: &mut Call<'_, '_>, link: &mut Option<Link>) -> Published {
        let refused = if planted(Bug::SameBrokerAgain) { Vec::new() } else { self.refused.clone() };
        self.enter(Phase::Reaching(Reach::new(call, self.exchange, refused, 1)));
        self.reach(call, link, |reach, call, partition, link| reach.start(call, partition, link))
    }

    /// The connection was lost before it took a byte of the request.
    fn again_unsent(&mut self, call: &mut Call<'_, '_>, link: &mut Option<Link>) -> Published {
        self.unsent += 1;
        if self.unsent >= UNSENT {
            return Published::Ended(Ending::NotConnected, None);
        }
        call.shared.stats.retries.count(RetryReason::Unsent);
        let attempts = if self.refused.is_empty() { call.shared.config.connect_attempts } else { 1 };
        // What has befallen one connection may have befallen all that are kept.
        self.enter(Phase::Reaching(Reach::new(call, self.exchange, self.refused.clone(), attempts).by_dialling()));
        self.reach(call, link, |reach, call, partition, link| reach.start(call, partition, link))
    }
}
