//! Counters of the LFS path (ops contract section 2). Written here, read by metrics, and nothing is decided by them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::stats::{BudgetStats, RetryStats};

/// Topics that are counted by name; all further ones are counted together.
const TOPICS: usize = 1_000;

/// Upper bounds of the duration buckets, milliseconds; the last bucket has none.
pub const DURATION_BUCKETS_MS: [u64; 10] = [10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000];

/// Counters of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LfsStats {
    /// Requests by topic, of those that the snapshot lists.
    pub topics: BTreeMap<String, TopicStats>,
    /// Requests of all topics of the snapshot beyond the first 1,000.
    pub other_topics: TopicStats,
    /// Requests without a topic, or with one that the snapshot does not list.
    pub unknown_topics: TopicStats,
    /// Payload bytes of successful uploads.
    pub uploaded_bytes: u64,
    /// Duration of successful uploads.
    pub upload_duration: DurationHistogram,
    /// S3 requests that failed for good.
    pub s3_errors: u64,
    /// Blobs that were kept or left without proof of a record.
    pub orphans: u64,
    /// Of these, blobs that were removed later.
    pub orphans_removed: u64,
    /// Exchanges that have not ended.
    pub exchanges: usize,
    /// Bytes of the memory budget that are taken.
    pub memory_taken_bytes: u64,
    /// Bytes of the budget for temporary files that are taken.
    pub disk_taken_bytes: u64,
    /// The budget that `memory_taken_bytes` is taken from.
    pub memory: BudgetStats,
    /// The budget that `disk_taken_bytes` is taken from.
    pub disk: BudgetStats,
    /// How many exchanges there may be at once, and those that were one too many.
    pub exchange_slots: BudgetStats,
    /// Connections to brokers, dials and those that are kept for another upload included.
    pub broker_connections: usize,
    /// Dials to brokers that failed.
    pub failed_dials: u64,
    /// Connections to brokers that were kept and taken by another upload, which did not dial.
    pub reused_connections: u64,
    /// Records and dials that went to a broker once more.
    pub retries: RetryStats,
}

/// Requests of one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicStats {
    /// Produced.
    pub ok: u64,
    /// Refused or failed after validation.
    pub errors: u64,
}

/// Observations by duration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// Observations in each bucket alone (not cumulative); the last one is beyond all bounds.
    pub buckets: [u64; DURATION_BUCKETS_MS.len() + 1],
    /// Sum of all observations.
    pub sum: Duration,
}

impl DurationHistogram {
    pub(crate) fn observe(&mut self, duration: Duration) {
        let bucket = DURATION_BUCKETS_MS.partition_point(|bound| duration > Duration::from_millis(*bound));
        self.buckets[bucket] += 1;
        self.sum = self.sum.saturating_add(duration);
    }
}

impl LfsStats {
    /// The counters of a topic that the snapshot lists. A cluster may have any number, metrics may not.
    pub(crate) fn topic(&mut self, topic: &str) -> &mut TopicStats {
        if !self.topics.contains_key(topic) && self.topics.len() >= TOPICS {
            return &mut self.other_topics;
        }
        self.topics.entry(topic.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_belong_to_their_bucket() {
        let mut histogram = DurationHistogram::default();
        for ms in [0, 10, 11, 30_000, 30_001] {
            histogram.observe(Duration::from_millis(ms));
        }
        assert_eq!(histogram.buckets, [2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(histogram.sum, Duration::from_millis(60_022));
    }

    #[test]
    fn names_of_topics_are_bounded() {
        let mut stats = LfsStats::default();
        for topic in 0..TOPICS + 5 {
            stats.topic(&topic.to_string()).ok += 1;
        }
        stats.topic("7").errors += 1;
        assert_eq!(stats.topics.len(), TOPICS);
        assert_eq!(stats.other_topics.ok, 5);
        assert_eq!(stats.topics["7"], TopicStats { ok: 1, errors: 1 });
    }
}
