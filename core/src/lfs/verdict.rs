//! Keep or delete: what becomes of a stored blob when its publication has ended (lfs-http contract section 9).
//!
//! A blob that no record can refer to is deleted; one that a record may refer to is kept, and counted as an orphan
//! when nobody can be sure. This table is the only place that decides it.

use crate::http::error_body::{ApiError, Code};
use crate::planted::{Bug, planted};

/// How a publication ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A broker answered 0.
    Acknowledged,
    /// Every try was refused with a code that proves that nothing was written, and nobody is left to try.
    Refused,
    /// The knowledge of the cluster went stale before sending, or before the next try.
    Stale,
    /// No broker could be connected: after the upload, or for the next try.
    NotConnected,
    /// The topic's identity could not be read after the upload.
    Unreadable,
    /// The topic was deleted or created anew during the upload.
    TopicChanged,
    /// The client is gone before anything was sent, or between two tries.
    ClientGone,
    /// At least one byte was handed to a socket, and no usable answer came.
    Ambiguous,
    /// A code that does not prove that nothing was written.
    Failed(i16),
}

/// What becomes of the blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blob {
    /// A record refers to it.
    Keep,
    /// A record may refer to it: kept and counted.
    KeepAsOrphan,
    /// No record can refer to it.
    Delete,
}

impl Ending {
    /// What becomes of the blob.
    pub(crate) fn blob(self) -> Blob {
        match self {
            Self::Acknowledged => Blob::Keep,
            Self::Ambiguous if planted(Bug::AmbiguousBlobDeleted) => Blob::Delete,
            Self::TopicChanged if planted(Bug::ChangedTopicBlobKept) => Blob::KeepAsOrphan,
            Self::Refused if planted(Bug::RefusedBlobKept) => Blob::KeepAsOrphan,
            Self::Ambiguous | Self::Failed(_) => Blob::KeepAsOrphan,
            Self::Refused
            | Self::Stale
            | Self::NotConnected
            | Self::Unreadable
            | Self::TopicChanged
            | Self::ClientGone => Blob::Delete,
        }
    }

    /// What the client is told; `None` is success, or nobody to tell.
    pub(crate) fn error(self) -> Option<ApiError> {
        let (code, message) = match self {
            Self::Acknowledged | Self::ClientGone => return None,
            Self::Refused => {
                (Code::BackendUnavailable, "no broker accepted the record as leader of the partition".into())
            }
            Self::Stale => (Code::BackendUnavailable, "the cluster state is too old to send the record".into()),
            Self::NotConnected => (Code::BackendUnavailable, "no broker could be reached to send the record".into()),
            Self::Unreadable => (Code::MetadataUnavailable, "the topic could not be checked after the upload".into()),
            Self::TopicChanged => (Code::TopicChanged, "the topic was deleted or recreated during the upload".into()),
            Self::Ambiguous => {
                (Code::BackendError, "the broker did not confirm the record; it may have been written".into())
            }
            Self::Failed(code) => (Code::BackendError, format!("the broker answered error {code} to the record")),
        };
        Some(ApiError::new(code, message))
    }
}

/// What an error code in a Produce answer says of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Written.
    Acknowledged,
    /// Proof that this broker wrote nothing: another one may be tried.
    NotLeader,
    /// Anything may have happened.
    Failed(i16),
}

impl Answered {
    /// Reads a code (<https://kafka.apache.org/protocol.html#protocol_error_codes>).
    pub(crate) fn of(error_code: i16) -> Self {
        match error_code {
            0 => Self::Acknowledged,
            _ if planted(Bug::ErrorCodeIgnored) => Self::Acknowledged,
            // LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
            5 | 6 | 74 | 75 => Self::NotLeader,
            other => Self::Failed(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the contract, row by row.
    #[test]
    fn keep_or_delete() {
        let table = [
            (Ending::Acknowledged, Blob::Keep, None),
            (Ending::Refused, Blob::Delete, Some((503, "backend_unavailable"))),
            (Ending::Stale, Blob::Delete, Some((503, "backend_unavailable"))),
            (Ending::NotConnected, Blob::Delete, Some((503, "backend_unavailable"))),
            (Ending::Unreadable, Blob::Delete, Some((503, "metadata_unavailable"))),
            (Ending::TopicChanged, Blob::Delete, Some((409, "topic_changed"))),
            (Ending::ClientGone, Blob::Delete, None),
            (Ending::Ambiguous, Blob::KeepAsOrphan, Some((502, "backend_error"))),
            (Ending::Failed(7), Blob::KeepAsOrphan, Some((502, "backend_error"))),
            (Ending::Failed(-1), Blob::KeepAsOrphan, Some((502, "backend_error"))),
        ];
        for (ending, blob, answer) in table {
            assert_eq!(ending.blob(), blob, "{ending:?}");
            let error = ending.error();
            let told = error.as_ref().map(|error| (error.code.status().as_u16(), error.code.text()));
            assert_eq!(told, answer, "{ending:?}");
        }
    }

    #[test]
    fn codes_of_a_produce_answer() {
        for code in [5, 6, 74, 75] {
            assert_eq!(Answered::of(code), Answered::NotLeader);
        }
        for code in [-1, 1, 2, 3, 7, 10, 19, 20, 29, 87, i16::MIN, i16::MAX] {
            assert_eq!(Answered::of(code), Answered::Failed(code));
        }
        assert_eq!(Answered::of(0), Answered::Acknowledged);
    }
}
