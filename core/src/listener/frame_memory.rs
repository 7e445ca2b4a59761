//! The memory of one shard for large frames.
//!
//! A frame above [`LARGE`] takes room in steps, as its bytes come: what a peer only announces costs nobody anything. A
//! step is given while all that the frame still lacks would fit into what is free, although only the step is taken. So
//! there is always an unfinished frame that can be finished, and whoever holds a part never waits for ever for another
//! who holds a part.
//!
//! Who waits for room is served first come, first served. Room comes back in two ways: whole frames give it back as soon
//! as brokers have answered, unfinished ones when their clients have sent the rest, and nobody knows when that will be.
//! So whoever waits for unfinished frames is passed over until fewer bytes are held by them: one slow sender and one
//! large announcement must not hold up everybody else.

use std::collections::{BTreeMap, BTreeSet};

use crate::input::ClientId;
use crate::planted::{Bug, planted};
use crate::stats::BudgetStats;

/// Frames up to this size take no room, bytes.
pub(super) const LARGE: usize = 64 * 1024;

/// The first step, bytes; later ones double what has come.
const STEP: usize = 256 * 1024;

/// A place in the line of those who wait for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn(u64);

/// What a claim for room leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// The frame holds so many bytes now, those before included.
    Now(usize),
    /// It waits; [`FrameMemory::grant`] names its client when it is its turn.
    Later(Turn),
}

/// A frame that wants more room.
#[derive(Clone, Copy, Debug)]
struct Claim {
    client: ClientId,
    /// What it holds.
    held: usize,
    /// What it wants to hold.
    wanted: usize,
    /// What it will hold in the end.
    announced: usize,
}

/// What is taken, and who waits for room.
pub(super) struct FrameMemory {
    limit: usize,
    /// Bytes held by frames that are whole: their requests wait for brokers.
    whole: usize,
    /// Bytes held by frames that are not.
    unfinished: usize,
    waiting: BTreeMap<Turn, Claim>,
    /// Those who only wait for whole frames, and for those before them.
    in_line: BTreeSet<Turn>,
    /// Those who wait for unfinished frames, by what they lack.
    passed_over: BTreeSet<(usize, Turn)>,
    turns: u64,
    refusals: u64,
}

