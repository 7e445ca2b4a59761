//! Blobs on their way into S3.

use super::*;

#[test]
fn a_short_body_goes_up_in_one_request_signed_with_the_digest_of_the_envelope() {
    let mut bench = Bench::reading(small_parts(), &[("content-type", "text/plain")]);
    bench.chunk(ONE, b"ab");
    bench.chunk(ONE, b"c");
    bench.body(ONE, ReadResult::End);
    assert_eq!(bench.read(), ["read 6", "read 5", "put 3"]);
    let Some((_, Request::PutObject { key, body, sha256, content_type })) = bench.s3.front().cloned() else {
        panic!("no PutObject");
    };
    assert!(key.starts_with("ns/t/lfs/2026/11/29/obj-"), "{key}");
    assert_eq!(body, [&b"abc"[..]]);
    assert_eq!(sha256[..4], [0xba, 0x78, 0x16, 0xbf]);
    assert_eq!(content_type.as_deref(), Some("text/plain"));
    bench.s3_done(Response::Done);
    bench.generation(ONE, TopicGeneration::Absent);
    assert_eq!(bench.read(), ["ask generation t", "write a:1"]);
    bench.broker_answers(0);
    assert_eq!(bench.read(), ["200 envelope"]);
    let stats = bench.lfs.stats();
    assert_eq!((stats.unknown_topics.ok, stats.unknown_topics.errors, stats.uploaded_bytes), (1, 0, 3));
    bench.assert_nothing_left();
}

#[test]
fn parts_are_equal_whatever_the_reads_and_go_up_within_the_window() {
    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"01234");
    bench.chunk(ONE, b"567");
    assert_eq!(bench.read(), ["read 3", "create upload", "read 8"], "reading goes on while the upload is created");
    bench.chunk(ONE, b"89abcdef");
    assert_eq!(bench.read(), ["read 8"]);
    bench.chunk(ONE, b"ghijklmn");
    assert_eq!(bench.read(), [""; 0], "three parts are held: no more is read");
    bench.s3(created());
    assert_eq!(bench.read(), ["part 1 of 8", "part 2 of 8"], "two parts are in flight at most");
    bench.s3_at(1, part("e2"));
    assert_eq!(bench.read(), ["read 8", "part 3 of 8"]);
    bench.chunk(ONE, b"op");
    bench.body(ONE, ReadResult::End);
    assert_eq!(bench.read(), ["read 6"]);
    bench.s3(part("e1"));
    assert_eq!(bench.read(), ["part 4 of 2"]);
    bench.s3(part("e3"));
    bench.s3(part("e4"));
    assert_eq!(bench.read(), ["complete 1:e1 2:e2 3:e3 4:e4"]);
    assert_eq!(bench.lfs.stats().memory_taken_bytes, 0, "nothing is held while S3 completes");
    bench.s3_done(Response::Done);
    assert_eq!(bench.read(), ["ask generation t"]);
}

#[test]
fn bodies_at_the_borders() {
    // Bytes of the body, and the requests that store it.
    let table: [(&[u8], &[&str]); 4] = [
        (b"012", &["put 3"]),
        (b"0123", &["create upload", "part 1 of 4", "complete 1:e"]),
        (b"01234567", &["create upload", "part 1 of 8", "complete 1:e"]),
        (b"012345678", &["create upload", "part 1 of 8", "part 2 of 1", "complete 1:e 2:e"]),
    ];
    for (body, expected) in table {
        let mut bench = Bench::reading(small_parts(), &[]);
        let (first, rest) = body.split_at(body.len().min(8));
        bench.body(ONE, ReadResult::Chunk(Bytes::copy_from_slice(first)));
        if !rest.is_empty() {
            bench.body(ONE, ReadResult::Chunk(Bytes::copy_from_slice(rest)));
        }
        bench.body(ONE, ReadResult::End);
        let mut stored = Vec::new();
        while let Some((purpose, request)) = bench.s3.front() {
            stored.push(verb(request));
            let response = match purpose {
                Purpose::Upload { step: purpose::UploadStep::Create, .. } => Response::UploadCreated("u".into()),
                Purpose::Upload { step: purpose::UploadStep::Part(_), .. } => Response::PartStored("e".into()),
                _ => Response::Done,
            };
            bench.s3_done(response);
        }
        assert_eq!(stored, expected);
        assert_eq!(bench.read().last().unwrap(), "ask generation t");
    }
}

#[test]
fn a_body_of_known_length_that_came_whole_waits_for_no_memory() {
    let config = LfsConfig { upload_memory_bytes: 8, ..small_parts() };
    let mut bench = Bench::reading(config, &[("content-length", "8")]);
    bench.chunk(ONE, b"01234567");
    assert_eq!(bench.read(), ["create upload", "read 1"], "only the end is due");
    bench.body(ONE, ReadResult::End);
    bench.s3(created());
    bench.s3(part("e"));
    assert_eq!(bench.read(), ["part 1 of 8", "complete 1:e"]);
}

