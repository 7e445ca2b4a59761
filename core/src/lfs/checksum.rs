//! Checksum algorithms of the LFS contract, and digests that run while a body streams.
//!
//! SHA-256 (FIPS 180-4) is always computed: it names the blob's content in the envelope. A second algorithm may
//! be chosen beside it; MD5 (RFC 1321) and CRC-32 (IEEE 802.3, not Castagnoli) are integrity checks, no more.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// A checksum algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256, 64 hex digits.
    Sha256,
    /// MD5, 32 hex digits.
    Md5,
    /// CRC-32 (IEEE), 8 hex digits.
    Crc32,
    /// No checksum beside the SHA-256 that is always there.
    None,
}

impl Algorithm {
    /// Reads a name as it stands in settings and headers: white space around it and letter case do not matter.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        [Self::Sha256, Self::Md5, Self::Crc32, Self::None].into_iter().find(|one| name.eq_ignore_ascii_case(one.name()))
    }

    /// The name in envelopes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Md5 => "md5",
            Self::Crc32 => "crc32",
            Self::None => "none",
        }
    }
}

/// The digests of a body that is still coming.
pub(crate) struct Digests {
    sha256: Sha256,
    chosen: Chosen,
}

impl std::fmt::Debug for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digests").finish_non_exhaustive()
    }
}

/// What runs beside SHA-256.
enum Chosen {
    Sha256,
    Md5(md5::Md5),
    Crc32(crc32fast::Hasher),
    None,
}

/// The digests of a whole body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checksums {
    /// Always there.
    pub(crate) sha256: [u8; 32],
    /// Which one was chosen.
    pub(crate) algorithm: Algorithm,
    /// The chosen one, lower-case hex; `None` for [`Algorithm::None`].
    pub(crate) chosen: Option<String>,
}

impl Digests {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let chosen = match algorithm {
            Algorithm::Sha256 => Chosen::Sha256,
            Algorithm::Md5 => Chosen::Md5(md5::Md5::new()),
            Algorithm::Crc32 => Chosen::Crc32(crc32fast::Hasher::new()),
            Algorithm::None => Chosen::None,
        };
        Self { sha256: Sha256::new(), chosen }
    }

    /// Takes the next bytes, in order.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        match &mut self.chosen {
            Chosen::Sha256 | Chosen::None => {}
            Chosen::Md5(md5) => md5.update(bytes),
            Chosen::Crc32(crc32) => crc32.update(bytes),
        }
    }

    /// The digests of all bytes taken so far.
    pub(crate) fn finish(&self) -> Checksums {
        let sha256: [u8; 32] = self.sha256.clone().finalize().into();
        let (algorithm, chosen) = match &self.chosen {
            Chosen::Sha256 => (Algorithm::Sha256, Some(hex(&sha256))),
            Chosen::Md5(md5) => (Algorithm::Md5, Some(hex(&md5.clone().finalize()))),
            Chosen::Crc32(crc32) => (Algorithm::Crc32, Some(hex(&crc32.clone().finalize().to_be_bytes()))),
            Chosen::None => (Algorithm::None, None),
        };
        Checksums { sha256, algorithm, chosen }
    }
}

impl Checksums {
    /// Whether the client's expectation (hex, any case) names the chosen digest.
    pub(crate) fn matches(&self, expected: &str) -> bool {
        self.chosen.as_deref().is_some_and(|chosen| chosen.eq_ignore_ascii_case(expected.trim()))
    }
}

/// Lower-case hex: readers of envelopes compare case-sensitively.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published test vectors: FIPS 180-4 "abc" (NIST), RFC 1321 A.5, the CRC catalogue's check value.
    #[test]
    fn published_vectors() {
        let table = [
            (Algorithm::Sha256, "abc", Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")),
            (Algorithm::Md5, "message digest", Some("f96b697d7cb7938d525a2f31aaf161d0")),
            (Algorithm::Crc32, "123456789", Some("cbf43926")),
            (Algorithm::None, "abc", None),
        ];
        for (algorithm, text, expected) in table {
            let mut digests = Digests::new(algorithm);
            for byte in text.as_bytes().chunks(2) {
                digests.update(byte);
            }
            let checksums = digests.finish();
            assert_eq!(checksums.algorithm, algorithm);
            assert_eq!(checksums.chosen.as_deref(), expected, "{algorithm:?}");
        }
    }

    #[test]
    fn sha256_is_always_there() {
        let mut digests = Digests::new(Algorithm::None);
        digests.update(b"hello");
        let checksums = digests.finish();
        assert_eq!(hex(&checksums.sha256), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        assert!(!checksums.matches(""), "nothing was chosen, so nothing can match");
    }

    #[test]
    fn an_expectation_matches_in_any_case() {
        let mut digests = Digests::new(Algorithm::Crc32);
        digests.update(b"123456789");
        let checksums = digests.finish();
        assert!(checksums.matches("CBF43926"));
        assert!(checksums.matches(" cbf43926 "));
        assert!(!checksums.matches("cbf43927"));
        assert!(!checksums.matches("cbf4392"));
    }

    #[test]
    fn names() {
        assert_eq!(Algorithm::parse(" SHA256 "), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::parse("None"), Some(Algorithm::None));
        assert_eq!(Algorithm::parse("crc32c"), None);
        assert_eq!(Algorithm::parse(""), None);
    }
}
