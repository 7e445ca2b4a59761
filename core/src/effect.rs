//! What the machine orders: effects, in the partners' own verbs, grouped by partner.
//!
//! Effects are started in list order and may finish in any order. Every effect with an `operation` gets
//! exactly one completion ([`crate::Input`]); a cancelled one too, and its completion may say that it was applied.

use bytes::Bytes;
use http::response::Parts;

use crate::compute::Job;
use crate::input::{BrokerConnectionId, ClientId, ExchangeId, FileId};
use crate::operation::OperationId;
use crate::{etcd, s3};

/// Filled during a call, owned by the caller: there is no queue to forget to drain.
pub type Effects = Vec<Effect>;

/// An order.
#[derive(Debug)]
pub enum Effect {
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
    /// Run a job that would take too long inside a call; its result is `Input::Computed`. Its `run` is pure, and it cannot be
    /// cancelled.
    Compute(Job),
}

/// Orders for Kafka client sockets.
#[derive(Debug)]
pub enum Client {
    /// Append to what is written to the client. Writes of one call to one socket leave in one system call.
    Write {
        /// Where.
        client: ClientId,
        /// The bytes.
        bytes: Bytes,
    },
    /// Stop reading.
    Pause {
        /// Where.
        client: ClientId,
    },
    /// Read again.
    Resume {
        /// Where.
        client: ClientId,
    },
    /// Write what is queued (within a bound), then close. `Closed` follows.
    Close {
        /// Which.
        client: ClientId,
    },
    /// Accept no more connections: shutdown.
    StopAccepting,
}

/// Orders for sockets to brokers.
#[derive(Debug)]
pub enum Broker {
    /// Open a connection; `Connected` or `ConnectFailed` follows.
    Connect {
        /// Its number.
        connection: BrokerConnectionId,
        /// `host:port`, IPv6 literals in brackets.
        address: String,
    },
    /// Append to what is written to the broker. Writes of one call to one socket leave in one system call.
    Write {
        /// Where.
        connection: BrokerConnectionId,
        /// The bytes.
        bytes: Bytes,
    },
    /// Stop reading.
    Pause {
        /// Where.
        connection: BrokerConnectionId,
    },
    /// Read again.
    Resume {
        /// Where.
        connection: BrokerConnectionId,
    },
    /// Close at once, or give the attempt up. `Closed` or `ConnectFailed` follows.
    Close {
        /// Which.
        connection: BrokerConnectionId,
    },
}

/// The body of an HTTP response.
#[derive(Debug)]
pub enum ResponseBody {
    /// These bytes.
    Whole(Bytes),
    /// So many bytes, sent by `SendChunk`.
    Streamed {
        /// `Content-Length`.
        length: u64,
    },
}

/// Orders for HTTP exchanges.
#[derive(Debug)]
pub enum Http {
    /// Read the next piece of the request body; `BodyRead` follows. At most one is open per exchange. The first one
    /// makes the server send `100 Continue` when the client waits for it.
    ReadBody {
        /// The operation.
        operation: OperationId,
        /// Which.
        exchange: ExchangeId,
        /// At most so many bytes; the adapter coalesces small pieces up to it.
        max_bytes: usize,
    },
    /// End an open `ReadBody`: it completes as broken, if it has not completed yet.
    CancelRead {
        /// Which.
        exchange: ExchangeId,
    },
    /// Send the response. An unread request body is drained by the adapter up to a bound, then the
    /// connection is closed, so that the client sees the answer.
    Respond {
        /// Which.
        exchange: ExchangeId,
        /// Status and headers; the adapter adds framing only. Boxed because it is large and rare.
        head: Box<Parts>,
        /// The body.
        body: ResponseBody,
    },
    /// The next bytes of a streamed body; `ChunkAccepted` follows. At most one is open per exchange.
    SendChunk {
        /// The operation.
        operation: OperationId,
        /// Which.
        exchange: ExchangeId,
        /// The bytes.
        bytes: Bytes,
    },
    /// Break the connection: no (further) answer can be given honestly. `Ended` follows.
    Abort {
        /// Which.
        exchange: ExchangeId,
    },
}

/// Orders for etcd.
#[derive(Debug)]
pub enum Etcd {
    /// A request; `Finished` follows.
    Request {
        /// The operation.
        operation: OperationId,
        /// What to do.
        request: etcd::Request,
    },
    /// A watch; `WatchCreated`, `WatchEvents` and one `WatchEnded` follow.
    Watch {
        /// The operation.
        operation: OperationId,
        /// What to watch.
        request: etcd::WatchRequest,
    },
    /// End a request or a watch early. Its one completion still comes.
    Cancel {
        /// Which.
        operation: OperationId,
    },
}

/// Orders for S3.
#[derive(Debug)]
pub enum S3 {
    /// A request; `Finished` follows. The adapter does not retry.
    Request {
        /// The operation.
        operation: OperationId,
        /// What to do.
        request: s3::Request,
    },
    /// Read the next piece of an opened object; `ObjectRead` follows. After `End` or `Broken` the object is released.
    ReadObject {
        /// The operation.
        operation: OperationId,
        /// The `GetObject` that opened it.
        object: OperationId,
        /// At most so many bytes.
        max_bytes: usize,
    },
    /// Give an opened object up. Not needed after `End` or `Broken`. An open `ReadObject` of it completes at once, as broken
    /// unless it has just completed: a store that has fallen silent must not keep it open.
    ReleaseObject {
        /// The `GetObject` that opened it.
        object: OperationId,
    },
    /// End a request early. Its one completion still comes, as `Unknown` unless it had already finished.
    Cancel {
        /// Which.
        operation: OperationId,
    },
}

/// Orders for temporary files. Operations of one file are carried out in order.
#[derive(Debug)]
pub enum TempFile {
    /// Create a file that no name leads to; `Finished` follows.
    Create {
        /// The operation.
        operation: OperationId,
        /// Its number.
        file: FileId,
    },
    /// Append; `Finished` follows.
    Append {
        /// The operation.
        operation: OperationId,
        /// Where.
        file: FileId,
        /// The bytes.
        bytes: Bytes,
    },
    /// Read on from the start; `ChunkRead` follows.
    Read {
        /// The operation.
        operation: OperationId,
        /// Where.
        file: FileId,
        /// At most so many bytes.
        max_bytes: usize,
    },
    /// Close and so remove the file. No completion.
    Remove {
        /// Which.
        file: FileId,
    },
}
