//! Long bodies are hashed elsewhere while they come: what happens in which order, and what is held until when.

use proptest::prelude::*;

use super::checksum::Algorithm;
use super::*;

/// Parts of 8 bytes; up to 2 bytes are hashed inside a call, and a job begins when 4 are there.
fn short_jobs() -> LfsConfig {
    LfsConfig { single_put_below_bytes: 8, hash_inline_bytes: 2, hash_job_bytes: 4, ..small_parts() }
}

/// What happens to an upload.
#[derive(Clone, Copy, Debug)]
enum Fact {
    /// So many bytes come.
    Bytes(usize),
    End,
    Broken,
    /// The oldest job is done.
    Hashed,
    Gone,
    /// S3 creates the upload.
    Created,
    /// S3 stores a part.
    Stored,
    /// S3 refuses.
    Denied,
    Seconds(u64),
    /// The time for what is in flight is over.
    GivenUp,
}

use Fact::{Broken, Bytes as Come, Created, Denied, End, GivenUp, Gone, Hashed, Seconds, Stored};

fn tell(bench: &mut Bench, fact: Fact) {
    static BODY: [u8; 64] = *b"0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqr";
    match fact {
        Come(bytes) => bench.chunk(ONE, &BODY[..bytes]),
        End => bench.body(ONE, ReadResult::End),
        Broken => bench.body(ONE, ReadResult::Broken("reset".into())),
        Hashed => bench.hashed(),
        Gone => bench.gone(ONE),
        Created => drop(bench.s3(created())),
        Stored => drop(bench.s3(part("e"))),
        Denied => drop(bench.s3(denied())),
        Seconds(seconds) => drop(bench.pass(Duration::from_secs(seconds))),
        GivenUp => bench.call(|lfs, ctx, cluster, out| lfs.give_up(ctx, cluster, out)),
    }
}

