//! Models of KafScale brokers on loopback TCP, with a model of etcd or a real one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::model::broker::{
    BrokerModel, ClusterSnapshot, ConnectionId, Effect, EtcdToken, Fault, Input as Fact, SNAPSHOT_KEY, Settings,
    SharedLog,
};
use kafscale_proxy_core::model::etcd::WatchFact;
use kafscale_proxy_core::{Input, Now, OperationId, Outcome, effects, etcd, inputs};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::alarm::Alarm;
use crate::etcd_client::EtcdClient;
use crate::process::{self, ProcessError};
use crate::report::Report;
use crate::settings::EtcdSettings;
use crate::socket::{ReadBuffer, Socket, SocketFact};
use crate::tasks::spawn_local;
use crate::{accept, clock};

/// A way to etcd, made for each life of a broker: what belongs to an earlier life must not reach a later one.
type Connect = Box<dyn Fn(Report) -> Box<dyn Fn(effects::Etcd)>>;

/// What a test does to a broker.
#[derive(Debug)]
pub enum Control {
    /// The fault strikes once, at the next answer that it applies to.
    Inject(Fault),
    /// How many faults wait for their answer.
    WaitingFaults(oneshot::Sender<usize>),
    /// It reads and does nothing, or goes on.
    Silence(bool),
    /// As a stopped process: what comes waits in its sockets, its leases end, and later it goes on as if nothing had been.
    Freeze(bool),
    /// Connections that are idle for so long are closed from now on.
    IdleClose(Duration),
    /// It owns this partition (`topic/partition`) no more; its key in etcd is the test's business.
    ReleasePartition(String),
    /// It coordinates this group no more; its key in etcd is the test's business.
    ReleaseGroup(String),
    /// It dies: connections break, its port is closed, its leases go on until they end.
    Crash,
    /// It ends in order: leases are revoked.
    ShutDown,
    /// It starts again on its port, after either end.
    Start,
}

/// One broker of a cluster.
struct Broker {
    model: BrokerModel,
    address: SocketAddr,
    /// Counts its starts.
    life: u64,
    etcd: Box<dyn Fn(effects::Etcd)>,
    watch: Option<OperationId>,
    accepting: Option<AbortHandle>,
}

/// A cluster of brokers that share a log.
pub(crate) struct BrokerServers {
    brokers: RefCell<Vec<Broker>>,
    connect: Connect,
    log: RefCell<SharedLog>,
    inbox: RefCell<VecDeque<(usize, Fact)>>,
    /// What has come for frozen brokers.
    frozen: RefCell<BTreeMap<usize, Vec<Fact>>>,
    at_work: Cell<bool>,
    sockets: RefCell<HashMap<(usize, ConnectionId), Rc<Socket>>>,
    buffer: ReadBuffer,
    last_connection: Cell<u64>,
    alarm: Alarm,
}

/// Listens for brokers on these addresses; port 0 takes a free one.
pub(crate) async fn listen(
    addresses: impl IntoIterator<Item = SocketAddr>,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), ProcessError> {
    let failed = |error| ProcessError(format!("cannot listen for a broker: {error}"));
    let wanted = addresses;
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for address in wanted {
        let listener = accept::listen(&address.to_string()).await.map_err(failed)?;
        addresses.push(listener.local_addr().map_err(failed)?);
        listeners.push(listener);
    }
    Ok((listeners, addresses))
}

/// The value of the snapshot key for brokers at these addresses.
pub(crate) fn snapshot(addresses: &[SocketAddr], topics: &[(&str, i32)]) -> Bytes {
    let hosts: Vec<_> = addresses.iter().map(|address| (address.ip().to_string(), address.port())).collect();
    let brokers = hosts.iter().zip(0..).map(|((host, port), id)| (id, host.as_str(), *port));
    let empty = ClusterSnapshot::new("dev", brokers);
    let snapshot = topics.iter().fold(empty, |snapshot, (name, partitions)| snapshot.with_topic(name, *partitions));
    snapshot.to_json().into()
}

