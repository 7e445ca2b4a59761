//! The machine: the only place where facts meet state and decisions become effects.
//!
//! Facts are handed to the part that they concern ([`Cluster`], [`Listener`], [`Lfs`]); parts push decisions, never
//! effects, and know nothing of each other. [`Proxy`] draws operation ids, remembers what each open operation is for,
//! holds its deadline, and passes answers of the cluster on to whoever waits for them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http::request::Parts;

use crate::cluster::{self, Cluster, Question, Source, Waiter};
use crate::compute::{Computed, Done, Job, Work};
use crate::config::Config;
use crate::context::{Context, Ids};
use crate::effect::{self, Effect, Effects};
use crate::error::DriverMisuse;
use crate::health::Probes;
use crate::input::{self, ExchangeId, HttpServer, Input};
use crate::lfs::{self, Lfs};
use crate::listener::{self, Listener};
use crate::operation::{OperationId, Operations};
use crate::random::Random;
use crate::shutdown::Shutdown;
use crate::stats::{KnowledgeStats, Stats};
use crate::time::{Monotonic, Now};
use crate::timers::{Timeout, Timer, Timers};

/// One shard of kafscale-proxy. It owns all its state and shares none.
///
/// ```text
/// let mut proxy = Proxy::new(config, seed, now);
/// loop {
///     // sleep until poll_timeout(), or until a partner has something to tell
///     proxy.handle_input(now, input, &mut effects)?;   // or handle_timeout(now, &mut effects)
///     for effect in effects.drain(..) { /* start it; what becomes of it is a later input */ }
/// }
/// ```
pub struct Proxy {
    config: Config,
    latest: Monotonic,
    timers: Timers,
    random: Random,
    ids: Ids,
    operations: Operations<Purpose>,
    exchanges: BTreeMap<ExchangeId, HttpServer>,
    cluster: Cluster,
    listener: Listener,
    lfs: Option<Lfs>,
    probes: Probes,
    shutdown: Shutdown,
    decisions: Decisions,
}

/// What an open operation is for.
enum Purpose {
    Cluster(cluster::Read),
    Watch(Source),
    ParseSnapshot,
    Hash(ExchangeId),
    Body(ExchangeId),
    Chunk(ExchangeId),
    S3(lfs::Purpose),
    Object(ExchangeId),
    File(ExchangeId),
    FileChunk(ExchangeId),
}

/// What the parts have decided and nobody has carried out yet; empty between calls.
#[derive(Default)]
struct Decisions {
    cluster: Vec<cluster::Decision>,
    listener: Vec<listener::Decision>,
    lfs: Vec<lfs::Decision>,
}

/// The context of a call, borrowed beside the parts.
macro_rules! context {
    ($proxy:ident, $now:ident) => {
        &mut Context {
            now: $now,
            config: &$proxy.config,
            timers: &mut $proxy.timers,
            random: &mut $proxy.random,
            ids: &mut $proxy.ids,
        }
    };
}

/// Ends an operation whose purpose matches, and gives what the pattern binds.
macro_rules! close {
    ($proxy:ident, $operation:ident, $pattern:pat => $value:expr) => {
        $proxy.close($operation, |purpose| if let $pattern = purpose { Ok($value) } else { Err(purpose) })?
    };
}

impl Proxy {
    /// A machine that has not done anything yet; its first timeout is due at once.
    ///
    /// `seed` is the only source of randomness. In production it is 32 bytes from the operating system: a
    /// repeated seed would repeat object keys and overwrite blobs.
    pub fn new(config: Config, seed: [u8; 32], now: Now) -> Self {
        let mut timers = Timers::default();
        timers.set(Timer::Start, now.monotonic);
        Self {
            latest: now.monotonic,
            timers,
            random: Random::new(seed),
            ids: Ids::default(),
            operations: Operations::new(),
            exchanges: BTreeMap::new(),
            cluster: Cluster::new(&config.cluster),
            listener: Listener::new(&config.listener),
            lfs: config.lfs.as_ref().map(Lfs::new),
            probes: Probes::default(),
            shutdown: Shutdown::Running,
            decisions: Decisions::default(),
            config,
        }
    }

