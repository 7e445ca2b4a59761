use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafscale_proxy_core::{BudgetStats, KnowledgeStats, LfsStats, SoftwareStats, TopicStats};

use super::super::process_stats::Usage;
use super::*;

/// A metric of a page, read as Prometheus reads it.
#[derive(Debug, Default, PartialEq)]
struct Shown {
    help: String,
    kind: String,
    labels: BTreeSet<String>,
    /// By everything before the value.
    samples: BTreeMap<String, f64>,
}

/// Reads a page by the rules of the text format; whatever they do not allow fails the test.
fn read(page: &str) -> BTreeMap<String, Shown> {
    let mut metrics: BTreeMap<String, Shown> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!metrics.contains_key(name), "{name} comes twice");
            current = name.to_owned();
            metrics.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current);
            metrics.get_mut(name).unwrap().kind = kind.to_owned();
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            let metric = metrics.get_mut(&current).unwrap();
            assert!(name == current || (base == current && metric.kind == "histogram"), "{line}");
            let names = labels.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(name, _)| name.to_owned());
            metric.labels.extend(names.filter(|name| name != "le"));
            let repeated = metric.samples.insert(series.to_owned(), value.parse().unwrap());
            assert_eq!(repeated, None, "{series} comes twice");
        }
    }
    metrics
}

fn lfs() -> LfsStats {
    let mut lfs = LfsStats { uploaded_bytes: 10, orphans: 1, ..LfsStats::default() };
    lfs.topics.insert("a\"b".into(), TopicStats { ok: 3, errors: 1 });
    lfs.topics.insert("t".into(), TopicStats { ok: 5, errors: 0 });
    lfs.unknown_topics.errors = 2;
    lfs.upload_duration.buckets[0] = 1;
    lfs.upload_duration.buckets[10] = 2;
    lfs.upload_duration.sum = Duration::from_millis(90_500);
    lfs.memory = BudgetStats { limit: 100, waits: 4, refusals: 2 };
    lfs.memory_taken_bytes = 40;
    lfs
}

/// The page of two shards that have been asked, of three.
fn page() -> String {
    let knowledge = KnowledgeStats {
        serving: true,
        snapshot_age: Some(Duration::from_secs(3)),
        partition_leases_age: Some(Duration::from_millis(2_500)),
        group_leases_age: None,
    };
    let software = |version: &str, clients| SoftwareStats { name: "sarama".into(), version: version.into(), clients };
    let mut first = ShardStats { lfs: Some(lfs()), knowledge, tasks: 5, ..ShardStats::default() };
    first.software = vec![software("1.61", 2), software("1.60", 0)];
    let mut second = ShardStats { lfs: Some(lfs()), tasks: 7, ..ShardStats::default() };
    second.software = vec![software("1.61", 1)];
    second.listener.turned_away = 9;
    second.busy = Duration::from_millis(1_250);
    let usage = Usage { cpu: Duration::from_secs(2), threads: 3, virtual_bytes: 4, resident_bytes: 5 };
    render(&Facts {
        shards: vec![
            Shard { index: 0, age: Duration::ZERO, stats: &first },
            Shard { index: 2, age: Duration::from_secs(8), stats: &second },
        ],
        shard_count: 3,
        ttl: Some(Duration::from_secs(60)),
        main_tasks: 1,
        accept_failures: 4,
        process: ProcessStats { usage: Some(usage), open_descriptors: Some(6), max_descriptors: Some(7) },
        started: UNIX_EPOCH + Duration::from_secs(8),
    })
}

