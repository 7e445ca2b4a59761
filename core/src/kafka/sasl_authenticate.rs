//! SaslAuthenticate (key 36).

use bytes::Bytes;

use super::error_code::ErrorCode;
use super::message::{Request, message};
use super::string::Str;

message! {
    /// SaslAuthenticate request.
    pub struct SaslAuthenticateRequest for SaslAuthenticate {
        /// Bytes of the mechanism, a secret.
        auth_bytes: Bytes [0..],
    }
}

message! {
    /// SaslAuthenticate response.
    pub struct SaslAuthenticateResponse for SaslAuthenticate {
        /// Its error, or none.
        error_code: ErrorCode [0..],
        /// The error in words.
        error_message: Option<Str> [0.., nullable 0..],
        /// Bytes of the mechanism.
        auth_bytes: Bytes [0..],
        /// Authenticate again within this time, milliseconds; 0 for never.
        session_lifetime_ms: i64 [1..],
    }
}

impl Request for SaslAuthenticateRequest {
    type Response = SaslAuthenticateResponse;
}
