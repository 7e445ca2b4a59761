//! Every setting, in one table: environment variable, command line option, default and help.

/// One setting. Both its option and its variable take the same text; the option wins.
#[derive(Debug)]
pub struct Setting {
    /// Environment variable; also the name of the setting in the program.
    pub variable: &'static str,
    /// An older name of the variable, read when the new one is not set.
    pub older_variable: Option<&'static str>,
    /// Command line option without the dashes.
    pub option: &'static str,
    /// What kind of value, for the help text; names the unit.
    pub value: &'static str,
    /// Taken when neither option nor variable is given or not empty; empty means that there is none.
    pub default: &'static str,
    /// Shown in place of a default that depends on other things.
    pub derived_default: &'static str,
    /// Largest number; `None` is the one of its kind.
    most: Option<i64>,
    /// One line of help.
    pub help: &'static str,
    /// Heading in the help text.
    pub heading: &'static str,
}

impl Setting {
    /// Whether the value must not be printed.
    pub fn is_secret(&self) -> bool {
        self.value == "SECRET"
    }

    const fn new(
        heading: &'static str,
        variable: &'static str,
        option: &'static str,
        value: &'static str,
        default: &'static str,
        help: &'static str,
    ) -> Self {
        Self { variable, older_variable: None, option, value, default, derived_default: "", most: None, help, heading }
    }

    /// The largest number that makes sense. Above it a value is a mistake, and some would wrap around or disarm a limit.
    pub fn most(&self) -> i64 {
        self.most.unwrap_or(match self.value {
            "SECONDS" => YEAR_SECONDS,
            "MILLISECONDS" => DAY_MILLISECONDS,
            "BYTES" => PIB,
            "COUNT" => 1_000_000_000,
            _ => i64::MAX,
        })
    }

    const fn at_most(self, most: i64) -> Self {
        Self { most: Some(most), ..self }
    }

    const fn older(self, variable: &'static str) -> Self {
        Self { older_variable: Some(variable), ..self }
    }

    const fn derived(self, text: &'static str) -> Self {
        Self { derived_default: text, ..self }
    }
}

const YEAR_SECONDS: i64 = 365 * 24 * 60 * 60;
const DAY_SECONDS: i64 = 24 * 60 * 60;
const DAY_MILLISECONDS: i64 = DAY_SECONDS * 1000;
const GIB: i64 = 1 << 30;
const TIB: i64 = 1 << 40;
const PIB: i64 = 1 << 50;

const KAFKA: &str = "Kafka listener and cluster";
const LIMITS: &str = "Limits and logging";
const LFS: &str = "LFS";
const S3: &str = "S3";
const HTTP: &str = "HTTP server";

