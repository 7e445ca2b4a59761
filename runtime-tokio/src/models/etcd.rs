//! The model of etcd for peers in the same thread.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use kafscale_proxy_core::model::Link;
use kafscale_proxy_core::model::etcd::{EtcdModel, WatchFact, WatchFacts, WatchToken};
use kafscale_proxy_core::{Input, OperationId, effects, inputs};

use crate::alarm::Alarm;
use crate::clock;
use crate::report::Report;
use crate::tasks::spawn_local;

/// One etcd. Peers connect to it and give orders in the machine's own vocabulary.
#[derive(Default)]
pub(crate) struct EtcdServer {
    model: RefCell<EtcdModel>,
    watches: RefCell<HashMap<WatchToken, Watch>>,
    outbox: RefCell<VecDeque<(Report, Input)>>,
    delivering: Cell<bool>,
    last_number: Cell<u64>,
    alarm: Alarm,
}

struct Watch {
    peer: u64,
    operation: OperationId,
    report: Report,
}

impl EtcdServer {
    /// An empty etcd; its leases end in time from now on.
    pub(crate) fn start() -> Rc<Self> {
        let server = Rc::new(Self::default());
        let keeper = Rc::clone(&server);
        spawn_local(async move {
            let next = || keeper.model.borrow().poll_timeout();
            keeper
                .alarm
                .run(next, || keeper.with_model(|model, facts| model.handle_timeout(clock::now().monotonic, facts)))
                .await;
        });
        server
    }

    /// The partner of one more peer, which learns through `report` what becomes of its orders.
    pub(crate) fn connect(self: &Rc<Self>, report: Report) -> Box<dyn Fn(effects::Etcd)> {
        let peer = self.next_number();
        let this = Rc::clone(self);
        Box::new(move |order| this.carry_out(peer, &report, order))
    }

    /// Writes a key, as an operator does.
    pub(crate) fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.with_model(|model, facts| model.put(key, value, facts));
    }

    fn carry_out(&self, peer: u64, report: &Report, order: effects::Etcd) {
        match order {
            effects::Etcd::Request { operation, request } => self.with_model(|model, facts| {
                let reply = model.request(clock::now().monotonic, Link::default(), &request, facts);
                let finished = Input::Etcd(inputs::Etcd::Finished { operation, outcome: reply.outcome });
                self.outbox.borrow_mut().push_back((report.clone(), finished));
            }),
            effects::Etcd::Watch { operation, request } => {
                let token = WatchToken(self.next_number());
                let watch = Watch { peer, operation, report: report.clone() };
                self.watches.borrow_mut().insert(token, watch);
                self.with_model(|model, facts| model.watch(Link::default(), token, &request, facts));
            }
            effects::Etcd::Cancel { operation } => {
                let watches = self.watches.borrow();
                let token = watches
                    .iter()
                    .find(|(_, watch)| watch.peer == peer && watch.operation == operation)
                    .map(|(token, _)| *token);
                drop(watches);
                if let Some(token) = token {
                    self.with_model(|model, facts| model.cancel_watch(token, facts));
                }
            }
        }
    }

    fn with_model(&self, call: impl FnOnce(&mut EtcdModel, &mut WatchFacts)) {
        let mut facts = WatchFacts::new();
        call(&mut self.model.borrow_mut(), &mut facts);
        for (token, fact) in facts {
            self.watch_fact(token, fact);
        }
        self.alarm.look_at(self.model.borrow().poll_timeout());
        self.deliver();
    }

    fn watch_fact(&self, token: WatchToken, fact: WatchFact) {
        let mut watches = self.watches.borrow_mut();
        let Some(Watch { operation, report, .. }) = watches.get(&token) else { return };
        let (operation, report) = (*operation, report.clone());
        let fact = match fact {
            WatchFact::Created { revision } => inputs::Etcd::WatchCreated { operation, revision },
            WatchFact::Events { revision, events } => inputs::Etcd::WatchEvents { operation, revision, events },
            WatchFact::Ended(end) => {
                watches.remove(&token);
                inputs::Etcd::WatchEnded { operation, end }
            }
        };
        self.outbox.borrow_mut().push_back((report, Input::Etcd(fact)));
    }

    /// Whoever is told may give further orders at once; what they cause is told after what was there before.
    fn deliver(&self) {
        if self.delivering.replace(true) {
            return;
        }
        loop {
            let next = self.outbox.borrow_mut().pop_front();
            let Some((report, fact)) = next else { break };
            report.tell(fact);
        }
        self.delivering.set(false);
    }

    fn next_number(&self) -> u64 {
        self.last_number.set(self.last_number.get() + 1);
        self.last_number.get()
    }
}
