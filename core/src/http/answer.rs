//! Answers of the LFS API: heads with the headers that every one of them carries.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderValue, Response, StatusCode};

use super::error_body::{ApiError, Code};
use super::{cors, request_id};
use crate::effect::ResponseBody;

/// A response head and its body, ready to be ordered. Framing headers are the adapter's.
#[derive(Debug)]
pub(crate) struct ApiAnswer {
    pub(crate) head: Box<Parts>,
    pub(crate) body: ResponseBody,
}

impl ApiAnswer {
    fn new(status: StatusCode, body: ResponseBody) -> Self {
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = status;
        Self { head: Box::new(head), body }
    }

    fn with_content_type(mut self, content_type: HeaderValue) -> Self {
        self.head.headers.insert(CONTENT_TYPE, content_type);
        self
    }

    fn of_the_api(mut self, id: &str) -> Self {
        cors::allow_every_origin(&mut self.head.headers);
        self.head.headers.insert("x-request-id", request_id::header_value(id));
        self
    }

    /// 204 to a CORS preflight.
    pub(crate) fn preflight() -> Self {
        let mut answer = Self::new(StatusCode::NO_CONTENT, ResponseBody::Whole(Bytes::new()));
        cors::allow_every_origin(&mut answer.head.headers);
        answer
    }

    /// A path that is not ours.
    pub(crate) fn unknown_path(id: &str) -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 page not found").of_the_api(id)
    }

    /// A line of plain text.
    pub(crate) fn text(status: StatusCode, line: &str) -> Self {
        Self::new(status, ResponseBody::Whole(format!("{line}\n").into()))
            .with_content_type(HeaderValue::from_static("text/plain; charset=utf-8"))
    }

    /// 200 with JSON; `json` gets the newline of the contract.
    pub(crate) fn json(json: &[u8], id: &str) -> Self {
        let body = [json, b"\n"].concat();
        Self::new(StatusCode::OK, ResponseBody::Whole(body.into()))
            .with_content_type(HeaderValue::from_static("application/json"))
            .of_the_api(id)
    }

    /// An error body.
    pub(crate) fn error(error: &ApiError, id: &str) -> Self {
        let mut answer = Self::new(error.code.status(), ResponseBody::Whole(error.body(id)))
            .with_content_type(HeaderValue::from_static("application/json"))
            .of_the_api(id);
        if error.code == Code::MethodNotAllowed {
            answer.head.headers.insert(ALLOW, HeaderValue::from_static("POST, OPTIONS"));
        }
        if let Some(wait) = error.retry_after {
            answer.head.headers.insert(RETRY_AFTER, wait.as_secs().max(1).into());
        }
        answer
    }

    /// 200 with the verified bytes of a blob.
    pub(crate) fn blob(
        body: ResponseBody,
        length: u64,
        sha256_hex: &str,
        content_type: Option<&str>,
        id: &str,
    ) -> Self {
        let content_type = content_type
            .and_then(|text| HeaderValue::from_str(text).ok())
            .unwrap_or_else(|| HeaderValue::from_static("application/octet-stream"));
        let mut answer = Self::new(StatusCode::OK, body).with_content_type(content_type).of_the_api(id);
        let checksum = HeaderValue::from_str(&format!("sha256={sha256_hex}")).expect("hex digits fit in a header");
        answer.head.headers.insert("x-kafscale-lfs-checksum", checksum);
        answer.head.headers.insert("x-kafscale-lfs-content-length", length.into());
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_the_api_can_be_read_across_origins_and_names_its_request() {
        let error = ApiAnswer::error(&ApiError::new(Code::MethodNotAllowed, "use POST"), "r-1");
        assert_eq!(error.head.status, 405);
        assert_eq!(error.head.headers["allow"], "POST, OPTIONS");
        let busy = ApiAnswer::error(&ApiError::busy("no memory"), "r-1");
        assert_eq!(busy.head.headers["retry-after"], "1");
        let blob = ApiAnswer::blob(ResponseBody::Streamed { length: 7 }, 7, "ab", Some("video/mp4"), "r-1");
        assert_eq!(blob.head.headers["content-type"], "video/mp4");
        assert_eq!(blob.head.headers["x-kafscale-lfs-checksum"], "sha256=ab");
        assert_eq!(blob.head.headers["x-kafscale-lfs-content-length"], "7");
        for answer in [error, busy, blob, ApiAnswer::json(b"{}", "r-1"), ApiAnswer::unknown_path("r-1")] {
            assert_eq!(answer.head.headers["access-control-allow-origin"], "*");
            assert_eq!(answer.head.headers["x-request-id"], "r-1");
        }
    }

    #[test]
    fn a_preflight_names_no_request() {
        let answer = ApiAnswer::preflight();
        assert_eq!(answer.head.status, 204);
        assert!(answer.head.headers.contains_key("access-control-allow-headers"));
        assert!(!answer.head.headers.contains_key("x-request-id"));
    }

    #[test]
    fn a_media_type_that_is_no_header_value_is_not_passed_on() {
        let answer = ApiAnswer::blob(ResponseBody::Streamed { length: 0 }, 0, "", Some("a\r\nb"), "r");
        assert_eq!(answer.head.headers["content-type"], "application/octet-stream");
    }
}
