//! LeaveGroup: to the coordinator, and once more for each member where the coordinator does not read the member list.
//!
//! KafScale brokers look only at the member field of the versions before 3, so they answer every LeaveGroup 4 with
//! UNKNOWN_MEMBER_ID. On that answer each member leaves by a LeaveGroup 1 of its own.

use std::time::Duration;

use bytes::Bytes;

use super::DEADLINE;
use super::coordinated::{Conversation, Next};
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::{ErrorCode, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse};
use crate::listener::bridge::Bridge;
use crate::listener::request::Undecodable;
use crate::time::Monotonic;

/// First version with a list of members.
const MEMBER_LIST: i16 = 3;
/// The version in which members leave one by one.
const SINGLE: i16 = 1;

/// One LeaveGroup.
#[derive(Debug)]
pub(crate) struct LeaveGroup {
    request: LeaveGroupRequest,
    members: Vec<MemberIdentity>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// All members in one request.
    Together,
    /// One request each; what those before the present one got.
    OneByOne(Vec<MemberResponse>),
}

impl Conversation for LeaveGroup {
    type Request = LeaveGroupRequest;

    fn read(_: &Context<'_>, bridge: &Bridge) -> Result<Self, Undecodable> {
        let request: LeaveGroupRequest = bridge.decode()?;
        let members = if bridge.client_version() < MEMBER_LIST {
            vec![MemberIdentity { member_id: request.member_id.clone(), group_instance_id: None }]
        } else {
            request.members.clone()
        };
        Ok(Self { request, members, state: State::Together })
    }

    fn request(&self) -> &LeaveGroupRequest {
        &self.request
    }

    fn group(&self) -> &str {
        &self.request.group_id
    }

    fn deadline(&self, _: Monotonic) -> Duration {
        DEADLINE
    }

    fn begin(&mut self, _: &Context<'_>, bridge: &Bridge) -> Next {
        if bridge.passes() {
            return Next::Send(bridge.original().clone());
        }
        Next::Send(bridge.request(&LeaveGroupRequest {
            group_id: self.request.group_id.clone(),
            members: self.members.clone(),
            ..LeaveGroupRequest::default()
        }))
    }

    fn version(&self, bridge: &Bridge) -> i16 {
        match self.state {
            State::Together => bridge.broker_version(),
            State::OneByOne(_) => SINGLE,
        }
    }

    fn code(response: &LeaveGroupResponse) -> ErrorCode {
        response.error_code
    }

    fn answered(&mut self, ctx: &Context<'_>, bridge: &Bridge, response: LeaveGroupResponse, frame: Bytes) -> Next {
        let left = match std::mem::replace(&mut self.state, State::Together) {
            State::Together if reads_one_member(ctx, &response) && !self.members.is_empty() => Vec::new(),
            State::Together if bridge.passes() => return Next::Answer(Bridge::pass(frame)),
            State::Together => return finish(bridge, response),
            State::OneByOne(mut left) => {
                let member = &self.members[left.len()];
                left.push(MemberResponse {
                    member_id: member.member_id.clone(),
                    group_instance_id: member.group_instance_id.clone(),
                    error_code: response.error_code,
                });
                left
            }
        };
        let Some(member) = self.members.get(left.len()) else {
            return finish(bridge, LeaveGroupResponse { members: left, ..LeaveGroupResponse::default() });
        };
        let single = LeaveGroupRequest {
            group_id: self.request.group_id.clone(),
            member_id: member.member_id.clone(),
            members: Vec::new(),
        };
        self.state = State::OneByOne(left);
        Next::Send(bridge.request_in(SINGLE, &single))
    }
}

fn reads_one_member(ctx: &Context<'_>, response: &LeaveGroupResponse) -> bool {
    match ctx.config.cluster.kind {
        ClusterKind::KafScale => response.error_code == ErrorCode::UNKNOWN_MEMBER_ID,
    }
}

/// Versions without a member list carry the one member's error as that of the answer.
fn finish(bridge: &Bridge, mut response: LeaveGroupResponse) -> Next {
    if bridge.client_version() < MEMBER_LIST
        && response.error_code == ErrorCode::NONE
        && let Some(member) = response.members.first()
    {
        response.error_code = member.error_code;
    }
    Next::Answer(bridge.answer(&response))
}
