//! Downloads: verified before the first byte.

use super::*;
use crate::config::S3Timeouts;
use crate::input::FileError;

const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn config() -> LfsConfig {
    LfsConfig { upload_memory_bytes: 2 << 20, presign_enabled: true, ..small_parts() }
}

/// A download of `size` bytes whose request was read.
fn wanted(size: u64, sha256: &str) -> Bench {
    let mut bench = Bench::new(config());
    ask(&mut bench, ONE, size, sha256);
    bench
}

fn ask(bench: &mut Bench, exchange: ExchangeId, size: u64, sha256: &str) {
    bench.request(exchange, "POST", "/lfs/download", &[]);
    let body = format!(r#"{{"bucket":"bucket","key":"ns/t/lfs/x","integrity":{{"sha256":"{sha256}","size":{size}}}}}"#);
    bench.body(exchange, ReadResult::Chunk(body.into()));
    bench.body(exchange, ReadResult::End);
}

fn opened(size: u64) -> Response {
    Response::Object { size, content_type: Some("text/plain".into()) }
}

fn object(bench: &mut Bench, result: ReadResult) {
    bench.call(|lfs, ctx, cluster, out| lfs.on_object(ctx, cluster, ONE, result, out));
}

fn bytes(bytes: &'static [u8]) -> ReadResult {
    ReadResult::Chunk(Bytes::from_static(bytes))
}

fn file(bench: &mut Bench, result: Result<(), FileError>) {
    bench.call(|lfs, ctx, cluster, out| lfs.on_file(ctx, cluster, ONE, result, out));
}

fn file_chunk(bench: &mut Bench, result: ReadResult) {
    bench.call(|lfs, ctx, cluster, out| lfs.on_file_chunk(ctx, cluster, ONE, result, out));
}

fn accepted(bench: &mut Bench) {
    bench.call(|lfs, ctx, cluster, out| lfs.on_chunk_accepted(ctx, cluster, ONE, out));
}

/// A blob of 11 bytes that lies verified in its file; its first piece is being read.
fn sending() -> Bench {
    let mut bench = wanted(11, &sha256(b"hello hello"));
    bench.s3_done(opened(11));
    file(&mut bench, Ok(()));
    object(&mut bench, bytes(b"hello "));
    file(&mut bench, Ok(()));
    object(&mut bench, bytes(b"hello"));
    file(&mut bench, Ok(()));
    let log = bench.read();
    assert_eq!(
        log[2..],
        ["get ns/t/lfs/x", "create file", "read object 12", "append 6", "read object 6", "append 5", "read object 1"]
    );
    object(&mut bench, ReadResult::End);
    assert_eq!(bench.read(), ["200 stream 11", "read file 262144"]);
    bench
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    checksum::hex(&sha2::Sha256::digest(bytes))
}

#[test]
fn a_small_blob_is_verified_in_memory() {
    let mut bench = wanted(5, HELLO);
    assert_eq!(bench.read(), ["read 262144", "read 262144", "get ns/t/lfs/x"]);
    bench.s3_done(opened(5));
    object(&mut bench, bytes(b"hel"));
    object(&mut bench, bytes(b"lo"));
    assert_eq!(bench.read(), ["read object 6", "read object 3", "read object 1"], "no byte before the end");
    object(&mut bench, ReadResult::End);
    assert_eq!(bench.read(), ["200 hello"]);
    let head = &bench.answers[&ONE];
    assert_eq!(head.headers["content-type"], "text/plain");
    assert_eq!(head.headers["x-kafscale-lfs-checksum"], format!("sha256={HELLO}"));
    assert_eq!(head.headers["x-kafscale-lfs-content-length"], "5");
    bench.assert_nothing_left();
}

#[test]
fn a_large_blob_is_verified_in_a_file() {
    let mut bench = sending();
    file_chunk(&mut bench, bytes(b"hello hel"));
    accepted(&mut bench);
    file_chunk(&mut bench, bytes(b"lo"));
    assert_eq!(bench.read(), ["send hello hel", "read file 262144", "send lo"]);
    accepted(&mut bench);
    assert_eq!(bench.read(), ["remove file"]);
    bench.assert_nothing_left();
}

/// Neither a file that is not created nor one that takes nothing keeps the exchange for ever.
#[test]
fn a_disk_that_hangs_is_given_up() {
    for pieces in [0, 1] {
        let mut bench = wanted(11, &sha256(b"hello hello"));
        bench.s3_done(opened(11));
        for _ in 0..pieces {
            file(&mut bench, Ok(()));
            object(&mut bench, bytes(b"hello "));
        }
        bench.read();
        bench.pass(Duration::from_millis(29_999));
        assert_eq!(bench.read(), [""; 0]);
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.read(), ["release object", "remove file", "500 temp_storage_failed"]);
        assert_eq!(bench.lfs.stats().s3_errors, 0, "the store is not to blame");
        file(&mut bench, Ok(()));
        object(&mut bench, ReadResult::Broken("released".into()));
        assert_eq!(bench.read(), [""; 0]);
        bench.assert_nothing_left();
    }
}

