//! The cluster snapshot: the JSON object under `/kafscale/metadata/snapshot` (etcd contract section 2).
//!
//! It is written by Go's standard encoder from structs without tags, so the members carry Go field names, empty
//! slices are `null`, and a fixed array of bytes is an array of numbers. As Go's decoder does, names are matched
//! without regard to case, the last of several equal members wins, `null` is the zero value, and unknown members
//! are skipped.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use serde::de::{Deserialize, MapAccess};
use sha1::{Digest, Sha1};

use super::Address;
use crate::json_object::{Members, Object, skip};

/// What the snapshot key says. The default is a cluster without brokers and topics: what an absent key says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    addresses: Vec<Address>,
    address_by_id: BTreeMap<i32, Address>,
    topics: Vec<Topic>,
    topic_by_name: HashMap<Box<str>, usize>,
    topic_by_id: HashMap<[u8; 16], usize>,
    cluster_id: Option<String>,
    partition_count: usize,
    left_out: Vec<LeftOut>,
}

/// What makes no sense in a snapshot and is left out of it, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// A broker whose host or port can be nobody's; host and port as listed, the host cut.
    Broker { node_id: i32, host: String, port: i32 },
    /// A topic that was listed before. The first counts.
    Topic(String),
    /// Partitions of this topic with a negative index, or one that was listed before; how many.
    Partitions { topic: String, count: usize },
}

/// No more than so many are remembered: they are for the log.
const LEFT_OUT_MAX: usize = 16;

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker { node_id, host, port } => write!(f, "broker {node_id}: no address is {host:?}, port {port}"),
            Self::Topic(name) => write!(f, "topic {name:?} is listed again"),
            Self::Partitions { topic, count } => {
                write!(f, "topic {topic:?}: {count} partitions are negative or listed again")
            }
        }
    }
}

/// The beginning of a name that may be of any length.
fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(100)].to_owned()
}

/// A topic of the snapshot, with a name that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) name: Box<str>,
    pub(crate) id: [u8; 16],
    pub(crate) error_code: i16,
    pub(crate) is_internal: bool,
    /// In listing order, each index once and none negative.
    pub(crate) partitions: Vec<Partition>,
    indexes: Indexes,
    /// A member named like `Generation`, which newer versions of the operator may write, as text.
    pub(crate) generation: Option<String>,
}

/// Which indexes the partitions of a topic have. Looked at for every batch, so the usual case costs one comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Indexes {
    /// All from 0 up to before this one.
    Below(i32),
    /// These. Nobody is known to write such a topic.
    Listed(BTreeSet<i32>),
}

impl Indexes {
    fn of(partitions: &[Partition]) -> Self {
        if (0..).zip(partitions).all(|(index, partition)| partition.index == index) {
            Self::Below(i32::try_from(partitions.len()).unwrap_or(i32::MAX))
        } else {
            Self::Listed(partitions.iter().map(|partition| partition.index).collect())
        }
    }

    fn contain(&self, index: i32) -> bool {
        match self {
            Self::Below(end) => (0..*end).contains(&index),
            Self::Listed(indexes) => index >= 0 && indexes.contains(&index),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Below(end) => usize::try_from(*end).unwrap_or(0),
            Self::Listed(indexes) => indexes.range(0..).count(),
        }
    }

    fn nth(&self, place: u32) -> Option<i32> {
        match self {
            Self::Below(end) => i32::try_from(place).ok().filter(|index| index < end),
            Self::Listed(indexes) => indexes.range(0..).nth(place as usize).copied(),
        }
    }
}

impl Topic {
    /// Whether it has a partition of this index.
    pub(crate) fn has_partition(&self, index: i32) -> bool {
        self.indexes.contain(index)
    }

    /// How many partitions it has, each index counted once.
    pub(crate) fn partition_count(&self) -> u32 {
        u32::try_from(self.indexes.count()).unwrap_or(u32::MAX)
    }

    /// The index of the partition at this place, in ascending order.
    pub(crate) fn nth_partition(&self, place: u32) -> Option<i32> {
        self.indexes.nth(place)
    }
}

