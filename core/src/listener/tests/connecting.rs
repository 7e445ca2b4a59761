//! Connections to brokers: dialling, reuse, loss, and the end of the client.

use super::*;

#[test]
fn an_open_connection_is_used_again_and_a_closed_one_is_dialled_anew() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.serve_produce("a:1", 0);
    bench.send(&produce(2, &[0]));
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.dials("a:1"), 1);
    let written = bench.open_socket("a:1").written_total;
    bench.hang_up("a:1", written);
    bench.send(&produce(3, &[0]));
    bench.serve_produce("a:1", 0);
    assert_eq!([bench.code(), bench.code(), bench.code()], [0, 0, 0]);
    assert_eq!(bench.dials("a:1"), 2);
}

#[test]
fn clients_share_no_connection() {
    let mut bench = Bench::new();
    bench.accept(ClientId(8));
    bench.send(&produce(1, &[0]));
    bench.send_from(ClientId(8), &produce(1, &[0]));
    assert_eq!(bench.dials("a:1"), 2);
}

#[test]
fn an_owner_that_refuses_connections_is_replaced_in_the_same_attempt() {
    let mut bench = Bench::new();
    bench.down.insert("a:1".into());
    bench.send(&produce(1, &[0]));
    let taker = if bench.has_request("b:1") { "b:1" } else { "c:1" };
    bench.serve_produce(taker, 0);
    assert_eq!(bench.code(), 0);
}

#[test]
fn the_owner_is_tried_again_after_a_wait() {
    let mut bench = Bench::new();
    bench.down.extend(["a:1", "b:1", "c:1"].map(String::from));
    bench.send(&produce(1, &[0]));
    bench.down.clear();
    assert!(bench.sockets.iter().all(|socket| socket.state == SocketState::Over));
    bench.pass(Duration::from_millis(500));
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0);
}

#[test]
fn past_the_ttl_no_connection_is_handed_out() {
    let mut bench = Bench::with(|config| config.cluster.cache_ttl = Duration::from_secs(2));
    bench.deaf.insert("a:1".into());
    bench.lose_etcd();
    bench.send(&produce(1, &[0]));
    bench.pass(Duration::from_secs(3));
    let connection = bench.sockets[0].connection;
    bench.socket(connection).state = SocketState::Open;
    bench.broker(input::Broker::Connected { connection });
    bench.run();
    assert!(!bench.has_request("a:1"));
    assert_eq!(bench.produced(9), [(0, 7, -1)]);
}

#[test]
fn waits_end_with_the_client() {
    let mut bench = Bench::new();
    bench.down.extend(["a:1", "b:1", "c:1"].map(String::from));
    bench.send(&produce(1, &[0]));
    bench.leave();
    assert!(bench.listener.is_idle());
    let dials = bench.sockets.len();
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.sockets.len(), dials);
}

#[test]
fn what_was_received_is_sent_although_the_client_is_gone() {
    let mut bench = Bench::new();
    bench.deaf.insert("a:1".into());
    let request = frame(5, 9, &produce_of(0, &[0]));
    bench.send(&request);
    bench.leave();
    let connection = bench.sockets[0].connection;
    bench.socket(connection).state = SocketState::Open;
    bench.broker(input::Broker::Connected { connection });
    bench.run();
    assert_eq!(bench.taken("a:1"), request);
    assert!(!bench.listener.is_idle(), "the socket may still hold it");
    bench.pass(Duration::from_secs(1));
    assert!(bench.listener.is_idle());
}

#[test]
fn what_outlives_a_client_that_took_no_answers_is_answered() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.client(input::Client::Clogged { client: CLIENT });
    bench.run();
    assert!(bench.open_socket("a:1").paused);
    bench.leave();
    assert!(!bench.open_socket("a:1").paused);
    bench.own(0, 2);
    bench.serve_produce("a:1", 6);
    bench.serve_produce("c:1", 0);
    assert!(bench.listener.is_idle());
}

#[test]
fn connections_are_closed_with_the_client() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.serve_produce("a:1", 0);
    bench.leave();
    assert!(bench.sockets.iter().all(|socket| socket.state == SocketState::Over));
    assert!(bench.listener.is_idle());
    assert!(!bench.listener.owns(bench.sockets[0].connection));
}

