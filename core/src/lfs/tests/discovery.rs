//! Brokers from etcd: the owner of the partition is asked, and nothing is sent on knowledge that is too old.

use super::*;
use crate::cluster::{Decision as ClusterDecision, Read, Source};
use crate::etcd::{KeyValue, RangeResponse, Response as EtcdResponse};

const SNAPSHOT: &str = r#"{"Brokers":[{"NodeID":0,"Host":"zero","Port":1},{"NodeID":1,"Host":"one","Port":1}],
    "Topics":[{"Topic":"t","Partitions":[{"Partition":0},{"Partition":1},{"Partition":2}]}]}"#;

fn kv(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        create_revision: 1,
        mod_revision: 1,
        lease: 0,
    }
}

/// Broker 1 owns partition 0 of `t`; nobody owns the others.
fn discovered() -> Bench {
    let mut bench = Bench::new(LfsConfig { static_backends: Vec::new(), ..small_parts() });
    learn(&mut bench, SNAPSHOT, &[kv("/kafscale/partition-leases/t/0", "1")]);
    bench
}

/// The cluster is what one read of etcd says now.
fn learn(bench: &mut Bench, snapshot: &str, leases: &[KeyValue]) {
    bench.cluster = Cluster::new(&bench.config.cluster);
    let mut ctx = Context {
        now: Now { monotonic: bench.now, unix_ms: 0 },
        config: &bench.config,
        timers: &mut bench.timers,
        random: &mut bench.random,
        ids: &mut bench.ids,
    };
    let mut orders = Vec::new();
    bench.cluster.start(&mut ctx, &mut orders);
    while let Some(order) = orders.pop() {
        let ClusterDecision::Request { read, .. } = order else { continue };
        let kvs = match &read {
            Read::Snapshot => vec![kv("/kafscale/metadata/snapshot", snapshot)],
            Read::Leases(Source::PartitionLeases) => leases.to_vec(),
            _ => Vec::new(),
        };
        let count = kvs.len() as i64;
        let answer = EtcdResponse::Range(RangeResponse { revision: 5, kvs, count, more: false });
        bench.cluster.on_finished(&mut ctx, read, Outcome::Applied(answer), &mut orders);
    }
    // Reads of the cluster are not what is tested here.
    for source in [Source::Snapshot, Source::PartitionLeases, Source::GroupLeases] {
        bench.timers.clear(Timer::ClusterReload(source));
    }
}

/// A produce to partition 0 whose blob is stored, with the owner connected.
fn stored() -> Bench {
    let mut bench = discovered();
    bench.produce(ONE, &[]);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.connected();
    assert_eq!(bench.read(), ["ask generation t", "connect one:1", "read 8"], "the owner is asked");
    bench.chunk(ONE, b"abc");
    bench.body(ONE, ReadResult::End);
    bench.s3_done(Response::Done);
    assert_eq!(bench.read(), ["read 5", "put 3", "ask generation t"]);
    bench
}

const BROKERS: &str = r#"{"Brokers":[{"NodeID":0,"Host":"zero","Port":1}],"Topics":[TOPICS]}"#;

