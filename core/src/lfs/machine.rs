//! The LFS path of one shard: hands facts to the exchange that they concern.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http::request::Parts;

use crate::cluster::{Answer, Cluster, Question};
use crate::config::LfsConfig;
use crate::context::Context;
use crate::http::answer::ApiAnswer;
use crate::http::error_body::{ApiError, Code};
use crate::http::route::Route;
use crate::http::{auth, content_length, request_id};
use crate::input::{self, BrokerConnectionId, ExchangeId, FileError, ReadResult};
use crate::operation::{OperationId, Outcome};
use crate::s3::{Refusal, Response};
use crate::timers::Timer;

use super::budget::Budget;
use super::call::{Call, Holder, Shared};
use super::checksum::Digests;
use super::cleanup::{CleanupId, Cleanups, Orphan};
use super::download::Download;
use super::idle_links::IdleLinks;
use super::produce::Produce;
use super::produce_request::ProduceRequest;
use super::requester::Requester;
use super::s3_health::S3Health;
use super::stats::LfsStats;
use super::{Decision, Purpose};
use crate::log_text::Printable;

/// The LFS path of one shard.
pub(crate) struct Lfs {
    exchanges: BTreeMap<ExchangeId, Exchange>,
    shared: Shared,
    health: S3Health,
    draining: bool,
}

#[derive(Debug)]
enum Exchange {
    Produce(Box<Produce>),
    Download(Box<Download>),
    /// Answered at once; the answer is leaving.
    Answered(Requester),
}

impl Lfs {
    pub(crate) fn new(config: &LfsConfig) -> Self {
        let shared = Shared {
            // One part must fit, whatever the settings say: else no upload could ever begin.
            memory: Budget::new(config.upload_memory_bytes.max(config.chunk_bytes) as u64),
            disk: Budget::new(config.download_disk_bytes),
            cleanups: Cleanups::new(config.s3_timeouts),
            connections: BTreeMap::new(),
            idle_links: IdleLinks::default(),
            stats: LfsStats::default(),
            turn: 0,
            records: 0,
            config: config.clone(),
        };
        let health = S3Health::new(config.s3_health_interval, config.s3_timeouts);
        let mut lfs = Self { exchanges: BTreeMap::new(), shared, health, draining: false };
        lfs.update_levels();
        lfs
    }

    /// Looks at the bucket for the first time.
    pub(crate) fn start(&mut self, ctx: &mut Context<'_>, out: &mut Vec<Decision>) {
        self.health.start(ctx, self.shared.config.ensure_bucket, out);
    }

    /// A request head came to the API server. The body is read only where it is wanted: refusals cost nothing.
    pub(crate) fn on_request(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        head: Parts,
        peer: SocketAddr,
        out: &mut Vec<Decision>,
    ) {
        let requester = Requester::new(exchange, request_id::of(&head.headers, ctx.random));
        tracing::debug!(
            method = %head.method,
            path = %Printable(head.uri.path()),
            request_id = %Printable(requester.request_id()),
            %peer,
            "LFS request"
        );
        let turned_away = self.turned_away();
        if turned_away.is_some() && !self.draining {
            self.shared.stats.exchange_slots.refusals += 1;
        }
        let healthy = self.health.is_healthy();
        let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
        let open = open_exchange(call, requester, &head, turned_away, healthy);
        self.exchanges.insert(exchange, open);
        self.settle(ctx, cluster, out);
    }

    /// Why no request is taken right now.
    fn turned_away(&self) -> Option<ApiError> {
        if self.draining {
            return Some(ApiError::busy("this proxy is shutting down"));
        }
        if self.exchanges.len() >= self.shared.config.exchanges {
            return Some(ApiError::busy("too many requests at once: try again later"));
        }
        None
    }

    /// A piece of a request's body.
    pub(crate) fn on_body(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        result: ReadResult,
        out: &mut Vec<Decision>,
    ) {
        let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
        match self.exchanges.get_mut(&exchange) {
            Some(Exchange::Produce(produce)) => produce.on_body(call, result),
            Some(Exchange::Download(download)) => download.on_body(call, result),
            Some(Exchange::Answered(_)) | None => {}
        }
        self.settle(ctx, cluster, out);
    }

    /// There is room for the next piece of a streamed answer.
    pub(crate) fn on_chunk_accepted(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        out: &mut Vec<Decision>,
    ) {
        self.with_download(ctx, cluster, exchange, out, Download::on_chunk_accepted);
    }

    /// The client has gone.
    pub(crate) fn on_client_gone(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        out: &mut Vec<Decision>,
    ) {
        let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
        match self.exchanges.get_mut(&exchange) {
            Some(Exchange::Produce(produce)) => produce.on_client_gone(call),
            Some(Exchange::Download(download)) => download.on_client_gone(call),
            Some(Exchange::Answered(requester)) => requester.on_gone(),
            None => {}
        }
        self.settle(ctx, cluster, out);
    }

