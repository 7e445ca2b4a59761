//! The loop: one machine on one thread, borrowed by whichever task has news for it.
//!
//! A task tells a fact, the machine answers with orders, and the same task carries them out at once. What the orders
//! cause comes back as further facts through the inbox, never by recursion.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use kafscale_proxy_core::{DriverMisuse, Effect, Effects, Input, Monotonic, Now, Proxy, effects};
use tokio::sync::Notify;

use crate::alarm::Alarm;
use crate::broker_connections::BrokerConnections;
use crate::client_listener::ClientListener;
use crate::compute;
use crate::http_server::HttpExchanges;
use crate::metrics::ShardStats;
use crate::report::Report;
use crate::socket::ReadBuffer;
use crate::temp_files::{DiskSpace, TempFiles};
use crate::unsent::Unsent;
use crate::work_time::WorkTime;
use crate::{clock, tasks};

/// Partners of a machine that differ between production and `dev`.
pub(crate) struct Partners {
    pub(crate) etcd: Box<dyn Fn(effects::Etcd)>,
    pub(crate) s3: Box<dyn Fn(effects::S3)>,
}

/// One shard.
pub(crate) struct Shard {
    machine: RefCell<Proxy>,
    inbox: RefCell<VecDeque<Input>>,
    /// Empty between calls: its memory is used again.
    effects: RefCell<Effects>,
    at_work: Cell<bool>,
    report: Report,
    partners: Partners,
    /// Kafka clients.
    pub(crate) clients: Rc<ClientListener>,
    brokers: Rc<BrokerConnections>,
    /// HTTP exchanges.
    pub(crate) http: Rc<HttpExchanges>,
    files: Rc<TempFiles>,
    workers: compute::Entrance,
    alarm: Alarm,
    work_time: RefCell<WorkTime>,
    unsent: Rc<Unsent>,
    flush_due: Notify,
    shutdown_requested: Cell<bool>,
    idle: Notify,
}

/// A [`Report`] that can be handed out before the shard stands.
pub(crate) struct Mailbox(Rc<RefCell<Weak<Shard>>>);

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self(Rc::new(RefCell::new(Weak::new())))
    }

    pub(crate) fn report(&self) -> Report {
        let shard = Rc::clone(&self.0);
        Report::new(move |fact| {
            // A fact that comes when the shard is being taken down has nobody to tell.
            let shard = shard.borrow().upgrade();
            if let Some(shard) = shard {
                shard.tell(fact);
            }
        })
    }
}

impl Shard {
    /// Puts the shard together. `space` and `workers` are shared with the other shards; `stop_accepting` is called when the machine wants no more connections.
    pub(crate) fn new(
        mailbox: &Mailbox,
        machine: Proxy,
        partners: Partners,
        space: Arc<DiskSpace>,
        workers: compute::Entrance,
        stop_accepting: impl Fn() + 'static,
    ) -> Rc<Self> {
        let report = mailbox.report();
        let buffer = Rc::new(ReadBuffer::default());
        let unsent = Rc::new(Unsent::default());
        let http = Rc::new(HttpExchanges::new(report.clone()));
        let stopped = Rc::clone(&http);
        let stop = move || {
            stopped.stop();
            stop_accepting();
        };
        let shard = Rc::new(Self {
            machine: RefCell::new(machine),
            inbox: RefCell::default(),
            effects: RefCell::default(),
            at_work: Cell::new(false),
            clients: Rc::new(ClientListener::new(report.clone(), Rc::clone(&buffer), Rc::clone(&unsent), stop)),
            brokers: Rc::new(BrokerConnections::new(report.clone(), buffer, Rc::clone(&unsent))),
            http,
            files: Rc::new(TempFiles::new(report.clone(), space)),
            workers,
            partners,
            report,
            alarm: Alarm::default(),
            work_time: RefCell::new(WorkTime::new(Instant::now())),
            unsent,
            flush_due: Notify::new(),
            shutdown_requested: Cell::new(false),
            idle: Notify::new(),
        });
        mailbox.0.replace(Rc::downgrade(&shard));
        shard
    }

