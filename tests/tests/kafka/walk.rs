//! Random walks: clients that pipeline, brokers that come and go, leases that move, etcd away for longer than the TTL.
//! Whatever comes together: answers in order, batches in order, nothing that was acknowledged is lost, nothing is routed
//! past the TTL, and in the end nothing is left.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::kafka::ErrorCode;
use kafscale_proxy_core::model::broker::Fault;
use kafscale_proxy_core::model::{Fate, Link};
use kafscale_proxy_core::{ClusterConfig, Config, ListenerConfig};
use kafscale_proxy_tests::world::invariants::Violation;
use kafscale_proxy_tests::world::{Plan, World};

use crate::person::{Batch, PARTITIONS, Person, TOPIC, read_batches};

const SEEDS: u64 = 200;
const BROKERS: u64 = 3;
const PEOPLE: usize = 3;
const TTL: Duration = Duration::from_secs(12);
const OUTAGE: Duration = Duration::from_secs(20);
/// How often somebody does something.
const STEPS: usize = 120;

/// To look at one walk: `WALK_SEED=7 WALK_TRACE=1 cargo test -p kafscale-proxy-tests --test kafka`.
fn is_traced() -> bool {
    std::env::var_os("WALK_TRACE").is_some()
}

fn pick<T: Copy>(world: &mut World, from: &[T]) -> T {
    from[world.choices.between(0, from.len() as u64 - 1) as usize]
}

struct Walk {
    world: World,
    people: Vec<Person>,
    gone: Vec<Person>,
    named: u64,
    outage: bool,
}

/// What all walks together have seen, so that none of it is missing by mistake.
#[derive(Debug, Default)]
struct Seen {
    requests: usize,
    answers: usize,
    acknowledged: usize,
    read: usize,
    codes: BTreeMap<i16, usize>,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.answers += other.answers;
        self.acknowledged += other.acknowledged;
        self.read += other.read;
        for (code, times) in other.codes {
            *self.codes.entry(code).or_default() += times;
        }
    }
}

impl Walk {
    fn new(seed: u64) -> Self {
        let config = Config {
            cluster: ClusterConfig { cache_ttl: TTL, ..ClusterConfig::default() },
            listener: ListenerConfig { advertised_host: "proxy".into(), ..ListenerConfig::default() },
            ..Config::default()
        };
        let topics = vec![(TOPIC.into(), PARTITIONS)];
        let plan = Plan { seed, config, shards: 1, brokers: BROKERS as usize, topics, min_part_bytes: 1 };
        let mut walk = Self { world: World::new(plan), people: Vec::new(), gone: Vec::new(), named: 0, outage: false };
        if !is_traced() {
            walk.world.trace.switch_off();
        }
        walk.world.judges.routing.faults_come_unannounced();
        walk.world.run(Duration::from_secs(1));
        while walk.people.len() < PEOPLE {
            let person = walk.arrive();
            walk.people.push(person);
        }
        walk
    }

    fn arrive(&mut self) -> Person {
        self.named += 1;
        Person::connect(&mut self.world, self.named)
    }

    fn partitions(&mut self) -> Vec<i32> {
        let mut partitions: Vec<i32> =
            (0..self.world.choices.between(1, 3)).map(|_| self.world.choices.between(0, 5) as i32).collect();
        if self.world.choices.one_in(40) {
            partitions.push(PARTITIONS);
        }
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }

    /// A client asks for something.
    fn act(&mut self, index: usize) {
        let partitions = self.partitions();
        let group = pick(&mut self.world, &["g", "h"]);
        let (world, person) = (&mut self.world, &mut self.people[index]);
        match world.choices.between(0, 15) {
            0..=6 => {
                let version = pick(world, &[3, 7, 9]);
                let acks = pick(world, &[-1, -1, -1, 1, 0]);
                person.produce(world, version, acks, &partitions);
            }
            7..=10 => {
                let version = pick(world, &[4, 11, 12]);
                let max_wait_ms = pick(world, &[0, 50, 500, 3_000]);
                person.fetch(world, version, max_wait_ms, &partitions);
            }
            11 => person.list_offsets(world, 1, &partitions),
            12 => person.metadata(world),
            13 => person.join(world, group),
            14 => person.heartbeat(world, group),
            _ => person.commit(world, group),
        }
    }

