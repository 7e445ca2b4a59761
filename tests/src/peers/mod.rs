//! Real peers for the black-box suite: etcd, an S3 server, brokers on the wire, Kafka clients, and the proxy as a process.
//!
//! Everything listens on the loopback interface only, on ports of its own, and ends with the value that stands for it.
//! What is not there is a failure with the name of what is missing, never a skipped test: `tests/run` installs and builds
//! it all.

mod brokers;
mod clients;
mod deployment;
mod etcd;
mod http;
mod kafka;
mod metrics;
mod ports;
mod process;
mod proxy;
mod read;
mod relay;
mod s3;

pub use brokers::{Brokers, coordinator, move_group, move_partition, owner, wait_until_lost, write_snapshot};
pub use clients::{Client, Delivered, Job, Record, Report, Running, curl};
pub use deployment::{Deployment, PARTITIONS, Partners, TOPIC, produce_request};
pub use etcd::Etcd;
pub use http::{Answer, Http, Upload};
pub use kafka::Wire;
pub use kafscale_proxy::models::brokers::Control;
pub use metrics::Metrics;
pub use ports::free_port;
pub use proxy::Proxy;
pub use read::read_all;
pub use relay::Relay;
pub use s3::{BUCKET, Fault, Operation, Seen, Store};

use std::time::{Duration, Instant};

/// Asks again every 50 ms until the answer is yes; panics with `what` when that takes longer than `limit`.
pub async fn eventually(what: &str, limit: Duration, mut done: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !done().await {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
