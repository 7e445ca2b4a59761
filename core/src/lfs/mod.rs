//! Large values: the HTTP API, the blob in S3 and the envelope on the topic.

mod budget;
pub mod checksum;
mod cleanup;
mod decision;
mod envelope;
mod object_key;
mod partitioner;
mod purpose;
mod s3_call;
mod utc;
mod verdict;

pub use cleanup::CleanupId;
pub(crate) use decision::Decision;
pub(crate) use purpose::Purpose;
