use std::collections::BTreeMap;

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingError> {
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let environment = |name: &str| variables.get(name).cloned();
    Settings::read(&Given::new(None, &environment))
}

fn with(name: &str, value: &str) -> Result<Settings, SettingError> {
    read(&[
        ("KAFSCALE_PROXY_ETCD_ENDPOINTS", "etcd:2379"),
        ("KAFSCALE_PROXY_LFS_ENABLED", "true"),
        ("KAFSCALE_LFS_PROXY_S3_BUCKET", "blobs"),
        ("KAFSCALE_LFS_PROXY_S3_REGION", "eu-west-1"),
        (name, value),
    ])
}

/// What a setting does, as text, for one table over all kinds.
type Shown = fn(&Settings) -> String;

const MIB: i64 = 1024 * 1024;

#[test]
fn each_setting_reaches_its_place() {
    let lfs = |settings: &Settings| settings.process.lfs.clone().unwrap_or_default();
    let table: &[(&str, &str, Shown, &str)] = &[
        ("KAFSCALE_PROXY_ADDR", " :9093 ", |s| s.kafka_address.clone(), ":9093"),
        ("KAFSCALE_PROXY_ADDR", ":9093", |s| s.process.listener.advertised_port.to_string(), "9093"),
        ("KAFSCALE_PROXY_ADVERTISED_PORT", "0", |s| s.process.listener.advertised_port.to_string(), "9092"),
        ("KAFSCALE_PROXY_ADVERTISED_PORT", "-5", |s| s.process.listener.advertised_port.to_string(), "9092"),
        ("KAFSCALE_PROXY_ADVERTISED_PORT", "19092", |s| s.process.listener.advertised_port.to_string(), "19092"),
        (
            "KAFSCALE_PROXY_ADVERTISED_HOST",
            "kafka.example",
            |s| s.process.listener.advertised_host.clone(),
            "kafka.example",
        ),
        ("KAFSCALE_PROXY_HEALTH_ADDR", ":9094", |s| format!("{:?}", s.health_address), "Some(\":9094\")"),
        ("KAFSCALE_PROXY_HEALTH_ADDR", " ", |s| format!("{:?}", s.health_address), "None"),
        ("KAFSCALE_PROXY_ETCD_ENDPOINTS", "a:1, b:2 ,", |s| s.etcd.endpoints.join("|"), "a:1|b:2"),
        ("KAFSCALE_PROXY_ETCD_USERNAME", "root", |s| format!("{:?}", s.etcd.user), "Some((\"root\", \"\"))"),
        ("KAFSCALE_PROXY_ETCD_PASSWORD", "alone", |s| format!("{:?}", s.etcd.user), "None"),
        ("KAFSCALE_PROXY_BACKENDS", "x:1,y:2", |s| s.process.cluster.static_backends.join("|"), "x:1|y:2"),
        ("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", "20", |s| format!("{:?}", s.process.cluster.cache_ttl), "20s"),
        ("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", "0", |s| format!("{:?}", s.process.cluster.cache_ttl), "60s"),
        ("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", "-1", |s| format!("{:?}", s.process.cluster.cache_ttl), "60s"),
        ("KAFSCALE_PROXY_BACKEND_BACKOFF_MS", "0", |s| format!("{:?}", s.process.cluster.connect_backoff), "500ms"),
        ("KAFSCALE_PROXY_BACKEND_RETRIES", "0", |s| s.process.cluster.connect_attempts.to_string(), "1"),
        ("KAFSCALE_PROXY_BACKEND_RETRIES", "", |s| s.process.cluster.connect_attempts.to_string(), "6"),
        ("KAFSCALE_PROXY_DIAL_TIMEOUT_MS", "100", |s| format!("{:?}", s.process.cluster.dial_timeout), "100ms"),
        ("KAFSCALE_PROXY_SHARDS", "3", |s| s.shards.to_string(), "3"),
        ("KAFSCALE_PROXY_IDLE_TIMEOUT_SEC", "0", |s| format!("{:?}", s.process.listener.idle_timeout), "None"),
        ("KAFSCALE_PROXY_IDLE_TIMEOUT_SEC", "600", |s| format!("{:?}", s.process.listener.idle_timeout), "Some(600s)"),
        ("KAFSCALE_PROXY_CLIENT_WAIT_MAX_SEC", "60", |s| format!("{:?}", s.process.listener.client_wait_max), "60s"),
        ("KAFSCALE_PROXY_CLIENT_WAIT_MAX_SEC", "0", |s| format!("{:?}", s.process.listener.client_wait_max), "300s"),
        (
            "KAFSCALE_PROXY_SMALL_REQUEST_MEMORY_BYTES",
            "7",
            |s| s.process.listener.small_request_memory_bytes.to_string(),
            "7",
        ),
        ("KAFSCALE_PROXY_ANSWER_MEMORY_BYTES", "7", |s| s.process.listener.answer_memory_bytes.to_string(), "7"),
        ("KAFSCALE_PROXY_READ_TIMEOUT_SEC", "0", |s| format!("{:?}", s.process.listener.read_timeout), "30s"),
        ("KAFSCALE_PROXY_REQUEST_TIMEOUT_SEC", "600", |s| format!("{:?}", s.process.listener.request_timeout), "600s"),
        ("KAFSCALE_PROXY_WRITE_TIMEOUT_SEC", "-1", |s| format!("{:?}", s.process.listener.write_timeout), "300s"),
        ("KAFSCALE_PROXY_SHUTDOWN_GRACE_SEC", "", |s| format!("{:?}", s.process.shutdown.grace), "0ns"),
        ("KAFSCALE_LFS_PROXY_HTTP_SHUTDOWN_TIMEOUT_SEC", "-1", |s| format!("{:?}", s.process.shutdown.drain), "10s"),
        ("KAFSCALE_LFS_PROXY_HTTP_ADDR", ":8080", |s| format!("{:?}", s.http_address), "Some(\":8080\")"),
        ("KAFSCALE_LFS_PROXY_HTTP_HEADER_TIMEOUT_SEC", "", |s| format!("{:?}", s.http.header_timeout), "10s"),
        ("KAFSCALE_LFS_PROXY_HTTP_MAX_CONNECTIONS", "0", |s| s.http.max_connections.to_string(), "4096"),
        ("KAFSCALE_LFS_PROXY_HTTP_MAX_HEADER_BYTES", "", |s| s.http.max_header_bytes.to_string(), "1048576"),
        (
            "KAFSCALE_LFS_PROXY_S3_ENDPOINT",
            "",
            |s| format!("{:?}", s.s3.as_ref().map(|s3| s3.path_style)),
            "Some(false)",
        ),
        (
            "KAFSCALE_LFS_PROXY_S3_ENDPOINT",
            "http://minio:9000/",
            |s| format!("{:?}", s.s3.as_ref().map(|s3| (s3.path_style, s3.public_endpoint.clone()))),
            "Some((true, Some(\"http://minio:9000\")))",
        ),
        (
            "KAFSCALE_LFS_PROXY_S3_ACCESS_KEY",
            "alone",
            |s| format!("{:?}", s.s3.as_ref().map(|s3| s3.credentials.is_some())),
            "Some(false)",
        ),
        (
            "KAFSCALE_LFS_PROXY_S3_CONNECT_TIMEOUT_MS",
            "250",
            |s| format!("{:?}", s.s3.as_ref().map(|s3| s3.connect_timeout)),
            "Some(250ms)",
        ),
        (
            "KAFSCALE_LFS_PROXY_S3_SIGN_PAYLOAD",
            "yes",
            |s| format!("{:?}", s.s3.as_ref().map(|s3| s3.sign_payload)),
            "Some(true)",
        ),
        (
            "KAFSCALE_PROXY_LFS_ENABLED",
            "off",
            |s| format!("{}{}", s.process.lfs.is_some(), s.s3.is_some()),
            "falsefalse",
        ),
    ];
    for (name, value, shown, expected) in table {
        assert_eq!(with(name, value).map(|settings| shown(&settings)).as_deref(), Ok(*expected), "{name}={value:?}");
    }
    for (name, value, shown, expected) in [
        (
            "KAFSCALE_LFS_PROXY_MAX_BLOB_SIZE",
            "0",
            (|l| l.max_blob_bytes.map_or(-1, |n| n as i64)) as fn(&LfsConfig) -> i64,
            -1,
        ),
        ("KAFSCALE_LFS_PROXY_MAX_BLOB_SIZE", "-7", |l| l.max_blob_bytes.map_or(-1, |n| n as i64), -1),
        ("KAFSCALE_LFS_PROXY_MAX_BLOB_SIZE", "", |l| l.max_blob_bytes.map_or(-1, |n| n as i64), 5120 * MIB),
        ("KAFSCALE_LFS_PROXY_CHUNK_SIZE", "1", |l| l.chunk_bytes as i64, 5 * MIB),
        ("KAFSCALE_LFS_PROXY_CHUNK_SIZE", "0", |l| l.chunk_bytes as i64, 5 * MIB),
        ("KAFSCALE_LFS_PROXY_CHUNK_SIZE", "16777216", |l| l.chunk_bytes as i64, 16 * MIB),
        ("KAFSCALE_LFS_PROXY_DOWNLOAD_TTL_SEC", "0", |l| l.presign_ttl.as_secs() as i64, 120),
        ("KAFSCALE_LFS_PROXY_DIAL_TIMEOUT_MS", "-1", |l| l.dial_timeout.as_millis() as i64, 5000),
        ("KAFSCALE_LFS_PROXY_BACKEND_RETRIES", "-1", |l| i64::from(l.connect_attempts), 1),
        ("KAFSCALE_LFS_PROXY_S3_HEALTH_INTERVAL_SEC", "0", |l| l.s3_health_interval.as_secs() as i64, 30),
        ("KAFSCALE_LFS_PROXY_S3_UPLOAD_TIMEOUT_SEC", "61", |l| l.s3_timeouts.upload.as_secs() as i64, 61),
        ("KAFSCALE_LFS_PROXY_S3_UPLOAD_TIMEOUT_SEC", "0", |l| l.s3_timeouts.upload.as_secs() as i64, 30),
        (
            "KAFSCALE_LFS_PROXY_S3_UPLOAD_BYTES_PER_SEC",
            "62000",
            |l| l.s3_timeouts.upload_bytes_per_second as i64,
            62_000,
        ),
        ("KAFSCALE_LFS_PROXY_S3_UPLOAD_BYTES_PER_SEC", "-1", |l| l.s3_timeouts.upload_bytes_per_second as i64, MIB),
        ("KAFSCALE_LFS_PROXY_S3_COMPLETE_TIMEOUT_SEC", "63", |l| l.s3_timeouts.complete.as_secs() as i64, 63),
        ("KAFSCALE_LFS_PROXY_S3_GET_TIMEOUT_SEC", "64", |l| l.s3_timeouts.get.as_secs() as i64, 64),
        ("KAFSCALE_LFS_PROXY_S3_DELETE_TIMEOUT_SEC", "65", |l| l.s3_timeouts.delete.as_secs() as i64, 65),
        ("KAFSCALE_LFS_PROXY_S3_HEALTH_TIMEOUT_SEC", "66", |l| l.s3_timeouts.health.as_secs() as i64, 66),
        ("KAFSCALE_LFS_PROXY_S3_REQUEST_TIMEOUT_SEC", "67", |l| l.s3_timeouts.request.as_secs() as i64, 67),
        ("KAFSCALE_LFS_PROXY_HTTP_READ_TIMEOUT_SEC", "1800", |l| l.read_timeout.as_secs() as i64, 1800),
        ("KAFSCALE_LFS_PROXY_HTTP_WRITE_TIMEOUT_SEC", "", |l| l.write_timeout.as_secs() as i64, 300),
        ("KAFSCALE_LFS_PROXY_PARTS_IN_FLIGHT", "4", |l| l.parts_in_flight as i64, 4),
    ] {
        assert_eq!(with(name, value).map(|s| shown(&lfs(&s))), Ok(expected), "{name}={value:?}");
    }
    assert_eq!(with("KAFSCALE_LFS_PROXY_CHECKSUM_ALGO", "MD5").map(|s| lfs(&s).checksum_algorithm), Ok(Algorithm::Md5));
}

