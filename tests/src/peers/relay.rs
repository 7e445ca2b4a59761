//! A way to a server that can be cut, for one of its clients only.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::free_port;

/// Passes bytes between its own port and a server's. It ends with this value.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    target: String,
    // Ends the listener and, with it, every connection.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Relay {
    /// A way to the server at `host:port`.
    pub async fn start(target: &str) -> Self {
        let address = (Ipv4Addr::LOCALHOST, free_port()).into();
        let relay = Self { address, target: target.to_owned(), task: Mutex::default() };
        relay.restore().await;
        relay
    }

    /// Its own `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Breaks all connections and refuses new ones.
    pub fn cut(&self) {
        if let Some(task) = self.task.lock().expect("nobody panics while holding it").as_ref() {
            task.abort();
        }
    }

    /// Lets new connections pass, after [`Relay::cut`].
    pub async fn restore(&self) {
        let former = self.task.lock().expect("nobody panics while holding it").take();
        if let Some(former) = former {
            // Its port is free when it has ended, however it ended.
            former.abort();
            let _ = former.await;
        }
        let listener = TcpListener::bind(self.address).await.expect("the port was free and is nobody else's");
        let target = self.target.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                // Those that have ended are not kept.
                while connections.try_join_next().is_some() {}
                let target = target.clone();
                connections.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(&target).await {
                        // How a connection ends is the business of those who talk over it.
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        *self.task.lock().expect("nobody panics while holding it") = Some(task);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
    }
}
