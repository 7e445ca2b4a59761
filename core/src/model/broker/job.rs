//! One request on its way through a broker: what it waits for in etcd, step by step.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::ConnectionId;
use super::fetch::Fetching;
use super::keys;
use super::lease::Kind;
use super::request::Request;
use super::snapshot::ClusterSnapshot;
use crate::etcd::{KeyValue, Keys, TxnOperation};
use crate::kafka::{ErrorCode, Message, response_frame};

/// etcd takes 128 operations in a transaction.
const OPERATIONS_AT_ONCE: usize = 100;

/// How a request is to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) connection: ConnectionId,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
}

impl Head {
    pub(super) fn frame<M: Message>(&self, response: &M) -> Bytes {
        response_frame(self.correlation_id, self.version, response)
    }

    /// What a broker answers when it failed inside: everything at its default, so that the error code says "none".
    pub(super) fn empty<M: Message + Default>(&self) -> Bytes {
        self.frame(&M::default())
    }
}

/// Where a request stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// Acquiring what has to be owned.
    Owning,
    /// Creating topics that nobody has created.
    Creating,
    /// Reading from etcd.
    Reading,
    /// Waiting for writes to etcd; both answers are made.
    Writing(Box<Writing>),
    /// Waiting for records.
    Fetching(Box<Fetching>),
    /// Never answered: brokers look for a partition that a known topic does not have in an endless loop (seen).
    Stuck,
}

/// An answer that depends on whether etcd takes the writes.
#[derive(Debug, Default)]
pub(super) struct Writing {
    pub(super) writes: Writes,
    /// Offsets that consumers may read up to once etcd knows them.
    pub(super) watermarks: Vec<(String, i32, i64)>,
    /// When written; nothing for a producer that wants no answer.
    pub(super) written: Option<Bytes>,
    /// When not written, or not known.
    pub(super) failed: Option<Bytes>,
}

/// What follows from a request when everything that it needs is known.
#[derive(Debug)]
pub(super) enum Answer {
    Now(Bytes),
    AfterWrites(Writing),
    Fetch(Fetching),
}

/// Changes to etcd. Brokers make them one after the other; here they share transactions.
#[derive(Debug, Default)]
pub(super) struct Writes {
    puts: BTreeMap<Bytes, Bytes>,
    deletes: Vec<Keys>,
}

impl Writes {
    pub(super) fn put(&mut self, key: Bytes, value: impl Into<Bytes>) {
        self.puts.insert(key, value.into());
    }

    pub(super) fn delete(&mut self, keys: Keys) {
        self.deletes.push(keys);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty()
    }

    /// Transactions of a size that etcd takes; deletions first.
    pub(super) fn take(&mut self) -> Vec<Vec<TxnOperation>> {
        let deletes = self.deletes.drain(..).map(TxnOperation::Delete).collect();
        let puts = std::mem::take(&mut self.puts)
            .into_iter()
            .map(|(key, value)| TxnOperation::Put { key, value, lease: 0 })
            .collect();
        [chunks(deletes), chunks(puts)].concat()
    }
}

/// Cuts operations into transactions of a size that etcd takes.
pub(super) fn chunks(operations: Vec<TxnOperation>) -> Vec<Vec<TxnOperation>> {
    operations.chunks(OPERATIONS_AT_ONCE).map(<[_]>::to_vec).collect()
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) head: Head,
    pub(super) request: Request,
    pub(super) stage: Stage,
    /// Answers of etcd that are awaited.
    pub(super) outstanding: usize,
    pub(super) owned: BTreeMap<(Kind, String), Result<(), ErrorCode>>,
    pub(super) failed_topics: BTreeSet<String>,
    pub(super) read: BTreeMap<Bytes, KeyValue>,
    pub(super) read_failed: bool,
    pub(super) write_failed: bool,
}

impl Job {
    pub(super) fn new(head: Head, request: Request) -> Self {
        Self {
            head,
            request,
            stage: Stage::Owning,
            outstanding: 0,
            owned: BTreeMap::new(),
            failed_topics: BTreeSet::new(),
            read: BTreeMap::new(),
            read_failed: false,
            write_failed: false,
        }
    }

    /// What became of the wish to own a resource.
    pub(super) fn ownership(&self, kind: Kind, resource: &str) -> Result<(), ErrorCode> {
        self.owned.get(&(kind, resource.to_owned())).copied().unwrap_or(Ok(()))
    }
}

/// The resource of a partition.
pub(super) fn partition_resource(topic: &str, partition: i32) -> String {
    format!("{topic}/{partition}")
}

impl Request {
    /// What the broker has to own before it answers. Fetches are not among it: brokers serve whatever they are asked for.
    pub(super) fn resources(&self) -> Vec<(Kind, String)> {
        let group = |group: &str| vec![(Kind::Group, group.to_owned())];
        match self {
            Self::Produce(request) => request
                .topic_data
                .iter()
                .flat_map(|topic| {
                    topic
                        .partition_data
                        .iter()
                        .map(|partition| (Kind::Partition, partition_resource(&topic.name, partition.index)))
                })
                .collect(),
            Self::JoinGroup(request) => group(&request.group_id),
            Self::SyncGroup(request) => group(&request.group_id),
            Self::Heartbeat(request) => group(&request.group_id),
            Self::LeaveGroup(request) => group(&request.group_id),
            Self::OffsetCommit(request) => group(&request.group_id),
            Self::OffsetFetch(request) => group(&request.group_id),
            Self::DescribeGroups(request) => {
                request.groups.iter().map(|group| (Kind::Group, group.as_str().to_owned())).collect()
            }
            Self::Metadata(_)
            | Self::Fetch(_)
            | Self::FindCoordinator(_)
            | Self::ListOffsets(_)
            | Self::ListGroups(_)
            | Self::OffsetForLeaderEpoch(_)
            | Self::DescribeConfigs(_)
            | Self::AlterConfigs(_)
            | Self::CreatePartitions(_)
            | Self::CreateTopics(_)
            | Self::DeleteTopics(_)
            | Self::DeleteGroups(_) => Vec::new(),
        }
    }

