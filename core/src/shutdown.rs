//! The orderly end: not ready at once, a grace in which everything still works, then no more accepting and reading
//! while what is in flight is answered, and a deadline for that.

use crate::config::ShutdownConfig;
use crate::lifecycle::Lifecycle;
use crate::planted::{Bug, planted};
use crate::time::Monotonic;
use crate::timers::{Timer, Timers};

/// Where the shutdown stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// Nobody asked for it.
    Running,
    /// Not ready, but still accepting and serving: load balancers take their time to notice.
    Grace,
    /// Nothing new is read; what is in flight is answered.
    Draining,
    /// The deadline has passed; what is still open is given up.
    Over,
}

/// Its moves.
pub(crate) const LIFECYCLE: Lifecycle = Lifecycle {
    name: "Shutdown",
    file: "core/src/shutdown.rs",
    start: "Running",
    moves: &[
        ("Running", "Grace", "SIGINT or SIGTERM"),
        ("Grace", "Draining", "the grace is over"),
        ("Draining", "Over", "the deadline has passed"),
    ],
};

impl Shutdown {
    const fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Grace => "Grace",
            Self::Draining => "Draining",
            Self::Over => "Over",
        }
    }

    fn enter(&mut self, next: Self) {
        LIFECYCLE.step(&mut self.name(), next.name());
        *self = next;
    }

    /// The process was asked to end. A second request changes nothing.
    pub(crate) fn request(&mut self, timers: &mut Timers, now: Monotonic, config: &ShutdownConfig) {
        match self {
            Self::Running => {
                self.enter(Self::Grace);
                timers.set(Timer::Shutdown, now + config.grace);
            }
            Self::Grace | Self::Draining | Self::Over => {}
        }
    }

    /// Its timer is due: the next step begins.
    pub(crate) fn advance(&mut self, timers: &mut Timers, now: Monotonic, config: &ShutdownConfig) {
        match self {
            Self::Grace => {
                self.enter(Self::Draining);
                timers.set(Timer::Shutdown, now + config.drain);
            }
            Self::Draining if planted(Bug::EndWaitsForEver) => {}
            Self::Draining => self.enter(Self::Over),
            Self::Running | Self::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn grace_then_drain_then_over() {
        let config = ShutdownConfig { grace: Duration::from_secs(5), drain: Duration::from_secs(10) };
        let (mut shutdown, mut timers) = (Shutdown::Running, Timers::default());
        let at = |seconds: u64| Monotonic::from_millis(seconds * 1_000);
        shutdown.request(&mut timers, at(0), &config);
        shutdown.request(&mut timers, at(1), &config);
        assert_eq!(
            (shutdown, timers.pop_due(at(4)), timers.pop_due(at(5))),
            (Shutdown::Grace, None, Some(Timer::Shutdown))
        );
        shutdown.advance(&mut timers, at(5), &config);
        assert_eq!((shutdown, timers.pop_due(at(15))), (Shutdown::Draining, Some(Timer::Shutdown)));
        shutdown.advance(&mut timers, at(15), &config);
        assert_eq!(shutdown, Shutdown::Over);
    }
}
