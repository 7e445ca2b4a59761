//! The black-box suite: the proxy as a process, between real clients and real servers. `tests/run` runs it.

mod clients;
mod etcd_model;
mod etcd_outage;
mod harness;
mod hostile_http;
mod hostile_kafka;
mod keep_or_delete;
mod large_upload;
mod metrics;
mod mock_cluster;
mod soak;
