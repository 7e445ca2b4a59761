//! OffsetFetch: to the coordinator, with what KafScale brokers leave out made good from etcd.
//!
//! Their answer for a partition that was never committed is offset 0 instead of -1, so that `auto.offset.reset` would
//! never apply, and they answer nothing when all topics are asked for. Which partitions were ever committed is known
//! from the keys in etcd.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::DEADLINE;
use super::call::{Called, CoordinatorCall};
use crate::cluster::{Answer, Cluster, Question};
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::Refuse;
use crate::kafka::{
    ErrorCode, Message, OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse, OffsetFetchResponsePartition,
    Str,
};
use crate::listener::bridge::Bridge;
use crate::listener::request::{Part, PartResult, RequestHead, RequestMachine, Step, Undecodable};

/// First version with an error of the whole answer.
const TOP_LEVEL: i16 = 2;

/// One OffsetFetch.
#[derive(Debug)]
pub(crate) struct OffsetFetch {
    bridge: Bridge,
    request: OffsetFetchRequest,
    call: CoordinatorCall,
    state: State,
}

#[derive(Debug)]
enum State {
    /// All topics were asked for: which are there?
    Expanding,
    /// The coordinator is asked. Its zeroes are not believed yet.
    Asking,
    /// It answered 0 for some partitions: were they ever committed?
    Doubting(OffsetFetchResponse),
    /// Some were, perhaps since it answered: it is asked once more. The others were not.
    AskingAgain(BTreeSet<(String, i32)>),
}

impl OffsetFetch {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        let mut request: OffsetFetchRequest = bridge.decode()?;
        match ctx.config.cluster.kind {
            // There are no transactions that could be open.
            ClusterKind::KafScale => request.require_stable = false,
        }
        let call = CoordinatorCall::new(ctx.now.monotonic, &request.group_id, DEADLINE);
        let state = if request.topics.is_none() { State::Expanding } else { State::Asking };
        Ok(Self { bridge, request, call, state })
    }

    fn question(&self) -> Question {
        Question::CommittedPartitions { group: self.request.group_id.as_str().to_owned() }
    }

    fn refuse(&self, code: ErrorCode, steps: &mut Vec<Step>) {
        steps.push(Step::Done(self.bridge.answer(&self.request.refusal(code))));
    }

    fn send(&mut self, ctx: &Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        let bytes = self.bridge.request(&self.request);
        let called = self.call.send(cluster, ctx.now.monotonic, bytes, steps);
        self.called(ctx, cluster, called, steps);
    }

    fn called(&mut self, ctx: &Context<'_>, cluster: &Cluster, called: Called, steps: &mut Vec<Step>) {
        match called {
            Called::Pending => {}
            Called::Exhausted => self.refuse(ErrorCode::NOT_COORDINATOR, steps),
            Called::Answered { address, frame } => {
                let next = match self.bridge.response::<OffsetFetchResponse>(&frame) {
                    Ok(response) if code(&response) == ErrorCode::NOT_COORDINATOR => self.call.refused(address, steps),
                    Ok(response) => return self.answered(ctx, response, frame, steps),
                    Err(_) => self.call.lost(cluster, ctx.now.monotonic, address, steps),
                };
                self.called(ctx, cluster, next, steps);
            }
        }
    }

    fn answered(&mut self, ctx: &Context<'_>, mut response: OffsetFetchResponse, frame: Bytes, steps: &mut Vec<Step>) {
        match &self.state {
            State::AskingAgain(committed) => {
                never_committed(&mut response, committed);
                self.finish(response, steps);
            }
            State::Expanding | State::Asking | State::Doubting(_) => {
                let doubtful = match ctx.config.cluster.kind {
                    ClusterKind::KafScale => partitions(&mut response).any(|(_, partition)| is_zero(partition)),
                };
                if doubtful {
                    self.state = State::Doubting(response);
                    steps.push(Step::Ask(self.question()));
                } else if self.bridge.passes() {
                    steps.push(Step::Done(Bridge::pass(frame)));
                } else {
                    self.finish(response, steps);
                }
            }
        }
    }

    fn committed(&mut self, ctx: &Context<'_>, cluster: &Cluster, committed: &[(String, i32)], steps: &mut Vec<Step>) {
        match std::mem::replace(&mut self.state, State::Asking) {
            State::Expanding => {
                let topics = by_topic(committed);
                let nothing = topics.is_empty();
                self.request.topics = Some(topics);
                if nothing {
                    return self.finish(OffsetFetchResponse::default(), steps);
                }
                self.state = State::AskingAgain(committed.iter().cloned().collect());
                self.send(ctx, cluster, steps);
            }
            State::Doubting(mut response) => {
                let committed: BTreeSet<_> = committed.iter().cloned().collect();
                let doubtful = partitions(&mut response).any(|(topic, partition)| {
                    is_zero(partition) && committed.contains(&(topic.to_owned(), partition.partition_index))
                });
                if doubtful {
                    self.state = State::AskingAgain(committed);
                    self.send(ctx, cluster, steps);
                } else {
                    never_committed(&mut response, &committed);
                    self.finish(response, steps);
                }
            }
            state @ (State::Asking | State::AskingAgain(_)) => self.state = state,
        }
    }

    fn finish(&self, mut response: OffsetFetchResponse, steps: &mut Vec<Step>) {
        if self.bridge.client_version() < TOP_LEVEL && response.error_code != ErrorCode::NONE {
            response = self.request.refusal(response.error_code);
        }
        steps.push(Step::Done(self.bridge.answer(&response)));
    }
}

