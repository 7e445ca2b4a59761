//! What the machine is told: facts, in the past tense, grouped by partner.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use crate::compute::Computed;
use crate::operation::{OperationId, Outcome};
use crate::{etcd, s3};

/// A Kafka client's connection; the driver draws the number and never uses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A connection to a broker; the machine draws the number when it orders the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerConnectionId(pub u64);

/// One HTTP request and its response; the driver draws the number and never uses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeId(pub u64);

/// A temporary file; the machine draws the number when it orders the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// A fact.
#[derive(Debug)]
pub enum Input {
    /// Kafka client sockets.
    Client(Client),
    /// Sockets to brokers.
    Broker(Broker),
    /// HTTP exchanges.
    Http(Http),
    /// etcd.
    Etcd(Etcd),
    /// S3.
    S3(S3),
    /// Temporary files.
    TempFile(TempFile),
    /// An [`crate::Effect::Compute`] is done.
    Computed(Computed),
    /// The process was asked to end (SIGINT, SIGTERM). Comes once.
    ShutdownRequested,
}

/// Facts about Kafka client sockets.
#[derive(Debug)]
pub enum Client {
    /// A connection was accepted.
    Accepted {
        /// Its new number.
        client: ClientId,
        /// The peer's address, for logs.
        peer: SocketAddr,
    },
    /// Bytes arrived.
    Received {
        /// Where.
        client: ClientId,
        /// The bytes, in order. `BytesMut` so that fields can be patched in place without a copy.
        bytes: BytesMut,
    },
    /// More than the high watermark waits to be written: the client does not take its answers.
    Clogged {
        /// Where.
        client: ClientId,
    },
    /// Below the low watermark again.
    Drained {
        /// Where.
        client: ClientId,
    },
    /// Bytes wait to be written and the socket takes none now. Told again, at most once a second, when it has taken some
    /// and others still wait.
    Blocked {
        /// Where.
        client: ClientId,
    },
    /// Nothing waits to be written any more.
    Unblocked {
        /// Where.
        client: ClientId,
    },
    /// The connection is gone, by the peer, by an error or by our own order. Comes exactly once per client.
    Closed {
        /// Where.
        client: ClientId,
    },
}

/// Why a connection to a broker could not be had: nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError(pub String);

/// Facts about sockets to brokers.
#[derive(Debug)]
pub enum Broker {
    /// The connection stands (TLS included, when it is configured).
    Connected {
        /// Which.
        connection: BrokerConnectionId,
    },
    /// The connection could not be made; it has ended, no `Closed` follows.
    ConnectFailed {
        /// Which.
        connection: BrokerConnectionId,
        /// Why.
        error: ConnectError,
    },
    /// Bytes arrived.
    Received {
        /// Where.
        connection: BrokerConnectionId,
        /// The bytes, in order. `BytesMut` so that fields can be patched in place without a copy.
        bytes: BytesMut,
    },
    /// More than the high watermark waits to be written: the broker does not read.
    Clogged {
        /// Where.
        connection: BrokerConnectionId,
    },
    /// Below the low watermark again.
    Drained {
        /// Where.
        connection: BrokerConnectionId,
    },
    /// The connection is gone. Comes exactly once per connection that was `Connected`.
    Closed {
        /// Which.
        connection: BrokerConnectionId,
        /// How many bytes of all writes the socket had accepted since `Connected`. A request that begins at
        /// or after this offset was provably not applied.
        accepted_bytes: u64,
    },
}

/// Which HTTP server took a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpServer {
    /// The LFS API.
    Api,
    /// `/readyz` and `/livez`.
    Health,
}

/// What a pulled stream gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// The next bytes, never empty.
    Chunk(Bytes),
    /// The end, as the framing says it.
    End,
    /// The stream broke before its end: never a short success. The text is for logs.
    Broken(String),
}

/// Facts about HTTP exchanges.
#[derive(Debug)]
pub enum Http {
    /// A request head was parsed. The body waits to be read.
    Requested {
        /// Its new number.
        exchange: ExchangeId,
        /// Which server took it.
        server: HttpServer,
        /// Method, URI, version and headers. Boxed because it is large and rare.
        head: Box<http::request::Parts>,
        /// The peer's address.
        peer: SocketAddr,
    },
    /// An `Effect::Http(ReadBody)` is done.
    BodyRead {
        /// The operation.
        operation: OperationId,
        /// What it gave.
        result: ReadResult,
    },
    /// An `Effect::Http(SendChunk)` is done: there is room for the next chunk.
    ChunkAccepted {
        /// The operation.
        operation: OperationId,
    },
    /// The client is gone before the answer was delivered. `Ended` follows.
    ClientGone {
        /// Which.
        exchange: ExchangeId,
    },
    /// The exchange is over: the answer was handed to the socket whole, or the connection is gone. Comes
    /// exactly once, after every other fact about this exchange.
    Ended {
        /// Which.
        exchange: ExchangeId,
    },
}

/// Facts from etcd.
#[derive(Debug)]
pub enum Etcd {
    /// An `Effect::Etcd(Request)` is done.
    Finished {
        /// The operation.
        operation: OperationId,
        /// What became of it.
        outcome: Outcome<etcd::Response, etcd::Refusal>,
    },
    /// The watch stands: everything from its start revision on will be told.
    WatchCreated {
        /// The operation.
        operation: OperationId,
        /// Revision of the store then. One below that from which the watch is to tell belongs to a store that is behind what was
        /// read before, or was replaced by an older one.
        revision: etcd::Revision,
    },
    /// Changes, in order; or none, when etcd only reports its progress.
    WatchEvents {
        /// The operation.
        operation: OperationId,
        /// Revision up to which the watch has told everything.
        revision: etcd::Revision,
        /// The changes.
        events: Vec<etcd::WatchEvent>,
    },
    /// The watch is over. Comes exactly once per watch.
    WatchEnded {
        /// The operation.
        operation: OperationId,
        /// Why.
        end: etcd::WatchEnd,
    },
}

/// Facts from S3.
#[derive(Debug)]
pub enum S3 {
    /// An `Effect::S3(Request)` is done.
    Finished {
        /// The operation.
        operation: OperationId,
        /// What became of it.
        outcome: Outcome<s3::Response, s3::Refusal>,
    },
    /// An `Effect::S3(ReadObject)` is done.
    ObjectRead {
        /// The operation.
        operation: OperationId,
        /// What it gave.
        result: ReadResult,
    },
}

/// Why a temporary file could not be created or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    /// The files of all shards together have taken the space of the process: later there may be some.
    NoSpace,
    /// The system refused, for this reason.
    Failed(String),
}

impl From<&str> for FileError {
    fn from(reason: &str) -> Self {
        Self::Failed(reason.to_owned())
    }
}

/// Facts about temporary files.
#[derive(Debug)]
pub enum TempFile {
    /// An `Effect::TempFile` operation is done; a failed one carries the reason.
    Finished {
        /// The operation.
        operation: OperationId,
        /// Done, or why not.
        result: Result<(), FileError>,
    },
    /// An `Effect::TempFile(Read)` is done.
    ChunkRead {
        /// The operation.
        operation: OperationId,
        /// What it gave.
        result: ReadResult,
    },
}
