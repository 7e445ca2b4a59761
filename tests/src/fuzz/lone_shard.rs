//! One shard in simulated time among honest stores, with whoever the target puts at its sockets.
//!
//! The world judges what honest peers get; here peers may send anything, so what is judged is what must hold all the same:
//! no panic, bounded effects and memory, answers in order, and nothing left when everybody has gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::inputs::{self, BrokerConnectionId, ClientId, ConnectError, ExchangeId, FileId, ReadResult};
use kafscale_proxy_core::kafka::{ApiKey, RequestHeader, Splitter};
use kafscale_proxy_core::model::Link;
use kafscale_proxy_core::model::broker::{ClusterSnapshot, SNAPSHOT_KEY};
use kafscale_proxy_core::model::etcd::{EtcdModel, WatchFact, WatchFacts, WatchToken};
use kafscale_proxy_core::model::s3::{self, MemoryBlobs, S3Model};
use kafscale_proxy_core::{
    Config, Effect, Effects, Input, LfsConfig, ListenerConfig, Monotonic, OperationId, Proxy, effects,
};

use super::hostile_client::HostileClient;
use crate::world::HttpClient;
use crate::world::timeline::Timeline;

/// One way between two processes.
const HOP: Duration = Duration::from_micros(300);
/// Brokers of the cluster.
const BROKERS: i32 = 3;
/// The topic that exists, and its partitions.
pub(super) const TOPIC: &str = "demo";
const PARTITIONS: i32 = 6;
/// What one call may order, and how many things may happen in one input: far above what any input needs.
const EFFECTS_MAX: usize = 10_000;
const STEPS_MAX: usize = 200_000;

const REQUEST_MAX_BYTES: usize = 1 << 20;
const INFLIGHT_REQUESTS: usize = 8;
const FRAME_MEMORY_BYTES: usize = 2 << 20;
const SMALL_REQUEST_MEMORY_BYTES: usize = 16 << 10;
/// What a request of 64 KiB counts as when it names as many partitions as it can: 256 bytes for six on the wire.
const SMALL_REQUEST_MOST_BYTES: usize = (64 << 10) * 256 / 6;

/// A request that reached a broker.
pub(super) struct Asked {
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) body: Bytes,
}

/// What a broker does with it.
pub(super) enum Does {
    /// Writes these bytes, whatever they are.
    Write(Bytes),
    /// Nothing.
    Hang,
    /// Closes the connection.
    Close,
}

enum Event {
    Fact(Box<Input>),
    Dialled(BrokerConnectionId),
}

struct Socket {
    splitter: Splitter,
    accepted: u64,
}

#[derive(Default)]
struct File {
    content: BytesMut,
    read: usize,
}

struct Exchange {
    machine: HttpClient,
    reading: Option<OperationId>,
    ended: bool,
}

/// The shard and everything around it.
pub(super) struct LoneShard<'a> {
    proxy: Proxy,
    timeline: Timeline<Event>,
    etcd: EtcdModel,
    s3: S3Model,
    blobs: MemoryBlobs,
    brokers: Box<dyn FnMut(&Asked) -> Does + 'a>,
    dialling: BTreeSet<BrokerConnectionId>,
    sockets: BTreeMap<BrokerConnectionId, Socket>,
    clients: BTreeMap<ClientId, HostileClient>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
    files: BTreeMap<FileId, File>,
    last_id: u64,
    steps: usize,
}

/// What etcd says of the cluster when nobody lies.
pub(super) fn snapshot() -> ClusterSnapshot {
    let hosts: Vec<_> = (0..BROKERS).map(|id| (id, format!("broker-{id}"))).collect();
    let listed = hosts.iter().map(|(id, host)| (*id, host.as_str(), 9092));
    ClusterSnapshot::new("fuzz", listed).with_topic(TOPIC, PARTITIONS)
}

