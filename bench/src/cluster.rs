//! The cluster that every contestant stands in front of.

/// The only topic of the loads.
pub(crate) const TOPIC: &str = "bench";
/// Its partitions.
pub(crate) const PARTITIONS: i32 = 6;
/// Brokers that own partitions; their ids count from 0.
pub(crate) const OWNERS: i32 = 3;

/// The broker that owns a partition.
pub(crate) fn owner_of(partition: i32) -> i32 {
    partition.rem_euclid(OWNERS)
}
