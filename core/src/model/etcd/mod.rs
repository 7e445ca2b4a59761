//! A reference model of etcd v3: one member that never loses what it has confirmed.
//!
//! It answers the core's own requests ([`crate::etcd`]) as a linearizable store does: each call is carried out at once,
//! at one revision, and what the watches see of it is told in the same call. Time only ends leases. Every rule was
//! compared with etcd 3.4.23: by hand, and with random requests put to both (revisions, counts, `more`, refusals, watches,
//! compaction). Left out: authentication, nested transactions, and the half second by which etcd may end a lease late.

mod lease;
mod store;
#[cfg(test)]
mod tests;
mod txn;
mod watch;

use bytes::Bytes;

use self::lease::Leases;
use self::store::Store;
use self::watch::Watches;
pub use self::watch::{WatchFact, WatchFacts, WatchToken};
use super::{Fate, Link, Reply};
use crate::etcd::{KeyValue, Keys, Refusal, Request, Response, Revision, WatchEnd, WatchEvent, WatchRequest};
use crate::operation::Outcome;
use crate::time::Monotonic;

/// etcd refuses a request above 1.5 MiB by default (`--max-request-bytes`).
const MAX_REQUEST_BYTES: usize = 1_572_864;

/// Why a compaction was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionRefused {
    /// This revision or a later one was compacted before.
    Compacted,
    /// The store has not reached this revision.
    Future,
}

/// What a snapshot of the store keeps (`etcdctl snapshot save`).
#[derive(Clone, Debug)]
pub struct Backup {
    store: Store,
    leases: Leases,
}

/// The model. Facts about watches go into a list that the caller owns, during the call that causes them.
#[derive(Debug)]
pub struct EtcdModel {
    store: Store,
    leases: Leases,
    watches: Watches,
}

impl Default for EtcdModel {
    fn default() -> Self {
        Self::new()
    }
}

impl EtcdModel {
    /// An empty store at revision 1, as a new etcd cluster has it.
    pub fn new() -> Self {
        Self { store: Store::new(), leases: Leases::default(), watches: Watches::default() }
    }

    /// Carries out a request that reaches etcd over `link`.
    pub fn request(
        &mut self,
        now: Monotonic,
        link: Link,
        request: &Request,
        facts: &mut WatchFacts,
    ) -> Reply<Response, Refusal> {
        self.handle_timeout(now, facts);
        let reply = link.carry(Refusal::Unreachable, || match self.serve(now, request) {
            Ok(response) => Outcome::Applied(response),
            Err(refusal) => Outcome::NotApplied(refusal),
        });
        self.watches.tell(&self.store, facts);
        reply
    }

    fn serve(&mut self, now: Monotonic, request: &Request) -> Result<Response, Refusal> {
        match request {
            Request::Range(range) => self.store.range(range).map(Response::Range),
            Request::Txn(txn) => txn::run(&mut self.store, &mut self.leases, txn).map(Response::Txn),
            Request::LeaseGrant { ttl_seconds } => {
                let (lease, ttl_seconds) = self.leases.grant(now, *ttl_seconds)?;
                Ok(Response::LeaseGranted { lease, ttl_seconds })
            }
            Request::LeaseKeepAlive { lease } => {
                Ok(Response::LeaseKeptAlive { ttl_seconds: self.leases.keep_alive(now, *lease) })
            }
            Request::LeaseRevoke { lease } => {
                let keys = self.leases.end(*lease);
                self.store.delete_keys(keys);
                Ok(Response::LeaseRevoked)
            }
        }
    }

    /// Opens a watch. `Fate::Refused` ends it at once; a lost request leaves a watch that never says anything.
    ///
    /// # Panics
    ///
    /// When the token is in use: what is told could not be told apart.
    pub fn watch(&mut self, link: Link, token: WatchToken, request: &WatchRequest, facts: &mut WatchFacts) {
        match link.fate {
            Fate::Delivered => self.watches.open(token, request, &self.store, false),
            Fate::ReplyLost | Fate::RequestLost => self.watches.open(token, request, &self.store, true),
            Fate::Refused => {
                facts.push((token, WatchFact::Ended(WatchEnd::Lost("connection refused".into()))));
            }
        }
        self.watches.tell(&self.store, facts);
    }

