//! What honest peers say: one request per API with its answer, in every version, about the topic that exists.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::kafka as k;
use kafscale_proxy_core::kafka::{ApiKey, Message, Request};

use super::lone_shard::{Asked, TOPIC, snapshot};

/// One request and its answer, bodies without headers.
pub(super) struct Exchange {
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) request: Bytes,
    pub(super) answer: Bytes,
}

/// Every API in every known version.
pub(super) fn exchanges() -> &'static [Exchange] {
    static ALL: LazyLock<Vec<Exchange>> = LazyLock::new(|| {
        let mut all = Vec::new();
        with_records(&mut all);
        of_groups(&mut all);
        of_topics(&mut all);
        of_connections(&mut all);
        all
    });
    &ALL
}

/// What a broker answers that does what it is asked; `None` for what it does not understand.
pub(super) fn honest_answer(asked: &Asked) -> Option<Bytes> {
    let body = if asked.api == ApiKey::Produce {
        let request = k::ProduceRequest::decode(&asked.body, asked.version).ok()?;
        if request.acks == 0 {
            return Some(Bytes::new());
        }
        encoded(&produced(&request), asked.version)
    } else if asked.api == ApiKey::Fetch {
        encoded(&fetched(&k::FetchRequest::decode(&asked.body, asked.version).ok()?), asked.version)
    } else {
        exchanges().iter().find(|one| (one.api, one.version) == (asked.api, asked.version))?.answer.clone()
    };
    Some(answer_frame(asked, &body))
}

/// A whole frame around a body, with the header that is due.
pub(super) fn answer_frame(asked: &Asked, body: &[u8]) -> Bytes {
    let mut payload = BytesMut::new();
    k::ResponseHeader { correlation_id: asked.correlation_id }.encode(asked.api, asked.version, &mut payload);
    payload.extend_from_slice(body);
    let length = u32::try_from(payload.len()).expect("answers are short");
    Bytes::from([&length.to_be_bytes()[..], &payload].concat())
}

fn add<R: Request>(all: &mut Vec<Exchange>, request: &R, answer: &R::Response) {
    for version in R::KEY.known_versions().iter() {
        let (request, answer) = (encoded(request, version), encoded(answer, version));
        all.push(Exchange { api: R::KEY, version, request, answer });
    }
}

fn encoded<M: Message>(message: &M, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(version, &mut out);
    out.freeze()
}

fn topic_id() -> [u8; 16] {
    snapshot().topics[0].topic_id
}

/// A record set of one batch: a record with key and header, and one that has nothing.
pub(super) fn record_set() -> Bytes {
    let text = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let headers = vec![k::RecordHeader { name: "header".into(), value: text("1") }];
    let full = k::Record { key: text("key"), value: text("value"), headers, ..k::Record::default() };
    k::build_batch(1_795_910_400_000, [full, k::Record::default()])
}

fn produced(request: &k::ProduceRequest) -> k::ProduceResponse {
    let one = |data: &k::PartitionProduceData| k::PartitionProduceResponse {
        index: data.index,
        base_offset: 5,
        ..k::PartitionProduceResponse::default()
    };
    let topic = |topic: &k::TopicProduceData| k::TopicProduceResponse {
        name: topic.name.clone(),
        partition_responses: topic.partition_data.iter().map(one).collect(),
    };
    k::ProduceResponse { responses: request.topic_data.iter().map(topic).collect(), throttle_time_ms: 0 }
}

fn fetched(request: &k::FetchRequest) -> k::FetchResponse {
    let one = |partition: &k::FetchPartition| k::PartitionData {
        partition_index: partition.partition,
        high_watermark: 7,
        records: Some(record_set()),
        ..k::PartitionData::default()
    };
    let topic = |topic: &k::FetchTopic| k::FetchableTopicResponse {
        topic: topic.topic.clone(),
        topic_id: topic.topic_id,
        partitions: topic.partitions.iter().map(one).collect(),
    };
    k::FetchResponse { responses: request.topics.iter().map(topic).collect(), ..k::FetchResponse::default() }
}

