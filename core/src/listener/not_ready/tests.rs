//! The table of kafka-listener contract section 8: every API in every version, decoded again by two codecs.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Message as TheirMessage};

use super::{not_ready, unsupported_version};
use crate::config::ListenerConfig;
use crate::kafka::{
    AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse, ApiKey, Coordinator,
    CreatableTopic, CreatableTopicResult, CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreatePartitionsTopicResult, CreateTopicsRequest, CreateTopicsResponse, DeletableGroupResult, DeletableTopicResult,
    DeleteGroupsRequest, DeleteGroupsResponse, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse, DescribeConfigsResult,
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, ErrorCode, FetchPartition, FetchRequest,
    FetchResponse, FetchTopic, FetchableTopicResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    HeartbeatRequest, HeartbeatResponse, InitProducerIdRequest, InitProducerIdResponse, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse,
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
    ListOffsetsTopicResponse, Message, MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponseTopic, OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic, OffsetFetchRequest,
    OffsetFetchRequestTopic, OffsetFetchResponse, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult, OffsetForLeaderTopic, OffsetForLeaderTopicResult, PartitionData,
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, Request, ResponseHeader, Str,
    SyncGroupRequest, SyncGroupResponse, TopicProduceData, TopicProduceResponse,
};
use crate::listener::from_memory::FromMemory;
use crate::listener::request::{Reply, RequestHead};
use crate::listener::rig::head;

const TIMED_OUT: ErrorCode = ErrorCode::REQUEST_TIMED_OUT;
const ID: [u8; 16] = [5; 16];

fn text(text: &'static str) -> Str {
    Str::from_static(text)
}

fn config() -> ListenerConfig {
    ListenerConfig { advertised_host: "proxy".to_owned(), advertised_port: 9192, ..ListenerConfig::default() }
}

fn body<M: Message>(reply: &Reply, version: i16) -> Bytes {
    let (Reply::Answer(pieces) | Reply::AnswerAndClose(pieces)) = reply else { panic!("no answer: {reply:?}") };
    let frame = Bytes::from(pieces.concat());
    let (_, at) = ResponseHeader::decode(&frame, M::KEY, version).unwrap();
    frame.slice(at..)
}

/// The expected answer without what its version cannot carry.
fn carried<M: Message>(message: &M, version: i16) -> M {
    let mut out = BytesMut::new();
    message.encode(version, &mut out);
    M::decode(&out.freeze(), version).unwrap()
}

fn check<R, Theirs>(request: &R, expected: impl Fn(i16) -> R::Response)
where
    R: Request,
    R::Response: PartialEq + std::fmt::Debug,
    Theirs: Decodable + TheirMessage,
{
    for version in R::KEY.known_versions().iter() {
        let head = head(version, request);
        let reply = if FromMemory::answers(R::KEY) {
            FromMemory::read(head).unwrap().not_ready(&config())
        } else {
            not_ready(&head)
        };
        assert!(matches!(reply, Reply::AnswerAndClose(_)), "{:?} {version}", R::KEY);
        let mut body = body::<R::Response>(&reply, version);
        let expected = carried(&expected(version), version);
        assert_eq!(R::Response::decode(&body, version), Ok(expected), "{:?} {version}", R::KEY);
        if (Theirs::VERSIONS.min..=Theirs::VERSIONS.max).contains(&version) {
            Theirs::decode(&mut body, version).unwrap();
            assert_eq!(body.remaining(), 0, "{:?} {version}", R::KEY);
        }
    }
}

#[test]
fn produce() {
    let partition = |index| PartitionProduceData { index, records: None };
    let request = ProduceRequest {
        acks: 1,
        topic_data: vec![TopicProduceData { name: text("t"), partition_data: vec![partition(3), partition(1)] }],
        ..ProduceRequest::default()
    };
    let failed = |index| PartitionProduceResponse {
        index,
        error_code: TIMED_OUT,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        record_errors: Vec::new(),
        error_message: None,
    };
    check::<_, theirs::ProduceResponse>(&request, |_| ProduceResponse {
        responses: vec![TopicProduceResponse { name: text("t"), partition_responses: vec![failed(3), failed(1)] }],
        throttle_time_ms: 0,
    });
    let silent = ProduceRequest { acks: 0, ..request };
    for version in [3, 9] {
        assert!(matches!(not_ready(&head(version, &silent)), Reply::Close));
    }
}

