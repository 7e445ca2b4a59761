//! Reading and changing Fetch requests and responses where they lie, without building them.
//!
//! A scan walks the whole body, tagged fields excepted, so that one that succeeds decodes, too. Nothing that is patched
//! changes the length of anything.

use nom::Parser;
use nom::bytes::complete::take;
use nom::number::complete::{be_i8, be_i16, be_i32, be_i64};

use super::api::ApiKey;
use super::decode::{DecodeError, Elements, prefix, whole};
use super::error_code::ErrorCode;
use super::scan::{Scanned, array_length, layout, nullable_array_length, nullable_bytes, string, tags};
use super::wire::Layout;
use crate::planted::{Bug, planted};

/// How a Fetch request or response names a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicRef<'a> {
    /// By name, up to version 12.
    Name(&'a str),
    /// By id, from version 13.
    Id([u8; 16]),
}

fn topic_ref(input: &[u8], layout: Layout) -> Scanned<'_, TopicRef<'_>> {
    if layout.version >= 13 {
        let (rest, bytes) = take(16_usize)(input)?;
        let mut id = [0; 16];
        id.copy_from_slice(bytes);
        Ok((rest, TopicRef::Id(id)))
    } else {
        let (rest, name) = string(input, layout)?;
        Ok((rest, TopicRef::Name(name)))
    }
}

/// What stands before the partitions of a Fetch request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchHead {
    /// Broker id of a follower, -1 for a consumer.
    pub replica_id: i32,
    /// Longest wait for `min_bytes`, milliseconds.
    pub max_wait_ms: i32,
    /// Bytes to wait for.
    pub min_bytes: i32,
    /// Most bytes of the whole answer.
    pub max_bytes: i32,
    /// 0 reads everything, 1 only what is committed.
    pub isolation_level: i8,
    /// Fetch session, 0 for none.
    pub session_id: i32,
    /// Its epoch, -1 for none.
    pub session_epoch: i32,
}

const MAX_WAIT_AT: usize = 4;
const MIN_BYTES_AT: usize = 8;
const MAX_BYTES_AT: usize = 12;
const SESSION_ID_AT: usize = 17;
const SESSION_EPOCH_AT: usize = 21;

/// One partition of a Fetch request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedPartition<'a> {
    /// Topic.
    pub topic: TopicRef<'a>,
    /// Partition index.
    pub index: i32,
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Most bytes of this partition.
    pub max_bytes: i32,
}

/// Walks a Fetch request of any known version; `visit` gets each partition, in order.
pub fn scan_fetch_request<'a>(
    body: &'a [u8],
    version: i16,
    visit: impl FnMut(FetchedPartition<'a>),
) -> Result<FetchHead, DecodeError> {
    let layout = layout(ApiKey::Fetch, version)?;
    whole(body, |input| request(input, layout, visit))
}

fn request<'a>(input: &'a [u8], layout: Layout, mut visit: impl FnMut(FetchedPartition<'a>)) -> Scanned<'a, FetchHead> {
    let elements = Elements::new();
    let (rest, (replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level)) =
        (be_i32, be_i32, be_i32, be_i32, be_i8).parse(input)?;
    let (rest, (session_id, session_epoch)) =
        if layout.version >= 7 { (be_i32, be_i32).parse(rest)? } else { (rest, (0, -1)) };
    let (mut rest, topics) = array_length(rest, layout, &elements)?;
    for _ in 0..topics {
        let (after, topic) = topic_ref(rest, layout)?;
        let (mut after, partitions) = array_length(after, layout, &elements)?;
        for _ in 0..partitions {
            let (behind, (index, fetch_offset, max_bytes)) = fetch_partition(after, layout, &elements)?;
            visit(FetchedPartition { topic, index, fetch_offset, max_bytes });
            after = behind;
        }
        (rest, _) = tags(after, layout, &elements, &[])?;
    }
    if layout.version >= 7 {
        let (mut after, forgotten) = array_length(rest, layout, &elements)?;
        for _ in 0..forgotten {
            let (behind, _) = topic_ref(after, layout)?;
            let (mut behind, partitions) = array_length(behind, layout, &elements)?;
            for _ in 0..partitions {
                (behind, _) = be_i32(behind)?;
            }
            (after, _) = tags(behind, layout, &elements, &[])?;
        }
        rest = after;
    }
    if layout.version >= 11 {
        (rest, _) = string(rest, layout)?;
    }
    let (rest, _) = tags(rest, layout, &elements, &[])?;
    let head = FetchHead { replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch };
    Ok((rest, head))
}

fn fetch_partition<'a>(input: &'a [u8], layout: Layout, elements: &Elements) -> Scanned<'a, (i32, i64, i32)> {
    let (mut rest, index) = be_i32(input)?;
    if layout.version >= 9 {
        (rest, _) = be_i32(rest)?;
    }
    let (mut rest, fetch_offset) = be_i64(rest)?;
    if layout.version >= 12 {
        (rest, _) = be_i32(rest)?;
    }
    if layout.version >= 5 {
        (rest, _) = be_i64(rest)?;
    }
    let (rest, max_bytes) = be_i32(rest)?;
    let (rest, _) = tags(rest, layout, elements, &[])?;
    Ok((rest, (index, fetch_offset, max_bytes)))
}

