//! The operator of a simulated cluster: who writes the list of brokers and topics into etcd. Topics are deleted and made
//! anew, widened and narrowed, and the list of brokers goes and comes back.

use std::collections::BTreeMap;

use kafscale_proxy_core::etcd::Keys;
use kafscale_proxy_core::model::broker::{ClusterSnapshot, SNAPSHOT_KEY, SnapshotPartition};

use super::scenario::TOPICS;
use crate::world::World;

/// A topic is widened up to so many partitions.
const PARTITIONS_MAX: usize = 6;

/// What happens to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicChange {
    /// It is deleted for a while, and then made anew.
    Deleted,
    /// It is deleted and made anew at once, with another id.
    Recreated,
    /// It is made anew with one partition, and after a while with all of them.
    Narrowed,
    /// It gets one more partition.
    Widened,
    /// Its settings are written, for the first time or anew: it stays the same topic.
    Configured,
}

impl TopicChange {
    pub(super) const ALL: [Self; 5] = [Self::Deleted, Self::Recreated, Self::Narrowed, Self::Widened, Self::Configured];
}

/// What the operator wants the cluster to be.
pub(super) struct Operator {
    cluster: ClusterSnapshot,
    /// Faults under way that hide all brokers.
    hides_brokers: u32,
    /// Deletions under way, by topic.
    deleted: BTreeMap<usize, u32>,
    /// Narrowings under way, by topic.
    narrowed: BTreeMap<usize, u32>,
    /// Topics made anew so far: each has an id of its own.
    made: u32,
}

impl Operator {
    /// Wants what is there.
    pub(super) fn new(world: &World) -> Self {
        let written = world.etcd.model.get(SNAPSHOT_KEY.as_bytes());
        let cluster = written.and_then(|kv| ClusterSnapshot::parse(&kv.value)).unwrap_or_default();
        let (deleted, narrowed) = (BTreeMap::new(), BTreeMap::new());
        Self { cluster, hides_brokers: 0, deleted, narrowed, made: 0 }
    }

    /// The cluster lists no broker from now on, or lists them again when the last such fault has ended.
    pub(super) fn hide_brokers(&mut self, world: &mut World, hide: bool) {
        self.hides_brokers = if hide { self.hides_brokers + 1 } else { self.hides_brokers.saturating_sub(1) };
        self.write(world);
    }

    /// Changes a topic.
    pub(super) fn change(&mut self, world: &mut World, topic: usize, change: TopicChange) {
        match change {
            TopicChange::Deleted => {
                *self.deleted.entry(topic).or_default() += 1;
                forget(world, topic);
            }
            TopicChange::Recreated => self.make_anew(world, topic),
            TopicChange::Narrowed => {
                *self.narrowed.entry(topic).or_default() += 1;
                self.make_anew(world, topic);
            }
            TopicChange::Widened => {
                let partitions = &mut self.cluster.topics[topic].partitions;
                if partitions.len() < PARTITIONS_MAX {
                    let last = partitions.last().cloned().unwrap_or_default();
                    partitions.push(SnapshotPartition { partition: last.partition + 1, ..last });
                }
            }
            TopicChange::Configured => return configure(world, topic),
        }
        self.write(world);
    }

    /// A deletion or a narrowing ends.
    pub(super) fn end(&mut self, world: &mut World, topic: usize, change: TopicChange) {
        let under_way = match change {
            TopicChange::Deleted => {
                // Half of them get the id of their name again, as from brokers, and are known by their settings.
                self.made += 1;
                if self.made.is_multiple_of(2) {
                    configure(world, topic);
                } else {
                    self.make_anew(world, topic);
                }
                &mut self.deleted
            }
            TopicChange::Narrowed => &mut self.narrowed,
            TopicChange::Recreated | TopicChange::Widened | TopicChange::Configured => return,
        };
        if let Some(count) = under_way.get_mut(&topic) {
            *count = count.saturating_sub(1);
        }
        self.write(world);
    }

    /// Writes the list, also over what a broker made of an older one.
    pub(super) fn write(&self, world: &mut World) {
        let mut wanted = self.cluster.clone();
        if self.hides_brokers > 0 {
            wanted.brokers.clear();
        }
        let is_under_way = |changes: &BTreeMap<usize, u32>, topic| changes.get(&topic).is_some_and(|count| *count > 0);
        wanted.topics.clear();
        for (index, topic) in self.cluster.topics.iter().enumerate() {
            if is_under_way(&self.deleted, index) {
                continue;
            }
            let mut topic = topic.clone();
            if is_under_way(&self.narrowed, index) {
                topic.partitions.truncate(1);
            }
            wanted.topics.push(topic);
        }
        let value = wanted.to_json();
        world.change_etcd(|etcd, facts| {
            if etcd.model.get(SNAPSHOT_KEY.as_bytes()).is_none_or(|kv| kv.value != value) {
                etcd.model.put(SNAPSHOT_KEY, value, facts);
            }
        });
    }

    /// The topic is another one from now on.
    fn make_anew(&mut self, world: &mut World, topic: usize) {
        forget(world, topic);
        self.made += 1;
        let id = &mut self.cluster.topics[topic].topic_id;
        id[..4].copy_from_slice(&self.made.to_be_bytes());
    }
}

fn prefix(topic: usize) -> String {
    format!("/kafscale/topics/{}/", TOPICS[topic].0)
}

/// Removes what etcd has of a topic besides the list, as its deletion does. Its segments stay, as in KafScale: a blob to
/// which one of them refers must stay, too.
fn forget(world: &mut World, topic: usize) {
    world.change_etcd(|etcd, facts| etcd.model.delete(&Keys::prefix(prefix(topic)), facts));
}

fn configure(world: &mut World, topic: usize) {
    let key = format!("{}config", prefix(topic));
    world.change_etcd(|etcd, facts| etcd.model.put(key, "settings", facts));
}
