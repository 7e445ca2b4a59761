//! Checksum algorithms of the LFS contract.

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
