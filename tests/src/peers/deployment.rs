//! Everything together: etcd, an S3 store, three brokers, and the proxy in front of them.

use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::kafka::{PartitionProduceData, ProduceRequest, Record, TopicProduceData, build_batch};

use super::{Brokers, Etcd, Proxy, Store, Wire};

/// Topic of a deployment.
pub const TOPIC: &str = "orders";
/// Its partitions, two for each broker.
pub const PARTITIONS: usize = 6;

/// A running proxy with all its partners. Everything ends with this value.
#[derive(Debug)]
pub struct Deployment {
    /// The proxy.
    pub proxy: Proxy,
    /// The brokers, which need etcd to the last.
    pub brokers: Brokers,
    /// S3.
    pub store: Store,
    /// etcd.
    pub etcd: Etcd,
}

impl Deployment {
    /// Starts it with these settings of the proxy, and waits until the proxy is ready.
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        let etcd = Etcd::start().await;
        let topic = (TOPIC, i32::try_from(PARTITIONS).expect("few partitions"));
        let brokers = Brokers::start(&etcd, &[topic]).await;
        let store = Store::start().await;
        let mut proxy = Proxy::start(&etcd.endpoint(), &store, settings);
        proxy.wait_until_ready(Duration::from_secs(30)).await;
        Self { proxy, brokers, store, etcd }
    }

    /// Lets broker `p % 3` take partition `p`, by writing one record to each at that broker itself.
    pub async fn spread_partitions(&self) {
        for partition in 0..PARTITIONS {
            let mut wire = Wire::connect(&self.brokers.address(partition % self.brokers.count())).await;
            let response = wire.ask(9, &produce_request(partition, "spread")).await;
            let answer = &response.responses[0].partition_responses[0];
            assert!(answer.error_code.is_none(), "partition {partition}: {:?}", answer.error_code);
        }
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
