//! Bodies that are not what was promised: nothing is published, and no object stays.

use super::*;

type Headers = &'static [(&'static str, &'static str)];

/// Reads a body in one piece (or two, at the part border), then tells `end`.
fn after(headers: Headers, body: &'static [u8], end: ReadResult) -> (Bench, Vec<String>) {
    let mut bench = Bench::reading(small_parts(), headers);
    for piece in body.chunks(8) {
        bench.body(ONE, ReadResult::Chunk(Bytes::from_static(piece)));
        if matches!(bench.s3.front(), Some((_, Request::CreateMultipartUpload { .. }))) {
            bench.s3(created());
        }
        while matches!(bench.s3.front(), Some((_, Request::UploadPart { .. }))) {
            bench.s3(part("e"));
        }
    }
    bench.read();
    bench.body(ONE, end);
    let log = bench.read();
    (bench, log)
}

#[test]
fn a_body_that_breaks_off_is_never_a_blob() {
    for body in [&b""[..], b"a", b"abc", b"01234567", b"012345678", b"0123456789abcdef"] {
        for headers in [&[][..], &[("content-length", "20")]] {
            let (mut bench, log) = after(headers, body, ReadResult::Broken("reset".into()));
            let multipart = body.len() >= 8;
            let expected: &[&str] =
                if multipart { &["400 invalid_request", "abort u"] } else { &["400 invalid_request"] };
            assert_eq!(log, expected, "after {} bytes", body.len());
            if multipart {
                bench.s3_done(Response::Done);
            }
            bench.gone(ONE);
            bench.assert_nothing_left();
        }
    }
}

#[test]
fn promises_are_checked_before_the_blob_is_finalized() {
    let end = || ReadResult::End;
    let table: [(Headers, &[u8], &[&str]); 9] = [
        (&[], b"", &["400 empty_upload"]),
        (&[("x-lfs-size", "4")], b"abc", &["400 size_mismatch"]),
        (&[("x-lfs-size", "10")], b"012345678", &["400 size_mismatch", "abort u"]),
        (&[("x-lfs-checksum", "00")], b"abc", &["400 checksum_mismatch"]),
        (&[("x-lfs-checksum", "00")], b"012345678", &["400 checksum_mismatch", "abort u"]),
        (&[("x-lfs-checksum", "352441C2"), ("x-lfs-checksum-alg", "crc32")], b"abc", &["put 3"]),
        (&[("x-lfs-size", "3")], b"abc", &["put 3"]),
        // The framing promised more: never a success.
        (&[("content-length", "4")], b"abc", &["400 invalid_request"]),
        (&[("content-length", "20")], b"0123456789abcdef", &["400 invalid_request", "abort u"]),
    ];
    for (headers, body, expected) in table {
        let (_, log) = after(headers, body, end());
        let log: Vec<_> = log.into_iter().filter(|decision| decision != "close a:1").collect();
        assert_eq!(log, expected, "{headers:?} {}", body.len());
    }
}

#[test]
fn bodies_that_are_too_long_are_refused_at_the_first_byte_too_many() {
    static LONG: [u8; 65] = [b'x'; 65];
    let table: [(Headers, &[u8], &str); 3] = [
        (&[], &LONG, "400 payload_too_large"),
        (&[("x-lfs-size", "3")], b"abcd", "400 size_mismatch"),
        (&[("content-length", "3")], b"abcd", "400 invalid_request"),
    ];
    for (headers, body, expected) in table {
        let mut bench = Bench::reading(small_parts(), headers);
        for piece in body.chunks(8) {
            bench.body(ONE, ReadResult::Chunk(Bytes::from_static(piece)));
            if matches!(bench.s3.front(), Some((_, Request::CreateMultipartUpload { .. }))) {
                bench.s3(created());
            }
            while matches!(bench.s3.front(), Some((_, Request::UploadPart { .. }))) {
                bench.s3(part("e"));
            }
        }
        let log = bench.read();
        assert!(log.contains(&expected.to_owned()), "{log:?}");
        assert!(!log.iter().any(|decision| decision.starts_with("put") || decision.starts_with("complete")));
    }
}

#[test]
fn a_body_that_stands_still_is_given_up() {
    let mut bench = Bench::reading(small_parts(), &[]);
    bench.pass(Duration::from_secs(29));
    bench.chunk(ONE, b"a");
    bench.pass(Duration::from_secs(29));
    assert_eq!(bench.read(), ["read 7"], "only standing still counts, not the whole time");
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.read(), ["cancel read", "close a:1", "408 request_timeout"]);
    bench.body(ONE, ReadResult::Broken("cancelled".into()));
    bench.assert_nothing_left();
}

#[test]
fn while_s3_holds_the_window_the_client_is_not_blamed() {
    let mut bench = Bench::reading(LfsConfig { upload_memory_bytes: 8, ..small_parts() }, &[]);
    bench.chunk(ONE, b"01234567");
    bench.s3(created());
    assert_eq!(bench.read(), ["create upload", "part 1 of 8"]);
    assert_eq!(bench.pass(Duration::from_secs(100)), []);
    assert_eq!(bench.read(), [""; 0]);
}

#[test]
fn a_read_that_gives_more_than_was_asked_for_is_not_trusted() {
    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"0123456789");
    assert_eq!(bench.read(), ["400 invalid_request"]);
    bench.assert_nothing_left();
}
