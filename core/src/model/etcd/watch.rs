//! Watches: each is a position in the history, so replay, live events and catching up are one thing.

use std::collections::BTreeMap;

use super::store::Store;
use crate::etcd::{Keys, Revision, WatchEnd, WatchEvent, WatchRequest};

/// Names a watch; the caller draws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchToken(pub u64);

/// What a watch tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchFact {
    /// It stands.
    Created {
        /// The store's revision.
        revision: Revision,
    },
    /// Changes in order, all that are known up to `revision`; none when only progress is reported.
    Events {
        /// The store's revision.
        revision: Revision,
        /// The changes.
        events: Vec<WatchEvent>,
    },
    /// It is over. Comes exactly once.
    Ended(WatchEnd),
}

/// Filled during a call, owned by the caller.
pub type WatchFacts = Vec<(WatchToken, WatchFact)>;

#[derive(Debug)]
struct Watch {
    keys: Keys,
    /// The first revision that was not told yet.
    next: Revision,
    created_told: bool,
    stalled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Watches(BTreeMap<WatchToken, Watch>);

impl Watches {
    pub(super) fn open(&mut self, token: WatchToken, request: &WatchRequest, store: &Store, stalled: bool) {
        let next = if request.start_revision > 0 { request.start_revision } else { store.revision() + 1 };
        let watch = Watch { keys: request.keys.clone(), next, created_told: false, stalled };
        let before = self.0.insert(token, watch);
        assert!(before.is_none(), "a watch token is used once");
    }

    pub(super) fn end(&mut self, token: WatchToken, end: WatchEnd, facts: &mut WatchFacts) {
        if self.0.remove(&token).is_some() {
            facts.push((token, WatchFact::Ended(end)));
        }
    }

    /// Ends all of them.
    pub(super) fn cut(&mut self, reason: &str, facts: &mut WatchFacts) {
        let all = std::mem::take(&mut self.0);
        facts.extend(all.into_keys().map(|token| (token, WatchFact::Ended(WatchEnd::Lost(reason.into())))));
    }

    pub(super) fn stall(&mut self, token: WatchToken, stalled: bool) {
        if let Some(watch) = self.0.get_mut(&token) {
            watch.stalled = stalled;
        }
    }

    pub(super) fn report_progress(&self, store: &Store, facts: &mut WatchFacts) {
        for (token, watch) in &self.0 {
            if !watch.stalled {
                facts.push((*token, WatchFact::Events { revision: store.revision(), events: Vec::new() }));
            }
        }
    }

    /// Tells every watch that is not stalled what it has not been told yet.
    pub(super) fn tell(&mut self, store: &Store, facts: &mut WatchFacts) {
        self.0.retain(|token, watch| {
            if watch.stalled {
                return true;
            }
            if !watch.created_told {
                watch.created_told = true;
                facts.push((*token, WatchFact::Created { revision: store.revision() }));
            }
            // A watch that has been told everything stands above any compaction.
            if watch.next < store.compacted() {
                facts.push((*token, WatchFact::Ended(WatchEnd::Compacted(store.compacted()))));
                return false;
            }
            if watch.next <= store.revision() {
                let wanted = |event: &&WatchEvent| match event {
                    WatchEvent::Put(kv) => watch.keys.contain(&kv.key),
                    WatchEvent::Delete { key, .. } => watch.keys.contain(key),
                };
                let events: Vec<WatchEvent> = store.changes_from(watch.next).filter(wanted).cloned().collect();
                watch.next = store.revision() + 1;
                if !events.is_empty() {
                    facts.push((*token, WatchFact::Events { revision: store.revision(), events }));
                }
            }
            true
        });
    }
}
