//! Extra reads: proving everything anew because somebody found the knowledge stale.

use std::collections::BTreeSet;
use std::time::Duration;

use super::freshness::Moment;
use super::{Source, Waiter};
use crate::time::Monotonic;

/// Everybody who asks for freshness is answered within this time, although a long prefix may take longer to read.
const DEADLINE: Duration = Duration::from_secs(5);

/// While reads fail, extra ones are ordered no more often than this.
const INTERVAL: Duration = Duration::from_millis(250);

/// One proof of every source, shared by all who wait for it.
struct Round {
    deadline: Monotonic,
    waiters: Vec<Waiter>,
    pending: BTreeSet<Source>,
}

/// How a round ended, and who waits for that.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) waiters: Vec<Waiter>,
    pub(super) result: Result<(), String>,
}

/// The round that is open, and the pause after one that failed.
pub(super) struct Rounds {
    open: Option<Round>,
    /// The last failure of an extra read, and until when it answers for further ones.
    failed: Option<(Monotonic, String)>,
}

impl Rounds {
    pub(super) const fn new() -> Self {
        Self { open: None, failed: None }
    }

    /// The last failure, while no extra read may be ordered.
    pub(super) fn pause(&self, now: Moment) -> Option<&str> {
        self.failed.as_ref().filter(|(until, _)| now.at < *until).map(|(_, text)| text.as_str())
    }

    /// An extra read has failed.
    pub(super) fn note_failure(&mut self, now: Moment, text: &str) {
        self.failed = Some((now.at + INTERVAL, text.to_owned()));
    }

    /// Joins the open round or opens one. Says whether it is a new one, for which the sources must be read.
    pub(super) fn join(&mut self, now: Moment, waiter: Waiter) -> bool {
        match &mut self.open {
            Some(round) => {
                round.waiters.push(waiter);
                false
            }
            None => {
                let pending = [Source::Snapshot, Source::PartitionLeases, Source::GroupLeases].into();
                self.open = Some(Round { deadline: now.at + DEADLINE, waiters: vec![waiter], pending });
                true
            }
        }
    }

    /// Whether the open round waits for this source.
    pub(super) fn waits_for(&self, source: Source) -> bool {
        self.open.as_ref().is_some_and(|round| round.pending.contains(&source))
    }

    /// A source was proven. The round ends well when it was the last one.
    pub(super) fn on_proven(&mut self, source: Source) -> Option<Ended> {
        let round = self.open.as_mut()?;
        round.pending.remove(&source);
        if !round.pending.is_empty() {
            return None;
        }
        self.open.take().map(|Round { waiters, .. }| Ended { waiters, result: Ok(()) })
    }

    /// A source could not be read. The round ends if it waits for it.
    pub(super) fn on_failed(&mut self, now: Moment, source: Source, text: &str) -> Option<Ended> {
        let Round { waiters, .. } = self.open.take_if(|round| round.pending.contains(&source))?;
        self.note_failure(now, text);
        Some(Ended { waiters, result: Err(text.to_owned()) })
    }

    /// Ends a round that took too long.
    pub(super) fn on_timer(&mut self, now: Moment) -> Option<Ended> {
        let Round { waiters, .. } = self.open.take_if(|round| round.deadline <= now.at)?;
        let text = "the cluster state could not be read in time";
        self.note_failure(now, text);
        Some(Ended { waiters, result: Err(text.into()) })
    }

    pub(super) fn deadline(&self) -> Option<Monotonic> {
        self.open.as_ref().map(|round| round.deadline)
    }

    /// Nobody is there any more to take this waiter's answer.
    pub(super) fn forget(&mut self, waiter: Waiter) {
        if let Some(round) = &mut self.open {
            round.waiters.retain(|other| *other != waiter);
        }
    }
}
