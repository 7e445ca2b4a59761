//! Reading: budgets, frames, and what is no Kafka.

use super::*;
use crate::kafka::Record;

#[test]
fn at_most_so_many_requests_are_in_flight() {
    let mut bench = Bench::with(|config| config.listener.inflight_requests_per_client = 2);
    let mut sent = BytesMut::new();
    (1..=4).for_each(|number| sent.put_slice(&produce(number, &[0])));
    bench.send(&sent);
    assert!(bench.peer(CLIENT).paused);
    assert_eq!(bench.listener.stats().open_requests, 2);
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.listener.stats().open_requests, 2, "the next is taken from what was read before");
    (0..3).for_each(|_| bench.serve_produce("a:1", 0));
    assert!(!bench.peer(CLIENT).paused);
    assert_eq!(bench.listener.stats().open_requests, 0);
}

#[test]
fn at_most_so_many_bytes_are_in_flight() {
    let mut bench = Bench::with(|config| config.listener.inflight_bytes_per_client = 1);
    bench.send(&produce(1, &[0]));
    assert!(bench.peer(CLIENT).paused);
    bench.serve_produce("a:1", 0);
    assert!(!bench.peer(CLIENT).paused);
}

#[test]
fn answers_that_wait_for_earlier_ones_count() {
    // Each counts for its one partition.
    let limit = 2 * 256 + 1;
    let mut bench = Bench::with(|config| config.listener.inflight_bytes_per_client = limit);
    bench.send(&produce(1, &[0]));
    bench.send(&produce(2, &[1]));
    assert!(!bench.peer(CLIENT).paused);
    bench.serve_produce("b:1", 0);
    assert!(bench.peer(CLIENT).paused);
    bench.serve_produce("a:1", 0);
    assert!(!bench.peer(CLIENT).paused);
}

/// Whoever has nothing under way may always send one: so nobody waits for others.
#[test]
fn beyond_the_memory_for_small_requests_each_client_sends_one_at_a_time() {
    // Each counts for its one partition.
    let mut bench = Bench::with(|config| config.listener.small_request_memory_bytes = 3 * 256);
    let taken = |bench: &Bench| bench.listener.stats().small_request_bytes / 256;
    let three = |partition: i32| {
        let mut three = BytesMut::new();
        (1..=3).for_each(|number| three.put_slice(&produce(number, &[partition])));
        three
    };
    bench.send(&three(0));
    assert_eq!((taken(&bench), bench.peer(CLIENT).paused), (3, true));
    let other = ClientId(8);
    bench.accept(other);
    assert!(!bench.peer(other).paused);
    bench.send_from(other, &three(1));
    assert_eq!((taken(&bench), bench.peer(other).paused), (4, true), "the second waits");
    assert_eq!(bench.listener.stats().small_requests.waits, 2);
    bench.serve_produce("b:1", 0);
    assert_eq!((taken(&bench), bench.peer(other).paused), (4, true), "one at a time");
    bench.serve_produce("a:1", 0);
    bench.serve_produce("a:1", 0);
    assert!(!bench.peer(CLIENT).paused, "two are under way");
    bench.serve_produce("b:1", 0);
    bench.serve_produce("b:1", 0);
    bench.serve_produce("a:1", 0);
    assert!(!bench.peer(CLIENT).paused && !bench.peer(other).paused);
    assert_eq!(taken(&bench), 0);
    // A large one is in another budget, but for what its items count beyond its bytes.
    bench.send(&large(1));
    assert_eq!(bench.listener.stats().small_request_bytes, 0);
    bench.send_from(other, &three(1));
    bench.client(input::Client::Closed { client: other });
    bench.leave();
    bench.pass(Duration::from_secs(200));
    assert_eq!(bench.listener.stats().small_request_bytes, 0, "those of clients that have gone are given back");
}

/// What it holds is in the other memory, and others wait for it there.
#[test]
fn a_large_request_is_not_held_back_for_want_of_memory_for_small_ones() {
    let mut bench = Bench::with(|config| config.listener.small_request_memory_bytes = 1);
    let mut sent = BytesMut::from(&produce(1, &[0])[..]);
    sent.put_slice(&large(2)[..50_000]);
    bench.send(&sent);
    assert!(!bench.peer(CLIENT).paused);
    bench.send(&large(2)[50_000..]);
    assert_eq!(bench.listener.stats().open_requests, 2);
    assert!(bench.peer(CLIENT).paused, "a small one behind it would wait");
    assert_eq!(bench.listener.stats().small_request_bytes, 256);
}

/// A Produce with a frame above 64 KiB.
fn large(correlation_id: i32) -> Bytes {
    let mut request = produce_of(-1, &[0]);
    let value = Some(Bytes::from(vec![b'x'; 100_000]));
    let record = Record { attributes: 0, timestamp_delta: 0, offset_delta: 0, key: None, value, headers: Vec::new() };
    request.topic_data[0].partition_data[0].records = Some(build_batch(1, [record]));
    frame(correlation_id, 9, &request)
}

