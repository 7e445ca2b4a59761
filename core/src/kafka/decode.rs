//! Why bytes are not the message they should be, and the input that parsers read from.

use std::cell::Cell;
use std::fmt;
use std::iter::{Copied, Enumerate};
use std::slice::Iter;

use bytes::Bytes;
use nom::error::{ErrorKind, ParseError};
use nom::{IResult, Input, Needed};

/// Why bytes do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the message does.
    Truncated,
    /// A length below zero that is not the mark of null, or one beyond what the type can hold.
    Length,
    /// Null where this version has no null.
    Null,
    /// A string that is not UTF-8.
    Utf8,
    /// A variable-length integer of too many bytes.
    Varint,
    /// Arrays and sections of tagged fields of more elements than [`MAX_ELEMENTS`].
    TooMany,
    /// Tagged fields whose tags do not ascend.
    TagOrder,
    /// The message ends before the bytes do; how many are left.
    Trailing(usize),
    /// The layout of this version of this API is not known.
    Version {
        /// API key.
        key: i16,
        /// Its version.
        version: i16,
    },
    /// A record batch whose CRC-32C does not match its bytes.
    Crc,
    /// A record batch of a format other than magic 2; its magic.
    Magic(i8),
    /// A record batch whose header contradicts its records.
    Inconsistent,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the bytes end before the message does"),
            Self::Length => f.write_str("a length is out of range"),
            Self::Null => f.write_str("null where this version has no null"),
            Self::Utf8 => f.write_str("a string is not UTF-8"),
            Self::Varint => f.write_str("a variable-length integer is too long"),
            Self::TooMany => write!(f, "the message has more than {MAX_ELEMENTS} elements"),
            Self::TagOrder => f.write_str("the tags of a message do not ascend"),
            Self::Trailing(count) => write!(f, "{count} bytes are left after the message"),
            Self::Version { key, version } => write!(f, "version {version} of API key {key} is not known"),
            Self::Crc => f.write_str("a record batch does not match its CRC-32C"),
            Self::Magic(magic) => write!(f, "a record batch has magic {magic}, only 2 is supported"),
            Self::Inconsistent => f.write_str("a record batch header contradicts its records"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl<I> ParseError<I> for DecodeError {
    // Parsers of this module name their errors; what nom itself finds in fixed-width input is only its end.
    fn from_error_kind(_: I, _: ErrorKind) -> Self {
        Self::Truncated
    }

    fn append(_: I, _: ErrorKind, other: Self) -> Self {
        other
    }
}

/// What a parser returns.
pub(crate) type Parsed<'a, T> = IResult<Cursor<'a>, T, DecodeError>;

/// A parser's failure.
pub(crate) fn failure(error: DecodeError) -> nom::Err<DecodeError> {
    nom::Err::Failure(error)
}

/// Runs a parser that must take all of its input.
pub(crate) fn whole<I: Input, T>(
    input: I,
    parser: impl FnOnce(I) -> IResult<I, T, DecodeError>,
) -> Result<T, DecodeError> {
    let (rest, value) = prefix(input, parser)?;
    match rest.input_len() {
        0 => Ok(value),
        left => Err(DecodeError::Trailing(left)),
    }
}

/// Runs a parser that may leave some of its input.
pub(crate) fn prefix<I: Input, T>(
    input: I,
    parser: impl FnOnce(I) -> IResult<I, T, DecodeError>,
) -> Result<(I, T), DecodeError> {
    parser(input).map_err(|error| match error {
        nom::Err::Incomplete(_) => DecodeError::Truncated,
        nom::Err::Error(error) | nom::Err::Failure(error) => error,
    })
}

/// Most elements that all arrays and sections of tagged fields of one message may have together.
///
/// An element can be a single byte on the wire and a hundred times as much in memory, so the size of the frame alone
/// bounds nothing. Clusters of hundreds of thousands of partitions stay below.
pub const MAX_ELEMENTS: usize = 1 << 20;

/// What is left of [`MAX_ELEMENTS`] while one message is read.
#[derive(Debug)]
pub(crate) struct Elements(Cell<usize>);

impl Elements {
    pub(crate) fn new() -> Self {
        Self(Cell::new(MAX_ELEMENTS))
    }

    /// Counts the elements of one array, or the fields of one section.
    pub(crate) fn take(&self, count: usize) -> Result<(), nom::Err<DecodeError>> {
        let left = self.0.get().checked_sub(count).ok_or_else(|| failure(DecodeError::TooMany))?;
        self.0.set(left);
        Ok(())
    }
}

/// Bytes still to be read, and the buffer that they are part of, so that fields can share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    buffer: &'a Bytes,
    rest: &'a [u8],
    elements: &'a Elements,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(buffer: &'a Bytes, elements: &'a Elements) -> Self {
        Self { buffer, rest: buffer, elements }
    }

    /// The limit of the message.
    pub(crate) fn elements(self) -> &'a Elements {
        self.elements
    }

    /// What is left, sharing the buffer.
    pub(crate) fn to_bytes(self) -> Bytes {
        self.buffer.slice_ref(self.rest)
    }
}

impl<'a> Input for Cursor<'a> {
    type Item = u8;
    type Iter = Copied<Iter<'a, u8>>;
    type IterIndices = Enumerate<Self::Iter>;

    fn input_len(&self) -> usize {
        self.rest.len()
    }

    fn take(&self, index: usize) -> Self {
        Self { rest: &self.rest[..index], ..*self }
    }

    fn take_from(&self, index: usize) -> Self {
        Self { rest: &self.rest[index..], ..*self }
    }

    fn take_split(&self, index: usize) -> (Self, Self) {
        // nom wants the remaining input first.
        (self.take_from(index), self.take(index))
    }

    fn position<P: Fn(u8) -> bool>(&self, predicate: P) -> Option<usize> {
        self.rest.iter().position(|byte| predicate(*byte))
    }

    fn iter_elements(&self) -> Self::Iter {
        self.rest.iter().copied()
    }

    fn iter_indices(&self) -> Self::IterIndices {
        self.iter_elements().enumerate()
    }

    fn slice_index(&self, count: usize) -> Result<usize, Needed> {
        if self.rest.len() >= count { Ok(count) } else { Err(Needed::new(count - self.rest.len())) }
    }
}
