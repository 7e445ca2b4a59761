//! What a request gets that can be sent nowhere: REQUEST_TIMED_OUT in its own layout, then the connection is closed
//! (kafka-listener contract section 8). And what a version gets that is known but not advertised.

#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::refusal::Refuse;
use super::request::{Reply, RequestHead};
use crate::config::ListenerConfig;
use crate::kafka::{
    AlterConfigsRequest, ApiKey, CreatePartitionsRequest, CreateTopicsRequest, DeleteGroupsRequest,
    DeleteTopicsRequest, DescribeConfigsRequest, DescribeGroupsRequest, ErrorCode, FetchRequest,
    FindCoordinatorRequest, HeartbeatRequest, InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, ListOffsetsRequest, Message, MetadataRequest, MetadataResponse, MetadataResponseBroker,
    MetadataResponseTopic, OffsetCommitRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest, ProduceRequest, Str,
    SyncGroupRequest, response_frame,
};

/// First version of Fetch with an error of the whole answer; clients below it take no REQUEST_TIMED_OUT from a partition.
const FETCH_TOP_LEVEL: i16 = 7;

/// What clients retry after they have connected anew.
pub(super) const NOT_READY: ErrorCode = ErrorCode::REQUEST_TIMED_OUT;

/// Nothing can be served now. A request that does not decode, and a Produce with acks 0, get no answer. For what is answered
/// from memory see [`FromMemory::not_ready`](super::from_memory::FromMemory::not_ready).
pub(crate) fn not_ready(head: &RequestHead) -> Reply {
    let code = if head.api == ApiKey::Fetch && head.version < FETCH_TOP_LEVEL {
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    } else {
        NOT_READY
    };
    refused(head, code).map_or(Reply::Close, |frame| Reply::AnswerAndClose(vec![frame]))
}

/// The version is outside of the advertised range: UNSUPPORTED_VERSION where its layout is known, else no answer.
pub(crate) fn unsupported_version(head: &RequestHead) -> Reply {
    refused(head, ErrorCode::UNSUPPORTED_VERSION).map_or(Reply::Close, |frame| Reply::Answer(vec![frame]))
}

fn refused(head: &RequestHead, code: ErrorCode) -> Option<Bytes> {
    match head.api {
        ApiKey::Produce => {
            let request: ProduceRequest = decode(head)?;
            (request.acks != 0).then(|| frame(head, &request.refusal(code)))
        }
        ApiKey::Fetch => answer::<FetchRequest>(head, code),
        ApiKey::ListOffsets => answer::<ListOffsetsRequest>(head, code),
        ApiKey::OffsetForLeaderEpoch => answer::<OffsetForLeaderEpochRequest>(head, code),
        ApiKey::FindCoordinator => answer::<FindCoordinatorRequest>(head, code),
        ApiKey::InitProducerId => answer::<InitProducerIdRequest>(head, code),
        ApiKey::JoinGroup => answer::<JoinGroupRequest>(head, code),
        ApiKey::SyncGroup => answer::<SyncGroupRequest>(head, code),
        ApiKey::Heartbeat => answer::<HeartbeatRequest>(head, code),
        ApiKey::LeaveGroup => answer::<LeaveGroupRequest>(head, code),
        ApiKey::OffsetCommit => answer::<OffsetCommitRequest>(head, code),
        ApiKey::OffsetFetch => answer::<OffsetFetchRequest>(head, code),
        ApiKey::DescribeGroups => answer::<DescribeGroupsRequest>(head, code),
        ApiKey::ListGroups => answer::<ListGroupsRequest>(head, code),
        ApiKey::DeleteGroups => answer::<DeleteGroupsRequest>(head, code),
        ApiKey::DescribeConfigs => answer::<DescribeConfigsRequest>(head, code),
        ApiKey::AlterConfigs => answer::<AlterConfigsRequest>(head, code),
        ApiKey::CreateTopics => answer::<CreateTopicsRequest>(head, code),
        ApiKey::CreatePartitions => answer::<CreatePartitionsRequest>(head, code),
        ApiKey::DeleteTopics => answer::<DeleteTopicsRequest>(head, code),
        // Answered by the proxy alone: they are never sent anywhere.
        ApiKey::Metadata | ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate => None,
    }
}

/// A client that sees topics but no broker never recovers, so the proxy names itself wherever it names a topic.
pub(super) fn metadata(request: MetadataRequest, version: i16, config: &ListenerConfig) -> MetadataResponse {
    let every_topic = match &request.topics {
        None => true,
        Some(topics) => version == 0 && topics.is_empty(),
    };
    let mut response = MetadataResponse::default();
    if !every_topic {
        response.controller_id = 0;
        response.brokers.push(MetadataResponseBroker {
            node_id: 0,
            host: Str::from(config.advertised_host.as_str()),
            port: i32::from(config.advertised_port),
            rack: None,
        });
        response.topics.extend(request.topics.into_iter().flatten().map(|topic| MetadataResponseTopic {
            error_code: NOT_READY,
            name: topic.name,
            topic_id: topic.topic_id,
            ..MetadataResponseTopic::default()
        }));
    }
    response
}

fn answer<R: Refuse>(head: &RequestHead, code: ErrorCode) -> Option<Bytes> {
    let request: R = decode(head)?;
    Some(frame(head, &request.refusal(code)))
}

fn decode<M: Message>(head: &RequestHead) -> Option<M> {
    M::decode_prefix(&Bytes::copy_from_slice(head.body()), head.version).ok()
}

fn frame<M: Message>(head: &RequestHead, response: &M) -> Bytes {
    response_frame(head.correlation_id, head.version, response)
}
