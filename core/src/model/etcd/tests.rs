//! Behaviours as tables. Each one was seen on etcd 3.4.23, unless it says otherwise.

use std::time::Duration;

use super::*;
use crate::etcd::{Compare, RangeRequest, RangeResponse, TxnAnswer, TxnOperation, TxnRequest, TxnResponse};

const START: Monotonic = Monotonic::ZERO;

fn put(key: &'static str, value: &'static str) -> TxnOperation {
    put_leased(key, value, 0)
}

fn put_leased(key: &'static str, value: &'static str, lease: i64) -> TxnOperation {
    TxnOperation::Put { key: key.into(), value: value.into(), lease }
}

fn delete(from: &'static str, to: &'static str) -> TxnOperation {
    TxnOperation::Delete(between(from, to))
}

fn between(from: &'static str, to: &'static str) -> Keys {
    Keys::Between(from.into(), to.into())
}

/// A model with the facts about its watches, and a perfect way to it.
#[derive(Default)]
struct Etcd {
    model: EtcdModel,
    facts: WatchFacts,
}

impl Etcd {
    fn at(&mut self, now: Monotonic, request: Request) -> Outcome<Response, Refusal> {
        self.model.request(now, Link::default(), &request, &mut self.facts).outcome
    }

    fn txn(&mut self, success: Vec<TxnOperation>) -> Result<TxnResponse, Refusal> {
        self.full_txn(TxnRequest { success, ..TxnRequest::default() })
    }

    fn full_txn(&mut self, txn: TxnRequest) -> Result<TxnResponse, Refusal> {
        let outcome = self.at(START, Request::Txn(txn));
        if let Outcome::NotApplied(refusal) = outcome {
            return Err(refusal);
        }
        let Outcome::Applied(Response::Txn(response)) = outcome else { panic!("{outcome:?}") };
        Ok(response)
    }

    fn range(&mut self, range: RangeRequest) -> Result<RangeResponse, Refusal> {
        let outcome = self.at(START, Request::Range(range));
        if let Outcome::NotApplied(refusal) = outcome {
            return Err(refusal);
        }
        let Outcome::Applied(Response::Range(response)) = outcome else { panic!("{outcome:?}") };
        Ok(response)
    }

    fn grant(&mut self, now: Monotonic, ttl_seconds: i64) -> (i64, i64) {
        let outcome = self.at(now, Request::LeaseGrant { ttl_seconds });
        let Outcome::Applied(Response::LeaseGranted { lease, ttl_seconds }) = outcome else { panic!("{outcome:?}") };
        (lease, ttl_seconds)
    }

    fn watch(&mut self, token: u64, keys: Keys, start_revision: Revision) {
        let request = WatchRequest { keys, start_revision };
        self.model.watch(Link::default(), WatchToken(token), &request, &mut self.facts);
    }

    /// What the watches have told since the last call, one line each.
    fn told(&mut self) -> Vec<String> {
        self.facts
            .drain(..)
            .map(|(WatchToken(token), fact)| match fact {
                WatchFact::Created { .. } => format!("{token} created"),
                WatchFact::Events { revision, events } => {
                    let events: Vec<String> = events.iter().map(text).collect();
                    format!("{token} at {revision}: {}", events.join(" "))
                }
                WatchFact::Ended(end) => format!("{token} {end:?}"),
            })
            .collect()
    }

    fn keys(&self) -> Vec<String> {
        self.model.list(&between("\0", "\0")).map(|kv| text(&WatchEvent::Put(kv.clone()))).collect()
    }
}

/// `key=value@mod(create)` or `-key@mod`.
fn text(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Put(kv) => format!(
            "{}={}@{}({})",
            String::from_utf8_lossy(&kv.key),
            String::from_utf8_lossy(&kv.value),
            kv.mod_revision,
            kv.create_revision
        ),
        WatchEvent::Delete { key, mod_revision } => format!("-{}@{mod_revision}", String::from_utf8_lossy(key)),
    }
}

