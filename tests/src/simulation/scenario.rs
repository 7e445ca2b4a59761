//! What happens in a simulation, drawn before it begins: a list of actions that can be cut down action by action.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::kafka::{ApiKey, VersionRange};

use crate::world::choices::Choices;

/// In a simulation of a seed, clients and faults come for so long.
const SAFETY_PHASE: Duration = Duration::from_secs(120);
/// In one of a fuzzer's bytes at most so many seconds: longer than knowledge lives and than most faults last.
const LONGEST_OF_BYTES_S: u64 = 40;
/// Nothing happens before brokers and proxies have looked around.
const START: Duration = Duration::from_secs(1);

/// Topics and their partitions.
pub(super) const TOPICS: [(&str, i32); 2] = [("orders", 3), ("blobs", 2)];
/// Brokers.
pub(super) const BROKERS: usize = 3;
/// Shards of each replica.
pub(super) const SHARDS: usize = 2;
/// The largest Kafka request, bytes.
pub(super) const REQUEST_MAX: usize = 200_000;
/// One part of a multipart upload; shorter bodies go up in one PutObject.
pub(super) const PART: u64 = 2_048;

/// A kind of fault. Each seed first draws which kinds exist at all, so that some worlds know few and some know many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A partition or group is taken from its owner and given to another broker, or to nobody.
    LeaseMoves,
    /// A broker dies and starts again.
    BrokerCrashes,
    /// A broker accepts, reads and does nothing for a while.
    BrokerSilence,
    /// A broker refuses the next Produce.
    ProduceRefusals,
    /// A broker answers with another correlation id, or leaves a partition out.
    BrokenAnswers,
    /// A broker dies after it appended and before it answers.
    LostAcknowledgements,
    /// The next Produce meets a socket that takes some of its bytes and is then gone.
    BrokenWrites,
    /// Dials to a broker get no answer for a while.
    BlackHoles,
    /// etcd is out of reach of everybody's proxies, or of one replica, or answers late, or replies are lost.
    EtcdOutages,
    /// Watches break.
    BrokenWatches,
    /// Watches fall silent.
    SilentWatches,
    /// History is compacted.
    Compaction,
    /// S3 is out of reach for a while, or answers late, or replies are lost.
    S3Outages,
    /// One S3 request is struck.
    S3Strikes,
    /// The disk for temporary files is broken for a while.
    BrokenFiles,
    /// A replica dies and starts again.
    ReplicaCrashes,
    /// A replica stands still for a while.
    ReplicaPauses,
    /// The snapshot lists no broker for a while.
    EmptySnapshots,
    /// A topic is deleted, made anew, widened, narrowed, or its settings are written.
    TopicChanges,
    /// A replica is asked to end, and another process takes its place.
    ReplicaShutdowns,
    /// A broker names itself in the tagged fields of its next answer.
    LeaderHints,
    /// etcd is backed up, and restored from that after a while.
    EtcdRestores,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 22] = [
        Self::LeaseMoves,
        Self::BrokerCrashes,
        Self::BrokerSilence,
        Self::ProduceRefusals,
        Self::BrokenAnswers,
        Self::LostAcknowledgements,
        Self::BrokenWrites,
        Self::BlackHoles,
        Self::EtcdOutages,
        Self::BrokenWatches,
        Self::SilentWatches,
        Self::Compaction,
        Self::S3Outages,
        Self::S3Strikes,
        Self::BrokenFiles,
        Self::ReplicaCrashes,
        Self::ReplicaPauses,
        Self::EmptySnapshots,
        Self::TopicChanges,
        Self::ReplicaShutdowns,
        Self::LeaderHints,
        Self::EtcdRestores,
    ];
}

