//! The memory of one shard for large answers of brokers.
//!
//! An answer above [`LARGE`] takes room for all that it announces when its first bytes have come; while there is none, its
//! connection is not read and TCP holds the broker back. It gives the room back when it has left for the client, or is
//! of no use any more.
//!
//! Clients wait as a whole, first come, first served, and whoever holds an answer waits for no other: what it holds may
//! be able to leave only when the rest has come, be it the other parts of a merged answer or the answer before it. So nobody
//! waits for ever for another who waits. What one client takes beyond the limit is bounded by its requests in flight alone.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::input::ClientId;
use crate::planted::{Bug, planted};
use crate::stats::BudgetStats;
use crate::time::Monotonic;

/// Answers up to this size take no room, bytes.
pub(super) const LARGE: usize = 64 * 1024;

/// The room that an answer of so many bytes takes.
pub(super) const fn room_of(bytes: usize) -> usize {
    if bytes > LARGE { bytes } else { 0 }
}

/// How long what was written counts, if the driver does not say that the client does not take it.
const LEAVING: Duration = Duration::from_millis(10);

/// What a client has to do with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// Wants room for so many bytes, and holds nothing.
    Waiting { turn: u64, bytes: usize },
    /// Holds so many bytes of answers that have not been written yet.
    Holding { bytes: usize },
}

/// An answer that was written just now.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    until: Monotonic,
    client: ClientId,
    bytes: usize,
}

/// What is taken, and who waits for room.
pub(super) struct AnswerMemory {
    limit: usize,
    /// Held, leaving, or not taken by its client.
    taken: usize,
    shares: BTreeMap<ClientId, Share>,
    line: BTreeMap<u64, ClientId>,
    /// In the order of their times.
    leaving: VecDeque<Leaving>,
    /// Clients that do not take their answers, with what was written to them and counts.
    untaken: BTreeMap<ClientId, usize>,
    turns: u64,
    refusals: u64,
}

