//! JoinGroup: to the coordinator, and held while the group settles.
//!
//! KafScale brokers answer REBALANCE_IN_PROGRESS at once instead of holding the request, each time with a new member id
//! when the id is not one that they know. A client that joins anew without that id leaves a member behind that gets
//! partitions and reads none; so the request is held here and joined again with the id that came back.

use std::time::Duration;

use bytes::Bytes;

use super::call::{Called, CoordinatorCall};
use crate::cluster::{Answer, Cluster, Question};
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::{ErrorCode, JoinGroupRequest, JoinGroupResponse, Message, Refuse, Str};
use crate::listener::bridge::Bridge;
use crate::listener::request::{Part, PartResult, Reply, RequestHead, RequestMachine, Step, Undecodable};
use crate::planted::{Bug, planted};
use crate::time::Monotonic;

/// Time beyond the rebalance timeout that a coordinator has.
const WORK: Duration = Duration::from_secs(30);
/// Wait before joining again; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// From this version on clients know MEMBER_ID_REQUIRED and join again themselves.
const MEMBER_ID_REQUIRED_SINCE: i16 = 4;

/// One JoinGroup.
#[derive(Debug)]
pub(crate) struct JoinGroup {
    bridge: Bridge,
    request: JoinGroupRequest,
    /// The member id that the client gave, or none.
    asked_as: Str,
    /// Whether the client's own bytes say what `request` says.
    unchanged: bool,
    call: CoordinatorCall,
    hold_until: Monotonic,
    wait: Duration,
}

/// What an answer of the coordinator means.
enum Verdict {
    /// Not the coordinator.
    Elsewhere,
    /// The group is settling, or it wants the member id that it gave.
    Again,
    /// The group is settling still, and the client has waited for as long as it wanted to.
    Late,
    /// For the client.
    Final,
}

impl JoinGroup {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        let mut request: JoinGroupRequest = bridge.decode()?;
        if bridge.client_version() == 0 {
            request.rebalance_timeout_ms = request.session_timeout_ms;
        }
        request.reason = None;
        let timeout = ctx.config.listener.granted_wait(request.rebalance_timeout_ms);
        Ok(Self {
            asked_as: request.member_id.detached(),
            unchanged: bridge.passes(),
            bridge,
            call: CoordinatorCall::new(ctx.now.monotonic, &request.group_id, timeout + WORK),
            request,
            hold_until: ctx.now.monotonic + timeout,
            wait: FIRST_WAIT,
        })
    }

    fn refuse(&self, code: ErrorCode, steps: &mut Vec<Step>) {
        steps.push(Step::Done(self.bridge.answer(&self.request.refusal(code))));
    }

    fn send(&mut self, ctx: &Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        let bytes = if self.unchanged { self.bridge.original().clone() } else { self.bridge.request(&self.request) };
        let called = self.call.send(cluster, ctx.now.monotonic, bytes, steps);
        self.called(ctx, cluster, called, steps);
    }

    fn verdict(&self, ctx: &Context<'_>, response: &JoinGroupResponse) -> Verdict {
        let in_time = ctx.now.monotonic < self.hold_until;
        match response.error_code {
            ErrorCode::NOT_COORDINATOR => Verdict::Elsewhere,
            ErrorCode::MEMBER_ID_REQUIRED if self.bridge.client_version() < MEMBER_ID_REQUIRED_SINCE && in_time => {
                Verdict::Again
            }
            ErrorCode::REBALANCE_IN_PROGRESS => match ctx.config.cluster.kind {
                ClusterKind::KafScale if in_time => Verdict::Again,
                ClusterKind::KafScale => Verdict::Late,
            },
            _ => Verdict::Final,
        }
    }

    fn called(&mut self, ctx: &Context<'_>, cluster: &Cluster, called: Called, steps: &mut Vec<Step>) {
        match called {
            Called::Pending => {}
            Called::Exhausted => self.refuse(ErrorCode::NOT_COORDINATOR, steps),
            Called::Answered { address, frame } => {
                let Ok(response) = self.bridge.response::<JoinGroupResponse>(&frame) else {
                    let next = self.call.lost(cluster, ctx.now.monotonic, address, steps);
                    return self.called(ctx, cluster, next, steps);
                };
                match self.verdict(ctx, &response) {
                    Verdict::Elsewhere => {
                        let next = self.call.refused(address, steps);
                        self.called(ctx, cluster, next, steps);
                    }
                    Verdict::Again => self.hold(ctx, &response, steps),
                    Verdict::Late => steps.push(Step::Done(self.late(response))),
                    Verdict::Final => steps.push(Step::Done(self.reply(response, frame))),
                }
            }
        }
    }

    /// The member is the one that the broker names, if it names one.
    fn adopt(&mut self, response: &JoinGroupResponse) {
        let is_new = !response.member_id.is_empty() && response.member_id != self.request.member_id;
        if is_new && !planted(Bug::MemberIdLost) {
            self.request.member_id = response.member_id.detached();
            self.unchanged = false;
        }
    }

    fn hold(&mut self, ctx: &Context<'_>, response: &JoinGroupResponse, steps: &mut Vec<Step>) {
        self.adopt(response);
        steps.push(Step::Wake(self.wait.min(self.hold_until.since(ctx.now.monotonic))));
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }

    /// REBALANCE_IN_PROGRESS is no answer to a JoinGroup that all clients know. One without an id is told its own where it
    /// understands that; the others try again as they do while a coordinator starts.
    fn late(&mut self, response: JoinGroupResponse) -> Reply {
        self.adopt(&response);
        let member_id = self.request.member_id.clone();
        let anew = member_id != self.asked_as;
        let error_code = if anew && self.bridge.client_version() >= MEMBER_ID_REQUIRED_SINCE {
            ErrorCode::MEMBER_ID_REQUIRED
        } else {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        };
        self.bridge.answer(&JoinGroupResponse { error_code, member_id, ..response })
    }

    fn reply(&self, mut response: JoinGroupResponse, frame: Bytes) -> Reply {
        if self.bridge.passes() {
            return Bridge::pass(frame);
        }
        if response.error_code == ErrorCode::NONE {
            response.protocol_type = Some(self.request.protocol_type.clone());
        }
        self.bridge.answer(&response)
    }
}

impl RequestMachine for JoinGroup {
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        if self.request.lost_in(self.bridge.broker_version()).is_some() {
            return self.refuse(ErrorCode::UNSUPPORTED_VERSION, steps);
        }
        self.send(ctx, cluster, steps);
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

    fn on_wake(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        self.send(ctx, cluster, steps);
    }
}
