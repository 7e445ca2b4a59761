//! The settings of the machine, validated once by whoever builds them. They do not change while running.
//!
//! Limits carry their unit in the name. Each shard gets its own [`Config`]; limits that are per process have
//! been divided among the shards before.

use std::time::Duration;

use crate::broker::SaslPlain;

/// Settings of one shard.
#[derive(Clone, Debug)]
pub struct Config {
    /// Kafka listener.
    pub listener: ListenerConfig,
    /// Finding and reaching brokers.
    pub cluster: ClusterConfig,
    /// LFS HTTP API; `None` when it is off.
    pub lfs: Option<LfsConfig>,
    /// Orderly end.
    pub shutdown: ShutdownConfig,
    /// Whether it does what a process needs once: creating the bucket.
    pub first_shard: bool,
}

/// Kafka listener.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Host in Metadata and FindCoordinator.
    pub advertised_host: String,
    /// Port in Metadata and FindCoordinator.
    pub advertised_port: u16,
    /// Largest accepted request frame, bytes.
    pub request_max_bytes: usize,
    /// Requests of one client that may wait for their answers.
    pub inflight_requests_per_client: usize,
    /// Bytes of requests of one client that may wait for their answers.
    pub inflight_bytes_per_client: usize,
    /// Bytes of frames above 64 KiB that the shard may hold at once. A frame larger than that goes alone.
    pub frame_memory_bytes: usize,
    /// Bytes of other requests that the shard may hold at once. Beyond that it takes one request at a time of each client.
    pub small_request_memory_bytes: usize,
    /// Bytes of answers of brokers above 64 KiB that the shard may hold at once; who holds some gets what its oldest request
    /// needs beyond that.
    pub answer_memory_bytes: usize,
    /// Kafka connections of the shard.
    pub connections: usize,
    /// A client that sends nothing and waits for nothing is closed after this time; `None` never.
    pub idle_timeout: Option<Duration>,
    /// Longest wait that a client may ask for: the timeout of Produce, `max_wait` of Fetch, the rebalance timeout of
    /// JoinGroup. What it asks for beyond that counts as this.
    pub client_wait_max: Duration,
    /// A client whose request is not whole and that sends no byte of it for so long is closed; so is one for whose large
    /// request there is no room for so long.
    pub read_timeout: Duration,
    /// A client whose request is not whole so long after its first byte is closed.
    pub request_timeout: Duration,
    /// A client that takes no byte of its answers for so long is closed.
    pub write_timeout: Duration,
    /// Longest wait that one Fetch of ours asks of a broker, so that nothing queues long behind it.
    pub fetch_wait_slice: Duration,
}

impl ListenerConfig {
    /// A wait that a client asks for, milliseconds, as far as it is granted; negative means none.
    pub(crate) fn granted_wait(&self, asked_ms: i32) -> Duration {
        Duration::from_millis(u64::try_from(asked_ms).unwrap_or(0)).min(self.client_wait_max)
    }
}

/// Finding and reaching brokers.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Static `host:port` list; disables discovery and TTL when it is not empty.
    pub static_backends: Vec<String>,
    /// Hosts and ports under which this proxy itself is reached. Whoever is listed with one of them is no broker: every
    /// request to it would come back here.
    pub own_addresses: Vec<(String, u16)>,
    /// How long knowledge stays fresh after its proof.
    pub cache_ttl: Duration,
    /// Attempts to reach a broker, at least 1.
    pub connect_attempts: u32,
    /// Wait between attempts.
    pub connect_backoff: Duration,
    /// One dial.
    pub dial_timeout: Duration,
    /// All dials and waits of one request together.
    pub connect_total: Duration,
    /// Keys of one page when a prefix of etcd is read, at least 1. A page of the longest keys, about 330 bytes each, must stay
    /// below the 4 MiB that gRPC clients take by default; and for each page etcd counts all keys behind it, so that small
    /// pages of a long prefix cost more than what is in them: 40 ms a page at 60,000 keys.
    pub page_keys: u32,
    /// What kind of cluster the brokers are.
    pub kind: ClusterKind,
    /// What becomes of producers that want idempotence, where brokers do not know it.
    pub idempotent_producers: IdempotentProducers,
    /// User and password for SASL PLAIN; `None` when brokers want no login.
    pub sasl: Option<SaslPlain>,
}

/// Idempotent producers in front of brokers that keep ids and sequences of producers but never look at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdempotentProducers {
    /// InitProducerId is not listed: they fail and say so.
    Refuse,
    /// They get an id that is unique in the cluster, and at-least-once.
    Accept,
}

