//! A view of the machine's counters and levels. Written by the parts, read by metrics and tests, and nothing is
//! ever decided by them.

use std::time::Duration;

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
    /// LFS API; `None` when it is off.
    pub lfs: Option<&'a lfs::LfsStats>,
    /// Age of the oldest proof that routes rest on; `None` before the first.
    pub knowledge_age: Option<Duration>,
}
