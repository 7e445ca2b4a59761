//! A request machine in simulated time: a real [`Cluster`] over a few etcd keys, and brokers that are functions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::RequestId;
use super::machine::machine;
use super::request::{Fate, Part, PartResult, Reply, RequestHead, RequestMachine, Step, Target};
use crate::cluster::{self, Address, Answer, Cluster, Question, Waiter};
use crate::config::Config;
use crate::context::{Context, Ids};
use crate::etcd::{
    KeyValue, RangeRequest, RangeResponse, Refusal, Request, Response, Revision, TxnAnswer, TxnOperation, TxnResponse,
};
use crate::kafka::{self, Message, RequestHeader, ResponseHeader, request_frame, response_frame};
use crate::operation::Outcome;
use crate::random::Random;
use crate::time::{Monotonic, Now};
use crate::timers::Timers;

const START: Monotonic = Monotonic::from_millis(1_000_000);
const ETCD_TAKES: Duration = Duration::from_millis(2);
const CORRELATION_ID: i32 = 77;
/// Partitions of each topic of the rig.
const PARTITIONS: i32 = 10;
/// A machine that does not come to an end within so many events is stuck.
const MOST_EVENTS: usize = 10_000;

/// The id of a topic of the rig.
pub(crate) fn topic_id(name: &str) -> [u8; 16] {
    let mut id = [7; 16];
    for (byte, letter) in id[1..].iter_mut().zip(name.bytes()) {
        *byte = letter;
    }
    id
}

/// Address of the broker with this number.
pub(crate) fn broker(number: usize) -> Address {
    Address::new(&format!("b{number}:9092"))
}

/// The number of the broker at this address.
pub(crate) fn number(address: &Address) -> usize {
    address.as_str()[1..].split(':').next().unwrap().parse().unwrap()
}

/// What a machine has sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Monotonic,
    pub(crate) broker: usize,
    pub(crate) version: i16,
    /// Without the header.
    pub(crate) body: Bytes,
}

impl Sent {
    /// The request, read.
    pub(crate) fn request<R: kafka::Request>(&self) -> R {
        R::decode(&self.body, self.version).unwrap()
    }

    /// Time since the rig began.
    pub(crate) fn after(&self) -> Duration {
        self.at.since(START)
    }
}

/// What a broker does with a request.
pub(crate) enum Does {
    /// Works or waits so long, then answers.
    Answer(Duration, Bytes),
    /// The connection breaks.
    Lose(Fate),
    /// Nothing, ever.
    Hang,
}

impl Does {
    /// Answers at once.
    pub(crate) fn answer<M: Message>(sent: &Sent, response: &M) -> Self {
        Self::answer_after(Duration::ZERO, sent, response)
    }

    /// Answers after a wait.
    pub(crate) fn answer_after<M: Message>(wait: Duration, sent: &Sent, response: &M) -> Self {
        Self::Answer(wait, response_frame(CORRELATION_ID, sent.version, response))
    }
}

enum Event {
    Part(Part, PartResult),
    Answer(Question),
    Wake(u64),
}

/// Everything around one machine.
pub(crate) struct Rig {
    pub(crate) config: Config,
    pub(crate) readable: bool,
    pub(crate) down: BTreeSet<usize>,
    /// Questions of the machine, in order.
    pub(crate) asked: Vec<Question>,
    /// Frames that reached a broker, in order.
    pub(crate) sent: Vec<Sent>,
    pub(crate) now: Monotonic,
    keys: BTreeMap<Bytes, KeyValue>,
    revision: Revision,
    cluster: Cluster,
    timers: Timers,
    random: Random,
    ids: Ids,
    brokers: usize,
    topics: BTreeMap<String, i32>,
}

/// How a request ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) after: Duration,
    pub(crate) reply: Reply,
    version: i16,
}

impl Ended {
    /// The answer, read; its correlation id is that of the request.
    pub(crate) fn answer<M: Message>(&self) -> M {
        M::decode(&self.body::<M>(), self.version).unwrap()
    }

    /// The answer without its header.
    pub(crate) fn body<M: Message>(&self) -> Bytes {
        let (Reply::Answer(pieces) | Reply::AnswerAndClose(pieces)) = &self.reply else {
            panic!("no answer: {:?}", self.reply)
        };
        let frame = Bytes::from(pieces.concat());
        assert_eq!(i32::from_be_bytes(*frame.first_chunk().unwrap()), i32::try_from(frame.len() - 4).unwrap());
        let (header, body) = ResponseHeader::decode(&frame, M::KEY, self.version).unwrap();
        assert_eq!(header.correlation_id, CORRELATION_ID);
        frame.slice(body..)
    }
}

