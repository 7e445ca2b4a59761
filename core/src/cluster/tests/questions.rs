//! Questions: one answer each, and none by a read that was ordered too early.

use super::*;

fn owner_of(partition: i32) -> Question {
    Question::PartitionOwner { topic: "orders".into(), partition }
}

fn lease_read(partition: i32) -> Read {
    Read::PartitionLease { topic: "orders".into(), partition }
}

fn generation() -> Question {
    Question::Generation { topic: "orders".into() }
}

#[test]
fn one_read_makes_everything_fresh() {
    let mut bench = Bench::settled();
    bench.pass_without_etcd(secs(30));
    // A move that no watch tells, and that no periodic read has seen.
    let token = bench.token(Source::PartitionLeases);
    bench.etcd.stall_watch(token, true, &mut bench.facts);
    bench.put(&Bench::lease(0), "1");
    assert_eq!((bench.service(), bench.owner(0)), (Service::AfterRead, Owner::Unproven));
    bench.ordered.clear();
    bench.ask(1, Question::Freshness);
    bench.ask(2, Question::Freshness);
    bench.run();
    assert_eq!(learned(&bench.answers()), [1, 2]);
    assert_eq!((bench.service(), bench.owner(0)), (Service::Serving, broker("one:9092")));
    let lists = bench.ordered.iter().filter(|read| **read == Read::Leases(Source::PartitionLeases)).count();
    assert_eq!((lists, bench.ordered.len()), (1, 4), "one of each, and the list that the failed proof asks for");
}

#[test]
fn every_source_must_be_proven() {
    for failing in [Read::Snapshot, Read::Proof(Source::PartitionLeases), Read::Proof(Source::GroupLeases)] {
        let mut bench = Bench::settled();
        bench.ask(1, Question::Freshness);
        for read in [Read::Snapshot, Read::Proof(Source::PartitionLeases), Read::Proof(Source::GroupLeases)] {
            if read != failing {
                bench.finish(&read);
            }
        }
        assert_eq!(bench.answers(), []);
        bench.fail(&failing);
        assert_eq!(unreadable(&bench.answers()), [1], "{failing:?}");
    }
}

#[test]
fn a_question_for_freshness_joins_what_is_under_way_and_is_judged_by_its_order() {
    let mut bench = Bench::new(&[]);
    bench.put(SNAPSHOT, TWO_BROKERS);
    bench.call(|cluster, ctx, out| cluster.start(ctx, out));
    bench.now = bench.now + secs(3);
    bench.ask(1, Question::Freshness);
    assert_eq!(bench.ordered.len(), 3, "no second reading");
    bench.run();
    assert_eq!(learned(&bench.answers()), [1]);
    assert_eq!(bench.cluster.age(bench.now), Some(secs(3)));
}

#[test]
fn while_etcd_is_down_extra_reads_are_limited() {
    let mut bench = Bench::settled();
    bench.pass_without_etcd(secs(30));
    bench.fail_all();
    bench.ordered.clear();
    bench.ask(1, Question::Freshness);
    bench.fail_all();
    let asked = bench.ordered.len();
    assert_eq!(unreadable(&bench.answers()), [1]);
    bench.now = bench.now + Duration::from_millis(249);
    bench.ask(2, Question::Freshness);
    bench.ask(3, Question::Snapshot);
    assert_eq!(unreadable(&bench.answers()), [2, 3], "with the last failure, at once");
    assert_eq!(bench.ordered.len(), asked);
    bench.now = bench.now + Duration::from_millis(1);
    bench.ask(4, Question::Freshness);
    assert_eq!(bench.ordered.len(), asked + 3);
    bench.run();
    assert_eq!(learned(&bench.answers()), [4], "recovery needs no restart and no timer");
    assert_eq!(bench.service(), Service::Serving);
}

#[test]
fn nobody_waits_longer_than_five_seconds_for_freshness() {
    let mut bench = Bench::settled();
    for partition in 0..3_000 {
        bench.put(&Bench::lease(partition), "0");
    }
    bench.facts.clear();
    bench.pass_without_etcd(secs(30));
    bench.ask(1, Question::Freshness);
    bench.pass_with(secs(4), |_| {});
    // The proof does not hold, and the pages that follow take three seconds each.
    bench.finish(&Read::Snapshot);
    bench.finish(&Read::Proof(Source::GroupLeases));
    bench.finish(&Read::Proof(Source::PartitionLeases));
    bench.pass_with(Duration::from_millis(999), |_| {});
    assert_eq!(bench.answers(), []);
    bench.pass_with(Duration::from_millis(1), |_| {});
    assert_eq!(unreadable(&bench.answers()), [1]);
    for _ in 0..3 {
        bench.finish(&Read::Leases(Source::PartitionLeases));
    }
    assert_eq!(bench.owner(2_999), broker("zero:9092"), "the reading goes on");
}

