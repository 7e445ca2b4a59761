//! etcd as Debian packages it.

use std::process::Command;
use std::time::Duration;

use etcd_client::Client;
use rustix::process::Signal;
use tempfile::TempDir;

use super::process::Process;
use super::{eventually, free_port};

/// One etcd with a folder of its own, which keeps its port and its data when it is stopped and started again.
#[derive(Debug)]
pub struct Etcd {
    process: Option<Process>,
    client_port: u16,
    peer_port: u16,
    folder: TempDir,
}

impl Etcd {
    /// Starts it and waits until it answers.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder can be written");
        let mut etcd = Self { process: None, client_port: free_port(), peer_port: free_port(), folder };
        etcd.restart().await;
        etcd
    }

    /// Starts it after [`Etcd::stop`] and waits until it answers.
    pub async fn restart(&mut self) {
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = Command::new("etcd");
        command
            .args(["--name", "peer", "--log-level", "error", "--logger", "zap"])
            .args(["--listen-client-urls", &self.endpoint(), "--advertise-client-urls", &self.endpoint()])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("peer={peer}")])
            // The snapshot of a large cluster is one value; those who have one raise this, and etcd's default is 1.5 MiB.
            .args(["--max-request-bytes", "10485760"])
            .arg("--data-dir")
            .arg(self.folder.path().join("data"));
        if cfg!(target_arch = "aarch64") {
            // Debian's etcd 3.4 wants to be told that it is meant to run there.
            command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        }
        self.process = Some(Process::start("etcd", &mut command, &self.folder.path().join("log")));
        eventually("etcd answers", Duration::from_secs(20), async || {
            let process = self.process.as_mut().expect("it was started");
            assert!(process.ended().is_none(), "etcd ended: {}", process.log());
            match Client::connect([self.endpoint()], None).await {
                Ok(mut client) => client.get("/", None).await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
    }

    /// Its `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// Its URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// A connection to it.
    pub async fn client(&self) -> Client {
        Client::connect([self.endpoint()], None).await.expect("etcd runs")
    }

    /// Ends it: connections are closed, new ones refused.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.stop(Duration::from_secs(5));
        }
    }

    /// Lets it hang: connections stay open and get no answer.
    pub fn freeze(&self) {
        self.process.as_ref().expect("etcd runs").signal(Signal::STOP);
    }

    /// Ends [`Etcd::freeze`].
    pub fn thaw(&self) {
        self.process.as_ref().expect("etcd runs").signal(Signal::CONT);
    }
}
