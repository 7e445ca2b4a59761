//! Tries of one S3 request.

use crate::lfs::s3_call::TRIES;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tries {
    /// This try is in flight.
    InFlight(u32),
    /// So many tries have failed; nothing is in flight.
    Waiting(u32),
}

impl Tries {
    pub(super) const fn count(self) -> u32 {
        match self {
            Self::InFlight(count) | Self::Waiting(count) => count,
        }
    }

    /// The failed try may be repeated later.
    pub(super) fn again(self) -> Option<Self> {
        (self.count() < TRIES).then_some(Self::Waiting(self.count()))
    }

    /// The next try is sent now.
    pub(super) const fn next(self) -> Self {
        Self::InFlight(self.count() + 1)
    }

    /// The last try has failed.
    pub(super) const fn ended(self) -> Self {
        Self::Waiting(self.count())
    }
}
