//! What a broker knows of the cluster, and the JSON in which operator and brokers keep it in etcd.
//!
//! Deliberately not the proxy's own reader of this key (`cluster::snapshot`): one misreading must not hide in both.

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

/// The key of the snapshot.
pub const SNAPSHOT_KEY: &str = "/kafscale/metadata/snapshot";

/// The snapshot, in the order and with the names in which Go's encoder writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ClusterSnapshot {
    /// All brokers.
    #[serde(with = "null_when_empty")]
    pub brokers: Vec<SnapshotBroker>,
    /// Node id of the controller.
    #[serde(rename = "ControllerID")]
    pub controller_id: i32,
    /// All topics.
    #[serde(with = "null_when_empty")]
    pub topics: Vec<SnapshotTopic>,
    /// Name of the cluster.
    pub cluster_name: Option<String>,
    /// Its id.
    #[serde(rename = "ClusterID")]
    pub cluster_id: Option<String>,
}

/// Go's container of tagged fields has no exported member: always `{}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownTags {}

/// A broker of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SnapshotBroker {
    /// Its id.
    #[serde(rename = "NodeID")]
    pub node_id: i32,
    /// Where it listens.
    pub host: String,
    /// Where it listens.
    pub port: i32,
    /// Its rack.
    pub rack: Option<String>,
    /// Nothing.
    pub unknown_tags: UnknownTags,
}

/// A topic of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SnapshotTopic {
    /// 0 for a healthy one.
    pub error_code: i16,
    /// Its name.
    pub topic: Option<String>,
    /// Its id.
    #[serde(rename = "TopicID")]
    pub topic_id: [u8; 16],
    /// Whether clients should hide it.
    pub is_internal: bool,
    /// Its partitions.
    #[serde(with = "null_when_empty")]
    pub partitions: Vec<SnapshotPartition>,
    /// Always 0 here.
    pub authorized_operations: i32,
    /// Nothing.
    pub unknown_tags: UnknownTags,
}

/// A partition of the snapshot. Its leader is not the owner: that is who holds the lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SnapshotPartition {
    /// 0 for a healthy one.
    pub error_code: i16,
    /// Its index.
    pub partition: i32,
    /// Node id.
    pub leader: i32,
    /// Always 0 here.
    pub leader_epoch: i32,
    /// Node ids.
    #[serde(with = "null_when_empty")]
    pub replicas: Vec<i32>,
    /// Node ids.
    #[serde(rename = "ISR", with = "null_when_empty")]
    pub isr: Vec<i32>,
    /// Node ids.
    #[serde(with = "null_when_empty")]
    pub offline_replicas: Vec<i32>,
    /// Nothing.
    pub unknown_tags: UnknownTags,
}

/// Go writes an empty slice as null after its clone step.
mod null_when_empty {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, T: Serialize>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        if list.is_empty() { serializer.serialize_none() } else { list.serialize(serializer) }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        Option::<Vec<T>>::deserialize(deserializer).map(Option::unwrap_or_default)
    }
}

/// Why a topic cannot be created or widened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicRefusal {
    Exists,
    Unknown,
    Invalid,
}

impl ClusterSnapshot {
    /// A cluster of these brokers (id, host, port) without topics, as the operator writes it.
    pub fn new<'a>(name: &str, brokers: impl IntoIterator<Item = (i32, &'a str, u16)>) -> Self {
        let brokers = brokers
            .into_iter()
            .map(|(node_id, host, port)| SnapshotBroker {
                node_id,
                host: host.to_owned(),
                port: i32::from(port),
                ..SnapshotBroker::default()
            })
            .collect();
        Self { brokers, cluster_name: Some(name.to_owned()), cluster_id: Some(name.to_owned()), ..Self::default() }
    }

    /// With one more topic, its leaders spread over the brokers.
    #[must_use]
    pub fn with_topic(mut self, name: &str, partitions: i32) -> Self {
        let ids: Vec<i32> = self.brokers.iter().map(|broker| broker.node_id).collect();
        let leader = |index: i32| ids.get(index.unsigned_abs() as usize % ids.len().max(1)).copied().unwrap_or(0);
        let partitions = (0..partitions).map(|index| SnapshotPartition::led_by(index, leader(index))).collect();
        self.topics.push(SnapshotTopic::new(name, partitions));
        self
    }

    /// The value of the key.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a snapshot has nothing that JSON cannot say")
    }

    /// Reads the value of the key.
    pub fn parse(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    pub(super) fn topic(&self, name: &str) -> Option<&SnapshotTopic> {
        self.topics.iter().find(|topic| topic.topic.as_deref() == Some(name))
    }

    pub(super) fn topic_by_id(&self, id: &[u8; 16]) -> Option<&SnapshotTopic> {
        self.topics.iter().find(|topic| topic.topic_id == *id)
    }

    pub(super) fn has_partition(&self, topic: &str, partition: i32) -> bool {
        self.topic(topic).is_some_and(|topic| topic.partitions.iter().any(|p| p.partition == partition))
    }

    /// Whether a topic could be created.
    pub(super) fn check_create(
        &self,
        name: &str,
        partitions: i32,
        replication_factor: i16,
    ) -> Result<(), TopicRefusal> {
        if name.is_empty() || partitions <= 0 {
            return Err(TopicRefusal::Invalid);
        }
        if self.topic(name).is_some() {
            return Err(TopicRefusal::Exists);
        }
        let replicas = usize::try_from(replication_factor.max(1)).unwrap_or(1);
        if replicas > self.brokers.len() { Err(TopicRefusal::Invalid) } else { Ok(()) }
    }

    /// Creates a topic, all of it led by the first broker.
    pub(super) fn create(&mut self, name: &str, partitions: i32, replication_factor: i16) -> Result<(), TopicRefusal> {
        self.check_create(name, partitions, replication_factor)?;
        let leader = self.first_broker();
        let partitions = (0..partitions).map(|index| SnapshotPartition::led_by(index, leader)).collect();
        self.topics.push(SnapshotTopic::new(name, partitions));
        Ok(())
    }

    pub(super) fn delete(&mut self, name: &str) -> Result<(), TopicRefusal> {
        self.topic(name).ok_or(TopicRefusal::Unknown)?;
        self.topics.retain(|topic| topic.topic.as_deref() != Some(name));
        Ok(())
    }

    pub(super) fn check_widen(&self, name: &str, count: i32) -> Result<(), TopicRefusal> {
        let topic = self.topic(name).ok_or(TopicRefusal::Unknown)?;
        let present = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        if count <= present { Err(TopicRefusal::Invalid) } else { Ok(()) }
    }

    pub(super) fn widen(&mut self, name: &str, count: i32) -> Result<(), TopicRefusal> {
        self.check_widen(name, count)?;
        let leader = self.first_broker();
        if let Some(topic) = self.topics.iter_mut().find(|topic| topic.topic.as_deref() == Some(name)) {
            let present = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            topic.partitions.extend((present..count).map(|index| SnapshotPartition::led_by(index, leader)));
        }
        Ok(())
    }

    fn first_broker(&self) -> i32 {
        self.brokers.first().map_or(self.controller_id, |broker| broker.node_id)
    }
}

