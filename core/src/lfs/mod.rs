//! Large values: the HTTP API, the blob in S3 and the envelope on the topic.

pub mod checksum;
