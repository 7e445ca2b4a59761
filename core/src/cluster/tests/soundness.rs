//! Whatever is delayed, lost or reordered: no answer of the machine was wrong for the whole of the TTL.
//!
//! Random steps drive the bench. An oracle keeps, from the test's own writes, when each key had which value. After each
//! step every look-up must name a state that etcd had at some moment of the last TTL.

use proptest::prelude::*;

use super::*;

const PARTITIONS: i32 = 3;

/// When something was so: from this moment until the next entry.
struct Times<T>(Vec<(Monotonic, T)>);

impl<T> Times<T> {
    fn set(&mut self, at: Monotonic, value: T) {
        self.0.push((at, value));
    }

    fn now(&self) -> &T {
        &self.0.last().expect("begins with an entry").1
    }

    /// Whether `value` was so at some moment from `start` until now.
    fn held_since(&self, start: Monotonic, holds: impl Fn(&T) -> bool) -> bool {
        let ends = self.0.iter().skip(1).map(|(at, _)| *at).chain([Monotonic::from_micros(u64::MAX)]);
        self.0.iter().zip(ends).any(|((_, value), end)| end >= start && holds(value))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Lease { partition: i32, broker: Option<u8> },
    Brokers { first: u8, count: u8 },
    Garbage,
    Pass { ms: u64 },
    Serve { order: usize },
    Deliver { order: usize },
    Lose { order: usize },
    Tell { fact: usize },
    Break { source: u8 },
    Stall { source: u8, stalled: bool },
    Compact,
    AskFreshness,
    AskSnapshot,
    AskOwner { partition: i32 },
    AskOwners,
    Refused { partition: i32 },
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let partition = 0..PARTITIONS;
    prop_oneof![
        6 => (partition.clone(), proptest::option::of(0..4_u8)).prop_map(|(partition, broker)| Step::Lease { partition, broker }),
        2 => (0..4_u8, 0..3_u8).prop_map(|(first, count)| Step::Brokers { first, count }),
        1 => Just(Step::Garbage),
        4 => (1..2_000_u64).prop_map(|ms| Step::Pass { ms }),
        2 => (2_000..25_000_u64).prop_map(|ms| Step::Pass { ms }),
        12 => (0..8_usize).prop_map(|order| Step::Serve { order }),
        12 => (0..8_usize).prop_map(|order| Step::Deliver { order }),
        1 => (0..8_usize).prop_map(|order| Step::Lose { order }),
        8 => (0..8_usize).prop_map(|fact| Step::Tell { fact }),
        1 => (0..3_u8).prop_map(|source| Step::Break { source }),
        2 => (0..3_u8, any::<bool>()).prop_map(|(source, stalled)| Step::Stall { source, stalled }),
        1 => Just(Step::Compact),
        2 => Just(Step::AskFreshness),
        1 => Just(Step::AskSnapshot),
        2 => partition.clone().prop_map(|partition| Step::AskOwner { partition }),
        2 => Just(Step::AskOwners),
        2 => partition.prop_map(|partition| Step::Refused { partition }),
        2 => Just(Step::Settle),
    ]
}

struct Checked {
    bench: Bench,
    holders: Vec<Times<Option<i32>>>,
    /// `None` while the value is no snapshot.
    brokers: Times<Option<Vec<Address>>>,
    refused: Vec<bool>,
    compacted: bool,
    asked: usize,
    answered: usize,
}

const SOURCES: [Source; 3] = [Source::Snapshot, Source::PartitionLeases, Source::GroupLeases];

impl Checked {
    fn new() -> Self {
        let mut bench = Bench::new(&[]);
        bench.call(|cluster, ctx, out| cluster.start(ctx, out));
        let start = Monotonic::ZERO;
        Self {
            bench,
            holders: (0..PARTITIONS).map(|_| Times(vec![(start, None)])).collect(),
            brokers: Times(vec![(start, Some(Vec::new()))]),
            refused: vec![false; PARTITIONS as usize],
            compacted: false,
            asked: 0,
            answered: 0,
        }
    }

    fn ask(&mut self, question: Question) {
        self.asked += 1;
        self.bench.ask(self.asked as u64, question);
    }

