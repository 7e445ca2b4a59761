//! The LFS API in the simulated world: the whole machine with models of brokers, etcd and S3.

mod bench;
mod keep_or_delete;
