//! Ports for servers that are started, stopped and started again.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which Linux draws the ports of outgoing connections: those would take the port of a server that
/// is stopped for a while.
const FIRST: u16 = 12_000;
const LAST: u16 = 31_999;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port of the loopback interface that nobody listens on; never the same one twice in this process.
///
/// # Panics
/// When all ports are taken.
pub fn free_port() -> u16 {
    // Test programs run one beside the other; each begins its search somewhere else.
    let first = u16::try_from(std::process::id() % 200).expect("below 200") * 100;
    for _ in FIRST..=LAST {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (first + step) % (LAST - FIRST + 1);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {LAST}");
}
