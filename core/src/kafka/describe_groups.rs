//! DescribeGroups (key 15).

use bytes::Bytes;

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// DescribeGroups request.
    pub struct DescribeGroupsRequest for DescribeGroups {
        /// Group ids.
        groups: Vec<Str> [0..],
        /// Asks for the operations allowed on each group.
        include_authorized_operations: bool [3..],
    }
}

message! {
    /// DescribeGroups response.
    pub struct DescribeGroupsResponse for DescribeGroups {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
        /// One answer per group.
        groups: Vec<DescribedGroup> [0..],
    }
}

message! {
    /// One group of a DescribeGroups response.
    pub struct DescribedGroup {
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Group id.
        group_id: Str [0..],
        /// State, such as `Stable`, `Empty` or `Dead`.
        group_state: Str [0..],
        /// Kind of group.
        protocol_type: Str [0..],
        /// Assignment strategy chosen.
        protocol_data: Str [0..],
        /// Its members.
        members: Vec<DescribedGroupMember> [0..],
        /// Operations that the client may do, as bits; `i32::MIN` if not asked for.
        authorized_operations: i32 [3.., default i32::MIN],
    }
}

message! {
    /// One member of a group.
    pub struct DescribedGroupMember {
        /// Member id, empty before the coordinator has given one.
        member_id: Str [0..],
        /// Group instance id of a static member (KIP-345).
        group_instance_id: Option<Str> [4.., nullable 4..],
        /// Client id of its last JoinGroup.
        client_id: Str [0..],
        /// Where it comes from.
        client_host: Str [0..],
        /// Its metadata for the strategy chosen.
        member_metadata: Bytes [0..],
        /// What it was assigned.
        member_assignment: Bytes [0..],
    }
}

impl Request for DescribeGroupsRequest {
    type Response = DescribeGroupsResponse;
}
