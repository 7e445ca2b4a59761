//! A snapshot that lists no broker is knowledge, not a failure: from then on nothing goes to any of those listed before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafscale_proxy_core::etcd::{Keys, RangeResponse, Request, Response};
use kafscale_proxy_core::kafka::{ApiKey, RequestHeader};
use kafscale_proxy_core::model::broker::SNAPSHOT_KEY;
use kafscale_proxy_core::{Effect, Monotonic, OperationId, Outcome, effects, inputs};

/// What a shard may take to read the value.
const READ: Duration = Duration::from_millis(5);

/// What shards were told of the list of brokers.
#[derive(Default)]
pub struct Listing {
    reads: BTreeSet<(usize, OperationId)>,
    /// Since when a shard knows that there is no broker.
    none_since: BTreeMap<usize, Monotonic>,
}

impl Listing {
    /// A shard is told something by etcd.
    pub(super) fn told(&mut self, shard: usize, input: &inputs::Etcd, now: Monotonic) {
        let inputs::Etcd::Finished { operation, outcome } = input else { return };
        if !self.reads.remove(&(shard, *operation)) {
            return;
        }
        let Outcome::Applied(Response::Range(range)) = outcome else { return };
        match lists_brokers(range) {
            Some(true) => {
                self.none_since.remove(&shard);
            }
            Some(false) => {
                self.none_since.entry(shard).or_insert(now);
            }
            None => {}
        }
    }

    /// A shard orders something; gives what is wrong with that.
    pub(super) fn ordered(&mut self, shard: usize, effect: &Effect, now: Monotonic) -> Option<String> {
        if let Effect::Etcd(effects::Etcd::Request { operation, request: Request::Range(range) }) = effect
            && range.keys == Keys::One(SNAPSHOT_KEY.into())
        {
            self.reads.insert((shard, *operation));
        }
        let Effect::Broker(effects::Broker::Write { connection, bytes }) = effect else { return None };
        if RequestHeader::decode(bytes).is_ok_and(|(header, _)| header.api() == Some(ApiKey::ApiVersions)) {
            // What is said on a fresh connection is no client's business yet.
            return None;
        }
        let since = self.none_since.get(&shard).filter(|since| now.since(**since) > READ)?;
        Some(format!("shard {shard} writes to {connection:?}; it was told of no broker since {since:?}"))
    }
}

/// `None` when the answer says that nothing has changed.
fn lists_brokers(answer: &RangeResponse) -> Option<bool> {
    let Some(kv) = answer.kvs.first() else { return (answer.count == 0).then_some(false) };
    let snapshot: serde_json::Value = serde_json::from_slice(&kv.value).ok()?;
    Some(snapshot["Brokers"].as_array().is_some_and(|brokers| !brokers.is_empty()))
}