fn model(id: i32, address: SocketAddr) -> Result<BrokerModel, ProcessError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| ProcessError(format!("no randomness: {error}")))?;
    Ok(BrokerModel::new(Settings {
        id,
        host: address.ip().to_string(),
        port: address.port(),
        auto_create_partitions: 1,
        idle_close: None,
        seed,
        versions: BTreeMap::new(),
    }))
}

impl BrokerServers {
    /// Starts one broker per listener; `connect` gives each its way to etcd.
    pub(crate) fn start(
        listeners: Vec<TcpListener>,
        addresses: &[SocketAddr],
        connect: impl Fn(Report) -> Box<dyn Fn(effects::Etcd)> + 'static,
    ) -> Result<Rc<Self>, ProcessError> {
        let mut brokers = Vec::new();
        for (address, id) in addresses.iter().zip(0..) {
            let model = model(id, *address)?;
            brokers.push(Broker {
                model,
                address: *address,
                life: 0,
                etcd: Box::new(|_| {}),
                watch: None,
                accepting: None,
            });
        }
        let servers = Rc::new(Self {
            brokers: RefCell::new(brokers),
            connect: Box::new(connect),
            log: RefCell::new(SharedLog::new()),
            inbox: RefCell::default(),
            frozen: RefCell::default(),
            at_work: Cell::new(false),
            sockets: RefCell::default(),
            buffer: ReadBuffer::default(),
            last_connection: Cell::new(0),
            alarm: Alarm::default(),
        });
        for (broker, listener) in listeners.into_iter().enumerate() {
            servers.begin_life(broker, listener);
        }
        let keeper = Rc::clone(&servers);
        spawn_local(async move {
            keeper.alarm.run(|| keeper.poll_timeout(), || keeper.work(true)).await;
        });
        Ok(servers)
    }

    fn begin_life(self: &Rc<Self>, broker: usize, listener: TcpListener) {
        let this = Rc::downgrade(self);
        let life = self.brokers.borrow()[broker].life + 1;
        let etcd = (self.connect)(Report::new(move |fact| {
            if let Some(this) = this.upgrade()
                && let Input::Etcd(fact) = fact
                && this.brokers.borrow()[broker].life == life
            {
                this.tell(broker, from_etcd(fact));
            }
        }));
        let this = Rc::clone(self);
        let accepting = spawn_local(async move {
            accept::accept(&listener, |stream, _| this.serve(broker, stream)).await;
        });
        {
            let broker = &mut self.brokers.borrow_mut()[broker];
            broker.life = life;
            broker.etcd = etcd;
            broker.accepting = Some(accepting.abort_handle());
        }
        self.tell(broker, Fact::Started);
    }

