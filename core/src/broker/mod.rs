//! Connections to brokers.
//!
//! A [`Connection`] is one socket's worth of order and doubt: requests leave in the order they came, answers
//! are matched first in, first out and by correlation id, and when the socket closes, the number of bytes that it had
//! accepted decides for each open request whether it was provably not applied. Who the connection is for is the
//! owner's business: a Kafka client's pool, or an LFS exchange.

mod connection;
mod dialect;
mod handshake;
#[cfg(test)]
pub(crate) mod usual_broker;

#[cfg(test)]
pub(crate) use connection::LIFECYCLE;
pub(crate) use connection::{CloseReason, Connection, Event, Fate, Request};
pub use handshake::SaslPlain;
