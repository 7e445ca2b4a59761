//! DescribeConfigs, AlterConfigs, CreatePartitions, CreateTopics and DeleteTopics: any broker can answer them.
//!
//! What only reads goes over the client's sticky connection. What changes something goes to one broker, the same for all
//! clients and proxies while it can be reached: KafScale brokers write the whole list of topics as they know it, so of two
//! that create topics at the same time one would lose its.

use std::time::Duration;

use bytes::Bytes;

use super::bridge::Bridge;
use super::routes::{Key, Routes, Way};
use crate::cluster::{Answer, Cluster, Question};
use crate::config::ListenerConfig;
use crate::context::Context;
use crate::kafka::Refuse;
use crate::kafka::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    ErrorCode, Request, Str,
};
use crate::listener::request::{Fate, Part, PartResult, Reply, RequestHead, RequestMachine, Step, Target, Undecodable};
use crate::time::Monotonic;

/// Time for both attempts together.
const DEADLINE: Duration = Duration::from_secs(30);
/// Resource type of a broker in DescribeConfigs.
const BROKER: i8 = 4;
/// Source of a configuration value that nobody has set.
const DEFAULT_CONFIG: i8 = 5;
const ADVERTISED_LISTENERS: &str = "advertised.listeners";

/// A request that any broker can answer.
pub(crate) trait AnyBroker: Refuse {
    /// Whether it only reads, so that it may be sent again whatever became of it.
    const READS: bool;

    /// Whether something that Metadata shows may have changed.
    fn changed(response: &Self::Response) -> bool;

    /// Makes the answer fit for clients; whether it was changed.
    fn present(_response: &mut Self::Response, _config: &ListenerConfig) -> bool {
        false
    }
}

impl AnyBroker for DescribeConfigsRequest {
    const READS: bool = true;

    fn changed(_: &DescribeConfigsResponse) -> bool {
        false
    }

    /// A broker's own address is of no use to a client of the proxy, and not every client may know it.
    fn present(response: &mut DescribeConfigsResponse, config: &ListenerConfig) -> bool {
        let mut changed = false;
        for result in &mut response.results {
            for entry in &mut result.configs {
                entry.is_default = entry.config_source == DEFAULT_CONFIG;
                if result.resource_type == BROKER && entry.name == ADVERTISED_LISTENERS {
                    let address = Str::from(format!("{}:{}", config.advertised_host, config.advertised_port));
                    for synonym in &mut entry.synonyms {
                        synonym.value = Some(address.clone());
                    }
                    entry.value = Some(address);
                    changed = true;
                }
            }
        }
        changed
    }
}

impl AnyBroker for AlterConfigsRequest {
    const READS: bool = false;

    fn changed(response: &AlterConfigsResponse) -> bool {
        response.responses.iter().any(|resource| resource.error_code == ErrorCode::NONE)
    }
}

impl AnyBroker for CreatePartitionsRequest {
    const READS: bool = false;

    fn changed(response: &CreatePartitionsResponse) -> bool {
        response.results.iter().any(|topic| topic.error_code == ErrorCode::NONE)
    }
}

impl AnyBroker for CreateTopicsRequest {
    const READS: bool = false;

    fn changed(response: &CreateTopicsResponse) -> bool {
        response.topics.iter().any(|topic| topic.error_code == ErrorCode::NONE)
    }
}

impl AnyBroker for DeleteTopicsRequest {
    const READS: bool = false;

    fn changed(response: &DeleteTopicsResponse) -> bool {
        response.responses.iter().any(|topic| topic.error_code == ErrorCode::NONE)
    }
}

/// One such request under way.
#[derive(Debug)]
pub(crate) struct Any<R: AnyBroker> {
    bridge: Bridge,
    request: R,
    routes: Routes,
    until: Monotonic,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing is under way.
    Idle,
    /// Sent.
    Asked { part: Part, again: bool },
    /// Answered; the answer leaves when the snapshot has been read.
    Held(Reply),
}

