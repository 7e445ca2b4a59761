//! The multi-version store: every change has a revision, and older revisions can be read until they are compacted.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::CompactionRefused;
use crate::etcd::{KeyValue, Keys, RangeRequest, RangeResponse, Refusal, Revision, WatchEvent};

/// One state of a key.
#[derive(Clone, Debug)]
enum Version {
    Put(KeyValue),
    Deleted(Revision),
}

impl Version {
    const fn revision(&self) -> Revision {
        match self {
            Self::Put(kv) => kv.mod_revision,
            Self::Deleted(revision) => *revision,
        }
    }

    const fn present(&self) -> Option<&KeyValue> {
        match self {
            Self::Put(kv) => Some(kv),
            Self::Deleted(_) => None,
        }
    }
}

/// Keys with their versions, oldest first, and the changes by revision.
#[derive(Clone, Debug)]
pub(super) struct Store {
    revision: Revision,
    compacted: Revision,
    keys: BTreeMap<Bytes, Vec<Version>>,
    changes: BTreeMap<Revision, Vec<WatchEvent>>,
}

impl Store {
    pub(super) const fn new() -> Self {
        Self { revision: 1, compacted: 0, keys: BTreeMap::new(), changes: BTreeMap::new() }
    }

    pub(super) const fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) const fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(super) fn newest(&self, key: &[u8]) -> Option<&KeyValue> {
        self.keys.get(key).and_then(|versions| versions.last()).and_then(Version::present)
    }

    pub(super) fn list<'a>(&'a self, keys: &'a Keys) -> impl Iterator<Item = &'a KeyValue> {
        self.versions(keys).filter_map(|versions| versions.last().and_then(Version::present))
    }

    fn versions<'a>(&'a self, keys: &'a Keys) -> impl Iterator<Item = &'a Vec<Version>> {
        let start = match keys {
            Keys::One(key) | Keys::Between(key, _) => key,
        };
        self.keys
            .range::<[u8], _>((Bound::Included(&start[..]), Bound::Unbounded))
            .take_while(move |(key, _)| match keys {
                Keys::One(one) => *key == one,
                Keys::Between(_, end) => end[..] == [0] || *key < end,
            })
            .map(|(_, versions)| versions)
    }

    pub(super) fn history(&self) -> impl Iterator<Item = (Revision, &[WatchEvent])> {
        self.changes.iter().map(|(revision, events)| (*revision, &events[..]))
    }

    /// The changes at or after `revision`.
    pub(super) fn changes_from(&self, revision: Revision) -> impl Iterator<Item = &WatchEvent> {
        self.changes.range(revision..).flat_map(|(_, events)| events)
    }

    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Refusal> {
        self.check_range(request)?;
        Ok(self.read(request, self.revision))
    }

    /// Whether a range request is one that etcd carries out now.
    pub(super) fn check_range(&self, request: &RangeRequest) -> Result<(), Refusal> {
        let (Keys::One(key) | Keys::Between(key, _)) = &request.keys;
        if key.is_empty() {
            return Err(Refusal::Other("etcdserver: key is not provided".into()));
        }
        if request.revision > self.revision {
            return Err(Refusal::Other("etcdserver: mvcc: required revision is a future revision".into()));
        }
        if request.revision > 0 && request.revision < self.compacted {
            // The gRPC error does not say which revision remains.
            return Err(Refusal::Compacted(0));
        }
        Ok(())
    }

    /// Reads a checked request. `revision` is what the answer's header says: a read inside a transaction sees the
    /// transaction's own writes.
    fn read(&self, request: &RangeRequest, revision: Revision) -> RangeResponse {
        let at = if request.revision > 0 { request.revision } else { Revision::MAX };
        let present = self.versions(&request.keys).filter_map(|versions| {
            versions.iter().rev().find(|version| version.revision() <= at).and_then(Version::present)
        });
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let mut response = RangeResponse { revision, kvs: Vec::new(), count: 0, more: false };
        for kv in present {
            response.count += 1;
            // The filter comes before the limit: `more` speaks of filtered keys, `count` of all.
            if request.count_only || kv.mod_revision < request.min_mod_revision {
                continue;
            }
            if response.kvs.len() == limit {
                response.more = true;
                continue;
            }
            let value = if request.keys_only { Bytes::new() } else { kv.value.clone() };
            response.kvs.push(KeyValue { value, ..kv.clone() });
        }
        response
    }

    /// Begins changes that will share one revision.
    pub(super) fn write(&mut self) -> Write<'_> {
        Write { revision: self.revision + 1, events: Vec::new(), store: self }
    }

    /// Deletes single keys at one revision: what the end of a lease does.
    pub(super) fn delete_keys(&mut self, keys: impl IntoIterator<Item = Bytes>) {
        let mut write = self.write();
        for key in keys {
            write.delete(&Keys::One(key));
        }
        write.finish();
    }

    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), CompactionRefused> {
        if revision <= self.compacted {
            return Err(CompactionRefused::Compacted);
        }
        if revision > self.revision {
            return Err(CompactionRefused::Future);
        }
        self.compacted = revision;
        self.keys.retain(|_, versions| {
            let newest_kept = versions.iter().rposition(|version| version.revision() <= revision).unwrap_or(0);
            versions.drain(..newest_kept);
            let forgotten = matches!(versions.first(), Some(Version::Deleted(at)) if *at <= revision);
            if forgotten {
                versions.remove(0);
            }
            !versions.is_empty()
        });
        // A watch may start at the compacted revision, yet a deletion at exactly this revision is forgotten, at some
        // moment after the compaction was answered (seen on etcd 3.4.23; 3.5.17 tells it). Here: at once.
        self.changes = self.changes.split_off(&revision);
        if let Some(events) = self.changes.get_mut(&revision) {
            events.retain(|event| matches!(event, WatchEvent::Put(_)));
        }
        Ok(())
    }
}

/// Changes under way, all at one revision; the store has it when they are finished.
pub(super) struct Write<'a> {
    store: &'a mut Store,
    revision: Revision,
    events: Vec<WatchEvent>,
}

impl Write<'_> {
    /// The revision that an answer would name now.
    pub(super) const fn revision(&self) -> Revision {
        if self.events.is_empty() { self.store.revision } else { self.revision }
    }

    /// Reads a request that was checked before the changes began.
    pub(super) fn read(&self, request: &RangeRequest) -> RangeResponse {
        self.store.read(request, self.revision())
    }

    pub(super) fn put(&mut self, key: Bytes, value: Bytes, lease: i64) {
        let create_revision = self.store.newest(&key).map_or(self.revision, |kv| kv.create_revision);
        let kv = KeyValue { key: key.clone(), value, create_revision, mod_revision: self.revision, lease };
        self.store.keys.entry(key).or_default().push(Version::Put(kv.clone()));
        self.events.push(WatchEvent::Put(kv));
    }

    /// Deletes what is there and says which keys these were.
    pub(super) fn delete(&mut self, keys: &Keys) -> Vec<Bytes> {
        let present: Vec<Bytes> = self.store.list(keys).map(|kv| kv.key.clone()).collect();
        for key in &present {
            self.store.keys.entry(key.clone()).or_default().push(Version::Deleted(self.revision));
            self.events.push(WatchEvent::Delete { key: key.clone(), mod_revision: self.revision });
        }
        present
    }

    /// Makes the changes the store's newest revision; without a change the revision stays.
    pub(super) fn finish(self) {
        if !self.events.is_empty() {
            self.store.revision = self.revision;
            self.store.changes.insert(self.revision, self.events);
        }
    }
}
