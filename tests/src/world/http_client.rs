//! An HTTP client: one exchange, its request body in pieces, and the answer it got.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use kafscale_proxy_core::inputs::ReadResult;

/// How the request body ends after its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// As its framing says.
    Whole,
    /// The connection breaks before.
    Cut,
    /// Nothing more comes, and the connection stands.
    Stalls,
}

/// One exchange as the client sees it.
pub struct HttpClient {
    pieces: VecDeque<Bytes>,
    end: BodyEnd,
    head: Option<Box<Parts>>,
    body: BytesMut,
    announced: Option<u64>,
    aborted: bool,
    stands_still: bool,
    slowness: Duration,
}

impl HttpClient {
    /// With a request body.
    pub fn new(pieces: impl IntoIterator<Item = Bytes>, end: BodyEnd) -> Self {
        Self {
            pieces: pieces.into_iter().filter(|piece| !piece.is_empty()).collect(),
            end,
            head: None,
            body: BytesMut::new(),
            announced: None,
            aborted: false,
            stands_still: false,
            slowness: Duration::ZERO,
        }
    }

    /// A client that takes so long for each piece of its body.
    #[must_use]
    pub const fn that_is_slow(mut self, slowness: Duration) -> Self {
        self.slowness = slowness;
        self
    }

    pub(super) const fn slowness(&self) -> Duration {
        self.slowness
    }

    /// A client that does not take its answer.
    #[must_use]
    pub fn that_stands_still(mut self) -> Self {
        self.stands_still = true;
        self
    }

    /// From now on it does.
    pub(super) fn takes_answer(&mut self) {
        self.stands_still = false;
    }

    /// Whether it does not take its answer.
    pub(super) fn stands_still(&self) -> bool {
        self.stands_still
    }

    /// The next piece of the request body; `None` while nothing comes.
    pub fn read(&mut self, max_bytes: usize) -> Option<ReadResult> {
        match (self.pieces.front_mut(), self.end) {
            (Some(piece), _) if piece.len() > max_bytes => Some(ReadResult::Chunk(piece.split_to(max_bytes))),
            (Some(_), _) => self.pieces.pop_front().map(ReadResult::Chunk),
            (None, BodyEnd::Cut) => Some(ReadResult::Broken("the connection broke".into())),
            (None, BodyEnd::Whole) => Some(ReadResult::End),
            (None, BodyEnd::Stalls) => None,
        }
    }

    /// The head of the answer; `announced` is the length of a streamed body.
    ///
    /// # Panics
    ///
    /// When there is an answer already: one answer per request.
    pub fn responded(&mut self, head: Box<Parts>, announced: Option<u64>) {
        assert!(self.head.is_none(), "one answer per request");
        self.head = Some(head);
        self.announced = announced;
    }

    /// Bytes of the answer's body.
    pub fn received(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }

    /// The connection was broken off.
    pub fn aborted(&mut self) {
        self.aborted = true;
    }

    /// Whether a streamed body is complete.
    pub fn is_complete(&self) -> bool {
        self.head.is_some() && self.announced.is_none_or(|length| self.body.len() as u64 == length)
    }

    /// Whether the connection was broken off.
    pub fn is_aborted(&self) -> bool {
        self.aborted
    }

    /// Status of the answer.
    pub fn status(&self) -> Option<u16> {
        self.head.as_ref().map(|head| head.status.as_u16())
    }

    /// A header of the answer.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.as_ref()?.headers.get(name)?.to_str().ok()
    }

    /// Body of the answer, as far as it came.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}
