//! Transactions: checked as a whole, then carried out at one revision.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::MAX_REQUEST_BYTES;
use super::lease::Leases;
use super::store::Store;
use crate::etcd::{Compare, Keys, RangeRequest, Refusal, TxnAnswer, TxnOperation, TxnRequest, TxnResponse};

/// etcd's `--max-txn-ops` default; it holds for the comparisons and for each branch.
const MAX_OPERATIONS: usize = 128;

/// Carries out a transaction, or refuses it without any change.
pub(super) fn run(store: &mut Store, leases: &mut Leases, txn: &TxnRequest) -> Result<TxnResponse, Refusal> {
    check(txn)?;
    let succeeded = txn.compares.iter().all(|compare| holds(store, compare));
    let branch = if succeeded { &txn.success } else { &txn.failure };
    // Only the branch that runs is checked against the state of the store, leases before revisions.
    for operation in branch {
        match operation {
            TxnOperation::Put { lease, .. } if *lease != 0 && !leases.contains(*lease) => {
                return Err(Refusal::Other("etcdserver: requested lease not found".into()));
            }
            TxnOperation::Put { .. } | TxnOperation::Range(_) | TxnOperation::Delete(_) => {}
        }
    }
    for operation in branch {
        match operation {
            TxnOperation::Range(range) => store.check_range(range)?,
            TxnOperation::Put { .. } | TxnOperation::Delete(_) => {}
        }
    }
    let mut write = store.write();
    let mut answers = Vec::with_capacity(branch.len());
    for operation in branch {
        answers.push(match operation {
            TxnOperation::Range(range) => TxnAnswer::Range(write.read(range)),
            TxnOperation::Put { key, value, lease } => {
                leases.attach(key, *lease);
                write.put(key.clone(), value.clone(), *lease);
                TxnAnswer::Put
            }
            TxnOperation::Delete(keys) => {
                let deleted = write.delete(keys);
                for key in &deleted {
                    leases.detach(key);
                }
                TxnAnswer::Delete(i64::try_from(deleted.len()).unwrap_or(i64::MAX))
            }
        });
    }
    let revision = write.revision();
    write.finish();
    Ok(TxnResponse { revision, succeeded, answers })
}

fn holds(store: &Store, compare: &Compare) -> bool {
    match compare {
        Compare::CreateRevision(key, revision) => store.newest(key).map_or(0, |kv| kv.create_revision) == *revision,
        Compare::ModRevision(key, revision) => store.newest(key).map_or(0, |kv| kv.mod_revision) == *revision,
        // A missing key has no value, not even an empty one.
        Compare::Value(key, value) => store.newest(key).is_some_and(|kv| kv.value == value),
    }
}

/// Refuses what etcd refuses whatever the store holds; both branches are looked at.
fn check(txn: &TxnRequest) -> Result<(), Refusal> {
    if [txn.compares.len(), txn.success.len(), txn.failure.len()].iter().any(|length| *length > MAX_OPERATIONS) {
        return Err(Refusal::Other("etcdserver: too many operations in txn request".into()));
    }
    let mut bytes = 0;
    for compare in &txn.compares {
        let (key, value) = match compare {
            Compare::CreateRevision(key, _) | Compare::ModRevision(key, _) => (key, 0),
            Compare::Value(key, value) => (key, value.len()),
        };
        check_key(key)?;
        bytes += key.len() + value;
    }
    for operation in txn.success.iter().chain(&txn.failure) {
        check_key(key(operation))?;
        bytes += size(operation);
    }
    if collides(&txn.success) || collides(&txn.failure) {
        return Err(Refusal::Other("etcdserver: duplicate key given in txn request".into()));
    }
    if bytes > MAX_REQUEST_BYTES {
        return Err(Refusal::Other("etcdserver: request is too large".into()));
    }
    Ok(())
}

/// Whether a branch writes a key twice, or writes one inside a range that it deletes, whatever the order.
fn collides(branch: &[TxnOperation]) -> bool {
    let mut puts = BTreeSet::new();
    let mut deletes = Vec::new();
    for operation in branch {
        match operation {
            TxnOperation::Put { key, .. } if !puts.insert(key) => return true,
            TxnOperation::Delete(keys) => deletes.push(keys),
            TxnOperation::Put { .. } | TxnOperation::Range(_) => {}
        }
    }
    deletes.iter().any(|keys| puts.iter().any(|key| covers(keys, key)))
}

/// Whether etcd sees a put and a delete range collide. An end of one zero byte means "to the end" everywhere else, but
/// here etcd compares it as text, so an open-ended range collides with nothing (seen on 3.4.23).
fn covers(keys: &Keys, key: &Bytes) -> bool {
    match keys {
        Keys::One(one) => one == key,
        Keys::Between(start, end) => key >= start && key < end,
    }
}

/// The key of an operation, or the first key of its range.
const fn key(operation: &TxnOperation) -> &Bytes {
    match operation {
        TxnOperation::Put { key, .. } => key,
        TxnOperation::Range(RangeRequest { keys: Keys::One(key) | Keys::Between(key, _), .. })
        | TxnOperation::Delete(Keys::One(key) | Keys::Between(key, _)) => key,
    }
}

fn check_key(key: &Bytes) -> Result<(), Refusal> {
    if key.is_empty() { Err(Refusal::Other("etcdserver: key is not provided".into())) } else { Ok(()) }
}

fn size(operation: &TxnOperation) -> usize {
    match operation {
        TxnOperation::Put { key, value, .. } => key.len() + value.len(),
        TxnOperation::Range(_) | TxnOperation::Delete(_) => 0,
    }
}
