//! Whole clusters in simulated time, drawn from one seed: replicas of the proxy, brokers, etcd, S3, clients and faults.
//!
//! A safety phase with the faults that the seed drew, then a liveness phase without any: everything must be answered, every
//! new request must be served, and what nobody needs must be gone or counted. Judged by [`crate::world::invariants`].

mod disturbances;
mod http_clients;
mod kafka_clients;
mod operator;
mod scenario;
mod shrink;
mod verdict;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kafscale_proxy_core::inputs::ClientId;
use kafscale_proxy_core::{
    ClusterConfig, Config, IdempotentProducers, LfsConfig, ListenerConfig, Monotonic, ShutdownConfig,
};

use disturbances::Disturbances;
use http_clients::HttpActor;
pub use http_clients::HttpLearned;
use kafka_clients::KafkaActor;
pub use kafka_clients::Learned;
use scenario::{Action, BROKERS, PART, REQUEST_MAX, SHARDS, TOPICS};
pub use scenario::{FaultKind, Scenario};
pub use shrink::shrink;

use crate::world::choices::Choices;
use crate::world::{Plan, World};

/// Kafka clients at once.
const CLIENTS_MAX: usize = 12;
/// What a download through a temporary file reads at once: with less memory all of them are refused.
const FILE_PIECE_BYTES: usize = 256 << 10;
/// Knowledge lives so long: longer than one cycle of proofs (10 s), shorter than long outages.
const TTL: Duration = Duration::from_secs(15);

/// What kind of failure; the process ends with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The machine (or the world) panicked.
    Crash,
    /// Something did not happen that must.
    Liveness,
    /// Something happened that must not.
    Safety,
}

impl Kind {
    /// The exit code of the process.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Crash => 127,
            Self::Liveness => 128,
            Self::Safety => 129,
        }
    }
}

/// How a simulation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind.
    pub kind: Kind,
    /// What happened.
    pub text: String,
}

/// What happened in a simulation that did not fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Kafka clients.
    pub kafka: Learned,
    /// HTTP clients.
    pub http: HttpLearned,
    /// Objects whose deletion was ordered.
    pub deletes: u64,
    /// Writes to brokers whose route could be judged.
    pub routes_judged: u64,
    /// The most effects of one call.
    pub effects_most: u64,
    /// Processes of the proxy that ended in order.
    pub ended: u64,
    /// Connections that an upload took from another one, in the processes that live at the end.
    pub reused_connections: u64,
    /// Things that happened.
    pub steps: u64,
}

impl Report {
    /// Adds another simulation.
    pub fn add(&mut self, other: &Self) {
        self.kafka.acknowledged += other.kafka.acknowledged;
        self.kafka.refused += other.kafka.refused;
        self.kafka.read += other.kafka.read;
        self.kafka.errors += other.kafka.errors;
        self.kafka.joined += other.kafka.joined;
        self.kafka.others += other.kafka.others;
        self.http.uploads += other.http.uploads;
        self.http.failed_uploads += other.http.failed_uploads;
        self.http.changed_topics += other.http.changed_topics;
        self.http.downloads += other.http.downloads;
        self.http.filed_downloads += other.http.filed_downloads;
        self.http.ready += other.http.ready;
        self.deletes += other.deletes;
        self.routes_judged += other.routes_judged;
        self.effects_most = self.effects_most.max(other.effects_most);
        self.ended += other.ended;
        self.reused_connections += other.reused_connections;
        self.steps += other.steps;
    }
}

/// A simulation that was run: how it ended, and what the machines ordered, if that was wanted.
pub struct Run {
    /// How it ended.
    pub result: Result<Report, Failure>,
    /// One line per action and effect; empty unless it was asked for.
    pub trace: Vec<String>,
}

/// Runs the scenario of a seed.
pub fn run_seed(seed: u64, traced: bool) -> Run {
    let mut choices = Choices::from_seed(seed);
    let scenario = Scenario::draw(&mut choices);
    run(&scenario, choices, traced)
}

/// Runs the scenario that a fuzzer chose. What it leaves of the bytes decides what the world draws first.
pub fn run_bytes(bytes: &[u8], traced: bool) -> Run {
    let (scenario, choices) = Scenario::from_bytes(bytes);
    run(&scenario, choices, traced)
}

