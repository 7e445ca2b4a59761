//! Sockets from one shard to brokers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kafscale_proxy_core::{Input, effects, inputs};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::names::Names;
use crate::report::Report;
use crate::socket::{ReadBuffer, Socket, SocketFact};
use crate::tasks::spawn_local;
use crate::unsent::Unsent;

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
    unsent: Rc<Unsent>,
    names: Rc<Names>,
}

impl BrokerConnections {
    pub(crate) fn new(report: Report, buffer: Rc<ReadBuffer>, unsent: Rc<Unsent>) -> Self {
        let names = Rc::new(Names::of_system());
        Self { report, buffer, connections: RefCell::default(), unsent, names }
    }

    /// Carries out one order. Orders for a connection that has just ended mean nothing.
    pub(crate) fn carry_out(self: &Rc<Self>, order: effects::Broker) {
        match order {
            effects::Broker::Connect { connection, address } => self.connect(connection, address),
            effects::Broker::Write { connection, bytes } => {
                self.with(connection, |socket| self.unsent.append(socket, bytes));
            }
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
            let dial = async {
                let addresses = this.names.resolve(&address).await?;
                TcpStream::connect(&addresses[..]).await.map_err(|error| error.to_string())
            };
            let stream = tokio::select! {
                biased;
                _ = given_up => Err("given up".to_owned()),
                stream = dial => stream.map_err(|error| format!("{address}: {error}")),
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
                // Requests have deadlines of their own.
                SocketFact::Blocked | SocketFact::Unblocked => return,
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
}

#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes fails the test")]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use effects::Broker as Order;
    use inputs::Broker as Fact;
    use inputs::BrokerConnectionId as Id;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;
    use tokio::task::LocalSet;

    use super::*;

    struct Bench {
        brokers: Rc<BrokerConnections>,
        facts: mpsc::UnboundedReceiver<Fact>,
    }

    impl Bench {
        fn new() -> Self {
            let (sender, facts) = mpsc::unbounded_channel();
            let report = Report::new(move |fact| {
                if let Input::Broker(fact) = fact {
                    // The test may have ended before the connection.
                    let _ = sender.send(fact);
                }
            });
            Self { brokers: Rc::new(BrokerConnections::new(report, Rc::default(), Rc::default())), facts }
        }

        async fn fact(&mut self) -> Fact {
            tokio::time::timeout(Duration::from_secs(5), self.facts.recv()).await.expect("a fact in time").unwrap()
        }

        /// A connection and the broker's end of it.
        async fn connect(&mut self, id: u64) -> (TcpStream, Id) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            self.brokers.carry_out(Order::Connect { connection: Id(id), address });
            let (stream, _) = listener.accept().await.unwrap();
            assert!(matches!(self.fact().await, Fact::Connected { connection } if connection == Id(id)));
            (stream, Id(id))
        }

        fn write(&self, connection: Id, bytes: impl Into<Bytes>) {
            self.brokers.carry_out(Order::Write { connection, bytes: bytes.into() });
            self.brokers.unsent.flush();
        }

        async fn closed(&mut self, id: Id) -> u64 {
            loop {
                match self.fact().await {
                    Fact::Closed { connection, accepted_bytes } => {
                        assert_eq!(connection, id);
                        return accepted_bytes;
                    }
                    Fact::Clogged { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    /// What the end says counts: bytes that left after it would be sent again, or their blob deleted.
    #[test]
    fn nothing_leaves_after_the_end_is_told() {
        run(async {
            let mut bench = Bench::new();
            let (mut broker, id) = bench.connect(1).await;
            bench.brokers.carry_out(Order::Write { connection: id, bytes: "request".into() });
            // It reads on.
            broker.shutdown().await.unwrap();
            assert_eq!(bench.closed(id).await, 0);
            assert!(!bench.brokers.unsent.is_empty());
            bench.brokers.unsent.flush();
            let mut read = Vec::new();
            broker.read_to_end(&mut read).await.unwrap();
            assert_eq!(read, b"");
        });
    }

    #[test]
    fn the_end_says_how_many_bytes_the_socket_had_accepted() {
        run(async {
            let mut bench = Bench::new();
            let (mut broker, id) = bench.connect(1).await;
            bench.write(id, "request");
            let mut request = [0; 7];
            broker.read_exact(&mut request).await.unwrap();
            broker.write_all(b"answer").await.unwrap();
            assert!(matches!(bench.fact().await, Fact::Received { bytes, .. } if bytes == "answer"));
            drop(broker);
            assert_eq!(bench.closed(id).await, 7);

            // A broker that does not read: what waits in the queue was not accepted.
            let (broker, id) = bench.connect(2).await;
            const TOTAL: u64 = 64 * 1024 * 1024;
            bench.write(id, vec![0; TOTAL as usize]);
            bench.brokers.carry_out(Order::Close { connection: id });
            let accepted = bench.closed(id).await;
            assert!(accepted > 0 && accepted < TOTAL, "{accepted}");
            drop(broker);
            bench.brokers.carry_out(Order::Close { connection: id });
            assert!(bench.facts.try_recv().is_err());
        });
    }

    #[test]
    fn a_connection_that_cannot_be_had_fails_once() {
        run(async {
            let mut bench = Bench::new();
            let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
            for (id, address) in [(1, closed.as_str()), (2, "no port"), (3, "host.invalid:9092")] {
                bench.brokers.carry_out(Order::Connect { connection: Id(id), address: address.to_owned() });
                let fact = bench.fact().await;
                assert!(matches!(fact, Fact::ConnectFailed { connection, .. } if connection == Id(id)), "{address}");
            }
            // Given up while it is being made: 192.0.2.0/24 leads nowhere.
            bench.brokers.carry_out(Order::Connect { connection: Id(4), address: "192.0.2.1:9092".to_owned() });
            bench.brokers.carry_out(Order::Close { connection: Id(4) });
            assert!(matches!(bench.fact().await, Fact::ConnectFailed { connection: Id(4), .. }));
            assert!(bench.facts.try_recv().is_err());
            assert!(bench.brokers.connections.borrow().is_empty());
        });
    }
}
