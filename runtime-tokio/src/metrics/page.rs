//! The page: every metric with its name, its help and its samples, in one place. `docs/operations.md` lists the same.

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kafscale_proxy_core::{BudgetStats, DURATION_BUCKETS_MS, DurationHistogram, RetryReason, RetryStats, TopicStats};
use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use super::ShardStats;
use super::process_stats::ProcessStats;

/// The labels of a metric that has none.
const NONE: [(&str, &str); 0] = [];

/// What the page is made of.
pub(super) struct Facts<'a> {
    /// Those that have ever answered.
    pub(super) shards: Vec<Shard<'a>>,
    pub(super) shard_count: usize,
    /// How long knowledge of the cluster may be used; `None` is without limit.
    pub(super) ttl: Option<Duration>,
    /// Tasks of the main thread.
    pub(super) main_tasks: usize,
    /// Accepts of the main thread that failed.
    pub(super) accept_failures: u64,
    pub(super) process: ProcessStats,
    /// When the process has begun.
    pub(super) started: SystemTime,
}

/// One shard and when it said this.
pub(super) struct Shard<'a> {
    pub(super) index: usize,
    pub(super) age: Duration,
    pub(super) stats: &'a ShardStats,
}

/// Prometheus text, version 0.0.4.
pub(super) fn render(facts: &Facts<'_>) -> String {
    let mut page = Page::default();
    contract(&mut page, facts);
    shards(&mut page, facts);
    budgets(&mut page, &facts.shards);
    kafka(&mut page, &facts.shards);
    brokers(&mut page, &facts.shards);
    process(&mut page, facts);
    page.text()
}

/// The names that dashboards of the original know (ops contract section 2).
fn contract(page: &mut Page, facts: &Facts<'_>) {
    let lfs = || facts.shards.iter().filter_map(|shard| shard.stats.lfs.as_ref());
    let mut durations = DurationHistogram::default();
    for lfs in lfs() {
        durations.sum += lfs.upload_duration.sum;
        durations.buckets.iter_mut().zip(lfs.upload_duration.buckets).for_each(|(sum, count)| *sum += count);
    }
    page.histogram(
        "kafscale_lfs_proxy_upload_duration_seconds",
        "Time from the head of an upload to its acknowledgement, of those that succeeded",
        &durations,
    );
    page.counter(
        "kafscale_lfs_proxy_upload_bytes_total",
        "Payload bytes of uploads that succeeded",
        [(NONE, lfs().map(|lfs| lfs.uploaded_bytes).sum::<u64>())],
    );
    page.counter(
        "kafscale_lfs_proxy_requests_total",
        "Requests to LFS produce, by topic of the cluster and by outcome; topics that the cluster does not list are unknown, \
         those beyond the first 1,000 of a shard are other",
        requests(facts),
    );
    page.counter(
        "kafscale_lfs_proxy_s3_errors_total",
        "S3 requests that failed for good",
        [(NONE, lfs().map(|lfs| lfs.s3_errors).sum::<u64>())],
    );
    page.counter(
        "kafscale_lfs_proxy_orphan_objects_total",
        "Objects that stay in the bucket without proof of a record",
        [(NONE, lfs().map(|lfs| lfs.orphans).sum::<u64>())],
    );
    page.counter(
        "kafscale_proxy_orphan_objects_removed_total",
        "Of these orphans, objects that were removed later",
        [(NONE, lfs().map(|lfs| lfs.orphans_removed).sum::<u64>())],
    );
    let tasks: usize = facts.shards.iter().map(|shard| shard.stats.tasks).sum();
    page.gauge("kafscale_lfs_proxy_goroutines", "Tasks that have not ended", [(NONE, tasks + facts.main_tasks)]);
    let usage = facts.process.usage;
    page.gauge(
        "kafscale_lfs_proxy_memory_alloc_bytes",
        "Resident memory, under the name of the original",
        usage.map(|usage| (NONE, usage.resident_bytes)),
    );
    page.gauge(
        "kafscale_lfs_proxy_memory_sys_bytes",
        "Virtual memory, under the name of the original",
        usage.map(|usage| (NONE, usage.virtual_bytes)),
    );
    page.counter("kafscale_lfs_proxy_gc_pause_total_ns", "Always 0: there is no garbage collection", [(NONE, 0_u64)]);
}