/// Runs a scenario; what it leaves open is drawn from `choices`. A panic is a failure, not the end of the process.
pub fn run(scenario: &Scenario, choices: Choices, traced: bool) -> Run {
    let mut simulation = Simulation::new(scenario, choices, traced);
    let caught = catch_unwind(AssertUnwindSafe(|| simulation.run(scenario)));
    let result = caught.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Err(Failure { kind: Kind::Crash, text })
    });
    Run { result, trace: simulation.world.trace.lines().to_vec() }
}

struct Simulation {
    world: World,
    disturbances: Disturbances,
    kafka: Vec<KafkaActor>,
    http: Vec<HttpActor>,
    /// Kafka clients whose request never becomes whole.
    half: Vec<ClientId>,
    /// Every removal succeeds, and what brokers refuse is heard: a blob without a record is gone in the end, not counted.
    leaves_nothing: bool,
    report: Report,
}

fn config() -> Config {
    let lfs = LfsConfig {
        bucket: "blobs".into(),
        chunk_bytes: PART as usize,
        single_put_below_bytes: PART as usize,
        // Less than one piece of a body, and less than two.
        hash_inline_bytes: 300,
        hash_job_bytes: 1_000,
        download_memory_bytes: PART,
        upload_memory_bytes: FILE_PIECE_BYTES + 8 * PART as usize,
        connect_attempts: 3,
        connect_backoff: Duration::from_millis(200),
        dial_timeout: Duration::from_secs(2),
        read_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_secs(20),
        s3_health_interval: Duration::from_secs(20),
        ..LfsConfig::default()
    };
    let listener = ListenerConfig {
        advertised_host: "proxy".into(),
        inflight_requests_per_client: 8,
        request_max_bytes: REQUEST_MAX,
        // Room for one of the largest and a little more.
        frame_memory_bytes: REQUEST_MAX + 56_000,
        // Some usual requests.
        small_request_memory_bytes: 2_000,
        // Little more than one large answer.
        answer_memory_bytes: 100_000,
        read_timeout: Duration::from_secs(10),
        request_timeout: Duration::from_secs(30),
        write_timeout: Duration::from_secs(20),
        ..ListenerConfig::default()
    };
    let cluster = ClusterConfig {
        cache_ttl: TTL,
        connect_attempts: 3,
        connect_backoff: Duration::from_millis(200),
        dial_timeout: Duration::from_secs(2),
        connect_total: Duration::from_secs(6),
        page_keys: 2,
        idempotent_producers: IdempotentProducers::Accept,
        ..ClusterConfig::default()
    };
    let shutdown = ShutdownConfig { grace: Duration::from_secs(1), drain: Duration::from_secs(8) };
    Config { lfs: Some(lfs), listener, cluster, shutdown, ..Config::default() }
}

impl Simulation {
    fn new(scenario: &Scenario, choices: Choices, traced: bool) -> Self {
        let topics = TOPICS.iter().map(|(topic, count)| ((*topic).to_owned(), *count)).collect();
        let plan = Plan { seed: 0, config: config(), shards: 0, brokers: BROKERS, topics, min_part_bytes: 1 };
        let mut world = World::with_choices(choices, plan);
        if !traced {
            world.trace.switch_off();
        }
        for skew_ms in &scenario.skews_ms {
            world.start_replica(&config(), SHARDS, *skew_ms);
        }
        if let Some(idle_close) = scenario.idle_close {
            (0..BROKERS).for_each(|broker| world.set_idle_close(broker, idle_close));
        }
        for (broker, versions) in scenario.versions.iter().enumerate() {
            world.set_versions(broker, versions.clone());
        }
        world.s3.jitter = scenario.s3_jitter;
        world.job_jitter = scenario.job_jitter;
        let disturbances = Disturbances::new(&world);
        // A replica that stood still past the deadline of a publish has a refusal in its socket that it does not read any more.
        let leaves = [FaultKind::S3Outages, FaultKind::S3Strikes, FaultKind::BrokenAnswers, FaultKind::ReplicaPauses];
        let leaves_nothing = !scenario.kinds.iter().any(|kind| leaves.contains(kind));
        let (kafka, http, half, report) = (Vec::new(), Vec::new(), Vec::new(), Report::default());
        Self { world, disturbances, kafka, http, half, leaves_nothing, report }
    }

