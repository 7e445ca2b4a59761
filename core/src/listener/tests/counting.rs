//! What is counted for metrics.

use super::*;
use crate::stats::{BudgetStats, RetryReason};

/// Retries by reason: refused, unsent, unanswered, unreachable.
fn retries(bench: &Bench) -> [u64; 4] {
    let stats = bench.listener.stats();
    RetryReason::ALL.map(|reason| stats.retries.of(reason))
}

#[test]
fn rounds_are_counted_by_what_made_them_necessary() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.serve_produce("a:1", 0);
    assert_eq!(retries(&bench), [0, 0, 0, 0], "a first round is none");

    bench.send(&produce(2, &[0]));
    bench.serve_produce("a:1", 6);
    bench.serve_produce("a:1", 6);
    bench.serve_produce("a:1", 6);
    assert_eq!(retries(&bench), [2, 0, 0, 0], "the third refusal is the answer");

    bench.send(&produce(3, &[0]));
    bench.taken("a:1");
    bench.hang_up("a:1", 0);
    bench.serve_produce("a:1", 0);
    assert_eq!(retries(&bench), [2, 1, 0, 0]);

    bench.send(&produce(4, &[0]));
    let sent = bench.taken("a:1").len() as u64;
    bench.hang_up("a:1", 2 * sent);
    assert_eq!(retries(&bench), [2, 1, 0, 0], "what may have been appended is not sent again");
    assert_eq!(bench.listener.stats().failed_dials, 0);

    bench.down.extend(["a:1", "b:1", "c:1"].map(String::from));
    let before = bench.sockets.len();
    bench.send(&produce(5, &[0]));
    let dials = bench.sockets.len() - before;
    assert!(dials >= 3, "the owner, then the others in its place");
    assert_eq!(bench.listener.stats().failed_dials, dials as u64);
}

#[test]
fn requests_are_counted_by_api() {
    let mut bench = Bench::new();
    bench.send(&produce(1, &[0]));
    bench.send(&metadata(2));
    bench.send(&metadata(3));
    bench.send(b"\0\0\0\x0a\x7f\0\0\0\0\0\0\x04\xff\xff");
    let stats = bench.listener.stats();
    let counted: Vec<_> = stats.requests_by_api.iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [(Some(ApiKey::Produce), 1), (Some(ApiKey::Metadata), 2), (None, 1)]);
    assert_eq!(stats.requests, 4);
}

#[test]
fn waits_for_frame_memory_and_their_ends() {
    let mut bench = Bench::with(|config| {
        config.listener.frame_memory_bytes = 150_000;
        config.listener.connections = 2;
    });
    let announced = 140_000_u32.to_be_bytes();
    bench.accept(ClientId(8));
    bench.send_from(ClientId(8), &announced);
    bench.send(&announced);
    let frames = BudgetStats { limit: 150_000, waits: 1, refusals: 0 };
    assert_eq!(bench.listener.stats().frames, frames);
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.listener.stats().frames, BudgetStats { refusals: 1, ..frames });
    assert_eq!(bench.listener.stats().clients_max, 2);
}
