//! JoinGroup (key 11).

use bytes::Bytes;

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// JoinGroup request.
    pub struct JoinGroupRequest for JoinGroup {
        /// Group id.
        group_id: Str [0..],
        /// A member that sends no heartbeat for so long is out, milliseconds.
        session_timeout_ms: i32 [0..],
        /// How long a rebalance waits for members to join again, milliseconds.
        rebalance_timeout_ms: i32 [1.., default -1],
        /// Member id, empty before the coordinator has given one.
        member_id: Str [0..],
        /// Group instance id of a static member (KIP-345).
        group_instance_id: Option<Str> [5.., nullable 5..],
        /// Kind of group, such as `consumer`.
        protocol_type: Str [0..],
        /// Assignment strategies of the member, the best first.
        protocols: Vec<JoinGroupRequestProtocol> [0..],
        /// Why the member joins (again), in words.
        reason: Option<Str> [8.., nullable 8..],
    }
}

message! {
    /// One assignment strategy of a member.
    pub struct JoinGroupRequestProtocol {
        /// Its name.
        name: Str [0..],
        /// Its metadata, such as a subscription.
        metadata: Bytes [0..],
    }
}

message! {
    /// JoinGroup response.
    pub struct JoinGroupResponse for JoinGroup {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [2..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Generation of the group.
        generation_id: i32 [0.., default -1],
        /// Kind of group.
        protocol_type: Option<Str> [7.., nullable 7..],
        /// Assignment strategy chosen.
        protocol_name: Option<Str> [0.., nullable 7..],
        /// Member id of the leader.
        leader: Str [0..],
        /// Whether the leader need not assign anew.
        skip_assignment: bool [9..],
        /// Member id, empty before the coordinator has given one.
        member_id: Str [0..],
        /// All members, for the leader only.
        members: Vec<JoinGroupResponseMember> [0..],
    }
}

message! {
    /// One member, as the leader sees it.
    pub struct JoinGroupResponseMember {
        /// Member id, empty before the coordinator has given one.
        member_id: Str [0..],
        /// Group instance id of a static member (KIP-345).
        group_instance_id: Option<Str> [5.., nullable 5..],
        /// Metadata of the member for the strategy chosen.
        metadata: Bytes [0..],
    }
}

impl Request for JoinGroupRequest {
    type Response = JoinGroupResponse;
}