    /// Tells the machine a fact and carries out what it orders.
    pub(crate) fn tell(&self, fact: Input) {
        self.inbox.borrow_mut().push_back(fact);
        if !self.at_work.get() {
            self.work(|_| {});
        }
    }

    /// Asks the machine to come to an end.
    pub(crate) fn request_shutdown(&self) {
        self.shutdown_requested.set(true);
        self.tell(Input::ShutdownRequested);
    }

    /// What was counted until now.
    pub(crate) fn stats(&self) -> ShardStats {
        let mut work_time = self.work_time.borrow_mut();
        ShardStats {
            http_connections: self.http.connections(),
            temp_files: self.files.open(),
            tasks: tasks::alive(),
            busy: work_time.busy(),
            longest_call: work_time.longest(Instant::now()),
            ..ShardStats::of(&self.machine.borrow(), clock::now().monotonic)
        }
    }

    /// Ends when the shutdown is done.
    pub(crate) async fn run_until_idle(self: &Rc<Self>) {
        let flushing = tasks::spawn_local(Rc::clone(self).flush());
        let ring = || {
            self.work(|effects| {
                self.call(effects, |machine, now, effects| {
                    machine.handle_timeout(now, effects);
                    Ok(())
                });
            });
        };
        tokio::select! {
            () = self.alarm.run(|| self.next_timeout(), ring) => {}
            () = self.idle.notified() => {}
        }
        flushing.abort();
        self.unsent.flush();
    }

    /// Sends what was ordered since the last time, for ever. As a task of its own it has its turn when those that were ready
    /// have had theirs: one system call per socket, whatever the number of facts and orders.
    async fn flush(self: Rc<Self>) {
        loop {
            self.flush_due.notified().await;
            self.work(|_| self.unsent.flush());
        }
    }

    fn next_timeout(&self) -> Option<Monotonic> {
        self.machine.borrow().poll_timeout().map(|timeout| timeout.at)
    }

    /// Does something, then tells the machine what has come of it.
    fn work(&self, first: impl FnOnce(&mut Effects)) {
        self.at_work.set(true);
        let began = Instant::now();
        let mut effects = self.effects.take();
        first(&mut effects);
        loop {
            let Some(fact) = self.inbox.borrow_mut().pop_front() else { break };
            self.call(&mut effects, |machine, now, effects| machine.handle_input(now, fact, effects));
        }
        self.effects.replace(effects);
        self.at_work.set(false);
        self.work_time.borrow_mut().worked(began, Instant::now());
        self.alarm.look_at(self.next_timeout());
        if !self.unsent.is_empty() {
            self.flush_due.notify_one();
        }
        if self.shutdown_requested.get() && self.machine.borrow().is_idle() {
            self.idle.notify_one();
        }
    }

    fn call(
        &self,
        effects: &mut Effects,
        call: impl FnOnce(&mut Proxy, Now, &mut Effects) -> Result<(), DriverMisuse>,
    ) {
        let began = Instant::now();
        if let Err(misuse) = call(&mut self.machine.borrow_mut(), clock::now(), effects) {
            // The machine did not change. Going on is safe, but the adapter that told this has to be repaired.
            tracing::error!(%misuse, "a fact was refused");
        }
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        self.work_time.borrow_mut().called(began, Instant::now());
    }

    fn carry_out(&self, effect: Effect) {
        match effect {
            Effect::Client(order) => self.clients.carry_out(order),
            Effect::Broker(order) => self.brokers.carry_out(order),
            Effect::Http(order) => self.http.carry_out(order),
            Effect::Etcd(order) => (self.partners.etcd)(order),
            Effect::S3(order) => (self.partners.s3)(order),
            Effect::TempFile(order) => self.files.carry_out(order),
            Effect::Compute(job) => self.workers.run(&self.report, job),
        }
    }
}
