//! With a test in place of the machine.
#![expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes fails the test")]

use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::*;

/// A server whose machine is the test itself.
struct Bench {
    exchanges: Rc<HttpExchanges>,
    facts: mpsc::UnboundedReceiver<inputs::Http>,
    address: SocketAddr,
    next_operation: u64,
}

const LIMITS: HttpServerSettings = HttpServerSettings {
    header_timeout: Duration::from_millis(300),
    idle_timeout: Duration::from_millis(600),
    max_header_bytes: 16 * 1024,
    max_connections: 100,
};

impl Bench {
    async fn start() -> Self {
        let (sender, facts) = mpsc::unbounded_channel();
        let exchanges = Rc::new(HttpExchanges::new(Report::new(move |fact| {
            if let Input::Http(fact) = fact {
                // The test may have ended before the connection.
                let _ = sender.send(fact);
            }
        })));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Rc::clone(&exchanges);
        spawn_local(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                serving.serve(stream, peer, LIMITS, Place::unlimited());
            }
        });
        Self { exchanges, facts, address, next_operation: 0 }
    }

    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        client.write_all(bytes).await.unwrap();
        client
    }

    async fn fact(&mut self) -> inputs::Http {
        tokio::time::timeout(Duration::from_secs(5), self.facts.recv()).await.expect("a fact within 5 s").unwrap()
    }

    async fn requested(&mut self) -> (ExchangeId, Parts) {
        match self.fact().await {
            inputs::Http::Requested { exchange, server: HttpServer::Api, head, .. } => (exchange, *head),
            other => panic!("not a request: {other:?}"),
        }
    }

    fn operation(&mut self) -> OperationId {
        self.next_operation += 1;
        OperationId(self.next_operation)
    }

    async fn read(&mut self, exchange: ExchangeId, max_bytes: usize) -> ReadResult {
        let operation = self.operation();
        self.exchanges.carry_out(effects::Http::ReadBody { operation, exchange, max_bytes });
        loop {
            match self.fact().await {
                inputs::Http::BodyRead { operation: done, result } if done == operation => return result,
                // The end of the connection may be noticed before its bytes are asked for.
                inputs::Http::ClientGone { .. } | inputs::Http::Ended { .. } => {}
                other => panic!("not the read: {other:?}"),
            }
        }
    }

    /// Reads a body to its end.
    async fn read_all(&mut self, exchange: ExchangeId) -> (usize, ReadResult) {
        let mut total = 0;
        loop {
            match self.read(exchange, 256 * 1024).await {
                ReadResult::Chunk(bytes) => total += bytes.len(),
                end => return (total, end),
            }
        }
    }

    fn respond(&self, exchange: ExchangeId, status: u16, body: ResponseBody) {
        let head = Response::builder().status(status).body(()).unwrap().into_parts().0;
        self.exchanges.carry_out(effects::Http::Respond { exchange, head: Box::new(head), body });
    }

    async fn ended(&mut self, exchange: ExchangeId) {
        match self.fact().await {
            inputs::Http::Ended { exchange: ended } => assert_eq!(ended, exchange),
            other => panic!("not the end: {other:?}"),
        }
    }
}

fn whole(text: &'static str) -> ResponseBody {
    ResponseBody::Whole(Bytes::from_static(text.as_bytes()))
}