#[test]
fn shards_are_summed_where_they_have_no_label() {
    let metrics = read(&page());
    let value = |series: &str| {
        let name = series.split('{').next().unwrap();
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        metrics[name].samples.get(series).copied()
    };
    for (series, expected) in [
        ("kafscale_lfs_proxy_upload_bytes_total", 20.0),
        ("kafscale_lfs_proxy_orphan_objects_total", 2.0),
        ("kafscale_proxy_orphan_objects_removed_total", 0.0),
        ("kafscale_lfs_proxy_goroutines", 13.0),
        ("kafscale_lfs_proxy_gc_pause_total_ns", 0.0),
        ("kafscale_lfs_proxy_memory_alloc_bytes", 5.0),
        ("kafscale_lfs_proxy_upload_duration_seconds_bucket{le=\"0.01\"}", 2.0),
        ("kafscale_lfs_proxy_upload_duration_seconds_bucket{le=\"30\"}", 2.0),
        ("kafscale_lfs_proxy_upload_duration_seconds_bucket{le=\"+Inf\"}", 6.0),
        ("kafscale_lfs_proxy_upload_duration_seconds_count", 6.0),
        ("kafscale_lfs_proxy_upload_duration_seconds_sum", 181.0),
        ("kafscale_proxy_knowledge_age_seconds{shard=\"0\",source=\"partition_leases\"}", 2.5),
        ("kafscale_proxy_budget_used{shard=\"2\",budget=\"upload_memory_bytes\"}", 40.0),
        ("kafscale_proxy_budget_refusals_total{shard=\"2\",budget=\"kafka_connections\"}", 9.0),
        ("kafscale_proxy_shard_busy_seconds_total{shard=\"2\"}", 1.25),
        ("kafscale_proxy_shard_stats_age_seconds{shard=\"2\"}", 8.0),
        ("kafscale_proxy_kafka_clients{software=\"sarama\",version=\"1.61\"}", 3.0),
        ("kafscale_proxy_shards", 3.0),
        ("kafscale_proxy_accept_failures_total", 4.0),
    ] {
        assert_eq!(value(series), Some(expected), "{series}");
    }
    assert_eq!(value("kafscale_proxy_knowledge_age_seconds{shard=\"0\",source=\"group_leases\"}"), None);
}

#[test]
fn every_topic_has_all_combinations_and_names_are_escaped() {
    let metrics = read(&page());
    let series = |topic: &str, status: &str, kind: &str| {
        format!("kafscale_lfs_proxy_requests_total{{topic=\"{topic}\",status=\"{status}\",type=\"{kind}\"}}")
    };
    let mut expected = BTreeMap::new();
    for (topic, ok, errors) in [("a\\\"b", 6.0, 2.0), ("t", 10.0, 0.0), ("unknown", 0.0, 4.0)] {
        expected.insert(series(topic, "ok", "lfs"), ok);
        expected.insert(series(topic, "error", "lfs"), errors);
        expected.insert(series(topic, "ok", "passthrough"), 0.0);
        expected.insert(series(topic, "error", "passthrough"), 0.0);
    }
    assert_eq!(metrics["kafscale_lfs_proxy_requests_total"].samples, expected);
}

#[test]
fn names_of_the_contract_are_there_before_anything_has_happened() {
    let page = render(&Facts {
        shards: Vec::new(),
        shard_count: 1,
        ttl: None,
        main_tasks: 1,
        accept_failures: 4,
        process: ProcessStats::default(),
        started: UNIX_EPOCH,
    });
    let metrics = read(&page);
    for name in ["upload_duration_seconds", "upload_bytes_total", "requests_total", "s3_errors_total"] {
        assert!(metrics.contains_key(&format!("kafscale_lfs_proxy_{name}")), "{name}");
    }
    assert!(!metrics.contains_key("kafscale_proxy_knowledge_ttl_seconds"), "static brokers are used for ever");
    assert!(!metrics.contains_key("process_open_fds"), "what is not known is not shown");
}

/// The page for operators has a row for each metric, and none for others.
#[test]
fn the_operations_page_lists_every_metric() {
    let operations = include_str!("../../../../docs/operations.md");
    let rows = operations.lines().filter(|line| line.starts_with("| `kafscale_") || line.starts_with("| `process_"));
    let rows: BTreeSet<&str> = rows.collect();
    let expected = read(&page()).into_iter().map(|(name, metric)| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
        format!("| `{name}` | {} | {labels} | {} |", metric.kind, metric.help)
    });
    let expected: BTreeSet<String> = expected.collect();
    let missing: Vec<_> = expected.iter().filter(|row| !rows.contains(row.as_str())).collect();
    let wrong: Vec<_> = rows.iter().filter(|row| !expected.contains(**row)).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "missing: {missing:#?}\nwrong: {wrong:#?}");
}
