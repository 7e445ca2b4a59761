//! The one connection to a broker that a publication has at a time.

use bytes::{Bytes, BytesMut};

use crate::broker::{CloseReason, Connection, Event, Fate, Request};
use crate::cluster::Address;
use crate::input::{self, BrokerConnectionId, ExchangeId};
use crate::time::Monotonic;
use crate::timers::Timer;

use super::Decision;
use super::call::{Call, Holder};

/// Largest answer to a Produce request of one record.
const ANSWER_MAX_BYTES: usize = 1024 * 1024;

/// A connection, from the order to open it until it is closed.
#[derive(Debug)]
pub(crate) struct Link {
    id: BrokerConnectionId,
    connection: Connection<()>,
    dialled_at: Monotonic,
    answered_at: Monotonic,
}

/// What a fact about the socket means.
#[derive(Debug)]
pub(crate) enum Fact {
    /// The broker can be asked.
    Ready,
    /// The answer, whole frame.
    Answered(BytesMut),
    /// The connection has ended, and with it the request that was on its way.
    Unanswered(Fate),
    /// The connection has ended, or never stood; nothing was on its way.
    Down,
}

impl Link {
    /// Orders a connection.
    pub(crate) fn dial(call: &mut Call<'_, '_>, exchange: ExchangeId, address: Address) -> Self {
        let id = call.ctx.ids.broker_connection();
        let now = call.ctx.now.monotonic;
        let deadline = now + call.shared.config.dial_timeout;
        let cluster = &call.ctx.config.cluster;
        let connection =
            Connection::new(address.clone(), cluster.kind, deadline, ANSWER_MAX_BYTES).with_login(cluster.sasl.clone());
        let link = Self { id, connection, dialled_at: now, answered_at: now };
        call.shared.connections.insert(id, Holder::Exchange(exchange));
        call.out.push(Decision::Connect { connection: id, address });
        link.watch(call);
        link
    }

    pub(crate) const fn id(&self) -> BrokerConnectionId {
        self.id
    }

    pub(crate) fn address(&self) -> &Address {
        self.connection.address()
    }

    /// Whether a request would be written at once.
    pub(crate) fn is_ready(&self) -> bool {
        self.connection.is_ready()
    }

    /// Whether it is ready and nothing is on its way, in either direction.
    pub(crate) fn is_idle(&self) -> bool {
        self.connection.is_idle()
    }

    /// When it was ordered.
    pub(crate) const fn dialled_at(&self) -> Monotonic {
        self.dialled_at
    }

    /// When its broker last sent something; when it was ordered, if never.
    pub(crate) const fn answered_at(&self) -> Monotonic {
        self.answered_at
    }

    /// Counts as answered for the next minute although an answer is to come, for a planted bug.
    #[cfg(planted_bugs)]
    pub(crate) fn seem_answered(&mut self, now: Monotonic) {
        if self.connection.awaits_answer() {
            self.answered_at = now + std::time::Duration::from_secs(60);
        }
    }

    /// Writes a request; the link must be ready. One that the broker cannot understand is answered at once.
    pub(crate) fn send(
        &mut self,
        call: &mut Call<'_, '_>,
        bytes: Bytes,
        correlation_id: i32,
        deadline: Monotonic,
    ) -> Vec<Fact> {
        let mut events = Vec::new();
        let request = Request { bytes, correlation_id, reply_to: (), answered: true, deadline };
        self.connection.send(request, &mut events);
        self.carry_out(call, events)
    }

    /// Nobody needs it any more. What is still told about the socket is told to nobody.
    pub(crate) fn close(self, call: &mut Call<'_, '_>) {
        call.ctx.timers.clear(Timer::BrokerConnection(self.id));
        call.out.push(Decision::CloseBroker { connection: self.id });
    }

    /// A fact about this link's socket. After the socket's end the link is gone.
    pub(crate) fn on_broker(link: &mut Option<Self>, call: &mut Call<'_, '_>, input: input::Broker) -> Vec<Fact> {
        let mut events = Vec::new();
        match input {
            input::Broker::Connected { .. } => {
                if let Some(open) = link {
                    open.connection.connected(&mut events);
                }
            }
            input::Broker::Received { bytes, .. } => {
                if let Some(open) = link {
                    open.answered_at = call.ctx.now.monotonic;
                    open.connection.received(bytes, &mut events);
                }
            }
            // One small request at a time: there is nothing to hold back.
            input::Broker::Clogged { .. } | input::Broker::Drained { .. } => {}
            input::Broker::ConnectFailed { error, .. } => {
                if let Some(gone) = link.take() {
                    tracing::debug!(broker = %gone.address(), error = error.0, "a broker could not be reached");
                    call.ctx.timers.clear(Timer::BrokerConnection(gone.id));
                    return vec![Fact::Down];
                }
            }
            input::Broker::Closed { accepted_bytes, .. } => {
                if let Some(gone) = link.take() {
                    call.ctx.timers.clear(Timer::BrokerConnection(gone.id));
                    gone.connection.closed(accepted_bytes, &mut events);
                    let facts: Vec<Fact> = events.into_iter().filter_map(without_writing).collect();
                    return if facts.is_empty() { vec![Fact::Down] } else { facts };
                }
            }
        }
        match link {
            Some(open) => open.carry_out(call, events),
            None => Vec::new(),
        }
    }

    /// The dial or the request takes too long: the socket is closed, and its end tells the rest.
    pub(crate) fn on_timer(&mut self, call: &mut Call<'_, '_>) -> Vec<Fact> {
        let mut events = Vec::new();
        self.connection.expire(call.ctx.now.monotonic, &mut events);
        self.carry_out(call, events)
    }

    fn carry_out(&self, call: &mut Call<'_, '_>, events: Vec<Event<()>>) -> Vec<Fact> {
        let mut facts = Vec::new();
        for event in events {
            match event {
                Event::Write(bytes) => call.out.push(Decision::WriteBroker { connection: self.id, bytes }),
                Event::Close(reason) => {
                    match reason {
                        CloseReason::Deadline => tracing::warn!(broker = %self.address(), "a broker took too long"),
                        CloseReason::BadAnswer(reason) | CloseReason::Handshake(reason) => {
                            tracing::warn!(broker = %self.address(), reason, "a broker's answer could not be used");
                        }
                    }
                    call.out.push(Decision::CloseBroker { connection: self.id });
                }
                event @ (Event::Ready
                | Event::Silent { .. }
                | Event::Answered { .. }
                | Event::Refused { .. }
                | Event::Unanswered { .. }
                | Event::SilentLost) => facts.extend(without_writing(event)),
            }
        }
        self.watch(call);
        facts
    }

    /// Sets the timer to the earliest moment at which something is given up.
    fn watch(&self, call: &mut Call<'_, '_>) {
        let timer = Timer::BrokerConnection(self.id);
        match self.connection.oldest_deadline() {
            Some(deadline) => call.ctx.timers.set(timer, deadline),
            None => call.ctx.timers.clear(timer),
        }
    }
}

fn without_writing(event: Event<()>) -> Option<Fact> {
    match event {
        Event::Ready => Some(Fact::Ready),
        Event::Answered { reply_to: (), frame } | Event::Refused { reply_to: (), frame } => Some(Fact::Answered(frame)),
        Event::Unanswered { reply_to: (), fate } => Some(Fact::Unanswered(fate)),
        Event::Write(_) | Event::Silent { .. } | Event::SilentLost | Event::Close(_) => None,
    }
}
