//! The suite's own servers do what the tests rely on.

use std::time::{Duration, Instant};

use http::Method;
use kafscale_proxy_tests::peers::{BUCKET, Etcd, Fault, Http, Operation, Seen, Store, curl};

fn address(store: &Store) -> &str {
    store.endpoint().trim_start_matches("http://")
}

/// A PUT with a real signature, by a client that has nothing to do with the proxy's.
async fn put(store: &Store, key: &str, secret: &str, body: &str) -> String {
    let url = format!("{}/{BUCKET}/{key}", store.endpoint());
    let user = format!("peer-access-key:{secret}");
    let sign = [
        "--header",
        "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        "--aws-sigv4",
        "aws:amz:us-east-1:s3",
        "--user",
        &user,
        "--write-out",
        "%{http_code}",
        "--output",
        "/dev/null",
    ];
    let (code, status) = curl(&[&sign[..], &["--request", "PUT", "--data-binary", body, &url]].concat()).await;
    if code == 0 { status } else { format!("curl {code}") }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_checks_signatures() {
    let store = Store::start().await;
    assert_eq!(put(&store, "a/b", "peer-secret-key", "hello").await, "200");
    assert_eq!(put(&store, "a/c", "another-secret", "hello").await, "403");
    let unsigned = Http::new(address(&store)).send(Method::PUT, &format!("/{BUCKET}/a/d"), &[], "hello").await;
    assert_eq!(unsigned.status, 403);
    assert_eq!(store.keys(), ["a/b"]);
    assert_eq!(store.object("a/b"), "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_meets_its_faults_once_each_and_in_order() {
    let store = Store::start().await;
    let delay = Duration::from_millis(300);
    store.inject(Operation::PutObject, [Fault::Refuse(503), Fault::CutBefore, Fault::CutAfter, Fault::Delay(delay)]);
    assert_eq!(put(&store, "refused", "peer-secret-key", "x").await, "503");
    assert!(put(&store, "cut-before", "peer-secret-key", "x").await.starts_with("curl "));
    assert!(put(&store, "cut-after", "peer-secret-key", "x").await.starts_with("curl "));
    let started = Instant::now();
    assert_eq!(put(&store, "late", "peer-secret-key", "x").await, "200");
    assert!(started.elapsed() >= delay);
    assert_eq!(put(&store, "served", "peer-secret-key", "x").await, "200");
    assert_eq!(store.keys(), ["cut-after", "late", "served"]);
    let seen = |key: &str, status| Seen { operation: Operation::PutObject, key: key.into(), status };
    let expected = [
        seen("refused", Some(503)),
        seen("cut-before", None),
        seen("cut-after", None),
        seen("late", Some(200)),
        seen("served", Some(200)),
    ];
    assert_eq!(store.seen(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_keeps_its_data_and_its_address_over_a_stop() {
    let mut etcd = Etcd::start().await;
    etcd.client().await.put("/a", "1", None).await.expect("etcd runs");
    etcd.stop();
    assert!(Http::new(etcd.endpoint().trim_start_matches("http://")).try_get("/health").await.is_err());
    etcd.restart().await;
    let answer = etcd.client().await.get("/a", None).await.expect("etcd runs");
    assert_eq!(answer.kvs()[0].value(), b"1");

    etcd.freeze();
    let health = Http::new(etcd.endpoint().trim_start_matches("http://"));
    assert!(tokio::time::timeout(Duration::from_millis(500), health.try_get("/health")).await.is_err());
    etcd.thaw();
    assert_eq!(health.get("/health").await.status, 200);
}
