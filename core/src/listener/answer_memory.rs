//! The memory of one shard for large answers of brokers.
//!
//! An answer above [`LARGE`] takes room for all that it announces when its first bytes have come; while there is none, its
//! connection is not read and TCP holds the broker back. It gives the room back when it has left for the client, or is
//! of no use any more.
//!
//! # Who waits for whom
//!
//! Room is given first come, first served. One kind of answer is given room that there is not: what the oldest request of a
//! client **needs**, while that client **holds** an answer. Answers leave in request order, so what a client holds can leave
//! only after its oldest request, be it the other part of a merged answer or the answer to a later request. Needed is what
//! can stand between the oldest request and its end: the answers on each connection on which a broker owes it one (those in
//! front of its own too, for a connection is read in order, and a part that was sent again stands behind later requests),
//! and for a Produce those on each connection on which a broker owes an answer to any Produce of the client (a batch is not
//! sent again before the fate of what was sent behind it is known).
//!
//! So nobody waits for ever:
//!
//! - The oldest request of a client that holds something waits for no room: it ends when its brokers have answered, at its
//!   deadline at the latest. Then the next request of the client is the oldest. So all that is held leaves, request by
//!   request, and what has left is taken by the client, or given up after the write timeout without a byte taken.
//! - A client that holds nothing keeps nobody waiting. The first of them in line has its turn when enough of what is held
//!   has left; nobody overtakes it but by need.
//! - A later request of a client that holds something may wait for what its own client holds, for as long as the requests
//!   before it take. It keeps no other client waiting: it has its turn after all who hold nothing, or becomes the oldest.
//! - Requests to brokers may wait for each other outside of the proxy (a group is complete when all have joined). Such
//!   waits end with the time of the requests, as every wait for room does.
//!
//! # The bound
//!
//! When room is given in turn, no more is taken than the limit, or, by an answer that is larger than half of it, half the
//! limit and that answer. What is given by need comes on top: for each client that holds something, what its oldest
//! request needs. Each of them holds more than [`LARGE`] bytes that had their turn, so there are not many.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::input::{BrokerConnectionId, ClientId};
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

/// Names a wait for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn(u64);

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// There is room.
    Now,
    /// [`AnswerMemory::grant`] names the connection when it is its turn.
    Later(Turn),
}

/// An answer that waits for room.
#[derive(Clone, Copy, Debug)]
struct Wait {
    connection: BrokerConnectionId,
    bytes: usize,
}

