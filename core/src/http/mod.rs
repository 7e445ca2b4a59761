//! The HTTP side: routes, checks of headers and bodies, answers. Pure functions over `http` types; the exchanges
//! themselves live in [`crate::lfs`].

pub(crate) mod answer;
pub(crate) mod auth;
pub(crate) mod cors;
pub(crate) mod error_body;
pub(crate) mod request_id;
pub(crate) mod route;

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

/// Length of a body as its framing promises it: `Content-Length`, unless the body is chunked (RFC 9112 section 6.3).
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(TRANSFER_ENCODING) {
        return None;
    }
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}
