//! FindCoordinator (key 10).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// FindCoordinator request.
    pub struct FindCoordinatorRequest for FindCoordinator {
        /// Group id or transactional id.
        key: Str [0..=3],
        /// 0 for groups, 1 for transactions.
        key_type: i8 [1..],
        /// Group ids or transactional ids.
        coordinator_keys: Vec<Str> [4..],
    }
}

message! {
    /// FindCoordinator response. From version 4 everything but the throttle stands in `coordinators`.
    pub struct FindCoordinatorResponse for FindCoordinator {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
        /// Its error, or none.
        error_code: ErrorCode [0..=3],
        /// The error in words.
        error_message: Option<Str> [1..=3, nullable 1..=3],
        /// Broker id.
        node_id: i32 [0..=3],
        /// Host.
        host: Str [0..=3],
        /// Port.
        port: i32 [0..=3],
        /// One answer per key.
        coordinators: Vec<Coordinator> [4..],
    }
}

message! {
    /// The coordinator of one key.
    pub struct Coordinator {
        /// Group id or transactional id.
        key: Str [4..],
        /// Broker id.
        node_id: i32 [4..],
        /// Host.
        host: Str [4..],
        /// Port.
        port: i32 [4..],
        /// Its error, or none.
        error_code: ErrorCode [4..],
        /// The error in words.
        error_message: Option<Str> [4.., nullable 4..],
    }
}

impl Request for FindCoordinatorRequest {
    type Response = FindCoordinatorResponse;
}