/// What a client has to do with the memory.
#[derive(Debug, Default)]
struct Share {
    /// Bytes of answers that have not been written yet.
    held: usize,
    waits: BTreeMap<Turn, Wait>,
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
    /// Of clients that hold or await something.
    shares: BTreeMap<ClientId, Share>,
    /// Waits of clients that hold nothing.
    line: BTreeMap<Turn, ClientId>,
    /// Waits of clients that hold something.
    behind: BTreeMap<Turn, ClientId>,
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
            behind: BTreeMap::new(),
            leaving: VecDeque::new(),
            untaken: BTreeMap::new(),
            turns: 0,
            refusals: 0,
        }
    }

    /// Room for an answer of so many bytes on this connection, whose first ones have come. `is_needed` says whether the oldest
    /// request of the client needs it.
    pub(super) fn claim(
        &mut self,
        now: Monotonic,
        client: ClientId,
        connection: BrokerConnectionId,
        bytes: usize,
        is_needed: bool,
    ) -> Claimed {
        self.settle(now);
        let nobody_waits = self.line.is_empty() && (self.behind.is_empty() || !self.holds(client));
        if (nobody_waits && self.fits(bytes)) || self.goes_at_once(client, is_needed) {
            self.hold(client, bytes);
            return Claimed::Now;
        }
        self.turns += 1;
        let turn = Turn(self.turns);
        let share = self.shares.entry(client).or_default();
        let line = if share.held > 0 { &mut self.behind } else { &mut self.line };
        line.insert(turn, client);
        share.waits.insert(turn, Wait { connection, bytes });
        Claimed::Later(turn)
    }

    /// The oldest request of the client needs the answer that waits. Gives the room that it has got, if it has.
    pub(super) fn need(&mut self, client: ClientId, turn: Turn) -> Option<usize> {
        if !self.goes_at_once(client, true) {
            return None;
        }
        let wait = self.leave(client, turn)?;
        self.hold(client, wait.bytes);
        Some(wait.bytes)
    }

    /// An answer has come whole. So many bytes were held for it, none if it came before it had room; what it
    /// holds may be more or less, for it may have been put into another version since. It is there, so it counts.
    pub(super) fn come(&mut self, client: ClientId, held: usize, holds: usize) {
        // In this order, for the client holds something all the time.
        self.hold(client, holds);
        self.let_go(client, held);
    }

    /// Whose turn it is, with its room.
    pub(super) fn grant(&mut self, now: Monotonic) -> Option<(ClientId, BrokerConnectionId, usize)> {
        let first = self.line.first_key_value().or_else(|| self.behind.first_key_value());
        let (turn, client) = first.map(|(turn, client)| (*turn, *client))?;
        self.settle(now);
        let wait = self.shares.get(&client).and_then(|share| share.waits.get(&turn));
        let Wait { connection, bytes } = *wait.expect("whoever is in line waits");
        if !self.fits(bytes) {
            return None;
        }
        self.leave(client, turn);
        self.hold(client, bytes);
        Some((client, connection, bytes))
    }

    /// Whether a client waits for room.
    #[cfg(test)]
    pub(super) fn awaits(&self, client: ClientId) -> bool {
        self.shares.get(&client).is_some_and(|share| !share.waits.is_empty())
    }

    /// An answer that had to wait will not come, or has come all the same.
    pub(super) fn give_up(&mut self, client: ClientId, turn: Turn) {
        self.leave(client, turn);
    }

    /// An answer that holds room is of no use any more, or will not come.
    pub(super) fn give_back(&mut self, client: ClientId, bytes: usize) {
        if !planted(Bug::AnswerNeverReleased) {
            self.let_go(client, bytes);
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
        let first = self.leaving.front().filter(|_| !self.line.is_empty() || !self.behind.is_empty());
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

    fn holds(&self, client: ClientId) -> bool {
        self.shares.get(&client).is_some_and(|share| share.held > 0)
    }

    fn goes_at_once(&self, client: ClientId, is_needed: bool) -> bool {
        (is_needed || planted(Bug::LaterAnswersUnbounded)) && self.holds(client)
    }

    fn hold(&mut self, client: ClientId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let share = self.shares.entry(client).or_default();
        if share.held == 0 {
            change_line(share, &mut self.line, &mut self.behind);
        }
        share.held += bytes;
        self.taken += bytes;
    }

    fn let_go(&mut self, client: ClientId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let share = self.shares.get_mut(&client).expect("what is given back was held");
        share.held -= bytes;
        self.taken -= bytes;
        if share.held == 0 {
            change_line(share, &mut self.behind, &mut self.line);
            self.forget_empty(client);
        }
    }

    /// A wait ends.
    fn leave(&mut self, client: ClientId, turn: Turn) -> Option<Wait> {
        let wait = self.shares.get_mut(&client)?.waits.remove(&turn);
        self.line.remove(&turn);
        self.behind.remove(&turn);
        self.forget_empty(client);
        wait
    }

    fn forget_empty(&mut self, client: ClientId) {
        if self.shares.get(&client).is_some_and(|share| share.held == 0 && share.waits.is_empty()) {
            self.shares.remove(&client);
        }
    }

    // One that is larger than half of everything goes when half is free: it must not wait until nobody holds anything.
    fn fits(&self, bytes: usize) -> bool {
        bytes.min(self.limit / 2) <= self.limit.saturating_sub(self.taken)
    }
}

/// A client begins to hold something, or holds nothing any more: its waits keep their turns in the other line.
fn change_line(share: &Share, from: &mut BTreeMap<Turn, ClientId>, to: &mut BTreeMap<Turn, ClientId>) {
    to.extend(share.waits.keys().filter_map(|turn| from.remove_entry(turn)));
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

    /// The connection of a client: each has one, but for those that say so.
    const fn of(client: ClientId) -> BrokerConnectionId {
        BrokerConnectionId(client.0)
    }

    impl AnswerMemory {
        /// A claim at the start of a connection of the client, needed by its oldest request; how long it waits is of no interest.
        fn claims(&mut self, client: ClientId, bytes: usize) -> bool {
            self.claim(at(0), client, of(client), bytes, true) == Claimed::Now
        }

        /// Whether a claim for a later request has room.
        fn claims_later(&mut self, client: ClientId, bytes: usize) -> Claimed {
            self.claim(at(0), client, of(client), bytes, false)
        }

        fn grants(&mut self, now: Monotonic) -> Option<ClientId> {
            self.grant(now).map(|(client, _, _)| client)
        }
    }

    fn turn(claimed: Claimed) -> Turn {
        match claimed {
            Claimed::Later(turn) => turn,
            Claimed::Now => panic!("it has room"),
        }
    }

    #[test]
    fn first_come_first_served() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claims(A, 700 * KIB));
        assert!(!memory.claims(B, 400 * KIB));
        assert!(!memory.claims(C, 100 * KIB), "a small one does not overtake");
        assert!(memory.awaits(B) && memory.awaits(C) && !memory.awaits(A));
        assert_eq!(memory.grant(at(0)), None);
        memory.give_back(A, 700 * KIB);
        assert_eq!(memory.grant(at(0)), Some((B, of(B), 400 * KIB)));
        assert_eq!([memory.grants(at(0)), memory.grants(at(0))], [Some(C), None]);
        assert_eq!(memory.taken(), 500 * KIB);
        assert_eq!(memory.stats(), BudgetStats { limit: MIB as u64, waits: 2, refusals: 0 });
    }

    #[test]
    fn what_the_oldest_request_of_a_holder_needs_waits_for_nobody() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claims(A, 500 * KIB) && memory.claims(B, 500 * KIB));
        assert!(!memory.claims(C, 500 * KIB), "who holds nothing waits, needed or not");
        // Both have another part to come, without which what they hold cannot leave.
        assert!(memory.claims(A, 500 * KIB) && memory.claims(B, 500 * KIB));
        assert_eq!(memory.grant(at(0)), None);
        memory.give_back(A, 1000 * KIB);
        assert_eq!(memory.grant(at(0)), None);
        memory.give_back(B, 500 * KIB);
        assert_eq!(memory.grants(at(0)), Some(C));
    }

    #[test]
    fn answers_to_later_requests_wait_until_those_are_the_oldest() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claims(A, 800 * KIB));
        let later = turn(memory.claims_later(A, 700 * KIB));
        assert_eq!(memory.taken(), 800 * KIB);
        assert!(memory.claims(B, 100 * KIB), "others who hold nothing are not kept waiting");
        assert_eq!(memory.grant(at(0)), None);
        assert_eq!(memory.need(A, later), Some(700 * KIB));
        assert_eq!((memory.taken(), memory.awaits(A)), (1600 * KIB, false));
    }

    #[test]
    fn who_holds_nothing_has_its_turn_before_later_requests_of_holders() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claims(A, 800 * KIB));
        let (first, second) = (turn(memory.claims_later(A, 300 * KIB)), turn(memory.claims_later(A, 200 * KIB)));
        let of_other = turn(memory.claims_later(B, 400 * KIB));
        memory.give_back(A, 300 * KIB);
        assert_eq!(memory.grants(at(0)), Some(B), "although it came last");
        assert_eq!(memory.need(B, of_other), None, "it waits no more");
        assert_eq!(memory.grant(at(0)), None);
        memory.give_back(A, 500 * KIB);
        // It holds nothing now, and its turns are as old as before.
        assert_eq!(memory.need(A, first), None);
        memory.give_up(A, first);
        assert!(!memory.claims(C, 600 * KIB));
        assert_eq!([memory.grants(at(0)), memory.grants(at(0))], [Some(A), None]);
        assert_eq!((memory.taken(), memory.need(A, second)), (600 * KIB, None));
    }

    #[test]
    fn what_comes_whole_counts_all_the_same() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claims(A, 1000 * KIB));
        let (first, second) = (turn(memory.claims_later(B, 300 * KIB)), turn(memory.claims_later(B, 200 * KIB)));
        memory.give_up(B, first);
        memory.come(B, 0, 300 * KIB);
        assert_eq!((memory.taken(), memory.awaits(B)), (1300 * KIB, true));
        assert_eq!(memory.need(B, second), Some(200 * KIB), "it holds something now");
        memory.give_back(B, 500 * KIB);
        let of_other = turn(memory.claims_later(C, 300 * KIB));
        memory.give_up(C, of_other);
        assert!(!memory.awaits(C), "its connection was lost");
        memory.come(A, 1000 * KIB, 900 * KIB);
        assert_eq!(memory.taken(), 900 * KIB, "it was put into another version");
        memory.come(A, 0, 0);
        memory.give_back(A, 900 * KIB);
        assert_eq!((memory.grant(at(0)), memory.taken()), (None, 0));
        assert!(memory.shares.is_empty());
    }

    #[test]
    fn what_was_written_counts_until_it_has_left() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claims(A, 900 * KIB));
        assert!(!memory.claims(B, 400 * KIB));
        assert_eq!(memory.next_settled(), None);
        memory.written(at(5), A, 900 * KIB);
        assert_eq!((memory.grant(at(5)), memory.next_settled()), (None, Some(at(15))));
        assert_eq!((memory.grants(at(14)), memory.grants(at(15))), (None, Some(B)));

        memory.written(at(20), B, 400 * KIB);
        memory.clogged(B);
        assert_eq!(memory.taken(), 400 * KIB, "the client does not take it");
        assert_eq!(memory.claim(at(1_000), B, of(B), 100 * KIB, true), Claimed::Now);
        memory.written(at(1_000), B, 100 * KIB);
        assert_eq!(memory.taken(), 500 * KIB);
        memory.drained(B);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn larger_than_everything_goes_when_half_is_free() {
        let mut memory = AnswerMemory::new(MIB);
        assert!(memory.claims(A, 400 * KIB) && memory.claims(B, 200 * KIB));
        assert!(!memory.claims(C, 50 * MIB));
        memory.give_back(B, 200 * KIB);
        assert_eq!(memory.grants(at(0)), Some(C));
        assert!(!memory.claims(B, 1));
        memory.give_back(C, 50 * MIB);
        assert_eq!(memory.grants(at(0)), Some(B));
    }

    /// A client of the random walk: requests that have parts, each on a connection, which is read in the order in which parts
    /// were sent.
    #[derive(Default)]
    struct Walker {
        /// Parts of each open request that are still to come, and bytes that it holds; oldest first.
        requests: VecDeque<(u64, usize, usize)>,
        /// Parts on each connection: request, bytes.
        connections: Vec<VecDeque<(u64, usize)>>,
        waits: BTreeMap<usize, Turn>,
    }

    impl Walker {
        fn needs(&self, connection: usize) -> bool {
            let oldest = self.requests.front().map(|(request, _, _)| *request);
            self.connections[connection].iter().any(|(request, _)| Some(*request) == oldest)
        }

        /// The answer in front of a connection has come.
        fn take(&mut self, connection: usize) {
            let (request, bytes) = self.connections[connection].pop_front().unwrap();
            let open = self.requests.iter_mut().find(|(open, _, _)| *open == request).unwrap();
            *open = (request, open.1 - 1, open.2 + bytes);
        }
    }

    /// Clients with several requests in flight, whose answers come from several brokers in any order, also behind answers to
    /// later requests: all leave, and what is taken beyond the limit is what oldest requests of holders need.
    #[test]
    fn whatever_comes_nobody_waits_for_ever() {
        const LARGEST: usize = 300 * KIB;
        for seed in 0..200_u64 {
            let mut random = crate::random::Random::new([seed as u8; 32]);
            let mut memory = AnswerMemory::new(MIB);
            let mut draw = |most: usize| 1 + random.below(most as u64) as usize;
            let mut clients: BTreeMap<ClientId, Walker> = BTreeMap::new();
            for id in 0..20 {
                let mut walker = Walker { connections: vec![VecDeque::new(); 3], ..Walker::default() };
                for request in 0..draw(4) as u64 {
                    let parts = draw(3);
                    walker.requests.push_back((request, parts, 0));
                    for connection in 0..parts {
                        // Sent again, some parts stand behind later ones.
                        let line = &mut walker.connections[connection];
                        let place = line.len() - if draw(4) == 1 { draw(line.len() + 1) - 1 } else { 0 };
                        line.insert(place, (request, draw(LARGEST)));
                    }
                }
                clients.insert(ClientId(id), walker);
            }
            let mut by_need = 0;
            while !clients.is_empty() {
                // Whoever has something to do: a connection that is read and owes something.
                let free: Vec<(ClientId, usize)> = clients
                    .iter()
                    .flat_map(|(id, walker)| (0..3).map(move |connection| (*id, walker, connection)))
                    .filter(|(_, walker, connection)| {
                        !walker.waits.contains_key(connection) && !walker.connections[*connection].is_empty()
                    })
                    .map(|(id, _, connection)| (id, connection))
                    .collect();
                assert!(!free.is_empty(), "seed {seed}: everybody waits");
                let (client, connection) = free[draw(free.len()) - 1];
                let walker = clients.get_mut(&client).unwrap();
                let (bytes, is_needed) = (walker.connections[connection][0].1, walker.needs(connection));
                let id = BrokerConnectionId(connection as u64);
                let before = (memory.taken(), memory.fits(bytes));
                match memory.claim(at(0), client, id, bytes, is_needed) {
                    Claimed::Now => {
                        assert!(before.1 || is_needed);
                        by_need += usize::from(!before.1);
                        walker.take(connection);
                    }
                    Claimed::Later(turn) => _ = walker.waits.insert(connection, turn),
                }
                loop {
                    for (id, walker) in &mut clients {
                        while let Some((_, _, held)) = walker.requests.pop_front_if(|(_, parts, _)| *parts == 0) {
                            memory.give_back(*id, held);
                        }
                        for connection in 0..3 {
                            if let Some(turn) = walker.waits.get(&connection).copied()
                                && walker.needs(connection)
                                && memory.need(*id, turn).is_some()
                            {
                                walker.waits.remove(&connection);
                                walker.take(connection);
                            }
                        }
                    }
                    let Some((client, connection, bytes)) = memory.grant(at(0)) else { break };
                    assert!(bytes <= LARGEST && memory.taken() <= MIB);
                    let walker = clients.get_mut(&client).unwrap();
                    walker.waits.remove(&(connection.0 as usize)).expect("it waited");
                    walker.take(connection.0 as usize);
                }
                let held = clients.values().flat_map(|walker| &walker.requests).map(|(_, _, held)| held).sum::<usize>();
                assert_eq!(memory.taken(), held);
                clients.retain(|_, walker| !walker.requests.is_empty());
            }
            assert!(by_need > 0 && memory.shares.is_empty() && memory.line.is_empty() && memory.behind.is_empty());
        }
    }
}
