//! The process: listening sockets on the main thread, one thread per shard, and the orderly end of all.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use kafscale_proxy_core::{Config, Proxy};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::LocalSet;

use crate::compute::{self, Workers};
use crate::descriptors::{self, Descriptors};
use crate::door::{Door, Place};
use crate::etcd_client::EtcdClient;
use crate::health_server;
use crate::metrics::{Metrics, ShardStats};
use crate::report::Report;
use crate::s3_client::S3Client;
use crate::settings::{HttpServerSettings, Settings};
use crate::shard::{Mailbox, Partners, Shard};
use crate::shutdown::Signals;
use crate::tasks::spawn_local;
use crate::temp_files::DiskSpace;
use crate::{accept, clock};

/// Beyond grace and drain: what a shard may take for its last writes before the process ends all the same.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// Threads of one shard on which files and host names are waited for.
pub(crate) const WORKERS: usize = 8;

/// The process cannot start, or has lost a shard. Ends it with exit code 1.
#[derive(Debug)]
pub struct ProcessError(pub String);

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProcessError {}

/// What the main thread hands to a shard.
enum Message {
    Kafka(std::net::TcpStream, SocketAddr),
    Http(std::net::TcpStream, SocketAddr, Place),
    Health(Box<Parts>, SocketAddr, oneshot::Sender<Option<(http::response::Parts, Bytes)>>),
    Stats(oneshot::Sender<ShardStats>),
    Shutdown,
}

/// The main thread's end of a shard.
pub(crate) struct ShardHandle {
    messages: mpsc::UnboundedSender<Message>,
    ended: Arc<Notify>,
}

impl ShardHandle {
    /// What the shard's machine says of its health; `None` when the shard is gone.
    pub(crate) fn health(
        &self,
        head: Parts,
        peer: SocketAddr,
    ) -> impl Future<Output = Option<(http::response::Parts, Bytes)>> + use<> {
        let (answer, answered) = oneshot::channel();
        let sent = self.messages.send(Message::Health(Box::new(head), peer, answer));
        async move {
            sent.ok()?;
            answered.await.ok()?
        }
    }

    /// A shard without a thread: whatever it is asked comes out at the other end.
    #[cfg(test)]
    pub(crate) fn detached() -> (Self, impl FnMut() -> Option<oneshot::Sender<ShardStats>>) {
        let (messages, mut inbox) = mpsc::unbounded_channel();
        let questions = move || match inbox.try_recv() {
            Ok(Message::Stats(answer)) => Some(answer),
            Ok(Message::Kafka(..) | Message::Http(..) | Message::Health(..) | Message::Shutdown) | Err(_) => None,
        };
        (Self { messages, ended: Arc::default() }, questions)
    }

    /// What the shard has counted; `None` when it is gone.
    pub(crate) fn stats(&self) -> impl Future<Output = Option<ShardStats>> + use<> {
        let (answer, answered) = oneshot::channel();
        let sent = self.messages.send(Message::Stats(answer));
        async move {
            sent.ok()?;
            answered.await.ok()
        }
    }
}

/// Makes a shard's partners, on the shard's own thread.
pub(crate) trait MakePartners: Send + 'static {
    fn make(self, report: Report) -> impl Future<Output = Result<Partners, ProcessError>>;
}

/// The production partners: a real etcd and a real S3.
struct Remote(Settings);

impl MakePartners for Remote {
    async fn make(self, report: Report) -> Result<Partners, ProcessError> {
        let etcd = EtcdClient::new(&self.0.etcd, report.clone()).map_err(|error| ProcessError(error.to_string()))?;
        let etcd = Rc::new(etcd);
        let s3: Box<dyn Fn(_)> = match self.0.s3 {
            Some(settings) => {
                let s3 = Rc::new(S3Client::new(settings, report).await);
                Box::new(move |order| s3.carry_out(order))
            }
            None => Box::new(|order| tracing::error!(?order, "S3 is not configured")),
        };
        Ok(Partners { etcd: Box::new(move |order| etcd.carry_out(order)), s3 })
    }
}

/// The listening sockets.
pub(crate) struct Listeners {
    pub(crate) kafka: TcpListener,
    pub(crate) http: Option<TcpListener>,
    pub(crate) health: Option<TcpListener>,
    pub(crate) metrics: Option<TcpListener>,
}

