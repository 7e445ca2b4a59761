//! Downloads through the whole machine: no byte of a blob that is not verified, and nothing is left when they end.

use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::model::s3::Trouble;
use kafscale_proxy_core::model::{Fate, Link};
use kafscale_proxy_tests::world::invariants::{Envelope, envelopes};
use kafscale_proxy_tests::world::{BodyEnd, HttpClient, S3Fault, S3Verb, World};

use crate::bench::{answer, bytes, config, download, download_request, rest, slow, stats, upload_by, world};

/// Longer than what is verified in memory.
const IN_FILE: usize = 300_000;
const IN_MEMORY: usize = 1_000;

/// A world with one more blob, and the envelope of that.
fn world_with(length: usize) -> (World, Envelope) {
    let mut config = config();
    config.lfs.as_mut().expect("the API is on").single_put_below_bytes = IN_FILE + 1;
    config.lfs.as_mut().expect("the API is on").chunk_bytes = IN_FILE + 1;
    let mut world = world(config);
    let client = HttpClient::new([Bytes::from(bytes(length))], BodyEnd::Whole);
    let exchange = upload_by(&mut world, client, &[("Content-Type", "text/plain")]);
    world.run(Duration::from_secs(5));
    assert_eq!(answer(&world, exchange), Some((200, String::new())));
    let envelope = envelopes(&world.log).pop().expect("the record is there");
    assert_eq!(envelope.size, length as u64);
    (world, envelope)
}

#[test]
fn whole_blobs_are_served_from_memory_and_from_a_file() {
    for length in [1, IN_MEMORY, IN_MEMORY + 1, IN_FILE] {
        let (mut world, envelope) = world_with(length);
        let exchange = download(&mut world, download_request(&envelope));
        rest(&mut world, &format!("{length} bytes"));
        let client = world.exchange(exchange);
        assert_eq!(client.status(), Some(200));
        assert_eq!(client.body(), bytes(length));
        assert_eq!(client.header("content-type"), Some("text/plain"));
        assert_eq!(client.header("x-kafscale-lfs-checksum"), Some(format!("sha256={}", envelope.sha256).as_str()));
        assert_eq!(client.header("x-kafscale-lfs-content-length"), Some(length.to_string().as_str()));
    }
}

#[test]
fn blobs_that_are_not_what_the_envelope_says() {
    for length in [IN_MEMORY, IN_FILE] {
        type Change = fn(&mut Envelope);
        let rows: [(&str, Change, u16, &str); 5] = [
            ("another digest", |envelope| envelope.sha256.replace_range(..2, "00"), 502, "integrity_failure"),
            ("a longer object", |envelope| envelope.size -= 1, 502, "integrity_failure"),
            ("a shorter object with the right digest", |envelope| envelope.size += 1, 200, ""),
            (
                "a shorter object with another digest",
                |envelope| {
                    envelope.size += 1;
                    envelope.sha256 = "0".repeat(64);
                },
                502,
                "integrity_failure",
            ),
            ("no object", |envelope| envelope.key.push('x'), 502, "s3_get_failed"),
        ];
        for (name, change, status, code) in rows {
            let (mut world, mut envelope) = world_with(length);
            change(&mut envelope);
            let exchange = download(&mut world, download_request(&envelope));
            rest(&mut world, name);
            if status == 200 {
                assert_eq!(world.exchange(exchange).body(), bytes(length), "{name}");
                continue;
            }
            // The whole body is the error: no byte of the blob.
            assert_eq!(answer(&world, exchange), Some((status, code.into())), "{name} of {length}");
        }
    }
}

#[test]
fn failures_of_the_store() {
    let lost = |fate| S3Fault::Way(Link { fate, delay: Duration::ZERO });
    for length in [IN_MEMORY, IN_FILE] {
        for fault in [lost(Fate::Refused), lost(Fate::ReplyLost), S3Fault::Late(Duration::from_secs(35))] {
            for (times, expected) in [(2, (200, "")), (3, (502, "s3_get_failed"))] {
                let name = format!("{fault:?} {times} times");
                let (mut world, envelope) = world_with(length);
                (0..times).for_each(|_| world.faults.strike_s3(S3Verb::Get, fault));
                let exchange = download(&mut world, download_request(&envelope));
                rest(&mut world, &name);
                assert_eq!(answer(&world, exchange), Some((expected.0, expected.1.into())), "{name}");
            }
        }
        let (mut world, envelope) = world_with(length);
        let exchange = download(&mut world, download_request(&envelope));
        world.run_until(Duration::from_secs(1), "the object is open", |world| {
            world.trace.matching("ReadObject").count() > 0
        });
        world.s3.model.trouble = Trouble::BrokenReads;
        rest(&mut world, "broken reads");
        assert_eq!(answer(&world, exchange), Some((502, "s3_get_failed".into())), "{length}");
        assert_eq!(stats(&world).s3_errors, 1);
    }
}