/// A partition of the snapshot. Its leader is left out on purpose: the write owner is the holder of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) index: i32,
    pub(crate) error_code: i16,
    pub(crate) leader_epoch: i32,
}

/// Why a value is not a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotError(pub String);

impl Snapshot {
    /// Parses the value of the snapshot key.
    pub(crate) fn parse(value: &[u8]) -> Result<Self, SnapshotError> {
        let Object(root) = serde_json::from_slice::<Object<RootMembers>>(value)
            .map_err(|error| SnapshotError(format!("the cluster snapshot does not parse: {error}")))?;
        let mut snapshot = Self { cluster_id: root.cluster_id, ..Self::default() };
        snapshot.list_brokers(root.brokers);
        snapshot.list_topics(root.topics);
        Ok(snapshot)
    }

    fn list_brokers(&mut self, brokers: Vec<BrokerMembers>) {
        let mut seen = HashSet::new();
        for broker in brokers {
            let Some(address) = broker.address() else {
                let BrokerMembers { node_id, host, port } = broker;
                self.leave_out(LeftOut::Broker { node_id, host: beginning(&host), port });
                continue;
            };
            if seen.insert(address.clone()) {
                self.addresses.push(address.clone());
            }
            self.address_by_id.insert(broker.node_id, address);
        }
    }

    fn list_topics(&mut self, topics: Vec<TopicMembers>) {
        for members in topics {
            let listed = members.partitions.len();
            let Some(topic) = members.topic() else { continue };
            let index = self.topics.len();
            if self.topic_by_name.contains_key(&topic.name) {
                self.leave_out(LeftOut::Topic(beginning(&topic.name)));
                continue;
            }
            if topic.partitions.len() < listed {
                let count = listed - topic.partitions.len();
                self.leave_out(LeftOut::Partitions { topic: beginning(&topic.name), count });
            }
            self.topic_by_name.insert(topic.name.clone(), index);
            self.topic_by_id.entry(topic.id).or_insert(index);
            self.partition_count += topic.partitions.len();
            self.topics.push(topic);
        }
    }

    fn leave_out(&mut self, what: LeftOut) {
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push(what);
        }
    }

    /// What makes no sense in it, the first of it.
    pub(crate) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Leaves out the brokers with these addresses: to ask them would be to ask oneself. Gives back which there were.
    pub(crate) fn refuse(&mut self, own: &[Address]) -> Vec<Address> {
        let is_own = |address: &Address| own.iter().any(|own| own.is_same(address));
        self.address_by_id.retain(|_, address| !is_own(address));
        self.addresses.extract_if(.., |address| is_own(address)).collect()
    }

    /// Addresses of the brokers that can be reached, each once, in listing order.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Where the broker with this `NodeID` is; `None` when it is not listed or has no host or port.
    pub(crate) fn address_of(&self, broker: i32) -> Option<&Address> {
        self.address_by_id.get(&broker)
    }

    /// Topics in listing order.
    pub(crate) fn topics(&self) -> &[Topic] {
        &self.topics
    }

    /// The topic with exactly this name; the first, should there be several.
    pub(crate) fn topic(&self, name: &str) -> Option<&Topic> {
        self.topic_by_name.get(name).map(|index| &self.topics[*index])
    }

    /// Whether the topic of this name is listed and has no such partition. No topic has a negative one.
    pub(crate) fn lacks(&self, topic: &str, partition: i32) -> bool {
        partition < 0 || self.topic(topic).is_some_and(|topic| !topic.has_partition(partition))
    }

    /// The topic with this id; the first, should there be several.
    pub(crate) fn topic_by_id(&self, id: &[u8; 16]) -> Option<&Topic> {
        self.topic_by_id.get(id).map(|index| &self.topics[*index])
    }

    /// Partitions of all topics together.
    pub(crate) fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// The cluster id.
    pub(crate) fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }
}

/// The id of a topic whose snapshot entry has none: the first 16 bytes of SHA-1 over its name.
fn derived_topic_id(name: &str) -> [u8; 16] {
    let digest = Sha1::digest(name.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    id
}

fn or_zero<'de, T: Deserialize<'de> + Default, A: MapAccess<'de>>(map: &mut A) -> Result<T, A::Error> {
    Ok(map.next_value::<Option<T>>()?.unwrap_or_default())
}

