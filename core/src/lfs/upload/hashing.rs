//! Where the digests of a body are, and how many of its bytes they have.
//!
//! The bytes of a long body are hashed elsewhere, while the shard reads on: the digests go along and come back, so jobs of one
//! body run one after the other and in its order. What is little is hashed inside the call, for the way costs more.

use bytes::Bytes;

use crate::config::LfsConfig;
use crate::lfs::checksum::{Checksums, Digests};

/// Where the digests are.
#[derive(Debug)]
pub(super) enum Hashing {
    /// With the upload.
    Here(Here),
    /// In a job.
    Away(Away),
}

/// Digests that are here.
#[derive(Debug)]
pub(super) struct Here {
    digests: Box<Digests>,
    hashed: u64,
}

/// What a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Away {
    /// Bytes that were hashed before.
    hashed: u64,
    /// Bytes that it hashes, at least one.
    bytes: u64,
}

/// What becomes of bytes that wait while the digests are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// They go on waiting: more will come.
    Nothing,
    /// They are hashed inside this call.
    Inline,
    /// They are hashed elsewhere.
    Job,
}

impl Due {
    /// Decides it. `wanted`: something waits for these bytes to be hashed, a part that is full or a body that has ended.
    pub(super) const fn of(config: &LfsConfig, waiting: u64, wanted: bool) -> Self {
        match wanted {
            true if waiting <= config.hash_inline_bytes as u64 => Self::Inline,
            true => Self::Job,
            false if waiting >= config.hash_job_bytes as u64 => Self::Job,
            false => Self::Nothing,
        }
    }
}

impl Hashing {
    pub(super) fn new(digests: Digests) -> Self {
        Self::Here(Here { digests: Box::new(digests), hashed: 0 })
    }

    /// Bytes from the beginning of the body that are hashed.
    pub(super) const fn hashed(&self) -> u64 {
        match self {
            Self::Here(here) => here.hashed,
            Self::Away(away) => away.hashed,
        }
    }

    /// Hands digests and the next bytes, in order, to a job. `None` while they are away already.
    pub(super) fn go_away(&mut self, pieces: Vec<Bytes>) -> Option<(Box<Digests>, Vec<Bytes>)> {
        let Self::Here(here) = self else { return None };
        let away = Away { hashed: here.hashed, bytes: size(&pieces) };
        match std::mem::replace(self, Self::Away(away)) {
            Self::Here(here) => Some((here.digests, pieces)),
            Self::Away(_) => None,
        }
    }
}

impl Here {
    /// Bytes from the beginning of the body that are hashed.
    pub(super) const fn hashed(&self) -> u64 {
        self.hashed
    }

    /// Hashes the next bytes, in order.
    pub(super) fn update(&mut self, pieces: &[Bytes]) {
        for piece in pieces {
            self.digests.update(piece);
        }
        self.hashed += size(pieces);
    }

    /// The digests of all bytes so far.
    pub(super) fn finish(&self) -> Checksums {
        self.digests.finish()
    }
}

impl Away {
    /// Bytes from the beginning of the body that were hashed before.
    pub(super) const fn hashed(self) -> u64 {
        self.hashed
    }

    /// The digests come back.
    pub(super) fn back(self, digests: Box<Digests>) -> Hashing {
        Hashing::Here(Here { digests, hashed: self.hashed + self.bytes })
    }

    /// Parts of this size that the job has bytes of.
    pub(super) const fn parts(self, part_bytes: usize) -> usize {
        let part = part_bytes as u64;
        ((self.hashed + self.bytes).div_ceil(part) - self.hashed / part) as usize
    }
}

fn size(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_hashed_at_once_and_much_elsewhere() {
        let config = LfsConfig::default();
        let (inline, job) = (config.hash_inline_bytes as u64, config.hash_job_bytes as u64);
        assert_eq!((inline, job), (256 << 10, 1 << 20));
        // Bytes that wait, whether something waits for them to be hashed, and what becomes of them.
        let table = [
            (0, false, Due::Nothing),
            (inline, false, Due::Nothing),
            (job - 1, false, Due::Nothing),
            (job, false, Due::Job),
            (10 * job, false, Due::Job),
            (0, true, Due::Inline),
            (inline, true, Due::Inline),
            (inline + 1, true, Due::Job),
            (10 * job, true, Due::Job),
        ];
        for (waiting, wanted, due) in table {
            assert_eq!(Due::of(&config, waiting, wanted), due, "{waiting} {wanted}");
        }
    }

    #[test]
    fn a_job_has_bytes_of_so_many_parts() {
        // Bytes before it and in it, in parts of 8.
        for (hashed, bytes, parts) in [(0, 1, 1), (0, 8, 1), (0, 9, 2), (7, 1, 1), (7, 2, 2), (8, 8, 1), (15, 10, 3)] {
            assert_eq!(Away { hashed, bytes }.parts(8), parts, "{bytes} bytes after {hashed}");
        }
    }

    #[test]
    fn digests_are_away_once() {
        let mut hashing = Hashing::new(Digests::new(crate::Algorithm::Sha256));
        let (digests, pieces) = hashing.go_away(vec![Bytes::from_static(b"abc")]).unwrap();
        assert_eq!(pieces.concat(), b"abc");
        assert!(hashing.go_away(vec![Bytes::from_static(b"d")]).is_none());
        assert_eq!(hashing.hashed(), 0);
        let Hashing::Away(away) = hashing else { panic!("they are away") };
        assert_eq!(away.back(digests).hashed(), 3);
    }
}
