//! Reading and watching: what keeps the knowledge complete, and what moves the clock.

use super::*;

const LEASES: Source = Source::PartitionLeases;

#[test]
fn the_proxy_itself_is_not_asked_as_a_broker() {
    let mut bench = Bench::new(&[]);
    bench.config.cluster.own_addresses = vec![("proxy".into(), 9092)];
    bench.cluster = Cluster::new(&bench.config.cluster);
    bench.put(
        SNAPSHOT,
        r#"{"Brokers":[{"NodeID":0,"Host":"PROXY","Port":9092},{"NodeID":1,"Host":"one","Port":9092}]}"#,
    );
    bench.put(&Bench::lease(0), "0");
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    bench.run();
    assert_eq!(bench.cluster.brokers(), [Address::new("one:9092")]);
    assert_eq!((bench.service(), bench.owner(0)), (Service::Serving, Owner::UnknownBroker(0)));
    bench.put(SNAPSHOT, r#"{"Brokers":[{"NodeID":0,"Host":"proxy","Port":9092}]}"#);
    bench.run();
    assert_eq!(bench.service(), Service::Refused(NotServing::NoBrokers));
}

#[test]
fn start_cycle_and_ttl() {
    let mut bench = Bench::new(&[]);
    assert_eq!(bench.service(), Service::AfterRead);
    assert_eq!(bench.cluster.age(bench.now), None);
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.put(&Bench::lease(0), "1");
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    assert_eq!(bench.ordered, [Read::Snapshot, Read::Leases(LEASES), Read::Leases(Source::GroupLeases)]);
    bench.run();
    assert_eq!(bench.service(), Service::Serving);
    assert_eq!(bench.owner(0), broker("one:9092"));
    assert_eq!(bench.owner(1), Owner::Nobody);
    assert_eq!(bench.cluster.brokers(), [Address::new("zero:9092"), Address::new("one:9092")]);
    assert_eq!(bench.cluster.address_of(1), Some(&Address::new("one:9092")));

    bench.pass(secs(35));
    assert_eq!(bench.service(), Service::Serving, "read again every 10 s");
    assert_eq!(bench.cluster.age(bench.now), Some(secs(5)));
    let proofs = bench.ordered.iter().filter(|read| **read == Read::Proof(LEASES)).count();
    assert_eq!(proofs, 3);

    bench.pass_without_etcd(secs(15));
    assert_eq!((bench.service(), bench.owner(0)), (Service::Serving, broker("one:9092")), "the last instant");
    bench.now = bench.now + Duration::from_micros(1);
    assert_eq!((bench.service(), bench.owner(0)), (Service::AfterRead, Owner::Unproven));
    assert_eq!(bench.cluster.service_after_read(bench.now), Service::Refused(NotServing::Unreadable));

    bench.pass_without_etcd(secs(15));
    bench.pass(secs(2));
    assert_eq!((bench.service(), bench.owner(0)), (Service::Serving, broker("one:9092")), "after the outage");
}

#[test]
fn an_answer_proves_the_moment_of_its_order() {
    let mut bench = Bench::settled();
    bench.pass_with(secs(10), |_| {});
    for read in [Read::Snapshot, Read::Proof(LEASES)] {
        let index = bench.find(&read);
        bench.serve(index);
    }
    let ordered = bench.now;
    bench.now = bench.now + secs(4);
    for read in [Read::Snapshot, Read::Proof(LEASES)] {
        let index = bench.find(&read);
        bench.deliver(index);
    }
    assert_eq!(bench.cluster.age(bench.now), Some(secs(4)));
    bench.now = ordered + TTL;
    assert_eq!((bench.service(), bench.owner(0)), (Service::Serving, Owner::Nobody));
    bench.ask(1, Question::Snapshot);
    bench.now = bench.now + Duration::from_micros(1);
    assert_eq!((bench.service(), bench.owner(0)), (Service::AfterRead, Owner::Unproven));
    bench.finish(&Read::Snapshot);
    assert_eq!((bench.service(), bench.owner(0)), (Service::Serving, Owner::Unproven), "the older of two proofs");
}

#[test]
fn an_unmoved_snapshot_transfers_nothing_and_a_deleted_one_is_noticed() {
    let mut bench = Bench::settled();
    bench.pass_with(secs(10), |_| {});
    let index = bench.find(&Read::Snapshot);
    bench.serve(index);
    let Some(Outcome::Applied(Response::Range(answer))) = &bench.orders[index].reply else { panic!("not served") };
    assert_eq!((answer.kvs.len(), answer.count), (0, 1));
    bench.run();
    assert_eq!(bench.service(), Service::Serving);
    assert_eq!(bench.cluster.age(bench.now), Some(Duration::ZERO));

    // The watch says nothing, so that only the count can tell.
    let token = bench.token(Source::Snapshot);
    bench.etcd.stall_watch(token, true, &mut bench.facts);
    bench.delete(SNAPSHOT);
    bench.pass(secs(10));
    assert_eq!(bench.service(), Service::Refused(NotServing::NoBrokers));
    assert_eq!(bench.cluster.brokers(), []);
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.pass(secs(10));
    assert_eq!(bench.service(), Service::Serving);
}

#[test]
fn an_empty_list_clears_the_list_at_once() {
    let mut bench = Bench::settled();
    bench.put(SNAPSHOT, r#"{"Brokers":null}"#);
    bench.run();
    assert_eq!(bench.service(), Service::Refused(NotServing::NoBrokers));
    assert_eq!(bench.cluster.service_after_read(bench.now), Service::Refused(NotServing::NoBrokers));
    assert_eq!(bench.cluster.stable_choice("orders", 0), None);
}

#[test]
fn a_value_that_does_not_parse_is_a_failed_read() {
    let mut bench = Bench::settled();
    bench.put(SNAPSHOT, "{");
    bench.pass(secs(20));
    assert_eq!(bench.service(), Service::Serving, "the previous state, while it is fresh");
    assert_eq!(bench.cluster.age(bench.now), Some(secs(20)));
    bench.now = bench.now + Duration::from_micros(1);
    assert_eq!(bench.service(), Service::AfterRead);
    bench.ask(1, Question::Freshness);
    bench.run();
    assert_eq!(unreadable(&bench.answers()), [1]);
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.run();
    assert_eq!(bench.service(), Service::Serving, "mended, and told by the watch");
}

#[test]
fn a_value_that_does_not_parse_at_start_is_watched_for_its_mending() {
    let mut bench = Bench::new(&[]);
    bench.put(SNAPSHOT, "");
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    bench.run();
    assert_eq!(bench.service(), Service::AfterRead);
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.run();
    assert_eq!(bench.service(), Service::Serving);
}

#[test]
fn a_change_told_while_a_read_is_under_way_is_read_unless_the_read_has_seen_it() {
    for (seen, reads) in [(true, 1), (false, 2)] {
        let mut bench = Bench::settled();
        bench.ask(1, Question::Snapshot);
        let index = bench.find(&Read::Snapshot);
        if !seen {
            bench.serve(index);
        }
        bench.put(SNAPSHOT, r#"{"Brokers":[]}"#);
        bench.tell(0);
        bench.run();
        assert_eq!(bench.service(), Service::Refused(NotServing::NoBrokers));
        assert_eq!(bench.ordered.len(), reads, "seen: {seen}");
    }
}

#[test]
fn a_large_snapshot_is_parsed_elsewhere() {
    let mut bench = Bench::settled();
    let large =
        format!(r#"{{"Unknown":"{}","Brokers":[{{"NodeID":7,"Host":"seven","Port":1}}]}}"#, "x".repeat(300_000));
    bench.put(SNAPSHOT, &large);
    bench.tell(0);
    bench.finish(&Read::Snapshot);
    assert_eq!(bench.unparsed.len(), 1);
    bench.ask(1, Question::Snapshot);
    assert!(bench.orders.is_empty(), "the read is over only when its value is parsed");
    let ordered = bench.now;
    bench.now = bench.now + secs(1);
    bench.parse();
    assert_eq!(bench.cluster.brokers(), [Address::new("seven:1")]);
    assert_eq!(bench.cluster.age(bench.now), Some(bench.now.since(ordered)));
    bench.run();
    assert_eq!(learned(&bench.answers()), [1]);
}

#[test]
fn no_change_falls_between_the_reading_and_the_watch() {
    let mut bench = Bench::new(&[]);
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.put(&Bench::lease(0), "0");
    bench.put(&Bench::lease(1), "0");
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    for index in 0..bench.orders.len() {
        bench.serve(index);
    }
    bench.put(&Bench::lease(0), "1");
    bench.delete(&Bench::lease(1));
    bench.put(&Bench::lease(2), "1");
    bench.put(SNAPSHOT, r#"{"Brokers":[{"NodeID":1,"Host":"new","Port":1}]}"#);
    bench.run();
    assert_eq!([bench.owner(0), bench.owner(1), bench.owner(2)], [broker("new:1"), Owner::Nobody, broker("new:1")]);
}

#[test]
fn a_prefix_of_many_pages_is_read_at_one_revision() {
    let mut bench = Bench::new(&[]);
    bench.put(SNAPSHOT, TWO_BROKERS);
    for partition in 0..2_500 {
        bench.put(&Bench::lease(partition), "0");
    }
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    bench.finish(&Read::Snapshot);
    bench.finish(&Read::Leases(LEASES));
    let first_page = bench.now;
    bench.put(&Bench::lease(0), "1");
    bench.put(&Bench::lease(2_499), "1");
    bench.delete(&Bench::lease(2_000));
    bench.now = bench.now + secs(3);
    bench.finish(&Read::Leases(LEASES));
    assert_eq!(bench.owner(0), Owner::Unproven, "not before the last page");
    bench.finish(&Read::Leases(LEASES));
    assert_eq!(
        [bench.owner(0), bench.owner(2_499)],
        [broker("zero:9092"), broker("zero:9092")],
        "as of the first page"
    );
    bench.now = first_page + TTL;
    bench.ask(1, Question::Snapshot);
    bench.finish(&Read::Snapshot);
    assert_eq!(bench.owner(0), broker("zero:9092"));
    bench.now = bench.now + Duration::from_micros(1);
    assert_eq!(bench.owner(0), Owner::Unproven, "proven when the first page was ordered");
    bench.now = first_page + secs(3);
    bench.run();
    assert_eq!([bench.owner(0), bench.owner(2_499)], [broker("one:9092"), broker("one:9092")]);
    assert_eq!([bench.owner(2_000), bench.owner(2_001)], [Owner::Nobody, broker("zero:9092")]);
    bench.ordered.clear();
    bench.pass(secs(10));
    assert!(!bench.ordered.contains(&Read::Leases(LEASES)), "the proof holds: {:?}", bench.ordered);
}

#[test]
fn a_deletion_that_the_watch_loses_is_found_by_the_proof() {
    let mut bench = Bench::new(&[]);
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.put(&Bench::lease(0), "0");
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    bench.finish(&Read::Snapshot);
    let index = bench.find(&Read::Leases(LEASES));
    bench.serve(index);
    bench.delete(&Bench::lease(0));
    bench.etcd.compact(bench.etcd.revision()).unwrap();
    bench.put(&Bench::lease(1), "1");
    bench.run();
    assert_eq!([bench.owner(0), bench.owner(1)], [broker("zero:9092"), broker("one:9092")], "as etcd 3.4.23 tells it");
    let listed = bench.now;
    bench.pass_with(secs(10), |_| {});
    let index = bench.find(&Read::Proof(LEASES));
    bench.serve(index);
    bench.put(&Bench::lease(1), "0");
    bench.tell(0);
    bench.deliver(bench.find(&Read::Proof(LEASES)));
    assert_eq!(bench.owner(0), broker("zero:9092"));
    bench.finish(&Read::Snapshot);
    bench.now = listed + TTL + Duration::from_micros(1);
    assert_eq!(bench.owner(0), Owner::Unproven, "what the watch told meanwhile proves nothing");
    bench.pass(secs(1));
    assert_eq!(bench.owner(0), Owner::Nobody);
}

#[test]
fn pages_whose_revision_was_compacted_are_read_anew() {
    let mut bench = Bench::new(&[]);
    bench.put(SNAPSHOT, TWO_BROKERS);
    for partition in 0..1_500 {
        bench.put(&Bench::lease(partition), "0");
    }
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    bench.finish(&Read::Snapshot);
    bench.finish(&Read::Leases(LEASES));
    bench.put(&Bench::lease(0), "1");
    bench.etcd.compact(bench.etcd.revision()).unwrap();
    bench.run();
    assert_eq!([bench.owner(0), bench.owner(1_499)], [broker("one:9092"), broker("zero:9092")]);
}

#[test]
fn a_lost_watch_is_waited_for_and_everything_read_again() {
    let mut bench = Bench::settled();
    bench.put(&Bench::lease(0), "1");
    bench.run();
    let token = bench.token(LEASES);
    bench.etcd.break_watch(token, &mut bench.facts);
    bench.run();
    bench.delete(&Bench::lease(0));
    bench.put(&Bench::lease(1), "1");
    bench.pass(Duration::from_millis(999));
    assert_eq!(bench.ordered, []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.ordered, [Read::Leases(LEASES)]);
    assert_eq!([bench.owner(0), bench.owner(1)], [Owner::Nobody, broker("one:9092")]);
    bench.put(&Bench::lease(0), "0");
    bench.run();
    assert_eq!(bench.owner(0), broker("zero:9092"), "watched again");

    let token = bench.token(Source::Snapshot);
    bench.etcd.break_watch(token, &mut bench.facts);
    bench.run();
    bench.ordered.clear();
    bench.put(SNAPSHOT, r#"{"Brokers":[]}"#);
    bench.pass(secs(1));
    assert_eq!(bench.ordered, [Read::Snapshot]);
    assert_eq!(bench.service(), Service::Refused(NotServing::NoBrokers));
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.run();
    assert_eq!(bench.service(), Service::Serving, "watched again");
}

#[test]
fn a_compacted_watch_is_replaced_at_once() {
    let mut bench = Bench::settled();
    for source in [Source::Snapshot, LEASES] {
        let token = bench.token(source);
        bench.etcd.stall_watch(token, true, &mut bench.facts);
    }
    bench.put(&Bench::lease(0), "1");
    bench.put(SNAPSHOT, r#"{"Brokers":[{"NodeID":1,"Host":"new","Port":1}]}"#);
    bench.put("/unrelated", "");
    bench.etcd.compact(bench.etcd.revision()).unwrap();
    for source in [Source::Snapshot, LEASES] {
        let token = bench.token(source);
        bench.etcd.stall_watch(token, false, &mut bench.facts);
    }
    bench.run();
    assert_eq!(bench.ordered, [Read::Snapshot, Read::Leases(LEASES)]);
    assert_eq!(bench.owner(0), broker("new:1"));
    bench.put(&Bench::lease(0), "0");
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.run();
    assert_eq!(bench.owner(0), broker("zero:9092"), "watched again");
}

#[test]
fn a_watch_that_is_always_compacted_does_not_make_readings_chase_each_other() {
    for source in [Source::Snapshot, LEASES] {
        let mut bench = Bench::settled();
        for _ in 0..5 {
            bench.watches.remove(&source);
            bench.call(|cluster, ctx, out| cluster.on_watch_ended(ctx, source, WatchEnd::Compacted(9), out));
            bench.facts.clear();
            while !bench.orders.is_empty() {
                bench.serve(0);
                bench.deliver(0);
            }
        }
        assert_eq!(bench.ordered.len(), 1, "{source:?}");
    }
}

#[test]
fn a_silent_watch_proves_nothing() {
    for change in [("changed", Some("1")), ("deleted", None), ("created", Some("1"))] {
        let mut bench = Bench::settled();
        bench.put(&Bench::lease(0), "0");
        bench.run();
        let token = bench.token(LEASES);
        bench.etcd.stall_watch(token, true, &mut bench.facts);
        let partition = if change.0 == "created" { 1 } else { 0 };
        let before = bench.owner(partition);
        match change.1 {
            Some(value) => bench.put(&Bench::lease(partition), value),
            None => bench.delete(&Bench::lease(partition)),
        }
        let after = if change.1.is_some() { broker("one:9092") } else { Owner::Nobody };
        bench.pass(secs(10));
        assert_eq!(bench.ordered.last(), Some(&Read::Proof(Source::GroupLeases)));
        assert_eq!(bench.owner(partition), before, "{}: the watch may only lag", change.0);
        bench.pass(secs(1));
        assert!(bench.ordered.contains(&Read::Leases(LEASES)), "{}: it has died", change.0);
        assert_eq!(bench.owner(partition), after, "{}", change.0);
        bench.delete(&Bench::lease(partition));
        bench.run();
        assert_eq!(bench.owner(partition), Owner::Nobody, "{}: watched anew", change.0);
    }
}

#[test]
fn a_watch_that_only_lagged_is_kept() {
    let mut bench = Bench::settled();
    let token = bench.token(LEASES);
    bench.etcd.stall_watch(token, true, &mut bench.facts);
    bench.put(&Bench::lease(0), "0");
    bench.pass(secs(10));
    bench.etcd.stall_watch(token, false, &mut bench.facts);
    bench.run();
    bench.pass(secs(20));
    assert!(!bench.ordered.contains(&Read::Leases(LEASES)));
    assert_eq!((bench.owner(0), bench.token(LEASES)), (broker("zero:9092"), token));
}

#[test]
fn a_failed_proof_does_not_move_the_clock() {
    let mut bench = Bench::settled();
    bench.pass_with(secs(10), |bench| {
        bench.finish(&Read::Snapshot);
        bench.fail_all();
    });
    assert_eq!(bench.cluster.age(bench.now), Some(Duration::ZERO));
    bench.now = bench.now + secs(10);
    assert_eq!(bench.owner(0), Owner::Nobody);
    bench.now = bench.now + Duration::from_micros(1);
    assert_eq!((bench.service(), bench.owner(0)), (Service::Serving, Owner::Unproven));
}

#[test]
fn what_the_old_watch_still_tells_is_ignored_once_it_was_given_up() {
    let mut bench = Bench::settled();
    let token = bench.token(LEASES);
    bench.etcd.stall_watch(token, true, &mut bench.facts);
    bench.put(&Bench::lease(0), "0");
    bench.pass_with(secs(11), |bench| {
        while !bench.orders.is_empty() {
            bench.serve(0);
            bench.deliver(0);
        }
    });
    assert!(bench.ordered.contains(&Read::Leases(LEASES)), "{:?}", bench.ordered);
    let (ended, _) = bench.facts.first().unwrap();
    assert_eq!(*ended, token);
    let late = etcd::WatchEvent::Put(etcd::KeyValue {
        key: Bench::lease(0).into(),
        value: "1".into(),
        create_revision: 3,
        mod_revision: bench.etcd.revision(),
        lease: 0,
    });
    bench.call(|cluster, ctx, out| cluster.on_watch_events(ctx, LEASES, 99, &[late], out));
    assert_eq!(bench.owner(0), broker("zero:9092"));
    bench.run();
    assert_ne!(bench.token(LEASES), token);
}

#[test]
fn a_replaced_store_is_read_whole() {
    let mut bench = Bench::settled();
    for revision in 0..20 {
        bench.put(&Bench::lease(0), "0");
        bench.put(&Bench::lease(1), &revision.to_string());
    }
    bench.run();
    bench.pass(secs(10));
    // Restored from an old backup: the watches hang at revisions that will not come for long.
    bench.etcd = EtcdModel::new();
    bench.put(SNAPSHOT, r#"{"Brokers":[{"NodeID":0,"Host":"restored","Port":1}]}"#);
    bench.put(&Bench::lease(1), "0");
    bench.pass_with(secs(12), |bench| {
        for _ in 0..20 {
            if bench.orders.is_empty() {
                break;
            }
            bench.serve(0);
            bench.deliver(0);
        }
    });
    assert_eq!(bench.cluster.brokers(), [Address::new("restored:1")]);
    assert_eq!([bench.owner(0), bench.owner(1)], [Owner::Nobody, broker("restored:1")]);
}

/// A store at an old state that grows, while what was ordered of the one before it is still on its way.
#[test]
fn a_watch_that_reaches_an_older_store_proves_nothing() {
    let mut bench = Bench::new(&[]);
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.put(&Bench::lease(0), "0");
    (0..20).for_each(|_| bench.put("/other", "x"));
    let read = bench.etcd.revision();
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    while !bench.orders.is_empty() || !bench.unparsed.is_empty() {
        if bench.orders.is_empty() {
            bench.parse();
        } else {
            bench.serve(0);
            bench.deliver(0);
        }
    }
    assert_eq!(bench.watches.len(), 3, "all of them are on their way");

    bench.facts.clear();
    bench.etcd = EtcdModel::new();
    bench.put(SNAPSHOT, r#"{"Brokers":[{"NodeID":1,"Host":"restored","Port":1}],"Topics":[{"Topic":"orders"}]}"#);
    bench.put(&Bench::lease(0), "0");
    for (source, token) in bench.watches.clone() {
        let keys = match source {
            Source::Snapshot => Keys::One(SNAPSHOT.into()),
            Source::PartitionLeases => Keys::prefix("/kafscale/partition-leases/"),
            Source::GroupLeases => Keys::prefix("/kafscale/group-leases/"),
        };
        let request = etcd::WatchRequest { keys, start_revision: read + 1 };
        bench.etcd.watch(Link::default(), token, &request, &mut bench.facts);
    }
    bench.put(&Bench::lease(0), "1");
    (0..40).for_each(|_| bench.put("/other", "x"));
    assert!(bench.etcd.revision() > read);
    bench.pass(secs(12));
    assert_eq!(bench.cluster.brokers(), [Address::new("restored:1")]);
    assert_eq!(bench.owner(0), broker("restored:1"));
}

/// A store is replaced while it is watched, and has grown past what was read when somebody looks again.
#[test]
fn a_lost_watch_leaves_nothing_to_compare_with() {
    [true, false].into_iter().for_each(a_watch_is_lost);
}

/// The end is told before the next read is ordered, or while that is under way.
fn a_watch_is_lost(before: bool) {
    let mut bench = Bench::settled();
    bench.put(SNAPSHOT, r#"{"Brokers":[{"NodeID":0,"Host":"lost","Port":1}]}"#);
    bench.run();
    let read = bench.etcd.revision();
    let watches = bench.watches.clone();
    bench.etcd = EtcdModel::new();
    bench.put(SNAPSHOT, TWO_BROKERS);
    while bench.etcd.revision() <= read {
        bench.put("/other", "x");
    }
    bench.facts.extend(watches.into_values().map(|token| (token, WatchFact::Ended(WatchEnd::Lost("cut".into())))));
    if before {
        bench.run();
    }
    bench.pass(secs(12));
    assert_eq!(bench.cluster.brokers(), [Address::new("zero:9092"), Address::new("one:9092")]);
}

/// Whoever asks for owners while the store is replaced is told what stands in the new one.
#[test]
fn a_proof_whose_watch_was_lost_meanwhile_proves_nothing() {
    let mut bench = Bench::settled();
    bench.put(&Bench::lease(0), "0");
    bench.run();
    let read = bench.etcd.revision();
    bench.ask(1, Question::PartitionOwners);
    let lost = bench.token(Source::PartitionLeases);
    bench.etcd = EtcdModel::new();
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.put(&Bench::lease(0), "1");
    while bench.etcd.revision() <= read {
        bench.put("/other", "x");
    }
    bench.facts.push((lost, WatchFact::Ended(WatchEnd::Lost("cut".into()))));
    while !bench.facts.is_empty() {
        bench.tell(0);
    }
    bench.finish(&Read::Proof(Source::PartitionLeases));
    assert_eq!(bench.answers(), [], "nothing newer and the same count, in another store");
    bench.run();
    assert_eq!((learned(&bench.answers()), bench.owner(0)), (vec![1], broker("one:9092")));
}

/// Those who ask all the time do not make one listing follow the other.
#[test]
fn a_proof_waits_for_the_watch_that_was_ordered_with_the_listing() {
    let mut bench = Bench::settled();
    let token = bench.token(Source::PartitionLeases);
    bench.facts.push((token, WatchFact::Ended(WatchEnd::Lost("cut".into()))));
    bench.tell(0);
    bench.pass_with(secs(1), |_| {});
    bench.finish(&Read::Leases(Source::PartitionLeases));
    bench.ordered.clear();
    bench.ask(1, Question::PartitionOwners);
    bench.finish(&Read::Proof(Source::PartitionLeases));
    assert_eq!((bench.answers(), bench.ordered.len()), (vec![], 1), "the watch does not stand yet");
    bench.run();
    bench.pass(Duration::from_millis(1));
    assert_eq!(learned(&bench.answers()), [1]);
    assert_eq!(bench.ordered, [Read::Proof(Source::PartitionLeases), Read::Proof(Source::PartitionLeases)]);
}

#[test]
fn static_backends_are_used_without_limit() {
    let mut bench = Bench::new(&["a:1", "b:1"]);
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    bench.pass_without_etcd(secs(1_000));
    assert_eq!((bench.service(), bench.owner(0)), (Service::Serving, Owner::Nobody));
    assert!(bench.cluster.is_static());
    assert_eq!(bench.cluster.brokers(), [Address::new("a:1"), Address::new("b:1")]);
    assert!(bench.cluster.snapshot().is_none());
    assert!(bench.cluster.stable_choice("orders", 0).is_some());

    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.put(&Bench::lease(0), "1");
    bench.pass(secs(2));
    bench.pass_without_etcd(secs(1_000));
    assert_eq!((bench.service(), bench.owner(0)), (Service::Serving, broker("one:9092")));
    assert!(bench.cluster.snapshot().is_some_and(|snapshot| snapshot.topic("orders").is_some()));
    assert_eq!(bench.cluster.brokers(), [Address::new("a:1"), Address::new("b:1")]);
}

#[test]
fn a_route_to_a_broker_that_is_not_listed() {
    let mut bench = Bench::settled();
    bench.put(&Bench::lease(0), "7");
    bench.put("/kafscale/group-leases/a/b", "1");
    bench.run();
    assert_eq!(bench.owner(0), Owner::UnknownBroker(7));
    assert_eq!(bench.cluster.coordinator(bench.now, "a/b"), broker("one:9092"));
    assert_eq!(bench.cluster.coordinator(bench.now, "a"), Owner::Nobody);
}
