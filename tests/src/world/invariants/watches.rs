//! A watch begins right after a state that its shard was told, so that nothing falls into a gap between the two.

use std::collections::{BTreeMap, BTreeSet};

use kafscale_proxy_core::etcd::{Response, Revision, WatchEvent, WatchRequest};
use kafscale_proxy_core::{Outcome, inputs};

/// The revisions that shards were told.
#[derive(Default)]
pub struct Watches {
    told: BTreeMap<usize, BTreeSet<Revision>>,
}

impl Watches {
    /// A shard is told something by etcd.
    pub(super) fn told(&mut self, shard: usize, input: &inputs::Etcd) {
        let told = self.told.entry(shard).or_default();
        match input {
            inputs::Etcd::Finished { outcome: Outcome::Applied(Response::Range(range)), .. } => {
                told.insert(range.revision);
            }
            inputs::Etcd::WatchEvents { events, .. } => told.extend(events.iter().map(|event| match event {
                WatchEvent::Put(kv) => kv.mod_revision,
                WatchEvent::Delete { mod_revision, .. } => *mod_revision,
            })),
            inputs::Etcd::Finished { .. } | inputs::Etcd::WatchCreated { .. } | inputs::Etcd::WatchEnded { .. } => {}
        }
    }

    /// A shard orders a watch; gives what is wrong with that.
    pub(super) fn ordered(&self, shard: usize, request: &WatchRequest) -> Option<String> {
        let begin = request.start_revision;
        let follows = self.told.get(&shard).is_some_and(|told| told.contains(&(begin - 1)));
        (!follows)
            .then(|| format!("shard {shard} watches from revision {begin}, which follows nothing that it was told"))
    }
}