    /// The exchange is over for the driver.
    pub(crate) fn on_ended(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        out: &mut Vec<Decision>,
    ) {
        let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
        match self.exchanges.get_mut(&exchange) {
            Some(Exchange::Produce(produce)) => {
                produce.on_client_gone(call);
                produce.requester().on_ended(call);
            }
            Some(Exchange::Download(download)) => download.on_ended(call),
            Some(Exchange::Answered(requester)) => requester.on_ended(call),
            None => {}
        }
        self.forget_if_over(exchange);
        self.settle(ctx, cluster, out);
    }

    /// An S3 request has ended.
    pub(crate) fn on_s3(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        operation: OperationId,
        purpose: Purpose,
        outcome: Outcome<Response, Refusal>,
        out: &mut Vec<Decision>,
    ) {
        match purpose {
            Purpose::Health => {
                self.health.on_looked(ctx, outcome, out);
                if self.health.is_healthy() && !self.draining {
                    self.shared.cleanups.try_again(ctx, out);
                }
            }
            Purpose::EnsureBucket => self.health.on_ensured(&outcome, out),
            Purpose::Cleanup(id) => self.on_cleanup_step(ctx, cluster, id, &outcome, out),
            Purpose::Upload { exchange, step } => {
                let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
                if let Some(Exchange::Produce(produce)) = self.exchanges.get_mut(&exchange) {
                    produce.on_upload_step(call, step, outcome);
                }
                self.forget_if_over(exchange);
            }
            Purpose::OpenObject(exchange) => match self.exchanges.get_mut(&exchange) {
                Some(Exchange::Download(download)) => {
                    let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
                    download.on_opened(call, operation, outcome);
                }
                Some(Exchange::Produce(_) | Exchange::Answered(_)) | None => match outcome {
                    Outcome::Applied(_) => out.push(Decision::ReleaseObject { object: operation }),
                    Outcome::NotApplied(_) | Outcome::Unknown(_) => {}
                },
            },
            Purpose::Presign(exchange) => {
                self.with_download(ctx, cluster, exchange, out, |download, call| download.on_presigned(call, outcome));
            }
        }
        self.settle(ctx, cluster, out);
    }

    /// A [`Decision::Hash`] is done. Its exchange may be over: then the digests are of no use any more.
    pub(crate) fn on_hashed(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        digests: Box<Digests>,
        out: &mut Vec<Decision>,
    ) {
        let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
        match self.exchanges.get_mut(&exchange) {
            Some(Exchange::Produce(produce)) => produce.on_hashed(call, digests),
            Some(Exchange::Download(_) | Exchange::Answered(_)) | None => {}
        }
        self.forget_if_over(exchange);
        self.settle(ctx, cluster, out);
    }

    /// A piece of an opened object.
    pub(crate) fn on_object(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        result: ReadResult,
        out: &mut Vec<Decision>,
    ) {
        self.with_download(ctx, cluster, exchange, out, |download, call| download.on_object(call, result));
    }

    /// A temporary file was created or appended to.
    pub(crate) fn on_file(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        result: Result<(), FileError>,
        out: &mut Vec<Decision>,
    ) {
        self.with_download(ctx, cluster, exchange, out, |download, call| download.on_file(call, result));
    }

    /// A piece of a temporary file.
    pub(crate) fn on_file_chunk(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        result: ReadResult,
        out: &mut Vec<Decision>,
    ) {
        self.with_download(ctx, cluster, exchange, out, |download, call| download.on_file_chunk(call, result));
    }

    /// Whether a broker connection is of this path.
    pub(crate) fn owns(&self, connection: BrokerConnectionId) -> bool {
        self.shared.connections.contains_key(&connection)
    }

    /// A fact about a broker connection of this path.
    pub(crate) fn on_broker(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        input: input::Broker,
        out: &mut Vec<Decision>,
    ) {
        let (connection, over) = match &input {
            input::Broker::Connected { connection }
            | input::Broker::Received { connection, .. }
            | input::Broker::Clogged { connection }
            | input::Broker::Drained { connection } => (*connection, false),
            input::Broker::ConnectFailed { connection, .. } | input::Broker::Closed { connection, .. } => {
                (*connection, true)
            }
        };
        if let input::Broker::ConnectFailed { .. } = &input {
            self.shared.stats.failed_dials += 1;
        }
        let holder = if over {
            self.shared.connections.remove(&connection)
        } else {
            self.shared.connections.get(&connection).copied()
        };
        let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
        match holder {
            Some(Holder::Exchange(exchange)) => {
                if let Some(produce) = produce_with_link(&mut self.exchanges, exchange, connection) {
                    produce.on_broker(call, input);
                    self.forget_if_over(exchange);
                }
            }
            Some(Holder::Kept) => IdleLinks::on_broker(call, connection, &input),
            None => {}
        }
        self.settle(ctx, cluster, out);
    }

