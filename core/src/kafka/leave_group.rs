//! LeaveGroup (key 13).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// LeaveGroup request.
    pub struct LeaveGroupRequest for LeaveGroup {
        /// Group id.
        group_id: Str [0..],
        /// The member that leaves.
        member_id: Str [0..=2],
        /// The members that leave.
        members: Vec<MemberIdentity> [3..],
    }
}

message! {
    /// A member that leaves.
    pub struct MemberIdentity {
        /// Member id, empty before the coordinator has given one.
        member_id: Str [3..],
        /// Group instance id of a static member (KIP-345).
        group_instance_id: Option<Str> [3.., nullable 3..],
    }
}

message! {
    /// LeaveGroup response.
    pub struct LeaveGroupResponse for LeaveGroup {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// One answer per member.
        members: Vec<MemberResponse> [3..],
    }
}

message! {
    /// The answer for one member.
    pub struct MemberResponse {
        /// Member id, empty before the coordinator has given one.
        member_id: Str [3..],
        /// Group instance id of a static member (KIP-345).
        group_instance_id: Option<Str> [3.., nullable 3..],
        /// Its error, or none.
        error_code: ErrorCode [3..],
    }
}

impl Request for LeaveGroupRequest {
    type Response = LeaveGroupResponse;
}
