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
    /// # Panics
    ///
    /// When an answer is not the one that is due: invariant I4.
    pub fn received(&mut self, bytes: &[u8]) {
        assert!(!self.closed, "bytes after the end of the connection");
        self.splitter.push(BytesMut::from(bytes));
        while let Some(frame) = self.splitter.next_frame().expect("the proxy writes whole frames") {
            let correlation_id = ResponseHeader::correlation_id(&frame).expect("an answer has a header");
            let due = self.awaited.pop_front();
            assert_eq!(Some(correlation_id), due, "answers come once, in request order");
            self.answers.push_back((correlation_id, frame.freeze()));
        }
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

    /// Takes the oldest answer that was not taken yet.
    ///
    /// # Panics
    ///
    /// When it cannot be read as an answer of this kind.
    pub fn take_answer<M: Message>(&mut self, version: i16) -> Option<M> {
        let (_, frame) = self.answers.pop_front()?;
        let (_, body_at) = ResponseHeader::decode(&frame, M::KEY, version).expect("the header can be read");
        Some(M::decode(&frame.slice(body_at..), version).expect("the body can be read"))
    }
}
