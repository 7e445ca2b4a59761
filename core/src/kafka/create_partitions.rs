//! CreatePartitions (key 37).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// CreatePartitions request.
    pub struct CreatePartitionsRequest for CreatePartitions {
        /// Topics to widen.
        topics: Vec<CreatePartitionsTopic> [0..],
        /// How long a broker may wait, milliseconds.
        timeout_ms: i32 [0..],
        /// Whether only to check.
        validate_only: bool [0..],
    }
}

message! {
    /// One topic of a CreatePartitions request.
    pub struct CreatePartitionsTopic {
        /// Topic name.
        name: Str [0..],
        /// Partitions it shall have.
        count: i32 [0..],
        /// Where the new ones go; null leaves it to the broker.
        assignments: Option<Vec<CreatePartitionsAssignment>> [0.., nullable 0..],
    }
}

message! {
    /// The replicas of one new partition.
    pub struct CreatePartitionsAssignment {
        /// Broker ids.
        broker_ids: Vec<i32> [0..],
    }
}

message! {
    /// CreatePartitions response.
    pub struct CreatePartitionsResponse for CreatePartitions {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [0..],
        /// One answer per topic.
        results: Vec<CreatePartitionsTopicResult> [0..],
    }
}

message! {
    /// One topic of a CreatePartitions response.
    pub struct CreatePartitionsTopicResult {
        /// Topic name.
        name: Str [0..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// The error in words.
        error_message: Option<Str> [0.., nullable 0..],
    }
}

impl Request for CreatePartitionsRequest {
    type Response = CreatePartitionsResponse;
}
