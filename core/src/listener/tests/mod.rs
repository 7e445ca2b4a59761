//! The listener against the real cluster machine, the etcd model and brokers that answer as the test says.

mod answers;
mod connecting;
mod counting;
mod limits;
mod order;
mod produce;
mod reading;
mod serving;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::*;
use crate::broker::usual_broker;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::{self, Waiter};
use crate::config::Config;
use crate::context::Ids;
use crate::input::ConnectError;
use crate::kafka::{
    ApiKey, ErrorCode, Message, MetadataRequest, PartitionProduceData, PartitionProduceResponse, ProduceRequest,
    ProduceResponse, Request, RequestHeader, ResponseHeader, TopicProduceData, TopicProduceResponse, VersionRange,
    build_batch, request_frame, response_frame,
};
use crate::model::Link;
use crate::model::etcd::{EtcdModel, WatchFact, WatchFacts, WatchToken};
use crate::operation::Outcome;
use crate::random::Random;
use crate::time::{Monotonic, Now};
use crate::timers::Timers;

const SNAPSHOT: &str = r#"{"ClusterID":"c","Brokers":[{"NodeID":0,"Host":"a","Port":1},{"NodeID":1,"Host":"b","Port":1},
    {"NodeID":2,"Host":"c","Port":1}],"Topics":[{"Topic":"t","Partitions":[{"Partition":0},{"Partition":1},{"Partition":2}]}]}"#;

const CLIENT: ClientId = ClientId(7);

/// A socket to a broker, seen from the broker.
struct Socket {
    connection: BrokerConnectionId,
    address: String,
    state: SocketState,
    /// Written to it and not taken by the test yet.
    written: BytesMut,
    written_total: u64,
    paused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketState {
    Dialling,
    Open,
    Over,
}

/// A socket to a client, seen from the client.
#[derive(Default)]
struct Peer {
    written: BytesMut,
    /// In so many pieces.
    pieces: usize,
    paused: bool,
    closed: bool,
}

struct Bench {
    listener: Listener,
    cluster: Cluster,
    config: Config,
    timers: Timers,
    random: Random,
    ids: Ids,
    now: Monotonic,
    etcd: EtcdModel,
    facts: WatchFacts,
    watches: BTreeMap<cluster::Source, WatchToken>,
    /// Nothing that is asked of etcd is answered before it is up again.
    etcd_is_down: bool,
    /// The leases cannot be read, the snapshot can.
    leases_are_unreadable: bool,
    etcd_orders: Vec<(cluster::Read, crate::etcd::Request)>,
    cluster_decisions: Vec<cluster::Decision>,
    decisions: Vec<Decision>,
    sockets: Vec<Socket>,
    peers: BTreeMap<ClientId, Peer>,
    /// Brokers that refuse connections.
    down: BTreeSet<String>,
    /// Brokers that neither take nor refuse connections.
    deaf: BTreeSet<String>,
    /// Questions that the listener asked.
    asked: Vec<Question>,
    stopped_accepting: bool,
    /// What brokers speak where that is not as usual.
    versions: Vec<(ApiKey, VersionRange)>,
}

impl Bench {
    /// Three brokers `a:1`, `b:1` and `c:1`; `a:1` owns partition 0 and `b:1` partition 1 of topic `t`, nobody owns 2.
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.cluster.cache_ttl = Duration::from_secs(20);
        config.listener.advertised_host = "proxy".into();
        change(&mut config);
        let mut bench = Self {
            listener: Listener::new(&config.listener),
            cluster: Cluster::new(&config.cluster),
            config,
            timers: Timers::default(),
            random: Random::new([3; 32]),
            ids: Ids::default(),
            now: Monotonic::from_millis(1_000_000),
            etcd: EtcdModel::new(),
            facts: WatchFacts::new(),
            watches: BTreeMap::new(),
            etcd_is_down: false,
            leases_are_unreadable: false,
            etcd_orders: Vec::new(),
            cluster_decisions: Vec::new(),
            decisions: Vec::new(),
            sockets: Vec::new(),
            peers: BTreeMap::new(),
            down: BTreeSet::new(),
            deaf: BTreeSet::new(),
            asked: Vec::new(),
            stopped_accepting: false,
            versions: Vec::new(),
        };
        bench.put("/kafscale/metadata/snapshot", SNAPSHOT);
        bench.own(0, 0);
        bench.own(1, 1);
        bench.with_cluster(|cluster, ctx, out| cluster.start(ctx, out));
        bench.accept(CLIENT);
        bench.run();
        bench.asked.clear();
        bench
    }

