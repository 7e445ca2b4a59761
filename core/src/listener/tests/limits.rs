//! What a peer cannot make the listener hold, send or remember.

use super::*;
use crate::kafka::{
    FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, MetadataRequestTopic, MetadataResponse,
};
use crate::tests::{Work, counted};

const MIB: usize = 1024 * 1024;

impl Bench {
    /// A snapshot with so many partitions of topic `t`.
    pub(super) fn with_partitions(count: usize) -> Self {
        let mut bench = Self::new();
        let partitions: Vec<String> = (0..count).map(|index| format!(r#"{{"Partition":{index}}}"#)).collect();
        let before = r#"{"Partition":0},{"Partition":1},{"Partition":2}"#;
        bench.put("/kafscale/metadata/snapshot", &SNAPSHOT.replace(before, &partitions.join(",")));
        bench.run();
        bench
    }

    fn read_of<R: Request>(&mut self, address: &str) -> R {
        let frame = self.taken(address);
        let (header, body_at) = RequestHeader::decode(&frame).unwrap();
        R::decode(&frame.slice(body_at..), header.api_version).unwrap()
    }
}

fn named_metadata(names: usize) -> Bytes {
    let topic = MetadataRequestTopic { topic_id: [0; 16], name: Some("t".into()) };
    frame(1, 12, &MetadataRequest { topics: Some(vec![topic; names]), ..MetadataRequest::default() })
}

#[test]
fn nothing_is_remembered_of_a_request_that_waited_for_etcd() {
    for readable in [true, false] {
        for request in [metadata(1), frame(1, 3, &FindCoordinatorRequest::default()), Bytes::from_static(BAD_BODY)] {
            let mut bench = Bench::new();
            bench.lose_etcd();
            bench.pass(Duration::from_secs(21));
            bench.send(&request);
            // What will have no answer anyhow needs nothing to be known.
            let questions = usize::from(request != BAD_BODY);
            assert_eq!(bench.asked, [Question::Freshness][..questions]);
            if readable {
                bench.etcd_is_down = false;
                bench.run();
            } else {
                bench.fail_etcd();
            }
            assert_eq!(bench.listener.stats().open_requests, 0);
            assert!(bench.listener.shared.requests.is_empty(), "{request:?}");
        }
    }
}

#[test]
fn nothing_is_asked_for_a_client_that_is_being_closed() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.send(&frame(2, 9, &produce_of(0, &[1])));
    let [a, b] = ["a:1", "b:1"].map(|address| bench.open_socket(address).connection);
    let refusal = ProduceResponse {
        responses: vec![TopicProduceResponse { name: "t".into(), partition_responses: vec![answer(0, 6, -1)] }],
        throttle_time_ms: 0,
    };
    let refusal = BytesMut::from(&response_frame(1, 9, &refusal)[..]);
    bench.socket(b).state = SocketState::Over;
    bench.broker(input::Broker::Closed { connection: b, accepted_bytes: 0 });
    bench.broker(input::Broker::Received { connection: a, bytes: refusal });
    bench.run();
    assert!(bench.is_closed() && bench.listener.shared.requests.is_empty());
    assert_eq!(bench.asked, []);
}

/// A Metadata whose body does not decode.
const BAD_BODY: &[u8] = b"\0\0\0\x0a\0\x03\0\x01\0\0\0\x01\xff\xff";

#[test]
fn a_topic_named_over_and_over_does_not_blow_an_answer_up() {
    let mut bench = Bench::with_partitions(1_000);
    bench.send(&named_metadata(10));
    let frame = bench.answer().expect("an answer");
    let (_, body_at) = ResponseHeader::decode(&frame, ApiKey::Metadata, 12).unwrap();
    assert_eq!(MetadataResponse::decode(&frame.slice(body_at..), 12).unwrap().topics.len(), 10);
    bench.send(&named_metadata(10_000));
    assert_eq!(bench.answer(), None);
    assert!(bench.is_closed());
}

#[test]
fn a_topic_without_partitions_named_over_and_over_does_not_either() {
    let mut bench = Bench::new();
    bench.put("/kafscale/metadata/snapshot", &SNAPSHOT.replace(r#""Topic":"t","#, r#""ErrorCode":29,"Topic":"t","#));
    bench.run();
    bench.send(&named_metadata(10));
    assert!(bench.answer().is_some());
    bench.send(&named_metadata(10_001));
    assert!(bench.answer().is_none() && bench.is_closed());
}

#[test]
fn answers_that_cost_nothing_to_ask_for_leave_in_bounded_portions() {
    let mut bench = Bench::with_partitions(5_000);
    bench.send(&metadata(1));
    let one = bench.answer().expect("an answer").len();
    let mut sent = BytesMut::new();
    (0..500).for_each(|number| sent.put_slice(&metadata(number)));
    bench.send(&sent);
    assert!(bench.peer(CLIENT).written.len() <= MIB + one, "{}", bench.peer(CLIENT).written.len());
    assert!(bench.peer(CLIENT).paused, "nothing more is read meanwhile");

    bench.client(input::Client::Clogged { client: CLIENT });
    bench.run();
    let before = bench.peer(CLIENT).written.len();
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.peer(CLIENT).written.len(), before, "it does not take its answers");
    bench.client(input::Client::Drained { client: CLIENT });
    bench.run();
    bench.pass(Duration::from_secs(2));
    let answers: Vec<_> = std::iter::from_fn(|| bench.answer()).map(|frame| correlation_id(&frame)).collect();
    assert!(answers.into_iter().eq(0..500));
    assert!(!bench.peer(CLIENT).paused);
}

#[test]
fn many_partitions_count_for_what_they_cost() {
    let mut bench = Bench::with(|config| config.listener.inflight_bytes_per_client = MIB);
    let partitions: Vec<i32> = (0..20_000).map(|number| number % 2).collect();
    let mut request = produce_of(-1, &partitions);
    request.topic_data[0].partition_data.iter_mut().for_each(|data| data.records = None);
    let request = frame(1, 9, &request);
    assert!(request.len() < MIB / 4);
    bench.send(&request);
    assert!(bench.peer(CLIENT).paused, "a few bytes on the wire are many in memory");
    bench.serve_produce("a:1", 0);
    bench.serve_produce("b:1", 0);
    assert!(!bench.peer(CLIENT).paused);
}

fn find_coordinators(correlation_id: i32, keys: usize) -> Bytes {
    let request = FindCoordinatorRequest { coordinator_keys: vec!["g".into(); keys], ..Default::default() };
    frame(correlation_id, 4, &request)
}

#[test]
fn what_waits_to_be_answered_from_memory_is_decoded_once() {
    let mut bench = Bench::new();
    bench.send(&produce(0, &[0]));
    let before = counted(Work::Decode);
    let mut sent = BytesMut::new();
    for number in 1..=20 {
        sent.put_slice(&metadata(number));
        sent.put_slice(&find_coordinators(number, 3));
    }
    bench.send(&sent);
    assert_eq!(bench.answer(), None, "their turn has not come");
    assert_eq!(counted(Work::Decode) - before, 40);
    bench.serve_produce("a:1", 0);
    let with_produce = counted(Work::Decode);
    assert_eq!(std::iter::from_fn(|| bench.answer()).count(), 41);
    assert!(with_produce - before <= 40 + 2, "{} for its request and answer", with_produce - before - 40);
}

#[test]
fn names_that_wait_count_for_what_they_cost() {
    for request in [named_metadata(3_000), find_coordinators(1, 3_000)] {
        assert!(request.len() < MIB / 16);
        let mut bench = Bench::with(|config| config.listener.inflight_bytes_per_client = MIB / 2);
        bench.send(&produce(0, &[0]));
        bench.send(&request);
        assert!(bench.peer(CLIENT).paused, "a few bytes on the wire are many in memory");
        bench.serve_produce("a:1", 0);
        assert!(!bench.peer(CLIENT).paused);
        assert_eq!(std::iter::from_fn(|| bench.answer()).count(), 2);
    }
}

#[test]
fn what_came_before_a_request_without_an_answer_is_answered() {
    let mut bench = Bench::new();
    let mut sent = BytesMut::from(&produce(1, &[0])[..]);
    sent.put_slice(&metadata(2));
    sent.put_slice(BAD_BODY);
    sent.put_slice(&metadata(3));
    bench.send(&sent);
    assert!(!bench.is_closed());
    bench.serve_produce("a:1", 0);
    let answers: Vec<_> = std::iter::from_fn(|| bench.answer()).map(|frame| correlation_id(&frame)).collect();
    assert_eq!((answers, bench.is_closed()), (vec![1, 2], true));
}

#[test]
fn nothing_is_sent_of_what_follows_a_request_that_cannot_be_answered() {
    let mut bench = Bench::new();
    bench.lose_etcd();
    bench.pass(Duration::from_secs(21));
    let mut sent = BytesMut::from(&produce(1, &[0])[..]);
    sent.put_slice(BAD_BODY);
    sent.put_slice(&produce(2, &[1]));
    bench.send(&sent);
    bench.etcd_is_down = false;
    bench.run();
    bench.serve_produce("a:1", 0);
    assert_eq!((bench.code(), bench.is_closed(), bench.dials("b:1")), (0, true, 0));
}

fn join(correlation_id: i32) -> Bytes {
    let request = JoinGroupRequest {
        group_id: "g".into(),
        rebalance_timeout_ms: i32::MAX,
        protocol_type: "consumer".into(),
        ..JoinGroupRequest::default()
    };
    frame(correlation_id, 4, &request)
}

#[test]
fn a_held_join_ends_with_its_client() {
    let mut bench = Bench::new();
    bench.put("/kafscale/group-leases/g", "0");
    bench.run();
    bench.send(&join(1));
    bench.taken("a:1");
    let settling = JoinGroupResponse { error_code: ErrorCode(27), member_id: "m".into(), ..Default::default() };
    bench.reply("a:1", &response_frame(1, 4, &settling));
    assert_eq!(bench.answer(), None, "held");
    bench.leave();
    assert!(bench.listener.is_idle(), "nobody is there to be a member of the group");
}

#[test]
fn a_client_that_leaves_its_group_and_goes_has_left_it() {
    let mut bench = Bench::new();
    bench.put("/kafscale/group-leases/g", "0");
    bench.run();
    let member = crate::kafka::MemberIdentity { member_id: "m".into(), group_instance_id: None };
    let request = LeaveGroupRequest { group_id: "g".into(), members: vec![member], ..LeaveGroupRequest::default() };
    bench.send(&frame(1, 4, &request));
    bench.leave();
    bench.taken("a:1");
    bench.reply("a:1", &response_frame(1, 4, &LeaveGroupResponse { error_code: ErrorCode(25), ..Default::default() }));
    assert_eq!(bench.read_of::<LeaveGroupRequest>("a:1").member_id, "m");
    bench.reply("a:1", &response_frame(1, 1, &LeaveGroupResponse::default()));
    assert!(bench.listener.is_idle());
}

#[test]
fn a_broker_that_never_answers_does_not_keep_a_client_that_is_gone() {
    let mut bench = Bench::new();
    let request = ProduceRequest { timeout_ms: i32::MAX, ..produce_of(-1, &[0]) };
    bench.send(&frame(1, 9, &request));
    bench.leave();
    assert!(!bench.listener.is_idle(), "it is carried out");
    bench.pass(Duration::from_secs(300));
    assert!(bench.listener.is_idle());
    assert_eq!(bench.timers.next().map(|timeout| matches!(timeout.reason, Timer::ClusterReload(_))), Some(true));
}

#[test]
fn commits_of_one_client_do_not_overtake_each_other() {
    use crate::kafka::{OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    let commit = |number, offset| {
        let partitions = vec![OffsetCommitRequestPartition { committed_offset: offset, ..Default::default() }];
        let topics = vec![OffsetCommitRequestTopic { name: "t".into(), partitions }];
        frame(number, 3, &OffsetCommitRequest { group_id: "g".into(), topics, ..Default::default() })
    };
    let mut bench = Bench::new();
    bench.put("/kafscale/group-leases/g", "0");
    bench.run();
    bench.send(&commit(1, 10));
    bench.send(&frame(2, 4, &HeartbeatRequest { group_id: "g".into(), ..HeartbeatRequest::default() }));
    bench.send(&commit(3, 20));
    let number = |frame: Bytes| RequestHeader::decode(&frame).unwrap().0.correlation_id;
    assert_eq!([number(bench.taken("a:1")), number(bench.taken("a:1"))], [1, 2]);
    assert!(!bench.has_request("a:1"), "the first may have to be sent again");
    bench.hang_up("a:1", 0);
    assert_eq!([number(bench.taken("a:1")), number(bench.taken("a:1"))], [1, 2]);
    bench.reply("a:1", &response_frame(1, 3, &crate::kafka::OffsetCommitResponse::default()));
    assert_eq!(number(bench.taken("a:1")), 3);
}
