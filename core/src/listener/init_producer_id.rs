//! InitProducerId in front of brokers that know no producers: an id of the proxy's own, for producers without transactions.
//!
//! KafScale brokers keep ids and sequences of producers without looking at them, so a client that insists on idempotence
//! works with its defaults, and gets what it would get without: at-least-once.

use super::bridge::Bridge;
use super::not_ready::NOT_READY;
use crate::cluster::{Answer, Cluster, Question};
use crate::context::Context;
use crate::kafka::Refuse;
use crate::kafka::{ErrorCode, InitProducerIdRequest, InitProducerIdResponse};
use crate::listener::request::{Part, PartResult, RequestHead, RequestMachine, Step, Undecodable};

/// One such request.
#[derive(Debug)]
pub(crate) struct InitProducerId {
    bridge: Bridge,
    request: InitProducerIdRequest,
}

impl InitProducerId {
    /// Reads the request.
    pub(crate) fn new(ctx: &Context<'_>, head: RequestHead) -> Result<Self, Undecodable> {
        let bridge = Bridge::new(head, ctx.config.cluster.kind);
        Ok(Self { request: bridge.decode()?, bridge })
    }

    fn refuse(&self, code: ErrorCode, steps: &mut Vec<Step>) {
        steps.push(Step::Done(self.bridge.answer(&self.request.refusal(code))));
    }
}

impl RequestMachine for InitProducerId {
    fn start(&mut self, _: &mut Context<'_>, _: &Cluster, steps: &mut Vec<Step>) {
        match self.request.transactional_id {
            Some(_) => self.refuse(ErrorCode::UNSUPPORTED_VERSION, steps),
            // A producer that names its old id lost track of its sequences; a new id begins them anew.
            None => steps.push(Step::Ask(Question::ProducerId)),
        }
    }

    fn on_part(&mut self, _: &mut Context<'_>, _: &Cluster, _: Part, _: PartResult, _: &mut Vec<Step>) {}

    fn on_answer(
        &mut self,
        _: &mut Context<'_>,
        _: &Cluster,
        question: &Question,
        answer: &Answer,
        steps: &mut Vec<Step>,
    ) {
        match (question, answer) {
            (Question::ProducerId, Answer::ProducerId(producer_id)) => {
                let response = InitProducerIdResponse {
                    producer_id: *producer_id,
                    producer_epoch: 0,
                    ..InitProducerIdResponse::default()
                };
                steps.push(Step::Done(self.bridge.answer(&response)));
            }
            (Question::ProducerId, Answer::Unreadable(error)) => {
                tracing::warn!(%error, "an idempotent producer has to wait");
                self.refuse(NOT_READY, steps);
            }
            // Nothing else was asked.
            (
                _,
                Answer::Learned
                | Answer::Generation(_)
                | Answer::CommittedPartitions(_)
                | Answer::ProducerId(_)
                | Answer::Unreadable(_),
            ) => {}
        }
    }

    fn on_wake(&mut self, _: &mut Context<'_>, _: &Cluster, _: &mut Vec<Step>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::Str;
    use crate::listener::rig::{Does, Rig};

    #[test]
    fn an_id_that_no_broker_is_asked_for() {
        for version in 0..=4 {
            let mut rig = Rig::new(1, &[]);
            for (producer_id, request) in [
                (0, InitProducerIdRequest::default()),
                (1, InitProducerIdRequest { producer_id: 900, producer_epoch: 3, ..InitProducerIdRequest::default() }),
            ] {
                let mut carried = request;
                if version < 3 {
                    (carried.producer_id, carried.producer_epoch) = (-1, -1);
                }
                let ended = rig.run(version, &carried, |_| Does::Hang);
                let expected = InitProducerIdResponse { producer_id, ..InitProducerIdResponse::default() };
                assert_eq!(ended.answer::<InitProducerIdResponse>(), expected, "version {version}");
            }
            assert!(rig.sent.is_empty());
        }
    }

    #[test]
    fn refusals() {
        let transactional =
            InitProducerIdRequest { transactional_id: Some(Str::from("orders")), ..InitProducerIdRequest::default() };
        for (request, readable, code) in [
            (transactional, true, ErrorCode::UNSUPPORTED_VERSION),
            (InitProducerIdRequest::default(), false, ErrorCode::REQUEST_TIMED_OUT),
        ] {
            let mut rig = Rig::new(1, &[]);
            rig.readable = readable;
            let refused: InitProducerIdResponse = rig.run(4, &request, |_| Does::Hang).answer();
            assert_eq!((refused.error_code, refused.producer_id, refused.producer_epoch), (code, -1, -1));
        }
    }
}
