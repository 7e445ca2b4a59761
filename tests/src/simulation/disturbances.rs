//! Faults of a simulation: what each does, and how it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::Monotonic;
use kafscale_proxy_core::etcd::{Keys, Revision};
use kafscale_proxy_core::kafka::ErrorCode;
use kafscale_proxy_core::model::broker::Fault;
use kafscale_proxy_core::model::etcd::Backup;
use kafscale_proxy_core::model::s3::Trouble;
use kafscale_proxy_core::model::{Fate, Link};

use super::operator::{Operator, TopicChange};
use super::scenario::{BROKERS, FaultKind, TOPICS};
use crate::world::{S3Fault, S3Verb, World};

const FATES: [Fate; 3] = [Fate::Refused, Fate::ReplyLost, Fate::RequestLost];
/// How long etcd is down for a restore.
const RESTORE: Duration = Duration::from_secs(1);
/// What brokers call themselves in tagged fields.
const INNER_HOST: &str = "broker-inner";
const DELAYS_MS: [u64; 4] = [0, 200, 2_000, 6_000];
const VERBS: [S3Verb; 7] =
    [S3Verb::Put, S3Verb::Create, S3Verb::Part, S3Verb::Complete, S3Verb::Abort, S3Verb::Delete, S3Verb::Get];
/// Codes with which brokers refuse: nothing is appended, but only the first four prove it to the proxy.
const REFUSALS: [i16; 6] = [6, 5, 74, 75, 7, -1];

/// What ends a fault.
#[derive(Clone, Debug)]
enum End {
    Restart(usize),
    Speak(usize),
    Dials(usize),
    /// The shards that it met.
    Etcd(Vec<usize>),
    /// The shards that it met, those of one replica.
    ReplicaEtcd(Vec<usize>),
    Watches(usize),
    S3,
    Trouble,
    Files,
    Snapshot,
    Topic(usize, TopicChange),
    /// etcd is stopped and restored from this backup. Then it may grow past what it was.
    Backup {
        backup: Box<Backup>,
        grows: bool,
    },
    /// etcd, which was restored, starts again; at least this revision is reached at once. The shards that it met.
    Restore {
        revision: Revision,
        shards: Vec<usize>,
    },
    /// This lease is taken away.
    Lease(String),
}

/// Faults that last.
pub(super) struct Disturbances {
    ends: BTreeMap<(Monotonic, u64), End>,
    planned: u64,
    operator: Operator,
}

fn partition_key(who: u64, how: u64) -> String {
    let all: Vec<String> = TOPICS
        .iter()
        .flat_map(|(topic, count)| (0..*count).map(move |index| format!("/kafscale/partition-leases/{topic}/{index}")))
        .collect();
    if how.is_multiple_of(7) { "/kafscale/group-leases/readers".into() } else { all[who as usize % all.len()].clone() }
}

impl Disturbances {
    pub(super) fn new(world: &World) -> Self {
        Self { ends: BTreeMap::new(), planned: 0, operator: Operator::new(world) }
    }

    /// When the next fault ends.
    pub(super) fn next_end(&self) -> Option<Monotonic> {
        self.ends.first_key_value().map(|((at, _), _)| *at)
    }

    /// Ends the faults that are due.
    pub(super) fn end_due(&mut self, world: &mut World) {
        let now = world.now().monotonic;
        while self.next_end().is_some_and(|at| at <= now) {
            if let Some((_, end)) = self.ends.pop_first() {
                self.end(world, &end);
            }
        }
    }

    /// Ends everything that is wrong: the liveness phase begins.
    pub(super) fn end_all(&mut self, world: &mut World) {
        while let Some((_, end)) = self.ends.pop_first() {
            // One that was not used by now is not needed any more.
            if !matches!(end, End::Backup { .. }) {
                self.end(world, &end);
            }
        }
        // A backup may have brought back a list without brokers.
        self.operator.write(world);
        for broker in 0..BROKERS {
            world.broker(broker).forgive();
            world.restart(broker);
        }
        world.faults.forgive();
        world.judges.routing.nothing_waits(world.now().monotonic);
        world.s3.jitter = Duration::ZERO;
        world.job_jitter = Duration::ZERO;
    }

    /// The operator looks once more: a broker that made a topic may have written an older list since.
    pub(super) fn set_right(&self, world: &mut World) {
        self.operator.write(world);
    }

    fn until(&mut self, world: &World, lasts: Duration, end: End) {
        self.planned += 1;
        self.ends.insert((world.now().monotonic + lasts, self.planned), end);
    }

