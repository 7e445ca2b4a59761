use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::{Strategy, any, prop, proptest};

use super::*;

struct Table(RefCell<Route>);

impl Table {
    fn owned_by(name: &str) -> Self {
        Self(RefCell::new(Route::Owner(Address::new(name))))
    }

    fn set(&self, route: Route) {
        *self.0.borrow_mut() = route;
    }
}

impl Router for Table {
    fn route(&self, asked: Asked) -> Route {
        match self.0.borrow().clone() {
            Route::Learn(Lesson::Freshness) if asked.freshness => Route::Unusable,
            Route::Learn(Lesson::Snapshot) if asked.snapshot => Route::Nobody(Address::new("hashed")),
            route @ (Route::Owner(_) | Route::Nobody(_) | Route::Learn(_) | Route::Absent | Route::Unusable) => route,
        }
    }
}

fn batch(number: u32) -> Batch {
    Batch { request: RequestId(u64::from(number)), entry: 0 }
}

fn refused(by: &str) -> BatchResult {
    BatchResult::Refused { by: Address::new(by), code: 6 }
}

/// Steps in short.
fn short(steps: &mut Vec<LaneStep>) -> Vec<String> {
    let short = steps.drain(..).map(|step| match step {
        LaneStep::Send { batch, to } => format!("send {} {to}", batch.request.0),
        LaneStep::Resend { batch, prefer, not } => {
            let prefer = prefer.map_or_else(|| "any".to_owned(), |address| address.to_string());
            format!("resend {} {prefer} not {not:?}", batch.request.0)
        }
        LaneStep::Learn { batch, lesson } => format!("learn {} {lesson:?}", batch.request.0),
        LaneStep::Forget { by: _ } => "forget".to_owned(),
        LaneStep::Fail { batch, code } => format!("fail {} {}", batch.request.0, code.unwrap_or(7)),
    });
    short.collect()
}

fn sent(table: &Table, count: u32) -> (Lane, Vec<LaneStep>) {
    let (mut lane, mut out) = (Lane::default(), Vec::new());
    for number in 1..=count {
        lane.offer(batch(number), table, &mut out);
    }
    out.clear();
    (lane, out)
}

#[test]
fn batches_are_pipelined_to_the_owner() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = (Lane::default(), Vec::new());
    lane.offer(batch(1), &table, &mut out);
    lane.offer(batch(2), &table, &mut out);
    assert_eq!(short(&mut out), ["send 1 a", "send 2 a"]);
    lane.on_result(batch(1), BatchResult::Answered, &table, &mut out);
    lane.on_result(batch(2), BatchResult::Unknown, &table, &mut out);
    assert!(out.is_empty() && lane.is_idle());
}

#[test]
fn all_refused_goes_again_oldest_first_one_at_a_time() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 2);
    lane.on_result(batch(1), refused("a"), &table, &mut out);
    lane.offer(batch(3), &table, &mut out);
    assert_eq!(short(&mut out), ["forget"]);
    lane.on_result(batch(2), refused("a"), &table, &mut out);
    assert_eq!(short(&mut out), ["forget", "learn 1 Owner"]);
    table.set(Route::Owner(Address::new("b")));
    lane.on_learned(Lesson::Freshness, &table, &mut out);
    assert!(out.is_empty(), "only the answer that is waited for counts");
    lane.on_learned(Lesson::Owner, &table, &mut out);
    assert_eq!(short(&mut out), ["resend 1 b not [a]"]);
    lane.on_result(batch(1), BatchResult::Answered, &table, &mut out);
    assert_eq!(short(&mut out), ["learn 2 Owner"]);
    lane.on_learned(Lesson::Owner, &table, &mut out);
    lane.on_result(batch(2), BatchResult::Answered, &table, &mut out);
    assert_eq!(short(&mut out), ["resend 2 b not [a]", "send 3 b"]);
}

#[test]
fn a_later_batch_in_the_log_sends_the_earlier_refusals_to_the_client() {
    for later in [BatchResult::Answered, BatchResult::Unknown] {
        let table = Table::owned_by("a");
        let (mut lane, mut out) = sent(&table, 4);
        lane.on_result(batch(1), refused("a"), &table, &mut out);
        lane.on_result(batch(2), refused("a"), &table, &mut out);
        out.clear();
        lane.on_result(batch(3), later, &table, &mut out);
        assert_eq!(short(&mut out), ["fail 1 6", "fail 2 6"]);
        lane.on_result(batch(4), refused("a"), &table, &mut out);
        assert_eq!(short(&mut out), ["forget", "learn 4 Owner"], "later than what is in the log: may go again");
    }
}

