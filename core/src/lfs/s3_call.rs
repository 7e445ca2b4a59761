//! How long an S3 request may take, and when it is worth another try (ops contract section 6).

use std::time::Duration;

use crate::config::S3Timeouts;
use crate::operation::Outcome;
use crate::s3::{Refusal, Request, Response};

/// Tries of one request, the first included.
pub(crate) const TRIES: u32 = 3;

/// After this time the outcome is unknown.
pub(crate) fn deadline(timeouts: &S3Timeouts, request: &Request) -> Duration {
    match request {
        Request::HeadBucket => timeouts.health,
        Request::AbortMultipartUpload { .. } | Request::DeleteObject { .. } => timeouts.delete,
        Request::CreateBucket
        | Request::CreateMultipartUpload { .. }
        | Request::HeadObject { .. }
        | Request::PresignGetObject { .. } => timeouts.request,
        Request::PutObject { body, .. } | Request::UploadPart { body, .. } => {
            timeouts.of_upload(body.iter().map(|piece| piece.len() as u64).sum())
        }
        Request::CompleteMultipartUpload { .. } => timeouts.complete,
        Request::GetObject { .. } => timeouts.get,
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

    /// A request of each kind, the seconds that it has by default, and with settings that are all different.
    #[test]
    fn every_request_has_the_time_of_its_kind() {
        let (key, upload_id) = (String::new(), String::new());
        let body = |bytes: usize| vec![Bytes::from(vec![0; bytes])];
        let put =
            |bytes| Request::PutObject { key: String::new(), body: body(bytes), sha256: [0; 32], content_type: None };
        let part =
            Request::UploadPart { key: key.clone(), upload_id: upload_id.clone(), part_number: 1, body: body(5 << 20) };
        let settings = S3Timeouts {
            upload: Duration::from_secs(100),
            upload_bytes_per_second: 1 << 16,
            complete: Duration::from_secs(200),
            get: Duration::from_secs(300),
            delete: Duration::from_secs(400),
            health: Duration::from_secs(500),
            request: Duration::from_secs(600),
        };
        for (request, by_default, set) in [
            (put(0), 30, 100),
            (put(1), 31, 101),
            (put(5 << 20), 35, 180),
            (part, 35, 180),
            (
                Request::CompleteMultipartUpload { key: key.clone(), upload_id: upload_id.clone(), parts: Vec::new() },
                300,
                200,
            ),
            (Request::GetObject { key: key.clone() }, 30, 300),
            (Request::AbortMultipartUpload { key: key.clone(), upload_id }, 10, 400),
            (Request::DeleteObject { key: key.clone() }, 10, 400),
            (Request::HeadBucket, 10, 500),
            (Request::CreateBucket, 15, 600),
            (Request::CreateMultipartUpload { key: key.clone(), content_type: None }, 15, 600),
            (Request::HeadObject { key }, 15, 600),
        ] {
            assert_eq!(deadline(&S3Timeouts::default(), &request), Duration::from_secs(by_default), "{request:?}");
            assert_eq!(deadline(&settings, &request), Duration::from_secs(set), "{request:?}");
        }
    }

    #[test]
    fn tries_are_ever_further_apart() {
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
