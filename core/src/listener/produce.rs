//! Produce: the requests of one client, split by partition owner and merged again (kafka-listener contract section 4).
//!
//! The order of batches is the lanes' business ([`lanes`](super::lanes)); one request's parts and answers are
//! [`request`]'s. This machine joins them: a request that goes to one broker whole is sent as the bytes that came
//! in, and its answer passes as it came.

mod request;

use std::collections::BTreeMap;
use std::mem;

use crate::broker::Fate;
use crate::cluster::{Cluster, Question};
use crate::context::Context;
use crate::kafka::ErrorCode;
use crate::listener::RequestId;
use crate::listener::lane_table::{LaneId, LaneTable};
use crate::listener::lanes::{Batch, BatchResult, LaneStep, Lesson};
use crate::listener::request::{Part, PartResult, RequestHead, Step, Target, Undecodable};
use crate::listener::routes::proves_all;
use request::{Entries, Produce};

/// What the producer wants, and for which request.
pub(super) type ProduceSteps = Vec<(RequestId, Step)>;

/// All Produce requests of one client.
pub(super) struct Producer {
    lanes: LaneTable,
    requests: BTreeMap<RequestId, Produce>,
    /// Lanes that wait for etcd, by the request that has asked.
    asking: BTreeMap<(RequestId, Question), Vec<(LaneId, Lesson)>>,
    /// Lanes that need an answer of etcd for this request, not asked yet.
    wanted: BTreeMap<RequestId, Vec<(LaneId, Lesson)>>,
    sends: Vec<Send>,
    /// Requests of which a partition was answered in this call.
    touched: Vec<RequestId>,
    scratch: Vec<LaneStep>,
}

/// A batch that may leave now.
struct Send {
    batch: Batch,
    target: Target,
}

impl Producer {
    pub(super) fn new() -> Self {
        Self {
            lanes: LaneTable::new(),
            requests: BTreeMap::new(),
            asking: BTreeMap::new(),
            wanted: BTreeMap::new(),
            sends: Vec::new(),
            touched: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Takes a request, later than all before, and tells how many partitions it has. Cluster knowledge is fresh by now.
    pub(super) fn submit(
        &mut self,
        ctx: &Context<'_>,
        cluster: &Cluster,
        id: RequestId,
        head: RequestHead,
        out: &mut ProduceSteps,
    ) -> Result<usize, Undecodable> {
        self.lanes.retire_idle();
        let request = Produce::new(head, &mut self.lanes, &ctx.config.listener)?;
        let count = request.len();
        self.requests.insert(id, request);
        for entry in (0..).take(count) {
            let Some(lane) = self.requests.get(&id).and_then(|request| request.lane(entry)) else { continue };
            let mut steps = mem::take(&mut self.scratch);
            self.lanes.offer(lane, Batch { request: id, entry }, cluster, ctx.now.monotonic, &mut steps);
            self.take_steps(id, lane, steps, out);
        }
        self.touched.push(id);
        self.flush(out);
        Ok(count)
    }

    /// A part of a request is over.
    pub(super) fn on_part(
        &mut self,
        ctx: &Context<'_>,
        cluster: &Cluster,
        id: RequestId,
        (part, result): (Part, PartResult),
        out: &mut ProduceSteps,
    ) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let results = match result {
            PartResult::Answered { address, frame } => request.answered(part, &address, frame, &self.lanes),
            PartResult::NotSent => request.not_sent(part, &BatchResult::NotSent),
            PartResult::Lost { address, fate: Fate::NotApplied } => {
                request.not_sent(part, &BatchResult::NotApplied { by: address })
            }
            PartResult::Lost { address: _, fate: Fate::Unknown } => request.unknown(part),
        };
        self.apply(ctx, cluster, id, results, out);
    }

    /// A part that no broker answers was handed to its socket.
    pub(super) fn on_silent(
        &mut self,
        ctx: &Context<'_>,
        cluster: &Cluster,
        id: RequestId,
        part: Part,
        out: &mut ProduceSteps,
    ) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let results = request.silent(part);
        self.apply(ctx, cluster, id, results, out);
    }

    /// A question is answered; what was learned is in `cluster`.
    pub(super) fn on_answer(
        &mut self,
        ctx: &Context<'_>,
        cluster: &Cluster,
        id: RequestId,
        question: &Question,
        out: &mut ProduceSteps,
    ) {
        for (lane, lesson) in self.asking.remove(&(id, question.clone())).unwrap_or_default() {
            let mut steps = mem::take(&mut self.scratch);
            self.lanes.on_learned(lane, lesson, cluster, ctx.now.monotonic, &mut steps);
            self.take_steps(id, lane, steps, out);
        }
        self.flush(out);
    }

    fn apply(
        &mut self,
        ctx: &Context<'_>,
        cluster: &Cluster,
        id: RequestId,
        results: Vec<(u32, LaneId, BatchResult)>,
        out: &mut ProduceSteps,
    ) {
        for (entry, lane, result) in results {
            let mut steps = mem::take(&mut self.scratch);
            let known = (Batch { request: id, entry }, result);
            self.lanes.on_result(lane, known, cluster, ctx.now.monotonic, &mut steps);
            self.take_steps(id, lane, steps, out);
        }
        self.touched.push(id);
        self.flush(out);
    }

