//! The table of kafka-listener contract section 4, row by row.

use super::*;
use crate::kafka::Str;

#[test]
fn one_owner_passes_as_bytes_both_ways() {
    let mut bench = Bench::new();
    let request = produce(5, &[0]);
    bench.send(&request);
    assert_eq!(bench.taken("a:1"), request);
    let response = ProduceResponse {
        responses: vec![TopicProduceResponse { name: "t".into(), partition_responses: vec![answer(0, 0, 42)] }],
        throttle_time_ms: 3,
    };
    let response = response_frame(5, 9, &response);
    bench.reply("a:1", &response);
    assert_eq!(bench.answer(), Some(response));
    assert_eq!(bench.peer(CLIENT).pieces, 1, "nothing is put together or apart");
    assert_eq!(bench.asked, []);
}

#[test]
fn several_owners_are_asked_at_once_and_merged_in_request_order() {
    let mut bench = Bench::new();
    let mut asked = produce_of(-1, &[1, 0]);
    asked.topic_data.push(TopicProduceData { name: "u".into(), ..TopicProduceData::default() });
    asked.topic_data.push(produce_of(-1, &[1]).topic_data.remove(0));
    bench.send(&frame(5, 7, &asked));
    let (header, to_a) = produce_request(&bench.taken("a:1"));
    assert_eq!((header, to_a.acks, to_a.timeout_ms), ((5, 7), -1, 1_000));
    assert_eq!(to_a, produce_of(-1, &[0]));
    let (_, to_b) = produce_request(&bench.taken("b:1"));
    assert_eq!(to_b.topic_data.len(), 2, "the order of topics is kept, also when one comes twice");
    let partitions = |answers| TopicProduceResponse { name: "t".into(), partition_responses: answers };
    let from_b = ProduceResponse {
        responses: vec![partitions(vec![answer(1, 0, 10)]), partitions(vec![answer(1, 0, 11)])],
        throttle_time_ms: 7,
    };
    bench.reply("b:1", &response_frame(5, 7, &from_b));
    assert_eq!(bench.answer(), None);
    let from_a = ProduceResponse { responses: vec![partitions(vec![answer(0, 10, 3)])], throttle_time_ms: 4 };
    bench.reply("a:1", &response_frame(5, 7, &from_a));
    let frame = bench.answer().unwrap();
    let (_, body_at) = ResponseHeader::decode(&frame, ApiKey::Produce, 7).unwrap();
    let merged = ProduceResponse::decode(&frame.slice(body_at..), 7).unwrap();
    assert_eq!(merged.throttle_time_ms, 7);
    let expected = vec![
        partitions(vec![answer(1, 0, 10), answer(0, 10, 3)]),
        TopicProduceResponse { name: "u".into(), ..TopicProduceResponse::default() },
        partitions(vec![answer(1, 0, 11)]),
    ];
    assert_eq!(merged.responses, expected);
}

#[test]
fn no_topics() {
    let mut bench = Bench::new();
    bench.send(&frame(5, 9, &ProduceRequest { acks: -1, ..ProduceRequest::default() }));
    assert_eq!(bench.produced(9), []);
    bench.send(&frame(5, 9, &ProduceRequest { acks: 0, ..ProduceRequest::default() }));
    assert_eq!(bench.answer(), None);
}

#[test]
fn an_owner_that_lost_many_partitions_costs_a_few_reads_of_etcd() {
    let mut bench = Bench::with_partitions(100);
    let partitions: Vec<i32> = (0..100).collect();
    partitions.iter().for_each(|partition| bench.own(*partition, 0));
    bench.run();
    bench.send(&produce(5, &partitions));
    bench.etcd_is_down = true;
    partitions.iter().for_each(|partition| bench.own(*partition, 2));
    bench.serve_produce("a:1", 6);
    bench.facts.clear();
    bench.etcd_is_down = false;
    bench.run();
    assert_eq!(bench.asked, [Question::PartitionOwners]);
    bench.serve_produce("c:1", 0);
    assert!(bench.produced(9).into_iter().all(|(_, code, _)| code == 0));
}

