//! The LFS API in the simulated world: the whole machine with models of brokers, etcd and S3.

mod any_moment;
mod bench;
mod downloads;
mod keep_or_delete;
mod kept_connections;
mod shutdown;
mod slowness;
mod swarm;
mod upload_faults;