    fn take_steps(&mut self, id: RequestId, lane: LaneId, mut steps: Vec<LaneStep>, out: &mut ProduceSteps) {
        for step in steps.drain(..) {
            match step {
                LaneStep::Send { batch, to } => self.sends.push(Send { batch, target: Target::Only(to) }),
                LaneStep::Resend { batch, prefer, not } => {
                    // A broker that does not own the partition drops what it need not answer.
                    let is_silent = self.requests.get(&batch.request).is_some_and(Produce::is_silent);
                    let target = match prefer {
                        Some(address) if is_silent => Target::Only(address),
                        Some(address) => Target::Prefer { address, not },
                        None => Target::Any { not },
                    };
                    self.sends.push(Send { batch, target });
                }
                LaneStep::Learn { batch, lesson } => {
                    self.wanted.entry(batch.request).or_default().push((lane, lesson));
                }
                LaneStep::Forget { by } => {
                    let (topic, partition) = self.lanes.partition(lane);
                    out.push((id, Step::ForgetPartitionOwner { topic: topic.to_string(), partition, by }));
                }
                LaneStep::Fail { batch, code } => {
                    if let Some(request) = self.requests.get_mut(&batch.request) {
                        request.fail(batch.entry, code.map_or(ErrorCode::REQUEST_TIMED_OUT, ErrorCode));
                        self.touched.push(batch.request);
                    }
                }
            }
        }
        self.scratch = steps;
    }

    /// Asks what lanes need. Many owners are not read one by one, as in [`Routes`](super::routes::Routes); routes that the
    /// one answer is to restore have been dropped by then.
    fn put_questions(&mut self, out: &mut ProduceSteps) {
        for (request, wanted) in mem::take(&mut self.wanted) {
            let together = proves_all(wanted.iter().filter(|(_, lesson)| *lesson == Lesson::Owner).count());
            let all = (request, Question::PartitionOwners);
            if together && self.asking.contains_key(&all) {
                self.wanted.insert(request, wanted);
                continue;
            }
            for (lane, lesson) in wanted {
                let question = match lesson {
                    Lesson::Owner if together => Question::PartitionOwners,
                    Lesson::Freshness | Lesson::Snapshot | Lesson::Owner => self.question(lane, lesson),
                };
                let waiting = self.asking.entry((request, question.clone())).or_default();
                if waiting.is_empty() {
                    out.push((request, Step::Ask(question)));
                }
                waiting.push((lane, lesson));
            }
        }
    }

    fn question(&self, lane: LaneId, lesson: Lesson) -> Question {
        match lesson {
            Lesson::Freshness => Question::Freshness,
            Lesson::Snapshot => Question::Snapshot,
            Lesson::Owner => {
                let (topic, partition) = self.lanes.partition(lane);
                Question::PartitionOwner { topic: topic.to_string(), partition }
            }
        }
    }

    /// Turns what may leave into parts, older requests first, and ends the requests that are answered.
    fn flush(&mut self, out: &mut ProduceSteps) {
        self.put_questions(out);
        // Lanes release their batches in order; across lanes, an older request must not follow a younger one to the
        // same broker, or the lane they share would be out of order there.
        self.sends.sort_by_key(|send| send.batch.request);
        let mut sends = mem::take(&mut self.sends);
        let mut rest = sends.drain(..).peekable();
        while let Some(first) = rest.next() {
            let id = first.batch.request;
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let mut groups = Groups::of(first);
            while let Some(next) = rest.next_if(|next| next.batch.request == id) {
                groups.add(next);
            }
            for (target, entries) in groups.finish(request.len()) {
                out.push((id, request.send(target, entries)));
            }
        }
        drop(rest);
        self.sends = sends;
        for id in self.touched.drain(..) {
            if self.requests.get(&id).is_some_and(Produce::is_over)
                && let Some(request) = self.requests.remove(&id)
            {
                out.push((id, Step::Done(request.reply())));
            }
        }
    }
}

/// The batches of one request that leave now, by target, in the order of their first batches.
struct Groups(Vec<(Target, Vec<u32>)>);

impl Groups {
    fn of(first: Send) -> Self {
        Self(vec![(first.target, vec![first.batch.entry])])
    }

    fn add(&mut self, send: Send) {
        match self.0.iter_mut().find(|(target, _)| *target == send.target) {
            Some((_, entries)) => entries.push(send.batch.entry),
            None => self.0.push((send.target, vec![send.batch.entry])),
        }
    }

    /// `count`: how many partitions the request has.
    fn finish(self, count: usize) -> impl Iterator<Item = (Target, Entries)> {
        self.0.into_iter().map(move |(target, mut entries)| {
            if entries.len() == count {
                return (target, Entries::All);
            }
            entries.sort_unstable();
            (target, Entries::Some(entries))
        })
    }
}