impl<'a> LoneShard<'a> {
    /// A shard that has read an honest etcd.
    pub(super) fn new(brokers: impl FnMut(&Asked) -> Does + 'a) -> Self {
        let lfs = LfsConfig {
            bucket: "blobs".into(),
            chunk_bytes: 256,
            single_put_below_bytes: 256,
            hash_inline_bytes: 60,
            hash_job_bytes: 120,
            max_blob_bytes: Some(64 << 10),
            upload_memory_bytes: 4 << 10,
            download_memory_bytes: 512,
            presign_enabled: true,
            ..LfsConfig::default()
        };
        let listener = ListenerConfig {
            advertised_host: "proxy".into(),
            request_max_bytes: REQUEST_MAX_BYTES,
            inflight_requests_per_client: INFLIGHT_REQUESTS,
            frame_memory_bytes: FRAME_MEMORY_BYTES,
            small_request_memory_bytes: SMALL_REQUEST_MEMORY_BYTES,
            answer_memory_bytes: FRAME_MEMORY_BYTES,
            ..ListenerConfig::default()
        };
        let timeline = Timeline::default();
        let config = Config { lfs: Some(lfs), listener, ..Config::default() };
        let mut shard = Self {
            proxy: Proxy::new(config, [7; 32], timeline.now()),
            timeline,
            etcd: EtcdModel::new(),
            s3: S3Model::with_bucket(s3::Settings { min_part_bytes: 1, ..s3::Settings::default() }),
            blobs: MemoryBlobs::default(),
            brokers: Box::new(brokers),
            dialling: BTreeSet::new(),
            sockets: BTreeMap::new(),
            clients: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            files: BTreeMap::new(),
            last_id: 0,
            steps: 0,
        };
        shard.put(SNAPSHOT_KEY.as_bytes(), snapshot().to_json());
        for partition in 0..PARTITIONS {
            let key = format!("/kafscale/partition-leases/{TOPIC}/{partition}");
            shard.put(key.as_bytes(), (partition % BROKERS).to_string());
        }
        shard.put(b"/kafscale/group-leases/group", "1");
        shard.run(Duration::from_secs(1));
        shard
    }

    fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Somebody writes a key of etcd.
    pub(super) fn put(&mut self, key: &[u8], value: impl Into<Bytes>) {
        let mut facts = WatchFacts::new();
        self.etcd.put(Bytes::copy_from_slice(key), value, &mut facts);
        self.tell_watches(facts);
    }

    // --- clients ---

    pub(super) fn connect(&mut self) -> ClientId {
        let client = ClientId(self.id());
        self.clients.insert(client, HostileClient::new(REQUEST_MAX_BYTES));
        let peer = ([127, 0, 0, 1], 40_000).into();
        self.fact(Input::Client(inputs::Client::Accepted { client, peer }));
        client
    }

    /// A client sends bytes, whatever they are.
    pub(super) fn send(&mut self, client: ClientId, bytes: &[u8]) {
        let Some(machine) = self.clients.get_mut(&client).filter(|machine| !machine.is_closed()) else { return };
        machine.sends(bytes);
        if !bytes.is_empty() {
            let bytes = BytesMut::from(bytes);
            self.fact(Input::Client(inputs::Client::Received { client, bytes }));
        }
    }

    /// A client goes away.
    pub(super) fn disconnect(&mut self, client: ClientId) {
        let Some(machine) = self.clients.get_mut(&client).filter(|machine| !machine.is_closed()) else { return };
        machine.closed();
        self.fact(Input::Client(inputs::Client::Closed { client }));
    }

    pub(super) fn client(&mut self, client: ClientId) -> &mut HostileClient {
        self.clients.get_mut(&client).expect("the client has connected")
    }

    pub(super) fn request(&mut self, head: http::request::Parts, machine: HttpClient) -> ExchangeId {
        let exchange = ExchangeId(self.id());
        self.exchanges.insert(exchange, Exchange { machine, reading: None, ended: false });
        let (server, head, peer) = (inputs::HttpServer::Api, Box::new(head), ([127, 0, 0, 1], 50_000).into());
        self.fact(Input::Http(inputs::Http::Requested { exchange, server, head, peer }));
        exchange
    }

    pub(super) fn exchange(&self, exchange: ExchangeId) -> &HttpClient {
        &self.exchanges.get(&exchange).expect("the exchange has begun").machine
    }

    // --- time ---

