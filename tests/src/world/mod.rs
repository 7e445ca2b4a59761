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
mod processes;
mod shard;
mod stores;
pub mod timeline;
mod to_etcd;
pub mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::BytesMut;
use kafscale_proxy_core::inputs::{self, BrokerConnectionId, ClientId, ExchangeId, HttpServer};
use kafscale_proxy_core::kafka::{Message, Request};
use kafscale_proxy_core::model::broker::{self, BrokerModel, ClusterSnapshot, ConnectionId, SharedLog};
use kafscale_proxy_core::{Config, Input, Monotonic, Now, OperationId, Outcome, effects, etcd, s3};

use choices::Choices;
pub use faults::{Faults, S3Fault, S3Verb};
pub use http_client::{BodyEnd, HttpClient};
use invariants::{Deletes, Judges, PARTITIONS};
use kafka_client::HeldBack;
pub use kafka_client::KafkaClient;
use processes::{BrokerProcess, Replica};
use shard::{Life, Shard};
pub use stores::{EtcdSide, S3Side, Watcher};
use timeline::Timeline;
pub use trace::Trace;

/// One way between two processes.
const HOP: Duration = Duration::from_micros(300);
/// How long a closed socket takes to be noticed.
const FIN: Duration = Duration::from_micros(400);

/// The most bytes of a client that are read at once.
const PIECE: usize = 16 * 1024;
/// A slow client sends for so long.
const DRIPS: Duration = Duration::from_secs(60);

/// Something on its way.
enum Event {
    /// A fact reaches a shard.
    Fact { shard: usize, input: Input },
    /// A request reaches etcd.
    EtcdRequest { from: Watcher, request: etcd::Request },
    /// A watch reaches etcd.
    EtcdWatch { from: Watcher, request: etcd::WatchRequest },
    /// The answer to a request comes back from etcd, if that was not restored meanwhile.
    EtcdReply {
        shard: usize,
        operation: OperationId,
        outcome: Outcome<etcd::Response, etcd::Refusal>,
        incarnation: u64,
    },
    /// The wish to end a request or a watch reaches etcd.
    EtcdCancel { from: Watcher },
    /// An order reaches S3.
    S3 { shard: usize, order: effects::S3, fault: Option<S3Fault> },
    /// The wish to end a request reaches the shard's S3 client.
    S3Cancel { shard: usize, operation: OperationId },
    /// The answer to a request comes back from S3, if anybody waits for it still.
    S3Finished { shard: usize, operation: OperationId, outcome: Outcome<s3::Response, s3::Refusal> },
    /// A shard reads the next of what has come from a broker, unless it does not want to.
    BrokerRead { shard: usize, connection: BrokerConnectionId },
    /// A dial reaches a broker.
    Dial { shard: usize, connection: BrokerConnectionId, address: String },
    /// A fact reaches a broker, if it still is in this life.
    Broker { broker: usize, life: u32, input: broker::Input },
    /// The next piece of a slow request body is there.
    BodyArrives { exchange: ExchangeId, operation: OperationId, max_bytes: usize },
    /// Bytes of a Kafka client reach its shard, if they are read.
    ClientSends { client: ClientId, bytes: BytesMut },
    /// A shard that stood still goes on.
    Awake { shard: usize },
}

/// How the world is made.
pub struct Plan {
    /// Every choice follows from it.
    pub seed: u64,
    /// Settings of each shard.
    pub config: Config,
    /// Shards of the one replica of the proxy that is there from the start; none: replicas are started later.
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
    /// Jobs take so much longer at most; each draws its own time.
    pub job_jitter: Duration,
    replicas: Vec<Replica>,
    brokers: Vec<BrokerProcess>,
    /// The records of the cluster.
    pub log: SharedLog,
    /// What was ordered to be deleted.
    pub deletes: Deletes,
    /// What else must hold at every moment.
    pub judges: Judges,
    /// What is still to strike.
    pub faults: Faults,
    /// Dials on their way.
    dialling: BTreeSet<(usize, BrokerConnectionId)>,
    clients: BTreeMap<ClientId, Client>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
    /// Whose each connection of a broker is, until either side has closed.
    peers: BTreeMap<(usize, ConnectionId), (usize, BrokerConnectionId)>,
    /// Clients that got something since [`World::take_news`].
    news: BTreeSet<ClientId>,
    /// Exchanges that were answered or ended since [`World::take_http_news`].
    http_news: BTreeSet<ExchangeId>,
    drawn: u64,
}

