//! Doubtful HTTP on the port of the LFS API: two readings of one request never become two requests, a body that is cut never
//! becomes a blob, and an early refusal reaches the client.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use kafscale_proxy_core::kafka::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use kafscale_proxy_tests::peers::{Deployment, Operation, PARTITIONS, TOPIC, Wire, curl, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Whatever is refused is refused at once; a busy machine may take longer.
const AT_ONCE: Duration = Duration::from_secs(15);
/// Time for what must not happen.
const QUIET: Duration = Duration::from_millis(500);
/// Smallest part of a multipart upload, bytes.
const PART: usize = 5 * 1024 * 1024;

/// Sends bytes and gives what comes until the proxy closes, which it must in time.
async fn exchange(deployment: &Deployment, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(deployment.proxy.lfs.authority()).await.expect("the proxy listens");
    // It may refuse and close before everything is sent.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    match timeout(AT_ONCE, stream.read_to_end(&mut answer)).await {
        Ok(Err(error)) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        Err(_) => panic!("still open: {}", String::from_utf8_lossy(&answer)),
        Ok(_) => String::from_utf8_lossy(&answer).into_owned(),
    }
}

fn statuses(answer: &str) -> Vec<&str> {
    answer.match_indices("HTTP/1.").filter_map(|(at, _)| answer.get(at + 9..at + 12)).collect()
}

/// How many records stand in the topic, in all partitions.
async fn records(deployment: &Deployment) -> i64 {
    let mut count = 0;
    for partition in 0..PARTITIONS {
        let mut wire = Wire::connect(&deployment.partners.brokers.address(partition % 3)).await;
        let index = i32::try_from(partition).expect("few partitions");
        let asked = ListOffsetsPartition { partition_index: index, timestamp: -1, ..ListOffsetsPartition::default() };
        let topics = vec![ListOffsetsTopic { name: TOPIC.into(), partitions: vec![asked] }];
        let answer = wire.ask(4, &ListOffsetsRequest { topics, ..ListOffsetsRequest::default() }).await;
        count += answer.topics[0].partitions[0].offset;
    }
    count
}

#[tokio::test]
async fn a_request_that_can_be_read_in_two_ways_is_one_request_or_none() {
    let deployment = Deployment::start(&[]).await;
    let before = records(&deployment).await;
    let post = |head: &str, body: &str| format!("POST /lfs/produce HTTP/1.1\r\nHost: lfs\r\n{head}\r\n{body}");
    let topic = format!("X-Kafka-Topic: {TOPIC}\r\n");
    let many: String = (0..200).map(|number| format!("X-Header-{number}: x\r\n")).collect();
    // What a second reader would take for a request of its own.
    let smuggled = format!("POST /lfs/produce HTTP/1.1\r\nHost: lfs\r\n{topic}Content-Length: 1\r\n\r\nx");
    let rows: Vec<(&str, String, &[&str])> = vec![
        (
            "two lengths that differ",
            post(&format!("{topic}Content-Length: 3\r\nContent-Length: 4\r\n"), "abcd"),
            &["400"],
        ),
        ("a length that is no number", post(&format!("{topic}Content-Length: 3x\r\n"), "abc"), &["400"]),
        ("a negative length", post(&format!("{topic}Content-Length: -1\r\n"), ""), &["400"]),
        ("a length with a sign", post(&format!("{topic}Content-Length: +3\r\n"), "abc"), &["400"]),
        ("an unknown coding", post(&format!("{topic}Transfer-Encoding: gzip\r\n"), "abc"), &["400"]),
        ("chunked is not last", post(&format!("{topic}Transfer-Encoding: chunked, gzip\r\n"), "0\r\n\r\n"), &["400"]),
        (
            "a coding in HTTP/1.0",
            post(&format!("{topic}Transfer-Encoding: chunked\r\n"), "0\r\n\r\n").replace("HTTP/1.1", "HTTP/1.0"),
            &["400"],
        ),
        ("a folded header", post(&format!("{topic}X-A: b\r\n c\r\nContent-Length: 0\r\n"), ""), &["400"]),
        ("a space before the colon", post(&format!("{topic}X-A : b\r\nContent-Length: 0\r\n"), ""), &["400"]),
        ("a header without a name", post(&format!("{topic}: b\r\nContent-Length: 0\r\n"), ""), &["400"]),
        ("a null in a header", post(&format!("{topic}X-A: b\0c\r\nContent-Length: 0\r\n"), ""), &["400"]),
        ("no version", "GET /readyz\r\n\r\n".into(), &["400"]),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), &[]),
        ("TLS", "\x16\x03\x01\x02\0\x01\0\x01".into(), &["400"]),
        ("two hundred headers", post(&format!("{topic}{many}Content-Length: 0\r\n"), ""), &["431"]),
        ("a target of 70,000 bytes", format!("GET /{} HTTP/1.1\r\nHost: lfs\r\n\r\n", "a".repeat(70_000)), &["414"]),
        (
            "a chunk of a length that is none",
            post(&format!("{topic}Transfer-Encoding: chunked\r\n"), "zz\r\n"),
            &["400"],
        ),
        (
            "a chunk whose length no number holds",
            post(&format!("{topic}Transfer-Encoding: chunked\r\n"), "fffffffffffffffff\r\nabc"),
            &["400"],
        ),
        (
            "a chunk that is longer than it says",
            post(&format!("{topic}Transfer-Encoding: chunked\r\n"), "3\r\nabcd\r\n0\r\n\r\n"),
            &["400"],
        ),
        ("a body behind a refusal", post(&format!("Content-Length: {}\r\n", smuggled.len()), &smuggled), &["400"]),
        (
            "a body behind a length and a coding",
            post(
                "X-Kafka-Topic: ..\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                &format!("0\r\n\r\n{smuggled}"),
            ),
            &["400"],
        ),
    ];
    for (name, bytes, expected) in rows {
        let answer = exchange(&deployment, bytes.as_bytes()).await;
        let statuses = statuses(&answer);
        // HTTP/2 would not understand an answer.
        assert_eq!(statuses.len(), usize::from(!expected.is_empty()), "{name}: {answer}");
        assert!(statuses.iter().all(|status| expected.contains(status)), "{name}: {expected:?}, not {answer:?}");
        assert_eq!(deployment.proxy.lfs.get("/lfs/produce").await.status, 405, "{name}");
    }
    assert_eq!(records(&deployment).await, before, "nothing was published");
    assert_eq!(deployment.partners.store.keys(), Vec::<String>::new());
}