    /// Tells the machine a fact; what it orders is appended to `effects`.
    ///
    /// # Errors
    ///
    /// [`DriverMisuse`] when the driver broke its contract; nothing has changed then. What peers do is never an error.
    pub fn handle_input(&mut self, now: Now, input: Input, effects: &mut Effects) -> Result<(), DriverMisuse> {
        self.advance(now)?;
        match input {
            Input::Client(input) => {
                self.listener.on_client(context!(self, now), &self.cluster, input, &mut self.decisions.listener)?;
            }
            Input::Broker(input) => self.on_broker(now, input),
            Input::Http(input) => self.on_http(now, input, effects)?,
            Input::Etcd(input) => self.on_etcd(now, input)?,
            Input::S3(input) => self.on_s3(now, input)?,
            Input::TempFile(input) => self.on_temp_file(now, input)?,
            Input::Computed(computed) => self.on_computed(now, computed)?,
            Input::ShutdownRequested => self.shutdown.request(&mut self.timers, now.monotonic, &self.config.shutdown),
        }
        self.settle(now, effects);
        Ok(())
    }

    /// Does what is due. Calling it early is harmless; afterwards the next timeout is later than `now`.
    pub fn handle_timeout(&mut self, now: Now, effects: &mut Effects) {
        // A clock that stands still or steps back makes nothing due that was not due before.
        self.latest = self.latest.max(now.monotonic);
        while let Some(timer) = self.timers.pop_due(now.monotonic) {
            self.on_timer(now, timer, effects);
            self.settle(now, effects);
        }
    }

    /// When the machine wants to be called, and why. It changes with every call of the two `handle` methods.
    pub fn poll_timeout(&self) -> Option<Timeout> {
        self.timers.next()
    }

    /// Whether the shutdown is over: all is answered, or its deadline has passed.
    pub fn is_idle(&self) -> bool {
        match self.shutdown {
            Shutdown::Running | Shutdown::Grace => false,
            Shutdown::Draining => self.listener.is_idle() && self.lfs.as_ref().is_none_or(Lfs::is_idle),
            Shutdown::Over => true,
        }
    }