fn objects<'de, M: Members, A: MapAccess<'de>>(map: &mut A) -> Result<Vec<M>, A::Error> {
    let listed: Vec<Option<Object<M>>> = or_zero(map)?;
    Ok(listed.into_iter().flatten().map(|Object(members)| members).collect())
}

#[derive(Default)]
struct RootMembers {
    brokers: Vec<BrokerMembers>,
    topics: Vec<TopicMembers>,
    cluster_id: Option<String>,
}

impl Members for RootMembers {
    const WHAT: &'static str = "a cluster snapshot";

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "brokers" => self.brokers = objects(map)?,
            "topics" => self.topics = objects(map)?,
            "clusterid" => self.cluster_id = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct BrokerMembers {
    node_id: i32,
    host: String,
    port: i32,
}

impl Members for BrokerMembers {
    const WHAT: &'static str = "a broker";

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "nodeid" => self.node_id = or_zero(map)?,
            "host" => self.host = or_zero(map)?,
            "port" => self.port = or_zero(map)?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

impl BrokerMembers {
    fn address(&self) -> Option<Address> {
        Address::of(&self.host, u16::try_from(self.port).ok()?)
    }
}

#[derive(Default)]
struct TopicMembers {
    error_code: i16,
    name: Option<String>,
    id: Vec<u8>,
    is_internal: bool,
    partitions: Vec<PartitionMembers>,
    generation: Option<String>,
}

impl Members for TopicMembers {
    const WHAT: &'static str = "a topic";

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "errorcode" => self.error_code = or_zero(map)?,
            "topic" => self.name = map.next_value()?,
            "topicid" => self.id = or_zero(map)?,
            "isinternal" => self.is_internal = or_zero(map)?,
            "partitions" => self.partitions = objects(map)?,
            "generation" | "topicgeneration" | "topic_generation" => self.generation = generation(map.next_value()?),
            _ => skip(map)?,
        }
        Ok(())
    }
}

impl TopicMembers {
    fn topic(self) -> Option<Topic> {
        let name = self.name.filter(|name| !name.is_empty())?.into_boxed_str();
        let mut id = [0; 16];
        for (to, from) in id.iter_mut().zip(&self.id) {
            *to = *from;
        }
        if id == [0; 16] {
            id = derived_topic_id(&name);
        }
        let mut partitions: Vec<Partition> = self
            .partitions
            .iter()
            .map(|partition| Partition {
                index: partition.index,
                error_code: partition.error_code,
                leader_epoch: partition.leader_epoch,
            })
            .collect();
        let mut indexes = Indexes::of(&partitions);
        if let Indexes::Listed(listed) = &mut indexes {
            let mut left = std::mem::take(listed);
            partitions.retain(|partition| left.remove(&partition.index) && partition.index >= 0);
            indexes = Indexes::of(&partitions);
        }
        Some(Topic {
            name,
            id,
            error_code: self.error_code,
            is_internal: self.is_internal,
            indexes,
            partitions,
            generation: self.generation,
        })
    }
}

/// The kind of value is not known yet: text stands for itself, anything else for its JSON form.
fn generation(value: serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text),
        other @ (serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::Array(_)
        | serde_json::Value::Object(_)) => Some(other.to_string()),
    }
}

#[derive(Default)]
struct PartitionMembers {
    error_code: i16,
    index: i32,
    leader_epoch: i32,
}

impl Members for PartitionMembers {
    const WHAT: &'static str = "a partition";

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "errorcode" => self.error_code = or_zero(map)?,
            "partition" => self.index = or_zero(map)?,
            "leaderepoch" => self.leader_epoch = or_zero(map)?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Snapshot {
        Snapshot::parse(text.as_bytes()).unwrap()
    }

