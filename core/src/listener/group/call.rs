//! One call to the coordinator of a group: at most three brokers, one after the other, until one takes it.
//!
//! Kafka clients repeat group requests whose fate they do not know, and so does this.

use std::time::Duration;

use bytes::Bytes;

use crate::cluster::{Address, Cluster, Question};
use crate::listener::request::{Part, PartResult, Step, Target};
use crate::listener::routes::{Key, Routes, Way};
use crate::time::Monotonic;

/// Brokers that are tried for one call.
const ATTEMPTS: u8 = 3;

/// What is known after a step of a call.
#[derive(Debug)]
pub(crate) enum Called {
    /// A broker or etcd is being asked.
    Pending,
    /// A broker answered; what it says may still be that it is not the coordinator: [`CoordinatorCall::refused`].
    Answered { address: Address, frame: Bytes },
    /// Every attempt is used up, or nothing may be sent any more.
    Exhausted,
}

/// A call. It can be used again for a further frame to the same group ([`CoordinatorCall::send`]).
#[derive(Debug)]
pub(crate) struct CoordinatorCall {
    key: Key,
    until: Monotonic,
    routes: Routes,
    parts: u32,
    bytes: Bytes,
    attempts: u8,
    in_flight: Option<Part>,
    lost_at: Option<Address>,
    not: Vec<Address>,
}

impl CoordinatorCall {
    /// To the coordinator of `group`. `deadline` is the time for all frames and attempts together.
    pub(crate) fn new(now: Monotonic, group: &str, deadline: Duration) -> Self {
        Self {
            key: Key::Group(group.to_owned()),
            until: now + deadline,
            routes: Routes::default(),
            parts: 0,
            bytes: Bytes::new(),
            attempts: 0,
            in_flight: None,
            lost_at: None,
            not: Vec::new(),
        }
    }

    /// Sends a frame, with all attempts before it.
    pub(crate) fn send(&mut self, cluster: &Cluster, now: Monotonic, bytes: Bytes, steps: &mut Vec<Step>) -> Called {
        self.bytes = bytes;
        self.attempts = 0;
        self.lost_at = None;
        self.not.clear();
        self.attempt(cluster, now, steps)
    }

    /// What became of a part; parts of earlier attempts change nothing.
    pub(crate) fn on_part(
        &mut self,
        cluster: &Cluster,
        now: Monotonic,
        part: Part,
        result: PartResult,
        steps: &mut Vec<Step>,
    ) -> Called {
        if self.in_flight != Some(part) {
            return Called::Pending;
        }
        self.in_flight = None;
        match result {
            PartResult::Answered { address, frame } => Called::Answered { address, frame: frame.freeze() },
            PartResult::NotSent => Called::Exhausted,
            PartResult::Lost { address, fate: _ } => self.lost(cluster, now, address, steps),
        }
    }

    /// The connection broke, or what came makes no sense. A connection that the broker had closed while it was idle
    /// breaks too, so the coordinator gets a second chance before others are tried.
    pub(crate) fn lost(
        &mut self,
        cluster: &Cluster,
        now: Monotonic,
        address: Address,
        steps: &mut Vec<Step>,
    ) -> Called {
        if self.lost_at.as_ref() == Some(&address) {
            self.not.push(address);
        } else {
            self.lost_at = Some(address);
        }
        self.attempt(cluster, now, steps)
    }

    /// The broker is not the coordinator.
    pub(crate) fn refused(&mut self, address: Address, steps: &mut Vec<Step>) -> Called {
        if self.attempts >= ATTEMPTS {
            return Called::Exhausted;
        }
        self.routes.refused(&self.key, &address, steps);
        self.routes.put_questions(steps);
        self.not.push(address);
        Called::Pending
    }

    /// A question was answered; one that is not of this call changes nothing.
    pub(crate) fn on_answer(
        &mut self,
        cluster: &Cluster,
        now: Monotonic,
        question: &Question,
        steps: &mut Vec<Step>,
    ) -> Called {
        if self.routes.answered(question) { self.attempt(cluster, now, steps) } else { Called::Pending }
    }

    fn attempt(&mut self, cluster: &Cluster, now: Monotonic, steps: &mut Vec<Step>) -> Called {
        let deadline = self.until.since(now);
        if self.attempts >= ATTEMPTS || deadline.is_zero() {
            return Called::Exhausted;
        }
        let target = match self.routes.way(cluster, now, &self.key) {
            Way::Ask(question) => {
                self.routes.ask(question, steps);
                return Called::Pending;
            }
            Way::Stale | Way::Absent => return Called::Exhausted,
            Way::Broker(address) if !self.not.contains(&address) => Target::Prefer { address, not: self.not.clone() },
            Way::Broker(_) | Way::Anyone => Target::Any { not: self.not.clone() },
        };
        let part = Part(self.parts);
        self.parts += 1;
        self.attempts += 1;
        self.in_flight = Some(part);
        steps.push(Step::Send { part, target, bytes: self.bytes.clone(), answered: true, deadline });
        Called::Pending
    }
}