    fn run(&mut self, scenario: &Scenario) -> Result<Report, Failure> {
        for (at, action) in &scenario.actions {
            self.run_until(Monotonic::ZERO + *at)?;
            self.world.trace.note(self.world.now().monotonic, || format!("{action:?}"));
            self.act(*action);
        }
        self.run_until(Monotonic::ZERO + scenario.lasts)?;
        self.disturbances.end_all(&mut self.world);
        self.settle()?;
        let report = &mut self.report;
        report.deletes = self.world.deletes.len() as u64;
        report.routes_judged = self.world.judges.routing.judged();
        report.effects_most = self.world.judges.effects_most() as u64;
        Ok(*report)
    }

    fn shard(&self, number: u64) -> usize {
        let living: Vec<usize> = self.world.living_shards().collect();
        living[number as usize % living.len()]
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Connect { shard } => {
                if self.kafka.len() < CLIENTS_MAX {
                    let shard = self.shard(shard);
                    self.kafka.push(KafkaActor::connect(&mut self.world, shard));
                }
            }
            Action::Ask { client, ask, times } => {
                if self.kafka.is_empty() {
                    let shard = self.shard(client);
                    self.kafka.push(KafkaActor::connect(&mut self.world, shard));
                }
                let index = client as usize % self.kafka.len();
                (0..times).for_each(|_| self.kafka[index].ask(&mut self.world, ask));
            }
            Action::Vanish { client } => {
                if !self.kafka.is_empty() {
                    let index = client as usize % self.kafka.len();
                    let mut actor = self.kafka.swap_remove(index);
                    self.world.vanish(actor.id);
                    actor.end(&mut self.world);
                }
            }
            Action::StandStill { client } => {
                if let Some(actor) = self.kafka.get(client as usize % self.kafka.len().max(1)) {
                    self.world.stand_still(actor.id);
                }
            }
            Action::GoOn { client } => {
                if let Some(actor) = self.kafka.get(client as usize % self.kafka.len().max(1)) {
                    self.world.go_on(actor.id);
                }
            }
            Action::HalfRequests { shard, announced, come, every, times } => {
                let shard = self.shard(shard);
                for _ in 0..times {
                    self.half.push(self.world.half_request(shard, announced, come, every));
                }
            }
            Action::Upload { shard, length, partition, manner } => {
                let shard = self.shard(shard);
                self.http.push(HttpActor::upload(&mut self.world, shard, length, partition, manner));
            }
            Action::Leave { exchange } => {
                // Those of the last moments: the others have long been answered.
                let recent = self.http.len().min(4);
                if recent > 0 {
                    let index = self.http.len() - 1 - exchange as usize % recent;
                    self.world.leave(self.http[index].exchange);
                }
            }
            Action::Download { shard, blob, wrong, stands_still } => {
                let shard = self.shard(shard);
                self.http.extend(HttpActor::download(&mut self.world, shard, blob, wrong, stands_still));
            }
            Action::Probe { shard } => {
                let shard = self.shard(shard);
                self.http.push(HttpActor::probe(&mut self.world, shard));
            }
            Action::Fault { kind, who, how, lasts } => {
                self.disturbances.strike(&mut self.world, kind, who, how, lasts);
            }
        }
    }

    /// Lets everything happen until then.
    fn run_until(&mut self, end: Monotonic) -> Result<(), Failure> {
        loop {
            let until = self.disturbances.next_end().map_or(end, |at| at.min(end));
            while self.world.step(until) {
                self.report.steps += 1;
                self.report.ended += self.world.end_idle_replicas();
                self.look()?;
            }
            self.disturbances.end_due(&mut self.world);
            if until == end {
                return Ok(());
            }
        }
    }

    /// Clients take what came; then everything must be well.
    fn look(&mut self) -> Result<(), Failure> {
        let (now, mut ended) = (self.world.now().monotonic, false);
        for client in self.world.take_news() {
            if let Some(actor) = self.kafka.iter_mut().find(|actor| actor.id == client) {
                actor.look(&mut self.world, now, &mut self.report.kafka);
                ended |= actor.has_ended();
            }
        }
        if ended {
            self.kafka.retain(|actor| !actor.has_ended());
        }
        for exchange in self.world.take_http_news() {
            if let Some(actor) = self.http.iter_mut().rev().find(|actor| actor.exchange == exchange) {
                actor.look(&mut self.world, now, &mut self.report.http);
            }
        }
        match self.world.judges.violations().first() {
            Some(violation) => {
                let text = format!("{} at {:?}: {}", violation.invariant, violation.at, violation.text);
                Err(Failure { kind: Kind::Safety, text })
            }
            None => Ok(()),
        }
    }
}
