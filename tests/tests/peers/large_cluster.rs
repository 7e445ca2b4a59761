//! A cluster whose description is larger than what a gRPC client takes in one message by default, 4 MiB.
//!
//! That it can fail was tried with a proxy that takes the first page of a prefix for all of it, and with one that takes
//! messages up to the default only.

use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::{Txn, TxnOp};
use kafscale_proxy_core::kafka::{
    MetadataRequest, PartitionProduceData, ProduceRequest, Record, TopicProduceData, build_batch,
};
use kafscale_proxy_tests::peers::{Brokers, Control, Deployment, Etcd, Proxy, Wire, eventually, write_snapshot};

/// Topics of the snapshot, 4.8 MB of it, and those that have leases still but are deleted.
const TOPICS: usize = 40;
const DELETED: usize = 20;
/// Partitions of each.
const PARTITIONS: usize = 1_000;
/// etcd takes so many operations in a transaction.
const AT_ONCE: usize = 128;
const SHARDS: usize = 2;
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A request may have to wait for leases that are being read.
const ROUTED_WITHIN: Duration = Duration::from_secs(10);

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
    let answer = tokio::time::timeout(ROUTED_WITHIN, wire.ask(9, &request)).await;
    others().for_each(|broker| brokers.control(broker, Control::Silence(false)));
    let answer = answer.unwrap_or_else(|_| panic!("{topic}/{partition} was sent to another than {owner}"));
    let code = answer.responses[0].partition_responses[0].error_code;
    assert!(code.is_none(), "{topic}/{partition}: {code:?}");
}

/// Whether every shard has read all leases.
async fn knows_leases(proxy: &Proxy) -> bool {
    let page = proxy.metrics.get("/metrics").await.text();
    let ages = page.lines().filter(|line| line.starts_with("kafscale_proxy_knowledge_age_seconds{"));
    // A shard that has read nothing so far has no age.
    ages.filter(|line| line.contains("source=\"partition_leases\"")).count() == SHARDS
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_thousand_leases_and_a_snapshot_above_four_mebibytes() {
    let shards = SHARDS.to_string();
    let settings = [("KAFSCALE_PROXY_SHARDS", shards.as_str())];
    let deployment = Deployment::start(&settings).await;
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
    assert!(size > 4 << 20, "the snapshot has {size} bytes");

    // The first has learned it piece by piece, the second has to read all of it before it is ready.
    let started = Instant::now();
    let mut restarted = Proxy::start(&format!("http://{}", partners.etcd_link.address()), &partners.store, &settings);
    restarted.wait_until_ready(READY_WITHIN).await;
    println!("ready after {:?} with {} KiB", started.elapsed(), restarted.resident_kib());
    check_route(&partners.brokers, &restarted, &topic(0), 0, 0).await;
    for proxy in [running, &restarted] {
        eventually("all of it is learned", READY_WITHIN, async || {
            let everything = MetadataRequest { topics: None, ..MetadataRequest::default() };
            let answer = Wire::connect(&proxy.kafka).await.ask(12, &everything).await;
            let partitions: usize = answer.topics.iter().map(|topic| topic.partitions.len()).sum();
            (answer.topics.len(), partitions) == (TOPICS + 1, TOPICS * PARTITIONS + 6) && knows_leases(proxy).await
        })
        .await;
    }
    let mut etcd = partners.etcd.client().await;
    let key = format!("/kafscale/partition-leases/{}/3", topic(TOPICS - 1));
    etcd.put(key, "2", None).await.expect("etcd runs");
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Nor can they look up what they have not learned.
    partners.etcd_link.cut();
    let last = TOPICS - 1;
    for proxy in [running, &restarted] {
        for (index, partition, owner) in [(0, 0, 0), (7, 500, 2), (last, PARTITIONS - 1, 0), (last, 4, 1), (last, 3, 2)]
        {
            check_route(&partners.brokers, proxy, &topic(index), partition, owner).await;
        }
    }
}
