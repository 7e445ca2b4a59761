//! FindCoordinator: the proxy coordinates every group (kafka-listener contract section 2).

use crate::config::ListenerConfig;
use crate::kafka::{
    Coordinator, ErrorCode, FindCoordinatorRequest, FindCoordinatorResponse, Message, Str, response_frame,
};
use crate::listener::metadata::NODE_ID;
use crate::listener::request::{Reply, RequestHead, Undecodable};

/// Key type of consumer groups; transactions are 1, and the cluster has none.
const GROUP: i8 = 0;

/// First version that asks for several keys.
const BATCHED: i16 = 4;

/// Answers a request.
pub(super) fn answer(head: RequestHead, config: &ListenerConfig) -> Result<Reply, Undecodable> {
    let RequestHead { api: _, version, correlation_id, frame, body_at } = head;
    let request = FindCoordinatorRequest::decode(&frame.freeze().slice(body_at..), version).map_err(|error| {
        tracing::debug!(%error, version, "FindCoordinator does not decode");
        Undecodable
    })?;
    let keys = if version >= BATCHED { request.coordinator_keys } else { vec![request.key] };
    let answers = keys.into_iter().map(|key| coordinator(key, request.key_type, config));
    let response = if version >= BATCHED {
        FindCoordinatorResponse { coordinators: answers.collect(), ..FindCoordinatorResponse::default() }
    } else {
        let Coordinator { node_id, host, port, error_code, .. } = answers.last().unwrap_or_default();
        FindCoordinatorResponse { node_id, host, port, error_code, ..FindCoordinatorResponse::default() }
    };
    Ok(Reply::Answer(vec![response_frame(correlation_id, version, &response)]))
}

fn coordinator(key: Str, key_type: i8, config: &ListenerConfig) -> Coordinator {
    if key_type == GROUP {
        let host = Str::from(config.advertised_host.as_str());
        Coordinator { key, node_id: NODE_ID, host, port: i32::from(config.advertised_port), ..Coordinator::default() }
    } else {
        Coordinator { key, node_id: -1, error_code: ErrorCode::UNSUPPORTED_VERSION, ..Coordinator::default() }
    }
}
