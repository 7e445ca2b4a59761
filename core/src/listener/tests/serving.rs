//! What is served when: the TTL table, local answers, the orderly end.

use super::*;
use crate::kafka::{
    ApiVersionsRequest, ApiVersionsResponse, FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequestTopic,
    MetadataResponse, SaslHandshakeRequest,
};

impl Bench {
    fn body<M: Message>(&mut self, version: i16) -> M {
        let frame = self.answer().expect("an answer");
        let (_, body_at) = ResponseHeader::decode(&frame, M::KEY, version).unwrap();
        M::decode(&frame.slice(body_at..), version).unwrap()
    }

    fn ask_metadata(&mut self, version: i16, topics: Option<Vec<MetadataRequestTopic>>) -> MetadataResponse {
        self.send(&frame(1, version, &MetadataRequest { topics, ..MetadataRequest::default() }));
        self.body(version)
    }
}

/// Bytes of librdkafka 2.12, whose array count keeps the four bytes that it had reserved.
#[test]
fn what_follows_a_request_is_not_looked_at() {
    let mut bench = Bench::new();
    bench.send(b"\0\0\0\x19\0\x03\0\x0c\0\0\0\x03\0\x07rdkafka\0\0\0\0\0\x01\0\0");
    let answer: MetadataResponse = bench.body(12);
    assert!(!answer.topics.is_empty(), "null asks for all topics");
    assert!(!bench.is_closed());
}

fn by_name(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic { topic_id: [0; 16], name: Some(name.into()) }
}

#[test]
fn api_versions_is_always_answered() {
    let mut bench = Bench::new();
    bench.lose_etcd();
    bench.pass(Duration::from_secs(21));
    bench.send(&frame(1, 3, &ApiVersionsRequest::default()));
    assert_eq!(bench.body::<ApiVersionsResponse>(3).error_code, ErrorCode::NONE);
    bench.send(b"\0\0\0\x0c\0\x12\0\x09\0\0\0\x02\xff\xff\x07\x07");
    assert_eq!(bench.body::<ApiVersionsResponse>(0).error_code, ErrorCode::UNSUPPORTED_VERSION);
    bench.send(&frame(3, 4, &ApiVersionsRequest::default()));
    assert_eq!(bench.body::<ApiVersionsResponse>(4).error_code, ErrorCode::NONE);
    assert_eq!(bench.asked, []);
}

#[test]
fn stale_knowledge_is_read_once_and_then_refused_and_closed() {
    let mut bench = Bench::new();
    bench.lose_etcd();
    bench.pass(Duration::from_secs(21));
    bench.send(&metadata(1));
    bench.send(&produce(2, &[0]));
    assert_eq!(bench.answer(), None);
    bench.fail_etcd();
    assert_eq!(bench.answer().map(|frame| correlation_id(&frame)), Some(1));
    assert_eq!(bench.answer(), None);
    assert!(bench.is_closed());
    assert!(bench.sockets.is_empty());
}

#[test]
fn an_answer_from_memory_is_fresh_when_it_leaves_not_when_it_was_asked_for() {
    let mut bench = Bench::new();
    bench.lose_etcd();
    bench.pass(Duration::from_secs(19));
    bench.send(&produce(1, &[0]));
    bench.send(&metadata(2));
    bench.send(&frame(3, 3, &FindCoordinatorRequest::default()));
    bench.pass(Duration::from_secs(2));
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0, "what was sent is finished");
    assert_eq!(bench.answer(), None, "etcd is asked before the rest is answered");
    bench.fail_etcd();
    let answer: MetadataResponse = bench.body(12);
    assert_eq!((answer.brokers.len(), bench.is_closed()), (0, true));
}

#[test]
fn fresh_knowledge_serves_while_etcd_is_down() {
    let mut bench = Bench::new();
    bench.lose_etcd();
    bench.pass(Duration::from_secs(19));
    bench.send(&produce(1, &[0]));
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0);
}

#[test]
fn acks_0_that_is_refused_gets_no_answer() {
    let mut bench = Bench::new();
    bench.lose_etcd();
    bench.pass(Duration::from_secs(21));
    bench.send(&frame(2, 9, &produce_of(0, &[0])));
    bench.fail_etcd();
    assert_eq!(bench.answer(), None);
    assert!(bench.is_closed());
}

#[test]
fn versions_outside_of_the_range_get_35_in_their_layout() {
    let mut bench = Bench::new();
    bench.send(&frame(1, 7, &crate::kafka::CreateTopicsRequest::default()));
    let frame = bench.answer().expect("an answer");
    assert_eq!(correlation_id(&frame), 1);
    assert!(!bench.is_closed());
    assert!(bench.sockets.is_empty());
}

#[test]
fn no_sasl() {
    let mut bench = Bench::new();
    bench.send(&frame(1, 1, &SaslHandshakeRequest { mechanism: "PLAIN".into() }));
    let response: crate::kafka::SaslHandshakeResponse = bench.body(1);
    assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_SASL_MECHANISM);
}

