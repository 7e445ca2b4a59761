//! The two clocks of the machine.
//!
//! Durations and deadlines come from the monotonic clock; object keys, envelopes and whatever else is
//! written down for others come from the wall clock. The runtime reads both once per call, from a
//! monotonic clock that goes on while the machine is suspended (`CLOCK_BOOTTIME` on Linux): a route
//! must not look fresh because the host slept.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point on the monotonic clock, in microseconds since an arbitrary start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Monotonic(u64);

impl Monotonic {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// From microseconds since the start of the clock.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// From milliseconds since the start of the clock.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    /// Microseconds since the start of the clock.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Time from `earlier` until `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Monotonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// Both clocks at the moment of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For durations and deadlines.
    pub monotonic: Monotonic,
    /// Wall clock, milliseconds since 1970-01-01 UTC, for object keys, envelopes and record timestamps.
    pub unix_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_wraps() {
        let end = Monotonic::from_micros(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Monotonic::ZERO.since(end), Duration::ZERO);
        assert_eq!(Monotonic::from_millis(1500).since(Monotonic::from_millis(500)), Duration::from_secs(1));
    }
}
