//! InitProducerId (key 22).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// InitProducerId request.
    pub struct InitProducerIdRequest for InitProducerId {
        /// Transactional id, or null if the producer is not transactional.
        transactional_id: Option<Str> [0.., nullable 0..],
        /// A transaction open for longer is aborted, milliseconds.
        transaction_timeout_ms: i32 [0.., default 60_000],
        /// Producer id so far, -1 for none.
        producer_id: i64 [3.., default -1],
        /// Epoch of the producer, -1 for none.
        producer_epoch: i16 [3.., default -1],
    }
}

message! {
    /// InitProducerId response.
    pub struct InitProducerIdResponse for InitProducerId {
        /// How long the request was held back by a quota, milliseconds.
        throttle_time_ms: i32 [0..],
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Producer id, -1 for none.
        producer_id: i64 [0.., default -1],
        /// Epoch of the producer, -1 for none.
        producer_epoch: i16 [0..],
    }
}

impl Request for InitProducerIdRequest {
    type Response = InitProducerIdResponse;
}