fn with_records(all: &mut Vec<Exchange>) {
    let data = |index| k::PartitionProduceData { index, records: Some(record_set()) };
    let topic = k::TopicProduceData { name: TOPIC.into(), partition_data: vec![data(0), data(1)] };
    let produce =
        k::ProduceRequest { acks: -1, timeout_ms: 1_000, topic_data: vec![topic], ..k::ProduceRequest::default() };
    add(all, &produce, &produced(&produce));

    let partition =
        |partition| k::FetchPartition { partition, partition_max_bytes: 1 << 20, ..k::FetchPartition::default() };
    let topic =
        k::FetchTopic { topic: TOPIC.into(), topic_id: topic_id(), partitions: vec![partition(0), partition(4)] };
    let fetch = k::FetchRequest { max_wait_ms: 100, min_bytes: 1, topics: vec![topic], ..k::FetchRequest::default() };
    add(all, &fetch, &fetched(&fetch));

    let partition = k::ListOffsetsPartition { partition_index: 2, timestamp: -1, ..k::ListOffsetsPartition::default() };
    let topic = k::ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] };
    let offset = k::ListOffsetsPartitionResponse {
        partition_index: 2,
        offset: 7,
        old_style_offsets: vec![7],
        ..k::ListOffsetsPartitionResponse::default()
    };
    let offsets = k::ListOffsetsTopicResponse { name: TOPIC.into(), partitions: vec![offset] };
    add(
        all,
        &k::ListOffsetsRequest { topics: vec![topic], ..k::ListOffsetsRequest::default() },
        &k::ListOffsetsResponse { topics: vec![offsets], ..k::ListOffsetsResponse::default() },
    );

    let partition =
        k::OffsetForLeaderPartition { partition: 3, leader_epoch: 1, ..k::OffsetForLeaderPartition::default() };
    let topic = k::OffsetForLeaderTopic { topic: TOPIC.into(), partitions: vec![partition] };
    let end = k::OffsetForLeaderPartitionResult { partition: 3, ..k::OffsetForLeaderPartitionResult::default() };
    let ends = k::OffsetForLeaderTopicResult { topic: TOPIC.into(), partitions: vec![end] };
    add(
        all,
        &k::OffsetForLeaderEpochRequest { topics: vec![topic], ..k::OffsetForLeaderEpochRequest::default() },
        &k::OffsetForLeaderEpochResponse { topics: vec![ends], ..k::OffsetForLeaderEpochResponse::default() },
    );
}