impl World {
    /// A world at its first moment: brokers start, the proxy starts.
    pub fn new(plan: Plan) -> Self {
        Self::with_choices(Choices::from_seed(plan.seed), plan)
    }

    /// A world whose choices come from elsewhere than the seed of its plan.
    pub fn with_choices(mut choices: Choices, plan: Plan) -> Self {
        let timeline = Timeline::default();
        let hosts: Vec<String> = (0..plan.brokers).map(|id| format!("broker-{id}")).collect();
        let listed = hosts.iter().enumerate().map(|(id, host)| (id as i32, host.as_str(), 9092));
        let mut snapshot = ClusterSnapshot::new("world", listed);
        for (topic, partitions) in &plan.topics {
            snapshot = snapshot.with_topic(topic, *partitions);
        }
        let mut etcd = EtcdSide::default();
        etcd.model.put(broker::SNAPSHOT_KEY, snapshot.to_json(), &mut Vec::new());
        let brokers: Vec<BrokerProcess> = hosts
            .into_iter()
            .enumerate()
            .map(|(id, host)| {
                BrokerProcess::new(broker::Settings {
                    id: id as i32,
                    host,
                    port: 9092,
                    auto_create_partitions: 1,
                    idle_close: None,
                    versions: BTreeMap::new(),
                    seed: choices.seed(),
                })
            })
            .collect();
        let mut world = Self {
            timeline,
            choices,
            trace: Trace::default(),
            shards: Vec::new(),
            replicas: Vec::new(),
            etcd,
            s3: S3Side::new(plan.min_part_bytes),
            job_jitter: Duration::ZERO,
            brokers,
            log: SharedLog::new(),
            deletes: Deletes::default(),
            judges: Judges::new(&plan.config, &snapshot),
            faults: Faults::default(),
            dialling: BTreeSet::new(),
            clients: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            peers: BTreeMap::new(),
            news: BTreeSet::new(),
            http_news: BTreeSet::new(),
            drawn: 0,
        };
        world.judges.topics_may_have_changed(&world.etcd, Monotonic::ZERO);
        if plan.shards > 0 {
            world.start_replica(&plan.config, plan.shards, 0);
        }
        for broker in 0..world.brokers.len() {
            world.tell_broker(Duration::ZERO, broker, broker::Input::Started);
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
        self.clients.insert(client, Client { shard, machine: KafkaClient::new(client) });
        let peer = ([127, 0, 0, 1], 40_000).into();
        self.fact(HOP, shard, Input::Client(inputs::Client::Accepted { client, peer }));
        client
    }

    /// Whether the snapshot in etcd lists this topic.
    pub fn lists_topic(&self, topic: &str) -> bool {
        let snapshot = self.etcd.model.get(broker::SNAPSHOT_KEY.as_bytes());
        snapshot.is_some_and(|kv| String::from_utf8_lossy(&kv.value).contains(&format!("\"{topic}\"")))
    }

    /// Ids of the topics that the snapshot in etcd lists, by name.
    pub fn topic_ids(&self) -> BTreeMap<String, [u8; 16]> {
        let snapshot = self.etcd.model.get(broker::SNAPSHOT_KEY.as_bytes());
        let topics = snapshot.and_then(|kv| ClusterSnapshot::parse(&kv.value)).unwrap_or_default().topics;
        topics.into_iter().filter_map(|topic| Some((topic.topic?, topic.topic_id))).collect()
    }

    /// A Kafka client sends a request; `answered` is false for Produce with acks 0.
    pub fn send<R: Request>(&mut self, client: ClientId, version: i16, request: &R, answered: bool) {
        let Some(open) = self.clients.get_mut(&client).filter(|open| !open.machine.is_closed()) else { return };
        let bytes = BytesMut::from(&open.machine.request(version, request, answered)[..]);
        self.timeline.plan(HOP, Event::ClientSends { client, bytes });
    }

    /// A Kafka client connects that sends the first `come` bytes of a request of `announced` and, if `every` is not zero, one
    /// more each time.
    pub fn half_request(&mut self, shard: usize, announced: u32, come: usize, every: Duration) -> ClientId {
        let client = self.connect(shard);
        let mut bytes = BytesMut::from(&announced.to_be_bytes()[..]);
        // Produce, version 9, correlation id 1, and a body that nobody will read.
        bytes.extend_from_slice(&[0, 0, 0, 9, 0, 0, 0, 1]);
        bytes.resize(come.clamp(1, announced as usize + 3), 0);
        let (mut after, mut left) = (HOP, announced as usize + 4 - bytes.len());
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            self.timeline.plan(after, Event::ClientSends { client, bytes: piece });
            after += HOP;
        }
        while !every.is_zero() && after < DRIPS && left > 1 {
            after += every;
            left -= 1;
            self.timeline.plan(after, Event::ClientSends { client, bytes: BytesMut::from(&[0][..]) });
        }
        client
    }