#[test]
fn large_frames_wait_for_room_first_come_first_served() {
    let mut bench = Bench::with(|config| config.listener.frame_memory_bytes = 150_000);
    bench.accept(ClientId(8));
    bench.send(&large(1)[..50_000]);
    assert_eq!(bench.listener.stats().frame_bytes, large(1).len());
    bench.send_from(ClientId(8), &large(2)[..10]);
    assert!(bench.peer(ClientId(8)).paused);
    bench.send_from(ClientId(8), &large(2)[10..]);
    bench.send(&large(1)[50_000..]);
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0);
    assert!(!bench.peer(ClientId(8)).paused);
    assert_eq!(bench.listener.stats().open_requests, 1);
    bench.client(input::Client::Closed { client: ClientId(8) });
    bench.leave();
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.listener.stats().frame_bytes, 0);
}

/// The beginning of a frame of 100 MiB.
const HUGE: &[u8] = b"\x06\x40\0\0\0\0\0\x09\0\0";

#[test]
fn what_is_only_announced_holds_up_nobody() {
    let mut bench = Bench::with(|config| config.listener.frame_memory_bytes = 1 << 20);
    for client in (8..28).map(ClientId) {
        bench.accept(client);
        bench.send_from(client, HUGE);
    }
    bench.send(&large(1));
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0);
    for _ in 0..20 {
        bench.pass(Duration::from_secs(25));
        for client in (8..28).map(ClientId) {
            let peer = bench.peer(client);
            if !peer.closed && !peer.paused {
                bench.send_from(client, b"x");
            }
        }
        bench.send(&large(2));
        bench.serve_produce("a:1", 0);
        assert_eq!(bench.code(), 0);
    }
    assert!((8..28).all(|client| bench.peers[&ClientId(client)].closed), "none of them has come whole");
    assert_eq!(bench.listener.stats().frame_bytes, 0);
}

#[test]
fn waiting_for_room_ends_in_a_closed_connection() {
    let mut bench = Bench::with(|config| {
        config.listener.frame_memory_bytes = 150_000;
        config.listener.read_timeout = Duration::from_secs(10);
    });
    bench.accept(ClientId(8));
    bench.send_from(ClientId(8), &large(1));
    bench.send(&large(2)[..10]);
    bench.pass(Duration::from_secs(9));
    assert!(!bench.is_closed());
    bench.pass(Duration::from_secs(1));
    assert!(bench.is_closed());
    assert!(!bench.peer(ClientId(8)).closed, "it waits for its broker");
}

#[test]
fn the_time_of_a_request_begins_when_it_has_room_and_not_later() {
    let mut bench = Bench::with(|config| config.listener.frame_memory_bytes = 150_000);
    bench.accept(ClientId(8));
    bench.send_from(ClientId(8), &large(1));
    bench.send(&large(2)[..10]);
    bench.pass(Duration::from_secs(10));
    bench.serve_produce("a:1", 0);
    assert!(!bench.peer(CLIENT).paused);
    bench.pass(Duration::from_secs(29));
    assert!(!bench.is_closed());
    bench.pass(Duration::from_secs(1));
    assert!(bench.is_closed());
}

#[test]
fn a_request_that_does_not_come_whole_ends_the_connection() {
    let small = produce(1, &[0]);
    for begun in [&small[..1], &small[..3], &small[..4], &small[..small.len() - 1], HUGE, &large(1)[..80_000]] {
        // Silence.
        let mut bench = Bench::new();
        bench.send(begun);
        bench.pass(Duration::from_secs(29));
        assert!(!bench.is_closed());
        bench.pass(Duration::from_secs(1));
        assert!(bench.is_closed(), "{} bytes, then silence", begun.len());
        assert_eq!(bench.listener.stats().frame_bytes, 0);
    }
    for begun in [&b"\0\0\x01\0"[..], HUGE] {
        // A byte from time to time.
        let mut bench = Bench::new();
        bench.send(begun);
        for _ in 0..5 {
            bench.pass(Duration::from_secs(20));
            bench.send(&[0]);
        }
        assert!(!bench.is_closed());
        bench.pass(Duration::from_secs(20));
        assert!(bench.is_closed(), "{} bytes, then one by one", begun.len());
        assert_eq!(bench.listener.stats().frame_bytes, 0);
    }
}

#[test]
fn a_client_that_sends_its_requests_in_pieces_is_served() {
    let mut bench = Bench::new();
    let request = produce(1, &[0]);
    for _ in 0..20 {
        bench.send(&request[..7]);
        bench.pass(Duration::from_secs(25));
        bench.send(&request[7..]);
        bench.serve_produce("a:1", 0);
        assert_eq!(bench.code(), 0);
        bench.pass(Duration::from_secs(25));
    }
    bench.pass(Duration::from_secs(600));
    assert!(!bench.is_closed(), "nothing has begun");
}

