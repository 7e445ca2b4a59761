//! `dev`: the proxy with its partners inside, for trying out. Nothing is kept.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kafscale_proxy_core::model::broker::SNAPSHOT_KEY;

use crate::models::brokers::{self, BrokerServers};
use crate::models::etcd::EtcdServer;
use crate::models::s3::S3Server;
use crate::process::{self, Listeners, MakePartners, ProcessError};
use crate::report::Report;
use crate::settings::{Given, Settings};
use crate::shard::Partners;

/// What `dev` lets its user choose.
#[derive(Clone, Debug)]
pub struct DevOptions {
    /// Kafka listener.
    pub kafka_address: String,
    /// HTTP API.
    pub http_address: String,
    /// Where the objects lie; `None` is a folder of its own among the temporary files, removed at the end.
    pub folder: Option<PathBuf>,
    /// Log filter.
    pub log: String,
}

const BROKERS: usize = 3;
const TOPIC: &str = "demo";
const PARTITIONS: i32 = 6;

/// The settings of the proxy inside.
///
/// # Errors
/// An address cannot be understood.
pub fn settings(options: &DevOptions) -> Result<Settings, ProcessError> {
    let host = options.kafka_address.rsplit_once(':').map_or("", |(host, _)| host);
    let advertised_host = if host.is_empty() { "127.0.0.1" } else { host };
    let environment = |name: &str| {
        let value = match name {
            "KAFSCALE_PROXY_ADDR" => &options.kafka_address,
            "KAFSCALE_PROXY_ADVERTISED_HOST" => advertised_host,
            "KAFSCALE_PROXY_ETCD_ENDPOINTS" => "inside",
            "KAFSCALE_PROXY_IDEMPOTENT_PRODUCERS" => "accept",
            "KAFSCALE_PROXY_LFS_ENABLED" => "true",
            "KAFSCALE_PROXY_LOG" => &options.log,
            "KAFSCALE_PROXY_SHARDS" => "1",
            "KAFSCALE_LFS_PROXY_HTTP_ADDR" => &options.http_address,
            "KAFSCALE_LFS_PROXY_ID" => "dev",
            "KAFSCALE_LFS_PROXY_S3_BUCKET" => "dev",
            "KAFSCALE_LFS_PROXY_S3_REGION" => "inside",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let mut settings =
        Settings::read(&Given::new(None, &environment)).map_err(|error| ProcessError(error.to_string()))?;
    // What it would warn of is what `dev` is for.
    settings.warnings.clear();
    Ok(settings)
}

struct Inside {
    folder: PathBuf,
}

impl MakePartners for Inside {
    async fn make(self, report: Report) -> Result<Partners, ProcessError> {
        let etcd = EtcdServer::start();
        let (listeners, addresses) = brokers::listen([(Ipv4Addr::LOCALHOST, 0).into(); BROKERS]).await?;
        etcd.put(SNAPSHOT_KEY, brokers::snapshot(&addresses, &[(TOPIC, PARTITIONS)]));
        let way = Rc::clone(&etcd);
        BrokerServers::start(listeners, &addresses, move |report| way.connect(report))?;
        let s3 = S3Server::new(&self.folder, report.clone());
        Ok(Partners { etcd: etcd.connect(report), s3: Box::new(move |order| s3.carry_out(order)) })
    }
}

/// Runs `dev` until a signal ends it.
///
/// # Errors
/// An address is taken, or the folder cannot be made.
pub fn run(options: &DevOptions) -> Result<(), ProcessError> {
    let mut settings = settings(options)?;
    let no_folder = |error: std::io::Error| ProcessError(format!("cannot make the folder for objects: {error}"));
    let temporary = match &options.folder {
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(no_folder)?;
            None
        }
        None => Some(tempfile::Builder::new().prefix("kafscale-dev-").tempdir().map_err(no_folder)?),
    };
    let folder = match (&options.folder, &temporary) {
        (Some(folder), _) => folder.clone(),
        (None, Some(temporary)) => temporary.path().to_owned(),
        (None, None) => std::env::temp_dir(),
    };
    let folder = Rc::new(folder);
    process::block_on(async {
        let listeners = Listeners::bind(&mut settings).await?;
        let kafka = listeners.kafka.local_addr().map(|address| address.to_string());
        let http = listeners.http.as_ref().map(tokio::net::TcpListener::local_addr);
        let (Ok(kafka), Some(Ok(http))) = (kafka, http) else {
            return Err(ProcessError("a listening socket has no address".into()));
        };
        print!("{}", introduction(&kafka, &http.to_string(), &folder));
        process::serve(&settings, listeners, |_| Inside { folder: PathBuf::clone(&folder) }).await
    })
}

fn introduction(kafka: &str, http: &str, folder: &Path) -> String {
    let program = std::env::current_exe().map_or_else(|_| "kafscale-proxy".into(), |path| path.display().to_string());
    let bootstrap = if kafka == "127.0.0.1:9092" { String::new() } else { format!(" --bootstrap {kafka}") };
    format!(
        "kafscale-proxy dev: for trying out only. Brokers, etcd and S3 are models inside this process; nothing is \
         kept when it ends.
Kafka on {kafka}, HTTP on http://{http}, topic {TOPIC} with {PARTITIONS} partitions, objects in {folder}
Ctrl-C ends it. Paste into another terminal to send a file, to see its record, and to get it back:

  curl -sS -X POST -H 'X-Kafka-Topic: {TOPIC}' -T {program} http://{http}/lfs/produce
  {program} tail {TOPIC}{bootstrap} --count 1
  {program} tail {TOPIC}{bootstrap} --download-body | curl -sS --data-binary @- -o download.out http://{http}/lfs/download

",
        folder = folder.display(),
    )
}
