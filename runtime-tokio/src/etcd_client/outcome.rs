//! What an error of the etcd client proves: the one table.

use std::error::Error as _;

use etcd_client::Error;
use kafscale_proxy_core::Outcome;
use kafscale_proxy_core::etcd::Refusal;
use tonic::Code;

/// What became of a request that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection: nothing was handed over, and another member may be asked.
    Unreachable(String),
    /// A definite refusal.
    Refused(Refusal),
    /// Anything else.
    Unknown(String),
}

impl<T> From<Failure> for Outcome<T, Refusal> {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(text) => Self::NotApplied(Refusal::Unreachable(text)),
            Failure::Refused(refusal) => Self::NotApplied(refusal),
            Failure::Unknown(text) => Self::Unknown(text),
        }
    }
}

/// Reads an error.
///
/// A status counts as a refusal only when etcd itself wrote it (its messages carry a prefix): the same codes are
/// also made up by the transport, for answers that were too large or never came.
pub(crate) fn failure(error: &Error) -> Failure {
    let text = error.to_string();
    let status = match error {
        Error::GRpcStatus(status) => status,
        Error::InvalidArgs(_)
        | Error::InvalidUri(_)
        | Error::Utf8Error(_)
        | Error::InvalidMetadataValue(_)
        | Error::EndpointError(_)
        | Error::EndpointsNotManaged => return Failure::Refused(Refusal::Other(text)),
        Error::IoError(_)
        | Error::TransportError(_)
        | Error::WatchError(_)
        | Error::LeaseKeepAliveError(_)
        | Error::ElectError(_)
        | Error::Internal(_) => return Failure::Unknown(text),
    };
    if never_connected(status) {
        return Failure::Unreachable(source_text(status));
    }
    let message = status.message();
    let by_etcd = message.starts_with("etcdserver:") || message.starts_with("mvcc:") || message.starts_with("auth:");
    if !by_etcd {
        return Failure::Unknown(text);
    }
    match status.code() {
        Code::OutOfRange if message.contains("compacted") => Failure::Refused(Refusal::Compacted(0)),
        Code::PermissionDenied | Code::Unauthenticated => {
            Failure::Refused(Refusal::PermissionDenied(message.to_owned()))
        }
        Code::InvalidArgument if message.contains("authentication failed") => {
            Failure::Refused(Refusal::PermissionDenied(message.to_owned()))
        }
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::ResourceExhausted
        | Code::Unimplemented => Failure::Refused(Refusal::Other(message.to_owned())),
        // "leader changed", "request timed out" and the like: the proposal may have been made.
        Code::Unavailable
        | Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::DataLoss => Failure::Unknown(text),
    }
}

/// Whether the transport never had a connection to hand the request to.
fn never_connected(status: &tonic::Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The innermost reason, which says what the layers above it repeat.
fn source_text(status: &tonic::Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    text
}

/// Whether etcd says that a lease is not there.
pub(crate) fn is_lease_missing(error: &Error) -> bool {
    match error {
        Error::GRpcStatus(status) => {
            status.code() == Code::NotFound && status.message().starts_with("etcdserver: requested lease not found")
        }
        Error::LeaseKeepAliveError(text) => text == "lease not found",
        Error::InvalidArgs(_)
        | Error::InvalidUri(_)
        | Error::IoError(_)
        | Error::TransportError(_)
        | Error::WatchError(_)
        | Error::Utf8Error(_)
        | Error::ElectError(_)
        | Error::InvalidMetadataValue(_)
        | Error::EndpointError(_)
        | Error::EndpointsNotManaged
        | Error::Internal(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tonic::Status;

    use super::*;

    fn refused() -> Status {
        let connect = tonic::ConnectError(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)));
        Status::from_error(Box::new(connect))
    }

    fn reset() -> Status {
        Status::from_error(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)))
    }

    #[test]
    fn the_outcome_table() {
        let denied = |text: &str| Failure::Refused(Refusal::PermissionDenied(text.into()));
        let other = |text: &str| Failure::Refused(Refusal::Other(text.into()));
        let unknown = Failure::Unknown(String::new());
        let table = [
            (refused(), Failure::Unreachable("connection refused".into())),
            (reset(), unknown.clone()),
            (
                Status::new(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
                Failure::Refused(Refusal::Compacted(0)),
            ),
            (
                Status::new(Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
                other("etcdserver: mvcc: required revision is a future revision"),
            ),
            (Status::new(Code::OutOfRange, "Error, decoded message length too large"), unknown.clone()),
            (
                Status::new(Code::PermissionDenied, "etcdserver: permission denied"),
                denied("etcdserver: permission denied"),
            ),
            (Status::new(Code::PermissionDenied, "RBAC: access denied"), unknown.clone()),
            (
                Status::new(Code::Unauthenticated, "etcdserver: invalid auth token"),
                denied("etcdserver: invalid auth token"),
            ),
            (
                Status::new(Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
                denied("etcdserver: authentication failed, invalid user ID or password"),
            ),
            (
                Status::new(Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
                other("etcdserver: authentication is not enabled"),
            ),
            (
                Status::new(Code::InvalidArgument, "etcdserver: too many operations in txn request"),
                other("etcdserver: too many operations in txn request"),
            ),
            (
                Status::new(Code::NotFound, "etcdserver: requested lease not found"),
                other("etcdserver: requested lease not found"),
            ),
            (
                Status::new(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
                other("etcdserver: mvcc: database space exceeded"),
            ),
            (Status::new(Code::ResourceExhausted, "h2 protocol error: enhance your calm"), unknown.clone()),
            (
                Status::new(
                    Code::Unavailable,
                    "etcdserver: request timed out, possibly due to previous leader failure",
                ),
                unknown.clone(),
            ),
            (Status::new(Code::Unavailable, "etcdserver: leader changed"), unknown.clone()),
            (Status::new(Code::Unavailable, "etcdserver: no leader"), unknown.clone()),
            (Status::new(Code::DeadlineExceeded, "context deadline exceeded"), unknown.clone()),
            (Status::new(Code::Cancelled, "operation was canceled"), unknown.clone()),
            (Status::new(Code::Internal, "h2 protocol error"), unknown.clone()),
        ];
        for (status, expected) in table {
            let text = status.to_string();
            let found = match failure(&Error::GRpcStatus(status)) {
                // The text of an unknown outcome is for logs.
                Failure::Unknown(_) => unknown.clone(),
                Failure::Unreachable(text) => Failure::Unreachable(text),
                Failure::Refused(refusal) => Failure::Refused(refusal),
            };
            assert_eq!(found, expected, "{text}");
        }
        assert!(matches!(failure(&Error::WatchError("x".into())), Failure::Unknown(_)));
        assert!(matches!(failure(&Error::InvalidArgs("x".into())), Failure::Refused(_)));
    }

    #[test]
    fn a_lease_that_is_gone() {
        let gone = Error::GRpcStatus(Status::new(Code::NotFound, "etcdserver: requested lease not found"));
        assert!(is_lease_missing(&gone));
        assert!(is_lease_missing(&Error::LeaseKeepAliveError("lease not found".into())));
        assert!(!is_lease_missing(&Error::GRpcStatus(Status::new(Code::NotFound, "etcdserver: user name not found"))));
    }
}
