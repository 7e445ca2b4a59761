//! etcd for one shard: requests, watches, and which member is asked.
//!
//! Finding a member that can be reached is part of connecting: while provably nothing was handed over, the next
//! endpoint is tried. A request that may have arrived is never sent again.

mod outcome;
#[cfg(test)]
#[cfg(feature = "peers")]
mod tests;
mod translation;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, WatchOptions, WatchResponse};
use kafscale_proxy_core::etcd::{self, Refusal};
use kafscale_proxy_core::{Input, OperationId, Outcome, effects, inputs};
use tokio::sync::{OnceCell, oneshot};
use tonic::transport::{ClientTlsConfig, Endpoint};

use crate::report::Report;
use crate::settings::EtcdSettings;
use crate::tasks::spawn_local;
use outcome::{Failure, failure, is_lease_missing};

/// Largest accepted answer. A range over many leases, or a large snapshot, passes the usual 4 MiB.
const MESSAGE_LIMIT: usize = 512 * 1024 * 1024;
/// All dials of one request together.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How often a connection is tested, and how long the answer may take.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// An endpoint that is no address.
#[derive(Debug)]
pub(crate) struct EndpointError(String);

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd endpoint {}", self.0)
    }
}

impl std::error::Error for EndpointError {}

struct Member {
    endpoint: Endpoint,
    /// Made when first needed; with a user this takes an exchange with the member.
    client: OnceCell<Client>,
}

/// The etcd client of a shard.
pub(crate) struct EtcdClient {
    report: Report,
    members: Vec<Member>,
    user: Option<(String, String)>,
    current: Cell<usize>,
    open: RefCell<HashMap<OperationId, oneshot::Sender<()>>>,
}

impl EtcdClient {
    /// No connection is made yet.
    ///
    /// # Errors
    /// An endpoint cannot be understood.
    pub(crate) fn new(settings: &EtcdSettings, report: Report) -> Result<Self, EndpointError> {
        let count = u32::try_from(settings.endpoints.len()).unwrap_or(u32::MAX).max(1);
        let members = settings
            .endpoints
            .iter()
            .map(|text| {
                let endpoint = endpoint(text).map_err(|error| EndpointError(format!("{text:?}: {error}")))?;
                let endpoint = endpoint.connect_timeout(CONNECT_LIMIT / count);
                Ok(Member { endpoint, client: OnceCell::new() })
            })
            .collect::<Result<_, EndpointError>>()?;
        let user = settings.user.clone();
        Ok(Self { report, members, user, current: Cell::new(0), open: RefCell::default() })
    }

    /// Carries out one order.
    pub(crate) fn carry_out(self: &Rc<Self>, order: effects::Etcd) {
        match order {
            effects::Etcd::Request { operation, request } => {
                let cancelled = self.open(operation);
                let this = Rc::clone(self);
                spawn_local(async move {
                    let asked = Cell::new(this.current.get());
                    let outcome = tokio::select! {
                        biased;
                        outcome = this.request(&request, &asked) => outcome,
                        _ = cancelled => {
                            this.leave(asked.get());
                            Outcome::Unknown("cancelled".into())
                        }
                    };
                    this.open.borrow_mut().remove(&operation);
                    this.report.tell(Input::Etcd(inputs::Etcd::Finished { operation, outcome }));
                });
            }
            effects::Etcd::Watch { operation, request } => {
                let cancelled = self.open(operation);
                let this = Rc::clone(self);
                spawn_local(async move {
                    let end = tokio::select! {
                        biased;
                        _ = cancelled => etcd::WatchEnd::Cancelled,
                        end = this.watch(operation, &request) => end,
                    };
                    this.open.borrow_mut().remove(&operation);
                    this.report.tell(Input::Etcd(inputs::Etcd::WatchEnded { operation, end }));
                });
            }
            effects::Etcd::Cancel { operation } => {
                if let Some(cancel) = self.open.borrow_mut().remove(&operation) {
                    // Fails when the operation has just finished: then its completion is on its way.
                    let _ = cancel.send(());
                }
            }
        }
    }

