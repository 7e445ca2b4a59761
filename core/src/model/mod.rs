//! Reference models of the machine's partners: etcd, S3 and KafScale brokers.
//!
//! They are state machines like the rest of this crate: no socket, no clock, no randomness. The simulated world, the
//! `dev` mode of the binary and tests with real Kafka clients run on the same models, and what they do was compared
//! with the real systems. Faults are switches on the way to a model ([`Link`]) or in it, never a second implementation.

pub mod broker;
pub mod etcd;
mod link;
pub mod s3;

pub use link::{Fate, Link, Reply};
