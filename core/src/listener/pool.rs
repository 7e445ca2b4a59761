//! The connections of one client to brokers: at most one per address, shared with nobody, closed with the client.
//!
//! A request that finds its connection ready is written at once. Any other waits here: for a dial, for the end of
//! a connection that is being closed, or between two attempts ([`Search`]). Requests that wait for the same connection
//! keep their order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use bytes::Bytes;

use crate::broker::{CloseReason, Connection, Event, Request};
use crate::cluster::Address;
use crate::context::Context;
use crate::input::{self, BrokerConnectionId, ClientId};
use crate::listener::RequestId;
use crate::listener::answer_memory::{AnswerMemory, Claimed, Turn, room_of};
use crate::listener::request::{Decision, Part, PartResult, Target};
use crate::listener::search::{Next, Search};
use crate::time::Monotonic;
use crate::timers::Timer;

/// Longest answer that is accepted of a broker, bytes: the most that a peer that is no broker can make us hold. Below the
/// longest frame there can be, for it may have to be encoded anew in a version that takes more room.
const ANSWER_MAX_BYTES: usize = 1 << 30;

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) request: RequestId,
    pub(super) part: Part,
}

/// A frame on its way to a broker.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) ticket: Ticket,
    pub(super) bytes: Bytes,
    pub(super) correlation_id: i32,
    pub(super) answered: bool,
    pub(super) deadline: Duration,
}

/// What the client has to know.
#[derive(Debug)]
pub(super) enum PoolEvent {
    /// A part is over.
    Finished { ticket: Ticket, result: PartResult },
    /// A part that gets no answer was handed to a socket.
    Silent { ticket: Ticket },
    /// A part that gets no answer was lost on its way: the client has to be told by closing its connection.
    SilentLost,
}

/// What a call may change besides the pool itself.
pub(super) struct Wires<'a> {
    /// In the order in which they are carried out.
    pub(super) decisions: &'a mut Vec<Decision>,
    /// In the order in which they happened.
    pub(super) events: &'a mut VecDeque<PoolEvent>,
    /// Whose each connection is.
    pub(super) owners: &'a mut HashMap<BrokerConnectionId, ClientId>,
    /// What large answers take room of.
    pub(super) answers: &'a mut AnswerMemory,
    /// Brokers that may be used, in listing order.
    pub(super) candidates: &'a [Address],
    /// Whether what is known of the cluster may be used; past the TTL no connection is handed out.
    pub(super) fresh: bool,
    /// Whether the leases are proven, too: what has waited was routed by them some time ago.
    pub(super) routes_are_proven: bool,
}

impl Wires<'_> {
    /// Whether a part that has waited may still go where it was routed to. That nobody owns what it is for, so that any
    /// broker will do, was read from the leases as well.
    fn still_lead(&self) -> bool {
        self.fresh && self.routes_are_proven
    }
}

struct Broker {
    connection: Connection<Ticket>,
    /// Whether it was ever ready: what waits for one that was not has to look elsewhere when it ends.
    was_ready: bool,
    waiting: VecDeque<Search>,
    room: Room,
}

/// Room for the answer in front of a connection, if it is large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It is not large, or not even its length has come.
    NotNeeded,
    /// The connection is not read until there is some.
    Awaited { turn: Turn, since: Monotonic },
    /// The client holds so many bytes for it.
    Held(usize),
}

impl Room {
    /// Since when the connection is not read for want of room.
    const fn unread(self) -> Option<Monotonic> {
        match self {
            Self::Awaited { since, .. } => Some(since),
            Self::NotNeeded | Self::Held(_) => None,
        }
    }
}

/// The connections of one client.
pub(super) struct Pool {
    client: ClientId,
    brokers: BTreeMap<BrokerConnectionId, Broker>,
    by_address: BTreeMap<Address, BrokerConnectionId>,
    /// Those with a large answer in front that has no room.
    large: BTreeSet<BrokerConnectionId>,
    /// Where requests for any broker go while the connection lasts.
    sticky: Option<Address>,
    /// Between two attempts, with the time of the next.
    pausing: Vec<(Monotonic, Search)>,
    /// How long a request may still wait for brokers: all its dials and waits together are bounded. Only what has waited
    /// is in it.
    patience: BTreeMap<RequestId, Duration>,
    /// Last dials that failed; such brokers are tried last for a while.
    failed: BTreeMap<Address, Monotonic>,
    /// Brokers that do not read.
    clogged: BTreeSet<BrokerConnectionId>,
    /// Since when the client does not take its answers.
    paused: Option<Monotonic>,
    /// The client is gone: no more waits, no more attempts.
    ending: bool,
    /// Position in the round robin; drawn at first use.
    turn: Option<u64>,
    scratch: Vec<Event<Ticket>>,
}