/// No byte of a blob that is not what its envelope says reaches the client.
#[test]
fn blobs_that_do_not_verify() {
    // Size that is wanted, size that the store names, pieces, and what comes of them.
    type Row = (u64, u64, &'static [&'static [u8]], &'static [&'static str]);
    let table: [Row; 6] = [
        (5, 6, &[], &["release object", "502 integrity_failure"]),
        (5, 5, &[b"hellx"], &["read object 6", "read object 1", "502 integrity_failure"]),
        (5, 4, &[b"hell"], &["read object 5", "read object 1", "502 integrity_failure"]),
        (5, 5, &[b"hello!"], &["read object 6", "release object", "502 integrity_failure"]),
        (
            9,
            9,
            &[b"hello!!!!"],
            &["create file", "read object 10", "append 9", "read object 1", "remove file", "502 integrity_failure"],
        ),
        (
            9,
            9,
            &[b"hello!!!!!"],
            &["create file", "read object 10", "release object", "remove file", "502 integrity_failure"],
        ),
    ];
    for (size, named, pieces, expected) in table {
        let mut bench = wanted(size, HELLO);
        bench.read();
        bench.s3_done(opened(named));
        let in_file = size > 8 && named <= size;
        if in_file {
            file(&mut bench, Ok(()));
        }
        let mut got = 0;
        for piece in pieces {
            got += piece.len() as u64;
            object(&mut bench, ReadResult::Chunk(Bytes::from_static(piece)));
            if in_file && got <= size {
                file(&mut bench, Ok(()));
            }
        }
        if got <= size && named <= size {
            object(&mut bench, ReadResult::End);
        }
        assert_eq!(bench.read(), expected, "{size} {named}");
        bench.assert_nothing_left();
    }
}

#[test]
fn a_shorter_blob_with_the_right_digest_and_an_empty_one_are_served() {
    let empty = sha256(b"");
    let mut bench = wanted(0, &empty);
    bench.s3_done(opened(0));
    object(&mut bench, ReadResult::End);
    assert_eq!(bench.read().last().unwrap(), "200 ");
    bench.assert_nothing_left();

    let mut bench = wanted(20, HELLO);
    bench.s3_done(opened(5));
    file(&mut bench, Ok(()));
    object(&mut bench, bytes(b"hello"));
    file(&mut bench, Ok(()));
    object(&mut bench, ReadResult::End);
    assert_eq!(bench.read().last_chunk::<2>().unwrap(), &["200 stream 5", "read file 262144"]);
    bench.gone(ONE);
    bench.read();
    bench.assert_nothing_left();
}