/// What a Kafka client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Produce of a record that needs room for large requests, to one partition.
    Large {
        /// The partition, of all of all topics.
        partition: u64,
    },
    /// Produce: acknowledgements wanted, and a bit for each partition of all topics.
    Produce {
        /// -1, 1 or 0.
        acks: i16,
        /// Partitions.
        partitions: u64,
    },
    /// Fetch from these partitions.
    Fetch {
        /// Partitions.
        partitions: u64,
        /// Longest wait, milliseconds.
        max_wait_ms: i32,
    },
    /// ListOffsets of these partitions.
    ListOffsets {
        /// Partitions.
        partitions: u64,
    },
    /// Metadata of all topics.
    Metadata,
    /// FindCoordinator.
    FindCoordinator,
    /// InitProducerId, without transactions.
    ProducerId,
    /// JoinGroup.
    JoinGroup,
    /// SyncGroup, with what the client learned when it joined.
    SyncGroup,
    /// Heartbeat.
    Heartbeat,
    /// OffsetCommit.
    OffsetCommit,
    /// OffsetFetch.
    OffsetFetch,
    /// LeaveGroup.
    LeaveGroup,
    /// CreateTopics that is to create nothing: validate only.
    DryRun,
}

/// How an upload behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As it should.
    Whole,
    /// The connection breaks before the end.
    Cut,
    /// Nothing more comes, and the connection stands.
    Stalls,
    /// Each piece takes a while.
    Slow,
    /// The checksum in its head is that of another body.
    Mismatch,
}

/// One thing that somebody does. Numbers that name somebody count modulo those who are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A Kafka client connects to a shard.
    Connect {
        /// Which shard.
        shard: u64,
    },
    /// A Kafka client asks, so many times at once: pipelined.
    Ask {
        /// Which client.
        client: u64,
        /// What.
        ask: Ask,
        /// How often.
        times: u64,
    },
    /// A Kafka client goes away without a word.
    Vanish {
        /// Which client.
        client: u64,
    },
    /// A Kafka client does not read its answers any more.
    StandStill {
        /// Which client.
        client: u64,
    },
    /// A Kafka client that stood still reads on.
    GoOn {
        /// Which client.
        client: u64,
    },
    /// Kafka clients connect that send a part of a request, and the rest slowly or not at all.
    HalfRequests {
        /// To which shard.
        shard: u64,
        /// Bytes of the request.
        announced: u32,
        /// Bytes that come at once.
        come: usize,
        /// Then one each time; zero is none.
        every: Duration,
        /// So many clients.
        times: u64,
    },
    /// An HTTP client uploads.
    Upload {
        /// To which shard.
        shard: u64,
        /// Bytes of the body.
        length: u64,
        /// For which partition, of all of all topics.
        partition: u64,
        /// How.
        manner: Manner,
    },
    /// An HTTP client goes away.
    Leave {
        /// Which exchange.
        exchange: u64,
    },
    /// An HTTP client downloads a blob that a record refers to.
    Download {
        /// From which shard.
        shard: u64,
        /// Which blob.
        blob: u64,
        /// Asks for another digest than the record's.
        wrong: bool,
        /// It does not take its answer.
        stands_still: bool,
    },
    /// Somebody asks `/readyz`.
    Probe {
        /// Of which shard.
        shard: u64,
    },
    /// Something goes wrong, for a while where it lasts.
    Fault {
        /// What.
        kind: FaultKind,
        /// Whom or how, by the kind.
        who: u64,
        /// Whom or how, by the kind.
        how: u64,
        /// How long.
        lasts: Duration,
    },
}

/// A simulation before it is run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Wall clock of each replica, milliseconds off.
    pub skews_ms: Vec<i64>,
    /// Brokers close idle connections.
    pub idle_close: Option<Duration>,
    /// What each broker speaks where that differs from KafScale brokers.
    pub versions: Vec<BTreeMap<ApiKey, VersionRange>>,
    /// S3 requests are late by up to so much.
    pub s3_jitter: Duration,
    /// Jobs take up to so much longer.
    pub job_jitter: Duration,
    /// Which kinds of faults exist.
    pub kinds: Vec<FaultKind>,
    /// Clients and faults come for so long.
    pub lasts: Duration,
    /// What happens, by time.
    pub actions: Vec<(Duration, Action)>,
}

