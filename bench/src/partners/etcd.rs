//! etcd as Debian packages it, with a cluster written into it.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kafscale_proxy_core::model::broker::{ClusterSnapshot, SNAPSHOT_KEY};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Ports;
use super::process::{Process, server};
use crate::cluster::owner_of;
use crate::failure::{During, Failure};
use crate::http1::{Body, HttpClient};

const PARTITION_LEASES: &str = "/kafscale/partition-leases";
/// Operations of one transaction.
const LARGEST_TRANSACTION: usize = 5000;
/// The snapshot of 100,000 partitions has about 15 MB; etcd takes 1.5 MB of one request unless told otherwise.
const LARGEST_REQUEST: u32 = 64 * 1024 * 1024;

/// One etcd with a folder of its own.
#[derive(Debug)]
pub(crate) struct Etcd {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    process: Process,
    _folder: TempDir,
}

impl Etcd {
    /// Starts it and waits until it answers.
    pub(crate) fn start(ports: &mut Ports) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().during(|| "a temporary folder".into())?;
        let (address, peer) = (ports.address()?, ports.address()?);
        let (endpoint, peer) = (format!("http://{address}"), format!("http://{peer}"));
        let mut command = server("etcd")?;
        command
            .args(["--name", "bench", "--log-level", "error", "--logger", "zap"])
            .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("bench={peer}")])
            .args(["--max-txn-ops", &LARGEST_TRANSACTION.to_string()])
            .args(["--max-request-bytes", &LARGEST_REQUEST.to_string()])
            .arg("--data-dir")
            .arg(folder.path().join("data"));
        if cfg!(target_arch = "aarch64") {
            // Debian's etcd 3.4 wants to be told that it is meant to run there.
            command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        }
        let process = Process::start("etcd", &mut command, &folder.path().join("log"))?;
        let mut etcd = Self { address, process, _folder: folder };
        let reading = json!({ "key": BASE64_STANDARD.encode("/") });
        etcd.process.wait_until(Duration::from_secs(20), || call(address, "range", &reading))?;
        Ok(etcd)
    }

    /// Writes a cluster of these brokers with one topic, and who owns its partitions.
    pub(crate) fn write_cluster(
        &self,
        brokers: &[(i32, SocketAddr)],
        topic: &str,
        partitions: i32,
    ) -> Result<(), Failure> {
        let hosts: Vec<(i32, String, u16)> =
            brokers.iter().map(|(id, address)| (*id, address.ip().to_string(), address.port())).collect();
        let listed = hosts.iter().map(|(id, host, port)| (*id, host.as_str(), *port));
        let snapshot = ClusterSnapshot::new("bench", listed).with_topic(topic, partitions);
        self.put([(SNAPSHOT_KEY.to_owned(), snapshot.to_json())])?;
        let leases = |partition: i32| {
            (format!("{PARTITION_LEASES}/{topic}/{partition}"), owner_of(partition).to_string().into_bytes())
        };
        let all: Vec<i32> = (0..partitions).collect();
        all.chunks(LARGEST_TRANSACTION).try_for_each(|chunk| self.put(chunk.iter().copied().map(leases)))
    }

    /// Writes keys in one transaction.
    fn put(&self, pairs: impl IntoIterator<Item = (String, impl AsRef<[u8]>)>) -> Result<(), Failure> {
        let puts = pairs.into_iter().map(|(key, value)| {
            json!({ "requestPut": { "key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value) } })
        });
        let answer = call(self.address, "txn", &json!({ "success": puts.collect::<Vec<_>>() }))?;
        if answer["succeeded"] == Value::Bool(true) {
            return Ok(());
        }
        Err(Failure::new(format!("etcd did not write: {answer}")))
    }
}

/// One call of etcd's JSON gateway.
fn call(address: SocketAddr, method: &str, request: &Value) -> Result<Value, Failure> {
    let mut client = HttpClient::connect(address)?;
    let request = request.to_string();
    let answer = client.ask("POST", &format!("/v3/kv/{method}"), "", Body::Bytes(request.as_bytes()))?;
    serde_json::from_slice(&answer).during(|| "etcd's answer".into())
}
