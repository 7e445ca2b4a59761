//! Randomness that replays: one generator per shard, seeded once.
//!
//! In production the seed is 32 bytes from the operating system. There is no setting for it: a repeated
//! seed would repeat object keys, and a second upload would overwrite a blob that a record refers to.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use uuid::Uuid;

use crate::planted::{Bug, planted};

/// The only source of randomness of a [`crate::Proxy`].
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let seed = if planted(Bug::KeysRepeated) { [0; 32] } else { seed };
        Self(ChaCha8Rng::from_seed(seed))
    }

    /// A version 4 UUID: object keys and request ids.
    pub(crate) fn uuid(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        self.0.fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// A number below `bound`, for jitter and round-robin starts; 0 when `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias of the modulo is below 2^-32 for every bound used here.
        if bound == 0 { 0 } else { self.0.next_u64() % bound }
    }
}
