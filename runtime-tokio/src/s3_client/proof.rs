//! What an answer without an error must look like to prove that a store gave it: the one table.
//!
//! A captive portal, a misdirected endpoint or the default page of a web server says 200 to everything. Whatever changes the
//! bucket is believed only when the answer carries what S3 alone sends; else the outcome is unknown.

use aws_sdk_s3::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;

use super::outcome::Failure;

/// What is asked of an answer by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// DeleteObject and AbortMultipartUpload: 204, as S3 documents it; or an answer without a body that
    /// carries a request id of S3.
    Removed,
    /// PutObject, UploadPart and CreateBucket: an answer without a body, or with a request id of S3. Stores are known
    /// that call an empty answer text/html, so the type says nothing.
    Empty,
    /// HeadBucket: anything but a web page. Stores differ in what they send, and nothing is lost by a wrong belief.
    NoPage,
}

/// Header fields that decide.
#[derive(Clone, Copy, Debug, Default)]
struct Head<'a> {
    status: u16,
    request_id: Option<&'a str>,
    content_type: Option<&'a str>,
    content_length: Option<&'a str>,
}

impl Proof {
    fn is_given(self, head: Head<'_>) -> bool {
        let identified = head.request_id.is_some_and(|id| !id.is_empty());
        match self {
            // Errors are read elsewhere.
            Self::Removed | Self::Empty | Self::NoPage if head.status >= 300 => true,
            Self::Removed => head.status == 204 || (identified && matches!(head.content_length, Some("0"))),
            Self::Empty => identified || head.content_length.is_none_or(|length| length == "0"),
            Self::NoPage => identified || !head.content_type.is_some_and(|kind| kind.starts_with("text/html")),
        }
    }
}

impl Intercept for Proof {
    fn name(&self) -> &'static str {
        "Proof"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let answer = context.response();
        let header = |name| answer.headers().get(name);
        let head = Head {
            status: answer.status().as_u16(),
            request_id: header("x-amz-request-id"),
            content_type: header("content-type"),
            content_length: header("content-length"),
        };
        if self.is_given(head) { Ok(()) } else { Err("the answer is not that of an S3 store".into()) }
    }
}

/// A text without which an answer proves nothing: an ETag, the id of an upload.
pub(crate) fn present(text: Option<String>, name: &str) -> Result<String, Failure> {
    text.filter(|text| !text.is_empty()).ok_or_else(|| Failure::Lost(format!("the answer has no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_prove_something() {
        let head = |status| Head { status, ..Head::default() };
        let named = |status| Head { request_id: Some("17"), ..head(status) };
        let empty = |head| Head { content_length: Some("0"), ..head };
        let page = |head| Head { content_type: Some("text/html; charset=utf-8"), ..head };
        let table = [
            (Proof::Removed, head(204), true),
            (Proof::Removed, empty(named(200)), true),
            (Proof::Removed, empty(head(200)), false),
            (Proof::Removed, named(200), false),
            (Proof::Removed, Head { content_length: Some("9"), ..named(200) }, false),
            (Proof::Removed, Head { request_id: Some(""), ..empty(head(200)) }, false),
            (Proof::Removed, head(500), true),
            (Proof::Empty, page(empty(head(200))), true),
            (Proof::Empty, page(head(200)), true),
            (Proof::Empty, Head { content_length: Some("9"), ..page(head(200)) }, false),
            (Proof::Empty, Head { content_length: Some("9"), ..named(200) }, true),
            (Proof::Empty, Head { content_length: Some("9"), ..head(503) }, true),
            (Proof::NoPage, head(200), true),
            (Proof::NoPage, Head { content_type: Some("application/xml"), ..head(200) }, true),
            (Proof::NoPage, page(head(200)), false),
            (Proof::NoPage, page(named(200)), true),
            (Proof::NoPage, page(head(404)), true),
        ];
        for (proof, head, expected) in table {
            assert_eq!(proof.is_given(head), expected, "{proof:?} {head:?}");
        }
    }

    #[test]
    fn an_empty_text_is_none() {
        assert_eq!(present(Some("\"e\"".into()), "ETag"), Ok("\"e\"".into()));
        for nothing in [None, Some(String::new())] {
            assert_eq!(present(nothing, "ETag"), Err(Failure::Lost("the answer has no ETag".into())));
        }
    }
}