#[test]
fn a_transaction_has_one_revision_and_one_without_a_change_has_none() {
    let mut etcd = Etcd::default();
    for (operations, revision) in [
        (vec![put("a", "1"), put("b", "1")], 2),
        (vec![], 2),
        (vec![TxnOperation::Range(RangeRequest::of(between("a", "z")))], 2),
        (vec![delete("x", "z")], 2),
        (vec![put("a", "2"), put("c", "1")], 3),
        (vec![delete("b", "b0"), delete("b", "c")], 4),
        (vec![put("b", "3")], 5),
    ] {
        let response = etcd.txn(operations.clone()).unwrap();
        assert_eq!((response.revision, response.succeeded), (revision, true), "{operations:?}");
    }
    assert_eq!(etcd.keys(), ["a=2@3(2)", "b=3@5(5)", "c=1@3(3)"]);
}

#[test]
fn a_read_inside_a_transaction_sees_its_earlier_writes_and_names_the_revision_so_far() {
    let mut etcd = Etcd::default();
    let read = || TxnOperation::Range(RangeRequest::of(between("a", "z")));
    let response = etcd.txn(vec![read(), put("a", "1"), read(), delete("b", "c")]).unwrap();
    let [TxnAnswer::Range(before), TxnAnswer::Put, TxnAnswer::Range(after), TxnAnswer::Delete(0)] =
        &response.answers[..]
    else {
        panic!("{response:?}")
    };
    assert_eq!((before.revision, before.count), (1, 0));
    assert_eq!((after.revision, after.count), (2, 1));
}

#[test]
fn refusals() {
    let refused = |text: &str| Err(Refusal::Other(format!("etcdserver: {text}")));
    let duplicate = "duplicate key given in txn request";
    let many = vec![Compare::CreateRevision("a".into(), 0); 129];
    let future = TxnOperation::Range(RangeRequest { revision: 3, ..RangeRequest::of(Keys::One("a".into())) });
    let large: TxnOperation = TxnOperation::Put { key: "a".into(), value: vec![0; MAX_REQUEST_BYTES].into(), lease: 0 };
    for (compares, success, failure, text) in [
        (vec![], vec![put("a", "1"), put("a", "2")], vec![], duplicate),
        (vec![], vec![put("b", "1"), delete("a", "z")], vec![], duplicate),
        (vec![], vec![delete("a", "z"), put("b", "1")], vec![], duplicate),
        (vec![], vec![], vec![put("a", "1"), put("a", "2")], duplicate),
        (vec![], vec![put("", "1")], vec![], "key is not provided"),
        (vec![], vec![put("e", "1"), put_leased("a", "1", 99)], vec![], "requested lease not found"),
        (vec![], vec![put("e", "1"), future], vec![], "mvcc: required revision is a future revision"),
        (many, vec![], vec![], "too many operations in txn request"),
        (vec![], vec![large], vec![], "request is too large"),
    ] {
        let mut etcd = Etcd::default();
        etcd.txn(vec![put("a", "0")]).unwrap();
        assert_eq!(etcd.full_txn(TxnRequest { compares, success, failure }), refused(text));
        assert_eq!(etcd.keys(), ["a=0@2(2)"], "a refused transaction changes nothing");
    }
    // Open-ended ranges are not looked at: the put is carried out, and deleted again or not, by the order.
    for (operations, keys) in
        [(vec![put("b", "1"), delete("a", "\0")], vec![]), (vec![delete("a", "\0"), put("b", "1")], vec!["b=1@3(3)"])]
    {
        let mut etcd = Etcd::default();
        etcd.txn(vec![put("b", "0")]).unwrap();
        assert!(etcd.txn(operations).is_ok());
        assert_eq!(etcd.keys(), keys);
    }
    // The same key in both branches is one write; a lease is looked for only in the branch that runs.
    let mut etcd = Etcd::default();
    let failure = vec![put_leased("a", "2", 99)];
    assert!(etcd.full_txn(TxnRequest { compares: vec![], success: vec![put("a", "1")], failure }).is_ok());
}

