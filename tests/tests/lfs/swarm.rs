//! Many uploads at once among faults that are drawn: the invariants hold whatever comes together.

use std::time::Duration;

use kafscale_proxy_core::etcd::Keys;
use kafscale_proxy_core::inputs::ExchangeId;
use kafscale_proxy_core::kafka::ErrorCode;
use kafscale_proxy_core::model::broker::Fault;
use kafscale_proxy_core::model::s3::Trouble;
use kafscale_proxy_core::model::{Fate, Link};
use kafscale_proxy_tests::world::invariants::envelopes;
use kafscale_proxy_tests::world::{BodyEnd, HttpClient, Plan, S3Fault, S3Verb, World};

use crate::bench::{PART, TOPIC, answer, bytes, config, download, download_request, pieces, rest, upload_by};

const SEEDS: u64 = 60;
const UPLOADS: usize = 12;

fn pick<T: Copy>(world: &mut World, from: &[T]) -> T {
    from[world.choices.between(0, from.len() as u64 - 1) as usize]
}

fn fate(world: &mut World) -> Fate {
    let good = Fate::Delivered;
    pick(world, &[good, good, good, good, Fate::Refused, Fate::ReplyLost, Fate::RequestLost])
}

fn delay(world: &mut World) -> Duration {
    Duration::from_millis(pick(world, &[0, 1, 200, 2_000, 6_000]))
}

/// One thing that goes wrong, or right again.
fn disturb(world: &mut World, uploads: &[ExchangeId]) {
    let broker = world.choices.between(0, 2) as usize;
    match world.choices.between(0, 9) {
        0 => {
            let (fate, delay) = (fate(world), delay(world));
            world.s3.link = Link { fate, delay };
        }
        1 => {
            let (fate, delay) = (fate(world), delay(world));
            world.etcd.link = Link { fate, delay };
        }
        2 | 3 => {
            let code = pick(world, &[6, 5, 74, 75, 7, -1]);
            world.broker(broker).inject(Fault::RefuseProduce(ErrorCode(code)));
        }
        4 => {
            let fault = pick(world, &[Fault::WrongCorrelation, Fault::MissingPartition]);
            world.broker(broker).inject(fault);
        }
        5 => {
            let accepted = pick(world, &[0, 1, 100, 100_000]);
            world.faults.break_record_write(accepted);
        }
        6 => {
            let swallow = world.choices.one_in(2);
            world.faults.swallow_dials(broker, swallow);
        }
        7 => {
            let key = format!("/kafscale/partition-leases/{TOPIC}/1");
            world.change_etcd(|etcd, facts| etcd.model.delete(&Keys::One(key.into()), facts));
        }
        8 => {
            let exchange = pick(world, uploads);
            world.leave(exchange);
        }
        _ => {
            let verbs = [S3Verb::Put, S3Verb::Create, S3Verb::Part, S3Verb::Complete, S3Verb::Abort, S3Verb::Delete];
            let (verb, fate) = (pick(world, &verbs), fate(world));
            let faults = [
                S3Fault::Way(Link { fate, delay: Duration::ZERO }),
                S3Fault::Trouble(Trouble::SlowDown),
                S3Fault::Trouble(Trouble::InternalError { applied: true }),
                S3Fault::Trouble(Trouble::CompletionError { applied: true }),
                S3Fault::Late(Duration::from_secs(40)),
            ];
            let fault = pick(world, &faults);
            world.faults.strike_s3(verb, fault);
        }
    }
}

/// Asks for a blob of some record, if there is one; now and then by a client that does not take it.
fn download_anything(world: &mut World) {
    let stored = envelopes(&world.log);
    if stored.is_empty() {
        return;
    }
    let place = world.choices.between(0, stored.len() as u64 - 1) as usize;
    let client = match world.choices.one_in(4) {
        true => download_request(&stored[place]).that_stands_still(),
        false => download_request(&stored[place]),
    };
    download(world, client);
}

fn calm_down(world: &mut World) {
    world.s3.link = Link::default();
    world.etcd.link = Link::default();
    (0..3).for_each(|broker| world.faults.swallow_dials(broker, false));
}

#[test]
fn uploads_among_faults() {
    let (mut successes, mut failures, mut deletes) = (0, 0, 0);
    for seed in 0..SEEDS {
        let topics = vec![(TOPIC.into(), 2)];
        let mut config = config();
        let lfs = config.lfs.as_mut().expect("the API is on");
        // Seldom enough for all: waiting for memory and for temporary storage is part of it.
        lfs.upload_memory_bytes = 5 * PART;
        lfs.download_disk_bytes = 8 * PART as u64;
        let mut world = World::new(Plan { seed, config, shards: 1, brokers: 3, topics, min_part_bytes: 1 });
        world.judges.routing.faults_come_unannounced();
        world.run(Duration::from_secs(1));
        let mut uploads = Vec::new();
        for _ in 0..UPLOADS {
            let length = pick(&mut world, &[1, 100, PART - 1, PART, 2 * PART + 7, 6 * PART]);
            let end =
                pick(&mut world, &[BodyEnd::Whole, BodyEnd::Whole, BodyEnd::Whole, BodyEnd::Cut, BodyEnd::Stalls]);
            uploads.push(upload_by(&mut world, HttpClient::new(pieces(&bytes(length)), end), &[]));
            if world.choices.one_in(3) {
                download_anything(&mut world);
            }
            for _ in 0..world.choices.between(0, 2) {
                disturb(&mut world, &uploads);
                let steps = world.choices.between(0, 40) as usize;
                world.run_steps(steps);
            }
        }
        world.run(Duration::from_secs(60));
        calm_down(&mut world);
        // Longer than an answer may stand still.
        world.run(Duration::from_secs(400));
        rest(&mut world, &format!("seed {seed}"));
        for exchange in uploads {
            match answer(&world, exchange) {
                Some((200, _)) => successes += 1,
                Some(_) => failures += 1,
                None => {}
            }
        }
        deletes += world.deletes.len();
    }
    assert!(successes > 50 && failures > 50 && deletes > 20, "{successes} {failures} {deletes}: nothing to learn from");
}
