//! What Prometheus reads of a proxy at work.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use http::Method;
use kafscale_proxy_tests::peers::{Deployment, Metrics, Proxy, TOPIC, Wire, eventually, produce_request};

/// Names of the original whose shape `promtool` does not like. All others are ours to get right.
const ODD_NAMES_OF_THE_CONTRACT: [&str; 1] = ["kafscale_lfs_proxy_gc_pause_total_ns"];

/// What `promtool check metrics` says of a page, line by line.
fn lints(page: &str) -> Vec<String> {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("promtool cannot be started ({error}); tests/run installs it"));
    promtool.stdin.take().expect("it is piped").write_all(page.as_bytes()).expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("text").lines().map(str::to_owned).collect()
}

async fn metrics(proxy: &Proxy) -> Metrics {
    Metrics::read(&proxy.metrics.get("/metrics").await.text())
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_finds_fault_with_names_of_the_contract_only() {
    let deployment = Deployment::start(&[]).await;
    let page = deployment.proxy.metrics.get("/metrics").await;
    assert_eq!(page.headers["content-type"], "text/plain; version=0.0.4");
    let page = page.text();
    let others: Vec<String> = lints(&page)
        .into_iter()
        .filter(|line| !ODD_NAMES_OF_THE_CONTRACT.iter().any(|name| line.starts_with(&format!("{name} "))))
        .collect();
    assert!(others.is_empty(), "{others:#?}\n{page}");
    // It would have said so.
    assert_ne!(lints("# TYPE odd counter\nodd 1\n"), Vec::<String>::new());
    assert_ne!(lints("no sample\n"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_do_is_counted_and_levels_fall_again() {
    let deployment = Deployment::start(&[("KAFSCALE_PROXY_SHARDS", "2")]).await;
    let proxy = &deployment.proxy;
    let before = metrics(proxy).await;
    assert_eq!(before.sum("kafscale_proxy_shard_serving", &[]), 2.0);
    assert!(before.sum("kafscale_proxy_knowledge_age_seconds", &["shard=\"1\"", "source=\"snapshot\""]) < 60.0);

    let mut wire = Wire::connect(&proxy.kafka).await;
    for partition in 0..3 {
        wire.ask(9, &produce_request(partition, "counted")).await;
    }
    for (topic, body, status) in [(TOPIC, "12345", 200), (TOPIC, "", 400), ("not a topic", "1", 400)] {
        let answer = proxy.lfs.send(Method::POST, "/lfs/produce", &[("x-kafka-topic", topic)], body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    let after = metrics(proxy).await;
    for (name, labels, more) in [
        ("kafscale_proxy_kafka_requests_total", &["api=\"Produce\""][..], 3.0),
        ("kafscale_proxy_connections", &["server=\"kafka\""], 1.0),
        ("kafscale_lfs_proxy_upload_bytes_total", &[], 5.0),
        ("kafscale_lfs_proxy_upload_duration_seconds_count", &[], 1.0),
        ("kafscale_lfs_proxy_requests_total", &["topic=\"unknown\"", "status=\"error\"", "type=\"lfs\""], 1.0),
        ("kafscale_lfs_proxy_s3_errors_total", &[], 0.0),
        ("kafscale_lfs_proxy_orphan_objects_total", &[], 0.0),
    ] {
        assert_eq!(after.sum(name, labels) - before.sum(name, labels), more, "{name}");
    }
    let topic = format!("topic=\"{TOPIC}\"");
    assert_eq!(after.sum("kafscale_lfs_proxy_requests_total", &[&topic, "status=\"ok\"", "type=\"lfs\""]), 1.0);
    assert_eq!(after.sum("kafscale_lfs_proxy_requests_total", &[&topic, "status=\"error\"", "type=\"lfs\""]), 1.0);
    assert!(after.sum("kafscale_proxy_broker_connections", &["path=\"kafka\""]) >= 1.0);
    assert!(after.sum("kafscale_proxy_shard_busy_seconds_total", &[]) > 0.0);

    drop(wire);
    eventually("the client and its brokers are gone", Duration::from_secs(10), async || {
        let now = metrics(proxy).await;
        now.sum("kafscale_proxy_connections", &["server=\"kafka\""]) == 0.0
            && now.sum("kafscale_proxy_broker_connections", &[]) == 0.0
    })
    .await;
}