    /// A Kafka client reads no answers until it goes on.
    pub fn stand_still(&mut self, client: ClientId) {
        if let Some(open) = self.clients.get_mut(&client) {
            open.machine.stand_still();
        }
    }

    /// A Kafka client that stood still reads what has come, and goes on.
    pub fn go_on(&mut self, client: ClientId) {
        let Some(open) = self.clients.get_mut(&client).filter(|open| !open.machine.is_closed()) else { return };
        let shard = open.shard;
        match open.machine.go_on() {
            Ok(held) => {
                self.news.insert(client);
                for held in held.into_iter().rev() {
                    let told = match held {
                        HeldBack::Blocked => inputs::Client::Unblocked { client },
                        HeldBack::Clogged => inputs::Client::Drained { client },
                    };
                    self.fact(Duration::ZERO, shard, Input::Client(told));
                }
            }
            Err(fault) => self.judges.violated("answers", self.timeline.now().monotonic, fault),
        }
    }

    /// A client goes away without a word.
    pub fn vanish(&mut self, client: ClientId) {
        let Some(open) = self.clients.get_mut(&client).filter(|open| !open.machine.is_closed()) else { return };
        open.machine.vanishes();
        let shard = open.shard;
        self.fact(FIN, shard, Input::Client(inputs::Client::Closed { client }));
    }

    /// Clients that got answers, or their end, since this was last asked.
    pub fn take_news(&mut self) -> BTreeSet<ClientId> {
        std::mem::take(&mut self.news)
    }

