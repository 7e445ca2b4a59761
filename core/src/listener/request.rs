//! What one request of a Kafka client is made of: its head, the steps it asks for, and its answer.
//!
//! Each kind of request is a machine of its own ([`RequestMachine`]) that knows nothing of sockets, of other requests
//! or of the order of answers. It is told what became of its parts and pushes [`Step`]s; the client machine carries
//! them out.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

pub(crate) use crate::broker::Fate;
use crate::cluster::{Address, Answer, Cluster, Question};
use crate::context::Context;
use crate::input::{BrokerConnectionId, ClientId};
use crate::kafka::{ApiKey, FrameTooLong, RequestHeader};
use crate::listener::RequestId;

/// A request as the client sent it, its header parsed.
#[derive(Debug)]
pub(crate) struct RequestHead {
    /// The API.
    pub(crate) api: ApiKey,
    /// The version of the API; the client machine has checked it against the advertised range.
    pub(crate) version: i16,
    /// The client's own number; it goes to the brokers as it is.
    pub(crate) correlation_id: i32,
    /// The whole frame, length prefix included. Mutable so that fields can be patched in place without a copy.
    pub(crate) frame: BytesMut,
    /// Where the body begins in `frame`, behind the length prefix and the header.
    pub(crate) body_at: usize,
}

impl RequestHead {
    /// What the client calls itself; null stays null.
    pub(crate) fn client_id(&self) -> Option<&str> {
        RequestHeader::client_id(&self.frame)
    }

    /// The body behind the header.
    pub(crate) fn body(&self) -> &[u8] {
        self.frame.get(self.body_at..).unwrap_or_default()
    }
}

/// Names one sub-request of a request. The machine draws the numbers and does not use one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Part(pub(crate) u32);

/// Which broker a part goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// This broker; if it cannot be dialled, any other candidate that is not in `not`.
    Prefer {
        /// The owner.
        address: Address,
        /// Already used in this round.
        not: Vec<Address>,
    },
    /// Any candidate: an open connection of this client first, else round robin from a drawn start.
    Any {
        /// Already tried for this request.
        not: Vec<Address>,
    },
    /// This broker, or [`PartResult::NotSent`].
    Only(Address),
}

/// What a request machine wants next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send a frame; one `on_part` with this part follows, unless the request ends before.
    Send {
        /// Its name in `on_part`.
        part: Part,
        /// Where to.
        target: Target,
        /// The whole frame, length prefix included. It carries the client's correlation id.
        bytes: Bytes,
        /// Whether the broker answers it; acks 0 is not answered, and `on_part` does not follow when it was sent.
        answered: bool,
        /// From the moment of sending; past it the part is lost.
        deadline: Duration,
    },
    /// Ask etcd; one `on_answer` follows.
    Ask(Question),
    /// The owner refused: the route is not to be used again until it is learned anew.
    ForgetPartitionOwner {
        /// Topic name.
        topic: String,
        /// Index.
        partition: i32,
        /// Who refused.
        by: Address,
    },
    /// The coordinator refused: the route is not to be used again until it is learned anew.
    ForgetCoordinator {
        /// Group id.
        group: String,
        /// Who refused.
        by: Address,
    },
    /// `on_wake` after this time. One wake per request; a new one replaces the former.
    Wake(Duration),
    /// The request is over. Nothing is told to the machine any more.
    Done(Reply),
}

/// How a request ends towards its client. Pieces are whole frames or pieces of one, length prefix included.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The answer.
    Answer(Vec<Bytes>),
    /// The answer, then the connection is closed.
    AnswerAndClose(Vec<Bytes>),
    /// The protocol wants no answer (acks 0).
    Silence,
    /// No honest answer exists: the connection is closed.
    Close,
}

impl Reply {
    /// An answer put together of those of several brokers.
    pub(crate) fn merged(frame: Result<Bytes, FrameTooLong>) -> Self {
        frame.map_or_else(
            |FrameTooLong| {
                tracing::warn!("what the brokers have answered together is longer than 2 GiB, connection closed");
                Self::Close
            },
            |frame| Self::Answer(vec![frame]),
        )
    }
}

/// What became of a part.
#[derive(Debug)]
pub(crate) enum PartResult {
    /// The broker answered.
    Answered {
        /// Who.
        address: Address,
        /// The whole frame, length prefix included; its correlation id is verified.
        frame: BytesMut,
    },
    /// No broker could be connected within the attempts, or knowledge became stale before anything was sent.
    NotSent,
    /// The connection was lost, or the deadline passed.
    Lost {
        /// Who.
        address: Address,
        /// Whether the broker may have seen the request.
        fate: Fate,
    },
}

/// The body does not decode: no answer, and the connection is closed after what came before is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undecodable;

/// One request under way.
///
/// Machines are built by `new(head, …) -> Result<Self, Undecodable>` and started once the cluster may be used
/// (`cluster.service`). Each method pushes what is next; after [`Step::Done`] the machine is dropped, and parts
/// that are still in flight are forgotten. Before a later round the machine looks at the freshness itself.
pub(crate) trait RequestMachine {
    /// The first round.
    fn start(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>);

    /// A part is over.
    fn on_part(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        part: Part,
        result: PartResult,
        steps: &mut Vec<Step>,
    );

    /// A question is answered; what was learned is in `cluster`.
    fn on_answer(
        &mut self,
        ctx: &mut Context<'_>,
        cluster: &Cluster,
        question: &Question,
        answer: &Answer,
        steps: &mut Vec<Step>,
    );

    /// How many items it consists of: partitions, groups. Each takes memory, whatever it was on the wire.
    fn items(&self) -> usize {
        1
    }

    /// The time of [`Step::Wake`] has come.
    fn on_wake(&mut self, ctx: &mut Context<'_>, cluster: &Cluster, steps: &mut Vec<Step>);
}

/// What the listener wants done; the proxy turns it into effects.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Append to what is written to the client.
    Write { client: ClientId, bytes: Bytes },
    /// Stop reading from the client.
    Pause { client: ClientId },
    /// Read from the client again.
    Resume { client: ClientId },
    /// Write what is queued, then close; `Closed` follows.
    Close { client: ClientId },
    /// Accept no more connections.
    StopAccepting,
    /// Dial.
    Connect { connection: BrokerConnectionId, address: Address },
    /// Append to what is written to the broker.
    WriteBroker { connection: BrokerConnectionId, bytes: Bytes },
    /// Stop reading from the broker.
    PauseBroker { connection: BrokerConnectionId },
    /// Read from the broker again.
    ResumeBroker { connection: BrokerConnectionId },
    /// Close at once, or give the dial up.
    CloseBroker { connection: BrokerConnectionId },
    /// Ask etcd; `on_answer` follows unless the waiter is forgotten.
    Ask { question: Question, request: RequestId },
    /// The request is over: its open questions need no answer.
    ForgetWaiter { request: RequestId },
    /// Drop this route, if it leads to who refused.
    ForgetPartitionOwner { topic: String, partition: i32, by: Address },
    /// Drop this route, if it leads to who refused.
    ForgetCoordinator { group: String, by: Address },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_no_frame_can_hold_ends_the_connection() {
        assert!(matches!(Reply::merged(Err(FrameTooLong)), Reply::Close));
        assert!(matches!(Reply::merged(Ok(Bytes::from_static(b"x"))), Reply::Answer(pieces) if pieces == ["x"]));
    }
}
