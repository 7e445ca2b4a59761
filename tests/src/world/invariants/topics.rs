//! A record belongs to the topic for which its body was uploaded: where the topic was deleted or made anew during the upload, no
//! record is sent, and where it was not, nobody is told that it was.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::etcd::Revision;
use kafscale_proxy_core::inputs::{self, ExchangeId};
use kafscale_proxy_core::model::broker::{ClusterSnapshot, SNAPSHOT_KEY};
use kafscale_proxy_core::{Effect, Input, Monotonic, effects, s3};

use crate::world::EtcdSide;

/// What tells a topic from another one of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Absent,
    Present {
        id: [u8; 16],
        /// When its settings were first written; 0: never.
        config: Revision,
        /// How many it has: it is the same topic with more of them.
        partitions: usize,
    },
}

impl Identity {
    /// Whether what was uploaded for `self` may become a record of `after`: the table of the contract.
    fn is_still(self, after: Self) -> bool {
        match (self, after) {
            (Self::Absent, Self::Absent | Self::Present { .. }) => true,
            (Self::Present { .. }, Self::Absent) => false,
            (Self::Present { id, config, .. }, Self::Present { id: id_after, config: config_after, .. }) => {
                id == id_after && (config == 0 || config == config_after)
            }
        }
    }
}

/// An upload, as its head says.
struct Upload {
    requested: Monotonic,
    topic: String,
    partition: Option<usize>,
}

/// When an object was stored.
#[derive(Clone, Copy)]
struct Storing {
    first: Monotonic,
    last: Monotonic,
}

/// Topics as etcd had them, and uploads for them.
pub struct Topics {
    /// Knowledge of which partitions there are lives so long.
    ttl: Duration,
    revision: Revision,
    snapshot: (Revision, BTreeMap<String, ([u8; 16], usize)>),
    /// From when on a topic was what; the newest last. Before the first entry it was absent.
    history: BTreeMap<String, Vec<(Monotonic, Identity)>>,
    uploads: BTreeMap<ExchangeId, Upload>,
    stored: BTreeMap<String, Storing>,
}

impl Topics {
    /// For machines whose knowledge lives so long.
    pub(super) fn new(ttl: Duration) -> Self {
        let (snapshot, history) = ((0, BTreeMap::new()), BTreeMap::new());
        Self { ttl, revision: 0, snapshot, history, uploads: BTreeMap::new(), stored: BTreeMap::new() }
    }

    /// Ids that topics have by the list that was last seen, and their names.
    pub(super) fn ids(&self) -> impl Iterator<Item = ([u8; 16], String)> {
        self.snapshot.1.iter().map(|(name, (id, _))| (*id, name.clone()))
    }

    /// Something was done to etcd. Says whether the list of topics was written.
    pub(super) fn look(&mut self, etcd: &EtcdSide, now: Monotonic) -> bool {
        if etcd.model.revision() == self.revision {
            return false;
        }
        let before = self.snapshot.0;
        self.revision = etcd.model.revision();
        if let Some(kv) = etcd.model.get(SNAPSHOT_KEY.as_bytes())
            && kv.mod_revision != self.snapshot.0
        {
            let topics = ClusterSnapshot::parse(&kv.value).unwrap_or_default().topics;
            let named =
                topics.into_iter().filter_map(|topic| Some((topic.topic?, (topic.topic_id, topic.partitions.len()))));
            self.snapshot = (kv.mod_revision, named.collect());
        }
        for name in self.snapshot.1.keys() {
            self.history.entry(name.clone()).or_default();
        }
        for (name, history) in &mut self.history {
            let config = etcd.model.get(format!("/kafscale/topics/{name}/config").as_bytes());
            let config = config.map_or(0, |kv| kv.create_revision);
            let found = self.snapshot.1.get(name);
            let identity = found.map_or(Identity::Absent, |(id, partitions)| Identity::Present {
                id: *id,
                config,
                partitions: *partitions,
            });
            if history.last().is_none_or(|(_, last)| *last != identity) {
                history.push((now, identity));
            }
        }
        self.snapshot.0 != before
    }

