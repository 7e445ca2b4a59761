//! Descriptors of the process: every connection is one, and some are kept for what clients need.

use std::os::fd::AsRawFd;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpStream;

/// One of so many descriptors is kept for etcd, S3, brokers and files.
const SPARE_SHARE: u64 = 8;
/// So many are kept at most.
const SPARE_MOST: u64 = 4096;

/// Allows as many descriptors as the system lets this process have: every connection is one.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "cannot raise the number of descriptors");
        }
    }
}

/// How many descriptors clients may use: without the rest no broker, etcd or S3 could be reached for those that are here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    /// The first one that is none for clients; `None` without a limit.
    first_spare: Option<u64>,
}

impl Descriptors {
    /// By the limit of the process.
    pub(crate) fn of_process() -> Self {
        Self::of(getrlimit(Resource::Nofile).current)
    }

    fn of(limit: Option<u64>) -> Self {
        Self { first_spare: limit.map(|limit| limit - (limit / SPARE_SHARE).min(SPARE_MOST)) }
    }

    /// Whether a client may have this connection. The system gives out the lowest free number, so a high one says that
    /// all below are taken.
    pub(crate) fn allow(self, stream: &TcpStream) -> bool {
        let number = u64::try_from(stream.as_raw_fd()).unwrap_or(u64::MAX);
        self.first_spare.is_none_or(|first| number < first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_no_clients() {
        let first_spare = |limit| Descriptors::of(limit).first_spare;
        assert_eq!(first_spare(Some(64)), Some(56));
        assert_eq!(first_spare(Some(1024)), Some(896));
        assert_eq!(first_spare(Some(1 << 20)), Some((1 << 20) - 4096));
        assert_eq!(first_spare(None), None);
    }

    #[test]
    fn the_limit_of_the_process_is_raised_as_far_as_it_may_be() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