    async fn control(self: &Rc<Self>, broker: usize, control: Control) -> Result<(), ProcessError> {
        match control {
            Control::Inject(fault) => self.brokers.borrow_mut()[broker].model.inject(fault),
            Control::WaitingFaults(tell) => {
                // Fails when nobody waits any more.
                let _ = tell.send(self.brokers.borrow()[broker].model.waiting_faults());
            }
            Control::Silence(silent) => {
                self.brokers.borrow_mut()[broker].model.set_silent(silent);
                self.work(true);
            }
            Control::Freeze(true) => drop(self.frozen.borrow_mut().insert(broker, Vec::new())),
            Control::Freeze(false) => {
                let held = self.frozen.borrow_mut().remove(&broker);
                held.into_iter().flatten().for_each(|fact| self.tell(broker, fact));
                self.work(true);
            }
            Control::IdleClose(idle) => {
                self.brokers.borrow_mut()[broker].model.set_idle_close(idle);
                self.work(true);
            }
            Control::ReleasePartition(partition) => {
                self.brokers.borrow_mut()[broker].model.release_partition(&partition);
            }
            Control::ReleaseGroup(group) => self.brokers.borrow_mut()[broker].model.release_group(&group),
            Control::Crash => {
                self.frozen.borrow_mut().remove(&broker);
                self.call(broker, |model, _, _, orders| model.crash(orders));
                self.work(true);
            }
            Control::ShutDown => self.tell(broker, Fact::ShutdownRequested),
            Control::Start => {
                let (id, address) = {
                    let broker = &self.brokers.borrow()[broker];
                    (broker.model.id(), broker.address)
                };
                let (listeners, _) = listen([address]).await?;
                self.brokers.borrow_mut()[broker].model = model(id, address)?;
                listeners.into_iter().for_each(|listener| self.begin_life(broker, listener));
            }
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<kafscale_proxy_core::Monotonic> {
        let (brokers, frozen) = (self.brokers.borrow(), self.frozen.borrow());
        let awake = brokers.iter().enumerate().filter(|(broker, _)| !frozen.contains_key(broker));
        awake.filter_map(|(_, broker)| broker.model.poll_timeout()).min()
    }

    fn serve(self: &Rc<Self>, broker: usize, stream: TcpStream) {
        self.last_connection.set(self.last_connection.get() + 1);
        let connection = ConnectionId(self.last_connection.get());
        let reader = Rc::downgrade(self);
        let socket = Rc::new(Socket::new(stream, move |fact| match fact {
            SocketFact::Received(bytes) => {
                if let Some(this) = reader.upgrade() {
                    this.tell(broker, Fact::Received { connection, bytes });
                }
            }
            // Brokers answer one request at a time and know no watermarks.
            SocketFact::Clogged | SocketFact::Drained | SocketFact::Blocked | SocketFact::Unblocked => {}
        }));
        self.sockets.borrow_mut().insert((broker, connection), Rc::clone(&socket));
        self.tell(broker, Fact::Connected { connection });
        let this = Rc::clone(self);
        spawn_local(async move {
            socket.run(&this.buffer).await;
            // A connection that the broker has closed is not told to it.
            let told = this.sockets.borrow_mut().remove(&(broker, connection)).is_some();
            if told {
                this.tell(broker, Fact::Closed { connection });
            }
        });
    }

    fn tell(&self, broker: usize, fact: Fact) {
        if let Some(held) = self.frozen.borrow_mut().get_mut(&broker) {
            held.push(fact);
            return;
        }
        self.inbox.borrow_mut().push_back((broker, fact));
        if !self.at_work.get() {
            self.work(false);
        }
    }

    fn work(&self, timeout: bool) {
        self.at_work.set(true);
        let mut timeout = timeout;
        loop {
            let version = self.log.borrow().version();
            if std::mem::take(&mut timeout) {
                let count = self.brokers.borrow().len();
                for broker in (0..count).filter(|broker| !self.frozen.borrow().contains_key(broker)) {
                    self.call(broker, |model, now, log, orders| model.handle_timeout(now, log, orders));
                }
                continue;
            }
            let next = self.inbox.borrow_mut().pop_front();
            let Some((broker, fact)) = next else { break };
            self.call(broker, |model, now, log, orders| model.handle_input(now, fact, log, orders));
            // Fetches that wait at another broker may have enough now.
            timeout = self.log.borrow().version() != version;
        }
        self.at_work.set(false);
        self.alarm.look_at(self.poll_timeout());
    }

    fn call(&self, broker: usize, call: impl FnOnce(&mut BrokerModel, Now, &mut SharedLog, &mut Vec<Effect>)) {
        let mut orders = Vec::new();
        call(&mut self.brokers.borrow_mut()[broker].model, clock::now(), &mut self.log.borrow_mut(), &mut orders);
        for order in orders {
            self.carry_out(broker, order);
        }
    }

    fn carry_out(&self, broker: usize, order: Effect) {
        let ask = |order| (self.brokers.borrow()[broker].etcd)(order);
        match order {
            Effect::Write { connection, bytes } => {
                if let Some(socket) = self.sockets.borrow().get(&(broker, connection)) {
                    socket.append(bytes);
                    socket.flush();
                }
            }
            Effect::Close { connection } => {
                if let Some(socket) = self.sockets.borrow_mut().remove(&(broker, connection)) {
                    socket.close_after_flush();
                }
            }
            Effect::Etcd { token, request } => {
                ask(effects::Etcd::Request { operation: OperationId(token.0), request });
            }
            Effect::EtcdWatch { token, request } => {
                let operation = OperationId(token.0);
                self.brokers.borrow_mut()[broker].watch = Some(operation);
                ask(effects::Etcd::Watch { operation, request });
            }
            Effect::Stopped => {
                let (accepting, watch) = {
                    let broker = &mut self.brokers.borrow_mut()[broker];
                    (broker.accepting.take(), broker.watch.take())
                };
                accepting.iter().for_each(AbortHandle::abort);
                watch.into_iter().for_each(|operation| ask(effects::Etcd::Cancel { operation }));
            }
        }
    }
}

fn from_etcd(fact: inputs::Etcd) -> Fact {
    let token = |operation: OperationId| EtcdToken(operation.0);
    match fact {
        inputs::Etcd::Finished { operation, outcome } => Fact::EtcdFinished { token: token(operation), outcome },
        inputs::Etcd::WatchCreated { operation, revision } => {
            Fact::EtcdWatched { token: token(operation), fact: WatchFact::Created { revision } }
        }
        inputs::Etcd::WatchEvents { operation, revision, events } => {
            Fact::EtcdWatched { token: token(operation), fact: WatchFact::Events { revision, events } }
        }
        inputs::Etcd::WatchEnded { operation, end } => {
            Fact::EtcdWatched { token: token(operation), fact: WatchFact::Ended(end) }
        }
    }
}

/// Runs one broker model on each of these addresses with a real etcd, until nobody holds the other end of `controls` any
/// more. Writes the snapshot with these brokers and topics (name, partitions) first, and then calls `ready`.
///
/// # Errors
/// etcd cannot be reached, or an address is taken.
pub fn run_with_etcd(
    etcd: &EtcdSettings,
    addresses: &[SocketAddr],
    topics: &[(&str, i32)],
    mut controls: mpsc::UnboundedReceiver<(usize, Control)>,
    ready: impl FnOnce(),
) -> Result<(), ProcessError> {
    process::block_on(async {
        let (listeners, addresses) = listen(addresses.iter().copied()).await?;
        write_snapshot(etcd, snapshot(&addresses, topics)).await?;
        let etcd = etcd.clone();
        // The endpoints were good enough for the snapshot.
        let connect = move |report: Report| -> Box<dyn Fn(effects::Etcd)> {
            match EtcdClient::new(&etcd, report) {
                Ok(client) => {
                    let client = Rc::new(client);
                    Box::new(move |order| client.carry_out(order))
                }
                Err(error) => Box::new(move |_| tracing::error!(%error, "no etcd")),
            }
        };
        let servers = BrokerServers::start(listeners, &addresses, connect)?;
        ready();
        while let Some((broker, control)) = controls.recv().await {
            servers.control(broker, control).await?;
        }
        Ok(())
    })
}

async fn write_snapshot(etcd: &EtcdSettings, value: Bytes) -> Result<(), ProcessError> {
    let (written, is_written) = oneshot::channel();
    let written = RefCell::new(Some(written));
    let report = Report::new(move |fact| {
        if let Input::Etcd(inputs::Etcd::Finished { outcome, .. }) = fact
            && let Some(written) = written.take()
        {
            // Fails when nobody waits any more.
            let _ = written.send(outcome);
        }
    });
    let client = Rc::new(EtcdClient::new(etcd, report).map_err(|error| ProcessError(error.to_string()))?);
    let put = etcd::TxnOperation::Put { key: SNAPSHOT_KEY.into(), value, lease: 0 };
    let request = etcd::Request::Txn(etcd::TxnRequest { success: vec![put], ..etcd::TxnRequest::default() });
    client.carry_out(effects::Etcd::Request { operation: OperationId(0), request });
    match is_written.await {
        Ok(Outcome::Applied(_)) => Ok(()),
        Ok(Outcome::NotApplied(refusal)) => Err(ProcessError(format!("the snapshot was not written: {refusal:?}"))),
        Ok(Outcome::Unknown(text)) => Err(ProcessError(format!("the snapshot was perhaps not written: {text}"))),
        Err(_) => Err(ProcessError("the snapshot was not written".into())),
    }
}
