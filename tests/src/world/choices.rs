//! Where every choice of the world comes from: one source of numbers, a seed or the bytes of a fuzzer.

use std::collections::VecDeque;
use std::time::Duration;

/// Draws numbers. Equal sources give equal worlds.
pub struct Choices {
    state: u64,
    /// Bytes of a fuzzer; when they are used up, the numbers go on as from a seed.
    bytes: VecDeque<u8>,
    /// Seeds drawn so far.
    seeds: u64,
}

impl Choices {
    /// Choices that follow from a seed (SplitMix64).
    pub fn from_seed(seed: u64) -> Self {
        Self { state: seed, bytes: VecDeque::new(), seeds: 0 }
    }

    /// Choices that a fuzzer makes: small numbers take one byte each, so that a changed byte changes one choice.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { state: 0, bytes: bytes.iter().copied().collect(), seeds: 0 }
    }

    /// A number of 64 bits.
    pub fn number(&mut self) -> u64 {
        if !self.bytes.is_empty() {
            return self.take_front(8);
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range has nothing to draw");
        let span = high - low;
        if self.bytes.is_empty() {
            return low + self.number() % span.saturating_add(1);
        }
        let width = 8 - span.leading_zeros() as usize / 8;
        low + self.take_front(width) % span.saturating_add(1)
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as u64 - 1) as usize]
    }

    /// A duration from `low` to `high`, whole milliseconds.
    pub fn milliseconds(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.between(1, n) == 1
    }

    /// The next bytes as a number; bytes that are missing count as zero.
    fn take_front(&mut self, width: usize) -> u64 {
        let front = self.bytes.drain(..width.min(self.bytes.len()));
        front.fold(0, |number, byte| number << 8 | u64::from(byte))
    }

    /// The seed of a shard. No two are equal, whatever a fuzzer chooses: in production they come from the operating system.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.seeds += 1;
        for chunk in seed.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.number().to_le_bytes());
        }
        seed[0] ^= self.seeds as u8;
        seed[1] ^= (self.seeds >> 8) as u8;
        seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_of_a_fuzzer_is_one_choice() {
        let mut choices = Choices::from_bytes(&[7, 1, 200, 3]);
        assert_eq!(
            (choices.between(0, 9), choices.between(1, 2), choices.between(0, 1_000)),
            (7, 2, (200 << 8 | 3) % 1_001)
        );
        let mut seeded = Choices::from_seed(0);
        assert_eq!(choices.number(), seeded.number(), "when the bytes are used up, the numbers go on");
    }

    #[test]
    fn no_two_seeds_are_equal() {
        let mut choices = Choices::from_bytes(&[7; 3_000]);
        assert_ne!(choices.seed(), choices.seed());
    }

    #[test]
    fn ranges_are_kept() {
        for mut choices in [Choices::from_seed(3), Choices::from_bytes(&[255; 40])] {
            for _ in 0..100 {
                assert!((3..=5).contains(&choices.between(3, 5)));
            }
            choices.between(0, u64::MAX);
        }
    }
}
