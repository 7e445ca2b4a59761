//! Listening sockets of the process.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// Wait after a failed accept: without descriptors the next one fails just the same.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

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
    fn only_want_of_descriptors_or_memory_makes_it_wait() {
        for (number, of_one) in
            [(103, true), (104, true), (1, true), (24, false), (23, false), (12, false), (105, false)]
        {
            assert_eq!(is_of_one_connection(&Error::from_raw_os_error(number)), of_one, "{number}");
        }
    }
}
