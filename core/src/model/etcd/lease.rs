//! Leases: keys that vanish together when their holder stops prolonging.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::etcd::Refusal;
use crate::time::Monotonic;

/// etcd never grants less than one and a half election timeouts: 2 s with its defaults.
const MIN_TTL_SECONDS: i64 = 2;
/// Above this etcd refuses ("too large lease TTL").
const MAX_TTL_SECONDS: i64 = 9_000_000_000;

#[derive(Clone, Debug)]
struct Lease {
    ttl_seconds: i64,
    ends: Monotonic,
    keys: BTreeSet<Bytes>,
}

/// All leases, and which one each key hangs on.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    last: i64,
    leases: BTreeMap<i64, Lease>,
    by_key: BTreeMap<Bytes, i64>,
}

impl Leases {
    /// A new lease and its granted seconds.
    pub(super) fn grant(&mut self, now: Monotonic, ttl_seconds: i64) -> Result<(i64, i64), Refusal> {
        if ttl_seconds > MAX_TTL_SECONDS {
            return Err(Refusal::Other("etcdserver: too large lease TTL".into()));
        }
        let ttl_seconds = ttl_seconds.max(MIN_TTL_SECONDS);
        self.last += 1;
        let lease = Lease { ttl_seconds, ends: now + seconds(ttl_seconds), keys: BTreeSet::new() };
        self.leases.insert(self.last, lease);
        Ok((self.last, ttl_seconds))
    }

    /// Prolongs a lease; 0 when it is gone.
    pub(super) fn keep_alive(&mut self, now: Monotonic, id: i64) -> i64 {
        let Some(lease) = self.leases.get_mut(&id) else { return 0 };
        lease.ends = now + seconds(lease.ttl_seconds);
        lease.ttl_seconds
    }

    pub(super) fn contains(&self, id: i64) -> bool {
        self.leases.contains_key(&id)
    }

    /// Hangs a key on a lease, or on none with 0; a put always decides anew.
    pub(super) fn attach(&mut self, key: &Bytes, id: i64) {
        self.detach(key);
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.insert(key.clone());
            self.by_key.insert(key.clone(), id);
        }
    }

    pub(super) fn detach(&mut self, key: &Bytes) {
        if let Some(id) = self.by_key.remove(key)
            && let Some(lease) = self.leases.get_mut(&id)
        {
            lease.keys.remove(key);
        }
    }

    /// Ends a lease; the keys that must go with it, in order.
    pub(super) fn end(&mut self, id: i64) -> BTreeSet<Bytes> {
        let keys = self.leases.remove(&id).map(|lease| lease.keys).unwrap_or_default();
        for key in &keys {
            self.by_key.remove(key);
        }
        keys
    }

    /// Leases of a backup take the place of all. They begin anew, as when a server has started.
    pub(super) fn restore(&mut self, now: Monotonic, backup: Self) {
        let last = self.last;
        *self = Self { last, ..backup };
        for lease in self.leases.values_mut() {
            lease.ends = now + seconds(lease.ttl_seconds);
        }
    }

    pub(super) fn next_end(&self) -> Option<Monotonic> {
        self.leases.values().map(|lease| lease.ends).min()
    }

    /// Ends the oldest lease that is due.
    pub(super) fn end_due(&mut self, now: Monotonic) -> Option<BTreeSet<Bytes>> {
        let (_, id) = self.leases.iter().map(|(id, lease)| (lease.ends, *id)).filter(|(ends, _)| *ends <= now).min()?;
        Some(self.end(id))
    }
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(ttl.unsigned_abs())
}