#[test]
fn requests_that_failed_for_now_are_repeated() {
    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"01234567");
    bench.read();
    bench.s3(slow_down());
    assert_eq!(bench.read(), [""; 0]);
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.read(), ["create upload"]);
    bench.s3(created());
    assert_eq!(bench.read(), ["part 1 of 8"]);
    bench.s3(lost());
    bench.pass(Duration::from_millis(200));
    bench.s3(slow_down());
    bench.pass(Duration::from_millis(400));
    assert_eq!(bench.read(), ["part 1 of 8", "part 1 of 8"]);
    bench.s3(part("e"));
    bench.body(ONE, ReadResult::End);
    bench.s3(slow_down());
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.read(), ["complete 1:e", "complete 1:e"]);
    bench.s3_done(Response::Done);
    assert_eq!(bench.read(), ["ask generation t"]);
    assert_eq!(bench.lfs.stats().s3_errors, 0);
}

/// What is left behind after each failure, and that the bucket is cleaned accordingly.
#[test]
fn failures_of_s3() {
    let before_create = &["put 3"][..];
    // Outcomes of a PutObject, and what follows it.
    type Row = (Vec<Outcome<Response, Refusal>>, &'static [&'static str]);
    let table: [Row; 4] = [
        // The connection to the broker stays for another upload, until its broker was silent for a second.
        (vec![denied()], &["502 s3_upload_failed", "close a:1"]),
        (vec![slow_down(), slow_down(), slow_down()], &["put 3", "put 3", "close a:1", "502 s3_upload_failed"]),
        (vec![lost(), denied()], &["put 3", "close a:1", "502 s3_upload_failed", "delete"]),
        (vec![lost(), lost(), lost()], &["put 3", "put 3", "close a:1", "502 s3_upload_failed", "delete"]),
    ];
    for (outcomes, expected) in table {
        let mut bench = Bench::reading(small_parts(), &[]);
        bench.chunk(ONE, b"abc");
        bench.read();
        bench.body(ONE, ReadResult::End);
        assert_eq!(bench.read(), before_create);
        for outcome in outcomes {
            bench.s3(outcome);
            bench.pass(Duration::from_secs(1));
        }
        assert_eq!(bench.read(), expected);
        assert_eq!(bench.lfs.stats().s3_errors, 1);
        assert_eq!(bench.lfs.stats().unknown_topics.errors, 1);
        if expected.contains(&"delete") {
            bench.s3_done(Response::Done);
            bench.pass(Duration::from_secs(60));
            assert_eq!(bench.read(), ["delete"], "a PutObject that was given up may have come late");
            bench.s3_done(Response::Done);
        }
        bench.assert_nothing_left();
    }
}

/// An upload that S3 may have created without telling its id cannot be aborted: it is counted.
#[test]
fn an_upload_without_a_known_id_is_an_orphan() {
    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"01234567");
    bench.read();
    bench.s3(lost());
    assert_eq!(bench.read(), ["cancel read", "502 s3_upload_failed"]);
    assert_eq!(bench.lfs.stats().orphans, 1);
    bench.assert_nothing_left();

    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"01234567");
    bench.gone(ONE);
    bench.s3(lost());
    assert_eq!(bench.lfs.stats().orphans, 1, "also when the client had gone before");
    bench.assert_nothing_left();
}

/// The first try was given up and the second one stored the blob: the first may still come after the delete.
#[test]
fn a_blob_whose_put_was_repeated_is_deleted_twice() {
    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"abc");
    bench.body(ONE, ReadResult::End);
    bench.s3(lost());
    bench.pass(Duration::from_secs(1));
    bench.s3_done(Response::Done);
    bench.read();
    bench.gone(ONE);
    assert_eq!(bench.read(), ["close a:1", "delete"]);
    bench.s3_done(Response::Done);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.read(), ["delete"]);
    bench.s3_done(Response::Done);
    assert_eq!(bench.lfs.stats().orphans, 0);
    bench.assert_nothing_left();
}

/// A part that was given up may be stored after the abort, and then only a second abort frees it.
#[test]
fn an_upload_with_a_part_that_was_given_up_is_aborted_twice() {
    for late_first in [true, false] {
        let mut bench = Bench::reading(small_parts(), &[]);
        bench.chunk(ONE, b"01234567");
        bench.s3(created());
        if late_first {
            bench.s3(lost());
        }
        bench.gone(ONE);
        if !late_first {
            bench.s3(lost());
        }
        assert_eq!(bench.read().last().unwrap(), "abort u");
        bench.s3_done(Response::Done);
        bench.pass(Duration::from_secs(59));
        assert_eq!(bench.read(), ["close a:1"]);
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.read(), ["abort u"]);
        bench.s3(Outcome::NotApplied(Refusal::NoSuchUpload));
        assert_eq!(bench.lfs.stats().orphans, 0);
        bench.assert_nothing_left();
    }
}