    /// Exchanges that were answered or have ended since this was last asked.
    pub fn take_http_news(&mut self) -> BTreeSet<ExchangeId> {
        std::mem::take(&mut self.http_news)
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
    ///
    /// # Panics
    ///
    /// When it cannot be read as an answer of this kind.
    pub fn take_answer<M: Message>(&mut self, client: ClientId, version: i16) -> Option<M> {
        let machine = &mut self.clients.get_mut(&client)?.machine;
        machine.has_answer().then(|| machine.take_answer(version).expect("the answer can be read"))
    }

    /// The oldest answer that the client has not taken.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be read as an answer of this kind.
    pub fn try_take_answer<M: Message>(&mut self, client: ClientId, version: i16) -> Result<M, String> {
        self.clients.get_mut(&client).ok_or("no such client")?.machine.take_answer(version)
    }

    /// An HTTP client sends a request to the LFS API of a shard.
    pub fn request(&mut self, shard: usize, head: http::request::Parts, machine: HttpClient) -> ExchangeId {
        let exchange = self.next_exchange();
        self.drawn += 1;
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

    /// The number that the next exchange will have, so that a body can name it.
    pub const fn next_exchange(&self) -> ExchangeId {
        ExchangeId(self.drawn + 1)
    }

    /// Whether the driver has said its last word about an exchange.
    ///
    /// # Panics
    ///
    /// When it never began.
    pub fn has_ended(&self, exchange: ExchangeId) -> bool {
        self.exchanges.get(&exchange).expect("the exchange has begun").ended
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
        &mut self.brokers[broker].model
    }

    /// The broker that holds the lease of a partition.
    pub fn owner(&self, topic: &str, partition: i32) -> Option<usize> {
        let key = format!("{PARTITIONS}{topic}/{partition}");
        std::str::from_utf8(&self.etcd.model.get(key.as_bytes())?.value).ok()?.parse().ok()
    }

    /// A broker is asked to end: it gives its leases back and is gone.
    pub fn stop(&mut self, broker: usize) {
        self.tell_broker(Duration::ZERO, broker, broker::Input::ShutdownRequested);
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

    /// Lets the next thing happen, if it is not after `end`; otherwise the clock jumps to `end`, and this is false.
    pub fn step(&mut self, end: Monotonic) -> bool {
        let deadlines = self.shards.iter().filter_map(Shard::poll_timeout);
        let brokers = self.brokers.iter().filter_map(|broker| broker.model.poll_timeout());
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
            if due(self.shards[index].poll_timeout()) {
                self.wake_shard(index);
            }
        }
        for index in 0..self.brokers.len() {
            if due(self.brokers[index].model.poll_timeout()) {
                self.wake_broker(index);
            }
        }
        if due(self.etcd.model.poll_timeout()) {
            self.change_etcd(|etcd, facts| etcd.model.handle_timeout(now.monotonic, facts));
        }
    }

    fn wake_broker(&mut self, broker: usize) {
        let (now, mut effects) = (self.now(), Vec::new());
        self.brokers[broker].model.handle_timeout(now, &mut self.log, &mut effects);
        self.judges.appended(&self.log, now.monotonic);
        self.carry_out_broker(broker, effects);
    }

    /// The next thing on its way arrives.
    fn arrive(&mut self) {
        let Some(event) = self.timeline.take_next() else { return };
        match event {
            Event::Fact { shard, input } => self.deliver(shard, input),
            Event::Awake { shard } => self.awake(shard),
            Event::BrokerRead { shard, connection } => self.read_broker(shard, connection),
            Event::ClientSends { client, bytes } => {
                if let Some(open) = self.clients.get_mut(&client).filter(|open| !open.machine.is_closed()) {
                    open.machine.sends(&bytes);
                    self.read_client(client);
                }
            }
            Event::BodyArrives { exchange, operation, max_bytes } => self.body_arrives(exchange, operation, max_bytes),
            Event::EtcdRequest { from, request } => self.etcd_request(from, &request),
            Event::EtcdReply { shard, operation, outcome, incarnation } => {
                let is_cut = incarnation != self.etcd.incarnation;
                let outcome = if is_cut { Outcome::Unknown("the connection was cut".into()) } else { outcome };
                self.deliver(shard, Input::Etcd(inputs::Etcd::Finished { operation, outcome }));
            }
            Event::EtcdWatch { from, request } => {
                let link = self.link_to_etcd(from);
                self.change_etcd(|etcd, facts| etcd.watch(link, from, &request, facts));
            }
            Event::EtcdCancel { from } => self.change_etcd(|etcd, facts| etcd.cancel_watch(from, facts)),
            Event::S3 { shard, order, fault } => {
                let alive = self.shards[shard].life != Life::Dead;
                if !alive && !matches!(order, effects::S3::Request { .. }) {
                    return;
                }
                let told = self.s3.arrive(shard, order, fault);
                if !alive {
                    return self.s3.forget_shard(shard);
                }
                for (shard, delay, told) in told {
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
            Event::Broker { broker, life, input } => {
                if self.brokers[broker].life != life {
                    return;
                }
                let (now, mut effects, version) = (self.now(), Vec::new(), self.log.version());
                self.brokers[broker].model.handle_input(now, input, &mut self.log, &mut effects);
                self.judges.appended(&self.log, now.monotonic);
                self.carry_out_broker(broker, effects);
                if self.log.version() != version {
                    (0..self.brokers.len()).filter(|other| *other != broker).for_each(|other| self.wake_broker(other));
                }
            }
        }
    }

    fn s3_finished(&mut self, shard: usize, operation: OperationId, outcome: Outcome<s3::Response, s3::Refusal>) {
        self.s3.answered(shard, operation);
        self.deliver(shard, Input::S3(inputs::S3::Finished { operation, outcome }));
    }

    // --- small steps ---

    /// The driver reads what a client has sent, until it is told not to.
    pub(super) fn read_client(&mut self, client: ClientId) {
        while let Some(open) = self.clients.get_mut(&client)
            && self.shards[open.shard].life == Life::Running
            && let Some(bytes) = open.machine.read(PIECE)
        {
            let shard = open.shard;
            self.deliver(shard, Input::Client(inputs::Client::Received { client, bytes }));
        }
    }

    fn fact(&mut self, delay: Duration, shard: usize, input: Input) {
        self.timeline.plan(delay, Event::Fact { shard, input });
    }

    fn tell_broker(&mut self, delay: Duration, broker: usize, input: broker::Input) {
        let life = self.brokers[broker].life;
        self.timeline.plan(delay, Event::Broker { broker, life, input });
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }
}
