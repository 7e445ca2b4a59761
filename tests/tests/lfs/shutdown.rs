//! The orderly end at any moment: it comes, it loses no publication, and what is given up is counted.

use std::time::Duration;

use kafscale_proxy_core::inputs::ExchangeId;
use kafscale_proxy_core::model::broker::Fault;
use kafscale_proxy_core::model::{Fate, Link};
use kafscale_proxy_core::{Config, ShutdownConfig};
use kafscale_proxy_tests::world::invariants::{check_blobs, leftovers};
use kafscale_proxy_tests::world::{BodyEnd, HttpClient, S3Fault, S3Verb, World};

use crate::bench::{PART, answer, bytes, check, config, owner, pieces, records, slow, stats, upload, upload_by, world};

const DRAIN: Duration = Duration::from_secs(10);

fn is_idle(world: &World) -> bool {
    world.proxy(0).is_idle()
}

#[test]
fn at_any_moment_of_an_upload() {
    for length in [PART / 2, 3 * PART + 1] {
        for steps in 0.. {
            let name = format!("after {steps} steps of {length} bytes");
            let mut world = world(config());
            let exchange = upload(&mut world, &bytes(length), &[]);
            world.run_steps(steps);
            let over = answer(&world, exchange).is_some();
            world.request_shutdown(0);
            world.run_until(Duration::from_secs(5), &name, |world| is_idle(world));
            // A request that arrives after the end was idle is answered all the same.
            world.run(Duration::from_secs(1));
            check(&world, &name);
            match answer(&world, exchange).expect("an answer has come") {
                (200, _) => assert_eq!(records(&world), 1, "{name}"),
                other => assert_eq!(other, (503, "proxy_not_ready".into()), "{name}"),
            }
            if over {
                break;
            }
        }
    }
}

/// Whatever keeps an exchange open, the end comes when the drain is over, and what may be left is counted by then.
#[test]
fn the_end_comes_whatever_stands_still() {
    type Arrange = fn(&mut World) -> ExchangeId;
    let rows: [(&str, Arrange); 6] = [
        ("a body that does not come", |world| {
            upload_by(world, HttpClient::new(pieces(&bytes(PART + 1)), BodyEnd::Stalls), &[])
        }),
        ("S3 takes its time for an object", |world| {
            world.faults.strike_s3(S3Verb::Put, S3Fault::Way(slow(25)));
            upload(world, &bytes(100), &[])
        }),
        ("S3 takes its time for the completion", |world| {
            world.faults.strike_s3(S3Verb::Complete, S3Fault::Way(slow(100)));
            upload(world, &bytes(2 * PART), &[])
        }),
        ("a broker that does not answer", |world| {
            let owner = owner(world);
            world.broker(owner).set_silent(true);
            upload(world, &bytes(100), &[])
        }),
        ("a blob that cannot be deleted", |world| {
            let refusal = Fault::RefuseProduce(kafscale_proxy_core::kafka::ErrorCode::NOT_LEADER_OR_FOLLOWER);
            (0..3).for_each(|broker| world.broker(broker).inject(refusal));
            world.faults.strike_s3(S3Verb::Delete, S3Fault::Way(slow(30)));
            upload(world, &bytes(100), &[])
        }),
        ("etcd does not answer", |world| {
            world.faults.strike_s3(S3Verb::Put, S3Fault::Way(slow(1)));
            let exchange = upload(world, &bytes(100), &[]);
            world.run(Duration::from_millis(500));
            world.etcd.link = slow(60);
            exchange
        }),
    ];
    for (name, arrange) in rows {
        let mut world = world(config());
        arrange(&mut world);
        world.run(Duration::from_secs(3));
        world.request_shutdown(0);
        world.run(DRAIN - Duration::from_secs(1));
        assert!(!is_idle(&world), "{name}: nothing stands still");
        world.run(Duration::from_secs(1));
        assert!(is_idle(&world), "{name}: the end has not come");
        assert_eq!(check_blobs(&world.log, &world.s3), [], "{name}");
        let (left, counted) = (leftovers(&world.log, &world.s3).len() as u64, stats(&world).orphans);
        assert!(left <= counted, "{name}: {left} left, {counted} counted");
        assert!(counted <= 1, "{name}: counted once");
    }
}

#[test]
fn a_probe_that_waits_is_not_told_that_a_proxy_which_ends_is_ready() {
    let mut config = config();
    config.cluster.cache_ttl = Duration::from_secs(3);
    config.shutdown = ShutdownConfig { grace: Duration::from_secs(5), ..ShutdownConfig::default() };
    let mut world = world(config);
    world.etcd.link = Link { fate: Fate::Refused, delay: Duration::ZERO };
    world.run(Duration::from_secs(20));
    world.etcd.link = Link { fate: Fate::Delivered, delay: Duration::from_secs(1) };
    let probe = world.probe(0, "/readyz");
    world.run(Duration::from_millis(500));
    assert_eq!(world.exchange(probe).status(), None, "etcd is asked first");
    world.request_shutdown(0);
    world.run(Duration::from_secs(3));
    assert_eq!(world.exchange(probe).status(), Some(503));
}

#[test]
fn during_the_grace_everything_is_served() {
    let shutdown = ShutdownConfig { grace: Duration::from_secs(5), drain: DRAIN };
    let mut world = world(Config { shutdown, ..config() });
    world.request_shutdown(0);
    world.run(Duration::from_secs(4));
    let (probe, served) = (world.probe(0, "/readyz"), upload(&mut world, &bytes(100), &[]));
    world.run(Duration::from_millis(500));
    assert_eq!(world.exchange(probe).status(), Some(503));
    assert_eq!(answer(&world, served), Some((200, String::new())));
    world.run(Duration::from_secs(1));
    let late = upload(&mut world, &bytes(100), &[]);
    world.run(Duration::from_millis(500));
    assert_eq!(answer(&world, late), Some((503, "proxy_not_ready".into())));
    assert_eq!(world.exchange(late).header("retry-after"), Some("1"));
    assert!(is_idle(&world));
}
