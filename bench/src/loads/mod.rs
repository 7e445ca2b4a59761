//! What is asked of the contestants.

pub(crate) mod answers;
pub(crate) mod connection;
pub(crate) mod kafka;
pub(crate) mod uploads;