    fn put(&mut self, key: &str, value: &str) {
        self.etcd.put(key.to_owned(), value.to_owned(), &mut self.facts);
    }

    /// The lease of a partition of `t` goes to a broker; the proxy hears of it with the next `run`.
    fn own(&mut self, partition: i32, broker: i32) {
        self.put(&format!("/kafscale/partition-leases/t/{partition}"), &broker.to_string());
    }

    fn with_cluster(&mut self, call: impl FnOnce(&mut Cluster, &mut Context<'_>, &mut Vec<cluster::Decision>)) {
        let mut ctx = Context {
            now: Now { monotonic: self.now, unix_ms: 0 },
            config: &self.config,
            timers: &mut self.timers,
            random: &mut self.random,
            ids: &mut self.ids,
        };
        call(&mut self.cluster, &mut ctx, &mut self.cluster_decisions);
    }

    fn with_listener(&mut self, call: impl FnOnce(&mut Listener, &mut Context<'_>, &Cluster, &mut Vec<Decision>)) {
        let mut ctx = Context {
            now: Now { monotonic: self.now, unix_ms: 0 },
            config: &self.config,
            timers: &mut self.timers,
            random: &mut self.random,
            ids: &mut self.ids,
        };
        call(&mut self.listener, &mut ctx, &self.cluster, &mut self.decisions);
    }

    fn client(&mut self, input: input::Client) {
        self.with_listener(|listener, ctx, cluster, out| listener.on_client(ctx, cluster, input, out).unwrap());
    }

    fn broker(&mut self, input: input::Broker) {
        self.with_listener(|listener, ctx, cluster, out| listener.on_broker(ctx, cluster, input, out));
    }

    fn accept(&mut self, client: ClientId) {
        self.peers.insert(client, Peer::default());
        self.client(input::Client::Accepted { client, peer: ([127, 0, 0, 1], 9).into() });
    }

    /// The client sends bytes, and everything that follows happens.
    fn send(&mut self, bytes: &[u8]) {
        self.send_from(CLIENT, bytes);
    }

    fn send_from(&mut self, client: ClientId, bytes: &[u8]) {
        self.client(input::Client::Received { client, bytes: BytesMut::from(bytes) });
        self.run();
    }

    fn leave(&mut self) {
        self.client(input::Client::Closed { client: CLIENT });
        self.run();
    }

    /// Everything that is under way happens, except what brokers do.
    fn run(&mut self) {
        for _ in 0..100_000 {
            if !self.decisions.is_empty() {
                let decision = self.decisions.remove(0);
                self.carry_out(decision);
            } else if !self.cluster_decisions.is_empty() {
                let decision = self.cluster_decisions.remove(0);
                self.carry_out_for_cluster(decision);
            } else if self.etcd_is_down {
                return;
            } else if !self.facts.is_empty() {
                self.tell();
            } else if !self.etcd_orders.is_empty() {
                let (read, request) = self.etcd_orders.remove(0);
                let is_lease = matches!(read, cluster::Read::Leases(_) | cluster::Read::Proof(_));
                let outcome = if is_lease && self.leases_are_unreadable {
                    Outcome::Unknown("unreadable".into())
                } else {
                    self.etcd.request(self.now, Link::default(), &request, &mut self.facts).outcome
                };
                self.with_cluster(|cluster, ctx, out| cluster.on_finished(ctx, read, outcome, out));
            } else {
                return;
            }
        }
        panic!("the machine does not come to rest");
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Write { client, bytes } => {
                let peer = self.peer(client);
                peer.written.put_slice(&bytes);
                peer.pieces += 1;
            }
            Decision::Pause { client } => self.peer(client).paused = true,
            Decision::Resume { client } => self.peer(client).paused = false,
            Decision::Close { client } => {
                self.peer(client).closed = true;
                self.client(input::Client::Closed { client });
            }
            Decision::StopAccepting => self.stopped_accepting = true,
            Decision::Connect { connection, address } => {
                let address = address.to_string();
                self.sockets.push(Socket {
                    connection,
                    address: address.clone(),
                    state: SocketState::Dialling,
                    written: BytesMut::new(),
                    written_total: 0,
                    paused: false,
                });
                if self.down.contains(&address) {
                    self.refuse(connection);
                } else if !self.deaf.contains(&address) {
                    self.socket(connection).state = SocketState::Open;
                    self.broker(input::Broker::Connected { connection });
                }
            }
            Decision::WriteBroker { connection, bytes } if usual_broker::is_question(&bytes) => {
                self.broker(input::Broker::Received { connection, bytes: usual_broker::versions_with(&self.versions) });
            }
            Decision::WriteBroker { connection, bytes } => {
                let socket = self.socket(connection);
                assert_eq!(socket.state, SocketState::Open);
                socket.written_total += bytes.len() as u64;
                socket.written.put_slice(&bytes);
            }
            Decision::PauseBroker { connection } => self.socket(connection).paused = true,
            Decision::ResumeBroker { connection } => self.socket(connection).paused = false,
            Decision::CloseBroker { connection } => match self.socket(connection).state {
                SocketState::Dialling => self.refuse(connection),
                SocketState::Open => {
                    let accepted_bytes = self.socket(connection).written_total;
                    self.lose(connection, accepted_bytes);
                }
                SocketState::Over => {}
            },
            Decision::Ask { question, request } => {
                self.asked.push(question.clone());
                self.with_cluster(|cluster, ctx, out| cluster.ask(ctx, question, Waiter::Request(request), out));
            }
            Decision::ForgetWaiter { request } => self.cluster.forget_waiter(Waiter::Request(request)),
            Decision::ForgetPartitionOwner { topic, partition, by } => {
                self.cluster.forget_partition_owner(&topic, partition, &by);
            }
            Decision::ForgetCoordinator { group, by } => self.cluster.forget_coordinator(&group, &by),
        }
    }

    fn carry_out_for_cluster(&mut self, decision: cluster::Decision) {
        match decision {
            cluster::Decision::Request { read, request, deadline: _ } => self.etcd_orders.push((read, request)),
            cluster::Decision::Watch { source, request } => {
                let token = WatchToken(self.watches.len() as u64 + 1);
                self.watches.insert(source, token);
                self.etcd.watch(Link::default(), token, &request, &mut self.facts);
            }
            cluster::Decision::CancelWatch { source } => {
                self.etcd.cancel_watch(self.watches[&source], &mut self.facts);
            }
            cluster::Decision::ParseSnapshot(value) => self.parse(&value),
            cluster::Decision::Answered { waiter: Waiter::Request(request), question, answer } => {
                self.with_listener(|listener, ctx, cluster, out| {
                    listener.on_answer(ctx, cluster, request, &question, &answer, out);
                });
            }
            cluster::Decision::Answered { .. } => {}
        }
    }

    fn parse(&mut self, value: &[u8]) {
        let result = Snapshot::parse(value);
        self.with_cluster(|cluster, ctx, out| cluster.on_parsed_elsewhere(ctx, result, out));
    }

    fn tell(&mut self) {
        let (token, fact) = self.facts.remove(0);
        let Some(source) = self.watches.iter().find_map(|(source, other)| (*other == token).then_some(*source)) else {
            return;
        };
        match fact {
            WatchFact::Created { revision } => {
                self.with_cluster(|cluster, ctx, out| cluster.on_watch_created(ctx, source, revision, out));
            }
            WatchFact::Events { revision, events } => {
                self.with_cluster(|cluster, ctx, out| cluster.on_watch_events(ctx, source, revision, &events, out));
            }
            WatchFact::Ended(end) => {
                self.with_cluster(|cluster, ctx, out| cluster.on_watch_ended(ctx, source, end, out));
            }
        }
    }

    /// etcd answers nothing any more; what is asked of it is lost after a while.
    fn lose_etcd(&mut self) {
        self.etcd_is_down = true;
    }

    /// What was asked of etcd while it was down fails.
    fn fail_etcd(&mut self) {
        for (read, _) in std::mem::take(&mut self.etcd_orders) {
            let outcome = Outcome::Unknown("down".into());
            self.with_cluster(|cluster, ctx, out| cluster.on_finished(ctx, read, outcome, out));
        }
        self.run();
    }

    /// Time passes; deadlines are met on the way.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(timeout) = self.timers.next().filter(|timeout| timeout.at <= end) {
            self.now = self.now.max(timeout.at);
            while let Some(timer) = self.timers.pop_due(self.now) {
                if let Timer::ClusterReload(source) = timer {
                    self.with_cluster(|cluster, ctx, out| cluster.on_timer(ctx, source, out));
                } else {
                    self.with_listener(|listener, ctx, cluster, out| listener.on_timer(ctx, cluster, timer, out));
                }
                self.run();
            }
            let next = self.timers.next().map(|timeout| timeout.at);
            assert!(next.is_none_or(|next| next > self.now), "a deadline that is met must not come back at once");
        }
        self.now = end;
    }

    fn peer(&mut self, client: ClientId) -> &mut Peer {
        self.peers.get_mut(&client).unwrap()
    }

    fn is_closed(&mut self) -> bool {
        self.peer(CLIENT).closed
    }

    fn socket(&mut self, connection: BrokerConnectionId) -> &mut Socket {
        self.sockets.iter_mut().find(|socket| socket.connection == connection).unwrap()
    }

    /// The open connection to a broker.
    fn open_socket(&mut self, address: &str) -> &mut Socket {
        let is_open = |socket: &&mut Socket| socket.address == address && socket.state == SocketState::Open;
        self.sockets.iter_mut().find(is_open).unwrap_or_else(|| panic!("no connection to {address}"))
    }

    fn dials(&self, address: &str) -> usize {
        self.sockets.iter().filter(|socket| socket.address == address).count()
    }

    fn refuse(&mut self, connection: BrokerConnectionId) {
        self.socket(connection).state = SocketState::Over;
        self.broker(input::Broker::ConnectFailed { connection, error: ConnectError("refused".into()) });
    }

    /// `accepted_bytes` are of requests: what was said before them was answered.
    fn lose(&mut self, connection: BrokerConnectionId, accepted_bytes: u64) {
        self.socket(connection).state = SocketState::Over;
        let accepted_bytes = usual_broker::question_bytes().saturating_add(accepted_bytes);
        self.broker(input::Broker::Closed { connection, accepted_bytes });
    }

    /// The broker closes its connection after it took so many bytes of what was written.
    fn hang_up(&mut self, address: &str, accepted_bytes: u64) {
        let connection = self.open_socket(address).connection;
        self.lose(connection, accepted_bytes);
        self.run();
    }

    /// The next request that a broker got, whole frame.
    fn taken(&mut self, address: &str) -> Bytes {
        let socket = self.open_socket(address);
        take_frame(&mut socket.written).unwrap_or_else(|| panic!("{address} got no request"))
    }

    /// Whether a broker has a request that was not taken.
    fn has_request(&self, address: &str) -> bool {
        let is_open = |socket: &&Socket| socket.address == address && socket.state == SocketState::Open;
        self.sockets.iter().find(is_open).is_some_and(|socket| !socket.written.is_empty())
    }

    /// A broker sends bytes.
    fn reply(&mut self, address: &str, bytes: &[u8]) {
        let connection = self.open_socket(address).connection;
        self.broker(input::Broker::Received { connection, bytes: BytesMut::from(bytes) });
        self.run();
    }

    /// A broker takes its next request, which is a Produce, and answers each partition with this code.
    fn serve_produce(&mut self, address: &str, code: i16) {
        let (header, request) = produce_request(&self.taken(address));
        let answers = request.topic_data.iter().map(|topic| TopicProduceResponse {
            name: topic.name.clone(),
            partition_responses: topic.partition_data.iter().map(|data| answer(data.index, code, 100)).collect(),
        });
        let response = ProduceResponse { responses: answers.collect(), throttle_time_ms: 0 };
        self.reply(address, &response_frame(header.0, header.1, &response));
    }

    /// The next answer that the client got, whole frame.
    fn answer(&mut self) -> Option<Bytes> {
        take_frame(&mut self.peer(CLIENT).written)
    }

    /// The next answer, which is one to Produce: error code and base offset of each partition.
    fn produced(&mut self, version: i16) -> Vec<(i32, i16, i64)> {
        let frame = self.answer().expect("an answer");
        let (_, body_at) = ResponseHeader::decode(&frame, ApiKey::Produce, version).unwrap();
        let response = ProduceResponse::decode(&frame.slice(body_at..), version).unwrap();
        let partitions = response.responses.into_iter().flat_map(|topic| topic.partition_responses);
        partitions.map(|answer| (answer.index, answer.error_code.0, answer.base_offset)).collect()
    }

    /// Error codes of the next answer to a Produce v9 for partition 0.
    fn code(&mut self) -> i16 {
        let produced = self.produced(9);
        assert_eq!(produced.len(), 1);
        produced[0].1
    }
}