/// APIs whose versions can be put into each other, mostly without a loss, as clients here use them: lowest and highest
/// that a broker may have.
const DIFFERING: [(ApiKey, i16, i16); 15] = [
    (ApiKey::Produce, 3, 9),
    (ApiKey::Fetch, 4, 12),
    (ApiKey::ListOffsets, 1, 4),
    (ApiKey::OffsetForLeaderEpoch, 0, 3),
    (ApiKey::JoinGroup, 1, 9),
    (ApiKey::SyncGroup, 0, 5),
    (ApiKey::Heartbeat, 0, 4),
    (ApiKey::OffsetCommit, 2, 8),
    (ApiKey::OffsetFetch, 2, 7),
    (ApiKey::DescribeGroups, 0, 5),
    (ApiKey::ListGroups, 0, 5),
    (ApiKey::DeleteGroups, 0, 2),
    (ApiKey::DescribeConfigs, 0, 4),
    (ApiKey::CreatePartitions, 0, 3),
    // Version 0 knows no dry run.
    (ApiKey::CreateTopics, 0, 2),
];

fn draw_versions(choices: &mut Choices) -> BTreeMap<ApiKey, VersionRange> {
    let mut versions = BTreeMap::new();
    for (api, lowest, highest) in DIFFERING {
        if choices.one_in(3) {
            let min = choices.between(lowest as u64, highest as u64);
            let max = choices.between(min, highest as u64);
            versions.insert(api, VersionRange::new(min as i16, max as i16));
        }
    }
    versions
}

impl Scenario {
    /// Draws everything; clients and faults come for two minutes.
    pub fn draw(choices: &mut Choices) -> Self {
        Self::draw_for(SAFETY_PHASE, choices)
    }

    /// Draws everything from the bytes of a fuzzer, and gives what they leave to the world. The first says how long clients and
    /// faults come, from 2 to 40 s: a fuzzer learns more from many short worlds than from few long ones.
    pub fn from_bytes(bytes: &[u8]) -> (Self, Choices) {
        let mut choices = Choices::from_bytes(bytes);
        let lasts = Duration::from_secs(choices.between(2, LONGEST_OF_BYTES_S));
        (Self::draw_for(lasts, &mut choices), choices)
    }

    fn draw_for(lasts: Duration, choices: &mut Choices) -> Self {
        let replicas = choices.between(1, 3);
        let skews_ms = (0..replicas).map(|_| choices.pick(&[0, 0, -500, 2_000, -3_600_000, 86_400_000])).collect();
        let idle_close = choices.one_in(4).then(|| {
            // Shorter and longer than the second for which the proxy keeps a connection that an upload has left.
            let (low, high) = choices.pick(&[(50, 900), (1_100, 20_000)]);
            choices.milliseconds(low, high)
        });
        let jitters = [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(900)];
        let (s3_jitter, job_jitter) = (choices.pick(&jitters), choices.pick(&jitters));
        let density = choices.between(1, 6);
        let mut kinds: Vec<FaultKind> =
            FaultKind::ALL.into_iter().filter(|_| choices.between(1, 8) <= density).collect();
        // A process that stands still over a restore goes on with what it has read before it, and opens its watches in a store that
        // may have grown past that: nothing that etcd says tells it so.
        if kinds.contains(&FaultKind::EtcdRestores) {
            kinds.retain(|kind| *kind != FaultKind::ReplicaPauses);
        }
        let calm_ms = choices.pick(&[300, 1_000, 4_000]);
        let fault_every = choices.pick(&[4, 8, 20]);
        let differ = !choices.one_in(2);
        let versions = (0..BROKERS).map(|_| if differ { draw_versions(choices) } else { BTreeMap::new() }).collect();
        let mut actions = Vec::new();
        let mut uploader = None;
        let mut at = START;
        for _ in 0..choices.between(1, 4) {
            actions.push((at, Action::Connect { shard: choices.between(0, 15) }));
        }
        while at < lasts {
            let fault = !kinds.is_empty() && choices.one_in(fault_every);
            actions.push((at, if fault { draw_fault(choices, &kinds) } else { draw_work(choices, &mut uploader) }));
            // Things come in bursts.
            if !choices.one_in(3) {
                at += choices.milliseconds(0, calm_ms * 2);
            }
        }
        Self { skews_ms, idle_close, versions, s3_jitter, job_jitter, kinds, lasts, actions }
    }
}

