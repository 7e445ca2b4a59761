//! One Kafka client: its requests in order, and everything that is under way for it.
//!
//! Requests are sent on as they arrive; answers leave in request order. Each request has a [`Slot`] from its arrival
//! until its answer is written. What is held for the client is bounded: by requests, by bytes, by what the client
//! takes and by what brokers read; beyond that it is not read.

mod answers;
mod gate;
mod reading;
mod slot;

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::cluster::{Answer, Cluster, Question, Service};
use crate::context::Context;
use crate::input::{self, BrokerConnectionId, ClientId};
use crate::kafka::Splitter;
use crate::listener::admit::{Admission, admit};
use crate::listener::from_memory::FromMemory;
use crate::listener::pool::{Outbound, Pool, PoolEvent, Ticket, Wires};
use crate::listener::produce::{ProduceSteps, Producer};
use crate::listener::request::{Decision, Fate, PartResult, Reply, RequestHead, Step, Undecodable};
use crate::listener::software::Software;
use crate::listener::{RequestId, Shared};
use crate::planted::{Bug, planted};
use crate::stats::RetryReason;
use crate::timers::Timer;
use reading::Reading;
use slot::{Slot, State};

/// How long the connections of a client that is gone stay open after its last request without an answer: their
/// sockets may still hold bytes of it, and closing drops them.
const LINGER: Duration = Duration::from_secs(1);

/// How long the requests of a client that is gone may go on, however long it was ready to wait itself.
const DEPARTED: Duration = Duration::from_secs(120);

/// So many bytes of answers leave in one call before the driver gets a chance to say that the client does not take them:
/// some requests of a few bytes have answers of megabytes that cost nobody a wait.
const BURST: usize = 1024 * 1024;

/// The chance.
const TURN: Duration = Duration::from_millis(1);

/// What one item of a request (a partition, a group) takes in memory at least, bytes. On the wire it may be six.
const ITEM: usize = 256;

/// What a call may look at and change besides the client itself.
pub(super) struct Env<'a, 'c> {
    pub(super) ctx: &'a mut Context<'c>,
    pub(super) cluster: &'a Cluster,
    pub(super) shared: &'a mut Shared,
    pub(super) out: &'a mut Vec<Decision>,
}

/// Where the connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Serving,
    /// Nothing more is read; closed when everything is answered.
    Ending,
    /// We have ordered the end.
    Closing,
    /// The socket is gone; what writes goes on to its end.
    Departed,
    /// Nothing is left to do.
    Gone,
}

/// Whether one more request may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Free,
    /// The client has as much under way as it may.
    ClientIsFull,
    /// It has something under way, and all clients of the shard together have too much.
    ShardIsFull,
}

/// One client.
pub(super) struct Client {
    id: ClientId,
    peer: SocketAddr,
    software: Software,
    life: Life,
    reading: Reading,
    slots: VecDeque<Slot>,
    /// Bytes of the requests in `slots`, and of answers that wait for those before them.
    held: usize,
    /// Requests wait for one answer about freshness, asked on behalf of this one.
    gate: Option<RequestId>,
    /// Commits wait for the one before them: it may have to be sent again, and must not undo them.
    commits_wait: bool,
    /// Bytes of answers written in this call.
    burst: usize,
    /// A whole frame was left where it is, for the next turn.
    is_behind: bool,
    pool: Pool,
    producer: Producer,
    events: VecDeque<PoolEvent>,
    produced: ProduceSteps,
    /// A request without an answer was handed to a socket: see [`LINGER`].
    was_silent: bool,
}

impl Client {
    pub(super) fn new(id: ClientId, peer: SocketAddr, env: &mut Env<'_, '_>) -> Self {
        if let Some(idle) = env.ctx.config.listener.idle_timeout {
            env.ctx.timers.set(Timer::ClientIdle(id), env.ctx.now.monotonic + idle);
        }
        Self {
            id,
            peer,
            software: env.shared.software.connected(),
            life: Life::Serving,
            reading: Reading::new(Splitter::for_requests(env.ctx.config.listener.request_max_bytes)),
            slots: VecDeque::new(),
            held: 0,
            gate: None,
            commits_wait: false,
            burst: 0,
            is_behind: false,
            pool: Pool::new(id),
            producer: Producer::new(),
            events: VecDeque::new(),
            produced: Vec::new(),
            was_silent: false,
        }
    }

