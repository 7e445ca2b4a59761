//! Cutting a byte stream into frames: an int32 length, then that many bytes.

use std::fmt;

use bytes::BytesMut;

/// Bytes of the length that stands before each frame.
pub(crate) const LENGTH_PREFIX: usize = 4;

/// API key, version, correlation id.
const SHORTEST_REQUEST: usize = 8;

/// Correlation id.
const SHORTEST_RESPONSE: usize = 4;

/// Cuts the bytes of one connection into frames.
///
/// A frame is given out with its length prefix, so that one that is passed on needs no copy. An announced length
/// reserves nothing: memory grows with the bytes that have come.
#[derive(Debug)]
pub struct Splitter {
    buffer: BytesMut,
    /// Nothing was taken yet: the peer may be speaking another protocol.
    at_start: bool,
    shortest: usize,
    longest: usize,
}

impl Splitter {
    /// For what a client sends; `longest` is the largest length that is accepted, bytes without the prefix.
    pub fn for_requests(longest: usize) -> Self {
        Self { buffer: BytesMut::new(), at_start: true, shortest: SHORTEST_REQUEST, longest }
    }

    /// For what a broker sends; `longest` as in [`Splitter::for_requests`].
    pub fn for_responses(longest: usize) -> Self {
        Self { buffer: BytesMut::new(), at_start: true, shortest: SHORTEST_RESPONSE, longest }
    }

    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: BytesMut) {
        if self.buffer.is_empty() {
            self.buffer = bytes;
        } else {
            // Free of copies where the bytes lie behind ours in the same allocation.
            self.buffer.unsplit(bytes);
        }
    }

    /// Room for `bytes` in one piece, those that have come included: a frame of known length is then not moved each time
    /// when it outgrows what there is.
    pub fn reserve(&mut self, bytes: usize) {
        if self.buffer.capacity() < bytes {
            // Growing in place would double what there is.
            let mut larger = BytesMut::with_capacity(bytes);
            larger.extend_from_slice(&self.buffer);
            self.buffer = larger;
        }
    }

    /// Drops what has come.
    pub fn clear(&mut self) {
        self.buffer = BytesMut::new();
    }

    /// The next frame, prefix included; `None` until it is complete. After an error the stream cannot be read on.
    pub fn next_frame(&mut self) -> Result<Option<BytesMut>, FrameError> {
        match self.announced()? {
            Some(total) if total <= self.buffer.len() => {
                self.at_start = false;
                Ok(Some(self.buffer.split_to(total)))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Bytes that the frame in front will have when it is complete, prefix included; `None` while not even its length
    /// has come.
    pub fn announced(&self) -> Result<Option<usize>, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<LENGTH_PREFIX>() else { return Ok(None) };
        let announced = i32::from_be_bytes(*prefix);
        let looks_like = LooksLike::of(*prefix);
        // Both begin with lengths of hundreds of megabytes. A first frame of just such a length is less likely by far than
        // a peer that speaks something else, and waiting for it would take until a deadline.
        let is_something_else = self.at_start && looks_like != LooksLike::Nothing;
        match usize::try_from(announced) {
            Ok(length) if (self.shortest..=self.longest).contains(&length) && !is_something_else => {
                Ok(Some(LENGTH_PREFIX + length))
            }
            Ok(_) | Err(_) => Err(FrameError { announced, looks_like }),
        }
    }

    /// Bytes held back because their frame is not complete, or because nobody has asked for it yet.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }
}

/// A frame as it came, without its length prefix.
pub(crate) fn payload(frame: &[u8]) -> &[u8] {
    frame.get(LENGTH_PREFIX..).unwrap_or_default()
}

/// A length that no frame can have, or the beginning of another protocol: the connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The length as it was read.
    pub announced: i32,
    /// What the peer may be speaking instead.
    pub looks_like: LooksLike,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.looks_like {
            LooksLike::Tls => f.write_str("this looks like TLS, where plain Kafka is spoken"),
            LooksLike::Http => f.write_str("this looks like HTTP, where Kafka is spoken"),
            LooksLike::Nothing => write!(f, "frame length {} is out of range", self.announced),
        }
    }
}

impl std::error::Error for FrameError {}

/// What else the first four bytes could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LooksLike {
    /// A TLS record.
    Tls,
    /// The beginning of an HTTP message.
    Http,
    /// Nothing that is known here.
    Nothing,
}

