//! What the LFS path wants done.

use std::time::Duration;

use bytes::Bytes;

use crate::cluster::{Address, Question};
use crate::effect::ResponseBody;
use crate::input::{BrokerConnectionId, ExchangeId, FileId};
use crate::operation::OperationId;
use crate::s3;

use super::checksum::Digests;
use super::purpose::Purpose;

/// Turned into effects by [`crate::Proxy`].
#[derive(Debug)]
pub(crate) enum Decision {
    /// Read the next piece of a request body.
    ReadBody { exchange: ExchangeId, max_bytes: usize },
    /// End an open read: it completes as broken.
    CancelRead { exchange: ExchangeId },
    /// Answer.
    Respond { exchange: ExchangeId, head: Box<http::response::Parts>, body: ResponseBody },
    /// The next bytes of a streamed answer.
    SendChunk { exchange: ExchangeId, bytes: Bytes },
    /// Break the connection: no honest answer is possible any more.
    Abort { exchange: ExchangeId },
    /// An S3 request, given up after `deadline`.
    S3 { purpose: Purpose, request: s3::Request, deadline: Duration },
    /// Hash these bytes elsewhere; the digests come back to the exchange.
    Hash { exchange: ExchangeId, digests: Box<Digests>, pieces: Vec<Bytes> },
    /// Read the next piece of an opened object.
    ReadObject { exchange: ExchangeId, object: OperationId, max_bytes: usize },
    /// Give an opened object up.
    ReleaseObject { object: OperationId },
    /// Create a temporary file.
    CreateFile { exchange: ExchangeId, file: FileId },
    /// Append to a temporary file.
    AppendFile { exchange: ExchangeId, file: FileId, bytes: Bytes },
    /// Read a temporary file on.
    ReadFile { exchange: ExchangeId, file: FileId, max_bytes: usize },
    /// Remove a temporary file.
    RemoveFile { file: FileId },
    /// Open a connection to a broker.
    Connect { connection: BrokerConnectionId, address: Address },
    /// Write to a broker.
    WriteBroker { connection: BrokerConnectionId, bytes: Bytes },
    /// Close a connection to a broker.
    CloseBroker { connection: BrokerConnectionId },
    /// Ask the cluster; the answer comes to the exchange.
    Ask { question: Question, exchange: ExchangeId },
    /// The exchange takes no answers any more.
    ForgetWaiter { exchange: ExchangeId },
    /// The broker that was thought to own the partition does not.
    ForgetPartitionOwner { topic: String, partition: i32, by: Address },
}