/// Changes a Fetch request of a known version where it lies: how long a broker waits, for how many bytes, how many it
/// sends at most, and no session. `body` has been scanned before.
pub fn patch_fetch_request(
    body: &mut [u8],
    version: i16,
    max_wait_ms: i32,
    min_bytes: i32,
    max_bytes: i32,
) -> Result<(), DecodeError> {
    let layout = layout(ApiKey::Fetch, version)?;
    put(body, MAX_WAIT_AT, max_wait_ms)?;
    put(body, MIN_BYTES_AT, min_bytes)?;
    put(body, MAX_BYTES_AT, max_bytes)?;
    if layout.version >= 7 {
        put(body, SESSION_ID_AT, 0)?;
        put(body, SESSION_EPOCH_AT, -1)?;
    }
    Ok(())
}

fn put(body: &mut [u8], at: usize, value: i32) -> Result<(), DecodeError> {
    let field = body.get_mut(at..at + 4).ok_or(DecodeError::Truncated)?;
    field.copy_from_slice(&value.to_be_bytes());
    Ok(())
}

/// What a Fetch response says beside its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchAnswer {
    /// How long the request was held back by a quota, milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// Fetch session, 0 for none.
    pub session_id: i32,
    /// Bytes of all record sets together.
    pub record_bytes: usize,
    /// It carries tagged fields that may name brokers: it must be encoded anew, without them, for a client.
    pub leader_hints: bool,
}

/// One partition of a Fetch response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedData<'a> {
    /// Topic.
    pub topic: TopicRef<'a>,
    /// Partition index.
    pub index: i32,
    /// Its error, or none.
    pub error_code: ErrorCode,
    /// Bytes of its record set.
    pub record_bytes: usize,
}

/// Walks a Fetch response of any known version and makes every null record set an empty one, where it lies: librdkafka
/// takes null for damage. `visit` gets each partition, in order. After an error the body is not to be used.
pub fn patch_fetch_response(
    body: &mut [u8],
    version: i16,
    mut visit: impl FnMut(FetchedData<'_>),
) -> Result<FetchAnswer, DecodeError> {
    let layout = layout(ApiKey::Fetch, version)?;
    let elements = Elements::new();
    let mut walk = Walk { body, at: 0 };
    let (throttle_time_ms, error_code, session_id, topics) =
        walk.step(|input| response_head(input, layout, &elements))?;
    let mut answer = FetchAnswer { throttle_time_ms, error_code, session_id, record_bytes: 0, leader_hints: false };
    for _ in 0..topics {
        let topic_at = walk.at;
        let partitions = walk.step(|input| {
            let (rest, _) = topic_ref(input, layout)?;
            array_length(rest, layout, &elements)
        })?;
        for _ in 0..partitions {
            let mut partition = walk.step(|input| partition_data(input, layout, &elements))?;
            let records = walk.step_records(layout)?;
            partition.leader_hints |= walk.step(|input| tags(input, layout, &elements, PASSED_TAGS))?;
            let (_, topic) = prefix(&walk.body[topic_at..], |input| topic_ref(input, layout))?;
            visit(FetchedData {
                topic,
                index: partition.index,
                error_code: partition.error_code,
                record_bytes: records,
            });
            answer.record_bytes += records;
            answer.leader_hints |= partition.leader_hints;
        }
        answer.leader_hints |= walk.step(|input| tags(input, layout, &elements, &[]))?;
    }
    answer.leader_hints |= walk.step(|input| tags(input, layout, &elements, &[]))?;
    match walk.body.len() - walk.at {
        0 => Ok(answer),
        left => Err(DecodeError::Trailing(left)),
    }
}

/// DivergingEpoch and SnapshotId, which name no broker.
const PASSED_TAGS: &[u32] = &[0, 2];

fn response_head<'a>(
    input: &'a [u8],
    layout: Layout,
    elements: &Elements,
) -> Scanned<'a, (i32, ErrorCode, i32, usize)> {
    let (rest, throttle_time_ms) = be_i32(input)?;
    let (rest, (error_code, session_id)) =
        if layout.version >= 7 { (be_i16.map(ErrorCode), be_i32).parse(rest)? } else { (rest, (ErrorCode::NONE, 0)) };
    let (rest, topics) = array_length(rest, layout, elements)?;
    Ok((rest, (throttle_time_ms, error_code, session_id, topics)))
}