fn of_groups(all: &mut Vec<Exchange>) {
    let protocol = k::JoinGroupRequestProtocol { name: "range".into(), metadata: Bytes::from_static(b"\0\x01") };
    let join = k::JoinGroupRequest {
        group_id: "group".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..k::JoinGroupRequest::default()
    };
    let member = k::JoinGroupResponseMember { member_id: "member".into(), ..k::JoinGroupResponseMember::default() };
    let joined = k::JoinGroupResponse {
        generation_id: 1,
        protocol_name: Some("range".into()),
        leader: "member".into(),
        member_id: "member".into(),
        members: vec![member],
        ..k::JoinGroupResponse::default()
    };
    add(all, &join, &joined);

    let assignment =
        k::SyncGroupRequestAssignment { member_id: "member".into(), assignment: Bytes::from_static(b"\0\x01") };
    let sync = k::SyncGroupRequest {
        group_id: "group".into(),
        generation_id: 1,
        member_id: "member".into(),
        assignments: vec![assignment],
        ..k::SyncGroupRequest::default()
    };
    let synced = k::SyncGroupResponse { assignment: Bytes::from_static(b"\0\x01"), ..k::SyncGroupResponse::default() };
    add(all, &sync, &synced);

    let (group_id, member_id) = (k::Str::from("group"), k::Str::from("member"));
    let heartbeat = k::HeartbeatRequest {
        group_id: group_id.clone(),
        generation_id: 1,
        member_id: member_id.clone(),
        group_instance_id: None,
    };
    add(all, &heartbeat, &k::HeartbeatResponse::default());
    let member = k::MemberIdentity { member_id: member_id.clone(), ..k::MemberIdentity::default() };
    let leave =
        k::LeaveGroupRequest { group_id: group_id.clone(), member_id: member_id.clone(), members: vec![member] };
    let left = k::MemberResponse { member_id: member_id.clone(), ..k::MemberResponse::default() };
    add(all, &leave, &k::LeaveGroupResponse { members: vec![left], ..k::LeaveGroupResponse::default() });

    let partition =
        k::OffsetCommitRequestPartition { committed_offset: 5, ..k::OffsetCommitRequestPartition::default() };
    let topic = k::OffsetCommitRequestTopic { name: TOPIC.into(), partitions: vec![partition] };
    let commit = k::OffsetCommitRequest {
        group_id: group_id.clone(),
        generation_id: 1,
        member_id,
        topics: vec![topic],
        ..k::OffsetCommitRequest::default()
    };
    let partitions = vec![k::OffsetCommitResponsePartition::default()];
    let topic = k::OffsetCommitResponseTopic { name: TOPIC.into(), partitions };
    add(all, &commit, &k::OffsetCommitResponse { topics: vec![topic], ..k::OffsetCommitResponse::default() });

    let topic = k::OffsetFetchRequestTopic { name: TOPIC.into(), partition_indexes: vec![0] };
    let fetch = k::OffsetFetchRequest { group_id: group_id.clone(), topics: Some(vec![topic]), ..Default::default() };
    let partitions = vec![k::OffsetFetchResponsePartition { committed_offset: 5, ..Default::default() }];
    let topic = k::OffsetFetchResponseTopic { name: TOPIC.into(), partitions };
    add(all, &fetch, &k::OffsetFetchResponse { topics: vec![topic], ..k::OffsetFetchResponse::default() });

    let group = k::DescribedGroup { group_id: group_id.clone(), ..k::DescribedGroup::default() };
    add(
        all,
        &k::DescribeGroupsRequest { groups: vec![group_id.clone()], ..k::DescribeGroupsRequest::default() },
        &k::DescribeGroupsResponse { groups: vec![group], ..k::DescribeGroupsResponse::default() },
    );
    let group = k::ListedGroup { group_id: group_id.clone(), ..k::ListedGroup::default() };
    add(
        all,
        &k::ListGroupsRequest::default(),
        &k::ListGroupsResponse { groups: vec![group], ..k::ListGroupsResponse::default() },
    );
    let result = k::DeletableGroupResult { group_id: group_id.clone(), ..k::DeletableGroupResult::default() };
    add(
        all,
        &k::DeleteGroupsRequest { groups_names: vec![group_id.clone()] },
        &k::DeleteGroupsResponse { results: vec![result], ..k::DeleteGroupsResponse::default() },
    );
    let find =
        k::FindCoordinatorRequest { key: group_id.clone(), coordinator_keys: vec![group_id], ..Default::default() };
    add(all, &find, &k::FindCoordinatorResponse { host: "broker-1".into(), port: 9092, ..Default::default() });
}

