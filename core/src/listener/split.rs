//! Requests whose items belong to different brokers: split by owner, merged in request order, each item answered once.

mod groups;
mod partitions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use super::bridge::Bridge;
use super::expected::Expected;
use super::routes::{Key, Routes, Way};
use crate::cluster::{Address, Answer, Cluster, Question};
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::{ErrorCode, Request};
use crate::listener::request::{Fate, Part, PartResult, Reply, RequestHead, RequestMachine, Step, Target, Undecodable};
use crate::time::Monotonic;

/// How often an item is asked for before its refusal goes to the client.
const ROUNDS: u8 = 3;
/// Time for all rounds together.
const DEADLINE: Duration = Duration::from_secs(30);

/// A request that is a list of items.
pub(crate) trait Items: Request + Debug {
    /// The answer to one item, with what names the item.
    type Item: Debug;

    /// What a broker says that is not the one to ask.
    const MOVED: ErrorCode;
    /// What an item gets that was sent to nobody.
    const UNSENT: ErrorCode;
    /// Whether nobody but the broker that an item's key leads to may be asked ([`Key::Partition`]).
    const OWNER_ONLY: bool;
    /// Whether the request may be sent again when it may have been carried out before.
    const REPEATABLE: bool;
    /// Whether the request, where it succeeded, changes what Metadata shows.
    const CHANGES_METADATA: bool;

    /// The items, in request order.
    fn places(&self) -> Vec<Place>;
    /// The same request for these items only, whose numbers ascend.
    fn only(&self, items: &[usize]) -> Self;
    /// The answers in a response, and its throttle time in milliseconds.
    fn take(response: Self::Response) -> (Vec<Self::Item>, i32);
    /// The key of the item that this is the answer to.
    fn key(answer: &Self::Item) -> Key;
    /// Its error, or none.
    fn code(answer: &Self::Item) -> ErrorCode;
    /// The answer to an item that failed.
    fn failed(&self, place: &Place, code: ErrorCode) -> Self::Item;
    /// Makes good what brokers of this kind say in their own way.
    fn present(_kind: ClusterKind, _answer: &mut Self::Item) {}
    /// Puts the answers, one per item and in request order, into a response.
    fn merge(&self, answers: Vec<Self::Item>, throttle_time_ms: i32) -> Self::Response;
}

/// Where an item stands in its request, and what decides where it goes.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) key: Key,
    /// Which entry of the request's list.
    pub(crate) entry: usize,
    /// Which partition of that entry; 0 where entries have none.
    pub(crate) index: usize,
}

/// One such request under way.
#[derive(Debug)]
pub(crate) struct Split<R: Items> {
    bridge: Bridge,
    request: R,
    places: Vec<Place>,
    slots: Vec<Slot<R::Item>>,
    asks: BTreeMap<Part, Vec<usize>>,
    routes: Routes,
    parts: u32,
    until: Monotonic,
    throttle_time_ms: i32,
    /// The answer, held until the snapshot has been read.
    held: Option<Reply>,
}

#[derive(Debug)]
struct Slot<A> {
    state: State<A>,
    rounds: u8,
    not: Vec<Address>,
    /// What the last broker said that was not the one to ask.
    refusal: Option<ErrorCode>,
}

#[derive(Debug)]
enum State<A> {
    /// To be asked for as soon as its broker is known.
    Due,
    /// Asked for.
    Asked,
    /// Settled.
    Answered(A),
}