    fn topic(members: &str) -> Option<Topic> {
        parse(&format!(r#"{{"Topics":[{{{members}}}]}}"#)).topics().first().cloned()
    }

    /// The example of the contract, with everything the operator writes.
    const OPERATOR: &str = r#"{"Brokers":[
        {"NodeID":0,"Host":"demo-broker-0.demo-broker-headless.ns.svc.cluster.local","Port":9092,"Rack":null,"UnknownTags":{}},
        {"NodeID":1,"Host":"demo-broker-1.demo-broker-headless.ns.svc.cluster.local","Port":9092,"Rack":null,"UnknownTags":{}}],
        "ControllerID":0,
        "Topics":[{"ErrorCode":0,"Topic":"orders","TopicID":[150,88,64,56,22,64,158,102,235,162,23,95,142,255,139,83],"IsInternal":false,
        "Partitions":[{"ErrorCode":0,"Partition":0,"Leader":0,"LeaderEpoch":7,"Replicas":[0,1],"ISR":[0,1],"OfflineReplicas":null,"UnknownTags":{}}],
        "AuthorizedOperations":0,"UnknownTags":{}}],
        "ClusterName":"demo","ClusterID":"0d5c"}"#;

    #[test]
    fn what_the_operator_writes() {
        let snapshot = parse(OPERATOR);
        assert_eq!(
            snapshot.addresses().iter().map(Address::as_str).collect::<Vec<_>>(),
            [
                "demo-broker-0.demo-broker-headless.ns.svc.cluster.local:9092",
                "demo-broker-1.demo-broker-headless.ns.svc.cluster.local:9092"
            ]
        );
        assert_eq!(snapshot.address_of(1), Some(&snapshot.addresses()[1]));
        assert_eq!(snapshot.address_of(2), None);
        assert_eq!(snapshot.cluster_id(), Some("0d5c"));
        let orders = snapshot.topic("orders").unwrap();
        assert_eq!(orders.partitions, [Partition { index: 0, error_code: 0, leader_epoch: 7 }]);
        assert_eq!((orders.error_code, orders.is_internal, orders.generation.as_deref()), (0, false, None));
        assert_eq!(snapshot.topic_by_id(&orders.id), Some(orders));
        assert_eq!(snapshot.topic("Orders"), None);
    }

