//! Sockets of a shard with bytes that were ordered and not sent yet, in the order in which they got the first of them.
//!
//! Orders only append; what they have appended leaves with one system call per socket when the tasks that were ready have
//! had their turn.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;

use crate::socket::Socket;

/// These sockets.
#[derive(Default)]
pub(crate) struct Unsent(RefCell<Vec<Rc<Socket>>>);

impl Unsent {
    /// Appends to what a socket has to send.
    pub(crate) fn append(&self, socket: &Rc<Socket>, bytes: Bytes) {
        if socket.append(bytes) {
            self.0.borrow_mut().push(Rc::clone(socket));
        }
    }

    /// Whether every socket was told to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Sends.
    pub(crate) fn flush(&self) {
        for socket in self.0.take() {
            socket.flush();
        }
    }
}
