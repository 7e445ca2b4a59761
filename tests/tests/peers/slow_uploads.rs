//! Uploads that take longer than any limit, though never without a byte for long: a slow client, a store that stops in the
//! middle of a body, a store that thinks before it completes.
//!
//! That it can fail was tried with a store that pauses for longer than the proxy waits.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use kafscale_proxy_tests::peers::{Answer, Deployment, Fault, Operation, TOPIC, curl};

const MIB: usize = 1024 * 1024;
/// Limits of the HTTP server, seconds: nothing here ends within them.
const LIMIT: &str = "2";
/// The store pauses in a body. Guards of S3 clients against streams that stand still strike after 20 seconds or less.
const PAUSE: Duration = Duration::from_secs(22);
/// And before it completes an upload. The variable makes it longer, seconds; 300 and more is a documented failure.
const COMPLETE_AFTER: Duration = Duration::from_secs(5);
const COMPLETE_AFTER_SECONDS: &str = "KAFSCALE_PROXY_COMPLETE_AFTER_SECONDS";

fn body(size: usize) -> Bytes {
    (0..size).map(|index| u8::try_from(index % 251).expect("a byte")).collect()
}

/// `POST /lfs/produce` by curl at 1 MiB in a second; its envelope.
async fn slowly(url: &str, file: &str, framing: &[&str]) -> serde_json::Value {
    let topic = format!("X-Kafka-Topic: {TOPIC}");
    let arguments = ["--request", "POST", "--upload-file", file, "--limit-rate", "1M", "--header", &topic, url];
    let (code, answer) = curl(&[&["--fail-with-body"], framing, &arguments].concat()).await;
    assert_eq!(code, 0, "{framing:?}: {answer}");
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{framing:?}: {error}: {answer}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_slow_is_not_dead() {
    let limits =
        ["READ", "WRITE", "IDLE", "HEADER"].map(|limit| format!("KAFSCALE_LFS_PROXY_HTTP_{limit}_TIMEOUT_SEC"));
    let settings: Vec<(&str, &str)> = limits.iter().map(|limit| (limit.as_str(), LIMIT)).collect();
    let deployment = Deployment::start(&settings).await;
    let (lfs, store) = (&deployment.proxy.lfs, &deployment.partners.store);
    let complete_after = std::env::var(COMPLETE_AFTER_SECONDS).map_or(COMPLETE_AFTER, |seconds| {
        Duration::from_secs(seconds.parse().unwrap_or_else(|_| panic!("{COMPLETE_AFTER_SECONDS}: {seconds}")))
    });
    store.inject(Operation::PutObject, [Fault::PauseReading(PAUSE)]);
    store.inject(Operation::UploadPart, [Fault::PauseReading(PAUSE)]);
    store.inject(Operation::CompleteMultipartUpload, [Fault::Delay(complete_after); 3]);

    let post = async |bytes: Bytes| -> Answer {
        lfs.send(Method::POST, "/lfs/produce", &[("x-kafka-topic", TOPIC)], bytes).await
    };
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let file = folder.path().join("body");
    std::fs::write(&file, body(7 * MIB)).expect("the temporary folder has room");
    let (file, url) = (file.display().to_string(), lfs.url("/lfs/produce"));
    let (small, parts, known, chunked, stalled) = tokio::join!(
        post(body(MIB)),
        post(body(6 * MIB)),
        slowly(&url, &file, &[]),
        slowly(&url, &file, &["--header", "Transfer-Encoding: chunked"]),
        async {
            // The limits are in force: a body that stops is given up.
            let mut upload = lfs.begin_post("/lfs/produce", &[("x-kafka-topic", TOPIC)], 1_000).await;
            upload.write(&[1; 500]).await.expect("the proxy reads");
            upload.read_to_end().await.expect("the proxy answers")
        },
    );
    assert!(stalled.starts_with(b"HTTP/1.1 408 "), "{stalled:?}");
    for answer in [&small, &parts] {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    for (envelope, size) in [(small.json(), MIB), (parts.json(), 6 * MIB), (known, 7 * MIB), (chunked, 7 * MIB)] {
        let key = envelope["key"].as_str().expect("an object key");
        assert!(store.object(key) == body(size), "{size} bytes are stored as they were sent");
    }
    let counts = [Operation::PutObject, Operation::UploadPart, Operation::CompleteMultipartUpload];
    assert_eq!(counts.map(|operation| store.count(operation)), [1, 6, 3], "nothing had to be sent again");
}
