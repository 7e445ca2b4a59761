//! The order of the batches of one client for one partition.
//!
//! A batch is never sent after a later one may have been appended. Batches are pipelined to one broker at a time. At
//! the first one that was provably not appended (a refusal, or nothing was sent) sending stops and everything in flight
//! is awaited. If all of it was refused too, it is sent again, oldest first, one at a time; if a later batch was
//! accepted or its fate is unknown, the earlier refusals go to the client. Nothing stronger holds without idempotence.
//!
//! ```text
//! Pipelining ──first refusal──▶ Draining ──nothing in flight──▶ Resending ──all resolved──▶ Pipelining
//! ```

use std::collections::VecDeque;

use crate::cluster::Address;
use crate::lifecycle::Lifecycle;
use crate::listener::RequestId;
use crate::planted::{Bug, planted};

/// UNKNOWN_TOPIC_OR_PARTITION.
const ABSENT: i16 = 3;

/// How often a batch is sent at most.
pub(super) const ROUNDS: u8 = 3;

/// One batch: a partition of a produce request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Batch {
    pub(super) request: RequestId,
    /// Position among the partitions of the request.
    pub(super) entry: u32,
}

/// What the routing table says about the partition at the moment of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The lease owner.
    Owner(Address),
    /// Nobody holds the lease: the stable choice among the listed brokers.
    Nobody(Address),
    /// Something must be read first.
    Learn(Lesson),
    /// The topic is known and does not have this partition: no broker may be asked.
    Absent,
    /// Nothing may be routed: past the TTL, or no broker is listed.
    Unusable,
}

/// What is to be asked of etcd before the oldest batch can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lesson {
    /// The proof of the leases is too old.
    Freshness,
    /// The snapshot does not list the owner, or the partition.
    Snapshot,
    /// A broker refused: who holds the lease now.
    Owner,
}

/// What was already asked for the oldest batch, so that no question is repeated without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// [`Lesson::Owner`]: the lease key was read since the last refusal.
    pub(super) owner: bool,
    /// [`Lesson::Freshness`]: a proof that is still too old makes the route unusable.
    pub(super) freshness: bool,
    /// [`Lesson::Snapshot`]: an owner that is still not listed counts as nobody, a partition as one that is not there.
    pub(super) snapshot: bool,
}

impl Asked {
    fn with(mut self, lesson: Lesson) -> Self {
        match lesson {
            Lesson::Freshness => self.freshness = true,
            Lesson::Snapshot => self.snapshot = true,
            Lesson::Owner => self.owner = true,
        }
        self
    }
}

/// Looks the partition up.
pub(super) trait Router {
    fn route(&self, asked: Asked) -> Route;
}

/// What became of a batch that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BatchResult {
    /// The broker took it, or answered a code that does not prove that nothing was appended.
    Answered,
    /// The broker answered that it did not append: 5, 6, 74, 75.
    Refused { by: Address, code: i16 },
    /// No connection could be had.
    NotSent,
    /// The connection was lost before a byte of it was handed over.
    NotApplied { by: Address },
    /// It may have been appended; never sent again.
    Unknown,
}

/// What a lane wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LaneStep {
    /// Pipeline it to this broker and no other.
    Send { batch: Batch, to: Address },
    /// Send it alone: to this broker, else to another one that is not in `not`.
    Resend { batch: Batch, prefer: Option<Address>, not: Vec<Address> },
    /// `on_learned` with the same lesson follows.
    Learn { batch: Batch, lesson: Lesson },
    /// This broker refused: drop the route if it leads there.
    Forget { by: Address },
    /// The client gets this code, or 7 when no broker has refused.
    Fail { batch: Batch, code: Option<i16> },
}

/// A batch that was provably not appended.
#[derive(Debug)]
struct Refused {
    batch: Batch,
    /// As a broker sent it; `None` when nothing was sent.
    code: Option<i16>,
    rounds: u8,
    tried: Vec<Address>,
}

