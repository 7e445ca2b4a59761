//! How fresh is fresh: the TTL decision table of kafka-listener contract section 9.
//!
//! **What a proof proves.** A linearizable read answers with a state that the store had at some moment between the
//! order of the read and its answer. When the answer comes, that moment may be long past: the reply may have hung in
//! a socket, or a large value may have been parsed. So an answer proves its state for the moment of the *order* and
//! for none after it, and clocks move to the time of the order. A read that spans pages is proven for the moment its
//! first page was ordered, because all pages are read at the revision of the first. For the same reason a question
//! may join a read that was under way before it was asked only if it asks for freshness: it is then judged by the
//! older clock. Every other question gets a read that was ordered after it.
//!
//! A watch that is silent proves nothing, because the silence of a dead watch sounds the same.

use std::time::Duration;

use super::{NotServing, Service};
use crate::planted::{Bug, planted};
use crate::time::Monotonic;

/// A moment inside the machine: the time of a call, and its place in the order of all calls.
///
/// Time alone does not tell whether a read was ordered before or after a route was dropped: both may happen in the
/// same microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at: Monotonic,
    pub(super) step: u64,
}

/// How long a proof counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ttl {
    /// Static backends: knowledge is used without limit, proven or not.
    Unlimited,
    /// Brokers from etcd.
    Limited(Duration),
}

impl Ttl {
    /// Whether knowledge with this proof may be used at `now`. The last instant of the TTL is still fresh.
    pub(super) fn covers(self, proof: Option<Monotonic>, now: Monotonic) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Limited(_) if planted(Bug::CacheNeverExpires) => proof.is_some(),
            Self::Limited(ttl) => proof.is_some_and(|proof| now.since(proof) <= ttl),
        }
    }
}

/// The TTL decision table. `listed` says whether the last successful read listed a broker.
pub(super) fn service(ttl: Ttl, clock: Option<Monotonic>, listed: bool, now: Monotonic) -> Service {
    match ttl {
        Ttl::Unlimited => Service::Serving,
        Ttl::Limited(_) if !ttl.covers(clock, now) => Service::AfterRead,
        Ttl::Limited(_) if listed => Service::Serving,
        Ttl::Limited(_) => Service::Refused(NotServing::NoBrokers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ttl_decision_table() {
        let limited = Ttl::Limited(Duration::from_secs(20));
        let read_at = Some(Monotonic::from_millis(1_000));
        let serving = Service::Serving;
        let no_brokers = Service::Refused(NotServing::NoBrokers);
        for (ttl, clock, listed, now_us, expected) in [
            // Static: any clock, any list.
            (Ttl::Unlimited, None, false, 0, serving),
            (Ttl::Unlimited, None, true, u64::MAX, serving),
            (Ttl::Unlimited, read_at, false, u64::MAX, serving),
            // Fresh, with brokers: the boundary is inclusive.
            (limited, read_at, true, 1_000_000, serving),
            (limited, read_at, true, 20_999_999, serving),
            (limited, read_at, true, 21_000_000, serving),
            (limited, read_at, true, 21_000_001, Service::AfterRead),
            // Fresh, without brokers: no read first.
            (limited, read_at, false, 21_000_000, no_brokers),
            // Stale or never: one read first, whatever the list was.
            (limited, read_at, false, 21_000_001, Service::AfterRead),
            (limited, read_at, true, 35_000_000, Service::AfterRead),
            (limited, None, false, 0, Service::AfterRead),
            (limited, None, true, 0, Service::AfterRead),
        ] {
            assert_eq!(
                service(ttl, clock, listed, Monotonic::from_micros(now_us)),
                expected,
                "{ttl:?} {clock:?} {listed} {now_us}"
            );
        }
    }
}
