//! A process that is asked to end is not ready from then on, ends in time, and leaves nothing open that it could have ended.

use std::collections::{BTreeMap, BTreeSet};

use kafscale_proxy_core::inputs::{self, ExchangeId, HttpServer};
use kafscale_proxy_core::{Effect, Input, Monotonic, Stats, effects};

/// Shards that were asked to end.
#[derive(Default)]
pub struct Endings {
    asked: BTreeMap<usize, Monotonic>,
    /// Probes of readiness.
    probes: BTreeSet<ExchangeId>,
    /// What shards that have ended in order had counted as orphans by then.
    orphans: BTreeMap<usize, u64>,
}

impl Endings {
    /// A shard is told something.
    pub(super) fn told(&mut self, shard: usize, input: &Input, now: Monotonic) {
        if matches!(input, Input::ShutdownRequested) {
            self.asked.entry(shard).or_insert(now);
        }
        if let Input::Http(inputs::Http::Requested { exchange, server: HttpServer::Health, head, .. }) = input
            && head.uri.path() == "/readyz"
        {
            self.probes.insert(*exchange);
        }
    }

    /// A shard orders something; gives what is wrong with that.
    pub(super) fn ordered(&self, shard: usize, effect: &Effect) -> Option<String> {
        let asked = self.asked.get(&shard)?;
        let Effect::Http(effects::Http::Respond { exchange, head, .. }) = effect else { return None };
        (self.probes.contains(exchange) && head.status == http::StatusCode::OK)
            .then(|| format!("shard {shard} says that it is ready; it was asked to end at {asked:?}"))
    }

    /// A shard has ended; gives what is wrong with that. One that used up its time may leave things open.
    pub(in crate::world) fn ended(
        &mut self,
        shard: usize,
        in_time: bool,
        stats: &Stats<'_>,
        files: usize,
    ) -> Option<String> {
        let orphans = stats.lfs.map_or(0, |lfs| lfs.orphans - lfs.orphans_removed);
        self.orphans.insert(shard, orphans);
        let (memory, disk) = stats.lfs.map_or((0, 0), |lfs| (lfs.memory_taken_bytes, lfs.disk_taken_bytes));
        let (uploads, connections) = stats.lfs.map_or((0, 0), |lfs| (lfs.exchanges, lfs.broker_connections));
        let listener = stats.listener;
        let held = [
            uploads,
            connections,
            memory as usize,
            disk as usize,
            listener.clients,
            listener.open_requests,
            listener.broker_connections,
            listener.frame_bytes,
            listener.small_request_bytes,
            listener.answer_bytes,
            files,
        ];
        (in_time && held.iter().any(|level| *level != 0))
            .then(|| format!("shard {shard} ends before its time is over, and holds {held:?}"))
    }

    /// Shards that have ended in order, and what they had counted as orphans.
    pub fn orphans(&self) -> impl Iterator<Item = (usize, u64)> {
        self.orphans.iter().map(|(shard, orphans)| (*shard, *orphans))
    }
}
