//! S3 fails in every way at every step of an upload: the client gets an honest answer, and what stays is counted.

use std::time::Duration;

use kafscale_proxy_core::model::s3::Trouble;
use kafscale_proxy_core::model::{Fate, Link};
use kafscale_proxy_tests::world::invariants::leftovers;
use kafscale_proxy_tests::world::{S3Fault, S3Verb};

use crate::bench::{PART, answer, bytes, config, objects, records, rest, stats, upload, world};

const fn way(fate: Fate) -> S3Fault {
    S3Fault::Way(Link { fate, delay: Duration::ZERO })
}

const FAULTS: [S3Fault; 9] = [
    way(Fate::Refused),
    way(Fate::ReplyLost),
    way(Fate::RequestLost),
    S3Fault::Trouble(Trouble::SlowDown),
    S3Fault::Trouble(Trouble::InternalError { applied: true }),
    S3Fault::Trouble(Trouble::InternalError { applied: false }),
    S3Fault::Trouble(Trouble::CompletionError { applied: true }),
    S3Fault::Trouble(Trouble::CompletionError { applied: false }),
    // Past the deadline of a PutObject: the request is given up, and then carried out for nobody.
    S3Fault::Late(Duration::from_secs(40)),
];

#[test]
fn every_fault_at_every_step() {
    let steps = [
        (S3Verb::Put, PART / 2),
        (S3Verb::Create, 3 * PART + 1),
        (S3Verb::Part, 3 * PART + 1),
        (S3Verb::Complete, 3 * PART + 1),
    ];
    for (verb, length) in steps {
        for fault in FAULTS {
            for times in [1, 2, 3] {
                let name = format!("{verb:?} {fault:?} {times} times");
                let mut world = world(config());
                (0..times).for_each(|_| world.faults.strike_s3(verb, fault));
                let exchange = upload(&mut world, &bytes(length), &[]);
                world.run(Duration::from_secs(400));
                rest(&mut world, &name);
                match answer(&world, exchange).expect("an answer has come") {
                    (200, _) => assert_eq!((records(&world), objects(&world)), (1, 1), "{name}"),
                    other => {
                        assert_eq!(other, (502, "s3_upload_failed".into()), "{name}");
                        assert_eq!(records(&world), 0, "{name}");
                        assert_eq!(stats(&world).s3_errors, 1, "{name}");
                    }
                }
            }
        }
    }
}

/// What is left behind is removed although that fails at first; what had to be counted goes later.
#[test]
fn removals_that_fail_too() {
    for (verb, other) in [(S3Verb::Abort, S3Verb::Delete), (S3Verb::Delete, S3Verb::Abort)] {
        for (times, counted) in [(1, 0), (2, 0), (3, 1)] {
            let name = format!("{verb:?} fails {times} times");
            let mut world = world(config());
            world.faults.strike_s3(
                S3Verb::Complete,
                way(if verb == S3Verb::Abort { Fate::RequestLost } else { Fate::ReplyLost }),
            );
            (0..times).for_each(|_| world.faults.strike_s3(verb, way(Fate::RequestLost)));
            world.faults.strike_s3(other, S3Fault::Trouble(Trouble::SlowDown));
            upload(&mut world, &bytes(2 * PART), &[]);
            rest(&mut world, &name);
            assert!(leftovers(&world.log, &world.s3).is_empty(), "{name}");
            assert_eq!((stats(&world).orphans, stats(&world).orphans_removed), (counted, counted), "{name}");
        }
    }
}

/// S3 is away for a minute in the middle of an upload, longer than anybody tries to remove what is there of it.
#[test]
fn what_an_outage_left_is_removed_when_it_is_over() {
    let mut world = world(config());
    let exchange = upload(&mut world, &bytes(3 * PART + 1), &[]);
    world.run_until(Duration::from_secs(1), "a part is sent", |world| world.trace.matching("UploadPart").count() > 0);
    world.s3.link = Link { fate: Fate::RequestLost, ..Link::default() };
    world.run(Duration::from_secs(60));
    assert_eq!(answer(&world, exchange), Some((502, "s3_upload_failed".into())));
    assert_eq!(leftovers(&world.log, &world.s3).len(), 1, "an upload is open");
    assert_eq!((stats(&world).orphans, stats(&world).orphans_removed), (1, 0));
    world.s3.link = Link::default();
    rest(&mut world, "S3 is back");
    assert!(leftovers(&world.log, &world.s3).is_empty());
    assert_eq!((stats(&world).orphans, stats(&world).orphans_removed), (1, 1));
}
