//! Envelopes on their way, as their makers know them: what a shard was told of each record decides whether the blob must go,
//! and whom it may ask next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::inputs::{self, BrokerConnectionId, ExchangeId, ReadResult};
use kafscale_proxy_core::kafka::{ApiKey, RequestHeader, ResponseHeader};
use kafscale_proxy_core::{Effect, Input, Monotonic, OperationId, effects, s3};

use super::deletes::{key_in_envelope, proves_nothing_was_written, version_of};
use super::uploads::exchange_in;

/// So long after its broker's last answer a connection may be kept for the next upload.
const KEPT: Duration = Duration::from_secs(1);

/// A connection of a shard to a broker.
type Connection = (usize, BrokerConnectionId);

/// A record that was written to a connection, and how many bytes had been written there before.
struct Written {
    key: String,
    begin: u64,
    /// Of the request.
    correlation_id: i32,
    /// Of the request.
    version: i16,
}

struct Socket {
    address: String,
    bytes: u64,
    /// The record whose answer is to come.
    record: Option<Written>,
    /// When it was ordered, or its broker last said something.
    proven: Monotonic,
    /// It carries what Kafka clients ask.
    of_client: bool,
    /// The shard has given it up: it looks at no answer any more.
    given_up: bool,
}

/// What the shards were told.
#[derive(Default)]
pub struct Records {
    sockets: BTreeMap<Connection, Socket>,
    /// When a shard last got a connection to a broker.
    connected: BTreeMap<usize, Monotonic>,
    /// When a broker last said something to a shard on a connection that is none of a Kafka client.
    proven: BTreeMap<usize, Monotonic>,
    requested: BTreeMap<ExchangeId, Monotonic>,
    reads: BTreeMap<(usize, OperationId), ExchangeId>,
    /// Bodies that broke off.
    broken: BTreeSet<ExchangeId>,
    exchanges: BTreeMap<String, ExchangeId>,
    /// Keys whose record may be in the log, as far as its maker can know.
    may_be_written: BTreeSet<String>,
    /// Brokers that have refused a record, by key.
    refused: BTreeSet<(String, String)>,
}

impl Records {
    /// A shard is told something.
    pub(super) fn told(&mut self, shard: usize, input: &Input, now: Monotonic) {
        if let Input::Http(inputs::Http::Requested { exchange, .. }) = input {
            self.requested.insert(*exchange, now);
        }
        if let Input::Http(inputs::Http::BodyRead { operation, result }) = input
            && let (Some(exchange), ReadResult::Broken(_)) = (self.reads.remove(&(shard, *operation)), result)
        {
            self.broken.insert(exchange);
        }
        if let Input::Broker(input) = input {
            self.told_of_broker(shard, input, now);
        }
    }

    fn told_of_broker(&mut self, shard: usize, input: &inputs::Broker, now: Monotonic) {
        match input {
            inputs::Broker::Connected { .. } => {
                self.connected.insert(shard, now);
            }
            inputs::Broker::Received { connection, bytes } => {
                if let Some(socket) = self.sockets.get_mut(&(shard, *connection)) {
                    socket.proven = now;
                    if !socket.of_client {
                        self.proven.insert(shard, now);
                    }
                }
                self.answered((shard, *connection), &Bytes::copy_from_slice(bytes));
            }
            inputs::Broker::Closed { connection, accepted_bytes } => {
                let record = self.sockets.remove(&(shard, *connection)).and_then(|socket| socket.record);
                if let Some(record) = record.filter(|record| record.begin >= *accepted_bytes) {
                    self.may_be_written.remove(&record.key);
                }
            }
            inputs::Broker::ConnectFailed { connection, .. } => {
                self.sockets.remove(&(shard, *connection));
            }
            inputs::Broker::Clogged { .. } | inputs::Broker::Drained { .. } => {}
        }
    }