struct PartitionHead {
    index: i32,
    error_code: ErrorCode,
    leader_hints: bool,
}

/// A partition up to its record set.
fn partition_data<'a>(input: &'a [u8], layout: Layout, elements: &Elements) -> Scanned<'a, PartitionHead> {
    let (mut rest, (index, error_code, _, _)) = (be_i32, be_i16.map(ErrorCode), be_i64, be_i64).parse(input)?;
    if layout.version >= 5 {
        (rest, _) = be_i64(rest)?;
    }
    let mut leader_hints = false;
    let (mut rest, aborted) = nullable_array_length(rest, layout, elements)?;
    for _ in 0..aborted.unwrap_or(0) {
        let (after, _) = (be_i64, be_i64).parse(rest)?;
        let (after, found) = tags(after, layout, elements, &[])?;
        leader_hints |= found;
        rest = after;
    }
    if layout.version >= 11 {
        (rest, _) = be_i32(rest)?;
    }
    Ok((rest, PartitionHead { index, error_code, leader_hints }))
}

/// A body that is read step by step and changed in between.
struct Walk<'a> {
    body: &'a mut [u8],
    at: usize,
}

impl Walk<'_> {
    fn step<T>(&mut self, parser: impl for<'b> FnOnce(&'b [u8]) -> Scanned<'b, T>) -> Result<T, DecodeError> {
        let (rest, value) = prefix(&self.body[self.at..], parser)?;
        self.at = self.body.len() - rest.len();
        Ok(value)
    }

    /// Steps over a record set and tells its length; null becomes empty.
    fn step_records(&mut self, layout: Layout) -> Result<usize, DecodeError> {
        let length_at = self.at;
        let length = self.step(|input| {
            let (rest, records) = nullable_bytes(input, layout)?;
            Ok((rest, records.map(<[u8]>::len)))
        })?;
        if let Some(length) = length {
            return Ok(length);
        }
        if planted(Bug::NullRecordsPassed) {
            return Ok(0);
        }
        if layout.flexible {
            // A null may be written in more bytes than one; the first carries the low bits.
            self.body[length_at] |= 1;
        } else {
            put(self.body, length_at, 0)?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::*;
    use crate::kafka::tests::{damaged, encoded, sample, versions};
    use crate::kafka::{
        EpochEndOffset, FetchRequest, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, Message, PartitionData,
    };

    fn by_version<'a>(name: &'a str, id: [u8; 16], version: i16) -> TopicRef<'a> {
        if version >= 13 { TopicRef::Id(id) } else { TopicRef::Name(name) }
    }

    proptest! {
        #[test]
        fn requests_scan_as_they_decode_and_are_patched(bytes in vec(any::<u8>(), 0..200)) {
            for version in versions::<FetchRequest>() {
                let request: FetchRequest = sample(&bytes, version);
                let mut body = BytesMut::from(&encoded(&request, version)[..]);
                let mut partitions = Vec::new();
                let head = scan_fetch_request(&body, version, |partition| {
                    let topic = match partition.topic {
                        TopicRef::Name(name) => name.as_bytes().to_vec(),
                        TopicRef::Id(id) => id.to_vec(),
                    };
                    partitions.push((topic, partition.index, partition.fetch_offset, partition.max_bytes));
                }).unwrap();
                let expected = request.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |partition| {
                    let name = if version >= 13 { topic.topic_id.to_vec() } else { topic.topic.as_bytes().to_vec() };
                    (name, partition.partition, partition.fetch_offset, partition.partition_max_bytes)
                }));
                assert!(partitions.into_iter().eq(expected), "version {version}");
                assert_eq!(head, FetchHead {
                    replica_id: request.replica_id,
                    max_wait_ms: request.max_wait_ms,
                    min_bytes: request.min_bytes,
                    max_bytes: request.max_bytes,
                    isolation_level: request.isolation_level,
                    session_id: request.session_id,
                    session_epoch: request.session_epoch,
                });

                patch_fetch_request(&mut body, version, 11, 22, 33).unwrap();
                let patched = FetchRequest {
                    max_wait_ms: 11, min_bytes: 22, max_bytes: 33, session_id: 0, session_epoch: -1, ..request
                };
                assert_eq!(FetchRequest::decode(&body.freeze(), version), Ok(patched), "version {version}");
            }
        }

        #[test]
        fn responses_lose_their_null_record_sets_only(bytes in vec(any::<u8>(), 0..300)) {
            for version in versions::<FetchResponse>() {
                let mut response: FetchResponse = sample(&bytes, version);
                let mut body = BytesMut::from(&encoded(&response, version)[..]);
                let mut partitions = Vec::new();
                let answer = patch_fetch_response(&mut body, version, |partition| {
                    let topic = format!("{:?}", partition.topic);
                    partitions.push((topic, partition.index, partition.error_code, partition.record_bytes));
                }).unwrap();

                let mut expected = Vec::new();
                let mut leader_hints = false;
                for topic in &mut response.responses {
                    let name = format!("{:?}", by_version(&topic.topic, topic.topic_id, version));
                    for partition in &mut topic.partitions {
                        let records = partition.records.get_or_insert_default().len();
                        leader_hints |= partition.current_leader.is_some();
                        expected.push((name.clone(), partition.partition_index, partition.error_code, records));
                    }
                }
                assert_eq!(answer, FetchAnswer {
                    throttle_time_ms: response.throttle_time_ms,
                    error_code: response.error_code,
                    session_id: response.session_id,
                    record_bytes: expected.iter().map(|(_, _, _, records)| records).sum(),
                    leader_hints,
                });
                assert_eq!(partitions, expected, "version {version}");
                assert_eq!(FetchResponse::decode(&body.freeze(), version), Ok(response), "version {version}");
            }
        }

        #[test]
        fn what_scans_is_what_decodes(bytes in vec(any::<u8>(), 0..120), at: usize, value: u8) {
            for version in versions::<FetchRequest>() {
                let request = damaged::<FetchRequest>(&bytes, version, at, value);
                let response = damaged::<FetchResponse>(&bytes, version, at, value);
                let scanned = scan_fetch_request(&request, version, |_| ()).is_ok();
                let decoded = FetchRequest::decode(&request, version).is_ok();
                let patched = patch_fetch_response(&mut BytesMut::from(&response[..]), version, |_| ()).is_ok();
                let decoded_response = FetchResponse::decode(&response, version).is_ok();
                // Scans do not look into tagged fields, so they may pass what a decoder refuses; never the reverse.
                if version < 12 {
                    assert_eq!((scanned, patched), (decoded, decoded_response), "version {version}");
                } else {
                    assert!(scanned || !decoded, "version {version}");
                    assert!(patched || !decoded_response, "version {version}");
                }
            }
        }
    }

    fn one_partition(partition: PartitionData) -> FetchResponse {
        let topic = FetchableTopicResponse { topic: "t".into(), partitions: vec![partition], ..Default::default() };
        FetchResponse { responses: vec![topic], ..Default::default() }
    }

    #[test]
    fn leader_hints_are_told_from_diverging_epochs() {
        let diverging = PartitionData {
            diverging_epoch: Some(EpochEndOffset { epoch: 3, end_offset: 9 }),
            ..PartitionData::default()
        };
        let hint = Some(LeaderIdAndEpoch { leader_id: 7, leader_epoch: 2 });
        for (current_leader, expected) in [(None, false), (hint, true)] {
            let response = one_partition(PartitionData { current_leader, ..diverging.clone() });
            let mut body = BytesMut::from(&encoded(&response, 12)[..]);
            assert_eq!(patch_fetch_response(&mut body, 12, |_| ()).unwrap().leader_hints, expected);
        }
    }

    #[test]
    fn unknown_tags_of_a_response_are_leader_hints() {
        let plain = encoded(&FetchResponse::default(), 12);
        let mut tagged = BytesMut::from(&plain[..plain.len() - 1]);
        tagged.extend_from_slice(&[1, 0, 1, 0]);
        assert!(patch_fetch_response(&mut tagged, 12, |_| ()).unwrap().leader_hints);
    }

    /// The bytes that KafScale brokers send for an empty partition.
    #[test]
    fn null_is_patched_where_it_lies() {
        let response = one_partition(PartitionData::default());
        for (version, null, empty) in [(11, &[0xff; 4][..], &[0; 4][..]), (12, &[0], &[1])] {
            let body = encoded(&response, version);
            let mut patched = BytesMut::from(&body[..]);
            patch_fetch_response(&mut patched, version, |_| ()).unwrap();
            let changed = body.iter().zip(&patched).position(|(before, after)| before != after).unwrap();
            assert_eq!(&body[changed..changed + null.len()], null);
            assert_eq!(&patched[changed..changed + empty.len()], empty);
            assert_eq!(&body[changed + null.len()..], &patched[changed + empty.len()..]);
        }
    }
}
