//! Kafka client sockets of one shard.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use kafscale_proxy_core::{Input, effects, inputs};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use crate::report::Report;
use crate::socket::{ReadBuffer, Socket, SocketFact};

/// The client sockets of a shard.
pub(crate) struct ClientListener {
    report: Report,
    buffer: Rc<ReadBuffer>,
    sockets: RefCell<HashMap<inputs::ClientId, Rc<Socket>>>,
    touched: RefCell<Vec<Rc<Socket>>>,
    last_id: Cell<u64>,
    stop_accepting: Box<dyn Fn()>,
}

impl ClientListener {
    /// `stop_accepting` is called when the machine wants no more connections.
    pub(crate) fn new(report: Report, buffer: Rc<ReadBuffer>, stop_accepting: impl Fn() + 'static) -> Self {
        Self {
            report,
            buffer,
            sockets: RefCell::default(),
            touched: RefCell::default(),
            last_id: Cell::new(0),
            stop_accepting: Box::new(stop_accepting),
        }
    }

    /// Serves an accepted connection on a task of its own.
    pub(crate) fn serve(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr) {
        self.last_id.set(self.last_id.get() + 1);
        let client = inputs::ClientId(self.last_id.get());
        let report = self.report.clone();
        let socket = Rc::new(Socket::new(stream, move |fact| {
            report.tell(Input::Client(match fact {
                SocketFact::Received(bytes) => inputs::Client::Received { client, bytes },
                SocketFact::Clogged => inputs::Client::Clogged { client },
                SocketFact::Drained => inputs::Client::Drained { client },
            }));
        }));
        self.sockets.borrow_mut().insert(client, Rc::clone(&socket));
        self.report.tell(Input::Client(inputs::Client::Accepted { client, peer }));
        let listener = Rc::clone(self);
        spawn_local(async move {
            socket.run(&listener.buffer).await;
            listener.sockets.borrow_mut().remove(&client);
            listener.report.tell(Input::Client(inputs::Client::Closed { client }));
        });
    }

    /// Carries out one order. Orders for a connection that has just ended mean nothing.
    pub(crate) fn carry_out(&self, order: effects::Client) {
        match order {
            effects::Client::Write { client, bytes } => self.with(client, |socket| {
                if socket.append(bytes) {
                    self.touched.borrow_mut().push(Rc::clone(socket));
                }
            }),
            effects::Client::Pause { client } => self.with(client, |socket| socket.pause()),
            effects::Client::Resume { client } => self.with(client, |socket| socket.resume()),
            effects::Client::Close { client } => self.with(client, |socket| socket.close_after_flush()),
            effects::Client::StopAccepting => (self.stop_accepting)(),
        }
    }

    fn with(&self, client: inputs::ClientId, order: impl FnOnce(&Rc<Socket>)) {
        if let Some(socket) = self.sockets.borrow().get(&client) {
            order(socket);
        }
    }

    /// Sends what the orders of one call have appended: one system call per socket.
    pub(crate) fn flush(&self) {
        for socket in self.touched.take() {
            socket.flush();
        }
    }
}