impl Pool {
    pub(super) fn new(client: ClientId) -> Self {
        Self {
            client,
            brokers: BTreeMap::new(),
            by_address: BTreeMap::new(),
            large: BTreeSet::new(),
            sticky: None,
            pausing: Vec::new(),
            patience: BTreeMap::new(),
            failed: BTreeMap::new(),
            clogged: BTreeSet::new(),
            paused: None,
            ending: false,
            turn: None,
            scratch: Vec::new(),
        }
    }

    /// Whether some broker does not read: then the client is not read either.
    pub(super) fn is_clogged(&self) -> bool {
        !self.clogged.is_empty()
    }

    /// Sends a part, now or when a broker is found.
    pub(super) fn send(&mut self, ctx: &mut Context<'_>, target: Target, outbound: Outbound, wires: &mut Wires<'_>) {
        let now = ctx.now.monotonic;
        if !wires.fresh {
            wires.events.push_back(PoolEvent::Finished { ticket: outbound.ticket, result: PartResult::NotSent });
            return;
        }
        let direct = match &target {
            Target::Prefer { address, .. } | Target::Only(address) => Some(address),
            Target::Any { not } => self.open_connection(not, wires.candidates),
        };
        if let Some(id) = direct.and_then(|address| self.by_address.get(address)).copied()
            && self.brokers.get(&id).is_some_and(|broker| broker.connection.is_ready())
        {
            self.write(ctx, id, outbound, wires);
            return;
        }
        let patience = *self.patience.entry(outbound.ticket.request).or_insert(ctx.config.cluster.connect_total);
        let search = Search::new(target, outbound, now + patience);
        self.look(ctx, search, wires);
    }

    /// The request is over: nothing more is sent for it.
    pub(super) fn forget(&mut self, request: RequestId) {
        if self.patience.remove(&request).is_none() {
            return;
        }
        self.pausing.retain(|(_, search)| search.request() != request);
        for broker in self.brokers.values_mut() {
            broker.waiting.retain(|search| search.request() != request);
        }
    }

    /// The client does not take its answers: no broker may add to them.
    pub(super) fn pause(&mut self, now: Monotonic, wires: &mut Wires<'_>) {
        self.paused.get_or_insert(now);
        let ready = self.brokers.iter().filter(|(_, broker)| broker.connection.is_ready());
        wires.decisions.extend(ready.map(|(id, _)| Decision::PauseBroker { connection: *id }));
    }

    /// The client takes its answers again.
    pub(super) fn resume(&mut self, now: Monotonic, wires: &mut Wires<'_>) {
        let Some(since) = self.paused.take() else { return };
        // Answers may have come in time and wait in the socket. What is still not read is excused again from now on.
        for broker in self.brokers.values_mut() {
            let unread = broker.room.unread().map_or(since, |unread| unread.min(since));
            broker.connection.excuse(now.since(unread));
            if let Room::Awaited { since, .. } = &mut broker.room {
                *since = now;
            }
        }
        let ready =
            self.brokers.iter().filter(|(_, broker)| broker.connection.is_ready() && broker.room.unread().is_none());
        wires.decisions.extend(ready.map(|(id, _)| Decision::ResumeBroker { connection: *id }));
    }

    /// Whether some connection has a large answer in front that has no room.
    pub(super) fn wants_room(&self) -> bool {
        !self.large.is_empty()
    }

    /// It is the turn of a large answer: its connection is read again.
    pub(super) fn granted(&mut self, now: Monotonic, id: BrokerConnectionId, bytes: usize, wires: &mut Wires<'_>) {
        self.large.remove(&id);
        let broker = self.brokers.get_mut(&id).expect("whoever waits for room has not ended");
        let had = mem::replace(&mut broker.room, Room::Held(bytes));
        self.read_again(now, id, had, wires);
    }

