//! I3: nothing is sent to a broker, and nothing is answered from memory, once the TTL has passed since the last moment at
//! which etcd served a linearizable read for this shard whose answer it was told. When etcd served it is what the model saw,
//! so an answer that came late proves no more than one that came at once. What is read in pages is as old as the first. "Nothing
//! newer" proves something only of the etcd that was read: of one that was restored from a backup since, it says nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::etcd::{Keys, RangeRequest, RangeResponse, Request, Response};
use kafscale_proxy_core::model::broker::SNAPSHOT_KEY;
use kafscale_proxy_core::{Monotonic, OperationId, Outcome, inputs};

use super::PARTITIONS;

/// A read that etcd has served.
struct Served {
    range: RangeRequest,
    at: Monotonic,
    /// By which etcd.
    incarnation: u64,
}

/// What shards were told that they had asked for, and when etcd served it last.
pub struct Freshness {
    ttl: Duration,
    /// Reads whose answers are on their way.
    on_its_way: BTreeMap<(usize, OperationId), Served>,
    /// When the first page of a reading of the leases was served that is not complete, by shard, and by which etcd.
    first_page: BTreeMap<usize, (Monotonic, u64)>,
    /// How often etcd was restored.
    incarnation: u64,
    /// Of which etcd a shard was told the whole of something last.
    read_of: BTreeMap<(usize, String), u64>,
    served: BTreeMap<(usize, String), Monotonic>,
}

