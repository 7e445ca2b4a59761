//! ApiVersions (key 18).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// ApiVersions request.
    pub struct ApiVersionsRequest for ApiVersions {
        /// Name of the client library.
        client_software_name: Str [3..],
        /// Its version.
        client_software_version: Str [3..],
    }
}

message! {
    /// ApiVersions response. Tagged feature lists of brokers are skipped.
    pub struct ApiVersionsResponse for ApiVersions {
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// The APIs that are spoken.
        api_keys: Vec<ApiVersion> [0..],
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
    }
}

message! {
    /// One API that a broker speaks.
    pub struct ApiVersion {
        /// API key.
        api_key: i16 [0..],
        /// Lowest version.
        min_version: i16 [0..],
        /// Highest version.
        max_version: i16 [0..],
    }
}

impl Request for ApiVersionsRequest {
    type Response = ApiVersionsResponse;
}