/// A request as it comes from a client.
pub(crate) fn head<R: kafka::Request>(version: i16, request: &R) -> RequestHead {
    let frame = request_frame(CORRELATION_ID, Some("rig"), version, request);
    let (_, body_at) = RequestHeader::decode(&frame).unwrap();
    RequestHead { api: R::KEY, version, correlation_id: CORRELATION_ID, frame: BytesMut::from(&frame[..]), body_at }
}

impl Rig {
    /// So many brokers, these topics, no owners.
    pub(crate) fn new(brokers: usize, topics: &[&str]) -> Self {
        let config = Config::default();
        let mut rig = Self {
            cluster: Cluster::new(&config.cluster),
            config,
            readable: true,
            down: BTreeSet::new(),
            asked: Vec::new(),
            sent: Vec::new(),
            now: START,
            keys: BTreeMap::new(),
            revision: 1,
            timers: Timers::default(),
            random: Random::new([1; 32]),
            ids: Ids::default(),
            brokers,
            topics: topics.iter().map(|name| ((*name).to_owned(), PARTITIONS)).collect(),
        };
        rig.write_snapshot();
        rig
    }

    fn write_snapshot(&mut self) {
        let brokers: Vec<String> = (0..self.brokers)
            .map(|number| format!(r#"{{"NodeID":{number},"Host":"b{number}","Port":9092}}"#))
            .collect();
        let topics: Vec<String> = self
            .topics
            .iter()
            .map(|(name, partitions)| {
                let partitions: Vec<String> =
                    (0..*partitions).map(|index| format!(r#"{{"Partition":{index}}}"#)).collect();
                let partitions = partitions.join(",");
                format!(r#"{{"Topic":"{name}","TopicID":{:?},"Partitions":[{partitions}]}}"#, topic_id(name))
            })
            .collect();
        let value = format!(r#"{{"Brokers":[{}],"Topics":[{}]}}"#, brokers.join(","), topics.join(","));
        self.put("/kafscale/metadata/snapshot", &value);
    }

    /// A topic that appears in etcd only after the cluster has been read.
    pub(crate) fn add_topic(&mut self, name: &str) {
        self.add_partitions(name, PARTITIONS);
    }

    /// A topic has so many partitions from now on; the cluster hears of it when it reads the snapshot again.
    pub(crate) fn add_partitions(&mut self, topic: &str, partitions: i32) {
        self.topics.insert(topic.to_owned(), partitions);
        self.write_snapshot();
    }

    fn put(&mut self, key: &str, value: &str) {
        self.revision += 1;
        let key = Bytes::copy_from_slice(key.as_bytes());
        let created = self.keys.get(&key).map_or(self.revision, |kv| kv.create_revision);
        let kv = KeyValue {
            key: key.clone(),
            value: Bytes::copy_from_slice(value.as_bytes()),
            create_revision: created,
            mod_revision: self.revision,
            lease: 0,
        };
        self.keys.insert(key, kv);
    }

    /// A broker takes the lease of a partition.
    pub(crate) fn own(&mut self, topic: &str, partition: i32, broker: usize) -> &mut Self {
        self.put(&format!("/kafscale/partition-leases/{topic}/{partition}"), &broker.to_string());
        self
    }

    /// A broker takes the lease of a group.
    pub(crate) fn coordinate(&mut self, group: &str, broker: usize) -> &mut Self {
        self.put(&format!("/kafscale/group-leases/{group}"), &broker.to_string());
        self
    }

    /// A group has committed an offset once.
    pub(crate) fn commit(&mut self, group: &str, topic: &str, partition: i32) -> &mut Self {
        self.put(&format!("/kafscale/consumers/{group}/offsets/{topic}/{partition}"), "{}");
        self
    }

    /// Lets the cluster learn what is in etcd now.
    pub(crate) fn learn(&mut self) -> &mut Self {
        let mut out = Vec::new();
        let mut cluster = Cluster::new(&self.config.cluster);
        self.with(|ctx, _| cluster.start(ctx, &mut out));
        self.cluster = cluster;
        self.serve(out);
        self
    }

    /// The owner of a partition has refused somebody else.
    pub(crate) fn forget(&mut self, topic: &str, partition: i32, owner: usize) -> &mut Self {
        self.cluster.forget_partition_owner(topic, partition, &broker(owner));
        self
    }

    /// The broker that would take a partition that nobody owns.
    pub(crate) fn taker(&self, topic: &str, partition: i32) -> usize {
        number(self.cluster.stable_choice(topic, partition).unwrap())
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut Context<'_>, &mut Cluster) -> T) -> T {
        let mut ctx = Context {
            now: Now { monotonic: self.now, unix_ms: 1_800_000_000_000 },
            config: &self.config,
            timers: &mut self.timers,
            random: &mut self.random,
            ids: &mut self.ids,
        };
        call(&mut ctx, &mut self.cluster)
    }

    /// Carries out what the cluster wants of etcd, until it wants nothing more; the answers on the way.
    fn serve(&mut self, mut decisions: Vec<cluster::Decision>) -> Vec<(Question, Answer)> {
        let mut answers = Vec::new();
        while !decisions.is_empty() {
            for decision in std::mem::take(&mut decisions) {
                match decision {
                    cluster::Decision::Request { read, request, deadline: _ } => {
                        let outcome = if self.readable {
                            Outcome::Applied(self.respond(&request))
                        } else {
                            Outcome::NotApplied(Refusal::Unreachable("unplugged".to_owned()))
                        };
                        self.with(|ctx, cluster| cluster.on_finished(ctx, read, outcome, &mut decisions));
                    }
                    cluster::Decision::Answered { waiter: _, question, answer } => answers.push((question, answer)),
                    cluster::Decision::Watch { source, request: _ } => {
                        let revision = self.revision;
                        self.with(|ctx, cluster| cluster.on_watch_created(ctx, source, revision, &mut decisions));
                    }
                    cluster::Decision::CancelWatch { .. } => {}
                    cluster::Decision::ParseSnapshot(_) => panic!("the rig's snapshots are small"),
                }
            }
        }
        answers
    }

    /// Comparisons always hold.
    fn respond(&mut self, request: &Request) -> Response {
        match request {
            Request::Range(range) => Response::Range(self.range(range)),
            Request::Txn(txn) => {
                let answers = txn.success.iter().map(|operation| match operation {
                    TxnOperation::Range(range) => TxnAnswer::Range(self.range(range)),
                    TxnOperation::Put { key, value, lease: _ } => {
                        self.put(std::str::from_utf8(key).unwrap(), std::str::from_utf8(value).unwrap());
                        TxnAnswer::Put
                    }
                    TxnOperation::Delete(keys) => panic!("requests delete nothing: {keys:?}"),
                });
                let answers = answers.collect();
                Response::Txn(TxnResponse { revision: self.revision, succeeded: true, answers })
            }
            Request::LeaseGrant { .. } | Request::LeaseKeepAlive { .. } | Request::LeaseRevoke { .. } => {
                panic!("requests have no leases: {request:?}")
            }
        }
    }

    fn range(&self, range: &RangeRequest) -> RangeResponse {
        let within: Vec<&KeyValue> = self.keys.values().filter(|kv| range.keys.contain(&kv.key)).collect();
        let count = i64::try_from(within.len()).unwrap();
        let mut kvs: Vec<KeyValue> =
            within.into_iter().filter(|kv| kv.mod_revision >= range.min_mod_revision).cloned().collect();
        let limit = usize::try_from(range.limit).unwrap();
        let more = limit > 0 && kvs.len() > limit;
        if more {
            kvs.truncate(limit);
        }
        RangeResponse { revision: self.revision, kvs, count, more }
    }

    /// Runs a request to its end. `brokers` decides what the broker of a frame does; each broker does one thing at a time.
    pub(crate) fn run<R: kafka::Request>(
        &mut self,
        version: i16,
        request: &R,
        brokers: impl FnMut(&Sent) -> Does,
    ) -> Ended {
        self.run_head(head(version, request), brokers)
    }

    fn run_head(&mut self, head: RequestHead, brokers: impl FnMut(&Sent) -> Does) -> Ended {
        let version = head.version;
        let started = self.now;
        let mut machine = self.with(|ctx, _| machine(ctx, head)).unwrap();
        let mut run = Run { brokers, events: BTreeMap::new(), busy: BTreeMap::new(), number: 0, wakes: 0 };
        let mut steps = Vec::new();
        self.with(|ctx, cluster| machine.start(ctx, cluster, &mut steps));
        for _ in 0..MOST_EVENTS {
            if let Some(reply) = run.carry_out(self, std::mem::take(&mut steps)) {
                return Ended { after: self.now.since(started), reply, version };
            }
            let ((at, _), event) = run.events.pop_first().expect("the machine waits for nothing");
            self.now = at;
            self.tell(machine.as_mut(), event, run.wakes, &mut steps);
        }
        panic!("no end after {MOST_EVENTS} events")
    }

    fn tell(&mut self, machine: &mut dyn RequestMachine, event: Event, wakes: u64, steps: &mut Vec<Step>) {
        match event {
            Event::Part(part, result) => {
                self.with(|ctx, cluster| machine.on_part(ctx, cluster, part, result, steps));
            }
            Event::Answer(question) => {
                let mut out = Vec::new();
                let waiter = Waiter::Request(RequestId(1));
                self.with(|ctx, cluster| cluster.ask(ctx, question.clone(), waiter, &mut out));
                let answers = self.serve(out);
                let (_, answer) = answers.into_iter().find(|(asked, _)| *asked == question).expect("an answer");
                self.with(|ctx, cluster| machine.on_answer(ctx, cluster, &question, &answer, steps));
            }
            Event::Wake(wake) if wake == wakes => self.with(|ctx, cluster| machine.on_wake(ctx, cluster, steps)),
            Event::Wake(_) => {}
        }
    }
}

/// What is under way around the machine.
struct Run<F> {
    brokers: F,
    events: BTreeMap<(Monotonic, u64), Event>,
    busy: BTreeMap<usize, Monotonic>,
    number: u64,
    wakes: u64,
}

impl<F: FnMut(&Sent) -> Does> Run<F> {
    fn at(&mut self, at: Monotonic, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    fn carry_out(&mut self, rig: &mut Rig, steps: Vec<Step>) -> Option<Reply> {
        for step in steps {
            match step {
                Step::Send { part, target, bytes, answered, deadline } => {
                    assert!(answered, "only Produce has no answers");
                    assert!(!deadline.is_zero());
                    self.send(rig, part, &target, bytes, deadline);
                }
                Step::Ask(question) => {
                    rig.asked.push(question.clone());
                    self.at(rig.now + ETCD_TAKES, Event::Answer(question));
                }
                Step::ForgetPartitionOwner { topic, partition, by } => {
                    rig.cluster.forget_partition_owner(&topic, partition, &by);
                }
                Step::ForgetCoordinator { group, by } => rig.cluster.forget_coordinator(&group, &by),
                Step::Wake(after) => {
                    self.wakes += 1;
                    self.at(rig.now + after, Event::Wake(self.wakes));
                }
                Step::Done(reply) => return Some(reply),
            }
        }
        None
    }

    fn send(&mut self, rig: &mut Rig, part: Part, target: &Target, bytes: Bytes, deadline: Duration) {
        let usable = |number: &usize| !rig.down.contains(number);
        let any = |not: &[Address]| (0..rig.brokers).find(|number| usable(number) && !not.contains(&broker(*number)));
        let chosen = match target {
            Target::Prefer { address, not } => Some(number(address)).filter(usable).or_else(|| any(not)),
            Target::Any { not } => any(not),
            Target::Only(address) => Some(number(address)).filter(usable),
        };
        let Some(broker_number) = chosen else {
            return self.at(rig.now + Duration::from_millis(10), Event::Part(part, PartResult::NotSent));
        };
        let (header, body_at) = RequestHeader::decode(&bytes).unwrap();
        assert_eq!((header.correlation_id, header.client_id), (CORRELATION_ID, Some("rig")));
        let sent =
            Sent { at: rig.now, broker: broker_number, version: header.api_version, body: bytes.slice(body_at..) };
        let address = broker(broker_number);
        let begin = rig.now.max(self.busy.get(&broker_number).copied().unwrap_or(rig.now));
        let (at, result) = match (self.brokers)(&sent) {
            Does::Answer(wait, frame) => {
                let done = begin + wait + Duration::from_millis(1);
                self.busy.insert(broker_number, done);
                (done, PartResult::Answered { address, frame: BytesMut::from(&frame[..]) })
            }
            Does::Lose(fate) => (begin + Duration::from_millis(1), PartResult::Lost { address, fate }),
            Does::Hang => (rig.now + deadline, PartResult::Lost { address, fate: Fate::Unknown }),
        };
        rig.sent.push(sent);
        self.at(at.min(rig.now + deadline), Event::Part(part, result));
    }
}
