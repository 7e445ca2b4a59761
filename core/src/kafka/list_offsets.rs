//! ListOffsets (key 2).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// ListOffsets request.
    pub struct ListOffsetsRequest for ListOffsets {
        /// Broker id of a follower, -1 for a consumer.
        replica_id: i32 [0.., default -1],
        /// 0 reads everything, 1 only what is committed.
        isolation_level: i8 [2..],
        /// Topics asked for.
        topics: Vec<ListOffsetsTopic> [0..],
    }
}

message! {
    /// One topic of a ListOffsets request.
    pub struct ListOffsetsTopic {
        /// Topic name.
        name: Str [0..],
        /// Partitions asked for.
        partitions: Vec<ListOffsetsPartition> [0..],
    }
}

message! {
    /// One partition of a ListOffsets request.
    pub struct ListOffsetsPartition {
        /// Partition index.
        partition_index: i32 [0..],
        /// Leader epoch that the client knows, -1 for none.
        current_leader_epoch: i32 [4.., default -1],
        /// First offset at or after this Unix time in milliseconds; -1 the end of the log, -2 its start.
        timestamp: i64 [0..],
        /// Most offsets wanted.
        max_num_offsets: i32 [0..=0, default 1],
    }
}

message! {
    /// ListOffsets response.
    pub struct ListOffsetsResponse for ListOffsets {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [2..],
        /// One answer per topic.
        topics: Vec<ListOffsetsTopicResponse> [0..],
    }
}

message! {
    /// One topic of a ListOffsets response.
    pub struct ListOffsetsTopicResponse {
        /// Topic name.
        name: Str [0..],
        /// One answer per partition.
        partitions: Vec<ListOffsetsPartitionResponse> [0..],
    }
}

message! {
    /// One partition of a ListOffsets response.
    pub struct ListOffsetsPartitionResponse {
        /// Partition index.
        partition_index: i32 [0..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Offsets found, newest first.
        old_style_offsets: Vec<i64> [0..=0],
        /// Timestamp of the record found, -1 if not known.
        timestamp: i64 [1.., default -1],
        /// Offset found, -1 for none.
        offset: i64 [1.., default -1],
        /// Epoch of the record found, -1 if not known.
        leader_epoch: i32 [4.., default -1],
    }
}

impl Request for ListOffsetsRequest {
    type Response = ListOffsetsResponse;
}