    /// A shard is told something.
    pub(super) fn told(&mut self, input: &Input, now: Monotonic) {
        if let Input::Http(inputs::Http::Requested { exchange, head, .. }) = input
            && let Some(topic) = head.headers.get("X-Kafka-Topic").and_then(|topic| topic.to_str().ok())
        {
            let partition = head.headers.get("X-Kafka-Partition").and_then(|index| index.to_str().ok()?.parse().ok());
            self.uploads.insert(*exchange, Upload { requested: now, topic: topic.to_owned(), partition });
        }
    }

    /// A shard orders something.
    pub(super) fn ordered(&mut self, effect: &Effect, now: Monotonic) {
        if let Effect::S3(effects::S3::Request { request, .. }) = effect
            && let s3::Request::PutObject { key, .. }
            | s3::Request::CreateMultipartUpload { key, .. }
            | s3::Request::UploadPart { key, .. }
            | s3::Request::CompleteMultipartUpload { key, .. } = request
        {
            let first = self.stored.get(key).map_or(now, |storing| storing.first);
            self.stored.insert(key.clone(), Storing { first, last: now });
        }
    }

    /// The topic, and the partition if it was named, for which an exchange uploads.
    pub(super) fn wanted(&self, exchange: ExchangeId) -> Option<(String, Option<i32>)> {
        let Upload { topic, partition, .. } = self.uploads.get(&exchange)?;
        Some((topic.clone(), partition.and_then(|index| i32::try_from(index).ok())))
    }

    /// What is wrong with handing over the record of this object, which the exchange made, now.
    pub(super) fn publishing(&self, key: &str, exchange: ExchangeId, now: Monotonic) -> Option<String> {
        let Upload { requested, topic, .. } = self.uploads.get(&exchange)?;
        let storing = self.stored.get(key)?;
        let before = self.between(topic, *requested, storing.first);
        let after = self.between(topic, storing.last, now);
        let could_be_the_same = before.iter().any(|(_, before)| after.iter().any(|(_, after)| before.is_still(*after)));
        (!could_be_the_same)
            .then(|| format!("the record of {key} is sent, for {topic} which was {before:?} and is {after:?}"))
    }

    /// What is wrong with telling the client of this exchange now that its topic has changed.
    pub fn refused(&self, exchange: ExchangeId, now: Monotonic) -> Option<String> {
        let Upload { requested, topic, partition } = self.uploads.get(&exchange)?;
        let seen = self.between(topic, *requested, now);
        let changed = (0..seen.len()).any(|from| seen[from..].iter().any(|(_, after)| !seen[from].1.is_still(*after)));
        // A topic that lacks the partition by now is another one, too, as far as its shard may still know.
        let known_from = Monotonic::ZERO + requested.since(Monotonic::ZERO).saturating_sub(self.ttl);
        let lacked = self.between(topic, known_from, now).iter().any(|(_, seen)| match seen {
            Identity::Absent => false,
            Identity::Present { partitions, .. } => partition.is_some_and(|index| index >= *partitions),
        });
        (!changed && !lacked)
            .then(|| format!("{exchange:?} is told that {topic} has changed, which was {seen:?} all the time"))
    }

    /// What a topic was between two moments, both included.
    fn between(&self, topic: &str, from: Monotonic, to: Monotonic) -> Vec<(Monotonic, Identity)> {
        let Some(history) = self.history.get(topic) else { return vec![(Monotonic::ZERO, Identity::Absent)] };
        let ends = history.iter().skip(1).map(|(at, _)| Some(*at)).chain([None]);
        let lived =
            history.iter().zip(ends).filter(|((begin, _), end)| *begin <= to && end.is_none_or(|end| end >= from));
        lived.map(|(entry, _)| *entry).collect()
    }
}
