//! Which partitions a request to a broker asks for.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafscale_proxy_core::kafka::{FetchRequest, ListOffsetsRequest, Message, OffsetForLeaderEpochRequest};

/// Names of topics by their ids.
pub(super) type TopicNames = BTreeMap<[u8; 16], String>;

/// Of a Fetch, by name or by an id that is known.
pub(super) fn fetched(body: &Bytes, version: i16, topics: &TopicNames) -> Vec<(String, i32)> {
    let request = FetchRequest::decode(body, version).expect("the proxy sends what can be read");
    let named = request.topics.into_iter().filter_map(|topic| {
        let name = if topic.topic_id == [0; 16] {
            topic.topic.as_str().to_owned()
        } else {
            topics.get(&topic.topic_id)?.clone()
        };
        Some(topic.partitions.into_iter().map(move |asked| (name.clone(), asked.partition)))
    });
    named.flatten().collect()
}

/// Of a ListOffsets.
pub(super) fn listed(body: &Bytes, version: i16) -> Vec<(String, i32)> {
    let request = ListOffsetsRequest::decode(body, version).expect("the proxy sends what can be read");
    let named = request.topics.into_iter().map(|topic| {
        let name = topic.name.as_str().to_owned();
        topic.partitions.into_iter().map(move |asked| (name.clone(), asked.partition_index))
    });
    named.flatten().collect()
}

/// Of an OffsetForLeaderEpoch.
pub(super) fn epochs(body: &Bytes, version: i16) -> Vec<(String, i32)> {
    let request = OffsetForLeaderEpochRequest::decode(body, version).expect("the proxy sends what can be read");
    let named = request.topics.into_iter().map(|topic| {
        let name = topic.topic.as_str().to_owned();
        topic.partitions.into_iter().map(move |asked| (name.clone(), asked.partition))
    });
    named.flatten().collect()
}
