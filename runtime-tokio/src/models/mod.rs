//! The reference models as servers: what `dev` runs the proxy against, and brokers for tests with real clients.

pub mod brokers;
pub(crate) mod etcd;
pub(crate) mod s3;
