//! A Kafka client that sends anything, and knows which answers may come back.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::kafka::{ApiKey, RequestHeader, ResponseHeader, Splitter};

/// A whole frame that was sent and not answered.
struct Due {
    correlation_id: i32,
    api: i16,
}

/// One connection as the client sees it.
pub(super) struct HostileClient {
    /// Cuts what was sent as the protocol does; `None` when that cannot be done any more.
    sent: Option<Splitter>,
    due: VecDeque<Due>,
    received: Splitter,
    answers: Vec<Bytes>,
    closed: bool,
}

impl HostileClient {
    /// Requests above this many bytes end the connection.
    pub(super) fn new(request_max_bytes: usize) -> Self {
        Self {
            sent: Some(Splitter::for_requests(request_max_bytes)),
            due: VecDeque::new(),
            received: Splitter::for_responses(usize::MAX),
            answers: Vec::new(),
            closed: false,
        }
    }

    pub(super) fn sends(&mut self, bytes: &[u8]) {
        let Some(splitter) = &mut self.sent else { return };
        splitter.push(BytesMut::from(bytes));
        loop {
            match splitter.next_frame() {
                Ok(Some(frame)) => {
                    let short = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
                    let correlation_id = i32::from_be_bytes([frame[8], frame[9], frame[10], frame[11]]);
                    self.due.push_back(Due { correlation_id, api: short(4) });
                }
                Ok(None) => return,
                Err(_) => return self.sent = None,
            }
        }
    }

    /// # Panics
    ///
    /// When an answer is out of order, or passes over a request that must be answered.
    pub(super) fn receives(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        self.received.push(BytesMut::from(bytes));
        while let Some(frame) = self.received.next_frame().expect("the proxy writes whole frames") {
            let correlation_id = ResponseHeader::correlation_id(&frame).expect("an answer has a header");
            loop {
                let due = self.due.pop_front().expect("every answer is to a request");
                // Only a Produce with acks 0 has no answer.
                match due.correlation_id == correlation_id {
                    true => break,
                    false => assert_eq!(due.api, i16::from(ApiKey::Produce), "an answer is passed over"),
                }
            }
            self.answers.push(frame.freeze());
        }
    }

    pub(super) fn closed(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn take_answers(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.answers)
    }

    /// # Panics
    ///
    /// When the connection stands and the oldest request has no answer although nothing keeps a broker from giving one.
    pub(super) fn check_answered(&self) {
        let may_wait = [ApiKey::Produce, ApiKey::Fetch, ApiKey::JoinGroup, ApiKey::SyncGroup].map(i16::from);
        let oldest = self.due.front().filter(|due| !self.closed && !may_wait.contains(&due.api));
        assert!(oldest.is_none(), "API {:?} is not answered", oldest.map(|due| due.api));
    }
}

/// A whole frame: length, header as this version of the API has it, body.
pub(super) fn frame(api: ApiKey, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let header =
        RequestHeader { api_key: i16::from(api), api_version: version, correlation_id, client_id: Some("fuzz") };
    let mut payload = BytesMut::new();
    header.encode(&mut payload);
    payload.extend_from_slice(body);
    let length = u32::try_from(payload.len()).expect("inputs are short");
    [&length.to_be_bytes()[..], &payload].concat()
}