    fn open(&self, operation: OperationId) -> oneshot::Receiver<()> {
        let (cancel, cancelled) = oneshot::channel();
        self.open.borrow_mut().insert(operation, cancel);
        cancelled
    }

    /// The next request goes to another member than this one.
    fn leave(&self, member: usize) {
        if self.current.get() == member {
            self.current.set((member + 1) % self.members.len());
        }
    }

    async fn request(&self, request: &etcd::Request, asked: &Cell<usize>) -> Outcome<etcd::Response, Refusal> {
        match self.at_some_member(asked, async |client| ask(client, request).await).await {
            Ok(response) => Outcome::Applied(response),
            Err(failure) => failure.into(),
        }
    }

    /// Runs `ask` at the first member that can be reached, beginning with the current one.
    async fn at_some_member<T>(
        &self,
        asked: &Cell<usize>,
        ask: impl AsyncFn(Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut last = Failure::Unreachable("no endpoint is configured".into());
        let first = self.current.get();
        for index in (first..self.members.len()).chain(0..first) {
            asked.set(index);
            let result = match self.client(&self.members[index]).await {
                Ok(client) => ask(client).await,
                Err(failure) => Err(failure),
            };
            match result {
                Ok(answer) => {
                    self.current.set(index);
                    return Ok(answer);
                }
                Err(Failure::Refused(refusal)) => return Err(Failure::Refused(refusal)),
                Err(Failure::Unknown(text)) => {
                    self.leave(index);
                    return Err(Failure::Unknown(text));
                }
                Err(Failure::Unreachable(text)) => last = Failure::Unreachable(text),
            }
        }
        Err(last)
    }

    /// Whatever fails here, nothing of the machine's request was handed over.
    async fn client(&self, member: &Member) -> Result<Client, Failure> {
        let client = member.client.get_or_try_init(async || {
            let mut options = ConnectOptions::new().with_require_leader(true).with_auto_token_refresh(true);
            if let Some((name, password)) = &self.user {
                options = options.with_user(name, password);
            }
            Client::from_channel(Channel::Tonic(member.endpoint.connect_lazy()), Some(options)).await
        });
        match client.await {
            Ok(client) => Ok(client.clone()),
            Err(error) => Err(match failure(&error) {
                Failure::Refused(refusal) => Failure::Refused(refusal),
                Failure::Unreachable(text) | Failure::Unknown(text) => Failure::Unreachable(text),
            }),
        }
    }

    async fn watch(&self, operation: OperationId, request: &etcd::WatchRequest) -> etcd::WatchEnd {
        let asked = Cell::new(self.current.get());
        let (key, end) = translation::range_of(&request.keys);
        let mut options = WatchOptions::new().with_start_revision(request.start_revision).with_progress_notify();
        if let Some(end) = end {
            options = options.with_range(end);
        }
        let opened = self
            .at_some_member(&asked, async |client| {
                let mut watch = client.watch_client().max_decoding_message_size(MESSAGE_LIMIT);
                watch.watch(key.clone(), Some(options.clone())).await.map_err(|error| failure(&error))
            })
            .await;
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(Failure::Refused(Refusal::Compacted(revision))) => return etcd::WatchEnd::Compacted(revision),
            Err(Failure::Refused(refusal)) => return etcd::WatchEnd::Lost(format!("{refusal:?}")),
            Err(Failure::Unreachable(text) | Failure::Unknown(text)) => return etcd::WatchEnd::Lost(text),
        };
        loop {
            match stream.message().await {
                Ok(Some(message)) => {
                    if let Some(end) = self.watch_message(operation, &message) {
                        return end;
                    }
                }
                Ok(None) => {
                    self.leave(asked.get());
                    return etcd::WatchEnd::Lost("the stream ended".into());
                }
                Err(error) => {
                    self.leave(asked.get());
                    return etcd::WatchEnd::Lost(error.to_string());
                }
            }
        }
    }

