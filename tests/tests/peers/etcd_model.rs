//! The reference model of etcd against etcd itself: random requests to both, equal answers.
//!
//! The two stores are compared through revisions counted from the start of each run and leases known by their order.

use etcd_client::{
    Client, Compare as EtcdCompare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
    WatchOptions,
};
use kafscale_proxy_core::etcd::{
    Compare, KeyValue, Keys, RangeRequest, RangeResponse, Refusal, Request, Response, Revision, TxnAnswer,
    TxnOperation, TxnRequest, WatchEvent, WatchRequest,
};
use kafscale_proxy_core::model::Link;
use kafscale_proxy_core::model::etcd::{EtcdModel, WatchFact, WatchFacts, WatchToken};
use kafscale_proxy_core::{Monotonic, Outcome};
use kafscale_proxy_tests::peers::Etcd;

const STEPS: usize = 2_000;
/// No real lease has this number.
const NO_LEASE: i64 = 4_242;

/// A small generator, so that a failing run can be repeated.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    /// Few keys, so that requests meet.
    fn key(&mut self) -> Vec<u8> {
        (0..=self.below(2)).map(|_| b'a' + self.below(4) as u8).collect()
    }

    fn keys(&mut self) -> Keys {
        match self.below(4) {
            0 | 1 => Keys::One(self.key().into()),
            2 => Keys::prefix(self.key()),
            _ => {
                let end = if self.one_in(2) { vec![0] } else { self.key() };
                Keys::Between(self.key().into(), end.into())
            }
        }
    }

    fn range(&mut self, revision: Revision) -> RangeRequest {
        let mut range = RangeRequest::of(self.keys());
        if self.one_in(3) {
            range.limit = self.below(4) as i64;
        }
        if self.one_in(4) {
            range.revision = (revision - 20 + self.below(22) as i64).max(0);
        }
        if self.one_in(4) {
            range.min_mod_revision = (revision - 15 + self.below(17) as i64).max(0);
        }
        range.keys_only = self.one_in(6);
        range.count_only = self.one_in(8);
        range
    }

    fn branch(&mut self, revision: Revision, leases: &[(i64, i64)]) -> Vec<TxnOperation> {
        (0..self.below(4))
            .map(|_| match self.below(6) {
                0 => TxnOperation::Range(self.range(revision)),
                1 => TxnOperation::Delete(self.keys()),
                _ => {
                    let value = vec![b'0' + self.below(3) as u8].into();
                    let lease = match self.below(5) {
                        0 if self.one_in(9) => NO_LEASE,
                        0 | 1 if !leases.is_empty() => leases[self.below(leases.len() as u64) as usize].0,
                        _ => 0,
                    };
                    TxnOperation::Put { key: self.key().into(), value, lease }
                }
            })
            .collect()
    }

    fn compare(&mut self, model: &EtcdModel) -> Compare {
        let key = self.key();
        let present = model.get(&key);
        match self.below(3) {
            0 => Compare::CreateRevision(key.clone().into(), present.map_or(0, |kv| kv.create_revision)),
            1 => {
                let absent = self.below(2) as i64;
                Compare::ModRevision(key.clone().into(), present.map_or(absent, |kv| kv.mod_revision))
            }
            _ => Compare::Value(key.clone().into(), vec![b'0' + self.below(3) as u8].into()),
        }
    }
}

/// The real store, its revisions counted as those of the model.
struct Real {
    client: Client,
    base: Revision,
    /// Number in the model, number in etcd.
    leases: Vec<(i64, i64)>,
}

impl Real {
    fn revision(&self, model: Revision) -> Revision {
        if model > 0 { model + self.base } else { 0 }
    }

    fn lease(&self, model: i64) -> i64 {
        self.leases.iter().find(|(ours, _)| *ours == model).map_or(model, |(_, theirs)| *theirs)
    }

    fn get(&self, range: &RangeRequest) -> (Vec<u8>, GetOptions) {
        let (key, mut options) = match &range.keys {
            Keys::One(key) => (key.to_vec(), GetOptions::new()),
            Keys::Between(key, end) => (key.to_vec(), GetOptions::new().with_range(end.to_vec())),
        };
        options = options
            .with_limit(range.limit)
            .with_revision(self.revision(range.revision))
            .with_min_mod_revision(self.revision(range.min_mod_revision));
        if range.keys_only {
            options = options.with_keys_only();
        }
        if range.count_only {
            options = options.with_count_only();
        }
        (key, options)
    }