impl LooksLike {
    fn of(prefix: [u8; LENGTH_PREFIX]) -> Self {
        match &prefix {
            // Record type (change cipher spec, alert, handshake, application data), then version 3.x.
            [0x14..=0x17, 3, 0..=4, _] => Self::Tls,
            b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"OPTI" | b"PATC" | b"CONN" | b"TRAC" | b"PRI "
            | b"HTTP" => Self::Http,
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    const LONGEST: usize = 100 * 1024 * 1024;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.put_i32(payload.len() as i32);
        frame.put_slice(payload);
        frame
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let sent = [frame(b"12345678"), frame(b"abcdefghijkl")];
        let stream = sent.concat();
        for step in 1..=stream.len() {
            let mut splitter = Splitter::for_requests(LONGEST);
            let mut received = Vec::new();
            for bytes in stream.chunks(step) {
                splitter.push(BytesMut::from(bytes));
                while let Some(frame) = splitter.next_frame().unwrap() {
                    received.push(frame.to_vec());
                }
            }
            assert_eq!(received, sent);
            assert_eq!(splitter.buffered(), 0);
        }
    }

    #[test]
    fn lengths_out_of_range_name_a_suspect() {
        let cases: [(&[u8; 4], i32, LooksLike); 8] = [
            (&[0x16, 3, 1, 1], 369_295_617, LooksLike::Tls),
            (&[0x15, 3, 3, 0], 0x1503_0300, LooksLike::Tls),
            (b"GET ", 1_195_725_856, LooksLike::Http),
            (b"HTTP", 0x4854_5450, LooksLike::Http),
            (&[0, 0, 0, 0], 0, LooksLike::Nothing),
            (&[0, 0, 0, 3], 3, LooksLike::Nothing),
            (&[0xff; 4], -1, LooksLike::Nothing),
            (&[0x7f, 0xff, 0xff, 0xff], i32::MAX, LooksLike::Nothing),
        ];
        for (prefix, announced, looks_like) in cases {
            for mut splitter in [Splitter::for_requests(LONGEST), Splitter::for_responses(LONGEST)] {
                splitter.push(BytesMut::from(&prefix[..]));
                assert_eq!(splitter.next_frame(), Err(FrameError { announced, looks_like }));
            }
        }
    }

    #[test]
    fn another_protocol_is_noticed_however_long_frames_may_be() {
        for (prefix, looks_like) in
            [(&[0x16, 3, 1, 2], LooksLike::Tls), (&[0x15, 3, 3, 0], LooksLike::Tls), (b"HTTP", LooksLike::Http)]
        {
            let announced = i32::from_be_bytes(*prefix);
            for splitter in [Splitter::for_requests, Splitter::for_responses] {
                let mut splitter = splitter(i32::MAX as usize);
                splitter.push(BytesMut::from(&prefix[..]));
                let error = splitter.next_frame().unwrap_err();
                assert_eq!(error, FrameError { announced, looks_like });
                assert!(error.to_string().starts_with("this looks like "), "{error}");
            }
        }
    }

    #[test]
    fn a_later_frame_may_have_any_length() {
        let mut splitter = Splitter::for_responses(i32::MAX as usize);
        splitter.push(BytesMut::from(&frame(b"1234")[..]));
        assert!(splitter.next_frame().unwrap().is_some());
        splitter.push(BytesMut::from(&[0x16, 3, 1, 2][..]));
        assert_eq!(splitter.next_frame(), Ok(None));
    }

    #[test]
    fn an_announced_length_reserves_nothing() {
        let mut splitter = Splitter::for_requests(LONGEST);
        let mut bytes = BytesMut::with_capacity(4);
        bytes.put_i32(LONGEST as i32);
        splitter.push(bytes);
        assert_eq!(splitter.next_frame(), Ok(None));
        assert_eq!(splitter.announced(), Ok(Some(LONGEST + LENGTH_PREFIX)));
        assert!(splitter.buffer.capacity() < 64);
    }

    #[test]
    fn what_is_reserved_is_not_exceeded() {
        let whole = frame(&[7; 1000]);
        let mut splitter = Splitter::for_requests(LONGEST);
        splitter.push(BytesMut::from(&whole[..300]));
        splitter.reserve(1004);
        for piece in whole[300..].chunks(100) {
            splitter.push(BytesMut::from(piece));
        }
        assert_eq!(splitter.buffer.capacity(), 1004);
        assert_eq!(splitter.next_frame(), Ok(Some(BytesMut::from(&whole[..]))));
        splitter.push(BytesMut::from(&whole[..300]));
        splitter.clear();
        assert_eq!((splitter.buffered(), splitter.announced()), (0, Ok(None)));
    }

    #[test]
    fn the_limit_is_the_last_length_that_passes() {
        for (length, accepted) in [(16, true), (17, false)] {
            let mut splitter = Splitter::for_requests(16);
            splitter.push(BytesMut::from(&frame(&vec![0; length])[..]));
            assert_eq!(splitter.next_frame().is_ok(), accepted);
        }
    }
}
