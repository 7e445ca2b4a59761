//! Listening sockets of the process.

use std::io::{ErrorKind, Result};
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
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => serve(stream, peer),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(ACCEPT_WAIT).await;
            }
        }
    }
}

/// Allows as many descriptors as the system lets this process have: every connection is one.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "cannot raise the number of descriptors");
        }
    }
}