impl Listeners {
    /// Listens. A listener on port 0 is told to clients with the port that the system chose.
    ///
    /// # Errors
    /// An address is taken, or is none of this host.
    pub(crate) async fn bind(settings: &mut Settings) -> Result<Self, ProcessError> {
        let bind = async |address: &str, what: &str| {
            let listener = accept::listen(address).await;
            let listener =
                listener.map_err(|error| ProcessError(format!("cannot listen on {address} for {what}: {error}")))?;
            if let Ok(address) = listener.local_addr() {
                tracing::info!(%address, "{what} listens");
            }
            Ok(listener)
        };
        let kafka = bind(&settings.kafka_address, "Kafka").await?;
        let advertised_port = &mut settings.process.listener.advertised_port;
        if let (0, Ok(address)) = (*advertised_port, kafka.local_addr()) {
            *advertised_port = address.port();
        }
        let http = match &settings.http_address {
            Some(address) => Some(bind(address, "the LFS HTTP API").await?),
            None => None,
        };
        let health = match &settings.health_address {
            Some(address) => Some(bind(address, "the health server").await?),
            None => None,
        };
        let metrics = match &settings.metrics_address {
            Some(address) => Some(bind(address, "the metrics server").await?),
            None => None,
        };
        Ok(Self { kafka, http, health, metrics })
    }
}

/// Runs the proxy until a signal ends it.
///
/// # Errors
/// An address is taken, an endpoint cannot be understood, or a shard was lost.
pub fn run(mut settings: Settings) -> Result<(), ProcessError> {
    block_on(async {
        let listeners = Listeners::bind(&mut settings).await?;
        serve(&settings, listeners, |_| Remote(settings.clone())).await
    })
}

/// Runs a future on a runtime of this thread, with local tasks.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, ProcessError>>) -> Result<T, ProcessError> {
    let runtime = runtime().map_err(|error| ProcessError(format!("cannot start: {error}")))?;
    let result = LocalSet::new().block_on(&runtime, future);
    // Jobs on worker threads have nobody left to tell.
    runtime.shutdown_background();
    result
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(WORKERS).build()
}

/// Serves what the listeners accept, until a signal ends it.
pub(crate) async fn serve<P: MakePartners>(
    settings: &Settings,
    listeners: Listeners,
    partners: impl Fn(usize) -> P,
) -> Result<(), ProcessError> {
    descriptors::raise_limit();
    let mut signals = Signals::new().map_err(|error| ProcessError(format!("cannot handle signals: {error}")))?;
    let stop_accepting = Arc::new(Notify::new());
    let space = Arc::new(DiskSpace::new(settings.process.lfs.as_ref().map_or(0, |lfs| lfs.download_disk_bytes)));
    let workers = Workers::new().map_err(|error| ProcessError(format!("cannot start: {error}")))?;
    let mut shards = Vec::new();
    for index in 0..settings.shards {
        let config = settings.shard_config(index);
        shards.push(
            start_shard(index, config, settings.http, partners(index), &space, workers.entrance(), &stop_accepting)
                .await?,
        );
    }
    let shards = Rc::new(shards);
    let limits = settings.http;
    if let Some(health) = listeners.health {
        let shards = Rc::clone(&shards);
        let door = Door::new("health", limits.max_connections);
        spawn_local(async move {
            let serve = |stream, peer, place| health_server::serve(stream, peer, limits, &shards, place);
            door.accept(&health, serve).await;
        });
    }
    if let Some(listener) = listeners.metrics {
        let cluster = &settings.process.cluster;
        let ttl = cluster.static_backends.is_empty().then_some(cluster.cache_ttl);
        let metrics = Rc::new(Metrics::new(Rc::clone(&shards), ttl));
        let door = Door::new("metrics", limits.max_connections);
        spawn_local(async move {
            door.accept(&listener, |stream, peer, place| metrics.serve(stream, peer, limits, place)).await;
        });
    }
    let door = Door::new("API", limits.max_connections);
    let accepting = spawn_local(accept_all(listeners.kafka, listeners.http, door, Rc::clone(&shards)));
    spawn_local(async move {
        stop_accepting.notified().await;
        // Dropping the listeners lets clients see at once that this replica takes nothing more.
        accepting.abort();
    });

    let mut ended = std::pin::pin!(async {
        for shard in shards.iter() {
            shard.ended.notified().await;
        }
    });
    tokio::select! {
        signal = signals.next() => tracing::info!(signal, "shutting down"),
        () = &mut ended => return Err(ProcessError("a shard has ended".into())),
    }
    for shard in shards.iter() {
        // A shard that is gone needs no telling.
        let _ = shard.messages.send(Message::Shutdown);
    }
    let shutdown = &settings.process.shutdown;
    tokio::select! {
        () = &mut ended => tracing::info!("done"),
        () = tokio::time::sleep(shutdown.grace + shutdown.drain + LAST_WRITES) => {
            tracing::warn!("not everything in flight was answered in time");
        }
        signal = signals.next() => tracing::warn!(signal, "ending at once"),
    }
    Ok(())
}

