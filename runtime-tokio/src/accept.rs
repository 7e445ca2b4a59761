//! Listening sockets of the process.

use std::cell::Cell;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// Wait after a failed accept: without descriptors the next one fails just the same.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

thread_local! {
    static FAILURES: Cell<u64> = const { Cell::new(0) };
}

/// How often accepting has failed on this thread, for want of descriptors or memory.
pub(crate) fn failures() -> u64 {
    FAILURES.get()
}

/// Listens on `host:port`; an empty host is every address, of both families where the host has both.
///
/// # Errors
/// The address is taken, or is none of this host.
pub(crate) async fn listen(address: &str) -> Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else {
        return TcpListener::bind(address).await;
    };
    match TcpListener::bind(format!("[::]:{port}")).await {
        Err(error) if error.kind() != ErrorKind::AddrInUse => TcpListener::bind(format!("0.0.0.0:{port}")).await,
        result => result,
    }
}

/// Accepts for ever. Whatever goes wrong with one connection, or for want of descriptors, does not end it.
pub(crate) async fn accept(listener: &TcpListener, mut serve: impl FnMut(TcpStream, SocketAddr)) {
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if std::mem::take(&mut failing) {
                    tracing::info!("connections are accepted again");
                }
                serve(stream, peer);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                FAILURES.set(FAILURES.get() + 1);
                if !std::mem::replace(&mut failing, true) {
                    tracing::error!(%error, "no connections are accepted until this is over");
                }
                tokio::time::sleep(ACCEPT_WAIT).await;
            }
        }
    }
}

/// Whether an error of `accept` only says that the next connection is broken already.
fn is_of_one_connection(error: &Error) -> bool {
    use rustix::io::Errno;
    let of_one = [Errno::CONNABORTED, Errno::CONNRESET, Errno::PERM, Errno::PROTO, Errno::NETDOWN, Errno::NETUNREACH];
    Errno::from_io_error(error).is_some_and(|errno| of_one.contains(&errno) || errno == Errno::HOSTUNREACH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_that_fail_are_counted_and_tried_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = listen("127.0.0.1:0").await.unwrap();
            socket2::SockRef::from(&listener).shutdown(std::net::Shutdown::Both).unwrap();
            let before = failures();
            let accepting = accept(&listener, |_, _| panic!("nobody has come"));
            assert!(tokio::time::timeout(3 * ACCEPT_WAIT, accepting).await.is_err());
            assert!((2..=4).contains(&(failures() - before)), "{}", failures() - before);
        });
    }

    #[test]
    fn only_want_of_descriptors_or_memory_makes_it_wait() {
        for (number, of_one) in
            [(103, true), (104, true), (1, true), (24, false), (23, false), (12, false), (105, false)]
        {
            assert_eq!(is_of_one_connection(&Error::from_raw_os_error(number)), of_one, "{number}");
        }
    }
}