    /// Whether nothing is left to do, so that the client can be forgotten.
    pub(super) fn is_gone(&self) -> bool {
        self.life == Life::Gone
    }

    /// Requests that are not answered yet.
    pub(super) fn open_requests(&self) -> usize {
        self.slots.len()
    }

    /// Bytes arrived.
    pub(super) fn received(&mut self, env: &mut Env<'_, '_>, bytes: BytesMut) {
        if self.life == Life::Serving {
            self.reading.push(env.ctx.now.monotonic, bytes);
            self.settle(env);
        }
    }

    /// The client does not take its answers, or takes them again.
    pub(super) fn clogged(&mut self, env: &mut Env<'_, '_>, clogged: bool) {
        self.reading.client_is_clogged = clogged;
        if clogged {
            env.shared.answers.clogged(self.id);
        } else {
            env.shared.answers.drained(self.id);
        }
        self.with_pool(env, |pool, ctx, wires| {
            let now = ctx.now.monotonic;
            if clogged { pool.pause(now, wires) } else { pool.resume(now, wires) }
        });
        self.settle(env);
    }

    /// The client's socket takes no bytes now, or has taken some since it was told last.
    pub(super) fn blocked(&mut self, env: &mut Env<'_, '_>) {
        match self.life {
            Life::Serving | Life::Ending if !planted(Bug::UnreadAnswersKept) => {
                let at = env.ctx.now.monotonic + env.ctx.config.listener.write_timeout;
                env.ctx.timers.set(Timer::ClientBlocked(self.id), at);
            }
            Life::Serving | Life::Ending | Life::Closing | Life::Departed | Life::Gone => {}
        }
    }

    /// The client has taken nothing of its answers for as long as it may. Its requests hold memory and its brokers wait.
    pub(super) fn on_blocked_timer(&mut self, env: &mut Env<'_, '_>) {
        let software = env.shared.software.show(self.software);
        tracing::warn!(client = self.id.0, peer = %self.peer, %software, "client takes no answers, connection closed");
        self.finish(env);
        self.settle(env);
    }

    /// The socket is gone.
    pub(super) fn closed(&mut self, env: &mut Env<'_, '_>) {
        self.life = Life::Departed;
        env.shared.software.disconnected(self.software);
        self.reading.leave(self.id, env);
        env.shared.answers.drained(self.id);
        env.ctx.timers.clear(Timer::ClientTurn(self.id));
        env.ctx.timers.clear(Timer::ClientBlocked(self.id));
        env.ctx.timers.set(Timer::ClientIdle(self.id), env.ctx.now.monotonic + DEPARTED);
        // What was received is carried out, as a broker would do.
        for slot in mem::take(&mut self.slots) {
            if matches!(slot.state, State::Producing | State::Running(_)) && slot.outlives_client() {
                self.slots.push_back(slot);
            } else {
                self.drop_slot(env, slot);
            }
        }
        self.gate = None;
        self.with_pool(env, |pool, ctx, wires| {
            // What outlives the client waits for its brokers and for nobody else any more.
            pool.resume(ctx.now.monotonic, wires);
            pool.end_waits(ctx, wires);
        });
        self.settle(env);
    }

    /// A fact about one of the client's sockets to brokers.
    pub(super) fn on_broker(&mut self, env: &mut Env<'_, '_>, input: input::Broker) {
        self.with_pool(env, |pool, ctx, wires| pool.on_broker(ctx, input, wires));
        self.settle(env);
    }

