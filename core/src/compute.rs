//! Work that would take too long inside a call.
//!
//! A [`Job`] is pure: the production runtime runs it on a worker thread, the world runs it inline and
//! draws a delay.

use bytes::Bytes;

use crate::cluster::snapshot::{Snapshot, SnapshotError};

/// What to compute.
#[derive(Debug)]
pub struct Job(pub(crate) Work);

#[derive(Debug)]
pub(crate) enum Work {
    /// A cluster snapshot of many kilobytes.
    ParseSnapshot(Bytes),
}

/// The result of a [`Job`].
#[derive(Debug)]
pub struct Computed(pub(crate) Done);

#[derive(Debug)]
pub(crate) enum Done {
    Snapshot(Result<Snapshot, SnapshotError>),
}

impl Job {
    /// Does the work.
    pub fn run(self) -> Computed {
        match self.0 {
            Work::ParseSnapshot(value) => Computed(Done::Snapshot(Snapshot::parse(&value))),
        }
    }
}