    #[test]
    fn names_in_any_case_nulls_repeated_and_unknown_members() {
        let snapshot = parse(
            r#"{"new":[[{"deep":1}]],"BROKERS":null,"brokers":[null,{"nodeid":3,"HOST":"a","port":1,"port":2,"Port":null,"pOrT":9}],
                "topics":[null,{"TOPIC":"t","topicid":null,"partitions":[null,{"partition":1}],"Partitions":null}],
                "ClusterID":null}"#,
        );
        assert_eq!(snapshot.address_of(3), Some(&Address::new("a:9")));
        assert_eq!(snapshot.topic("t").unwrap().partitions, []);
        assert_eq!(snapshot.cluster_id(), None);
        assert_eq!(parse(r#"{"Brokers":null,"Topics":null}"#), Snapshot::default());
        assert_eq!(parse("{}"), Snapshot::default());
    }

    #[test]
    fn topic_ids() {
        let derived = topic(r#""Topic":"orders""#).unwrap().id;
        assert_eq!(derived, [150, 88, 64, 56, 22, 64, 158, 102, 235, 162, 23, 95, 142, 255, 139, 83]);
        for zero in ["[]", "null", "[0,0]", "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,9]"]
        {
            assert_eq!(topic(&format!(r#""Topic":"orders","TopicID":{zero}"#)).unwrap().id, derived, "{zero}");
        }
        let mut short = [0; 16];
        short[..2].copy_from_slice(&[1, 255]);
        assert_eq!(topic(r#""Topic":"t","TopicID":[1,255]"#).unwrap().id, short);
        let long = topic(r#""Topic":"t","TopicID":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]"#).unwrap().id;
        assert_eq!(long, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    }

    #[test]
    fn partitions_that_a_listed_topic_lacks() {
        let snapshot = parse(
            r#"{"Topics":[{"Topic":"usual","Partitions":[{"Partition":0},{"Partition":1,"ErrorCode":5}]},
                {"Topic":"odd","Partitions":[{"Partition":3},{"Partition":0},{"Partition":-4}]},
                {"Topic":"none","Partitions":null},{"Topic":"failed","ErrorCode":3,"Partitions":[{"Partition":0}]}]}"#,
        );
        for (topic, partition, lacks) in [
            ("usual", 0, false),
            ("usual", 1, false),
            ("usual", 2, true),
            ("usual", i32::MAX, true),
            ("usual", -1, true),
            ("odd", 0, false),
            ("odd", 1, true),
            ("odd", 3, false),
            ("odd", -4, true),
            ("none", 0, true),
            ("failed", 0, false),
            ("failed", 1, true),
            ("unknown", 7, false),
            ("unknown", -1, true),
        ] {
            assert_eq!(snapshot.lacks(topic, partition), lacks, "{topic} {partition}");
        }
    }

    #[test]
    fn topics_without_a_name_are_skipped() {
        for members in ["", r#""Topic":null"#, r#""Topic":"""#] {
            assert_eq!(topic(members), None, "{members}");
        }
    }

    #[test]
    fn generations_of_any_kind() {
        for (value, generation) in [
            (r#""g-7""#, Some("g-7")),
            ("7", Some("7")),
            ("18446744073709551615", Some("18446744073709551615")),
            ("null", None),
            (r#"{"a":[1]}"#, Some(r#"{"a":[1]}"#)),
        ] {
            let topic = topic(&format!(r#""Topic":"t","Generation":{value}"#)).unwrap();
            assert_eq!(topic.generation.as_deref(), generation, "{value}");
        }
    }

    #[test]
    fn addresses() {
        for (host, port, address) in [
            ("a", "9092", Some("a:9092")),
            ("10.0.0.1", "65535", Some("10.0.0.1:65535")),
            ("fd00::1", "9092", Some("[fd00::1]:9092")),
            ("[fd00::1]", "9092", Some("[fd00::1]:9092")),
            ("", "9092", None),
            ("a", "0", None),
            ("a", "-1", None),
            ("a", "65536", None),
            ("a", "null", None),
            ("fe80::1%eth0", "9092", Some("[fe80::1%eth0]:9092")),
            ("broker_1.Zone-A", "9092", Some("broker_1.Zone-A:9092")),
            ("a:1", "9092", None),
            ("a b", "9092", None),
            ("a\\r\\nb", "9092", None),
            ("a/b", "9092", None),
            ("user@a", "9092", None),
            ("[a]", "9092", None),
            ("fe80::1%a b", "9092", None),
            ("b\u{fc}cher", "9092", None),
            (&"a".repeat(256), "9092", None),
        ] {
            let snapshot = parse(&format!(r#"{{"Brokers":[{{"NodeID":5,"Host":"{host}","Port":{port}}}]}}"#));
            assert_eq!(snapshot.address_of(5).map(Address::as_str), address, "{host} {port}");
            assert_eq!(snapshot.addresses().len(), usize::from(address.is_some()), "{host} {port}");
        }
    }

    #[test]
    fn order_and_duplicates() {
        let snapshot = parse(
            r#"{"Brokers":[{"NodeID":2,"Host":"b","Port":1},{"NodeID":1,"Host":"a","Port":1},{"NodeID":2,"Host":"a","Port":1}],
                "Topics":[{"Topic":"z","ErrorCode":3},{"Topic":"a"},{"Topic":"z"}]}"#,
        );
        assert_eq!(snapshot.addresses(), [Address::new("b:1"), Address::new("a:1")]);
        assert_eq!(snapshot.address_of(2), Some(&Address::new("a:1")));
        assert_eq!(snapshot.topics().iter().map(|topic| &*topic.name).collect::<Vec<_>>(), ["z", "a"]);
        assert_eq!(snapshot.left_out(), [LeftOut::Topic("z".into())]);
        assert_eq!(snapshot.topic("z").unwrap().error_code, 3);
        assert_eq!(snapshot.topic_by_id(&derived_topic_id("z")).unwrap().error_code, 3);
    }

    #[test]
    fn partitions_that_no_topic_has_are_left_out() {
        let snapshot = parse(
            r#"{"Topics":[{"Topic":"t","Partitions":[{"Partition":-4},{"Partition":1,"LeaderEpoch":7},{"Partition":0},
                {"Partition":0,"LeaderEpoch":9},{"Partition":1}]},{"Topic":"odd","Partitions":[{"Partition":5}]}]}"#,
        );
        let topic = snapshot.topic("t").unwrap();
        let listed: Vec<_> =
            topic.partitions.iter().map(|partition| (partition.index, partition.leader_epoch)).collect();
        assert_eq!((listed, snapshot.partition_count()), (vec![(1, 7), (0, 0)], 3));
        assert_eq!(snapshot.left_out(), [LeftOut::Partitions { topic: "t".into(), count: 3 }]);
        assert!(!snapshot.lacks("t", 1) && snapshot.lacks("t", -4) && !snapshot.lacks("odd", 5));
    }

    #[test]
    fn what_is_left_out_is_told_in_bounded_and_printable_words() {
        let mut brokers = vec![r#"{"NodeID":1,"Host":"a\r\nb","Port":1}"#.to_owned()];
        brokers.push(format!(r#"{{"NodeID":2,"Host":"{}","Port":1}}"#, " ".repeat(70_000)));
        brokers.extend((3..100).map(|id| format!(r#"{{"NodeID":{id},"Host":"","Port":1}}"#)));
        let snapshot = parse(&format!(r#"{{"Brokers":[{}]}}"#, brokers.join(",")));
        assert_eq!(snapshot.left_out().len(), LEFT_OUT_MAX);
        assert_eq!(snapshot.left_out()[0].to_string(), r#"broker 1: no address is "a\r\nb", port 1"#);
        for left_out in snapshot.left_out() {
            let text = left_out.to_string();
            assert!(text.len() < 200 && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn the_proxy_is_no_broker_of_its_own() {
        let mut snapshot = parse(
            r#"{"Brokers":[{"NodeID":1,"Host":"Proxy","Port":9092},{"NodeID":2,"Host":"proxy","Port":9093},
                {"NodeID":3,"Host":"::1","Port":9092}]}"#,
        );
        let own = [Address::of("proxy", 9092).unwrap(), Address::of("[::1]", 9092).unwrap()];
        assert_eq!(snapshot.refuse(&own), [Address::new("Proxy:9092"), Address::new("[::1]:9092")]);
        assert_eq!(snapshot.addresses(), [Address::new("proxy:9093")]);
        assert_eq!([1, 2, 3].map(|id| snapshot.address_of(id).is_some()), [false, true, false]);
    }

    #[test]
    fn values_that_are_no_snapshot() {
        let deep = format!(r#"{{"Topics":{}"#, "[".repeat(200_000));
        let deep_generation = format!(r#"{{"Topics":[{{"Topic":"t","Generation":{}"#, "[".repeat(200_000));
        let deep_unknown = format!(r#"{{"Unknown":{}"#, r#"{"a":"#.repeat(200_000));
        for value in [
            "",
            "null",
            "[]",
            "7",
            "{",
            "{} {}",
            "\u{feff}{}",
            r#"{"Brokers":{}}"#,
            r#"{"Brokers":[{"NodeID":2147483648,"Host":"a","Port":1}]}"#,
            r#"{"Brokers":[{"NodeID":1e999,"Host":"a","Port":1}]}"#,
            r#"{"Brokers":[{"NodeID":"1","Host":"a","Port":1}]}"#,
            r#"{"Topics":[{"Topic":"t","TopicID":[256]}]}"#,
            r#"{"Topics":[{"Topic":"t","ErrorCode":32768}]}"#,
            r#"{"Topics":[{"Topic":7}]}"#,
            &deep,
            &deep_generation,
            &deep_unknown,
        ] {
            assert!(Snapshot::parse(value.as_bytes()).is_err(), "{}", &value[..value.len().min(80)]);
        }
        assert!(Snapshot::parse(b"{\"ClusterID\":\"\xff\"}").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_cut_or_changed_byte_is_survived(cut in 0..OPERATOR.len(), at in 0..OPERATOR.len(), byte: u8) {
            let mut value = OPERATOR.as_bytes().to_vec();
            value[at] = byte;
            let _ = Snapshot::parse(&value);
            value.truncate(cut);
            proptest::prop_assert!(Snapshot::parse(&value).is_err());
        }
    }
}
