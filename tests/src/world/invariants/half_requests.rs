//! I23: unfinished requests of a shard hold no more than its memory for large ones.

use std::collections::BTreeMap;

use bytes::BytesMut;
use kafscale_proxy_core::inputs::{self, ClientId};
use kafscale_proxy_core::kafka::Splitter;
use kafscale_proxy_core::{Effect, Input, effects};

/// What of a request is held without room being asked for, bytes.
const FREE: usize = 64 * 1024;

/// What shards were given of requests that are not whole.
pub struct HalfRequests {
    limit: usize,
    clients: BTreeMap<(usize, ClientId), Splitter>,
}

impl HalfRequests {
    /// For shards that may hold so many bytes.
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, clients: BTreeMap::new() }
    }

    /// A shard is told something.
    pub(super) fn told(&mut self, shard: usize, input: &Input) -> Option<String> {
        let Input::Client(input) = input else { return None };
        match input {
            inputs::Client::Received { client, bytes } => {
                let splitter =
                    self.clients.entry((shard, *client)).or_insert_with(|| Splitter::for_requests(i32::MAX as usize));
                splitter.push(BytesMut::from(&bytes[..]));
                while splitter.next_frame().ok()?.is_some() {}
                let of_shard = self.clients.range((shard, ClientId(0))..=(shard, ClientId(u64::MAX)));
                let held: usize = of_shard.map(|(_, splitter)| splitter.buffered().saturating_sub(FREE)).sum();
                (held > self.limit).then(|| format!("shard {shard} was read {held} bytes of unfinished requests"))
            }
            inputs::Client::Closed { client } => {
                self.clients.remove(&(shard, *client));
                None
            }
            inputs::Client::Accepted { .. }
            | inputs::Client::Clogged { .. }
            | inputs::Client::Drained { .. }
            | inputs::Client::Blocked { .. }
            | inputs::Client::Unblocked { .. } => None,
        }
    }

    /// A shard orders this.
    pub(super) fn ordered(&mut self, shard: usize, effect: &Effect) {
        if let Effect::Client(effects::Client::Close { client }) = effect {
            self.clients.remove(&(shard, *client));
        }
    }

    /// A shard is gone.
    pub(super) fn shard_died(&mut self, shard: usize) {
        self.clients.retain(|(of, _), _| *of != shard);
    }
}
