//! The machine against the etcd model: a bench that serves, delays and loses what the machine orders.

mod questions;
mod reading;
mod soundness;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::snapshot::Snapshot;
use super::*;
use crate::config::ClusterConfig;
use crate::config::Config;
use crate::context::{Context, Ids};
use crate::etcd::{Keys, Refusal, Request, Response, WatchEnd};
use crate::model::Link;
use crate::model::etcd::{EtcdModel, WatchFact, WatchFacts, WatchToken};
use crate::operation::Outcome;
use crate::random::Random;
use crate::time::{Monotonic, Now};
use crate::timers::{Timer, Timers};

/// TTL of every bench with discovery.
const TTL: Duration = Duration::from_secs(20);

const SNAPSHOT: &str = "/kafscale/metadata/snapshot";

/// Brokers 0 and 1, topic `orders`.
const TWO_BROKERS: &str = r#"{"Brokers":[{"NodeID":0,"Host":"zero","Port":9092},{"NodeID":1,"Host":"one","Port":9092}],
    "Topics":[{"Topic":"orders"}]}"#;

/// An order that etcd has not served, or whose answer is under way.
struct Order {
    read: Read,
    request: Request,
    gives_up: Monotonic,
    reply: Option<Outcome<Response, Refusal>>,
}

struct Bench {
    cluster: Cluster,
    config: Config,
    timers: Timers,
    random: Random,
    ids: Ids,
    now: Monotonic,
    etcd: EtcdModel,
    facts: WatchFacts,
    tokens: u64,
    watches: BTreeMap<Source, WatchToken>,
    orders: Vec<Order>,
    unparsed: VecDeque<Bytes>,
    answers: Vec<(Waiter, Question, Answer)>,
    /// Every read that was ever ordered.
    ordered: Vec<Read>,
}

impl Bench {
    fn new(static_backends: &[&str]) -> Self {
        let cluster = ClusterConfig {
            static_backends: static_backends.iter().map(|&text| text.to_owned()).collect(),
            cache_ttl: TTL,
            page_keys: 1_000,
            ..ClusterConfig::default()
        };
        let config = Config { cluster, ..Config::default() };
        Self {
            cluster: Cluster::new(&config.cluster),
            config,
            timers: Timers::default(),
            random: Random::new([7; 32]),
            ids: Ids::default(),
            now: Monotonic::from_millis(1_000_000),
            etcd: EtcdModel::new(),
            facts: WatchFacts::new(),
            tokens: 0,
            watches: BTreeMap::new(),
            orders: Vec::new(),
            unparsed: VecDeque::new(),
            answers: Vec::new(),
            ordered: Vec::new(),
        }
    }

