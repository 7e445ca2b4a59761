//! OffsetForLeaderEpoch (key 23).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// OffsetForLeaderEpoch request.
    pub struct OffsetForLeaderEpochRequest for OffsetForLeaderEpoch {
        /// Broker id of a follower, -1 for a consumer.
        replica_id: i32 [3.., default -1],
        /// Topics asked for.
        topics: Vec<OffsetForLeaderTopic> [0..],
    }
}

message! {
    /// One topic of an OffsetForLeaderEpoch request.
    pub struct OffsetForLeaderTopic {
        /// Topic name.
        topic: Str [0..],
        /// Partitions asked for.
        partitions: Vec<OffsetForLeaderPartition> [0..],
    }
}

message! {
    /// One partition of an OffsetForLeaderEpoch request.
    pub struct OffsetForLeaderPartition {
        /// Partition index.
        partition: i32 [0..],
        /// Leader epoch that the client knows, -1 for none.
        current_leader_epoch: i32 [2.., default -1],
        /// Epoch whose end is asked for.
        leader_epoch: i32 [0..],
    }
}

message! {
    /// OffsetForLeaderEpoch response.
    pub struct OffsetForLeaderEpochResponse for OffsetForLeaderEpoch {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [2..],
        /// One answer per topic.
        topics: Vec<OffsetForLeaderTopicResult> [0..],
    }
}

message! {
    /// One topic of an OffsetForLeaderEpoch response.
    pub struct OffsetForLeaderTopicResult {
        /// Topic name.
        topic: Str [0..],
        /// One answer per partition.
        partitions: Vec<OffsetForLeaderPartitionResult> [0..],
    }
}

message! {
    /// One partition of an OffsetForLeaderEpoch response.
    pub struct OffsetForLeaderPartitionResult {
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Partition index.
        partition: i32 [0..],
        /// Epoch that the answer is about, -1 if not known.
        leader_epoch: i32 [1.., default -1],
        /// Its end, -1 if not known.
        end_offset: i64 [0.., default -1],
    }
}

impl Request for OffsetForLeaderEpochRequest {
    type Response = OffsetForLeaderEpochResponse;
}
