//! The Kafka wire format: frames, headers, the API table and one codec per message.
//!
//! Layouts follow the public Kafka protocol guide. A message is described once, with the versions of each field
//! ([`Message`]); reading and writing both follow from that description, for requests and responses alike, so that the
//! proxy, its broker model and its clients share them. Nothing here decides anything.
//!
//! What comes from a peer is never trusted: lengths reserve no memory, and every malformed frame is a [`DecodeError`].

mod alter_configs;
mod api;
mod api_versions;
mod create_partitions;
mod create_topics;
mod decode;
mod delete_groups;
mod delete_topics;
mod describe_configs;
mod describe_groups;
mod error_code;
mod fetch;
mod fetch_patch;
mod find_coordinator;
mod frame;
mod header;
mod heartbeat;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod message;
mod metadata;
mod offset_commit;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod produce_scan;
mod record_batch;
mod refusal;
mod sasl_authenticate;
mod sasl_handshake;
mod scan;
mod string;
mod sync_group;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod wire;

pub use alter_configs::{
    AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse, AlterableConfig,
};
pub(crate) use api::spoken;
pub use api::{ApiKey, VersionRange, advertised, advertised_versions};
pub use api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
pub use create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreatePartitionsTopicResult,
};
pub use create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreatableTopicConfigs, CreatableTopicResult,
    CreateTopicsRequest, CreateTopicsResponse,
};
pub use decode::{DecodeError, MAX_ELEMENTS};
pub use delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};
pub use delete_topics::{DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
pub use describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
pub use describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember};
pub use error_code::ErrorCode;
pub use fetch::{
    AbortedTransaction, EpochEndOffset, FetchPartition, FetchRequest, FetchResponse, FetchTopic,
    FetchableTopicResponse, ForgottenTopic, LeaderIdAndEpoch, PartitionData, SnapshotId,
};
pub use fetch_patch::{
    FetchAnswer, FetchHead, FetchedData, FetchedPartition, TopicRef, patch_fetch_request, patch_fetch_response,
    scan_fetch_request,
};
pub use find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
pub(crate) use frame::payload;
pub use frame::{FrameError, LooksLike, Splitter};
pub use header::{FrameTooLong, RequestHeader, ResponseHeader, merged_response_frame, request_frame, response_frame};
pub use heartbeat::{HeartbeatRequest, HeartbeatResponse};
pub use init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
pub use join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember};
pub use leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse};
pub use list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};
pub use list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
    ListOffsetsTopicResponse,
};
pub use message::{Message, Request};
pub use metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
pub use offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
pub use offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse, OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
};
pub use offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult, OffsetForLeaderTopic, OffsetForLeaderTopicResult,
};
pub use produce::{
    BatchIndexAndErrorMessage, PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceData, TopicProduceResponse,
};
pub use produce_scan::{ProduceAnswer, ProduceHead, ProducedPartition, scan_produce_request, scan_produce_response};
pub use record_batch::{
    Attributes, BatchHeader, Compression, Record, RecordBatch, RecordHeader, assign_offsets, batches, build_batch,
    records, seal_batch,
};
pub(crate) use refusal::{Refuse, refused};
pub use sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
pub use sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
pub use string::Str;
pub use sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
