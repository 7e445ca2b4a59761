//! Large answers of brokers: room for them, and who waits for it.

use super::*;
use crate::kafka::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, ListOffsetsPartition,
    ListOffsetsRequest, ListOffsetsTopic, PartitionData, Record,
};

const OTHER: ClientId = ClientId(8);
const LIMIT: usize = 150_000;
const BEGINNING: usize = 1_000;

fn fetch(correlation_id: i32, partitions: &[i32]) -> Bytes {
    let partitions = partitions.iter().map(|partition| FetchPartition { partition: *partition, ..Default::default() });
    let topic = FetchTopic { topic: "t".into(), topic_id: [0; 16], partitions: partitions.collect() };
    frame(
        correlation_id,
        11,
        &FetchRequest { max_wait_ms: 500, min_bytes: 1, topics: vec![topic], ..Default::default() },
    )
}

/// An answer of about 100 KB.
fn large(correlation_id: i32, partition: i32) -> Bytes {
    let record = Record { value: Some(vec![b'x'; 100_000].into()), ..Record::default() };
    let data = PartitionData {
        partition_index: partition,
        high_watermark: 1,
        records: Some(build_batch(0, [record])),
        ..PartitionData::default()
    };
    let topic = FetchableTopicResponse { topic: "t".into(), topic_id: [0; 16], partitions: vec![data] };
    response_frame(correlation_id, 11, &FetchResponse { responses: vec![topic], ..FetchResponse::default() })
}

/// Client 7 fetches `partitions`, client 8 partition 1 of `b:1` over a connection of its own, whose id is given back.
fn two_consumers(partitions: &[i32]) -> (Bench, BrokerConnectionId) {
    let mut bench = Bench::with(|config| config.listener.answer_memory_bytes = LIMIT);
    bench.accept(OTHER);
    bench.send_from(OTHER, &fetch(2, &[1]));
    let of_other = bench.open_socket("b:1").connection;
    bench.send(&fetch(1, partitions));
    (bench, of_other)
}

impl Bench {
    fn broker_sends(&mut self, connection: BrokerConnectionId, bytes: &[u8]) {
        self.broker(input::Broker::Received { connection, bytes: BytesMut::from(bytes) });
        self.run();
    }

    fn held(&self) -> usize {
        self.listener.stats().answer_bytes
    }

    /// The connection of client 7 to the owner of partition 1.
    fn second_of_b(&mut self) -> BrokerConnectionId {
        self.sockets.iter().rfind(|socket| socket.address == "b:1").unwrap().connection
    }
}

#[test]
fn an_answer_without_room_is_not_read_until_there_is_some() {
    let (mut bench, of_other) = two_consumers(&[0]);
    let (first, second) = (large(1, 0), large(2, 1));
    bench.reply("a:1", &first[..BEGINNING]);
    assert_eq!(bench.held(), first.len(), "it will need that much");
    bench.broker_sends(of_other, &second[..BEGINNING]);
    assert!(bench.socket(of_other).paused);
    assert_eq!(bench.held(), first.len());
    bench.reply("a:1", &first[BEGINNING..]);
    assert_eq!(bench.answer(), Some(first));
    assert!(bench.socket(of_other).paused, "it may still wait in the driver");
    bench.pass(Duration::from_millis(20));
    assert!(!bench.socket(of_other).paused);
    bench.broker_sends(of_other, &second[BEGINNING..]);
    assert_eq!(bench.peer(OTHER).written.len(), second.len());
    assert_eq!(bench.held(), 0);
    let answers = BudgetStats { limit: LIMIT as u64, waits: 1, refusals: 0 };
    assert_eq!(bench.listener.stats().answers, answers);
}

