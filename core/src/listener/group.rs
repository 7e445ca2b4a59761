//! SyncGroup, Heartbeat and OffsetCommit: to the coordinator of the group and back.

mod call;
pub(crate) mod coordinated;
pub(crate) mod join;
pub(crate) mod leave;
pub(crate) mod offset_fetch;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;

use super::bridge::Bridge;
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::{
    ErrorCode, HeartbeatRequest, HeartbeatResponse, OffsetCommitRequest, OffsetCommitResponse, Refuse,
    SyncGroupRequest, SyncGroupResponse,
};
use crate::listener::request::Undecodable;
use crate::time::Monotonic;
use coordinated::{Conversation, Next};

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

/// What is said of such a request.
#[derive(Debug)]
pub(crate) struct Group<R>(R);

impl<R: GroupRequest> Conversation for Group<R> {
    type Request = R;

    fn read(_: &Context<'_>, bridge: &Bridge) -> Result<Self, Undecodable> {
        Ok(Self(bridge.decode()?))
    }

    fn request(&self) -> &R {
        &self.0
    }

    fn group(&self) -> &str {
        self.0.group()
    }

    fn deadline(&self, _: Monotonic) -> Duration {
        R::DEADLINE
    }

    fn begin(&mut self, _: &Context<'_>, bridge: &Bridge) -> Next {
        if !self.0.simplify() || self.0.lost_in(bridge.broker_version()).is_some() {
            return Next::Refuse(ErrorCode::UNSUPPORTED_VERSION);
        }
        Next::Send(if bridge.passes() { bridge.original().clone() } else { bridge.request(&self.0) })
    }

    fn code(response: &R::Response) -> ErrorCode {
        R::code(response)
    }

    fn answered(&mut self, ctx: &Context<'_>, bridge: &Bridge, mut response: R::Response, frame: Bytes) -> Next {
        let changed = match ctx.config.cluster.kind {
            ClusterKind::KafScale => tell_of_rebalance(R::codes(&mut response)),
        };
        let passes = bridge.passes() && !changed;
        Next::Answer(if passes { Bridge::pass(frame) } else { bridge.answer(&response) })
    }
}
