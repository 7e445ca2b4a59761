//! Several machines and their partners in one thread and simulated time.
//!
//! The clock jumps exactly to the next deadline or arrival and never ticks, so a machine that forgets a deadline is found.
//! Everything that has a choice draws it from one source: equal seeds give equal worlds.

mod carry_out;
pub mod choices;
mod faults;
mod http_client;
pub mod invariants;
mod kafka_client;
mod shard;
mod stores;
pub mod timeline;
pub mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::BytesMut;
use kafscale_proxy_core::inputs::{self, BrokerConnectionId, ClientId, ExchangeId, HttpServer};
use kafscale_proxy_core::kafka::{Message, Request};
use kafscale_proxy_core::model::broker::{self, BrokerModel, ClusterSnapshot, ConnectionId, SharedLog};
use kafscale_proxy_core::model::etcd::{WatchFact, WatchFacts};
use kafscale_proxy_core::{Config, Input, Monotonic, Now, OperationId, Outcome, effects, etcd, s3};

use choices::Choices;
pub use faults::{Faults, S3Fault, S3Verb};
pub use http_client::{BodyEnd, HttpClient};
use invariants::{Deletes, Routing};
pub use kafka_client::KafkaClient;
use shard::Shard;
pub use stores::{EtcdSide, S3Side, Watcher};
use timeline::Timeline;
pub use trace::Trace;

/// One way between two processes.
const HOP: Duration = Duration::from_micros(300);
/// How long a closed socket takes to be noticed.
const FIN: Duration = Duration::from_micros(400);

/// Something on its way.
enum Event {
    /// A fact reaches a shard.
    Fact { shard: usize, input: Input },
    /// A request reaches etcd.
    EtcdRequest { from: Watcher, request: etcd::Request },
    /// A watch reaches etcd.
    EtcdWatch { from: Watcher, request: etcd::WatchRequest },
    /// The wish to end a request or a watch reaches etcd.
    EtcdCancel { from: Watcher },
    /// An order reaches S3.
    S3 { shard: usize, order: effects::S3, fault: Option<S3Fault> },
    /// The wish to end a request reaches the shard's S3 client.
    S3Cancel { shard: usize, operation: OperationId },
    /// The answer to a request comes back from S3, if anybody waits for it still.
    S3Finished { shard: usize, operation: OperationId, outcome: Outcome<s3::Response, s3::Refusal> },
    /// A dial reaches a broker.
    Dial { shard: usize, connection: BrokerConnectionId, address: String },
    /// A fact reaches a broker.
    Broker { broker: usize, input: broker::Input },
}

/// How the world is made.
pub struct Plan {
    /// Every choice follows from it.
    pub seed: u64,
    /// Settings of each shard.
    pub config: Config,
    /// Shards of the proxy.
    pub shards: usize,
    /// Brokers.
    pub brokers: usize,
    /// Topics and their partitions.
    pub topics: Vec<(String, i32)>,
    /// Smallest part of a multipart upload that is not the last, bytes.
    pub min_part_bytes: u64,
}

struct Client {
    shard: usize,
    machine: KafkaClient,
    /// It has closed its socket.
    left: bool,
}

struct Exchange {
    shard: usize,
    machine: HttpClient,
    /// A read of the request body that has given nothing yet.
    reading: Option<OperationId>,
    /// A piece of the answer that the client has not taken yet.
    sending: Option<OperationId>,
    /// The driver has said its last word.
    ended: bool,
}

/// The world.
pub struct World {
    timeline: Timeline<Event>,
    /// The source of choices.
    pub choices: Choices,
    /// What was ordered.
    pub trace: Trace,
    shards: Vec<Shard>,
    /// etcd.
    pub etcd: EtcdSide,
    /// S3.
    pub s3: S3Side,
    brokers: Vec<BrokerModel>,
    /// The records of the cluster.
    pub log: SharedLog,
    /// What was ordered to be deleted.
    pub deletes: Deletes,
    /// What was sent to whom, and by what knowledge.
    pub routing: Routing,
    /// What is still to strike.
    pub faults: Faults,
    /// Dials on their way.
    dialling: BTreeSet<(usize, BrokerConnectionId)>,
    clients: BTreeMap<ClientId, Client>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
    /// Whose each connection of a broker is, until either side has closed.
    peers: BTreeMap<(usize, ConnectionId), (usize, BrokerConnectionId)>,
    drawn: u64,
}

