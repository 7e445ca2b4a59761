//! Where the knowledge comes from: orders to etcd, one machine per [`Source`](super::Source).
//!
//! Each source is read, then watched from the revision after the read, so that nothing falls into a gap between the
//! two. At most one read of a source is under way.

mod leases;
mod pages;
mod snapshot;

use std::time::Duration;

pub(super) use leases::LeaseReader;
pub(super) use pages::{Page, Pages};
pub(super) use snapshot::{KEY as SNAPSHOT_KEY, SnapshotReader, SnapshotStep};

use super::freshness::Moment;
use super::{Decision, Read, Source};
use crate::etcd::{self, Keys, RangeRequest, RangeResponse, Refusal, Revision, WatchRequest};
use crate::operation::Outcome;
use crate::planted::{Bug, planted};
use crate::time::Monotonic;

/// How often each source is read or proven again.
const CYCLE: Duration = Duration::from_secs(10);

/// Wait after a failed read, a lost watch, or a proof that did not hold.
const RETRY: Duration = Duration::from_secs(1);

/// When a read is given up, except that of a single lease.
pub(super) const READ_DEADLINE: Duration = Duration::from_secs(5);

/// When the read of a single lease is given up: a client waits for it with a request that was refused once.
pub(super) const LEASE_READ_DEADLINE: Duration = Duration::from_secs(2);

/// How far a read of a source has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More is to come.
    Pending,
    /// The knowledge is proven for the moment of the read's order.
    Proven,
    /// The read failed. The text is for logs.
    Failed(String),
}

/// The watch of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    /// None is open.
    Down,
    /// Ordered. Whether it reaches the store that was read is not known, or it does not.
    Ordered,
    /// It stands, in a store that has all that was read before.
    Up,
    /// Told to end; what it still tells is ignored.
    Ending,
}

/// When the source is to be looked at again; `None` while a read is under way.
type Due = Option<Monotonic>;

fn start_watch(source: Source, keys: Keys, start_revision: Revision, out: &mut Vec<Decision>) -> Watch {
    let start_revision = if planted(Bug::WatchFromNow) { 0 } else { start_revision };
    out.push(Decision::Watch { source, request: WatchRequest { keys, start_revision } });
    Watch::Ordered
}

fn order_range(read: Read, request: RangeRequest, out: &mut Vec<Decision>) {
    out.push(Decision::Request { read, request: etcd::Request::Range(request), deadline: READ_DEADLINE });
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// The revision that was asked for is gone.
    Compacted,
    /// Anything else. The text is for logs.
    Failed(String),
}

impl ReadError {
    pub(super) fn text(self) -> String {
        match self {
            Self::Compacted => "the revision was compacted".into(),
            Self::Failed(text) => text,
        }
    }
}

/// The answer to a read. A read changes nothing, so a refused one and one without an answer are the same here.
fn response(outcome: Outcome<etcd::Response, Refusal>) -> Result<etcd::Response, ReadError> {
    match outcome {
        Outcome::Applied(response) => Ok(response),
        Outcome::NotApplied(Refusal::Compacted(_)) => Err(ReadError::Compacted),
        Outcome::NotApplied(Refusal::Unreachable(text)) => Err(ReadError::Failed(format!("unreachable: {text}"))),
        Outcome::NotApplied(Refusal::PermissionDenied(text)) => {
            Err(ReadError::Failed(format!("permission denied: {text}")))
        }
        Outcome::NotApplied(Refusal::Other(text)) => Err(ReadError::Failed(format!("refused: {text}"))),
        Outcome::Unknown(text) => Err(ReadError::Failed(format!("no answer: {text}"))),
    }
}

/// The answer to a range read.
pub(super) fn range_response(outcome: Outcome<etcd::Response, Refusal>) -> Result<RangeResponse, ReadError> {
    match response(outcome)? {
        etcd::Response::Range(range) => Ok(range),
        etcd::Response::Txn(_)
        | etcd::Response::LeaseGranted { .. }
        | etcd::Response::LeaseKeptAlive { .. }
        | etcd::Response::LeaseRevoked => Err(ReadError::Failed("an answer of another kind".into())),
    }
}

/// The answer to a transaction.
pub(super) fn txn_response(outcome: Outcome<etcd::Response, Refusal>) -> Result<etcd::TxnResponse, ReadError> {
    match response(outcome)? {
        etcd::Response::Txn(txn) => Ok(txn),
        etcd::Response::Range(_)
        | etcd::Response::LeaseGranted { .. }
        | etcd::Response::LeaseKeptAlive { .. }
        | etcd::Response::LeaseRevoked => Err(ReadError::Failed("an answer of another kind".into())),
    }
}