    pub(super) fn run(&mut self, duration: Duration) {
        let end = self.timeline.now().monotonic + duration;
        while self.step(end) {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "the machine never rests");
        }
    }

    /// Everybody goes; whatever they left must come to an end.
    pub(super) fn end(mut self) {
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            self.disconnect(client);
        }
        for exchange in self.exchanges.keys().copied().collect::<Vec<_>>() {
            if !self.exchanges[&exchange].ended {
                self.fact(Input::Http(inputs::Http::ClientGone { exchange }));
                self.end_exchange(exchange);
            }
        }
        // The longest wait that anybody may have asked for is over by then.
        for _ in 0..60 {
            self.run(Duration::from_secs(10));
            if self.leftovers().is_none() {
                break;
            }
        }
        assert_eq!(self.leftovers(), None);
        self.fact(Input::ShutdownRequested);
        self.run(Duration::from_secs(60));
        assert!(self.proxy.is_idle(), "the shutdown ends");
    }

    fn leftovers(&self) -> Option<String> {
        let stats = self.proxy.stats();
        let open = stats.listener;
        let counts = [
            open.clients,
            open.open_requests,
            open.frame_bytes,
            open.small_request_bytes,
            open.answer_bytes,
            open.broker_connections,
            stats.exchanges,
            self.files.len(),
        ];
        counts
            .iter()
            .any(|count| *count > 0)
            .then(|| format!("{open:?}, {} exchanges, {} files", stats.exchanges, self.files.len()))
    }

    fn step(&mut self, end: Monotonic) -> bool {
        let deadlines = self.proxy.poll_timeout().map(|timeout| timeout.at).into_iter().chain(self.etcd.poll_timeout());
        let deadline = deadlines.min().map(|at| at.max(self.timeline.now().monotonic));
        let arrival = self.timeline.next_at();
        if deadline.into_iter().chain(arrival).min().is_none_or(|at| at > end) {
            self.timeline.jump(end.max(self.timeline.now().monotonic));
            return false;
        }
        match (deadline, arrival) {
            (Some(deadline), arrival) if arrival.is_none_or(|arrival| deadline < arrival) => {
                self.timeline.jump(deadline);
                self.wake();
            }
            _ => self.arrive(),
        }
        true
    }

    fn wake(&mut self) {
        let (now, mut effects, mut facts) = (self.timeline.now(), Effects::new(), WatchFacts::new());
        self.proxy.handle_timeout(now, &mut effects);
        if let Some(next) = self.proxy.poll_timeout() {
            assert!(next.at > now.monotonic, "still due after handle_timeout: {:?}", next.reason);
        }
        self.carry_out(effects);
        self.etcd.handle_timeout(now.monotonic, &mut facts);
        self.tell_watches(facts);
    }

    fn arrive(&mut self) {
        match self.timeline.take_next() {
            Some(Event::Fact(input)) => {
                let (now, mut effects) = (self.timeline.now(), Effects::new());
                if let Err(misuse) = self.proxy.handle_input(now, *input, &mut effects) {
                    panic!("the driver broke its contract: {misuse}");
                }
                self.carry_out(effects);
                let listener = self.proxy.stats().listener;
                assert!(listener.open_requests <= INFLIGHT_REQUESTS * self.clients.len(), "{listener:?}");
                assert!(listener.frame_bytes <= FRAME_MEMORY_BYTES, "{listener:?}");
                let one_each = (self.clients.len() + 1) * SMALL_REQUEST_MOST_BYTES;
                assert!(listener.small_request_bytes <= SMALL_REQUEST_MEMORY_BYTES + one_each, "{listener:?}");
            }
            Some(Event::Dialled(connection)) if self.dialling.remove(&connection) => {
                let splitter = Splitter::for_requests(usize::MAX);
                self.sockets.insert(connection, Socket { splitter, accepted: 0 });
                self.fact(Input::Broker(inputs::Broker::Connected { connection }));
            }
            // The dial was given up meanwhile.
            Some(Event::Dialled(_)) | None => {}
        }
    }

    fn fact(&mut self, input: Input) {
        self.timeline.plan(HOP, Event::Fact(Box::new(input)));
    }

    // --- the driver ---

    fn carry_out(&mut self, effects: Effects) {
        assert!(effects.len() <= EFFECTS_MAX, "{} effects of one call", effects.len());
        for effect in effects {
            match effect {
                Effect::Client(order) => self.carry_out_client(order),
                Effect::Broker(order) => self.carry_out_broker(order),
                Effect::Http(order) => self.carry_out_http(order),
                Effect::Etcd(order) => self.carry_out_etcd(order),
                Effect::S3(order) => self.carry_out_s3(order),
                Effect::TempFile(order) => self.carry_out_file(order),
                Effect::Compute(job) => self.fact(Input::Computed(job.run())),
            }
        }
    }

    fn carry_out_client(&mut self, order: effects::Client) {
        match order {
            effects::Client::Write { client, bytes } => self.client(client).receives(&bytes),
            effects::Client::Close { client } => self.disconnect(client),
            // What is sent has arrived by the time that the order comes.
            effects::Client::Pause { .. } | effects::Client::Resume { .. } | effects::Client::StopAccepting => {}
        }
    }

    fn carry_out_broker(&mut self, order: effects::Broker) {
        match order {
            effects::Broker::Connect { connection, .. } => {
                self.dialling.insert(connection);
                self.timeline.plan(HOP, Event::Dialled(connection));
            }
            effects::Broker::Write { connection, bytes } => self.asked(connection, &bytes),
            effects::Broker::Close { connection } => self.close_socket(connection),
            effects::Broker::Pause { .. } | effects::Broker::Resume { .. } => {}
        }
    }

    /// Whole requests are answered as they come.
    fn asked(&mut self, connection: BrokerConnectionId, bytes: &Bytes) {
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        socket.accepted += bytes.len() as u64;
        socket.splitter.push(BytesMut::from(&bytes[..]));
        while let Some(socket) = self.sockets.get_mut(&connection) {
            let Some(frame) = socket.splitter.next_frame().expect("the proxy writes whole frames") else { return };
            let frame = frame.freeze();
            let (header, body_at) = RequestHeader::decode(&frame).expect("the proxy writes headers");
            let api = header.api().expect("the proxy speaks APIs that are known");
            let body = frame.slice(body_at..);
            let asked = Asked { api, version: header.api_version, correlation_id: header.correlation_id, body };
            match (self.brokers)(&asked) {
                Does::Write(bytes) if bytes.is_empty() => {}
                Does::Write(bytes) => {
                    let bytes = BytesMut::from(&bytes[..]);
                    self.fact(Input::Broker(inputs::Broker::Received { connection, bytes }));
                }
                Does::Hang => {}
                Does::Close => self.close_socket(connection),
            }
        }
    }

    fn close_socket(&mut self, connection: BrokerConnectionId) {
        let told = match self.sockets.remove(&connection) {
            Some(socket) => inputs::Broker::Closed { connection, accepted_bytes: socket.accepted },
            None if self.dialling.remove(&connection) => {
                inputs::Broker::ConnectFailed { connection, error: ConnectError("given up".into()) }
            }
            None => return,
        };
        self.fact(Input::Broker(told));
    }

    fn carry_out_etcd(&mut self, order: effects::Etcd) {
        let mut facts = WatchFacts::new();
        match order {
            effects::Etcd::Request { operation, request } => {
                let now = self.timeline.now().monotonic;
                let outcome = self.etcd.request(now, Link::default(), &request, &mut facts).outcome;
                self.fact(Input::Etcd(inputs::Etcd::Finished { operation, outcome }));
            }
            effects::Etcd::Watch { operation, request } => {
                self.etcd.watch(Link::default(), WatchToken(operation.0), &request, &mut facts);
            }
            effects::Etcd::Cancel { operation } => self.etcd.cancel_watch(WatchToken(operation.0), &mut facts),
        }
        self.tell_watches(facts);
    }

    fn tell_watches(&mut self, facts: WatchFacts) {
        for (token, fact) in facts {
            let operation = OperationId(token.0);
            self.fact(Input::Etcd(match fact {
                WatchFact::Created { revision } => inputs::Etcd::WatchCreated { operation, revision },
                WatchFact::Events { revision, events } => inputs::Etcd::WatchEvents { operation, revision, events },
                WatchFact::Ended(end) => inputs::Etcd::WatchEnded { operation, end },
            }));
        }
    }

    fn carry_out_s3(&mut self, order: effects::S3) {
        let input = match order {
            effects::S3::Request { operation, request } => {
                s3::Input::Requested { token: s3::Token(operation.0), link: Link::default(), request }
            }
            effects::S3::ReadObject { operation, object, max_bytes } => {
                s3::Input::ReadRequested { token: s3::Token(operation.0), object: s3::Token(object.0), max_bytes }
            }
            effects::S3::ReleaseObject { object } => s3::Input::Released { object: s3::Token(object.0) },
            // The answer is on its way already.
            effects::S3::Cancel { .. } => return,
        };
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut orders = Vec::new();
            self.s3.handle_input(input, &mut orders);
            for order in orders {
                match self.blobs.carry_out(order) {
                    Ok(input) => inputs.extend(input),
                    Err(order) => self.tell_of_s3(order),
                }
            }
        }
    }

    fn tell_of_s3(&mut self, order: s3::Effect) {
        let told = match order {
            s3::Effect::Finished { token, reply } => {
                inputs::S3::Finished { operation: OperationId(token.0), outcome: reply.outcome }
            }
            s3::Effect::ObjectRead { token, result } => {
                inputs::S3::ObjectRead { operation: OperationId(token.0), result }
            }
            s3::Effect::StoreBlob { .. } | s3::Effect::LoadBlob { .. } | s3::Effect::RemoveBlob { .. } => return,
        };
        self.fact(Input::S3(told));
    }

    fn carry_out_http(&mut self, order: effects::Http) {
        match order {
            effects::Http::ReadBody { operation, exchange, max_bytes } => {
                let Some(open) = self.exchanges.get_mut(&exchange) else { return };
                let gone = || Some(ReadResult::Broken("there is no body to read".into()));
                match if open.ended { gone() } else { open.machine.read(max_bytes) } {
                    Some(result) => self.fact(Input::Http(inputs::Http::BodyRead { operation, result })),
                    None => open.reading = Some(operation),
                }
            }
            effects::Http::CancelRead { exchange } => self.cancel_read(exchange),
            effects::Http::Respond { exchange, head, body } => {
                let Some(open) = self.exchanges.get_mut(&exchange).filter(|open| !open.ended) else { return };
                let is_whole = match body {
                    effects::ResponseBody::Whole(bytes) => {
                        open.machine.responded(head, None);
                        open.machine.received(&bytes);
                        true
                    }
                    effects::ResponseBody::Streamed { length } => {
                        open.machine.responded(head, Some(length));
                        length == 0
                    }
                };
                if is_whole {
                    self.end_exchange(exchange);
                }
            }
            effects::Http::SendChunk { operation, exchange, bytes } => {
                self.fact(Input::Http(inputs::Http::ChunkAccepted { operation }));
                let Some(open) = self.exchanges.get_mut(&exchange).filter(|open| !open.ended) else { return };
                open.machine.received(&bytes);
                if open.machine.is_complete() {
                    self.end_exchange(exchange);
                }
            }
            effects::Http::Abort { exchange } => {
                if let Some(open) = self.exchanges.get_mut(&exchange).filter(|open| !open.ended) {
                    open.machine.aborted();
                    self.end_exchange(exchange);
                }
            }
        }
    }

    fn cancel_read(&mut self, exchange: ExchangeId) {
        let Some(operation) = self.exchanges.get_mut(&exchange).and_then(|open| open.reading.take()) else { return };
        let result = ReadResult::Broken("cancelled".into());
        self.fact(Input::Http(inputs::Http::BodyRead { operation, result }));
    }

    fn end_exchange(&mut self, exchange: ExchangeId) {
        self.cancel_read(exchange);
        if let Some(open) = self.exchanges.get_mut(&exchange) {
            open.ended = true;
            self.fact(Input::Http(inputs::Http::Ended { exchange }));
        }
    }

    fn carry_out_file(&mut self, order: effects::TempFile) {
        let told = match order {
            effects::TempFile::Create { operation, file } => {
                self.files.insert(file, File::default());
                inputs::TempFile::Finished { operation, result: Ok(()) }
            }
            effects::TempFile::Append { operation, file, bytes } => {
                let file = self.files.get_mut(&file).expect("a file is written after it was created");
                file.content.extend_from_slice(&bytes);
                inputs::TempFile::Finished { operation, result: Ok(()) }
            }
            effects::TempFile::Read { operation, file, max_bytes } => {
                let file = self.files.get_mut(&file).expect("a file is read after it was created");
                let end = file.content.len().min(file.read + max_bytes);
                let bytes = Bytes::copy_from_slice(&file.content[file.read..end]);
                file.read = end;
                let result = if bytes.is_empty() { ReadResult::End } else { ReadResult::Chunk(bytes) };
                inputs::TempFile::ChunkRead { operation, result }
            }
            effects::TempFile::Remove { file } => {
                self.files.remove(&file);
                return;
            }
        };
        self.fact(Input::TempFile(told));
    }
}