    /// A cluster of two brokers, started and read; nothing is under way.
    fn settled() -> Self {
        let mut bench = Self::new(&[]);
        bench.put(SNAPSHOT, TWO_BROKERS);
        bench.call(|cluster, ctx, out| cluster.start(ctx, out));
        bench.run();
        bench.ordered.clear();
        bench
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut Cluster, &mut Context<'_>, &mut Vec<Decision>) -> R) -> R {
        let mut out = Vec::new();
        let mut ctx = Context {
            now: Now { monotonic: self.now, unix_ms: 0 },
            config: &self.config,
            timers: &mut self.timers,
            random: &mut self.random,
            ids: &mut self.ids,
        };
        let result = call(&mut self.cluster, &mut ctx, &mut out);
        for decision in out {
            self.carry_out(decision);
        }
        result
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Request { read, request, deadline } => {
                assert!(self.orders.iter().all(|order| order.read != read), "{read:?} is under way already");
                self.ordered.push(read.clone());
                self.orders.push(Order { read, request, gives_up: self.now + deadline, reply: None });
            }
            Decision::Watch { source, request } => {
                self.tokens += 1;
                let token = WatchToken(self.tokens);
                assert!(self.watches.insert(source, token).is_none(), "{source:?} is watched already");
                self.etcd.watch(Link::default(), token, &request, &mut self.facts);
            }
            Decision::CancelWatch { source } => self.etcd.cancel_watch(self.watches[&source], &mut self.facts),
            Decision::ParseSnapshot(value) => self.unparsed.push_back(value),
            Decision::Answered { waiter, question, answer } => self.answers.push((waiter, question, answer)),
        }
    }

    fn put(&mut self, key: &str, value: &str) {
        self.etcd.put(key.to_owned(), value.to_owned(), &mut self.facts);
    }

    fn delete(&mut self, key: &str) {
        self.etcd.delete(&Keys::One(key.to_owned().into()), &mut self.facts);
    }

    fn lease(partition: i32) -> String {
        format!("/kafscale/partition-leases/orders/{partition}")
    }

    /// etcd serves an order; the answer is under way.
    fn serve(&mut self, index: usize) {
        let order = &mut self.orders[index];
        if order.reply.is_none() {
            let reply = self.etcd.request(self.now, Link::default(), &order.request, &mut self.facts);
            order.reply = Some(reply.outcome);
        }
    }

    /// The answer arrives.
    fn deliver(&mut self, index: usize) {
        let Order { read, reply, .. } = self.orders.remove(index);
        let outcome = reply.unwrap_or_else(|| Outcome::Unknown("lost".into()));
        self.call(|cluster, ctx, out| cluster.on_finished(ctx, read, outcome, out));
    }

    fn find(&self, read: &Read) -> usize {
        self.orders.iter().position(|order| order.read == *read).unwrap_or_else(|| panic!("{read:?} is not ordered"))
    }

    fn finish(&mut self, read: &Read) {
        let index = self.find(read);
        self.serve(index);
        self.deliver(index);
    }

    fn fail(&mut self, read: &Read) {
        let index = self.find(read);
        self.orders[index].reply = Some(Outcome::NotApplied(Refusal::Unreachable("down".into())));
        self.deliver(index);
    }

    fn fail_all(&mut self) {
        while let Some(order) = self.orders.first() {
            let read = order.read.clone();
            self.fail(&read);
        }
    }

    /// The machine is told the first thing that a watch has told.
    fn tell(&mut self, index: usize) {
        let (token, fact) = self.facts.remove(index);
        let Some(source) = self.watches.iter().find_map(|(source, other)| (*other == token).then_some(*source)) else {
            panic!("{token:?} has ended")
        };
        match fact {
            WatchFact::Created { revision } => {
                self.call(|cluster, ctx, out| cluster.on_watch_created(ctx, source, revision, out));
            }
            WatchFact::Events { revision, events } => {
                self.call(|cluster, ctx, out| cluster.on_watch_events(ctx, source, revision, &events, out));
            }
            WatchFact::Ended(end) => {
                self.watches.remove(&source);
                self.call(|cluster, ctx, out| cluster.on_watch_ended(ctx, source, end, out));
            }
        }
    }

    fn parse(&mut self) {
        if let Some(value) = self.unparsed.pop_front() {
            let result = Snapshot::parse(&value);
            self.call(|cluster, ctx, out| cluster.on_parsed_elsewhere(ctx, result, out));
        }
    }

    /// Everything that is under way happens at once, and what follows from it.
    fn run(&mut self) {
        for _ in 0..10_000 {
            if !self.facts.is_empty() {
                self.tell(0);
            } else if !self.orders.is_empty() {
                self.serve(0);
                self.deliver(0);
            } else if !self.unparsed.is_empty() {
                self.parse();
            } else {
                return;
            }
        }
        panic!("the machine does not come to rest");
    }

    /// Time passes; `then` runs after each deadline that is reached.
    fn pass_with(&mut self, time: Duration, mut then: impl FnMut(&mut Self)) {
        let end = self.now + time;
        for calls in 0.. {
            assert!(calls < 10_000, "the machine wants to be called again and again");
            let timer = self.timers.next().map(|timeout| timeout.at);
            let given_up = self.orders.iter().map(|order| order.gives_up).min();
            let Some(at) = timer.into_iter().chain(given_up).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if let Some(index) = self.orders.iter().position(|order| order.gives_up <= self.now) {
                self.orders[index].reply = None;
                self.deliver(index);
            }
            let due: Vec<Timer> = std::iter::from_fn(|| self.timers.pop_due(self.now)).collect();
            for timer in due {
                let Timer::ClusterReload(source) = timer else { panic!("{timer:?} is not of the cluster") };
                self.call(|cluster, ctx, out| cluster.on_timer(ctx, source, out));
            }
            then(self);
        }
        self.now = end;
    }

    /// Time passes, etcd answers at once.
    fn pass(&mut self, time: Duration) {
        self.pass_with(time, Self::run);
    }

    /// Time passes, etcd is unreachable and its watches are silent.
    fn pass_without_etcd(&mut self, time: Duration) {
        self.pass_with(time, Self::fail_all);
    }

    fn ask(&mut self, waiter: u64, question: Question) {
        self.call(|cluster, ctx, out| cluster.ask(ctx, question, Waiter::Request(RequestId(waiter)), out));
    }

    /// Takes the answers that were given so far.
    fn answers(&mut self) -> Vec<(u64, Answer)> {
        let answers = std::mem::take(&mut self.answers);
        let number = |waiter| match waiter {
            Waiter::Request(RequestId(number)) => number,
            Waiter::Exchange(_) | Waiter::Health(_) => panic!("{waiter:?} did not ask"),
        };
        answers.into_iter().map(|(waiter, _, answer)| (number(waiter), answer)).collect()
    }

    fn service(&self) -> Service {
        self.cluster.service(self.now)
    }

    fn owner(&self, partition: i32) -> Owner {
        self.cluster.partition_owner(self.now, "orders", partition)
    }

    fn token(&self, source: Source) -> WatchToken {
        self.watches[&source]
    }
}

fn broker(address: &str) -> Owner {
    Owner::Broker(Address::new(address))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn unreadable(answers: &[(u64, Answer)]) -> Vec<u64> {
    let failed = answers.iter().filter(|(_, answer)| matches!(answer, Answer::Unreadable(_)));
    failed.map(|(waiter, _)| *waiter).collect()
}

fn learned(answers: &[(u64, Answer)]) -> Vec<u64> {
    answers.iter().filter(|(_, answer)| *answer == Answer::Learned).map(|(waiter, _)| *waiter).collect()
}
