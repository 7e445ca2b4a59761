//! ListGroups (key 16).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// ListGroups request.
    pub struct ListGroupsRequest for ListGroups {
        /// Only groups in these states; empty for all.
        states_filter: Vec<Str> [4..],
        /// Only groups of these types; empty for all.
        types_filter: Vec<Str> [5..],
    }
}

message! {
    /// ListGroups response.
    pub struct ListGroupsResponse for ListGroups {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// The groups of this broker.
        groups: Vec<ListedGroup> [0..],
    }
}

message! {
    /// One group of a ListGroups response.
    pub struct ListedGroup {
        /// Group id.
        group_id: Str [0..],
        /// Kind of group.
        protocol_type: Str [0..],
        /// State, such as `Stable`.
        group_state: Str [4..],
        /// Type, such as `classic`.
        group_type: Str [5..],
    }
}

impl Request for ListGroupsRequest {
    type Response = ListGroupsResponse;
}
