//! The tokio runtime of kafscale-proxy: carries out what the core orders, and tells it what became of it.
//!
//! One adapter per partner; none of them decides, retries or caches anything. A shard is a machine on a thread of its
//! own with everything that it needs; shards share nothing.

mod accept;
mod alarm;
mod broker_connections;
mod client_listener;
pub mod clock;
mod compute;
mod descriptors;
pub mod dev;
mod door;
mod etcd_client;
mod health_server;
mod http_connection;
mod http_server;
pub mod logging;
mod metrics;
pub mod models;
mod names;
pub mod process;
mod pulled;
mod report;
mod s3_client;
pub mod settings;
mod shard;
mod shutdown;
mod socket;
pub mod tail;
mod tasks;
mod temp_files;
mod unsent;
mod work_time;
