//! Answers without a broker: one error code in every place where the layout of an API has one.

use bytes::Bytes;

use crate::kafka::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse, ApiKey, CreatableTopicResult,
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult, CreateTopicsRequest,
    CreateTopicsResponse, DeletableGroupResult, DeletableTopicResult, DeleteGroupsRequest, DeleteGroupsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult,
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, ErrorCode, FetchRequest, FetchResponse,
    FetchableTopicResponse, FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    InitProducerIdRequest, InitProducerIdResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, ListOffsetsPartitionResponse, ListOffsetsRequest,
    ListOffsetsResponse, ListOffsetsTopicResponse, OffsetCommitRequest, OffsetCommitResponse,
    OffsetCommitResponsePartition, OffsetCommitResponseTopic, OffsetFetchRequest, OffsetFetchResponse,
    OffsetFetchResponsePartition, OffsetFetchResponseTopic, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResult, OffsetForLeaderTopicResult, PartitionData, PartitionProduceResponse,
    ProduceRequest, ProduceResponse, Request, Str, SyncGroupRequest, SyncGroupResponse, TopicProduceResponse,
};
use crate::kafka::{Coordinator, MemberResponse, Message, response_frame};

/// A request that can be refused as a whole.
pub(crate) trait Refuse: Request {
    /// The response that carries `code` for everything that was asked, and nothing else.
    fn refusal(&self, code: ErrorCode) -> Self::Response;
}

/// The answer to a request of this API that refuses it as a whole; `None` when it does not decode, when the protocol
/// wants no answer to it (acks 0), or when it is one that the proxy answers without a look at the cluster.
pub(crate) fn refused(api: ApiKey, version: i16, correlation_id: i32, body: &Bytes, code: ErrorCode) -> Option<Bytes> {
    match api {
        ApiKey::Produce => {
            let request = ProduceRequest::decode_prefix(body, version).ok()?;
            (request.acks != 0).then(|| response_frame(correlation_id, version, &request.refusal(code)))
        }
        ApiKey::Fetch => refusal::<FetchRequest>(version, correlation_id, body, code),
        ApiKey::ListOffsets => refusal::<ListOffsetsRequest>(version, correlation_id, body, code),
        ApiKey::OffsetForLeaderEpoch => refusal::<OffsetForLeaderEpochRequest>(version, correlation_id, body, code),
        ApiKey::FindCoordinator => refusal::<FindCoordinatorRequest>(version, correlation_id, body, code),
        ApiKey::InitProducerId => refusal::<InitProducerIdRequest>(version, correlation_id, body, code),
        ApiKey::JoinGroup => refusal::<JoinGroupRequest>(version, correlation_id, body, code),
        ApiKey::SyncGroup => refusal::<SyncGroupRequest>(version, correlation_id, body, code),
        ApiKey::Heartbeat => refusal::<HeartbeatRequest>(version, correlation_id, body, code),
        ApiKey::LeaveGroup => refusal::<LeaveGroupRequest>(version, correlation_id, body, code),
        ApiKey::OffsetCommit => refusal::<OffsetCommitRequest>(version, correlation_id, body, code),
        ApiKey::OffsetFetch => refusal::<OffsetFetchRequest>(version, correlation_id, body, code),
        ApiKey::DescribeGroups => refusal::<DescribeGroupsRequest>(version, correlation_id, body, code),
        ApiKey::ListGroups => refusal::<ListGroupsRequest>(version, correlation_id, body, code),
        ApiKey::DeleteGroups => refusal::<DeleteGroupsRequest>(version, correlation_id, body, code),
        ApiKey::DescribeConfigs => refusal::<DescribeConfigsRequest>(version, correlation_id, body, code),
        ApiKey::AlterConfigs => refusal::<AlterConfigsRequest>(version, correlation_id, body, code),
        ApiKey::CreateTopics => refusal::<CreateTopicsRequest>(version, correlation_id, body, code),
        ApiKey::CreatePartitions => refusal::<CreatePartitionsRequest>(version, correlation_id, body, code),
        ApiKey::DeleteTopics => refusal::<DeleteTopicsRequest>(version, correlation_id, body, code),
        ApiKey::Metadata | ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate => None,
    }
}

fn refusal<R: Refuse>(version: i16, correlation_id: i32, body: &Bytes, code: ErrorCode) -> Option<Bytes> {
    let request = R::decode_prefix(body, version).ok()?;
    Some(response_frame(correlation_id, version, &request.refusal(code)))
}