    /// Ends a watch as its owner asked; one that has ended already is no error.
    pub fn cancel_watch(&mut self, token: WatchToken, facts: &mut WatchFacts) {
        self.watches.end(token, WatchEnd::Cancelled, facts);
    }

    /// Breaks the stream of a watch.
    pub fn break_watch(&mut self, token: WatchToken, facts: &mut WatchFacts) {
        self.watches.end(token, WatchEnd::Lost("the stream broke".into()), facts);
    }

    /// Makes a watch silent without ending it, or lets it catch up. One that compaction overtook meanwhile ends then.
    pub fn stall_watch(&mut self, token: WatchToken, stalled: bool, facts: &mut WatchFacts) {
        self.watches.stall(token, stalled);
        self.watches.tell(&self.store, facts);
    }

    /// Reports the store's revision on every watch that is not silent, as etcd does on request or every ten minutes.
    pub fn report_progress(&mut self, facts: &mut WatchFacts) {
        self.watches.report_progress(&self.store, facts);
    }

    /// Forgets history before `revision`: reads below it are refused, watches from below it end.
    pub fn compact(&mut self, revision: Revision) -> Result<(), CompactionRefused> {
        self.store.compact(revision)
    }

    /// The store as it is now.
    pub fn back_up(&self) -> Backup {
        Backup { store: self.store.clone(), leases: self.leases.clone() }
    }

    /// Puts a backup in place of the store, as `etcdutl snapshot restore` does without `--bump-revision`: data and revision
    /// go back, and go on from there. Every connection is cut, so all watches end, silent ones too. Leases of the backup live
    /// for their whole time again; those that were granted since are gone, and their ids do not come back.
    pub fn restore(&mut self, now: Monotonic, backup: Backup, facts: &mut WatchFacts) {
        let Backup { store, leases } = backup;
        self.store = store;
        self.leases.restore(now, leases);
        self.watches.cut("etcd was restored", facts);
    }

    /// When the next lease ends.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        self.leases.next_end()
    }

    /// Ends leases that are due and deletes their keys, one revision for each lease that had any.
    pub fn handle_timeout(&mut self, now: Monotonic, facts: &mut WatchFacts) {
        while let Some(keys) = self.leases.end_due(now) {
            self.store.delete_keys(keys);
        }
        self.watches.tell(&self.store, facts);
    }

    /// Writes a key without a lease, past every link: what an operator does.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>, facts: &mut WatchFacts) {
        let key = key.into();
        self.leases.detach(&key);
        let mut write = self.store.write();
        write.put(key, value.into(), 0);
        write.finish();
        self.watches.tell(&self.store, facts);
    }

    /// Deletes keys, past every link.
    pub fn delete(&mut self, keys: &Keys, facts: &mut WatchFacts) {
        let mut write = self.store.write();
        let deleted = write.delete(keys);
        write.finish();
        for key in &deleted {
            self.leases.detach(key);
        }
        self.watches.tell(&self.store, facts);
    }

    /// Ends a lease early, as when etcd takes its holder for dead. Whether it existed.
    pub fn end_lease(&mut self, lease: i64, facts: &mut WatchFacts) -> bool {
        let existed = self.leases.contains(lease);
        let keys = self.leases.end(lease);
        self.store.delete_keys(keys);
        self.watches.tell(&self.store, facts);
        existed
    }

    /// The revision of the store.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// The key as it is now.
    pub fn get(&self, key: &[u8]) -> Option<&KeyValue> {
        self.store.newest(key)
    }

    /// Every key of `keys` as it is now, in key order.
    pub fn list<'a>(&'a self, keys: &'a Keys) -> impl Iterator<Item = &'a KeyValue> {
        self.store.list(keys)
    }

    /// All changes that were not compacted, oldest first: what invariants are checked against.
    pub fn history(&self) -> impl Iterator<Item = (Revision, &[WatchEvent])> {
        self.store.history()
    }
}