async fn response(client: &mut TcpStream) -> String {
    let mut bytes = vec![0; 65536];
    let read = tokio::time::timeout(Duration::from_secs(5), client.read(&mut bytes)).await.expect("an answer").unwrap();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(5), client.read_to_end(&mut bytes)).await.expect("an end");
    // A reset after the bytes is an end like another here.
    drop(end);
    bytes
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn one_connection_serves_one_request_after_another() {
    run(async {
        let mut bench = Bench::start().await;
        let mut client = bench.send(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
        for path in ["/a", "/b"] {
            let (exchange, head) = bench.requested().await;
            assert_eq!(head.uri.path(), path);
            bench.respond(exchange, 200, whole("ok\n"));
            let answer = response(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("content-length: 3\r\n"), "{answer}");
            assert!(!answer.contains("connection: close"), "{answer}");
            bench.ended(exchange).await;
            client
                .write_all(b"POST /b HTTP/1.1\r\nContent-Length: 0\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
                .await
                .unwrap();
        }
    });
}

#[test]
fn bodies_that_are_whole_end_and_bodies_that_are_cut_break() {
    let table: &[(&str, &[u8], usize, bool)] = &[
        ("whole", b"Content-Length: 5\r\n\r\nhello", 5, true),
        ("nothing came", b"Content-Length: 5\r\n\r\n", 0, false),
        ("one byte short", b"Content-Length: 5\r\n\r\nhell", 4, false),
        ("whole in chunks", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 5, true),
        ("before the first chunk", b"Transfer-Encoding: chunked\r\n\r\n", 0, false),
        ("in a size line", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1", 5, false),
        ("in a chunk", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", 3, false),
        ("at the end of a chunk's bytes", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello", 5, false),
        ("exactly between chunks", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 5, false),
        ("in the last chunk's line", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", 5, false),
        ("no size but text", b"Transfer-Encoding: chunked\r\n\r\nhello\r\n", 0, false),
    ];
    for (name, request, bytes, whole) in table {
        run(async {
            let mut bench = Bench::start().await;
            let mut client = bench.send(b"POST /lfs/produce HTTP/1.1\r\nHost: x\r\n").await;
            client.write_all(request).await.unwrap();
            if !whole {
                client.shutdown().await.unwrap();
            }
            let (exchange, _) = bench.requested().await;
            let (read, end) = bench.read_all(exchange).await;
            assert_eq!(end == ReadResult::End, *whole, "{name}: {end:?}");
            assert!(read <= *bytes, "{name}");
            assert!(read == *bytes || !whole, "{name}");
        });
    }
}

#[test]
fn large_bodies_come_in_pieces_of_a_good_size() {
    run(async {
        let mut bench = Bench::start().await;
        let mut client = bench.send(b"PUT /x HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        spawn_local(async move {
            for _ in 0..300 {
                client.write_all(&[7; 10_000]).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        let mut pieces = Vec::new();
        let end = loop {
            match bench.read(exchange, 256 * 1024).await {
                ReadResult::Chunk(bytes) => pieces.push(bytes.len()),
                end => break end,
            }
        };
        assert_eq!(end, ReadResult::End);
        assert_eq!(pieces.iter().sum::<usize>(), 3_000_000);
        assert!(pieces.iter().all(|piece| *piece <= 256 * 1024), "{pieces:?}");
        assert!(pieces.len() < 100, "{} pieces", pieces.len());
    });
}

#[test]
fn continue_is_sent_when_the_body_is_read_and_not_before() {
    run(async {
        let mut bench = Bench::start().await;
        let head = b"PUT /x HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        let mut client = bench.send(head).await;
        let (exchange, _) = bench.requested().await;
        let early = tokio::time::timeout(Duration::from_millis(100), client.read_u8()).await;
        assert!(early.is_err(), "something was sent before the body was wanted");
        let operation = bench.operation();
        bench.exchanges.carry_out(effects::Http::ReadBody { operation, exchange, max_bytes: 100 });
        assert!(response(&mut client).await.starts_with("HTTP/1.1 100 Continue\r\n"));
        client.write_all(b"hello").await.unwrap();
        assert!(
            matches!(bench.fact().await, inputs::Http::BodyRead { result: ReadResult::Chunk(bytes), .. } if bytes == "hello")
        );

        let mut refused = bench.send(head).await;
        let (exchange, _) = bench.requested().await;
        bench.respond(exchange, 401, whole("no"));
        let answer = response(&mut refused).await;
        assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("connection: close\r\n"), "{answer}");
        bench.ended(exchange).await;
    });
}

#[test]
fn an_early_answer_reaches_a_client_that_still_sends() {
    run(async {
        let mut bench = Bench::start().await;
        let mut client = bench.send(b"POST /x HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        bench.respond(exchange, 413, whole("too large"));
        // Like a simple client: sends while it can, and only then reads.
        let smuggled = b"DELETE /lfs/uploads/1 HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500);
        for _ in 0..10 {
            if client.write_all(&smuggled).await.is_err() {
                break;
            }
        }
        let answer = String::from_utf8(rest(&mut client).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("too large"), "{answer}");
        bench.ended(exchange).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(bench.facts.try_recv().is_err(), "left-over body was taken for a request");
    });
}

#[test]
fn a_streamed_answer_is_pulled_and_its_end_is_told_once() {
    run(async {
        let mut bench = Bench::start().await;
        let mut client = bench.send(b"GET /x HTTP/1.1\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        bench.respond(exchange, 200, ResponseBody::Streamed { length: 3_000_000 });
        let reading = spawn_local(async move {
            let mut total = 0;
            let mut bytes = vec![0; 65536];
            while total < 3_000_000 {
                total += client.read(&mut bytes).await.unwrap();
            }
            client
        });
        for _ in 0..30 {
            let operation = bench.operation();
            let bytes = Bytes::from(vec![1; 100_000]);
            bench.exchanges.carry_out(effects::Http::SendChunk { operation, exchange, bytes });
            assert!(matches!(bench.fact().await, inputs::Http::ChunkAccepted { operation: done } if done == operation));
        }
        bench.ended(exchange).await;
        drop(reading.await.unwrap());
    });
}

#[test]
fn an_aborted_answer_is_shorter_than_announced() {
    run(async {
        let mut bench = Bench::start().await;
        let mut client = bench.send(b"GET /x HTTP/1.1\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        bench.respond(exchange, 200, ResponseBody::Streamed { length: 1000 });
        let operation = bench.operation();
        bench.exchanges.carry_out(effects::Http::SendChunk { operation, exchange, bytes: Bytes::from_static(b"abc") });
        assert!(matches!(bench.fact().await, inputs::Http::ChunkAccepted { .. }));
        bench.exchanges.carry_out(effects::Http::Abort { exchange });
        bench.ended(exchange).await;
        let answer = rest(&mut client).await;
        assert!(!answer.is_empty() && answer.len() < 1000);

        // Without any answer the client sees none.
        let mut client = bench.send(b"GET /y HTTP/1.1\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        bench.exchanges.carry_out(effects::Http::Abort { exchange });
        bench.ended(exchange).await;
        assert!(rest(&mut client).await.is_empty());
    });
}

#[test]
fn a_client_that_leaves_is_noticed_and_open_operations_complete_first() {
    run(async {
        let mut bench = Bench::start().await;
        // While the machine thinks.
        let client = bench.send(b"GET /x HTTP/1.1\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        drop(client);
        assert!(matches!(bench.fact().await, inputs::Http::ClientGone { exchange: gone } if gone == exchange));
        bench.ended(exchange).await;

        // While a body is read: the break says it.
        let client = bench.send(b"PUT /x HTTP/1.1\r\nContent-Length: 10\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        let operation = bench.operation();
        bench.exchanges.carry_out(effects::Http::ReadBody { operation, exchange, max_bytes: 100 });
        tokio::task::yield_now().await;
        drop(client);
        assert!(matches!(bench.fact().await, inputs::Http::BodyRead { result: ReadResult::Broken(_), .. }));
        bench.exchanges.carry_out(effects::Http::Abort { exchange });
        bench.ended(exchange).await;

        // While an answer is streamed that nobody takes.
        let client = bench.send(b"GET /x HTTP/1.1\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        bench.respond(exchange, 200, ResponseBody::Streamed { length: 100_000_000 });
        let mut accepted = 0;
        let open = loop {
            let operation = bench.operation();
            let bytes = Bytes::from(vec![1; 1_000_000]);
            bench.exchanges.carry_out(effects::Http::SendChunk { operation, exchange, bytes });
            match tokio::time::timeout(Duration::from_millis(300), bench.facts.recv()).await {
                Ok(Some(inputs::Http::ChunkAccepted { .. })) => accepted += 1,
                Ok(other) => panic!("{other:?}"),
                Err(_) => break operation,
            }
        };
        assert!(accepted < 50, "{accepted} MB were taken without a reader");
        drop(client);
        assert!(matches!(bench.fact().await, inputs::Http::ClientGone { .. }));
        assert!(matches!(bench.fact().await, inputs::Http::ChunkAccepted { operation } if operation == open));
        bench.ended(exchange).await;
    });
}

#[test]
fn a_cancelled_read_completes_once() {
    run(async {
        let mut bench = Bench::start().await;
        let mut client = bench.send(b"PUT /x HTTP/1.1\r\nContent-Length: 10\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        let operation = bench.operation();
        bench.exchanges.carry_out(effects::Http::ReadBody { operation, exchange, max_bytes: 100 });
        bench.exchanges.carry_out(effects::Http::CancelRead { exchange });
        assert!(matches!(bench.fact().await, inputs::Http::BodyRead { result: ReadResult::Broken(_), .. }));
        bench.exchanges.carry_out(effects::Http::CancelRead { exchange });
        bench.respond(exchange, 408, whole("too slow"));
        let answer = response(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("connection: close"), "{answer}");
        bench.ended(exchange).await;
    });
}

#[test]
fn slow_heads_idle_connections_and_large_heads_end() {
    run(async {
        let mut bench = Bench::start().await;
        let mut slow = bench.send(b"GET /x HTTP/1.1\r\nHost: ").await;
        let started = tokio::time::Instant::now();
        assert!(rest(&mut slow).await.is_empty());
        assert!(started.elapsed() >= LIMITS.header_timeout && started.elapsed() < LIMITS.idle_timeout);

        let mut idle = bench.send(b"").await;
        let started = tokio::time::Instant::now();
        assert!(rest(&mut idle).await.is_empty());
        assert!(started.elapsed() >= LIMITS.idle_timeout);

        let large = format!("GET /x HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(LIMITS.max_header_bytes));
        let mut client = bench.send(large.as_bytes()).await;
        assert!(String::from_utf8(rest(&mut client).await).unwrap().starts_with("HTTP/1.1 431 "));
        assert!(bench.facts.try_recv().is_err());
    });
}

#[test]
fn a_request_that_takes_longer_than_the_head_may_is_served() {
    run(async {
        let mut bench = Bench::start().await;
        let mut client = bench.send(b"GET /x HTTP/1.1\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        tokio::time::sleep(LIMITS.idle_timeout + Duration::from_millis(100)).await;
        bench.respond(exchange, 200, whole("late"));
        assert!(response(&mut client).await.ends_with("late"));
    });
}

#[test]
fn stopping_ends_idle_connections_and_lets_open_exchanges_finish() {
    run(async {
        let mut bench = Bench::start().await;
        let mut busy = bench.send(b"GET /x HTTP/1.1\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        bench.exchanges.stop();
        bench.respond(exchange, 200, whole("done"));
        let answer = String::from_utf8(rest(&mut busy).await).unwrap();
        assert!(answer.ends_with("done"), "{answer}");
        bench.ended(exchange).await;
        bench.exchanges.wait_until_closed(Duration::from_secs(5)).await;
        assert!(bench.exchanges.connections.borrow().is_empty());
    });
}

#[test]
fn head_gets_the_length_and_no_bytes() {
    run(async {
        let mut bench = Bench::start().await;
        let mut client = bench.send(b"HEAD /x HTTP/1.1\r\n\r\n").await;
        let (exchange, _) = bench.requested().await;
        bench.respond(exchange, 200, whole("12345"));
        let answer = response(&mut client).await;
        assert!(answer.contains("content-length: 5\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
        bench.ended(exchange).await;
    });
}

/// A request that comes while the answer before it still waits for the socket is served when that has left, and takes as long as
/// it takes: that hyper reads no head before is what the time limits rest on.
#[test]
fn a_pipelined_request_is_served_when_the_answer_before_it_has_left() {
    run(async {
        const LARGE: usize = 32 << 20;
        let mut bench = Bench::start().await;
        let mut client = bench.send(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let (first, _) = bench.requested().await;
        bench.respond(first, 200, ResponseBody::Whole(Bytes::from(vec![b'a'; LARGE])));
        client.write_all(b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n").await.unwrap();
        tokio::time::sleep(LIMITS.idle_timeout * 2).await;
        assert!(bench.facts.try_recv().is_err(), "nobody takes the first answer");
        let mut taken = 0;
        let mut bytes = vec![0; 1 << 20];
        while taken <= LARGE {
            taken += client.read(&mut bytes).await.unwrap();
        }
        bench.ended(first).await;
        let (second, head) = bench.requested().await;
        assert_eq!(head.uri.path(), "/b");
        for _ in 0..8 {
            tokio::time::sleep(LIMITS.idle_timeout / 4).await;
            client.write_all(b"x").await.unwrap();
            assert_eq!(bench.read(second, 8).await, ReadResult::Chunk("x".into()));
        }
        assert_eq!(bench.read(second, 8).await, ReadResult::End);
        bench.respond(second, 200, whole("late but whole\n"));
        assert!(response(&mut client).await.ends_with("late but whole\n"));
        bench.ended(second).await;
        assert!(rest(&mut client).await.is_empty(), "idle now, and closed after a while");
    });
}
