//! What a request gets that can be sent nowhere: REQUEST_TIMED_OUT in its own layout, then the connection is closed
//! (kafka-listener contract section 8). And what a version gets that is known but not advertised.

#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::request::{Reply, RequestHead};
use crate::config::ListenerConfig;
use crate::kafka::{
    self, ApiKey, ErrorCode, MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponseTopic, Str,
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
    let body = Bytes::copy_from_slice(head.body());
    kafka::refused(head.api, head.version, head.correlation_id, &body, code)
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
