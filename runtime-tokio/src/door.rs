//! Who may connect by HTTP: as many clients as the settings allow, and nobody when descriptors run short.

use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::accept;
use crate::descriptors::Descriptors;

/// What an HTTP client gets for which there is no place.
const NO_PLACE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";

/// The place of an HTTP connection among those that may be open; dropped with the connection.
pub(crate) struct Place(#[expect(dead_code, reason = "only its end matters")] Option<OwnedSemaphorePermit>);

impl Place {
    /// One of a server without a limit.
    #[cfg(test)]
    pub(crate) const fn unlimited() -> Self {
        Self(None)
    }
}

/// Who may connect to an HTTP server.
pub(crate) struct Door {
    name: &'static str,
    limit: usize,
    places: Arc<Semaphore>,
    descriptors: Descriptors,
}

impl Door {
    /// For a server of this name; `limit` connections at once.
    pub(crate) fn new(name: &'static str, limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { name, limit, places: Arc::new(Semaphore::new(limit)), descriptors: Descriptors::of_process() }
    }

    /// Lets in, for ever, whom the listener accepts.
    pub(crate) async fn accept(&self, listener: &TcpListener, mut serve: impl FnMut(TcpStream, SocketAddr, Place)) {
        let enter = |stream, peer| {
            if let Some((stream, place)) = self.enter(stream, peer) {
                serve(stream, peer, place);
            }
        };
        accept::accept(listener, enter).await;
    }

    /// The connection with its place. One for which there is none is refused.
    fn enter(&self, stream: TcpStream, peer: SocketAddr) -> Option<(TcpStream, Place)> {
        let reason = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) if self.descriptors.allow(&stream) => return Some((stream, Place(Some(place)))),
            Ok(_) => "too few descriptors are left",
            Err(_) => "too many connections",
        };
        tracing::warn!(%peer, server = self.name, limit = self.limit, reason, "HTTP connection refused");
        refuse(stream);
        None
    }
}

/// Tells an HTTP client that there is no place for it. What it has sent is not read, so it may see a reset instead.
fn refuse(stream: TcpStream) {
    let refused = stream.into_std().and_then(|mut stream| {
        stream.write_all(NO_PLACE)?;
        stream.shutdown(Shutdown::Write)
    });
    if let Err(error) = refused {
        tracing::debug!(%error, "a client that was refused is gone");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn one_too_many_is_told_so_and_a_place_comes_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let door = Door::new("test", 1);
            let connect = async || {
                let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let (stream, peer) = listener.accept().await.unwrap();
                (client, door.enter(stream, peer))
            };
            let (_client, entered) = connect().await;
            assert!(entered.is_some());
            let (mut client, refused) = connect().await;
            assert!(refused.is_none());
            let mut answer = String::new();
            let read = client.read_to_string(&mut answer);
            tokio::time::timeout(Duration::from_secs(5), read).await.unwrap().unwrap();
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Connection: close\r\n"), "{answer}");
            drop(entered);
            assert!(connect().await.1.is_some());
        });
    }
}