fn take_frame(bytes: &mut BytesMut) -> Option<Bytes> {
    let length = i32::from_be_bytes(*bytes.first_chunk()?);
    let frame = bytes.split_to(4 + usize::try_from(length).unwrap());
    Some(frame.freeze())
}

fn answer(index: i32, code: i16, base_offset: i64) -> PartitionProduceResponse {
    PartitionProduceResponse { index, error_code: ErrorCode(code), base_offset, ..PartitionProduceResponse::default() }
}

fn batch() -> Bytes {
    build_batch(1, [])
}

fn produce_of(acks: i16, partitions: &[i32]) -> ProduceRequest {
    let data = |index: &i32| PartitionProduceData { index: *index, records: Some(batch()) };
    let topic = TopicProduceData { name: "t".into(), partition_data: partitions.iter().map(data).collect() };
    ProduceRequest { transactional_id: None, acks, timeout_ms: 1_000, topic_data: vec![topic] }
}

fn frame<R: Request>(correlation_id: i32, version: i16, request: &R) -> Bytes {
    request_frame(correlation_id, Some("me"), version, request)
}

/// A Produce v9 with acks all for these partitions of `t`.
fn produce(correlation_id: i32, partitions: &[i32]) -> Bytes {
    frame(correlation_id, 9, &produce_of(-1, partitions))
}

fn metadata(correlation_id: i32) -> Bytes {
    frame(correlation_id, 12, &MetadataRequest::default())
}

/// Correlation id and version, and the body.
fn produce_request(frame: &Bytes) -> ((i32, i16), ProduceRequest) {
    let (header, body_at) = RequestHeader::decode(frame).unwrap();
    assert_eq!(header.client_id, Some("me"));
    let version = header.api_version;
    ((header.correlation_id, version), ProduceRequest::decode(&frame.slice(body_at..), version).unwrap())
}

fn correlation_id(frame: &Bytes) -> i32 {
    (&frame[4..]).get_i32()
}
