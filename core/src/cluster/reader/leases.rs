//! Reading and watching a lease prefix.

use super::{CYCLE, Page, Pages, RETRY, ReadError};
use super::{Decision, Due, Moment, Progress, Read, Watch, order_range, range_response, start_watch};
use crate::cluster::leases::{Expectation, Leases, Listed, Prefix, Verdict};
use crate::etcd::{self, RangeResponse, Refusal, Revision, WatchEnd, WatchEvent};
use crate::operation::Outcome;
use crate::planted::{Bug, planted};

/// A full reading of the prefix.
struct Listing {
    /// When the first page was ordered.
    ordered: Moment,
    pages: Pages,
    /// What the pages hold so far.
    listed: Option<Listed>,
}

enum Activity {
    Idle,
    Listing(Box<Listing>),
    Proving { ordered: Moment, expected: Expectation },
}

/// The machine of a lease prefix.
pub(in crate::cluster) struct LeaseReader {
    pub(in crate::cluster) leases: Leases,
    page_keys: u32,
    activity: Activity,
    watch: Watch,
    /// The listing may have missed something: the next reading is a full one.
    distrusted: bool,
    /// The last proof did not hold. The watch may have lagged; if it still does, it is given up.
    behind: bool,
    /// The last watch ended because of compaction before it told anything.
    compacted: bool,
    due: Due,
}

impl LeaseReader {
    /// Reads `prefix`, in pages of `page_keys` keys.
    pub(in crate::cluster) const fn new(prefix: Prefix, page_keys: u32) -> Self {
        Self {
            page_keys,
            leases: Leases::new(prefix),
            activity: Activity::Idle,
            watch: Watch::Down,
            distrusted: false,
            behind: false,
            compacted: false,
            due: None,
        }
    }

    pub(in crate::cluster) const fn due(&self) -> Due {
        self.due
    }

    pub(in crate::cluster) const fn is_idle(&self) -> bool {
        matches!(self.activity, Activity::Idle)
    }

    /// Orders a proof, or a full reading where a proof would not do, unless something is under way. Without a watch that stands
    /// when it is answered a proof says nothing: the store may have been replaced by an older one and have grown since.
    pub(in crate::cluster) fn read(&mut self, now: Moment, out: &mut Vec<Decision>) {
        match self.activity {
            Activity::Listing(_) | Activity::Proving { .. } => {}
            Activity::Idle => match self.leases.proof() {
                Some((request, expected)) if !self.distrusted && self.may_prove() => {
                    order_range(Read::Proof(self.leases.prefix().source()), request, out);
                    self.due = None;
                    self.activity = Activity::Proving { ordered: now, expected };
                }
                Some(_) | None => self.list(now, out),
            },
        }
    }

    /// Whether a watch stands, or is about to.
    fn may_prove(&self) -> bool {
        matches!(self.watch, Watch::Up | Watch::Ordered) || planted(Bug::RestoredStoreIsSame)
    }

    /// Begins a full reading. The watch, if there is one, is replaced by one that begins after the reading.
    fn list(&mut self, now: Moment, out: &mut Vec<Decision>) {
        let source = self.leases.prefix().source();
        if matches!(self.watch, Watch::Up | Watch::Ordered) {
            out.push(Decision::CancelWatch { source });
            self.watch = Watch::Ending;
        }
        self.distrusted = true;
        self.due = None;
        let pages = Pages::new(self.leases.prefix().keys(), false, self.page_keys);
        order_range(Read::Leases(source), pages.next(), out);
        self.activity = Activity::Listing(Box::new(Listing { ordered: now, pages, listed: None }));
    }

    /// A page has come.
    pub(in crate::cluster) fn on_page(
        &mut self,
        now: Moment,
        outcome: Outcome<etcd::Response, Refusal>,
        out: &mut Vec<Decision>,
    ) -> Progress {
        let Activity::Listing(mut listing) = std::mem::replace(&mut self.activity, Activity::Idle) else {
            return Progress::Pending;
        };
        let source = self.leases.prefix().source();
        let page = match range_response(outcome) {
            Ok(page) => page,
            Err(ReadError::Compacted) if listing.pages.restart() => {
                order_range(Read::Leases(source), listing.pages.next(), out);
                listing.ordered = now;
                listing.listed = None;
                self.activity = Activity::Listing(listing);
                return Progress::Pending;
            }
            Err(error) => return self.failed(now, error.text()),
        };
        match listing.take(self.leases.prefix(), page) {
            Ok(None) => {
                order_range(Read::Leases(source), listing.pages.next(), out);
                self.activity = Activity::Listing(listing);
                Progress::Pending
            }
            Ok(Some(listed)) => {
                let ordered = if planted(Bug::ClockAtAnswer) { now } else { listing.ordered };
                self.leases.on_listed(listed, ordered);
                self.distrusted = false;
                self.behind = false;
                self.due = Some(now.at + CYCLE);
                self.watch_on(out);
                Progress::Proven
            }
            Err(text) => self.failed(now, text.into()),
        }
    }

