//! Reading what routing needs of Produce requests and responses, without building them.
//!
//! A scan walks the whole body, so that one that succeeds is as good as a decoded message.

use std::ops::Range;

use nom::Parser;
use nom::number::complete::{be_i16, be_i32, be_i64};

use super::api::ApiKey;
use super::decode::{DecodeError, Elements, whole};
use super::error_code::ErrorCode;
use super::scan::{Scanned, array_length, layout, nullable_bytes, nullable_string, string, tags};
use super::wire::Layout;

/// What stands before the partitions of a Produce request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceHead<'a> {
    /// Transactional id, or null if the producer is not transactional.
    pub transactional_id: Option<&'a str>,
    /// Acknowledgements wanted: 0 none at all, 1 of the leader, -1 of all in-sync replicas.
    pub acks: i16,
    /// How long a broker may wait for the acknowledgements, milliseconds.
    pub timeout_ms: i32,
}

/// One partition of a Produce request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducedPartition<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Partition index.
    pub index: i32,
    /// Where in the body its record set lies; `None` if it is null.
    pub records: Option<Range<usize>>,
}

/// Walks a Produce request of any known version; `visit` gets each partition, in order.
pub fn scan_produce_request<'a>(
    body: &'a [u8],
    version: i16,
    visit: impl FnMut(ProducedPartition<'a>),
) -> Result<ProduceHead<'a>, DecodeError> {
    let layout = layout(ApiKey::Produce, version)?;
    whole(body, |input| request(input, body.len(), layout, visit))
}

fn request<'a>(
    input: &'a [u8],
    body_len: usize,
    layout: Layout,
    mut visit: impl FnMut(ProducedPartition<'a>),
) -> Scanned<'a, ProduceHead<'a>> {
    let elements = Elements::new();
    let (rest, transactional_id) = if layout.version >= 3 { nullable_string(input, layout)? } else { (input, None) };
    let (rest, (acks, timeout_ms)) = (be_i16, be_i32).parse(rest)?;
    let (mut rest, topics) = array_length(rest, layout, &elements)?;
    for _ in 0..topics {
        let (after, topic) = string(rest, layout)?;
        let (mut after, partitions) = array_length(after, layout, &elements)?;
        for _ in 0..partitions {
            let (behind, index) = be_i32(after)?;
            let (behind, records) = nullable_bytes(behind, layout)?;
            let end = body_len - behind.len();
            visit(ProducedPartition { topic, index, records: records.map(|records| end - records.len()..end) });
            (after, _) = tags(behind, layout, &elements, &[])?;
        }
        (rest, _) = tags(after, layout, &elements, &[])?;
    }
    let (rest, _) = tags(rest, layout, &elements, &[])?;
    Ok((rest, ProduceHead { transactional_id, acks, timeout_ms }))
}

/// What a Produce response says beside its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceAnswer {
    /// How long the request was held back by a quota, milliseconds.
    pub throttle_time_ms: i32,
    /// It carries tagged fields, which may name brokers: it must be encoded anew, without them, for a client.
    pub leader_hints: bool,
}

/// Walks a Produce response of any known version; `visit` gets topic name, partition index, error and base offset of
/// each partition, in order.
pub fn scan_produce_response<'a>(
    body: &'a [u8],
    version: i16,
    visit: impl FnMut(&'a str, i32, ErrorCode, i64),
) -> Result<ProduceAnswer, DecodeError> {
    let layout = layout(ApiKey::Produce, version)?;
    whole(body, |input| response(input, layout, visit))
}

fn response<'a>(
    input: &'a [u8],
    layout: Layout,
    mut visit: impl FnMut(&'a str, i32, ErrorCode, i64),
) -> Scanned<'a, ProduceAnswer> {
    let elements = Elements::new();
    let mut leader_hints = false;
    let (mut rest, topics) = array_length(input, layout, &elements)?;
    for _ in 0..topics {
        let (after, topic) = string(rest, layout)?;
        let (mut after, partitions) = array_length(after, layout, &elements)?;
        for _ in 0..partitions {
            let (behind, (index, error, base_offset, found)) = partition_response(after, layout, &elements)?;
            visit(topic, index, error, base_offset);
            leader_hints |= found;
            after = behind;
        }
        let (after, found) = tags(after, layout, &elements, &[])?;
        leader_hints |= found;
        rest = after;
    }
    let (rest, throttle_time_ms) = if layout.version >= 1 { be_i32(rest)? } else { (rest, 0) };
    let (rest, found) = tags(rest, layout, &elements, &[])?;
    leader_hints |= found;
    Ok((rest, ProduceAnswer { throttle_time_ms, leader_hints }))
}