/// A store that opens an object and then falls silent keeps nothing open: neither the exchange nor the read.
#[test]
fn an_object_that_stalls_is_given_up() {
    for length in [IN_MEMORY, IN_FILE] {
        let (mut world, envelope) = world_with(length);
        world.s3.model.trouble = Trouble::StalledReads;
        let exchange = download(&mut world, download_request(&envelope));
        world.run(Duration::from_secs(29));
        assert_eq!(answer(&world, exchange), None, "{length}");
        rest(&mut world, "stalled reads");
        assert_eq!(answer(&world, exchange), Some((502, "s3_get_failed".into())), "{length}");

        let exchange = download(&mut world, download_request(&envelope));
        world.run(Duration::from_secs(1));
        world.leave(exchange);
        rest(&mut world, "the client left while the store was silent");
    }
}

#[test]
fn failures_of_temporary_storage() {
    let (mut world, envelope) = world_with(IN_FILE);
    world.faults.break_files(true);
    let exchange = download(&mut world, download_request(&envelope));
    rest(&mut world, "no file can be made");
    assert_eq!(answer(&world, exchange), Some((500, "temp_storage_failed".into())));

    let (mut world, envelope) = world_with(IN_FILE);
    let exchange = download(&mut world, download_request(&envelope));
    world
        .run_until(Duration::from_secs(1), "the answer has begun", |world| world.exchange(exchange).status().is_some());
    world.faults.break_files(true);
    rest(&mut world, "the file cannot be read back");
    assert!(world.exchange(exchange).is_aborted(), "an answer that cannot be finished is broken off");
    assert!(world.exchange(exchange).body().len() < IN_FILE);
}

#[test]
fn the_client_goes_at_any_moment() {
    for length in [IN_MEMORY, IN_FILE] {
        for steps in 0.. {
            let (mut world, envelope) = world_with(length);
            let exchange = download(&mut world, download_request(&envelope));
            world.run_steps(steps);
            let over = world.exchange(exchange).is_complete();
            world.leave(exchange);
            rest(&mut world, &format!("{length} bytes, gone after {steps} steps"));
            if over {
                assert!(steps > 5, "a download takes more than {steps} steps");
                break;
            }
        }
    }
}

#[test]
fn a_client_that_stands_still_is_cut_off() {
    for length in [IN_MEMORY, IN_FILE] {
        let (mut world, envelope) = world_with(length);
        let exchange = download(&mut world, download_request(&envelope).that_stands_still());
        world.run(Duration::from_secs(250));
        assert!(!world.exchange(exchange).is_aborted(), "{length}: within the write timeout");
        world.run(Duration::from_secs(60));
        assert!(world.exchange(exchange).is_aborted(), "{length}");
        rest(&mut world, "cut off");
    }
}

#[test]
fn a_client_that_pauses_gets_everything() {
    let (mut world, envelope) = world_with(IN_FILE);
    let exchange = download(&mut world, download_request(&envelope).that_stands_still());
    world.run(Duration::from_secs(200));
    world.take_answer_on(exchange);
    rest(&mut world, "paused");
    assert_eq!(world.exchange(exchange).body(), bytes(IN_FILE));
}

#[test]
fn neither_etcd_nor_a_broker_is_needed() {
    let (mut world, envelope) = world_with(IN_FILE);
    (0..3).for_each(|broker| world.crash(broker));
    world.etcd.link = Link { fate: Fate::Refused, delay: Duration::ZERO };
    world.run(Duration::from_secs(100));
    let exchange = download(&mut world, download_request(&envelope));
    rest(&mut world, "alone");
    assert_eq!(world.exchange(exchange).body(), bytes(IN_FILE));
}

#[test]
fn the_end_does_not_wait_for_a_download_for_ever() {
    let (mut world, envelope) = world_with(IN_FILE);
    world.faults.strike_s3(S3Verb::Get, S3Fault::Way(slow(25)));
    download(&mut world, download_request(&envelope));
    world.run(Duration::from_secs(1));
    world.request_shutdown(0);
    world.run(Duration::from_secs(10));
    assert!(world.proxy(0).is_idle());
}
