//! How brokers end, come back, lose etcd, and the faults that are switched on.

use super::*;

#[test]
fn a_broker_that_stops_gives_its_leases_back_at_once_and_one_that_dies_after_ten_seconds() {
    let mut cluster = Cluster::new(3);
    let clients: Vec<Client> = (0..3).map(|broker| cluster.connect(broker)).collect();
    cluster.produce(clients[0], "two", 0, 1);
    cluster.pass(60_000);
    assert_eq!(cluster.produce(clients[1], "two", 0, 1), (6, 0), "leases are kept alive");
    cluster.tell(0, Input::ShutdownRequested);
    assert_eq!(cluster.produce(clients[1], "two", 0, 1), (0, 1));
    let mut effects = Vec::new();
    cluster.brokers[1].crash(&mut effects);
    cluster.carry_out(1, effects);
    assert!(!cluster.brokers[1].is_running());
    assert_eq!(cluster.produce(clients[2], "two", 0, 1), (6, 0));
    cluster.pass(10_000);
    assert_eq!(cluster.produce(clients[2], "two", 0, 1), (0, 2));
}

#[test]
fn a_restarted_broker_takes_over_what_holds_its_id() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    cluster.produce(client, "two", 0, 1);
    let mut effects = Vec::new();
    cluster.brokers[0].crash(&mut effects);
    cluster.carry_out(0, effects);
    cluster.brokers[0] = BrokerModel::new(settings(0));
    cluster.tell(0, Input::Started);
    let client = cluster.connect(0);
    assert_eq!(cluster.produce(client, "two", 0, 1), (0, 1));
    let lease = cluster.etcd.get(b"/kafscale/partition-leases/two/0").unwrap().lease;
    cluster.pass(30_000);
    assert_eq!(cluster.etcd.get(b"/kafscale/partition-leases/two/0").map(|kv| kv.lease), Some(lease));
}

/// With etcd stopped: the first produce was acknowledged, 3 s late, the next were refused with 7; a fetch at 0 was
/// empty, one at 500 out of range, both with a watermark of 0.
#[test]
fn while_etcd_is_away() {
    let mut cluster = Cluster::new(2);
    let (owner, other) = (cluster.connect(0), cluster.connect(1));
    assert_eq!(cluster.produce(owner, "two", 0, 1), (0, 0));
    cluster.links = vec![Link { fate: Fate::Refused, ..Link::default() }; 2];
    assert_eq!(cluster.produce(owner, "two", 0, 1), (0, 1), "the records are in S3");
    assert_eq!(cluster.produce(owner, "two", 0, 1), (7, 0));
    assert_eq!(cluster.produce(other, "two", 1, 1), (7, 0), "no lease can be had");
    assert_eq!(cluster.join(owner, "g", "").error_code.0, 7);
    for (offset, answer) in [(0, (0, 0, None)), (1, (1, 0, None))] {
        cluster.send(owner, 11, &fetch(&[(0, offset)], 700));
        assert_eq!(cluster.fetched(owner), Some(vec![answer]));
    }
    cluster.pass(11_000);
    assert_eq!(cluster.brokers[0].owned_partitions().count(), 0, "its lease must have ended");
    cluster.links = vec![Link::default(); 2];
    cluster.pass(5_000);
    assert_eq!(cluster.produce(other, "two", 0, 1), (0, 2));
    cluster.send(other, 11, &fetch(&[(0, 1)], 0));
    assert_eq!(cluster.fetched(other), Some(vec![(0, 3, Some(batch(1).len()))]));
}

#[test]
fn faults_strike_once() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    cluster.brokers[0].inject(Fault::RefuseProduce(ErrorCode::KAFKA_STORAGE_ERROR));
    assert_eq!(cluster.produce(client, "two", 0, 1), (56, 0));
    assert_eq!(cluster.produce(client, "two", 0, 1), (0, 0), "nothing was appended");
    cluster.brokers[0].inject(Fault::MissingPartition);
    let response = cluster.ask(client, 3, &produce("two", 0, batch(1), -1));
    assert_eq!(response.responses[0].partition_responses, []);
    cluster.brokers[0].inject(Fault::MissingPartition);
    cluster.send(client, 11, &fetch(&[(0, 0), (1, 0)], 0));
    assert_eq!(cluster.fetched(client).map(|partitions| partitions.len()), Some(1));
    cluster.brokers[0].inject(Fault::WrongCorrelation);
    for (what, expected) in [("before the requests", 7), ("a request", 6)] {
        match expected {
            7 => cluster.send(client, 0, &ApiVersionsRequest::default()),
            _ => cluster.send(client, 4, &HeartbeatRequest::default()),
        }
        let frame = cluster.written.get_mut(&client.connection).and_then(VecDeque::pop_front).unwrap();
        assert_eq!(ResponseHeader::correlation_id(&frame), Ok(expected), "{what}");
    }
}

#[test]
fn a_crash_between_append_and_answer_loses_the_answer_only() {
    let mut cluster = Cluster::new(2);
    let (client, other) = (cluster.connect(0), cluster.connect(1));
    cluster.brokers[0].inject(Fault::CrashAfterAppend);
    cluster.send(client, 3, &produce("two", 0, batch(2), -1));
    assert_eq!((cluster.is_closed(client), cluster.written.len(), cluster.stopped.len()), (true, 0, 1));
    cluster.send(other, 11, &fetch(&[(0, 0)], 0));
    assert_eq!(cluster.fetched(other), Some(vec![(0, 2, Some(batch(2).len()))]), "found in S3");
    assert_eq!(cluster.key("/kafscale/topics/two/partitions/0/next_offset"), Some("2"));
}

#[test]
fn a_produce_that_is_read_and_not_appended() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    cluster.brokers[0].inject(Fault::CloseUnappended);
    cluster.send(client, 3, &produce("two", 0, batch(2), -1));
    assert_eq!((cluster.is_closed(client), cluster.written.len(), cluster.stopped.len()), (true, 0, 0));
    assert!(cluster.log.partition("two", 0).is_none());
    let again = cluster.connect(0);
    assert_eq!(cluster.produce(again, "two", 0, 1), (0, 0), "it goes on");
}

#[test]
fn answers_with_leader_hints_are_whole_and_name_the_host() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    cluster.brokers[0].inject(Fault::LeaderHints("inner-host"));
    cluster.brokers[0].inject(Fault::LeaderHints("inner-host"));
    // Versions without tagged fields leave the fault for later.
    cluster.send(client, 8, &produce("two", 0, batch(1), -1));
    assert!(cluster.received::<ProduceRequest>(client, 8).is_some());
    cluster.send(client, 9, &produce("two", 0, batch(1), -1));
    cluster.send(client, 12, &fetch(&[(0, 0)], 0));
    let frames = cluster.written.remove(&client.connection).unwrap();
    assert_eq!(frames.len(), 2);
    for (frame, (api, version)) in frames.iter().zip([(ApiKey::Produce, 9), (ApiKey::Fetch, 12)]) {
        assert!(frame.windows(10).any(|part| part == b"inner-host"), "{api:?}");
        let (_, body) = ResponseHeader::decode(frame, api, version).unwrap();
        let body = frame.slice(body..);
        if api == ApiKey::Produce {
            ProduceResponse::decode(&body, version).unwrap();
        } else {
            let response = FetchResponse::decode(&body, version).unwrap();
            assert!(response.responses[0].partitions[0].current_leader.is_some());
        }
    }
    assert_eq!(cluster.brokers[0].waiting_faults(), 0);
}
