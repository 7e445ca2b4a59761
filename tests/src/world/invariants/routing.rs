//! Requests reach the owner: while a lease has not changed for longer than the proxy needs to see it, etcd is reachable and
//! the owner is well, no Produce and no Fetch for the partition is written to anybody else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafscale_proxy_core::Monotonic;
use kafscale_proxy_core::etcd::{Keys, Revision};
use kafscale_proxy_core::model::broker::SNAPSHOT_KEY;

use super::PARTITIONS;
use crate::world::EtcdSide;

/// A watch tells a change within milliseconds; a request that waits for a connection was routed up to a whole round of dials
/// before it is written.
const SEEN: Duration = Duration::from_secs(8);
/// Two cycles of proofs: whatever a trouble of etcd has hidden is known again by then.
const CALM: Duration = Duration::from_secs(25);

struct Lease {
    owner: Option<usize>,
    revision: Revision,
    since: Monotonic,
}

/// Troubles overlap: somebody is well when the last one has ended.
#[derive(Clone, Copy, Default)]
struct Health {
    troubles: u32,
    ended_at: Monotonic,
}

impl Health {
    fn disturbed(&mut self, disturbed: bool, now: Monotonic) {
        self.troubles = if disturbed { self.troubles + 1 } else { self.troubles.saturating_sub(1) };
        self.not_calm_before(now);
    }

    fn not_calm_before(&mut self, at: Monotonic) {
        self.ended_at = self.ended_at.max(at);
    }

    fn is_calm(self, now: Monotonic) -> bool {
        self.troubles == 0 && now.since(self.ended_at) > CALM
    }
}

/// Owners as etcd has them, and since when nothing disturbs.
#[derive(Default)]
pub struct Routing {
    revision: Revision,
    leases: BTreeMap<String, Lease>,
    shards: BTreeMap<usize, Health>,
    brokers: BTreeMap<usize, Health>,
    /// Brokers for which a fault waits that strikes at an unknown moment: they may refuse or break at any time.
    spoiled: BTreeSet<usize>,
    /// Nobody says when a fault begins or ends, so that nothing can be judged.
    unannounced: bool,
    snapshot: Revision,
    /// Since when the snapshot lists no broker, if it does not.
    brokerless: Option<Monotonic>,
    judged: u64,
}