    /// etcd answered a question of one of the client's requests.
    pub(super) fn on_answer(
        &mut self,
        env: &mut Env<'_, '_>,
        request: RequestId,
        question: &Question,
        answer: &Answer,
    ) {
        if self.gate == Some(request) && *question == Question::Freshness {
            self.gate = None;
            self.pass_gate(env);
        } else if let Some(position) = self.position(request) {
            match &mut self.slots[position].state {
                State::Producing => {
                    self.producer.on_answer(env.ctx, env.cluster, request, question, &mut self.produced);
                }
                State::Running(machine) => {
                    let mut steps = Vec::new();
                    machine.on_answer(env.ctx, env.cluster, question, answer, &mut steps);
                    self.take_steps(env, request, steps);
                }
                State::Gated(_) | State::FromMemory(_) | State::Answered(_) => {}
            }
        }
        self.settle(env);
    }

    /// The wake of a request has come.
    pub(super) fn on_wake(&mut self, env: &mut Env<'_, '_>, request: RequestId) {
        if let Some(position) = self.position(request)
            && let State::Running(machine) = &mut self.slots[position].state
        {
            let mut steps = Vec::new();
            machine.on_wake(env.ctx, env.cluster, &mut steps);
            self.take_steps(env, request, steps);
        }
        self.settle(env);
    }

    /// The deadline of a connection to a broker has come.
    pub(super) fn on_deadline(&mut self, env: &mut Env<'_, '_>, connection: BrokerConnectionId) {
        self.with_pool(env, |pool, ctx, wires| pool.on_deadline(ctx, connection, wires));
        self.settle(env);
    }

    /// Requests that wait for a broker go on.
    pub(super) fn on_dial_timer(&mut self, env: &mut Env<'_, '_>) {
        self.with_pool(env, |pool, ctx, wires| pool.on_dial_timer(ctx, wires));
        self.settle(env);
    }

    /// The time of an idle client, or of one that is gone, may be over.
    pub(super) fn on_idle(&mut self, env: &mut Env<'_, '_>) {
        match self.life {
            Life::Departed => self.vanish(env),
            Life::Serving => {
                let Some(idle) = env.ctx.config.listener.idle_timeout else { return };
                if self.reading.was_active() || !self.slots.is_empty() {
                    env.ctx.timers.set(Timer::ClientIdle(self.id), env.ctx.now.monotonic + idle);
                } else {
                    tracing::debug!(client = self.id.0, peer = %self.peer, "idle client closed");
                    self.end(env);
                }
            }
            Life::Ending | Life::Closing | Life::Gone => {}
        }
    }

    /// The frame in front has waited for room, for its next byte, or for its last one.
    pub(super) fn on_frame_timer(&mut self, env: &mut Env<'_, '_>) {
        if let Some(reason) = self.reading.on_timer(self.id, env) {
            let reason = reason.text();
            let software = env.shared.software.show(self.software);
            tracing::warn!(client = self.id.0, peer = %self.peer, %software, reason, "request given up, connection closed");
            self.end(env);
        }
    }

    /// The next turn of a client whose requests bring long answers.
    pub(super) fn on_turn(&mut self, env: &mut Env<'_, '_>) {
        self.settle(env);
    }

    /// The large frame of the client holds so many bytes of room now.
    pub(super) fn granted(&mut self, env: &mut Env<'_, '_>, bytes: usize) {
        self.reading.granted(bytes);
        self.settle(env);
    }

    /// Nothing more is read; the connection is closed when everything before is answered.
    pub(super) fn end(&mut self, env: &mut Env<'_, '_>) {
        if self.life == Life::Serving {
            self.life = Life::Ending;
            self.reading.leave(self.id, env);
        }
        self.settle(env);
    }

    /// Goes on until nothing moves any more, then tells the drivers whether to read.
    fn settle(&mut self, env: &mut Env<'_, '_>) {
        self.burst = 0;
        self.is_behind = false;
        loop {
            self.take_produced(env);
            while let Some(event) = self.events.pop_front() {
                self.take_event(env, event);
                self.take_produced(env);
            }
            self.release(env);
            if !self.next_commit(env) && !self.next_from_memory(env) && !self.take_frame(env) {
                break;
            }
        }
        self.claim_room(env);
        match self.life {
            Life::Serving | Life::Ending => {
                if self.is_behind {
                    env.ctx.timers.set(Timer::ClientTurn(self.id), env.ctx.now.monotonic + TURN);
                }
                let serving = self.life == Life::Serving && !self.is_behind;
                let room = self.room(env);
                let read = serving && room == Room::Free && !self.pool.is_clogged();
                if serving && room == Room::ShardIsFull && self.reading.is_reading() {
                    env.shared.small.count_wait();
                }
                self.reading.order(self.id, env.ctx.now.monotonic, read, env.out);
            }
            Life::Departed if self.slots.is_empty() => self.leave(env),
            Life::Closing | Life::Departed | Life::Gone => {}
        }
    }