impl<R: Items> Split<R> {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        let request: R = bridge.decode()?;
        let places = request.places();
        let slots =
            places.iter().map(|_| Slot { state: State::Due, rounds: 0, not: Vec::new(), refusal: None }).collect();
        Ok(Self {
            bridge,
            request,
            places,
            slots,
            asks: BTreeMap::new(),
            routes: Routes::default(),
            parts: 0,
            until: ctx.now.monotonic + DEADLINE,
            throttle_time_ms: 0,
            held: None,
        })
    }

    fn go_on(&mut self, ctx: &Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        let now = ctx.now.monotonic;
        let mut groups: BTreeMap<Way, Vec<usize>> = BTreeMap::new();
        for slot in 0..self.slots.len() {
            if matches!(self.slots[slot].state, State::Due) {
                match self.routes.way(cluster, now, &self.places[slot].key) {
                    Way::Ask(question) => self.routes.want(question),
                    Way::Stale => self.fail(slot, R::UNSENT),
                    Way::Absent => self.settle(slot, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
                    way @ (Way::Broker(_) | Way::Anyone) => groups.entry(way).or_default().push(slot),
                }
            }
        }
        self.routes.put_questions(steps);
        for (way, slots) in groups {
            self.send(now, way, slots, steps);
        }
        self.finish_when_answered(steps);
    }

    fn send(&mut self, now: Monotonic, way: Way, slots: Vec<usize>, steps: &mut Vec<Step>) {
        let deadline = self.until.since(now);
        if deadline.is_zero() {
            return slots.into_iter().for_each(|slot| self.fail(slot, R::UNSENT));
        }
        let not: BTreeSet<Address> = slots.iter().flat_map(|slot| self.slots[*slot].not.iter().cloned()).collect();
        let target = match way {
            Way::Broker(address) if R::OWNER_ONLY => Target::Only(address),
            Way::Broker(address) => {
                Target::Prefer { not: not.into_iter().filter(|tried| *tried != address).collect(), address }
            }
            Way::Anyone | Way::Ask(_) | Way::Absent | Way::Stale => Target::Any { not: not.into_iter().collect() },
        };
        for slot in &slots {
            self.slots[*slot].state = State::Asked;
            self.slots[*slot].rounds += 1;
        }
        let part = Part(self.parts);
        self.parts += 1;
        let bytes = self.bridge.request(&self.request.only(&slots));
        steps.push(Step::Send { part, target, bytes, answered: true, deadline });
        self.asks.insert(part, slots);
    }

    fn answered(
        &mut self,
        kind: ClusterKind,
        asked: &[usize],
        address: &Address,
        response: R::Response,
        steps: &mut Vec<Step>,
    ) {
        let (answers, throttle_time_ms) = R::take(response);
        self.throttle_time_ms = self.throttle_time_ms.max(throttle_time_ms);
        let mut expected = Expected::new(asked, |slot| self.places[slot].key.clone());
        let found: Vec<_> =
            answers.into_iter().filter_map(|answer| Some((expected.take(&R::key(&answer))?, answer))).collect();
        let missing = expected.left();
        for (slot, mut answer) in found {
            if R::code(&answer) == R::MOVED {
                self.refused(slot, address, steps);
            } else {
                R::present(kind, &mut answer);
                self.slots[slot].state = State::Answered(answer);
            }
        }
        missing.into_iter().for_each(|slot| self.lost(slot, Fate::Unknown));
    }

    fn refused(&mut self, slot: usize, address: &Address, steps: &mut Vec<Step>) {
        self.slots[slot].refusal = Some(R::MOVED);
        self.slots[slot].not.push(address.clone());
        if self.slots[slot].rounds < ROUNDS {
            self.slots[slot].state = State::Due;
            self.routes.refused(&self.places[slot].key, address, steps);
        } else {
            self.fail(slot, R::MOVED);
        }
    }

    fn lost(&mut self, slot: usize, fate: Fate) {
        let again = match fate {
            Fate::NotApplied => true,
            Fate::Unknown => R::REPEATABLE,
        };
        if !again {
            self.fail(slot, ErrorCode::REQUEST_TIMED_OUT);
        } else if self.slots[slot].rounds < ROUNDS {
            self.slots[slot].state = State::Due;
        } else {
            self.fail(slot, R::MOVED);
        }
    }

    /// No broker could be reached that may be asked.
    fn unreachable(&mut self, slot: usize) {
        if !R::OWNER_ONLY {
            self.fail(slot, R::UNSENT);
        } else if self.slots[slot].rounds < ROUNDS {
            self.slots[slot].state = State::Due;
            self.routes.unreachable(&self.places[slot].key);
        } else {
            self.fail(slot, R::MOVED);
        }
    }

    /// Settles an item with the code that a broker gave it before, or else with this one.
    fn fail(&mut self, slot: usize, code: ErrorCode) {
        self.settle(slot, self.slots[slot].refusal.unwrap_or(code));
    }

    fn settle(&mut self, slot: usize, code: ErrorCode) {
        self.slots[slot].state = State::Answered(self.request.failed(&self.places[slot], code));
    }

    fn finish_when_answered(&mut self, steps: &mut Vec<Step>) {
        if self.slots.iter().any(|slot| !matches!(slot.state, State::Answered(_))) {
            return;
        }
        let mut changed = false;
        let mut answers = Vec::with_capacity(self.slots.len());
        for slot in std::mem::take(&mut self.slots) {
            if let State::Answered(answer) = slot.state {
                changed |= R::CHANGES_METADATA && R::code(&answer) == ErrorCode::NONE;
                answers.push(answer);
            }
        }
        let reply = self.bridge.answer(&self.request.merge(answers, self.throttle_time_ms));
        if changed {
            self.held = Some(reply);
            self.routes.ask(Question::Snapshot, steps);
        } else {
            steps.push(Step::Done(reply));
        }
    }
}

impl<R: Items> RequestMachine for Split<R> {
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        self.go_on(ctx, cluster, steps);
    }

    fn on_part(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        part: Part,
        result: PartResult,
        steps: &mut Vec<Step>,
    ) {
        let Some(asked) = self.asks.remove(&part) else { return };
        match result {
            PartResult::Answered { address, frame } => match self.bridge.response::<R::Response>(&frame.freeze()) {
                Ok(response) => self.answered(ctx.config.cluster.kind, &asked, &address, response, steps),
                Err(_) => asked.into_iter().for_each(|slot| self.lost(slot, Fate::Unknown)),
            },
            PartResult::Lost { address: _, fate } => asked.into_iter().for_each(|slot| self.lost(slot, fate)),
            PartResult::NotSent => asked.into_iter().for_each(|slot| self.unreachable(slot)),
        }
        self.go_on(ctx, cluster, steps);
    }

    fn on_answer(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        question: &Question,
        _: &Answer,
        steps: &mut Vec<Step>,
    ) {
        if !self.routes.answered(question) {
            return;
        }
        match self.held.take() {
            Some(reply) if *question == Question::Snapshot => steps.push(Step::Done(reply)),
            Some(reply) => self.held = Some(reply),
            None => self.go_on(ctx, cluster, steps),
        }
    }

    fn items(&self) -> usize {
        self.places.len()
    }

    fn on_wake(&mut self, _: &mut Context<'_>, _: &Cluster, _: &mut Vec<Step>) {}
}