fn draw_fault(choices: &mut Choices, kinds: &[FaultKind]) -> Action {
    let kind = choices.pick(kinds);
    let lasts = choices.pick(&[50, 1_000, 5_000, 12_000, 30_000, 45_000]);
    Action::Fault {
        kind,
        who: choices.between(0, 15),
        how: choices.between(0, 255),
        lasts: Duration::from_millis(lasts),
    }
}

/// Every other upload goes where the one before it went, so that it finds what that one has left.
fn draw_work(choices: &mut Choices, uploader: &mut Option<(u64, u64)>) -> Action {
    match choices.between(0, 21) {
        0 => Action::Connect { shard: choices.between(0, 15) },
        1 => match choices.one_in(2) {
            true => Action::Vanish { client: choices.between(0, 15) },
            false => Action::Probe { shard: choices.between(0, 15) },
        },
        2..=5 => {
            let drawn = choices.between(0, 15);
            let length = choices.pick(&[40, 100, PART - 1, PART, PART + 1, 2 * PART + 7, 6 * PART]);
            let (shard, partition) = match (uploader.take(), (drawn, choices.between(0, 15))) {
                (Some(before), _) => before,
                (None, next) => *uploader.insert(next),
            };
            Action::Upload {
                shard,
                length,
                partition,
                manner: choices.pick(&[
                    Manner::Whole,
                    Manner::Whole,
                    Manner::Whole,
                    Manner::Cut,
                    Manner::Stalls,
                    Manner::Slow,
                    Manner::Mismatch,
                ]),
            }
        }
        6 => Action::Leave { exchange: choices.between(0, 15) },
        7 => Action::Download {
            shard: choices.between(0, 15),
            blob: choices.between(0, 255),
            wrong: choices.one_in(4),
            stands_still: choices.one_in(4),
        },
        8..=19 => {
            let ask = draw_ask(choices);
            let times = if choices.one_in(3) { choices.between(2, 6) } else { 1 };
            Action::Ask { client: choices.between(0, 15), ask, times }
        }
        20 => match choices.one_in(2) {
            true => Action::StandStill { client: choices.between(0, 15) },
            false => Action::GoOn { client: choices.between(0, 15) },
        },
        21 => Action::HalfRequests {
            shard: choices.between(0, 15),
            announced: choices.pick(&[100, 70_000, REQUEST_MAX as u32]),
            come: choices.pick(&[3, 50, 66_000, 150_000]),
            every: Duration::from_millis(choices.pick(&[0, 1_000, 4_000])),
            times: choices.between(1, 6),
        },
        _ => unreachable!("the range ends before"),
    }
}

fn draw_ask(choices: &mut Choices) -> Ask {
    let partitions = 1 << choices.between(0, 4) | if choices.one_in(3) { choices.between(0, 31) } else { 0 };
    match choices.between(0, 15) {
        0 if choices.one_in(4) => Ask::Large { partition: choices.between(0, 4) },
        0..=6 => Ask::Produce { acks: choices.pick(&[-1, -1, -1, 1, 0]), partitions },
        7..=8 => Ask::Fetch { partitions, max_wait_ms: choices.pick(&[0, 100, 500, 3_000]) },
        9 => Ask::ListOffsets { partitions },
        10 => Ask::Metadata,
        11 => choices.pick(&[Ask::FindCoordinator, Ask::ProducerId]),
        12 => Ask::JoinGroup,
        13 => Ask::SyncGroup,
        14 => Ask::Heartbeat,
        15 => choices.pick(&[Ask::OffsetCommit, Ask::OffsetFetch, Ask::LeaveGroup, Ask::DryRun]),
        _ => unreachable!("the range ends before"),
    }
}