    /// A question was answered.
    pub(crate) fn on_answer(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        question: Question,
        answer: Answer,
        out: &mut Vec<Decision>,
    ) {
        if let Some(Exchange::Produce(produce)) = self.exchanges.get_mut(&exchange) {
            let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
            produce.on_answer(call, &question, answer);
        }
        self.forget_if_over(exchange);
        self.settle(ctx, cluster, out);
    }

    /// A timer of this path is due.
    pub(crate) fn on_timer(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, timer: Timer, out: &mut Vec<Decision>) {
        match timer {
            Timer::S3Health => self.health.on_timer(out),
            Timer::Cleanup(id) => self.shared.cleanups.on_timer(id, out),
            Timer::BrokerConnection(connection) => {
                let holder = self.shared.connections.get(&connection).copied();
                let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
                match holder {
                    Some(Holder::Exchange(exchange)) => {
                        if let Some(produce) = produce_with_link(&mut self.exchanges, exchange, connection) {
                            produce.on_broker_timer(call);
                            self.forget_if_over(exchange);
                        }
                    }
                    Some(Holder::Kept) => IdleLinks::on_timer(call, connection),
                    None => {}
                }
            }
            Timer::ExchangeRetry(exchange) => {
                let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
                match self.exchanges.get_mut(&exchange) {
                    Some(Exchange::Produce(produce)) => produce.on_retry(call),
                    Some(Exchange::Download(download)) => download.on_retry(call),
                    Some(Exchange::Answered(_)) | None => {}
                }
                self.forget_if_over(exchange);
            }
            Timer::ExchangeProgress(exchange) => {
                let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
                match self.exchanges.get_mut(&exchange) {
                    Some(Exchange::Produce(produce)) => produce.on_no_progress(call),
                    Some(Exchange::Download(download)) => download.on_no_progress(call),
                    Some(Exchange::Answered(requester)) => {
                        requester.abort_answer(call);
                    }
                    None => {}
                }
                self.forget_if_over(exchange);
            }
            Timer::Start
            | Timer::ClusterReload(_)
            | Timer::Operation(_)
            | Timer::ClientIdle(_)
            | Timer::ClientDial(_)
            | Timer::ClientTurn(_)
            | Timer::ClientFrame(_)
            | Timer::ClientBlocked(_)
            | Timer::AnswerRoom
            | Timer::Request(_)
            | Timer::Readiness(_)
            | Timer::Shutdown => {}
        }
        self.settle(ctx, cluster, out);
    }

    /// Takes no more requests; what is in flight goes on to its end, and what is kept for others ends at once.
    pub(crate) fn drain(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, out: &mut Vec<Decision>) {
        self.draining = true;
        IdleLinks::drain(&mut Call { ctx, cluster, shared: &mut self.shared, out });
    }

    /// The time for what is in flight is over: whatever may stay in the bucket is counted now, for nobody will be there to
    /// remove it.
    pub(crate) fn give_up(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, out: &mut Vec<Decision>) {
        let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
        for exchange in self.exchanges.values_mut() {
            match exchange {
                Exchange::Produce(produce) => produce.give_up(call),
                Exchange::Download(_) | Exchange::Answered(_) => {}
            }
        }
        for (topic, key) in call.shared.cleanups.give_up() {
            call.orphan(&topic, &key, "delete_failed");
        }
    }

    /// Whether nothing is in flight: no exchange, no removal, no connection.
    pub(crate) fn is_idle(&self) -> bool {
        self.exchanges.is_empty() && self.shared.cleanups.is_idle() && self.shared.connections.is_empty()
    }

    /// Counters and levels.
    pub(crate) fn stats(&self) -> &LfsStats {
        &self.shared.stats
    }

    fn with_download(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        exchange: ExchangeId,
        out: &mut Vec<Decision>,
        tell: impl FnOnce(&mut Download, &mut Call<'_, '_>),
    ) {
        if let Some(Exchange::Download(download)) = self.exchanges.get_mut(&exchange) {
            tell(download, &mut Call { ctx, cluster, shared: &mut self.shared, out });
        }
        self.settle(ctx, cluster, out);
    }

    fn on_cleanup_step(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        id: CleanupId,
        outcome: &Outcome<Response, Refusal>,
        out: &mut Vec<Decision>,
    ) {
        let progress = self.shared.cleanups.on_outcome(ctx, id, outcome, out);
        let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
        match progress.orphan {
            Some((Orphan::Left, topic, key)) => {
                call.shared.stats.s3_errors += 1;
                call.orphan(&topic, &key, "delete_failed");
            }
            Some((Orphan::Removed, topic, key)) => call.orphan_removed(&topic, &key),
            None => {}
        }
        if let Some(exchange) = progress.told {
            if let Some(Exchange::Produce(produce)) = self.exchanges.get_mut(&exchange) {
                produce.on_removed(call);
            }
            self.forget_if_over(exchange);
        }
    }