#[test]
fn three_rounds_then_the_code_as_received() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 1);
    lane.on_result(batch(1), refused("a"), &table, &mut out);
    lane.on_learned(Lesson::Owner, &table, &mut out);
    assert_eq!(short(&mut out), ["forget", "learn 1 Owner", "resend 1 a not [a]"]);
    table.set(Route::Nobody(Address::new("a")));
    lane.on_result(batch(1), refused("b"), &table, &mut out);
    lane.on_learned(Lesson::Owner, &table, &mut out);
    assert_eq!(short(&mut out), ["forget", "learn 1 Owner", "resend 1 any not [a, b]"]);
    let last = BatchResult::Refused { by: Address::new("c"), code: 75 };
    lane.on_result(batch(1), last, &table, &mut out);
    assert_eq!(short(&mut out), ["forget", "fail 1 75"]);
    assert!(lane.is_idle());
}

#[test]
fn what_was_not_sent_goes_again_without_asking() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 2);
    lane.on_result(batch(1), BatchResult::Unknown, &table, &mut out);
    lane.on_result(batch(2), BatchResult::NotApplied { by: Address::new("a") }, &table, &mut out);
    assert_eq!(short(&mut out), ["resend 2 a not [a]"]);
    lane.on_result(batch(2), BatchResult::NotSent, &table, &mut out);
    assert_eq!(short(&mut out), ["fail 2 7"]);
}

#[test]
fn a_failed_dial_is_not_a_round_and_its_failure_ends_everything_behind_it() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 2);
    lane.on_result(batch(1), BatchResult::NotSent, &table, &mut out);
    lane.on_result(batch(2), BatchResult::NotSent, &table, &mut out);
    assert_eq!(short(&mut out), ["resend 1 a not []"]);
    lane.offer(batch(3), &table, &mut out);
    lane.on_result(batch(1), BatchResult::NotSent, &table, &mut out);
    assert_eq!(short(&mut out), ["fail 1 7", "fail 2 7", "fail 3 7"]);
}

#[test]
fn no_broker_left_keeps_the_refusal_and_what_was_never_sent_is_tried() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 1);
    lane.on_result(batch(1), refused("a"), &table, &mut out);
    lane.offer(batch(2), &table, &mut out);
    table.set(Route::Nobody(Address::new("a")));
    lane.on_learned(Lesson::Owner, &table, &mut out);
    out.clear();
    lane.on_result(batch(1), BatchResult::NotSent, &table, &mut out);
    assert_eq!(short(&mut out), ["fail 1 6", "send 2 a"]);
}

#[test]
fn an_owner_that_moved_waits_for_what_is_in_flight() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 1);
    table.set(Route::Owner(Address::new("b")));
    lane.offer(batch(2), &table, &mut out);
    lane.offer(batch(3), &table, &mut out);
    assert!(out.is_empty());
    lane.on_result(batch(1), BatchResult::Answered, &table, &mut out);
    assert_eq!(short(&mut out), ["send 2 b", "send 3 b"]);
}

#[test]
fn past_the_ttl_what_is_not_sent_fails() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 2);
    lane.on_result(batch(1), refused("a"), &table, &mut out);
    lane.offer(batch(3), &table, &mut out);
    out.clear();
    table.set(Route::Unusable);
    lane.on_result(batch(2), BatchResult::NotSent, &table, &mut out);
    assert_eq!(short(&mut out), ["fail 1 6", "fail 2 7", "fail 3 7"]);
}

#[test]
fn what_must_be_learned_is_asked_once() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = (Lane::default(), Vec::new());
    table.set(Route::Learn(Lesson::Freshness));
    lane.offer(batch(1), &table, &mut out);
    lane.offer(batch(2), &table, &mut out);
    assert_eq!(short(&mut out), ["learn 1 Freshness"]);
    lane.on_learned(Lesson::Freshness, &table, &mut out);
    assert_eq!(short(&mut out), ["fail 1 7", "learn 2 Freshness"]);
    table.set(Route::Learn(Lesson::Snapshot));
    lane.on_learned(Lesson::Freshness, &table, &mut out);
    assert_eq!(short(&mut out), ["learn 2 Snapshot"]);
    lane.on_learned(Lesson::Snapshot, &table, &mut out);
    assert_eq!(short(&mut out), ["send 2 hashed"]);
}