    fn end(&mut self, world: &mut World, end: &End) {
        let now = world.now().monotonic;
        match *end {
            End::Restart(broker) => {
                world.restart(broker);
                world.judges.routing.broker_disturbed(broker, false, now);
            }
            End::Speak(broker) => {
                world.set_silent(broker, false);
                world.judges.routing.broker_disturbed(broker, false, now);
            }
            End::Dials(broker) => {
                world.faults.swallow_dials(broker, false);
                world.judges.routing.broker_disturbed(broker, false, now);
            }
            End::Etcd(ref shards) => {
                world.etcd.link = Link::default();
                settle_shards(world, shards);
                // Those that have begun meanwhile had no etcd either.
                for shard in world.living_shards().collect::<Vec<_>>() {
                    world.judges.routing.shard_not_calm_before(shard, now);
                }
            }
            End::ReplicaEtcd(ref shards) => {
                for shard in shards {
                    world.etcd.shard_links.remove(shard);
                }
                settle_shards(world, shards);
            }
            End::Watches(shard) => {
                world.stall_watches(shard, false);
                world.judges.routing.shard_disturbed(shard, false, now);
            }
            End::S3 => world.s3.link = Link::default(),
            End::Trouble => world.s3.model.trouble = Trouble::None,
            End::Files => world.faults.break_files(false),
            End::Snapshot => self.operator.hide_brokers(world, false),
            End::Lease(ref key) => take_lease(world, key.clone()),
            End::Topic(topic, change) => self.operator.end(world, topic, change),
            End::Backup { ref backup, grows } => self.restore_etcd(world, backup, grows),
            End::Restore { revision, ref shards } => {
                world.end_restore();
                world.change_etcd(|etcd, facts| {
                    while etcd.model.revision() < revision {
                        etcd.model.put("/kafscale/other", "written after the restore", facts);
                    }
                });
                settle_shards(world, shards);
                for shard in world.living_shards().collect::<Vec<_>>() {
                    world.judges.routing.shard_not_calm_before(shard, now);
                }
                (0..BROKERS).for_each(|broker| world.judges.routing.broker_disturbed(broker, false, now));
            }
        }
    }

    /// Lets a fault happen.
    pub(super) fn strike(&mut self, world: &mut World, kind: FaultKind, who: u64, how: u64, lasts: Duration) {
        let now = world.now().monotonic;
        let broker = who as usize % BROKERS;
        let link = Link {
            fate: FATES[how as usize % FATES.len()],
            delay: Duration::from_millis(DELAYS_MS[how as usize / 4 % DELAYS_MS.len()]),
        };
        match kind {
            FaultKind::LeaseMoves => {
                let key = partition_key(who, how);
                match how % 4 {
                    0 => take_lease(world, key),
                    other => {
                        let owner = (other - 1).to_string();
                        world.change_etcd(|etcd, facts| etcd.model.put(key.clone(), owner, facts));
                        if how.is_multiple_of(3) {
                            self.until(world, lasts, End::Lease(key));
                        }
                    }
                }
            }
            FaultKind::BrokerCrashes => {
                world.judges.routing.broker_disturbed(broker, true, now);
                world.crash(broker);
                self.until(world, lasts, End::Restart(broker));
            }
            FaultKind::BrokerSilence => {
                world.judges.routing.broker_disturbed(broker, true, now);
                world.set_silent(broker, true);
                self.until(world, lasts, End::Speak(broker));
            }
            FaultKind::ProduceRefusals => {
                let code = ErrorCode(REFUSALS[how as usize % REFUSALS.len()]);
                inject(world, broker, Fault::RefuseProduce(code));
            }
            FaultKind::BrokenAnswers => {
                let fault = if how.is_multiple_of(2) { Fault::WrongCorrelation } else { Fault::MissingPartition };
                inject(world, broker, fault);
            }
            FaultKind::LostAcknowledgements => {
                inject(world, broker, Fault::CrashAfterAppend);
                self.until(world, lasts, End::Restart(broker));
            }
            FaultKind::BrokenWrites => {
                // Whom it meets is not known: the routes of all may be gone for a moment.
                (0..BROKERS).for_each(|broker| world.judges.routing.broker_spoiled(broker));
                world.faults.break_record_write([0, 1, 100, 100_000][how as usize % 4]);
            }
            FaultKind::BlackHoles => {
                world.judges.routing.broker_disturbed(broker, true, now);
                world.faults.swallow_dials(broker, true);
                self.until(world, lasts, End::Dials(broker));
            }
            FaultKind::EtcdOutages => self.cut_etcd(world, who, how, link, lasts),
            FaultKind::BrokenWatches => world.break_watches(),
            FaultKind::SilentWatches => {
                let shards: Vec<usize> = world.living_shards().collect();
                let shard = shards[who as usize % shards.len()];
                world.judges.routing.shard_disturbed(shard, true, now);
                world.stall_watches(shard, true);
                self.until(world, lasts, End::Watches(shard));
            }
            FaultKind::Compaction if how.is_multiple_of(3) => {
                world.faults.compact_between_pages();
                world.break_watches();
            }
            FaultKind::Compaction => {
                let revision = world.etcd.model.revision();
                // Refused when this revision was compacted before: nothing to do then.
                world.change_etcd(|etcd, _| _ = etcd.model.compact(revision));
            }
            FaultKind::S3Outages => {
                if how.is_multiple_of(3) {
                    world.s3.model.trouble = trouble(how / 3);
                    self.until(world, lasts, End::Trouble);
                } else {
                    world.s3.link = link;
                    self.until(world, lasts, End::S3);
                }
            }
            FaultKind::S3Strikes => {
                let fault = match who % 4 {
                    0 | 1 => S3Fault::Way(Link { delay: Duration::ZERO, ..link }),
                    2 => S3Fault::Trouble(trouble(how / 7)),
                    _ => S3Fault::Late(Duration::from_secs(40)),
                };
                world.faults.strike_s3(VERBS[how as usize % VERBS.len()], fault);
            }
            FaultKind::BrokenFiles => {
                world.faults.break_files(true);
                self.until(world, lasts, End::Files);
            }
            FaultKind::ReplicaCrashes => {
                let replica = who as usize % world.replicas();
                world.crash_replica(replica);
            }
            FaultKind::ReplicaPauses => {
                let replica = who as usize % world.replicas();
                world.pause_replica(replica, lasts);
                for shard in world.shards_of(replica).to_vec() {
                    world.judges.routing.shard_not_calm_before(shard, now + lasts);
                }
            }
            FaultKind::EmptySnapshots => {
                self.operator.hide_brokers(world, true);
                self.until(world, lasts, End::Snapshot);
            }
            FaultKind::TopicChanges => {
                let (topic, change) =
                    (who as usize % TOPICS.len(), TopicChange::ALL[how as usize % TopicChange::ALL.len()]);
                // A broker that is asked for a partition which its topic lacks says nothing more on that connection.
                (0..BROKERS).for_each(|broker| world.judges.routing.broker_spoiled(broker));
                self.operator.change(world, topic, change);
                self.until(world, lasts, End::Topic(topic, change));
            }
            FaultKind::LeaderHints => (0..3).for_each(|_| world.broker(broker).inject(Fault::LeaderHints(INNER_HOST))),
            FaultKind::EtcdRestores => {
                let backup = Box::new(world.etcd.model.back_up());
                self.until(world, lasts, End::Backup { backup, grows: !how.is_multiple_of(3) });
            }
            FaultKind::ReplicaShutdowns => {
                let replica = who as usize % world.replicas();
                world.end_replica(replica);
            }
        }
    }