#[test]
fn codes_that_mean_not_appended_go_to_the_owner_of_the_moment() {
    for code in [5, 6, 74, 75] {
        let mut bench = Bench::new();
        bench.send(&produce(5, &[0]));
        bench.etcd_is_down = true;
        bench.own(0, 2);
        bench.serve_produce("a:1", code);
        bench.facts.clear();
        bench.etcd_is_down = false;
        bench.run();
        assert_eq!(bench.asked, [Question::PartitionOwner { topic: "t".into(), partition: 0 }]);
        bench.serve_produce("c:1", 0);
        assert_eq!(bench.produced(9), [(0, 0, 100)], "code {code}");
    }
}

#[test]
fn any_other_code_is_copied() {
    for code in [-1, 2, 3, 7, 10, 19, 87] {
        let mut bench = Bench::new();
        bench.send(&produce(5, &[0]));
        bench.serve_produce("a:1", code);
        assert_eq!(bench.produced(9), [(0, code, 100)]);
        assert_eq!(bench.asked, []);
    }
}

#[test]
fn after_three_rounds_the_code_as_received() {
    let mut bench = Bench::new();
    bench.send(&produce(5, &[0]));
    bench.serve_produce("a:1", 6);
    bench.serve_produce("a:1", 6);
    bench.serve_produce("a:1", 75);
    assert_eq!(bench.produced(9), [(0, 75, -1)]);
}

#[test]
fn only_what_was_refused_goes_again() {
    let mut bench = Bench::new();
    bench.own(1, 0);
    bench.run();
    let request = produce(5, &[0, 1]);
    bench.send(&request);
    assert_eq!(bench.taken("a:1"), request);
    let answers = vec![answer(0, 0, 1), answer(1, 6, -1)];
    let response = ProduceResponse {
        responses: vec![TopicProduceResponse { name: "t".into(), partition_responses: answers }],
        throttle_time_ms: 0,
    };
    bench.own(1, 1);
    bench.reply("a:1", &response_frame(5, 9, &response));
    let (_, again) = produce_request(&bench.taken("b:1"));
    assert_eq!(again, produce_of(-1, &[1]));
    let answers = vec![answer(1, 0, 2)];
    let response = ProduceResponse {
        responses: vec![TopicProduceResponse { name: "t".into(), partition_responses: answers }],
        throttle_time_ms: 0,
    };
    bench.reply("b:1", &response_frame(5, 9, &response));
    assert_eq!(bench.produced(9), [(0, 0, 1), (1, 0, 2)]);
}

#[test]
fn no_broker_reachable_is_timed_out_within_the_limit() {
    let mut bench = Bench::new();
    bench.down.extend(["a:1", "b:1", "c:1"].map(String::from));
    bench.send(&produce(5, &[0]));
    assert_eq!(bench.answer(), None);
    bench.pass(Duration::from_secs(15));
    assert_eq!(bench.produced(9), [(0, 7, -1)]);
    assert!(!bench.is_closed());
}

#[test]
fn lost_after_the_first_byte_is_never_sent_again() {
    let mut bench = Bench::new();
    bench.send(&produce(5, &[0]));
    let sent = bench.taken("a:1").len() as u64;
    bench.hang_up("a:1", sent);
    assert_eq!(bench.produced(9), [(0, 7, -1)]);
    assert_eq!((bench.dials("a:1"), bench.dials("b:1"), bench.dials("c:1")), (1, 0, 0));
}

#[test]
fn lost_before_the_first_byte_goes_again() {
    let mut bench = Bench::new();
    bench.send(&produce(5, &[0]));
    bench.taken("a:1");
    bench.hang_up("a:1", 0);
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.produced(9), [(0, 0, 100)]);
    assert_eq!(bench.dials("a:1"), 2);
}

