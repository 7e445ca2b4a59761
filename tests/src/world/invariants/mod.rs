//! What must hold whatever the partners do, judged from the models' own state and never from the code under test.

mod asked;
mod blobs;
mod deletes;
mod endings;
mod freshness;
mod half_requests;
mod hints;
mod large_answers;
mod leftovers;
mod listing;
mod members;
mod order;
mod owners;
mod producer_ids;
mod records;
mod routing;
mod topics;
mod unowned;
mod uploads;
mod watches;

use bytes::Bytes;
use kafscale_proxy_core::inputs::{self, BrokerConnectionId};
use kafscale_proxy_core::kafka::{ApiKey, Message, ProduceRequest, RequestHeader};
use kafscale_proxy_core::model::broker::{ClusterSnapshot, SharedLog};
use kafscale_proxy_core::{Config, Effect, Input, Monotonic, effects};

pub use blobs::{BlobFault, Envelope, check_blobs, envelopes, sha256_hex};
pub use deletes::Deletes;
pub use endings::Endings;
pub use freshness::Freshness;
pub use half_requests::HalfRequests;
pub(in crate::world) use hints::names_a_broker;
pub use large_answers::LargeAnswers;
pub use leftovers::leftovers;
pub use listing::Listing;
pub use members::Members;
pub use order::{BatchId, Order};
pub use owners::Owners;
pub use producer_ids::ProducerIds;
pub use records::Records;
pub use routing::Routing;
pub use topics::Topics;
pub use unowned::Unowned;
pub use uploads::Uploads;
pub use watches::Watches;

use crate::world::EtcdSide;

/// Where leases of partitions stand in etcd.
pub(super) const PARTITIONS: &str = "/kafscale/partition-leases/";

/// Effects that one call may give. A client's 64 requests in flight, each split over the brokers, are the most that one fact
/// (a read that completes them all, or the end of a wait) has been seen to set going.
const EFFECTS_MAX: usize = 1_000;

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What was broken.
    pub invariant: &'static str,
    /// When.
    pub at: Monotonic,
    /// What happened.
    pub text: String,
}

/// Everything that is judged at every moment.
pub struct Judges {
    /// I3.
    pub freshness: Freshness,
    /// I5 and I10.
    pub order: Order,
    /// Requests reach the owner.
    pub routing: Routing,
    /// Partitions are read from their owners.
    pub owners: Owners,
    /// Makers of objects.
    pub uploads: Uploads,
    /// Partitions without an owner.
    pub unowned: Unowned,
    /// What shards were told of the list of brokers.
    pub listing: Listing,
    /// What shards know of their records.
    pub records: Records,
    /// Where watches begin.
    pub watches: Watches,
    /// Identities of topics.
    pub topics: Topics,
    /// Processes that were asked to end.
    pub endings: Endings,
    /// Memory for requests that are not whole.
    pub half_requests: HalfRequests,
    /// Memory for large answers.
    pub large_answers: LargeAnswers,
    /// Ids of producers.
    pub producer_ids: ProducerIds,
    /// Member ids while groups settle.
    pub members: Members,
    topic_names: asked::TopicNames,
    violations: Vec<Violation>,
    effects_most: usize,
}

impl Judges {
    /// For machines with these settings, in a cluster that begins like this.
    pub(super) fn new(config: &Config, snapshot: &ClusterSnapshot) -> Self {
        let ttl = config.cluster.cache_ttl;
        Self {
            freshness: Freshness::new(ttl),
            order: Order::default(),
            routing: Routing::default(),
            owners: Owners::new(ttl, snapshot),
            uploads: Uploads::default(),
            unowned: Unowned::default(),
            listing: Listing::default(),
            records: Records::default(),
            watches: Watches::default(),
            topics: Topics::new(ttl),
            endings: Endings::default(),
            half_requests: HalfRequests::new(config.listener.frame_memory_bytes),
            large_answers: LargeAnswers::new(config.listener.answer_memory_bytes),
            producer_ids: ProducerIds::default(),
            members: Members::default(),
            topic_names: asked::TopicNames::new(ttl),
            violations: Vec::new(),
            effects_most: 0,
        }
    }