#[test]
fn wrong_values_stop_the_start_and_are_named() {
    for (name, value) in [
        ("KAFSCALE_PROXY_ADDR", "9092"),
        ("KAFSCALE_PROXY_ADVERTISED_PORT", "65536"),
        ("KAFSCALE_PROXY_ADVERTISED_PORT", "kafka"),
        ("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", "60s"),
        ("KAFSCALE_PROXY_BACKEND_RETRIES", "six"),
        ("KAFSCALE_PROXY_LFS_ENABLED", "maybe"),
        ("KAFSCALE_PROXY_IDEMPOTENT_PRODUCERS", "on"),
        ("KAFSCALE_LFS_PROXY_UPLOAD_SESSION_TTL_SEC", "1h"),
        ("KAFSCALE_LFS_PROXY_CHECKSUM_ALGO", "sha1"),
        ("KAFSCALE_LFS_PROXY_MAX_BLOB_SIZE", "5GiB"),
        ("KAFSCALE_LFS_PROXY_S3_BUCKET", "kafscale-lfs"),
        ("KAFSCALE_LFS_PROXY_S3_BUCKET", "kafscale-example"),
        ("KAFSCALE_LFS_PROXY_S3_ENDPOINT", "minio:9000"),
        ("KAFSCALE_LFS_PROXY_S3_ENDPOINT", "ftp://minio"),
        ("KAFSCALE_LFS_PROXY_S3_FORCE_PATH_STYLE", "path"),
        ("KAFSCALE_LFS_PROXY_S3_REQUEST_CHECKSUM", "sometimes"),
        ("KAFSCALE_LFS_PROXY_CHUNK_SIZE", "5368709121"),
        ("KAFSCALE_PROXY_REQUEST_MAX_BYTES", "1073741825"),
        ("KAFSCALE_LFS_PROXY_S3_UPLOAD_TIMEOUT_SEC", "86401"),
        ("KAFSCALE_LFS_PROXY_S3_GET_TIMEOUT_SEC", "30s"),
        ("KAFSCALE_LFS_PROXY_S3_UPLOAD_BYTES_PER_SEC", "60"),
        ("KAFSCALE_LFS_PROXY_HTTP_TLS_ENABLED", "true"),
        ("KAFSCALE_LFS_PROXY_BACKEND_SASL_MECHANISM", "PLAIN"),
    ] {
        let error = with(name, value).expect_err(name).to_string();
        assert!(error.contains(name) && error.contains(value), "{error}");
    }
    for missing in ["KAFSCALE_PROXY_ETCD_ENDPOINTS", "KAFSCALE_LFS_PROXY_S3_BUCKET", "KAFSCALE_LFS_PROXY_S3_REGION"] {
        let error = with(missing, "").expect_err(missing).to_string();
        assert!(error.contains(missing), "{error}");
    }
    assert!(with("KAFSCALE_LFS_PROXY_HTTP_TLS_ENABLED", "false").is_ok());
}

