//! The way to etcd: requests and watches of shards and brokers, what strikes them, and its restore from a backup.

use kafscale_proxy_core::model::broker;
use kafscale_proxy_core::model::etcd::{Backup, WatchFact, WatchFacts};
use kafscale_proxy_core::model::{Fate, Link};
use kafscale_proxy_core::{Input, OperationId, Outcome, etcd, inputs};

use super::{EtcdSide, Event, HOP, Watcher, World};

impl World {
    /// Changes etcd as somebody else would; its watchers are told.
    pub fn change_etcd(&mut self, change: impl FnOnce(&mut EtcdSide, &mut WatchFacts)) {
        let mut facts = WatchFacts::new();
        change(&mut self.etcd, &mut facts);
        self.etcd_may_have_changed();
        self.tell_watchers(facts);
    }

    /// etcd is stopped, and a backup put in place of what it holds. All connections are cut, those of silent watches too: a
    /// connection that hangs on to the store from before cannot be told from a quiet one by anybody.
    pub fn begin_restore(&mut self, backup: Backup) {
        let now = self.now().monotonic;
        self.etcd.restores += 1;
        self.etcd.incarnation += 1;
        self.judges.etcd_restored();
        self.change_etcd(|etcd, facts| etcd.model.restore(now, backup, facts));
    }

    /// etcd starts again.
    pub fn end_restore(&mut self) {
        self.etcd.restores = self.etcd.restores.saturating_sub(1);
    }

    /// Breaks the proxy's watches.
    pub fn break_watches(&mut self) {
        self.change_etcd(EtcdSide::break_watches);
    }

    /// Makes the watches of a shard silent, or lets them catch up.
    pub fn stall_watches(&mut self, shard: usize, stalled: bool) {
        self.change_etcd(|etcd, facts| etcd.stall_watches(shard, stalled, facts));
    }

    pub(super) fn etcd_request(&mut self, from: Watcher, request: &etcd::Request) {
        let (now, link, mut facts) = (self.now(), self.link_to_etcd(from), WatchFacts::new());
        let reply = self.etcd.model.request(now.monotonic, link, request, &mut facts);
        if matches!(from, Watcher::Shard(..)) && self.faults.of_etcd_answer(request, &reply.outcome) {
            self.etcd.model.put("/kafscale/other", "written between two pages", &mut facts);
            // The revision is new, so it was never compacted before.
            self.etcd.model.compact(self.etcd.model.revision()).expect("a new revision can be compacted");
        }
        if let (Watcher::Shard(shard, operation), Outcome::Applied(_)) = (from, &reply.outcome) {
            self.judges.freshness.served((shard, operation), request, now.monotonic);
        }
        self.etcd_may_have_changed();
        let after = HOP + reply.delay;
        match from {
            Watcher::Shard(shard, operation) => {
                let (outcome, incarnation) = (reply.outcome, self.etcd.incarnation);
                self.timeline.plan(after, Event::EtcdReply { shard, operation, outcome, incarnation });
            }
            Watcher::Broker(broker, life, token) => {
                let input = broker::Input::EtcdFinished { token, outcome: reply.outcome };
                self.timeline.plan(after, Event::Broker { broker, life, input });
            }
        }
        self.tell_watchers(facts);
    }

    pub(super) fn link_to_etcd(&self, from: Watcher) -> Link {
        match from {
            // Brokers find it again at once: one that starts without etcd takes itself for the whole cluster, and writes that.
            Watcher::Shard(..) if self.etcd.restores > 0 => Link { fate: Fate::Refused, ..Link::default() },
            Watcher::Shard(shard, _) => self.etcd.shard_links.get(&shard).copied().unwrap_or(self.etcd.link),
            Watcher::Broker(..) => self.etcd.broker_link,
        }
    }

    fn tell_watchers(&mut self, facts: WatchFacts) {
        for (token, fact) in facts {
            match self.etcd.watcher(token, &fact) {
                Some(Watcher::Shard(shard, operation)) => {
                    self.fact(HOP, shard, Input::Etcd(watch_input(operation, fact)));
                }
                Some(Watcher::Broker(broker, life, token)) => {
                    let input = broker::Input::EtcdWatched { token, fact };
                    self.timeline.plan(HOP, Event::Broker { broker, life, input });
                }
                None => {}
            }
        }
    }
}

fn watch_input(operation: OperationId, fact: WatchFact) -> inputs::Etcd {
    match fact {
        WatchFact::Created { revision } => inputs::Etcd::WatchCreated { operation, revision },
        WatchFact::Events { revision, events } => inputs::Etcd::WatchEvents { operation, revision, events },
        WatchFact::Ended(end) => inputs::Etcd::WatchEnded { operation, end },
    }
}