    /// What was broken so far, oldest first.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The most effects that one call gave.
    pub const fn effects_most(&self) -> usize {
        self.effects_most
    }

    /// Something must not have happened.
    pub fn violated(&mut self, invariant: &'static str, at: Monotonic, text: String) {
        self.violations.push(Violation { invariant, at, text });
    }

    /// Something was done to etcd.
    pub(super) fn topics_may_have_changed(&mut self, etcd: &EtcdSide, now: Monotonic) {
        if self.topics.look(etcd, now) {
            self.topic_names.are(now, self.topics.ids());
        }
    }

    /// etcd was restored from a backup: what was read of it before proves nothing any more.
    pub(super) fn etcd_restored(&mut self) {
        self.freshness.etcd_restored();
        self.producer_ids.etcd_restored();
    }

    /// A shard begins.
    pub(super) fn calm_shard(&mut self, shard: usize, now: Monotonic) {
        self.routing.shard_not_calm_before(shard, now);
    }

    /// A shard is gone at once.
    pub(super) fn shard_died(&mut self, shard: usize) {
        self.half_requests.shard_died(shard);
        self.large_answers.shard_died(shard);
    }

    /// A shard is told something.
    pub(super) fn told(&mut self, shard: usize, input: &Input, now: Monotonic) {
        self.records.told(shard, input, now);
        self.topics.told(input, now);
        self.endings.told(shard, input, now);
        if let Some(fault) = self.half_requests.told(shard, input) {
            self.violated("memory for requests", now, fault);
        }
        self.large_answers.told(shard, input, now);
        if let Input::Broker(input) = input {
            self.members.told(shard, input);
            if let inputs::Broker::Closed { connection, .. } = input {
                self.order.connection_ended((shard, *connection));
            }
        }
        if let Input::Etcd(input) = input {
            self.watches.told(shard, input);
            self.freshness.told(shard, input);
            self.listing.told(shard, input, now);
        }
    }

    /// A shard orders this.
    pub(super) fn orders(&mut self, shard: usize, effect: &Effect, now: Monotonic) {
        self.topics.ordered(effect, now);
        if let Some(fault) = self.endings.ordered(shard, effect) {
            self.violated("endings", now, fault);
        }
        self.half_requests.ordered(shard, effect);
        self.large_answers.ordered(shard, effect);
        if let Some((invariant, fault)) = self.records.ordered(shard, effect, now) {
            self.violated(invariant, now, fault);
        }
        if let Some(fault) = self.listing.ordered(shard, effect, now) {
            self.violated("list of brokers", now, fault);
        }
        if let Effect::Etcd(effects::Etcd::Watch { request, .. }) = effect
            && let Some(fault) = self.watches.ordered(shard, request)
        {
            self.violated("watches", now, fault);
        }
    }

    /// A call gave so many effects.
    pub(super) fn ordered(&mut self, shard: usize, now: Monotonic, effects: usize) {
        self.effects_most = self.effects_most.max(effects);
        if effects > EFFECTS_MAX {
            self.violated("bounded effects", now, format!("shard {shard}: {effects} effects of one call"));
        }
    }

    /// A call of a shard is over, and what it ordered is carried out.
    pub(super) fn called(&mut self, shard: usize, now: Monotonic) {
        if let Some(fault) = self.large_answers.called(shard) {
            self.violated("memory for answers", now, fault);
        }
    }

    /// Brokers may have added to the log.
    pub(super) fn appended(&mut self, log: &SharedLog, now: Monotonic) {
        let (uploads, topics) = (&self.uploads, &self.topics);
        let faults = self.order.look(log, |key| topics.wanted(uploads.exchange(key)?));
        for fault in faults {
            self.violated("order", now, fault);
        }
    }

