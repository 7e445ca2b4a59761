//! The record that stands for a blob on the topic: one Produce request with one batch of one record, and its answer.

use bytes::{Bytes, BytesMut};

use crate::kafka::{
    ApiKey, ErrorCode, Message, PartitionProduceData, ProduceRequest, ProduceResponse, Record, ResponseHeader, Str,
    TopicProduceData, build_batch, request_frame,
};

/// The version in which it is sent: the newest that KafScale brokers speak.
const VERSION: i16 = 9;
/// Acknowledged by the leader.
const ACKS: i16 = 1;
/// How long the broker may take.
const TIMEOUT_MS: i32 = 15_000;

/// The whole frame of a Produce request with one record.
///
/// `unix_ms` becomes the record's timestamp: a record from 1970 would be dropped by time retention.
pub(crate) fn request(
    topic: &str,
    partition: i32,
    key: Option<Bytes>,
    value: Bytes,
    unix_ms: i64,
    correlation_id: i32,
) -> Bytes {
    let record = Record { key, value: Some(value), ..Record::default() };
    let data = PartitionProduceData { index: partition, records: Some(build_batch(unix_ms, [record])) };
    let topic = TopicProduceData { name: Str::from(topic), partition_data: vec![data] };
    let request =
        ProduceRequest { transactional_id: None, acks: ACKS, timeout_ms: TIMEOUT_MS, topic_data: vec![topic] };
    request_frame(correlation_id, None, VERSION, &request)
}

/// What a broker answered about the one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) error_code: ErrorCode,
    /// Offset of the record, when there is no error.
    pub(crate) base_offset: i64,
}

/// Reads an answer, whole frame. `None` when it does not decode, does not name the partition, or has neither an error nor
/// an offset.
pub(crate) fn answer(frame: BytesMut, topic: &str, partition: i32) -> Option<Answered> {
    let frame = frame.freeze();
    let (_, body_at) = ResponseHeader::decode(&frame, ApiKey::Produce, VERSION).ok()?;
    let response = ProduceResponse::decode(&frame.slice(body_at..), VERSION).ok()?;
    let of_topic = response.responses.iter().find(|answer| answer.name.as_str() == topic)?;
    let of_partition = of_topic.partition_responses.iter().find(|answer| answer.index == partition)?;
    let answered = Answered { error_code: of_partition.error_code, base_offset: of_partition.base_offset };
    (!answered.error_code.is_none() || answered.base_offset >= 0).then_some(answered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::{
        PartitionProduceResponse, RequestHeader, TopicProduceResponse, batches, records, response_frame,
    };

    #[test]
    fn one_batch_with_one_record_of_now() {
        let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(b"{}"));
        let frame = request("orders", 3, Some(key.clone()), value.clone(), 1_795_952_645_123, 9);
        let (header, body) = RequestHeader::decode(&frame).unwrap();
        assert_eq!((header.api_key, header.api_version, header.correlation_id), (0, 9, 9));
        assert_eq!(header.client_id, None);
        let request = ProduceRequest::decode(&frame.slice(body..), 9).unwrap();
        assert_eq!((request.acks, request.timeout_ms, request.transactional_id), (1, 15_000, None));
        let topic = &request.topic_data[0];
        assert_eq!((topic.name.as_str(), topic.partition_data[0].index), ("orders", 3));
        let set = topic.partition_data[0].records.clone().unwrap();
        let batch = batches(&set).next().unwrap().unwrap();
        batch.check_crc().unwrap();
        let header = batch.header;
        assert_eq!((header.base_timestamp, header.max_timestamp), (1_795_952_645_123, 1_795_952_645_123));
        assert_eq!((header.base_offset, header.partition_leader_epoch, header.last_offset_delta), (0, -1, 0));
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (-1, -1, -1));
        let expected = Record { key: Some(key), value: Some(value), ..Record::default() };
        assert_eq!(records(&batch.body(), header.record_count), Ok(vec![expected]));
    }

    fn answer_of(topic: &'static str, index: i32, error_code: ErrorCode, base_offset: i64) -> BytesMut {
        let partition =
            PartitionProduceResponse { index, error_code, base_offset, ..PartitionProduceResponse::default() };
        let topic = TopicProduceResponse { name: Str::from_static(topic), partition_responses: vec![partition] };
        let response = ProduceResponse { responses: vec![topic], ..ProduceResponse::default() };
        BytesMut::from(&response_frame(9, VERSION, &response)[..])
    }

    #[test]
    fn success_has_an_offset() {
        let refused = ErrorCode::NOT_LEADER_OR_FOLLOWER;
        for (error_code, base_offset, makes_sense) in [
            (ErrorCode::NONE, 0, true),
            (ErrorCode::NONE, -1, false),
            (ErrorCode::NONE, i64::MIN, false),
            (refused, -1, true),
            (refused, 5, true),
        ] {
            let expected = makes_sense.then_some(Answered { error_code, base_offset });
            assert_eq!(answer(answer_of("t", 3, error_code, base_offset), "t", 3), expected);
        }
    }

    #[test]
    fn an_answer_must_name_the_partition() {
        let of = |topic, index| answer_of(topic, index, ErrorCode::NOT_LEADER_OR_FOLLOWER, 17);
        let expected = Answered { error_code: ErrorCode::NOT_LEADER_OR_FOLLOWER, base_offset: 17 };
        assert_eq!(answer(of("t", 3), "t", 3), Some(expected));
        assert_eq!(answer(of("t", 2), "t", 3), None);
        assert_eq!(answer(of("u", 3), "t", 3), None);
        let cut = of("t", 3);
        assert_eq!(answer(BytesMut::from(&cut[..cut.len() - 1]), "t", 3), None);
        assert_eq!(answer(BytesMut::new(), "t", 3), None);
    }
}
