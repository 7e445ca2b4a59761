//! Input that no honest peer sends.

use bytes::{BufMut, Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

use super::{damaged, encoded, for_every_message, sample, versions};
use crate::kafka::message::Message;
use crate::kafka::wire::put_unsigned_varint;
use crate::kafka::{
    DecodeError, DeleteGroupsRequest, FetchPartition, FetchRequest, FetchTopic, MAX_ELEMENTS, PartitionProduceData,
    ProduceRequest, TopicProduceData, scan_produce_request,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_truncation_is_an_error(bytes in vec(any::<u8>(), 0..60)) {
        macro_rules! check {
            ($message:ty) => {
                for version in versions::<$message>() {
                    let body = encoded::<$message>(&sample(&bytes, version), version);
                    for end in 0..body.len() {
                        assert!(<$message>::decode(&body.slice(..end), version).is_err(), "version {version}, {end}");
                    }
                    let mut longer = BytesMut::from(&body[..]);
                    longer.put_u8(0);
                    let longer = longer.freeze();
                    let whole = <$message>::decode(&longer, version);
                    assert_eq!(whole, Err(DecodeError::Trailing(1)), "version {version}");
                    assert_eq!(<$message>::decode_prefix(&longer, version), <$message>::decode(&body, version));
                }
            };
        }
        for_every_message!(check);
    }

    #[test]
    fn what_decodes_from_damaged_bytes_can_be_encoded(bytes in vec(any::<u8>(), 0..200), at: usize, value: u8) {
        macro_rules! check {
            ($message:ty) => {
                for version in versions::<$message>() {
                    let body = damaged::<$message>(&bytes, version, at, value);
                    if let Ok(message) = <$message>::decode(&body, version) {
                        let again = encoded(&message, version);
                        assert_eq!(<$message>::decode(&again, version), Ok(message), "version {version}");
                    }
                }
            };
        }
        for_every_message!(check);
    }
}

#[test]
fn absurd_array_lengths_are_refused() {
    // acks, timeout, then the topic array.
    let mut produce = BytesMut::new();
    produce.put_i16(-1);
    produce.put_i16(1);
    produce.put_i32(1000);
    produce.put_i32(i32::MAX);
    assert_eq!(ProduceRequest::decode(&produce.freeze(), 3), Err(DecodeError::Truncated));

    let mut flexible = BytesMut::new();
    flexible.put_u8(0);
    flexible.put_i16(1);
    flexible.put_i32(1000);
    flexible.put_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(ProduceRequest::decode(&flexible.freeze(), 9), Err(DecodeError::Truncated));
}

#[test]
fn messages_of_too_many_elements_are_refused() {
    let groups = |count: usize| {
        let mut body = BytesMut::new();
        body.put_i32(count as i32);
        body.put_bytes(0, 2 * count);
        body.freeze()
    };
    assert_eq!(DeleteGroupsRequest::decode(&groups(MAX_ELEMENTS), 0).map(|_| ()), Ok(()));
    assert_eq!(DeleteGroupsRequest::decode(&groups(MAX_ELEMENTS + 1), 0), Err(DecodeError::TooMany));
}

#[test]
fn lengths_below_null_are_refused() {
    let mut produce = BytesMut::new();
    produce.put_i16(-2);
    assert_eq!(ProduceRequest::decode(&produce.freeze(), 3), Err(DecodeError::Length));
}

#[test]
fn null_is_refused_where_there_is_none() {
    let mut produce = BytesMut::new();
    produce.put_i16(-1);
    produce.put_i16(1);
    produce.put_i32(1000);
    produce.put_i32(-1);
    assert_eq!(ProduceRequest::decode(&produce.freeze(), 3), Err(DecodeError::Null));
}

#[test]
fn versions_without_a_known_layout_are_refused() {
    for version in [i16::MIN, -1, 10, i16::MAX] {
        assert_eq!(ProduceRequest::decode(&Bytes::new(), version), Err(DecodeError::Version { key: 0, version }));
    }
    assert_eq!(FetchRequest::decode(&Bytes::new(), 3), Err(DecodeError::Version { key: 1, version: 3 }));
}

#[test]
fn unknown_tagged_fields_are_skipped_and_not_written_again() {
    let request = ProduceRequest { acks: 1, timeout_ms: 30, ..ProduceRequest::default() };
    let plain = encoded(&request, 9);
    let mut tagged = BytesMut::from(&plain[..plain.len() - 1]);
    // Two fields: tag 0 of one byte, tag 300 of none.
    tagged.put_slice(&[2, 0, 1, 0xee, 0xac, 0x02, 0]);
    let decoded = ProduceRequest::decode(&tagged.freeze(), 9).unwrap();
    assert_eq!(decoded, request);
    assert_eq!(encoded(&decoded, 9), plain);
}

#[test]
fn tagged_fields_are_counted_and_ascend() {
    let plain = encoded(&ProduceRequest { acks: 1, ..ProduceRequest::default() }, 9);
    let decode = |tags: &[u8]| {
        let mut tagged = BytesMut::from(&plain[..plain.len() - 1]);
        tagged.put_slice(tags);
        let scanned = scan_produce_request(&tagged, 9, |_| ()).map(|_| ());
        assert_eq!(ProduceRequest::decode(&tagged.freeze(), 9).map(|_| ()), scanned);
        scanned
    };
    assert_eq!(decode(&[2, 3, 0, 2, 0]), Err(DecodeError::TagOrder));
    assert_eq!(decode(&[2, 3, 0, 3, 0]), Err(DecodeError::TagOrder));
    let fields = u32::try_from(MAX_ELEMENTS).unwrap();
    for (count, expected) in [(fields, Ok(())), (fields + 1, Err(DecodeError::TooMany))] {
        let mut tags = BytesMut::new();
        put_unsigned_varint(&mut tags, count);
        for tag in 0..count {
            put_unsigned_varint(&mut tags, tag);
            tags.put_u8(0);
        }
        assert_eq!(decode(&tags), expected);
    }
}

#[test]
fn record_sets_share_the_frame() {
    let records = Bytes::from_static(b"not looked at");
    let request = ProduceRequest {
        topic_data: vec![TopicProduceData {
            name: "t".into(),
            partition_data: vec![PartitionProduceData { index: 0, records: Some(records) }],
        }],
        ..ProduceRequest::default()
    };
    let body = encoded(&request, 8);
    let decoded = ProduceRequest::decode(&body, 8).unwrap();
    let records = decoded.topic_data[0].partition_data[0].records.as_ref().unwrap();
    assert!(body.as_ptr_range().contains(&records.as_ptr()));
}

#[test]
fn what_a_version_cannot_carry_is_named() {
    let partition = FetchPartition { last_fetched_epoch: 3, ..FetchPartition::default() };
    let topics = vec![FetchTopic { topic: "t".into(), partitions: vec![partition], ..FetchTopic::default() }];
    let request = FetchRequest { topics, ..FetchRequest::default() };
    assert_eq!(request.lost_in(11), Some("last_fetched_epoch"));
    assert_eq!(request.lost_in(12), None);
    assert_eq!(request.lost_in(13), Some("topic"));
}
