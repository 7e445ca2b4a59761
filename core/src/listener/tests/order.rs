//! Order: of answers, and of batches.

use super::*;
use crate::kafka::ApiVersionsRequest;

#[test]
fn answers_leave_in_request_order() {
    let mut bench = Bench::new();
    let mut sent = BytesMut::new();
    sent.put_slice(&produce(1, &[0]));
    sent.put_slice(&metadata(2));
    sent.put_slice(&frame(3, 3, &ApiVersionsRequest::default()));
    sent.put_slice(&produce(4, &[1]));
    bench.send(&sent);
    bench.serve_produce("b:1", 0);
    assert_eq!(bench.answer(), None);
    bench.serve_produce("a:1", 0);
    let answers: Vec<_> = std::iter::from_fn(|| bench.answer()).map(|frame| correlation_id(&frame)).collect();
    assert_eq!(answers, [1, 2, 3, 4]);
}

#[test]
fn requests_are_pipelined() {
    let mut bench = Bench::new();
    for number in 1..=3 {
        bench.send(&produce(number, &[0]));
    }
    for number in 1..=3 {
        assert_eq!(correlation_id_of_request(&bench.taken("a:1")), number);
    }
}

#[test]
fn a_refused_batch_is_not_overtaken() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.send(&produce(2, &[0]));
    bench.own(0, 2);
    bench.serve_produce("a:1", 6);
    bench.send(&produce(3, &[0]));
    assert_eq!(bench.dials("c:1"), 0, "what is in flight is awaited");
    bench.serve_produce("a:1", 6);
    assert_eq!(correlation_id_of_request(&bench.taken("c:1")), 1);
    assert!(!bench.has_request("c:1"), "one at a time");
    bench.reply("c:1", &accepted(1));
    assert_eq!(correlation_id_of_request(&bench.taken("c:1")), 2);
    bench.reply("c:1", &accepted(2));
    assert_eq!(correlation_id_of_request(&bench.taken("c:1")), 3);
    bench.reply("c:1", &accepted(3));
    assert_eq!([bench.code(), bench.code(), bench.code()], [0, 0, 0]);
}

#[test]
fn a_later_batch_in_the_log_ends_the_earlier_one() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.send(&produce(2, &[0]));
    bench.serve_produce("a:1", 6);
    assert_eq!(bench.answer(), None);
    bench.serve_produce("a:1", 0);
    assert_eq!([bench.code(), bench.code()], [6, 0]);
}

#[test]
fn an_owner_that_moves_waits_for_what_is_in_flight() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.own(0, 1);
    bench.run();
    bench.send(&produce(2, &[0]));
    assert_eq!(bench.dials("b:1"), 0);
    bench.serve_produce("a:1", 0);
    assert_eq!(correlation_id_of_request(&bench.taken("b:1")), 2);
}

#[test]
fn a_dead_owner_is_replaced_without_a_change_of_order() {
    let mut bench = Bench::new();
    bench.deaf.insert("a:1".into());
    bench.send(&produce(1, &[0]));
    bench.send(&produce(2, &[0]));
    bench.pass(Duration::from_secs(5));
    let taker = if bench.has_request("b:1") { "b:1" } else { "c:1" };
    assert_eq!(correlation_id_of_request(&bench.taken(taker)), 1);
    assert!(!bench.has_request(taker));
    bench.reply(taker, &accepted(1));
    bench.send(&produce(3, &[0]));
    let next: Vec<_> = ["b:1", "c:1"].into_iter().filter(|address| bench.has_request(address)).collect();
    let [next] = next[..] else { panic!("one batch in flight, not {next:?}") };
    assert_eq!(correlation_id_of_request(&bench.taken(next)), 2);
}

#[test]
fn other_partitions_go_on_while_one_waits() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.own(0, 2);
    bench.run();
    bench.send(&produce(2, &[0, 1]));
    assert_eq!(produce_request(&bench.taken("b:1")).1, produce_of(-1, &[1]));
    bench.serve_produce("a:1", 0);
    assert_eq!(produce_request(&bench.taken("c:1")).1, produce_of(-1, &[0]));
}

#[test]
fn requests_that_wait_for_etcd_start_in_order() {
    let mut bench = Bench::new();
    bench.lose_etcd();
    bench.pass(Duration::from_secs(21));
    bench.send(&produce(1, &[0]));
    bench.send(&metadata(2));
    bench.send(&produce(3, &[0]));
    assert_eq!(bench.asked, [Question::Freshness], "one question for all that wait");
    assert!(bench.sockets.is_empty());
    bench.etcd_is_down = false;
    bench.run();
    assert_eq!(correlation_id_of_request(&bench.taken("a:1")), 1);
    assert_eq!(correlation_id_of_request(&bench.taken("a:1")), 3);
}

fn correlation_id_of_request(frame: &Bytes) -> i32 {
    RequestHeader::decode(frame).unwrap().0.correlation_id
}

fn accepted(correlation_id: i32) -> Bytes {
    let response = ProduceResponse {
        responses: vec![TopicProduceResponse { name: "t".into(), partition_responses: vec![answer(0, 0, 1)] }],
        throttle_time_ms: 0,
    };
    response_frame(correlation_id, 9, &response)
}
