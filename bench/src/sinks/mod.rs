//! What stands behind the proxies: peers that answer at once and keep nothing. They run as threads of this program.

pub(crate) mod broker;
pub(crate) mod store;

use std::net::{TcpListener, TcpStream};
use std::thread;

/// Serves every connection of a listener on a thread of its own, until the program ends.
fn serve(listener: TcpListener, connection: impl Fn(TcpStream) + Clone + Send + 'static) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = connection.clone();
            thread::spawn(move || connection(stream));
        }
    });
}