#[test]
fn failures_of_the_store() {
    let mut bench = wanted(5, HELLO);
    bench.s3(Outcome::NotApplied(Refusal::NoSuchKey));
    assert_eq!(bench.read().last().unwrap(), "502 s3_get_failed");
    bench.assert_nothing_left();

    let mut bench = wanted(5, HELLO);
    bench.read();
    bench.s3(lost());
    bench.pass(Duration::from_millis(200));
    bench.s3(slow_down());
    bench.pass(Duration::from_millis(400));
    bench.s3(lost());
    assert_eq!(bench.read(), ["get ns/t/lfs/x", "get ns/t/lfs/x", "502 s3_get_failed"]);
    bench.assert_nothing_left();

    let mut bench = wanted(5, HELLO);
    bench.s3_done(opened(5));
    object(&mut bench, bytes(b"hel"));
    bench.read();
    object(&mut bench, ReadResult::Broken("reset".into()));
    assert_eq!(bench.read(), ["502 s3_get_failed"]);
    bench.assert_nothing_left();

    let mut bench = wanted(5, HELLO);
    bench.s3_done(opened(5));
    bench.read();
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.read(), ["release object", "502 s3_get_failed"], "no byte for too long");
    object(&mut bench, bytes(b"hello"));
    assert_eq!(bench.read(), [""; 0], "a late piece is dropped");
    bench.assert_nothing_left();
}

#[test]
fn an_object_has_the_time_between_two_bytes_that_is_set() {
    let get = Duration::from_secs(90);
    let s3_timeouts = S3Timeouts { get, ..S3Timeouts::default() };
    let mut bench = Bench::new(LfsConfig { s3_timeouts, ..config() });
    ask(&mut bench, ONE, 5, HELLO);
    bench.s3_done(opened(5));
    bench.read();
    bench.pass(Duration::from_secs(89));
    object(&mut bench, bytes(b"hel"));
    assert_eq!(bench.read(), ["read object 3"]);
    bench.pass(Duration::from_secs(89));
    assert_eq!(bench.read(), [""; 0]);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.read(), ["release object", "502 s3_get_failed"]);
    bench.assert_nothing_left();
}

#[test]
fn space_that_other_shards_have_taken_may_be_free_later() {
    let mut bench = wanted(11, HELLO);
    bench.s3_done(opened(11));
    file(&mut bench, Ok(()));
    object(&mut bench, bytes(b"hello "));
    bench.read();
    file(&mut bench, Err(FileError::NoSpace));
    assert_eq!(bench.read(), ["release object", "remove file", "503 proxy_not_ready"]);
    assert_eq!(bench.answers[&ONE].headers["retry-after"], "1");
    bench.assert_nothing_left();
}

#[test]
fn failures_of_the_file() {
    let mut bench = wanted(11, HELLO);
    bench.s3_done(opened(11));
    bench.read();
    file(&mut bench, Err("disk full".into()));
    assert_eq!(bench.read(), ["release object", "remove file", "500 temp_storage_failed"]);
    bench.assert_nothing_left();

    for result in [ReadResult::Broken("I/O error".into()), ReadResult::End, bytes(b"hello hello hello")] {
        let mut bench = sending();
        file_chunk(&mut bench, result);
        assert_eq!(bench.read(), ["break the connection", "remove file"], "the head has left already");
        bench.assert_nothing_left();
    }
}

#[test]
fn a_client_that_goes_or_stands_still() {
    let mut bench = wanted(5, HELLO);
    bench.read();
    bench.gone(ONE);
    bench.ended(ONE);
    bench.s3_done(opened(5));
    assert_eq!(bench.read(), ["release object"], "an object that was opened for nobody is given up");
    bench.assert_nothing_left();

    let mut bench = sending();
    file_chunk(&mut bench, bytes(b"hello"));
    bench.read();
    bench.pass(Duration::from_secs(300));
    assert_eq!(bench.read(), ["break the connection", "remove file"]);
    bench.assert_nothing_left();
}

