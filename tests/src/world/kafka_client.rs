//! A Kafka client: sends frames, pipelined as it likes, and checks that answers come in order.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::kafka::{Message, Request, ResponseHeader, Splitter, request_frame};

/// The longest answer a client takes, bytes.
const ANSWER_MAX_BYTES: usize = 256 << 20;

/// One connection as the client sees it.
pub struct KafkaClient {
    next_correlation_id: i32,
    /// Correlation ids of requests that must be answered, oldest first.
    awaited: VecDeque<i32>,
    splitter: Splitter,
    answers: VecDeque<(i32, Bytes)>,
    closed: bool,
}

impl Default for KafkaClient {
    fn default() -> Self {
        Self {
            next_correlation_id: 1,
            awaited: VecDeque::new(),
            splitter: Splitter::for_responses(ANSWER_MAX_BYTES),
            answers: VecDeque::new(),
            closed: false,
        }
    }
}

impl KafkaClient {
    /// A frame for this request; its answer is awaited unless the protocol knows none.
    pub fn request<R: Request>(&mut self, version: i16, request: &R, answered: bool) -> Bytes {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        if answered {
            self.awaited.push_back(correlation_id);
        }
        request_frame(correlation_id, Some("world"), version, request)
    }

    /// Bytes of answers arrived.
    ///
    /// # Errors
    ///
    /// When an answer is not the one that is due: invariant I4.
    pub fn received(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.splitter.push(BytesMut::from(bytes));
        while let Some(frame) = self.splitter.next_frame().map_err(|error| error.to_string())? {
            let correlation_id = ResponseHeader::correlation_id(&frame).map_err(|error| format!("{error:?}"))?;
            let due = self.awaited.pop_front();
            if Some(correlation_id) != due {
                return Err(format!("answer {correlation_id} where {due:?} is due"));
            }
            self.answers.push_back((correlation_id, frame.freeze()));
        }
        Ok(())
    }

    /// The connection has ended.
    pub fn closed(&mut self) {
        self.closed = true;
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Requests whose answers have not come.
    pub fn awaited(&self) -> usize {
        self.awaited.len()
    }

    /// Whether there is an answer that was not taken yet.
    pub fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Takes the oldest answer that was not taken yet.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be read as an answer of this kind.
    pub fn take_answer<M: Message>(&mut self, version: i16) -> Result<M, String> {
        let (_, frame) = self.answers.pop_front().ok_or("no answer has come")?;
        let unreadable = |error| format!("{:?} version {version} cannot be read: {error:?}", M::KEY);
        let (_, body_at) = ResponseHeader::decode(&frame, M::KEY, version).map_err(unreadable)?;
        M::decode(&frame.slice(body_at..), version).map_err(unreadable)
    }
}
