//! Heartbeat (key 12).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// Heartbeat request.
    pub struct HeartbeatRequest for Heartbeat {
        /// Group id.
        group_id: Str [0..],
        /// Generation of the group.
        generation_id: i32 [0..],
        /// Member id, empty before the coordinator has given one.
        member_id: Str [0..],
        /// Group instance id of a static member (KIP-345).
        group_instance_id: Option<Str> [3.., nullable 3..],
    }
}

message! {
    /// Heartbeat response.
    pub struct HeartbeatResponse for Heartbeat {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
    }
}

impl Request for HeartbeatRequest {
    type Response = HeartbeatResponse;
}
