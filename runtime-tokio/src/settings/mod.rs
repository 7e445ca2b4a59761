//! Settings: from options and environment variables to the configuration of each shard.
//!
//! A value that cannot be understood stops the start; it never silently means the default. The documented rules
//! of the kind "0 or less means the default" stay.

mod given;
mod parse;
mod s3_timeouts;
mod shares;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kafscale_proxy_core::{
    Algorithm, ClusterConfig, ClusterKind, Config, IdempotentProducers, LfsConfig, ListenerConfig, ShutdownConfig,
};

pub use given::{Given, SettingError, arguments};
pub use table::{SETTINGS, Setting};

/// Bucket names from public documentation: whoever takes them gets the blobs of everybody who copied the example.
const EXAMPLE_BUCKETS: &[&str] = &["kafscale-lfs", "kafscale-lfs-dev", "kafscale-lfs-staging", "kafscale-example"];

/// S3 refuses smaller parts, the last one excepted.
const SMALLEST_PART: i64 = 5 * 1024 * 1024;

/// The whole process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Kafka listener, `host:port`; an empty host is every address.
    pub kafka_address: String,
    /// Health server; `None` is none.
    pub health_address: Option<String>,
    /// Metrics server; `None` is none.
    pub metrics_address: Option<String>,
    /// HTTP API; `None` is none.
    pub http_address: Option<String>,
    /// Limits of the HTTP servers that the machine does not see.
    pub http: HttpServerSettings,
    /// etcd.
    pub etcd: EtcdSettings,
    /// S3; `None` while LFS is off.
    pub s3: Option<S3Settings>,
    /// Number of shards.
    pub shards: usize,
    /// Log filter.
    pub log: String,
    /// What the operator should be told at start.
    pub warnings: Vec<String>,
    /// The configuration of a process of one shard; [`Settings::shard_config`] divides it.
    pub process: Config,
}

/// Limits of HTTP connections.
#[derive(Clone, Copy, Debug)]
pub struct HttpServerSettings {
    /// From the first byte of a request head to its end.
    pub header_timeout: Duration,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// Largest request head, bytes.
    pub max_header_bytes: usize,
    /// Connections of each of the servers, over all shards.
    pub max_connections: usize,
}

/// How etcd is reached.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// `host:port` or URLs.
    pub endpoints: Vec<String>,
    /// User and password.
    pub user: Option<(String, String)>,
}

/// How S3 is reached.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// Its region.
    pub region: String,
    /// Another endpoint than that of AWS.
    pub endpoint: Option<String>,
    /// Endpoint in presigned URLs.
    pub public_endpoint: Option<String>,
    /// Static credentials; `None` is the standard AWS chain.
    pub credentials: Option<S3Credentials>,
    /// Time for one dial, TLS included.
    pub connect_timeout: Duration,
    /// The bucket stands in the path.
    pub path_style: bool,
    /// Sign the bytes of parts too.
    pub sign_payload: bool,
    /// Send a checksum with every object and part.
    pub request_checksum: bool,
}

/// Static S3 credentials.
#[derive(Clone)]
pub struct S3Credentials {
    /// Access key.
    pub access_key: String,
    /// Secret key.
    pub secret_key: String,
    /// Session token.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("S3Credentials(hidden)")
    }
}

