//! ListOffsets and OffsetForLeaderEpoch: split by partition owner.

use super::{Items, Place};
use crate::kafka::{
    ErrorCode, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
    ListOffsetsTopicResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResult, OffsetForLeaderTopic, OffsetForLeaderTopicResult, Str,
};
use crate::listener::routes::Key;

/// An answer with the topic that it belongs to.
#[derive(Debug)]
pub(crate) struct OfTopic<A> {
    topic: Str,
    answer: A,
}

fn key(topic: &Str, partition: i32) -> Key {
    Key::Partition { topic: topic.as_str().to_owned(), partition }
}

fn place(topic: &Str, partition: i32, entry: usize, index: usize) -> Place {
    Place { key: key(topic, partition), entry, index }
}

/// The same topics, each with those of its partitions only whose item numbers are in `items`.
fn only<T: Clone, P: Clone>(topics: &[T], partitions: fn(&mut T) -> &mut Vec<P>, items: &[usize]) -> Vec<T> {
    let mut chosen = Vec::new();
    let mut wanted = items.iter().copied().peekable();
    let mut first = 0;
    for topic in topics {
        let mut topic = topic.clone();
        let all = std::mem::take(partitions(&mut topic));
        let end = first + all.len();
        for (item, partition) in (first..).zip(all) {
            if wanted.next_if_eq(&item).is_some() {
                partitions(&mut topic).push(partition);
            }
        }
        first = end;
        if !partitions(&mut topic).is_empty() {
            chosen.push(topic);
        }
    }
    chosen
}

/// Two APIs that differ in names only: of the types, of the topic's name and of the partition's number.
macro_rules! split_by_owner {
    ($request:ident, $topic:ident, $response:ident, $answered:ident, $answer:ident, $name:ident, $index:ident) => {
        impl Items for $request {
            type Item = OfTopic<$answer>;

            const MOVED: ErrorCode = ErrorCode::NOT_LEADER_OR_FOLLOWER;
            const UNSENT: ErrorCode = ErrorCode::REQUEST_TIMED_OUT;
            const OWNER_ONLY: bool = true;
            const REPEATABLE: bool = true;
            const CHANGES_METADATA: bool = false;

            fn places(&self) -> Vec<Place> {
                let mut places = Vec::new();
                for (entry, topic) in self.topics.iter().enumerate() {
                    let partitions = topic.partitions.iter().enumerate();
                    places.extend(partitions.map(|(index, asked)| place(&topic.$name, asked.$index, entry, index)));
                }
                places
            }

            fn only(&self, items: &[usize]) -> Self {
                let topics = only(&self.topics, |topic: &mut $topic| &mut topic.partitions, items);
                Self { topics, ..*self }
            }

            fn take(response: $response) -> (Vec<Self::Item>, i32) {
                let mut answers = Vec::new();
                for topic in response.topics {
                    let name = topic.$name;
                    answers.extend(topic.partitions.into_iter().map(|answer| OfTopic { topic: name.clone(), answer }));
                }
                (answers, response.throttle_time_ms)
            }

            fn key(answer: &Self::Item) -> Key {
                key(&answer.topic, answer.answer.$index)
            }

            fn code(answer: &Self::Item) -> ErrorCode {
                answer.answer.error_code
            }

            fn failed(&self, place: &Place, code: ErrorCode) -> Self::Item {
                let topic = &self.topics[place.entry];
                let answer =
                    $answer { $index: topic.partitions[place.index].$index, error_code: code, ..$answer::default() };
                OfTopic { topic: topic.$name.clone(), answer }
            }

            fn merge(&self, answers: Vec<Self::Item>, throttle_time_ms: i32) -> $response {
                let mut answers = answers.into_iter().map(|answer| answer.answer);
                let topics = self
                    .topics
                    .iter()
                    .map(|topic| $answered {
                        $name: topic.$name.clone(),
                        partitions: answers.by_ref().take(topic.partitions.len()).collect(),
                    })
                    .collect();
                $response { throttle_time_ms, topics }
            }
        }
    };
}

split_by_owner!(
    ListOffsetsRequest,
    ListOffsetsTopic,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    ListOffsetsPartitionResponse,
    name,
    partition_index
);
split_by_owner!(
    OffsetForLeaderEpochRequest,
    OffsetForLeaderTopic,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
    OffsetForLeaderPartitionResult,
    topic,
    partition
);