#[test]
fn answers_that_are_no_answers() {
    let partitions = |answers| ProduceResponse {
        responses: vec![TopicProduceResponse { name: "t".into(), partition_responses: answers }],
        throttle_time_ms: 0,
    };
    let other_topic = ProduceResponse {
        responses: vec![TopicProduceResponse { name: "x".into(), partition_responses: vec![answer(0, 0, 1)] }],
        throttle_time_ms: 0,
    };
    let missing = [ProduceResponse::default(), partitions(vec![answer(3, 0, 1)]), other_topic];
    for response in missing {
        let mut bench = Bench::new();
        bench.send(&produce(5, &[0]));
        bench.taken("a:1");
        bench.reply("a:1", &response_frame(5, 9, &response));
        assert_eq!(bench.produced(9), [(0, 7, -1)], "{response:?}");
    }
    let mut bench = Bench::new();
    bench.send(&produce(5, &[0]));
    bench.taken("a:1");
    bench.reply("a:1", b"\0\0\0\x05\0\0\0\x05\x01");
    assert_eq!(bench.produced(9), [(0, 7, -1)], "does not decode");
    bench.send(&produce(6, &[0]));
    bench.taken("a:1");
    let more = partitions(vec![answer(9, 0, 1), answer(0, 0, 2), answer(0, 6, 3)]);
    bench.reply("a:1", &response_frame(6, 9, &more));
    assert_eq!(bench.produced(9), [(0, 0, 2)], "what was not asked for is ignored");
}

#[test]
fn a_wrong_correlation_id_ends_the_connection_and_nothing_is_sent_again() {
    let mut bench = Bench::new();
    bench.send(&produce(5, &[0]));
    bench.taken("a:1");
    bench.reply("a:1", &response_frame(6, 9, &ProduceResponse::default()));
    assert_eq!(bench.produced(9), [(0, 7, -1)]);
    assert_eq!(bench.dials("a:1"), 1);
}

#[test]
fn no_answer_is_awaited_longer_than_clients_may_wait() {
    let mut bench = Bench::with(|config| config.listener.client_wait_max = Duration::from_secs(5));
    bench.send(&frame(1, 9, &ProduceRequest { timeout_ms: i32::MAX, ..produce_of(-1, &[0]) }));
    bench.pass(Duration::from_secs(19));
    assert_eq!(bench.answer(), None);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.code(), 7);
}

#[test]
fn success_without_an_offset_proves_nothing() {
    for (code, base_offset, answered) in
        [(0, 0, (0, 0)), (0, -1, (7, -1)), (0, i64::MIN, (7, -1)), (10, -1, (10, -1)), (10, 4, (10, 4))]
    {
        // Alone it could pass as it came; with another it is merged.
        for partitions in [&[0][..], &[0, 1]] {
            let mut bench = Bench::new();
            bench.send(&produce(5, partitions));
            bench.taken("a:1");
            let partition =
                TopicProduceResponse { name: "t".into(), partition_responses: vec![answer(0, code, base_offset)] };
            let response = ProduceResponse { responses: vec![partition], throttle_time_ms: 0 };
            bench.reply("a:1", &response_frame(5, 9, &response));
            if partitions.len() > 1 {
                bench.serve_produce("b:1", 0);
            }
            assert_eq!(bench.produced(9)[0], (0, answered.0, answered.1), "{code} {base_offset}");
            assert!(!bench.has_request("a:1"), "it may have been appended");
        }
    }
}

#[test]
fn no_answer_in_time() {
    let mut bench = Bench::new();
    bench.send(&produce(5, &[0]));
    bench.taken("a:1");
    bench.pass(Duration::from_millis(15_999));
    assert_eq!(bench.answer(), None);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.produced(9), [(0, 7, -1)]);
}