/// A dial is a part of every request to S3.
#[test]
fn a_dial_of_s3_is_shorter_than_every_request() {
    let dial = "KAFSCALE_LFS_PROXY_S3_CONNECT_TIMEOUT_MS";
    let error = with(dial, "10000").map(|_| ()).expect_err("HeadBucket and removals have 10 s").to_string();
    assert!(error.contains(dial) && error.contains("10 s"), "{error}");
    assert!(with(dial, "9999").is_ok());
    let limits = ["UPLOAD", "COMPLETE", "GET", "DELETE", "HEALTH", "REQUEST"];
    for limit in limits.map(|name| format!("KAFSCALE_LFS_PROXY_S3_{name}_TIMEOUT_SEC")) {
        let error = with(&limit, "5").map(|_| ()).expect_err(&limit).to_string();
        assert!(error.contains(&limit) && error.contains(dial), "{error}");
        assert!(with(&limit, "6").is_ok(), "{limit}");
    }
}

/// No number, however large, reaches a place where it would wrap around, panic or disarm a limit.
#[test]
fn absurd_numbers_stop_the_start() {
    for setting in SETTINGS
        .iter()
        .filter(|setting| matches!(setting.value, "SECONDS" | "MILLISECONDS" | "BYTES" | "COUNT" | "PORT"))
    {
        let most = setting.most();
        for absurd in [i64::MAX.to_string(), most.saturating_add(1).to_string()] {
            let error = with(setting.variable, &absurd).map(|_| ()).expect_err(setting.variable).to_string();
            assert!(error.contains(setting.variable), "{error}");
        }
        if setting.value != "PORT" {
            let largest = match with(setting.variable, &most.to_string()) {
                Ok(largest) => largest,
                // Too much beside another setting, which is named.
                Err(error) => {
                    let named = [&error.name, &error.reason].map(|text| text.contains(setting.variable));
                    assert!(named.contains(&true) && named.contains(&false), "{error}");
                    continue;
                }
            };
            for shard in [0, 7] {
                let config = largest.shard_config(shard);
                assert!(config.listener.frame_memory_bytes > config.listener.request_max_bytes);
            }
            assert!(std::time::Instant::now().checked_add(largest.http.idle_timeout).is_some());
        }
    }
}

