//! Reading and watching the snapshot key.

use bytes::Bytes;

use super::{CYCLE, RETRY};
use super::{Decision, Due, Moment, Progress, Read, Source, Watch, order_range, range_response, start_watch};
use crate::cluster::snapshot::{Snapshot, SnapshotError};
use crate::etcd::{self, Keys, RangeRequest, Refusal, Revision, WatchEnd, WatchEvent};
use crate::operation::Outcome;
use crate::planted::{Bug, planted};
use crate::time::Monotonic;

/// The snapshot key.
pub(in crate::cluster) const KEY: &[u8] = b"/kafscale/metadata/snapshot";

/// What the last successful read said.
struct Known {
    /// The state is that of etcd after this revision.
    revision: Revision,
    /// Of the key; `None` while it is absent.
    mod_revision: Option<Revision>,
    snapshot: Snapshot,
}

enum Activity {
    Idle,
    /// The read is under way. `known` is the revision of the store that it was measured against, when it asks for newer
    /// values only.
    Reading {
        ordered: Moment,
        known: Option<Revision>,
    },
    /// The value is being parsed. The read is over only then.
    Parsing {
        ordered: Moment,
        revision: Revision,
        mod_revision: Revision,
    },
}

/// How far the read of the snapshot has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum SnapshotStep {
    /// As for every source.
    Read(Progress),
    /// Parse this value; the result is due at [`SnapshotReader::on_parsed`].
    Parse(Bytes),
}

/// The machine of [`Source::Snapshot`].
pub(in crate::cluster) struct SnapshotReader {
    known: Option<Known>,
    proven: Option<Monotonic>,
    activity: Activity,
    watch: Watch,
    /// The first revision that the watch tells.
    watched_from: Revision,
    /// The watch has told of a change at this revision, and no read was ordered since.
    changed: Option<Revision>,
    /// How many watches were ordered.
    watches: u64,
    /// The last watch ended because of compaction before it told anything.
    compacted: bool,
    due: Due,
}

impl SnapshotReader {
    pub(in crate::cluster) const fn new() -> Self {
        Self {
            known: None,
            proven: None,
            activity: Activity::Idle,
            watch: Watch::Down,
            watched_from: 0,
            watches: 0,
            changed: None,
            compacted: false,
            due: None,
        }
    }

    /// What the last successful read said.
    pub(in crate::cluster) fn snapshot(&self) -> Option<&Snapshot> {
        self.known.as_ref().map(|known| &known.snapshot)
    }

    /// The revision of the key's last put, of the store when that was known, and what the key said. `None` while it
    /// is absent, was never read, or no watch has stood since: then the store may have been replaced by an older one and have
    /// grown, and "nothing newer" says nothing about it.
    pub(in crate::cluster) fn watched_put(&self) -> Option<(Revision, Revision, &Snapshot)> {
        let known = self.known.as_ref().filter(|_| self.is_watched())?;
        Some((known.mod_revision?, known.revision, &known.snapshot))
    }

    /// Whether a watch has stood since the last read.
    fn is_watched(&self) -> bool {
        self.watch == Watch::Up || planted(Bug::RestoredStoreIsSame)
    }

    /// The number of the watch that was ordered last.
    pub(in crate::cluster) const fn last_watch(&self) -> u64 {
        self.watches
    }

    /// Whether the watch of this number stands.
    pub(in crate::cluster) fn is_still_watched(&self, watch: u64) -> bool {
        self.is_watched() && (self.watches == watch || planted(Bug::RestoredStoreIsSame))
    }

    /// The freshness clock.
    pub(in crate::cluster) const fn proven(&self) -> Option<Monotonic> {
        self.proven
    }

    pub(in crate::cluster) const fn due(&self) -> Due {
        self.due
    }

    pub(in crate::cluster) const fn is_idle(&self) -> bool {
        matches!(self.activity, Activity::Idle)
    }

    /// Orders a read, unless one is under way. When the key was read before, and a watch has stood since, the value is asked
    /// for only if it is newer.
    pub(in crate::cluster) fn read(&mut self, now: Moment, out: &mut Vec<Decision>) {
        if self.is_idle() {
            let unchanged_since = self.watched_put().map(|(mod_revision, revision, _)| (mod_revision, revision));
            self.order(now, unchanged_since, out);
        }
    }

    fn order(&mut self, now: Moment, unchanged_since: Option<(Revision, Revision)>, out: &mut Vec<Decision>) {
        let mut request = RangeRequest::of(Keys::One(Bytes::from_static(KEY)));
        request.min_mod_revision = unchanged_since.map_or(0, |(mod_revision, _)| mod_revision.saturating_add(1));
        order_range(Read::Snapshot, request, out);
        self.changed = None;
        self.due = None;
        self.activity = Activity::Reading { ordered: now, known: unchanged_since.map(|(_, revision)| revision) };
    }

