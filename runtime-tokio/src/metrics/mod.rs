//! `GET /metrics`: what the shards have counted, as Prometheus text.
//!
//! A shard shares nothing, so it is asked: a question goes into its inbox, and it answers with a copy of its counters
//! between two other things that it does. Nothing is locked, and nothing is kept up to date that nobody reads.

mod page;
mod process_stats;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use kafscale_proxy_core::{KnowledgeStats, LfsStats, ListenerStats, Monotonic, Proxy, SoftwareStats};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::accept;
use crate::door::Place;
use crate::http_connection::{self, ConnectionState};
use crate::process::ShardHandle;
use crate::settings::HttpServerSettings;
use crate::tasks::{self, spawn_local};
use page::{Facts, Shard};
use process_stats::ProcessStats;

/// How long a shard has for its answer. One that is at work for longer is shown as it was, with the age of that.
const ANSWER: Duration = Duration::from_secs(1);

/// What a shard has counted until now.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardStats {
    /// Operations that are not completed.
    pub(crate) operations: usize,
    pub(crate) listener: ListenerStats,
    /// Client libraries that are connected.
    pub(crate) software: Vec<SoftwareStats>,
    /// `None` while LFS is off.
    pub(crate) lfs: Option<LfsStats>,
    pub(crate) knowledge: KnowledgeStats,
    /// Connections of the HTTP API.
    pub(crate) http_connections: usize,
    /// Temporary files.
    pub(crate) temp_files: usize,
    /// Tasks of the shard's thread.
    pub(crate) tasks: usize,
    /// Time at work.
    pub(crate) busy: Duration,
    /// Longest call of the last one or two minutes.
    pub(crate) longest_call: Duration,
}

impl ShardStats {
    /// What the machine has counted; the rest is the adapters'.
    pub(crate) fn of(machine: &Proxy, now: Monotonic) -> Self {
        let stats = machine.stats();
        Self {
            operations: stats.operations,
            listener: stats.listener,
            software: stats.software.to_vec(),
            lfs: stats.lfs.cloned(),
            knowledge: machine.knowledge(now),
            ..Self::default()
        }
    }
}

/// Asks the shards and remembers what they last said. Lives on the main thread.
pub(crate) struct Metrics {
    shards: Rc<Vec<ShardHandle>>,
    latest: RefCell<Vec<Option<(Instant, ShardStats)>>>,
    started: SystemTime,
    ttl: Option<Duration>,
}

impl Metrics {
    /// `ttl` is how long knowledge of the cluster may be used; `None` is without limit.
    pub(crate) fn new(shards: Rc<Vec<ShardHandle>>, ttl: Option<Duration>) -> Self {
        let latest = RefCell::new(shards.iter().map(|_| None).collect());
        Self { shards, latest, started: SystemTime::now(), ttl }
    }

    /// Serves one connection on a task of its own.
    pub(crate) fn serve(
        self: &Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        limits: HttpServerSettings,
        place: Place,
    ) {
        let this = Rc::clone(self);
        spawn_local(async move {
            let state = Rc::new(ConnectionState::new(limits));
            let service = service_fn(|request: Request<Incoming>| {
                let (this, state) = (Rc::clone(&this), Rc::clone(&state));
                state.serving();
                async move {
                    let answer = this.answer(&request).await;
                    state.served();
                    Ok::<_, Infallible>(answer)
                }
            });
            http_connection::serve(stream, peer, &state, service).await;
            drop(place);
        });
    }

    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let (status, content_type, body) = match (request.uri().path(), request.method()) {
            ("/metrics", &Method::GET | &Method::HEAD) => {
                (StatusCode::OK, prometheus::TEXT_FORMAT, self.page().await.into())
            }
            ("/metrics", _) => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "metrics are read with GET\n".into()),
            _ => (StatusCode::NOT_FOUND, "text/plain", "metrics are at /metrics\n".into()),
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }

    async fn page(&self) -> String {
        let until = Instant::now() + ANSWER;
        let answers: Vec<_> = self.shards.iter().map(ShardHandle::stats).collect();
        for (index, answer) in answers.into_iter().enumerate() {
            if let Ok(Some(stats)) = tokio::time::timeout_at(until, answer).await {
                self.latest.borrow_mut()[index] = Some((Instant::now(), stats));
            }
        }
        let latest = self.latest.borrow();
        let shards = latest.iter().enumerate().filter_map(|(index, known)| {
            let (at, stats) = known.as_ref()?;
            Some(Shard { index, age: at.elapsed(), stats })
        });
        page::render(&Facts {
            shards: shards.collect(),
            shard_count: self.shards.len(),
            ttl: self.ttl,
            main_tasks: tasks::alive(),
            accept_failures: accept::failures(),
            process: ProcessStats::read(),
            started: self.started,
        })
    }
}
