//! A view of the machine's counters and levels. Written by the parts, read by metrics and tests, and nothing is
//! ever decided by them.

use std::fmt;
use std::time::Duration;

use crate::kafka::ApiKey;
use crate::{lfs, listener};

/// Counters and levels of one shard.
#[derive(Debug)]
pub struct Stats<'a> {
    /// Operations that were ordered and are not completed.
    pub operations: usize,
    /// HTTP exchanges that have not ended.
    pub exchanges: usize,
    /// Kafka listener.
    pub listener: listener::Stats,
    /// Which client libraries are connected.
    pub software: &'a [SoftwareStats],
    /// LFS API; `None` when it is off.
    pub lfs: Option<&'a lfs::LfsStats>,
}

/// Clients of one kind that are connected, as they say of themselves (KIP-511).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftwareStats {
    /// Name of the library; `unknown` of clients that have not said it, `other` of those beyond the first hundred.
    pub name: String,
    /// Its version, may be empty.
    pub version: String,
    /// Connected now.
    pub clients: usize,
}

/// Name and version.
impl fmt::Display for SoftwareStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.version.is_empty() { Ok(()) } else { write!(f, " {}", self.version) }
    }
}

/// How old the proofs are that routes rest on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnowledgeStats {
    /// Whether clients are served by it.
    pub serving: bool,
    /// Age of the proof of the snapshot; `None` before the first.
    pub snapshot_age: Option<Duration>,
    /// Age of the proof of the partition leases; `None` before the first.
    pub partition_leases_age: Option<Duration>,
    /// Age of the proof of the group leases; `None` before the first.
    pub group_leases_age: Option<Duration>,
}

/// A budget of one shard: its size, and how often it was not enough. What is taken of it is a level of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetStats {
    /// Its size.
    pub limit: u64,
    /// Requests that had to wait for it.
    pub waits: u64,
    /// Requests that were refused for want of it.
    pub refusals: u64,
}

/// Why something was sent to a broker once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryReason {
    /// A broker refused: it does not own the partition or group.
    Refused,
    /// The connection was lost before a byte of the request had left.
    Unsent,
    /// The connection or the answer was lost, and the request may be repeated without harm.
    Unanswered,
    /// The broker could not be connected.
    Unreachable,
}

impl RetryReason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Refused, Self::Unsent, Self::Unanswered, Self::Unreachable];
}

/// How often something was sent to a broker once more, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryStats([u64; RetryReason::ALL.len()]);

impl RetryStats {
    pub(crate) fn count(&mut self, reason: RetryReason) {
        self.0[reason as usize] += 1;
    }

    /// How often for this reason.
    pub fn of(&self, reason: RetryReason) -> u64 {
        self.0[reason as usize]
    }
}

/// Requests received, by API. All APIs that are not known here are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestStats([u64; ApiKey::ALL.len() + 1]);

impl Default for RequestStats {
    fn default() -> Self {
        Self([0; ApiKey::ALL.len() + 1])
    }
}

impl RequestStats {
    /// Counts a whole frame, length prefix included, by the API key in its header.
    pub(crate) fn count(&mut self, frame: &[u8]) {
        let key = frame.get(4..6).and_then(|key| key.try_into().ok()).map(i16::from_be_bytes);
        let known = key.and_then(|key| ApiKey::ALL.binary_search_by_key(&key, |api| *api as i16).ok());
        self.0[known.unwrap_or(ApiKey::ALL.len())] += 1;
    }

    /// Every API with its requests; `None` is all that are not known here.
    pub fn iter(&self) -> impl Iterator<Item = (Option<ApiKey>, u64)> {
        ApiKey::ALL.iter().copied().map(Some).chain([None]).zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_has_a_counter_and_all_others_share_one() {
        let mut requests = RequestStats::default();
        let frame = |key: i16| [&[0, 0, 0, 10][..], &key.to_be_bytes(), &[0; 8]].concat();
        for (index, api) in ApiKey::ALL.iter().enumerate() {
            (0..=index).for_each(|_| requests.count(&frame(*api as i16)));
        }
        for key in [-1, 7, 999] {
            requests.count(&frame(key));
        }
        requests.count(&[0, 0, 0, 0]);
        let expected = ApiKey::ALL.iter().copied().map(Some).zip(1..).chain([(None, 4)]);
        assert!(requests.iter().eq(expected), "{requests:?}");
    }

    #[test]
    fn reasons_do_not_share_a_counter() {
        let mut retries = RetryStats::default();
        for (index, reason) in RetryReason::ALL.into_iter().enumerate() {
            (0..=index).for_each(|_| retries.count(reason));
        }
        assert_eq!(RetryReason::ALL.map(|reason| retries.of(reason)), [1, 2, 3, 4]);
    }
}