    /// Takes room for large answers in front of connections. Without room a connection is not read, unless the client's
    /// oldest request, which is in flight to it among those for which `is_needed` is true, could not end then.
    pub(super) fn claim_room(&mut self, now: Monotonic, is_needed: impl Fn(RequestId) -> bool, wires: &mut Wires<'_>) {
        let large: Vec<BrokerConnectionId> = self.large.iter().copied().collect();
        // Twice: what one gets in its turn makes the client one that holds something, so that others get what is needed.
        for id in large.iter().chain(&large).copied() {
            let Some(broker) = self.brokers.get_mut(&id) else { continue };
            let is_needed = broker.connection.awaited().any(|ticket| is_needed(ticket.request));
            let had = broker.room;
            match had {
                Room::NotNeeded => {
                    let bytes = broker.connection.announced().map_or(0, room_of);
                    if bytes == 0 {
                        self.large.remove(&id);
                        continue;
                    }
                    match wires.answers.claim(now, self.client, id, bytes, is_needed) {
                        Claimed::Now => broker.room = Room::Held(bytes),
                        Claimed::Later(turn) => {
                            broker.room = Room::Awaited { turn, since: now };
                            wires.decisions.push(Decision::PauseBroker { connection: id });
                        }
                    }
                }
                Room::Awaited { turn, .. } if is_needed => {
                    if let Some(bytes) = wires.answers.need(self.client, turn) {
                        broker.room = Room::Held(bytes);
                    }
                }
                Room::Awaited { .. } | Room::Held(_) => {}
            }
            if let Room::Held(_) = broker.room {
                self.large.remove(&id);
                self.read_again(now, id, had, wires);
            }
        }
    }

    /// A connection that may not have been read for want of room is read again.
    fn read_again(&mut self, now: Monotonic, id: BrokerConnectionId, had: Room, wires: &mut Wires<'_>) {
        let (Some(since), Some(broker)) = (had.unread(), self.brokers.get_mut(&id)) else { return };
        // From the moment of a pause on it is excused when that is over.
        broker.connection.excuse(self.paused.unwrap_or(now).since(since));
        if self.paused.is_none() {
            wires.decisions.push(Decision::ResumeBroker { connection: id });
        }
    }

    /// The client is gone: waits end, and a dial that fails is not followed by another.
    pub(super) fn end_waits(&mut self, ctx: &mut Context<'_>, wires: &mut Wires<'_>) {
        self.ending = true;
        ctx.timers.clear(Timer::ClientDial(self.client));
        for (_, search) in mem::take(&mut self.pausing) {
            wires.events.push_back(search.not_sent());
        }
    }

    /// Closes everything. The sockets' last facts are no longer of interest.
    pub(super) fn close(&mut self, ctx: &mut Context<'_>, answers: &mut AnswerMemory, decisions: &mut Vec<Decision>) {
        ctx.timers.clear(Timer::ClientDial(self.client));
        for (id, broker) in mem::take(&mut self.brokers) {
            ctx.timers.clear(Timer::BrokerConnection(id));
            self.give_back(broker.room, answers);
            if broker.connection.is_usable() {
                decisions.push(Decision::CloseBroker { connection: id });
            }
        }
        self.by_address.clear();
        self.large.clear();
        self.pausing.clear();
        self.patience.clear();
    }

    /// A fact about one of the sockets. One that is not known any more changes nothing.
    pub(super) fn on_broker(&mut self, ctx: &mut Context<'_>, input: input::Broker, wires: &mut Wires<'_>) {
        let mut events = mem::take(&mut self.scratch);
        let id = match input {
            input::Broker::Connected { connection } => {
                if let Some(broker) = self.brokers.get_mut(&connection) {
                    broker.connection.connected(&mut events);
                }
                connection
            }
            input::Broker::Received { connection, bytes } => {
                if let Some(broker) = self.brokers.get_mut(&connection) {
                    broker.connection.received(bytes, &mut events);
                }
                connection
            }
            input::Broker::ConnectFailed { connection, error } => {
                self.scratch = events;
                tracing::debug!(client = self.client.0, error = error.0, "broker not reachable");
                return self.ended(ctx, connection, None, wires);
            }
            input::Broker::Closed { connection, accepted_bytes } => {
                self.scratch = events;
                return self.ended(ctx, connection, Some(accepted_bytes), wires);
            }
            input::Broker::Clogged { connection } => {
                self.clogged.insert(connection);
                connection
            }
            input::Broker::Drained { connection } => {
                self.clogged.remove(&connection);
                connection
            }
        };
        self.carry_out(ctx, id, &mut events, wires);
        self.scratch = events;
    }

