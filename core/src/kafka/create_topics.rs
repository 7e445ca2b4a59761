//! CreateTopics (key 19).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// CreateTopics request.
    pub struct CreateTopicsRequest for CreateTopics {
        /// Topics to create.
        topics: Vec<CreatableTopic> [0..],
        /// How long a broker may wait, milliseconds.
        timeout_ms: i32 [0.., default 60_000],
        /// Whether only to check.
        validate_only: bool [1..],
    }
}

message! {
    /// One topic of a CreateTopics request.
    pub struct CreatableTopic {
        /// Topic name.
        name: Str [0..],
        /// Number of partitions, -1 for the default or with `assignments`.
        num_partitions: i32 [0..],
        /// Replicas of each, -1 for the default or with `assignments`.
        replication_factor: i16 [0..],
        /// Where the partitions go; empty leaves it to the broker.
        assignments: Vec<CreatableReplicaAssignment> [0..],
        /// Settings of the topic.
        configs: Vec<CreatableTopicConfig> [0..],
    }
}

message! {
    /// The replicas of one partition.
    pub struct CreatableReplicaAssignment {
        /// Partition index.
        partition_index: i32 [0..],
        /// Broker ids.
        broker_ids: Vec<i32> [0..],
    }
}

message! {
    /// One setting of a new topic.
    pub struct CreatableTopicConfig {
        /// Its name.
        name: Str [0..],
        /// Its value.
        value: Option<Str> [0.., nullable 0..],
    }
}

message! {
    /// CreateTopics response.
    pub struct CreateTopicsResponse for CreateTopics {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [2..],
        /// One answer per topic.
        topics: Vec<CreatableTopicResult> [0..],
    }
}

message! {
    /// One topic of a CreateTopics response.
    pub struct CreatableTopicResult {
        /// Topic name.
        name: Str [0..],
        /// Topic id.
        topic_id: [u8; 16] [7..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// The error in words.
        error_message: Option<Str> [1.., nullable 1..],
        /// Why `configs` is missing.
        topic_config_error_code: Option<ErrorCode> [tag 0, 5..],
        /// Number of partitions, -1 if not known.
        num_partitions: i32 [5.., default -1],
        /// Replicas of each, -1 if not known.
        replication_factor: i16 [5.., default -1],
        /// Settings of the topic.
        configs: Option<Vec<CreatableTopicConfigs>> [5.., nullable 5..],
    }
}

message! {
    /// One setting of the topic as created.
    pub struct CreatableTopicConfigs {
        /// Its name.
        name: Str [5..],
        /// Its value.
        value: Option<Str> [5.., nullable 5..],
        /// Whether it cannot be changed.
        read_only: bool [5..],
        /// Where it was set, as in DescribeConfigs.
        config_source: i8 [5.., default -1],
        /// Whether its value is a secret.
        is_sensitive: bool [5..],
    }
}

impl Request for CreateTopicsRequest {
    type Response = CreateTopicsResponse;
}
