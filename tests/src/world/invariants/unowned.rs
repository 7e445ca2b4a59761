//! A partition that nobody owns has one broker that is asked for it, the same one from every shard: two shards that ask
//! different ones would make each of them take the lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafscale_proxy_core::Monotonic;
use kafscale_proxy_core::etcd::{Keys, Revision};

use super::PARTITIONS;
use crate::world::EtcdSide;

/// A deletion is told by then, and what was refused because of it was sent again.
const TOLD: Duration = Duration::from_secs(1);

/// Leases that are gone, and who was asked without them.
#[derive(Default)]
pub struct Unowned {
    revision: Revision,
    held: BTreeSet<String>,
    /// When a lease was last deleted.
    deleted: BTreeMap<String, Monotonic>,
    asked: BTreeMap<String, usize>,
}

impl Unowned {
    /// Something was done to etcd.
    pub(in crate::world) fn leases_may_have_changed(&mut self, etcd: &EtcdSide, now: Monotonic) {
        if etcd.model.revision() == self.revision {
            return;
        }
        self.revision = etcd.model.revision();
        let keys = Keys::prefix(PARTITIONS);
        let held = etcd.model.list(&keys).map(|kv| String::from_utf8_lossy(&kv.key).into_owned()).collect();
        let before = std::mem::replace(&mut self.held, held);
        self.deleted.extend(before.difference(&self.held).map(|key| (key.clone(), now)));
    }

    /// What is wrong with a client's Produce for this partition going to this broker, while everything is calm.
    pub(super) fn asks(&mut self, broker: usize, topic: &str, partition: i32, now: Monotonic) -> Option<String> {
        let key = format!("{PARTITIONS}{topic}/{partition}");
        let told = self.deleted.get(&key).is_none_or(|at| now.since(*at) > TOLD);
        if self.held.contains(&key) || !told {
            return None;
        }
        let first = *self.asked.entry(key).or_insert(broker);
        (first != broker).then(|| {
            format!(
                "{topic}/{partition}, which nobody owns, is written to broker {broker}, and before to broker {first}"
            )
        })
    }
}
