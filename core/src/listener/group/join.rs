//! JoinGroup: to the coordinator, and held while the group settles.
//!
//! KafScale brokers answer REBALANCE_IN_PROGRESS at once instead of holding the request, each time with a new member id
//! when the id is not one that they know. A client that joins anew without that id leaves a member behind that gets
//! partitions and reads none; so the request is held here and joined again with the id that came back.

use std::time::Duration;

use bytes::Bytes;

use super::coordinated::{Conversation, Next};
use crate::config::ClusterKind;
use crate::context::Context;
use crate::kafka::{ErrorCode, JoinGroupRequest, JoinGroupResponse, Message, Str};
use crate::listener::bridge::Bridge;
use crate::listener::request::{Reply, Undecodable};
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
    request: JoinGroupRequest,
    /// The member id that the client gave, or none.
    asked_as: Str,
    /// Whether the client's own bytes say what `request` says.
    unchanged: bool,
    hold_until: Monotonic,
    wait: Duration,
}

/// What an answer of the coordinator means.
enum Verdict {
    /// The group is settling, or it wants the member id that it gave.
    Again,
    /// The group is settling still, and the client has waited for as long as it wanted to.
    Late,
    /// For the client.
    Final,
}

impl Conversation for JoinGroup {
    type Request = JoinGroupRequest;

    fn read(ctx: &Context<'_>, bridge: &Bridge) -> Result<Self, Undecodable> {
        let mut request: JoinGroupRequest = bridge.decode()?;
        if bridge.client_version() == 0 {
            request.rebalance_timeout_ms = request.session_timeout_ms;
        }
        request.reason = None;
        Ok(Self {
            asked_as: request.member_id.detached(),
            unchanged: bridge.passes(),
            hold_until: ctx.now.monotonic + ctx.config.listener.granted_wait(request.rebalance_timeout_ms),
            request,
            wait: FIRST_WAIT,
        })
    }

    fn request(&self) -> &JoinGroupRequest {
        &self.request
    }

    fn group(&self) -> &str {
        &self.request.group_id
    }

    fn deadline(&self, now: Monotonic) -> Duration {
        self.hold_until.since(now) + WORK
    }

    fn begin(&mut self, _: &Context<'_>, bridge: &Bridge) -> Next {
        if self.request.lost_in(bridge.broker_version()).is_some() {
            return Next::Refuse(ErrorCode::UNSUPPORTED_VERSION);
        }
        self.ask(bridge)
    }

    fn code(response: &JoinGroupResponse) -> ErrorCode {
        response.error_code
    }

    fn answered(&mut self, ctx: &Context<'_>, bridge: &Bridge, response: JoinGroupResponse, frame: Bytes) -> Next {
        match self.verdict(ctx, bridge, &response) {
            Verdict::Again => self.hold(ctx, &response),
            Verdict::Late => Next::Answer(self.late(bridge, response)),
            Verdict::Final => Next::Answer(self.reply(bridge, response, frame)),
        }
    }

    fn waited(&mut self, bridge: &Bridge) -> Next {
        self.ask(bridge)
    }
}

impl JoinGroup {
    fn ask(&self, bridge: &Bridge) -> Next {
        Next::Send(if self.unchanged { bridge.original().clone() } else { bridge.request(&self.request) })
    }

    fn verdict(&self, ctx: &Context<'_>, bridge: &Bridge, response: &JoinGroupResponse) -> Verdict {
        let in_time = ctx.now.monotonic < self.hold_until;
        match response.error_code {
            ErrorCode::MEMBER_ID_REQUIRED if bridge.client_version() < MEMBER_ID_REQUIRED_SINCE && in_time => {
                Verdict::Again
            }
            ErrorCode::REBALANCE_IN_PROGRESS => match ctx.config.cluster.kind {
                ClusterKind::KafScale if in_time => Verdict::Again,
                ClusterKind::KafScale => Verdict::Late,
            },
            _ => Verdict::Final,
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

    fn hold(&mut self, ctx: &Context<'_>, response: &JoinGroupResponse) -> Next {
        self.adopt(response);
        let wait = self.wait.min(self.hold_until.since(ctx.now.monotonic));
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Next::Wait(wait)
    }

    /// REBALANCE_IN_PROGRESS is no answer to a JoinGroup that all clients know. One without an id is told its own where it
    /// understands that; the others try again as they do while a coordinator starts.
    fn late(&mut self, bridge: &Bridge, response: JoinGroupResponse) -> Reply {
        self.adopt(&response);
        let member_id = self.request.member_id.clone();
        let anew = member_id != self.asked_as;
        let error_code = if anew && bridge.client_version() >= MEMBER_ID_REQUIRED_SINCE {
            ErrorCode::MEMBER_ID_REQUIRED
        } else {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        };
        bridge.answer(&JoinGroupResponse { error_code, member_id, ..response })
    }

    fn reply(&self, bridge: &Bridge, mut response: JoinGroupResponse, frame: Bytes) -> Reply {
        if bridge.passes() {
            return Bridge::pass(frame);
        }
        if response.error_code == ErrorCode::NONE {
            response.protocol_type = Some(self.request.protocol_type.clone());
        }
        bridge.answer(&response)
    }
}
