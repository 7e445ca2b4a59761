//! Sockets from one shard to brokers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kafscale_proxy_core::{Input, effects, inputs};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use crate::report::Report;
use crate::socket::{ReadBuffer, Socket, SocketFact};

enum Connection {
    /// Dropping the sender gives the attempt up.
    Connecting {
        _give_up: oneshot::Sender<()>,
    },
    Connected(Rc<Socket>),
}

/// The broker sockets of a shard.
pub(crate) struct BrokerConnections {
    report: Report,
    buffer: Rc<ReadBuffer>,
    connections: RefCell<HashMap<inputs::BrokerConnectionId, Connection>>,
    touched: RefCell<Vec<Rc<Socket>>>,
}

impl BrokerConnections {
    pub(crate) fn new(report: Report, buffer: Rc<ReadBuffer>) -> Self {
        Self { report, buffer, connections: RefCell::default(), touched: RefCell::default() }
    }

    /// Carries out one order. Orders for a connection that has just ended mean nothing.
    pub(crate) fn carry_out(self: &Rc<Self>, order: effects::Broker) {
        match order {
            effects::Broker::Connect { connection, address } => self.connect(connection, address),
            effects::Broker::Write { connection, bytes } => self.with(connection, |socket| {
                if socket.append(bytes) {
                    self.touched.borrow_mut().push(Rc::clone(socket));
                }
            }),
            effects::Broker::Pause { connection } => self.with(connection, |socket| socket.pause()),
            effects::Broker::Resume { connection } => self.with(connection, |socket| socket.resume()),
            effects::Broker::Close { connection } => self.close(connection),
        }
    }

    fn with(&self, connection: inputs::BrokerConnectionId, order: impl FnOnce(&Rc<Socket>)) {
        if let Some(Connection::Connected(socket)) = self.connections.borrow().get(&connection) {
            order(socket);
        }
    }

    fn connect(self: &Rc<Self>, connection: inputs::BrokerConnectionId, address: String) {
        let (give_up, given_up) = oneshot::channel();
        self.connections.borrow_mut().insert(connection, Connection::Connecting { _give_up: give_up });
        let this = Rc::clone(self);
        spawn_local(async move {
            // Names are resolved anew for every connection: a broker that moved is found at its new address.
            let stream = tokio::select! {
                biased;
                _ = given_up => Err("given up".to_owned()),
                stream = TcpStream::connect(&address) => stream.map_err(|error| format!("{address}: {error}")),
            };
            match stream {
                Ok(stream) => this.serve(connection, stream).await,
                Err(error) => {
                    this.connections.borrow_mut().remove(&connection);
                    let error = inputs::ConnectError(error);
                    this.report.tell(Input::Broker(inputs::Broker::ConnectFailed { connection, error }));
                }
            }
        });
    }

    async fn serve(&self, connection: inputs::BrokerConnectionId, stream: TcpStream) {
        let report = self.report.clone();
        let socket = Rc::new(Socket::new(stream, move |fact| {
            report.tell(Input::Broker(match fact {
                SocketFact::Received(bytes) => inputs::Broker::Received { connection, bytes },
                SocketFact::Clogged => inputs::Broker::Clogged { connection },
                SocketFact::Drained => inputs::Broker::Drained { connection },
            }));
        }));
        self.connections.borrow_mut().insert(connection, Connection::Connected(Rc::clone(&socket)));
        self.report.tell(Input::Broker(inputs::Broker::Connected { connection }));
        socket.run(&self.buffer).await;
        self.connections.borrow_mut().remove(&connection);
        let accepted_bytes = socket.accepted_bytes();
        self.report.tell(Input::Broker(inputs::Broker::Closed { connection, accepted_bytes }));
    }

    fn close(&self, connection: inputs::BrokerConnectionId) {
        let mut connections = self.connections.borrow_mut();
        match connections.get(&connection) {
            Some(Connection::Connected(socket)) => socket.close_now(),
            Some(Connection::Connecting { .. }) => {
                connections.remove(&connection);
            }
            None => {}
        }
    }

    /// Sends what the orders of one call have appended: one system call per socket.
    pub(crate) fn flush(&self) {
        for socket in self.touched.take() {
            socket.flush();
        }
    }
}
