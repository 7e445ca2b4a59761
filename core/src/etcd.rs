//! The vocabulary of etcd: requests and answers of the v3 API that the machine uses.
//!
//! Names follow <https://etcd.io/docs/v3.5/learning/api/>. All reads are linearizable; there is no way to
//! order a serializable one, because it would prove nothing about freshness.

use bytes::Bytes;

/// A revision of the key-value store.
pub type Revision = i64;

/// One key with its value, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// Revision of the put that created the key.
    pub create_revision: Revision,
    /// Revision of the last put.
    pub mod_revision: Revision,
    /// The attached lease, 0 for none.
    pub lease: i64,
}

/// Which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// This key alone.
    One(Bytes),
    /// Every key from the first, inclusive, to the second, exclusive.
    Between(Bytes, Bytes),
}

impl Keys {
    /// Every key that starts with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let prefix = prefix.into();
        let end = prefix_end(&prefix);
        Self::Between(prefix, end)
    }

    /// Whether `key` is one of these.
    pub fn contain(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Between(start, end) => key >= &start[..] && (end[..] == [0] || key < &end[..]),
        }
    }
}

/// The first key after all keys with this prefix; a single zero byte means "to the end", as in etcd.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(&[0])
}

/// A linearizable range read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    /// What to read.
    pub keys: Keys,
    /// At most so many keys, in key order; 0 for all.
    pub limit: i64,
    /// Read at this revision; 0 for the newest.
    pub revision: Revision,
    /// Only keys whose last put is at or after this revision; 0 for all. The count is not filtered.
    pub min_mod_revision: Revision,
    /// Leave the values out.
    pub keys_only: bool,
    /// Only the count.
    pub count_only: bool,
}

impl RangeRequest {
    /// Everything that `keys` name, newest revision.
    pub const fn of(keys: Keys) -> Self {
        Self { keys, limit: 0, revision: 0, min_mod_revision: 0, keys_only: false, count_only: false }
    }
}

/// Answer to a [`RangeRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeResponse {
    /// Revision of the store when the read was served.
    pub revision: Revision,
    /// Keys in order, at most the limit.
    pub kvs: Vec<KeyValue>,
    /// How many keys are in the range, whatever the limit and the filters.
    pub count: i64,
    /// Whether the limit cut the answer.
    pub more: bool,
}

/// One comparison of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key was created at this revision; 0 means that it does not exist.
    CreateRevision(Bytes, Revision),
    /// The key was last put at this revision.
    ModRevision(Bytes, Revision),
    /// The key has this value.
    Value(Bytes, Bytes),
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOperation {
    /// Read.
    Range(RangeRequest),
    /// Write, with a lease or 0.
    Put {
        /// The key.
        key: Bytes,
        /// The new value.
        value: Bytes,
        /// The lease to attach, 0 for none.
        lease: i64,
    },
    /// Delete every key of the range.
    Delete(Keys),
}

/// If all comparisons hold, the operations of `success`, else those of `failure`, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnRequest {
    /// The comparisons; none means success.
    pub compares: Vec<Compare>,
    /// Carried out when all comparisons hold.
    pub success: Vec<TxnOperation>,
    /// Carried out otherwise.
    pub failure: Vec<TxnOperation>,
}

/// Answer of one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnAnswer {
    /// What was read.
    Range(RangeResponse),
    /// Written.
    Put,
    /// How many keys were deleted.
    Delete(i64),
}

/// Answer to a [`TxnRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnResponse {
    /// Revision of the store after the transaction.
    pub revision: Revision,
    /// Whether the comparisons held.
    pub succeeded: bool,
    /// One answer per operation of the branch that ran.
    pub answers: Vec<TxnAnswer>,
}

/// A request with one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read keys.
    Range(RangeRequest),
    /// Compare and change.
    Txn(TxnRequest),
    /// A new lease of so many seconds.
    LeaseGrant {
        /// Time to live, seconds.
        ttl_seconds: i64,
    },
    /// Prolong a lease once.
    LeaseKeepAlive {
        /// The lease.
        lease: i64,
    },
    /// End a lease and delete its keys.
    LeaseRevoke {
        /// The lease.
        lease: i64,
    },
}

/// The answer to a [`Request`], of the same kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To [`Request::Range`].
    Range(RangeResponse),
    /// To [`Request::Txn`].
    Txn(TxnResponse),
    /// To [`Request::LeaseGrant`]: the new lease and its granted seconds.
    LeaseGranted {
        /// The lease.
        lease: i64,
        /// Granted time to live, seconds.
        ttl_seconds: i64,
    },
    /// To [`Request::LeaseKeepAlive`]; a time to live of 0 or less means that the lease is gone.
    LeaseKeptAlive {
        /// Remaining time to live, seconds.
        ttl_seconds: i64,
    },
    /// To [`Request::LeaseRevoke`]; a lease that was already gone counts as revoked.
    LeaseRevoked,
}

/// Why etcd proved that nothing happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing was handed over: no connection.
    Unreachable(String),
    /// The revision asked for was compacted; this is the oldest that remains (0 when not told).
    Compacted(Revision),
    /// The user has no right to these keys, or is not known.
    PermissionDenied(String),
    /// Another definite refusal.
    Other(String),
}

/// Watch `keys` from `start_revision` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// What to watch.
    pub keys: Keys,
    /// The first revision whose changes are wanted.
    pub start_revision: Revision,
}

/// One change seen by a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A key was put.
    Put(KeyValue),
    /// A key was deleted, or its lease ended.
    Delete {
        /// The key.
        key: Bytes,
        /// Revision of the deletion.
        mod_revision: Revision,
    },
}

/// Why a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// The start revision, or the next one, was compacted: read everything again.
    Compacted(Revision),
    /// The stream broke. The text is for logs.
    Lost(String),
    /// It was asked to end.
    Cancelled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        for (prefix, end) in [(&b"a/"[..], &b"a0"[..]), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")] {
            assert_eq!(&prefix_end(prefix)[..], end);
        }
        let keys = Keys::prefix("/leases/");
        assert!(keys.contain(b"/leases/a/0"));
        assert!(!keys.contain(b"/leases"));
        assert!(!keys.contain(b"/leases0"));
        assert!(Keys::prefix("").contain(b"anything"));
        assert!(Keys::One("k".into()).contain(b"k"));
    }
}
