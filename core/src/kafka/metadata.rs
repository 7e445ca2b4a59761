//! Metadata (key 3).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// Metadata request.
    pub struct MetadataRequest for Metadata {
        /// Topics asked for. All of them: null, in version 0 an empty array.
        topics: Option<Vec<MetadataRequestTopic>> [0.., nullable 1..],
        /// Whether unknown topics may be created.
        allow_auto_topic_creation: bool [4.., default true],
        /// Asks for the operations allowed on the cluster.
        include_cluster_authorized_operations: bool [8..=10],
        /// Asks for the operations allowed on each topic.
        include_topic_authorized_operations: bool [8..],
    }
}

message! {
    /// One topic of a Metadata request.
    pub struct MetadataRequestTopic {
        /// Topic id, zero if asked for by name.
        topic_id: [u8; 16] [10..],
        /// Topic name, null if asked for by id.
        name: Option<Str> [0.., nullable 10..],
    }
}

message! {
    /// Metadata response.
    pub struct MetadataResponse for Metadata {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [3..],
        /// The brokers of the cluster.
        brokers: Vec<MetadataResponseBroker> [0..],
        /// Cluster id, if there is one.
        cluster_id: Option<Str> [2.., nullable 2..],
        /// Broker id of the controller, -1 if not known.
        controller_id: i32 [1.., default -1],
        /// One answer per topic.
        topics: Vec<MetadataResponseTopic> [0..],
        /// Operations that the client may do, as bits; `i32::MIN` if not asked for.
        cluster_authorized_operations: i32 [8..=10, default i32::MIN],
    }
}

message! {
    /// One broker of a Metadata response.
    pub struct MetadataResponseBroker {
        /// Broker id.
        node_id: i32 [0..],
        /// Host.
        host: Str [0..],
        /// Port.
        port: i32 [0..],
        /// Rack, if it has one.
        rack: Option<Str> [1.., nullable 1..],
    }
}

message! {
    /// One topic of a Metadata response.
    pub struct MetadataResponseTopic {
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Topic name, null for an unknown id.
        name: Option<Str> [0.., nullable 12..],
        /// Topic id.
        topic_id: [u8; 16] [10..],
        /// Whether the cluster keeps its own state in it.
        is_internal: bool [1..],
        /// Its partitions.
        partitions: Vec<MetadataResponsePartition> [0..],
        /// Operations that the client may do, as bits; `i32::MIN` if not asked for.
        topic_authorized_operations: i32 [8.., default i32::MIN],
    }
}

message! {
    /// One partition of a Metadata response.
    pub struct MetadataResponsePartition {
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Partition index.
        partition_index: i32 [0..],
        /// Broker id of the leader, -1 for none.
        leader_id: i32 [0..],
        /// Epoch of the leader, -1 if not known.
        leader_epoch: i32 [7.., default -1],
        /// Broker ids of all replicas.
        replica_nodes: Vec<i32> [0..],
        /// Broker ids of those in sync.
        isr_nodes: Vec<i32> [0..],
        /// Broker ids of those that are down.
        offline_replicas: Vec<i32> [5..],
    }
}

impl Request for MetadataRequest {
    type Response = MetadataResponse;
}