/// The answer to what came before the upload, with these topics before and after the one read of the snapshot.
fn asked_once(headers: &[(&'static str, &str)], before: &str, after: &str) -> Vec<String> {
    let mut bench = Bench::new(LfsConfig { static_backends: Vec::new(), ..small_parts() });
    learn(&mut bench, &BROKERS.replace("TOPICS", before), &[]);
    bench.produce(ONE, headers);
    bench.generation(ONE, TopicGeneration::Absent);
    let log = bench.read();
    if log[1] != "ask snapshot" {
        return log[1..].to_vec();
    }
    learn(&mut bench, &BROKERS.replace("TOPICS", after), &[]);
    bench.answer(ONE, Question::Snapshot, Answer::Learned);
    let mut log = bench.read();
    log.insert(0, "ask snapshot".into());
    log
}

#[test]
fn partitions_that_do_not_exist_are_refused_before_anything_is_stored() {
    let topic = |partitions: &str| format!(r#"{{"Topic":"t","Partitions":{partitions}}}"#);
    let three = topic(r#"[{"Partition":0},{"Partition":1},{"Partition":2}]"#);
    let four = topic(r#"[{"Partition":0},{"Partition":1},{"Partition":2},{"Partition":3}]"#);
    let holes = topic(r#"[{"Partition":2},{"Partition":5}]"#);
    let (none, failed) = (topic("null"), r#"{"Topic":"t","ErrorCode":5}"#.to_owned());
    let (given, key) = (|partition| [("x-kafka-partition", partition)], [("x-kafka-key", "YQ==")]);
    let refused = ["ask snapshot", "400 invalid_partition"];
    assert_eq!(asked_once(&given("2"), &three, &three), ["connect zero:1"]);
    assert_eq!(asked_once(&given("3"), &three, &three), refused);
    assert_eq!(asked_once(&given("3"), &three, &four), ["ask snapshot", "connect zero:1"], "it was just added");
    assert_eq!(asked_once(&given("0"), &holes, &holes), refused);
    assert_eq!(asked_once(&given("5"), &holes, &holes), ["connect zero:1"]);
    assert_eq!(asked_once(&[], &holes, &holes), ["connect zero:1"]);
    for headers in [&[][..], &key, &given("0")] {
        assert_eq!(asked_once(headers, &none, &none), refused);
        assert_eq!(asked_once(headers, &failed, &failed), refused);
        assert_eq!(asked_once(headers, &none, &three), ["ask snapshot", "connect zero:1"]);
        assert_eq!(asked_once(headers, "", ""), ["connect zero:1"], "a broker creates the topic");
    }
}

#[test]
fn a_topic_that_came_to_be_without_the_partition_gets_no_record() {
    let mut bench = Bench::new(LfsConfig { static_backends: Vec::new(), ..small_parts() });
    learn(&mut bench, &BROKERS.replace("TOPICS", ""), &[]);
    bench.produce(ONE, &[("x-kafka-partition", "3")]);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.connected();
    bench.chunk(ONE, b"abc");
    bench.body(ONE, ReadResult::End);
    bench.s3_done(Response::Done);
    bench.read();
    learn(&mut bench, SNAPSHOT, &[]);
    bench.generation(ONE, TopicGeneration::Absent);
    assert_eq!(bench.read(), ["delete"]);
    bench.s3_done(Response::Done);
    assert_eq!(bench.read(), ["409 topic_changed"]);
    bench.assert_nothing_left();
}

#[test]
fn an_owner_that_cannot_be_reached_is_stood_in_for() {
    let mut bench = discovered();
    bench.produce(ONE, &[]);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.connect_failed();
    bench.connected();
    assert_eq!(bench.read(), ["ask generation t", "connect one:1", "connect zero:1", "read 8"]);
}

#[test]
fn a_refusal_reads_the_owner_again() {
    let mut bench = stored();
    bench.generation(ONE, TopicGeneration::Absent);
    bench.broker_answers(6);
    assert_eq!(bench.read(), ["write one:1", "forget owner t-0"]);
    bench.pass(Duration::from_millis(500));
    assert_eq!(bench.read(), ["ask owner t-0"]);
    bench.answer(ONE, Question::PartitionOwner { topic: "t".into(), partition: 0 }, Answer::Learned);
    assert_eq!(bench.read(), ["connect zero:1"], "one broker was not asked yet");
    bench.connected();
    bench.broker_answers(6);
    assert_eq!(bench.read(), ["write zero:1", "forget owner t-0", "delete"]);
    bench.s3_done(Response::Done);
    assert_eq!(bench.read(), ["503 backend_unavailable"]);
    assert_eq!(bench.lfs.stats().retries.of(RetryReason::Refused), 1, "the second refusal was the last");
    bench.assert_nothing_left();
}

#[test]
fn topics_of_the_snapshot_are_counted_by_name_and_all_others_together() {
    let mut bench = stored();
    bench.generation(ONE, TopicGeneration::Absent);
    bench.broker_answers(0);
    bench.request(TWO, "POST", "/lfs/produce", &[("x-kafka-topic", "invented")]);
    bench.gone(TWO);
    bench.request(TWO, "POST", "/lfs/produce", &[("x-kafka-topic", "not a topic")]);
    let stats = bench.lfs.stats();
    assert_eq!(stats.topics.keys().collect::<Vec<_>>(), ["t"]);
    assert_eq!((stats.topics["t"].ok, stats.topics["t"].errors), (1, 0));
    assert_eq!((stats.unknown_topics.ok, stats.unknown_topics.errors), (0, 1), "one has no name, one had gone");
}

#[test]
fn an_upload_that_outlasts_the_ttl_is_not_published() {
    let ttl = Duration::from_secs(60);
    for (readable, expected) in [(false, "delete"), (true, "write one:1")] {
        let mut bench = stored();
        bench.pass(ttl + Duration::from_micros(1));
        bench.generation(ONE, TopicGeneration::Absent);
        assert_eq!(bench.read(), ["ask freshness"], "one read before anything is given up");
        let answer = if readable {
            learn(&mut bench, SNAPSHOT, &[kv("/kafscale/partition-leases/t/0", "1")]);
            Answer::Learned
        } else {
            Answer::Unreadable("timeout".into())
        };
        bench.answer(ONE, Question::Freshness, answer);
        let log = bench.read();
        assert_eq!(log.last().unwrap(), expected, "{log:?}");
        if !readable {
            bench.s3_done(Response::Done);
            assert_eq!(bench.read(), ["503 backend_unavailable"]);
            bench.assert_nothing_left();
        }
    }
    let mut bench = stored();
    bench.pass(ttl);
    bench.generation(ONE, TopicGeneration::Absent);
    assert_eq!(bench.read(), ["write one:1"], "the last instant of the TTL is fresh");
}

#[test]
fn before_the_upload_the_ttl_table_holds() {
    // Never read, and unreadable.
    let mut bench = Bench::new(LfsConfig { static_backends: Vec::new(), ..small_parts() });
    bench.produce(ONE, &[]);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.answer(ONE, Question::Freshness, Answer::Unreadable("timeout".into()));
    assert_eq!(bench.read(), ["ask generation t", "ask freshness", "503 metadata_unavailable"]);
    bench.assert_nothing_left();

    // Read, and no broker is listed.
    let mut bench = Bench::new(LfsConfig { static_backends: Vec::new(), ..small_parts() });
    learn(&mut bench, r#"{"Brokers":[],"Topics":[]}"#, &[]);
    bench.produce(ONE, &[]);
    bench.generation(ONE, TopicGeneration::Absent);
    assert_eq!(bench.read(), ["ask generation t", "503 backend_unavailable"]);
    bench.assert_nothing_left();
}

#[test]
fn an_owner_that_moved_during_the_upload_gets_the_record() {
    let mut bench = stored();
    learn(&mut bench, SNAPSHOT, &[kv("/kafscale/partition-leases/t/0", "0")]);
    bench.generation(ONE, TopicGeneration::Absent);
    assert_eq!(bench.read(), ["connect zero:1"]);
}

#[test]
fn a_dial_that_outlasts_the_ttl_sends_nothing() {
    let mut bench = stored();
    bench.closed(0);
    bench.pass(Duration::from_secs(58));
    bench.generation(ONE, TopicGeneration::Absent);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.read(), ["connect one:1"]);
    bench.connected();
    assert_eq!(bench.read(), ["ask freshness"]);
    bench.answer(ONE, Question::Freshness, Answer::Unreadable("timeout".into()));
    assert_eq!(bench.read(), ["delete"]);
    bench.s3_done(Response::Done);
    assert_eq!(bench.read(), ["503 backend_unavailable"]);
    bench.assert_nothing_left();
}

/// From the promised size on, a refusal is an error of the topic.
#[test]
fn a_body_that_is_announced_as_too_large_counts_for_its_topic() {
    for headers in [[("content-length", "65")], [("x-lfs-size", "65")]] {
        let mut bench = discovered();
        bench.produce(ONE, &headers);
        assert_eq!(bench.read(), ["400 payload_too_large"]);
        let stats = bench.lfs.stats();
        assert_eq!((stats.topics["t"].errors, stats.unknown_topics.errors), (1, 0));
        bench.assert_nothing_left();
    }
}