#[test]
fn comparisons() {
    for (compare, holds) in [
        (Compare::CreateRevision("a".into(), 2), true),
        (Compare::CreateRevision("a".into(), 3), false),
        (Compare::CreateRevision("missing".into(), 0), true),
        (Compare::ModRevision("a".into(), 3), true),
        (Compare::ModRevision("a".into(), 2), false),
        (Compare::ModRevision("missing".into(), 0), true),
        (Compare::ModRevision("deleted".into(), 0), true),
        (Compare::Value("a".into(), "2".into()), true),
        (Compare::Value("a".into(), "1".into()), false),
        (Compare::Value("missing".into(), "".into()), false),
    ] {
        let mut etcd = Etcd::default();
        etcd.txn(vec![put("a", "1"), put("deleted", "1")]).unwrap();
        etcd.txn(vec![put("a", "2"), delete("deleted", "deletee")]).unwrap();
        for (compares, holds) in [
            (vec![compare.clone()], holds),
            (vec![Compare::CreateRevision("missing".into(), 0), compare.clone()], holds),
            (vec![compare.clone(), Compare::CreateRevision("missing".into(), 1)], false),
        ] {
            let txn = TxnRequest { compares, success: vec![put("yes", "1")], failure: vec![put("no", "1")] };
            assert_eq!(etcd.full_txn(txn).unwrap().succeeded, holds, "{compare:?}");
        }
    }
}

#[test]
fn ranges_filter_before_they_limit_and_count_without_either() {
    let mut etcd = Etcd::default();
    for operations in [vec![put("a", "1"), put("b", "1")], vec![put("c", "1")], vec![put("a", "2")]] {
        etcd.txn(operations).unwrap();
    }
    let all = RangeRequest::of(between("a", "z"));
    let (a, b, c) = ("a=2@4(2)", "b=1@2(2)", "c=1@3(3)");
    for (range, kvs, count, more) in [
        (all.clone(), vec![a, b, c], 3, false),
        (RangeRequest { limit: 2, ..all.clone() }, vec![a, b], 3, true),
        (RangeRequest { limit: 3, ..all.clone() }, vec![a, b, c], 3, false),
        (RangeRequest { limit: -1, ..all.clone() }, vec![a, b, c], 3, false),
        (RangeRequest { min_mod_revision: 3, ..all.clone() }, vec![a, c], 3, false),
        (RangeRequest { min_mod_revision: 3, limit: 1, ..all.clone() }, vec![a], 3, true),
        (RangeRequest { min_mod_revision: 4, limit: 1, ..all.clone() }, vec![a], 3, false),
        (RangeRequest { min_mod_revision: 9, ..all.clone() }, vec![], 3, false),
        (RangeRequest { count_only: true, limit: 1, min_mod_revision: 9, ..all.clone() }, vec![], 3, false),
        (RangeRequest { revision: 2, ..all.clone() }, vec!["a=1@2(2)", b], 2, false),
        (RangeRequest { keys_only: true, limit: 1, ..all.clone() }, vec!["a=@4(2)"], 3, true),
        (RangeRequest::of(between("b", "\0")), vec![b, c], 2, false),
        (RangeRequest::of(between("z", "a")), vec![], 0, false),
        (RangeRequest::of(Keys::One("b".into())), vec![b], 1, false),
        (RangeRequest::of(Keys::One("bb".into())), vec![], 0, false),
    ] {
        let response = etcd.range(range.clone()).unwrap();
        let seen: Vec<String> = response.kvs.iter().map(|kv| text(&WatchEvent::Put(kv.clone()))).collect();
        let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
        assert_eq!((seen, response.count, response.more, response.revision), (kvs, count, more, 4), "{range:?}");
    }
}

#[test]
fn compaction_refuses_what_lies_below_it() {
    let mut etcd = Etcd::default();
    for operations in [vec![put("a", "1")], vec![put("b", "1")], vec![put("a", "2")], vec![delete("b", "c")]] {
        etcd.txn(operations).unwrap();
    }
    assert_eq!(etcd.model.compact(9), Err(CompactionRefused::Future));
    assert_eq!(etcd.model.compact(4), Ok(()));
    assert_eq!(etcd.model.compact(4), Err(CompactionRefused::Compacted));
    assert_eq!(etcd.model.compact(3), Err(CompactionRefused::Compacted));
    let at = |revision| RangeRequest { revision, ..RangeRequest::of(between("a", "z")) };
    assert_eq!(etcd.range(at(3)), Err(Refusal::Compacted(0)));
    assert_eq!(
        etcd.range(at(6)),
        Err(Refusal::Other("etcdserver: mvcc: required revision is a future revision".into()))
    );
    assert_eq!(etcd.range(at(4)).unwrap().count, 2);
    assert_eq!(etcd.range(at(5)).unwrap().count, 1);
    assert_eq!(etcd.range(at(0)).unwrap().kvs[0].create_revision, 2);
}