#[test]
fn a_partition_that_is_not_there_is_refused_and_holds_nothing_up() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 2);
    lane.on_result(batch(1), refused("a"), &table, &mut out);
    lane.on_result(batch(2), refused("a"), &table, &mut out);
    lane.offer(batch(3), &table, &mut out);
    table.set(Route::Absent);
    out.clear();
    lane.on_learned(Lesson::Owner, &table, &mut out);
    assert_eq!(short(&mut out), ["fail 1 3", "fail 2 3", "fail 3 3"]);
    assert!(lane.is_idle());
}

#[test]
fn results_in_any_order_do_not_change_that_of_the_batches() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 3);
    lane.on_result(batch(2), BatchResult::NotSent, &table, &mut out);
    lane.on_result(batch(3), BatchResult::NotSent, &table, &mut out);
    lane.on_result(batch(1), BatchResult::NotSent, &table, &mut out);
    assert_eq!(short(&mut out), ["resend 1 a not []"]);

    let (mut lane, mut out) = sent(&table, 3);
    lane.on_result(batch(3), BatchResult::NotSent, &table, &mut out);
    lane.on_result(batch(2), BatchResult::Answered, &table, &mut out);
    lane.on_result(batch(1), BatchResult::NotSent, &table, &mut out);
    assert_eq!(short(&mut out), ["fail 1 7", "resend 3 a not []"], "1 may not follow 2, 3 may");

    let (mut lane, mut out) = sent(&table, 2);
    lane.on_result(batch(2), BatchResult::Unknown, &table, &mut out);
    lane.on_result(batch(1), refused("a"), &table, &mut out);
    assert_eq!(short(&mut out), ["forget", "fail 1 6"]);
    assert!(lane.is_idle());
}

#[test]
fn many_batches_that_cannot_go_do_not_nest() {
    let table = Table::owned_by("a");
    let (mut lane, mut out) = sent(&table, 100_000);
    for number in 1..100_000 {
        lane.on_result(batch(number), refused("a"), &table, &mut out);
    }
    table.set(Route::Unusable);
    out.clear();
    lane.on_result(batch(100_000), refused("a"), &table, &mut out);
    assert_eq!(out.len(), 100_001);
    assert!(lane.is_idle());
}

/// The world around one lane: brokers that append or refuse as drawn, and a log shared by all of them.
struct World {
    lane: Lane,
    table: Table,
    draws: VecDeque<u8>,
    offered: u32,
    in_flight: VecDeque<(Batch, Option<Address>)>,
    questions: VecDeque<Lesson>,
    log: Vec<Batch>,
    /// Batches that may be in the log as far as the proxy can know.
    maybe_in_log: BTreeSet<Batch>,
    over: BTreeMap<Batch, u32>,
    quiet: Cell<bool>,
}

impl World {
    fn draw(&mut self, below: u8) -> u8 {
        self.draws.pop_front().map_or(0, |byte| byte % below)
    }

    fn carry_out(&mut self, out: Vec<LaneStep>) {
        for step in out {
            match step {
                LaneStep::Send { batch, to } => {
                    assert!(self.in_flight.iter().all(|(_, address)| address.as_ref() == Some(&to)), "two brokers");
                    self.send(batch, Some(to));
                }
                LaneStep::Resend { batch, .. } => {
                    assert!(self.in_flight.is_empty(), "one at a time");
                    self.send(batch, None);
                }
                LaneStep::Learn { lesson, .. } => self.questions.push_back(lesson),
                LaneStep::Forget { by: _ } => {}
                LaneStep::Fail { batch, .. } => self.finish(batch),
            }
        }
    }

    fn send(&mut self, batch: Batch, to: Option<Address>) {
        assert!(self.maybe_in_log.range(batch..).next().is_none(), "sent after a later one may have been appended");
        assert!(self.in_flight.iter().all(|(earlier, _)| *earlier < batch), "overtakes what is in flight");
        self.in_flight.push_back((batch, to));
    }

    fn finish(&mut self, batch: Batch) {
        *self.over.entry(batch).or_default() += 1;
    }

