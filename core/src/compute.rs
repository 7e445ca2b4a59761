//! Work that would take too long inside a call.
//!
//! A [`Job`] is pure: the production runtime runs it on a worker thread, the world runs it inline and
//! draws a delay. It takes its operation along and gives it to its result, so that no result can be told for another job.

use bytes::Bytes;

use crate::cluster::snapshot::{Snapshot, SnapshotError};
use crate::lfs::checksum::Digests;
use crate::operation::OperationId;

/// What to compute.
#[derive(Debug)]
pub struct Job {
    operation: OperationId,
    work: Work,
}

#[derive(Debug)]
pub(crate) enum Work {
    /// A cluster snapshot of many kilobytes.
    ParseSnapshot(Bytes),
    /// The next bytes of a blob, in order.
    Hash { digests: Box<Digests>, pieces: Vec<Bytes> },
}

/// The result of a [`Job`].
#[derive(Debug)]
pub struct Computed {
    pub(crate) operation: OperationId,
    pub(crate) done: Done,
}

#[derive(Debug)]
pub(crate) enum Done {
    Snapshot(Box<Result<Snapshot, SnapshotError>>),
    Hashed(Box<Digests>),
}

impl Job {
    pub(crate) const fn new(operation: OperationId, work: Work) -> Self {
        Self { operation, work }
    }

    /// Does the work. What it was done with is given back before the result is there.
    pub fn run(self) -> Computed {
        let done = match self.work {
            Work::ParseSnapshot(value) => Done::Snapshot(Box::new(Snapshot::parse(&value))),
            Work::Hash { mut digests, pieces } => {
                for piece in pieces {
                    digests.update(&piece);
                }
                Done::Hashed(digests)
            }
        };
        Computed { operation: self.operation, done }
    }
}
