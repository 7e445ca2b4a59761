//! I3: nothing is sent to a broker on knowledge older than the TTL, and partitions are read from their owners only.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::kafka::{
    ApiKey, FetchRequest, ListOffsetsRequest, Message, OffsetForLeaderEpochRequest, RequestHeader,
};
use kafscale_proxy_core::model::broker::{ClusterSnapshot, SNAPSHOT_KEY};
use kafscale_proxy_core::model::etcd::EtcdModel;
use kafscale_proxy_core::{ClusterConfig, Monotonic, etcd};

const LEASES: &str = "/kafscale/partition-leases/";

/// Who held a lease from when on; the newest last. `None` is nobody.
type Owners = Vec<(Monotonic, Option<usize>)>;

/// What etcd has told each shard, who owned what, and what was sent in spite of it.
pub struct Knowledge {
    /// `None` where knowledge never gets too old.
    ttl: Option<Duration>,
    topics: BTreeMap<[u8; 16], String>,
    /// When etcd last served a read of the snapshot, and one of partition leases, by shard.
    snapshot_told: BTreeMap<usize, Monotonic>,
    leases_told: BTreeMap<usize, Monotonic>,
    owners: BTreeMap<(String, i32), Owners>,
    requests: usize,
    violations: Vec<String>,
}

impl Knowledge {
    pub(in crate::world) fn new(config: &ClusterConfig, snapshot: &ClusterSnapshot) -> Self {
        let mut owners = BTreeMap::new();
        for topic in &snapshot.topics {
            for partition in &topic.partitions {
                let name = topic.topic.clone().unwrap_or_default();
                owners.insert((name, partition.partition), vec![(Monotonic::ZERO, None)]);
            }
        }
        let names = snapshot.topics.iter().map(|topic| (topic.topic_id, topic.topic.clone().unwrap_or_default()));
        Self {
            ttl: config.static_backends.is_empty().then_some(config.cache_ttl),
            topics: names.collect(),
            snapshot_told: BTreeMap::new(),
            leases_told: BTreeMap::new(),
            owners,
            requests: 0,
            violations: Vec::new(),
        }
    }

    /// etcd has served a request of a shard.
    pub(in crate::world) fn told(&mut self, now: Monotonic, shard: usize, request: &etcd::Request) {
        let etcd::Request::Range(range) = request else { return };
        if range.keys.contain(SNAPSHOT_KEY.as_bytes()) {
            self.snapshot_told.insert(shard, now);
        }
        let (etcd::Keys::One(first) | etcd::Keys::Between(first, _)) = &range.keys;
        if first.starts_with(LEASES.as_bytes()) {
            self.leases_told.insert(shard, now);
        }
    }

    /// Something in etcd may have changed.
    pub(in crate::world) fn look(&mut self, now: Monotonic, etcd: &EtcdModel) {
        for ((topic, partition), owners) in &mut self.owners {
            let lease = etcd.get(format!("{LEASES}{topic}/{partition}").as_bytes());
            let owner = lease.and_then(|kv| std::str::from_utf8(&kv.value).ok()?.parse().ok());
            if owners.last().is_none_or(|(_, last)| *last != owner) {
                owners.push((now, owner));
            }
        }
    }

    /// A request, or the beginning of one, was handed to a socket.
    pub(in crate::world) fn sent(&mut self, now: Monotonic, shard: usize, broker: usize, frame: &Bytes) {
        let Some(ttl) = self.ttl else { return };
        let Ok((header, body_at)) = RequestHeader::decode(frame) else { return };
        let (Some(api), version) = (header.api(), header.api_version) else { return };
        self.requests += 1;
        let body = frame.slice(body_at..);
        let fresh = |told: Option<&Monotonic>| told.is_some_and(|told| now.since(*told) <= ttl);
        if !fresh(self.snapshot_told.get(&shard)) {
            self.violations.push(format!("{now:?} {api:?} to broker {broker}: past the TTL of the snapshot"));
        }
        let read = if api == ApiKey::Fetch {
            fetched(&body, version, &self.topics)
        } else if api == ApiKey::ListOffsets {
            listed(&body, version)
        } else if api == ApiKey::OffsetForLeaderEpoch {
            epochs(&body, version)
        } else if api == ApiKey::Produce {
            Vec::new()
        } else {
            return;
        };
        if !fresh(self.leases_told.get(&shard)) {
            self.violations.push(format!("{now:?} {api:?} to broker {broker}: past the TTL of the leases"));
        }
        for (topic, partition) in read {
            let Some(owners) = self.owners.get(&(topic.clone(), partition)) else {
                self.violations.push(format!("{now:?} {api:?} to broker {broker}: there is no {topic}/{partition}"));
                continue;
            };
            let ends = owners.iter().skip(1).map(|(from, _)| *from).chain([now]);
            let mut possible = owners.iter().zip(ends).filter(|(_, end)| now.since(*end) <= ttl);
            if !possible.any(|((_, owner), _)| owner.is_none_or(|owner| owner == broker)) {
                let who = format!("{topic}/{partition}, which belonged to {owners:?}");
                self.violations.push(format!("{now:?} {api:?} to broker {broker}: not the owner of {who}"));
            }
        }
    }

    /// What must not have been sent.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// How many requests were judged.
    pub fn requests(&self) -> usize {
        self.requests
    }
}

fn fetched(body: &Bytes, version: i16, topics: &BTreeMap<[u8; 16], String>) -> Vec<(String, i32)> {
    let request = FetchRequest::decode(body, version).expect("the proxy sends what can be read");
    let named = request.topics.into_iter().filter_map(|topic| {
        let name = if topic.topic_id == [0; 16] {
            topic.topic.as_str().to_owned()
        } else {
            topics.get(&topic.topic_id)?.clone()
        };
        Some(topic.partitions.into_iter().map(move |asked| (name.clone(), asked.partition)))
    });
    named.flatten().collect()
}

fn listed(body: &Bytes, version: i16) -> Vec<(String, i32)> {
    let request = ListOffsetsRequest::decode(body, version).expect("the proxy sends what can be read");
    let named = request.topics.into_iter().map(|topic| {
        let name = topic.name.as_str().to_owned();
        topic.partitions.into_iter().map(move |asked| (name.clone(), asked.partition_index))
    });
    named.flatten().collect()
}

fn epochs(body: &Bytes, version: i16) -> Vec<(String, i32)> {
    let request = OffsetForLeaderEpochRequest::decode(body, version).expect("the proxy sends what can be read");
    let named = request.topics.into_iter().map(|topic| {
        let name = topic.topic.as_str().to_owned();
        topic.partitions.into_iter().map(move |asked| (name.clone(), asked.partition))
    });
    named.flatten().collect()
}
