//! etcd and S3 as the world has them: the models, and who ordered what is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafscale_proxy_core::model::broker::EtcdToken;
use kafscale_proxy_core::model::etcd::{EtcdModel, WatchFact, WatchFacts, WatchToken};
use kafscale_proxy_core::model::s3::{self, MemoryBlobs, S3Model, Trouble};
use kafscale_proxy_core::model::{Fate, Link};
use kafscale_proxy_core::s3::Request;
use kafscale_proxy_core::{OperationId, effects, etcd, inputs};

use super::S3Fault;

/// Who watches: a shard or a broker, and its own name for the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// A shard of the proxy.
    Shard(usize, OperationId),
    /// A broker, in one of its lives.
    Broker(usize, u32, EtcdToken),
}

/// The one etcd of the world.
#[derive(Default)]
pub struct EtcdSide {
    /// The model; tests look into it and change it.
    pub model: EtcdModel,
    /// The way of the proxy's requests.
    pub link: Link,
    /// The way of the brokers' requests.
    pub broker_link: Link,
    /// The way of the requests of single shards, where it differs.
    pub shard_links: BTreeMap<usize, Link>,
    /// Restores under way: no shard reaches it meanwhile.
    pub(super) restores: u32,
    /// How often it was restored: connections to the one before are cut.
    pub(super) incarnation: u64,
    watches: BTreeMap<WatchToken, Watcher>,
    tokens: u64,
}

impl EtcdSide {
    /// A watch arrives.
    pub(super) fn watch(&mut self, link: Link, watcher: Watcher, request: &etcd::WatchRequest, facts: &mut WatchFacts) {
        self.tokens += 1;
        let token = WatchToken(self.tokens);
        self.watches.insert(token, watcher);
        self.model.watch(link, token, request, facts);
    }

    /// The owner of a watch asked for its end.
    pub(super) fn cancel_watch(&mut self, watcher: Watcher, facts: &mut WatchFacts) {
        let token = self.watches.iter().find_map(|(token, owner)| (*owner == watcher).then_some(*token));
        if let Some(token) = token {
            self.model.cancel_watch(token, facts);
        }
    }

    /// Breaks every watch of the proxy, as a lost connection does.
    pub(super) fn break_watches(&mut self, facts: &mut WatchFacts) {
        for token in self.watches_of(|_| true) {
            self.model.break_watch(token, facts);
        }
    }

    /// Ends the watches of a shard that has died: nobody is told.
    pub(super) fn forget_watches(&mut self, shard: usize) {
        for token in self.watches_of(|watcher| watcher == shard) {
            self.watches.remove(&token);
            self.model.cancel_watch(token, &mut WatchFacts::new());
        }
    }

    /// Makes the watches of a shard silent, or lets them catch up.
    pub(super) fn stall_watches(&mut self, shard: usize, stalled: bool, facts: &mut WatchFacts) {
        for token in self.watches_of(|watcher| watcher == shard) {
            self.model.stall_watch(token, stalled, facts);
        }
    }

    fn watches_of(&self, concerns: impl Fn(usize) -> bool) -> Vec<WatchToken> {
        let of_shards = self.watches.iter().filter_map(|(token, watcher)| match watcher {
            Watcher::Shard(shard, _) => concerns(*shard).then_some(*token),
            Watcher::Broker(..) => None,
        });
        of_shards.collect()
    }

    /// Who is to be told of a fact.
    pub(super) fn watcher(&mut self, token: WatchToken, fact: &WatchFact) -> Option<Watcher> {
        match fact {
            WatchFact::Created { .. } | WatchFact::Events { .. } => self.watches.get(&token).copied(),
            WatchFact::Ended(_) => self.watches.remove(&token),
        }
    }
}

/// The one S3 store of the world.
pub struct S3Side {
    /// The model; tests look into it and change it.
    pub model: S3Model,
    /// The bytes behind its objects.
    pub blobs: MemoryBlobs,
    /// The way of the proxy's requests.
    pub link: Link,
    /// Requests arrive so much later at most; each draws its own delay.
    pub jitter: Duration,
    orders: BTreeMap<s3::Token, (usize, OperationId)>,
    opened: BTreeMap<(usize, OperationId), s3::Token>,
    /// Requests whose completion was not told yet.
    awaited: BTreeSet<(usize, OperationId)>,
    /// Keys whose delete was carried out, whatever its sender was told.
    deleted: BTreeSet<String>,
    tokens: u64,
}

