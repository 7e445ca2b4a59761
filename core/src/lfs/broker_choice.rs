//! Which brokers may be asked to write a record, best first (lfs-http contract section 8).

use crate::cluster::{Address, Cluster, NotServing, Owner, Question, Service};
use crate::config::LfsConfig;
use crate::planted::{Bug, planted};
use crate::time::Monotonic;

/// Questions that have been asked for this choice; each is asked once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) freshness: bool,
    pub(crate) snapshot: bool,
}

impl Asked {
    /// With this question asked too.
    pub(crate) fn and(mut self, question: &Question) -> Self {
        match question {
            Question::Freshness => self.freshness = true,
            Question::Snapshot => self.snapshot = true,
            Question::PartitionOwner { .. }
            | Question::PartitionOwners
            | Question::Coordinator { .. }
            | Question::Coordinators
            | Question::Generation { .. }
            | Question::CommittedPartitions { .. }
            | Question::ProducerId => {}
        }
        self
    }
}

/// What is known of the brokers for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The owner first, then any other.
    Owned(Vec<Address>),
    /// Nobody is known to own the partition: any of these may take it.
    Open(Vec<Address>),
    /// First ask this, then choose again.
    Ask(Question),
    /// Nothing may be sent.
    Refused(NotServing),
}

/// Whether the brokers come from settings: then there is no TTL and there are no routes.
pub(crate) fn is_static(cluster: &Cluster, config: &LfsConfig) -> bool {
    cluster.is_static() || !config.static_backends.is_empty()
}

/// All brokers that may be asked at all. The list of the cluster goes before that of this path.
pub(crate) fn listed(cluster: &Cluster, config: &LfsConfig) -> Vec<Address> {
    if cluster.is_static() || config.static_backends.is_empty() {
        cluster.brokers().to_vec()
    } else {
        config.static_backends.iter().map(|text| Address::new(text)).collect()
    }
}

/// Whether brokers may be used at `now`; `Ok(false)` asks for one read of etcd first.
pub(crate) fn may_serve(
    cluster: &Cluster,
    config: &LfsConfig,
    now: Monotonic,
    asked_freshness: bool,
) -> Result<bool, NotServing> {
    if is_static(cluster, config) {
        return Ok(true);
    }
    let service = if asked_freshness { cluster.service_after_read(now) } else { cluster.service(now) };
    match service {
        Service::Serving => Ok(true),
        Service::AfterRead => Ok(false),
        Service::Refused(reason) => Err(reason),
    }
}

/// Whether what was chosen before may still be used at `now`.
pub(crate) fn is_fresh(cluster: &Cluster, config: &LfsConfig, now: Monotonic, (topic, partition): (&str, i32)) -> bool {
    if is_static(cluster, config) {
        return true;
    }
    let proven = match cluster.partition_owner(now, topic, partition) {
        Owner::Broker(_) | Owner::Nobody | Owner::Forgotten | Owner::UnknownBroker(_) => true,
        Owner::Unproven => false,
    };
    proven && cluster.service(now) == Service::Serving
}

/// Chooses for one partition. `turn` moves round robin among static brokers.
pub(crate) fn choose(
    cluster: &Cluster,
    config: &LfsConfig,
    now: Monotonic,
    (topic, partition): (&str, i32),
    asked: Asked,
    turn: usize,
) -> Choice {
    match may_serve(cluster, config, now, asked.freshness) {
        Ok(true) => {}
        Ok(false) => return Choice::Ask(Question::Freshness),
        Err(reason) => return Choice::Refused(reason),
    }
    if is_static(cluster, config) || planted(Bug::RoundRobin) {
        let mut brokers = listed(cluster, config);
        let start = turn % brokers.len().max(1);
        brokers.rotate_left(start);
        return Choice::Open(brokers);
    }
    let first = match cluster.partition_owner(now, topic, partition) {
        Owner::Broker(address) => return Choice::Owned(first_then_others(&address, cluster.brokers())),
        Owner::UnknownBroker(_) if !asked.snapshot => return Choice::Ask(Question::Snapshot),
        Owner::Unproven if !asked.freshness => return Choice::Ask(Question::Freshness),
        Owner::Unproven => return Choice::Refused(NotServing::Unreadable),
        // The broker that is asked takes the lease: the same one that the Kafka listener would ask.
        Owner::Nobody | Owner::Forgotten | Owner::UnknownBroker(_) => cluster.stable_choice(topic, partition),
    };
    Choice::Open(first.map(|first| first_then_others(first, cluster.brokers())).unwrap_or_default())
}

fn first_then_others(first: &Address, brokers: &[Address]) -> Vec<Address> {
    let others = brokers.iter().filter(|other| *other != first);
    std::iter::once(first).chain(others).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_comes_first_and_once() {
        let [a, b, c] = ["a:1", "b:1", "c:1"].map(Address::new);
        let listed = [a.clone(), b.clone(), c.clone()];
        assert_eq!(first_then_others(&b, &listed), [b.clone(), a.clone(), c.clone()]);
        assert_eq!(first_then_others(&b, &listed[..1]), [b, a]);
    }
}
