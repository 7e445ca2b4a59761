//! The search for a broker that can be connected: candidates, attempts, waits (kafka-listener contract section 10).

use crate::cluster::Address;
use crate::config::ClusterConfig;
use crate::listener::RequestId;
use crate::listener::pool::{Outbound, PoolEvent};
use crate::listener::request::{PartResult, Target};
use crate::time::Monotonic;

/// One part that waits for a broker.
#[derive(Debug)]
pub(super) struct Search {
    target: Target,
    pub(super) outbound: Outbound,
    /// When all dials and waits of the request are over.
    pub(super) give_up_at: Monotonic,
    /// Attempts that are over; each goes through all candidates.
    attempts: u32,
    /// Brokers that could not be connected in this attempt.
    tried: Vec<Address>,
}

/// Where a search goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// To this broker.
    Broker(Address),
    /// Nowhere before this time.
    Wait(Monotonic),
    /// Nothing was sent, and nothing will be.
    GiveUp,
}

impl Search {
    pub(super) fn new(target: Target, outbound: Outbound, give_up_at: Monotonic) -> Self {
        Self { target, outbound, give_up_at, attempts: 0, tried: Vec::new() }
    }

    pub(super) fn request(&self) -> RequestId {
        self.outbound.ticket.request
    }

    /// Whether every broker is as good.
    pub(super) fn wants_any(&self) -> bool {
        matches!(self.target, Target::Any { .. })
    }

    /// The end of a search that found nobody.
    pub(super) fn not_sent(self) -> PoolEvent {
        PoolEvent::Finished { ticket: self.outbound.ticket, result: PartResult::NotSent }
    }

    /// This broker could not be connected.
    pub(super) fn failed(&mut self, address: &Address) {
        self.tried.push(address.clone());
    }

    /// Decides what comes next. `candidates` is the list of this moment, so that a broker that appears during a wait is
    /// found; `turn` is where the round robin begins; brokers that `failed_recently` come last.
    pub(super) fn next(
        &mut self,
        now: Monotonic,
        config: &ClusterConfig,
        candidates: &[Address],
        turn: u64,
        failed_recently: impl Fn(&Address) -> bool,
    ) -> Next {
        if now >= self.give_up_at {
            return Next::GiveUp;
        }
        let (preferred, not) = match &self.target {
            Target::Only(address) if self.tried.is_empty() => return Next::Broker(address.clone()),
            Target::Only(_) => return Next::GiveUp,
            Target::Prefer { address, not } => (Some(address), not),
            Target::Any { not } => (None, not),
        };
        let is_preferred = |address: &&Address| Some(*address) == preferred;
        let allowed = |address: &&Address| is_preferred(address) || !not.contains(address);
        if preferred.is_none() && !candidates.iter().any(|address| allowed(&address)) {
            return Next::GiveUp;
        }
        let untried = |address: &&Address| allowed(address) && !self.tried.contains(address);
        let rotated = || {
            let start = usize::try_from(turn % candidates.len().max(1) as u64).unwrap_or_default();
            candidates.iter().skip(start).chain(candidates.iter().take(start)).filter(untried)
        };
        let next = preferred
            .filter(|address| untried(address) && !failed_recently(address))
            .or_else(|| rotated().find(|address| !failed_recently(address)))
            .or_else(|| preferred.filter(untried))
            .or_else(|| rotated().next());
        if let Some(address) = next {
            return Next::Broker(address.clone());
        }
        self.attempts += 1;
        self.tried.clear();
        let again = now + config.connect_backoff;
        if self.attempts >= config.connect_attempts || again >= self.give_up_at {
            Next::GiveUp
        } else {
            Next::Wait(again)
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::listener::pool::Ticket;
    use crate::listener::request::Part;

    fn address(name: &str) -> Address {
        Address::new(name)
    }

    fn list(names: &str) -> Vec<Address> {
        names.split_whitespace().map(address).collect()
    }

    fn search(target: Target) -> Search {
        let outbound = Outbound {
            ticket: Ticket { request: RequestId(1), part: Part(0) },
            bytes: Bytes::new(),
            correlation_id: 1,
            answered: true,
            deadline: std::time::Duration::ZERO,
        };
        Search::new(target, outbound, Monotonic::from_millis(15_000))
    }

    /// Lets every dial fail at once and every wait pass; gives the walk in short.
    fn walk(mut search: Search, config: &ClusterConfig, candidates: &[Address], turn: u64) -> Vec<String> {
        let (mut walk, mut now) = (Vec::new(), Monotonic::ZERO);
        loop {
            match search.next(now, config, candidates, turn, |_| false) {
                Next::Broker(address) => {
                    walk.push(address.to_string());
                    search.failed(&address);
                }
                Next::Wait(at) => {
                    walk.push("wait".into());
                    now = at;
                }
                Next::GiveUp => return walk,
            }
        }
    }

    #[test]
    fn all_candidates_in_one_attempt_and_no_wait_after_the_last() {
        let config = ClusterConfig { connect_attempts: 2, ..ClusterConfig::default() };
        let any = |not: &str| search(Target::Any { not: list(not) });
        let prefer = |name: &str, not: &str| search(Target::Prefer { address: address(name), not: list(not) });
        let three = list("a b c");
        assert_eq!(walk(any(""), &config, &three, 1), ["b", "c", "a", "wait", "b", "c", "a"]);
        assert_eq!(walk(any("c"), &config, &three, 2), ["a", "b", "wait", "a", "b"]);
        assert_eq!(walk(prefer("c", ""), &config, &three, 0), ["c", "a", "b", "wait", "c", "a", "b"]);
        assert_eq!(walk(prefer("c", "c a"), &config, &three, 0), ["c", "b", "wait", "c", "b"]);
        assert_eq!(walk(search(Target::Only(address("c"))), &config, &three, 0), ["c"]);
    }

    #[test]
    fn all_candidates_excluded_fails_at_once() {
        let any = search(Target::Any { not: list("a b") });
        assert!(walk(any, &ClusterConfig::default(), &list("a b"), 0).is_empty());
    }

    #[test]
    fn a_broker_that_appears_during_a_wait_is_found() {
        let config = ClusterConfig::default();
        let mut search = search(Target::Any { not: Vec::new() });
        let one = list("a");
        assert_eq!(search.next(Monotonic::ZERO, &config, &one, 0, |_| false), Next::Broker(address("a")));
        search.failed(&address("a"));
        let Next::Wait(at) = search.next(Monotonic::ZERO, &config, &one, 0, |_| false) else { panic!("no wait") };
        assert_eq!(at, Monotonic::from_millis(500));
        assert_eq!(search.next(at, &config, &list("b"), 0, |_| false), Next::Broker(address("b")));
    }

    #[test]
    fn brokers_that_failed_recently_come_last() {
        let config = ClusterConfig::default();
        let mut search = search(Target::Prefer { address: address("a"), not: Vec::new() });
        let failed = |address: &Address| address.as_str() == "a";
        assert_eq!(search.next(Monotonic::ZERO, &config, &list("a b"), 0, failed), Next::Broker(address("b")));
        search.failed(&address("b"));
        assert_eq!(search.next(Monotonic::ZERO, &config, &list("a b"), 0, failed), Next::Broker(address("a")));
    }

    #[test]
    fn bounded_in_time() {
        let mut search = search(Target::Only(address("a")));
        let end = Monotonic::from_millis(15_000);
        assert_eq!(search.next(end, &ClusterConfig::default(), &list("a"), 0, |_| false), Next::GiveUp);
    }
}
