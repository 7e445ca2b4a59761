//! LeaveGroup: to the coordinator, and once more for each member where the coordinator does not read the member list.
//!
//! KafScale brokers look only at the member field of the versions before 3, so they answer every LeaveGroup 4 with
//! UNKNOWN_MEMBER_ID. On that answer each member leaves by a LeaveGroup 1 of its own.

use bytes::Bytes;

use super::DEADLINE;
use super::call::{Called, CoordinatorCall};
use crate::cluster::{Answer, Cluster, Question};
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::Refuse;
use crate::kafka::{ErrorCode, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse};
use crate::listener::bridge::Bridge;
use crate::listener::request::{Part, PartResult, RequestHead, RequestMachine, Step, Undecodable};

/// First version with a list of members.
const MEMBER_LIST: i16 = 3;
/// The version in which members leave one by one.
const SINGLE: i16 = 1;

/// One LeaveGroup.
#[derive(Debug)]
pub(crate) struct LeaveGroup {
    bridge: Bridge,
    request: LeaveGroupRequest,
    members: Vec<MemberIdentity>,
    call: CoordinatorCall,
    state: State,
}

#[derive(Debug)]
enum State {
    /// All members in one request.
    Together,
    /// One request each; what those before the present one got.
    OneByOne(Vec<MemberResponse>),
}

impl LeaveGroup {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        let request: LeaveGroupRequest = bridge.decode()?;
        let members = if bridge.client_version() < MEMBER_LIST {
            vec![MemberIdentity { member_id: request.member_id.clone(), group_instance_id: None }]
        } else {
            request.members.clone()
        };
        let call = CoordinatorCall::new(ctx.now.monotonic, &request.group_id, DEADLINE);
        Ok(Self { bridge, request, members, call, state: State::Together })
    }

    fn called(&mut self, ctx: &Context<'_>, cluster: &Cluster, called: Called, steps: &mut Vec<Step>) {
        match called {
            Called::Pending => {}
            Called::Exhausted => {
                let response = self.request.refusal(ErrorCode::NOT_COORDINATOR);
                steps.push(Step::Done(self.bridge.answer(&response)));
            }
            Called::Answered { address, frame } => {
                let version = self.version();
                let next = match self.bridge.response_in::<LeaveGroupResponse>(version, &frame) {
                    Ok(response) if response.error_code == ErrorCode::NOT_COORDINATOR => {
                        self.call.refused(address, steps)
                    }
                    Ok(response) => return self.answered(ctx, cluster, response, frame, steps),
                    Err(_) => self.call.lost(cluster, ctx.now.monotonic, address, steps),
                };
                self.called(ctx, cluster, next, steps);
            }
        }
    }

    fn version(&self) -> i16 {
        match self.state {
            State::Together => self.bridge.broker_version(),
            State::OneByOne(_) => SINGLE,
        }
    }

    fn answered(
        &mut self,
        ctx: &Context<'_>,
        cluster: &Cluster,
        response: LeaveGroupResponse,
        frame: Bytes,
        steps: &mut Vec<Step>,
    ) {
        match &mut self.state {
            State::Together if Self::reads_one_member(ctx, &response) && !self.members.is_empty() => {
                self.state = State::OneByOne(Vec::new());
            }
            State::Together if self.bridge.passes() => return steps.push(Step::Done(Bridge::pass(frame))),
            State::Together => return self.finish(response, steps),
            State::OneByOne(left) => {
                let member = &self.members[left.len()];
                left.push(MemberResponse {
                    member_id: member.member_id.clone(),
                    group_instance_id: member.group_instance_id.clone(),
                    error_code: response.error_code,
                });
            }
        }
        if let State::OneByOne(left) = &mut self.state {
            match self.members.get(left.len()) {
                Some(member) => {
                    let single = LeaveGroupRequest {
                        group_id: self.request.group_id.clone(),
                        member_id: member.member_id.clone(),
                        members: Vec::new(),
                    };
                    let bytes = self.bridge.request_in(SINGLE, &single);
                    let called = self.call.send(cluster, ctx.now.monotonic, bytes, steps);
                    self.called(ctx, cluster, called, steps);
                }
                None => {
                    let members = std::mem::take(left);
                    self.finish(LeaveGroupResponse { members, ..LeaveGroupResponse::default() }, steps);
                }
            }
        }
    }

    fn reads_one_member(ctx: &Context<'_>, response: &LeaveGroupResponse) -> bool {
        match ctx.config.cluster.kind {
            ClusterKind::KafScale => response.error_code == ErrorCode::UNKNOWN_MEMBER_ID,
        }
    }

    /// Versions without a member list carry the one member's error as that of the answer.
    fn finish(&self, mut response: LeaveGroupResponse, steps: &mut Vec<Step>) {
        if self.bridge.client_version() < MEMBER_LIST
            && response.error_code == ErrorCode::NONE
            && let Some(member) = response.members.first()
        {
            response.error_code = member.error_code;
        }
        steps.push(Step::Done(self.bridge.answer(&response)));
    }
}

impl RequestMachine for LeaveGroup {
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        let bytes = if self.bridge.passes() {
            self.bridge.original().clone()
        } else {
            self.bridge.request(&LeaveGroupRequest {
                group_id: self.request.group_id.clone(),
                members: self.members.clone(),
                ..LeaveGroupRequest::default()
            })
        };
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
