//! The memory of one shard for large frames.
//!
//! A frame above [`LARGE`] reserves its announced length before more of it is read. That is accounting, not
//! allocation: a peer that announces much and sends nothing costs room, not memory, and only for a while.

use std::collections::VecDeque;

use crate::input::ClientId;
use crate::stats::BudgetStats;

/// Frames up to this size reserve nothing, bytes.
pub(super) const LARGE: usize = 64 * 1024;

/// What is reserved, and who waits for room. First come, first served.
pub(super) struct FrameMemory {
    limit: usize,
    reserved: usize,
    waiting: VecDeque<(ClientId, usize)>,
    waits: u64,
    refusals: u64,
}

impl FrameMemory {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, reserved: 0, waiting: VecDeque::new(), waits: 0, refusals: 0 }
    }

    /// Reserves, or lines up: then [`FrameMemory::grant`] names the client when it is its turn.
    pub(super) fn reserve(&mut self, client: ClientId, bytes: usize) -> bool {
        if self.waiting.is_empty() && self.has_room(bytes) {
            self.reserved += bytes;
            return true;
        }
        self.waiting.push_back((client, bytes));
        self.waits += 1;
        false
    }

    /// Gives back what was reserved.
    pub(super) fn release(&mut self, bytes: usize) {
        self.reserved -= bytes;
    }

    /// The client does not wait any more.
    pub(super) fn leave(&mut self, client: ClientId) {
        self.waiting.retain(|(waiting, _)| *waiting != client);
    }

    /// The client has waited long enough; its connection is closed.
    pub(super) fn refuse(&mut self, client: ClientId) {
        self.leave(client);
        self.refusals += 1;
    }

    /// The next client that gets what it waits for.
    pub(super) fn grant(&mut self) -> Option<ClientId> {
        let (client, bytes) = *self.waiting.front()?;
        if !self.has_room(bytes) {
            return None;
        }
        self.waiting.pop_front();
        self.reserved += bytes;
        Some(client)
    }

    /// Bytes reserved.
    pub(super) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Size, waits and refusals.
    pub(super) fn stats(&self) -> BudgetStats {
        BudgetStats { limit: self.limit as u64, waits: self.waits, refusals: self.refusals }
    }

    // A frame that is larger than all of the memory goes alone, or it would wait for ever.
    fn has_room(&self, bytes: usize) -> bool {
        self.reserved == 0 || self.reserved.saturating_add(bytes) <= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut memory = FrameMemory::new(100);
        assert!(memory.reserve(ClientId(1), 80));
        assert!(!memory.reserve(ClientId(2), 50));
        assert!(!memory.reserve(ClientId(3), 10), "a small one does not overtake");
        assert_eq!(memory.grant(), None);
        memory.release(80);
        assert_eq!(memory.grant(), Some(ClientId(2)));
        assert_eq!(memory.grant(), Some(ClientId(3)));
        assert_eq!((memory.grant(), memory.reserved()), (None, 60));
        assert_eq!(memory.stats(), BudgetStats { limit: 100, waits: 2, refusals: 0 });
    }

    #[test]
    fn larger_than_everything_goes_alone() {
        let mut memory = FrameMemory::new(100);
        assert!(memory.reserve(ClientId(1), 500));
        assert!(!memory.reserve(ClientId(2), 1));
        memory.refuse(ClientId(2));
        assert_eq!(memory.stats(), BudgetStats { limit: 100, waits: 1, refusals: 1 });
        memory.release(500);
        assert_eq!(memory.grant(), None);
    }
}
