//! The keep-or-delete table (lfs-http contract section 9), line by line.

use std::time::Duration;

use kafscale_proxy_core::etcd::Keys;
use kafscale_proxy_core::inputs::ExchangeId;
use kafscale_proxy_core::kafka::ErrorCode;
use kafscale_proxy_core::model::broker::{ClusterSnapshot, Fault, SNAPSHOT_KEY};
use kafscale_proxy_core::model::{Fate, Link};
use kafscale_proxy_core::{Config, LfsConfig};
use kafscale_proxy_tests::world::{S3Fault, S3Verb, World};

use crate::bench::{
    PART, TOPIC, answer, bytes, config, objects, others, owner, records, rest, slow, stats, upload, world,
};

const NOT_LEADER: Fault = Fault::RefuseProduce(ErrorCode::NOT_LEADER_OR_FOLLOWER);
const UNAVAILABLE: Option<(u16, &str)> = Some((503, "backend_unavailable"));
const BACKEND_ERROR: Option<(u16, &str)> = Some((502, "backend_error"));
const SUCCESS: Option<(u16, &str)> = Some((200, ""));

/// What becomes of one upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    /// What the client gets.
    answer: Option<(u16, &'static str)>,
    /// Records that refer to the blob.
    records: usize,
    /// Whether the blob is in the bucket.
    kept: bool,
    /// How many orphans were counted.
    orphans: u64,
}

const fn published() -> End {
    End { answer: SUCCESS, records: 1, kept: true, orphans: 0 }
}