    /// The deadline of a connection has come, or one that is no longer the oldest.
    pub(super) fn on_deadline(&mut self, ctx: &mut Context<'_>, id: BrokerConnectionId, wires: &mut Wires<'_>) {
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        if self.paused.is_some() && broker.connection.is_ready() {
            // Its answers may wait in the socket because the client does not take them: that is not the broker's
            // fault, and what is read after the pause must still count.
            ctx.timers.set(Timer::BrokerConnection(id), ctx.now.monotonic + ctx.config.cluster.dial_timeout);
            return;
        }
        let mut events = mem::take(&mut self.scratch);
        if broker.connection.expire(ctx.now.monotonic, &mut events) && broker.room.unread().is_some() {
            wires.answers.refused();
        }
        self.carry_out(ctx, id, &mut events, wires);
        self.scratch = events;
    }

    /// The time of the next attempt has come, or the end of all waiting.
    pub(super) fn on_dial_timer(&mut self, ctx: &mut Context<'_>, wires: &mut Wires<'_>) {
        let now = ctx.now.monotonic;
        for broker in self.brokers.values_mut() {
            for search in mem::take(&mut broker.waiting) {
                if search.give_up_at <= now {
                    wires.events.push_back(search.not_sent());
                } else {
                    broker.waiting.push_back(search);
                }
            }
        }
        for (at, search) in mem::take(&mut self.pausing) {
            if at <= now {
                self.look(ctx, search, wires);
            } else {
                self.pausing.push((at, search));
            }
        }
        self.arm_dial_timer(ctx);
    }

    fn open_connection(&self, not: &[Address], candidates: &[Address]) -> Option<&Address> {
        let usable = |address: &&Address| !not.contains(address) && candidates.contains(address);
        let is_ready = |address: &&Address| {
            let id = self.by_address.get(*address);
            id.and_then(|id| self.brokers.get(id)).is_some_and(|broker| broker.connection.is_ready())
        };
        let sticky = self.sticky.as_ref().filter(|address| usable(address) && is_ready(address));
        sticky.or_else(|| self.by_address.keys().filter(usable).find(is_ready))
    }

    /// Goes to the next broker of a search, waits, or gives up.
    fn look(&mut self, ctx: &mut Context<'_>, mut search: Search, wires: &mut Wires<'_>) {
        let now = ctx.now.monotonic;
        let recently = ctx.config.cluster.connect_backoff;
        let turn = *self.turn.get_or_insert_with(|| ctx.random.below(u64::from(u32::MAX)));
        let failed = &self.failed;
        let next = search.next(now, &ctx.config.cluster, wires.candidates, turn, |address| {
            failed.get(address).is_some_and(|at| now.since(*at) <= recently)
        });
        match next {
            Next::Broker(_) | Next::Wait(_) if !wires.fresh => wires.events.push_back(search.not_sent()),
            Next::Broker(address) => {
                self.turn = Some(turn.wrapping_add(1));
                if search.wants_any() {
                    self.sticky = Some(address.clone());
                }
                self.go(ctx, address, search, wires);
            }
            Next::Wait(at) if !self.ending => {
                self.pausing.push((at, search));
                self.arm_dial_timer(ctx);
            }
            Next::Wait(_) | Next::GiveUp => wires.events.push_back(search.not_sent()),
        }
    }

    fn go(&mut self, ctx: &mut Context<'_>, address: Address, search: Search, wires: &mut Wires<'_>) {
        let existing = self.by_address.get(&address).copied();
        let id = existing.unwrap_or_else(|| self.dial(ctx, address, wires));
        let broker = self.brokers.get_mut(&id).expect("every address leads to a connection");
        if broker.connection.is_ready() {
            self.write_waited(ctx, id, search, wires);
        } else {
            broker.waiting.push_back(search);
            self.arm_dial_timer(ctx);
        }
    }