/// Whoever has sent less than the framing promises, and still reads, is told.
#[tokio::test]
async fn whoever_ends_a_body_early_is_told() {
    let deployment = Deployment::start(&[]).await;
    let before = records(&deployment).await;
    for (framing, body) in [("Content-Length: 9", "abc"), ("Transfer-Encoding: chunked", "3\r\nabc\r\n")] {
        let mut stream = TcpStream::connect(deployment.proxy.lfs.authority()).await.expect("the proxy listens");
        let request =
            format!("POST /lfs/produce HTTP/1.1\r\nHost: lfs\r\nX-Kafka-Topic: {TOPIC}\r\n{framing}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("the proxy takes a request");
        stream.shutdown().await.expect("a socket can be half closed");
        let mut answer = String::new();
        timeout(AT_ONCE, stream.read_to_string(&mut answer)).await.expect("an end").expect("an answer");
        assert_eq!(statuses(&answer), ["400"], "{framing}: {answer}");
        assert!(answer.contains("\"invalid_request\"") && answer.contains("broke off"), "{answer}");
    }
    assert_eq!(records(&deployment).await, before, "nothing was published");
    assert_eq!(deployment.partners.store.keys(), Vec::<String>::new());
}

/// Each cut of each framing: no record, no object, no open upload.
#[tokio::test]
async fn a_body_that_is_cut_leaves_nothing() {
    let deployment = Deployment::start(&[]).await;
    let before = records(&deployment).await;
    let all = 2 * PART + 1000;
    for reset in [false, true] {
        for sent in [0, 1, PART, PART + 1, 2 * PART, all - 1] {
            for chunked in [false, true] {
                let framing =
                    if chunked { "Transfer-Encoding: chunked".to_owned() } else { format!("Content-Length: {all}") };
                let head =
                    format!("POST /lfs/produce HTTP/1.1\r\nHost: lfs\r\nX-Kafka-Topic: {TOPIC}\r\n{framing}\r\n\r\n");
                let mut stream = TcpStream::connect(deployment.proxy.lfs.authority()).await.expect("the proxy listens");
                stream.write_all(head.as_bytes()).await.expect("the proxy takes a head");
                let body = vec![b'x'; sent];
                if chunked {
                    // The last piece ends on a border of chunks, without the chunk that ends the body.
                    for chunk in body.chunks(100_000) {
                        let size = format!("{:x}\r\n", chunk.len());
                        stream.write_all(size.as_bytes()).await.expect("the proxy takes a chunk");
                        stream.write_all(chunk).await.expect("the proxy takes a chunk");
                        stream.write_all(b"\r\n").await.expect("the proxy takes a chunk");
                    }
                } else {
                    stream.write_all(&body).await.expect("the proxy takes a body");
                }
                if reset {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    stream.set_zero_linger().expect("a socket can be told to reset");
                }
                drop(stream);
            }
        }
    }
    let store = &deployment.partners.store;
    eventually("nothing is under way", Duration::from_secs(20), async || {
        let begun = store.count(Operation::CreateMultipartUpload);
        let aborted = store.count(Operation::AbortMultipartUpload);
        begun > 0 && begun == aborted && store.keys().is_empty()
    })
    .await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(store.keys(), Vec::<String>::new());
    assert_eq!(store.count(Operation::CompleteMultipartUpload), 0);
    assert_eq!(records(&deployment).await, before, "nothing was published");
}

/// curl reads a refusal while it still sends, and the connection serves nobody's left-over bytes.
#[tokio::test]
async fn a_refusal_reaches_who_still_sends() {
    let deployment = Deployment::start(&[("KAFSCALE_LFS_PROXY_HTTP_API_KEY", "secret")]).await;
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let body = folder.path().join("body");
    std::fs::write(&body, vec![b'x'; 100_000_000]).expect("the temporary folder can be written");
    let url = deployment.proxy.lfs.url("/lfs/produce");
    let topic = format!("X-Kafka-Topic: {TOPIC}");
    for expect in ["Expect:", "Expect: 100-continue"] {
        let upload = format!("@{}", body.display());
        let arguments =
            ["-X", "POST", "-H", &topic, "-H", "X-API-Key: wrong", "-H", expect, "--data-binary", &upload, &url];
        let (code, answer) = timeout(Duration::from_secs(20), curl(&arguments)).await.expect("an answer in time");
        assert_eq!(code, 0, "{expect}: {answer}");
        assert!(answer.contains("\"unauthorized\""), "{expect}: {answer}");
    }
    let answer = deployment
        .proxy
        .lfs
        .send(Method::POST, "/lfs/produce", &[("x-kafka-topic", TOPIC), ("x-api-key", "secret")], Bytes::from("a blob"))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}