impl FrameMemory {
    /// Room for `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            whole: 0,
            unfinished: 0,
            waiting: BTreeMap::new(),
            in_line: BTreeSet::new(),
            passed_over: BTreeSet::new(),
            turns: 0,
            refusals: 0,
        }
    }

    /// Room for the next step of a frame that holds `held` bytes, of which `buffered` or more have come, and that will
    /// have `announced` in the end.
    pub(super) fn claim(&mut self, client: ClientId, held: usize, buffered: usize, announced: usize) -> Claimed {
        let wanted = buffered.saturating_mul(2).max(STEP).min(announced);
        let claim = Claim { client, held, wanted, announced };
        if self.in_line.is_empty() && self.fits(&claim) {
            return Claimed::Now(self.take(&claim));
        }
        self.turns += 1;
        let turn = Turn(self.turns);
        self.waiting.insert(turn, claim);
        self.in_line.insert(turn);
        Claimed::Later(turn)
    }

    /// The next client whose claim is granted, and what its frame holds now.
    pub(super) fn grant(&mut self) -> Option<(ClientId, usize)> {
        while let Some((_, turn)) = self.passed_over.first().copied().filter(|(lacking, _)| self.can_be_had(*lacking)) {
            self.passed_over.pop_first();
            self.in_line.insert(turn);
        }
        while let Some(turn) = self.in_line.first().copied() {
            let claim = self.waiting[&turn];
            let lacking = self.lacking(&claim);
            if self.fits(&claim) {
                self.in_line.remove(&turn);
                self.waiting.remove(&turn);
                return Some((claim.client, self.take(&claim)));
            }
            if self.can_be_had(lacking) {
                return None;
            }
            self.in_line.remove(&turn);
            self.passed_over.insert((lacking, turn));
        }
        None
    }

    /// Whoever waited has done so for long enough; its connection is closed, and gives the rest back when it leaves.
    pub(super) fn refuse(&mut self, turn: Turn) {
        self.leave(turn);
        self.refusals += 1;
    }

    /// Whoever waited does not any more.
    pub(super) fn leave(&mut self, turn: Turn) {
        if let Some(claim) = self.waiting.remove(&turn) {
            let lacking = self.lacking(&claim);
            self.in_line.remove(&turn);
            self.passed_over.remove(&(lacking, turn));
        }
    }

    /// A frame that holds so many bytes has come whole.
    pub(super) fn finish(&mut self, held: usize) {
        self.unfinished -= held;
        self.whole += held;
    }

    /// A frame that holds so many bytes will not come whole.
    pub(super) fn give_up(&mut self, held: usize) {
        self.unfinished -= held;
    }

    /// The request of a whole frame is over.
    pub(super) fn release(&mut self, held: usize) {
        self.whole -= held;
    }

    /// Size, waits and refusals.
    pub(super) fn stats(&self) -> BudgetStats {
        BudgetStats { limit: self.limit as u64, waits: self.turns, refusals: self.refusals }
    }

    /// Bytes taken.
    pub(super) fn taken(&self) -> usize {
        self.whole + self.unfinished
    }

    fn take(&mut self, claim: &Claim) -> usize {
        self.unfinished += claim.wanted - claim.held;
        claim.wanted
    }

    // A frame that is larger than all of the memory needs all of it: it goes when nobody else holds anything.
    fn lacking(&self, claim: &Claim) -> usize {
        claim.announced.min(self.limit).saturating_sub(claim.held)
    }

    fn fits(&self, claim: &Claim) -> bool {
        self.lacking(claim) <= self.limit.saturating_sub(self.taken()) || planted(Bug::FramesUnbounded)
    }

    /// Whether so many bytes will be free once all whole frames have given theirs back.
    fn can_be_had(&self, lacking: usize) -> bool {
        lacking <= self.limit.saturating_sub(self.unfinished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;

    fn turn(claimed: Claimed) -> Turn {
        match claimed {
            Claimed::Later(turn) => turn,
            Claimed::Now(held) => panic!("{held} were given"),
        }
    }

    /// A frame that came at once.
    fn whole(memory: &mut FrameMemory, client: u64, bytes: usize) {
        assert_eq!(memory.claim(ClientId(client), 0, bytes, bytes), Claimed::Now(bytes));
        memory.finish(bytes);
    }

    #[test]
    fn room_is_taken_as_bytes_come() {
        let mut memory = FrameMemory::new(100 * MIB);
        assert_eq!(memory.claim(ClientId(1), 0, 10, 100 * MIB), Claimed::Now(256 * KIB));
        assert_eq!(memory.claim(ClientId(1), 256 * KIB, 300 * KIB, 100 * MIB), Claimed::Now(600 * KIB));
        assert_eq!(memory.claim(ClientId(1), 600 * KIB, 60 * MIB, 100 * MIB), Claimed::Now(100 * MIB));
        memory.finish(100 * MIB);
        memory.release(100 * MIB);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn announcements_hold_up_nobody() {
        let mut memory = FrameMemory::new(100 * MIB);
        for client in 0..40 {
            let claimed = memory.claim(ClientId(client), 0, 10, 100 * MIB);
            // One may still come whole; the others wait for it, and hold nothing.
            assert_eq!(claimed == Claimed::Now(256 * KIB), client == 0, "{client}");
            assert_eq!(memory.grant(), None);
        }
        whole(&mut memory, 50, 60 * MIB);
        whole(&mut memory, 51, 39 * MIB);
    }

    #[test]
    fn first_come_first_served_where_brokers_are_awaited() {
        let mut memory = FrameMemory::new(MIB);
        whole(&mut memory, 1, 800 * KIB);
        turn(memory.claim(ClientId(2), 0, 10, 500 * KIB));
        turn(memory.claim(ClientId(3), 0, 10, 100 * KIB));
        assert_eq!(memory.grant(), None, "a small one does not overtake");
        memory.release(800 * KIB);
        assert_eq!(memory.grant(), Some((ClientId(2), 256 * KIB)));
        assert_eq!(memory.grant(), Some((ClientId(3), 100 * KIB)));
        assert_eq!((memory.grant(), memory.taken()), (None, 356 * KIB));
        assert_eq!(memory.stats(), BudgetStats { limit: MIB as u64, waits: 2, refusals: 0 });
    }

    #[test]
    fn whoever_waits_for_a_slow_sender_is_passed_over() {
        let mut memory = FrameMemory::new(MIB);
        assert_eq!(memory.claim(ClientId(1), 0, 10, MIB), Claimed::Now(256 * KIB));
        let large = turn(memory.claim(ClientId(2), 0, 10, MIB));
        assert_eq!(memory.grant(), None);
        whole(&mut memory, 3, 500 * KIB);
        let later = turn(memory.claim(ClientId(4), 0, 10, MIB));
        memory.give_up(256 * KIB);
        assert_eq!(memory.grant(), None, "in line again, behind the whole frame");
        turn(memory.claim(ClientId(5), 0, 10, 100 * KIB));
        assert_eq!(memory.grant(), None);
        memory.release(500 * KIB);
        assert_eq!(memory.grant(), Some((ClientId(2), 256 * KIB)), "in the order in which they came");
        assert_eq!(memory.grant(), Some((ClientId(5), 100 * KIB)), "the other large one is passed over");
        memory.refuse(later);
        memory.leave(large);
        assert_eq!(memory.stats(), BudgetStats { limit: MIB as u64, waits: 3, refusals: 1 });
        memory.give_up(256 * KIB);
        assert_eq!((memory.grant(), memory.taken()), (None, 100 * KIB));
    }

    #[test]
    fn larger_than_everything_goes_alone() {
        let mut memory = FrameMemory::new(MIB);
        whole(&mut memory, 1, 100 * KIB);
        turn(memory.claim(ClientId(2), 0, 10, 5 * MIB));
        assert_eq!(memory.grant(), None);
        memory.release(100 * KIB);
        assert_eq!(memory.grant(), Some((ClientId(2), 256 * KIB)));
        assert_eq!(memory.claim(ClientId(2), 256 * KIB, MIB, 5 * MIB), Claimed::Now(2 * MIB));
        turn(memory.claim(ClientId(3), 0, 10, 100 * KIB));
        assert_eq!(memory.grant(), None);
        assert_eq!(memory.claim(ClientId(2), 2 * MIB, 3 * MIB, 5 * MIB), Claimed::Now(5 * MIB));
        memory.finish(5 * MIB);
        assert_eq!(memory.grant(), None);
        memory.release(5 * MIB);
        assert_eq!(memory.grant(), Some((ClientId(3), 100 * KIB)));
    }

    /// Frames of any size whose bytes come in any order: all of them come whole, and the limit holds at every moment.
    #[test]
    fn whatever_comes_nobody_waits_for_ever() {
        for seed in 0..200_u64 {
            let mut random = crate::random::Random::new([seed as u8; 32]);
            let limit = MIB;
            let mut memory = FrameMemory::new(limit);
            // Announced, held, come.
            let mut frames: BTreeMap<u64, (usize, usize, usize)> =
                (0..20).map(|client| (client, (1 + random.below(limit as u64) as usize, 0, 0))).collect();
            let mut waiting = BTreeSet::new();
            let mut steps = 0;
            while !frames.is_empty() {
                steps += 1;
                assert!(steps < 100_000, "stuck with {frames:?}");
                let ready: Vec<u64> = frames.keys().copied().filter(|client| !waiting.contains(client)).collect();
                assert!(!ready.is_empty(), "everybody waits: {frames:?}");
                let client = ready[random.below(ready.len() as u64) as usize];
                let (announced, held, come) = frames[&client];
                if come == announced {
                    memory.finish(held);
                    memory.release(held);
                    frames.remove(&client);
                } else if come < held {
                    frames.insert(client, (announced, held, come + 1 + random.below((held - come) as u64) as usize));
                } else {
                    match memory.claim(ClientId(client), held, come, announced) {
                        Claimed::Now(held) => {
                            frames.insert(client, (announced, held, come));
                        }
                        Claimed::Later(_) => assert!(waiting.insert(client)),
                    }
                }
                while let Some((ClientId(client), held)) = memory.grant() {
                    assert!(waiting.remove(&client));
                    frames.get_mut(&client).unwrap().1 = held;
                }
                assert!(memory.taken() <= limit);
                assert_eq!(memory.taken(), frames.values().map(|(_, held, _)| held).sum::<usize>());
            }
        }
    }
}