#[test]
fn acks_0_gets_no_answer_and_the_connection_stays() {
    let mut bench = Bench::new();
    let request = frame(5, 9, &produce_of(0, &[0]));
    bench.send(&request);
    assert_eq!(bench.taken("a:1"), request);
    bench.send(&frame(6, 9, &produce_of(0, &[0, 1])));
    assert_eq!(produce_request(&bench.taken("a:1")).1, produce_of(0, &[0]));
    assert_eq!(produce_request(&bench.taken("b:1")).1, produce_of(0, &[1]));
    bench.send(&metadata(7));
    assert_eq!(bench.answer().map(|frame| correlation_id(&frame)), Some(7));
    bench.send(&produce(8, &[0]));
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0);
}

#[test]
fn acks_0_that_cannot_be_sent_closes() {
    let mut bench = Bench::new();
    bench.down.extend(["a:1", "b:1", "c:1"].map(String::from));
    bench.send(&frame(5, 9, &produce_of(0, &[0])));
    bench.pass(Duration::from_secs(15));
    assert_eq!(bench.answer(), None);
    assert!(bench.is_closed());

    let mut lost = Bench::new();
    lost.send(&frame(5, 9, &produce_of(0, &[0])));
    let sent = lost.taken("a:1").len() as u64;
    lost.hang_up("a:1", sent - 1);
    assert!(lost.is_closed(), "the socket had not taken all of it");
}

#[test]
fn acks_0_goes_to_the_owner_or_nowhere() {
    let mut bench = Bench::new();
    bench.down.insert("a:1".into());
    bench.send(&frame(5, 9, &produce_of(0, &[0])));
    assert_eq!(bench.dials("b:1") + bench.dials("c:1"), 0, "another one would drop it, and nobody would know");
    assert!(bench.is_closed());
}

#[test]
fn old_versions_are_refused_in_their_layout() {
    for version in 0..3 {
        let mut bench = Bench::new();
        bench.send(&frame(5, version, &produce_of(-1, &[0, 1])));
        assert_eq!(bench.produced(version), [(0, 35, -1), (1, 35, -1)]);
        bench.send(&frame(6, version, &produce_of(0, &[0])));
        assert_eq!((bench.answer(), bench.is_closed()), (None, false));
        assert!(bench.sockets.is_empty());
    }
}

#[test]
fn old_formats_and_transactions_go_to_no_broker() {
    let with = |at: usize, value: u8| {
        let mut records = batch().to_vec();
        records[at] = value;
        Some(Bytes::from(records))
    };
    for (records, code) in [(with(16, 0), 87), (with(16, 1), 87), (with(22, 0x10), 35)] {
        let mut bench = Bench::new();
        let mut request = produce_of(-1, &[0, 1]);
        request.topic_data[0].partition_data[0].records = records;
        bench.send(&frame(5, 9, &request));
        assert_eq!(produce_request(&bench.taken("b:1")).1, produce_of(-1, &[1]), "the other partition goes on");
        bench.reply(
            "b:1",
            &response_frame(
                5,
                9,
                &ProduceResponse {
                    responses: vec![TopicProduceResponse {
                        name: "t".into(),
                        partition_responses: vec![answer(1, 0, 3)],
                    }],
                    throttle_time_ms: 0,
                },
            ),
        );
        assert_eq!(bench.produced(9), [(0, code, -1), (1, 0, 3)]);
    }
    let mut bench = Bench::new();
    let request = ProduceRequest { transactional_id: Some(Str::from("x")), ..produce_of(-1, &[0]) };
    bench.send(&frame(5, 9, &request));
    assert_eq!(bench.produced(9), [(0, 35, -1)]);
}

#[test]
fn nobody_owns_it_then_the_same_broker_each_time() {
    let mut bench = Bench::new();
    bench.send(&produce(5, &[2]));
    let [socket] = &bench.sockets[..] else { panic!("one dial") };
    let choice = socket.address.clone();
    bench.serve_produce(&choice, 0);
    bench.accept(ClientId(8));
    bench.send_from(ClientId(8), &produce(5, &[2]));
    assert!(bench.sockets.iter().all(|socket| socket.address == choice));
}

