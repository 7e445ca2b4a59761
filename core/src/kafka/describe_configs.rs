//! DescribeConfigs (key 32).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// DescribeConfigs request.
    pub struct DescribeConfigsRequest for DescribeConfigs {
        /// Resources asked for.
        resources: Vec<DescribeConfigsResource> [0..],
        /// Asks for the synonyms of each setting.
        include_synonyms: bool [1..],
        /// Asks for the documentation of each setting.
        include_documentation: bool [3..],
    }
}

message! {
    /// One resource of a DescribeConfigs request.
    pub struct DescribeConfigsResource {
        /// Kind of resource: 2 topic, 4 broker.
        resource_type: i8 [0..],
        /// Topic name or broker id.
        resource_name: Str [0..],
        /// Settings asked for; null for all.
        configuration_keys: Option<Vec<Str>> [0.., nullable 0..],
    }
}

message! {
    /// DescribeConfigs response.
    pub struct DescribeConfigsResponse for DescribeConfigs {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [0..],
        /// One answer per resource.
        results: Vec<DescribeConfigsResult> [0..],
    }
}

message! {
    /// One resource of a DescribeConfigs response.
    pub struct DescribeConfigsResult {
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// The error in words.
        error_message: Option<Str> [0.., nullable 0..],
        /// Kind of resource: 2 topic, 4 broker.
        resource_type: i8 [0..],
        /// Topic name or broker id.
        resource_name: Str [0..],
        /// Its settings.
        configs: Vec<DescribeConfigsResourceResult> [0..],
    }
}

message! {
    /// One setting.
    pub struct DescribeConfigsResourceResult {
        /// Its name.
        name: Str [0..],
        /// Its value.
        value: Option<Str> [0.., nullable 0..],
        /// Whether it cannot be changed.
        read_only: bool [0..],
        /// Whether it was not set.
        is_default: bool [0..=0],
        /// Where it was set: 1 topic, 2 to 4 broker, 5 default.
        config_source: i8 [1.., default -1],
        /// Whether its value is a secret, and therefore null.
        is_sensitive: bool [0..],
        /// Where its value could come from, the first that applies first.
        synonyms: Vec<DescribeConfigsSynonym> [1..],
        /// Type of its value.
        config_type: i8 [3..],
        /// What it does.
        documentation: Option<Str> [3.., nullable 3..],
    }
}

message! {
    /// A synonym of a setting.
    pub struct DescribeConfigsSynonym {
        /// Its name.
        name: Str [1..],
        /// Its value.
        value: Option<Str> [1.., nullable 1..],
        /// Where it was set.
        source: i8 [1..],
    }
}

impl Request for DescribeConfigsRequest {
    type Response = DescribeConfigsResponse;
}