    /// etcd is not there for a moment, longer than anything is on its way to it; then with what it was.
    fn restore_etcd(&mut self, world: &mut World, backup: &Backup, grows: bool) {
        let now = world.now().monotonic;
        let revision = if grows { world.etcd.model.revision() + 1 } else { 0 };
        let shards: Vec<usize> = world.living_shards().collect();
        for shard in &shards {
            world.judges.routing.shard_disturbed(*shard, true, now);
        }
        (0..BROKERS).for_each(|broker| world.judges.routing.broker_disturbed(broker, true, now));
        world.begin_restore(backup.clone());
        self.until(world, RESTORE, End::Restore { revision, shards });
    }

    fn cut_etcd(&mut self, world: &mut World, who: u64, how: u64, link: Link, lasts: Duration) {
        let now = world.now().monotonic;
        let link = if how.is_multiple_of(5) { Link { fate: Fate::Delivered, ..link } } else { link };
        let replica = who as usize % world.replicas();
        let everybody = how.is_multiple_of(2);
        let mut shards: Vec<usize> = world.living_shards().collect();
        shards.retain(|shard| everybody || world.shards_of(replica).contains(shard));
        for shard in &shards {
            world.judges.routing.shard_disturbed(*shard, true, now);
            if !everybody {
                world.etcd.shard_links.insert(*shard, link);
            }
        }
        if everybody {
            world.etcd.link = link;
            world.break_watches();
            self.until(world, lasts, End::Etcd(shards));
        } else {
            self.until(world, lasts, End::ReplicaEtcd(shards));
        }
    }
}

fn take_lease(world: &mut World, key: String) {
    world.change_etcd(|etcd, facts| etcd.model.delete(&Keys::One(key.into()), facts));
}

fn inject(world: &mut World, broker: usize, fault: Fault) {
    world.broker(broker).inject(fault);
    world.judges.routing.broker_spoiled(broker);
}

fn settle_shards(world: &mut World, shards: &[usize]) {
    let now = world.now().monotonic;
    for shard in shards {
        world.judges.routing.shard_disturbed(*shard, false, now);
    }
}

fn trouble(how: u64) -> Trouble {
    [
        Trouble::SlowDown,
        Trouble::InternalError { applied: true },
        Trouble::InternalError { applied: false },
        Trouble::CompletionError { applied: true },
        Trouble::CompletionError { applied: false },
        Trouble::BrokenReads,
        Trouble::StalledReads,
    ][how as usize % 7]
}
