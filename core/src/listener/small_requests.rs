//! The memory of one shard for requests that are too small to ask for room before they come.
//!
//! Each client may have one request under way, whatever the others hold; more are taken only while there is room. So nobody
//! waits for others: a client that is held back goes on when its own requests are answered, at the latest.

use crate::stats::BudgetStats;

/// What is taken.
pub(super) struct SmallRequests {
    limit: usize,
    taken: usize,
    waits: u64,
}

impl SmallRequests {
    /// Room for `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, taken: 0, waits: 0 }
    }

    /// Whether a client that has requests under way may send more.
    pub(super) fn has_room(&self) -> bool {
        self.taken < self.limit
    }

    /// A request, or what its items hold beyond its bytes on the wire.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// It is over.
    pub(super) fn release(&mut self, bytes: usize) {
        self.taken -= bytes;
    }

    /// A client is held back.
    pub(super) fn count_wait(&mut self) {
        self.waits += 1;
    }

    /// Size and waits. Nobody is refused: whoever is held back is not read for a while.
    pub(super) fn stats(&self) -> BudgetStats {
        BudgetStats { limit: self.limit as u64, waits: self.waits, refusals: 0 }
    }

    /// Bytes taken.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }
}
