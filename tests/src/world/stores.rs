//! etcd and S3 as the world has them: the models, what is under way to them, and who waits.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::model::etcd::{EtcdModel, WatchFact, WatchFacts, WatchToken};
use kafscale_proxy_core::model::s3::{self, MemoryBlobs, S3Model};
use kafscale_proxy_core::model::{Link, Reply};
use kafscale_proxy_core::{Monotonic, OperationId, effects, etcd, inputs};

/// Who ordered something: a shard, and the shard's name for it.
pub type Order = (usize, OperationId);

/// The one etcd of the world.
#[derive(Default)]
pub struct EtcdSide {
    /// The model; tests look into it and change it.
    pub model: EtcdModel,
    watches: BTreeMap<WatchToken, Order>,
    tokens: u64,
}

impl EtcdSide {
    /// A request arrives.
    pub fn request(
        &mut self,
        now: Monotonic,
        link: Link,
        request: &etcd::Request,
        facts: &mut WatchFacts,
    ) -> Reply<etcd::Response, etcd::Refusal> {
        self.model.request(now, link, request, facts)
    }

    /// A watch arrives.
    pub fn watch(&mut self, link: Link, order: Order, request: &etcd::WatchRequest, facts: &mut WatchFacts) {
        self.tokens += 1;
        let token = WatchToken(self.tokens);
        self.watches.insert(token, order);
        self.model.watch(link, token, request, facts);
    }

    /// The owner of a watch asked for its end.
    pub fn cancel_watch(&mut self, order: Order, facts: &mut WatchFacts) {
        let token = self.watches.iter().find_map(|(token, owner)| (*owner == order).then_some(*token));
        if let Some(token) = token {
            self.model.cancel_watch(token, facts);
        }
    }

    /// What a shard is told of a fact about one of its watches.
    pub fn told(&mut self, token: WatchToken, fact: WatchFact) -> Option<(usize, inputs::Etcd)> {
        let (shard, operation) = *self.watches.get(&token)?;
        let told = match fact {
            WatchFact::Created => inputs::Etcd::WatchCreated { operation },
            WatchFact::Events { revision, events } => inputs::Etcd::WatchEvents { operation, revision, events },
            WatchFact::Ended(end) => {
                self.watches.remove(&token);
                inputs::Etcd::WatchEnded { operation, end }
            }
        };
        Some((shard, told))
    }
}

/// The one S3 store of the world.
pub struct S3Side {
    /// The model; tests look into it and change it.
    pub model: S3Model,
    /// The bytes behind its objects.
    pub blobs: MemoryBlobs,
    orders: BTreeMap<s3::Token, Order>,
    opened: BTreeMap<Order, s3::Token>,
    tokens: u64,
}

impl S3Side {
    /// A store whose bucket exists.
    pub fn new(min_part_bytes: u64) -> Self {
        let settings = s3::Settings { min_part_bytes, ..s3::Settings::default() };
        Self {
            model: S3Model::with_bucket(settings),
            blobs: MemoryBlobs::default(),
            orders: BTreeMap::new(),
            opened: BTreeMap::new(),
            tokens: 0,
        }
    }

    /// An order arrives: who is told what of it, and how much later than usual.
    pub fn arrive(&mut self, shard: usize, link: Link, order: effects::S3) -> Vec<(usize, Duration, inputs::S3)> {
        let input = match order {
            effects::S3::Request { operation, request } => {
                let token = self.token((shard, operation));
                self.opened.insert((shard, operation), token);
                s3::Input::Requested { token, link, request }
            }
            effects::S3::ReadObject { operation, object, max_bytes } => {
                let object = *self.opened.get(&(shard, object)).expect("an object is read after it was opened");
                s3::Input::ReadRequested { token: self.token((shard, operation)), object, max_bytes }
            }
            effects::S3::ReleaseObject { object } => {
                let object = *self.opened.get(&(shard, object)).expect("an object is released after it was opened");
                s3::Input::Released { object }
            }
            // Everything of the world ends by itself; a cancelled request may be carried out all the same.
            effects::S3::Cancel { .. } => return Vec::new(),
        };
        let (mut inputs, mut told) = (vec![input], Vec::new());
        while let Some(input) = inputs.pop() {
            let mut orders = Vec::new();
            self.model.handle_input(input, &mut orders);
            for order in orders {
                match self.blobs.carry_out(order) {
                    Ok(input) => inputs.extend(input),
                    Err(order) => told.extend(self.told(order)),
                }
            }
        }
        told
    }

    fn told(&mut self, order: s3::Effect) -> Option<(usize, Duration, inputs::S3)> {
        match order {
            s3::Effect::Finished { token, reply } => {
                let (shard, operation) = self.orders.remove(&token)?;
                Some((shard, reply.delay, inputs::S3::Finished { operation, outcome: reply.outcome }))
            }
            s3::Effect::ObjectRead { token, result } => {
                let (shard, operation) = self.orders.remove(&token)?;
                Some((shard, Duration::ZERO, inputs::S3::ObjectRead { operation, result }))
            }
            s3::Effect::StoreBlob { .. } | s3::Effect::LoadBlob { .. } | s3::Effect::RemoveBlob { .. } => None,
        }
    }

    fn token(&mut self, order: Order) -> s3::Token {
        self.tokens += 1;
        let token = s3::Token(self.tokens);
        self.orders.insert(token, order);
        token
    }
}