#[test]
fn the_proxy_is_no_broker_of_its_own() {
    let listens = |address: &str, brokers: &str| {
        read(&[
            ("KAFSCALE_PROXY_ETCD_ENDPOINTS", "etcd:2379"),
            ("KAFSCALE_PROXY_ADDR", address),
            ("KAFSCALE_PROXY_ADVERTISED_HOST", "Proxy.example"),
            ("KAFSCALE_PROXY_ADVERTISED_PORT", "19092"),
            ("KAFSCALE_PROXY_BACKENDS", brokers),
        ])
    };
    for (address, brokers, starts) in [
        (":9092", "a:9092,b:9092", true),
        (":9092", "a:9092,proxy.EXAMPLE:19092", false),
        (":9092", "proxy.example:9092", true),
        (":9092", "127.0.0.1:9092", false),
        ("0.0.0.0:9092", "localhost:9092", false),
        ("[::]:9092", "[::1]:9092", false),
        (":9092", "127.0.0.1:9093", true),
        ("10.0.0.7:9092", "127.0.0.1:9092", true),
        ("10.0.0.7:9092", "10.0.0.7:9092", false),
    ] {
        let settings = listens(address, brokers);
        assert_eq!(settings.is_ok(), starts, "{address} {brokers}");
        if let Err(error) = settings {
            assert!(error.to_string().contains("KAFSCALE_PROXY_BACKENDS"), "{error}");
        }
    }
    let discovered = listens(":9092", "").unwrap().process.cluster.own_addresses;
    let expected = [("localhost", 9092), ("127.0.0.1", 9092), ("[::1]", 9092), ("Proxy.example", 19092)];
    assert!(discovered.iter().map(|(host, port)| (host.as_str(), *port)).eq(expected), "{discovered:?}");
}

