//! A connection that an upload has left is used by the next, whatever has become of its broker meanwhile.

use std::time::Duration;

use kafscale_proxy_core::kafka::ErrorCode;
use kafscale_proxy_core::model::broker::Fault;
use kafscale_proxy_tests::world::{S3Fault, S3Verb, World};

use crate::bench::{answer, bytes, check, config, owner, records, rest, slow, stats, upload, world};

/// The first upload of every world was a second ago; another one leaves its connection now.
fn after_an_upload() -> World {
    let mut world = world(config());
    let exchange = upload(&mut world, &bytes(100), &[]);
    world.run_until(Duration::from_secs(1), "an answer", |world| answer(world, exchange).is_some());
    assert_eq!(answer(&world, exchange), SUCCESS);
    assert_eq!(stats(&world).broker_connections, 1, "it is kept");
    world
}

const SUCCESS: Option<(u16, String)> = Some((200, String::new()));

/// Dials since the world began.
fn dials(world: &World) -> usize {
    world.trace.matching("Connect {").count()
}

/// Another upload, and how it is answered.
fn another(world: &mut World) -> Option<(u16, String)> {
    let exchange = upload(world, &bytes(100), &[]);
    world.run(Duration::from_secs(30));
    answer(world, exchange)
}

#[test]
fn it_is_kept_for_a_second_and_taken_meanwhile() {
    let mut world = after_an_upload();
    let (before, reused) = (dials(&world), stats(&world).reused_connections);
    for _ in 0..5 {
        world.run(Duration::from_millis(900));
        assert_eq!(stats(&world).broker_connections, 1);
        let exchange = upload(&mut world, &bytes(100), &[]);
        world.run_until(Duration::from_secs(1), "an answer", |world| answer(world, exchange).is_some());
        assert_eq!(answer(&world, exchange), SUCCESS);
    }
    assert_eq!((dials(&world), stats(&world).reused_connections), (before, reused + 5));
    world.run(Duration::from_millis(1_010));
    assert_eq!(stats(&world).broker_connections, 0);
    assert_eq!(records(&world), 6);
    check(&world, "one connection");
}

/// The owner closes what is idle, dies and starts again, or dies between the upload that takes the connection and its record:
/// nobody notices.
#[test]
fn a_broker_that_closes_it_costs_no_upload() {
    type Row = (&'static str, fn(&mut World, usize));
    let rows: [Row; 3] = [
        ("closes what is idle", |world, owner| {
            world.set_idle_close(owner, Duration::from_millis(300));
            world.run(Duration::from_millis(500));
        }),
        ("dies and starts again", |world, owner| {
            world.crash(owner);
            world.restart(owner);
        }),
        ("closes what is idle, during the next upload", |world, owner| {
            world.set_idle_close(owner, Duration::from_millis(300));
            world.faults.strike_s3(S3Verb::Put, S3Fault::Way(slow(3)));
        }),
    ];
    for (name, happen) in rows {
        let mut world = after_an_upload();
        let (before, owner) = (dials(&world), owner(&world));
        happen(&mut world, owner);
        assert_eq!(another(&mut world), SUCCESS, "{name}");
        assert_eq!(dials(&world), before + 1, "{name}");
        assert_eq!((records(&world), stats(&world).orphans), (2, 0), "{name}");
        rest(&mut world, name);
    }
}

/// The record was handed over and no answer came: it is not sent again, and its blob stays.
#[test]
fn a_broker_that_dies_with_the_record_leaves_it_unknown() {
    for (name, fault, found) in [("appended", true, 2), ("never read", false, 1)] {
        let mut world = after_an_upload();
        let (before, owner) = (dials(&world), owner(&world));
        match fault {
            true => world.broker(owner).inject(Fault::CrashAfterAppend),
            false => world.faults.break_record_write(1),
        }
        assert_eq!(another(&mut world), Some((502, "backend_error".into())), "{name}");
        assert_eq!(dials(&world), before, "{name}");
        assert_eq!((records(&world), stats(&world).orphans), (found, 1), "{name}");
        rest(&mut world, name);
    }
}

/// Not a byte was taken: a connection is dialled, and the record goes there.
#[test]
fn a_dead_one_is_dialled_again() {
    let mut world = after_an_upload();
    let before = dials(&world);
    world.faults.break_record_write(0);
    assert_eq!(another(&mut world), SUCCESS);
    assert_eq!((dials(&world), records(&world), stats(&world).orphans), (before + 1, 2, 0));
    rest(&mut world, "a dead one");
}

/// Within the second a broker that has fallen silent gets the record, and nobody knows what became of it; after it, a dial
/// says so, and nothing is left in doubt.
#[test]
fn a_silent_broker_is_noticed_by_a_dial_after_a_second() {
    for (later, code, orphans) in [(500, (502, "backend_error"), 1), (1_100, (503, "backend_unavailable"), 0)] {
        let mut world = after_an_upload();
        let owner = owner(&world);
        world.set_silent(owner, true);
        world.run(Duration::from_millis(later));
        assert_eq!(another(&mut world), Some((code.0, code.1.into())), "after {later} ms");
        assert_eq!((records(&world), stats(&world).orphans), (1, orphans), "after {later} ms");
    }
}

#[test]
fn a_broker_that_refuses_keeps_its_connection_and_is_not_asked_again() {
    let mut world = after_an_upload();
    let (before, owner) = (dials(&world), owner(&world));
    world.broker(owner).inject(Fault::RefuseProduce(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    let exchange = upload(&mut world, &bytes(100), &[]);
    world.run_until(Duration::from_secs(5), "a dial elsewhere", |world| dials(world) > before);
    assert_eq!(stats(&world).broker_connections, 2);
    world.run(Duration::from_secs(10));
    assert!(answer(&world, exchange).is_some());
    rest(&mut world, "refused");
}

/// The shutdown ends it, and waits neither for its second nor for its broker.
#[test]
fn the_end_does_not_wait_for_it() {
    let mut world = after_an_upload();
    world.request_shutdown(0);
    world.run(Duration::from_millis(50));
    assert!(world.proxy(0).is_idle());
    assert_eq!(stats(&world).broker_connections, 0);
}