#[test]
fn equal_questions_share_a_read_that_was_ordered_after_them() {
    let mut bench = Bench::settled();
    bench.put(&Bench::lease(0), "0");
    bench.run();
    bench.ask(1, owner_of(0));
    let index = bench.find(&lease_read(0));
    bench.serve(index);
    bench.put(&Bench::lease(0), "1");
    bench.ask(2, owner_of(0));
    bench.ask(3, owner_of(0));
    bench.ask(4, owner_of(1));
    bench.deliver(index);
    assert_eq!(learned(&bench.answers()), [1]);
    assert_eq!(bench.owner(0), broker("zero:9092"));
    bench.finish(&lease_read(0));
    assert_eq!(learned(&bench.answers()), [2, 3]);
    assert_eq!(bench.owner(0), broker("one:9092"), "though the watch has not told yet");
    bench.finish(&lease_read(1));
    assert_eq!(learned(&bench.answers()), [4]);
    assert_eq!(bench.ordered, [lease_read(0), lease_read(1), lease_read(0)]);
}

#[test]
fn one_proof_of_all_leases_answers_for_every_owner() {
    let mut bench = Bench::settled();
    bench.put(&Bench::lease(0), "0");
    bench.run();
    let token = bench.token(Source::PartitionLeases);
    bench.etcd.stall_watch(token, true, &mut bench.facts);
    bench.put(&Bench::lease(0), "1");
    bench.ordered.clear();
    bench.ask(1, Question::PartitionOwners);
    bench.run();
    assert_eq!(learned(&bench.answers()), [1]);
    assert_eq!(bench.owner(0), broker("one:9092"), "though the watch has not told yet");
    assert_eq!(bench.ordered, [Read::Proof(Source::PartitionLeases), Read::Leases(Source::PartitionLeases)]);
}

#[test]
fn a_dropped_route_is_restored_by_a_proof_that_was_ordered_after_that() {
    let mut bench = Bench::settled();
    bench.put(&Bench::lease(0), "0");
    bench.run();
    bench.ask(1, Question::PartitionOwners);
    bench.cluster.forget_partition_owner("orders", 0, &Address::new("zero:9092"));
    bench.ask(2, Question::PartitionOwners);
    bench.ask(3, Question::PartitionOwners);
    bench.finish(&Read::Proof(Source::PartitionLeases));
    assert_eq!((learned(&bench.answers()), bench.owner(0)), (vec![1], Owner::Forgotten));
    bench.finish(&Read::Proof(Source::PartitionLeases));
    assert_eq!((learned(&bench.answers()), bench.owner(0)), (vec![2, 3], broker("zero:9092")));
    assert!(bench.orders.is_empty());
}

#[test]
fn leases_that_cannot_be_read_are_said_to_all_who_wait() {
    let mut bench = Bench::settled();
    for (question, source) in
        [(Question::PartitionOwners, Source::PartitionLeases), (Question::Coordinators, Source::GroupLeases)]
    {
        bench.pass(secs(1));
        for waiter in [1, 2, 3] {
            bench.ask(waiter, question.clone());
        }
        bench.cluster.forget_waiter(Waiter::Request(RequestId(2)));
        bench.fail(&Read::Proof(source));
        assert_eq!(unreadable(&bench.answers()), [1, 3]);
        bench.ask(4, question);
        assert_eq!(unreadable(&bench.answers()), [4], "with the last failure, at once");
    }
}

#[test]
fn nobody_waits_longer_than_five_seconds_for_all_leases() {
    let mut bench = Bench::settled();
    for partition in 0..3_000 {
        bench.put(&Bench::lease(partition), "0");
    }
    bench.facts.clear();
    bench.ask(1, Question::PartitionOwners);
    bench.pass_with(secs(4), |_| {});
    // The proof does not hold, and the pages that follow take long.
    bench.finish(&Read::Proof(Source::PartitionLeases));
    bench.ask(2, Question::PartitionOwners);
    bench.pass_with(Duration::from_millis(999), |_| {});
    assert_eq!(bench.answers(), []);
    bench.pass_with(Duration::from_millis(1), |_| {});
    assert_eq!(unreadable(&bench.answers()), [1]);
    bench.pass_with(Duration::from_millis(3_999), |_| {});
    assert_eq!(bench.answers(), []);
    bench.pass_with(Duration::from_millis(1), |_| {});
    assert_eq!(unreadable(&bench.answers()), [2]);
}