#[test]
fn a_watch_tells_history_and_then_every_change_in_order() {
    let mut etcd = Etcd::default();
    etcd.txn(vec![put("w2", "1"), put("w1", "1"), put("v", "1")]).unwrap();
    etcd.txn(vec![put("w9", "1"), delete("w1", "w3")]).unwrap();
    etcd.watch(1, between("w", "x"), 2);
    etcd.watch(2, Keys::One("w1".into()), 3);
    etcd.watch(3, between("w", "x"), 0);
    etcd.watch(4, between("w", "x"), 6);
    assert_eq!(
        etcd.told(),
        [
            "1 created",
            "1 at 3: w2=1@2(2) w1=1@2(2) w9=1@3(3) -w1@3 -w2@3",
            "2 created",
            "2 at 3: -w1@3",
            "3 created",
            "4 created"
        ]
    );
    etcd.txn(vec![put("v", "2")]).unwrap();
    assert_eq!(etcd.told(), [""; 0]);
    etcd.txn(vec![put("w1", "2")]).unwrap();
    assert_eq!(etcd.told(), ["1 at 5: w1=2@5(5)", "2 at 5: w1=2@5(5)", "3 at 5: w1=2@5(5)"]);
    etcd.txn(vec![put("w9", "2")]).unwrap();
    assert_eq!(etcd.told(), ["1 at 6: w9=2@6(3)", "3 at 6: w9=2@6(3)", "4 at 6: w9=2@6(3)"]);
    etcd.model.cancel_watch(WatchToken(1), &mut etcd.facts);
    etcd.model.break_watch(WatchToken(3), &mut etcd.facts);
    etcd.model.cancel_watch(WatchToken(3), &mut etcd.facts);
    etcd.model.report_progress(&mut etcd.facts);
    assert_eq!(etcd.told(), ["1 Cancelled", "3 Lost(\"the stream broke\")", "2 at 6: ", "4 at 6: "]);
}

#[test]
fn a_watch_from_below_the_compaction_ends_and_one_at_it_misses_deletions() {
    let mut etcd = Etcd::default();
    etcd.txn(vec![put("a", "1"), put("b", "1")]).unwrap();
    etcd.watch(1, between("a", "z"), 3);
    etcd.txn(vec![put("c", "1"), delete("a", "b")]).unwrap();
    etcd.txn(vec![put("b", "2")]).unwrap();
    etcd.told();
    etcd.model.compact(3).unwrap();
    etcd.watch(2, between("a", "z"), 2);
    etcd.watch(3, between("a", "z"), 3);
    assert_eq!(
        etcd.told(),
        ["2 created", "2 Compacted(3)", "3 created", "3 at 4: c=1@3(3) b=2@4(2)"],
        "the deletion at revision 3 is lost"
    );
    etcd.txn(vec![put("d", "1")]).unwrap();
    assert_eq!(etcd.told().len(), 2, "a watch that was told everything outlives compaction");
}

#[test]
fn a_silent_watch_catches_up_or_was_overtaken() {
    for (compact_at, told) in [(None, "1 at 4: a=2@3(2) a=3@4(2)"), (Some(4), "1 Compacted(4)")] {
        let mut etcd = Etcd::default();
        etcd.watch(1, Keys::One("a".into()), 2);
        etcd.txn(vec![put("a", "1")]).unwrap();
        assert_eq!(etcd.told(), ["1 created", "1 at 2: a=1@2(2)"]);
        etcd.model.stall_watch(WatchToken(1), true, &mut etcd.facts);
        etcd.txn(vec![put("a", "2")]).unwrap();
        etcd.txn(vec![put("a", "3")]).unwrap();
        etcd.model.report_progress(&mut etcd.facts);
        if let Some(revision) = compact_at {
            etcd.model.compact(revision).unwrap();
        }
        assert_eq!(etcd.told(), [""; 0]);
        etcd.model.stall_watch(WatchToken(1), false, &mut etcd.facts);
        assert_eq!(etcd.told(), [told]);
    }
}