/// What is expected of the brokers; everything that depends on it is in one place each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterKind {
    /// KafScale brokers with their habits.
    KafScale,
}

/// LFS HTTP API.
#[derive(Clone, Debug)]
pub struct LfsConfig {
    /// Bucket name, for envelopes and checks.
    pub bucket: String,
    /// First segment of object keys.
    pub namespace: String,
    /// `proxy_id` of envelopes, may be empty.
    pub proxy_id: String,
    /// Static broker list of this path; used when the cluster has none.
    pub static_backends: Vec<String>,
    /// Attempts to reach a broker before an upload, at least 1.
    pub connect_attempts: u32,
    /// Wait between attempts.
    pub connect_backoff: Duration,
    /// One dial, TLS and SASL included.
    pub dial_timeout: Duration,
    /// Largest blob, bytes; `None` is unlimited.
    pub max_blob_bytes: Option<u64>,
    /// Size of an S3 part, bytes; at least 5 MiB in production, where settings are parsed.
    pub chunk_bytes: usize,
    /// Bodies that end below this go up in one PutObject; 5 MiB in production.
    pub single_put_below_bytes: usize,
    /// So many bytes of a blob at most are hashed inside a call.
    pub hash_inline_bytes: usize,
    /// So many bytes of a blob are hashed elsewhere as soon as they are there. Less costs more hops, more lets a full part wait longer.
    pub hash_job_bytes: usize,
    /// Parts of one upload in flight at once.
    pub parts_in_flight: usize,
    /// Bytes of all uploads that the shard may hold at once.
    pub upload_memory_bytes: usize,
    /// Default of `X-LFS-Checksum-Alg`.
    pub checksum_algorithm: crate::lfs::checksum::Algorithm,
    /// Longest topic name.
    pub topic_max_length: usize,
    /// Presigned URLs allowed.
    pub presign_enabled: bool,
    /// Longest validity of a presigned URL.
    pub presign_ttl: Duration,
    /// Downloads up to this size are verified in memory, bytes.
    pub download_memory_bytes: u64,
    /// Bytes of temporary files that the shard may hold at once.
    pub download_disk_bytes: u64,
    /// API key; `None` lets everybody in.
    pub api_key: Option<String>,
    /// No byte of a body for so long: 408.
    pub read_timeout: Duration,
    /// No byte of an answer taken for so long: the connection is broken.
    pub write_timeout: Duration,
    /// Interval of HeadBucket.
    pub s3_health_interval: Duration,
    /// Limits of requests to S3.
    pub s3_timeouts: S3Timeouts,
    /// Create the bucket at start if HeadBucket fails.
    pub ensure_bucket: bool,
    /// Exchanges of the shard at once.
    pub exchanges: usize,
}

impl LfsConfig {
    /// Size of all parts but the last of a blob of this size, bytes; `None` is a blob of unknown size. An upload takes
    /// that much memory at least.
    pub fn part_bytes(&self, blob_bytes: Option<u64>) -> u64 {
        crate::lfs::part_bytes(self.chunk_bytes, blob_bytes) as u64
    }
}

/// How long requests to S3 may take. Past its limit nobody knows what became of a request. A dial is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct S3Timeouts {
    /// PutObject and UploadPart, beside the time for their bytes.
    pub upload: Duration,
    /// Least speed of the bytes of PutObject and UploadPart, bytes per second; at least 1.
    pub upload_bytes_per_second: u64,
    /// CompleteMultipartUpload: stores put large objects together before they answer.
    pub complete: Duration,
    /// GetObject to its head, and then each time without a byte.
    pub get: Duration,
    /// DeleteObject and AbortMultipartUpload.
    pub delete: Duration,
    /// HeadBucket.
    pub health: Duration,
    /// Everything else.
    pub request: Duration,
}

impl S3Timeouts {
    /// How long the store may still carry out a PutObject or UploadPart that was given up: a minute, and longer where a slow
    /// store or link is expected, on which bytes are still under way then.
    pub(crate) fn late_upload(&self) -> Duration {
        Duration::from_secs(60).max(2 * self.upload).max(self.of_upload(5 * MIB as u64))
    }

    /// The limit of a PutObject or UploadPart of so many bytes.
    pub fn of_upload(&self, bytes: u64) -> Duration {
        self.upload + Duration::from_secs(bytes.div_ceil(self.upload_bytes_per_second.max(1)))
    }
}

/// Orderly end.
#[derive(Clone, Debug)]
pub struct ShutdownConfig {
    /// Not ready, but still serving and accepting.
    pub grace: Duration,
    /// After the grace: time for what is in flight.
    pub drain: Duration,
}