#[derive(Debug, Default)]
enum Mode {
    /// Batches go out as they come.
    #[default]
    Pipelining,
    /// As before, but the oldest parked batch waits for etcd.
    Learning { lesson: Lesson, asked: Asked },
    /// Nothing is sent until what is in flight is known.
    Draining {
        /// Oldest first.
        refused: Vec<Refused>,
    },
    /// `head` is sent again alone; `rest` follows in order.
    Resending { head: Refused, rest: VecDeque<Refused>, stage: Stage },
}

/// The moves that one fact can lead to.
pub(crate) const LIFECYCLE: Lifecycle = Lifecycle {
    name: "Lane: the batches of one client for one partition",
    file: "core/src/listener/lanes.rs",
    start: "Pipelining",
    moves: &[
        ("Pipelining", "Learning", "the route must be read first"),
        ("Learning", "Pipelining", "learned, or nothing may be routed"),
        ("Pipelining", "Draining", "provably not appended, others are in flight"),
        ("Pipelining", "Resending", "provably not appended, nothing else is in flight"),
        ("Learning", "Draining", "provably not appended, others are in flight"),
        ("Learning", "Resending", "provably not appended, nothing else is in flight"),
        ("Draining", "Resending", "all are known, some may be sent again"),
        ("Draining", "Pipelining", "all are known, none may be sent again"),
        ("Draining", "Learning", "all are known, what waited needs its route"),
        ("Resending", "Pipelining", "all are resolved"),
        ("Resending", "Learning", "all are resolved, what waited needs its route"),
    ],
};

impl Mode {
    const fn name(&self) -> &'static str {
        match self {
            Self::Pipelining => "Pipelining",
            Self::Learning { .. } => "Learning",
            Self::Draining { .. } => "Draining",
            Self::Resending { .. } => "Resending",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Learning { lesson: Lesson, asked: Asked },
    InFlight,
}

/// One partition of one client.
#[derive(Debug, Default)]
pub(super) struct Lane {
    mode: Mode,
    /// Batches that were sent and are not known yet.
    in_flight: u32,
    /// Where they went.
    address: Option<Address>,
    /// The newest one that may have been appended: none before it is sent again.
    newest: Option<Batch>,
    /// Not sent yet, oldest first.
    parked: VecDeque<Batch>,
}

impl Lane {
    /// Whether nothing is remembered, so that the lane can be dropped.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.mode, Mode::Pipelining) && self.in_flight == 0 && self.parked.is_empty()
    }

    /// A new batch, later than all before.
    pub(super) fn offer(&mut self, batch: Batch, router: &impl Router, out: &mut Vec<LaneStep>) {
        let mut at = self.mode.name();
        if planted(Bug::ParkedOvertaken)
            && let (Mode::Resending { .. }, Route::Owner(to)) = (&self.mode, router.route(Asked::default()))
        {
            self.in_flight += 1;
            return out.push(LaneStep::Send { batch, to });
        }
        self.parked.push_back(batch);
        if self.parked.len() == 1 {
            self.pump(Asked::default(), router, out);
        }
        LIFECYCLE.step(&mut at, self.mode.name());
    }

    /// A batch that was sent is known. Mostly the oldest one is known first; of those that wait for the same connection any
    /// may be the first that is given up.
    pub(super) fn on_result(
        &mut self,
        batch: Batch,
        result: BatchResult,
        router: &impl Router,
        out: &mut Vec<LaneStep>,
    ) {
        assert!(self.in_flight > 0, "a result for a lane that has nothing in flight");
        self.in_flight -= 1;
        let mut at = self.mode.name();
        match std::mem::take(&mut self.mode) {
            Mode::Pipelining => self.pipelined(batch, result, router, out),
            Mode::Learning { lesson, asked } => {
                self.mode = Mode::Learning { lesson, asked };
                self.pipelined(batch, result, router, out);
            }
            Mode::Draining { refused } => self.drained(batch, result, refused, router, out),
            Mode::Resending { head, rest, stage } if planted(Bug::ParkedOvertaken) && batch != head.batch => {
                self.mode = Mode::Resending { head, rest, stage };
                let overtaken = Refused::first(batch, result, out);
                out.extend(overtaken.map(Refused::fail));
            }
            Mode::Resending { head, rest, stage: _ } => self.resent(head, rest, result, router, out),
        }
        LIFECYCLE.step(&mut at, self.mode.name());
    }

