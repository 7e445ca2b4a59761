//! Fetch: split by partition owner, asked in rounds, merged.
//!
//! Every broker is asked without a wait first. When that brings too little, the partitions that brought nothing are
//! asked again with short waits, until there is enough or the client's `max_wait` is over ([`wait`]). A partition that
//! is refused or whose connection is lost is asked for again, three times in all; that is safe, because a Fetch changes
//! nothing.

pub(crate) mod merge;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::bridge::Bridge;
use super::expected::Expected;
use super::routes::{Key, Routes, Way};
use crate::cluster::{Address, Answer, Cluster, Question};
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::{
    ErrorCode, FetchRequest, FetchResponse, FetchTopic, PartitionData, Str, batches, patch_fetch_request,
    patch_fetch_response,
};
use crate::listener::request::{Part, PartResult, Reply, RequestHead, RequestMachine, Step, Target, Undecodable};
use crate::planted::{Bug, planted};
use crate::time::Monotonic;
use wait::{FetchWait, Pause, Progress, Verdict};

/// How often a partition is asked for before its refusal goes to the client.
const ROUNDS: u8 = 3;

/// Bytes that a broker is asked to wait for: any record ends its wait.
const ANY_BYTES: i32 = 1;

/// One Fetch.
#[derive(Debug)]
pub(crate) struct Fetch {
    bridge: Bridge,
    request: FetchRequest,
    wait: FetchWait,
    routes: Routes,
    slots: Vec<Slot>,
    asks: BTreeMap<Part, Ask>,
    rests: Vec<Rest>,
    parts: u32,
    throttle_time_ms: i32,
    /// A broker's answer to the whole request that nothing has changed since, so that it may pass as it is.
    whole: Option<Bytes>,
}

/// One partition of the request.
#[derive(Debug)]
struct Slot {
    topic: usize,
    partition: usize,
    /// Known once the topic's name is.
    key: Option<Key>,
    phase: Phase,
    /// What would be reported now.
    latest: Option<Latest>,
    /// Rounds that brought no answer.
    failures: u8,
}

#[derive(Debug)]
struct Latest {
    data: PartitionData,
    /// It must not wait for what others may bring.
    urgent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To be asked for as soon as its broker is known: without a wait, or with one, because it brought nothing before.
    Due { waiting: bool },
    /// Asked for.
    Asked,
    /// Not to be asked for now: it has brought something, has failed, or rests.
    Resting,
}

/// A question to one broker that is under way.
#[derive(Debug)]
struct Ask {
    slots: Vec<usize>,
    at: Monotonic,
    wait_ms: i32,
}

/// Partitions that brought nothing, to be asked for again later.
#[derive(Debug)]
struct Rest {
    slots: Vec<usize>,
    until: Monotonic,
}

impl Slot {
    fn asked<'a>(&self, request: &'a FetchRequest) -> (&'a FetchTopic, i32) {
        let topic = &request.topics[self.topic];
        (topic, topic.partitions[self.partition].partition)
    }

    fn is_empty(&self) -> bool {
        self.latest.as_ref().is_some_and(|latest| !latest.urgent && bytes_of(&latest.data) == 0)
    }

    fn fail(&mut self, request: &FetchRequest, code: ErrorCode) {
        let (_, index) = self.asked(request);
        self.latest = Some(Latest { data: PartitionData::failed(index, code), urgent: true });
        self.phase = Phase::Resting;
    }
}

fn bytes_of(data: &PartitionData) -> u64 {
    data.records.as_ref().map_or(0, |records| records.len() as u64)
}

/// KafScale brokers send one stored segment per partition, however much more there is and whatever `min_bytes` says:
/// waiting for more would hold back a consumer that has to catch up.
fn has_backlog(kind: ClusterKind, data: &PartitionData) -> bool {
    match kind {
        ClusterKind::KafScale => data
            .records
            .as_ref()
            .and_then(|records| batches(records).flatten().last())
            .is_some_and(|batch| batch.header.next_offset() < data.high_watermark),
    }
}

/// A KafScale broker that cannot read etcd takes every partition for an empty one and says that the offset is out of
/// range. A consumer that believed it would begin anew, or skip what it has not read. An offset that really is out of
/// range comes with the watermark that it is compared with; for a partition that was created anew and holds nothing yet
/// the two cannot be told apart, and its consumer asks again until there is a record.
fn takes_it_for_empty(kind: ClusterKind, data: &PartitionData) -> bool {
    match kind {
        ClusterKind::KafScale => data.error_code == ErrorCode::OFFSET_OUT_OF_RANGE && data.high_watermark == 0,
    }
}