    fn take(&mut self, step: Step) {
        let now = self.bench.now;
        match step {
            Step::Lease { partition, broker } => {
                let key = Bench::lease(partition);
                match broker {
                    Some(broker) => self.bench.put(&key, &broker.to_string()),
                    None => self.bench.delete(&key),
                }
                self.holders[partition as usize].set(now, broker.map(i32::from));
            }
            Step::Brokers { first, count } => {
                let ids: Vec<_> = (first..first + count).collect();
                let listed: Vec<_> =
                    ids.iter().map(|id| format!(r#"{{"NodeID":{id},"Host":"b{id}","Port":1}}"#)).collect();
                self.bench.put(SNAPSHOT, &format!(r#"{{"Brokers":[{}]}}"#, listed.join(",")));
                self.brokers.set(now, Some(ids.iter().map(|id| Address::new(&format!("b{id}:1"))).collect()));
            }
            Step::Garbage => {
                self.bench.put(SNAPSHOT, "garbage");
                self.brokers.set(now, None);
            }
            Step::Pass { ms } => self.bench.pass_with(Duration::from_millis(ms), |_| {}),
            Step::Serve { order } if order < self.bench.orders.len() => self.bench.serve(order),
            Step::Deliver { order } if order < self.bench.orders.len() => self.bench.deliver(order),
            Step::Lose { order } if order < self.bench.orders.len() => {
                self.bench.orders[order].reply = None;
                self.bench.deliver(order);
            }
            Step::Tell { fact } if fact < self.bench.facts.len() => {
                // What one watch tells stays in order.
                let token = self.bench.facts[fact].0;
                let first = self.bench.facts.iter().position(|(other, _)| *other == token);
                self.bench.tell(first.expect("at the latest the fact itself"));
            }
            Step::Serve { .. } | Step::Deliver { .. } | Step::Lose { .. } | Step::Tell { .. } => {}
            Step::Break { source } => {
                if let Some(token) = self.bench.watches.get(&SOURCES[usize::from(source)]) {
                    self.bench.etcd.break_watch(*token, &mut self.bench.facts);
                }
            }
            Step::Stall { source, stalled } => {
                if let Some(token) = self.bench.watches.get(&SOURCES[usize::from(source)]) {
                    self.bench.etcd.stall_watch(*token, stalled, &mut self.bench.facts);
                }
            }
            Step::Compact => {
                self.compacted |= self.bench.etcd.compact(self.bench.etcd.revision()).is_ok();
            }
            Step::AskFreshness => self.ask(Question::Freshness),
            Step::AskSnapshot => self.ask(Question::Snapshot),
            Step::AskOwner { partition } => self.ask(Question::PartitionOwner { topic: "orders".into(), partition }),
            Step::AskOwners => self.ask(Question::PartitionOwners),
            Step::Refused { partition } => {
                if let Owner::Broker(owner) = self.bench.owner(partition) {
                    self.bench.cluster.forget_partition_owner("orders", partition, &owner);
                }
                self.refused[partition as usize] = true;
            }
            Step::Settle => self.bench.run(),
        }
        self.answered += self.bench.answers().len();
    }

    fn check(&self) {
        let now = self.bench.now;
        let since = Monotonic::from_micros(now.as_micros().saturating_sub(TTL.as_micros() as u64));
        let listed = self.bench.cluster.brokers();
        match self.bench.service() {
            Service::AfterRead => {}
            Service::Serving | Service::Refused(_) => {
                let so = self.brokers.held_since(since, |brokers| brokers.as_deref() == Some(listed));
                assert!(so, "{listed:?} at {now:?}: {:?}", self.brokers.0);
            }
        }
        for partition in 0..PARTITIONS {
            let holders = &self.holders[partition as usize];
            let owner = self.bench.owner(partition);
            let so = match &owner {
                Owner::Unproven => true,
                Owner::Forgotten => self.refused[partition as usize],
                Owner::Nobody => holders.held_since(since, Option::is_none),
                Owner::UnknownBroker(id) => holders.held_since(since, |holder| *holder == Some(*id)),
                Owner::Broker(address) => holders.held_since(since, |holder| {
                    holder.map(|id| format!("b{id}:1")).as_deref() == Some(address.as_str())
                }),
            };
            assert!(so, "partition {partition} has {owner:?} at {now:?}: {:?}", holders.0);
        }
    }

    /// Without faults, everything is known soon, and every question was answered once.
    fn check_recovery(mut self) {
        if self.brokers.now().is_none() {
            self.take(Step::Brokers { first: 0, count: 2 });
        }
        for source in 0..3 {
            self.take(Step::Break { source });
        }
        self.bench.run();
        // A refused route waits for the next proof, unless somebody asks. So does a deletion at a compacted revision.
        let waits_for_proof = self.compacted || self.refused.contains(&true);
        self.bench.pass(if waits_for_proof { secs(12) } else { secs(3) });
        self.answered += self.bench.answers().len();
        assert_eq!(self.answered, self.asked, "one answer each");
        let listed = self.brokers.now().clone().expect("mended above");
        assert_eq!(self.bench.cluster.brokers(), listed);
        let expected = if listed.is_empty() { Service::Refused(NotServing::NoBrokers) } else { Service::Serving };
        assert_eq!(self.bench.service(), expected);
        for partition in 0..PARTITIONS {
            let owner = match self.holders[partition as usize].now() {
                None => Owner::Nobody,
                Some(id) => match self.bench.cluster.address_of(*id) {
                    Some(address) => Owner::Broker(address.clone()),
                    None => Owner::UnknownBroker(*id),
                },
            };
            assert_eq!(self.bench.owner(partition), owner, "{partition}");
        }
        assert!(self.bench.orders.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_answered_from_stale_knowledge(steps in proptest::collection::vec(step(), 1..150)) {
        let mut checked = Checked::new();
        for step in steps {
            checked.take(step);
            checked.check();
        }
        checked.check_recovery();
    }
}
