//! A reference model of a KafScale broker, with its habits.
//!
//! It speaks the Kafka protocol on connections that its driver feeds, keeps ownership, topics, groups and offsets in etcd
//! through requests that it orders, and its records in a [`SharedLog`]. The same model runs in the simulated world, in
//! `dev` mode, and on TCP with a real etcd in tests with real clients. What it does was tried on three KafScale brokers of
//! 2026 (the sequences are in the tests of each part); a broker that is better than this is no KafScale broker.
//!
//! Left out, because no client can tell: the S3 side of the log, ACLs, buffering of records with acks 0, and the 10 ms
//! between two looks of a waiting fetch.

mod fetch;
mod group;
mod groups;
mod hints;
mod job;
mod keys;
mod lease;
mod log;
mod offsets;
mod produce;
mod request;
mod serve;
mod snapshot;
#[cfg(test)]
mod tests;
mod topics;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use self::group::Group;
use self::job::{Job, Stage, Writing};
use self::lease::{Kind, Ownership};
pub use self::log::{PartitionLog, Segment, SharedLog};
pub use self::snapshot::{
    ClusterSnapshot, SNAPSHOT_KEY, SnapshotBroker, SnapshotPartition, SnapshotTopic, UnknownTags,
};
use super::etcd::WatchFact;
use crate::etcd;
use crate::etcd::{Keys, RangeRequest, TxnRequest, WatchRequest};
use crate::kafka::{ApiKey, ErrorCode, Splitter, VersionRange};
use crate::operation::Outcome;
use crate::random::Random;
use crate::time::{Monotonic, Now};

/// How often silent members are looked for.
const CLEAN_UP: Duration = Duration::from_secs(5);
/// How long after the end of a watch, or a failed read, the snapshot is read again.
const RELOAD: Duration = Duration::from_secs(1);
/// Largest request, bytes. Brokers have no limit; no peer of the model may make it hold more.
const MAX_FRAME: usize = 256 * 1024 * 1024;

/// A connection; the driver draws the number and never uses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A request to etcd, or a watch; the model draws the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtcdToken(pub u64);

/// What does not change while a broker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Node id.
    pub id: i32,
    /// Where clients reach it.
    pub host: String,
    /// Where clients reach it.
    pub port: u16,
    /// Partitions of a topic that is created because somebody wrote to it.
    pub auto_create_partitions: i32,
    /// An idle connection is closed after so long, if ever.
    pub idle_close: Option<Duration>,
    /// For member ids.
    pub seed: [u8; 32],
    /// What it speaks where that differs from KafScale brokers of today.
    pub versions: BTreeMap<ApiKey, VersionRange>,
}

/// A fault that strikes once, at the next answer that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A produce is refused with this code for all its partitions; nothing is appended.
    RefuseProduce(ErrorCode),
    /// The broker dies after a produce was appended and before it is answered.
    CrashAfterAppend,
    /// An answer carries another correlation id.
    WrongCorrelation,
    /// A produce or fetch answer lacks its last partition.
    MissingPartition,
    /// The connection closes once a produce was read; nothing is appended.
    CloseUnappended,
    /// A produce answer of version 9, or a fetch answer of 12 and newer, names a leader in its tagged fields as newer Kafka
    /// brokers do (KIP-951): this host, which clients of a proxy cannot reach.
    LeaderHints(&'static str),
}

/// What the model is told.
#[derive(Debug)]
pub enum Input {
    /// The process has started: the first input.
    Started,
    /// A connection was accepted.
    Connected {
        /// Its new number.
        connection: ConnectionId,
    },
    /// Bytes arrived.
    Received {
        /// Where.
        connection: ConnectionId,
        /// In order.
        bytes: BytesMut,
    },
    /// The peer has closed. Not told after [`Effect::Close`].
    Closed {
        /// Which.
        connection: ConnectionId,
    },
    /// An [`Effect::Etcd`] is done.
    EtcdFinished {
        /// Which.
        token: EtcdToken,
        /// What became of it.
        outcome: Outcome<etcd::Response, etcd::Refusal>,
    },
    /// A fact of an [`Effect::EtcdWatch`].
    EtcdWatched {
        /// Which.
        token: EtcdToken,
        /// What.
        fact: WatchFact,
    },
    /// The process was asked to end: leases are revoked, then [`Effect::Stopped`].
    ShutdownRequested,
}