impl AnswerMemory {
    /// Room for `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            taken: 0,
            shares: BTreeMap::new(),
            line: BTreeMap::new(),
            leaving: VecDeque::new(),
            untaken: BTreeMap::new(),
            turns: 0,
            refusals: 0,
        }
    }

    /// Room for an answer of so many bytes, whose first ones have come. If there is none, the client waits, and
    /// [`AnswerMemory::grant`] names it when it is its turn.
    pub(super) fn claim(&mut self, now: Monotonic, client: ClientId, bytes: usize) -> bool {
        self.settle(now);
        let has_room = self.line.is_empty() && self.fits(bytes);
        match self.shares.get_mut(&client) {
            Some(Share::Holding { bytes: held }) => {
                *held += bytes;
                self.taken += bytes;
                true
            }
            Some(Share::Waiting { bytes: wanted, .. }) => {
                *wanted += bytes;
                false
            }
            None if has_room => {
                self.shares.insert(client, Share::Holding { bytes });
                self.taken += bytes;
                true
            }
            None => {
                self.turns += 1;
                self.line.insert(self.turns, client);
                self.shares.insert(client, Share::Waiting { turn: self.turns, bytes });
                false
            }
        }
    }

    /// An answer has come whole. So many bytes were claimed for it, none if it came before its length was known; what it
    /// holds may be more or less, for it may have been put into another version since. It is there, so it counts, and
    /// its client waits no more. Says whether it did.
    pub(super) fn come(&mut self, client: ClientId, claimed: usize, holds: usize) -> bool {
        if claimed == 0 && holds == 0 {
            return false;
        }
        let (bytes, waited) = match self.shares.remove(&client) {
            Some(Share::Holding { bytes }) => {
                self.taken -= bytes;
                (bytes, false)
            }
            Some(Share::Waiting { turn, bytes }) => {
                self.line.remove(&turn);
                (bytes, true)
            }
            None => (0, false),
        };
        let bytes = bytes - claimed + holds;
        if bytes > 0 {
            self.taken += bytes;
            self.shares.insert(client, Share::Holding { bytes });
        }
        waited
    }

    /// The next client that need not wait any more.
    pub(super) fn grant(&mut self, now: Monotonic) -> Option<ClientId> {
        let (turn, client) = self.line.first_key_value().map(|(turn, client)| (*turn, *client))?;
        self.settle(now);
        let Some(Share::Waiting { bytes, .. }) = self.shares.get(&client).copied() else {
            unreachable!("whoever is in line waits");
        };
        if !self.fits(bytes) {
            return None;
        }
        self.line.remove(&turn);
        self.shares.insert(client, Share::Holding { bytes });
        self.taken += bytes;
        Some(client)
    }

    /// Whether the client waits for room.
    #[cfg(test)]
    pub(super) fn awaits(&self, client: ClientId) -> bool {
        matches!(self.shares.get(&client), Some(Share::Waiting { .. }))
    }

    /// An answer that was claimed is of no use any more, or will not come.
    pub(super) fn give_back(&mut self, client: ClientId, bytes: usize) {
        if bytes == 0 || planted(Bug::AnswerNeverReleased) {
            return;
        }
        let left = match self.shares.get_mut(&client) {
            Some(Share::Holding { bytes: held }) => {
                *held -= bytes;
                self.taken -= bytes;
                *held
            }
            Some(Share::Waiting { turn, bytes: wanted }) => {
                *wanted -= bytes;
                if *wanted == 0 {
                    self.line.remove(turn);
                }
                *wanted
            }
            None => unreachable!("what is given back was claimed"),
        };
        if left == 0 {
            self.shares.remove(&client);
        }
    }

    /// An answer was written to its client: it counts until it can be taken to have left.
    pub(super) fn written(&mut self, now: Monotonic, client: ClientId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.give_back(client, bytes);
        self.taken += bytes;
        match self.untaken.get_mut(&client) {
            Some(untaken) => *untaken += bytes,
            None => self.leaving.push_back(Leaving { until: now + LEAVING, client, bytes }),
        }
    }

    /// The client does not take its answers: what was written to it just now stays.
    pub(super) fn clogged(&mut self, client: ClientId) {
        let untaken = self.untaken.entry(client).or_default();
        self.leaving.retain(|leaving| {
            if leaving.client == client {
                *untaken += leaving.bytes;
            }
            leaving.client != client
        });
    }

    /// The client has taken its answers, or is gone.
    pub(super) fn drained(&mut self, client: ClientId) {
        self.taken -= self.untaken.remove(&client).unwrap_or(0);
    }

    /// When somebody may get room although nobody does anything.
    pub(super) fn next_settled(&self) -> Option<Monotonic> {
        let first = self.leaving.front().filter(|_| !self.line.is_empty());
        first.map(|leaving| leaving.until)
    }

    /// The connection of a client was given up while the client waited.
    pub(super) fn refused(&mut self) {
        self.refusals += 1;
    }

    /// Size, waits and refusals.
    pub(super) fn stats(&self) -> BudgetStats {
        BudgetStats { limit: self.limit as u64, waits: self.turns, refusals: self.refusals }
    }

    /// Bytes that are held or not taken by their clients, without those that are just leaving.
    pub(super) fn taken(&self) -> usize {
        self.taken - self.leaving.iter().map(|leaving| leaving.bytes).sum::<usize>()
    }

    fn settle(&mut self, now: Monotonic) {
        while let Some(leaving) = self.leaving.pop_front_if(|leaving| leaving.until <= now) {
            self.taken -= leaving.bytes;
        }
    }

    // One that is larger than half of everything goes when half is free: it must not wait until nobody holds anything.
    fn fits(&self, bytes: usize) -> bool {
        bytes.min(self.limit / 2) <= self.limit.saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;
    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const C: ClientId = ClientId(3);

    const fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    #[test]
    fn first_come_first_served() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claim(at(0), A, 700 * KIB));
        assert!(!memory.claim(at(0), B, 400 * KIB));
        assert!(!memory.claim(at(0), C, 100 * KIB), "a small one does not overtake");
        assert!(memory.awaits(B) && memory.awaits(C) && !memory.awaits(A));
        assert_eq!(memory.grant(at(0)), None);
        memory.give_back(A, 700 * KIB);
        assert_eq!([memory.grant(at(0)), memory.grant(at(0)), memory.grant(at(0))], [Some(B), Some(C), None]);
        assert_eq!(memory.taken(), 500 * KIB);
        assert_eq!(memory.stats(), BudgetStats { limit: MIB as u64, waits: 2, refusals: 0 });
    }

    #[test]
    fn whoever_holds_an_answer_waits_for_no_other() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claim(at(0), A, 500 * KIB) && memory.claim(at(0), B, 500 * KIB));
        assert!(!memory.claim(at(0), C, 500 * KIB));
        // Both have another part to come, without which what they hold cannot leave.
        assert!(memory.claim(at(0), A, 500 * KIB) && memory.claim(at(0), B, 500 * KIB));
        assert_eq!(memory.grant(at(0)), None);
        memory.give_back(A, 1000 * KIB);
        assert_eq!(memory.grant(at(0)), None);
        memory.give_back(B, 500 * KIB);
        assert_eq!(memory.grant(at(0)), Some(C));
    }

    #[test]
    fn a_client_waits_as_a_whole() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claim(at(0), A, 1000 * KIB));
        assert!(!memory.claim(at(0), B, 300 * KIB) && !memory.claim(at(0), B, 200 * KIB));
        assert!(memory.come(B, 300 * KIB, 300 * KIB), "one has come all the same");
        assert_eq!((memory.taken(), memory.awaits(B)), (1500 * KIB, false));
        memory.give_back(B, 500 * KIB);
        assert!(!memory.claim(at(0), C, 300 * KIB));
        memory.give_back(C, 300 * KIB);
        assert!(!memory.awaits(C), "its connection was lost");
        memory.give_back(A, 1000 * KIB);
        assert_eq!((memory.grant(at(0)), memory.taken()), (None, 0));
    }

    #[test]
    fn what_was_written_counts_until_it_has_left() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claim(at(0), A, 900 * KIB));
        assert!(!memory.claim(at(0), B, 400 * KIB));
        assert_eq!(memory.next_settled(), None);
        memory.written(at(5), A, 900 * KIB);
        assert_eq!((memory.grant(at(5)), memory.next_settled()), (None, Some(at(15))));
        assert_eq!((memory.grant(at(14)), memory.grant(at(15))), (None, Some(B)));

        memory.written(at(20), B, 400 * KIB);
        memory.clogged(B);
        assert_eq!(memory.taken(), 400 * KIB, "the client does not take it");
        assert!(memory.claim(at(1_000), B, 100 * KIB));
        memory.written(at(1_000), B, 100 * KIB);
        assert_eq!(memory.taken(), 500 * KIB);
        memory.drained(B);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn larger_than_everything_goes_when_half_is_free() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claim(at(0), A, 400 * KIB) && memory.claim(at(0), B, 200 * KIB));
        assert!(!memory.claim(at(0), C, 50 * MIB));
        memory.give_back(B, 200 * KIB);
        assert_eq!(memory.grant(at(0)), Some(C));
        assert!(!memory.claim(at(0), B, 1));
        memory.give_back(C, 50 * MIB);
        assert_eq!(memory.grant(at(0)), Some(B));
    }

    /// Clients whose answers come from several brokers in any order: all leave, and what is taken beyond the limit is what
    /// those who hold something have still to get.
    #[test]
    fn whatever_comes_nobody_waits_for_ever() {
        const PARTS: usize = 3;
        for seed in 0..100_u64 {
            let mut random = crate::random::Random::new([seed as u8; 32]);
            let mut memory = AnswerMemory::new(MIB);
            let mut draw = |most: usize| 1 + random.below(most as u64) as usize;
            // The parts still to come, and what is held.
            let mut clients: BTreeMap<ClientId, (Vec<usize>, usize)> =
                (0..30).map(|id| (ClientId(id), ((0..PARTS).map(|_| draw(300 * KIB)).collect(), 0))).collect();
            let mut waiting: BTreeMap<ClientId, usize> = BTreeMap::new();
            while !clients.is_empty() {
                let free: Vec<ClientId> = clients.keys().copied().filter(|id| !waiting.contains_key(id)).collect();
                assert!(!free.is_empty(), "everybody waits");
                let client = free[draw(free.len()) - 1];
                let (parts, held) = clients.get_mut(&client).unwrap();
                if let Some(bytes) = parts.pop() {
                    if memory.claim(at(0), client, bytes) {
                        *held += bytes;
                    } else {
                        waiting.insert(client, bytes);
                    }
                } else {
                    memory.give_back(client, *held);
                    clients.remove(&client);
                }
                while let Some(client) = memory.grant(at(0)) {
                    clients.get_mut(&client).unwrap().1 += waiting.remove(&client).expect("it waited");
                }
                assert!(memory.taken() <= PARTS * MIB + 300 * KIB * PARTS);
                assert_eq!(memory.taken(), clients.values().map(|(_, held)| held).sum::<usize>());
            }
        }
    }
}