    /// Something goes wrong, or right again.
    fn disturb(&mut self) {
        let world = &mut self.world;
        let broker = world.choices.between(0, BROKERS - 1) as usize;
        let partition = world.choices.between(0, 5);
        match world.choices.between(0, 11) {
            0 => world.crash(broker),
            1 => world.stop(broker),
            // A broker that starts while it cannot read the snapshot writes one of its own over it.
            2..=4 if self.outage => {}
            2..=4 => (0..BROKERS as usize).for_each(|broker| world.restart(broker)),
            5 | 6 => {
                // The lease moves; the former owner knows, or does not know yet.
                let key = format!("/kafscale/partition-leases/{TOPIC}/{partition}");
                let former = world.owner(TOPIC, partition as i32);
                if world.broker(broker).is_running() {
                    world.change_etcd(|etcd, facts| etcd.model.put(key, broker.to_string(), facts));
                }
                if let Some(former) = former.filter(|_| world.choices.one_in(2)) {
                    world.broker(former).inject(Fault::RefuseProduce(ErrorCode::NOT_LEADER_OR_FOLLOWER));
                }
            }
            7 => {
                // All that a broker holds is lost to it.
                let key = format!("/kafscale/partition-leases/{TOPIC}/{partition}");
                let lease = world.etcd.model.get(key.as_bytes()).map(|kv| kv.lease).filter(|lease| *lease != 0);
                if let Some(lease) = lease {
                    world.change_etcd(|etcd, facts| _ = etcd.model.end_lease(lease, facts));
                }
            }
            8 => world.break_watches(),
            9 => {
                let accepted = pick(world, &[0, 1, 60, 100_000]);
                world.faults.break_record_write(accepted);
            }
            10 => {
                let fault = pick(world, &[Fault::WrongCorrelation, Fault::MissingPartition, Fault::CrashAfterAppend]);
                world.broker(broker).inject(fault);
            }
            _ => {
                let swallow = world.choices.one_in(2);
                world.faults.swallow_dials(broker, swallow);
            }
        }
    }

    fn begin_outage(&mut self) {
        let world = &mut self.world;
        let fate = pick(world, &[Fate::Refused, Fate::RequestLost, Fate::ReplyLost]);
        let delay = Duration::from_millis(pick(world, &[0, 300, 4_000]));
        world.etcd.link = Link { fate, delay };
        if world.choices.one_in(2) {
            world.etcd.broker_link = Link { fate: Fate::Refused, delay: Duration::from_millis(200) };
        }
        world.break_watches();
        self.outage = true;
    }

    fn end_outage(&mut self) {
        self.world.etcd.link = Link::default();
        self.world.etcd.broker_link = Link::default();
        self.outage = false;
    }

    /// Takes answers; replaces those whose connection has ended, and sometimes one leaves.
    fn look_around(&mut self) {
        for index in 0..self.people.len() {
            self.people[index].listen(&mut self.world);
            let leaves = self.world.choices.one_in(60);
            if leaves {
                self.world.vanish(self.people[index].id);
            }
            if leaves || self.people[index].is_gone(&self.world) {
                let next = self.arrive();
                let gone = std::mem::replace(&mut self.people[index], next);
                self.gone.push(gone);
            }
        }
    }

    fn go(&mut self) {
        let outage_at = self.world.choices.between(0, 2 * STEPS as u64) as usize;
        let mut outage_ends = None;
        for step in 0..STEPS {
            if step == outage_at {
                self.begin_outage();
                outage_ends = Some(self.world.now().monotonic + OUTAGE);
            }
            if outage_ends.is_some_and(|end| end <= self.world.now().monotonic) {
                self.end_outage();
                outage_ends = None;
            }
            for _ in 0..self.world.choices.between(1, 4) {
                let index = self.world.choices.between(0, PEOPLE as u64 - 1) as usize;
                self.act(index);
            }
            if self.world.choices.one_in(6) {
                self.disturb();
            }
            let pause = pick(&mut self.world, &[0, 1, 5, 50, 300, 1_500]);
            self.world.run(Duration::from_millis(pause));
            self.look_around();
        }
    }

    /// Faults end; then everything is answered.
    fn calm_down(&mut self) {
        self.end_outage();
        for broker in 0..BROKERS as usize {
            self.world.faults.swallow_dials(broker, false);
            self.world.restart(broker);
        }
        self.world.run(Duration::from_secs(60));
        for index in 0..self.people.len() {
            let person = &mut self.people[index];
            person.listen(&mut self.world);
            assert!(person.awaits() == 0 || person.is_gone(&self.world), "person {}", person.name);
        }
        let stats = self.world.proxy(0).stats();
        assert_eq!((stats.listener.open_requests, stats.listener.waiting_requests), (0, 0));
    }

