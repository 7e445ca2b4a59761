//! ListGroups: asked of every broker, for each lists only what it coordinates; one entry per group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::bridge::Bridge;
use super::routes::{Key, Routes, Way};
use crate::cluster::{Address, Answer, Cluster, Question};
use crate::context::Context;
use crate::kafka::{ErrorCode, ListGroupsRequest, ListGroupsResponse};
use crate::listener::request::{Part, PartResult, RequestHead, RequestMachine, Step, Target, Undecodable};
use crate::time::Monotonic;

/// A broker is asked so often before it counts as one that could not be asked.
const ATTEMPTS: u8 = 2;
/// Time for all of it.
const DEADLINE: Duration = Duration::from_secs(30);

/// What is answered when a broker could not be asked: a list that may lack groups must not look complete.
const INCOMPLETE: ErrorCode = ErrorCode::COORDINATOR_NOT_AVAILABLE;

/// One ListGroups.
#[derive(Debug)]
pub(crate) struct ListGroups {
    bridge: Bridge,
    request: ListGroupsRequest,
    routes: Routes,
    until: Monotonic,
    parts: u32,
    asks: BTreeMap<Part, Ask>,
    listed: BTreeSet<Vec<u8>>,
    merged: ListGroupsResponse,
}

#[derive(Debug)]
struct Ask {
    broker: Address,
    attempt: u8,
}

impl ListGroups {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        Ok(Self {
            request: bridge.decode()?,
            bridge,
            routes: Routes::default(),
            until: ctx.now.monotonic + DEADLINE,
            parts: 0,
            asks: BTreeMap::new(),
            listed: BTreeSet::new(),
            merged: ListGroupsResponse::default(),
        })
    }

    fn begin(&mut self, ctx: &Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        match self.routes.way(cluster, ctx.now.monotonic, &Key::Anyone) {
            Way::Ask(question) => return self.routes.ask(question, steps),
            Way::Stale | Way::Absent => self.fail(ErrorCode::REQUEST_TIMED_OUT),
            Way::Broker(_) | Way::Anyone => {
                for broker in cluster.brokers() {
                    self.send(ctx.now.monotonic, Ask { broker: broker.clone(), attempt: 1 }, steps);
                }
                if self.asks.is_empty() {
                    self.fail(INCOMPLETE);
                }
            }
        }
        self.finish_when_answered(steps);
    }

    fn send(&mut self, now: Monotonic, ask: Ask, steps: &mut Vec<Step>) {
        let part = Part(self.parts);
        self.parts += 1;
        steps.push(Step::Send {
            part,
            target: Target::Only(ask.broker.clone()),
            bytes: self.bridge.request(&self.request),
            answered: true,
            deadline: self.until.since(now),
        });
        self.asks.insert(part, ask);
    }

    /// Keeps the first error.
    fn fail(&mut self, code: ErrorCode) {
        if self.merged.error_code == ErrorCode::NONE {
            self.merged.error_code = code;
        }
    }

    fn add(&mut self, response: ListGroupsResponse) {
        self.merged.throttle_time_ms = self.merged.throttle_time_ms.max(response.throttle_time_ms);
        self.fail(response.error_code);
        for group in response.groups {
            if self.listed.insert(group.group_id.as_bytes().to_vec()) {
                self.merged.groups.push(group);
            }
        }
    }

    fn lost(&mut self, now: Monotonic, ask: Ask, steps: &mut Vec<Step>) {
        if ask.attempt < ATTEMPTS && now < self.until {
            self.send(now, Ask { attempt: ask.attempt + 1, ..ask }, steps);
        } else {
            self.fail(INCOMPLETE);
        }
    }

    fn finish_when_answered(&self, steps: &mut Vec<Step>) {
        if self.asks.is_empty() {
            steps.push(Step::Done(self.bridge.answer(&self.merged)));
        }
    }
}

impl RequestMachine for ListGroups {
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        self.begin(ctx, cluster, steps);
    }

    fn on_part(&mut self, ctx: &mut Context<'_>, _: &Cluster, part: Part, result: PartResult, steps: &mut Vec<Step>) {
        let Some(ask) = self.asks.remove(&part) else { return };
        match result {
            PartResult::Answered { address: _, frame } => match self.bridge.response(&frame.freeze()) {
                Ok(response) => self.add(response),
                Err(_) => self.lost(ctx.now.monotonic, ask, steps),
            },
            PartResult::Lost { address: _, fate: _ } => self.lost(ctx.now.monotonic, ask, steps),
            PartResult::NotSent => self.fail(INCOMPLETE),
        }
        self.finish_when_answered(steps);
    }

    fn on_answer(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        question: &Question,
        _: &Answer,
        steps: &mut Vec<Step>,
    ) {
        if self.routes.answered(question) {
            self.begin(ctx, cluster, steps);
        }
    }

    fn on_wake(&mut self, _: &mut Context<'_>, _: &Cluster, _: &mut Vec<Step>) {}
}
