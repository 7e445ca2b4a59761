//! Kafka client sockets of one shard.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use kafscale_proxy_core::{Input, effects, inputs};
use tokio::net::TcpStream;

use crate::report::Report;
use crate::socket::{ReadBuffer, Socket, SocketFact};
use crate::tasks::spawn_local;
use crate::unsent::Unsent;

/// The client sockets of a shard.
pub(crate) struct ClientListener {
    report: Report,
    buffer: Rc<ReadBuffer>,
    sockets: RefCell<HashMap<inputs::ClientId, Rc<Socket>>>,
    unsent: Rc<Unsent>,
    last_id: Cell<u64>,
    stop_accepting: Box<dyn Fn()>,
}

impl ClientListener {
    /// `stop_accepting` is called when the machine wants no more connections.
    pub(crate) fn new(
        report: Report,
        buffer: Rc<ReadBuffer>,
        unsent: Rc<Unsent>,
        stop_accepting: impl Fn() + 'static,
    ) -> Self {
        Self {
            report,
            buffer,
            sockets: RefCell::default(),
            unsent,
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
                SocketFact::Blocked => inputs::Client::Blocked { client },
                SocketFact::Unblocked => inputs::Client::Unblocked { client },
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
            effects::Client::Write { client, bytes } => self.with(client, |socket| self.unsent.append(socket, bytes)),
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
}

#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes fails the test")]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use effects::Client as Order;
    use inputs::Client as Fact;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;
    use tokio::task::LocalSet;

    use super::*;

    struct Bench {
        listener: Rc<ClientListener>,
        facts: mpsc::UnboundedReceiver<Fact>,
    }

    impl Bench {
        fn new() -> Self {
            let (sender, facts) = mpsc::unbounded_channel();
            let report = Report::new(move |fact| {
                if let Input::Client(fact) = fact {
                    // The test may have ended before the connection.
                    let _ = sender.send(fact);
                }
            });
            Self { listener: Rc::new(ClientListener::new(report, Rc::default(), Rc::default(), || {})), facts }
        }

        /// A client and its connection at the listener.
        async fn connect(&mut self) -> (TcpStream, inputs::ClientId) {
            let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = TcpStream::connect(socket.local_addr().unwrap()).await.unwrap();
            let (stream, peer) = socket.accept().await.unwrap();
            self.listener.serve(stream, peer);
            match self.fact().await {
                Fact::Accepted { client: id, .. } => (client, id),
                other => panic!("{other:?}"),
            }
        }

        async fn fact(&mut self) -> Fact {
            tokio::time::timeout(Duration::from_secs(5), self.facts.recv()).await.expect("a fact in time").unwrap()
        }

        fn write(&self, client: inputs::ClientId, bytes: impl Into<Bytes>) {
            self.listener.carry_out(Order::Write { client, bytes: bytes.into() });
        }

        async fn received(&mut self) -> Vec<u8> {
            match self.fact().await {
                Fact::Received { bytes, .. } => bytes.to_vec(),
                other => panic!("{other:?}"),
            }
        }

        async fn nothing(&mut self) {
            let fact = tokio::time::timeout(Duration::from_millis(100), self.facts.recv()).await;
            assert!(fact.is_err(), "{fact:?}");
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn bytes_go_both_ways_in_order() {
        run(async {
            let mut bench = Bench::new();
            let (mut client, id) = bench.connect().await;
            client.write_all(b"question").await.unwrap();
            assert_eq!(bench.received().await, b"question");
            for piece in ["an", "", "swer", "s"] {
                bench.write(id, piece);
            }
            bench.listener.unsent.flush();
            let mut answer = [0; 7];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answers");
            // More buffers than one system call takes, and more bytes than one read gives.
            for index in 0..1000_u16 {
                bench.write(id, vec![index as u8; 100]);
            }
            bench.listener.unsent.flush();
            let mut answer = vec![0; 100_000];
            client.read_exact(&mut answer).await.unwrap();
            assert!(answer.iter().enumerate().all(|(at, byte)| *byte == (at / 100) as u8));
            client.write_all(&answer).await.unwrap();
            let mut received = Vec::new();
            while received.len() < answer.len() {
                received.extend(bench.received().await);
            }
            assert_eq!(received, answer);
        });
    }

    #[test]
    fn a_paused_client_is_not_read() {
        run(async {
            let mut bench = Bench::new();
            let (mut client, id) = bench.connect().await;
            bench.listener.carry_out(Order::Pause { client: id });
            client.write_all(b"later").await.unwrap();
            bench.nothing().await;
            bench.listener.carry_out(Order::Resume { client: id });
            assert_eq!(bench.received().await, b"later");
        });
    }

    #[test]
    fn a_client_that_takes_nothing_is_clogged_until_it_does() {
        run(async {
            let mut bench = Bench::new();
            let (mut client, id) = bench.connect().await;
            const TOTAL: usize = 64 * 1024 * 1024;
            for _ in 0..64 {
                bench.write(id, vec![1; TOTAL / 64]);
                bench.listener.unsent.flush();
            }
            assert!(matches!(bench.fact().await, Fact::Blocked { client } if client == id));
            assert!(matches!(bench.fact().await, Fact::Clogged { client } if client == id));
            bench.nothing().await;
            let reading = spawn_local(async move {
                let mut all = vec![0; TOTAL];
                client.read_exact(&mut all).await.unwrap();
                client
            });
            let mut drained = false;
            loop {
                match bench.fact().await {
                    // A slow machine: it has taken some.
                    Fact::Blocked { .. } => {}
                    Fact::Drained { client } => {
                        assert_eq!(client, id);
                        drained = true;
                    }
                    Fact::Unblocked { client } => break assert_eq!(client, id),
                    other => panic!("{other:?}"),
                }
            }
            assert!(drained);
            drop(reading.await.unwrap());
            assert!(matches!(bench.fact().await, Fact::Closed { client } if client == id));
        });
    }

    #[test]
    fn a_client_that_takes_little_is_told_of_once_a_second() {
        run(async {
            let mut bench = Bench::new();
            let (mut client, id) = bench.connect().await;
            bench.write(id, vec![1; 64 * 1024 * 1024]);
            bench.listener.unsent.flush();
            assert!(matches!(bench.fact().await, Fact::Blocked { .. }));
            assert!(matches!(bench.fact().await, Fact::Clogged { .. }));
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            bench.nothing().await;
            let mut some = vec![0; 8 * 1024 * 1024];
            client.read_exact(&mut some).await.unwrap();
            assert!(matches!(bench.fact().await, Fact::Blocked { client } if client == id));
            bench.nothing().await;
        });
    }

    /// The machine answers at once what it held back, and the answer is no sign that the client takes nothing.
    #[test]
    fn what_is_ordered_at_a_drain_does_not_hide_that_it_takes_everything() {
        run(async {
            let (sender, facts) = mpsc::unbounded_channel();
            let machine: Rc<RefCell<Option<Rc<ClientListener>>>> = Rc::default();
            let answering = Rc::clone(&machine);
            let report = Report::new(move |fact| {
                let Input::Client(fact) = fact else { return };
                if let Fact::Drained { client } = fact {
                    let order = Order::Write { client, bytes: Bytes::from_static(b"more") };
                    answering.borrow().as_ref().unwrap().carry_out(order);
                }
                let _ = sender.send(fact);
            });
            let listener = Rc::new(ClientListener::new(report, Rc::default(), Rc::default(), || {}));
            machine.replace(Some(Rc::clone(&listener)));
            let mut bench = Bench { listener, facts };
            let (mut client, id) = bench.connect().await;
            const TOTAL: usize = 64 * 1024 * 1024;
            bench.write(id, vec![1; TOTAL]);
            bench.listener.unsent.flush();
            assert!(matches!(bench.fact().await, Fact::Blocked { .. }));
            assert!(matches!(bench.fact().await, Fact::Clogged { .. }));
            let reading = spawn_local(async move {
                let mut all = vec![0; TOTAL + 4];
                client.read_exact(&mut all).await.unwrap();
                all
            });
            loop {
                match bench.fact().await {
                    Fact::Blocked { .. } => {}
                    Fact::Drained { .. } => bench.listener.unsent.flush(),
                    Fact::Unblocked { .. } => break,
                    other => panic!("{other:?}"),
                }
            }
            bench.listener.unsent.flush();
            assert_eq!(reading.await.unwrap()[TOTAL..], *b"more");
            machine.replace(None);
        });
    }

    #[test]
    fn a_close_lets_the_last_answer_through_and_is_told_once() {
        run(async {
            let mut bench = Bench::new();
            let (mut client, id) = bench.connect().await;
            // Bytes that nobody reads any more must not reset the connection under the answer.
            bench.listener.carry_out(Order::Pause { client: id });
            client.write_all(&[0; 50_000]).await.unwrap();
            bench.write(id, vec![7; 3_000_000]);
            bench.listener.carry_out(Order::Close { client: id });
            bench.write(id, "too late");
            bench.listener.unsent.flush();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer.len(), 3_000_000);
            drop(client);
            loop {
                match bench.fact().await {
                    Fact::Clogged { .. } | Fact::Drained { .. } | Fact::Blocked { .. } | Fact::Unblocked { .. } => {}
                    Fact::Closed { client } => break assert_eq!(client, id),
                    other => panic!("{other:?}"),
                }
            }
            bench.listener.carry_out(Order::Close { client: id });
            bench.nothing().await;
        });
    }

    #[test]
    fn whoever_leaves_is_told_once() {
        run(async {
            let mut bench = Bench::new();
            for reset in [false, true] {
                let (client, id) = bench.connect().await;
                if reset {
                    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
                }
                drop(client);
                assert!(matches!(bench.fact().await, Fact::Closed { client } if client == id));
            }
            bench.nothing().await;
            assert!(bench.listener.sockets.borrow().is_empty());
        });
    }
}