impl Freshness {
    pub(super) const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            on_its_way: BTreeMap::new(),
            first_page: BTreeMap::new(),
            incarnation: 0,
            read_of: BTreeMap::new(),
            served: BTreeMap::new(),
        }
    }

    /// Another etcd serves from now on.
    pub(super) fn etcd_restored(&mut self) {
        self.incarnation += 1;
    }

    /// etcd served a request of a shard.
    pub(in crate::world) fn served(&mut self, order: (usize, OperationId), request: &Request, at: Monotonic) {
        if let Request::Range(range) = request {
            self.on_its_way.insert(order, Served { range: range.clone(), at, incarnation: self.incarnation });
        }
    }

    /// A shard is told something by etcd.
    pub(super) fn told(&mut self, shard: usize, input: &inputs::Etcd) {
        if let inputs::Etcd::Finished { operation, outcome } = input
            && let Some(served) = self.on_its_way.remove(&(shard, *operation))
            && let Outcome::Applied(Response::Range(answer)) = outcome
        {
            self.read(shard, &served, answer);
        }
    }

    fn read(&mut self, shard: usize, served: &Served, answer: &RangeResponse) {
        match &served.range.keys {
            Keys::One(key) => {
                let key = String::from_utf8_lossy(key).into_owned();
                let is_unchanged = served.range.min_mod_revision > 0 && answer.kvs.is_empty() && answer.count > 0;
                if is_unchanged {
                    self.is_unchanged(shard, &key, served);
                } else {
                    self.is_read(shard, &key, served.at, served.incarnation);
                }
            }
            Keys::Between(first, _) if !first.starts_with(PARTITIONS.as_bytes()) => {}
            // A proof: whoever is told of something newer knows only that it does not know.
            Keys::Between(..) if served.range.min_mod_revision > 0 => {
                if answer.kvs.is_empty() {
                    self.is_unchanged(shard, PARTITIONS, served);
                }
            }
            Keys::Between(first, _) => {
                let begun = match first == PARTITIONS {
                    true => Some((served.at, served.incarnation)),
                    false => self.first_page.get(&shard).copied(),
                };
                // Pages of two stores are a reading of neither.
                let begun = begun.filter(|(_, incarnation)| *incarnation == served.incarnation);
                match begun {
                    Some(begun) if answer.more => drop(self.first_page.insert(shard, begun)),
                    Some((begun, incarnation)) => {
                        self.first_page.remove(&shard);
                        self.is_read(shard, PARTITIONS, begun, incarnation);
                    }
                    None => _ = self.first_page.remove(&shard),
                }
            }
        }
    }

    fn is_read(&mut self, shard: usize, name: &str, at: Monotonic, incarnation: u64) {
        self.read_of.insert((shard, name.to_owned()), incarnation);
        self.is_known(shard, name, at);
    }

    fn is_unchanged(&mut self, shard: usize, name: &str, served: &Served) {
        if self.read_of.get(&(shard, name.to_owned())) == Some(&served.incarnation) {
            self.is_known(shard, name, served.at);
        }
    }

    fn is_known(&mut self, shard: usize, name: &str, at: Monotonic) {
        let known = self.served.entry((shard, name.to_owned())).or_insert(at);
        *known = at.max(*known);
    }

    fn is_fresh(&self, shard: usize, name: &str, now: Monotonic) -> bool {
        self.served.get(&(shard, name.to_owned())).is_some_and(|served| now.since(*served) <= self.ttl)
    }

    /// What is wrong with answering from the snapshot now.
    pub(super) fn of_snapshot(&self, shard: usize, now: Monotonic) -> Option<String> {
        let snapshot = String::from_utf8_lossy(SNAPSHOT_KEY.as_ref()).into_owned();
        (!self.is_fresh(shard, &snapshot, now))
            .then(|| format!("shard {shard}: snapshot served at {:?}", self.served.get(&(shard, snapshot))))
    }

    /// What is wrong with sending something for this partition now.
    pub(super) fn of_partition(&self, shard: usize, topic: &str, partition: i32, now: Monotonic) -> Option<String> {
        let key = format!("{PARTITIONS}{topic}/{partition}");
        if let Some(fault) = self.of_snapshot(shard, now) {
            return Some(fault);
        }
        let fresh = self.is_fresh(shard, PARTITIONS, now) || self.is_fresh(shard, &key, now);
        (!fresh).then(|| {
            let served = self.served.get(&(shard, PARTITIONS.to_owned()));
            format!("shard {shard}: leases of partitions served at {served:?}")
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafscale_proxy_core::etcd::KeyValue;

    use super::*;

    const TTL: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Monotonic {
        Monotonic::ZERO + Duration::from_secs(seconds)
    }

    fn range(keys: Keys) -> RangeRequest {
        RangeRequest::of(keys)
    }

    /// What etcd served at that time is told, or its answer is lost.
    fn reads(freshness: &mut Freshness, range: RangeRequest, served: u64, answer: Option<RangeResponse>) {
        let operation = OperationId(1);
        freshness.served((0, operation), &Request::Range(range), at(served));
        let outcome = match answer {
            Some(answer) => Outcome::Applied(Response::Range(answer)),
            None => Outcome::Unknown("lost".into()),
        };
        freshness.told(0, &inputs::Etcd::Finished { operation, outcome });
    }

    fn page(more: bool) -> Option<RangeResponse> {
        Some(RangeResponse { revision: 9, kvs: Vec::new(), count: 0, more })
    }

    fn news() -> Option<RangeResponse> {
        let (key, value) = (Bytes::from_static(b"newer"), Bytes::new());
        let kv = KeyValue { key, value, create_revision: 9, mod_revision: 9, lease: 0 };
        Some(RangeResponse { revision: 9, kvs: vec![kv], count: 1, more: false })
    }

    #[test]
    fn only_what_was_told_counts_and_pages_are_as_old_as_the_first() {
        let all = || range(Keys::prefix(PARTITIONS));
        let later = || range(Keys::Between(format!("{PARTITIONS}t/0\0").into(), format!("{PARTITIONS}~").into()));
        let proof = || RangeRequest { min_mod_revision: 7, ..all() };
        let snapshot = || range(Keys::One(SNAPSHOT_KEY.into()));
        let mut freshness = Freshness::new(TTL);
        reads(&mut freshness, snapshot(), 10, None);
        assert!(freshness.of_snapshot(0, at(10)).is_some(), "the answer was lost");
        reads(&mut freshness, snapshot(), 30, page(false));
        assert!(freshness.of_snapshot(0, at(45)).is_none());
        reads(&mut freshness, all(), 10, page(true));
        assert!(freshness.of_partition(0, "t", 0, at(30)).is_some(), "it is not complete");
        reads(&mut freshness, later(), 29, page(false));
        assert!(freshness.of_partition(0, "t", 0, at(25)).is_none());
        assert!(freshness.of_partition(0, "t", 0, at(30)).is_some(), "its first page is 20 s old");
        reads(&mut freshness, proof(), 30, news());
        assert!(freshness.of_partition(0, "t", 0, at(30)).is_some(), "the proof did not hold");
        reads(&mut freshness, proof(), 30, page(false));
        assert!(freshness.of_partition(0, "t", 0, at(45)).is_none());
        freshness.etcd_restored();
        reads(&mut freshness, proof(), 40, page(false));
        assert!(freshness.of_partition(0, "t", 0, at(46)).is_some(), "that is another store");
        let one = range(Keys::One(Bytes::from(format!("{PARTITIONS}t/1"))));
        reads(&mut freshness, one, 33, page(false));
        reads(&mut freshness, snapshot(), 40, page(false));
        assert!(freshness.of_partition(0, "t", 1, at(48)).is_none());
        assert!(freshness.of_partition(0, "t", 0, at(48)).is_some());
    }
}