#[test]
fn temporary_storage_is_a_budget() {
    let mut bench = wanted(60, HELLO);
    ask(&mut bench, TWO, 60, HELLO);
    bench.read();
    assert_eq!(bench.s3.len(), 1, "the second blob waits for room");
    assert_eq!(bench.lfs.stats().disk_taken_bytes, 60);
    bench.gone(ONE);
    assert_eq!(bench.read(), ["get ns/t/lfs/x"]);
    bench.s3(lost());
    bench.gone(TWO);
    bench.s3.clear();
    bench.assert_nothing_left();

    // A client that says more than there is does not keep others waiting.
    let mut bench = wanted(60, HELLO);
    ask(&mut bench, TWO, 60, HELLO);
    bench.read();
    bench.s3_done(opened(11));
    assert_eq!(bench.read(), ["create file", "get ns/t/lfs/x"]);
    assert_eq!(bench.lfs.stats().disk_taken_bytes, 71);

    let mut bench = wanted(60, HELLO);
    ask(&mut bench, TWO, 60, HELLO);
    bench.read();
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.read(), ["503 proxy_not_ready"]);
    assert_eq!(bench.answers[&TWO].headers["retry-after"], "1");
    assert_eq!(bench.lfs.stats().disk, BudgetStats { limit: 100, waits: 1, refusals: 1 });
}

#[test]
fn signed_urls() {
    let mut bench = Bench::new(config());
    bench.request(ONE, "POST", "/lfs/download", &[("x-request-id", "r-1")]);
    let body = format!(
        r#"{{"bucket":"bucket","key":"ns/t/lfs/x","mode":"presign","expires_seconds":60,"integrity":{{"sha256":"{HELLO}"}}}}"#
    );
    bench.body(ONE, ReadResult::Chunk(body.into()));
    bench.body(ONE, ReadResult::End);
    assert_eq!(bench.read().last().unwrap(), "presign 60");
    bench.s3_done(Response::Url("https://s3/x?sig".into()));
    let expected = format!(
        r#"200 {{"mode":"presign","url":"https://s3/x?sig","expires_at":"2026-11-29T11:45:05Z","integrity":{{"sha256":"{HELLO}","checksum_alg":"sha256"}}}}"#
    );
    assert_eq!(bench.read(), [expected]);
    assert_eq!(bench.answers[&ONE].headers["x-request-id"], "r-1");
    bench.assert_nothing_left();
}

#[test]
fn the_body_of_the_request() {
    let mut bench = Bench::new(config());
    bench.request(ONE, "POST", "/lfs/download", &[("content-length", "2")]);
    bench.body(ONE, bytes(b"{}"));
    bench.body(ONE, ReadResult::End);
    assert_eq!(bench.read().last().unwrap(), "400 invalid_request");
    bench.assert_nothing_left();

    let mut bench = Bench::new(config());
    bench.request(ONE, "POST", "/lfs/download", &[]);
    for _ in 0..4 {
        bench.body(ONE, ReadResult::Chunk(Bytes::from(vec![b' '; 262_144])));
    }
    assert!(bench.answers.is_empty(), "1 MiB is allowed");
    bench.body(ONE, bytes(b" "));
    assert_eq!(bench.read().last().unwrap(), "400 payload_too_large");
    bench.assert_nothing_left();

    let mut bench = Bench::new(config());
    bench.request(ONE, "POST", "/lfs/download", &[]);
    bench.body(ONE, ReadResult::Broken("reset".into()));
    assert_eq!(bench.read().last().unwrap(), "400 invalid_request");
    bench.assert_nothing_left();

    let mut bench = Bench::new(config());
    bench.request(ONE, "POST", "/lfs/download", &[]);
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.read(), ["read 262144", "cancel read", "408 request_timeout"]);
    bench.body(ONE, ReadResult::Broken("cancelled".into()));
    bench.assert_nothing_left();
}
