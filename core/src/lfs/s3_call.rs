//! How long an S3 request may take, and when it is worth another try (ops contract section 6).

use std::time::Duration;

use crate::operation::Outcome;
use crate::s3::{Refusal, Request, Response};

/// Tries of one request, the first included.
pub(crate) const TRIES: u32 = 3;

const MIB: u64 = 1024 * 1024;

/// After this time the outcome is unknown.
pub(crate) fn deadline(request: &Request) -> Duration {
    match request {
        Request::HeadBucket => Duration::from_secs(10),
        Request::CreateBucket
        | Request::CreateMultipartUpload { .. }
        | Request::AbortMultipartUpload { .. }
        | Request::DeleteObject { .. }
        | Request::HeadObject { .. }
        | Request::PresignGetObject { .. } => Duration::from_secs(15),
        Request::PutObject { body, .. } | Request::UploadPart { body, .. } => {
            let bytes: u64 = body.iter().map(|piece| piece.len() as u64).sum();
            Duration::from_secs(30 + bytes.div_ceil(MIB))
        }
        Request::CompleteMultipartUpload { .. } => Duration::from_secs(300),
        Request::GetObject { .. } => Duration::from_secs(30),
    }
}

/// Wait before try number `next` (2 is the first repetition).
pub(crate) fn wait_before(next: u32) -> Duration {
    Duration::from_millis(200) * 2_u32.saturating_pow(next.saturating_sub(2))
}

/// Whether the same request may succeed later, although nothing about it changes.
pub(crate) fn is_transient(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Unreachable(_) | Refusal::SlowDown(_) => true,
        Refusal::NoSuchKey
        | Refusal::NoSuchUpload
        | Refusal::NoSuchBucket
        | Refusal::AccessDenied(_)
        | Refusal::Other(_) => false,
    }
}

/// Reads the answer that belongs to the request; any other one makes no sense, so its outcome is unknown.
pub(crate) fn expect<T>(
    outcome: Outcome<Response, Refusal>,
    read: impl FnOnce(Response) -> Option<T>,
) -> Outcome<T, Refusal> {
    match outcome {
        Outcome::Applied(response) => match read(response) {
            Some(answer) => Outcome::Applied(answer),
            None => Outcome::Unknown("an answer to another request".into()),
        },
        Outcome::NotApplied(refusal) => Outcome::NotApplied(refusal),
        Outcome::Unknown(reason) => Outcome::Unknown(reason),
    }
}

/// For answers that tell nothing more.
pub(crate) fn done(response: Response) -> Option<()> {
    (response == Response::Done).then_some(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn larger_bodies_get_more_time() {
        let put = |bytes: usize| Request::PutObject {
            key: String::new(),
            body: vec![Bytes::from(vec![0; bytes])],
            sha256: [0; 32],
            content_type: None,
        };
        assert_eq!(deadline(&put(0)), Duration::from_secs(30));
        assert_eq!(deadline(&put(1)), Duration::from_secs(31));
        assert_eq!(deadline(&put(5 << 20)), Duration::from_secs(35));
        assert_eq!(wait_before(2), Duration::from_millis(200));
        assert_eq!(wait_before(3), Duration::from_millis(400));
    }

    #[test]
    fn an_answer_to_another_request_is_unknown() {
        assert_eq!(expect(Outcome::Applied(Response::Done), done), Outcome::Applied(()));
        assert!(matches!(expect(Outcome::Applied(Response::PartStored("e".into())), done), Outcome::Unknown(_)));
        assert_eq!(
            expect(Outcome::NotApplied(Refusal::NoSuchKey), done),
            Outcome::<(), _>::NotApplied(Refusal::NoSuchKey)
        );
    }
}