    /// Counters and levels, for metrics and tests; nothing is decided by them.
    pub fn stats(&self) -> Stats<'_> {
        Stats {
            operations: self.operations.len(),
            exchanges: self.exchanges.len(),
            listener: self.listener.stats(),
            software: self.listener.software(),
            lfs: self.lfs.as_ref().map(Lfs::stats),
        }
    }

    /// How old the knowledge of the cluster is at `now`; a machine that has nothing to do does not look at the clock.
    pub fn knowledge(&self, now: Monotonic) -> KnowledgeStats {
        self.cluster.stats(now)
    }

    fn advance(&mut self, now: Now) -> Result<(), DriverMisuse> {
        if now.monotonic < self.latest {
            return Err(DriverMisuse::TimeWentBackwards);
        }
        self.latest = now.monotonic;
        Ok(())
    }

    // --- facts ---

    fn on_broker(&mut self, now: Now, input: input::Broker) {
        let connection = match &input {
            input::Broker::Connected { connection }
            | input::Broker::ConnectFailed { connection, .. }
            | input::Broker::Received { connection, .. }
            | input::Broker::Clogged { connection }
            | input::Broker::Drained { connection }
            | input::Broker::Closed { connection, .. } => *connection,
        };
        if self.listener.owns(connection) {
            self.listener.on_broker(context!(self, now), &self.cluster, input, &mut self.decisions.listener);
        } else if let Some(lfs) = self.lfs.as_mut().filter(|lfs| lfs.owns(connection)) {
            lfs.on_broker(context!(self, now), &self.cluster, input, &mut self.decisions.lfs);
        }
    }

    fn on_http(&mut self, now: Now, input: input::Http, effects: &mut Effects) -> Result<(), DriverMisuse> {
        match input {
            input::Http::Requested { exchange, server, head, peer } => {
                if self.exchanges.contains_key(&exchange) {
                    return Err(DriverMisuse::ExchangeExists(exchange));
                }
                self.exchanges.insert(exchange, server);
                self.on_request(now, exchange, server, *head, peer, effects);
            }
            input::Http::BodyRead { operation, result } => {
                let exchange = close!(self, operation, Purpose::Body(exchange) => exchange);
                self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_body(ctx, cluster, exchange, result, out));
            }
            input::Http::ChunkAccepted { operation } => {
                let exchange = close!(self, operation, Purpose::Chunk(exchange) => exchange);
                self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_chunk_accepted(ctx, cluster, exchange, out));
            }
            input::Http::ClientGone { exchange } => match self.exchanges.get(&exchange) {
                Some(HttpServer::Api) => {
                    self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_client_gone(ctx, cluster, exchange, out));
                }
                Some(HttpServer::Health) => self.forget_probe(exchange),
                None => {}
            },
            input::Http::Ended { exchange } => match self.exchanges.remove(&exchange) {
                Some(HttpServer::Api) => {
                    self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_ended(ctx, cluster, exchange, out));
                }
                Some(HttpServer::Health) => self.forget_probe(exchange),
                None => {}
            },
        }
        Ok(())
    }

    fn on_request(
        &mut self,
        now: Now,
        exchange: ExchangeId,
        server: HttpServer,
        head: Parts,
        peer: SocketAddr,
        effects: &mut Effects,
    ) {
        match server {
            HttpServer::Health => {
                let service = self.cluster.service(now.monotonic);
                let answer = self.probes.on_request(exchange, &head, &self.shutdown, service);
                self.answer_probe(now, exchange, answer, effects);
            }
            HttpServer::Api => {
                self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_request(ctx, cluster, exchange, head, peer, out));
            }
        }
    }

    fn on_etcd(&mut self, now: Now, input: input::Etcd) -> Result<(), DriverMisuse> {
        match input {
            input::Etcd::Finished { operation, outcome } => {
                let read = close!(self, operation, Purpose::Cluster(read) => read);
                self.cluster.on_finished(context!(self, now), read, outcome, &mut self.decisions.cluster);
            }
            input::Etcd::WatchCreated { operation, revision } => {
                let source = self.watched(operation)?;
                self.cluster.on_watch_created(context!(self, now), source, revision, &mut self.decisions.cluster);
            }
            input::Etcd::WatchEvents { operation, revision, events } => {
                let source = self.watched(operation)?;
                self.cluster.on_watch_events(
                    context!(self, now),
                    source,
                    revision,
                    &events,
                    &mut self.decisions.cluster,
                );
            }
            input::Etcd::WatchEnded { operation, end } => {
                let source = close!(self, operation, Purpose::Watch(source) => source);
                self.cluster.on_watch_ended(context!(self, now), source, end, &mut self.decisions.cluster);
            }
        }
        Ok(())
    }

    fn on_s3(&mut self, now: Now, input: input::S3) -> Result<(), DriverMisuse> {
        match input {
            input::S3::Finished { operation, outcome } => {
                let purpose = close!(self, operation, Purpose::S3(purpose) => purpose);
                self.with_lfs(now, |lfs, ctx, cluster, out| {
                    lfs.on_s3(ctx, cluster, operation, purpose, outcome, out);
                });
            }
            input::S3::ObjectRead { operation, result } => {
                let exchange = close!(self, operation, Purpose::Object(exchange) => exchange);
                self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_object(ctx, cluster, exchange, result, out));
            }
        }
        Ok(())
    }

    fn on_temp_file(&mut self, now: Now, input: input::TempFile) -> Result<(), DriverMisuse> {
        match input {
            input::TempFile::Finished { operation, result } => {
                let exchange = close!(self, operation, Purpose::File(exchange) => exchange);
                self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_file(ctx, cluster, exchange, result, out));
            }
            input::TempFile::ChunkRead { operation, result } => {
                let exchange = close!(self, operation, Purpose::FileChunk(exchange) => exchange);
                self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_file_chunk(ctx, cluster, exchange, result, out));
            }
        }
        Ok(())
    }

    fn on_computed(&mut self, now: Now, Computed { operation, done }: Computed) -> Result<(), DriverMisuse> {
        match done {
            Done::Snapshot(parsed) => {
                close!(self, operation, Purpose::ParseSnapshot => ());
                self.cluster.on_parsed_elsewhere(context!(self, now), *parsed, &mut self.decisions.cluster);
            }
            Done::Hashed(digests) => {
                let exchange = close!(self, operation, Purpose::Hash(exchange) => exchange);
                self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_hashed(ctx, cluster, exchange, digests, out));
            }
        }
        Ok(())
    }

    fn on_timer(&mut self, now: Now, timer: Timer, effects: &mut Effects) {
        match timer {
            Timer::Start => self.start(now),
            Timer::ClusterReload(source) => {
                self.cluster.on_timer(context!(self, now), source, &mut self.decisions.cluster);
            }
            Timer::Operation(operation) => self.give_up(operation, effects),
            Timer::BrokerConnection(connection) if self.listener.owns(connection) => {
                self.listener.on_timer(context!(self, now), &self.cluster, timer, &mut self.decisions.listener);
            }
            Timer::ClientIdle(_)
            | Timer::ClientDial(_)
            | Timer::ClientTurn(_)
            | Timer::ClientFrame(_)
            | Timer::ClientBlocked(_)
            | Timer::AnswerRoom
            | Timer::Request(_) => {
                self.listener.on_timer(context!(self, now), &self.cluster, timer, &mut self.decisions.listener);
            }
            Timer::BrokerConnection(_)
            | Timer::ExchangeRetry(_)
            | Timer::ExchangeProgress(_)
            | Timer::Cleanup(_)
            | Timer::S3Health => {
                self.with_lfs(now, |lfs, ctx, cluster, out| lfs.on_timer(ctx, cluster, timer, out));
            }
            Timer::Readiness(exchange) => {
                self.cluster.forget_waiter(Waiter::Health(exchange));
                let answer = self.probes.on_timeout(exchange, &self.shutdown);
                self.answer_probe(now, exchange, answer, effects);
            }
            Timer::Shutdown => {
                self.shutdown.advance(&mut self.timers, now.monotonic, &self.config.shutdown);
                match self.shutdown {
                    Shutdown::Draining => self.drain(now),
                    Shutdown::Over => self.with_lfs(now, |lfs, ctx, cluster, out| lfs.give_up(ctx, cluster, out)),
                    Shutdown::Running | Shutdown::Grace => {}
                }
            }
        }
    }

    fn start(&mut self, now: Now) {
        self.cluster.start(context!(self, now), &mut self.decisions.cluster);
        if let Some(lfs) = &mut self.lfs {
            lfs.start(context!(self, now), &mut self.decisions.lfs);
        }
    }

    fn drain(&mut self, now: Now) {
        self.listener.drain(context!(self, now), &self.cluster, &mut self.decisions.listener);
        if let Some(lfs) = &mut self.lfs {
            lfs.drain(context!(self, now), &self.cluster, &mut self.decisions.lfs);
        }
    }

    /// The deadline of an operation is over: ask for its end. Its one completion still comes.
    fn give_up(&mut self, operation: OperationId, effects: &mut Effects) {
        match self.operations.get(operation) {
            Ok(Purpose::Cluster(_)) => effects.push(Effect::Etcd(effect::Etcd::Cancel { operation })),
            Ok(Purpose::S3(_)) => effects.push(Effect::S3(effect::S3::Cancel { operation })),
            Ok(
                Purpose::Watch(_)
                | Purpose::ParseSnapshot
                | Purpose::Hash(_)
                | Purpose::Body(_)
                | Purpose::Chunk(_)
                | Purpose::Object(_)
                | Purpose::File(_)
                | Purpose::FileChunk(_),
            )
            | Err(_) => {}
        }
    }

    // --- decisions ---

    /// Turns decisions into effects until nobody has anything left to decide.
    fn settle(&mut self, now: Now, effects: &mut Effects) {
        loop {
            let mut progress = false;
            let mut decisions = std::mem::take(&mut self.decisions.listener);
            for decision in decisions.drain(..) {
                progress = true;
                self.carry_out_listener(now, decision, effects);
            }
            keep_buffer(&mut self.decisions.listener, decisions);
            let mut decisions = std::mem::take(&mut self.decisions.lfs);
            for decision in decisions.drain(..) {
                progress = true;
                self.carry_out_lfs(now, decision, effects);
            }
            keep_buffer(&mut self.decisions.lfs, decisions);
            let mut decisions = std::mem::take(&mut self.decisions.cluster);
            for decision in decisions.drain(..) {
                progress = true;
                self.carry_out_cluster(now, decision, effects);
            }
            keep_buffer(&mut self.decisions.cluster, decisions);
            if !progress {
                return;
            }
        }
    }

    fn carry_out_cluster(&mut self, now: Now, decision: cluster::Decision, effects: &mut Effects) {
        match decision {
            cluster::Decision::Request { read, request, deadline } => {
                let operation = self.operations.open(Purpose::Cluster(read));
                self.timers.set(Timer::Operation(operation), now.monotonic + deadline);
                effects.push(Effect::Etcd(effect::Etcd::Request { operation, request }));
            }
            cluster::Decision::Watch { source, request } => {
                let operation = self.operations.open(Purpose::Watch(source));
                effects.push(Effect::Etcd(effect::Etcd::Watch { operation, request }));
            }
            cluster::Decision::CancelWatch { source } => {
                let watches = self.operations.iter().filter_map(|(operation, purpose)| match purpose {
                    Purpose::Watch(watched) if *watched == source => Some(operation),
                    Purpose::Watch(_)
                    | Purpose::Cluster(_)
                    | Purpose::ParseSnapshot
                    | Purpose::Hash(_)
                    | Purpose::Body(_)
                    | Purpose::Chunk(_)
                    | Purpose::S3(_)
                    | Purpose::Object(_)
                    | Purpose::File(_)
                    | Purpose::FileChunk(_) => None,
                });
                effects.extend(watches.map(|operation| Effect::Etcd(effect::Etcd::Cancel { operation })));
            }
            cluster::Decision::ParseSnapshot(value) => {
                let operation = self.operations.open(Purpose::ParseSnapshot);
                effects.push(Effect::Compute(Job::new(operation, Work::ParseSnapshot(value))));
            }
            cluster::Decision::Answered { waiter, question, answer } => match waiter {
                Waiter::Request(request) => self.listener.on_answer(
                    context!(self, now),
                    &self.cluster,
                    request,
                    &question,
                    &answer,
                    &mut self.decisions.listener,
                ),
                Waiter::Exchange(exchange) => self.with_lfs(now, |lfs, ctx, cluster, out| {
                    lfs.on_answer(ctx, cluster, exchange, question, answer, out);
                }),
                Waiter::Health(exchange) => {
                    let service = self.cluster.service_after_read(now.monotonic);
                    let answer = self.probes.on_answer(exchange, &self.shutdown, service);
                    self.answer_probe(now, exchange, answer, effects);
                }
            },
        }
    }

    fn carry_out_listener(&mut self, now: Now, decision: listener::Decision, effects: &mut Effects) {
        use listener::Decision;
        match decision {
            Decision::Write { client, bytes } => effects.push(Effect::Client(effect::Client::Write { client, bytes })),
            Decision::Pause { client } => effects.push(Effect::Client(effect::Client::Pause { client })),
            Decision::Resume { client } => effects.push(Effect::Client(effect::Client::Resume { client })),
            Decision::Close { client } => effects.push(Effect::Client(effect::Client::Close { client })),
            Decision::StopAccepting => effects.push(Effect::Client(effect::Client::StopAccepting)),
            Decision::Connect { connection, address } => effects
                .push(Effect::Broker(effect::Broker::Connect { connection, address: address.as_str().to_owned() })),
            Decision::WriteBroker { connection, bytes } => {
                effects.push(Effect::Broker(effect::Broker::Write { connection, bytes }));
            }
            Decision::PauseBroker { connection } => {
                effects.push(Effect::Broker(effect::Broker::Pause { connection }));
            }
            Decision::ResumeBroker { connection } => {
                effects.push(Effect::Broker(effect::Broker::Resume { connection }));
            }
            Decision::CloseBroker { connection } => {
                effects.push(Effect::Broker(effect::Broker::Close { connection }));
            }
            Decision::Ask { question, request } => self.ask(now, question, Waiter::Request(request)),
            Decision::ForgetWaiter { request } => self.cluster.forget_waiter(Waiter::Request(request)),
            Decision::ForgetPartitionOwner { topic, partition, by } => {
                self.cluster.forget_partition_owner(&topic, partition, &by);
            }
            Decision::ForgetCoordinator { group, by } => self.cluster.forget_coordinator(&group, &by),
        }
    }

    fn carry_out_lfs(&mut self, now: Now, decision: lfs::Decision, effects: &mut Effects) {
        use lfs::Decision;
        match decision {
            Decision::ReadBody { exchange, max_bytes } => {
                let operation = self.operations.open(Purpose::Body(exchange));
                effects.push(Effect::Http(effect::Http::ReadBody { operation, exchange, max_bytes }));
            }
            Decision::CancelRead { exchange } => effects.push(Effect::Http(effect::Http::CancelRead { exchange })),
            Decision::Respond { exchange, head, body } => {
                effects.push(Effect::Http(effect::Http::Respond { exchange, head, body }));
            }
            Decision::SendChunk { exchange, bytes } => {
                let operation = self.operations.open(Purpose::Chunk(exchange));
                effects.push(Effect::Http(effect::Http::SendChunk { operation, exchange, bytes }));
            }
            Decision::Abort { exchange } => effects.push(Effect::Http(effect::Http::Abort { exchange })),
            Decision::S3 { purpose, request, deadline } => {
                let operation = self.operations.open(Purpose::S3(purpose));
                self.timers.set(Timer::Operation(operation), now.monotonic + deadline);
                effects.push(Effect::S3(effect::S3::Request { operation, request }));
            }
            Decision::Hash { exchange, digests, pieces } => {
                let operation = self.operations.open(Purpose::Hash(exchange));
                effects.push(Effect::Compute(Job::new(operation, Work::Hash { digests, pieces })));
            }
            Decision::ReadObject { exchange, object, max_bytes } => {
                let operation = self.operations.open(Purpose::Object(exchange));
                effects.push(Effect::S3(effect::S3::ReadObject { operation, object, max_bytes }));
            }
            Decision::ReleaseObject { object } => effects.push(Effect::S3(effect::S3::ReleaseObject { object })),
            Decision::CreateFile { exchange, file } => {
                let operation = self.operations.open(Purpose::File(exchange));
                effects.push(Effect::TempFile(effect::TempFile::Create { operation, file }));
            }
            Decision::AppendFile { exchange, file, bytes } => {
                let operation = self.operations.open(Purpose::File(exchange));
                effects.push(Effect::TempFile(effect::TempFile::Append { operation, file, bytes }));
            }
            Decision::ReadFile { exchange, file, max_bytes } => {
                let operation = self.operations.open(Purpose::FileChunk(exchange));
                effects.push(Effect::TempFile(effect::TempFile::Read { operation, file, max_bytes }));
            }
            Decision::RemoveFile { file } => effects.push(Effect::TempFile(effect::TempFile::Remove { file })),
            Decision::Connect { connection, address } => effects
                .push(Effect::Broker(effect::Broker::Connect { connection, address: address.as_str().to_owned() })),
            Decision::WriteBroker { connection, bytes } => {
                effects.push(Effect::Broker(effect::Broker::Write { connection, bytes }));
            }
            Decision::CloseBroker { connection } => {
                effects.push(Effect::Broker(effect::Broker::Close { connection }));
            }
            Decision::Ask { question, exchange } => self.ask(now, question, Waiter::Exchange(exchange)),
            Decision::ForgetWaiter { exchange } => self.cluster.forget_waiter(Waiter::Exchange(exchange)),
            Decision::ForgetPartitionOwner { topic, partition, by } => {
                self.cluster.forget_partition_owner(&topic, partition, &by);
            }
        }
    }

    // --- small steps ---

    fn ask(&mut self, now: Now, question: Question, waiter: Waiter) {
        self.cluster.ask(context!(self, now), question, waiter, &mut self.decisions.cluster);
    }

    fn answer_probe(&mut self, now: Now, exchange: ExchangeId, answer: crate::health::Answer, effects: &mut Effects) {
        match answer {
            crate::health::Answer::Respond(head, body) => {
                self.timers.clear(Timer::Readiness(exchange));
                effects.push(Effect::Http(effect::Http::Respond { exchange, head, body }));
            }
            crate::health::Answer::AfterRead => {
                self.timers.set(Timer::Readiness(exchange), now.monotonic + crate::health::READINESS_READ);
                self.ask(now, Question::Freshness, Waiter::Health(exchange));
            }
            crate::health::Answer::Nothing => {}
        }
    }

    fn forget_probe(&mut self, exchange: ExchangeId) {
        self.probes.forget(exchange);
        self.timers.clear(Timer::Readiness(exchange));
        self.cluster.forget_waiter(Waiter::Health(exchange));
    }

    fn with_lfs(&mut self, now: Now, tell: impl FnOnce(&mut Lfs, &mut Context<'_>, &Cluster, &mut Vec<lfs::Decision>)) {
        if let Some(lfs) = &mut self.lfs {
            tell(lfs, context!(self, now), &self.cluster, &mut self.decisions.lfs);
        }
    }

    fn close<T>(
        &mut self,
        operation: OperationId,
        expected: impl FnOnce(Purpose) -> Result<T, Purpose>,
    ) -> Result<T, DriverMisuse> {
        let value = self.operations.close(operation, expected)?;
        self.timers.clear(Timer::Operation(operation));
        Ok(value)
    }

    fn watched(&self, operation: OperationId) -> Result<Source, DriverMisuse> {
        match self.operations.get(operation)? {
            Purpose::Watch(source) => Ok(*source),
            Purpose::Cluster(_)
            | Purpose::ParseSnapshot
            | Purpose::Hash(_)
            | Purpose::Body(_)
            | Purpose::Chunk(_)
            | Purpose::S3(_)
            | Purpose::Object(_)
            | Purpose::File(_)
            | Purpose::FileChunk(_) => Err(DriverMisuse::WrongCompletion(operation)),
        }
    }
}

/// Puts an emptied list back in its place when nothing new came meanwhile, so that it is not allocated anew.
fn keep_buffer<T>(place: &mut Vec<T>, emptied: Vec<T>) {
    if place.is_empty() {
        *place = emptied;
    }
}
