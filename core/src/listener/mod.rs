//! The Kafka listener: clients, their requests, and their connections to brokers.
//!
//! Each client is a machine of its own ([`client`]); this one finds the client that a fact belongs to and shares out
//! what all of them use together.

mod admit;
mod answer_memory;
mod any;
mod bridge;
#[cfg(test)]
mod bridge_table;
mod client;
mod expected;
mod fetch;
mod find_coordinator;
mod frame_memory;
mod from_memory;
mod group;
mod init_producer_id;
mod lane_table;
mod lanes;
mod list_groups;
mod local;
mod machine;
mod metadata;
mod not_ready;
mod pool;
mod produce;
pub(crate) mod request;
#[cfg(test)]
mod rig;
mod routes;
mod search;
mod small_requests;
mod software;
mod split;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::cluster::{Answer, Cluster, Question};
use crate::config::ListenerConfig;
use crate::context::Context;
use crate::error::DriverMisuse;
use crate::input::{self, BrokerConnectionId, ClientId};
use crate::stats::{BudgetStats, RequestStats, RetryStats, SoftwareStats};
use crate::timers::Timer;
use answer_memory::AnswerMemory;
use client::{Client, Env};
use frame_memory::FrameMemory;
#[cfg(test)]
pub(crate) use lanes::LIFECYCLE as LANE_LIFECYCLE;
pub(crate) use request::Decision;
use small_requests::SmallRequests;
use software::SoftwareTable;

/// A request of a Kafka client, unique for the lifetime of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What all clients use together.
struct Shared {
    /// Whose each connection to a broker is, until its last fact.
    connections: HashMap<BrokerConnectionId, ClientId>,
    /// Whose each request is that has asked etcd or wants to be woken, until it is answered.
    requests: HashMap<RequestId, ClientId>,
    memory: FrameMemory,
    small: SmallRequests,
    answers: AnswerMemory,
    last_request: u64,
    requests_by_api: RequestStats,
    retries: RetryStats,
    failed_dials: u64,
    software: SoftwareTable,
}

impl Shared {
    fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }
}

/// Counters of the listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Clients connected now, or gone with requests that are still carried out.
    pub clients: usize,
    /// Requests not answered yet.
    pub open_requests: usize,
    /// Requests that wait for etcd or for their next round.
    pub waiting_requests: usize,
    /// Requests ever received.
    pub requests: u64,
    /// Connections to brokers, dials included.
    pub broker_connections: usize,
    /// Bytes held by large frames.
    pub frame_bytes: usize,
    /// Bytes of the other requests that are not answered.
    pub small_request_bytes: usize,
    /// Bytes held by large answers.
    pub answer_bytes: usize,
    /// Clients turned away because there were too many.
    pub turned_away: u64,
    /// Requests ever received, by API.
    pub requests_by_api: RequestStats,
    /// Rounds of requests that went to a broker once more.
    pub retries: RetryStats,
    /// Dials to brokers that failed.
    pub failed_dials: u64,
    /// The budget that `frame_bytes` is taken from.
    pub frames: BudgetStats,
    /// The budget that `small_request_bytes` is taken from.
    pub small_requests: BudgetStats,
    /// The budget that `answer_bytes` is taken from.
    pub answers: BudgetStats,
    /// The most clients that may be connected.
    pub clients_max: usize,
}

/// All Kafka clients of a shard.
pub(crate) struct Listener {
    /// Boxed, for ids ascend and leave the nodes of the tree half empty.
    clients: BTreeMap<ClientId, Box<Client>>,
    /// Accepted and closed at once: their end is still to be reported.
    turned_away: BTreeSet<ClientId>,
    shared: Shared,
    draining: bool,
    turned_away_total: u64,
    connections_max: usize,
}

