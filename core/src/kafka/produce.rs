//! Produce (key 0).

use bytes::Bytes;

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// Produce request.
    pub struct ProduceRequest for Produce {
        /// Transactional id, or null if the producer is not transactional.
        transactional_id: Option<Str> [3.., nullable 3..],
        /// Acknowledgements wanted: 0 none at all, 1 of the leader, -1 of all in-sync replicas.
        acks: i16 [0..],
        /// How long a broker may wait for the acknowledgements, milliseconds.
        timeout_ms: i32 [0..],
        /// Topics to write to.
        topic_data: Vec<TopicProduceData> [0..],
    }
}

message! {
    /// One topic of a Produce request.
    pub struct TopicProduceData {
        /// Topic name.
        name: Str [0..],
        /// Partitions to write to.
        partition_data: Vec<PartitionProduceData> [0..],
    }
}

message! {
    /// One partition of a Produce request.
    pub struct PartitionProduceData {
        /// Partition index.
        index: i32 [0..],
        /// Record set, as it stands in the frame.
        records: Option<Bytes> [0.., nullable 0..],
    }
}

message! {
    /// Produce response.
    pub struct ProduceResponse for Produce {
        /// One answer per topic.
        responses: Vec<TopicProduceResponse> [0..],
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
    }
}

message! {
    /// One topic of a Produce response.
    pub struct TopicProduceResponse {
        /// Topic name.
        name: Str [0..],
        /// One answer per partition.
        partition_responses: Vec<PartitionProduceResponse> [0..],
    }
}

message! {
    /// One partition of a Produce response.
    pub struct PartitionProduceResponse {
        /// Partition index.
        index: i32 [0..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Offset of the first record written.
        base_offset: i64 [0..],
        /// Broker time of the append, Unix milliseconds; -1 unless the topic uses LogAppendTime.
        log_append_time_ms: i64 [2.., default -1],
        /// First offset of the log.
        log_start_offset: i64 [5.., default -1],
        /// Records that made the batch fail.
        record_errors: Vec<BatchIndexAndErrorMessage> [8..],
        /// What they have in common, in words.
        error_message: Option<Str> [8.., nullable 8..],
    }
}

message! {
    /// One record that made its batch fail.
    pub struct BatchIndexAndErrorMessage {
        /// Index of the record in its batch.
        batch_index: i32 [8..],
        /// Why, in words.
        batch_index_error_message: Option<Str> [8.., nullable 8..],
    }
}

impl Request for ProduceRequest {
    type Response = ProduceResponse;
}
