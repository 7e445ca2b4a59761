//! Both clocks, read once per call of the machine.

use std::time::{SystemTime, UNIX_EPOCH};

use kafscale_proxy_core::{Monotonic, Now};
use rustix::time::{ClockId, clock_gettime};

/// The time.
///
/// The monotonic side goes on while the host is suspended (`CLOCK_BOOTTIME` on Linux), so that a route does not
/// look fresh because the host slept. Elsewhere it is the ordinary monotonic clock.
pub fn now() -> Now {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    let micros = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000;
    // A wall clock before 1970 is reported as 1970: there is nothing better to write into an envelope.
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { monotonic: Monotonic::from_micros(micros), unix_ms: i64::try_from(unix.as_millis()).unwrap_or(i64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_run() {
        let before = now();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let after = now();
        let elapsed = after.monotonic.since(before.monotonic);
        assert!(elapsed >= std::time::Duration::from_millis(5), "{elapsed:?}");
        assert!(before.unix_ms > 1_600_000_000_000);
    }
}