/// All settings, in the order of the help text.
pub const SETTINGS: &[Setting] = &[
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_ADDR",
        "addr",
        "ADDRESS",
        ":9092",
        "Kafka listener, host:port; an empty host is every address",
    )
    .older("KAFSCALE_LFS_PROXY_ADDR"),
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_HEALTH_ADDR",
        "health-addr",
        "ADDRESS",
        "",
        "Server of /readyz and /livez; empty is none",
    )
    .older("KAFSCALE_LFS_PROXY_HEALTH_ADDR"),
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_ADVERTISED_HOST",
        "advertised-host",
        "HOST",
        "",
        "Host that clients are told to connect to",
    )
    .older("KAFSCALE_LFS_PROXY_ADVERTISED_HOST"),
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_ADVERTISED_PORT",
        "advertised-port",
        "PORT",
        "",
        "Port that clients are told to connect to",
    )
    .older("KAFSCALE_LFS_PROXY_ADVERTISED_PORT")
    .derived("the listener's port"),
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_ETCD_ENDPOINTS",
        "etcd-endpoints",
        "LIST",
        "",
        "etcd endpoints, comma list; required",
    )
    .older("KAFSCALE_LFS_PROXY_ETCD_ENDPOINTS"),
    Setting::new(KAFKA, "KAFSCALE_PROXY_ETCD_USERNAME", "etcd-username", "NAME", "", "etcd user"),
    Setting::new(KAFKA, "KAFSCALE_PROXY_ETCD_PASSWORD", "etcd-password", "SECRET", "", "etcd password"),
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_BACKENDS",
        "backends",
        "LIST",
        "",
        "Static brokers, comma list of host:port; switches discovery and its time to live off",
    ),
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC",
        "backend-cache-ttl-sec",
        "SECONDS",
        "60",
        "How long what was read from etcd may be used, seconds",
    )
    .older("KAFSCALE_LFS_PROXY_BACKEND_CACHE_TTL_SEC"),
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_BACKEND_BACKOFF_MS",
        "backend-backoff-ms",
        "MILLISECONDS",
        "500",
        "Wait between attempts to reach a broker, milliseconds",
    ),
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_BACKEND_RETRIES",
        "backend-retries",
        "COUNT",
        "6",
        "Attempts to reach a broker",
    ),
    Setting::new(KAFKA, "KAFSCALE_PROXY_LFS_ENABLED", "lfs-enabled", "BOOLEAN", "", "Switches the LFS module on")
        .derived("true where KAFSCALE_LFS_PROXY_ADDR is set, else false"),
    Setting::new(
        KAFKA,
        "KAFSCALE_PROXY_IDEMPOTENT_PRODUCERS",
        "idempotent-producers",
        "MODE",
        "refuse",
        "Idempotent producers in front of KafScale brokers: refuse them, or accept them with at-least-once",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_LFS_PROXY_METRICS_ADDR",
        "metrics-addr",
        "ADDRESS",
        "",
        "Server of /metrics, host:port; empty is none",
    ),
    Setting::new(LIMITS, "KAFSCALE_PROXY_SHARDS", "shards", "COUNT", "", "Shards, each with a thread of its own")
        .at_most(1_024)
        .derived("one per core, at most 8"),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_REQUEST_MAX_BYTES",
        "request-max-bytes",
        "BYTES",
        "104857600",
        "Largest Kafka request, bytes; at most 1073741824",
    )
    // A request may have to be encoded anew in a version that takes more room, and no frame can be longer than 2 GiB.
    .at_most(GIB),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_CLIENT_INFLIGHT_REQUESTS",
        "client-inflight-requests",
        "COUNT",
        "64",
        "Requests of one client that may wait for their answers",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_CLIENT_INFLIGHT_BYTES",
        "client-inflight-bytes",
        "BYTES",
        "134217728",
        "Bytes of requests of one client that may wait for their answers",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_FRAME_MEMORY_BYTES",
        "frame-memory-bytes",
        "BYTES",
        "536870912",
        "Memory of the process for Kafka requests above 64 KiB, bytes",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_SMALL_REQUEST_MEMORY_BYTES",
        "small-request-memory-bytes",
        "BYTES",
        "536870912",
        "Memory of the process for smaller Kafka requests; beyond it one at a time of each client is taken, bytes",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_ANSWER_MEMORY_BYTES",
        "answer-memory-bytes",
        "BYTES",
        "536870912",
        "Memory of the process for answers of brokers above 64 KiB, bytes",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_MAX_CONNECTIONS",
        "max-connections",
        "COUNT",
        "50000",
        "Kafka connections of the process",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_IDLE_TIMEOUT_SEC",
        "idle-timeout-sec",
        "SECONDS",
        "0",
        "Close a Kafka client that is idle for so long, seconds; 0 never",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_CLIENT_WAIT_MAX_SEC",
        "client-wait-max-sec",
        "SECONDS",
        "300",
        "Longest wait that a Kafka client may ask for (Produce timeout, Fetch max_wait, rebalance timeout), seconds",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_READ_TIMEOUT_SEC",
        "read-timeout-sec",
        "SECONDS",
        "30",
        "No byte of the rest of a Kafka request, or no room for a large one, for so long, seconds",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_REQUEST_TIMEOUT_SEC",
        "request-timeout-sec",
        "SECONDS",
        "120",
        "A Kafka request takes at most so long from its first byte to its last, seconds",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_WRITE_TIMEOUT_SEC",
        "write-timeout-sec",
        "SECONDS",
        "300",
        "No byte of its answers taken by a Kafka client for so long, seconds",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_FETCH_WAIT_SLICE_MS",
        "fetch-wait-slice-ms",
        "MILLISECONDS",
        "500",
        "Longest wait that one fetch asks of a broker, milliseconds",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_DIAL_TIMEOUT_MS",
        "dial-timeout-ms",
        "MILLISECONDS",
        "5000",
        "One dial of the listener to a broker, milliseconds",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_SHUTDOWN_GRACE_SEC",
        "shutdown-grace-sec",
        "SECONDS",
        "0",
        "After a signal: not ready but still serving, seconds",
    ),
    Setting::new(
        LIMITS,
        "KAFSCALE_PROXY_LOG",
        "log",
        "FILTER",
        "info",
        "Log filter, as in `info` or `kafscale_proxy=debug`",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_HTTP_ADDR",
        "lfs-http-addr",
        "ADDRESS",
        "",
        "LFS HTTP API, host:port; empty is none",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_BACKENDS",
        "lfs-backends",
        "LIST",
        "",
        "Static brokers of the LFS HTTP API, used when there are no others",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_BACKEND_RETRIES",
        "lfs-backend-retries",
        "COUNT",
        "6",
        "Attempts of the LFS HTTP API to reach a broker",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_BACKEND_BACKOFF_MS",
        "lfs-backend-backoff-ms",
        "MILLISECONDS",
        "500",
        "Wait between these attempts, milliseconds",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_DIAL_TIMEOUT_MS",
        "lfs-dial-timeout-ms",
        "MILLISECONDS",
        "5000",
        "One dial of the LFS HTTP API, milliseconds",
    ),
    Setting::new(LFS, "KAFSCALE_LFS_PROXY_ID", "lfs-id", "ID", "", "proxy_id in envelopes"),
    Setting::new(LFS, "KAFSCALE_S3_NAMESPACE", "s3-namespace", "NAME", "default", "First segment of object keys"),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_MAX_BLOB_SIZE",
        "lfs-max-blob-size",
        "BYTES",
        "5368709120",
        "Largest blob, bytes; 0 is unlimited",
    )
    .at_most(50 * TIB),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_CHUNK_SIZE",
        "lfs-chunk-size",
        "BYTES",
        "5242880",
        "Size of an S3 part, bytes, at least 5242880",
    )
    .at_most(5 * GIB),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_CHECKSUM_ALGO",
        "lfs-checksum-algo",
        "NAME",
        "sha256",
        "Checksum of envelopes: sha256, md5, crc32 or none",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_TOPIC_MAX_LENGTH",
        "lfs-topic-max-length",
        "COUNT",
        "249",
        "Longest topic name",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_UPLOAD_SESSION_TTL_SEC",
        "lfs-upload-session-ttl-sec",
        "SECONDS",
        "3600",
        "Life of an upload session, seconds",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_DOWNLOAD_TTL_SEC",
        "lfs-download-ttl-sec",
        "SECONDS",
        "120",
        "Longest validity of a presigned URL, seconds",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_PRESIGN_ENABLED",
        "lfs-presign-enabled",
        "BOOLEAN",
        "false",
        "Hand out presigned URLs, which go past the checksum test",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_PARTS_IN_FLIGHT",
        "lfs-parts-in-flight",
        "COUNT",
        "5",
        "Parts of one upload that are sent at once",
    )
    .at_most(10_000),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_UPLOAD_MEMORY_BYTES",
        "lfs-upload-memory-bytes",
        "BYTES",
        "268435456",
        "Memory of the process for uploads, bytes",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_DOWNLOAD_MEMORY_BYTES",
        "lfs-download-memory-bytes",
        "BYTES",
        "1048576",
        "Downloads up to this size are verified in memory, bytes",
    ),
    Setting::new(
        LFS,
        "KAFSCALE_LFS_PROXY_DOWNLOAD_DISK_BYTES",
        "lfs-download-disk-bytes",
        "BYTES",
        "10737418240",
        "Temporary files of the process for larger downloads, bytes",
    ),
    Setting::new(S3, "KAFSCALE_LFS_PROXY_S3_BUCKET", "s3-bucket", "NAME", "", "Bucket of the blobs"),
    Setting::new(S3, "KAFSCALE_LFS_PROXY_S3_REGION", "s3-region", "NAME", "", "Region of the bucket"),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_ENDPOINT",
        "s3-endpoint",
        "URL",
        "",
        "Endpoint URL of another store than AWS",
    ),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_PUBLIC_ENDPOINT",
        "s3-public-endpoint",
        "URL",
        "",
        "Endpoint URL in presigned URLs",
    )
    .derived("the endpoint"),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_ACCESS_KEY",
        "s3-access-key",
        "SECRET",
        "",
        "Access key; used when the secret key is set too, else the standard AWS chain",
    ),
    Setting::new(S3, "KAFSCALE_LFS_PROXY_S3_SECRET_KEY", "s3-secret-key", "SECRET", "", "Secret key"),
    Setting::new(S3, "KAFSCALE_LFS_PROXY_S3_SESSION_TOKEN", "s3-session-token", "SECRET", "", "Session token"),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_FORCE_PATH_STYLE",
        "s3-force-path-style",
        "BOOLEAN",
        "",
        "The bucket stands in the path, not in the host name",
    )
    .derived("true with an endpoint, else false"),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_ENSURE_BUCKET",
        "s3-ensure-bucket",
        "BOOLEAN",
        "false",
        "Create the bucket at start when it is not there",
    ),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_HEALTH_INTERVAL_SEC",
        "s3-health-interval-sec",
        "SECONDS",
        "30",
        "Interval of the health check, seconds",
    ),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_CONNECT_TIMEOUT_MS",
        "s3-connect-timeout-ms",
        "MILLISECONDS",
        "5000",
        "Time for one dial, TLS included, milliseconds; less than each time limit of a request",
    ),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_UPLOAD_TIMEOUT_SEC",
        "s3-upload-timeout-sec",
        "SECONDS",
        "30",
        "Time limit of PutObject and UploadPart, beside the time for their bytes, seconds",
    )
    .at_most(DAY_SECONDS),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_UPLOAD_BYTES_PER_SEC",
        "s3-upload-bytes-per-sec",
        "BYTES",
        "1048576",
        "Least speed of PutObject and UploadPart, bytes per second: their bytes have so much more time",
    ),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_COMPLETE_TIMEOUT_SEC",
        "s3-complete-timeout-sec",
        "SECONDS",
        "300",
        "Time limit of CompleteMultipartUpload, seconds",
    )
    .at_most(DAY_SECONDS),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_GET_TIMEOUT_SEC",
        "s3-get-timeout-sec",
        "SECONDS",
        "30",
        "Time limit of GetObject to its head, and then each time without a byte, seconds",
    )
    .at_most(DAY_SECONDS),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_DELETE_TIMEOUT_SEC",
        "s3-delete-timeout-sec",
        "SECONDS",
        "10",
        "Time limit of DeleteObject and AbortMultipartUpload, seconds",
    )
    .at_most(DAY_SECONDS),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_HEALTH_TIMEOUT_SEC",
        "s3-health-timeout-sec",
        "SECONDS",
        "10",
        "Time limit of HeadBucket, the health check, seconds",
    )
    .at_most(DAY_SECONDS),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_REQUEST_TIMEOUT_SEC",
        "s3-request-timeout-sec",
        "SECONDS",
        "15",
        "Time limit of all other requests, among them CreateMultipartUpload, seconds",
    )
    .at_most(DAY_SECONDS),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_REQUEST_CHECKSUM",
        "s3-request-checksum",
        "MODE",
        "when_required",
        "when_supported sends Content-MD5 with every object and part, which buckets with Object Lock demand",
    ),
    Setting::new(
        S3,
        "KAFSCALE_LFS_PROXY_S3_SIGN_PAYLOAD",
        "s3-sign-payload",
        "BOOLEAN",
        "false",
        "Sign the bytes of parts too, for stores that refuse UNSIGNED-PAYLOAD",
    ),
    Setting::new(
        HTTP,
        "KAFSCALE_LFS_PROXY_HTTP_API_KEY",
        "http-api-key",
        "SECRET",
        "",
        "Key that HTTP clients must send; empty lets everybody in",
    ),
    Setting::new(
        HTTP,
        "KAFSCALE_LFS_PROXY_HTTP_READ_TIMEOUT_SEC",
        "http-read-timeout-sec",
        "SECONDS",
        "30",
        "No byte of a request body for so long, seconds",
    ),
    Setting::new(
        HTTP,
        "KAFSCALE_LFS_PROXY_HTTP_WRITE_TIMEOUT_SEC",
        "http-write-timeout-sec",
        "SECONDS",
        "300",
        "No byte of an answer taken for so long, seconds",
    ),
    Setting::new(
        HTTP,
        "KAFSCALE_LFS_PROXY_HTTP_IDLE_TIMEOUT_SEC",
        "http-idle-timeout-sec",
        "SECONDS",
        "60",
        "Close an idle connection after so long, seconds",
    ),
    Setting::new(
        HTTP,
        "KAFSCALE_LFS_PROXY_HTTP_HEADER_TIMEOUT_SEC",
        "http-header-timeout-sec",
        "SECONDS",
        "10",
        "A request head takes at most so long, seconds",
    ),
    Setting::new(
        HTTP,
        "KAFSCALE_LFS_PROXY_HTTP_MAX_HEADER_BYTES",
        "http-max-header-bytes",
        "BYTES",
        "1048576",
        "Largest request head, bytes",
    )
    .at_most(GIB),
    Setting::new(
        HTTP,
        "KAFSCALE_LFS_PROXY_HTTP_SHUTDOWN_TIMEOUT_SEC",
        "http-shutdown-timeout-sec",
        "SECONDS",
        "10",
        "After a signal: time for what is in flight, seconds",
    ),
    Setting::new(
        HTTP,
        "KAFSCALE_LFS_PROXY_HTTP_MAX_EXCHANGES",
        "http-max-exchanges",
        "COUNT",
        "4096",
        "HTTP exchanges of the process at once",
    ),
    Setting::new(
        HTTP,
        "KAFSCALE_LFS_PROXY_HTTP_MAX_CONNECTIONS",
        "http-max-connections",
        "COUNT",
        "4096",
        "HTTP connections of the process at once; the health and the metrics server may each have as many beside them",
    ),
];

