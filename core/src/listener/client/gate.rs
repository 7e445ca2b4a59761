//! The gate: no request goes on before the knowledge of the cluster may be used, and none that has to wait for another.

use std::mem;

use super::slot::{Slot, State};
use super::{Client, Env};
use crate::cluster::{Question, Service};
use crate::kafka::ApiKey;
use crate::listener::RequestId;
use crate::listener::machine::machine;
use crate::listener::not_ready::not_ready;
use crate::listener::request::{Reply, RequestHead, Undecodable};

/// Whether the requests behind one at the gate may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    On,
    /// The connection ends with it.
    Last,
}

impl Client {
    /// The TTL table for the request at the gate.
    pub(super) fn knock(&mut self, env: &mut Env<'_, '_>, request: RequestId) {
        match env.cluster.service(env.ctx.now.monotonic) {
            Service::AfterRead => {
                self.gate = Some(request);
                self.ask(env, request, Question::Freshness);
            }
            Service::Serving | Service::Refused(_) => self.pass_gate(env),
        }
    }

    /// All requests at the gate go on, in order, or are refused.
    pub(super) fn pass_gate(&mut self, env: &mut Env<'_, '_>) {
        let serving = match env.cluster.service_after_read(env.ctx.now.monotonic) {
            Service::Serving => true,
            Service::AfterRead | Service::Refused(_) => false,
        };
        self.commits_wait = false;
        let mut open_commit = false;
        for position in 0..self.slots.len() {
            if position > 0 && matches!(self.slots[position].state, State::FromMemory(_)) {
                continue;
            }
            let is_commit = self.slots[position].api == Some(ApiKey::OffsetCommit);
            if is_commit && open_commit {
                self.commits_wait = true;
            } else if self.pass(env, position, serving) == Passed::Last {
                return;
            }
            open_commit |= is_commit && !matches!(self.slots[position].state, State::Answered(_));
        }
    }

    /// A request goes on, if it is at the gate.
    fn pass(&mut self, env: &mut Env<'_, '_>, position: usize, serving: bool) -> Passed {
        let slot = &mut self.slots[position];
        let request = slot.request;
        match mem::replace(&mut slot.state, State::Producing) {
            passed @ (State::Producing | State::Running(_) | State::Answered(_)) => slot.state = passed,
            State::Gated(head) if serving => match self.begin(env, request, head) {
                Ok((state, items)) => {
                    self.charge(env, position, items);
                    self.slots[position].state = state;
                    self.start(env, position);
                }
                Err(Undecodable) => self.refuse(env, request),
            },
            State::Gated(head) => {
                self.answer(env, request, not_ready(&head));
            }
            State::FromMemory(asked) if serving => match asked.answer(env.cluster, &env.ctx.config.listener) {
                Ok(reply) => self.answer(env, request, reply),
                Err(Undecodable) => self.refuse(env, request),
            },
            State::FromMemory(asked) => {
                let reply = asked.not_ready(&env.ctx.config.listener);
                self.answer(env, request, reply);
            }
        }
        match self.slots[position].state {
            State::Answered(Reply::Close | Reply::AnswerAndClose(_)) => Passed::Last,
            State::Answered(Reply::Answer(_) | Reply::Silence)
            | State::Gated(_)
            | State::FromMemory(_)
            | State::Producing
            | State::Running(_) => Passed::On,
        }
    }

    /// The first state of a request, and how many items it has.
    fn begin(
        &mut self,
        env: &mut Env<'_, '_>,
        request: RequestId,
        head: RequestHead,
    ) -> Result<(State, usize), Undecodable> {
        if head.api == ApiKey::Produce {
            let items = self.producer.submit(env.ctx, env.cluster, request, head, &mut self.produced)?;
            Ok((State::Producing, items))
        } else {
            let machine = machine(env.ctx, head)?;
            let items = machine.items();
            Ok((State::Running(machine), items))
        }
    }

    fn start(&mut self, env: &mut Env<'_, '_>, position: usize) {
        let slot = &mut self.slots[position];
        if let State::Running(machine) = &mut slot.state {
            let (request, mut steps) = (slot.request, Vec::new());
            machine.start(env.ctx, env.cluster, &mut steps);
            self.take_steps(env, request, steps);
        }
        self.take_produced(env);
    }

    /// Lets a commit go on whose turn it is. Says whether there was one.
    pub(super) fn next_commit(&mut self, env: &mut Env<'_, '_>) -> bool {
        if !self.commits_wait || self.gate.is_some() {
            return false;
        }
        let mut commits = self.slots.iter().filter(|slot| slot.api == Some(ApiKey::OffsetCommit));
        let next = commits.find(|slot| !matches!(slot.state, State::Answered(_)));
        let Some(Slot { request, state: State::Gated(_), .. }) = next else { return false };
        let request = *request;
        self.knock(env, request);
        true
    }

    /// Lets a request go on that is answered from memory, once it is the oldest. Says whether there was one.
    pub(super) fn next_from_memory(&mut self, env: &mut Env<'_, '_>) -> bool {
        let oldest = self.slots.front().filter(|_| self.gate.is_none());
        let Some(Slot { request, state: State::FromMemory(_), .. }) = oldest else { return false };
        let request = *request;
        self.knock(env, request);
        true
    }
}
