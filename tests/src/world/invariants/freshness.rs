//! I3: nothing is sent to a broker, and nothing is answered from memory, once the TTL has passed since the last moment at
//! which etcd served a linearizable read for this shard. When etcd served it is what the model saw, so an answer that came
//! late proves no more than one that came at once.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::Monotonic;
use kafscale_proxy_core::etcd::{Keys, Request, TxnOperation};
use kafscale_proxy_core::model::broker::SNAPSHOT_KEY;

const PARTITIONS: &str = "/kafscale/partition-leases/";

/// What was read, and when etcd served it last.
pub struct Freshness {
    ttl: Duration,
    served: BTreeMap<(usize, String), Monotonic>,
}

impl Freshness {
    pub(super) const fn new(ttl: Duration) -> Self {
        Self { ttl, served: BTreeMap::new() }
    }

    /// etcd served a request of a shard.
    pub(in crate::world) fn served(&mut self, shard: usize, request: &Request, now: Monotonic) {
        match request {
            Request::Range(range) => self.read(shard, &range.keys, now),
            Request::Txn(txn) => {
                for operation in txn.success.iter().chain(&txn.failure) {
                    match operation {
                        TxnOperation::Range(range) => self.read(shard, &range.keys, now),
                        TxnOperation::Put { .. } | TxnOperation::Delete(_) => {}
                    }
                }
            }
            Request::LeaseGrant { .. } | Request::LeaseKeepAlive { .. } | Request::LeaseRevoke { .. } => {}
        }
    }

    fn read(&mut self, shard: usize, keys: &Keys, now: Monotonic) {
        match keys {
            Keys::One(key) => drop(self.served.insert((shard, String::from_utf8_lossy(key).into_owned()), now)),
            // Its end is as good as its start: long prefixes are read in pages.
            Keys::Between(..) => {
                if keys.contain(PARTITIONS.as_bytes()) || keys.contain(format!("{PARTITIONS}~").as_bytes()) {
                    self.served.insert((shard, PARTITIONS.to_owned()), now);
                }
            }
        }
    }

    fn is_fresh(&self, shard: usize, name: &str, now: Monotonic) -> bool {
        self.served.get(&(shard, name.to_owned())).is_some_and(|served| now.since(*served) <= self.ttl)
    }

    /// What is wrong with answering from the snapshot now.
    pub(super) fn of_snapshot(&self, shard: usize, now: Monotonic) -> Option<String> {
        let snapshot = String::from_utf8_lossy(SNAPSHOT_KEY.as_ref()).into_owned();
        (!self.is_fresh(shard, &snapshot, now))
            .then(|| format!("shard {shard}: snapshot served at {:?}", self.served.get(&(shard, snapshot))))
    }

    /// What is wrong with sending something for this partition now.
    pub(super) fn of_partition(&self, shard: usize, topic: &str, partition: i32, now: Monotonic) -> Option<String> {
        let key = format!("{PARTITIONS}{topic}/{partition}");
        if let Some(fault) = self.of_snapshot(shard, now) {
            return Some(fault);
        }
        let fresh = self.is_fresh(shard, PARTITIONS, now) || self.is_fresh(shard, &key, now);
        (!fresh).then(|| {
            let served = self.served.get(&(shard, PARTITIONS.to_owned()));
            format!("shard {shard}: leases of partitions served at {served:?}")
        })
    }
}
