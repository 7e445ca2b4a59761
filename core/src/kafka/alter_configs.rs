//! AlterConfigs (key 33).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// AlterConfigs request.
    pub struct AlterConfigsRequest for AlterConfigs {
        /// Resources to change.
        resources: Vec<AlterConfigsResource> [0..],
        /// Whether only to check.
        validate_only: bool [0..],
    }
}

message! {
    /// One resource of an AlterConfigs request.
    pub struct AlterConfigsResource {
        /// Kind of resource: 2 topic, 4 broker.
        resource_type: i8 [0..],
        /// Topic name or broker id.
        resource_name: Str [0..],
        /// All its settings; what is missing goes back to the default.
        configs: Vec<AlterableConfig> [0..],
    }
}

message! {
    /// One setting to change.
    pub struct AlterableConfig {
        /// Its name.
        name: Str [0..],
        /// Its value; null for the default.
        value: Option<Str> [0.., nullable 0..],
    }
}

message! {
    /// AlterConfigs response.
    pub struct AlterConfigsResponse for AlterConfigs {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [0..],
        /// One answer per resource.
        responses: Vec<AlterConfigsResourceResponse> [0..],
    }
}

message! {
    /// One resource of an AlterConfigs response.
    pub struct AlterConfigsResourceResponse {
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// The error in words.
        error_message: Option<Str> [0.., nullable 0..],
        /// Kind of resource: 2 topic, 4 broker.
        resource_type: i8 [0..],
        /// Topic name or broker id.
        resource_name: Str [0..],
    }
}

impl Request for AlterConfigsRequest {
    type Response = AlterConfigsResponse;
}
