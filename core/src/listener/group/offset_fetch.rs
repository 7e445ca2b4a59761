//! OffsetFetch: to the coordinator, with what KafScale brokers leave out made good from etcd.
//!
//! Their answer for a partition that was never committed is offset 0 instead of -1, so that `auto.offset.reset` would
//! never apply, and they answer nothing when all topics are asked for. Which partitions were ever committed is known
//! from the keys in etcd.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::DEADLINE;
use super::coordinated::{Conversation, Next};
use crate::cluster::{Answer, Question};
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::{
    ErrorCode, Message, OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse, OffsetFetchResponsePartition,
    Refuse, Str,
};
use crate::listener::bridge::Bridge;
use crate::listener::request::Undecodable;
use crate::time::Monotonic;

/// First version with an error of the whole answer.
const TOP_LEVEL: i16 = 2;

/// One OffsetFetch.
#[derive(Debug)]
pub(crate) struct OffsetFetch {
    request: OffsetFetchRequest,
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

impl Conversation for OffsetFetch {
    type Request = OffsetFetchRequest;

    fn read(ctx: &Context<'_>, bridge: &Bridge) -> Result<Self, Undecodable> {
        let mut request: OffsetFetchRequest = bridge.decode()?;
        match ctx.config.cluster.kind {
            // There are no transactions that could be open.
            ClusterKind::KafScale => request.require_stable = false,
        }
        let state = if request.topics.is_none() { State::Expanding } else { State::Asking };
        Ok(Self { request, state })
    }

    fn request(&self) -> &OffsetFetchRequest {
        &self.request
    }

    fn group(&self) -> &str {
        &self.request.group_id
    }

    fn deadline(&self, _: Monotonic) -> Duration {
        DEADLINE
    }

    fn begin(&mut self, ctx: &Context<'_>, bridge: &Bridge) -> Next {
        if self.request.lost_in(bridge.broker_version()).is_some() {
            Next::Refuse(ErrorCode::UNSUPPORTED_VERSION)
        } else if matches!(self.state, State::Expanding) {
            match ctx.config.cluster.kind {
                ClusterKind::KafScale => self.ask_what_is_committed(),
            }
        } else {
            Next::Send(bridge.request(&self.request))
        }
    }

    /// First error of a partition, else that of the whole answer.
    fn code(response: &OffsetFetchResponse) -> ErrorCode {
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        let first = partitions.map(|partition| partition.error_code).find(|code| *code != ErrorCode::NONE);
        first.unwrap_or(response.error_code)
    }

    fn answered(
        &mut self,
        ctx: &Context<'_>,
        bridge: &Bridge,
        mut response: OffsetFetchResponse,
        frame: Bytes,
    ) -> Next {
        match &self.state {
            State::AskingAgain(committed) => {
                never_committed(&mut response, committed);
                self.finish(bridge, response)
            }
            State::Expanding | State::Asking | State::Doubting(_) => {
                let doubtful = match ctx.config.cluster.kind {
                    ClusterKind::KafScale => partitions(&mut response).any(|(_, partition)| is_zero(partition)),
                };
                if doubtful {
                    self.state = State::Doubting(response);
                    self.ask_what_is_committed()
                } else if bridge.passes() {
                    Next::Answer(Bridge::pass(frame))
                } else {
                    self.finish(bridge, response)
                }
            }
        }
    }

    fn learned(&mut self, bridge: &Bridge, answer: &Answer) -> Next {
        match answer {
            Answer::CommittedPartitions(committed) => self.committed(bridge, committed),
            // A guess could make a consumer skip or repeat records: it looks for its coordinator and asks again.
            Answer::Unreadable(_) | Answer::Learned | Answer::Generation(_) | Answer::ProducerId(_) => {
                Next::Refuse(ErrorCode::NOT_COORDINATOR)
            }
        }
    }
}

impl OffsetFetch {
    fn ask_what_is_committed(&self) -> Next {
        Next::Ask(Question::CommittedPartitions { group: self.request.group_id.as_str().to_owned() })
    }

    fn committed(&mut self, bridge: &Bridge, committed: &[(String, i32)]) -> Next {
        match std::mem::replace(&mut self.state, State::AskingAgain(committed.iter().cloned().collect())) {
            State::Doubting(mut response) => {
                let committed: BTreeSet<_> = committed.iter().cloned().collect();
                let doubtful = partitions(&mut response).any(|(topic, partition)| {
                    is_zero(partition) && committed.contains(&(topic.to_owned(), partition.partition_index))
                });
                if !doubtful {
                    never_committed(&mut response, &committed);
                    return self.finish(bridge, response);
                }
            }
            State::Expanding => {
                let topics = by_topic(committed);
                let nothing = topics.is_empty();
                self.request.topics = Some(topics);
                if nothing {
                    return self.finish(bridge, OffsetFetchResponse::default());
                }
            }
            State::Asking | State::AskingAgain(_) => unreachable!("in these states nothing is asked of etcd"),
        }
        Next::Send(bridge.request(&self.request))
    }

    fn finish(&self, bridge: &Bridge, mut response: OffsetFetchResponse) -> Next {
        if bridge.client_version() < TOP_LEVEL && response.error_code != ErrorCode::NONE {
            response = self.request.refusal(response.error_code);
        }
        Next::Answer(bridge.answer(&response))
    }
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
