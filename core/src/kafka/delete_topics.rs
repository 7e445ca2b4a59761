//! DeleteTopics (key 20).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// DeleteTopics request.
    pub struct DeleteTopicsRequest for DeleteTopics {
        /// Topics to delete, by name or by id.
        topics: Vec<DeleteTopicState> [6..],
        /// Topics to delete, by name.
        topic_names: Vec<Str> [0..=5],
        /// How long a broker may wait, milliseconds.
        timeout_ms: i32 [0..],
    }
}

message! {
    /// A topic to delete.
    pub struct DeleteTopicState {
        /// Topic name, null if given by id.
        name: Option<Str> [6.., nullable 6..],
        /// Topic id, zero if given by name.
        topic_id: [u8; 16] [6..],
    }
}

message! {
    /// DeleteTopics response.
    pub struct DeleteTopicsResponse for DeleteTopics {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [1..],
        /// One answer per topic.
        responses: Vec<DeletableTopicResult> [0..],
    }
}

message! {
    /// One topic of a DeleteTopics response.
    pub struct DeletableTopicResult {
        /// Topic name, null for an unknown id.
        name: Option<Str> [0.., nullable 6..],
        /// Topic id.
        topic_id: [u8; 16] [6..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// The error in words.
        error_message: Option<Str> [5.., nullable 5..],
    }
}

impl Request for DeleteTopicsRequest {
    type Response = DeleteTopicsResponse;
}
