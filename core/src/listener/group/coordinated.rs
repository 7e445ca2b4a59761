//! A request that is settled with the coordinator of one group.
//!
//! Who the coordinator is, which brokers are tried and what a broken answer means is the same for all of them and stands
//! here and in [`super::call`]; what is said to the coordinator, and what its answers mean, is a [`Conversation`].

use std::time::Duration;

use bytes::Bytes;

use super::call::{Called, CoordinatorCall};
use crate::cluster::{Answer, Cluster, Question};
use crate::context::Context;
use crate::kafka::{ErrorCode, Refuse, Request};
use crate::listener::bridge::Bridge;
use crate::listener::request::{Part, PartResult, Reply, RequestHead, RequestMachine, Step, Undecodable};
use crate::time::Monotonic;

/// The answer to the request of a conversation.
pub(crate) type ResponseOf<C> = <<C as Conversation>::Request as Request>::Response;

/// What is said to a coordinator, and what is made of its answers.
pub(crate) trait Conversation: Sized {
    /// The API.
    type Request: Refuse;

    /// Reads the request.
    fn read(ctx: &Context<'_>, bridge: &Bridge) -> Result<Self, Undecodable>;

    /// The request, as it is now.
    fn request(&self) -> &Self::Request;

    /// The group.
    fn group(&self) -> &str;

    /// Time for all frames and attempts together.
    fn deadline(&self, now: Monotonic) -> Duration;

    /// The first move.
    fn begin(&mut self, ctx: &Context<'_>, bridge: &Bridge) -> Next;

    /// The version of the frame that was sent last.
    fn version(&self, bridge: &Bridge) -> i16 {
        bridge.broker_version()
    }

    /// Where an answer says NOT_COORDINATOR, if it does.
    fn code(response: &ResponseOf<Self>) -> ErrorCode;

    /// The coordinator has answered; `frame` is the whole of it.
    fn answered(&mut self, ctx: &Context<'_>, bridge: &Bridge, response: ResponseOf<Self>, frame: Bytes) -> Next;

    /// The question of [`Next::Ask`] is answered.
    ///
    /// # Panics
    /// Where it is not overridden: whoever asks says what follows.
    fn learned(&mut self, _: &Bridge, _: &Answer) -> Next {
        unreachable!("this conversation asks nothing")
    }

    /// The wait of [`Next::Wait`] is over.
    ///
    /// # Panics
    /// Where it is not overridden: whoever waits says what follows.
    fn waited(&mut self, _: &Bridge) -> Next {
        unreachable!("this conversation waits for no time")
    }
}

/// What follows.
#[derive(Debug)]
pub(crate) enum Next {
    /// This frame goes to the coordinator, with all attempts before it.
    Send(Bytes),
    /// This has to be known first.
    Ask(Question),
    /// Nothing for so long.
    Wait(Duration),
    /// The client gets this.
    Answer(Reply),
    /// The client gets this code for everything it asked for.
    Refuse(ErrorCode),
}

/// One such request under way.
#[derive(Debug)]
pub(crate) struct Coordinated<C> {
    bridge: Bridge,
    conversation: C,
    call: CoordinatorCall,
    /// The question of the conversation that is open.
    asked: Option<Question>,
}

impl<C: Conversation> Coordinated<C> {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        let conversation = C::read(ctx, &bridge)?;
        let now = ctx.now.monotonic;
        let call = CoordinatorCall::new(now, conversation.group(), conversation.deadline(now));
        Ok(Self { bridge, conversation, call, asked: None })
    }

    fn follow(&mut self, ctx: &Context<'_>, cluster: &Cluster, next: Next, steps: &mut Vec<Step>) {
        match next {
            Next::Send(bytes) => {
                let called = self.call.send(cluster, ctx.now.monotonic, bytes, steps);
                self.called(ctx, cluster, called, steps);
            }
            Next::Ask(question) => {
                self.asked = Some(question.clone());
                steps.push(Step::Ask(question));
            }
            Next::Wait(time) => steps.push(Step::Wake(time)),
            Next::Answer(reply) => steps.push(Step::Done(reply)),
            Next::Refuse(code) => {
                steps.push(Step::Done(self.bridge.answer(&self.conversation.request().refusal(code))));
            }
        }
    }

    fn called(&mut self, ctx: &Context<'_>, cluster: &Cluster, called: Called, steps: &mut Vec<Step>) {
        match called {
            Called::Pending => {}
            Called::Exhausted => self.follow(ctx, cluster, Next::Refuse(ErrorCode::NOT_COORDINATOR), steps),
            Called::Answered { address, frame } => {
                let version = self.conversation.version(&self.bridge);
                let called = match self.bridge.response_in::<ResponseOf<C>>(version, &frame) {
                    Ok(response) if C::code(&response) == ErrorCode::NOT_COORDINATOR => {
                        self.call.refused(address, steps)
                    }
                    Ok(response) => {
                        let next = self.conversation.answered(ctx, &self.bridge, response, frame);
                        return self.follow(ctx, cluster, next, steps);
                    }
                    Err(_) => self.call.lost(cluster, ctx.now.monotonic, address, steps),
                };
                self.called(ctx, cluster, called, steps);
            }
        }
    }
}

impl<C: Conversation> RequestMachine for Coordinated<C> {
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        let next = self.conversation.begin(ctx, &self.bridge);
        self.follow(ctx, cluster, next, steps);
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
        if self.asked.as_ref() == Some(question) {
            self.asked = None;
            let next = self.conversation.learned(&self.bridge, answer);
            return self.follow(ctx, cluster, next, steps);
        }
        let called = self.call.on_answer(cluster, ctx.now.monotonic, question, steps);
        self.called(ctx, cluster, called, steps);
    }

    fn on_wake(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>) {
        let next = self.conversation.waited(&self.bridge);
        self.follow(ctx, cluster, next, steps);
    }
}