    fn answered(&mut self, connection: Connection, answer: &Bytes) {
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        let expected = socket.record.as_ref().map(|record| record.correlation_id);
        if socket.given_up || expected.is_none() || ResponseHeader::correlation_id(answer).ok() != expected {
            return;
        }
        if let Some(record) = socket.record.take()
            && proves_nothing_was_written(answer, record.version)
        {
            self.may_be_written.remove(&record.key);
            self.refused.insert((record.key, socket.address.clone()));
        }
    }

    /// A shard orders something; gives what is wrong with that, and with which rule.
    pub(super) fn ordered(&mut self, shard: usize, effect: &Effect, now: Monotonic) -> Option<(&'static str, String)> {
        if let Effect::Http(effects::Http::ReadBody { operation, exchange, .. }) = effect {
            self.reads.insert((shard, *operation), *exchange);
        }
        if let Effect::S3(effects::S3::Request { request, .. }) = effect {
            return self.stores(shard, request);
        }
        let Effect::Broker(order) = effect else { return None };
        match order {
            effects::Broker::Connect { connection, address } => {
                let socket = Socket {
                    address: address.clone(),
                    bytes: 0,
                    record: None,
                    proven: now,
                    of_client: false,
                    given_up: false,
                };
                self.sockets.insert((shard, *connection), socket);
                None
            }
            effects::Broker::Write { connection, bytes } => self.writes((shard, *connection), bytes),
            effects::Broker::Close { connection } => {
                self.sockets.get_mut(&(shard, *connection))?.given_up = true;
                None
            }
            effects::Broker::Pause { .. } | effects::Broker::Resume { .. } => None,
        }
    }

    fn writes(&mut self, connection: Connection, bytes: &Bytes) -> Option<(&'static str, String)> {
        let socket = self.sockets.get_mut(&connection)?;
        let begin = socket.bytes;
        socket.bytes += bytes.len() as u64;
        let (header, _) = RequestHeader::decode(bytes).ok()?;
        let Some(key) = key_in_envelope(bytes) else {
            socket.of_client |= header.api() != Some(ApiKey::ApiVersions);
            return None;
        };
        let (correlation_id, version) = (header.correlation_id, version_of(bytes));
        let before = socket.record.replace(Written { key: key.clone(), begin, correlation_id, version });
        if let Some(before) = before {
            return Some(("records", format!("the record of {key} goes behind that of {}, unanswered", before.key)));
        }
        self.may_be_written.insert(key.clone());
        let asked = (key, socket.address.clone());
        let begun = self.exchanges.get(&asked.0).and_then(|exchange| self.requested.get(exchange));
        if begun.is_some_and(|begun| begun.since(socket.proven) > KEPT) {
            let (proven, key) = (socket.proven, asked.0);
            return Some(("records", format!("the record of {key} takes a connection that was kept since {proven:?}")));
        }
        if self.refused.contains(&asked) {
            let (key, address) = asked;
            return Some(("records", format!("the record of {key} goes to {address} again, which refused it")));
        }
        let exchange = self.exchanges.get(&asked.0)?;
        let broken = self.broken.contains(exchange);
        broken.then(|| ("bodies", format!("the body of {exchange:?} broke off, and has a record")))
    }

    /// A broker is connected before the first byte goes to S3, or has just been.
    fn stores(&mut self, shard: usize, request: &s3::Request) -> Option<(&'static str, String)> {
        let (s3::Request::PutObject { key, body, .. } | s3::Request::UploadPart { key, body, .. }) = request else {
            return None;
        };
        let exchange = exchange_in(body)?;
        self.exchanges.insert(key.clone(), exchange);
        let requested = self.requested.get(&exchange)?;
        let connected = self.connected.get(&shard).is_some_and(|connected| connected >= requested);
        let kept = self.proven.get(&shard).is_some_and(|proven| requested.since(*proven) <= KEPT);
        (!connected && !kept)
            .then(|| ("uploads", format!("{exchange:?} is uploaded, and no broker was connected since it began")))
    }

    /// Whether a record may refer to this key, as far as its maker can know.
    pub fn may_refer_to(&self, key: &str) -> bool {
        self.may_be_written.contains(key)
    }
}