fn of_topics(all: &mut Vec<Exchange>) {
    let topic =
        k::CreatableTopic { name: "new".into(), num_partitions: 2, replication_factor: 1, ..Default::default() };
    let result = k::CreatableTopicResult { name: "new".into(), ..k::CreatableTopicResult::default() };
    add(
        all,
        &k::CreateTopicsRequest { topics: vec![topic], ..k::CreateTopicsRequest::default() },
        &k::CreateTopicsResponse { topics: vec![result], ..k::CreateTopicsResponse::default() },
    );
    let state = k::DeleteTopicState { name: Some(TOPIC.into()), ..k::DeleteTopicState::default() };
    let delete = k::DeleteTopicsRequest { topics: vec![state], topic_names: vec![TOPIC.into()], timeout_ms: 1_000 };
    let result = k::DeletableTopicResult { name: Some(TOPIC.into()), ..k::DeletableTopicResult::default() };
    add(all, &delete, &k::DeleteTopicsResponse { responses: vec![result], ..k::DeleteTopicsResponse::default() });

    let topic = k::CreatePartitionsTopic { name: TOPIC.into(), count: 8, assignments: None };
    let result = k::CreatePartitionsTopicResult { name: TOPIC.into(), ..k::CreatePartitionsTopicResult::default() };
    add(
        all,
        &k::CreatePartitionsRequest { topics: vec![topic], ..k::CreatePartitionsRequest::default() },
        &k::CreatePartitionsResponse { results: vec![result], ..k::CreatePartitionsResponse::default() },
    );
    let resource = k::DescribeConfigsResource { resource_type: 2, resource_name: TOPIC.into(), ..Default::default() };
    let result = k::DescribeConfigsResult { resource_type: 2, resource_name: TOPIC.into(), ..Default::default() };
    add(
        all,
        &k::DescribeConfigsRequest { resources: vec![resource], ..k::DescribeConfigsRequest::default() },
        &k::DescribeConfigsResponse { results: vec![result], ..k::DescribeConfigsResponse::default() },
    );
    let config = k::AlterableConfig { name: "retention.ms".into(), value: Some("1000".into()) };
    let resource = k::AlterConfigsResource { resource_type: 2, resource_name: TOPIC.into(), configs: vec![config] };
    let result =
        k::AlterConfigsResourceResponse { resource_type: 2, resource_name: TOPIC.into(), ..Default::default() };
    add(
        all,
        &k::AlterConfigsRequest { resources: vec![resource], ..k::AlterConfigsRequest::default() },
        &k::AlterConfigsResponse { responses: vec![result], ..k::AlterConfigsResponse::default() },
    );
    let topic = k::MetadataRequestTopic { name: Some(TOPIC.into()), ..k::MetadataRequestTopic::default() };
    let partition = k::MetadataResponsePartition { replica_nodes: vec![0], isr_nodes: vec![0], ..Default::default() };
    let described = k::MetadataResponseTopic {
        name: Some(TOPIC.into()),
        topic_id: topic_id(),
        partitions: vec![partition],
        ..k::MetadataResponseTopic::default()
    };
    let broker = k::MetadataResponseBroker { host: "broker-0".into(), port: 9092, ..Default::default() };
    add(
        all,
        &k::MetadataRequest { topics: Some(vec![topic]), ..k::MetadataRequest::default() },
        &k::MetadataResponse { brokers: vec![broker], topics: vec![described], ..k::MetadataResponse::default() },
    );
}

fn of_connections(all: &mut Vec<Exchange>) {
    let version = k::ApiVersion { api_key: 0, min_version: 3, max_version: 9 };
    add(
        all,
        &k::ApiVersionsRequest { client_software_name: "fuzz".into(), client_software_version: "1".into() },
        &k::ApiVersionsResponse { api_keys: vec![version], ..k::ApiVersionsResponse::default() },
    );
    add(all, &k::InitProducerIdRequest::default(), &k::InitProducerIdResponse::default());
    let handshake = k::SaslHandshakeRequest { mechanism: "PLAIN".into() };
    add(all, &handshake, &k::SaslHandshakeResponse { mechanisms: vec!["PLAIN".into()], ..Default::default() });
    let authenticate = k::SaslAuthenticateRequest { auth_bytes: Bytes::from_static(b"\0user\0password") };
    add(all, &authenticate, &k::SaslAuthenticateResponse::default());
}