impl Refuse for ProduceRequest {
    fn refusal(&self, code: ErrorCode) -> ProduceResponse {
        let responses = self
            .topic_data
            .iter()
            .map(|topic| TopicProduceResponse {
                name: topic.name.clone(),
                partition_responses: topic
                    .partition_data
                    .iter()
                    .map(|partition| PartitionProduceResponse {
                        index: partition.index,
                        error_code: code,
                        base_offset: -1,
                        ..PartitionProduceResponse::default()
                    })
                    .collect(),
            })
            .collect();
        ProduceResponse { responses, throttle_time_ms: 0 }
    }
}

impl Refuse for FetchRequest {
    fn refusal(&self, code: ErrorCode) -> FetchResponse {
        let topics = self.topics.iter().map(|topic| FetchableTopicResponse {
            topic: topic.topic.clone(),
            topic_id: topic.topic_id,
            partitions: topic.partitions.iter().map(|asked| PartitionData::failed(asked.partition, code)).collect(),
        });
        FetchResponse { error_code: code, responses: topics.collect(), ..FetchResponse::default() }
    }
}

impl Refuse for ListOffsetsRequest {
    fn refusal(&self, code: ErrorCode) -> ListOffsetsResponse {
        let topics = self
            .topics
            .iter()
            .map(|topic| ListOffsetsTopicResponse {
                name: topic.name.clone(),
                partitions: topic
                    .partitions
                    .iter()
                    .map(|partition| ListOffsetsPartitionResponse {
                        partition_index: partition.partition_index,
                        error_code: code,
                        ..ListOffsetsPartitionResponse::default()
                    })
                    .collect(),
            })
            .collect();
        ListOffsetsResponse { throttle_time_ms: 0, topics }
    }
}

impl Refuse for OffsetForLeaderEpochRequest {
    fn refusal(&self, code: ErrorCode) -> OffsetForLeaderEpochResponse {
        let topics = self
            .topics
            .iter()
            .map(|topic| OffsetForLeaderTopicResult {
                topic: topic.topic.clone(),
                partitions: topic
                    .partitions
                    .iter()
                    .map(|partition| OffsetForLeaderPartitionResult {
                        error_code: code,
                        partition: partition.partition,
                        ..OffsetForLeaderPartitionResult::default()
                    })
                    .collect(),
            })
            .collect();
        OffsetForLeaderEpochResponse { throttle_time_ms: 0, topics }
    }
}

impl Refuse for FindCoordinatorRequest {
    fn refusal(&self, code: ErrorCode) -> FindCoordinatorResponse {
        let coordinators = self
            .coordinator_keys
            .iter()
            .map(|key| Coordinator { key: key.clone(), node_id: -1, error_code: code, ..Coordinator::default() })
            .collect();
        FindCoordinatorResponse { error_code: code, node_id: -1, coordinators, ..FindCoordinatorResponse::default() }
    }
}

impl Refuse for InitProducerIdRequest {
    fn refusal(&self, code: ErrorCode) -> InitProducerIdResponse {
        InitProducerIdResponse { error_code: code, producer_epoch: -1, ..InitProducerIdResponse::default() }
    }
}

impl Refuse for JoinGroupRequest {
    fn refusal(&self, code: ErrorCode) -> JoinGroupResponse {
        JoinGroupResponse { error_code: code, protocol_name: Some(Str::default()), ..JoinGroupResponse::default() }
    }
}

impl Refuse for SyncGroupRequest {
    fn refusal(&self, code: ErrorCode) -> SyncGroupResponse {
        SyncGroupResponse { error_code: code, ..SyncGroupResponse::default() }
    }
}

impl Refuse for HeartbeatRequest {
    fn refusal(&self, code: ErrorCode) -> HeartbeatResponse {
        HeartbeatResponse { error_code: code, ..HeartbeatResponse::default() }
    }
}

impl Refuse for LeaveGroupRequest {
    fn refusal(&self, code: ErrorCode) -> LeaveGroupResponse {
        // A top-level error tells of no member.
        LeaveGroupResponse { error_code: code, members: Vec::<MemberResponse>::new(), throttle_time_ms: 0 }
    }
}

