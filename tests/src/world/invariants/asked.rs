//! Which partitions a request to a broker asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::Monotonic;
use kafscale_proxy_core::kafka::{FetchRequest, ListOffsetsRequest, Message, OffsetForLeaderEpochRequest};

/// Names of topics by the ids that the list in etcd has for them. They change when topics are made anew.
pub(super) struct TopicNames {
    /// Knowledge of the list lives so long.
    ttl: Duration,
    /// Since when an id is listed without a break.
    listed: BTreeMap<[u8; 16], (String, Monotonic)>,
}

impl TopicNames {
    pub(super) const fn new(ttl: Duration) -> Self {
        Self { ttl, listed: BTreeMap::new() }
    }

    /// The list was written.
    pub(super) fn are(&mut self, now: Monotonic, ids: impl Iterator<Item = ([u8; 16], String)>) {
        let mut before = std::mem::take(&mut self.listed);
        for (id, name) in ids {
            let same = before.remove(&id).filter(|(was, _)| *was == name);
            self.listed.insert(id, same.unwrap_or((name, now)));
        }
    }

    /// The name that belongs to an id, if every shard that serves must know it. Of any other, whoever is asked says that it is
    /// unknown, so that anybody may be asked.
    fn name(&self, id: &[u8; 16], now: Monotonic) -> Option<&str> {
        let (name, since) = self.listed.get(id)?;
        let from_the_start = *since == Monotonic::ZERO;
        (from_the_start || now.since(*since) > self.ttl).then_some(name)
    }
}

/// Of a Fetch, by name or by an id that must be known.
pub(super) fn fetched(body: &Bytes, version: i16, topics: &TopicNames, now: Monotonic) -> Vec<(String, i32)> {
    let request = FetchRequest::decode(body, version).expect("the proxy sends what can be read");
    let named = request.topics.into_iter().filter_map(|topic| {
        let name = if topic.topic_id == [0; 16] {
            topic.topic.as_str().to_owned()
        } else {
            topics.name(&topic.topic_id, now)?.to_owned()
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

#[cfg(test)]
mod tests {
    use kafscale_proxy_core::kafka::{FetchPartition, FetchTopic, RequestHeader, request_frame};

    use super::*;

    const TTL: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Monotonic {
        Monotonic::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_topic_that_was_made_anew_is_judged_again_when_everybody_must_know_its_id() {
        let (first, second) = ([1; 16], [2; 16]);
        let listed = |id| [(id, "t".to_owned())].into_iter();
        let mut names = TopicNames::new(TTL);
        names.are(at(0), listed(first));
        assert_eq!(names.name(&first, at(0)), Some("t"), "it is there from the start");
        names.are(at(100), listed(second));
        assert_eq!([names.name(&first, at(100)), names.name(&second, at(115))], [None, None]);
        names.are(at(110), listed(second));
        assert_eq!(names.name(&second, at(116)), Some("t"), "and was listed all the time");

        let partition = FetchPartition { partition: 3, ..FetchPartition::default() };
        let topic = |topic_id| FetchTopic { topic: "t".into(), topic_id, partitions: vec![partition.clone()] };
        let request = FetchRequest { topics: vec![topic(first), topic(second)], ..FetchRequest::default() };
        for (version, asked) in [(12, vec![("t".to_owned(), 3); 2]), (13, vec![("t".to_owned(), 3)])] {
            let frame = request_frame(1, None, version, &request);
            let (_, body_at) = RequestHeader::decode(&frame).unwrap();
            assert_eq!(fetched(&frame.slice(body_at..), version, &names, at(116)), asked, "version {version}");
        }
    }
}