const MIB: usize = 1024 * 1024;

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            advertised_host: String::new(),
            advertised_port: 9092,
            request_max_bytes: 100 * MIB,
            inflight_requests_per_client: 64,
            inflight_bytes_per_client: 128 * MIB,
            frame_memory_bytes: 512 * MIB,
            small_request_memory_bytes: 512 * MIB,
            answer_memory_bytes: 512 * MIB,
            connections: 50_000,
            idle_timeout: None,
            client_wait_max: Duration::from_secs(300),
            read_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(300),
            fetch_wait_slice: Duration::from_millis(500),
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            static_backends: Vec::new(),
            own_addresses: Vec::new(),
            cache_ttl: Duration::from_secs(60),
            connect_attempts: 6,
            connect_backoff: Duration::from_millis(500),
            dial_timeout: Duration::from_secs(5),
            connect_total: Duration::from_secs(15),
            page_keys: 5_000,
            kind: ClusterKind::KafScale,
            idempotent_producers: IdempotentProducers::Refuse,
            sasl: None,
        }
    }
}

impl Default for LfsConfig {
    fn default() -> Self {
        Self {
            bucket: String::new(),
            namespace: "default".into(),
            proxy_id: String::new(),
            static_backends: Vec::new(),
            connect_attempts: 6,
            connect_backoff: Duration::from_millis(500),
            dial_timeout: Duration::from_secs(5),
            max_blob_bytes: Some(5 << 30),
            chunk_bytes: 5 * MIB,
            single_put_below_bytes: 5 * MIB,
            hash_inline_bytes: MIB / 4,
            hash_job_bytes: MIB,
            parts_in_flight: 5,
            upload_memory_bytes: 256 * MIB,
            checksum_algorithm: crate::lfs::checksum::Algorithm::Sha256,
            topic_max_length: 249,
            presign_enabled: false,
            presign_ttl: Duration::from_secs(120),
            download_memory_bytes: MIB as u64,
            download_disk_bytes: 10 << 30,
            api_key: None,
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(300),
            s3_health_interval: Duration::from_secs(30),
            s3_timeouts: S3Timeouts::default(),
            ensure_bucket: false,
            exchanges: 4_096,
        }
    }
}

impl Default for S3Timeouts {
    fn default() -> Self {
        Self {
            upload: Duration::from_secs(30),
            upload_bytes_per_second: MIB as u64,
            complete: Duration::from_secs(300),
            get: Duration::from_secs(30),
            delete: Duration::from_secs(10),
            health: Duration::from_secs(10),
            request: Duration::from_secs(15),
        }
    }
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self { grace: Duration::ZERO, drain: Duration::from_secs(10) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listener: ListenerConfig::default(),
            cluster: ClusterConfig::default(),
            lfs: None,
            shutdown: ShutdownConfig::default(),
            first_shard: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_upload_is_waited_for_a_minute_or_longer_where_slow_ones_are_expected() {
        // The limit beside the bytes, seconds; bytes per second; what is waited, seconds.
        let table = [(30, 1 << 20, 60), (6, 1 << 20, 60), (90, 1 << 20, 180), (30, 1 << 16, 110)];
        for (upload, upload_bytes_per_second, late) in table {
            let upload = Duration::from_secs(upload);
            let timeouts = S3Timeouts { upload, upload_bytes_per_second, ..S3Timeouts::default() };
            assert_eq!(timeouts.late_upload(), Duration::from_secs(late), "{timeouts:?}");
        }
    }

    /// Prefix, a topic name of 249 bytes, the partition, and what the message adds for each key.
    const LONGEST_KEY: u32 = 27 + 249 + 11 + 43;

    #[test]
    fn a_page_of_leases_fits_into_a_message_and_a_large_cluster_into_a_few_pages() {
        let page_keys = ClusterConfig::default().page_keys;
        assert!(page_keys * LONGEST_KEY < 4 * 1024 * 1024, "{page_keys}");
        assert!(60_000_u32.div_ceil(page_keys) <= 12, "{page_keys}");
    }

    #[test]
    fn clients_wait_no_longer_than_they_may() {
        let config = ListenerConfig { client_wait_max: Duration::from_secs(5), ..ListenerConfig::default() };
        for (asked_ms, granted_ms) in
            [(i32::MIN, 0), (-1, 0), (0, 0), (4_999, 4_999), (5_000, 5_000), (5_001, 5_000), (i32::MAX, 5_000)]
        {
            assert_eq!(config.granted_wait(asked_ms), Duration::from_millis(granted_ms), "{asked_ms}");
        }
    }
}