/// Settings of the documented contract that this build does not carry out. A value other than the one given here
/// stops the start: serving without the TLS that was asked for would be worse than not serving.
pub(crate) const UNSUPPORTED: &[(&str, &[&str])] = &[
    ("KAFSCALE_LFS_PROXY_HTTP_TLS_ENABLED", &["0", "false", "no", "n", "off"]),
    ("KAFSCALE_LFS_PROXY_BACKEND_TLS_ENABLED", &["0", "false", "no", "n", "off"]),
    ("KAFSCALE_LFS_PROXY_BACKEND_SASL_MECHANISM", &[]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_follow_the_convention() {
        let variables: BTreeSet<_> =
            SETTINGS.iter().flat_map(|setting| [Some(setting.variable), setting.older_variable]).flatten().collect();
        let older = SETTINGS.iter().filter(|setting| setting.older_variable.is_some()).count();
        assert_eq!(variables.len(), SETTINGS.len() + older);
        let options: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.option).collect();
        assert_eq!(options.len(), SETTINGS.len());
        for setting in SETTINGS {
            assert!(setting.variable.starts_with("KAFSCALE_"), "{}", setting.variable);
            assert!(setting.default.is_empty() || setting.derived_default.is_empty(), "{}", setting.variable);
        }
    }
}
