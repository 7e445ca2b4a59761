//! Something happens at any moment of an exchange: whatever the moment, everything comes to rest and the invariants hold.

use std::time::Duration;

use kafscale_proxy_core::inputs::ExchangeId;
use kafscale_proxy_core::model::{Fate, Link};
use kafscale_proxy_tests::world::World;

use crate::bench::{PART, answer, bytes, config, owner, records, rest, upload, world};

/// Lets `what` happen after each number of steps in turn, until the upload is over before it would; also while bytes are being
/// hashed for long.
fn at_any_moment(name: &str, what: impl Fn(&mut World, ExchangeId)) {
    let late = Duration::from_millis(400);
    for (length, job_jitter) in [(PART / 2, Duration::ZERO), (PART / 2, late), (3 * PART + 1, late)] {
        for steps in 0.. {
            let mut world = world(config());
            world.job_jitter = job_jitter;
            let exchange = upload(&mut world, &bytes(length), &[]);
            world.run_steps(steps);
            let over = answer(&world, exchange).is_some();
            what(&mut world, exchange);
            rest(&mut world, &format!("{name} after {steps} steps of {length} bytes"));
            if let Some((200, _)) = answer(&world, exchange) {
                assert_eq!(records(&world), 1, "{name} after {steps} steps: a success has a record");
            }
            if over {
                assert!(steps > 10, "an upload of {length} bytes takes more than {steps} steps");
                break;
            }
        }
    }
}

#[test]
fn the_client_goes() {
    at_any_moment("the client goes", |world, exchange| world.leave(exchange));
}

#[test]
fn the_owner_crashes() {
    at_any_moment("the owner crashes", |world, _| {
        let owner = owner(world);
        world.crash(owner);
    });
}

#[test]
fn etcd_goes() {
    at_any_moment("etcd goes", |world, _| world.etcd.link = Link { fate: Fate::Refused, delay: Duration::ZERO });
}

#[test]
fn s3_goes_and_comes_back() {
    for fate in [Fate::Refused, Fate::ReplyLost, Fate::RequestLost] {
        at_any_moment(&format!("S3 is {fate:?}"), |world, _| {
            world.s3.link = Link { fate, delay: Duration::from_millis(50) };
            world.run(Duration::from_secs(3));
            world.s3.link = Link::default();
        });
    }
}

#[test]
fn s3_goes_for_good() {
    for fate in [Fate::Refused, Fate::ReplyLost, Fate::RequestLost] {
        at_any_moment(&format!("S3 stays {fate:?}"), |world, _| {
            world.s3.link = Link { fate, delay: Duration::from_millis(50) };
        });
    }
}

#[test]
fn the_client_goes_while_s3_is_away() {
    at_any_moment("client and S3 go", |world, exchange| {
        world.leave(exchange);
        world.s3.link = Link { fate: Fate::RequestLost, delay: Duration::from_millis(50) };
        world.run(Duration::from_secs(1));
        world.s3.link = Link::default();
    });
}