#[test]
fn older_names_are_fallbacks() {
    let older = [
        ("KAFSCALE_LFS_PROXY_ADDR", ":9192"),
        ("KAFSCALE_LFS_PROXY_ADVERTISED_HOST", "old"),
        ("KAFSCALE_LFS_PROXY_ADVERTISED_PORT", "19"),
        ("KAFSCALE_LFS_PROXY_HEALTH_ADDR", ":9194"),
        ("KAFSCALE_LFS_PROXY_ETCD_ENDPOINTS", "old:2379"),
        ("KAFSCALE_LFS_PROXY_BACKEND_CACHE_TTL_SEC", "33"),
        ("KAFSCALE_LFS_PROXY_S3_BUCKET", "blobs"),
        ("KAFSCALE_LFS_PROXY_S3_REGION", "eu-west-1"),
    ];
    let settings = read(&older).unwrap();
    assert_eq!(settings.kafka_address, ":9192");
    assert_eq!(settings.process.listener.advertised_host, "old");
    assert_eq!(settings.process.listener.advertised_port, 19);
    assert_eq!(settings.health_address.as_deref(), Some(":9194"));
    assert_eq!(settings.etcd.endpoints, ["old:2379"]);
    assert_eq!(settings.process.cluster.cache_ttl, Duration::from_secs(33));
    assert!(settings.process.lfs.is_some(), "LFS is on by default with the older listener name");

    let mut both = older.to_vec();
    both.push(("KAFSCALE_PROXY_ADDR", ":9092"));
    both.push(("KAFSCALE_PROXY_LFS_ENABLED", "false"));
    let settings = read(&both).unwrap();
    assert_eq!(settings.kafka_address, ":9092");
    assert!(settings.process.lfs.is_none());
}

