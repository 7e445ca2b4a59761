//! The lanes of one client, by topic and partition.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Owner, Service};
use crate::kafka::Str;
use crate::listener::lanes::{Asked, Batch, BatchResult, Lane, LaneStep, Lesson, Route, Router};
use crate::time::Monotonic;

/// Lanes that are kept although nothing is remembered in them: enough for the partitions of a busy producer, and a bound
/// for a client that makes up topic names.
const IDLE_LANES: usize = 1_024;

/// Names a lane as long as something is remembered in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneId(usize);

struct Entry {
    lane: Lane,
    topic: Str,
    partition: i32,
}

/// All lanes of a client.
pub(super) struct LaneTable {
    ids: BTreeMap<Str, BTreeMap<i32, LaneId>>,
    entries: Vec<Option<Entry>>,
    free: Vec<LaneId>,
    retire_at: usize,
}

impl LaneTable {
    pub(super) fn new() -> Self {
        Self { ids: BTreeMap::new(), entries: Vec::new(), free: Vec::new(), retire_at: IDLE_LANES }
    }

    /// The lane of a partition; made at first use.
    pub(super) fn find(&mut self, topic: &str, partition: i32) -> LaneId {
        if let Some(id) = self.ids.get(topic).and_then(|partitions| partitions.get(&partition)) {
            return *id;
        }
        let topic = Str::from(topic);
        let entry = Some(Entry { lane: Lane::default(), topic: topic.clone(), partition });
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            LaneId(self.entries.len() - 1)
        });
        self.entries[id.0] = entry;
        self.ids.entry(topic).or_default().insert(partition, id);
        id
    }

    /// The partition of a lane.
    pub(super) fn partition(&self, id: LaneId) -> (&str, i32) {
        let entry = self.entries[id.0].as_ref().expect("a lane in use is in the table");
        (&entry.topic, entry.partition)
    }

    /// See [`Lane::offer`].
    pub(super) fn offer(
        &mut self,
        id: LaneId,
        batch: Batch,
        cluster: &Cluster,
        now: Monotonic,
        out: &mut Vec<LaneStep>,
    ) {
        let (lane, router) = self.lane(id, cluster, now);
        lane.offer(batch, &router, out);
    }

    /// See [`Lane::on_result`].
    pub(super) fn on_result(
        &mut self,
        id: LaneId,
        (batch, result): (Batch, BatchResult),
        cluster: &Cluster,
        now: Monotonic,
        out: &mut Vec<LaneStep>,
    ) {
        let (lane, router) = self.lane(id, cluster, now);
        lane.on_result(batch, result, &router, out);
    }

    /// See [`Lane::on_learned`].
    pub(super) fn on_learned(
        &mut self,
        id: LaneId,
        lesson: Lesson,
        cluster: &Cluster,
        now: Monotonic,
        out: &mut Vec<LaneStep>,
    ) {
        let (lane, router) = self.lane(id, cluster, now);
        lane.on_learned(lesson, &router, out);
    }

    fn lane<'a>(&'a mut self, id: LaneId, cluster: &'a Cluster, now: Monotonic) -> (&'a mut Lane, Table<'a>) {
        let entry = self.entries[id.0].as_mut().expect("a lane in use is in the table");
        (&mut entry.lane, Table { cluster, now, topic: &entry.topic, partition: entry.partition })
    }

    /// Drops idle lanes when there are many. Not while a request is being taken: its lanes are idle until they are
    /// offered its batches.
    pub(super) fn retire_idle(&mut self) {
        if self.entries.len() - self.free.len() < self.retire_at {
            return;
        }
        for partitions in self.ids.values_mut() {
            partitions.retain(|_, id| {
                let idle = self.entries[id.0].as_ref().is_none_or(|entry| entry.lane.is_idle());
                if idle {
                    self.entries[id.0] = None;
                    self.free.push(*id);
                }
                !idle
            });
        }
        self.ids.retain(|_, partitions| !partitions.is_empty());
        self.retire_at = (self.entries.len() - self.free.len()) * 2 + IDLE_LANES;
    }
}

/// The routing table, asked for one partition at one moment.
struct Table<'a> {
    cluster: &'a Cluster,
    now: Monotonic,
    topic: &'a str,
    partition: i32,
}

impl Table<'_> {
    fn nobody(&self) -> Route {
        let choice = self.cluster.stable_choice(self.topic, self.partition);
        choice.map_or(Route::Unusable, |address| Route::Nobody(address.clone()))
    }
}

impl Router for Table<'_> {
    fn route(&self, asked: Asked) -> Route {
        match self.cluster.service(self.now) {
            Service::Serving => {}
            Service::AfterRead | Service::Refused(_) => return Route::Unusable,
        }
        if self.cluster.lacks_partition(self.topic, self.partition) {
            return if asked.snapshot { Route::Absent } else { Route::Learn(Lesson::Snapshot) };
        }
        match self.cluster.partition_owner(self.now, self.topic, self.partition) {
            Owner::Broker(address) => Route::Owner(address),
            Owner::Nobody => self.nobody(),
            Owner::Forgotten if asked.owner => self.nobody(),
            Owner::Forgotten => Route::Learn(Lesson::Owner),
            Owner::UnknownBroker(_) if asked.snapshot => self.nobody(),
            Owner::UnknownBroker(_) => Route::Learn(Lesson::Snapshot),
            Owner::Unproven if asked.freshness => Route::Unusable,
            Owner::Unproven => Route::Learn(Lesson::Freshness),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_makes_up_names_does_not_grow_the_table() {
        let mut table = LaneTable::new();
        for number in 0..10 * IDLE_LANES {
            table.retire_idle();
            table.find(&format!("topic-{number}"), 0);
        }
        assert!(table.entries.len() <= 2 * IDLE_LANES, "{}", table.entries.len());
        let id = table.find("again", 7);
        assert_eq!(table.find("again", 7), id);
        assert_eq!(table.partition(id), ("again", 7));
    }
}