#[test]
fn fetch() {
    let partition = |partition| FetchPartition { partition, ..FetchPartition::default() };
    let request = FetchRequest {
        topics: vec![FetchTopic { topic: text("t"), topic_id: ID, partitions: vec![partition(4), partition(0)] }],
        ..FetchRequest::default()
    };
    check::<_, theirs::FetchResponse>(&request, |version| {
        let code = if version < 7 { ErrorCode::NOT_LEADER_OR_FOLLOWER } else { TIMED_OUT };
        let failed = |partition_index| PartitionData {
            partition_index,
            error_code: code,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            preferred_read_replica: -1,
            records: Some(Bytes::new()),
            ..PartitionData::default()
        };
        FetchResponse {
            error_code: code,
            responses: vec![FetchableTopicResponse {
                topic: text("t"),
                topic_id: ID,
                partitions: vec![failed(4), failed(0)],
            }],
            ..FetchResponse::default()
        }
    });
}

#[test]
fn offsets() {
    let partition = |partition_index| ListOffsetsPartition { partition_index, ..ListOffsetsPartition::default() };
    let request = ListOffsetsRequest {
        topics: vec![ListOffsetsTopic { name: text("t"), partitions: vec![partition(2), partition(0)] }],
        ..ListOffsetsRequest::default()
    };
    let failed = |partition_index| ListOffsetsPartitionResponse {
        partition_index,
        error_code: TIMED_OUT,
        old_style_offsets: Vec::new(),
        timestamp: -1,
        offset: -1,
        leader_epoch: -1,
    };
    check::<_, theirs::ListOffsetsResponse>(&request, |_| ListOffsetsResponse {
        throttle_time_ms: 0,
        topics: vec![ListOffsetsTopicResponse { name: text("t"), partitions: vec![failed(2), failed(0)] }],
    });

    let partition = |partition| OffsetForLeaderPartition { partition, ..OffsetForLeaderPartition::default() };
    let request = OffsetForLeaderEpochRequest {
        topics: vec![OffsetForLeaderTopic { topic: text("t"), partitions: vec![partition(2)] }],
        ..OffsetForLeaderEpochRequest::default()
    };
    check::<_, theirs::OffsetForLeaderEpochResponse>(&request, |_| OffsetForLeaderEpochResponse {
        throttle_time_ms: 0,
        topics: vec![OffsetForLeaderTopicResult {
            topic: text("t"),
            partitions: vec![OffsetForLeaderPartitionResult {
                error_code: TIMED_OUT,
                partition: 2,
                leader_epoch: -1,
                end_offset: -1,
            }],
        }],
    });
}

#[test]
fn find_coordinator_and_producer_id() {
    let request = FindCoordinatorRequest { key: text("g"), key_type: 0, coordinator_keys: vec![text("g"), text("h")] };
    let one = |key| Coordinator { key, node_id: -1, error_code: TIMED_OUT, ..Coordinator::default() };
    check::<_, theirs::FindCoordinatorResponse>(&request, |_| FindCoordinatorResponse {
        error_code: TIMED_OUT,
        node_id: -1,
        coordinators: vec![one(text("g")), one(text("h"))],
        ..FindCoordinatorResponse::default()
    });
    check::<_, theirs::InitProducerIdResponse>(&InitProducerIdRequest::default(), |_| InitProducerIdResponse {
        throttle_time_ms: 0,
        error_code: TIMED_OUT,
        producer_id: -1,
        producer_epoch: -1,
    });
}