fn after(headers: &[(&'static str, &str)], facts: &[Fact]) -> Bench {
    let mut bench = Bench::reading(short_jobs(), headers);
    facts.iter().for_each(|fact| tell(&mut bench, *fact));
    bench
}

/// What a fact leads to, by how much has come, whether a job runs, and what happens.
#[test]
fn what_is_hashed_where_and_when() {
    type Row = (&'static [Fact], Fact, &'static [&'static str]);
    let table: [Row; 22] = [
        // Nothing is away.
        (&[], Come(3), &["read 5"]),
        (&[], Come(4), &["hash 4", "read 4"]),
        (&[Come(2)], End, &["put 2"]),
        (&[Come(3)], End, &["hash 3"]),
        (&[Come(3)], Come(1), &["hash 4", "read 4"]),
        (&[Come(3)], Broken, &["400 invalid_request"]),
        // A job runs: whatever comes waits for it.
        (&[Come(4)], Come(3), &["read 1"]),
        (&[Come(4)], Come(4), &["create upload", "read 8"]),
        (&[Come(4)], End, &[]),
        (&[Come(4), End], Hashed, &["put 4"]),
        // It is done.
        (&[Come(4), Come(2)], Hashed, &[]),
        (&[Come(4), Come(2), End], Hashed, &["put 6"]),
        (&[Come(4), Come(3), End], Hashed, &["hash 3"]),
        (&[Come(4), Come(3), End, Hashed], Hashed, &["put 7"]),
        (&[Come(4), Come(4), Come(1)], Hashed, &["hash 5"]),
        // A part goes up when all of it is hashed; for the end of a full one nothing more is waited for.
        (&[Come(4), Come(4), Created], Hashed, &["hash 4"]),
        (&[Come(4), Come(4), Created, Hashed], Hashed, &["part 1 of 8"]),
        (&[Come(6), Come(2), Created], Hashed, &["part 1 of 8"]),
        (&[Come(6), Hashed], Come(2), &["create upload", "read 8"]),
        (&[Come(8), Created, Come(8)], Hashed, &["hash 8", "part 1 of 8"]),
        (&[Come(8), Created, Come(8), Hashed, Stored, End], Hashed, &["part 2 of 8"]),
        (&[Come(8), Created, Come(1), End, Hashed, Stored], Stored, &["complete 1:e 2:e"]),
    ];
    for (before, fact, expected) in table {
        let mut bench = after(&[], before);
        bench.read();
        tell(&mut bench, fact);
        assert_eq!(bench.read(), expected, "{before:?}, then {fact:?}");
    }
}

/// A job cannot be cancelled: an upload that fails or is given up while one runs is there until it is done, with the memory of
/// what is being hashed, and nothing comes of the result.
#[test]
fn an_upload_that_ends_while_bytes_are_hashed_waits_for_them() {
    // What was done before, what ends it, what is decided then, the bytes that are held, and what is decided when the job is done.
    type Row = (&'static [Fact], Fact, &'static [&'static str], u64, &'static [&'static str]);
    let table: [Row; 11] = [
        (&[Come(4)], Broken, &["400 invalid_request"], 8, &[]),
        (&[Come(4)], Gone, &["cancel read"], 8, &[]),
        (&[Come(4)], Seconds(30), &["cancel read", "close a:1", "408 request_timeout"], 8, &[]),
        (&[Come(4), End], Gone, &[], 8, &[]),
        (&[Come(4), End], GivenUp, &[], 8, &[]),
        // More than the job is not held.
        (&[Come(8), Created, Come(3)], Broken, &["400 invalid_request"], 8, &["abort u"]),
        (&[Come(4), Come(4)], Denied, &["cancel read", "502 s3_upload_failed"], 8, &[]),
        // A job over the border of two parts, and a part in flight beside it.
        (
            &[Come(8), Created, Come(6), Hashed, Come(2), Come(1)],
            Denied,
            &["cancel read", "502 s3_upload_failed"],
            8,
            &["abort u"],
        ),
        (&[Come(6), Come(2), Created, Come(5), Hashed], Broken, &["400 invalid_request"], 16, &["abort u"]),
        (&[Come(8), Created, Come(6), Hashed], Gone, &["cancel read"], 16, &[]),
        (&[Come(8), Created, Come(3), End, Hashed], Gone, &[], 16, &[]),
    ];
    for (before, fact, expected, held, then) in table {
        let what = format!("{before:?}, then {fact:?}");
        let mut bench = after(&[], before);
        bench.read();
        tell(&mut bench, fact);
        assert_eq!(bench.read(), expected, "{what}");
        assert_eq!(bench.lfs.stats().memory_taken_bytes, held, "{what}");
        bench.body(ONE, ReadResult::Broken("cancelled".into()));
        bench.ended(ONE);
        assert!(matches!(fact, GivenUp) || !bench.lfs.is_idle(), "{what}: it is there until the job is done");
        if bench.jobs.is_empty() {
            panic!("{what}: nothing is being hashed");
        }
        bench.hashed();
        assert_eq!(bench.read(), then, "{what}: when the job is done");
        while let Some((purpose, _)) = bench.s3.front() {
            let is_part = matches!(purpose, Purpose::Upload { step: purpose::UploadStep::Part(_), .. });
            bench.s3_done(if is_part { Response::PartStored("e".into()) } else { Response::Done });
        }
        if !matches!(fact, GivenUp) {
            assert!(
                !bench.read().iter().any(|decision| decision.starts_with("put") || decision.starts_with("complete"))
            );
            bench.assert_nothing_left();
        }
    }
}

#[test]
fn while_bytes_are_hashed_the_client_is_not_blamed() {
    let mut bench = after(&[], &[Come(4), End]);
    assert_eq!(bench.pass(Duration::from_secs(100)), []);
    bench.read();
    bench.hashed();
    assert_eq!(bench.read(), ["put 4"]);

    // The window is full of what is not hashed yet.
    let mut bench = after(&[], &[Come(8), Come(8), Come(8), Created]);
    assert_eq!(bench.read(), ["create upload", "hash 8", "read 8", "read 8"]);
    assert_eq!(bench.pass(Duration::from_secs(100)), []);
    bench.hashed();
    assert_eq!(bench.read(), ["hash 16", "part 1 of 8"]);
}

#[test]
fn a_checksum_is_compared_when_all_is_hashed_and_before_anything_is_finalized() {
    let mut bench = after(&[("x-lfs-checksum", "00")], &[Come(8), Created, Hashed, Stored, Come(3), End]);
    assert_eq!(bench.read().last().unwrap(), "hash 3");
    bench.hashed();
    assert_eq!(bench.read(), ["400 checksum_mismatch", "abort u"]);
    bench.s3_done(Response::Done);
    bench.assert_nothing_left();

    // What is known without the digests is not waited for.
    let mut bench = after(&[("x-lfs-size", "9")], &[Come(4)]);
    bench.read();
    tell(&mut bench, End);
    assert_eq!(bench.read(), ["400 size_mismatch"]);
    bench.hashed();
    bench.assert_nothing_left();
}

/// Hashing that is late does not bring more into memory than the window, and none of it is given back before its time.
#[test]
fn memory_is_held_until_bytes_are_hashed_and_uploaded() {
    let mut bench = after(&[], &[Come(8), Created, Come(8), Come(8)]);
    assert_eq!(bench.lfs.stats().memory_taken_bytes, 24, "three parts, and none of them is hashed");
    bench.read();
    bench.hashed();
    assert_eq!(bench.read(), ["hash 16", "part 1 of 8"]);
    tell(&mut bench, Stored);
    assert_eq!(bench.read(), ["read 8"]);
    bench.hashed();
    assert_eq!(bench.read(), ["part 2 of 8", "part 3 of 8"]);
    tell(&mut bench, End);
    tell(&mut bench, Stored);
    tell(&mut bench, Stored);
    assert_eq!(bench.lfs.stats().memory_taken_bytes, 0);
}

/// Lets an upload happen in an order that is drawn, and says whether its digests were what the client expected.
fn is_as_expected(config: LfsConfig, algorithm: Algorithm, expected: &str, body: &[u8], seed: [u8; 32]) -> bool {
    let headers = [("x-lfs-checksum-alg", algorithm.name()), ("x-lfs-checksum", expected)];
    let mut random = Random::new(seed);
    let mut draw = |below: usize| random.below(below as u64) as usize;
    let mut bench = Bench::new(config);
    bench.produce(ONE, &headers);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.connected();
    let (mut sent, mut asked) = (0, None);
    for _ in 0..100_000 {
        for decision in bench.read() {
            match decision.strip_prefix("read ") {
                Some(bytes) => asked = Some(bytes.parse::<usize>().unwrap()),
                None if decision == "400 checksum_mismatch" => return false,
                None if decision == "ask generation t" && sent == body.len() => return true,
                None => {}
            }
        }
        match (draw(3), asked) {
            (0, Some(_)) if sent == body.len() => {
                asked = None;
                bench.body(ONE, ReadResult::End);
            }
            (0, Some(most)) => {
                asked = None;
                let piece = body[sent..].len().min(most);
                let piece = 1 + draw(piece);
                sent += piece;
                bench.body(ONE, ReadResult::Chunk(Bytes::copy_from_slice(&body[sent - piece..sent])));
            }
            (1, _) if !bench.jobs.is_empty() => bench.hashed(),
            (2, _) if !bench.s3.is_empty() => {
                let place = draw(bench.s3.len());
                let response = match &bench.s3[place].1 {
                    Request::CreateMultipartUpload { .. } => Response::UploadCreated("u".into()),
                    Request::UploadPart { .. } => Response::PartStored("e".into()),
                    _ => Response::Done,
                };
                bench.s3_at(place, Outcome::Applied(response));
            }
            _ => {}
        }
    }
    panic!("the upload does not come to an end");
}

proptest! {
    /// Wherever a body is cut, whatever comes first: its digests are those of the whole body.
    #[test]
    fn digests_are_those_of_the_whole_body(
        body in prop::collection::vec(any::<u8>(), 1..300),
        part in 1_usize..60,
        inline in 0_usize..20,
        job in 1_usize..40,
        memory in 1_usize..5,
        algorithm in prop::sample::select(vec![Algorithm::Sha256, Algorithm::Md5, Algorithm::Crc32]),
        seed in any::<[u8; 32]>(),
    ) {
        let mut digests = Digests::new(algorithm);
        digests.update(&body);
        let expected = digests.finish().chosen.unwrap();
        let config = LfsConfig {
            chunk_bytes: part,
            single_put_below_bytes: part,
            hash_inline_bytes: inline,
            hash_job_bytes: job,
            upload_memory_bytes: memory * part,
            max_blob_bytes: None,
            ..small_parts()
        };
        prop_assert!(is_as_expected(config.clone(), algorithm, &expected, &body, seed));
        let mut other = body.clone();
        other[body.len() / 2] ^= 1;
        prop_assert!(!is_as_expected(config, algorithm, &expected, &other, seed));
    }
}