/// What the model orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write to a connection.
    Write {
        /// Where.
        connection: ConnectionId,
        /// A whole frame.
        bytes: Bytes,
    },
    /// Close a connection after what was written.
    Close {
        /// Which.
        connection: ConnectionId,
    },
    /// Ask etcd.
    Etcd {
        /// Names it.
        token: EtcdToken,
        /// What.
        request: etcd::Request,
    },
    /// Watch a key of etcd.
    EtcdWatch {
        /// Names it.
        token: EtcdToken,
        /// What.
        request: WatchRequest,
    },
    /// The broker is gone, by its own will or by a crash: it takes no input and its watch is to be given up. Its etcd
    /// leases go on until they end, unless it revoked them.
    Stopped,
}

/// What an etcd request is for.
#[derive(Debug)]
enum Purpose {
    Own { connection: ConnectionId, kind: Kind, resource: String, lease: i64 },
    Create { connection: ConnectionId, topics: BTreeSet<String> },
    Read { connection: ConnectionId },
    Write { connection: ConnectionId },
    Grant(Kind),
    KeepAlive { kind: Kind, lease: i64 },
    Revoke,
    Snapshot,
    Background,
}

#[derive(Debug)]
struct Connection {
    splitter: Splitter,
    active_at: Monotonic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    Running,
    /// So many leases are still to be revoked.
    ShuttingDown {
        revoking: usize,
    },
    Stopped,
}

/// The model. Effects go into a list that the caller owns, during the call; the log of the cluster is lent to each call.
pub struct BrokerModel {
    settings: Settings,
    lifecycle: Lifecycle,
    snapshot: ClusterSnapshot,
    /// Whether the first read of the snapshot has ended: before it nothing is answered.
    snapshot_read: bool,
    /// Whether the last exchange with etcd succeeded: brokers refuse most requests while it did not.
    available: bool,
    partitions: Ownership,
    coordinated: Ownership,
    groups: BTreeMap<String, Group>,
    clean_up_at: Option<Monotonic>,
    reload_at: Option<Monotonic>,
    /// Partitions whose end was compared with what etcd says, once in a broker's life.
    restored: BTreeSet<(String, i32)>,
    connections: BTreeMap<ConnectionId, Connection>,
    jobs: BTreeMap<ConnectionId, Job>,
    operations: BTreeMap<EtcdToken, Purpose>,
    tokens: u64,
    watch: Option<EtcdToken>,
    faults: VecDeque<Fault>,
    silent: bool,
    random: Random,
}

impl BrokerModel {
    /// A broker that has not started yet.
    pub fn new(settings: Settings) -> Self {
        let alone = ClusterSnapshot::new("kafscale-cluster", [(settings.id, settings.host.as_str(), settings.port)]);
        Self {
            lifecycle: Lifecycle::Running,
            snapshot: alone,
            snapshot_read: false,
            available: true,
            partitions: Ownership::new(Kind::Partition, settings.id),
            coordinated: Ownership::new(Kind::Group, settings.id),
            groups: BTreeMap::new(),
            clean_up_at: None,
            reload_at: None,
            restored: BTreeSet::new(),
            connections: BTreeMap::new(),
            jobs: BTreeMap::new(),
            operations: BTreeMap::new(),
            tokens: 0,
            watch: None,
            faults: VecDeque::new(),
            silent: false,
            random: Random::new(settings.seed),
            settings,
        }
    }

    /// Takes in one fact. A stopped broker takes none.
    pub fn handle_input(&mut self, now: Now, input: Input, log: &mut SharedLog, effects: &mut Vec<Effect>) {
        if self.lifecycle == Lifecycle::Stopped {
            return;
        }
        match input {
            Input::Started => {
                self.clean_up_at = Some(now.monotonic + CLEAN_UP);
                self.read_snapshot(effects);
            }
            Input::Connected { connection } => {
                let splitter = Splitter::for_requests(MAX_FRAME);
                self.connections.insert(connection, Connection { splitter, active_at: now.monotonic });
            }
            Input::Received { connection, bytes } => {
                if let Some(open) = self.connections.get_mut(&connection) {
                    open.active_at = now.monotonic;
                    open.splitter.push(bytes);
                    self.go_on(now, connection, log, effects);
                }
            }
            // A request under way is carried out all the same: nobody looks at the socket meanwhile.
            Input::Closed { connection } => drop(self.connections.remove(&connection)),
            Input::EtcdFinished { token, outcome } => self.etcd_finished(now, token, outcome, log, effects),
            Input::EtcdWatched { token, fact } => {
                if self.watch == Some(token) {
                    match fact {
                        WatchFact::Created { .. } => {}
                        WatchFact::Events { events, .. } if events.is_empty() => {}
                        WatchFact::Events { .. } => self.read_snapshot(effects),
                        WatchFact::Ended(_) => {
                            self.watch = None;
                            self.reload_at = Some(now.monotonic + RELOAD);
                        }
                    }
                }
            }
            Input::ShutdownRequested => self.shut_down(effects),
        }
    }

