//! Strings that share the frame they came in.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

use super::decode::DecodeError;

/// A Kafka string: UTF-8 of at most [`Str::MAX_LEN`] bytes, cheap to clone.
///
/// A decoded one shares the memory of its frame; see [`Str::detached`] before keeping it for long.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Str(Bytes);

impl Str {
    /// Longest string of the protocol, bytes: its length is an int16, and brokers refuse longer ones in compact
    /// strings too.
    pub const MAX_LEN: usize = i16::MAX as usize;

    /// Text known at compile time.
    pub fn from_static(text: &'static str) -> Self {
        debug_assert!(text.len() <= Self::MAX_LEN);
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Bytes from the wire.
    pub(crate) fn from_wire(bytes: Bytes) -> Result<Self, DecodeError> {
        if bytes.len() > Self::MAX_LEN {
            return Err(DecodeError::Length);
        }
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(DecodeError::Utf8),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a Str is UTF-8 from the moment it is built")
    }

    /// A copy with memory of its own, so that keeping it does not keep a whole frame.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

/// Text longer than [`Str::MAX_LEN`] is cut at the last character that fits: it could not be sent at all.
impl From<String> for Str {
    fn from(mut text: String) -> Self {
        text.truncate(text.floor_char_boundary(Self::MAX_LEN));
        Self(Bytes::from(text))
    }
}

/// As from [`String`], with a copy.
impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(&text.as_bytes()[..text.floor_char_boundary(Self::MAX_LEN)]))
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

// `Borrow<str>` demands the hash of `str`.
impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_at_a_character() {
        let text = "ä".repeat(Str::MAX_LEN / 2 + 1);
        let cut = Str::from(text.as_str());
        assert_eq!(cut.len(), Str::MAX_LEN - 1);
        assert_eq!(cut, Str::from(text));
    }

    #[test]
    fn wire_bytes_are_checked() {
        assert_eq!(Str::from_wire(Bytes::from_static(b"\xff")), Err(DecodeError::Utf8));
        assert_eq!(Str::from_wire(Bytes::from(vec![b'a'; Str::MAX_LEN + 1])), Err(DecodeError::Length));
        assert_eq!(Str::from_wire(Bytes::from_static(b"a")).unwrap(), "a");
    }
}