impl<R: AnyBroker> Any<R> {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        Ok(Self {
            request: bridge.decode()?,
            bridge,
            routes: Routes::default(),
            until: ctx.now.monotonic + DEADLINE,
            state: State::Idle,
        })
    }

    fn send(&mut self, ctx: &Context<'_>, cluster: &Cluster, part: Part, steps: &mut Vec<Step>) {
        let now = ctx.now.monotonic;
        match self.routes.way(cluster, now, &Key::Anyone) {
            Way::Ask(question) => self.routes.ask(question, steps),
            Way::Stale | Way::Absent => self.give_up(steps),
            Way::Broker(_) | Way::Anyone => {
                let bytes = if self.bridge.passes() {
                    self.bridge.original().clone()
                } else {
                    self.bridge.request(&self.request)
                };
                let target = match cluster.brokers().iter().min() {
                    Some(writer) if !R::READS => Target::Prefer { address: writer.clone(), not: Vec::new() },
                    Some(_) | None => Target::Any { not: Vec::new() },
                };
                self.state = State::Asked { part, again: part != FIRST };
                steps.push(Step::Send { part, target, bytes, answered: true, deadline: self.until.since(now) });
            }
        }
    }

    /// As when not ready: the client is told to look for another way.
    fn give_up(&self, steps: &mut Vec<Step>) {
        let reply = match self.bridge.answer(&self.request.refusal(ErrorCode::REQUEST_TIMED_OUT)) {
            Reply::Answer(frame) => Reply::AnswerAndClose(frame),
            other @ (Reply::AnswerAndClose(_) | Reply::Silence | Reply::Close) => other,
        };
        steps.push(Step::Done(reply));
    }

    fn answered(&mut self, ctx: &Context<'_>, mut response: R::Response, frame: Bytes, steps: &mut Vec<Step>) {
        let presented = R::present(&mut response, &ctx.config.listener);
        let reply =
            if self.bridge.passes() && !presented { Bridge::pass(frame) } else { self.bridge.answer(&response) };
        if R::changed(&response) {
            self.state = State::Held(reply);
            self.routes.ask(Question::Snapshot, steps);
        } else {
            steps.push(Step::Done(reply));
        }
    }

    fn lost(&mut self, ctx: &Context<'_>, cluster: &Cluster, again: bool, fate: Fate, steps: &mut Vec<Step>) {
        let harmless = match fate {
            Fate::NotApplied => true,
            Fate::Unknown => R::READS,
        };
        if harmless && !again && ctx.now.monotonic < self.until {
            self.send(ctx, cluster, SECOND, steps);
        } else {
            self.give_up(steps);
        }
    }
}

const FIRST: Part = Part(0);
const SECOND: Part = Part(1);

impl<R: AnyBroker> RequestMachine for Any<R> {
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        if self.request.lost_in(self.bridge.broker_version()).is_some() {
            let response = self.request.refusal(ErrorCode::UNSUPPORTED_VERSION);
            return steps.push(Step::Done(self.bridge.answer(&response)));
        }
        self.send(ctx, cluster, FIRST, steps);
    }

    fn on_part(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        part: Part,
        result: PartResult,
        steps: &mut Vec<Step>,
    ) {
        let again = match &self.state {
            State::Asked { part: asked, again } if *asked == part => *again,
            State::Asked { .. } | State::Idle | State::Held(_) => return,
        };
        self.state = State::Idle;
        match result {
            PartResult::Answered { address: _, frame } => {
                let frame = frame.freeze();
                match self.bridge.response::<<R as Request>::Response>(&frame) {
                    Ok(response) => self.answered(ctx, response, frame, steps),
                    Err(_) => self.lost(ctx, cluster, again, Fate::Unknown, steps),
                }
            }
            PartResult::Lost { address: _, fate } => self.lost(ctx, cluster, again, fate, steps),
            PartResult::NotSent => self.give_up(steps),
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
        if !self.routes.answered(question) {
            return;
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Held(reply) => steps.push(Step::Done(reply)),
            State::Idle => self.send(ctx, cluster, FIRST, steps),
            asked @ State::Asked { .. } => self.state = asked,
        }
    }

    fn on_wake(&mut self, _: &mut Context<'_>, _: &Cluster, _: &mut Vec<Step>) {}
}