    fn operation(&self, operation: &TxnOperation) -> TxnOp {
        match operation {
            TxnOperation::Range(range) => {
                let (key, options) = self.get(range);
                TxnOp::get(key, Some(options))
            }
            TxnOperation::Put { key, value, lease } => {
                let options = PutOptions::new().with_lease(self.lease(*lease));
                TxnOp::put(key.to_vec(), value.to_vec(), Some(options))
            }
            TxnOperation::Delete(Keys::One(key)) => TxnOp::delete(key.to_vec(), None),
            TxnOperation::Delete(Keys::Between(key, end)) => {
                TxnOp::delete(key.to_vec(), Some(DeleteOptions::new().with_range(end.to_vec())))
            }
        }
    }

    fn compare(&self, compare: &Compare) -> EtcdCompare {
        match compare {
            Compare::CreateRevision(key, revision) => {
                EtcdCompare::create_revision(key.to_vec(), CompareOp::Equal, self.revision(*revision))
            }
            Compare::ModRevision(key, revision) => {
                EtcdCompare::mod_revision(key.to_vec(), CompareOp::Equal, self.revision(*revision))
            }
            Compare::Value(key, value) => EtcdCompare::value(key.to_vec(), CompareOp::Equal, value.to_vec()),
        }
    }

    fn kv(&self, kv: &etcd_client::KeyValue) -> String {
        let lease = match kv.lease() {
            0 => 0,
            theirs => self.leases.iter().find(|(_, other)| *other == theirs).map_or(-1, |(ours, _)| *ours),
        };
        line(kv.key(), kv.value(), kv.mod_revision() - self.base, kv.create_revision() - self.base, lease)
    }

    fn range_text(&self, response: &etcd_client::GetResponse) -> String {
        let kvs: Vec<String> = response.kvs().iter().map(|kv| self.kv(kv)).collect();
        let revision = response.header().map_or(0, |header| header.revision()) - self.base;
        format!("at {revision} count {} more {} {kvs:?}", response.count(), response.more())
    }

    async fn range(&mut self, range: &RangeRequest) -> String {
        let (key, options) = self.get(range);
        match self.client.get(key, Some(options)).await {
            Ok(response) => self.range_text(&response),
            Err(error) => refusal_of(&error),
        }
    }

    async fn txn(&mut self, txn: &TxnRequest) -> String {
        let operations = |branch: &[TxnOperation]| branch.iter().map(|op| self.operation(op)).collect::<Vec<_>>();
        let request = Txn::new()
            .when(txn.compares.iter().map(|compare| self.compare(compare)).collect::<Vec<_>>())
            .and_then(operations(&txn.success))
            .or_else(operations(&txn.failure));
        match self.client.txn(request).await {
            Err(error) => refusal_of(&error),
            Ok(response) => {
                let answers = response.op_responses().into_iter().map(|answer| match answer {
                    TxnOpResponse::Get(response) => self.range_text(&response),
                    TxnOpResponse::Put(_) => "put".to_owned(),
                    TxnOpResponse::Delete(response) => format!("deleted {}", response.deleted()),
                    TxnOpResponse::Txn(_) => "a transaction".to_owned(),
                });
                let revision = response.header().map_or(0, |header| header.revision()) - self.base;
                format!("at {revision} {} {:?}", response.succeeded(), answers.collect::<Vec<_>>())
            }
        }
    }
}

fn line(key: &[u8], value: &[u8], modified: Revision, created: Revision, lease: i64) -> String {
    let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
    format!("{key}={value}@{modified}({created}) lease {lease}")
}

fn our_kv(kv: &KeyValue) -> String {
    line(&kv.key, &kv.value, kv.mod_revision, kv.create_revision, kv.lease)
}

fn our_range(response: &RangeResponse) -> String {
    let kvs: Vec<String> = response.kvs.iter().map(our_kv).collect();
    format!("at {} count {} more {} {kvs:?}", response.revision, response.count, response.more)
}

fn refusal_of(error: &etcd_client::Error) -> String {
    let etcd_client::Error::GRpcStatus(status) = error else { panic!("{error}") };
    format!("refused: {}", status.message())
}

fn ask(model: &mut EtcdModel, request: &Request) -> String {
    let reply = model.request(Monotonic::ZERO, Link::default(), request, &mut WatchFacts::new());
    match &reply.outcome {
        Outcome::Applied(Response::Range(response)) => our_range(response),
        Outcome::Applied(Response::Txn(response)) => {
            let answers = response.answers.iter().map(|answer| match answer {
                TxnAnswer::Range(response) => our_range(response),
                TxnAnswer::Put => "put".to_owned(),
                TxnAnswer::Delete(count) => format!("deleted {count}"),
            });
            format!("at {} {} {:?}", response.revision, response.succeeded, answers.collect::<Vec<_>>())
        }
        Outcome::NotApplied(Refusal::Other(text)) => format!("refused: {text}"),
        Outcome::NotApplied(Refusal::Compacted(_)) => {
            "refused: etcdserver: mvcc: required revision has been compacted".to_owned()
        }
        Outcome::Applied(_) | Outcome::NotApplied(_) | Outcome::Unknown(_) => panic!("{reply:?}"),
    }
}

