//! FindCoordinator: the proxy coordinates every group (kafka-listener contract section 2).

use crate::config::ListenerConfig;
use crate::kafka::{Coordinator, ErrorCode, FindCoordinatorRequest, FindCoordinatorResponse, Str};
use crate::listener::metadata::NODE_ID;

/// Key type of consumer groups; transactions are 1, and the cluster has none.
const GROUP: i8 = 0;

/// First version that asks for several keys.
const BATCHED: i16 = 4;

/// Answers a request.
pub(super) fn answer(
    request: FindCoordinatorRequest,
    version: i16,
    config: &ListenerConfig,
) -> FindCoordinatorResponse {
    let keys = if version >= BATCHED { request.coordinator_keys } else { vec![request.key] };
    let answers = keys.into_iter().map(|key| coordinator(key, request.key_type, config));
    if version >= BATCHED {
        FindCoordinatorResponse { coordinators: answers.collect(), ..FindCoordinatorResponse::default() }
    } else {
        let Coordinator { node_id, host, port, error_code, .. } = answers.last().unwrap_or_default();
        FindCoordinatorResponse { node_id, host, port, error_code, ..FindCoordinatorResponse::default() }
    }
}

fn coordinator(key: Str, key_type: i8, config: &ListenerConfig) -> Coordinator {
    if key_type == GROUP {
        let host = Str::from(config.advertised_host.as_str());
        Coordinator { key, node_id: NODE_ID, host, port: i32::from(config.advertised_port), ..Coordinator::default() }
    } else {
        Coordinator { key, node_id: -1, error_code: ErrorCode::UNSUPPORTED_VERSION, ..Coordinator::default() }
    }
}
