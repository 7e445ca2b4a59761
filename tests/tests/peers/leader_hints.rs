//! Brokers of other makes name themselves in tagged fields of their answers (KIP-951). A client that believed them would
//! dial a host behind the proxy.
//!
//! That it can fail was tried with a proxy that passes answers on as they came.

use bytes::Bytes;
use kafscale_proxy_core::kafka::{
    FetchPartition, FetchRequest, FetchTopic, Message, MetadataRequest, MetadataRequestTopic, Request, ResponseHeader,
};
use kafscale_proxy_core::model::broker::Fault;
use kafscale_proxy_tests::peers::{Client, Control, Deployment, Job, PARTITIONS, TOPIC, Wire, produce_request};

/// No address that a client can use.
const INNER: &str = "inner-broker.invalid";

/// A request's answer as it came, checked to be a whole one.
async fn frame<R: Request>(proxy: &str, version: i16, request: &R) -> Bytes {
    let mut wire = Wire::connect(proxy).await;
    wire.send(version, request).await.expect("the proxy reads requests");
    let frame = wire.receive_frame().await.expect("the connection holds").expect("an answer");
    let (_, body) = ResponseHeader::decode(&frame, R::KEY, version).expect("a response header");
    R::Response::decode(&frame.slice(body..), version).expect("an answer");
    frame
}

fn names_the_inner_host(bytes: &[u8]) -> bool {
    bytes.windows(INNER.len()).any(|part| part == INNER.as_bytes())
}

fn fetch(version: i16, partitions: &[usize], topic_id: [u8; 16]) -> FetchRequest {
    let partitions = partitions.iter().map(|index| FetchPartition {
        partition: i32::try_from(*index).expect("few partitions"),
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    });
    let partitions = partitions.collect();
    let topic = if version >= 13 {
        FetchTopic { topic_id, partitions, ..FetchTopic::default() }
    } else {
        FetchTopic { topic: TOPIC.into(), partitions, ..FetchTopic::default() }
    };
    FetchRequest { max_bytes: 1 << 20, session_epoch: -1, topics: vec![topic], ..FetchRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_learns_of_a_broker_behind_the_proxy() {
    let deployment = Deployment::start(&[]).await;
    let (proxy, brokers) = (&deployment.proxy.kafka, &deployment.partners.brokers);
    let hint = |count: usize| {
        for broker in (0..brokers.count()).flat_map(|broker| std::iter::repeat_n(broker, count)) {
            brokers.control(broker, Control::Inject(Fault::LeaderHints(INNER)));
        }
    };
    let topic_id = {
        let topic = MetadataRequestTopic { name: Some(TOPIC.into()), ..MetadataRequestTopic::default() };
        let request = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
        Wire::connect(proxy).await.ask(12, &request).await.topics[0].topic_id
    };
    // What a client without a proxy would get.
    hint(1);
    assert!(names_the_inner_host(&frame(&brokers.address(0), 12, &fetch(12, &[0], topic_id)).await));
    assert!(names_the_inner_host(&frame(&brokers.address(1), 9, &produce_request(1, "direct")).await));
    assert!(names_the_inner_host(&frame(&brokers.address(2), 13, &fetch(13, &[2], topic_id)).await));

    let all: Vec<usize> = (0..PARTITIONS).collect();
    for version in [12, 13] {
        // Of one broker, whose answer may pass as it came, and of three, whose answers become one.
        for partitions in [&all[..1], &all[..]] {
            hint(1);
            let request = fetch(version, partitions, topic_id);
            assert!(!names_the_inner_host(&frame(proxy, version, &request).await), "{version}: {partitions:?}");
            hint(1);
            let answer = Wire::connect(proxy).await.ask(version, &request).await;
            let data: Vec<_> = answer.responses.iter().flat_map(|topic| &topic.partitions).collect();
            assert_eq!(data.len(), partitions.len());
            assert!(data.iter().all(|data| data.error_code.is_none() && data.current_leader.is_none()), "{data:?}");
        }
    }
    hint(1);
    let mut several = produce_request(0, "several");
    let more = (1..PARTITIONS).flat_map(|index| produce_request(index, "several").topic_data.remove(0).partition_data);
    several.topic_data[0].partition_data.extend(more);
    for request in [produce_request(0, "one"), several] {
        assert!(!names_the_inner_host(&frame(proxy, 9, &request).await), "{request:?}");
        hint(1);
    }

    // librdkafka reads these fields; it says so when it cannot resolve a name.
    hint(100);
    let written = Client::Librdkafka.produce(Job::new(proxy, TOPIC, PARTITIONS, 60)).report().await;
    assert_eq!((written.delivered.len(), written.failures), (60, vec![]));
    let read = Client::Librdkafka.consume(Job::new(proxy, TOPIC, PARTITIONS, 60)).report().await;
    assert_eq!((read.records.len(), read.failures), (60, vec![]));
    let waiting = brokers.waiting_faults().await;
    assert!(waiting < 300, "no answer carried a hint");
}
