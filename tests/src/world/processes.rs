//! Processes of the world: replicas of the proxy, whose shards die together, and brokers. They stand still, crash and
//! start again.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::inputs::{BrokerConnectionId, ClientId, ExchangeId};
use kafscale_proxy_core::kafka::{ApiKey, VersionRange};
use kafscale_proxy_core::model::broker::{self, BrokerModel};
use kafscale_proxy_core::{Config, Input, Monotonic, inputs};

use super::shard::{Life, Shard};
use super::{Event, FIN, World};

/// What an end may take beyond its settings: the way of the request, and of the last answers.
const ENDING_SLACK: Duration = Duration::from_millis(100);

/// One process of the proxy.
pub(super) struct Replica {
    config: Config,
    skew_ms: i64,
    shards: Vec<usize>,
    ending: Option<Ending>,
}

/// A process was asked to end.
struct Ending {
    /// An end before this is one that waited for everything.
    in_time: Monotonic,
    /// It must be over by then.
    latest: Monotonic,
}

/// A broker, in one of its lives.
pub(super) struct BrokerProcess {
    settings: broker::Settings,
    pub(super) model: BrokerModel,
    pub(super) life: u32,
}

impl BrokerProcess {
    pub(super) fn new(settings: broker::Settings) -> Self {
        Self { model: BrokerModel::new(settings.clone()), settings, life: 0 }
    }

    pub(super) fn is_running(&self) -> bool {
        self.model.is_running()
    }
}

impl World {
    /// Starts a process of the proxy with so many shards, on a host whose wall clock is off by so much; gives its number.
    pub fn start_replica(&mut self, config: &Config, shards: usize, skew_ms: i64) -> usize {
        let shards = (0..shards).map(|index| self.start_shard(config, index == 0, skew_ms)).collect();
        self.replicas.push(Replica { config: config.clone(), skew_ms, shards, ending: None });
        self.replicas.len() - 1
    }

    fn start_shard(&mut self, config: &Config, first_shard: bool, skew_ms: i64) -> usize {
        let (seed, now) = (self.choices.seed(), self.now());
        let config = Config { first_shard: config.first_shard && first_shard, ..config.clone() };
        self.shards.push(Shard::new(config, seed, now, skew_ms));
        self.judges.calm_shard(self.shards.len() - 1, now.monotonic);
        self.shards.len() - 1
    }

    /// The shards of a process, as it runs now.
    pub fn shards_of(&self, replica: usize) -> &[usize] {
        &self.replicas[replica].shards
    }

    /// How many processes of the proxy there are.
    pub const fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// Shards that run or stand still.
    pub fn living_shards(&self) -> impl Iterator<Item = usize> {
        self.replicas.iter().flat_map(|replica| replica.shards.iter().copied())
    }

    /// A process of the proxy dies at once and starts again with nothing but its settings.
    pub fn crash_replica(&mut self, replica: usize) {
        self.replicas[replica].ending = None;
        let dying = std::mem::take(&mut self.replicas[replica].shards);
        let count = dying.len();
        for shard in dying {
            self.kill(shard);
        }
        let (config, skew_ms) = (self.replicas[replica].config.clone(), self.replicas[replica].skew_ms);
        self.replicas[replica].shards =
            (0..count).map(|index| self.start_shard(&config, index == 0, skew_ms)).collect();
    }

    /// A process of the proxy is asked to end. Another one takes its place when it is gone.
    pub fn end_replica(&mut self, replica: usize) {
        if self.replicas[replica].ending.is_some() {
            return;
        }
        let settings = self.replicas[replica].config.shutdown.clone();
        let in_time = self.now().monotonic + settings.grace + settings.drain;
        self.replicas[replica].ending = Some(Ending { in_time, latest: in_time + ENDING_SLACK });
        for shard in self.replicas[replica].shards.clone() {
            self.request_shutdown(shard);
        }
    }

    /// Lets processes go that were asked to end and have, or should have; gives how many did.
    pub fn end_idle_replicas(&mut self) -> u64 {
        let (now, mut ended) = (self.now().monotonic, 0);
        for replica in 0..self.replicas.len() {
            let Some(Ending { in_time, latest }) = self.replicas[replica].ending else { continue };
            let shards = self.replicas[replica].shards.clone();
            if shards.iter().any(|shard| self.shards[*shard].life != Life::Running) {
                continue;
            }
            if shards.iter().all(|shard| self.shards[*shard].proxy.is_idle()) {
                for shard in shards {
                    let (stats, files) = (self.shards[shard].proxy.stats(), self.shards[shard].files());
                    if let Some(fault) = self.judges.endings.ended(shard, now < in_time, &stats, files) {
                        self.judges.violated("endings", now, fault);
                    }
                }
                ended += 1;
                self.crash_replica(replica);
            } else if now > latest {
                self.replicas[replica].ending = None;
                self.judges.violated("endings", now, format!("replica {replica} has not ended by {latest:?}"));
            }
        }
        ended
    }

    fn kill(&mut self, shard: usize) {
        self.shards[shard].life = Life::Dead;
        self.shards[shard].waiting.clear();
        self.judges.shard_died(shard);
        for (_, socket) in std::mem::take(&mut self.shards[shard].sockets) {
            self.peers.remove(&(socket.broker, socket.connection));
            self.tell_broker(FIN, socket.broker, broker::Input::Closed { connection: socket.connection });
        }
        self.dialling.retain(|(of, _): &(usize, BrokerConnectionId)| *of != shard);
        self.etcd.forget_watches(shard);
        self.s3.forget_shard(shard);
        for (id, client) in self.clients.iter_mut().filter(|(_, client)| client.shard == shard) {
            if !client.machine.is_closed() {
                client.machine.vanishes();
                self.news.insert(*id);
            }
        }
        for (id, exchange) in self.exchanges.iter_mut().filter(|(_, one)| one.shard == shard && !one.ended) {
            exchange.machine.aborted();
            exchange.ended = true;
            self.http_news.insert(*id);
        }
    }

