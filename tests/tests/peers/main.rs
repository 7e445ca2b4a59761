//! The black-box suite: the proxy as a process, between real clients and real servers. `tests/run` runs it.

mod clients;
mod closing_brokers;
mod cut_store;
mod etcd_model;
mod etcd_outage;
mod frozen_owner;
mod harness;
mod hostile_http;
mod hostile_kafka;
mod keep_or_delete;
mod large_cluster;
mod large_upload;
mod leader_hints;
mod long_lived;
mod metrics;
mod mock_cluster;
mod slow_uploads;
mod soak;
mod three_brokers;