#[test]
fn a_client_that_takes_no_answers_pauses_its_brokers_and_is_not_blamed_on_them() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.client(input::Client::Clogged { client: CLIENT });
    bench.run();
    assert!(bench.open_socket("a:1").paused);
    assert!(bench.peer(CLIENT).paused);
    bench.pass(Duration::from_secs(60));
    bench.client(input::Client::Drained { client: CLIENT });
    bench.run();
    assert!(!bench.open_socket("a:1").paused);
    assert!(!bench.peer(CLIENT).paused);
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0);
}

#[test]
fn a_client_is_read_again_when_every_broker_reads() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0, 1]));
    let [a, b] = ["a:1", "b:1"].map(|address| bench.open_socket(address).connection);
    bench.broker(input::Broker::Clogged { connection: a });
    bench.broker(input::Broker::Clogged { connection: b });
    bench.broker(input::Broker::Drained { connection: a });
    bench.run();
    assert!(bench.peer(CLIENT).paused);
    bench.hang_up("b:1", 0);
    assert!(!bench.peer(CLIENT).paused, "one that is gone does not count");
}

#[test]
fn past_the_ttl_of_the_leases_no_batch_is_handed_to_their_owner() {
    let mut bench = Bench::with(|config| config.cluster.cache_ttl = Duration::from_secs(12));
    bench.leases_are_unreadable = true;
    bench.pass(Duration::from_secs(10));
    bench.deaf.insert("a:1".into());
    bench.send(&produce(1, &[0]));
    bench.pass(Duration::from_secs(3));
    let connection = bench.sockets[0].connection;
    bench.socket(connection).state = SocketState::Open;
    bench.broker(input::Broker::Connected { connection });
    bench.run();
    assert!(!bench.has_request("a:1"), "the snapshot is fresh, the lease is not");
    assert_eq!(bench.produced(9), [(0, 7, -1)]);
}

#[test]
fn past_the_ttl_of_the_leases_no_batch_is_handed_to_anybody_because_nobody_owned_it() {
    let mut bench = Bench::with(|config| config.cluster.cache_ttl = Duration::from_secs(12));
    bench.leases_are_unreadable = true;
    bench.pass(Duration::from_secs(10));
    bench.deaf.extend(["a:1", "b:1", "c:1"].map(String::from));
    bench.send(&produce(1, &[2]));
    bench.pass(Duration::from_secs(3));
    let (connection, address) = (bench.sockets[0].connection, bench.sockets[0].address.clone());
    bench.socket(connection).state = SocketState::Open;
    bench.broker(input::Broker::Connected { connection });
    bench.run();
    assert!(!bench.has_request(&address), "somebody may own it since");
    assert_eq!(bench.produced(9), [(2, 7, -1)]);
}

#[test]
fn only_waiting_for_a_broker_uses_the_patience_for_it_up() {
    let mut bench = Bench::new();
    bench.deaf.insert("a:1".into());
    bench.send(&frame(1, 9, &ProduceRequest { timeout_ms: 60_000, ..produce_of(-1, &[0]) }));
    bench.pass(Duration::from_secs(4));
    let connection = bench.sockets[0].connection;
    bench.socket(connection).state = SocketState::Open;
    bench.broker(input::Broker::Connected { connection });
    bench.run();
    // The broker takes its time, then it is another one's turn.
    bench.pass(Duration::from_secs(30));
    bench.own(0, 2);
    bench.serve_produce("a:1", 6);
    bench.serve_produce("c:1", 0);
    assert_eq!(bench.code(), 0);
}

#[test]
fn answers_that_waited_for_the_client_are_not_late() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.send(&produce(2, &[0]));
    bench.client(input::Client::Clogged { client: CLIENT });
    bench.run();
    bench.pass(Duration::from_secs(60));
    bench.client(input::Client::Drained { client: CLIENT });
    bench.run();
    bench.serve_produce("a:1", 0);
    bench.pass(Duration::from_millis(10));
    bench.serve_produce("a:1", 0);
    assert_eq!([bench.code(), bench.code()], [0, 0]);
}