impl Listener {
    pub(crate) fn new(config: &ListenerConfig) -> Self {
        Self {
            clients: BTreeMap::new(),
            turned_away: BTreeSet::new(),
            shared: Shared {
                connections: HashMap::new(),
                requests: HashMap::new(),
                memory: FrameMemory::new(config.frame_memory_bytes),
                small: SmallRequests::new(config.small_request_memory_bytes),
                answers: AnswerMemory::new(config.answer_memory_bytes),
                last_request: 0,
                requests_by_api: RequestStats::default(),
                retries: RetryStats::default(),
                failed_dials: 0,
                software: SoftwareTable::new(),
            },
            draining: false,
            turned_away_total: 0,
            connections_max: config.connections,
        }
    }

    /// A fact about a client's socket. Facts about clients that are gone change nothing.
    pub(crate) fn on_client(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        input: input::Client,
        out: &mut Vec<Decision>,
    ) -> Result<(), DriverMisuse> {
        match input {
            input::Client::Accepted { client, peer } => {
                if self.clients.contains_key(&client) || self.turned_away.contains(&client) {
                    return Err(DriverMisuse::ClientExists(client));
                }
                if self.draining || self.clients.len() >= self.connections_max {
                    if !self.draining {
                        let limit = self.connections_max;
                        tracing::warn!(%peer, limit, "too many Kafka connections, one was closed");
                    }
                    self.turned_away_total += 1;
                    self.turned_away.insert(client);
                    out.push(Decision::Close { client });
                } else {
                    let mut env = Env { ctx, cluster, shared: &mut self.shared, out };
                    let machine = Client::new(client, peer, &mut env);
                    self.clients.insert(client, Box::new(machine));
                }
            }
            input::Client::Received { client, bytes } => {
                self.with(ctx, cluster, client, out, |machine, env| machine.received(env, bytes));
            }
            input::Client::Clogged { client } => {
                self.with(ctx, cluster, client, out, |machine, env| machine.clogged(env, true));
            }
            input::Client::Drained { client } => {
                self.with(ctx, cluster, client, out, |machine, env| machine.clogged(env, false));
            }
            input::Client::Blocked { client } => {
                self.with(ctx, cluster, client, out, |machine, env| machine.blocked(env));
            }
            input::Client::Unblocked { client } => ctx.timers.clear(Timer::ClientBlocked(client)),
            input::Client::Closed { client } => {
                self.turned_away.remove(&client);
                self.with(ctx, cluster, client, out, |machine, env| machine.closed(env));
            }
        }
        Ok(())
    }

    /// Whether the connection is one of a Kafka client.
    pub(crate) fn owns(&self, connection: BrokerConnectionId) -> bool {
        self.shared.connections.contains_key(&connection)
    }

    /// A fact about a socket to a broker.
    pub(crate) fn on_broker(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        input: input::Broker,
        out: &mut Vec<Decision>,
    ) {
        let (connection, is_last) = match &input {
            input::Broker::Connected { connection }
            | input::Broker::Received { connection, .. }
            | input::Broker::Clogged { connection }
            | input::Broker::Drained { connection } => (*connection, false),
            input::Broker::ConnectFailed { connection, .. } | input::Broker::Closed { connection, .. } => {
                (*connection, true)
            }
        };
        let Some(client) = self.shared.connections.get(&connection).copied() else { return };
        if is_last {
            self.shared.connections.remove(&connection);
        }
        if let input::Broker::ConnectFailed { .. } = &input {
            self.shared.failed_dials += 1;
        }
        self.with(ctx, cluster, client, out, |machine, env| machine.on_broker(env, input));
    }

    /// etcd answered; what was learned is in `cluster`.
    pub(crate) fn on_answer(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        request: RequestId,
        question: &Question,
        answer: &Answer,
        out: &mut Vec<Decision>,
    ) {
        let Some(client) = self.shared.requests.get(&request).copied() else { return };
        self.with(ctx, cluster, client, out, |machine, env| machine.on_answer(env, request, question, answer));
    }