    /// A question of this lane is answered; an answer that nothing waits for any more changes nothing.
    pub(super) fn on_learned(&mut self, lesson: Lesson, router: &impl Router, out: &mut Vec<LaneStep>) {
        let mut at = self.mode.name();
        match std::mem::take(&mut self.mode) {
            Mode::Learning { lesson: awaited, asked } if awaited == lesson => {
                self.pump(asked.with(lesson), router, out)
            }
            Mode::Resending { head, rest, stage: Stage::Learning { lesson: awaited, asked } } if awaited == lesson => {
                self.resend(Some(head), rest, asked.with(lesson), router, out);
            }
            unmoved @ (Mode::Pipelining | Mode::Learning { .. } | Mode::Draining { .. } | Mode::Resending { .. }) => {
                self.mode = unmoved
            }
        }
        LIFECYCLE.step(&mut at, self.mode.name());
    }

    /// Sends what is parked, as far as it can go.
    fn pump(&mut self, mut asked: Asked, router: &impl Router, out: &mut Vec<LaneStep>) {
        if !matches!(self.mode, Mode::Pipelining) {
            return;
        }
        while let Some(batch) = self.parked.front().copied() {
            match router.route(asked) {
                Route::Owner(to) | Route::Nobody(to) => {
                    // The owner moved: what was sent to the former one must be known first.
                    if self.in_flight > 0 && self.address.as_ref() != Some(&to) {
                        return;
                    }
                    self.in_flight += 1;
                    if self.address.as_ref() != Some(&to) {
                        self.address = Some(to.clone());
                    }
                    out.push(LaneStep::Send { batch, to });
                }
                Route::Learn(lesson) => {
                    self.mode = Mode::Learning { lesson, asked };
                    out.push(LaneStep::Learn { batch, lesson });
                    return;
                }
                Route::Absent => out.push(LaneStep::Fail { batch, code: Some(ABSENT) }),
                Route::Unusable => out.push(LaneStep::Fail { batch, code: None }),
            }
            self.parked.pop_front();
            // What was learned of the owner holds for all that have waited for it.
            asked = Asked { owner: asked.owner, ..Asked::default() };
        }
    }

    fn pipelined(&mut self, batch: Batch, result: BatchResult, router: &impl Router, out: &mut Vec<LaneStep>) {
        let refused = Refused::first(batch, result, out);
        match self.judge(batch, refused, out) {
            None if self.in_flight == 0 => self.pump(Asked::default(), router, out),
            None => {}
            Some(refused) => self.drain(vec![refused], router, out),
        }
    }

    /// A batch that may be in the log ends all earlier ones that are not: they may not follow it.
    fn judge(&mut self, batch: Batch, refused: Option<Refused>, out: &mut Vec<LaneStep>) -> Option<Refused> {
        if planted(Bug::ResentAfterLater) {
            return refused;
        }
        let Some(refused) = refused else {
            self.newest = self.newest.max(Some(batch));
            return None;
        };
        if Some(batch) < self.newest {
            out.push(refused.fail());
            return None;
        }
        Some(refused)
    }

    fn drained(
        &mut self,
        batch: Batch,
        result: BatchResult,
        mut refused: Vec<Refused>,
        router: &impl Router,
        out: &mut Vec<LaneStep>,
    ) {
        let also = Refused::first(batch, result, out);
        match self.judge(batch, also, out) {
            Some(also) => refused.insert(refused.partition_point(|other| other.batch < also.batch), also),
            None => {
                let follow = refused.partition_point(|other| Some(other.batch) < self.newest);
                out.extend(refused.drain(..follow).map(Refused::fail));
            }
        }
        self.drain(refused, router, out);
    }

    fn drain(&mut self, refused: Vec<Refused>, router: &impl Router, out: &mut Vec<LaneStep>) {
        if self.in_flight == 0 {
            self.resend_next(refused.into(), router, out);
        } else {
            self.mode = Mode::Draining { refused };
        }
    }

    fn resend_next(&mut self, mut rest: VecDeque<Refused>, router: &impl Router, out: &mut Vec<LaneStep>) {
        let head = rest.pop_front();
        self.resend(head, rest, Asked::default(), router, out);
    }

