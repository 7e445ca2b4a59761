//! What the fuzz targets do with their bytes: plain functions, compiled by ordinary builds. The targets under `fuzz/`
//! only call them, and `cargo test` replays the corpus through [`TARGETS`].
//!
//! A body panics when something that must hold does not, and never because of what its bytes are.

mod broker_answers;
mod codec;
mod draw;
mod etcd_values;
mod hostile_client;
mod http_heads;
mod kafka_frames;
mod lone_shard;
mod record_batches;
mod scan_and_patch;
mod seeds;
mod transcripts;
mod world;

pub use broker_answers::broker_answers;
pub use codec::codec;
pub use etcd_values::etcd_values;
pub use http_heads::http_heads;
pub use kafka_frames::kafka_frames;
pub use record_batches::record_batches;
pub use scan_and_patch::scan_and_patch;
pub use seeds::{Seed, seeds};
pub use world::world;

/// A target: its name, which is that of its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("broker_answers", broker_answers),
    ("codec", codec),
    ("etcd_values", etcd_values),
    ("http_heads", http_heads),
    ("kafka_frames", kafka_frames),
    ("record_batches", record_batches),
    ("scan_and_patch", scan_and_patch),
    ("world", world),
];
