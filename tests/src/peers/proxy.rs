//! The proxy as users run it: a process with environment variables.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use tempfile::TempDir;

use super::process::Process;
use super::{Http, Store, eventually, free_port, s3};

/// Names the program under test. Any runtime's binary with the same settings will do.
const BINARY: &str = "KAFSCALE_PROXY_TEST_BINARY";

/// One running proxy.
#[derive(Debug)]
pub struct Proxy {
    process: Process,
    /// Kafka listener, `host:port`.
    pub kafka: String,
    /// Health server.
    pub health: Http,
    /// LFS HTTP API.
    pub lfs: Http,
    /// Metrics server.
    pub metrics: Http,
    // Its log lies there.
    _folder: TempDir,
}

impl Proxy {
    /// Starts it in front of the cluster in `etcd` and the bucket of `store`, with `settings` on top. Does not wait.
    ///
    /// # Panics
    /// When the binary is not named or cannot be started.
    pub fn start(etcd: &str, store: &Store, settings: &[(&str, &str)]) -> Self {
        let binary = std::env::var(BINARY).unwrap_or_else(|_| panic!("{BINARY} names no proxy; use tests/run"));
        let folder = tempfile::tempdir().expect("the temporary folder can be written");
        let [kafka, health, lfs, metrics] = [(); 4].map(|()| format!("127.0.0.1:{}", free_port()));
        let mut environment: BTreeMap<&str, &str> = BTreeMap::from([
            ("KAFSCALE_PROXY_ADDR", kafka.as_str()),
            ("KAFSCALE_PROXY_HEALTH_ADDR", &health),
            ("KAFSCALE_PROXY_ADVERTISED_HOST", "127.0.0.1"),
            ("KAFSCALE_PROXY_ETCD_ENDPOINTS", etcd),
            ("KAFSCALE_PROXY_LFS_ENABLED", "true"),
            ("KAFSCALE_LFS_PROXY_HTTP_ADDR", &lfs),
            ("KAFSCALE_LFS_PROXY_METRICS_ADDR", &metrics),
            ("KAFSCALE_LFS_PROXY_ID", "proxy-under-test"),
            ("KAFSCALE_LFS_PROXY_S3_BUCKET", s3::BUCKET),
            ("KAFSCALE_LFS_PROXY_S3_REGION", "us-east-1"),
            ("KAFSCALE_LFS_PROXY_S3_ENDPOINT", store.endpoint()),
            ("KAFSCALE_LFS_PROXY_S3_ACCESS_KEY", s3::ACCESS_KEY),
            ("KAFSCALE_LFS_PROXY_S3_SECRET_KEY", s3::SECRET_KEY),
            ("KAFSCALE_LFS_TRACKER_ENABLED", "false"),
        ]);
        environment.extend(settings.iter().copied());
        let mut command = Command::new(&binary);
        // Whatever stands in the environment of the suite is not what the proxy is tested with.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KAFSCALE_") || name.starts_with("AWS_"))
        {
            command.env_remove(name);
        }
        command.envs(environment);
        let process = Process::start("kafscale-proxy", &mut command, &folder.path().join("log"));
        let [health, lfs, metrics] = [&health, &lfs, &metrics].map(|address| Http::new(address));
        Self { process, kafka, health, lfs, metrics, _folder: folder }
    }

    /// Waits until `/readyz` says 200.
    pub async fn wait_until_ready(&mut self, limit: Duration) {
        let health = self.health.clone();
        eventually("the proxy is ready", limit, async || {
            assert!(self.process.ended().is_none(), "the proxy ended: {}", self.process.log());
            Self::readiness_of(&health).await == Some(200)
        })
        .await;
    }

    /// Status of `/readyz`; `None` when nobody answers.
    pub async fn readiness(&self) -> Option<u16> {
        Self::readiness_of(&self.health).await
    }

    async fn readiness_of(health: &Http) -> Option<u16> {
        health.try_get("/readyz").await.ok().map(|answer| answer.status)
    }

    /// Keys of the objects that it has reported as orphans.
    pub fn orphans(&self) -> Vec<String> {
        let log = self.log();
        let reports = log.lines().filter(|line| line.contains("orphan"));
        let key =
            |line: &str| Some(line.split_once("object=")?.1.split_whitespace().next()?.trim_matches('"').to_owned());
        reports.filter_map(key).collect()
    }

    /// Resident memory now, KiB.
    pub fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// Largest resident memory since [`Proxy::forget_peak`], KiB.
    pub fn peak_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    /// Lets the peak begin anew at what is resident now.
    pub fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5")
            .expect("the peak of an own child can be reset");
    }

    fn status_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("the proxy runs");
        let line = status.lines().find(|line| line.starts_with(field)).expect("Linux tells the memory of a process");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("in KiB")
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Asks it to end and waits.
    pub fn stop(&mut self) -> ExitStatus {
        self.process.stop(Duration::from_secs(30))
    }
}
