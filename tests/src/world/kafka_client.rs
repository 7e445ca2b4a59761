//! A Kafka client: sends frames, pipelined as it likes, and checks that answers come in order.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::inputs::ClientId;
use kafscale_proxy_core::kafka::{Message, Request, ResponseHeader, Splitter, request_frame};

/// The longest answer a client takes, bytes.
const ANSWER_MAX_BYTES: usize = 256 << 20;

/// What the sockets on the way take of a client that does not read, bytes.
const WINDOW: usize = 300;
/// Above so many bytes that wait the driver says that a client is clogged.
const HIGH_WATERMARK: usize = 1_500;

/// What a client calls itself, before its number: so it is known at brokers whom the proxy asks for.
pub(super) const NAME: &str = "world-";

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client, or the death of the process: its shard may not know it yet.
    Vanished,
    /// The proxy: it writes nothing more.
    Closed,
}

/// What the driver says of a client that does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldBack {
    /// Its socket takes nothing now.
    Blocked,
    /// Much waits for it.
    Clogged,
}

/// One connection as the client sees it.
pub struct KafkaClient {
    name: String,
    next_correlation_id: i32,
    /// Correlation ids of requests that must be answered, oldest first.
    awaited: VecDeque<i32>,
    splitter: Splitter,
    answers: VecDeque<(i32, Bytes)>,
    /// So many of the oldest answers were there before it read them.
    late: usize,
    end: Option<End>,
    stands_still: bool,
    /// Written to it since it stands still.
    unread: BytesMut,
    held_back: Vec<HeldBack>,
    paused: bool,
    /// Sent by it while it is not read.
    unsent: BytesMut,
}

impl KafkaClient {
    /// One that has just connected.
    pub(super) fn new(id: ClientId) -> Self {
        Self {
            name: format!("{NAME}{}", id.0),
            next_correlation_id: 1,
            awaited: VecDeque::new(),
            splitter: Splitter::for_responses(ANSWER_MAX_BYTES),
            answers: VecDeque::new(),
            late: 0,
            end: None,
            stands_still: false,
            unread: BytesMut::new(),
            held_back: Vec::new(),
            paused: false,
            unsent: BytesMut::new(),
        }
    }

    /// A frame for this request; its answer is awaited unless the protocol knows none.
    pub fn request<R: Request>(&mut self, version: i16, request: &R, answered: bool) -> Bytes {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        if answered {
            self.awaited.push_back(correlation_id);
        }
        request_frame(correlation_id, Some(&self.name), version, request)
    }

    /// Bytes of answers arrived.
    ///
    /// # Errors
    ///
    /// When an answer is not the one that is due: invariant I4.
    pub fn received(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.stands_still {
            self.unread.extend_from_slice(bytes);
            return Ok(());
        }
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

    /// It reads nothing until it goes on.
    pub fn stand_still(&mut self) {
        self.stands_still = true;
    }

    /// It reads what has come meanwhile, and goes on. Gives what the driver had said of it.
    ///
    /// # Errors
    ///
    /// When an answer is not the one that is due: invariant I4.
    pub(super) fn go_on(&mut self) -> Result<Vec<HeldBack>, String> {
        self.stands_still = false;
        let unread = std::mem::take(&mut self.unread);
        self.received(&unread)?;
        self.late = self.answers.len();
        Ok(std::mem::take(&mut self.held_back))
    }

    /// What the driver has to say now of a client that does not read.
    pub(super) fn news_of_driver(&mut self) -> Vec<HeldBack> {
        let waiting = self.unread.len();
        let due = [(HeldBack::Blocked, WINDOW), (HeldBack::Clogged, HIGH_WATERMARK)];
        let due = due.into_iter().filter(|(what, above)| waiting > *above && !self.held_back.contains(what));
        let due: Vec<HeldBack> = due.map(|(what, _)| what).collect();
        self.held_back.extend(&due);
        due
    }

    /// Whether its socket takes nothing.
    pub fn is_blocked(&self) -> bool {
        self.held_back.contains(&HeldBack::Blocked)
    }

    /// The driver does not read it, or reads it again.
    pub(super) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// It sends bytes.
    pub(super) fn sends(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// What the driver reads next of what it has sent, if it reads at all.
    pub(super) fn read(&mut self, most: usize) -> Option<BytesMut> {
        let bytes = self.unsent.len().min(most);
        (bytes > 0 && !self.paused && !self.is_closed()).then(|| self.unsent.split_to(bytes))
    }

    /// The client goes away.
    pub(super) fn vanishes(&mut self) {
        self.end.get_or_insert(End::Vanished);
    }

    /// The proxy closes the connection.
    pub(super) fn closed(&mut self) {
        self.end.get_or_insert(End::Closed);
    }

    /// Whether the proxy closed the connection, so that it must not write any more.
    pub(super) fn was_closed_by_proxy(&self) -> bool {
        self.end == Some(End::Closed)
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.end.is_some()
    }

    /// Requests whose answers have not come.
    pub fn awaited(&self) -> usize {
        self.awaited.len()
    }

    /// Whether there is an answer that was not taken yet.
    pub fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether the oldest answer had come before the client read it.
    pub fn is_late(&self) -> bool {
        self.late > 0
    }

    /// Takes the oldest answer that was not taken yet.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be read as an answer of this kind.
    pub fn take_answer<M: Message>(&mut self, version: i16) -> Result<M, String> {
        let (_, frame) = self.answers.pop_front().ok_or("no answer has come")?;
        self.late = self.late.saturating_sub(1);
        let unreadable = |error| format!("{:?} version {version} cannot be read: {error:?}", M::KEY);
        let (_, body_at) = ResponseHeader::decode(&frame, M::KEY, version).map_err(unreadable)?;
        M::decode(&frame.slice(body_at..), version).map_err(unreadable)
    }
}