impl SnapshotTopic {
    fn new(name: &str, partitions: Vec<SnapshotPartition>) -> Self {
        Self { topic: Some(name.to_owned()), topic_id: topic_id(name), partitions, ..Self::default() }
    }
}

impl SnapshotPartition {
    fn led_by(partition: i32, leader: i32) -> Self {
        Self { partition, leader, replicas: vec![leader], isr: vec![leader], ..Self::default() }
    }
}

/// Brokers derive a topic's id from its name: a topic that is created again has the id of its predecessor.
fn topic_id(name: &str) -> [u8; 16] {
    let digest = Sha1::digest(name.as_bytes());
    std::array::from_fn(|index| digest[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by a broker of three on loopback when it created the topic.
    const WRITTEN: &str = r#"{"Brokers":[{"NodeID":0,"Host":"127.0.0.1","Port":43092,"Rack":null,"UnknownTags":{}},{"NodeID":1,"Host":"127.0.0.1","Port":43093,"Rack":null,"UnknownTags":{}},{"NodeID":2,"Host":"127.0.0.1","Port":43094,"Rack":null,"UnknownTags":{}}],"ControllerID":0,"Topics":[{"ErrorCode":0,"Topic":"t1","TopicID":[229,53,56,121,189,105,191,221,203,70,93,173,23,111,245,45],"IsInternal":false,"Partitions":[{"ErrorCode":0,"Partition":0,"Leader":0,"LeaderEpoch":0,"Replicas":[0],"ISR":[0],"OfflineReplicas":null,"UnknownTags":{}}],"AuthorizedOperations":0,"UnknownTags":{}}],"ClusterName":"demo","ClusterID":"demo"}"#;

    #[test]
    fn a_topic_is_written_as_a_broker_writes_it() {
        let mut snapshot = ClusterSnapshot::new("demo", (0..3).map(|id| (id, "127.0.0.1", 43092 + id as u16)));
        snapshot.create("t1", 1, 1).unwrap();
        assert_eq!(String::from_utf8(snapshot.to_json()).unwrap(), WRITTEN);
        assert_eq!(ClusterSnapshot::parse(WRITTEN.as_bytes()), Some(snapshot));
        assert!(ClusterSnapshot::parse(b"{}").is_none());
    }

    #[test]
    fn topics_are_created_once_and_only_widened() {
        let mut snapshot = ClusterSnapshot::new("demo", [(0, "a", 1), (1, "b", 1)]);
        for (name, partitions, replicas, result) in [
            ("", 1, 1, Err(TopicRefusal::Invalid)),
            ("t", 0, 1, Err(TopicRefusal::Invalid)),
            ("t", 1, 3, Err(TopicRefusal::Invalid)),
            ("t", 2, -1, Ok(())),
            ("t", 2, 1, Err(TopicRefusal::Exists)),
        ] {
            assert_eq!(snapshot.create(name, partitions, replicas), result, "{name} {partitions} {replicas}");
        }
        for (name, count, result) in
            [("x", 3, Err(TopicRefusal::Unknown)), ("t", 2, Err(TopicRefusal::Invalid)), ("t", 3, Ok(()))]
        {
            assert_eq!(snapshot.widen(name, count), result, "{name} {count}");
        }
        assert!(snapshot.has_partition("t", 2));
        assert_eq!(snapshot.delete("t"), Ok(()));
        assert_eq!(snapshot.delete("t"), Err(TopicRefusal::Unknown));
    }

    #[test]
    fn an_operator_spreads_leaders() {
        let snapshot = ClusterSnapshot::new("demo", [(4, "a", 1), (7, "b", 1)]).with_topic("t", 3);
        let leaders: Vec<i32> = snapshot.topics[0].partitions.iter().map(|partition| partition.leader).collect();
        assert_eq!(leaders, [4, 7, 4]);
    }
}
