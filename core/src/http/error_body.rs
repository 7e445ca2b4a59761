//! Errors of the LFS API. Status and code are the contract; texts are for people.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;

/// Codes of error bodies, with their status.
macro_rules! codes {
    ($($variant:ident = $status:ident $text:literal,)*) => {
        /// What went wrong, as clients tell it apart.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $(#[doc = concat!("`", $text, "`")] $variant,)*
        }

        impl Code {
            /// The text in the body.
            pub(crate) const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The status of the answer.
            pub(crate) const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status,)* }
            }
        }
    };
}

codes! {
    MissingTopic = BAD_REQUEST "missing_topic",
    InvalidTopic = BAD_REQUEST "invalid_topic",
    InvalidKey = BAD_REQUEST "invalid_key",
    InvalidPartition = BAD_REQUEST "invalid_partition",
    InvalidChecksum = BAD_REQUEST "invalid_checksum",
    InvalidRequest = BAD_REQUEST "invalid_request",
    PayloadTooLarge = BAD_REQUEST "payload_too_large",
    EmptyUpload = BAD_REQUEST "empty_upload",
    SizeMismatch = BAD_REQUEST "size_mismatch",
    ChecksumMismatch = BAD_REQUEST "checksum_mismatch",
    InvalidBucket = BAD_REQUEST "invalid_bucket",
    InvalidMode = BAD_REQUEST "invalid_mode",
    PresignDisabled = BAD_REQUEST "presign_disabled",
    MissingIntegrity = BAD_REQUEST "missing_integrity",
    InvalidIntegrity = BAD_REQUEST "invalid_integrity",
    UnsupportedChecksumAlg = BAD_REQUEST "unsupported_checksum_alg",
    MissingIntegritySize = BAD_REQUEST "missing_integrity_size",
    Unauthorized = UNAUTHORIZED "unauthorized",
    NotFound = NOT_FOUND "not_found",
    MethodNotAllowed = METHOD_NOT_ALLOWED "method_not_allowed",
    RequestTimeout = REQUEST_TIMEOUT "request_timeout",
    TopicChanged = CONFLICT "topic_changed",
    TempStorageFailed = INTERNAL_SERVER_ERROR "temp_storage_failed",
    S3UploadFailed = BAD_GATEWAY "s3_upload_failed",
    BackendError = BAD_GATEWAY "backend_error",
    S3GetFailed = BAD_GATEWAY "s3_get_failed",
    S3PresignFailed = BAD_GATEWAY "s3_presign_failed",
    IntegrityFailure = BAD_GATEWAY "integrity_failure",
    ProxyNotReady = SERVICE_UNAVAILABLE "proxy_not_ready",
    BackendUnavailable = SERVICE_UNAVAILABLE "backend_unavailable",
    MetadataUnavailable = SERVICE_UNAVAILABLE "metadata_unavailable",
}

/// An error answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    /// What went wrong.
    pub(crate) code: Code,
    /// For people; never holds bytes of a body or a key.
    pub(crate) message: String,
    /// `Retry-After`, when the proxy knows that a later try helps.
    pub(crate) retry_after: Option<Duration>,
}

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None }
    }

    /// A refusal for now, because a budget of this proxy is used up.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self { code: Code::ProxyNotReady, message: message.into(), retry_after: Some(Duration::from_secs(1)) }
    }

    /// Exactly the three members of the contract, and a newline.
    pub(crate) fn body(&self, request_id: &str) -> Bytes {
        #[derive(Serialize)]
        struct Members<'a> {
            code: &'static str,
            message: &'a str,
            request_id: &'a str,
        }
        let members = Members { code: self.code.text(), message: &self.message, request_id };
        let mut body = serde_json::to_vec(&members).expect("text always has a JSON form");
        body.push(b'\n');
        body.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_has_exactly_three_members_and_a_newline() {
        let error = ApiError::new(Code::InvalidKey, "the key is not base64 \"x\"");
        let expected =
            b"{\"code\":\"invalid_key\",\"message\":\"the key is not base64 \\\"x\\\"\",\"request_id\":\"r-1\"}\n";
        assert_eq!(error.body("r-1"), &expected[..]);
        assert_eq!(error.code.status(), 400);
        assert_eq!(Code::TopicChanged.status(), 409);
        assert_eq!(Code::BackendError.status(), 502);
        assert_eq!(Code::MetadataUnavailable.status(), 503);
    }
}
