//! What is known of the cluster: brokers, topics, owners, coordinators, and how fresh that knowledge is.
//!
//! The rest of the machine asks here and nowhere else, so that the table of kafka-listener contract section 9
//! stands in one place ([`freshness`]). Where the knowledge comes from (etcd) is kept apart in [`reader`].

mod choice;
mod committed;
mod freshness;
mod generation;
mod leases;
mod machine;
mod parses;
mod producer_ids;
mod proof_waiters;
mod questions;
mod reader;
mod round;
pub(crate) mod snapshot;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::etcd;
use crate::input::ExchangeId;
use crate::listener::RequestId;

pub(crate) use machine::Cluster;

/// Longest host name, bytes: DNS has none above 253.
const LONGEST_HOST: usize = 255;

/// `host:port` of a broker, cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address(Arc<str>);

impl Address {
    /// From text as it stands in a static list.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Of a host and a port; `None` when the host is neither a name as DNS has them nor an IP address, which may stand in
    /// brackets. So nothing else gets into dials and logs.
    pub(crate) fn of(host: &str, port: u16) -> Option<Self> {
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let (ip, zone) = literal.split_once('%').unwrap_or((literal, ""));
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let text = if ip.parse::<Ipv6Addr>().is_ok() && is_name(zone) {
            format!("[{literal}]:{port}")
        } else if !host.is_empty() && host.len() <= LONGEST_HOST && is_name(host) {
            format!("{host}:{port}")
        } else {
            return None;
        };
        (port != 0).then(|| Self::new(&text))
    }

    /// Whether both name the same host and port; names of hosts do not know case.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A part of the cluster state that is read and watched on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// `/kafscale/metadata/snapshot`.
    Snapshot,
    /// `/kafscale/partition-leases/`.
    PartitionLeases,
    /// `/kafscale/group-leases/`.
    GroupLeases,
}

/// Who waits for an answer of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiter {
    /// A Kafka request.
    Request(RequestId),
    /// An LFS exchange.
    Exchange(ExchangeId),
    /// A readiness probe.
    Health(ExchangeId),
}

/// What can be asked of etcd on demand. Equal questions that are under way are asked once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    /// The knowledge is stale or was never read: one linearizable read of the snapshot and proofs of the leases.
    /// At most one every 250 ms while reads fail; a question in between is answered with the last failure.
    Freshness,
    /// A broker or topic id that the snapshot lacks: read the snapshot once more.
    Snapshot,
    /// Who holds the lease of this partition now (after a refusal).
    PartitionOwner { topic: String, partition: i32 },
    /// Who holds the lease of this group now (after a refusal).
    Coordinator { group: String },
    /// Who holds the leases of partitions now: one proof of them all, where many would have to be read one by one.
    PartitionOwners,
    /// As [`Question::PartitionOwners`], for groups.
    Coordinators,
    /// The identity of a topic (etcd contract section 5).
    Generation { topic: String },
    /// Which partitions a group has ever committed an offset for: the keys under `/kafscale/consumers/<g>/offsets/`.
    CommittedPartitions { group: String },
    /// An id for an idempotent producer that nobody else in the cluster has.
    ProducerId,
}

impl Question {
    /// What asks the same for all partitions or groups together.
    pub(crate) fn of_all(&self) -> Option<Self> {
        match self {
            Self::PartitionOwner { .. } => Some(Self::PartitionOwners),
            Self::Coordinator { .. } => Some(Self::Coordinators),
            Self::Freshness
            | Self::Snapshot
            | Self::PartitionOwners
            | Self::Coordinators
            | Self::Generation { .. }
            | Self::CommittedPartitions { .. }
            | Self::ProducerId => None,
        }
    }
}

/// The answer to a [`Question`]. What was learned is in the [`Cluster`] by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Read; look it up.
    Learned,
    /// To [`Question::Generation`].
    Generation(TopicGeneration),
    /// To [`Question::CommittedPartitions`]: topic and partition, in key order.
    CommittedPartitions(Vec<(String, i32)>),
    /// To [`Question::ProducerId`].
    ProducerId(i64),
    /// etcd could not be read. The text is for logs.
    Unreadable(String),
}

/// Identity of a topic at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopicGeneration {
    /// Not in the snapshot, or with an error.
    Absent,
    /// In the snapshot.
    Present { topic_id: [u8; 16], config_create_revision: i64, generation: Option<String> },
}

/// What an etcd request of the cluster is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The whole snapshot, or the proof that its revision has not moved.
    Snapshot,
    /// A page of a lease prefix.
    Leases(Source),
    /// The cheap proof that a lease prefix is as the watch has shown it.
    Proof(Source),
    /// One lease key.
    PartitionLease { topic: String, partition: i32 },
    /// One lease key.
    GroupLease { group: String },
    /// The transaction of [`Question::Generation`].
    Generation { topic: String },
    /// The keys of [`Question::CommittedPartitions`], without their values.
    CommittedPartitions { group: String },
    /// The transaction that reserves ids for [`Question::ProducerId`].
    ProducerIds,
}

/// What the cluster wants done; [`crate::Proxy`] turns it into effects.
#[derive(Debug)]
pub(crate) enum Decision {
    /// An etcd request, given up after `deadline`. Its completion comes to `on_finished` with the same `read`.
    Request { read: Read, request: etcd::Request, deadline: Duration },
    /// A watch. Its items come to `on_watch_*` with the same source.
    Watch { source: Source, request: etcd::WatchRequest },
    /// End the watch of this source; its end still comes.
    CancelWatch { source: Source },
    /// Parse a large snapshot elsewhere; the result comes to `on_parsed_elsewhere`.
    ParseSnapshot(Bytes),
    /// An answer for a waiter.
    Answered { waiter: Waiter, question: Question, answer: Answer },
}

/// The TTL decision table for one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Serve, from memory.
    Serving,
    /// Ask [`Question::Freshness`] first, then look again with [`Cluster::service_after_read`].
    AfterRead,
    /// Do not serve.
    Refused(NotServing),
}

/// Why nothing is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotServing {
    /// etcd was read and lists no broker.
    NoBrokers,
    /// etcd has not been readable for longer than the TTL, or never.
    Unreadable,
}

/// Who owns a partition or coordinates a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This broker.
    Broker(Address),
    /// Nobody: any listed broker may take it.
    Nobody,
    /// Not known: the broker that was its owner has refused. Ask [`Question::PartitionOwner`] or
    /// [`Question::Coordinator`] first; if that does not help, treat as nobody.
    Forgotten,
    /// A broker that the snapshot does not list: ask [`Question::Snapshot`] once, then treat as nobody.
    UnknownBroker(i32),
    /// The proof of the lease prefix is older than the TTL: ask [`Question::Freshness`] first.
    Unproven,
}
