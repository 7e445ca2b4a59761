//! A second opinion on brokers: librdkafka's mock cluster, described in etcd as KafScale describes its own.

use std::time::Duration;

use kafscale_proxy_core::kafka::{ApiKey, Message, MetadataRequest, MetadataResponse, ResponseHeader};
use kafscale_proxy_core::model::broker::{ClusterSnapshot, SNAPSHOT_KEY};
use kafscale_proxy_tests::peers::{Client, Etcd, Job, PARTITIONS, Proxy, Store, TOPIC, Wire};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

const COUNT: usize = 200;
/// Node ids of the mock cluster begin here.
const FIRST_ID: i32 = 1;

async fn write_owner(etcd: &Etcd, partition: i32, broker: i32) {
    let key = format!("/kafscale/partition-leases/{TOPIC}/{partition}");
    etcd.client().await.put(key, broker.to_string(), None).await.expect("etcd runs");
}

/// A mock cluster with [`TOPIC`] spread over three brokers, and the etcd that says so.
async fn start() -> (MockCluster<'static, DefaultProducerContext>, Etcd) {
    let mock = MockCluster::new(3).expect("a mock cluster starts");
    let partitions = i32::try_from(PARTITIONS).expect("few partitions");
    mock.create_topic(TOPIC, partitions, 1).expect("a new topic");
    for partition in 0..partitions {
        mock.partition_leader(TOPIC, partition, Some(FIRST_ID + partition % 3)).expect("a partition of the topic");
    }
    let servers = mock.bootstrap_servers();
    let brokers = servers.split(',').zip(FIRST_ID..).map(|(address, id)| {
        let (host, port) = address.rsplit_once(':').expect("host:port");
        (id, host, port.parse().expect("a port"))
    });
    let mut snapshot = ClusterSnapshot::new("mock", brokers).with_topic(TOPIC, partitions);
    let first = servers.split(',').next().expect("three of them");
    let mut wire = Wire::connect(first).await;
    wire.send(12, &MetadataRequest::default()).await.expect("the mock cluster reads");
    let frame = wire.receive_frame().await.expect("the connection holds").expect("an answer");
    let (_, body) = ResponseHeader::decode(&frame, ApiKey::Metadata, 12).expect("a response header");
    // It writes one byte too many at the end of this answer.
    let metadata = MetadataResponse::decode(&frame.slice(body..frame.len() - 1), 12).expect("an answer");
    let topic = metadata.topics.iter().find(|topic| topic.name.as_ref().is_some_and(|name| name.as_str() == TOPIC));
    let topic = topic.expect("the topic");
    // It checks both in requests of clients, who have them from the snapshot.
    snapshot.topics[0].topic_id = topic.topic_id;
    for (partition, described) in snapshot.topics[0].partitions.iter_mut().zip(&topic.partitions) {
        partition.leader_epoch = described.leader_epoch;
    }
    let etcd = Etcd::start().await;
    etcd.client().await.put(SNAPSHOT_KEY, snapshot.to_json(), None).await.expect("etcd runs");
    for partition in 0..partitions {
        write_owner(&etcd, partition, FIRST_ID + partition % 3).await;
    }
    (mock, etcd)
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_move_under_writers() {
    let (mock, etcd) = start().await;
    let store = Store::start().await;
    let mut proxy = Proxy::start(&etcd.endpoint(), &store, &[]);
    proxy.wait_until_ready(Duration::from_secs(30)).await;

    let writers = [Client::Sarama, Client::Java, Client::Librdkafka];
    let writing = writers.into_iter().enumerate().map(|(writer, client)| {
        let job = Job::new(&proxy.kafka, TOPIC, PARTITIONS, COUNT);
        client.produce(Job { first: writer * 10_000, rate: Some(40), retries: Some(0), ..job })
    });
    let writing: Vec<_> = writing.collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (partition, leader) in [(0, 2), (4, 3), (5, 1)] {
        // The broker knows first; etcd follows while requests arrive.
        mock.partition_leader(TOPIC, partition, Some(leader)).expect("a partition of the topic");
        tokio::time::sleep(Duration::from_millis(200)).await;
        write_owner(&etcd, partition, leader).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    for (client, writing) in writers.into_iter().zip(writing) {
        let report = writing.report().await;
        // Between the two steps nobody knows the new leader, and a client is told to look again: no other code.
        assert!(report.delivered.len() + report.failures.len() == COUNT, "{client:?}: {:?}", report.failures);
        let expected = |failure: &String| failure.contains("leader") || failure.contains("NotLeader");
        assert!(report.failures.iter().all(expected), "{client:?}: {:?}", report.failures);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_is_over_costs_no_error() {
    let (mock, etcd) = start().await;
    let store = Store::start().await;
    let mut proxy = Proxy::start(&etcd.endpoint(), &store, &[]);
    proxy.wait_until_ready(Duration::from_secs(30)).await;

    let job = Job::new(&proxy.kafka, TOPIC, PARTITIONS, COUNT);
    let writing = Client::Librdkafka.produce(Job { rate: Some(40), retries: Some(0), ..job.clone() });
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        mock.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION]);
    }
    let report = writing.report().await;
    assert_eq!((report.delivered.len(), report.failures), (COUNT, vec![]));

    // Read without the proxy: it was written once, in order.
    let direct = Client::Librdkafka.consume(Job { bootstrap: mock.bootstrap_servers(), ..job.clone() }).report().await;
    let through = Client::Librdkafka.consume(job).report().await;
    for (how, report) in [("directly", direct), ("through the proxy", through)] {
        assert_eq!((report.records.len(), report.failures), (COUNT, vec![]), "{how}");
        for partition in 0..PARTITIONS {
            let of_partition = report.records.iter().filter(|r| usize::try_from(r.partition) == Ok(partition));
            let keys: Vec<&str> = of_partition.map(|record| record.key.as_str()).collect();
            let sent: Vec<String> =
                (partition..COUNT).step_by(PARTITIONS).map(|index| format!("key-{index}")).collect();
            assert_eq!(keys, sent, "{how}, partition {partition}");
        }
    }
}