    /// Sends `next` again, or asks what is needed for it; those that cannot go anywhere fail.
    fn resend(
        &mut self,
        mut next: Option<Refused>,
        mut rest: VecDeque<Refused>,
        mut asked: Asked,
        router: &impl Router,
        out: &mut Vec<LaneStep>,
    ) {
        while let Some(head) = next {
            let batch = head.batch;
            let stage = match router.route(asked) {
                Route::Absent => {
                    if !planted(Bug::AbsentBatchForgotten) {
                        out.push(LaneStep::Fail { batch, code: Some(ABSENT) });
                    }
                    next = rest.pop_front();
                    asked = Asked::default();
                    continue;
                }
                Route::Unusable => {
                    out.push(head.fail());
                    next = rest.pop_front();
                    asked = Asked::default();
                    continue;
                }
                Route::Owner(_) | Route::Nobody(_) | Route::Learn(_) if head.code.is_some() && !asked.owner => {
                    out.push(LaneStep::Learn { batch, lesson: Lesson::Owner });
                    Stage::Learning { lesson: Lesson::Owner, asked }
                }
                Route::Learn(lesson) => {
                    out.push(LaneStep::Learn { batch, lesson });
                    Stage::Learning { lesson, asked }
                }
                Route::Owner(owner) => self.send_again(&head, Some(owner), out),
                Route::Nobody(choice) => {
                    let prefer = head.tried.is_empty().then_some(choice);
                    self.send_again(&head, prefer, out)
                }
            };
            self.mode = Mode::Resending { head, rest, stage };
            return;
        }
        self.mode = Mode::Pipelining;
        self.pump(Asked::default(), router, out);
    }

    fn send_again(&mut self, head: &Refused, prefer: Option<Address>, out: &mut Vec<LaneStep>) -> Stage {
        self.in_flight += 1;
        self.address = None;
        out.push(LaneStep::Resend { batch: head.batch, prefer, not: head.tried.clone() });
        Stage::InFlight
    }

    fn resent(
        &mut self,
        mut head: Refused,
        rest: VecDeque<Refused>,
        result: BatchResult,
        router: &impl Router,
        out: &mut Vec<LaneStep>,
    ) {
        match result {
            BatchResult::Answered | BatchResult::Unknown => return self.resend_next(rest, router, out),
            BatchResult::Refused { by, code } => {
                out.push(LaneStep::Forget { by: by.clone() });
                head.code = Some(code);
                head.tried.push(by);
            }
            BatchResult::NotApplied { by } => head.tried.push(by),
            BatchResult::NotSent => {
                // The batches behind have waited for the same dials: none of them gets more time. Those that were
                // never sent may still have a broker that this one has already been refused by.
                let everywhere = head.tried.is_empty();
                out.push(head.fail());
                out.extend(rest.into_iter().map(Refused::fail));
                if everywhere {
                    out.extend(self.parked.drain(..).map(|batch| LaneStep::Fail { batch, code: None }));
                }
                return self.resend_next(VecDeque::new(), router, out);
            }
        }
        head.rounds += 1;
        if head.rounds >= ROUNDS {
            out.push(head.fail());
            self.resend_next(rest, router, out);
        } else {
            self.resend(Some(head), rest, Asked::default(), router, out);
        }
    }
}

impl Refused {
    /// What a result of a pipelined batch proves: `None` when it may have been appended.
    fn first(batch: Batch, result: BatchResult, out: &mut Vec<LaneStep>) -> Option<Self> {
        match result {
            BatchResult::Answered | BatchResult::Unknown => None,
            BatchResult::Refused { by, code } => {
                out.push(LaneStep::Forget { by: by.clone() });
                Some(Self { batch, code: Some(code), rounds: 1, tried: vec![by] })
            }
            BatchResult::NotSent => Some(Self { batch, code: None, rounds: 0, tried: Vec::new() }),
            BatchResult::NotApplied { by } => Some(Self { batch, code: None, rounds: 1, tried: vec![by] }),
        }
    }

    fn fail(self) -> LaneStep {
        LaneStep::Fail { batch: self.batch, code: self.code }
    }
}

#[cfg(test)]
mod tests;