impl Refuse for OffsetCommitRequest {
    fn refusal(&self, code: ErrorCode) -> OffsetCommitResponse {
        let topics = self
            .topics
            .iter()
            .map(|topic| OffsetCommitResponseTopic {
                name: topic.name.clone(),
                partitions: topic
                    .partitions
                    .iter()
                    .map(|partition| OffsetCommitResponsePartition {
                        partition_index: partition.partition_index,
                        error_code: code,
                    })
                    .collect(),
            })
            .collect();
        OffsetCommitResponse { throttle_time_ms: 0, topics }
    }
}

impl Refuse for OffsetFetchRequest {
    fn refusal(&self, code: ErrorCode) -> OffsetFetchResponse {
        let topics = self
            .topics
            .iter()
            .flatten()
            .map(|topic| OffsetFetchResponseTopic {
                name: topic.name.clone(),
                partitions: topic
                    .partition_indexes
                    .iter()
                    .map(|index| OffsetFetchResponsePartition {
                        partition_index: *index,
                        committed_offset: -1,
                        error_code: code,
                        ..OffsetFetchResponsePartition::default()
                    })
                    .collect(),
            })
            .collect();
        OffsetFetchResponse { throttle_time_ms: 0, topics, error_code: code }
    }
}

impl Refuse for DescribeGroupsRequest {
    fn refusal(&self, code: ErrorCode) -> DescribeGroupsResponse {
        let groups = self
            .groups
            .iter()
            .map(|group| DescribedGroup { error_code: code, group_id: group.clone(), ..DescribedGroup::default() })
            .collect();
        DescribeGroupsResponse { throttle_time_ms: 0, groups }
    }
}

impl Refuse for ListGroupsRequest {
    fn refusal(&self, code: ErrorCode) -> ListGroupsResponse {
        ListGroupsResponse { error_code: code, ..ListGroupsResponse::default() }
    }
}

impl Refuse for DeleteGroupsRequest {
    fn refusal(&self, code: ErrorCode) -> DeleteGroupsResponse {
        let results = self
            .groups_names
            .iter()
            .map(|group| DeletableGroupResult { group_id: group.clone(), error_code: code })
            .collect();
        DeleteGroupsResponse { throttle_time_ms: 0, results }
    }
}

impl Refuse for DescribeConfigsRequest {
    fn refusal(&self, code: ErrorCode) -> DescribeConfigsResponse {
        let results = self
            .resources
            .iter()
            .map(|resource| DescribeConfigsResult {
                error_code: code,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                ..DescribeConfigsResult::default()
            })
            .collect();
        DescribeConfigsResponse { throttle_time_ms: 0, results }
    }
}

impl Refuse for AlterConfigsRequest {
    fn refusal(&self, code: ErrorCode) -> AlterConfigsResponse {
        let responses = self
            .resources
            .iter()
            .map(|resource| AlterConfigsResourceResponse {
                error_code: code,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                ..AlterConfigsResourceResponse::default()
            })
            .collect();
        AlterConfigsResponse { throttle_time_ms: 0, responses }
    }
}

impl Refuse for CreateTopicsRequest {
    fn refusal(&self, code: ErrorCode) -> CreateTopicsResponse {
        let topics = self
            .topics
            .iter()
            .map(|topic| CreatableTopicResult {
                name: topic.name.clone(),
                error_code: code,
                ..CreatableTopicResult::default()
            })
            .collect();
        CreateTopicsResponse { throttle_time_ms: 0, topics }
    }
}

impl Refuse for CreatePartitionsRequest {
    fn refusal(&self, code: ErrorCode) -> CreatePartitionsResponse {
        let results = self
            .topics
            .iter()
            .map(|topic| CreatePartitionsTopicResult {
                name: topic.name.clone(),
                error_code: code,
                ..CreatePartitionsTopicResult::default()
            })
            .collect();
        CreatePartitionsResponse { throttle_time_ms: 0, results }
    }
}

impl Refuse for DeleteTopicsRequest {
    fn refusal(&self, code: ErrorCode) -> DeleteTopicsResponse {
        let by_name = self.topic_names.iter().map(|name| DeletableTopicResult {
            name: Some(name.clone()),
            error_code: code,
            ..DeletableTopicResult::default()
        });
        let by_state = self.topics.iter().map(|topic| DeletableTopicResult {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            error_code: code,
            ..DeletableTopicResult::default()
        });
        DeleteTopicsResponse { throttle_time_ms: 0, responses: by_name.chain(by_state).collect() }
    }
}
