//! Large values: the HTTP API, the blob in S3 and the envelope on the topic.

mod budget;
pub mod checksum;
mod envelope;
mod object_key;
mod partitioner;
mod utc;
mod verdict;