#[test]
fn metadata_names_the_proxy_only() {
    let mut bench = Bench::new();
    for version in 0..=12 {
        let topics = if version == 0 { Some(Vec::new()) } else { None };
        let response = bench.ask_metadata(version, topics);
        let [broker] = &response.brokers[..] else { panic!("one broker") };
        assert_eq!((broker.node_id, &*broker.host, broker.port), (0, "proxy", 9092));
        assert_eq!(response.topics.len(), 1);
        let partitions: Vec<_> = response.topics[0]
            .partitions
            .iter()
            .map(|partition| (partition.partition_index, partition.leader_id, partition.replica_nodes.clone()))
            .collect();
        assert_eq!(partitions, [0, 1, 2].map(|index| (index, 0, vec![0])));
        if version >= 2 {
            assert_eq!(response.cluster_id.as_deref(), Some("c"));
        }
        if version >= 8 {
            assert_eq!(response.topics[0].topic_authorized_operations, i32::MIN);
        }
    }
}

#[test]
fn metadata_by_name_and_by_id() {
    let mut bench = Bench::new();
    assert!(bench.ask_metadata(1, Some(Vec::new())).topics.is_empty(), "none is none from version 1");
    let response = bench.ask_metadata(9, Some(vec![by_name("x"), by_name("t"), by_name("t")]));
    let codes: Vec<_> = response.topics.iter().map(|topic| (topic.name.as_deref(), topic.error_code.0)).collect();
    assert_eq!(codes, [(Some("x"), 3), (Some("t"), 0), (Some("t"), 0)]);
    let id = bench.ask_metadata(12, Some(vec![by_name("t")])).topics[0].topic_id;
    let ids = |name: Option<&str>, topic_id| MetadataRequestTopic { topic_id, name: name.map(Into::into) };
    let asked = vec![ids(None, id), ids(None, [9; 16]), by_name("t"), by_name("x")];
    let response = bench.ask_metadata(12, Some(asked));
    let codes: Vec<_> = response.topics.iter().map(|topic| (topic.name.as_deref(), topic.error_code.0)).collect();
    assert_eq!(codes, [(Some("t"), 0), (None, 100), (Some("t"), 0), (Some("x"), 3)]);
    assert_eq!(response.topics[1].topic_id, [9; 16]);
}

#[test]
fn metadata_of_a_topic_with_an_error_names_no_partitions() {
    let mut bench = Bench::new();
    let snapshot = r#"{"Brokers":[{"NodeID":0,"Host":"a","Port":1}],"Topics":[{"Topic":"t","ErrorCode":29,
        "Partitions":[{"Partition":0,"Leader":5}]}]}"#;
    bench.put("/kafscale/metadata/snapshot", snapshot);
    bench.run();
    let response = bench.ask_metadata(12, None);
    assert_eq!(response.topics[0].error_code.0, 29);
    assert!(response.topics[0].partitions.is_empty());
    assert_eq!(response.cluster_id, None);
}

#[test]
fn the_proxy_coordinates_every_group() {
    let mut bench = Bench::new();
    for version in 0..=4 {
        let key: crate::kafka::Str = "g".into();
        let request =
            FindCoordinatorRequest { key: key.clone(), key_type: 0, coordinator_keys: vec![key.clone(), key] };
        bench.send(&frame(1, version, &request));
        let response: FindCoordinatorResponse = bench.body(version);
        if version < 4 {
            let found = (response.error_code.0, response.node_id, &*response.host, response.port);
            assert_eq!(found, (0, 0, "proxy", 9092));
        } else {
            let found = response.coordinators.iter().map(|found| (&*found.key, found.error_code.0, found.port));
            assert_eq!(found.collect::<Vec<_>>(), [("g", 0, 9092), ("g", 0, 9092)]);
        }
        if version >= 1 {
            bench.send(&frame(1, version, &FindCoordinatorRequest { key_type: 1, ..request }));
            let response: FindCoordinatorResponse = bench.body(version);
            let code = response.coordinators.first().map_or(response.error_code, |found| found.error_code);
            assert_eq!(code, ErrorCode::UNSUPPORTED_VERSION);
        }
    }
}

#[test]
fn an_orderly_end() {
    let mut bench = Bench::new();
    bench.accept(ClientId(8));
    bench.send(&produce(1, &[0]));
    bench.with_listener(|listener, ctx, cluster, out| listener.drain(ctx, cluster, out));
    bench.run();
    assert!(bench.stopped_accepting);
    assert!(bench.peer(ClientId(8)).closed);
    assert!(!bench.is_closed() && bench.peer(CLIENT).paused);
    bench.accept(ClientId(9));
    bench.run();
    assert!(bench.peer(ClientId(9)).closed);
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0);
    assert!(bench.is_closed());
    assert!(bench.listener.is_idle());
    let stats = bench.listener.stats();
    assert_eq!((stats.clients, stats.open_requests, stats.waiting_requests), (0, 0, 0));
    assert_eq!((stats.broker_connections, stats.frame_bytes), (0, 0));
    assert_eq!((stats.requests, stats.turned_away), (1, 1));
}

#[test]
fn one_broker_writes_the_list_of_topics_and_any_reads() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[1]));
    bench.serve_produce("b:1", 0);
    bench.send(&frame(2, 4, &crate::kafka::DescribeConfigsRequest::default()));
    assert!(bench.has_request("b:1"), "over a connection that is open");
    bench.taken("b:1");
    bench.send(&frame(3, 1, &crate::kafka::CreateTopicsRequest::default()));
    assert!(bench.has_request("a:1"), "the same for all clients");

    let mut bench = Bench::new();
    bench.down.insert("a:1".into());
    bench.send(&frame(1, 1, &crate::kafka::CreateTopicsRequest::default()));
    assert!(bench.has_request("b:1") || bench.has_request("c:1"), "another one, when it cannot be reached");
}
