//! Slow clients and slow stores are no errors, until the limits that the operations page names.

use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::model::Link;
use kafscale_proxy_tests::world::{BodyEnd, HttpClient, S3Fault, S3Verb};

use crate::bench::{PART, answer, bytes, config, objects, records, rest, slow, upload, upload_by, world};

const STORED: Option<(u16, String)> = Some((200, String::new()));

/// A body that takes a quarter of an hour, in pieces that come a little sooner than the client would be given up.
#[test]
fn an_upload_may_take_as_long_as_it_moves() {
    let mut world = world(config());
    let body = bytes(9 * PART + 7);
    let client = HttpClient::new(body.chunks(PART / 4).map(Bytes::copy_from_slice), BodyEnd::Whole);
    let exchange = upload_by(&mut world, client.that_is_slow(Duration::from_secs(25)), &[]);
    world.run(Duration::from_secs(15 * 60));
    assert_eq!(answer(&world, exchange), None);
    world.run(Duration::from_secs(60));
    rest(&mut world, "a slow client");
    assert_eq!(answer(&world, exchange), STORED);
    assert_eq!((records(&world), objects(&world)), (1, 1));
}

/// All parts but the last are equal, however the body comes: the model refuses any others, as some stores do.
#[test]
fn parts_are_cut_whatever_the_pieces_of_the_body() {
    for piece in [1, 7, 1_400, PART - 1, PART + 1, 3 * PART] {
        let mut world = world(config());
        let body = bytes(4 * PART + 77);
        let client = HttpClient::new(body.chunks(piece).map(Bytes::copy_from_slice), BodyEnd::Whole);
        let exchange = upload_by(&mut world, client, &[]);
        world.run(Duration::from_secs(60));
        rest(&mut world, &format!("pieces of {piece}"));
        assert_eq!(answer(&world, exchange), STORED, "{piece}");
    }
}

/// A part has 30 s and 1 s per MiB, a completion 5 minutes. Within these a slow store costs nothing but time; beyond them
/// the answer is clear, and nothing stays.
#[test]
fn a_slow_store_is_waited_for_within_its_limits() {
    let failed = Some((502, "s3_upload_failed".into()));
    for (verb, seconds, times, expected) in [
        (S3Verb::Part, 30, 4, STORED),
        (S3Verb::Part, 32, 1, STORED),
        (S3Verb::Part, 32, 12, failed.clone()),
        (S3Verb::Complete, 299, 1, STORED),
        (S3Verb::Complete, 360, 1, failed.clone()),
    ] {
        let name = format!("{verb:?} takes {seconds} s, {times} times");
        let mut world = world(config());
        let way: Link = slow(seconds);
        (0..times).for_each(|_| world.faults.strike_s3(verb, S3Fault::Way(way)));
        let exchange = upload(&mut world, &bytes(3 * PART + 1), &[]);
        world.run(Duration::from_secs(500));
        rest(&mut world, &name);
        assert_eq!(answer(&world, exchange), expected, "{name}");
        let kept = usize::from(expected == STORED);
        assert_eq!((records(&world), objects(&world)), (kept, kept), "{name}");
    }
}
