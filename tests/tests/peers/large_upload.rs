//! A body that is far larger than the memory it may take.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use http::Method;
use kafscale_proxy_tests::peers::{Client, Deployment, Job, PARTITIONS, TOPIC, curl};
use sha2::{Digest, Sha256};

const MIB: usize = 1024 * 1024;
/// Size of the body.
const SIZE: usize = 200 * MIB;
/// What the proxy may grow by: a window of six parts of 5 MiB, and half as much again for what the allocator cannot use between
/// pieces of many sizes.
const GROWTH_KIB: u64 = 45 * 1024;

/// Writes a file in which no two parts are alike, and gives its SHA-256.
fn write_body(path: &Path) -> String {
    let mut file = File::create(path).expect("the temporary folder can be written");
    let mut sha256 = Sha256::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; MIB];
    for _ in 0..SIZE / MIB {
        for word in block.chunks_exact_mut(8) {
            // xorshift64: nothing compresses it, nothing repeats.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        sha256.update(&block);
        file.write_all(&block).expect("the temporary folder has room");
    }
    hex(sha256)
}

fn sha256_of(path: &Path) -> (usize, String) {
    let mut file = BufReader::new(File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    let (mut sha256, mut size, mut block) = (Sha256::new(), 0, vec![0; MIB]);
    loop {
        let read = file.read(&mut block).expect("a file can be read");
        if read == 0 {
            return (size, hex(sha256));
        }
        size += read;
        sha256.update(&block[..read]);
    }
}

fn hex(sha256: Sha256) -> String {
    sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_megabytes_land_whole_in_little_memory() {
    let deployment = Deployment::start(&[]).await;
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let body = folder.path().join("body");
    let expected = write_body(&body);

    // Connections and caches that every proxy has once it has served anything are not this body's.
    let small = deployment.proxy.lfs.send(Method::POST, "/lfs/produce", &[("x-kafka-topic", TOPIC)], "small").await;
    assert_eq!(small.status, 200, "{}", small.text());
    deployment.proxy.forget_peak();
    let before = deployment.proxy.resident_kib();
    let url = deployment.proxy.lfs.url("/lfs/produce");
    let topic = format!("X-Kafka-Topic: {TOPIC}");
    let file = body.display().to_string();
    let (code, envelope) = curl(&[
        "--request",
        "POST",
        "--upload-file",
        &file,
        "--header",
        &topic,
        "--header",
        "X-Kafka-Key: dXNlci0x",
        "--header",
        "Content-Type: application/octet-stream",
        "--fail-with-body",
        &url,
    ])
    .await;
    let growth = deployment.proxy.peak_kib().saturating_sub(before);
    assert_eq!(code, 0, "{envelope}");
    println!("grew by {growth} KiB from {before} KiB");
    assert!(growth < GROWTH_KIB, "the proxy grew by {growth} KiB");

    let envelope: serde_json::Value = serde_json::from_str(&envelope).expect("an envelope");
    assert_eq!((envelope["size"].as_u64(), envelope["sha256"].as_str()), (Some(SIZE as u64), Some(expected.as_str())));
    let key = envelope["key"].as_str().expect("an object key");
    assert_eq!(sha256_of(&deployment.partners.store.file(key)), (SIZE, expected.clone()), "the object");

    // The record on the topic is the envelope, and the bytes come back.
    let all = PARTITIONS + 2;
    let read = Client::Sarama.consume(Job::new(&deployment.proxy.kafka, TOPIC, PARTITIONS, all)).report().await;
    let record = read.records.iter().find(|record| record.key == "user-1").expect("the record");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&record.value).expect("an envelope"), envelope);
    let back = folder.path().join("back");
    let question = serde_json::json!({
        "bucket": envelope["bucket"], "key": key, "mode": "stream",
        "integrity": {"sha256": expected, "checksum_alg": "sha256", "size": SIZE},
    });
    let (code, status) = curl(&[
        "--request",
        "POST",
        "--data",
        &question.to_string(),
        "--output",
        &back.display().to_string(),
        "--write-out",
        "%{http_code}",
        &deployment.proxy.lfs.url("/lfs/download"),
    ])
    .await;
    assert_eq!((code, status.as_str()), (0, "200"));
    assert_eq!(sha256_of(&back), (SIZE, expected));
}