/// Spreads connections over the shards, in turn.
async fn accept_all(kafka: TcpListener, http: Option<TcpListener>, door: Door, shards: Rc<Vec<ShardHandle>>) {
    let hand_over = |next: &mut usize, stream: TcpStream, message: Box<dyn FnOnce(std::net::TcpStream) -> Message>| {
        *next = (*next + 1) % shards.len();
        match stream.into_std() {
            // A shard that is gone drops the connection, which is all that can be done with it.
            Ok(stream) => drop(shards[*next].messages.send(message(stream))),
            Err(error) => tracing::warn!(%error, "a connection was lost on its way to its shard"),
        }
    };
    let (mut next_kafka, mut next_http) = (0, 0);
    let descriptors = Descriptors::of_process();
    let kafka = accept::accept(&kafka, |stream, peer| {
        if descriptors.allow(&stream) {
            hand_over(&mut next_kafka, stream, Box::new(move |stream| Message::Kafka(stream, peer)));
        } else {
            tracing::warn!(%peer, "too few descriptors are left, Kafka connection closed");
        }
    });
    let http = async {
        if let Some(http) = http {
            door.accept(&http, |stream, peer, place| {
                hand_over(&mut next_http, stream, Box::new(move |stream| Message::Http(stream, peer, place)));
            })
            .await;
        }
    };
    tokio::join!(kafka, http);
}

async fn start_shard<P: MakePartners>(
    index: usize,
    config: Config,
    limits: HttpServerSettings,
    partners: P,
    space: &Arc<DiskSpace>,
    workers: compute::Entrance,
    stop_accepting: &Arc<Notify>,
) -> Result<ShardHandle, ProcessError> {
    let (messages, inbox) = mpsc::unbounded_channel();
    let (started, has_started) = oneshot::channel();
    let (space, stop_accepting) = (Arc::clone(space), Arc::clone(stop_accepting));
    let ended = Arc::new(Notify::new());
    let end = EndOfShard(Arc::clone(&ended));
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| ProcessError(format!("no randomness: {error}")))?;
    let body = move || {
        let _end = end;
        let result = block_on(async {
            let mailbox = Mailbox::new();
            let partners = partners.make(mailbox.report()).await?;
            let machine = Proxy::new(config, seed, clock::now());
            let shard = Shard::new(&mailbox, machine, partners, space, workers, move || stop_accepting.notify_one());
            // Fails when the main thread has given up.
            let _ = started.send(());
            spawn_local(receive(inbox, Rc::clone(&shard), limits));
            shard.run_until_idle().await;
            // Answers that are with hyper or lingering get a moment to leave.
            shard.http.wait_until_closed(LAST_WRITES).await;
            Ok(())
        });
        if let Err(error) = result {
            tracing::error!(%error, shard = index, "a shard could not start");
        }
    };
    thread::Builder::new()
        .name(format!("shard-{index}"))
        .spawn(body)
        .map_err(|error| ProcessError(format!("cannot start a thread: {error}")))?;
    has_started.await.map_err(|_| ProcessError(format!("shard {index} could not start")))?;
    Ok(ShardHandle { messages, ended })
}

/// Tells the main thread that a shard has ended, also when it panicked.
struct EndOfShard(Arc<Notify>);

impl Drop for EndOfShard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn receive(mut inbox: mpsc::UnboundedReceiver<Message>, shard: Rc<Shard>, limits: HttpServerSettings) {
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Kafka(stream, peer) => match TcpStream::from_std(stream) {
                Ok(stream) => shard.clients.serve(stream, peer),
                Err(error) => tracing::warn!(%error, "a connection was lost on its way to its shard"),
            },
            Message::Http(stream, peer, place) => match TcpStream::from_std(stream) {
                Ok(stream) => shard.http.serve(stream, peer, limits, place),
                Err(error) => tracing::warn!(%error, "a connection was lost on its way to its shard"),
            },
            Message::Health(head, peer, answer) => {
                let http = Rc::clone(&shard.http);
                spawn_local(async move {
                    // Fails when the probe has gone.
                    let _ = answer.send(http.health(*head, peer).await);
                });
            }
            // Fails when the server of the metrics has gone.
            Message::Stats(answer) => drop(answer.send(shard.stats())),
            Message::Shutdown => shard.request_shutdown(),
        }
    }
}