    /// The answer to a proof has come. With `urgent`, somebody waits: a proof that does not hold is followed by a
    /// full reading at once, without giving the watch time to catch up.
    pub(in crate::cluster) fn on_proof(
        &mut self,
        now: Moment,
        outcome: Outcome<etcd::Response, Refusal>,
        urgent: bool,
        out: &mut Vec<Decision>,
    ) -> Progress {
        let Activity::Proving { ordered, expected } = self.activity else { return Progress::Pending };
        self.activity = Activity::Idle;
        let ordered = if planted(Bug::ClockAtAnswer) { now } else { ordered };
        let answer = match range_response(outcome) {
            Ok(answer) => answer,
            Err(error) => return self.failed(now, error.text()),
        };
        match self.watch {
            Watch::Up if !self.distrusted => {}
            // It will stand any moment. A listing would put another watch in its place, which would have to be waited for again.
            Watch::Ordered if !self.distrusted && !self.behind => return self.again(now),
            Watch::Ending | Watch::Down if !self.distrusted && planted(Bug::RestoredStoreIsSame) => self.watch_on(out),
            Watch::Up | Watch::Ordered | Watch::Ending | Watch::Down => {
                self.list(now, out);
                return Progress::Pending;
            }
        }
        match self.leases.on_proof(expected, ordered, &answer) {
            Verdict::Proven => {
                self.behind = false;
                self.due = Some(now.at + CYCLE);
                Progress::Proven
            }
            Verdict::Behind if !urgent && !self.behind => self.again(now),
            Verdict::Behind | Verdict::Rewound => {
                self.list(now, out);
                Progress::Pending
            }
        }
    }

    /// Another proof soon: the watch may have caught up by then.
    fn again(&mut self, now: Moment) -> Progress {
        self.behind = true;
        self.due = Some(now.at + RETRY);
        Progress::Pending
    }

    fn failed(&mut self, now: Moment, text: String) -> Progress {
        self.due = Some(now.at + RETRY);
        Progress::Failed(text)
    }

    fn watch_on(&mut self, out: &mut Vec<Decision>) {
        if self.watch == Watch::Down
            && !self.distrusted
            && let Some(revision) = self.leases.next_revision()
        {
            let prefix = self.leases.prefix();
            self.watch = start_watch(prefix.source(), prefix.keys(), revision, out);
        }
    }

    /// The watch stands. In a store that is behind the listing it would be silent until that has grown, and nothing would show
    /// what has changed by then: the prefix is read again, with another watch.
    pub(in crate::cluster) fn on_watch_created(&mut self, now: Moment, revision: Revision) {
        match self.watch {
            Watch::Ordered if self.leases.next_revision().is_some_and(|next| next <= revision.saturating_add(1)) => {
                self.watch = Watch::Up;
                if self.behind && self.is_idle() {
                    self.due = Some(now.at);
                }
            }
            Watch::Ordered => {
                self.distrusted = true;
                self.retry(now);
            }
            Watch::Up | Watch::Ending | Watch::Down => {}
        }
    }

    /// Looks at the source soon.
    fn retry(&mut self, now: Moment) {
        if matches!(self.activity, Activity::Idle) {
            let retry = now.at + RETRY;
            self.due = Some(self.due.map_or(retry, |due| due.min(retry)));
        }
    }

    pub(in crate::cluster) fn on_watch_events(&mut self, events: &[WatchEvent]) {
        match self.watch {
            Watch::Up | Watch::Ordered => {
                self.compacted = false;
                self.leases.on_events(events);
            }
            // The listing may be a newer one by now, from which this watch does not go on.
            Watch::Ending | Watch::Down => {}
        }
    }

    pub(in crate::cluster) fn on_watch_ended(&mut self, now: Moment, end: WatchEnd, out: &mut Vec<Decision>) {
        let before = std::mem::replace(&mut self.watch, Watch::Down);
        if before == Watch::Ending {
            self.watch_on(out);
            return;
        }
        self.distrusted = !planted(Bug::RestoredStoreIsSame);
        match end {
            WatchEnd::Compacted(_) if !self.compacted => {
                self.compacted = true;
                self.read(now, out);
            }
            // A watch that is compacted again before it told anything must not make readings chase each other.
            WatchEnd::Compacted(_) | WatchEnd::Lost(_) | WatchEnd::Cancelled => self.retry(now),
        }
    }

    /// Looks at the source if that is due.
    pub(in crate::cluster) fn on_timer(&mut self, now: Moment, out: &mut Vec<Decision>) {
        if self.due.is_some_and(|due| due <= now.at) {
            self.read(now, out);
        }
    }
}

impl Listing {
    /// Takes a page in; the last one completes the listing. The error says what makes no sense about it.
    fn take(&mut self, prefix: Prefix, page: RangeResponse) -> Result<Option<Listed>, &'static str> {
        let Page { revision, kvs, more } = self.pages.take(page)?;
        let listed = self.listed.get_or_insert_with(|| Listed::new(prefix, revision));
        for kv in &kvs {
            listed.put(kv);
        }
        Ok(if more { None } else { self.listed.take() })
    }
}