    /// Writes what has waited, unless the knowledge that has brought it here is too old by now.
    fn write_waited(&mut self, ctx: &mut Context<'_>, id: BrokerConnectionId, search: Search, wires: &mut Wires<'_>) {
        if let Some(patience) = self.patience.get_mut(&search.request()) {
            *patience = search.give_up_at.since(ctx.now.monotonic).min(*patience);
        }
        if wires.still_lead() {
            self.write(ctx, id, search.outbound, wires);
        } else {
            wires.events.push_back(search.not_sent());
        }
    }

    fn dial(&mut self, ctx: &mut Context<'_>, address: Address, wires: &mut Wires<'_>) -> BrokerConnectionId {
        let id = ctx.ids.broker_connection();
        let deadline = ctx.now.monotonic + ctx.config.cluster.dial_timeout;
        let cluster = &ctx.config.cluster;
        let connection =
            Connection::new(address.clone(), cluster.kind, deadline, ANSWER_MAX_BYTES).with_login(cluster.sasl.clone());
        ctx.timers.set(Timer::BrokerConnection(id), deadline);
        self.by_address.insert(address.clone(), id);
        let broker = Broker { connection, was_ready: false, waiting: VecDeque::new(), room: Room::NotNeeded };
        self.brokers.insert(id, broker);
        wires.owners.insert(id, self.client);
        wires.decisions.push(Decision::Connect { connection: id, address });
        id
    }

    fn write(&mut self, ctx: &mut Context<'_>, id: BrokerConnectionId, outbound: Outbound, wires: &mut Wires<'_>) {
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        let mut events = mem::take(&mut self.scratch);
        broker.connection.send(outbound.request(ctx.now.monotonic), &mut events);
        self.carry_out(ctx, id, &mut events, wires);
        self.scratch = events;
    }

    fn carry_out(
        &mut self,
        ctx: &mut Context<'_>,
        id: BrokerConnectionId,
        events: &mut Vec<Event<Ticket>>,
        wires: &mut Wires<'_>,
    ) {
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        let mut came = None;
        for event in events.drain(..) {
            match event {
                Event::Ready => {
                    broker.was_ready = true;
                    self.failed.remove(broker.connection.address());
                    if self.paused.is_some() {
                        wires.decisions.push(Decision::PauseBroker { connection: id });
                    }
                }
                Event::Write(bytes) => wires.decisions.push(Decision::WriteBroker { connection: id, bytes }),
                Event::Silent { reply_to } => wires.events.push_back(PoolEvent::Silent { ticket: reply_to }),
                Event::SilentLost => wires.events.push_back(PoolEvent::SilentLost),
                Event::Answered { reply_to, frame } => {
                    let had = mem::replace(&mut broker.room, Room::NotNeeded);
                    let held = match had {
                        Room::NotNeeded => 0,
                        Room::Awaited { turn, .. } => {
                            wires.answers.give_up(self.client, turn);
                            0
                        }
                        Room::Held(bytes) => bytes,
                    };
                    wires.answers.come(self.client, held, room_of(frame.len()));
                    came.get_or_insert(had);
                    let address = broker.connection.address().clone();
                    let result = PartResult::Answered { address, frame };
                    wires.events.push_back(PoolEvent::Finished { ticket: reply_to, result });
                }
                // It did not come on the connection: the room of what is in front there stays as it is.
                Event::Refused { reply_to, frame } => {
                    wires.answers.come(self.client, 0, room_of(frame.len()));
                    let address = broker.connection.address().clone();
                    let result = PartResult::Answered { address, frame };
                    wires.events.push_back(PoolEvent::Finished { ticket: reply_to, result });
                }
                Event::Unanswered { reply_to, fate } => {
                    let address = broker.connection.address().clone();
                    let result = PartResult::Lost { address, fate };
                    wires.events.push_back(PoolEvent::Finished { ticket: reply_to, result });
                }
                Event::Close(reason) => {
                    log_close(self.client, broker.connection.address(), &reason);
                    wires.decisions.push(Decision::CloseBroker { connection: id });
                }
            }
        }
        if broker.connection.is_ready() && !broker.waiting.is_empty() {
            for search in mem::take(&mut broker.waiting) {
                self.write_waited(ctx, id, search, wires);
            }
            self.arm_dial_timer(ctx);
        }
        if let Some(had) = came {
            self.large.remove(&id);
            self.read_again(ctx.now.monotonic, id, had, wires);
        }
        self.look_at_front(id);
        self.arm_deadline(ctx, id);
    }