#[test]
fn a_client_that_does_not_take_its_answers_holds_their_room() {
    let (mut bench, of_other) = two_consumers(&[0]);
    bench.reply("a:1", &large(1, 0));
    bench.client(input::Client::Clogged { client: CLIENT });
    bench.pass(Duration::from_secs(1));
    bench.broker_sends(of_other, &large(2, 1)[..BEGINNING]);
    assert!(bench.socket(of_other).paused);
    bench.client(input::Client::Drained { client: CLIENT });
    bench.run();
    assert!(!bench.socket(of_other).paused);
    bench.broker_sends(of_other, &large(2, 1)[BEGINNING..]);
    assert_eq!(bench.held(), 0);

    bench.send(&fetch(3, &[0]));
    bench.reply("a:1", &large(3, 0));
    bench.client(input::Client::Clogged { client: CLIENT });
    bench.send(&fetch(4, &[0]));
    assert_eq!(bench.held(), large(3, 0).len());
    bench.leave();
    assert_eq!(bench.held(), 0, "whoever goes gives everything back");
}

#[test]
fn the_parts_of_one_answer_never_wait_for_each_other() {
    let (mut bench, of_other) = two_consumers(&[0, 1]);
    let of_first = bench.second_of_b();
    assert_ne!(of_first, of_other);
    bench.reply("a:1", &large(1, 0));
    assert_eq!(bench.answer(), None, "the other part is to come");
    bench.broker_sends(of_other, &large(2, 1)[..BEGINNING]);
    bench.broker_sends(of_first, &large(1, 1)[..BEGINNING]);
    assert_eq!((bench.socket(of_other).paused, bench.socket(of_first).paused), (true, false));
    assert_eq!(bench.held(), 2 * large(1, 0).len(), "more than there is, for else nothing could leave");
    bench.broker_sends(of_first, &large(1, 1)[BEGINNING..]);
    assert!(bench.answer().is_some_and(|answer| answer.len() > 200_000));
    bench.pass(Duration::from_millis(20));
    assert!(!bench.socket(of_other).paused);
}

#[test]
fn what_came_whole_is_held_all_the_same() {
    let (mut bench, of_other) = two_consumers(&[0]);
    bench.reply("a:1", &large(1, 0)[..BEGINNING]);
    bench.broker_sends(of_other, &large(2, 1)[..BEGINNING]);
    assert!(bench.socket(of_other).paused);
    // It was on its way when its connection was paused.
    bench.broker_sends(of_other, &large(2, 1)[BEGINNING..]);
    assert_eq!(bench.peer(OTHER).written.len(), large(2, 1).len());
    assert!(!bench.socket(of_other).paused);
}

#[test]
fn waiting_for_room_ends_with_the_time_of_the_request() {
    let (mut bench, of_other) = two_consumers(&[0]);
    bench.reply("a:1", &large(1, 0));
    bench.client(input::Client::Clogged { client: CLIENT });
    bench.broker_sends(of_other, &large(2, 1)[..BEGINNING]);
    bench.pass(Duration::from_secs(29));
    assert_eq!(bench.peer(OTHER).written.len(), 0);
    bench.pass(Duration::from_secs(2));
    let answer = take_frame(&mut bench.peer(OTHER).written).expect("an answer");
    let (_, body_at) = ResponseHeader::decode(&answer, ApiKey::Fetch, 11).unwrap();
    let response = FetchResponse::decode(&answer.slice(body_at..), 11).unwrap();
    assert_eq!(response.responses[0].partitions[0].error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(bench.listener.stats().answers.refusals, 1);
    assert_eq!(bench.held(), large(1, 0).len());
    bench.client(input::Client::Drained { client: CLIENT });
    assert_eq!(bench.held(), 0);
}

#[test]
fn a_lost_connection_gives_its_room_back() {
    let (mut bench, of_other) = two_consumers(&[0]);
    bench.reply("a:1", &large(1, 0)[..BEGINNING]);
    bench.broker_sends(of_other, &large(2, 1)[..BEGINNING]);
    bench.hang_up("a:1", u64::MAX);
    assert!(!bench.socket(of_other).paused);
    assert_eq!(bench.held(), large(2, 1).len());
    bench.client(input::Client::Closed { client: OTHER });
    bench.run();
    assert_eq!(bench.held(), 0);
}

#[test]
fn a_paused_client_reads_its_brokers_again_only_when_both_reasons_are_over() {
    let (mut bench, of_other) = two_consumers(&[0]);
    bench.reply("a:1", &large(1, 0)[..BEGINNING]);
    bench.broker_sends(of_other, &large(2, 1)[..BEGINNING]);
    bench.client(input::Client::Clogged { client: OTHER });
    bench.client(input::Client::Drained { client: OTHER });
    bench.run();
    assert!(bench.socket(of_other).paused, "there is no room");
    bench.client(input::Client::Clogged { client: OTHER });
    bench.hang_up("a:1", u64::MAX);
    assert!(bench.socket(of_other).paused, "its client does not take answers");
    bench.client(input::Client::Drained { client: OTHER });
    bench.run();
    assert!(!bench.socket(of_other).paused);
}

#[test]
fn a_wait_for_room_and_for_the_client_at_once_is_excused_once() {
    let (mut bench, of_other) = two_consumers(&[0]);
    bench.reply("a:1", &large(1, 0)[..BEGINNING]);
    bench.broker_sends(of_other, &large(2, 1)[..BEGINNING]);
    bench.client(input::Client::Clogged { client: OTHER });
    bench.pass(Duration::from_secs(20));
    bench.client(input::Client::Drained { client: OTHER });
    bench.hang_up("a:1", u64::MAX);
    assert!(!bench.socket(of_other).paused);
    bench.pass(Duration::from_secs(29));
    assert_eq!(bench.socket(of_other).state, SocketState::Open);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.socket(of_other).state, SocketState::Over, "the broker says no more");
}

