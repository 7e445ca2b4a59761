//! Memory of one upload: shares of one part each, taken from the budget of the shard.

use crate::lfs::call::Call;

/// Most parts of a multipart upload.
pub(super) const MOST_PARTS: u16 = 10_000;

const MIB: u64 = 1024 * 1024;

/// Shares that the upload holds.
#[derive(Debug)]
pub(super) struct Window {
    part_bytes: usize,
    share_bytes: u64,
    shares: usize,
}

/// Bytes that must be reserved before an upload begins: one part, or less when the body is known to be shorter.
pub(crate) fn share_bytes(chunk_bytes: usize, announced_size: Option<u64>) -> u64 {
    let part = part_bytes(chunk_bytes, announced_size) as u64;
    announced_size.map_or(part, |size| size.clamp(1, part))
}

impl Window {
    /// One share is reserved.
    pub(super) fn new(chunk_bytes: usize, announced_size: Option<u64>) -> Self {
        Self {
            part_bytes: part_bytes(chunk_bytes, announced_size),
            share_bytes: share_bytes(chunk_bytes, announced_size),
            shares: 1,
        }
    }

    /// Bytes of every part but the last.
    pub(super) const fn part_bytes(&self) -> usize {
        self.part_bytes
    }

    /// Shares that are held.
    pub(super) const fn shares(&self) -> usize {
        self.shares
    }

    /// Whether `shares` may be in use; takes one more if it is free.
    pub(super) fn has_room(&mut self, call: &mut Call<'_, '_>, shares: usize) -> bool {
        if shares > self.shares && call.shared.memory.try_take(self.share_bytes) {
            self.shares += 1;
        }
        shares <= self.shares
    }

    /// Gives back all shares beyond `shares`.
    pub(super) fn keep(&mut self, call: &mut Call<'_, '_>, shares: usize) {
        let spare = self.shares.saturating_sub(shares);
        self.shares -= spare;
        call.shared.memory.release(spare as u64 * self.share_bytes);
    }
}

/// Size of all parts but the last: the configured one, in whole MiB more when 10,000 of those would not hold a body of
/// known size.
pub(crate) fn part_bytes(chunk_bytes: usize, announced_size: Option<u64>) -> usize {
    let needed = announced_size.unwrap_or(0).div_ceil(u64::from(MOST_PARTS));
    if needed <= chunk_bytes as u64 {
        return chunk_bytes;
    }
    usize::try_from(needed.div_ceil(MIB).saturating_mul(MIB)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_only_when_ten_thousand_would_not_do() {
        let chunk = 5 << 20;
        let most = u64::from(MOST_PARTS) * (5 << 20);
        let table = [(None, chunk), (Some(0), chunk), (Some(most), chunk), (Some(most + 1), 6 << 20)];
        for (announced, expected) in table {
            assert_eq!(part_bytes(chunk, announced), expected, "{announced:?}");
        }
        assert!(part_bytes(chunk, Some(1 << 50)) as u64 * u64::from(MOST_PARTS) >= 1 << 50);
        assert_eq!(part_bytes(chunk, Some(u64::MAX)) as u64 % MIB, 0);
    }

    #[test]
    fn a_short_body_reserves_only_itself() {
        let chunk = 5 << 20;
        assert_eq!(share_bytes(chunk, None), 5 << 20);
        assert_eq!(share_bytes(chunk, Some(16_384)), 16_384);
        assert_eq!(share_bytes(chunk, Some(0)), 1);
        assert_eq!(share_bytes(chunk, Some(100 << 20)), 5 << 20);
    }
}