    /// Metadata or a coordinator was answered from memory.
    pub fn answered_from_memory(&mut self, shard: usize, now: Monotonic) {
        if let Some(fault) = self.freshness.of_snapshot(shard, now) {
            self.violated("freshness", now, format!("answered from memory; {fault}"));
        }
    }

    /// A socket took bytes of a request for a broker.
    pub(super) fn written_to_broker(
        &mut self,
        (shard, connection): (usize, BrokerConnectionId),
        broker: usize,
        request: &Bytes,
        etcd: &EtcdSide,
        now: Monotonic,
    ) {
        self.large_answers.written((shard, connection), request);
        self.routing.leases_may_have_changed(etcd, now);
        self.unowned.leases_may_have_changed(etcd, now);
        let Ok((header, body_at)) = RequestHeader::decode(request) else { return };
        let (api, version, body) = (header.api(), header.api_version, request.slice(body_at..));
        let is_clients_produce = api == Some(ApiKey::Produce) && deletes::key_in_envelope(&body).is_none();
        let mut partitions: Vec<(String, i32)> = Vec::new();
        match api {
            Some(ApiKey::Produce) => {
                if let Some(key) = deletes::key_in_envelope(&body) {
                    if let Some(fault) = self.uploads.publishing(&key) {
                        self.violated("client gone", now, fault);
                    }
                    let exchange = self.uploads.exchange(&key);
                    if let Some(fault) = exchange.and_then(|exchange| self.topics.publishing(&key, exchange, now)) {
                        self.violated("topics", now, fault);
                    }
                }
                let produce = ProduceRequest::decode(&body, version).map(|request| request.topic_data);
                for topic in produce.iter().flatten() {
                    for one in &topic.partition_data {
                        partitions.push((topic.name.to_string(), one.index));
                        one.records.iter().for_each(|records| self.order.written((shard, connection), records));
                    }
                }
            }
            Some(ApiKey::Fetch) => {
                partitions = asked::fetched(&body, version, &self.topic_names, now);
                // Also for an id that nobody may know.
                if let Some(fault) = self.freshness.of_snapshot(shard, now) {
                    self.violated("freshness", now, format!("{api:?} is sent; {fault}"));
                }
            }
            Some(ApiKey::ListOffsets) => partitions = asked::listed(&body, version),
            Some(ApiKey::OffsetForLeaderEpoch) => partitions = asked::epochs(&body, version),
            // What is said on a fresh connection is no client's business yet.
            Some(ApiKey::ApiVersions) | None => {}
            Some(_) => {
                // A group that nobody coordinates goes to any broker that the snapshot lists: the proof of the leases is
                // judged with partitions, where a wrong broker would do harm.
                if let Some(fault) = self.freshness.of_snapshot(shard, now) {
                    self.violated("freshness", now, format!("{api:?} is sent; {fault}"));
                }
                if api == Some(ApiKey::JoinGroup)
                    && let Some(fault) =
                        self.members.written((shard, connection), header.correlation_id, version, &body)
                {
                    self.violated("members", now, fault);
                }
            }
        }
        if let Some(fault) = self.routing.of_any(shard, now) {
            self.violated("routing", now, format!("{api:?}: {fault}"));
        }
        for (topic, partition) in partitions {
            if let Some(fault) = self.freshness.of_partition(shard, &topic, partition, now) {
                self.violated("freshness", now, format!("{api:?} is sent; {fault}"));
            }
            if api != Some(ApiKey::Produce)
                && let Some(fault) = self.owners.read_from(broker, &topic, partition, now)
            {
                self.violated("owners", now, format!("{api:?}: {fault}"));
            }
            if is_clients_produce
                && self.routing.is_calm(shard, now)
                && let Some(fault) = self.unowned.asks(broker, &topic, partition, now)
            {
                self.violated("unowned partitions", now, fault);
            }
            if let Some(fault) = self.routing.of(shard, broker, &topic, partition, now) {
                self.violated("routing", now, format!("{api:?}: {fault}"));
            }
        }
    }
}