#[test]
fn groups() {
    check::<_, theirs::JoinGroupResponse>(&JoinGroupRequest::default(), |_| JoinGroupResponse {
        error_code: TIMED_OUT,
        generation_id: -1,
        protocol_name: Some(text("")),
        ..JoinGroupResponse::default()
    });
    check::<_, theirs::SyncGroupResponse>(&SyncGroupRequest::default(), |_| SyncGroupResponse {
        error_code: TIMED_OUT,
        ..SyncGroupResponse::default()
    });
    check::<_, theirs::HeartbeatResponse>(&HeartbeatRequest::default(), |_| HeartbeatResponse {
        error_code: TIMED_OUT,
        ..HeartbeatResponse::default()
    });
    check::<_, theirs::LeaveGroupResponse>(&LeaveGroupRequest::default(), |_| LeaveGroupResponse {
        error_code: TIMED_OUT,
        ..LeaveGroupResponse::default()
    });
    check::<_, theirs::ListGroupsResponse>(&ListGroupsRequest::default(), |_| ListGroupsResponse {
        error_code: TIMED_OUT,
        ..ListGroupsResponse::default()
    });
    let request = DescribeGroupsRequest { groups: vec![text("b"), text("a")], ..DescribeGroupsRequest::default() };
    let group = |group_id| DescribedGroup { error_code: TIMED_OUT, group_id, ..DescribedGroup::default() };
    assert_eq!(group(text("a")).authorized_operations, i32::MIN);
    check::<_, theirs::DescribeGroupsResponse>(&request, |_| DescribeGroupsResponse {
        throttle_time_ms: 0,
        groups: vec![group(text("b")), group(text("a"))],
    });
    let request = DeleteGroupsRequest { groups_names: vec![text("b"), text("a")] };
    let group = |group_id| DeletableGroupResult { group_id, error_code: TIMED_OUT };
    check::<_, theirs::DeleteGroupsResponse>(&request, |_| DeleteGroupsResponse {
        throttle_time_ms: 0,
        results: vec![group(text("b")), group(text("a"))],
    });
}

#[test]
fn committed_offsets() {
    let partition =
        |partition_index| OffsetCommitRequestPartition { partition_index, ..OffsetCommitRequestPartition::default() };
    let request = OffsetCommitRequest {
        topics: vec![OffsetCommitRequestTopic { name: text("t"), partitions: vec![partition(1), partition(0)] }],
        ..OffsetCommitRequest::default()
    };
    let failed = |partition_index| OffsetCommitResponsePartition { partition_index, error_code: TIMED_OUT };
    check::<_, theirs::OffsetCommitResponse>(&request, |_| OffsetCommitResponse {
        throttle_time_ms: 0,
        topics: vec![OffsetCommitResponseTopic { name: text("t"), partitions: vec![failed(1), failed(0)] }],
    });

    let request = OffsetFetchRequest {
        topics: Some(vec![OffsetFetchRequestTopic { name: text("t"), partition_indexes: vec![1, 0] }]),
        ..OffsetFetchRequest::default()
    };
    let failed = |partition_index| OffsetFetchResponsePartition {
        partition_index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: None,
        error_code: TIMED_OUT,
    };
    check::<_, theirs::OffsetFetchResponse>(&request, |_| OffsetFetchResponse {
        throttle_time_ms: 0,
        topics: vec![OffsetFetchResponseTopic { name: text("t"), partitions: vec![failed(1), failed(0)] }],
        error_code: TIMED_OUT,
    });
}

