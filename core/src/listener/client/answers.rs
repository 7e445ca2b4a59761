//! Answers: the room that those of brokers take, and the turn in which they leave for the client.

use std::mem;

use bytes::Bytes;

use super::slot::{self, Slot, State};
use super::{Client, Env, Life};
use crate::input::BrokerConnectionId;
use crate::listener::answer_memory::room_of;
use crate::listener::request::{Decision, PartResult, Reply};
use crate::planted::{Bug, planted};

impl Client {
    /// There is room for the large answer that a broker has for the client.
    pub(in crate::listener) fn granted_answer(
        &mut self,
        env: &mut Env<'_, '_>,
        connection: BrokerConnectionId,
        bytes: usize,
    ) {
        self.with_pool(env, |pool, ctx, wires| pool.granted(ctx.now.monotonic, connection, bytes, wires));
        // It holds something now: what its oldest request needs waits no more.
        self.claim_room(env);
    }

    /// Room for large answers that have begun to come, now that it is known which request is the oldest.
    pub(super) fn claim_room(&mut self, env: &mut Env<'_, '_>) {
        if self.pool.wants_room() {
            let slots = mem::take(&mut self.slots);
            let is_needed = |request| slot::oldest_needs(&slots, request);
            self.with_pool(env, |pool, ctx, wires| pool.claim_room(ctx.now.monotonic, is_needed, wires));
            self.slots = slots;
        }
    }

    /// A large answer stays with its request until that is answered; one that nobody waits for is dropped.
    pub(super) fn hold_answer(&mut self, env: &mut Env<'_, '_>, position: Option<usize>, result: &PartResult) {
        let bytes = match result {
            PartResult::Answered { frame, .. } => room_of(frame.len()),
            PartResult::NotSent | PartResult::Lost { .. } => 0,
        };
        match position.map(|position| &mut self.slots[position]) {
            Some(slot) if matches!(slot.state, State::Producing | State::Running(_)) => slot.answers += bytes,
            Some(_) | None => env.shared.answers.give_back(self.id, bytes),
        }
    }

    /// The oldest request, once it is answered.
    fn next_answered(&mut self) -> Option<Slot> {
        let is_answered = |slot: &Slot| matches!(slot.state, State::Answered(_));
        if planted(Bug::AnswersOutOfOrder) {
            let position = self.slots.iter().position(is_answered)?;
            return self.slots.remove(position);
        }
        self.slots.pop_front_if(|slot| is_answered(slot))
    }

    /// Writes the answers that are due.
    pub(super) fn release(&mut self, env: &mut Env<'_, '_>) {
        while let Some(slot) = self.next_answered() {
            self.held -= slot.size;
            env.shared.memory.release(slot.reserved);
            env.shared.small.release(slot.small);
            let State::Answered(reply) = slot.state else { return };
            let (pieces, last) = match reply {
                Reply::Answer(pieces) => (pieces, false),
                Reply::AnswerAndClose(pieces) => (pieces, true),
                Reply::Silence => (Vec::new(), false),
                Reply::Close => (Vec::new(), true),
            };
            if matches!(self.life, Life::Serving | Life::Ending) {
                let client = self.id;
                self.burst += pieces.iter().map(Bytes::len).sum::<usize>();
                env.shared.answers.written(env.ctx.now.monotonic, client, slot.answers);
                env.out.extend(pieces.into_iter().map(|bytes| Decision::Write { client, bytes }));
                if last {
                    self.finish(env);
                }
            } else {
                env.shared.answers.give_back(self.id, slot.answers);
            }
        }
        if self.life == Life::Ending && self.slots.is_empty() {
            self.finish(env);
        }
    }
}