impl Routing {
    /// Something was done to etcd.
    pub(in crate::world) fn leases_may_have_changed(&mut self, etcd: &EtcdSide, now: Monotonic) {
        if etcd.model.revision() == self.revision {
            return;
        }
        self.revision = etcd.model.revision();
        if let Some(snapshot) = etcd.model.get(SNAPSHOT_KEY.as_bytes())
            && snapshot.mod_revision != self.snapshot
        {
            self.snapshot = snapshot.mod_revision;
            let brokerless = String::from_utf8_lossy(&snapshot.value).contains(r#""Brokers":null"#);
            self.brokerless = brokerless.then(|| self.brokerless.unwrap_or(now));
        }
        let keys = Keys::prefix(PARTITIONS);
        let mut leases = BTreeMap::new();
        for kv in etcd.model.list(&keys) {
            let key = String::from_utf8_lossy(&kv.key).into_owned();
            let owner = std::str::from_utf8(&kv.value).ok().and_then(|id| id.parse().ok());
            let since = match self.leases.get(&key) {
                Some(lease) if lease.revision == kv.mod_revision => lease.since,
                Some(_) | None => now,
            };
            leases.insert(key, Lease { owner, revision: kv.mod_revision, since });
        }
        self.leases = leases;
    }

    /// The way of a shard to etcd is in trouble, or well from now on.
    pub fn shard_disturbed(&mut self, shard: usize, disturbed: bool, now: Monotonic) {
        self.shards.entry(shard).or_default().disturbed(disturbed, now);
    }

    /// A broker is in trouble, or well from now on.
    pub fn broker_disturbed(&mut self, broker: usize, disturbed: bool, now: Monotonic) {
        self.brokers.entry(broker).or_default().disturbed(disturbed, now);
    }

    /// A shard begins, or stands still until then, or was in a trouble that this judge was not told of: that ends no other one.
    pub fn shard_not_calm_before(&mut self, shard: usize, at: Monotonic) {
        self.shards.entry(shard).or_default().not_calm_before(at);
    }

    /// Nothing strikes any more.
    pub fn nothing_waits(&mut self, now: Monotonic) {
        for broker in std::mem::take(&mut self.spoiled) {
            self.brokers.entry(broker).or_default().not_calm_before(now);
        }
    }

    /// A fault waits for a broker, and nobody knows when it will strike.
    pub fn broker_spoiled(&mut self, broker: usize) {
        self.spoiled.insert(broker);
    }

    /// From now on faults come and go of which this judge is not told: it says nothing any more.
    pub fn faults_come_unannounced(&mut self) {
        self.unannounced = true;
    }

    /// Whether neither the shard's way to etcd nor any broker is in trouble, or was not long ago.
    pub(super) fn is_calm(&self, shard: usize, now: Monotonic) -> bool {
        // The first look around comes before the first client: the start of the world is calm.
        let calm = |health: &Health| {
            let from_the_start = health.troubles == 0 && health.ended_at == Monotonic::ZERO;
            from_the_start || health.is_calm(now)
        };
        !self.unannounced
            && self.spoiled.is_empty()
            && self.shards.get(&shard).is_none_or(calm)
            && self.brokers.values().all(calm)
    }

    /// How many writes could be judged.
    pub const fn judged(&self) -> u64 {
        self.judged
    }

    /// What is wrong with writing something to any broker.
    pub(super) fn of_any(&self, shard: usize, now: Monotonic) -> Option<String> {
        let since = self.brokerless.filter(|_| !self.unannounced)?;
        let calm = self.shards.get(&shard).copied().unwrap_or_default().is_calm(now);
        (calm && now.since(since) > SEEN)
            .then(|| format!("shard {shard} writes; the snapshot is empty since {since:?}"))
    }

    /// What is wrong with writing something for this partition to this broker.
    pub(super) fn of(
        &mut self,
        shard: usize,
        broker: usize,
        topic: &str,
        partition: i32,
        now: Monotonic,
    ) -> Option<String> {
        let key = format!("{PARTITIONS}{topic}/{partition}");
        let lease = self.leases.get(&key)?;
        let owner = lease.owner?;
        let calm = |health: Option<&Health>| health.copied().unwrap_or_default().is_calm(now);
        if self.unannounced
            || self.spoiled.contains(&owner)
            || now.since(lease.since) <= SEEN
            || !calm(self.shards.get(&shard))
            || !calm(self.brokers.get(&owner))
        {
            return None;
        }
        self.judged += 1;
        (owner != broker).then(|| {
            format!(
                "shard {shard} writes {topic}/{partition} to broker {broker}; owner since {:?}: {owner}",
                lease.since
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Monotonic {
        Monotonic::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_pause_ends_no_other_trouble() {
        let mut routing = Routing::default();
        routing.shard_disturbed(0, true, at(1));
        routing.shard_not_calm_before(0, at(5));
        assert!(!routing.is_calm(0, at(5) + LATER), "the first trouble lasts");
        routing.shard_disturbed(0, false, at(70));
        assert!(!routing.is_calm(0, at(71)));
        assert!(routing.is_calm(0, at(70) + LATER));
    }

    #[test]
    fn brokers_are_judged_again_when_no_fault_waits_for_them() {
        let mut routing = Routing::default();
        routing.broker_spoiled(1);
        assert!(!routing.is_calm(0, at(1) + LATER));
        routing.nothing_waits(at(100));
        assert!(!routing.is_calm(0, at(101)), "what it did may still be felt");
        assert!(routing.is_calm(0, at(100) + LATER));
    }
}