    fn room(&self, env: &Env<'_, '_>) -> Room {
        let listener = &env.ctx.config.listener;
        if self.slots.len() >= listener.inflight_requests_per_client || self.held >= listener.inflight_bytes_per_client
        {
            Room::ClientIsFull
        } else if !self.slots.is_empty() && !env.shared.small.has_room() && !self.reading.is_in_large_frame() {
            Room::ShardIsFull
        } else {
            Room::Free
        }
    }

    /// Takes the next frame, if there is one and it may be taken. Says whether it did.
    fn take_frame(&mut self, env: &mut Env<'_, '_>) -> bool {
        if self.life != Life::Serving || self.room(env) != Room::Free || self.reading.client_is_clogged {
            return false;
        }
        if self.burst >= BURST && self.reading.has_frame() {
            self.is_behind = true;
            return false;
        }
        match self.reading.next_frame(self.id, env) {
            Ok(None) => false,
            Ok(Some((frame, reserved))) => {
                self.open(env, frame, reserved);
                true
            }
            Err(error) => {
                tracing::warn!(client = self.id.0, peer = %self.peer, %error, "not a Kafka client, connection closed");
                self.life = Life::Ending;
                self.reading.leave(self.id, env);
                true
            }
        }
    }

    fn open(&mut self, env: &mut Env<'_, '_>, frame: BytesMut, reserved: usize) {
        let request = env.shared.next_request();
        env.shared.requests_by_api.count(&frame);
        let size = frame.len();
        self.held += size;
        let small = if reserved == 0 { size } else { 0 };
        env.shared.small.take(small);
        let mut slot = Slot {
            request,
            size,
            reserved,
            small,
            answers: 0,
            correlation_id: 0,
            api: None,
            retry: None,
            state: State::Producing,
        };
        match admit(&env.ctx.config.cluster, env.shared.software.show(self.software), frame) {
            Admission::Answered(reply) => {
                self.slots.push_back(slot);
                self.answer(env, request, reply);
            }
            Admission::Introduced(introduction, reply) => {
                self.software = env.shared.software.introduced(self.software, introduction);
                let software = env.shared.software.show(self.software);
                tracing::debug!(client = self.id.0, peer = %self.peer, %software, "client says what it is");
                self.slots.push_back(slot);
                self.answer(env, request, reply);
            }
            Admission::Request(head) => {
                slot.correlation_id = head.correlation_id;
                slot.api = Some(head.api);
                if FromMemory::answers(head.api) {
                    self.read(env, slot, head);
                    return;
                }
                slot.state = State::Gated(head);
                self.slots.push_back(slot);
                if self.gate.is_none() {
                    self.knock(env, request);
                }
            }
        }
    }

    /// Reads a request that is answered from memory once it is the oldest.
    fn read(&mut self, env: &mut Env<'_, '_>, slot: Slot, head: RequestHead) {
        let request = slot.request;
        self.slots.push_back(slot);
        match FromMemory::read(head) {
            Ok(read) => {
                let position = self.slots.len() - 1;
                self.charge(env, position, read.items());
                self.slots[position].state = State::FromMemory(read);
            }
            Err(Undecodable) => self.refuse(env, request),
        }
    }

    /// A request takes memory for each of its items, whatever it was on the wire.
    fn charge(&mut self, env: &mut Env<'_, '_>, position: usize, items: usize) {
        let slot = &mut self.slots[position];
        let more = (items * ITEM).saturating_sub(slot.size);
        slot.size += more;
        self.held += more;
        if slot.reserved == 0 {
            slot.small += more;
            env.shared.small.take(more);
        }
    }

