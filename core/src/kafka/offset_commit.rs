//! OffsetCommit (key 8).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// OffsetCommit request.
    pub struct OffsetCommitRequest for OffsetCommit {
        /// Group id.
        group_id: Str [0..],
        /// Generation of the group, -1 outside of a group protocol.
        generation_id: i32 [1.., default -1],
        /// Member id, empty before the coordinator has given one.
        member_id: Str [1..],
        /// Group instance id of a static member (KIP-345).
        group_instance_id: Option<Str> [7.., nullable 7..],
        /// How long to keep the offsets, milliseconds; -1 as the broker is set.
        retention_time_ms: i64 [2..=4, default -1],
        /// Topics to commit.
        topics: Vec<OffsetCommitRequestTopic> [0..],
    }
}

message! {
    /// One topic of an OffsetCommit request.
    pub struct OffsetCommitRequestTopic {
        /// Topic name.
        name: Str [0..],
        /// Partitions to commit.
        partitions: Vec<OffsetCommitRequestPartition> [0..],
    }
}

message! {
    /// One partition of an OffsetCommit request.
    pub struct OffsetCommitRequestPartition {
        /// Partition index.
        partition_index: i32 [0..],
        /// Offset of the next record to read.
        committed_offset: i64 [0..],
        /// Epoch of the last record read, -1 if not known.
        committed_leader_epoch: i32 [6.., default -1],
        /// Time of the commit, Unix milliseconds; -1 when it arrives.
        commit_timestamp: i64 [1..=1, default -1],
        /// Words of the client's own.
        committed_metadata: Option<Str> [0.., nullable 0..],
    }
}

message! {
    /// OffsetCommit response.
    pub struct OffsetCommitResponse for OffsetCommit {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [3..],
        /// One answer per topic.
        topics: Vec<OffsetCommitResponseTopic> [0..],
    }
}

message! {
    /// One topic of an OffsetCommit response.
    pub struct OffsetCommitResponseTopic {
        /// Topic name.
        name: Str [0..],
        /// One answer per partition.
        partitions: Vec<OffsetCommitResponsePartition> [0..],
    }
}

message! {
    /// One partition of an OffsetCommit response.
    pub struct OffsetCommitResponsePartition {
        /// Partition index.
        partition_index: i32 [0..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
    }
}

impl Request for OffsetCommitRequest {
    type Response = OffsetCommitResponse;
}