/// Everything that a watch from `start` on is told at once.
fn our_history(model: &mut EtcdModel, start: Revision) -> Vec<String> {
    let mut facts = WatchFacts::new();
    let request = WatchRequest { keys: Keys::Between(vec![0].into(), vec![0].into()), start_revision: start };
    model.watch(Link::default(), WatchToken(1), &request, &mut facts);
    let told = facts.into_iter().filter_map(|(_, fact)| match fact {
        WatchFact::Events { events, .. } => Some(events),
        WatchFact::Created { .. } | WatchFact::Ended(_) => None,
    });
    told.flatten()
        .map(|event| match event {
            WatchEvent::Put(kv) => our_kv(&kv),
            WatchEvent::Delete { key, mod_revision } => format!("-{}@{mod_revision}", String::from_utf8_lossy(&key)),
        })
        .collect()
}

async fn real_history(real: &mut Real, start: Revision, length: usize) -> Vec<String> {
    let options = WatchOptions::new().with_range(vec![0]).with_start_revision(real.revision(start));
    let mut stream = real.client.watch(vec![0], Some(options)).await.expect("etcd runs");
    let mut told = Vec::new();
    while told.len() < length {
        let response = stream.message().await.expect("etcd runs").expect("the watch stands");
        for event in response.events() {
            let kv = event.kv().expect("an event has a key");
            told.push(match event.event_type() {
                etcd_client::EventType::Put => real.kv(kv),
                etcd_client::EventType::Delete => {
                    format!("-{}@{}", String::from_utf8_lossy(kv.key()), kv.mod_revision() - real.base)
                }
            });
        }
    }
    told
}

async fn compare_with_etcd(etcd: &Etcd, seed: u64) {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut client = etcd.client().await;
    client.delete(vec![0], Some(DeleteOptions::new().with_range(vec![0]))).await.expect("etcd runs");
    let response = client.put("~", "", None).await.expect("etcd runs");
    let base = response.header().expect("etcd names a revision").revision() - 2;
    let mut real = Real { client, base, leases: Vec::new() };
    let mut model = EtcdModel::new();
    model.put("~", "", &mut WatchFacts::new());

    for step in 0..STEPS {
        let revision = model.revision();
        match draw.below(20) {
            0 => {
                let request = Request::LeaseGrant { ttl_seconds: 600 };
                let reply = model.request(Monotonic::ZERO, Link::default(), &request, &mut WatchFacts::new());
                let Outcome::Applied(Response::LeaseGranted { lease, ttl_seconds }) = reply.outcome else {
                    panic!("{reply:?}")
                };
                let granted = real.client.lease_grant(600, None).await.expect("etcd runs");
                assert_eq!(granted.ttl(), ttl_seconds);
                real.leases.push((lease, granted.id()));
            }
            1 if !real.leases.is_empty() => {
                let (ours, theirs) = real.leases[draw.below(real.leases.len() as u64) as usize];
                let request = Request::LeaseRevoke { lease: ours };
                model.request(Monotonic::ZERO, Link::default(), &request, &mut WatchFacts::new());
                // One that is gone already is refused by etcd and counts as revoked here.
                drop(real.client.lease_revoke(theirs).await);
            }
            2 if draw.one_in(8) => {
                let at = revision - 5 + draw.below(7) as i64;
                let compacted = real.client.compact(real.revision(at), None).await;
                assert_eq!(model.compact(at).is_ok(), compacted.is_ok(), "seed {seed} step {step}: compact {at}");
            }
            2..=6 => {
                let range = draw.range(revision);
                let theirs = real.range(&range).await;
                let ours = ask(&mut model, &Request::Range(range.clone()));
                assert_eq!(ours, theirs, "seed {seed} step {step}: {range:?}");
            }
            _ => {
                let txn = TxnRequest {
                    compares: (0..draw.below(3)).map(|_| draw.compare(&model)).collect(),
                    success: draw.branch(revision, &real.leases),
                    failure: draw.branch(revision, &real.leases),
                };
                let theirs = real.txn(&txn).await;
                let ours = ask(&mut model, &Request::Txn(txn.clone()));
                assert_eq!(ours, theirs, "seed {seed} step {step}: {txn:?}");
            }
        }
    }
    // At the compacted revision itself etcd tells deletions until it gets around to forgetting them: start behind it.
    let start = model.history().next().map_or(1, |(revision, _)| revision) + 1;
    let ours = our_history(&mut model, start);
    assert_eq!(ours, real_history(&mut real, start, ours.len()).await, "seed {seed}");
}

#[tokio::test]
async fn the_model_answers_as_etcd_does() {
    let etcd = Etcd::start().await;
    for seed in 1..=3 {
        compare_with_etcd(&etcd, seed).await;
    }
}