impl Settings {
    /// Checks everything that was given.
    ///
    /// # Errors
    /// The first setting that is missing or cannot be understood.
    pub fn read(given: &Given<'_>) -> Result<Self, SettingError> {
        given.refuse_unsupported()?;
        let mut warnings = Vec::new();
        let kafka_address = given.address("KAFSCALE_PROXY_ADDR")?.unwrap_or_else(|| ":9092".into());
        let lfs_enabled = match given.boolean("KAFSCALE_PROXY_LFS_ENABLED")? {
            Some(enabled) => enabled,
            None => given.is_set_by_older_name("KAFSCALE_PROXY_ADDR"),
        };
        if idempotent_producers(given)? == IdempotentProducers::Accept {
            warnings.push(
                "idempotent producers are accepted, but brokers do not deduplicate: what they send again may be stored twice"
                    .into(),
            );
        }
        let listener = listener(given, &kafka_address)?;
        if listener.advertised_host.is_empty() {
            warnings.push(
                "KAFSCALE_PROXY_ADVERTISED_HOST is empty: clients are told to connect to a host without a name".into(),
            );
        }
        let own_addresses = own_addresses(&listener, &kafka_address);
        for variable in ["KAFSCALE_PROXY_BACKENDS", "KAFSCALE_LFS_PROXY_BACKENDS"] {
            refuse_own_address(given, variable, &own_addresses)?;
        }
        let etcd = etcd(given)?;
        let (lfs, s3) = if lfs_enabled { (Some(lfs(given)?), Some(s3(given)?)) } else { (None, None) };
        if lfs.as_ref().is_some_and(|lfs| lfs.presign_enabled) {
            warnings.push("presigned URLs are handed out: what they lead to is not verified by the proxy".into());
        }
        // Upload sessions are not served yet; a wrong value is an error all the same.
        given.seconds("KAFSCALE_LFS_PROXY_UPLOAD_SESSION_TTL_SEC")?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shards = given.number("KAFSCALE_PROXY_SHARDS")?.and_then(positive).unwrap_or_else(|| cores.min(8));
        let process = Config {
            listener,
            cluster: ClusterConfig { own_addresses, ..cluster(given)? },
            lfs,
            shutdown: ShutdownConfig {
                grace: non_negative_seconds(given.number_or_default("KAFSCALE_PROXY_SHUTDOWN_GRACE_SEC")?),
                drain: given.seconds("KAFSCALE_LFS_PROXY_HTTP_SHUTDOWN_TIMEOUT_SEC")?,
            },
            first_shard: true,
        };
        warnings.extend(shares::warnings(&process, shards));
        Ok(Self {
            kafka_address,
            health_address: given.address("KAFSCALE_PROXY_HEALTH_ADDR")?,
            metrics_address: given.address("KAFSCALE_LFS_PROXY_METRICS_ADDR")?,
            http_address: given.address("KAFSCALE_LFS_PROXY_HTTP_ADDR")?.filter(|_| lfs_enabled),
            http: HttpServerSettings {
                header_timeout: given.seconds("KAFSCALE_LFS_PROXY_HTTP_HEADER_TIMEOUT_SEC")?,
                idle_timeout: given.seconds("KAFSCALE_LFS_PROXY_HTTP_IDLE_TIMEOUT_SEC")?,
                max_header_bytes: given.size("KAFSCALE_LFS_PROXY_HTTP_MAX_HEADER_BYTES")?,
                max_connections: given.size("KAFSCALE_LFS_PROXY_HTTP_MAX_CONNECTIONS")?,
            },
            etcd,
            s3,
            shards,
            log: given.text("KAFSCALE_PROXY_LOG").unwrap_or_default(),
            warnings,
            process,
        })
    }

    /// The configuration of one shard: limits that are per process are divided, and their shares fit what they must.
    pub fn shard_config(&self, shard: usize) -> Config {
        shares::of_shard(&self.process, self.shards, shard)
    }
}

fn listener(given: &Given<'_>, kafka_address: &str) -> Result<ListenerConfig, SettingError> {
    let port = "KAFSCALE_PROXY_ADVERTISED_PORT";
    let advertised_port = match given.number(port)? {
        Some(number) if number > i64::from(u16::MAX) => return Err(given.error(port, "not a port")),
        Some(number) => u16::try_from(number).ok().filter(|port| *port > 0),
        None => None,
    };
    Ok(ListenerConfig {
        advertised_host: given.text("KAFSCALE_PROXY_ADVERTISED_HOST").unwrap_or_default(),
        advertised_port: advertised_port.or_else(|| parse::port(kafka_address)).unwrap_or(9092),
        request_max_bytes: given.size("KAFSCALE_PROXY_REQUEST_MAX_BYTES")?,
        inflight_requests_per_client: given.size("KAFSCALE_PROXY_CLIENT_INFLIGHT_REQUESTS")?,
        inflight_bytes_per_client: given.size("KAFSCALE_PROXY_CLIENT_INFLIGHT_BYTES")?,
        frame_memory_bytes: given.size("KAFSCALE_PROXY_FRAME_MEMORY_BYTES")?,
        small_request_memory_bytes: given.size("KAFSCALE_PROXY_SMALL_REQUEST_MEMORY_BYTES")?,
        answer_memory_bytes: given.size("KAFSCALE_PROXY_ANSWER_MEMORY_BYTES")?,
        connections: given.size("KAFSCALE_PROXY_MAX_CONNECTIONS")?,
        idle_timeout: Some(non_negative_seconds(given.number_or_default("KAFSCALE_PROXY_IDLE_TIMEOUT_SEC")?))
            .filter(|timeout| !timeout.is_zero()),
        client_wait_max: given.seconds("KAFSCALE_PROXY_CLIENT_WAIT_MAX_SEC")?,
        read_timeout: given.seconds("KAFSCALE_PROXY_READ_TIMEOUT_SEC")?,
        request_timeout: given.seconds("KAFSCALE_PROXY_REQUEST_TIMEOUT_SEC")?,
        write_timeout: given.seconds("KAFSCALE_PROXY_WRITE_TIMEOUT_SEC")?,
        fetch_wait_slice: given.milliseconds("KAFSCALE_PROXY_FETCH_WAIT_SLICE_MS")?,
    })
}