impl World {
    /// A world at its first moment: brokers start, the proxy starts.
    pub fn new(plan: Plan) -> Self {
        let mut choices = Choices::from_seed(plan.seed);
        let timeline = Timeline::default();
        let now = timeline.now();
        let hosts: Vec<String> = (0..plan.brokers).map(|id| format!("broker-{id}")).collect();
        let listed = hosts.iter().enumerate().map(|(id, host)| (id as i32, host.as_str(), 9092));
        let mut snapshot = ClusterSnapshot::new("world", listed);
        for (topic, partitions) in &plan.topics {
            snapshot = snapshot.with_topic(topic, *partitions);
        }
        let mut etcd = EtcdSide::default();
        etcd.model.put(broker::SNAPSHOT_KEY, snapshot.to_json(), &mut Vec::new());
        let brokers: Vec<BrokerModel> = hosts
            .into_iter()
            .enumerate()
            .map(|(id, host)| {
                BrokerModel::new(broker::Settings {
                    id: id as i32,
                    host,
                    port: 9092,
                    auto_create_partitions: 1,
                    idle_close: None,
                    seed: choices.seed(),
                })
            })
            .collect();
        let shards = (0..plan.shards).map(|_| Shard::new(plan.config.clone(), choices.seed(), now)).collect::<Vec<_>>();
        let mut world = Self {
            timeline,
            choices,
            trace: Trace::default(),
            shards,
            etcd,
            s3: S3Side::new(plan.min_part_bytes),
            brokers,
            log: SharedLog::new(),
            deletes: Deletes::default(),
            routing: Routing::new(&plan.config.cluster, &snapshot),
            faults: Faults::default(),
            dialling: BTreeSet::new(),
            clients: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            peers: BTreeMap::new(),
            drawn: 0,
        };
        for broker in 0..world.brokers.len() {
            world.timeline.plan(Duration::ZERO, Event::Broker { broker, input: broker::Input::Started });
        }
        world
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        self.timeline.now()
    }

    // --- clients ---

    /// A Kafka client connects to a shard.
    pub fn connect(&mut self, shard: usize) -> ClientId {
        let client = ClientId(self.draw());
        self.clients.insert(client, Client { shard, machine: KafkaClient::default(), left: false });
        let peer = ([127, 0, 0, 1], 40_000).into();
        self.fact(HOP, shard, Input::Client(inputs::Client::Accepted { client, peer }));
        client
    }

    /// A Kafka client sends a request; `answered` is false for Produce with acks 0.
    pub fn send<R: Request>(&mut self, client: ClientId, version: i16, request: &R, answered: bool) {
        let Some(open) = self.clients.get_mut(&client) else { return };
        let bytes = BytesMut::from(&open.machine.request(version, request, answered)[..]);
        let (shard, ended) = (open.shard, open.left || open.machine.is_closed());
        if !ended {
            self.fact(HOP, shard, Input::Client(inputs::Client::Received { client, bytes }));
        }
    }

    /// A Kafka client goes away, whatever it waits for.
    pub fn disconnect(&mut self, client: ClientId) {
        let Some(open) = self.clients.get_mut(&client) else { return };
        if !open.left && !open.machine.is_closed() {
            open.left = true;
            let shard = open.shard;
            self.fact(HOP, shard, Input::Client(inputs::Client::Closed { client }));
        }
    }

    /// The client as it sees itself.
    ///
    /// # Panics
    ///
    /// When it never connected.
    pub fn client(&self, client: ClientId) -> &KafkaClient {
        &self.clients.get(&client).expect("the client has connected").machine
    }

    /// The oldest answer that the client has not taken.
    pub fn take_answer<M: Message>(&mut self, client: ClientId, version: i16) -> Option<M> {
        self.clients.get_mut(&client)?.machine.take_answer(version)
    }