    /// Topics that are created when they are not there; with the partition that is looked for, if it is one.
    pub(super) fn wanted_topics(&self, snapshot: &ClusterSnapshot) -> Vec<(String, Option<i32>)> {
        match self {
            Self::Metadata(request) => request
                .topics
                .iter()
                .flatten()
                .filter_map(|topic| topic.name.as_ref())
                .filter(|name| !name.trim().is_empty())
                .map(|name| (name.as_str().to_owned(), None))
                .collect(),
            Self::Produce(request) => request
                .topic_data
                .iter()
                .flat_map(|topic| topic.partition_data.iter().map(|p| (topic.name.as_str().to_owned(), Some(p.index))))
                .collect(),
            Self::Fetch(request) => request
                .topics
                .iter()
                .filter_map(|topic| Some((super::fetch::name(topic, snapshot)?, &topic.partitions)))
                .flat_map(|(name, partitions)| partitions.iter().map(move |p| (name.clone(), Some(p.partition))))
                .collect(),
            Self::ListOffsets(request) => request
                .topics
                .iter()
                .flat_map(|topic| topic.partitions.iter().map(|p| (topic.name.as_str(), p)))
                .filter(|(_, partition)| partition.timestamp == super::offsets::EARLIEST)
                .map(|(name, partition)| (name.to_owned(), Some(partition.partition_index)))
                .collect(),
            Self::FindCoordinator(_)
            | Self::JoinGroup(_)
            | Self::SyncGroup(_)
            | Self::Heartbeat(_)
            | Self::LeaveGroup(_)
            | Self::OffsetCommit(_)
            | Self::OffsetFetch(_)
            | Self::DescribeGroups(_)
            | Self::ListGroups(_)
            | Self::OffsetForLeaderEpoch(_)
            | Self::DescribeConfigs(_)
            | Self::AlterConfigs(_)
            | Self::CreatePartitions(_)
            | Self::CreateTopics(_)
            | Self::DeleteTopics(_)
            | Self::DeleteGroups(_) => Vec::new(),
        }
    }

    /// What has to be read from etcd; `in_memory` tells which groups need not be.
    pub(super) fn reads(&self, snapshot: &ClusterSnapshot, in_memory: impl Fn(&str) -> bool) -> Vec<Keys> {
        let group = |group: &str| {
            if in_memory(group) { Vec::new() } else { vec![Keys::One(keys::group(group))] }
        };
        match self {
            Self::Fetch(request) => request
                .topics
                .iter()
                .filter_map(|topic| Some((super::fetch::name(topic, snapshot)?, &topic.partitions)))
                .flat_map(|(name, partitions)| {
                    partitions.iter().map(move |p| Keys::One(keys::next_offset(&name, p.partition)))
                })
                .collect(),
            Self::ListOffsets(request) => request
                .topics
                .iter()
                .flat_map(|topic| {
                    topic.partitions.iter().map(|p| Keys::One(keys::next_offset(&topic.name, p.partition_index)))
                })
                .collect(),
            Self::OffsetForLeaderEpoch(request) => request
                .topics
                .iter()
                .flat_map(|topic| {
                    topic.partitions.iter().map(|p| Keys::One(keys::next_offset(&topic.topic, p.partition)))
                })
                .collect(),
            Self::JoinGroup(request) => group(&request.group_id),
            Self::SyncGroup(request) => group(&request.group_id),
            Self::Heartbeat(request) => group(&request.group_id),
            Self::LeaveGroup(request) => group(&request.group_id),
            Self::OffsetCommit(request) => group(&request.group_id),
            Self::OffsetFetch(request) => request
                .topics
                .iter()
                .flatten()
                .flat_map(|topic| {
                    let key = |partition| keys::offset(&request.group_id, &topic.name, partition);
                    topic.partition_indexes.iter().map(move |partition| Keys::One(key(*partition)))
                })
                .collect(),
            Self::DescribeGroups(request) => request.groups.iter().map(|id| Keys::One(keys::group(id))).collect(),
            Self::DeleteGroups(request) => request.groups_names.iter().map(|id| Keys::One(keys::group(id))).collect(),
            Self::ListGroups(_) | Self::DeleteTopics(_) => vec![keys::consumers()],
            Self::DescribeConfigs(request) => {
                request.resources.iter().map(|r| Keys::One(keys::topic_config(&r.resource_name))).collect()
            }
            Self::AlterConfigs(request) => {
                request.resources.iter().map(|r| Keys::One(keys::topic_config(&r.resource_name))).collect()
            }
            Self::Metadata(_)
            | Self::Produce(_)
            | Self::FindCoordinator(_)
            | Self::CreatePartitions(_)
            | Self::CreateTopics(_) => Vec::new(),
        }
    }
}