#[test]
fn an_owner_that_has_refused_is_read_anew_by_whoever_comes_next() {
    let mut bench = Bench::new();
    bench.accept(ClientId(8));
    bench.send(&produce(5, &[0]));
    bench.etcd_is_down = true;
    bench.serve_produce("a:1", 6);
    bench.send_from(ClientId(8), &produce(6, &[0]));
    assert_eq!(bench.sockets.len(), 1, "no guess");
    let owner = Question::PartitionOwner { topic: "t".into(), partition: 0 };
    assert_eq!(bench.asked, [owner.clone(), owner]);
    bench.etcd_is_down = false;
    bench.run();
    assert_eq!((bench.dials("a:1"), bench.sockets.len()), (2, 2));
}

#[test]
fn a_partition_that_a_known_topic_lacks_goes_to_no_broker() {
    let mut bench = Bench::new();
    bench.send(&produce(5, &[3, 0, -1]));
    assert_eq!(bench.asked, [Question::Snapshot], "it may have been added");
    assert_eq!(produce_request(&bench.taken("a:1")).1, produce_of(-1, &[0]), "the others go on");
    let partitions = vec![answer(0, 0, 42)];
    let topic = TopicProduceResponse { name: "t".into(), partition_responses: partitions };
    bench.reply("a:1", &response_frame(5, 9, &ProduceResponse { responses: vec![topic], throttle_time_ms: 0 }));
    assert_eq!(bench.produced(9), [(3, 3, -1), (0, 0, 42), (-1, 3, -1)]);
    assert_eq!(bench.sockets.len(), 1);

    bench.send(&frame(6, 9, &produce_of(0, &[3])));
    assert_eq!((bench.answer(), bench.is_closed(), bench.sockets.len()), (None, true, 1));
}

#[test]
fn a_partition_that_was_just_added_is_found() {
    let mut bench = Bench::new();
    bench.etcd_is_down = true;
    bench.put("/kafscale/metadata/snapshot", &SNAPSHOT.replace("2}]", "2},{\"Partition\":3}]"));
    bench.own(3, 1);
    bench.send(&produce(5, &[3]));
    bench.send(&produce(6, &[3]));
    assert!(bench.sockets.is_empty());
    bench.etcd_is_down = false;
    bench.run();
    assert_eq!(bench.asked, [Question::Snapshot]);
    bench.serve_produce("b:1", 0);
    bench.serve_produce("b:1", 0);
    assert_eq!([bench.produced(9), bench.produced(9)], [[(3, 0, 100)], [(3, 0, 100)]]);
}

#[test]
fn a_topic_that_is_not_known_goes_to_a_broker_which_creates_it() {
    let mut bench = Bench::new();
    let mut request = produce_of(-1, &[3]);
    request.topic_data[0].name = "new".into();
    bench.send(&frame(5, 9, &request));
    let [socket] = &bench.sockets[..] else { panic!("one dial") };
    let address = socket.address.clone();
    assert_eq!(produce_request(&bench.taken(&address)).1, request);
}

#[test]
fn past_the_ttl_the_earlier_refusal_is_the_answer() {
    let mut bench = Bench::new();
    bench.send(&produce(5, &[0]));
    bench.lose_etcd();
    bench.pass(Duration::from_millis(14_500));
    bench.serve_produce("a:1", 6);
    assert_eq!(bench.answer(), None);
    bench.pass(Duration::from_secs(30));
    bench.fail_etcd();
    assert_eq!(bench.produced(9), [(0, 6, -1)]);
    assert_eq!(bench.dials("b:1") + bench.dials("c:1"), 0, "nothing is routed on stale knowledge");
}
