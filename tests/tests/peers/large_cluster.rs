//! A cluster whose description is larger than what a gRPC client takes in one message by default, 4 MiB.
//!
//! That it can fail was tried with a proxy that takes the first page of a prefix for all of it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::{Txn, TxnOp};
use kafscale_proxy_core::kafka::{
    MetadataRequest, PartitionProduceData, ProduceRequest, Record, TopicProduceData, build_batch,
};
use kafscale_proxy_tests::peers::{Brokers, Control, Deployment, Etcd, Metrics, Proxy, Wire, owner, write_snapshot};

/// Topics of the snapshot, 3 MB of it, and those that have leases still but are deleted.
const TOPICS: usize = 25;
const DELETED: usize = 35;
/// Partitions of each.
const PARTITIONS: usize = 1_000;
/// etcd takes so many operations in a transaction.
const AT_ONCE: usize = 128;
const READY_WITHIN: Duration = Duration::from_secs(30);

fn topic(index: usize) -> String {
    format!("wide-{index}")
}

fn number(index: usize) -> i32 {
    i32::try_from(index).expect("a small number")
}

/// Puts partition `p` of every topic at broker `p % 3`.
async fn write_leases(etcd: &Etcd) {
    let mut client = etcd.client().await;
    let partitions = (0..TOPICS + DELETED).flat_map(|index| (0..PARTITIONS).map(move |partition| (index, partition)));
    let puts: Vec<TxnOp> = partitions
        .map(|(index, partition)| {
            let key = format!("/kafscale/partition-leases/{}/{partition}", topic(index));
            TxnOp::put(key, (partition % 3).to_string(), None)
        })
        .collect();
    for puts in puts.chunks(AT_ONCE) {
        client.txn(Txn::new().and_then(puts)).await.expect("etcd takes the leases");
    }
}

/// Produces to one partition while only its owner answers: whoever sends it elsewhere gets nothing.
async fn check_route(brokers: &Brokers, proxy: &Proxy, topic: &str, partition: usize, owner: usize) {
    let others = || (0..brokers.count()).filter(|broker| *broker != owner);
    others().for_each(|broker| brokers.control(broker, Control::Silence(true)));
    let record = Record { value: Some(Bytes::from_static(b"routed")), ..Record::default() };
    let data = PartitionProduceData { index: number(partition), records: Some(build_batch(0, [record])) };
    let topic_data = vec![TopicProduceData { name: topic.into(), partition_data: vec![data] }];
    let request = ProduceRequest { acks: -1, timeout_ms: 15_000, topic_data, ..ProduceRequest::default() };
    let mut wire = Wire::connect(&proxy.kafka).await;
    let answer = tokio::time::timeout(Duration::from_secs(5), wire.ask(9, &request)).await;
    others().for_each(|broker| brokers.control(broker, Control::Silence(false)));
    let answer = answer.unwrap_or_else(|_| panic!("{topic}/{partition} was sent to another than {owner}"));
    let code = answer.responses[0].partition_responses[0].error_code;
    assert!(code.is_none(), "{topic}/{partition}: {code:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_thousand_leases_and_a_snapshot_of_three_megabytes() {
    let deployment = Deployment::start(&[]).await;
    let (partners, running) = (&deployment.partners, &deployment.proxy);
    let mut size = 0;
    write_leases(&partners.etcd).await;
    write_snapshot(&partners.etcd, |snapshot| {
        for index in 0..TOPICS {
            *snapshot = snapshot.clone().with_topic(&topic(index), number(PARTITIONS));
        }
        size = snapshot.to_json().len();
    })
    .await;
    assert!(size > 3_000_000, "the snapshot has {size} bytes");

    // The first has learned it piece by piece, the second has to read all of it before it is ready.
    let started = Instant::now();
    let mut restarted = Proxy::start(&partners.etcd.endpoint(), &partners.store, &[]);
    restarted.wait_until_ready(READY_WITHIN).await;
    println!("ready after {:?} with {} KiB", started.elapsed(), restarted.resident_kib());
    for proxy in [running, &restarted] {
        let everything = MetadataRequest { topics: None, ..MetadataRequest::default() };
        let answer = Wire::connect(&proxy.kafka).await.ask(12, &everything).await;
        let partitions: usize = answer.topics.iter().map(|topic| topic.partitions.len()).sum();
        assert_eq!((answer.topics.len(), partitions), (TOPICS + 1, TOPICS * PARTITIONS + 6));
        for (index, partition) in [(0, 0), (7, 500), (TOPICS - 1, PARTITIONS - 1)] {
            check_route(&partners.brokers, proxy, &topic(index), partition, partition % 3).await;
        }
    }
    let mut etcd = partners.etcd.client().await;
    let key = format!("/kafscale/partition-leases/{}/3", topic(TOPICS - 1));
    etcd.put(key, "2", None).await.expect("etcd runs");
    assert_eq!(owner(&partners.etcd, &topic(TOPICS - 1), 3).await, Some(2));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for proxy in [running, &restarted] {
        check_route(&partners.brokers, proxy, &topic(TOPICS - 1), 3, 2).await;
        let metrics = Metrics::read(&proxy.metrics.get("/metrics").await.text());
        assert!(metrics.sum("kafscale_proxy_knowledge_age_seconds", &["shard=\"0\"", "source=\"snapshot\""]) < 60.0);
    }
}