#[test]
fn a_lease_takes_its_keys_with_it_at_one_revision() {
    let seconds = |seconds| START + Duration::from_secs(seconds);
    let mut etcd = Etcd::default();
    let (lease, ttl) = etcd.grant(START, 10);
    assert_eq!(ttl, 10);
    assert_eq!(etcd.grant(START, 0).1, 2, "etcd grants at least two seconds");
    etcd.watch(1, between("a", "z"), 0);
    etcd.txn(vec![put_leased("b", "1", lease), put_leased("a", "1", lease), put_leased("c", "1", lease)]).unwrap();
    etcd.txn(vec![put("c", "free")]).unwrap();
    assert_eq!(etcd.model.get(b"a").map(|kv| kv.lease), Some(lease));
    etcd.told();
    let kept = etcd.at(seconds(6), Request::LeaseKeepAlive { lease });
    assert_eq!(kept, Outcome::Applied(Response::LeaseKeptAlive { ttl_seconds: 10 }));
    assert_eq!(etcd.model.poll_timeout(), Some(seconds(16)));
    etcd.model.handle_timeout(seconds(15), &mut etcd.facts);
    assert_eq!(etcd.told(), [""; 0]);
    etcd.model.handle_timeout(seconds(16), &mut etcd.facts);
    assert_eq!(etcd.told(), ["1 at 4: -a@4 -b@4"]);
    assert_eq!(etcd.keys(), ["c=free@3(2)"]);
    assert_eq!(etcd.model.poll_timeout(), None);
    let kept = etcd.at(seconds(17), Request::LeaseKeepAlive { lease });
    assert_eq!(kept, Outcome::Applied(Response::LeaseKeptAlive { ttl_seconds: 0 }));
    assert_eq!(etcd.at(seconds(17), Request::LeaseRevoke { lease }), Outcome::Applied(Response::LeaseRevoked));
    assert_eq!(etcd.model.revision(), 4, "a lease without keys ends without a revision");
}

#[test]
fn a_request_after_the_end_of_a_lease_finds_its_keys_gone() {
    let mut etcd = Etcd::default();
    let (lease, _) = etcd.grant(START, 2);
    etcd.txn(vec![put_leased("a", "1", lease)]).unwrap();
    let txn = TxnRequest {
        compares: vec![Compare::CreateRevision("a".into(), 0)],
        success: vec![put("a", "2")],
        failure: vec![],
    };
    let outcome = etcd.at(START + Duration::from_secs(2), Request::Txn(txn));
    assert!(matches!(outcome, Outcome::Applied(Response::Txn(TxnResponse { revision: 4, succeeded: true, .. }))));
}

#[test]
fn revoking_ends_a_lease_at_once_and_a_key_moves_to_the_lease_of_its_last_put() {
    let mut etcd = Etcd::default();
    let (first, _) = etcd.grant(START, 10);
    let (second, _) = etcd.grant(START, 10);
    etcd.txn(vec![put_leased("a", "1", first), put_leased("b", "1", first)]).unwrap();
    etcd.txn(vec![put_leased("b", "2", second)]).unwrap();
    assert_eq!(etcd.at(START, Request::LeaseRevoke { lease: first }), Outcome::Applied(Response::LeaseRevoked));
    assert_eq!(etcd.keys(), ["b=2@3(2)"]);
    assert!(etcd.model.end_lease(second, &mut etcd.facts));
    assert!(!etcd.model.end_lease(second, &mut etcd.facts));
    assert_eq!(etcd.keys(), [""; 0]);
}