/// An answer in version 11 that is as long as this; in version 12 it is some bytes shorter.
fn as_long_as(bytes: usize) -> Bytes {
    let answer = |records: usize| {
        let data = PartitionData { high_watermark: 1, records: Some(vec![b'x'; records].into()), ..Default::default() };
        let topic = FetchableTopicResponse { topic: "t".into(), topic_id: [0; 16], partitions: vec![data] };
        response_frame(1, 11, &FetchResponse { responses: vec![topic], ..FetchResponse::default() })
    };
    let around = answer(0).len();
    let answer = answer(bytes - around);
    assert_eq!(answer.len(), bytes);
    answer
}

#[test]
fn an_answer_that_is_shorter_in_the_version_asked_in_gives_all_of_its_room_back() {
    use crate::listener::answer_memory::LARGE;
    // Large as the broker sends it, and not large as the client gets it; then large as both.
    for bytes in [LARGE + 1, 2 * LARGE] {
        let mut bench = Bench::with(|config| config.listener.answer_memory_bytes = LIMIT);
        bench.versions = vec![(ApiKey::Fetch, VersionRange::new(4, 11))];
        let asked = FetchPartition { partition: 0, ..FetchPartition::default() };
        let topic = FetchTopic { topic: "t".into(), topic_id: [0; 16], partitions: vec![asked] };
        let request = FetchRequest { max_wait_ms: 500, min_bytes: 1, topics: vec![topic], ..FetchRequest::default() };
        for _ in 0..2 {
            bench.send(&frame(1, 12, &request));
            let sent = as_long_as(bytes);
            bench.reply("a:1", &sent[..BEGINNING]);
            assert_eq!(bench.held(), bytes);
            bench.reply("a:1", &sent[BEGINNING..]);
            let got = bench.answer().expect("it is answered");
            assert!(got.len() < bytes, "{} of {bytes}", got.len());
            assert_eq!(bench.held(), 0);
            bench.pass(Duration::from_millis(20));
        }
        bench.leave();
        assert!(bench.listener.is_idle());
    }
}

#[test]
fn what_a_broker_cannot_be_asked_leaves_the_answer_in_front_in_its_place() {
    let mut bench = Bench::with(|config| config.listener.answer_memory_bytes = LIMIT);
    bench.versions = vec![(ApiKey::ListOffsets, VersionRange::new(100, 100))];
    bench.accept(OTHER);
    bench.send_from(OTHER, &fetch(2, &[1]));
    bench.reply("b:1", &large(2, 1)[..BEGINNING]);
    bench.send(&fetch(1, &[0]));
    bench.reply("a:1", &large(1, 0)[..BEGINNING]);
    let of_a = bench.open_socket("a:1").connection;
    let before = (bench.held(), bench.listener.stats().answers);
    assert!(bench.socket(of_a).paused);
    let asked = ListOffsetsPartition { partition_index: 0, timestamp: -1, ..ListOffsetsPartition::default() };
    let topic = ListOffsetsTopic { name: "t".into(), partitions: vec![asked] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() };
    bench.taken("a:1");
    bench.send(&frame(5, 1, &request));
    assert!(!bench.has_request("a:1") && bench.socket(of_a).paused);
    assert_eq!((bench.held(), bench.listener.stats().answers), before, "it keeps its turn");
}

