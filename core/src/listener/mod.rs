//! Kafka clients.

mod any;
mod bridge;
mod coordinator_call;
mod fetch;
mod fetch_merge;
mod fetch_wait;
mod group;
mod join_group;
mod leave_group;
mod list_groups;
mod machine;
mod not_ready;
mod offset_fetch;
mod refusal;
pub(crate) mod request;
mod routes;
mod split;
mod split_groups;
mod split_partitions;

/// A request of a Kafka client, unique for the lifetime of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);