#[test]
fn administration() {
    let resource = DescribeConfigsResource { resource_type: 2, resource_name: text("t"), configuration_keys: None };
    let request = DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() };
    check::<_, theirs::DescribeConfigsResponse>(&request, |_| DescribeConfigsResponse {
        throttle_time_ms: 0,
        results: vec![DescribeConfigsResult {
            error_code: TIMED_OUT,
            resource_type: 2,
            resource_name: text("t"),
            ..DescribeConfigsResult::default()
        }],
    });

    let resource = AlterConfigsResource { resource_type: 4, resource_name: text("0"), configs: Vec::new() };
    let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
    check::<_, theirs::AlterConfigsResponse>(&request, |_| AlterConfigsResponse {
        throttle_time_ms: 0,
        responses: vec![AlterConfigsResourceResponse {
            error_code: TIMED_OUT,
            resource_type: 4,
            resource_name: text("0"),
            ..AlterConfigsResourceResponse::default()
        }],
    });

    let topic = CreatePartitionsTopic { name: text("t"), count: 3, assignments: None };
    let request = CreatePartitionsRequest { topics: vec![topic], ..CreatePartitionsRequest::default() };
    check::<_, theirs::CreatePartitionsResponse>(&request, |_| CreatePartitionsResponse {
        throttle_time_ms: 0,
        results: vec![CreatePartitionsTopicResult {
            name: text("t"),
            error_code: TIMED_OUT,
            ..CreatePartitionsTopicResult::default()
        }],
    });

    let topic = CreatableTopic { name: text("t"), ..CreatableTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    check::<_, theirs::CreateTopicsResponse>(&request, |_| CreateTopicsResponse {
        throttle_time_ms: 0,
        topics: vec![CreatableTopicResult {
            name: text("t"),
            error_code: TIMED_OUT,
            ..CreatableTopicResult::default()
        }],
    });

    let request = DeleteTopicsRequest {
        topics: vec![DeleteTopicState { name: None, topic_id: ID }],
        topic_names: vec![text("t"), text("s")],
        timeout_ms: 0,
    };
    check::<_, theirs::DeleteTopicsResponse>(&request, |version| {
        let failed =
            |name, topic_id| DeletableTopicResult { name, topic_id, error_code: TIMED_OUT, error_message: None };
        let responses = if version < 6 {
            vec![failed(Some(text("t")), [0; 16]), failed(Some(text("s")), [0; 16])]
        } else {
            vec![failed(None, ID)]
        };
        DeleteTopicsResponse { throttle_time_ms: 0, responses }
    });
}

#[test]
fn metadata_names_a_broker_wherever_it_names_a_topic() {
    let topics = |names: &[&'static str]| {
        let topic = |name: &&'static str| MetadataRequestTopic { topic_id: ID, name: Some(text(name)) };
        Some(names.iter().map(topic).collect::<Vec<_>>())
    };
    let broker = MetadataResponseBroker { node_id: 0, host: text("proxy"), port: 9192, rack: None };
    let named = MetadataRequest { topics: topics(&["b", "a"]), ..MetadataRequest::default() };
    let failed = |name| MetadataResponseTopic {
        error_code: TIMED_OUT,
        name: Some(name),
        topic_id: ID,
        ..MetadataResponseTopic::default()
    };
    check::<_, theirs::MetadataResponse>(&named, |_| MetadataResponse {
        brokers: vec![broker.clone()],
        controller_id: 0,
        topics: vec![failed(text("b")), failed(text("a"))],
        ..MetadataResponse::default()
    });

    let every_topic = MetadataRequest { topics: None, ..MetadataRequest::default() };
    check::<_, theirs::MetadataResponse>(&every_topic, |_| MetadataResponse::default());
    assert_eq!(MetadataResponse::default().controller_id, -1);

    let no_topics = MetadataRequest { topics: topics(&[]), ..MetadataRequest::default() };
    check::<_, theirs::MetadataResponse>(&no_topics, |version| {
        if version == 0 {
            MetadataResponse::default()
        } else {
            MetadataResponse { brokers: vec![broker.clone()], controller_id: 0, ..MetadataResponse::default() }
        }
    });
}

#[test]
fn what_does_not_decode_gets_no_answer() {
    let mut cut = head(5, &DescribeGroupsRequest { groups: vec![text("g")], ..DescribeGroupsRequest::default() });
    cut.frame.truncate(cut.frame.len() - 2);
    assert!(matches!(not_ready(&cut), Reply::Close));
    assert!(matches!(unsupported_version(&cut), Reply::Close));
    let unknown = RequestHead {
        api: ApiKey::Fetch,
        version: 99,
        correlation_id: 1,
        frame: BytesMut::from(&[0; 30][..]),
        body_at: 14,
    };
    assert!(matches!(unsupported_version(&unknown), Reply::Close));
}

#[test]
fn a_known_version_that_is_not_advertised_is_told_so() {
    let request = SyncGroupRequest::default();
    let reply = unsupported_version(&head(5, &request));
    assert!(matches!(reply, Reply::Answer(_)));
    let response = SyncGroupResponse::decode(&body::<SyncGroupResponse>(&reply, 5), 5).unwrap();
    assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
}