#[test]
fn options_win_over_variables_and_are_named_in_errors() {
    let command = clap::Command::new("test").args(arguments());
    let matches = command.try_get_matches_from(["test", "--etcd-endpoints=a:1", "--backend-retries", "x"]).unwrap();
    let environment = |name: &str| (name == "KAFSCALE_PROXY_ETCD_ENDPOINTS").then(|| "b:2".to_owned());
    let given = Given::new(Some(&matches), &environment);
    assert_eq!(given.list("KAFSCALE_PROXY_ETCD_ENDPOINTS"), ["a:1"]);
    let error = Settings::read(&given).expect_err("retries");
    assert_eq!(error.to_string(), "--backend-retries: \"x\": not a whole number");
}

#[test]
fn secrets_are_not_shown() {
    let environment = |name: &str| Some(format!("value of {name}"));
    for (name, value, _) in Given::new(None, &environment).effective() {
        assert_eq!(value == "(hidden)", name.contains("PASSWORD") || name.contains("KEY") || name.contains("TOKEN"));
    }
}

#[test]
fn defaults_that_must_be_positive_are() {
    for setting in SETTINGS {
        if matches!(setting.value, "SECONDS" | "MILLISECONDS" | "BYTES" | "COUNT") && !setting.default.is_empty() {
            let number: i64 = setting.default.parse().unwrap();
            let zero_allowed =
                ["KAFSCALE_PROXY_IDLE_TIMEOUT_SEC", "KAFSCALE_PROXY_SHUTDOWN_GRACE_SEC"].contains(&setting.variable);
            assert!(number > 0 || zero_allowed, "{}", setting.variable);
        }
    }
}

/// The page for operators has a row for each setting, with its option and its default.
#[test]
fn the_operations_page_lists_every_setting() {
    let page = include_str!("../../../docs/operations.md");
    for setting in SETTINGS {
        let row = format!("| `{}` | `--{}` |", setting.variable, setting.option);
        let row = page.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("no row {row}"));
        assert!(row.contains(setting.help), "{row}\nis not: {}", setting.help);
        let default = if setting.default.is_empty() { setting.derived_default } else { setting.default };
        assert!(row.contains(default), "{row}\nlacks the default {default}");
    }
}