    /// A timer of the listener is due; others change nothing.
    pub(crate) fn on_timer(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, timer: Timer, out: &mut Vec<Decision>) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the timers of other parts are not listed here")]
        match timer {
            Timer::Request(request) => {
                let Some(client) = self.shared.requests.get(&request).copied() else { return };
                self.with(ctx, cluster, client, out, |machine, env| machine.on_wake(env, request));
            }
            Timer::BrokerConnection(connection) => {
                let Some(client) = self.shared.connections.get(&connection).copied() else { return };
                self.with(ctx, cluster, client, out, |machine, env| machine.on_deadline(env, connection));
            }
            Timer::ClientDial(client) => {
                self.with(ctx, cluster, client, out, |machine, env| machine.on_dial_timer(env))
            }
            Timer::ClientIdle(client) => self.with(ctx, cluster, client, out, |machine, env| machine.on_idle(env)),
            Timer::ClientTurn(client) => self.with(ctx, cluster, client, out, |machine, env| machine.on_turn(env)),
            Timer::ClientBlocked(client) => {
                self.with(ctx, cluster, client, out, |machine, env| machine.on_blocked_timer(env));
            }
            Timer::ClientFrame(client) => {
                self.with(ctx, cluster, client, out, |machine, env| machine.on_frame_timer(env));
            }
            Timer::AnswerRoom => self.share_out(ctx, cluster, out),
            _ => {}
        }
    }

    /// Shutdown: no more accepting and reading; what is in flight is answered, then the connections are closed.
    pub(crate) fn drain(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, out: &mut Vec<Decision>) {
        self.draining = true;
        out.push(Decision::StopAccepting);
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            self.with(ctx, cluster, client, out, |machine, env| machine.end(env));
        }
    }

    /// Whether nothing is left: no client, no connection to a broker.
    pub(crate) fn is_idle(&self) -> bool {
        self.clients.is_empty() && self.turned_away.is_empty() && self.shared.connections.is_empty()
    }

    /// Counters.
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            clients: self.clients.len(),
            open_requests: self.clients.values().map(|client| client.open_requests()).sum(),
            waiting_requests: self.shared.requests.len(),
            requests: self.shared.last_request,
            broker_connections: self.shared.connections.len(),
            frame_bytes: self.shared.memory.taken(),
            small_request_bytes: self.shared.small.taken(),
            answer_bytes: self.shared.answers.taken(),
            turned_away: self.turned_away_total,
            requests_by_api: self.shared.requests_by_api,
            retries: self.shared.retries,
            failed_dials: self.shared.failed_dials,
            frames: self.shared.memory.stats(),
            small_requests: self.shared.small.stats(),
            answers: self.shared.answers.stats(),
            clients_max: self.connections_max,
        }
    }

    /// Which client libraries are connected.
    pub(crate) fn software(&self) -> &[SoftwareStats] {
        self.shared.software.rows()
    }

    /// Lets a client act, then those that wait for the room it has given back.
    fn with(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        client: ClientId,
        out: &mut Vec<Decision>,
        act: impl FnOnce(&mut Client, &mut Env<'_, '_>),
    ) {
        let mut env = Env { ctx: &mut *ctx, cluster, shared: &mut self.shared, out: &mut *out };
        let Some(machine) = self.clients.get_mut(&client) else { return };
        act(machine, &mut env);
        if machine.is_gone() {
            self.clients.remove(&client);
        }
        self.share_out(ctx, cluster, out);
    }

    /// Lets those act who waited for room that has come free.
    fn share_out(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, out: &mut Vec<Decision>) {
        let mut env = Env { ctx, cluster, shared: &mut self.shared, out };
        while let Some((next, bytes)) = env.shared.memory.grant() {
            if let Some(machine) = self.clients.get_mut(&next) {
                machine.granted(&mut env, bytes);
            }
        }
        while let Some((next, connection, bytes)) = env.shared.answers.grant(env.ctx.now.monotonic) {
            let machine = self.clients.get_mut(&next).expect("whoever waits for room is there");
            machine.granted_answer(&mut env, connection, bytes);
        }
        if let Some(at) = env.shared.answers.next_settled() {
            env.ctx.timers.set_no_later(Timer::AnswerRoom, at);
        }
    }
}
