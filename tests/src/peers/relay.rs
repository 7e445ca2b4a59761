//! A way to a server that can be cut, for one of its clients only.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::free_port;

/// Passes bytes between its own port and a server's. It ends with this value.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    target: String,
    // Ends the listener and, with it, every connection.
    open: Mutex<Option<AbortHandle>>,
}

impl Relay {
    /// A way to the server at `host:port`.
    pub async fn start(target: &str) -> Self {
        let address = (Ipv4Addr::LOCALHOST, free_port()).into();
        let relay = Self { address, target: target.to_owned(), open: Mutex::default() };
        relay.restore().await;
        relay
    }

    /// Its own `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Breaks all connections and refuses new ones.
    pub fn cut(&self) {
        if let Some(task) = self.open.lock().expect("nobody panics while holding it").take() {
            task.abort();
        }
    }

    /// Lets new connections pass again.
    pub async fn restore(&self) {
        let listener = TcpListener::bind(self.address).await.expect("the port was free and is nobody else's");
        let target = self.target.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let target = target.clone();
                connections.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(&target).await {
                        // How a connection ends is the business of those who talk over it.
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        *self.open.lock().expect("nobody panics while holding it") = Some(task.abort_handle());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
    }
}