/// Where this process itself is reached: as clients are told, and where it listens.
fn own_addresses(listener: &ListenerConfig, kafka_address: &str) -> Vec<(String, u16)> {
    let (host, port) = kafka_address.rsplit_once(':').unwrap_or((kafka_address, ""));
    let hosts = match host {
        "" | "0.0.0.0" | "[::]" => vec!["localhost", "127.0.0.1", "[::1]"],
        host => vec![host],
    };
    let listened = hosts.into_iter().map(|host| (host.to_owned(), port.parse().unwrap_or(0)));
    let advertised = (listener.advertised_host.clone(), listener.advertised_port);
    listened.chain([advertised]).filter(|(host, port)| !host.is_empty() && *port != 0).collect()
}

fn refuse_own_address(given: &Given<'_>, variable: &str, own: &[(String, u16)]) -> Result<(), SettingError> {
    let is_own = |broker: &str| own.iter().any(|(host, port)| broker.eq_ignore_ascii_case(&format!("{host}:{port}")));
    if given.list(variable).iter().any(|broker| is_own(broker)) {
        return Err(
            given.error(variable, "one of them is the proxy's own address: every request would come back to it")
        );
    }
    Ok(())
}

fn idempotent_producers(given: &Given<'_>) -> Result<IdempotentProducers, SettingError> {
    let accept = given.choice("KAFSCALE_PROXY_IDEMPOTENT_PRODUCERS", &["refuse", "accept"])? == "accept";
    Ok(if accept { IdempotentProducers::Accept } else { IdempotentProducers::Refuse })
}

fn cluster(given: &Given<'_>) -> Result<ClusterConfig, SettingError> {
    Ok(ClusterConfig {
        static_backends: given.list("KAFSCALE_PROXY_BACKENDS"),
        own_addresses: Vec::new(),
        cache_ttl: given.seconds("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC")?,
        connect_attempts: given.attempts("KAFSCALE_PROXY_BACKEND_RETRIES")?,
        connect_backoff: given.milliseconds("KAFSCALE_PROXY_BACKEND_BACKOFF_MS")?,
        dial_timeout: given.milliseconds("KAFSCALE_PROXY_DIAL_TIMEOUT_MS")?,
        kind: ClusterKind::KafScale,
        idempotent_producers: idempotent_producers(given)?,
        sasl: None,
        ..ClusterConfig::default()
    })
}

fn etcd(given: &Given<'_>) -> Result<EtcdSettings, SettingError> {
    let endpoints = given.list("KAFSCALE_PROXY_ETCD_ENDPOINTS");
    if endpoints.is_empty() {
        return Err(given.error("KAFSCALE_PROXY_ETCD_ENDPOINTS", "required: a comma list of etcd endpoints"));
    }
    let user = given.text("KAFSCALE_PROXY_ETCD_USERNAME");
    let password = given.text("KAFSCALE_PROXY_ETCD_PASSWORD").unwrap_or_default();
    Ok(EtcdSettings { endpoints, user: user.map(|user| (user, password)) })
}

