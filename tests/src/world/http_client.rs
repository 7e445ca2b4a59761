//! An HTTP client: one exchange, its request body in pieces, and the answer it got.

use std::collections::VecDeque;

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
}

/// One exchange as the client sees it.
pub struct HttpClient {
    pieces: VecDeque<Bytes>,
    end: BodyEnd,
    head: Option<Box<Parts>>,
    body: BytesMut,
    announced: Option<u64>,
    aborted: bool,
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
        }
    }

    /// The next piece of the request body.
    pub fn read(&mut self, max_bytes: usize) -> ReadResult {
        match self.pieces.front_mut() {
            Some(piece) if piece.len() > max_bytes => ReadResult::Chunk(piece.split_to(max_bytes)),
            Some(_) => ReadResult::Chunk(self.pieces.pop_front().expect("there is a first piece")),
            None if self.end == BodyEnd::Cut => ReadResult::Broken("the connection broke".into()),
            None => ReadResult::End,
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
