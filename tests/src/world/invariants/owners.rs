//! Partitions are read from their owners only, as far as knowledge that is within its TTL can know them.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::Monotonic;
use kafscale_proxy_core::model::broker::ClusterSnapshot;
use kafscale_proxy_core::model::etcd::EtcdModel;

use super::PARTITIONS;

/// Who held a lease from when on; the newest last. `None` is nobody.
type Held = Vec<(Monotonic, Option<usize>)>;

/// Who owned what, by partition.
pub struct Owners {
    /// Knowledge lives so long.
    ttl: Duration,
    held: BTreeMap<(String, i32), Held>,
    judged: usize,
}

impl Owners {
    /// Of the partitions that are there.
    pub(super) fn new(ttl: Duration, snapshot: &ClusterSnapshot) -> Self {
        let mut held = BTreeMap::new();
        for topic in &snapshot.topics {
            for partition in &topic.partitions {
                let name = topic.topic.clone().unwrap_or_default();
                held.insert((name, partition.partition), vec![(Monotonic::ZERO, None)]);
            }
        }
        Self { ttl, held, judged: 0 }
    }

    /// Something in etcd may have changed.
    pub(in crate::world) fn look(&mut self, now: Monotonic, etcd: &EtcdModel) {
        for ((topic, partition), held) in &mut self.held {
            let lease = etcd.get(format!("{PARTITIONS}{topic}/{partition}").as_bytes());
            let owner = lease.and_then(|kv| std::str::from_utf8(&kv.value).ok()?.parse().ok());
            if held.last().is_none_or(|(_, last)| *last != owner) {
                held.push((now, owner));
            }
        }
    }

    /// What is wrong with asking this broker for what the partition holds.
    pub(super) fn read_from(&mut self, broker: usize, topic: &str, partition: i32, now: Monotonic) -> Option<String> {
        self.judged += 1;
        let Some(held) = self.held.get(&(topic.to_owned(), partition)) else {
            return Some(format!("broker {broker} is asked for {topic}/{partition}, which is not there"));
        };
        let ends = held.iter().skip(1).map(|(from, _)| *from).chain([now]);
        let mut possible = held.iter().zip(ends).filter(|(_, end)| now.since(*end) <= self.ttl);
        let may_own = possible.any(|((_, owner), _)| owner.is_none_or(|owner| owner == broker));
        (!may_own).then(|| format!("broker {broker} is asked for {topic}/{partition}, which belonged to {held:?}"))
    }

    /// How many partitions of requests were judged.
    pub const fn judged(&self) -> usize {
        self.judged
    }
}
