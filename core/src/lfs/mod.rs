//! Large values: the HTTP API, the blob in S3 and the envelope on the topic.
//!
//! Each exchange is a machine of its own ([`produce`], [`download`]); what they share is in [`call`]. The promise that no blob
//! is deleted to which a record may refer rests on two places: the table in [`verdict`], and the three-valued
//! outcomes of S3 that [`upload`] and [`cleanup`] match one by one.

mod broker_choice;
mod budget;
mod call;
pub(crate) mod checksum;
mod cleanup;
mod decision;
mod download;
mod download_request;
mod envelope;
mod idle_links;
mod link;
mod machine;
mod object_key;
mod partitioner;
mod produce;
mod produce_request;
mod publish;
mod purpose;
mod reach;
mod record;
mod requester;
mod s3_call;
mod s3_health;
mod stats;
#[cfg(test)]
#[allow(clippy::wildcard_enum_match_arm, reason = "a test names the few variants that it is about")]
mod tests;
mod upload;
mod utc;
mod verdict;

pub(crate) use cleanup::CleanupId;
pub(crate) use decision::Decision;
pub(crate) use machine::Lfs;
pub(crate) use purpose::Purpose;
pub use stats::{DURATION_BUCKETS_MS, DurationHistogram, LfsStats, TopicStats};
pub(crate) use upload::part_bytes;

/// The lifecycles of this path.
#[cfg(test)]
pub(crate) const LIFECYCLES: [&crate::lifecycle::Lifecycle; 5] =
    [&produce::LIFECYCLE, &upload::LIFECYCLE, &upload::BODY_LIFECYCLE, &publish::LIFECYCLE, &download::LIFECYCLE];
