//! Fetch (key 1).

use bytes::Bytes;

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// Fetch request.
    pub struct FetchRequest for Fetch {
        /// Broker id of a follower, -1 for a consumer.
        replica_id: i32 [0.., default -1],
        /// Longest wait for `min_bytes`, milliseconds.
        max_wait_ms: i32 [0..],
        /// Bytes to wait for.
        min_bytes: i32 [0..],
        /// Most bytes of the whole answer; a first batch may exceed it.
        max_bytes: i32 [3.., default i32::MAX],
        /// 0 reads everything, 1 only what is committed.
        isolation_level: i8 [4..],
        /// Fetch session, 0 for none.
        session_id: i32 [7..],
        /// Its epoch, -1 for none.
        session_epoch: i32 [7.., default -1],
        /// Topics to read from.
        topics: Vec<FetchTopic> [0..],
        /// Partitions that leave the session.
        forgotten_topics_data: Vec<ForgottenTopic> [7..],
        /// Rack of the consumer, may be empty.
        rack_id: Str [11..],
        /// Cluster that a controller quorum wants to talk to.
        cluster_id: Option<Str> [tag 0, 12..],
    }
}

message! {
    /// One topic of a Fetch request.
    pub struct FetchTopic {
        /// Topic name.
        topic: Str [0..=12],
        /// Topic id.
        topic_id: [u8; 16] [13..],
        /// Partitions to read.
        partitions: Vec<FetchPartition> [0..],
    }
}

message! {
    /// One partition of a Fetch request.
    pub struct FetchPartition {
        /// Partition index.
        partition: i32 [0..],
        /// Leader epoch that the client knows, -1 for none.
        current_leader_epoch: i32 [9.., default -1],
        /// First offset wanted.
        fetch_offset: i64 [0..],
        /// Epoch of the last record that the client has, -1 for none.
        last_fetched_epoch: i32 [12.., default -1],
        /// First offset of a follower's log, -1 for a consumer.
        log_start_offset: i64 [5.., default -1],
        /// Most bytes of this partition; a first batch may exceed it.
        partition_max_bytes: i32 [0..],
    }
}

message! {
    /// Partitions of one topic that leave the session.
    pub struct ForgottenTopic {
        /// Topic name.
        topic: Str [7..=12],
        /// Topic id.
        topic_id: [u8; 16] [13..],
        /// Partition indexes.
        partitions: Vec<i32> [7..],
    }
}

message! {
    /// Fetch response.
    pub struct FetchResponse for Fetch {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
        /// Error of the whole request, or none.
        error_code: ErrorCode [7..],
        /// Fetch session, 0 for none.
        session_id: i32 [7..],
        /// One answer per topic.
        responses: Vec<FetchableTopicResponse> [0..],
    }
}

message! {
    /// One topic of a Fetch response.
    pub struct FetchableTopicResponse {
        /// Topic name.
        topic: Str [0..=12],
        /// Topic id.
        topic_id: [u8; 16] [13..],
        /// One answer per partition.
        partitions: Vec<PartitionData> [0..],
    }
}

message! {
    /// One partition of a Fetch response.
    pub struct PartitionData {
        /// Partition index.
        partition_index: i32 [0..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Offset after the last one that is fully replicated.
        high_watermark: i64 [0..],
        /// Offset below which all transactions are decided.
        last_stable_offset: i64 [4.., default -1],
        /// First offset of the log.
        log_start_offset: i64 [5.., default -1],
        /// Where the logs of client and leader part.
        diverging_epoch: Option<EpochEndOffset> [tag 0, 12..],
        /// The leader, where it is another broker. Names a broker that clients of the proxy must not know.
        current_leader: Option<LeaderIdAndEpoch> [tag 1, 12..],
        /// Snapshot to fetch instead.
        snapshot_id: Option<SnapshotId> [tag 2, 12..],
        /// Transactions among the records that were aborted; null when everything may be read.
        aborted_transactions: Option<Vec<AbortedTransaction>> [4.., nullable 4..],
        /// Broker id of a nearer replica, -1 for none.
        preferred_read_replica: i32 [11.., default -1],
        /// Record set, as it stands in the frame. Clients of the proxy get an empty one, never null.
        records: Option<Bytes> [0.., nullable 0..],
    }
}

message! {
    /// Where the logs of client and leader part.
    pub struct EpochEndOffset {
        /// Last common epoch.
        epoch: i32 [0.., default -1],
        /// Its end.
        end_offset: i64 [0.., default -1],
    }
}

message! {
    /// A partition leader.
    pub struct LeaderIdAndEpoch {
        /// Broker id, -1 if not known.
        leader_id: i32 [0.., default -1],
        /// Its epoch, -1 if not known.
        leader_epoch: i32 [0.., default -1],
    }
}

message! {
    /// A snapshot of a controller quorum.
    pub struct SnapshotId {
        /// Offset after its last record.
        end_offset: i64 [0.., default -1],
        /// Epoch of its last record.
        epoch: i32 [0.., default -1],
    }
}

message! {
    /// A transaction that was aborted.
    pub struct AbortedTransaction {
        /// Producer id.
        producer_id: i64 [0..],
        /// First offset of the transaction.
        first_offset: i64 [0..],
    }
}

impl Request for FetchRequest {
    type Response = FetchResponse;
}

impl PartitionData {
    /// A partition without records and without anything known of it: its broker has not answered in time.
    pub(crate) fn nothing(partition_index: i32) -> Self {
        Self {
            partition_index,
            high_watermark: -1,
            aborted_transactions: None,
            records: Some(Bytes::new()),
            ..Self::default()
        }
    }

    /// A partition that failed.
    pub(crate) fn failed(partition_index: i32, error_code: ErrorCode) -> Self {
        Self { error_code, ..Self::nothing(partition_index) }
    }
}