    /// Room for the answer in front is claimed when the call is over, for then it is known which request is the oldest.
    fn look_at_front(&mut self, id: BrokerConnectionId) {
        let Some(broker) = self.brokers.get(&id) else { return };
        if broker.room == Room::NotNeeded && broker.connection.announced().is_some_and(|bytes| room_of(bytes) > 0) {
            self.large.insert(id);
        }
    }

    fn give_back(&self, room: Room, answers: &mut AnswerMemory) {
        match room {
            Room::NotNeeded => {}
            Room::Awaited { turn, .. } => answers.give_up(self.client, turn),
            Room::Held(bytes) => answers.give_back(self.client, bytes),
        }
    }

    /// A connection is gone; `accepted_bytes` is known when it had stood.
    fn ended(
        &mut self,
        ctx: &mut Context<'_>,
        id: BrokerConnectionId,
        accepted_bytes: Option<u64>,
        wires: &mut Wires<'_>,
    ) {
        let Some(broker) = self.brokers.remove(&id) else { return };
        ctx.timers.clear(Timer::BrokerConnection(id));
        self.clogged.remove(&id);
        self.large.remove(&id);
        self.give_back(broker.room, wires.answers);
        let address = broker.connection.address().clone();
        self.by_address.remove(&address);
        if let Some(accepted_bytes) = accepted_bytes {
            let mut events = mem::take(&mut self.scratch);
            broker.connection.closed(accepted_bytes, &mut events);
            for event in events.drain(..) {
                match event {
                    Event::Unanswered { reply_to, fate } => {
                        let result = PartResult::Lost { address: address.clone(), fate };
                        wires.events.push_back(PoolEvent::Finished { ticket: reply_to, result });
                    }
                    Event::SilentLost => wires.events.push_back(PoolEvent::SilentLost),
                    Event::Ready
                    | Event::Write(_)
                    | Event::Silent { .. }
                    | Event::Answered { .. }
                    | Event::Refused { .. }
                    | Event::Close(_) => {}
                }
            }
            self.scratch = events;
        }
        if !broker.was_ready {
            let (now, recently) = (ctx.now.monotonic, ctx.config.cluster.connect_backoff);
            self.failed.retain(|_, at| now.since(*at) <= recently);
            self.failed.insert(address.clone(), now);
        }
        for mut search in broker.waiting {
            if broker.was_ready {
                self.go(ctx, address.clone(), search, wires);
            } else if self.ending {
                wires.events.push_back(search.not_sent());
            } else {
                search.failed(&address);
                self.look(ctx, search, wires);
            }
        }
        self.arm_dial_timer(ctx);
    }

    fn arm_deadline(&self, ctx: &mut Context<'_>, id: BrokerConnectionId) {
        let deadline = self.brokers.get(&id).and_then(|broker| broker.connection.oldest_deadline());
        // A timer that is already earlier is left: it finds nothing expired and is set anew, which costs less than
        // moving it with every answer.
        if let Some(at) = deadline {
            ctx.timers.set_no_later(Timer::BrokerConnection(id), at);
        }
    }

    fn arm_dial_timer(&self, ctx: &mut Context<'_>) {
        let waiting = self.brokers.values().flat_map(|broker| &broker.waiting).map(|search| search.give_up_at);
        let pausing = self.pausing.iter().map(|(at, _)| *at);
        match waiting.chain(pausing).min() {
            Some(at) => ctx.timers.set(Timer::ClientDial(self.client), at),
            None => ctx.timers.clear(Timer::ClientDial(self.client)),
        }
    }
}

impl Outbound {
    fn request(self, now: Monotonic) -> Request<Ticket> {
        Request {
            bytes: self.bytes,
            correlation_id: self.correlation_id,
            reply_to: self.ticket,
            answered: self.answered,
            deadline: now + self.deadline,
        }
    }
}

fn log_close(client: ClientId, address: &Address, reason: &CloseReason) {
    match reason {
        CloseReason::Deadline => tracing::warn!(client = client.0, broker = %address, "broker did not answer in time"),
        CloseReason::BadAnswer(text) => {
            tracing::warn!(client = client.0, broker = %address, text, "broker sent what is no answer");
        }
        CloseReason::Handshake(text) => tracing::warn!(client = client.0, broker = %address, text, "broker refused"),
    }
}