#[test]
fn answers_to_later_requests_wait_although_their_client_holds_one() {
    let (mut bench, of_other) = two_consumers(&[0, 1]);
    bench.send(&fetch(5, &[0]));
    let (of_a, of_b) = (bench.open_socket("a:1").connection, bench.second_of_b());
    bench.reply("a:1", &large(1, 0));
    bench.reply("a:1", &large(5, 0)[..BEGINNING]);
    assert!(bench.socket(of_a).paused, "it is of no use before the other part of the first has come");
    assert_eq!(bench.held(), large(1, 0).len());
    bench.broker_sends(of_other, &large(2, 1)[..BEGINNING]);
    assert!(bench.socket(of_other).paused);
    bench.broker_sends(of_b, &large(1, 1));
    assert!(bench.answer().is_some_and(|answer| answer.len() > 200_000));
    bench.pass(Duration::from_millis(20));
    assert_eq!((bench.socket(of_a).paused, bench.socket(of_other).paused), (false, true), "it came first");
    bench.reply("a:1", &large(5, 0)[BEGINNING..]);
    assert_eq!(bench.answer(), Some(large(5, 0)));
    bench.pass(Duration::from_millis(20));
    assert!(!bench.socket(of_other).paused);
}

#[test]
fn what_stands_in_front_of_the_oldest_request_does_not_wait() {
    let (mut bench, _) = two_consumers(&[0, 1]);
    bench.send(&fetch(5, &[1]));
    let of_b = bench.second_of_b();
    bench.reply("a:1", &large(1, 0));
    // Its other part is sent again behind the next request.
    let refused = PartitionData {
        partition_index: 1,
        error_code: ErrorCode::NOT_LEADER_OR_FOLLOWER,
        records: Some(Bytes::new()),
        ..PartitionData::default()
    };
    let topic = FetchableTopicResponse { topic: "t".into(), topic_id: [0; 16], partitions: vec![refused] };
    let refusal = response_frame(1, 11, &FetchResponse { responses: vec![topic], ..FetchResponse::default() });
    bench.broker_sends(of_b, &refusal);
    bench.broker_sends(of_b, &large(5, 1)[..BEGINNING]);
    assert!(!bench.socket(of_b).paused, "the rest of the first comes behind it");
    bench.broker_sends(of_b, &large(5, 1)[BEGINNING..]);
    assert_eq!((bench.answer(), bench.held()), (None, 2 * large(1, 0).len()));
    bench.broker_sends(of_b, &large(1, 1));
    assert!(bench.answer().is_some_and(|answer| answer.len() > 200_000));
    assert_eq!(bench.answer(), Some(large(5, 1)));
    assert_eq!(bench.held(), 0);
}

#[test]
fn an_oldest_produce_needs_what_stands_in_front_of_other_batches() {
    let mut bench = Bench::with(|config| config.listener.answer_memory_bytes = LIMIT);
    bench.send(&produce(1, &[0]));
    bench.send(&fetch(2, &[0]));
    bench.send(&produce(3, &[0]));
    bench.send(&fetch(4, &[1]));
    bench.reply("b:1", &large(4, 1));
    assert_eq!(bench.held(), large(4, 1).len());
    // Whether its batch may be sent again is known when the fate of the next one is.
    bench.serve_produce("a:1", 6);
    bench.reply("a:1", &large(2, 0)[..BEGINNING]);
    let of_a = bench.open_socket("a:1").connection;
    assert!(!bench.socket(of_a).paused, "that comes behind it");
    bench.reply("a:1", &large(2, 0)[BEGINNING..]);
    bench.taken("a:1");
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.produced(9), [(0, 6, -1)]);
    assert_eq!(bench.answer(), Some(large(2, 0)));
    assert_eq!(bench.produced(9), [(0, 0, 100)]);
    assert_eq!(bench.answer(), Some(large(4, 1)));
}