/// All four combinations of each topic, topics ascending.
fn requests(facts: &Facts<'_>) -> Vec<([(&'static str, String); 3], u64)> {
    let mut topics = std::collections::BTreeMap::new();
    let mut add = |topic: &str, more: TopicStats| {
        let sum: &mut TopicStats = topics.entry(topic.to_owned()).or_default();
        sum.ok += more.ok;
        sum.errors += more.errors;
    };
    add("unknown", TopicStats::default());
    for lfs in facts.shards.iter().filter_map(|shard| shard.stats.lfs.as_ref()) {
        lfs.topics.iter().for_each(|(topic, stats)| add(topic, *stats));
        add("unknown", lfs.unknown_topics);
        if lfs.other_topics != TopicStats::default() {
            add("other", lfs.other_topics);
        }
    }
    let combinations = topics.into_iter().flat_map(|(topic, TopicStats { ok, errors })| {
        // What passes through is counted by API, not by topic.
        [("ok", "lfs", ok), ("error", "lfs", errors), ("ok", "passthrough", 0), ("error", "passthrough", 0)].map(
            |(status, kind, count)| {
                ([("topic", topic.clone()), ("status", status.to_owned()), ("type", kind.to_owned())], count)
            },
        )
    });
    combinations.collect()
}

fn shards(page: &mut Page, facts: &Facts<'_>) {
    page.gauge("kafscale_proxy_shards", "Shards, each with a thread of its own", [(NONE, facts.shard_count)]);
    page.gauge(
        "kafscale_proxy_shard_stats_age_seconds",
        "Age of what is shown of a shard; more than 0 while it is too busy to answer",
        each(&facts.shards, |shard| shard.age),
    );
    page.counter(
        "kafscale_proxy_shard_busy_seconds_total",
        "Time that a shard was at work",
        each(&facts.shards, |shard| shard.stats.busy),
    );
    page.gauge(
        "kafscale_proxy_shard_longest_call_seconds",
        "Longest time within the last two minutes in which a shard did one thing and all others waited",
        each(&facts.shards, |shard| shard.stats.longest_call),
    );
    page.gauge(
        "kafscale_proxy_shard_serving",
        "1 while the shard knows the cluster well enough to serve",
        each(&facts.shards, |shard| u64::from(shard.stats.knowledge.serving)),
    );
    page.gauge(
        "kafscale_proxy_knowledge_age_seconds",
        "Age of the proof of what was read from etcd; nothing before the first",
        facts.shards.iter().flat_map(|shard| {
            let knowledge = shard.stats.knowledge;
            let ages = [
                ("snapshot", knowledge.snapshot_age),
                ("partition_leases", knowledge.partition_leases_age),
                ("group_leases", knowledge.group_leases_age),
            ];
            let known = ages.into_iter().filter_map(|(source, age)| Some((source, age? + shard.age)));
            known.map(|(source, age)| ([("shard", shard.index.to_string()), ("source", source.to_owned())], age))
        }),
    );
    page.gauge(
        "kafscale_proxy_knowledge_ttl_seconds",
        "Age at which knowledge is not used any more; nothing with static brokers",
        facts.ttl.map(|ttl| (NONE, ttl)),
    );
    page.gauge(
        "kafscale_proxy_operations",
        "Requests to etcd and S3, watches, reads and jobs that are not completed",
        each(&facts.shards, |shard| shard.stats.operations),
    );
    page.gauge("kafscale_proxy_temp_files", "Temporary files", each(&facts.shards, |shard| shard.stats.temp_files));
}

/// Name of a budget, what is taken of it, and the rest.
fn budgets_of(stats: &ShardStats) -> Vec<(&'static str, u64, BudgetStats)> {
    let listener = &stats.listener;
    let connections = BudgetStats { limit: listener.clients_max as u64, waits: 0, refusals: listener.turned_away };
    let mut budgets = vec![
        ("frame_bytes", listener.frame_bytes as u64, listener.frames),
        ("small_request_bytes", listener.small_request_bytes as u64, listener.small_requests),
        ("answer_bytes", listener.answer_bytes as u64, listener.answers),
        ("kafka_connections", listener.clients as u64, connections),
    ];
    if let Some(lfs) = &stats.lfs {
        budgets.extend([
            ("upload_memory_bytes", lfs.memory_taken_bytes, lfs.memory),
            ("download_disk_bytes", lfs.disk_taken_bytes, lfs.disk),
            ("http_exchanges", lfs.exchanges as u64, lfs.exchange_slots),
        ]);
    }
    budgets
}