impl Fetch {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        let request: FetchRequest = bridge.decode()?;
        let mut slots = Vec::new();
        for (topic, asked) in request.topics.iter().enumerate() {
            slots.extend((0..asked.partitions.len()).map(|partition| Slot {
                topic,
                partition,
                key: None,
                phase: Phase::Due { waiting: false },
                latest: None,
                failures: 0,
            }));
        }
        Ok(Self {
            wait: FetchWait::new(
                ctx.now.monotonic,
                slots.len(),
                ctx.config.listener.granted_wait(request.max_wait_ms),
                request.min_bytes,
                ctx.config.listener.fetch_wait_slice,
            ),
            bridge,
            request,
            routes: Routes::default(),
            slots,
            asks: BTreeMap::new(),
            rests: Vec::new(),
            parts: 0,
            throttle_time_ms: 0,
            whole: None,
        })
    }

    /// Sessions are never offered, so a client that names one has to start anew.
    fn names_a_session(&self) -> bool {
        self.request.session_id != 0 || self.request.session_epoch > 0
    }

    /// Does what can be done now.
    fn go_on(&mut self, ctx: &Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        let now = ctx.now.monotonic;
        // Before anything is asked again: what has come may be enough.
        let progress = self.progress();
        if self.wait.verdict(now, progress) != Verdict::Answer {
            let is_over = |rest: &mut Rest| self.wait.end_of_rest(rest.until, progress.unanswered) <= now;
            for rest in self.rests.extract_if(.., is_over) {
                for slot in rest.slots {
                    self.slots[slot].phase = Phase::Due { waiting: true };
                }
            }
            self.ask_for_due(ctx, cluster, steps);
        }
        let progress = self.progress();
        match self.wait.verdict(now, progress) {
            Verdict::Answer => steps.push(Step::Done(self.answer())),
            Verdict::Wait(until) => {
                let rests = self.rests.iter().map(|rest| self.wait.end_of_rest(rest.until, progress.unanswered));
                if let Some(at) = rests.chain(until).min() {
                    steps.push(Step::Wake(at.since(now)));
                }
            }
        }
    }

    fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        for slot in &self.slots {
            match &slot.latest {
                None => progress.unanswered += 1,
                Some(latest) => {
                    progress.answered += 1;
                    progress.bytes += bytes_of(&latest.data);
                    progress.urgent |= latest.urgent;
                }
            }
        }
        progress
    }

    fn ask_for_due(&mut self, ctx: &Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        let mut groups: BTreeMap<Way, Vec<usize>> = BTreeMap::new();
        for slot in 0..self.slots.len() {
            if matches!(self.slots[slot].phase, Phase::Due { .. }) {
                match self.way(ctx, cluster, slot) {
                    Way::Ask(question) => self.routes.want(question),
                    Way::Stale => self.fail(slot, ErrorCode::NOT_LEADER_OR_FOLLOWER),
                    Way::Absent => self.fail(slot, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
                    way @ (Way::Broker(_) | Way::Anyone) => groups.entry(way).or_default().push(slot),
                }
            }
        }
        self.routes.put_questions(steps);
        for (way, slots) in groups {
            self.send(ctx.now.monotonic, way, slots, steps);
        }
    }

    fn way(&mut self, ctx: &Context<'_>, cluster: &Cluster, slot: usize) -> Way {
        let now = ctx.now.monotonic;
        if let Some(key) = &self.slots[slot].key {
            return self.routes.way(cluster, now, key);
        }
        let (topic, partition) = self.slots[slot].asked(&self.request);
        let name = if topic.topic_id == [0; 16] {
            Some(topic.topic.as_str())
        } else {
            cluster.snapshot().and_then(|snapshot| snapshot.topic_by_id(&topic.topic_id)).map(|topic| &*topic.name)
        };
        let key = match name {
            Some(name) => Key::Partition { topic: name.to_owned(), partition },
            None if self.routes.may_ask(&Question::Snapshot) => return Way::Ask(Question::Snapshot),
            // Whoever is asked knows no better, and says so.
            None => Key::Anyone,
        };
        self.routes.way(cluster, now, self.slots[slot].key.insert(key))
    }

    fn send(&mut self, now: Monotonic, way: Way, slots: Vec<usize>, steps: &mut Vec<Step>) {
        let deadline = self.wait.deadline(now);
        if deadline.is_zero() {
            return slots.into_iter().for_each(|slot| self.fail(slot, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
        let target = match way {
            Way::Broker(address) => Target::Only(address),
            Way::Anyone | Way::Ask(_) | Way::Absent | Way::Stale => Target::Any { not: Vec::new() },
        };
        let wait_ms = if slots.iter().all(|slot| self.slots[*slot].phase == Phase::Due { waiting: true }) {
            self.wait.wait_ms(now, slots.len())
        } else if self.parts == 0 {
            self.wait.first_wait_ms(self.slots.len())
        } else {
            0
        };
        for slot in &slots {
            self.slots[*slot].phase = Phase::Asked;
        }
        let part = Part(self.parts);
        self.parts += 1;
        let bytes = self.sub_request(&slots, wait_ms);
        steps.push(Step::Send { part, target, bytes, answered: true, deadline });
        self.asks.insert(part, Ask { slots, at: now, wait_ms });
    }

    /// The client's bytes with a few fields patched, where they may pass; else a request of its own.
    fn sub_request(&self, slots: &[usize], wait_ms: i32) -> Bytes {
        let all = slots.len() == self.slots.len() && self.request.forgotten_topics_data.is_empty();
        if all && self.bridge.passes() {
            let version = self.bridge.client_version();
            let mut frame = BytesMut::from(&self.bridge.original()[..]);
            let body = &mut frame[self.bridge.body_at()..];
            if patch_fetch_request(body, version, wait_ms, ANY_BYTES, self.request.max_bytes).is_ok() {
                return frame.freeze();
            }
        }
        self.bridge.request(&self.part_of_request(slots, wait_ms))
    }

    fn part_of_request(&self, slots: &[usize], wait_ms: i32) -> FetchRequest {
        let mut topics: Vec<FetchTopic> = Vec::new();
        let mut last = None;
        for slot in slots {
            let Slot { topic, partition, .. } = self.slots[*slot];
            let asked = &self.request.topics[topic];
            if last != Some(topic) {
                topics.push(FetchTopic { partitions: Vec::new(), ..asked.clone() });
                last = Some(topic);
            }
            if let Some(entry) = topics.last_mut() {
                entry.partitions.push(asked.partitions[partition].clone());
            }
        }
        FetchRequest {
            replica_id: self.request.replica_id,
            max_wait_ms: wait_ms,
            min_bytes: ANY_BYTES,
            max_bytes: self.request.max_bytes,
            isolation_level: self.request.isolation_level,
            session_id: 0,
            session_epoch: -1,
            topics,
            forgotten_topics_data: Vec::new(),
            rack_id: self.request.rack_id.clone(),
            cluster_id: None,
        }
    }

    fn answered(&mut self, ctx: &Context<'_>, ask: Ask, address: &Address, mut frame: BytesMut, steps: &mut Vec<Step>) {
        let patched = self.bridge.patch(&mut frame, |body, version| patch_fetch_response(body, version, |_| {}));
        let frame = frame.freeze();
        let (Ok(patched), Ok(response)) = (patched, self.bridge.response::<FetchResponse>(&frame)) else {
            return self.lost(ask.slots);
        };
        self.throttle_time_ms = self.throttle_time_ms.max(response.throttle_time_ms);
        if response.error_code != ErrorCode::NONE {
            steps.push(Step::Done(self.bridge.answer(&merge::refusal(
                &self.request,
                self.bridge.client_version(),
                response.error_code,
                response.error_code,
            ))));
            return;
        }
        let passes = self.bridge.passes()
            && (!patched.leader_hints || planted(Bug::HintLetThrough))
            && merge::is_presentable(&response);
        self.whole = (passes && ask.slots.len() == self.slots.len()).then_some(frame);

        let mut expected = Expected::new(&ask.slots, |slot| {
            let (topic, partition) = self.slots[slot].asked(&self.request);
            Named::new(topic.topic_id, &topic.topic, partition)
        });
        let mut answered = Vec::with_capacity(ask.slots.len());
        for topic in response.responses {
            for data in topic.partitions {
                if let Some(slot) = expected.take(&Named::new(topic.topic_id, &topic.topic, data.partition_index)) {
                    answered.push((slot, data));
                }
            }
        }
        let missing = expected.left();
        for (slot, data) in answered {
            if data.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER {
                self.refused(slot, address, steps);
            } else if takes_it_for_empty(ctx.config.cluster.kind, &data) {
                self.fail(slot, ErrorCode::NOT_LEADER_OR_FOLLOWER);
            } else {
                let urgent = data.error_code != ErrorCode::NONE || has_backlog(ctx.config.cluster.kind, &data);
                self.slots[slot].latest = Some(Latest { data, urgent });
                self.slots[slot].phase = Phase::Resting;
            }
        }
        self.lost(missing);
        self.rest(ctx.now.monotonic, &ask);
    }

    fn rest(&mut self, now: Monotonic, ask: &Ask) {
        let brought_nothing = |slot: &usize| self.slots[*slot].phase == Phase::Resting && self.slots[*slot].is_empty();
        let slots: Vec<usize> = ask.slots.iter().copied().filter(brought_nothing).collect();
        if slots.is_empty() {
            return;
        }
        match self.wait.pause(now, ask.at, ask.wait_ms, slots.len()) {
            Pause::Until(until) => self.rests.push(Rest { slots, until }),
            Pause::ForGood => {}
        }
    }

    /// The broker does not own this partition any more.
    fn refused(&mut self, slot: usize, by: &Address, steps: &mut Vec<Step>) {
        if self.again(slot)
            && let Some(key) = &self.slots[slot].key
        {
            self.routes.refused(key, by, steps);
        }
    }

    /// The broker could not be reached, and no other may be asked instead.
    fn unreachable(&mut self, slot: usize) {
        if self.again(slot)
            && let Some(key) = &self.slots[slot].key
        {
            self.routes.unreachable(key);
        }
    }

    /// No usable answer came for these.
    fn lost(&mut self, slots: Vec<usize>) {
        for slot in slots {
            self.again(slot);
        }
    }

    /// Whether there is another round for this partition; otherwise it has failed.
    fn again(&mut self, slot: usize) -> bool {
        self.whole = None;
        self.slots[slot].failures += 1;
        if self.slots[slot].failures < ROUNDS {
            self.slots[slot].phase = Phase::Due { waiting: false };
            return true;
        }
        self.fail(slot, ErrorCode::NOT_LEADER_OR_FOLLOWER);
        false
    }

    fn fail(&mut self, slot: usize, code: ErrorCode) {
        self.whole = None;
        self.slots[slot].fail(&self.request, code);
    }

    fn answer(&mut self) -> Reply {
        if let Some(frame) = self.whole.take() {
            return Bridge::pass(frame);
        }
        let version = self.bridge.client_version();
        let request = &self.request;
        let several = self.parts > 1;
        let partitions = self.slots.iter_mut().map(|slot| match slot.latest.take() {
            Some(latest) => merge::presented(version, latest.data),
            None => PartitionData::nothing(slot.asked(request).1),
        });
        let limit = several.then_some(request.max_bytes);
        self.bridge.answer(&merge::response(request, self.throttle_time_ms, limit, partitions))
    }
}

impl RequestMachine for Fetch {
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        if self.names_a_session() {
            let code = ErrorCode::FETCH_SESSION_ID_NOT_FOUND;
            let response = merge::refusal(&self.request, self.bridge.client_version(), code, code);
            steps.push(Step::Done(self.bridge.answer(&response)));
        } else if self.slots.is_empty() {
            steps.push(Step::Done(self.answer()));
        } else {
            self.go_on(ctx, cluster, steps);
        }
    }

    fn on_part(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        part: Part,
        result: PartResult,
        steps: &mut Vec<Step>,
    ) {
        let Some(ask) = self.asks.remove(&part) else { return };
        match result {
            PartResult::Answered { address, frame } => self.answered(ctx, ask, &address, frame, steps),
            PartResult::Lost { address: _, fate: _ } => self.lost(ask.slots),
            PartResult::NotSent => ask.slots.into_iter().for_each(|slot| self.unreachable(slot)),
        }
        if !matches!(steps.last(), Some(Step::Done(_))) {
            self.go_on(ctx, cluster, steps);
        }
    }

    fn on_answer(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        question: &Question,
        _: &Answer,
        steps: &mut Vec<Step>,
    ) {
        if self.routes.answered(question) {
            self.go_on(ctx, cluster, steps);
        }
    }

    fn items(&self) -> usize {
        self.slots.len()
    }

    fn on_wake(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        self.go_on(ctx, cluster, steps);
    }
}

/// How a partition is named on the wire: by the topic's id where the request has one, else by its name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    id: [u8; 16],
    /// Empty beside an id.
    name: Str,
    partition: i32,
}

impl Named {
    fn new(id: [u8; 16], name: &Str, partition: i32) -> Self {
        let name = if id == [0; 16] { name.clone() } else { Str::default() };
        Self { id, name, partition }
    }
}