fn partition_response<'a>(
    input: &'a [u8],
    layout: Layout,
    elements: &Elements,
) -> Scanned<'a, (i32, ErrorCode, i64, bool)> {
    let mut leader_hints = false;
    let (mut rest, (index, error, base_offset)) = (be_i32, be_i16.map(ErrorCode), be_i64).parse(input)?;
    if layout.version >= 2 {
        (rest, _) = be_i64(rest)?;
    }
    if layout.version >= 5 {
        (rest, _) = be_i64(rest)?;
    }
    if layout.version >= 8 {
        let (mut after, errors) = array_length(rest, layout, elements)?;
        for _ in 0..errors {
            let (behind, _) = be_i32(after)?;
            let (behind, _) = nullable_string(behind, layout)?;
            let (behind, found) = tags(behind, layout, elements, &[])?;
            leader_hints |= found;
            after = behind;
        }
        (rest, _) = nullable_string(after, layout)?;
    }
    let (rest, found) = tags(rest, layout, elements, &[])?;
    Ok((rest, (index, error, base_offset, leader_hints | found)))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::*;
    use crate::kafka::tests::{damaged, encoded, sample, versions};
    use crate::kafka::{Message, ProduceRequest, ProduceResponse};

    proptest! {
        #[test]
        fn requests_scan_as_they_decode(bytes in vec(any::<u8>(), 0..200)) {
            for version in versions::<ProduceRequest>() {
                let request: ProduceRequest = sample(&bytes, version);
                let body = encoded(&request, version);
                let mut partitions = Vec::new();
                let head = scan_produce_request(&body, version, |partition| partitions.push(partition)).unwrap();
                assert_eq!(head, ProduceHead {
                    transactional_id: request.transactional_id.as_deref(),
                    acks: request.acks,
                    timeout_ms: request.timeout_ms,
                });
                let expected = request.topic_data.iter().flat_map(|topic| {
                    topic.partition_data.iter().map(|partition| (&*topic.name, partition.index, partition.records.clone()))
                });
                let scanned = partitions.into_iter().map(|partition| {
                    (partition.topic, partition.index, partition.records.map(|range| body.slice(range)))
                });
                assert!(scanned.eq(expected), "version {version}");
            }
        }

        #[test]
        fn responses_scan_as_they_decode(bytes in vec(any::<u8>(), 0..200)) {
            for version in versions::<ProduceResponse>() {
                let response: ProduceResponse = sample(&bytes, version);
                let body = encoded(&response, version);
                let mut partitions = Vec::new();
                let answer = scan_produce_response(&body, version, |topic, index, error, base_offset| {
                    partitions.push((topic, index, error, base_offset));
                });
                let expected = ProduceAnswer { throttle_time_ms: response.throttle_time_ms, leader_hints: false };
                assert_eq!(answer, Ok(expected));
                let expected = response.responses.iter().flat_map(|topic| {
                    topic.partition_responses.iter().map(|partition| (&*topic.name, partition.index, partition.error_code, partition.base_offset))
                });
                assert!(partitions.into_iter().eq(expected), "version {version}");
            }
        }

        #[test]
        fn what_scans_is_what_decodes(bytes in vec(any::<u8>(), 0..80), at: usize, value: u8) {
            for version in versions::<ProduceRequest>() {
                let body = damaged::<ProduceRequest>(&bytes, version, at, value);
                let scanned = scan_produce_request(&body, version, |_| ()).map(|_| ());
                assert_eq!(scanned, ProduceRequest::decode(&body, version).map(|_| ()), "version {version}");
                let body = damaged::<ProduceResponse>(&bytes, version, at, value);
                let scanned = scan_produce_response(&body, version, |_, _, _, _| ()).map(|_| ());
                assert_eq!(scanned, ProduceResponse::decode(&body, version).map(|_| ()), "version {version}");
            }
        }
    }

    #[test]
    fn tagged_fields_of_a_response_are_reported() {
        let plain = encoded(&ProduceResponse::default(), 9);
        let mut tagged = BytesMut::from(&plain[..plain.len() - 1]);
        tagged.extend_from_slice(&[1, 0, 1, 0]);
        let answer = scan_produce_response(&tagged, 9, |_, _, _, _| ()).unwrap();
        assert!(answer.leader_hints);
    }
}