    /// Somebody new reads everything that brokers let be read: what etcd was not told of shows only after a restart.
    fn read_all(&mut self) -> Person {
        let mut reader = self.arrive();
        let all: Vec<i32> = (0..PARTITIONS).collect();
        let readable: i64 = self.world.log.partitions().map(|(_, _, log)| log.high_watermark()).sum();
        for _ in 0..2_000 {
            if reader.read.values().map(Vec::len).sum::<usize>() as i64 >= readable {
                return reader;
            }
            if reader.is_gone(&self.world) {
                reader = self.arrive();
            }
            // One may have died of a fault that was ordered before.
            (0..BROKERS as usize).for_each(|broker| self.world.restart(broker));
            reader.fetch(&mut self.world, 12, 100, &all);
            let person = &mut reader;
            self.world.run(Duration::from_millis(200));
            person.listen(&mut self.world);
        }
        let read: BTreeMap<_, _> = reader.read.iter().map(|(partition, read)| (*partition, read.len())).collect();
        panic!("not everything can be read: {read:?} of {readable}, codes {:?}", reader.codes);
    }

    fn check(&mut self, seen: &mut Seen) {
        self.world.trace.lines().iter().for_each(|line| eprintln!("{line}"));
        let reader = self.read_all();
        let mut log: BTreeMap<i32, Vec<Batch>> = BTreeMap::new();
        for (_, partition, stored) in self.world.log.partitions() {
            let batches: Vec<_> = stored.segments().iter().flat_map(|segment| read_batches(&segment.records)).collect();
            for (offset, (base, batch)) in (0..).zip(&batches) {
                assert_eq!((*base, batch.partition), (offset, partition));
            }
            log.insert(partition, batches.into_iter().map(|(_, batch)| batch).collect());
        }
        let people = || self.people.iter().chain(&self.gone);
        let is_silent = |batch: &Batch| people().any(|person| person.silent.contains(batch));
        for (partition, batches) in &log {
            let mut last: BTreeMap<u64, u64> = BTreeMap::new();
            for batch in batches.iter().filter(|batch| !is_silent(batch)) {
                let before = last.insert(batch.person, batch.number);
                assert!(before < Some(batch.number), "{partition}: {batch:?} stands behind {before:?}");
            }
        }
        for person in people().chain([&reader]) {
            for (batch, offset) in &person.acknowledged {
                let stored = log.get(&batch.partition).and_then(|batches| batches.get(*offset as usize));
                assert_eq!(stored, Some(batch), "acknowledged at {offset}");
            }
            for (partition, read) in &person.read {
                assert!(log[partition].starts_with(read), "person {} partition {partition}", person.name);
            }
            seen.answers += person.answers;
            seen.acknowledged += person.acknowledged.len();
            seen.read += person.read.values().map(Vec::len).sum::<usize>();
            for (code, times) in &person.codes {
                *seen.codes.entry(*code).or_default() += times;
            }
        }
        seen.requests += self.world.judges.owners.judged();
        let broken = self.world.judges.violations().iter().filter(|violation| violation.invariant != "order");
        assert_eq!(broken.collect::<Vec<_>>(), Vec::<&Violation>::new());
        self.leave_nothing(&reader);
    }

    fn leave_nothing(&mut self, reader: &Person) {
        self.world.vanish(reader.id);
        for person in &self.people {
            self.world.vanish(person.id);
        }
        self.world.run(Duration::from_secs(5));
        let stats = self.world.proxy(0).stats();
        let left = (stats.listener.clients, stats.listener.broker_connections, stats.listener.frame_bytes);
        assert_eq!((left, stats.listener.waiting_requests), ((0, 0, 0), 0));
        self.world.run_until(Duration::from_secs(15), "only the watches are left", |world| {
            world.proxy(0).stats().operations == 3
        });
    }
}

fn walk(seeds: impl IntoIterator<Item = u64>) {
    let only = std::env::var("WALK_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let mut seen = Seen::default();
    for seed in seeds.into_iter().filter(|seed| only.is_none_or(|only| only == *seed)) {
        let result = std::panic::catch_unwind(|| {
            let (mut walk, mut seen) = (Walk::new(seed), Seen::default());
            walk.go();
            walk.calm_down();
            walk.check(&mut seen);
            seen
        });
        match result {
            Ok(one) => seen.add(one),
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    if only.is_none() {
        assert!(seen.requests > 10_000 && seen.answers > 10_000, "{seen:?}: nothing to learn from");
        assert!(seen.acknowledged > 5_000 && seen.read > 5_000, "{seen:?}: nothing to learn from");
        assert!([0, 6, 7].iter().all(|code| seen.codes.contains_key(code)), "{seen:?}: nothing to learn from");
    }
}

#[test]
fn whatever_comes_together() {
    walk((0..SEEDS).step_by(2));
}

// In two halves, for two cores.
#[test]
fn whatever_else_comes_together() {
    walk((1..SEEDS).step_by(2));
}
