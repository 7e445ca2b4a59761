//! Kafka clients.

pub(crate) mod request;

/// A request of a Kafka client, unique for the lifetime of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);