impl RequestMachine for OffsetFetch {
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        if self.request.lost_in(self.bridge.broker_version()).is_some() {
            self.refuse(ErrorCode::UNSUPPORTED_VERSION, steps);
        } else if matches!(self.state, State::Expanding) {
            match ctx.config.cluster.kind {
                ClusterKind::KafScale => steps.push(Step::Ask(self.question())),
            }
        } else {
            self.send(ctx, cluster, steps);
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
        let called = self.call.on_part(cluster, ctx.now.monotonic, part, result, steps);
        self.called(ctx, cluster, called, steps);
    }

    fn on_answer(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        question: &Question,
        answer: &Answer,
        steps: &mut Vec<Step>,
    ) {
        if *question != self.question() {
            let called = self.call.on_answer(cluster, ctx.now.monotonic, question, steps);
            return self.called(ctx, cluster, called, steps);
        }
        match answer {
            Answer::CommittedPartitions(committed) => self.committed(ctx, cluster, committed, steps),
            // A guess could make a consumer skip or repeat records: it looks for its coordinator and asks again.
            Answer::Unreadable(_) | Answer::Learned | Answer::Generation(_) | Answer::ProducerId(_) => {
                self.refuse(ErrorCode::NOT_COORDINATOR, steps);
            }
        }
    }

    fn on_wake(&mut self, _: &mut Context<'_>, _: &Cluster, _: &mut Vec<Step>) {}
}

/// First error of a partition, else that of the whole answer.
fn code(response: &OffsetFetchResponse) -> ErrorCode {
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    let first = partitions.map(|partition| partition.error_code).find(|code| *code != ErrorCode::NONE);
    first.unwrap_or(response.error_code)
}

fn partitions(response: &mut OffsetFetchResponse) -> impl Iterator<Item = (&str, &mut OffsetFetchResponsePartition)> {
    response.topics.iter_mut().flat_map(|topic| {
        let name = topic.name.as_str();
        topic.partitions.iter_mut().map(move |partition| (name, partition))
    })
}

fn is_zero(partition: &OffsetFetchResponsePartition) -> bool {
    partition.error_code == ErrorCode::NONE && partition.committed_offset == 0
}

/// Zeroes of partitions that are not among the committed ones become -1.
fn never_committed(response: &mut OffsetFetchResponse, committed: &BTreeSet<(String, i32)>) {
    for (topic, partition) in partitions(response) {
        if is_zero(partition) && !committed.contains(&(topic.to_owned(), partition.partition_index)) {
            partition.committed_offset = -1;
            partition.committed_leader_epoch = -1;
        }
    }
}

/// `committed` is in key order, so the partitions of a topic stand together.
fn by_topic(committed: &[(String, i32)]) -> Vec<OffsetFetchRequestTopic> {
    committed
        .chunk_by(|(left, _), (right, _)| left == right)
        .map(|partitions| OffsetFetchRequestTopic {
            name: Str::from(partitions[0].0.as_str()),
            partition_indexes: partitions.iter().map(|(_, partition)| *partition).collect(),
        })
        .collect()
}