    fn result(&mut self, batch: Batch, result: BatchResult) {
        match &result {
            BatchResult::Answered | BatchResult::Unknown => {
                self.maybe_in_log.insert(batch);
                self.finish(batch);
            }
            BatchResult::Refused { .. } | BatchResult::NotSent | BatchResult::NotApplied { .. } => {}
        }
        let mut out = Vec::new();
        self.lane.on_result(batch, result, &self.table, &mut out);
        self.carry_out(out);
    }

    /// The broker deals with the oldest request; without faults it takes it.
    fn serve(&mut self) {
        let Some((batch, to)) = self.in_flight.pop_front() else { return };
        let by = to.unwrap_or_else(|| Address::new("x"));
        match if self.quiet.get() { 0 } else { self.draw(5) } {
            0 | 1 => {
                self.log.push(batch);
                self.result(batch, BatchResult::Answered);
            }
            2 => self.result(batch, BatchResult::Answered),
            _ => self.result(batch, BatchResult::Refused { by, code: 6 }),
        }
    }

    /// The connection is lost: some of the oldest may have been appended, the rest was never handed over.
    fn lose(&mut self) {
        let mut handed_over = usize::from(self.draw(4));
        let lost: Vec<_> = self.in_flight.drain(..).collect();
        for (batch, to) in lost {
            let by = to.unwrap_or_else(|| Address::new("x"));
            if handed_over > 0 {
                handed_over -= 1;
                if self.draw(2) == 0 {
                    self.log.push(batch);
                }
                self.result(batch, BatchResult::Unknown);
            } else {
                self.result(batch, BatchResult::NotApplied { by });
            }
        }
    }

    fn fail_dial(&mut self) {
        let lost: Vec<_> = self.in_flight.drain(..).collect();
        for (batch, _) in lost {
            self.result(batch, BatchResult::NotSent);
        }
    }

    /// Requests wait for a connection each with a patience of its own, so any of them may be the first to give up.
    fn lose_patience(&mut self) {
        let longest = u8::try_from(self.in_flight.len()).unwrap_or(u8::MAX);
        if longest > 0 {
            let any = usize::from(self.draw(longest));
            if let Some((batch, _)) = self.in_flight.remove(any) {
                self.result(batch, BatchResult::NotSent);
            }
        }
    }

    fn learn(&mut self) {
        if let Some(lesson) = self.questions.pop_front() {
            let mut out = Vec::new();
            self.lane.on_learned(lesson, &self.table, &mut out);
            self.carry_out(out);
        }
    }

    fn act(&mut self) {
        match self.draw(13) {
            0..=3 => {
                self.offered += 1;
                let mut out = Vec::new();
                self.lane.offer(batch(self.offered), &self.table, &mut out);
                self.carry_out(out);
            }
            4..=6 => self.serve(),
            7 => self.lose(),
            8 => self.fail_dial(),
            9 | 10 => self.learn(),
            11 => self.lose_patience(),
            _ => {
                let route = match self.draw(9) {
                    0..=2 => Route::Owner(Address::new("a")),
                    3 | 4 => Route::Owner(Address::new("b")),
                    5 => Route::Nobody(Address::new("c")),
                    6 => Route::Learn(Lesson::Freshness),
                    7 => Route::Absent,
                    _ => Route::Unusable,
                };
                self.table.set(route);
            }
        }
    }
}

fn draws() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

proptest! {
    /// Whatever brokers and connections do: the log never has a batch behind a later one, each batch ends exactly
    /// once, and without faults nothing is left.
    #[test]
    fn the_log_keeps_the_order(draws in draws()) {
        let mut world = World {
            lane: Lane::default(),
            table: Table::owned_by("a"),
            draws: draws.into(),
            offered: 0,
            in_flight: VecDeque::new(),
            questions: VecDeque::new(),
            log: Vec::new(),
            maybe_in_log: BTreeSet::new(),
            over: BTreeMap::new(),
            quiet: Cell::new(false),
        };
        while !world.draws.is_empty() {
            world.act();
        }
        world.quiet.set(true);
        world.table.set(Route::Owner(Address::new("a")));
        while !world.in_flight.is_empty() || !world.questions.is_empty() {
            world.serve();
            world.learn();
        }
        assert!(world.log.is_sorted(), "{:?}", world.log);
        assert_eq!(world.over.len(), world.offered as usize);
        assert!(world.over.values().all(|times| *times == 1));
        assert!(world.lane.is_idle());
    }
}
