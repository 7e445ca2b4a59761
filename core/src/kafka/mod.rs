//! The Kafka wire format: frames, headers, the API table and one codec per message.
//!
//! Layouts follow the public Kafka protocol guide. A message is described once, with the versions of each field
//! ([`Message`]); reading and writing both follow from that description, for requests and responses alike, so that the
//! proxy, its broker model and its clients share them. Nothing here decides anything.
//!
//! What comes from a peer is never trusted: lengths reserve no memory, and every malformed frame is a [`DecodeError`].

mod api;
mod decode;
mod error_code;
mod fetch;
mod frame;
mod header;
mod message;
mod produce;
mod string;
#[cfg(test)]
mod tests;
mod wire;

pub use api::{ApiKey, VersionRange, advertised, advertised_versions};
pub use decode::DecodeError;
pub use error_code::ErrorCode;
pub use fetch::{
    AbortedTransaction, EpochEndOffset, FetchPartition, FetchRequest, FetchResponse, FetchTopic,
    FetchableTopicResponse, ForgottenTopic, LeaderIdAndEpoch, PartitionData, SnapshotId,
};
pub use frame::{FrameError, LooksLike, Splitter};
pub use header::{RequestHeader, ResponseHeader, request_frame, response_frame};
pub use message::{Message, Request};
pub use produce::{
    BatchIndexAndErrorMessage, PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceData, TopicProduceResponse,
};
pub use string::Str;