    /// There is no honest answer.
    fn refuse(&mut self, env: &mut Env<'_, '_>, request: RequestId) {
        let api = self.position(request).and_then(|position| self.slots[position].api);
        let software = env.shared.software.show(self.software);
        tracing::warn!(client = self.id.0, peer = %self.peer, %software, ?api, "request does not decode, connection closed");
        self.answer(env, request, Reply::Close);
    }

    /// The request is over; its answer waits for its turn. After one that ends the connection nothing more is read.
    fn answer(&mut self, env: &mut Env<'_, '_>, request: RequestId, reply: Reply) {
        self.pool.forget(request);
        forget(env, request);
        let Some(position) = self.position(request) else { return };
        if matches!(reply, Reply::Close | Reply::AnswerAndClose(_)) && self.life == Life::Serving {
            self.life = Life::Ending;
            self.reading.leave(self.id, env);
        }
        let waits = match &reply {
            Reply::Answer(pieces) | Reply::AnswerAndClose(pieces) => pieces.iter().map(Bytes::len).sum(),
            Reply::Silence | Reply::Close => 0,
        };
        self.held += waits;
        self.slots[position].size += waits;
        self.slots[position].state = State::Answered(reply);
    }

    fn take_event(&mut self, env: &mut Env<'_, '_>, event: PoolEvent) {
        match event {
            PoolEvent::Finished { ticket: Ticket { request, part }, result } => {
                let position = self.position(request);
                self.hold_answer(env, position, &result);
                if let Some(position) = position {
                    self.slots[position].retry = retry_after(&result);
                }
                match position.map(|position| &mut self.slots[position].state) {
                    Some(State::Running(machine)) => {
                        let mut steps = Vec::new();
                        machine.on_part(env.ctx, env.cluster, part, result, &mut steps);
                        self.take_steps(env, request, steps);
                    }
                    // Also when its slot is gone: the lanes still have to know.
                    Some(State::Producing) | None => {
                        let known = (part, result);
                        self.producer.on_part(env.ctx, env.cluster, request, known, &mut self.produced);
                    }
                    Some(State::Gated(_) | State::FromMemory(_) | State::Answered(_)) => {}
                }
            }
            PoolEvent::Silent { ticket: Ticket { request, part } } => {
                self.was_silent = true;
                self.producer.on_silent(env.ctx, env.cluster, request, part, &mut self.produced);
            }
            PoolEvent::SilentLost => {
                let software = env.shared.software.show(self.software);
                tracing::warn!(client = self.id.0, %software, "records without acknowledgement were lost, connection closed");
                self.finish(env);
            }
        }
    }

    fn take_produced(&mut self, env: &mut Env<'_, '_>) {
        let mut produced = mem::take(&mut self.produced);
        for (request, step) in produced.drain(..) {
            self.take_step(env, request, step);
        }
        self.produced = produced;
    }

    fn take_steps(&mut self, env: &mut Env<'_, '_>, request: RequestId, steps: Vec<Step>) {
        for step in steps {
            self.take_step(env, request, step);
        }
    }

    fn take_step(&mut self, env: &mut Env<'_, '_>, request: RequestId, step: Step) {
        // A connection that is being closed has no requests any more, but the lanes go on hearing what became of theirs.
        let Some(position) = self.position(request) else { return };
        match step {
            Step::Send { part, target, bytes, answered, deadline } => {
                if let Some(reason) = self.slots[position].retry.take() {
                    env.shared.retries.count(reason);
                }
                let correlation_id = self.slots[position].correlation_id;
                let ticket = Ticket { request, part };
                let outbound = Outbound { ticket, bytes, correlation_id, answered, deadline };
                self.with_pool(env, |pool, ctx, wires| pool.send(ctx, target, outbound, wires));
            }
            Step::Ask(question) => self.ask(env, request, question),
            Step::ForgetPartitionOwner { topic, partition, by } => {
                self.slots[position].retry = Some(RetryReason::Refused);
                env.out.push(Decision::ForgetPartitionOwner { topic, partition, by });
            }
            Step::ForgetCoordinator { group, by } => {
                self.slots[position].retry = Some(RetryReason::Refused);
                env.out.push(Decision::ForgetCoordinator { group, by });
            }
            Step::Wake(after) => {
                env.shared.requests.insert(request, self.id);
                env.ctx.timers.set(Timer::Request(request), env.ctx.now.monotonic + after);
            }
            Step::Done(reply) => self.answer(env, request, reply),
        }
    }

