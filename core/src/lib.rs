//! The decisions of kafscale-proxy, as a pure state machine.
//!
//! The machine holds no socket, file, clock, thread, channel, future or random source. It is told facts
//! ([`Input`]) and answers with orders ([`Effect`]); a runtime carries the orders out and reports what became of them.
#![forbid(unsafe_code)]
#![deny(missing_docs, unused_must_use)]

mod broker;
mod cluster;
mod compute;
mod config;
mod context;
mod effect;
mod error;
pub mod etcd;
mod health;
mod http;
mod input;
mod json_object;
pub mod kafka;
mod lfs;
mod lifecycle;
mod listener;
mod log_text;
#[cfg(any(test, feature = "model"))]
pub mod model;
mod operation;
pub mod planted;
mod proxy;
mod random;
pub mod s3;
mod shutdown;
mod stats;
#[cfg(test)]
mod tests;
mod time;
mod timers;

pub use compute::{Computed, Job};
pub use config::{
    ClusterConfig, ClusterKind, Config, IdempotentProducers, LfsConfig, ListenerConfig, S3Timeouts, ShutdownConfig,
};
pub use error::DriverMisuse;
pub use operation::{OperationId, Outcome};
pub use time::{Monotonic, Now};
pub use timers::{Timeout, Timer};

/// What the machine is told.
pub mod inputs {
    pub use crate::input::{
        Broker, BrokerConnectionId, Client, ClientId, ConnectError, Etcd, ExchangeId, FileError, FileId, Http,
        HttpServer, ReadResult, S3, TempFile,
    };
}

/// What the machine orders.
pub mod effects {
    pub use crate::effect::{Broker, Client, Etcd, Http, ResponseBody, S3, TempFile};
}

pub use broker::SaslPlain;
pub use effect::{Effect, Effects};
pub use input::Input;
pub use lfs::checksum::Algorithm;
pub use lfs::{DURATION_BUCKETS_MS, DurationHistogram, LfsStats, TopicStats};
pub use listener::Stats as ListenerStats;
pub use proxy::Proxy;
pub use stats::{BudgetStats, KnowledgeStats, RequestStats, RetryReason, RetryStats, SoftwareStats, Stats};