    fn forget_if_over(&mut self, exchange: ExchangeId) {
        let over = match self.exchanges.get_mut(&exchange) {
            Some(Exchange::Produce(produce)) => produce.is_over() && produce.requester().is_ended(),
            Some(Exchange::Download(download)) => download.is_over() && download.requester().is_ended(),
            Some(Exchange::Answered(requester)) => requester.is_ended(),
            None => false,
        };
        if over {
            self.exchanges.remove(&exchange);
        }
    }

    /// Hands freed bytes to those that wait for them, and brings the levels up to date.
    fn settle(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, out: &mut Vec<Decision>) {
        while let Some(exchange) = self.shared.memory.next_granted().or_else(|| self.shared.disk.next_granted()) {
            let call = &mut Call { ctx, cluster, shared: &mut self.shared, out };
            match self.exchanges.get_mut(&exchange) {
                Some(Exchange::Produce(produce)) => produce.on_memory(call),
                Some(Exchange::Download(download)) => download.on_budget(call),
                Some(Exchange::Answered(_)) | None => {}
            }
        }
        self.update_levels();
    }

    fn update_levels(&mut self) {
        let Shared { stats, memory, disk, connections, config, .. } = &mut self.shared;
        stats.exchanges = self.exchanges.len();
        stats.exchange_slots.limit = config.exchanges as u64;
        stats.memory_taken_bytes = memory.taken();
        stats.memory = memory.stats();
        stats.disk_taken_bytes = disk.taken();
        stats.disk = disk.stats();
        stats.broker_connections = connections.len();
    }
}

/// The checks that every request goes through, in their order: method, API key, health of S3, then its own.
fn open_exchange(
    call: &mut Call<'_, '_>,
    mut requester: Requester,
    head: &Parts,
    turned_away: Option<ApiError>,
    healthy: bool,
) -> Exchange {
    let route = Route::of(&head.method, head.uri.path());
    let answer = match route {
        Route::Preflight => Some(ApiAnswer::preflight()),
        Route::NotFound => Some(ApiAnswer::unknown_path(requester.request_id())),
        Route::Produce | Route::Download | Route::MethodNotAllowed | Route::NoUploads => None,
    };
    if let Some(answer) = answer {
        requester.answer(call, answer);
        return Exchange::Answered(requester);
    }
    let refusal = match route {
        Route::MethodNotAllowed => Some(ApiError::new(Code::MethodNotAllowed, "this endpoint takes POST")),
        _ if !auth::is_authorized(&head.headers, call.shared.config.api_key.as_deref()) => {
            Some(ApiError::new(Code::Unauthorized, "the API key is missing or wrong"))
        }
        Route::NoUploads => Some(ApiError::new(Code::NotFound, "multipart sessions are not served here")),
        Route::Produce | Route::Download | Route::Preflight | Route::NotFound if !healthy => {
            Some(ApiError::new(Code::ProxyNotReady, "the S3 bucket cannot be used right now"))
        }
        Route::Produce | Route::Download | Route::Preflight | Route::NotFound => turned_away,
    };
    if let Some(error) = refusal {
        if route == Route::Produce {
            call.shared.stats.unknown_topics.errors += 1;
        }
        requester.refuse(call, &error, "");
        return Exchange::Answered(requester);
    }
    if route == Route::Download {
        let length = content_length(&head.headers);
        return Exchange::Download(Box::new(Download::start(call, requester, length)));
    }
    let request = match ProduceRequest::parse(&head.headers, &call.shared.config) {
        Ok(request) => request,
        Err(error) => {
            call.shared.stats.unknown_topics.errors += 1;
            requester.refuse(call, &error, "");
            return Exchange::Answered(requester);
        }
    };
    if let Err(error) = request.check_size(call.shared.config.max_blob_bytes) {
        call.topic_stats(&request.topic).errors += 1;
        requester.refuse(call, &error, &request.topic);
        return Exchange::Answered(requester);
    }
    Exchange::Produce(Box::new(Produce::start(call, requester, request)))
}

/// The exchange that holds this connection, unless it has let it go already.
fn produce_with_link(
    exchanges: &mut BTreeMap<ExchangeId, Exchange>,
    exchange: ExchangeId,
    connection: BrokerConnectionId,
) -> Option<&mut Produce> {
    match exchanges.get_mut(&exchange) {
        Some(Exchange::Produce(produce)) if produce.link().is_some_and(|link| link.id() == connection) => Some(produce),
        Some(Exchange::Produce(_) | Exchange::Download(_) | Exchange::Answered(_)) | None => None,
    }
}
