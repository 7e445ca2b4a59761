//! What every part of the LFS path is handed in a call.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::config::LfsConfig;
use crate::context::Context;
use crate::input::{BrokerConnectionId, ExchangeId};
use crate::s3;

use super::Decision;
use super::budget::Budget;
use super::cleanup::{Cleanups, LeftUpload, Unwanted};
use super::idle_links::IdleLinks;
use super::purpose::Purpose;
use super::s3_call;
use super::stats::{LfsStats, TopicStats};
use crate::log_text::Printable;

/// State that the exchanges of a shard share.
pub(crate) struct Shared {
    pub(crate) config: LfsConfig,
    /// Bytes of bodies that are held.
    pub(crate) memory: Budget<ExchangeId>,
    /// Bytes of temporary files.
    pub(crate) disk: Budget<ExchangeId>,
    pub(crate) cleanups: Cleanups,
    /// Sockets to brokers that have not ended, and whose they are.
    pub(crate) connections: BTreeMap<BrokerConnectionId, Holder>,
    pub(crate) idle_links: IdleLinks,
    pub(crate) stats: LfsStats,
    /// Moves round robin among static brokers.
    pub(crate) turn: usize,
    /// Records that were made.
    pub(crate) records: i32,
}

/// Whose a socket to a broker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// It was dialled or taken for this exchange, which may be over already.
    Exchange(ExchangeId),
    /// It was left by one, and no other has taken it.
    Kept,
}

/// One call: the machine's context, the shared state, and where decisions go.
pub(crate) struct Call<'a, 'c> {
    pub(crate) ctx: &'a mut Context<'c>,
    pub(crate) cluster: &'a Cluster,
    pub(crate) shared: &'a mut Shared,
    pub(crate) out: &'a mut Vec<Decision>,
}

impl Call<'_, '_> {
    /// Orders an S3 request with the deadline that belongs to it.
    pub(crate) fn s3(&mut self, purpose: Purpose, request: s3::Request) {
        let deadline = s3_call::deadline(&self.shared.config.s3_timeouts, &request);
        self.out.push(Decision::S3 { purpose, request, deadline });
    }

    /// A correlation id for one record. Records of several exchanges follow each other on a connection, and none may be taken
    /// for answered by what is said of another.
    pub(crate) fn correlation_id(&mut self) -> i32 {
        self.shared.records = self.shared.records.checked_add(1).unwrap_or(1);
        self.shared.records
    }

    /// Begins the removal of a blob that no record refers to. What cannot be removed is counted.
    pub(crate) fn clean_up(&mut self, unwanted: Unwanted) {
        if unwanted.leftovers.upload == LeftUpload::Nameless {
            self.orphan(&unwanted.topic, &unwanted.key, "delete_failed");
        }
        self.shared.cleanups.begin(unwanted, self.out);
    }

    /// The counters of a topic. Names that only clients know are counted together.
    pub(crate) fn topic_stats(&mut self, topic: &str) -> &mut TopicStats {
        let stats = &mut self.shared.stats;
        let is_listed = self.cluster.snapshot().is_some_and(|snapshot| snapshot.topic(topic).is_some());
        if is_listed { stats.topic(topic) } else { &mut stats.unknown_topics }
    }

    /// Counts and logs a blob that stays without proof of a record.
    pub(crate) fn orphan(&mut self, topic: &str, key: &str, reason: &str) {
        self.shared.stats.orphans += 1;
        tracing::warn!(topic = %Printable(topic), object = %Printable(key), reason, "an orphan stays in the bucket");
    }

    /// An orphan was removed after all.
    pub(crate) fn orphan_removed(&mut self, topic: &str, key: &str) {
        self.shared.stats.orphans_removed += 1;
        tracing::info!(topic = %Printable(topic), object = %Printable(key), "an orphan was removed");
    }
}