/// While the bucket cannot be used nothing is tried; when it can, what is left goes, and is counted as gone.
#[test]
fn what_could_not_be_removed_is_removed_when_the_bucket_can_be_used_again() {
    let mut bench = Bench::stored();
    bench.gone(ONE);
    for _ in 0..3 {
        bench.s3(lost());
        bench.pass(Duration::from_secs(4));
    }
    bench.read();
    let looked = |bench: &mut Bench, outcome| {
        bench.call(|lfs, ctx, cluster, out| {
            lfs.on_s3(ctx, cluster, OperationId(0), Purpose::Health, outcome, out);
        });
        bench.timers.clear(Timer::S3Health);
        bench.read()
    };
    bench.pass(Duration::from_secs(30));
    assert_eq!(looked(&mut bench, lost()), [""; 0]);
    assert_eq!(looked(&mut bench, Outcome::Applied(Response::Done)), ["delete"]);
    bench.s3_done(Response::Done);
    let stats = bench.lfs.stats();
    assert_eq!((stats.orphans, stats.orphans_removed, stats.s3_errors), (1, 1, 1));
    bench.assert_nothing_left();
}

#[test]
fn a_multipart_upload_that_failed_is_aborted_when_nothing_of_it_is_in_flight() {
    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"01234567");
    bench.s3(created());
    bench.chunk(ONE, b"89abcdef");
    bench.read();
    bench.s3(denied());
    assert_eq!(bench.read(), ["cancel read", "502 s3_upload_failed"], "a part is in flight still");
    bench.s3(part("e2"));
    assert_eq!(bench.read(), ["abort u"]);
    bench.s3(Outcome::NotApplied(Refusal::NoSuchUpload));
    assert_eq!(bench.lfs.stats().orphans, 0);
    bench.assert_nothing_left();
}

#[test]
fn an_unclear_completion_is_undone_abort_first() {
    for outcome in [lost(), denied(), Outcome::Applied(Response::PartStored("nonsense".into()))] {
        let mut bench = Bench::reading(small_parts(), &[]);
        bench.chunk(ONE, b"01234567");
        bench.s3(created());
        bench.s3(part("e"));
        bench.body(ONE, ReadResult::End);
        bench.read();
        bench.s3(outcome);
        assert_eq!(bench.read(), ["502 s3_upload_failed", "abort u"]);
        bench.s3(Outcome::NotApplied(Refusal::NoSuchUpload));
        assert_eq!(bench.read(), ["delete"]);
        bench.s3(denied());
        bench.pass(Duration::from_secs(1));
        bench.s3(lost());
        bench.pass(Duration::from_secs(4));
        bench.s3(lost());
        assert_eq!(bench.read(), ["close a:1", "delete", "delete"]);
        assert_eq!(bench.lfs.stats().orphans, 1, "what cannot be removed is counted");
        bench.assert_nothing_left();
    }
}

#[test]
fn memory_is_reserved_before_a_byte_is_read() {
    let config = LfsConfig { upload_memory_bytes: 8, ..small_parts() };
    let mut bench = Bench::reading(config, &[]);
    bench.produce(TWO, &[]);
    bench.generation(TWO, TopicGeneration::Absent);
    bench.connected();
    assert_eq!(bench.read(), ["ask generation t", "connect b:1"], "no memory is left for a second body");
    bench.chunk(ONE, b"01234567");
    assert_eq!(bench.read(), ["create upload"], "nobody is overtaken: the first one reads on when its part is gone");
    bench.s3(created());
    bench.s3(part("e"));
    assert_eq!(bench.read(), ["part 1 of 8", "read 8"]);
    bench.body(ONE, ReadResult::End);
    assert_eq!(bench.read(), ["complete 1:e", "read 8"], "the second one reads as soon as the first holds nothing");
}

#[test]
fn waiting_for_memory_ends_in_a_refusal() {
    let config = LfsConfig { upload_memory_bytes: 8, ..small_parts() };
    let mut bench = Bench::reading(config, &[]);
    bench.produce(TWO, &[]);
    bench.generation(TWO, TopicGeneration::Absent);
    bench.connected();
    bench.read();
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.read(), ["close b:1", "503 proxy_not_ready"]);
    assert_eq!(bench.answers[&TWO].headers["retry-after"], "1");
    assert_eq!(bench.lfs.stats().memory, BudgetStats { limit: 8, waits: 1, refusals: 1 });
    bench.gone(ONE);
    bench.read();
    bench.assert_nothing_left();
}

#[test]
fn after_the_end_of_the_process_nothing_is_put_into_the_bucket() {
    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"abc");
    assert_eq!(bench.read(), ["read 5"]);
    bench.call(|lfs, ctx, cluster, out| lfs.give_up(ctx, cluster, out));
    // Facts that were on their way come all the same.
    bench.body(ONE, ReadResult::End);
    let log = bench.read();
    assert!(!log.iter().any(|decision| decision.starts_with("put")), "{log:?}");
    assert_eq!(bench.lfs.stats().orphans, 0);
}