const fn deleted(answer: Option<(u16, &'static str)>) -> End {
    End { answer, records: 0, kept: false, orphans: 0 }
}

const fn orphan(answer: Option<(u16, &'static str)>, records: usize) -> End {
    End { answer, records, kept: true, orphans: 1 }
}

/// Plays one line: `before` the upload, then one second of it, then `during`, then everything comes to rest.
fn play(
    name: &str,
    config: Config,
    headers: &[(&str, &str)],
    before: impl FnOnce(&mut World),
    during: impl FnOnce(&mut World, ExchangeId),
    end: End,
) -> World {
    let mut world = world(config);
    before(&mut world);
    let exchange = upload(&mut world, &bytes(100), headers);
    world.run(Duration::from_secs(1));
    during(&mut world, exchange);
    rest(&mut world, name);
    let expected = end.answer.map(|(status, code)| (status, code.to_owned()));
    assert_eq!(answer(&world, exchange), expected, "{name}");
    assert_eq!((records(&world), objects(&world) == 1), (end.records, end.kept), "{name}");
    assert_eq!(stats(&world).orphans, end.orphans, "{name}");
    world
}

/// How often a record was written to a broker, the first one of every world left out.
fn writes(world: &World) -> usize {
    world.trace.matching("kfs_lfs").filter(|line| line.contains("Write {")).count() - 1
}

/// A line in which everything is arranged before the upload.
fn arranged(name: &str, before: impl FnOnce(&mut World), end: End) -> World {
    play(name, config(), &[], before, |_, _| {}, end)
}

/// A line in which something happens while the blob is on its way into S3, which takes three seconds.
fn during_upload(name: &str, during: impl FnOnce(&mut World, ExchangeId), end: End) -> World {
    let before = |world: &mut World| world.faults.strike_s3(S3Verb::Put, S3Fault::Way(slow(3)));
    play(name, config(), &[], before, during, end)
}

fn with_lfs(change: impl FnOnce(&mut LfsConfig)) -> Config {
    let mut config = config();
    change(config.lfs.as_mut().expect("the API is on"));
    config
}

/// The lease of the partition goes away: whoever is asked next takes it.
fn drop_lease(world: &mut World) {
    let key = format!("/kafscale/partition-leases/{TOPIC}/1");
    world.change_etcd(|etcd, facts| etcd.model.delete(&Keys::One(key.into()), facts));
}

fn etcd_down(world: &mut World) {
    world.etcd.link = Link { fate: Fate::Refused, delay: Duration::ZERO };
}

fn crash(world: &mut World, brokers: impl IntoIterator<Item = usize>) {
    brokers.into_iter().for_each(|broker| world.crash(broker));
}

fn refuse(world: &mut World, broker: usize, code: i16) {
    world.broker(broker).inject(Fault::RefuseProduce(ErrorCode(code)));
}

#[test]
fn a_broker_answers_0() {
    arranged("accepted", |_| {}, published());
}

#[test]
fn refusals_lead_to_the_next_broker() {
    for code in [5, 6, 74, 75] {
        let before = |world: &mut World| {
            let owner = owner(world);
            refuse(world, owner, code);
            drop_lease(world);
        };
        arranged(&format!("refused with {code}, then accepted"), before, published());
    }
}

#[test]
fn three_refusals_or_nobody_left() {
    let all_refuse = |world: &mut World| (0..3).for_each(|broker| world.broker(broker).inject(NOT_LEADER));
    assert_eq!(writes(&arranged("three refusals", all_refuse, deleted(UNAVAILABLE))), 3);

    let one = with_lfs(|lfs| lfs.static_backends = vec!["broker-0:9092".into()]);
    let before = |world: &mut World| world.broker(0).inject(NOT_LEADER);
    play("one static broker refuses", one, &[], before, |_, _| {}, deleted(UNAVAILABLE));
}

#[test]
fn the_ttl_passes_before_the_next_try() {
    let slow_retries = with_lfs(|lfs| lfs.connect_backoff = Duration::from_secs(70));
    let before = |world: &mut World| {
        let owner = owner(world);
        world.broker(owner).inject(NOT_LEADER);
    };
    let world =
        play("refused, then stale", slow_retries, &[], before, |world, _| etcd_down(world), deleted(UNAVAILABLE));
    assert_eq!(writes(&world), 1);
}

#[test]
fn the_next_broker_cannot_be_connected() {
    let before = |world: &mut World| {
        let (owner, others) = (owner(world), others(world));
        world.broker(owner).inject(NOT_LEADER);
        crash(world, others);
    };
    arranged("refused, then nobody", before, deleted(UNAVAILABLE));
}

#[test]
fn not_sent() {
    let world = during_upload("no broker is left", |world, _| crash(world, 0..3), deleted(UNAVAILABLE));
    assert_eq!(writes(&world), 0);
    during_upload("etcd is gone", |world, _| etcd_down(world), deleted(Some((503, "metadata_unavailable"))));
    let recreate = |world: &mut World, _| {
        world.change_etcd(|etcd, facts| {
            let stored = etcd.model.get(SNAPSHOT_KEY.as_bytes()).expect("there is a snapshot").value.clone();
            let mut snapshot = ClusterSnapshot::parse(&stored).expect("the snapshot can be read");
            snapshot.topics[0].topic_id = [9; 16];
            etcd.model.put(SNAPSHOT_KEY, snapshot.to_json(), facts);
        });
    };
    during_upload("the topic was made anew", recreate, deleted(Some((409, "topic_changed"))));
}

/// The topic can still be read after the upload, then etcd goes away, and the dial takes longer than the TTL.
#[test]
fn the_ttl_passes_during_the_upload() {
    let mut short_ttl = config();
    short_ttl.cluster.cache_ttl = Duration::from_secs(3);
    let before = |world: &mut World| world.faults.strike_s3(S3Verb::Put, S3Fault::Way(slow(2)));
    let during = |world: &mut World, _| {
        let owner = owner(world);
        world.crash(owner);
        world.faults.swallow_dials(owner, true);
        let dials = world.trace.matching("Connect {").count();
        world.run_until(Duration::from_secs(10), "the owner is dialled again", |world| {
            world.trace.matching("Connect {").count() > dials
        });
        etcd_down(world);
    };
    let world = play("stale after the dial", short_ttl, &[], before, during, deleted(UNAVAILABLE));
    assert_eq!(writes(&world), 0, "nothing is sent on knowledge that is too old");
}

#[test]
fn checksum_mismatch() {
    let headers = [("X-LFS-Checksum", "00112233"), ("X-LFS-Checksum-Alg", "crc32")];
    let mismatch = deleted(Some((400, "checksum_mismatch")));
    play("one PutObject", config(), &headers, |_| {}, |_, _| {}, mismatch);

    let mut world = world(config());
    let exchange = upload(&mut world, &bytes(3 * PART), &headers);
    rest(&mut world, "several parts");
    assert_eq!(answer(&world, exchange), Some((400, "checksum_mismatch".into())));
    assert_eq!((records(&world), objects(&world), stats(&world).orphans), (0, 0, 0));
}

#[test]
fn the_client_goes_before_sending_or_between_tries() {
    let leave = |world: &mut World, exchange| world.leave(exchange);
    during_upload("gone during the PutObject", leave, deleted(None));

    let before = |world: &mut World| world.etcd.link = slow(2);
    play("gone while the topic is read again", config(), &[], before, leave, deleted(None));

    let slow_retries = with_lfs(|lfs| lfs.connect_backoff = Duration::from_secs(5));
    let before = |world: &mut World| {
        let owner = owner(world);
        world.broker(owner).inject(NOT_LEADER);
    };
    play("gone between two tries", slow_retries, &[], before, leave, deleted(None));
}

#[test]
fn sent_and_no_usable_answer() {
    arranged("the write broke", |world| world.faults.break_record_write(10), orphan(BACKEND_ERROR, 0));
    arranged("read error", |world| inject(world, Fault::CrashAfterAppend), orphan_with_record());
    arranged("another correlation id", |world| inject(world, Fault::WrongCorrelation), orphan_with_record());
    arranged("incomplete answer", |world| inject(world, Fault::MissingPartition), orphan_with_record());
    let silent = |world: &mut World| {
        let owner = owner(world);
        world.broker(owner).set_silent(true);
    };
    during_upload("no answer in time", |world, _| silent(world), orphan(BACKEND_ERROR, 0));
}

fn inject(world: &mut World, fault: Fault) {
    let owner = owner(world);
    world.broker(owner).inject(fault);
}

const fn orphan_with_record() -> End {
    orphan(BACKEND_ERROR, 1)
}

#[test]
fn any_other_error_code() {
    for code in [7, -1, 3, 29, 1, 87] {
        let before = |world: &mut World| {
            let owner = owner(world);
            refuse(world, owner, code);
        };
        arranged(&format!("code {code}"), before, orphan(BACKEND_ERROR, 0));
    }
}

#[test]
fn a_refusal_and_then_an_ambiguous_try() {
    let before = |world: &mut World| {
        let (owner, others) = (owner(world), others(world));
        world.broker(owner).inject(NOT_LEADER);
        others.into_iter().for_each(|broker| world.broker(broker).inject(Fault::CrashAfterAppend));
        drop_lease(world);
    };
    arranged("refused, then unknown", before, orphan_with_record());
}

#[test]
fn a_connection_that_took_nothing_costs_nothing() {
    let world = arranged("nothing was taken", |world| world.faults.break_record_write(0), published());
    assert_eq!(writes(&world), 2);
}

#[test]
fn the_client_goes_after_sending() {
    /// Lets the record be written, then the client goes.
    fn leave_when_sent(world: &mut World, exchange: ExchangeId, before: impl FnOnce(&mut World)) {
        let sent = world.trace.matching("kfs_lfs").count();
        before(world);
        world.run_until(Duration::from_secs(10), "the record is written", |world| {
            world.trace.matching("kfs_lfs").count() > sent
        });
        world.leave(exchange);
    }
    let rows: [(&str, Option<Fault>, End); 4] = [
        ("accepted for nobody", None, End { answer: None, ..published() }),
        ("refused for nobody", Some(NOT_LEADER), deleted(None)),
        ("another code for nobody", Some(Fault::RefuseProduce(ErrorCode(7))), orphan(None, 0)),
        ("unknown for nobody", Some(Fault::CrashAfterAppend), orphan(None, 1)),
    ];
    for (name, fault, end) in rows {
        let during = |world: &mut World, exchange| {
            leave_when_sent(world, exchange, |world| {
                let owner = owner(world);
                fault.into_iter().for_each(|fault| world.broker(owner).inject(fault));
            });
        };
        during_upload(name, during, end);
    }
}

#[test]
fn a_delete_that_fails() {
    let lost = S3Fault::Way(Link { fate: Fate::RequestLost, delay: Duration::ZERO });
    let removed_later = |answer| End { answer, records: 0, kept: false, orphans: 1 };
    for (name, tries, end) in [("three times", 3, removed_later(UNAVAILABLE)), ("twice", 2, deleted(UNAVAILABLE))] {
        let before = |world: &mut World| {
            (0..3).for_each(|broker| world.broker(broker).inject(NOT_LEADER));
            (0..tries).for_each(|_| world.faults.strike_s3(S3Verb::Delete, lost));
        };
        let counted = end.orphans;
        assert_eq!(stats(&arranged(name, before, end)).orphans_removed, counted, "{name}");
    }
}
