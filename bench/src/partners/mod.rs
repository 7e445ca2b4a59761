//! The servers that a run starts as processes of their own, on the loopback interface, and stops by their ids.

pub(crate) mod etcd;
pub(crate) mod haproxy;
pub(crate) mod process;
pub(crate) mod proxy;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Hands out ports of the loopback interface, ascending, those that are free.
#[derive(Debug)]
pub(crate) struct Ports {
    next: u16,
}

impl Ports {
    /// From this one on.
    pub(crate) fn from(first: u16) -> Self {
        Self { next: first }
    }

    /// A listener on the next one.
    pub(crate) fn listener(&mut self) -> Result<TcpListener, Failure> {
        while self.next < u16::MAX {
            self.next += 1;
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, self.next - 1)) {
                return Ok(listener);
            }
        }
        Err(Failure::new("no free port is left"))
    }

    /// The next one, for a server that binds it itself.
    pub(crate) fn address(&mut self) -> Result<SocketAddr, Failure> {
        Ok(self.listener()?.local_addr()?)
    }
}

/// Tries until it succeeds; gives the last failure when that takes too long.
pub(crate) fn eventually<T>(limit: Duration, mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(_) if begun.elapsed() < limit => thread::sleep(PAUSE),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_handed_out_once_and_taken_ones_are_passed_over() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback interface has a free port");
        let held = held.local_addr().expect("it is bound").port();
        let mut ports = Ports::from(held);
        let mut next = || ports.address().expect("a free port").port();
        let (first, second) = (next(), next());
        assert!(held < first && first < second, "{held} {first} {second}");
    }

    #[test]
    fn trying_ends_with_success_or_with_the_limit() {
        let mut left = 3;
        let attempt = || {
            left -= 1;
            if left == 0 { Ok("done") } else { Err(Failure::new("not yet")) }
        };
        assert_eq!(eventually(Duration::from_secs(60), attempt).expect("the third time"), "done");
        assert!(eventually(Duration::ZERO, || Err::<(), _>(Failure::new("never"))).is_err());
    }
}
