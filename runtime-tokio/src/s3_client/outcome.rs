//! What an error of the S3 SDK proves: the one table.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::RequestId;
use kafscale_proxy_core::Outcome;
use kafscale_proxy_core::s3::{Refusal, Request, Response};

/// What the SDK reports, reduced to what decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection, or no request was made: nothing was handed over.
    NotSent(String),
    /// The store answered.
    Answered {
        /// HTTP status.
        status: u16,
        /// `<Code>` of the error document; empty when there was none.
        code: String,
        /// For logs.
        text: String,
    },
    /// No answer, or one that makes no sense.
    Lost(String),
}

/// What an answer depends on beside status and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    HeadBucket,
    CreateBucket,
    PutObject,
    CreateMultipartUpload,
    UploadPart,
    CompleteMultipartUpload,
    AbortMultipartUpload,
    DeleteObject,
    HeadObject,
    GetObject,
    Presign,
}

impl From<&Request> for Kind {
    fn from(request: &Request) -> Self {
        match request {
            Request::HeadBucket => Self::HeadBucket,
            Request::CreateBucket => Self::CreateBucket,
            Request::PutObject { .. } => Self::PutObject,
            Request::CreateMultipartUpload { .. } => Self::CreateMultipartUpload,
            Request::UploadPart { .. } => Self::UploadPart,
            Request::CompleteMultipartUpload { .. } => Self::CompleteMultipartUpload,
            Request::AbortMultipartUpload { .. } => Self::AbortMultipartUpload,
            Request::DeleteObject { .. } => Self::DeleteObject,
            Request::HeadObject { .. } => Self::HeadObject,
            Request::GetObject { .. } => Self::GetObject,
            Request::PresignGetObject { .. } => Self::Presign,
        }
    }
}

/// Reduces an error of the SDK.
pub(crate) fn failure<E>(error: SdkError<E, HttpResponse>) -> Failure
where
    E: Error + ProvideErrorMetadata + 'static,
{
    let text = describe(&error);
    let answered = |status: u16, code: Option<&str>, text| Failure::Answered {
        status,
        code: code.unwrap_or_default().to_owned(),
        text,
    };
    match &error {
        SdkError::ConstructionFailure(_) => Failure::NotSent(text),
        SdkError::DispatchFailure(_) if never_sent(&error) => Failure::NotSent(text),
        SdkError::ServiceError(service) => answered(service.raw().status().as_u16(), service.err().code(), text),
        // An error answer without a document that can be read, as gateways write it.
        SdkError::ResponseError(response) if response.raw().status().as_u16() >= 400 => {
            answered(response.raw().status().as_u16(), None, text)
        }
        SdkError::DispatchFailure(_) | SdkError::TimeoutError(_) | SdkError::ResponseError(_) => Failure::Lost(text),
        // The SDK may grow further kinds; none of them would prove anything.
        _ => Failure::Lost(text),
    }
}

/// Longest text of a store that goes to the log, characters.
const LONGEST_TEXT: usize = 300;

/// What a log needs of an error: of an answer its status, code, message and request id; of everything else the causes.
/// The answer itself, with all its headers, is left out.
fn describe<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: Error + ProvideErrorMetadata + 'static,
{
    let (status, said) = match error {
        SdkError::ServiceError(service) => {
            let parts = [service.err().code(), service.err().message()];
            let said = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
            let said = if said.is_empty() { "no error document".to_owned() } else { said };
            (service.raw().status().as_u16(), said)
        }
        SdkError::ResponseError(response) => (response.raw().status().as_u16(), causes(error)),
        SdkError::ConstructionFailure(_) | SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | _ => {
            return causes(error);
        }
    };
    let request_id = error.request_id().unwrap_or("none");
    format!("{status} {}; request id {}", short(&said), short(request_id))
}

/// The error and what caused it, outermost first.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    short(&text)
}

/// Bounded, and without control characters: parts of it come from outside.
fn short(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).map(|one| if one.is_control() { ' ' } else { one }).collect()
}