    fn ask(&mut self, env: &mut Env<'_, '_>, request: RequestId, question: Question) {
        env.shared.requests.insert(request, self.id);
        env.out.push(Decision::Ask { question, request });
    }

    /// Orders the end: what was not answered by now gets no answer.
    fn finish(&mut self, env: &mut Env<'_, '_>) {
        if !matches!(self.life, Life::Serving | Life::Ending) {
            return;
        }
        self.life = Life::Closing;
        self.reading.leave(self.id, env);
        env.ctx.timers.clear(Timer::ClientTurn(self.id));
        env.ctx.timers.clear(Timer::ClientBlocked(self.id));
        env.out.push(Decision::Close { client: self.id });
        for slot in mem::take(&mut self.slots) {
            self.drop_slot(env, slot);
        }
    }

    fn drop_slot(&mut self, env: &mut Env<'_, '_>, slot: Slot) {
        self.held -= slot.size;
        env.shared.memory.release(slot.reserved);
        if !planted(Bug::SmallRequestNeverReleased) {
            env.shared.small.release(slot.small);
        }
        env.shared.answers.give_back(self.id, slot.answers);
        self.pool.forget(slot.request);
        forget(env, slot.request);
    }

    /// The client is gone and so is its last request.
    fn leave(&mut self, env: &mut Env<'_, '_>) {
        if self.was_silent {
            env.ctx.timers.set_no_later(Timer::ClientIdle(self.id), env.ctx.now.monotonic + LINGER);
        } else {
            self.vanish(env);
        }
    }

    fn vanish(&mut self, env: &mut Env<'_, '_>) {
        self.life = Life::Gone;
        for slot in mem::take(&mut self.slots) {
            self.drop_slot(env, slot);
        }
        self.pool.close(env.ctx, &mut env.shared.answers, env.out);
        env.ctx.timers.clear(Timer::ClientIdle(self.id));
    }

    fn position(&self, request: RequestId) -> Option<usize> {
        slot::position(&self.slots, request)
    }

    fn with_pool<'c>(&mut self, env: &mut Env<'_, 'c>, call: impl FnOnce(&mut Pool, &mut Context<'c>, &mut Wires<'_>)) {
        let fresh = match env.cluster.service(env.ctx.now.monotonic) {
            Service::Serving => true,
            Service::AfterRead | Service::Refused(_) => false,
        };
        let mut wires = Wires {
            decisions: env.out,
            events: &mut self.events,
            owners: &mut env.shared.connections,
            answers: &mut env.shared.answers,
            candidates: env.cluster.brokers(),
            fresh,
            routes_are_proven: env.cluster.routes_are_proven(env.ctx.now.monotonic),
        };
        call(&mut self.pool, env.ctx, &mut wires);
    }
}

/// Why whatever is sent next for a request is one more round, after this became of one of its parts. A refusal is known
/// only when the answer has been read.
fn retry_after(result: &PartResult) -> Option<RetryReason> {
    match result {
        PartResult::Answered { .. } => None,
        PartResult::NotSent => Some(RetryReason::Unreachable),
        PartResult::Lost { fate: Fate::NotApplied, .. } => Some(RetryReason::Unsent),
        PartResult::Lost { fate: Fate::Unknown, .. } => Some(RetryReason::Unanswered),
    }
}

/// Nothing is waited for on behalf of this request any more.
fn forget(env: &mut Env<'_, '_>, request: RequestId) {
    if env.shared.requests.remove(&request).is_some() {
        env.ctx.timers.clear(Timer::Request(request));
        env.out.push(Decision::ForgetWaiter { request });
    }
}