    /// An HTTP client sends a request to the LFS API of a shard.
    pub fn request(&mut self, shard: usize, head: http::request::Parts, machine: HttpClient) -> ExchangeId {
        let exchange = ExchangeId(self.draw());
        self.exchanges.insert(exchange, Exchange { shard, machine, reading: None, sending: None, ended: false });
        let peer = ([127, 0, 0, 1], 50_000).into();
        let requested = inputs::Http::Requested { exchange, server: HttpServer::Api, head: Box::new(head), peer };
        self.fact(HOP, shard, Input::Http(requested));
        exchange
    }

    /// An HTTP client goes away.
    pub fn leave(&mut self, exchange: ExchangeId) {
        if let Some(open) = self.exchanges.get(&exchange).filter(|open| !open.ended) {
            let shard = open.shard;
            self.fact(HOP, shard, Input::Http(inputs::Http::ClientGone { exchange }));
            self.end_exchange(exchange);
        }
    }

    /// A client that stood still takes the rest of its answer.
    pub fn take_answer_on(&mut self, exchange: ExchangeId) {
        let Some(open) = self.exchanges.get_mut(&exchange).filter(|open| !open.ended) else { return };
        open.machine.takes_answer();
        let (shard, complete) = (open.shard, open.machine.is_complete());
        if let Some(operation) = open.sending.take() {
            self.fact(HOP, shard, Input::Http(inputs::Http::ChunkAccepted { operation }));
        }
        if complete {
            self.end_exchange(exchange);
        }
    }

    /// The exchange as its client sees it.
    ///
    /// # Panics
    ///
    /// When it never began.
    pub fn exchange(&self, exchange: ExchangeId) -> &HttpClient {
        &self.exchanges.get(&exchange).expect("the exchange has begun").machine
    }

    /// The machine of a shard, to be asked for its stats.
    pub fn proxy(&self, shard: usize) -> &kafscale_proxy_core::Proxy {
        &self.shards[shard].proxy
    }

    /// Temporary files of a shard that were not removed.
    pub fn files(&self, shard: usize) -> usize {
        self.shards[shard].files()
    }

    /// The process of a shard is asked to end.
    pub fn request_shutdown(&mut self, shard: usize) {
        self.fact(Duration::ZERO, shard, Input::ShutdownRequested);
    }

    /// Asks `/readyz` of a shard, or another path of its health server.
    pub fn probe(&mut self, shard: usize, path: &str) -> ExchangeId {
        let exchange = ExchangeId(self.draw());
        let machine = HttpClient::new([], BodyEnd::Whole);
        self.exchanges.insert(exchange, Exchange { shard, machine, reading: None, sending: None, ended: false });
        let head = http::Request::get(path).body(()).expect("paths of tests are valid").into_parts().0;
        let peer = ([127, 0, 0, 1], 60_000).into();
        let requested = inputs::Http::Requested { exchange, server: HttpServer::Health, head: Box::new(head), peer };
        self.fact(HOP, shard, Input::Http(requested));
        exchange
    }

    // --- brokers ---

    /// A broker, to be given faults.
    pub fn broker(&mut self, broker: usize) -> &mut BrokerModel {
        &mut self.brokers[broker]
    }

    /// The broker that holds the lease of a partition.
    pub fn owner(&self, topic: &str, partition: i32) -> Option<usize> {
        let key = format!("/kafscale/partition-leases/{topic}/{partition}");
        std::str::from_utf8(&self.etcd.model.get(key.as_bytes())?.value).ok()?.parse().ok()
    }

    /// A broker dies at once.
    pub fn crash(&mut self, broker: usize) {
        let mut effects = Vec::new();
        self.brokers[broker].crash(&mut effects);
        self.carry_out_broker(broker, effects);
    }

    /// A broker is asked to end: it gives its leases back and is gone.
    pub fn stop(&mut self, broker: usize) {
        self.timeline.plan(Duration::ZERO, Event::Broker { broker, input: broker::Input::ShutdownRequested });
    }

