//! What must not stay in the bucket: of an upload whose store went away in the middle of it, and of a body that is not the
//! one that was announced.
//!
//! That it can fail was tried with a proxy that forgets what it could not remove at first, and with one that leaves what a
//! wrong checksum left.

use std::time::Duration;

use http::Method;
use kafscale_proxy_tests::peers::{Deployment, Operation, Partners, Relay, TOPIC, eventually};

const MIB: usize = 1024 * 1024;
const HEADERS: [(&str, &str); 1] = [("x-kafka-topic", TOPIC)];
/// A first removal gives up within a few seconds; the next one comes when half a minute has passed and the store is back.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(30);
const REMOVED_WITHIN: Duration = Duration::from_secs(60);

async fn start() -> (Deployment, Relay) {
    let partners = Partners::start().await;
    let link = Relay::start(partners.store.endpoint().trim_start_matches("http://")).await;
    let endpoint = format!("http://{}", link.address());
    let settings =
        [("KAFSCALE_LFS_PROXY_S3_ENDPOINT", endpoint.as_str()), ("KAFSCALE_LFS_PROXY_S3_HEALTH_INTERVAL_SEC", "1")];
    (Deployment::of(partners, &settings).await, link)
}

fn nothing_is_left(deployment: &Deployment) -> bool {
    let store = &deployment.partners.store;
    store.keys().is_empty() && store.left_of_uploads().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_another_checksum_leaves_the_bucket_as_it_was() {
    let (deployment, _link) = start().await;
    let wrong = "00".repeat(32);
    let headers = [HEADERS[0], ("x-lfs-checksum", wrong.as_str())];
    // One object, and one in parts.
    for size in [MIB, 20 * MIB] {
        let answer = deployment.proxy.lfs.send(Method::POST, "/lfs/produce", &headers, vec![7; size]).await;
        assert_eq!(answer.code(), (400, "checksum_mismatch".into()), "{size}: {}", answer.text());
        eventually("nothing is left", Duration::from_secs(15), async || nothing_is_left(&deployment)).await;
    }
    let operations = [Operation::PutObject, Operation::CreateMultipartUpload, Operation::CompleteMultipartUpload]
        .map(|operation| deployment.partners.store.count(operation));
    assert_eq!(operations, [0, 1, 0], "no object came into being");
    assert_eq!(deployment.proxy.orphans(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cut_left_behind_is_removed_when_the_store_is_back() {
    let (deployment, link) = start().await;
    let store = &deployment.partners.store;
    let length = u64::try_from(50 * MIB).expect("a length");
    let mut upload = deployment.proxy.lfs.begin_post("/lfs/produce", &HEADERS, length).await;
    upload.write(&vec![7; 12 * MIB]).await.expect("the proxy reads");
    let is_stored = async || {
        let parts = store.seen().into_iter().filter(|seen| seen.operation == Operation::UploadPart);
        parts.filter(|part| part.status == Some(200)).count() > 0
    };
    eventually("a part is stored", Duration::from_secs(20), is_stored).await;

    link.cut();
    // The proxy takes no more than it has room for.
    let _ = tokio::time::timeout(Duration::from_secs(1), upload.write(&vec![7; 12 * MIB])).await;
    drop(upload);
    eventually("the first removal is given up", GIVEN_UP_WITHIN, async || !deployment.proxy.orphans().is_empty()).await;
    assert_ne!(store.left_of_uploads(), Vec::<String>::new(), "the store was out of reach");

    link.restore().await;
    eventually("nothing is left", REMOVED_WITHIN, async || nothing_is_left(&deployment)).await;
    let answer = deployment.proxy.lfs.send(Method::POST, "/lfs/produce", &HEADERS, "a blob").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}
