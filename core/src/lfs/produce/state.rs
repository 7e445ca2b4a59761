//! The states of one `POST /lfs/produce`, and the moves between them.

use bytes::Bytes;

use crate::cluster::TopicGeneration;
use crate::http::error_body::ApiError;
use crate::lfs::broker_choice::Asked;
use crate::lfs::publish::Publish;
use crate::lfs::reach::{Partition, Reach};
use crate::lfs::upload::{Stored, Upload};
use crate::lifecycle::Lifecycle;

/// What it does now.
#[derive(Debug)]
pub(super) enum State {
    /// The topic's identity is being read.
    ReadingGeneration,
    /// The cluster state is being read, for it was stale or lacks the partition; each is asked for once.
    Refreshing { before: TopicGeneration, asked: Asked },
    /// A broker is being connected.
    Reaching { before: TopicGeneration, partition: Partition, reach: Reach },
    /// The first share of memory is not free yet.
    AwaitingMemory { before: TopicGeneration, partition: Partition },
    /// The body streams into S3.
    Uploading { before: TopicGeneration, partition: Partition, upload: Upload },
    /// The blob is stored; the topic's identity is being read again.
    CheckingGeneration { before: TopicGeneration, partition: Partition, stored: Stored },
    /// The record is being published.
    Publishing { stored: Stored, envelope: Bytes, publish: Publish },
    /// The upload was given up, the client has its answer; what is in flight ends.
    Stopping { upload: Upload },
    /// The blob is being removed; this is the answer then.
    Removing { error: Option<ApiError> },
    /// Nothing is left to do.
    Over,
}

/// Its moves, in order.
pub(crate) const LIFECYCLE: Lifecycle = Lifecycle {
    name: "POST /lfs/produce",
    file: "core/src/lfs/produce/state.rs",
    start: "ReadingGeneration",
    moves: &[
        ("ReadingGeneration", "Refreshing", "read, but the cluster state is stale or lacks the partition"),
        ("Refreshing", "ReadingGeneration", "the cluster state is fresh"),
        ("ReadingGeneration", "Reaching", "read"),
        ("Refreshing", "Reaching", "the cluster state is fresh"),
        ("Reaching", "AwaitingMemory", "connected, no memory is free"),
        ("Reaching", "Uploading", "connected"),
        ("AwaitingMemory", "Uploading", "memory is free"),
        ("Uploading", "CheckingGeneration", "the blob is stored"),
        ("Uploading", "Stopping", "the body or S3 failed, or the client has gone"),
        ("Uploading", "Over", "the process ends"),
        ("CheckingGeneration", "Publishing", "the topic is the same"),
        ("Publishing", "Over", "acknowledged, refused, or in doubt"),
        ("ReadingGeneration", "Over", "unreadable, refused, or the client has gone"),
        ("Refreshing", "Over", "still stale, or the client has gone"),
        ("Reaching", "Over", "no broker, or the client has gone"),
        ("AwaitingMemory", "Over", "no memory in time, or the client has gone"),
        ("CheckingGeneration", "Over", "unreadable, another topic, or the client has gone"),
        ("Stopping", "Over", "nothing of it is in flight any more"),
        ("Over", "Removing", "the blob goes first: no record can refer to it"),
        ("Removing", "Over", "the first try to remove it has ended"),
    ],
};

impl State {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::ReadingGeneration => "ReadingGeneration",
            Self::Refreshing { .. } => "Refreshing",
            Self::Reaching { .. } => "Reaching",
            Self::AwaitingMemory { .. } => "AwaitingMemory",
            Self::Uploading { .. } => "Uploading",
            Self::CheckingGeneration { .. } => "CheckingGeneration",
            Self::Publishing { .. } => "Publishing",
            Self::Stopping { .. } => "Stopping",
            Self::Removing { .. } => "Removing",
            Self::Over => "Over",
        }
    }
}
