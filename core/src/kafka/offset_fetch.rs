//! OffsetFetch (key 9).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// OffsetFetch request.
    pub struct OffsetFetchRequest for OffsetFetch {
        /// Group id.
        group_id: Str [0..],
        /// Topics asked for; null for all that have commits.
        topics: Option<Vec<OffsetFetchRequestTopic>> [0.., nullable 2..],
        /// Whether open transactions hold the answer back.
        require_stable: bool [7..],
    }
}

message! {
    /// One topic of an OffsetFetch request.
    pub struct OffsetFetchRequestTopic {
        /// Topic name.
        name: Str [0..],
        /// Partitions asked for.
        partition_indexes: Vec<i32> [0..],
    }
}

message! {
    /// OffsetFetch response.
    pub struct OffsetFetchResponse for OffsetFetch {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [3..],
        /// One answer per topic.
        topics: Vec<OffsetFetchResponseTopic> [0..],
        /// Error of the whole request, or none.
        error_code: ErrorCode [2..],
    }
}

message! {
    /// One topic of an OffsetFetch response.
    pub struct OffsetFetchResponseTopic {
        /// Topic name.
        name: Str [0..],
        /// One answer per partition.
        partitions: Vec<OffsetFetchResponsePartition> [0..],
    }
}

message! {
    /// One partition of an OffsetFetch response.
    pub struct OffsetFetchResponsePartition {
        /// Partition index.
        partition_index: i32 [0..],
        /// Offset of the next record to read, -1 if nothing was committed.
        committed_offset: i64 [0..],
        /// Epoch of the last record read, -1 if not known.
        committed_leader_epoch: i32 [5.., default -1],
        /// Words of the client's own.
        metadata: Option<Str> [0.., nullable 0..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
    }
}

impl Request for OffsetFetchRequest {
    type Response = OffsetFetchResponse;
}