#[test]
fn a_lost_answer_is_unknown_although_applied_and_a_refused_connection_changes_nothing() {
    for (fate, revision, unknown) in [
        (Fate::Delivered, 2, false),
        (Fate::Refused, 1, false),
        (Fate::ReplyLost, 2, true),
        (Fate::RequestLost, 1, true),
    ] {
        let mut etcd = Etcd::default();
        let request = Request::Txn(TxnRequest { success: vec![put("a", "1")], ..TxnRequest::default() });
        let link = Link { fate, ..Link::default() };
        let reply = etcd.model.request(START, link, &request, &mut etcd.facts);
        assert_eq!(matches!(reply.outcome, Outcome::Unknown(_)), unknown, "{fate:?}");
        assert_eq!(matches!(reply.outcome, Outcome::NotApplied(Refusal::Unreachable(_))), fate == Fate::Refused);
        assert_eq!(etcd.model.revision(), revision, "{fate:?}");
    }
}

#[test]
fn a_watch_over_a_broken_way_ends_at_once_or_never_speaks() {
    let request = WatchRequest { keys: Keys::One("a".into()), start_revision: 1 };
    for (fate, told) in [
        (Fate::Refused, vec!["1 Lost(\"connection refused\")"]),
        (Fate::RequestLost, vec![]),
        (Fate::ReplyLost, vec![]),
        (Fate::Delivered, vec!["1 created", "1 at 2: a=1@2(2)"]),
    ] {
        let mut etcd = Etcd::default();
        etcd.model.watch(Link { fate, ..Link::default() }, WatchToken(1), &request, &mut etcd.facts);
        etcd.model.put("a", "1", &mut etcd.facts);
        assert_eq!(etcd.told(), told, "{fate:?}");
    }
}

/// Not compared with etcd: what `etcdutl snapshot restore` is documented to do.
#[test]
fn a_restored_store_goes_back_and_on_from_there() {
    let seconds = |seconds| START + Duration::from_secs(seconds);
    let mut etcd = Etcd::default();
    let (lease, _) = etcd.grant(START, 10);
    etcd.txn(vec![put_leased("a", "1", lease)]).unwrap();
    let backup = etcd.model.back_up();
    let (later, _) = etcd.grant(START, 10);
    etcd.txn(vec![put("a", "2"), put_leased("b", "1", later)]).unwrap();
    etcd.watch(1, between("a", "z"), 0);
    etcd.watch(2, between("a", "z"), 0);
    etcd.told();
    etcd.model.stall_watch(WatchToken(2), true, &mut etcd.facts);
    etcd.model.restore(seconds(100), backup.clone(), &mut etcd.facts);
    assert_eq!(etcd.told(), ["1 Lost(\"etcd was restored\")", "2 Lost(\"etcd was restored\")"], "a silent one too");
    assert_eq!((etcd.keys(), etcd.model.revision()), (vec!["a=1@2(2)".to_owned()], 2));
    assert_eq!(etcd.model.poll_timeout(), Some(seconds(110)), "its lease lives for its whole time again");
    let kept = etcd.at(seconds(101), Request::LeaseKeepAlive { lease: later });
    assert_eq!(kept, Outcome::Applied(Response::LeaseKeptAlive { ttl_seconds: 0 }), "that one was granted since");
    assert_ne!(etcd.grant(seconds(101), 10).0, later, "and its id does not come back");
    etcd.txn(vec![put("c", "1")]).unwrap();
    assert_eq!(etcd.keys(), ["a=1@2(2)", "c=1@3(3)"], "the revision is used a second time");
    etcd.model.restore(seconds(102), backup, &mut etcd.facts);
    assert_eq!(etcd.keys(), ["a=1@2(2)"]);
}

#[test]
fn an_operator_writes_past_every_link() {
    let mut etcd = Etcd::default();
    etcd.model.put("a", "1", &mut etcd.facts);
    etcd.model.put("b", "1", &mut etcd.facts);
    etcd.model.delete(&Keys::prefix("a"), &mut etcd.facts);
    assert_eq!(etcd.keys(), ["b=1@3(3)"]);
    let history: Vec<(Revision, usize)> =
        etcd.model.history().map(|(revision, events)| (revision, events.len())).collect();
    assert_eq!(history, [(2, 1), (3, 1), (4, 1)]);
}