fn budgets(page: &mut Page, shards: &[Shard<'_>]) {
    let each_budget = |value: fn(u64, BudgetStats) -> u64| {
        let values = shards.iter().flat_map(move |shard| {
            let shard_label = shard.index.to_string();
            budgets_of(shard.stats).into_iter().map(move |(budget, used, stats)| {
                ([("shard", shard_label.clone()), ("budget", budget.to_owned())], value(used, stats))
            })
        });
        values.collect::<Vec<_>>()
    };
    page.gauge(
        "kafscale_proxy_budget_used",
        "What is taken of a shard's budget, in bytes or in what the name says",
        each_budget(|used, _| used),
    );
    page.gauge("kafscale_proxy_budget_limit", "Size of a shard's budget", each_budget(|_, budget| budget.limit));
    page.counter(
        "kafscale_proxy_budget_waits_total",
        "Requests that had to wait for a budget",
        each_budget(|_, budget| budget.waits),
    );
    page.counter(
        "kafscale_proxy_budget_refusals_total",
        "Requests or connections that were refused for want of a budget",
        each_budget(|_, budget| budget.refusals),
    );
}

fn kafka(page: &mut Page, shards: &[Shard<'_>]) {
    let sum = |value: fn(&ShardStats) -> u64| shards.iter().map(|shard| value(shard.stats)).sum::<u64>();
    page.gauge(
        "kafscale_proxy_connections",
        "Connections of clients, by server; a Kafka client that has gone counts until what it sent is carried out",
        [
            ([("server", "kafka")], sum(|stats| stats.listener.clients as u64)),
            ([("server", "http")], sum(|stats| stats.http_connections as u64)),
        ],
    );
    let mut by_software: std::collections::BTreeMap<_, usize> = std::collections::BTreeMap::new();
    for row in shards.iter().flat_map(|shard| &shard.stats.software).filter(|row| row.clients > 0) {
        *by_software.entry((row.name.clone(), row.version.clone())).or_default() += row.clients;
    }
    page.gauge(
        "kafscale_proxy_kafka_clients",
        "Connected Kafka clients, by the library that they say they are (KIP-511); unknown have not said it, other are \
         those beyond the first hundred of a shard",
        by_software.into_iter().map(|((name, version), clients)| ([("software", name), ("version", version)], clients)),
    );
    let mut by_api = std::collections::BTreeMap::new();
    for (api, count) in shards.iter().flat_map(|shard| shard.stats.listener.requests_by_api.iter()) {
        *by_api.entry(api.map_or_else(|| "unknown".to_owned(), |api| format!("{api:?}"))).or_default() += count;
    }
    page.counter(
        "kafscale_proxy_kafka_requests_total",
        "Requests of Kafka clients, by API",
        by_api.into_iter().map(|(api, count): (_, u64)| ([("api", api)], count)),
    );
    page.gauge(
        "kafscale_proxy_kafka_requests_open",
        "Requests of Kafka clients that are not answered",
        [(NONE, sum(|stats| stats.listener.open_requests as u64))],
    );
    page.gauge(
        "kafscale_proxy_kafka_requests_waiting",
        "Requests of Kafka clients that wait for etcd or for their next round",
        [(NONE, sum(|stats| stats.listener.waiting_requests as u64))],
    );
}

/// How often and why brokers were asked again on the way of the Kafka listener and on that of LFS.
fn brokers(page: &mut Page, shards: &[Shard<'_>]) {
    const PATHS: [&str; 2] = ["kafka", "lfs"];
    let both = |listener: fn(&ShardStats) -> u64, lfs: fn(&kafscale_proxy_core::LfsStats) -> u64| {
        let of_lfs = |shard: &Shard<'_>| shard.stats.lfs.as_ref().map_or(0, lfs);
        [
            ([("path", PATHS[0])], shards.iter().map(|shard| listener(shard.stats)).sum::<u64>()),
            ([("path", PATHS[1])], shards.iter().map(of_lfs).sum::<u64>()),
        ]
    };
    page.gauge(
        "kafscale_proxy_broker_connections",
        "Connections to brokers, those being dialled and those kept for another upload included",
        both(|stats| stats.listener.broker_connections as u64, |lfs| lfs.broker_connections as u64),
    );
    page.counter(
        "kafscale_proxy_broker_dial_failures_total",
        "Dials to brokers that failed",
        both(|stats| stats.listener.failed_dials, |lfs| lfs.failed_dials),
    );
    let of_lfs = |shard: &Shard<'_>| shard.stats.lfs.as_ref().map_or(0, |lfs| lfs.reused_connections);
    page.counter(
        "kafscale_proxy_broker_connections_reused_total",
        "Uploads, or tries of one, that took a connection which another upload had left, and did not dial",
        [(NONE, shards.iter().map(of_lfs).sum::<u64>())],
    );
    let retries = |path: &'static str, of: fn(&ShardStats) -> RetryStats| {
        RetryReason::ALL.map(|reason| {
            let count: u64 = shards.iter().map(|shard| of(shard.stats).of(reason)).sum();
            ([("path", path), ("reason", reason_label(reason))], count)
        })
    };
    let listener = retries(PATHS[0], |stats| stats.listener.retries);
    let lfs = retries(PATHS[1], |stats| stats.lfs.as_ref().map(|lfs| lfs.retries).unwrap_or_default());
    page.counter(
        "kafscale_proxy_broker_retries_total",
        "What went to a broker once more, by what became of it before",
        listener.into_iter().chain(lfs),
    );
}

const fn reason_label(reason: RetryReason) -> &'static str {
    match reason {
        RetryReason::Refused => "refused",
        RetryReason::Unsent => "unsent",
        RetryReason::Unanswered => "unanswered",
        RetryReason::Unreachable => "unreachable",
    }
}

/// Names that every Prometheus client library uses.
fn process(page: &mut Page, facts: &Facts<'_>) {
    let ProcessStats { usage, open_descriptors, max_descriptors } = facts.process;
    page.counter(
        "kafscale_proxy_accept_failures_total",
        "How often no connection could be accepted for want of descriptors or memory",
        [(NONE, facts.accept_failures)],
    );
    page.gauge(
        "kafscale_proxy_build_info",
        "Always 1; the labels tell what runs",
        [([("version", env!("CARGO_PKG_VERSION")), ("arch", std::env::consts::ARCH)], 1_u64)],
    );
    page.counter("process_cpu_seconds_total", "Processor time of the process", usage.map(|usage| (NONE, usage.cpu)));
    page.gauge("process_resident_memory_bytes", "Resident memory", usage.map(|usage| (NONE, usage.resident_bytes)));
    page.gauge("process_virtual_memory_bytes", "Virtual memory", usage.map(|usage| (NONE, usage.virtual_bytes)));
    page.gauge("process_threads", "Threads", usage.map(|usage| (NONE, usage.threads)));
    page.gauge("process_open_fds", "Open descriptors", open_descriptors.map(|open| (NONE, open)));
    page.gauge("process_max_fds", "Descriptors that may be open", max_descriptors.map(|most| (NONE, most)));
    let started = facts.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    page.gauge("process_start_time_seconds", "When the process began, seconds since 1970", [(NONE, started)]);
}

/// A value of each shard.
fn each<V>(
    shards: &[Shard<'_>],
    value: impl Fn(&Shard<'_>) -> V,
) -> impl Iterator<Item = ([(&'static str, String); 1], V)> {
    shards.iter().map(move |shard| ([("shard", shard.index.to_string())], value(shard)))
}

/// Numbers as the page shows them.
trait Value {
    fn float(&self) -> f64;
}

impl Value for u64 {
    // Exact up to 2^53, as everywhere in Prometheus.
    fn float(&self) -> f64 {
        *self as f64
    }
}

impl Value for usize {
    fn float(&self) -> f64 {
        *self as f64
    }
}

impl Value for Duration {
    fn float(&self) -> f64 {
        self.as_secs_f64()
    }
}

/// Metrics in the order in which they are shown.
#[derive(Default)]
struct Page(Vec<MetricFamily>);

impl Page {
    fn counter<L: Into<String>, V: Value, const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = ([(&'static str, L); N], V)>,
    ) {
        let metrics = samples.into_iter().map(|(labels, value)| {
            let mut counter = Counter::default();
            counter.set_value(value.float());
            let mut metric = Metric::from_label(pairs(labels));
            metric.set_counter(counter);
            metric
        });
        self.add(name, help, MetricType::COUNTER, metrics.collect());
    }

    fn gauge<L: Into<String>, V: Value, const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = ([(&'static str, L); N], V)>,
    ) {
        let metrics = samples.into_iter().map(|(labels, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(value.float());
            let mut metric = Metric::from_label(pairs(labels));
            metric.set_gauge(gauge);
            metric
        });
        self.add(name, help, MetricType::GAUGE, metrics.collect());
    }

    fn histogram(&mut self, name: &'static str, help: &'static str, observed: &DurationHistogram) {
        let mut count = 0;
        let mut buckets = Vec::new();
        for (bound_ms, observations) in DURATION_BUCKETS_MS.iter().zip(observed.buckets) {
            count += observations;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound_ms as f64 / 1_000.0);
            bucket.set_cumulative_count(count);
            buckets.push(bucket);
        }
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(observed.buckets.iter().sum());
        histogram.set_sample_sum(observed.sum.as_secs_f64());
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        self.add(name, help, MetricType::HISTOGRAM, vec![metric]);
    }

    fn add(&mut self, name: &'static str, help: &'static str, kind: MetricType, metrics: Vec<Metric>) {
        // The encoder refuses a metric without samples.
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    fn text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.0).unwrap_or_else(|error| {
            tracing::error!(%error, "metrics cannot be written");
            String::new()
        })
    }
}

fn pairs<L: Into<String>, const N: usize>(labels: [(&'static str, L); N]) -> Vec<LabelPair> {
    let pairs = labels.into_iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.into());
        pair
    });
    pairs.collect()
}