impl S3Side {
    /// A store whose bucket exists.
    pub(super) fn new(min_part_bytes: u64) -> Self {
        let settings = s3::Settings { min_part_bytes, ..s3::Settings::default() };
        Self {
            model: S3Model::with_bucket(settings),
            blobs: MemoryBlobs::default(),
            link: Link::default(),
            jitter: Duration::ZERO,
            orders: BTreeMap::new(),
            opened: BTreeMap::new(),
            awaited: BTreeSet::new(),
            deleted: BTreeSet::new(),
            tokens: 0,
        }
    }

    /// A request was ordered: its completion is due from now on.
    pub(super) fn ordered(&mut self, shard: usize, operation: OperationId) {
        self.awaited.insert((shard, operation));
    }

    /// Whether the completion of a request is still due.
    pub(super) fn is_awaited(&self, shard: usize, operation: OperationId) -> bool {
        self.awaited.contains(&(shard, operation))
    }

    /// The completion of a request is told.
    pub(super) fn answered(&mut self, shard: usize, operation: OperationId) {
        self.awaited.remove(&(shard, operation));
    }

    /// A shard has died: what it opened is released, and nobody waits for its requests any more.
    pub(super) fn forget_shard(&mut self, shard: usize) {
        self.awaited.retain(|(of, _)| *of != shard);
        self.orders.retain(|_, (of, _)| *of != shard);
        for object in self.opened.extract_if(.., |(of, _), _| *of == shard).map(|(_, object)| object) {
            self.model.handle_input(s3::Input::Released { object }, &mut Vec::new());
        }
    }

    /// Whether the delete of this key was carried out at some time.
    pub fn has_deleted(&self, key: &str) -> bool {
        self.deleted.contains(key)
    }

    /// An object was opened for a request that had been given up.
    pub(super) fn forget_object(&mut self, shard: usize, operation: OperationId) {
        if let Some(object) = self.opened.get(&(shard, operation)) {
            self.model.handle_input(s3::Input::Released { object: *object }, &mut Vec::new());
        }
    }

    /// An order arrives: who is told what of it, and how much later than usual.
    pub(super) fn arrive(
        &mut self,
        shard: usize,
        order: effects::S3,
        fault: Option<S3Fault>,
    ) -> Vec<(usize, Duration, inputs::S3)> {
        let (mut link, lasting) = (self.link, self.model.trouble);
        match fault {
            Some(S3Fault::Way(way)) => link = way,
            Some(S3Fault::Trouble(trouble)) => self.model.trouble = trouble,
            Some(S3Fault::Late(_)) | None => {}
        }
        if let effects::S3::Request { request: Request::DeleteObject { key }, .. } = &order
            && is_carried_out(link, self.model.trouble)
        {
            self.deleted.insert(key.clone());
        }
        let told = self.carry_out(shard, order, link);
        self.model.trouble = lasting;
        told
    }

    fn carry_out(&mut self, shard: usize, order: effects::S3, link: Link) -> Vec<(usize, Duration, inputs::S3)> {
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
            // Ended by the shard's client, not by the store.
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

    fn token(&mut self, order: (usize, OperationId)) -> s3::Token {
        self.tokens += 1;
        let token = s3::Token(self.tokens);
        self.orders.insert(token, order);
        token
    }
}

/// Whether a store carries a delete out that comes this way while it is in this trouble.
fn is_carried_out(link: Link, trouble: Trouble) -> bool {
    let arrives = match link.fate {
        Fate::Delivered | Fate::ReplyLost => true,
        Fate::Refused | Fate::RequestLost => false,
    };
    let served = match trouble {
        Trouble::None | Trouble::BrokenReads | Trouble::StalledReads | Trouble::CompletionError { .. } => true,
        Trouble::InternalError { applied } => applied,
        Trouble::SlowDown => false,
    };
    arrives && served
}
