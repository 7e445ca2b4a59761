//! Brokers on the wire: the reference model of KafScale brokers on TCP, with its leases in a real etcd.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use etcd_client::PutOptions;
use kafscale_proxy::models::brokers::{Control, run_with_etcd};
use kafscale_proxy::settings::EtcdSettings;
use kafscale_proxy_core::model::broker::{ClusterSnapshot, SNAPSHOT_KEY};
use tokio::sync::{mpsc, oneshot};

use super::{Etcd, eventually, free_port};

/// Three brokers that share a log, on a thread of their own. They end with this value.
#[derive(Debug)]
pub struct Brokers {
    addresses: Vec<SocketAddr>,
    controls: Option<mpsc::UnboundedSender<(usize, Control)>>,
    thread: Option<JoinHandle<()>>,
}

impl Brokers {
    /// Starts them and writes a snapshot with them and these topics (name, partitions) into etcd.
    pub async fn start(etcd: &Etcd, topics: &[(&'static str, i32)]) -> Self {
        let addresses: Vec<SocketAddr> = (0..3).map(|_| (Ipv4Addr::LOCALHOST, free_port()).into()).collect();
        let (controls, controlled) = mpsc::unbounded_channel();
        let (ready, is_ready) = oneshot::channel();
        let settings = EtcdSettings { endpoints: vec![etcd.endpoint()], user: None };
        let (listen_on, topics) = (addresses.clone(), topics.to_vec());
        let thread = thread::spawn(move || {
            let started = || ready.send(()).expect("the test waits for its brokers");
            run_with_etcd(&settings, &listen_on, &topics, controlled, started).expect("brokers run");
        });
        is_ready.await.expect("brokers start");
        Self { addresses, controls: Some(controls), thread: Some(thread) }
    }

    /// `host:port` of a broker.
    pub fn address(&self, broker: usize) -> String {
        self.addresses[broker].to_string()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Does something to a broker.
    pub fn control(&self, broker: usize, control: Control) {
        let controls = self.controls.as_ref().expect("they run until this value goes");
        controls.send((broker, control)).expect("the brokers' thread runs");
    }

    /// How many faults still wait for an answer that they apply to, at all brokers together.
    pub async fn waiting_faults(&self) -> usize {
        let mut waiting = 0;
        for broker in 0..self.count() {
            let (tell, told) = oneshot::channel();
            self.control(broker, Control::WaitingFaults(tell));
            waiting += told.await.expect("the brokers' thread runs");
        }
        waiting
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        self.controls = None;
        // A panic of that thread was shown when it happened.
        self.thread.take().map(JoinHandle::join);
    }
}

fn group_key(group: &str) -> String {
    format!("/kafscale/group-leases/{group}")
}

fn partition_key(topic: &str, partition: i32) -> String {
    format!("/kafscale/partition-leases/{topic}/{partition}")
}

/// The broker that holds the lease of a partition, as etcd has it.
pub async fn owner(etcd: &Etcd, topic: &str, partition: i32) -> Option<usize> {
    holder(etcd, &partition_key(topic, partition)).await
}

/// The broker that coordinates a group, as etcd has it.
pub async fn coordinator(etcd: &Etcd, group: &str) -> Option<usize> {
    holder(etcd, &group_key(group)).await
}

async fn holder(etcd: &Etcd, key: &str) -> Option<usize> {
    let answer = etcd.client().await.get(key, None).await.expect("etcd runs");
    answer.kvs().first().map(|kv| kv.value_str().ok().and_then(|id| id.parse().ok()).expect("a broker id"))
}

/// Gives a partition to a live broker, in one transaction: the key then hangs on a lease of that broker's.
///
/// # Panics
/// When that broker holds no partition, whose lease could be taken.
pub async fn move_partition(etcd: &Etcd, topic: &str, partition: i32, to: usize) {
    hang_on_lease(etcd, &partition_key(topic, partition), to).await;
}

/// Gives a group to a live broker, as [`move_partition`] does; the key then hangs on the lease of its partitions.
pub async fn move_group(etcd: &Etcd, group: &str, to: usize) {
    hang_on_lease(etcd, &group_key(group), to).await;
}

async fn hang_on_lease(etcd: &Etcd, key: &str, to: usize) {
    let mut client = etcd.client().await;
    let all = client.get("/kafscale/partition-leases/", Some(etcd_client::GetOptions::new().with_prefix())).await;
    let all = all.expect("etcd runs");
    let id = to.to_string();
    let lease = all.kvs().iter().find(|kv| kv.value() == id.as_bytes()).map(etcd_client::KeyValue::lease);
    let lease = lease.unwrap_or_else(|| panic!("broker {to} holds no partition"));
    client.put(key, id, Some(PutOptions::new().with_lease(lease))).await.expect("etcd runs");
}

/// Waits until nobody holds the lease of a partition, or another broker does.
pub async fn wait_until_lost(etcd: &Etcd, topic: &str, partition: i32, by: usize, limit: Duration) {
    eventually("the lease has ended", limit, async || owner(etcd, topic, partition).await != Some(by)).await;
}

/// Changes the snapshot in etcd, as an operator does.
pub async fn write_snapshot(etcd: &Etcd, change: impl FnOnce(&mut ClusterSnapshot)) {
    let mut client = etcd.client().await;
    let answer = client.get(SNAPSHOT_KEY, None).await.expect("etcd runs");
    let mut snapshot = ClusterSnapshot::parse(answer.kvs()[0].value()).expect("a snapshot");
    change(&mut snapshot);
    client.put(SNAPSHOT_KEY, snapshot.to_json(), None).await.expect("etcd runs");
}