    /// A process of the proxy stands still for so long. Its clock goes on meanwhile.
    pub fn pause_replica(&mut self, replica: usize, duration: Duration) {
        for shard in self.replicas[replica].shards.clone() {
            if self.shards[shard].life == Life::Running {
                self.shards[shard].life = Life::Paused;
                self.timeline.plan(duration, Event::Awake { shard });
            }
        }
    }

    /// Goes on after a pause: what was told meanwhile and what is due come in an order that is drawn.
    pub(super) fn awake(&mut self, shard: usize) {
        if self.shards[shard].life != Life::Paused {
            return;
        }
        self.shards[shard].life = Life::Running;
        let now = self.now().monotonic;
        if let Some(replica) = self.replicas.iter_mut().find(|replica| replica.shards.contains(&shard))
            && let Some(ending) = &mut replica.ending
        {
            // It stood still, and has had its time for nothing: its deadlines begin where it finds them.
            let settings = &replica.config.shutdown;
            ending.in_time = Monotonic::ZERO;
            ending.latest = now + settings.grace + settings.drain + ENDING_SLACK;
        }
        if self.choices.one_in(2) {
            self.wake_shard(shard);
        }
        while let Some(input) = self.shards[shard].waiting.pop_front() {
            self.deliver(shard, input);
        }
        let clients: Vec<_> =
            self.clients.iter().filter(|(_, client)| client.shard == shard).map(|(id, _)| *id).collect();
        clients.into_iter().for_each(|client| self.read_client(client));
    }

    pub(super) fn wake_shard(&mut self, shard: usize) {
        let now = self.now();
        let effects = self.shards[shard].wake(now);
        self.carry_out(shard, effects);
    }

    /// A fact reaches a shard, unless it has died; it waits while the shard stands still.
    pub(super) fn deliver(&mut self, shard: usize, input: Input) {
        match self.shards[shard].life {
            Life::Dead => {}
            Life::Paused => self.shards[shard].waiting.push_back(input),
            Life::Running => {
                if let Input::Http(inputs::Http::ClientGone { exchange }) = &input {
                    self.judges.uploads.client_gone(*exchange);
                }
                let now = self.now();
                self.judges.told(shard, &input, now.monotonic);
                let effects = self.shards[shard].tell(now, input);
                self.carry_out(shard, effects);
            }
        }
    }

    /// A broker dies at once.
    pub fn crash(&mut self, broker: usize) {
        let mut effects = Vec::new();
        self.brokers[broker].model.crash(&mut effects);
        self.carry_out_broker(broker, effects);
    }

    /// A broker that has died starts again and knows nothing.
    pub fn restart(&mut self, broker: usize) {
        if self.brokers[broker].is_running() {
            return;
        }
        let seed = self.choices.seed();
        let process = &mut self.brokers[broker];
        process.life += 1;
        process.settings.seed = seed;
        process.model = BrokerModel::new(process.settings.clone());
        self.tell_broker(Duration::ZERO, broker, broker::Input::Started);
    }

    /// A broker speaks this where that differs from KafScale brokers, in this life and the next.
    pub fn set_versions(&mut self, broker: usize, versions: BTreeMap<ApiKey, VersionRange>) {
        self.brokers[broker].settings.versions.clone_from(&versions);
        self.brokers[broker].model.set_versions(versions);
    }

    /// Whether every broker knows a Fetch that names topics by their ids.
    pub fn brokers_fetch_by_id(&self) -> bool {
        let fetch = |broker: &BrokerProcess| broker.settings.versions.get(&ApiKey::Fetch).copied();
        self.brokers.iter().filter_map(fetch).all(|range| range.max >= 13)
    }

    /// A broker closes connections on which nothing happens for so long, in this life and the next.
    pub fn set_idle_close(&mut self, broker: usize, idle_close: Duration) {
        self.brokers[broker].settings.idle_close = Some(idle_close);
        self.brokers[broker].model.set_idle_close(idle_close);
    }

    /// A broker accepts and reads, and does nothing, or goes on.
    pub fn set_silent(&mut self, broker: usize, silent: bool) {
        self.brokers[broker].model.set_silent(silent);
        if !silent {
            self.wake_broker(broker);
        }
    }

    /// The shard that a client is connected to.
    ///
    /// # Panics
    ///
    /// When it never connected.
    pub fn shard_of_client(&self, client: ClientId) -> usize {
        self.clients.get(&client).expect("the client has connected").shard
    }

    /// The shard that serves an exchange.
    ///
    /// # Panics
    ///
    /// When it never began.
    pub fn shard_of_exchange(&self, exchange: ExchangeId) -> usize {
        self.exchanges.get(&exchange).expect("the exchange has begun").shard
    }

    pub(super) fn etcd_may_have_changed(&mut self) {
        let now = self.timeline.now().monotonic;
        self.judges.owners.look(now, &self.etcd.model);
        self.judges.routing.leases_may_have_changed(&self.etcd, now);
        self.judges.unowned.leases_may_have_changed(&self.etcd, now);
        self.judges.topics_may_have_changed(&self.etcd, now);
    }
}