    /// Tells what a message says; gives the end of the watch, if it is that.
    fn watch_message(&self, operation: OperationId, message: &WatchResponse) -> Option<etcd::WatchEnd> {
        if message.canceled() {
            return Some(if message.compact_revision() > 0 {
                etcd::WatchEnd::Compacted(message.compact_revision())
            } else {
                etcd::WatchEnd::Lost(format!("cancelled by etcd: {}", message.cancel_reason()))
            });
        }
        if message.created() {
            let revision = message.header().map_or(0, etcd_client::ResponseHeader::revision);
            self.report.tell(Input::Etcd(inputs::Etcd::WatchCreated { operation, revision }));
        }
        let events: Vec<_> = message.events().iter().filter_map(translation::watch_event).collect();
        // While a watch catches up, etcd sends its history in portions, each with the store's newest revision in the
        // header: only the events themselves say how far a portion goes.
        let revision = events.last().map(|event| match event {
            etcd::WatchEvent::Put(kv) => kv.mod_revision,
            etcd::WatchEvent::Delete { mod_revision, .. } => *mod_revision,
        });
        let progress = message.header().map(etcd_client::ResponseHeader::revision).filter(|_| !message.created());
        if let Some(revision) = revision.or(progress) {
            self.report.tell(Input::Etcd(inputs::Etcd::WatchEvents { operation, revision, events }));
        }
        None
    }
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let mut endpoint = Endpoint::from_shared(url).map_err(|error| error.to_string())?;
    if endpoint.uri().scheme_str() == Some("https") {
        let tls = ClientTlsConfig::new().with_native_roots();
        endpoint = endpoint.tls_config(tls).map_err(|error| error.to_string())?;
    }
    Ok(endpoint
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .keep_alive_while_idle(true))
}

async fn ask(client: Client, request: &etcd::Request) -> Result<etcd::Response, Failure> {
    match request {
        etcd::Request::Range(range) => {
            let (key, options) = translation::range_request(range);
            let mut kv = client.kv_client().max_decoding_message_size(MESSAGE_LIMIT);
            let response = kv.get(key, Some(options)).await.map_err(|error| failure(&error))?;
            Ok(etcd::Response::Range(translation::range_response(response)))
        }
        etcd::Request::Txn(request) => {
            let mut kv = client.kv_client().max_decoding_message_size(MESSAGE_LIMIT);
            let response = kv.txn(translation::txn(request)).await.map_err(|error| failure(&error))?;
            translation::txn_response(&response).map(etcd::Response::Txn).map_err(Failure::Unknown)
        }
        etcd::Request::LeaseGrant { ttl_seconds } => {
            let granted = client.lease_client().grant(*ttl_seconds, None).await.map_err(|error| failure(&error))?;
            Ok(etcd::Response::LeaseGranted { lease: granted.id(), ttl_seconds: granted.ttl() })
        }
        etcd::Request::LeaseKeepAlive { lease } => keep_alive(client, *lease).await,
        etcd::Request::LeaseRevoke { lease } => match client.lease_client().revoke(*lease).await {
            Ok(_) => Ok(etcd::Response::LeaseRevoked),
            Err(error) if is_lease_missing(&error) => Ok(etcd::Response::LeaseRevoked),
            Err(error) => Err(failure(&error)),
        },
    }
}

/// The client hides the time to live of the answer to the first keep-alive of a stream, so a second one asks for it.
async fn keep_alive(client: Client, lease: i64) -> Result<etcd::Response, Failure> {
    let kept = async {
        let (mut keeper, mut answers) = client.lease_client().keep_alive(lease).await?;
        keeper.keep_alive().await?;
        answers.message().await
    };
    match kept.await {
        Ok(Some(answer)) => Ok(etcd::Response::LeaseKeptAlive { ttl_seconds: answer.ttl() }),
        Ok(None) => Err(Failure::Unknown("the stream ended without an answer".into())),
        Err(error) if is_lease_missing(&error) => Ok(etcd::Response::LeaseKeptAlive { ttl_seconds: 0 }),
        Err(error) => Err(failure(&error)),
    }
}
