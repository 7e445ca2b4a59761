//! Everything together: etcd, an S3 store, three brokers, and the proxy in front of them.

use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::kafka::{PartitionProduceData, ProduceRequest, Record, TopicProduceData, build_batch};

use super::{Brokers, Etcd, Proxy, Relay, Store, Wire};

/// Topic of a deployment.
pub const TOPIC: &str = "orders";
/// Its partitions, two for each broker.
pub const PARTITIONS: usize = 6;

/// What the proxy works with: etcd, an S3 store, three brokers. They end with this value.
#[derive(Debug)]
pub struct Partners {
    /// The brokers, which need etcd to the last.
    pub brokers: Brokers,
    /// S3.
    pub store: Store,
    /// The proxy's way to etcd; brokers have their own.
    pub etcd_link: Relay,
    /// etcd.
    pub etcd: Etcd,
}

impl Partners {
    /// Starts them, with [`TOPIC`] in the snapshot and partition `p` at broker `p % 3`.
    pub async fn start() -> Self {
        let etcd = Etcd::start().await;
        let topic = (TOPIC, i32::try_from(PARTITIONS).expect("few partitions"));
        let brokers = Brokers::start(&etcd, &[topic]).await;
        let store = Store::start().await;
        let etcd_link = Relay::start(&etcd.address()).await;
        let partners = Self { brokers, store, etcd_link, etcd };
        partners.spread_partitions().await;
        partners
    }

    /// Writes one record to each partition at the broker that is to take it.
    async fn spread_partitions(&self) {
        for partition in 0..PARTITIONS {
            let mut wire = Wire::connect(&self.brokers.address(partition % self.brokers.count())).await;
            let response = wire.ask(9, &produce_request(partition, "spread")).await;
            let answer = &response.responses[0].partition_responses[0];
            assert!(answer.error_code.is_none(), "partition {partition}: {:?}", answer.error_code);
        }
    }
}

/// A running proxy with all its partners. Everything ends with this value.
#[derive(Debug)]
pub struct Deployment {
    /// The proxy.
    pub proxy: Proxy,
    /// What it works with.
    pub partners: Partners,
}

impl Deployment {
    /// Starts all of it, with these settings of the proxy.
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        Self::of(Partners::start().await, settings).await
    }

    /// Starts a proxy in front of partners that run, and waits until it is ready.
    pub async fn of(partners: Partners, settings: &[(&str, &str)]) -> Self {
        let mut proxy = Proxy::start(&format!("http://{}", partners.etcd_link.address()), &partners.store, settings);
        proxy.wait_until_ready(Duration::from_secs(30)).await;
        Self { proxy, partners }
    }
}

/// A Produce of one record to a partition of [`TOPIC`].
pub fn produce_request(partition: usize, value: &str) -> ProduceRequest {
    let record = Record { value: Some(Bytes::copy_from_slice(value.as_bytes())), ..Record::default() };
    ProduceRequest {
        acks: -1,
        timeout_ms: 15_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC.into(),
            partition_data: vec![PartitionProduceData {
                index: i32::try_from(partition).expect("few partitions"),
                records: Some(build_batch(0, [record])),
            }],
        }],
        ..ProduceRequest::default()
    }
}