#[test]
fn nobody_is_blamed_for_what_we_do_not_read() {
    let mut bench = Bench::with(|config| config.listener.inflight_requests_per_client = 1);
    let timeout_ms = 300_000;
    let request = frame(1, 9, &ProduceRequest { timeout_ms, ..produce_of(-1, &[0]) });
    bench.send(&[&request[..], &request[..20]].concat());
    bench.pass(Duration::from_secs(250));
    assert!(!bench.is_closed());
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0);
    bench.pass(Duration::from_secs(29));
    bench.send(&request[20..]);
    bench.serve_produce("a:1", 0);
    assert_eq!(bench.code(), 0);
}

#[test]
fn a_client_that_takes_no_answers_is_closed_and_holds_nothing() {
    let mut bench = Bench::new();
    bench.accept(ClientId(8));
    bench.send(&large(1));
    bench.send(&large(2)[..80_000]);
    for client in [CLIENT, ClientId(8)] {
        bench.client(input::Client::Blocked { client });
        bench.client(input::Client::Clogged { client });
    }
    bench.pass(Duration::from_secs(119));
    assert_eq!(bench.listener.stats().frame_bytes, 2 * large(1).len());
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.listener.stats().frame_bytes, large(1).len(), "half a request is not kept that long");
    bench.client(input::Client::Blocked { client: ClientId(8) });
    bench.pass(Duration::from_secs(179));
    assert!(!bench.is_closed());
    bench.pass(Duration::from_secs(1));
    assert!(bench.is_closed());
    assert_eq!(bench.listener.stats().frame_bytes, 0);
    assert!(!bench.peer(ClientId(8)).closed, "it has taken some");
    bench.client(input::Client::Unblocked { client: ClientId(8) });
    bench.pass(Duration::from_secs(900));
    assert!(!bench.peer(ClientId(8)).closed, "nothing waits for it");
}

#[test]
fn lengths_that_no_frame_has_close_the_connection() {
    for bytes in
        [&b"\0\0\0\0"[..], b"\0\0\0\x03", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x16\x03\x01\x02", b"GET "]
    {
        let mut bench = Bench::new();
        bench.send(bytes);
        assert!(bench.is_closed(), "{bytes:?}");
    }
}

#[test]
fn what_came_before_is_answered_first() {
    for bad in [&b"\0\0\0\x03"[..], b"\0\0\0\x0a\0\x44\0\0\0\0\0\x01\xff\xff"] {
        let mut bench = Bench::new();
        bench.send(&produce(1, &[0]));
        bench.send(bad);
        bench.send(&produce(2, &[0]));
        assert!(!bench.is_closed());
        assert!(bench.peer(CLIENT).paused, "nothing more is read");
        bench.serve_produce("a:1", 0);
        assert!(!bench.has_request("a:1"), "what came after is not sent");
        assert_eq!(bench.code(), 0);
        assert!(bench.is_closed());
    }
}

#[test]
fn what_cannot_be_answered_closes() {
    let unlisted = b"\0\0\0\x0a\0\x16\0\0\0\0\0\x01\xff\xff";
    let unknown_version = b"\0\0\0\x0a\0\x03\0\x7f\0\0\0\x01\xff\xff";
    let undecodable = b"\0\0\0\x0a\0\x03\0\x01\0\0\0\x01\xff\xff";
    let bad_header = b"\0\0\0\x0a\0\x03\0\x01\0\0\0\x01\x7f\xff";
    let bad_produce = b"\0\0\0\x0b\0\0\0\x07\0\0\0\x01\xff\xff\0";
    for bytes in [&unlisted[..], unknown_version, undecodable, bad_header, bad_produce] {
        let mut bench = Bench::new();
        bench.send(bytes);
        assert!(bench.is_closed(), "{bytes:?}");
        assert_eq!(bench.answer(), None);
        assert!(bench.sockets.is_empty());
    }
}

#[test]
fn idle_clients_are_closed_when_that_is_wanted() {
    let mut bench = Bench::with(|config| config.listener.idle_timeout = Some(Duration::from_secs(60)));
    bench.pass(Duration::from_secs(50));
    bench.send(&metadata(1));
    bench.pass(Duration::from_secs(50));
    assert!(!bench.is_closed());
    bench.pass(Duration::from_secs(70));
    assert!(bench.is_closed());
}

#[test]
fn too_many_clients_are_turned_away() {
    let mut bench = Bench::with(|config| config.listener.connections = 1);
    bench.accept(ClientId(8));
    bench.run();
    assert!(bench.peer(ClientId(8)).closed);
    assert!(!bench.is_closed());
    assert_eq!(bench.listener.stats().turned_away, 1);
}

#[test]
fn a_client_id_is_used_once() {
    let mut bench = Bench::new();
    bench.with_listener(|listener, ctx, cluster, out| {
        let accepted = input::Client::Accepted { client: CLIENT, peer: ([127, 0, 0, 1], 9).into() };
        assert_eq!(listener.on_client(ctx, cluster, accepted, out), Err(DriverMisuse::ClientExists(CLIENT)));
    });
}