    /// A broker that has ended starts again.
    pub fn restart(&mut self, broker: usize) {
        if !self.brokers[broker].is_running() {
            self.change_etcd(|etcd, facts| etcd.forget_broker(broker, facts));
            self.brokers[broker].restart();
            self.timeline.plan(Duration::ZERO, Event::Broker { broker, input: broker::Input::Started });
        }
    }

    /// Changes etcd as somebody else would; its watchers are told.
    pub fn change_etcd(&mut self, change: impl FnOnce(&mut EtcdSide, &mut WatchFacts)) {
        let mut facts = WatchFacts::new();
        change(&mut self.etcd, &mut facts);
        self.routing.look(self.timeline.now().monotonic, &self.etcd.model);
        self.tell_watchers(facts);
    }

    /// Breaks the proxy's watches.
    pub fn break_watches(&mut self) {
        self.change_etcd(EtcdSide::break_watches);
    }

    // --- time ---

    /// Runs until `done` says so.
    ///
    /// # Panics
    ///
    /// When it does not within `limit` of simulated time.
    pub fn run_until(&mut self, limit: Duration, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now().monotonic + limit;
        while !done(self) {
            assert!(self.step(end), "not within {limit:?}: {what}");
        }
    }

    /// Runs for so long.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now().monotonic + duration;
        while self.step(end) {}
    }

    /// Lets the next `count` things happen; stops early when nothing is left to happen.
    pub fn run_steps(&mut self, count: usize) {
        let end = Monotonic::from_micros(u64::MAX);
        for _ in 0..count {
            if !self.step(end) {
                return;
            }
        }
    }

    /// Lets the next thing happen, if it is not after `end`.
    fn step(&mut self, end: Monotonic) -> bool {
        let deadlines = self.shards.iter().filter_map(|shard| Some(shard.proxy.poll_timeout()?.at));
        let brokers = self.brokers.iter().filter_map(BrokerModel::poll_timeout);
        let deadline = deadlines.chain(brokers).chain(self.etcd.model.poll_timeout()).min();
        let deadline = deadline.map(|at| at.max(self.now().monotonic));
        let arrival = self.timeline.next_at();
        let next = deadline.into_iter().chain(arrival).min();
        if next.is_none_or(|at| at > end) {
            if end > self.now().monotonic {
                self.timeline.jump(end);
            }
            return false;
        }
        match (deadline, arrival) {
            (Some(deadline), Some(arrival)) if arrival <= deadline => self.arrive(),
            (None, Some(_)) => self.arrive(),
            (Some(deadline), _) => self.wake(deadline),
            (None, None) => {}
        }
        true
    }

    /// Everybody does what is due.
    fn wake(&mut self, at: Monotonic) {
        self.timeline.jump(at);
        let now = self.now();
        let due = |at: Option<Monotonic>| at.is_some_and(|at| at <= now.monotonic);
        for index in 0..self.shards.len() {
            if due(self.shards[index].proxy.poll_timeout().map(|timeout| timeout.at)) {
                let effects = self.shards[index].wake(now);
                self.carry_out(index, effects);
            }
        }
        for index in 0..self.brokers.len() {
            if due(self.brokers[index].poll_timeout()) {
                self.wake_broker(index);
            }
        }
        if due(self.etcd.model.poll_timeout()) {
            self.change_etcd(|etcd, facts| etcd.model.handle_timeout(now.monotonic, facts));
        }
    }

    fn wake_broker(&mut self, broker: usize) {
        let (now, mut effects) = (self.now(), Vec::new());
        self.brokers[broker].handle_timeout(now, &mut self.log, &mut effects);
        self.carry_out_broker(broker, effects);
    }

    /// The next thing on its way arrives.
    fn arrive(&mut self) {
        let Some(event) = self.timeline.take_next() else { return };
        match event {
            Event::Fact { shard, input } => {
                let now = self.now();
                let effects = self.shards[shard].tell(now, input);
                self.carry_out(shard, effects);
            }
            Event::EtcdRequest { from, request } => self.etcd_request(from, &request),
            Event::EtcdWatch { from, request } => {
                let link = self.link_to_etcd(from);
                self.change_etcd(|etcd, facts| etcd.watch(link, from, &request, facts));
            }
            Event::EtcdCancel { from } => self.change_etcd(|etcd, facts| etcd.cancel_watch(from, facts)),
            Event::S3 { shard, order, fault } => {
                for (shard, delay, told) in self.s3.arrive(shard, order, fault) {
                    match told {
                        inputs::S3::Finished { operation, outcome } => {
                            self.timeline.plan(HOP + delay, Event::S3Finished { shard, operation, outcome });
                        }
                        read @ inputs::S3::ObjectRead { .. } => self.fact(HOP + delay, shard, Input::S3(read)),
                    }
                }
            }
            Event::S3Cancel { shard, operation } => {
                if self.s3.is_awaited(shard, operation) {
                    self.s3_finished(shard, operation, Outcome::Unknown("given up".into()));
                }
            }
            Event::S3Finished { shard, operation, outcome } => {
                if self.s3.is_awaited(shard, operation) {
                    self.s3_finished(shard, operation, outcome);
                } else {
                    self.s3.forget_object(shard, operation);
                }
            }
            Event::Dial { shard, connection, address } => self.dialled(shard, connection, &address),
            Event::Broker { broker, input } => {
                let (now, mut effects, version) = (self.now(), Vec::new(), self.log.version());
                self.brokers[broker].handle_input(now, input, &mut self.log, &mut effects);
                self.carry_out_broker(broker, effects);
                if self.log.version() != version {
                    (0..self.brokers.len()).filter(|other| *other != broker).for_each(|other| self.wake_broker(other));
                }
            }
        }
    }

    fn s3_finished(&mut self, shard: usize, operation: OperationId, outcome: Outcome<s3::Response, s3::Refusal>) {
        self.s3.answered(shard, operation);
        let now = self.now();
        let effects = self.shards[shard].tell(now, Input::S3(inputs::S3::Finished { operation, outcome }));
        self.carry_out(shard, effects);
    }

    fn etcd_request(&mut self, from: Watcher, request: &etcd::Request) {
        let (now, link, mut facts) = (self.now(), self.link_to_etcd(from), WatchFacts::new());
        let reply = self.etcd.model.request(now.monotonic, link, request, &mut facts);
        self.routing.look(now.monotonic, &self.etcd.model);
        let after = HOP + reply.delay;
        match from {
            Watcher::Shard(shard, operation) => {
                if matches!(reply.outcome, Outcome::Applied(_)) {
                    self.routing.told(now.monotonic, shard, request);
                }
                let finished = inputs::Etcd::Finished { operation, outcome: reply.outcome };
                self.fact(after, shard, Input::Etcd(finished));
            }
            Watcher::Broker(broker, token) => {
                let input = broker::Input::EtcdFinished { token, outcome: reply.outcome };
                self.timeline.plan(after, Event::Broker { broker, input });
            }
        }
        self.tell_watchers(facts);
    }

    fn link_to_etcd(&self, from: Watcher) -> kafscale_proxy_core::model::Link {
        match from {
            Watcher::Shard(..) => self.etcd.link,
            Watcher::Broker(..) => self.etcd.broker_link,
        }
    }

    fn tell_watchers(&mut self, facts: WatchFacts) {
        for (token, fact) in facts {
            match self.etcd.watcher(token, &fact) {
                Some(Watcher::Shard(shard, operation)) => {
                    self.fact(HOP, shard, Input::Etcd(watch_input(operation, fact)));
                }
                Some(Watcher::Broker(broker, token)) => {
                    let input = broker::Input::EtcdWatched { token, fact };
                    self.timeline.plan(HOP, Event::Broker { broker, input });
                }
                None => {}
            }
        }
    }

    // --- small steps ---

    fn fact(&mut self, delay: Duration, shard: usize, input: Input) {
        self.timeline.plan(delay, Event::Fact { shard, input });
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }
}

fn watch_input(operation: OperationId, fact: WatchFact) -> inputs::Etcd {
    match fact {
        WatchFact::Created => inputs::Etcd::WatchCreated { operation },
        WatchFact::Events { revision, events } => inputs::Etcd::WatchEvents { operation, revision, events },
        WatchFact::Ended(end) => inputs::Etcd::WatchEnded { operation, end },
    }
}