/// Whether no connection was had, or no credentials to sign a request with.
fn never_sent(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let connecting =
            error.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(|error| error.is_connect());
        if connecting || error.is::<CredentialsError>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// The outcome of a request that the SDK reports as failed.
pub(crate) fn outcome(kind: Kind, failure: Failure) -> Outcome<Response, Refusal> {
    let (status, code, text) = match failure {
        Failure::NotSent(text) => return Outcome::NotApplied(Refusal::Unreachable(text)),
        Failure::Lost(text) => return Outcome::Unknown(text),
        Failure::Answered { status, code, text } => (status, code, text),
    };
    match (status, code.as_str(), kind) {
        // CompleteMultipartUpload says 200 before it knows; an error document may follow.
        (..=299, _, _) => Outcome::Unknown(text),
        // What was wanted is so already.
        (409, "BucketAlreadyOwnedByYou" | "BucketAlreadyExists", Kind::CreateBucket)
        | (404, "NoSuchKey", Kind::DeleteObject) => Outcome::Applied(Response::Done),
        (404, "NoSuchBucket", _) | (404, _, Kind::HeadBucket) => Outcome::NotApplied(Refusal::NoSuchBucket),
        (404, "NoSuchUpload", _) => Outcome::NotApplied(Refusal::NoSuchUpload),
        (404, "NoSuchKey", _) | (404, _, Kind::HeadObject | Kind::GetObject) => Outcome::NotApplied(Refusal::NoSuchKey),
        (401 | 403, _, _) => Outcome::NotApplied(Refusal::AccessDenied(text)),
        (429, _, _) | (503, "SlowDown" | "SlowDownRead" | "SlowDownWrite" | "RequestLimitExceeded", _) => {
            Outcome::NotApplied(Refusal::SlowDown(text))
        }
        // A gateway that gave up waiting does not know what the store did.
        (408 | 499, "", _) => Outcome::Unknown(text),
        (300..=499, _, _) => Outcome::NotApplied(Refusal::Other(text)),
        (_, _, _) => Outcome::Unknown(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_table() {
        let text = || "log".to_owned();
        let unknown = || Outcome::Unknown(text());
        let refused = |refusal| Outcome::<Response, _>::NotApplied(refusal);
        let other = || refused(Refusal::Other(text()));
        let denied = || refused(Refusal::AccessDenied(text()));
        let table = [
            (Kind::CompleteMultipartUpload, 200, "InternalError", unknown()),
            (Kind::CompleteMultipartUpload, 200, "SlowDown", unknown()),
            (Kind::CompleteMultipartUpload, 200, "", unknown()),
            (Kind::CompleteMultipartUpload, 404, "NoSuchUpload", refused(Refusal::NoSuchUpload)),
            (Kind::CompleteMultipartUpload, 400, "InvalidPart", other()),
            (Kind::CompleteMultipartUpload, 500, "InternalError", unknown()),
            (Kind::PutObject, 403, "AccessDenied", denied()),
            (Kind::PutObject, 403, "SignatureDoesNotMatch", denied()),
            (Kind::PutObject, 403, "", denied()),
            (Kind::PutObject, 404, "NoSuchBucket", refused(Refusal::NoSuchBucket)),
            (Kind::PutObject, 301, "PermanentRedirect", other()),
            (Kind::PutObject, 400, "XAmzContentSHA256Mismatch", other()),
            (Kind::PutObject, 400, "RequestTimeout", other()),
            (Kind::PutObject, 408, "", unknown()),
            (Kind::PutObject, 409, "OperationAborted", other()),
            (Kind::PutObject, 429, "", refused(Refusal::SlowDown(text()))),
            (Kind::PutObject, 500, "InternalError", unknown()),
            (Kind::PutObject, 501, "NotImplemented", unknown()),
            (Kind::PutObject, 502, "", unknown()),
            (Kind::PutObject, 503, "SlowDown", refused(Refusal::SlowDown(text()))),
            (Kind::PutObject, 503, "ServiceUnavailable", unknown()),
            (Kind::PutObject, 503, "", unknown()),
            (Kind::PutObject, 504, "", unknown()),
            (Kind::CreateMultipartUpload, 403, "AccessDenied", denied()),
            (Kind::UploadPart, 404, "NoSuchUpload", refused(Refusal::NoSuchUpload)),
            (Kind::AbortMultipartUpload, 404, "NoSuchUpload", refused(Refusal::NoSuchUpload)),
            (Kind::AbortMultipartUpload, 404, "", other()),
            (Kind::DeleteObject, 404, "NoSuchKey", Outcome::Applied(Response::Done)),
            (Kind::DeleteObject, 404, "NoSuchBucket", refused(Refusal::NoSuchBucket)),
            (Kind::DeleteObject, 500, "", unknown()),
            (Kind::HeadObject, 404, "", refused(Refusal::NoSuchKey)),
            (Kind::HeadObject, 404, "NotFound", refused(Refusal::NoSuchKey)),
            (Kind::HeadObject, 403, "", denied()),
            (Kind::GetObject, 404, "NoSuchKey", refused(Refusal::NoSuchKey)),
            (Kind::GetObject, 404, "NoSuchBucket", refused(Refusal::NoSuchBucket)),
            (Kind::HeadBucket, 404, "", refused(Refusal::NoSuchBucket)),
            (Kind::HeadBucket, 301, "", other()),
            (Kind::CreateBucket, 409, "BucketAlreadyOwnedByYou", Outcome::Applied(Response::Done)),
            (Kind::CreateBucket, 409, "BucketAlreadyExists", Outcome::Applied(Response::Done)),
            (Kind::CreateBucket, 403, "AccessDenied", denied()),
        ];
        for (kind, status, code, expected) in table {
            let failure = Failure::Answered { status, code: code.to_owned(), text: text() };
            assert_eq!(outcome(kind, failure), expected, "{kind:?} {status} {code}");
        }
        let not_sent = outcome(Kind::PutObject, Failure::NotSent(text()));
        assert_eq!(not_sent, refused(Refusal::Unreachable(text())));
        assert_eq!(outcome(Kind::PutObject, Failure::Lost(text())), unknown());
    }
}