fn lfs(given: &Given<'_>) -> Result<LfsConfig, SettingError> {
    let chunk = given.positive("KAFSCALE_LFS_PROXY_CHUNK_SIZE")?.max(SMALLEST_PART);
    let algorithm = given.choice("KAFSCALE_LFS_PROXY_CHECKSUM_ALGO", &["sha256", "md5", "crc32", "none"])?;
    let lfs = LfsConfig {
        bucket: bucket(given)?,
        namespace: given.text("KAFSCALE_S3_NAMESPACE").unwrap_or_default(),
        proxy_id: given.text("KAFSCALE_LFS_PROXY_ID").unwrap_or_default(),
        static_backends: given.list("KAFSCALE_LFS_PROXY_BACKENDS"),
        connect_attempts: given.attempts("KAFSCALE_LFS_PROXY_BACKEND_RETRIES")?,
        connect_backoff: given.milliseconds("KAFSCALE_LFS_PROXY_BACKEND_BACKOFF_MS")?,
        dial_timeout: given.milliseconds("KAFSCALE_LFS_PROXY_DIAL_TIMEOUT_MS")?,
        max_blob_bytes: positive(given.number_or_default("KAFSCALE_LFS_PROXY_MAX_BLOB_SIZE")?).map(|n| n as u64),
        chunk_bytes: usize::try_from(chunk).unwrap_or(usize::MAX),
        single_put_below_bytes: SMALLEST_PART as usize,
        parts_in_flight: given.size("KAFSCALE_LFS_PROXY_PARTS_IN_FLIGHT")?,
        upload_memory_bytes: given.size("KAFSCALE_LFS_PROXY_UPLOAD_MEMORY_BYTES")?,
        checksum_algorithm: match algorithm.as_str() {
            "md5" => Algorithm::Md5,
            "crc32" => Algorithm::Crc32,
            "none" => Algorithm::None,
            _ => Algorithm::Sha256,
        },
        topic_max_length: given.size("KAFSCALE_LFS_PROXY_TOPIC_MAX_LENGTH")?,
        presign_enabled: given.boolean("KAFSCALE_LFS_PROXY_PRESIGN_ENABLED")?.unwrap_or(false),
        presign_ttl: given.seconds("KAFSCALE_LFS_PROXY_DOWNLOAD_TTL_SEC")?,
        download_memory_bytes: given.size("KAFSCALE_LFS_PROXY_DOWNLOAD_MEMORY_BYTES")? as u64,
        download_disk_bytes: given.size("KAFSCALE_LFS_PROXY_DOWNLOAD_DISK_BYTES")? as u64,
        api_key: given.text("KAFSCALE_LFS_PROXY_HTTP_API_KEY"),
        read_timeout: given.seconds("KAFSCALE_LFS_PROXY_HTTP_READ_TIMEOUT_SEC")?,
        write_timeout: given.seconds("KAFSCALE_LFS_PROXY_HTTP_WRITE_TIMEOUT_SEC")?,
        s3_health_interval: given.seconds("KAFSCALE_LFS_PROXY_S3_HEALTH_INTERVAL_SEC")?,
        ensure_bucket: given.boolean("KAFSCALE_LFS_PROXY_S3_ENSURE_BUCKET")?.unwrap_or(false),
        exchanges: given.size("KAFSCALE_LFS_PROXY_HTTP_MAX_EXCHANGES")?,
        s3_timeouts: s3_timeouts::read(given)?,
        hash_inline_bytes: LfsConfig::default().hash_inline_bytes,
        hash_job_bytes: LfsConfig::default().hash_job_bytes,
    };
    s3_timeouts::check_uploads(given, &lfs)?;
    Ok(lfs)
}

fn bucket(given: &Given<'_>) -> Result<String, SettingError> {
    let name = "KAFSCALE_LFS_PROXY_S3_BUCKET";
    let bucket = given.text(name).ok_or_else(|| given.error(name, "required while LFS is enabled"))?;
    if EXAMPLE_BUCKETS.contains(&bucket.as_str()) {
        return Err(given.error(name, "an example name from public documentation, which somebody else may own"));
    }
    Ok(bucket)
}

fn s3(given: &Given<'_>) -> Result<S3Settings, SettingError> {
    let region = "KAFSCALE_LFS_PROXY_S3_REGION";
    let endpoint = given.url("KAFSCALE_LFS_PROXY_S3_ENDPOINT")?;
    let public_endpoint = given.url("KAFSCALE_LFS_PROXY_S3_PUBLIC_ENDPOINT")?;
    let access_key = given.text("KAFSCALE_LFS_PROXY_S3_ACCESS_KEY");
    let secret_key = given.text("KAFSCALE_LFS_PROXY_S3_SECRET_KEY");
    let session_token = given.text("KAFSCALE_LFS_PROXY_S3_SESSION_TOKEN");
    Ok(S3Settings {
        bucket: bucket(given)?,
        region: given.text(region).ok_or_else(|| given.error(region, "required while LFS is enabled"))?,
        path_style: given.boolean("KAFSCALE_LFS_PROXY_S3_FORCE_PATH_STYLE")?.unwrap_or_else(|| endpoint.is_some()),
        connect_timeout: given.milliseconds("KAFSCALE_LFS_PROXY_S3_CONNECT_TIMEOUT_MS")?,
        public_endpoint: public_endpoint.or_else(|| endpoint.clone()),
        endpoint,
        credentials: access_key.zip(secret_key).map(|(access_key, secret_key)| S3Credentials {
            access_key,
            secret_key,
            session_token,
        }),
        sign_payload: given.boolean("KAFSCALE_LFS_PROXY_S3_SIGN_PAYLOAD")?.unwrap_or(false),
        request_checksum: given
            .choice("KAFSCALE_LFS_PROXY_S3_REQUEST_CHECKSUM", &["when_required", "when_supported"])?
            == "when_supported",
    })
}

fn positive(number: i64) -> Option<usize> {
    usize::try_from(number).ok().filter(|number| *number > 0)
}

fn non_negative_seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}
