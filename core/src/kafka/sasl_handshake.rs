//! SaslHandshake (key 17).

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// SaslHandshake request.
    pub struct SaslHandshakeRequest for SaslHandshake {
        /// Mechanism that the client wants.
        mechanism: Str [0..],
    }
}

message! {
    /// SaslHandshake response.
    pub struct SaslHandshakeResponse for SaslHandshake {
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// Mechanisms that the broker has.
        mechanisms: Vec<Str> [0..],
    }
}

impl Request for SaslHandshakeRequest {
    type Response = SaslHandshakeResponse;
}