    /// When the model wants to be called.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        if self.lifecycle == Lifecycle::Stopped {
            return None;
        }
        let waits = self.jobs.values().filter(|_| !self.silent).filter_map(|job| match &job.stage {
            Stage::Fetching(fetching) => fetching.deadline(),
            Stage::Owning | Stage::Creating | Stage::Reading | Stage::Writing(_) | Stage::Stuck => None,
        });
        let idle = self.settings.idle_close.into_iter().flat_map(|idle| {
            let idle_connections = self.connections.iter().filter(|(id, _)| !self.jobs.contains_key(id));
            idle_connections.map(move |(_, connection)| connection.active_at + idle)
        });
        [self.clean_up_at, self.reload_at, self.partitions.poll_timeout(), self.coordinated.poll_timeout()]
            .into_iter()
            .flatten()
            .chain(waits)
            .chain(idle)
            .min()
    }

    /// Does what is due. Also to be called when another broker let [`SharedLog::version`] grow, and after
    /// [`Self::set_silent`].
    pub fn handle_timeout(&mut self, now: Now, log: &mut SharedLog, effects: &mut Vec<Effect>) {
        if self.lifecycle == Lifecycle::Stopped {
            return;
        }
        for kind in Kind::ALL {
            if let Some(lease) = self.ownership(kind).handle_timeout(now.monotonic) {
                self.ask_etcd(Purpose::KeepAlive { kind, lease }, etcd::Request::LeaseKeepAlive { lease }, effects);
            }
        }
        if self.reload_at.is_some_and(|at| at <= now.monotonic) {
            self.reload_at = None;
            self.read_snapshot(effects);
        }
        if self.clean_up_at.is_some_and(|at| at <= now.monotonic) {
            self.clean_up_at = Some(now.monotonic + CLEAN_UP);
            let writing = self.clean_up_groups(now);
            self.write_in_background(writing, effects);
        }
        let connections: Vec<ConnectionId> = self.connections.keys().chain(self.jobs.keys()).copied().collect();
        for connection in connections {
            self.go_on(now, connection, log, effects);
        }
        self.close_idle(now, effects);
    }

    /// Lets a fault strike once.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push_back(fault);
    }

    /// Faults that have not struck never will.
    pub fn forgive(&mut self) {
        self.faults.clear();
    }

    /// Faults that wait for their answer.
    pub fn waiting_faults(&self) -> usize {
        self.faults.len()
    }

    /// From now on connections that are idle for so long are closed.
    pub fn set_idle_close(&mut self, idle: Duration) {
        self.settings.idle_close = Some(idle);
    }

    /// A silent broker accepts and reads, and does nothing. Call [`Self::handle_timeout`] when it is to go on.
    pub fn set_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    /// It speaks this where that differs from KafScale brokers; for connections and requests to come.
    pub fn set_versions(&mut self, versions: BTreeMap<ApiKey, VersionRange>) {
        self.settings.versions = versions;
    }

    /// Kills the broker: connections close, nothing is revoked.
    pub fn crash(&mut self, effects: &mut Vec<Effect>) {
        let closed = std::mem::take(&mut self.connections);
        effects.extend(closed.into_keys().map(|connection| Effect::Close { connection }));
        self.jobs.clear();
        self.operations.clear();
        self.lifecycle = Lifecycle::Stopped;
        effects.push(Effect::Stopped);
    }

    /// A stopped broker becomes a new process, which remembers nothing; tell it [`Input::Started`]. What etcd still answers
    /// to the former one is not taken for an answer to this one.
    pub fn restart(&mut self) {
        let random = std::mem::replace(&mut self.random, Random::new([0; 32]));
        *self = Self { tokens: self.tokens, random, ..Self::new(self.settings.clone()) };
    }

    /// Lets it own a partition (`topic/partition`) no more, as when its key in etcd was given to another broker: the next
    /// request for it finds out whose it is.
    pub fn release_partition(&mut self, partition: &str) {
        self.partitions.release(partition);
    }

    /// The same for a group. What it knew of the group is forgotten: the next coordinator reads what is stored.
    pub fn release_group(&mut self, group: &str) {
        self.coordinated.release(group);
        self.groups.remove(group);
    }

    /// Its node id.
    pub fn id(&self) -> i32 {
        self.settings.id
    }

    /// Whether it takes input.
    pub fn is_running(&self) -> bool {
        self.lifecycle != Lifecycle::Stopped
    }

    /// Partitions that it holds the lease of, as `topic/partition`, as far as it knows.
    pub fn owned_partitions(&self) -> impl Iterator<Item = &str> {
        self.partitions.owned()
    }

    /// Groups that it coordinates, as far as it knows.
    pub fn coordinated_groups(&self) -> impl Iterator<Item = &str> {
        self.coordinated.owned()
    }

    fn ownership(&mut self, kind: Kind) -> &mut Ownership {
        match kind {
            Kind::Partition => &mut self.partitions,
            Kind::Group => &mut self.coordinated,
        }
    }

    fn ask_etcd(&mut self, purpose: Purpose, request: etcd::Request, effects: &mut Vec<Effect>) {
        let token = self.token();
        self.operations.insert(token, purpose);
        effects.push(Effect::Etcd { token, request });
    }

    fn token(&mut self) -> EtcdToken {
        self.tokens += 1;
        EtcdToken(self.tokens)
    }

    fn read_snapshot(&mut self, effects: &mut Vec<Effect>) {
        let range = RangeRequest::of(Keys::One(SNAPSHOT_KEY.into()));
        self.ask_etcd(Purpose::Snapshot, etcd::Request::Range(range), effects);
    }

    fn snapshot_answered(
        &mut self,
        now: Now,
        outcome: &Outcome<etcd::Response, etcd::Refusal>,
        log: &mut SharedLog,
        effects: &mut Vec<Effect>,
    ) {
        match outcome {
            Outcome::Applied(etcd::Response::Range(range)) => {
                if let Some(snapshot) = range.kvs.first().and_then(|kv| ClusterSnapshot::parse(&kv.value)) {
                    self.snapshot = snapshot;
                }
                if self.watch.is_none() {
                    let token = self.token();
                    self.watch = Some(token);
                    let keys = Keys::One(SNAPSHOT_KEY.into());
                    let request = WatchRequest { keys, start_revision: range.revision + 1 };
                    effects.push(Effect::EtcdWatch { token, request });
                }
            }
            Outcome::Applied(_) | Outcome::NotApplied(_) | Outcome::Unknown(_) => {
                self.reload_at = Some(now.monotonic + RELOAD);
            }
        }
        if !self.snapshot_read {
            self.snapshot_read = true;
            let connections: Vec<ConnectionId> = self.connections.keys().copied().collect();
            for connection in connections {
                self.go_on(now, connection, log, effects);
            }
        }
    }

    /// Writes that no request waits for.
    fn write_in_background(&mut self, mut writing: Writing, effects: &mut Vec<Effect>) {
        for success in writing.writes.take() {
            let request = etcd::Request::Txn(TxnRequest { success, ..TxnRequest::default() });
            self.ask_etcd(Purpose::Background, request, effects);
        }
    }

    fn close_idle(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(idle) = self.settings.idle_close else { return };
        let jobs = &self.jobs;
        self.connections.retain(|id, connection| {
            let keep = jobs.contains_key(id) || connection.active_at + idle > now.monotonic;
            if !keep {
                effects.push(Effect::Close { connection: *id });
            }
            keep
        });
    }

    fn shut_down(&mut self, effects: &mut Vec<Effect>) {
        let mut revoking = 0;
        for kind in Kind::ALL {
            if let Some(lease) = self.ownership(kind).close() {
                revoking += 1;
                self.ask_etcd(Purpose::Revoke, etcd::Request::LeaseRevoke { lease }, effects);
            }
        }
        self.lifecycle = Lifecycle::ShuttingDown { revoking };
        self.stop_when_revoked(effects);
    }

    fn stop_when_revoked(&mut self, effects: &mut Vec<Effect>) {
        if self.lifecycle == (Lifecycle::ShuttingDown { revoking: 0 }) {
            self.crash(effects);
        }
    }

    /// Takes the oldest fault for which `applies` gives something.
    fn take_fault<T>(&mut self, applies: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        let index = self.faults.iter().position(|fault| applies(fault).is_some())?;
        let fault = self.faults.remove(index)?;
        applies(&fault)
    }

    fn takes_missing_partition(&mut self) -> bool {
        let missing = self.take_fault(|fault| match fault {
            Fault::MissingPartition => Some(()),
            Fault::RefuseProduce(_)
            | Fault::CrashAfterAppend
            | Fault::WrongCorrelation
            | Fault::CloseUnappended
            | Fault::LeaderHints(_) => None,
        });
        missing.is_some()
    }

    fn takes_leader_hints(&mut self) -> Option<&'static str> {
        self.take_fault(|fault| match fault {
            Fault::LeaderHints(host) => Some(*host),
            Fault::RefuseProduce(_)
            | Fault::CrashAfterAppend
            | Fault::WrongCorrelation
            | Fault::MissingPartition
            | Fault::CloseUnappended => None,
        })
    }
}
