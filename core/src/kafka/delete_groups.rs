//! DeleteGroups (key 42).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// DeleteGroups request.
    pub struct DeleteGroupsRequest for DeleteGroups {
        /// Group ids.
        groups_names: Vec<Str> [0..],
    }
}

message! {
    /// DeleteGroups response.
    pub struct DeleteGroupsResponse for DeleteGroups {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [0..],
        /// One answer per group.
        results: Vec<DeletableGroupResult> [0..],
    }
}

message! {
    /// The answer for one group.
    pub struct DeletableGroupResult {
        /// Group id.
        group_id: Str [0..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
    }
}

impl Request for DeleteGroupsRequest {
    type Response = DeleteGroupsResponse;
}