    pub(in crate::cluster) fn on_finished(
        &mut self,
        now: Moment,
        outcome: Outcome<etcd::Response, Refusal>,
        out: &mut Vec<Decision>,
    ) -> SnapshotStep {
        let Activity::Reading { ordered, known } = self.activity else { return SnapshotStep::Read(Progress::Pending) };
        self.activity = Activity::Idle;
        let answer = match range_response(outcome) {
            Ok(answer) => answer,
            Err(error) => {
                if planted(Bug::FailedReadIsFresh) {
                    self.proven = Some(ordered.at);
                }
                self.due = Some(now.at + RETRY);
                return SnapshotStep::Read(Progress::Failed(error.text()));
            }
        };
        if let Some(kv) = answer.kvs.into_iter().next() {
            self.activity = Activity::Parsing { ordered, revision: answer.revision, mod_revision: kv.mod_revision };
            return SnapshotStep::Parse(kv.value);
        }
        if answer.count == 0 {
            let known = Known { revision: answer.revision, mod_revision: None, snapshot: Snapshot::default() };
            return SnapshotStep::Read(self.learned(now, ordered, known, out));
        }
        match known {
            Some(known) if answer.revision >= known && self.is_watched() => {
                if let Some(known) = &mut self.known {
                    known.revision = answer.revision;
                }
                SnapshotStep::Read(self.proven_by(now, ordered, answer.revision, out))
            }
            // The store was replaced by an older one, or may have been: "nothing newer" says nothing about it.
            Some(_) => {
                self.order(now, None, out);
                SnapshotStep::Read(Progress::Pending)
            }
            None => {
                self.due = Some(now.at + RETRY);
                SnapshotStep::Read(Progress::Failed("the snapshot key is counted but not told".into()))
            }
        }
    }

    /// The value of the last read was parsed.
    pub(in crate::cluster) fn on_parsed(
        &mut self,
        now: Moment,
        result: Result<Snapshot, SnapshotError>,
        out: &mut Vec<Decision>,
    ) -> Progress {
        let Activity::Parsing { ordered, revision, mod_revision } = self.activity else { return Progress::Pending };
        self.activity = Activity::Idle;
        match result {
            Ok(snapshot) => {
                let known = Known { revision, mod_revision: Some(mod_revision), snapshot };
                self.learned(now, ordered, known, out)
            }
            Err(SnapshotError(text)) => {
                // The watch will tell when the value is mended; reading it again every second would not.
                self.due = Some(now.at + CYCLE);
                self.watch_from(revision, out);
                self.read_if_changed_since(revision, now, out);
                Progress::Failed(text)
            }
        }
    }

    fn learned(&mut self, now: Moment, ordered: Moment, known: Known, out: &mut Vec<Decision>) -> Progress {
        let revision = known.revision;
        if planted(Bug::EmptyListKept) && known.snapshot.addresses().is_empty() && self.known.is_some() {
            return self.proven_by(now, ordered, revision, out);
        }
        self.known = Some(known);
        self.proven_by(now, ordered, revision, out)
    }

    fn proven_by(&mut self, now: Moment, ordered: Moment, revision: Revision, out: &mut Vec<Decision>) -> Progress {
        let ordered = if planted(Bug::ClockAtAnswer) { now } else { ordered };
        self.proven = self.proven.max(Some(ordered.at));
        self.due = Some(now.at + CYCLE);
        self.watch_from(revision, out);
        self.read_if_changed_since(revision, now, out);
        Progress::Proven
    }

    /// A change that the watch told while the read was under way, and that the read has not seen.
    fn read_if_changed_since(&mut self, revision: Revision, now: Moment, out: &mut Vec<Decision>) {
        if self.changed.is_some_and(|changed| changed > revision) {
            self.read(now, out);
        }
    }

    fn watch_from(&mut self, revision: Revision, out: &mut Vec<Decision>) {
        if self.watch == Watch::Down {
            let keys = Keys::One(Bytes::from_static(KEY));
            self.watched_from = revision.saturating_add(1);
            self.watches += 1;
            self.watch = start_watch(Source::Snapshot, keys, self.watched_from, out);
        }
    }

    /// The watch stands. In a store that is behind what was read it would be silent until that has grown: another one follows
    /// the next read.
    pub(in crate::cluster) fn on_watch_created(&mut self, revision: Revision, out: &mut Vec<Decision>) {
        match self.watch {
            Watch::Ordered if self.watched_from <= revision.saturating_add(1) => self.watch = Watch::Up,
            Watch::Ordered => {
                out.push(Decision::CancelWatch { source: Source::Snapshot });
                self.watch = Watch::Ending;
            }
            Watch::Up | Watch::Ending | Watch::Down => {}
        }
    }

    /// The value in an event is not used: only a linearizable read moves the clock.
    pub(in crate::cluster) fn on_watch_events(&mut self, now: Moment, events: &[WatchEvent], out: &mut Vec<Decision>) {
        self.compacted = false;
        let newest = events.iter().map(|event| match event {
            WatchEvent::Put(kv) => kv.mod_revision,
            WatchEvent::Delete { mod_revision, .. } => *mod_revision,
        });
        self.changed = self.changed.max(newest.max());
        let known = self.known.as_ref().map(|known| known.revision);
        if self.changed.is_some() && self.changed > known {
            self.read(now, out);
        }
    }

    pub(in crate::cluster) fn on_watch_ended(&mut self, now: Moment, end: WatchEnd, out: &mut Vec<Decision>) {
        self.watch = Watch::Down;
        match end {
            WatchEnd::Compacted(_) if !self.compacted => {
                self.compacted = true;
                self.read(now, out);
            }
            // A watch that is compacted again before it told anything must not make reads chase each other.
            WatchEnd::Compacted(_) | WatchEnd::Lost(_) | WatchEnd::Cancelled => {
                if self.is_idle() {
                    let retry = now.at + RETRY;
                    self.due = Some(self.due.map_or(retry, |due| due.min(retry)));
                }
            }
        }
    }

    /// Looks at the source if that is due.
    pub(in crate::cluster) fn on_timer(&mut self, now: Moment, out: &mut Vec<Decision>) {
        if self.due.is_some_and(|due| due <= now.at) {
            self.read(now, out);
        }
    }
}
