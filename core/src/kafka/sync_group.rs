//! SyncGroup (key 14).

use bytes::Bytes;

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// SyncGroup request.
    pub struct SyncGroupRequest for SyncGroup {
        /// Group id.
        group_id: Str [0..],
        /// Generation of the group.
        generation_id: i32 [0..],
        /// Member id, empty before the coordinator has given one.
        member_id: Str [0..],
        /// Group instance id of a static member (KIP-345).
        group_instance_id: Option<Str> [3.., nullable 3..],
        /// Kind of group.
        protocol_type: Option<Str> [5.., nullable 5..],
        /// Assignment strategy chosen.
        protocol_name: Option<Str> [5.., nullable 5..],
        /// What each member gets; from the leader only.
        assignments: Vec<SyncGroupRequestAssignment> [0..],
    }
}

message! {
    /// What one member gets.
    pub struct SyncGroupRequestAssignment {
        /// Member id, empty before the coordinator has given one.
        member_id: Str [0..],
        /// Its assignment.
        assignment: Bytes [0..],
    }
}

message! {
    /// SyncGroup response.
    pub struct SyncGroupResponse for SyncGroup {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Kind of group.
        protocol_type: Option<Str> [5.., nullable 5..],
        /// Assignment strategy chosen.
        protocol_name: Option<Str> [5.., nullable 5..],
        /// What the member gets.
        assignment: Bytes [0..],
    }
}

impl Request for SyncGroupRequest {
    type Response = SyncGroupResponse;
}
