//! Where every choice of the world comes from: one source of numbers, a seed or the bytes of a fuzzer.

/// Draws numbers. Equal sources give equal worlds.
pub struct Choices {
    state: u64,
}

impl Choices {
    /// Choices that follow from a seed (SplitMix64).
    pub fn from_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number of 64 bits.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range has nothing to draw");
        low + self.number() % (high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.between(1, n) == 1
    }

    /// The seed of a shard.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for chunk in seed.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.number().to_le_bytes());
        }
        seed
    }
}