#[test]
fn whoever_is_queued_for_the_next_proof_of_all_leases_waits_no_longer() {
    let mut bench = Bench::settled();
    bench.ask(1, Question::PartitionOwners);
    bench.ask(2, Question::PartitionOwners);
    bench.pass_with(secs(4), |_| {});
    bench.finish(&Read::Proof(Source::PartitionLeases));
    assert_eq!(learned(&bench.answers()), [1]);
    bench.pass_with(secs(1), |_| {});
    assert_eq!(unreadable(&bench.answers()), [2]);
}

#[test]
fn a_failed_key_read_is_not_the_answer_to_later_questions() {
    let mut bench = Bench::settled();
    bench.ask(1, owner_of(0));
    bench.ask(2, owner_of(0));
    bench.fail(&lease_read(0));
    assert_eq!(unreadable(&bench.answers()), [1]);
    bench.finish(&lease_read(0));
    assert_eq!(learned(&bench.answers()), [2]);
}

#[test]
fn a_question_for_the_snapshot_is_answered_by_a_read_after_it() {
    let mut bench = Bench::settled();
    bench.ask(1, Question::Snapshot);
    bench.serve(0);
    bench.put(SNAPSHOT, r#"{"Brokers":[{"NodeID":7,"Host":"seven","Port":1}]}"#);
    bench.facts.clear();
    bench.ask(2, Question::Snapshot);
    bench.deliver(0);
    assert_eq!((learned(&bench.answers()), bench.cluster.address_of(7)), (vec![1], None));
    bench.finish(&Read::Snapshot);
    assert_eq!(learned(&bench.answers()), [2]);
    assert_eq!(bench.cluster.address_of(7), Some(&Address::new("seven:1")));
    assert!(bench.orders.is_empty());
}

#[test]
fn deadlines() {
    let mut bench = Bench::settled();
    bench.ask(1, owner_of(0));
    bench.ask(2, Question::Coordinator { group: "g".into() });
    bench.ask(3, generation());
    bench.ask(4, Question::CommittedPartitions { group: "g".into() });
    bench.ask(5, Question::Freshness);
    let until = |read: &Read| bench.orders[bench.find(read)].gives_up.since(bench.now);
    assert_eq!(until(&lease_read(0)), secs(2));
    assert_eq!(until(&Read::GroupLease { group: "g".into() }), secs(2));
    for read in [
        Read::Generation { topic: "orders".into() },
        Read::CommittedPartitions { group: "g".into() },
        Read::Snapshot,
        Read::Proof(Source::PartitionLeases),
    ] {
        assert_eq!(until(&read), secs(5), "{read:?}");
    }
    bench.pass_with(secs(5), |_| {});
    let mut failed = unreadable(&bench.answers());
    failed.sort_unstable();
    assert_eq!(failed, [1, 2, 3, 4, 5]);
}

#[test]
fn a_waiter_that_vanished_gets_no_answer() {
    let mut bench = Bench::settled();
    let questions = || {
        [owner_of(0), generation(), Question::Snapshot, Question::CommittedPartitions { group: "g".into() }]
            .into_iter()
            .chain([Question::Freshness])
    };
    for waiter in [1, 2, 1, 3] {
        for question in questions() {
            bench.ask(waiter, question);
        }
    }
    bench.cluster.forget_waiter(Waiter::Request(RequestId(1)));
    bench.run();
    let answers = bench.answers();
    for (waiter, count) in [(1, 0), (2, 5), (3, 5)] {
        assert_eq!(answers.iter().filter(|(other, _)| *other == waiter).count(), count, "{waiter}");
    }
}

#[test]
fn a_route_that_was_refused_is_dropped_until_its_key_was_read() {
    let mut bench = Bench::settled();
    bench.put(&Bench::lease(0), "0");
    bench.put("/kafscale/group-leases/g", "0");
    bench.run();
    let [zero, other] = ["zero:9092", "one:9092"].map(Address::new);
    bench.cluster.forget_partition_owner("orders", 0, &other);
    bench.cluster.forget_coordinator("g", &other);
    assert_eq!(bench.owner(0), broker("zero:9092"), "another one's refusal says nothing about the owner");
    assert_eq!(bench.cluster.coordinator(bench.now, "g"), broker("zero:9092"));
    bench.cluster.forget_partition_owner("orders", 0, &zero);
    bench.cluster.forget_coordinator("g", &zero);
    assert_eq!(bench.owner(0), Owner::Forgotten);
    assert_eq!(bench.cluster.coordinator(bench.now, "g"), Owner::Forgotten);
    bench.ask(1, owner_of(0));
    bench.ask(2, Question::Coordinator { group: "g".into() });
    bench.run();
    assert_eq!(learned(&bench.answers()), [1, 2]);
    assert_eq!(bench.owner(0), broker("zero:9092"), "etcd says so");
    assert_eq!(bench.cluster.coordinator(bench.now, "g"), broker("zero:9092"));
}

#[test]
fn a_key_read_that_was_ordered_before_the_refusal_does_not_bring_the_route_back() {
    let mut bench = Bench::settled();
    bench.put(&Bench::lease(0), "0");
    bench.run();
    bench.ask(1, owner_of(0));
    bench.serve(0);
    bench.cluster.forget_partition_owner("orders", 0, &Address::new("zero:9092"));
    bench.deliver(0);
    assert_eq!((learned(&bench.answers()), bench.owner(0)), (vec![1], Owner::Forgotten));
    bench.pass(secs(10));
    assert_eq!(bench.owner(0), broker("zero:9092"), "the next proof says what etcd holds");
}

fn present(answer: &Answer) -> (i64, Option<&str>) {
    let Answer::Generation(TopicGeneration::Present { config_create_revision, generation, .. }) = answer else {
        panic!("{answer:?}")
    };
    (*config_create_revision, generation.as_deref())
}

#[test]
fn generations() {
    let mut bench = Bench::settled();
    let clock = bench.cluster.age(bench.now + secs(1));
    bench.now = bench.now + secs(1);
    bench.ask(1, generation());
    bench.run();
    let [(1, answer)] = &bench.answers()[..] else { panic!("one answer") };
    assert_eq!(present(answer), (0, None));
    bench.put("/kafscale/topics/orders/config", "protobuf");
    let created = bench.etcd.revision();
    bench.put("/kafscale/topics/orders/config", "changed");
    // The state in memory is older than what the transaction reads.
    bench.put(SNAPSHOT, r#"{"Topics":[{"Topic":"orders","Generation":7}]}"#);
    bench.facts.clear();
    bench.ask(2, generation());
    bench.ask(3, Question::Generation { topic: "other".into() });
    bench.run();
    let [(2, answer), (3, absent)] = &bench.answers()[..] else { panic!("two answers") };
    assert_eq!(present(answer), (created, Some("7")));
    assert_eq!(*absent, Answer::Generation(TopicGeneration::Absent));
    assert_eq!(bench.cluster.age(bench.now), clock, "the state was not updated, so the clock stands");
    assert_eq!(bench.service(), Service::Serving);

    bench.put(SNAPSHOT, "{");
    bench.ask(4, generation());
    bench.run();
    assert_eq!(unreadable(&bench.answers()), [4]);
    bench.delete(SNAPSHOT);
    bench.ask(5, generation());
    bench.run();
    assert_eq!(bench.answers(), [(5, Answer::Generation(TopicGeneration::Absent))]);
}

/// A store that was restored from a backup and has grown past what was read.
#[test]
fn the_identity_in_a_restored_store_is_not_that_of_the_one_before() {
    for lost_before in [true, false] {
        let mut bench = Bench::settled();
        let backup = bench.etcd.back_up();
        bench.put(SNAPSHOT, r#"{"Topics":[{"Topic":"orders","Generation":7}]}"#);
        bench.run();
        let read = bench.etcd.revision();
        bench.etcd.restore(bench.now, backup, &mut bench.facts);
        while bench.etcd.revision() <= read {
            bench.put("/other", "x");
        }
        if lost_before {
            while !bench.facts.is_empty() {
                bench.tell(0);
            }
        }
        bench.ask(1, generation());
        bench.ask(2, generation());
        while !bench.facts.is_empty() {
            bench.tell(0);
        }
        bench.run();
        let answers = bench.answers();
        assert_eq!(answers.iter().map(|(waiter, _)| *waiter).collect::<Vec<_>>(), [1, 2]);
        assert!(answers.iter().all(|(_, answer)| present(answer) == (0, None)), "{lost_before}: {answers:?}");
    }
}

/// The watch that stands when the answer comes may be another than the one with which it was asked.
#[test]
fn an_identity_that_was_asked_for_with_a_lost_watch_is_asked_for_again() {
    let mut bench = Bench::settled();
    let backup = bench.etcd.back_up();
    bench.put(SNAPSHOT, r#"{"Topics":[{"Topic":"orders","Generation":7}]}"#);
    bench.run();
    let read = bench.etcd.revision();
    bench.ask(1, generation());
    let held = bench.orders.remove(bench.find(&Read::Generation { topic: "orders".into() }));
    bench.etcd.restore(bench.now, backup, &mut bench.facts);
    while bench.etcd.revision() <= read {
        bench.put("/other", "x");
    }
    bench.run();
    bench.pass(secs(2));
    assert_eq!(bench.service(), Service::Serving);
    bench.orders.push(held);
    bench.run();
    let [(1, answer)] = &bench.answers()[..] else { panic!("one answer") };
    assert_eq!(present(answer), (0, None));
}

#[test]
fn the_identity_after_an_upload_is_read_after_it() {
    let mut bench = Bench::settled();
    bench.ask(1, generation());
    bench.serve(0);
    bench.put("/kafscale/topics/orders/config", "");
    bench.ask(2, generation());
    bench.run();
    let [(1, before), (2, after)] = &bench.answers()[..] else { panic!("two answers") };
    assert_eq!((present(before).0, present(after).0), (0, bench.etcd.revision()));
}

#[test]
fn equal_large_snapshots_are_parsed_once() {
    let mut bench = Bench::settled();
    let large = format!(r#"{{"Unknown":"{}","Topics":[{{"Topic":"orders"}}]}}"#, "x".repeat(300_000));
    bench.put(SNAPSHOT, &large);
    bench.ask(1, generation());
    bench.ask(2, Question::Generation { topic: "other".into() });
    bench.ask(3, Question::Snapshot);
    while !bench.orders.is_empty() {
        bench.serve(0);
        bench.deliver(0);
    }
    assert_eq!(bench.unparsed.len(), 1);
    bench.put(SNAPSHOT, &large.replace("orders", "changed"));
    bench.ask(4, Question::Generation { topic: "changed".into() });
    bench.finish(&Read::Generation { topic: "changed".into() });
    assert_eq!(bench.unparsed.len(), 1, "the next one waits");
    bench.parse();
    assert_eq!(bench.unparsed.len(), 1);
    bench.run();
    let answers = bench.answers();
    assert_eq!(learned(&answers), [3]);
    let generations: Vec<_> = answers.iter().filter(|(waiter, _)| *waiter != 3).collect();
    assert_eq!(generations.iter().map(|(waiter, _)| *waiter).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(generations[1].1, Answer::Generation(TopicGeneration::Absent));
    assert_eq!((present(&generations[0].1).0, present(&generations[2].1).0), (0, 0));
}

#[test]
fn committed_partitions() {
    let mut bench = Bench::settled();
    for partition in 0..1_200 {
        bench.put(&format!("/kafscale/consumers/g/offsets/orders/{partition}"), "{}");
    }
    bench.put("/kafscale/consumers/g/offsets/audit/3", "{}");
    bench.put("/kafscale/consumers/g/metadata", "");
    bench.put("/kafscale/consumers/gg/offsets/orders/5000", "{}");
    bench.ask(1, Question::CommittedPartitions { group: "g".into() });
    bench.finish(&Read::CommittedPartitions { group: "g".into() });
    bench.delete("/kafscale/consumers/g/offsets/orders/999");
    bench.etcd.compact(bench.etcd.revision()).unwrap();
    bench.ask(2, Question::CommittedPartitions { group: "nobody".into() });
    bench.run();
    let answers = bench.answers();
    let of = |waiter| answers.iter().find(|(other, _)| *other == waiter).map(|(_, answer)| answer).unwrap();
    let Answer::CommittedPartitions(partitions) = of(1) else { panic!("{:?}", of(1)) };
    assert_eq!((partitions.len(), &partitions[0]), (1_200, &("audit".to_owned(), 3)));
    assert_eq!(*of(2), Answer::CommittedPartitions(Vec::new()));
}
