//! Kafka frames as they pass by: cut from a socket without a copy, and read field by field.
//!
//! What is looked at for every request is read by hand here, in the layouts of Produce 3 to 8 and Fetch 11: the load and
//! the sinks share the processors with what they measure.

use std::io::{self, Read};

/// A longer frame is taken for garbage.
const LONGEST: usize = 64 * 1024 * 1024;
const READ_AT_ONCE: usize = 256 * 1024;
/// Where the correlation id stands in a request frame, length prefix included.
const CORRELATION_ID_AT: usize = 8;

/// Cuts frames from what a socket brings.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl FrameReader {
    /// With a buffer for many small frames.
    pub(crate) fn new() -> Self {
        Self::with_room_for(READ_AT_ONCE)
    }

    /// With a buffer of so many bytes, which grows when a frame is longer.
    pub(crate) fn with_room_for(bytes: usize) -> Self {
        Self { buffer: vec![0; bytes], start: 0, end: 0 }
    }

    /// The next frame without its length prefix; `None` when the peer has closed between two frames.
    pub(crate) fn next(&mut self, mut socket: impl Read) -> io::Result<Option<&[u8]>> {
        let length = loop {
            let needed = match self.buffer[self.start..self.end].first_chunk::<4>() {
                None => 4,
                Some(prefix) => {
                    let length = usize::try_from(i32::from_be_bytes(*prefix)).ok().filter(|length| *length <= LONGEST);
                    let length = length.ok_or_else(|| io::Error::other("a frame of an impossible length"))?;
                    if self.end - self.start >= 4 + length {
                        break length;
                    }
                    4 + length
                }
            };
            if !self.fill(&mut socket, needed)? {
                return Ok(None);
            }
        };
        let from = self.start + 4;
        self.start = from + length;
        Ok(Some(&self.buffer[from..self.start]))
    }

    /// Reads once, with room for `needed` bytes from `start` on. `false` when the peer has closed between two frames.
    fn fill(&mut self, socket: &mut impl Read, needed: usize) -> io::Result<bool> {
        if self.start == self.end || self.start + needed > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if needed > self.buffer.len() {
                self.buffer.resize(needed, 0);
            }
        }
        match socket.read(&mut self.buffer[self.end..])? {
            0 if self.start == self.end => Ok(false),
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.end += read;
                Ok(true)
            }
        }
    }
}

/// Writes another correlation id into a request frame.
pub(crate) fn set_correlation_id(frame: &mut [u8], correlation_id: i32) {
    frame[CORRELATION_ID_AT..CORRELATION_ID_AT + 4].copy_from_slice(&correlation_id.to_be_bytes());
}

/// Reads fields of a frame, one after the other. `None` where the frame is too short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// From the first byte on.
    pub(crate) fn of(frame: &'a [u8]) -> Self {
        Self(frame)
    }

    /// Bytes as they stand.
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// An INT16.
    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    /// An INT32.
    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// A STRING or NULLABLE_STRING; null is empty.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.i16()?;
        self.bytes(usize::try_from(length).unwrap_or(0))
    }

    /// BYTES or RECORDS; null is empty.
    pub(crate) fn long_bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.i32()?;
        self.bytes(usize::try_from(length).unwrap_or(0))
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of so many.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(buffer.len());
            self.0.read(&mut buffer[..length])
        }
    }

    fn frame(length: usize, byte: u8) -> Vec<u8> {
        let prefix = i32::try_from(length).expect("a short frame").to_be_bytes();
        prefix.into_iter().chain(std::iter::repeat_n(byte, length)).collect()
    }

    #[test]
    fn frames_come_whole_however_the_socket_cuts_them() {
        let lengths = [0, 1, 5, READ_AT_ONCE - 4, READ_AT_ONCE + 9, 3];
        let stream: Vec<u8> = (1..).zip(lengths).flat_map(|(byte, length)| frame(length, byte)).collect();
        for piece in [7, 1000, usize::MAX] {
            let mut socket = Pieces(&stream, piece);
            let mut reader = FrameReader::new();
            for (byte, length) in (1..).zip(lengths) {
                let read = reader.next(&mut socket).expect("a frame").expect("not the end").to_vec();
                assert_eq!(read, vec![byte; length]);
            }
            assert!(reader.next(&mut socket).expect("a clean end").is_none());
        }
    }

    #[test]
    fn a_cut_frame_and_an_impossible_length_are_errors() {
        let mut cut = frame(8, 1);
        cut.pop();
        assert!(FrameReader::new().next(Pieces(&cut, 4)).is_err());
        assert!(FrameReader::new().next(Pieces(&(-1_i32).to_be_bytes(), 4)).is_err());
        assert!(FrameReader::new().next(Pieces(&i32::MAX.to_be_bytes(), 4)).is_err());
    }

    #[test]
    fn fields_end_with_the_frame() {
        let mut fields = Fields::of(b"\0\x01\0\0\0\x02\0\x01x\xff\xff\0\0\0\x02yz\0");
        assert_eq!((fields.i16(), fields.i32()), (Some(1), Some(2)));
        assert_eq!((fields.string(), fields.string()), (Some(&b"x"[..]), Some(&b""[..])));
        assert_eq!(fields.long_bytes(), Some(&b"yz"[..]));
        assert!(!fields.is_empty());
        assert_eq!((fields.i16(), fields.bytes(1), fields.bytes(1)), (None, Some(&b"\0"[..]), None));
        assert!(fields.is_empty());
    }
}
