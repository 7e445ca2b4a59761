//! The proxy that is measured, as users run it: a process with environment variables.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::Ports;
use super::process::{Process, server};
use crate::failure::{During, Failure};
use crate::http1::{Body, HttpClient};
use crate::sinks::store::BUCKET;

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Kafka listener.
    pub(crate) kafka: SocketAddr,
    /// LFS HTTP API.
    pub(crate) lfs: SocketAddr,
    process: Process,
    _folder: TempDir,
}

impl Proxy {
    /// Starts it with its defaults in front of a cluster and a store, and waits until it is ready.
    pub(crate) fn start(
        binary: &Path,
        ports: &mut Ports,
        etcd: SocketAddr,
        store: SocketAddr,
    ) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().during(|| "a temporary folder".into())?;
        let (kafka, health, lfs) = (ports.address()?, ports.address()?, ports.address()?);
        let mut command = server(binary)?;
        // Whatever stands in the environment of the run is not what is to be measured.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KAFSCALE_") || name.starts_with("AWS_"))
        {
            command.env_remove(name);
        }
        command.envs([
            ("KAFSCALE_PROXY_ADDR", kafka.to_string().as_str()),
            ("KAFSCALE_PROXY_HEALTH_ADDR", &health.to_string()),
            ("KAFSCALE_PROXY_ADVERTISED_HOST", "127.0.0.1"),
            ("KAFSCALE_PROXY_ETCD_ENDPOINTS", &format!("http://{etcd}")),
            ("KAFSCALE_PROXY_LFS_ENABLED", "true"),
            ("KAFSCALE_PROXY_LOG", "warn"),
            ("KAFSCALE_LFS_PROXY_HTTP_ADDR", &lfs.to_string()),
            ("KAFSCALE_LFS_PROXY_ID", "bench"),
            ("KAFSCALE_LFS_PROXY_S3_BUCKET", BUCKET),
            ("KAFSCALE_LFS_PROXY_S3_REGION", "us-east-1"),
            ("KAFSCALE_LFS_PROXY_S3_ENDPOINT", &format!("http://{store}")),
            ("KAFSCALE_LFS_PROXY_S3_ACCESS_KEY", "bench"),
            ("KAFSCALE_LFS_PROXY_S3_SECRET_KEY", "bench-secret"),
        ]);
        let process = Process::start("kafscale-proxy", &mut command, &folder.path().join("log"))?;
        let mut proxy = Self { kafka, lfs, process, _folder: folder };
        proxy.process.wait_until(Duration::from_secs(60), || {
            HttpClient::connect(health)?.ask("GET", "/readyz", "", Body::Bytes(b""))
        })?;
        Ok(proxy)
    }

    /// Its process id.
    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }
}
