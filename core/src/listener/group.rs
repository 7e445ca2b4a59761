//! SyncGroup, Heartbeat and OffsetCommit: to the coordinator of the group and back.

mod call;
pub(crate) mod join;
pub(crate) mod leave;
pub(crate) mod offset_fetch;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::bridge::Bridge;
use crate::cluster::{Answer, Cluster, Question};
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::Refuse;
use crate::kafka::{
    ErrorCode, HeartbeatRequest, HeartbeatResponse, OffsetCommitRequest, OffsetCommitResponse, Request,
    SyncGroupRequest, SyncGroupResponse,
};
use crate::listener::request::{Part, PartResult, Reply, RequestHead, RequestMachine, Step, Undecodable};
use call::{Called, CoordinatorCall};

/// Time that a coordinator has for most calls.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A request to the coordinator of one group.
pub(crate) trait GroupRequest: Refuse {
    /// Time that the coordinator has for it.
    const DEADLINE: Duration;

    /// The group.
    fn group(&self) -> &str;

    /// Takes out what brokers need not know; false when something is left that must not be dropped in silence.
    fn simplify(&mut self) -> bool;

    /// Where the answer says NOT_COORDINATOR, if it does.
    fn code(response: &Self::Response) -> ErrorCode;

    /// Every code of the answer.
    fn codes(response: &mut Self::Response) -> impl Iterator<Item = &mut ErrorCode>;
}

/// Lets a member that is to join again do so under its id. Whether anything changed.
///
/// KafScale brokers count a new generation as soon as somebody comes or goes, and say ILLEGAL_GENERATION to members of the
/// old one. In Kafka the generation stays until all have joined again: meanwhile it tells members REBALANCE_IN_PROGRESS, and still
/// takes their commits. On ILLEGAL_GENERATION some clients forget their member id (aiokafka, on a heartbeat): the member that
/// they were stays behind and keeps the group from settling. A commit that these brokers refuse is lost either way; with
/// this code the member joins again under its id and reads from its last commit.
fn tell_of_rebalance<'a>(codes: impl Iterator<Item = &'a mut ErrorCode>) -> bool {
    let mut changed = false;
    for code in codes.filter(|code| **code == ErrorCode::ILLEGAL_GENERATION) {
        *code = ErrorCode::REBALANCE_IN_PROGRESS;
        changed = true;
    }
    changed
}

impl GroupRequest for SyncGroupRequest {
    const DEADLINE: Duration = Duration::from_secs(60);

    fn group(&self) -> &str {
        &self.group_id
    }

    fn simplify(&mut self) -> bool {
        self.group_instance_id.is_none()
    }

    fn code(response: &SyncGroupResponse) -> ErrorCode {
        response.error_code
    }

    fn codes(response: &mut SyncGroupResponse) -> impl Iterator<Item = &mut ErrorCode> {
        std::iter::once(&mut response.error_code)
    }
}

impl GroupRequest for HeartbeatRequest {
    const DEADLINE: Duration = DEADLINE;

    fn group(&self) -> &str {
        &self.group_id
    }

    fn simplify(&mut self) -> bool {
        self.group_instance_id.is_none()
    }

    fn code(response: &HeartbeatResponse) -> ErrorCode {
        response.error_code
    }

    fn codes(response: &mut HeartbeatResponse) -> impl Iterator<Item = &mut ErrorCode> {
        std::iter::once(&mut response.error_code)
    }
}

impl GroupRequest for OffsetCommitRequest {
    const DEADLINE: Duration = DEADLINE;

    fn group(&self) -> &str {
        &self.group_id
    }

    fn simplify(&mut self) -> bool {
        for partition in self.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            partition.commit_timestamp = -1;
            partition.committed_leader_epoch = -1;
        }
        self.group_instance_id.is_none()
    }

    fn code(response: &OffsetCommitResponse) -> ErrorCode {
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|partition| partition.error_code).find(|code| *code != ErrorCode::NONE).unwrap_or_default()
    }

    fn codes(response: &mut OffsetCommitResponse) -> impl Iterator<Item = &mut ErrorCode> {
        let partitions = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        partitions.map(|partition| &mut partition.error_code)
    }
}

/// One such request under way.
#[derive(Debug)]
pub(crate) struct Group<R: GroupRequest> {
    bridge: Bridge,
    request: R,
    call: CoordinatorCall,
}

impl<R: GroupRequest> Group<R> {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        let request: R = bridge.decode()?;
        let call = CoordinatorCall::new(ctx.now.monotonic, request.group(), R::DEADLINE);
        Ok(Self { bridge, request, call })
    }

    fn refuse(&self, code: ErrorCode, steps: &mut Vec<Step>) {
        steps.push(Step::Done(self.bridge.answer(&self.request.refusal(code))));
    }

    fn called(&mut self, ctx: &Context<'_>, cluster: &Cluster, called: Called, steps: &mut Vec<Step>) {
        match called {
            Called::Pending => {}
            Called::Exhausted => self.refuse(ErrorCode::NOT_COORDINATOR, steps),
            Called::Answered { address, frame } => {
                let next = match self.bridge.response::<<R as Request>::Response>(&frame) {
                    Ok(response) if R::code(&response) == ErrorCode::NOT_COORDINATOR => {
                        self.call.refused(address, steps)
                    }
                    Ok(mut response) => {
                        let changed = match ctx.config.cluster.kind {
                            ClusterKind::KafScale => tell_of_rebalance(R::codes(&mut response)),
                        };
                        let passes = self.bridge.passes() && !changed;
                        let reply: Reply = if passes { Bridge::pass(frame) } else { self.bridge.answer(&response) };
                        return steps.push(Step::Done(reply));
                    }
                    Err(_) => self.call.lost(cluster, ctx.now.monotonic, address, steps),
                };
                self.called(ctx, cluster, next, steps);
            }
        }
    }
}

impl<R: GroupRequest> RequestMachine for Group<R> {
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        let passes = self.bridge.passes();
        if !self.request.simplify() || self.request.lost_in(self.bridge.broker_version()).is_some() {
            return self.refuse(ErrorCode::UNSUPPORTED_VERSION, steps);
        }
        let bytes = if passes { self.bridge.original().clone() } else { self.bridge.request(&self.request) };
        let called = self.call.send(cluster, ctx.now.monotonic, bytes, steps);
        self.called(ctx, cluster, called, steps);
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
        _: &Answer,
        steps: &mut Vec<Step>,
    ) {
        let called = self.call.on_answer(cluster, ctx.now.monotonic, question, steps);
        self.called(ctx, cluster, called, steps);
    }

    fn on_wake(&mut self, _: &mut Context<'_>, _: &Cluster, _: &mut Vec<Step>) {}
}
