//! Bytes written down by hand, for versions that the independent codec no longer knows.

use super::encoded;
use crate::kafka::message::Message;
use crate::kafka::{
    ErrorCode, ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, ListOffsetsTopicResponse, OffsetCommitRequest, OffsetCommitRequestPartition,
    OffsetCommitRequestTopic, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};

fn is<M: Message + PartialEq + std::fmt::Debug>(message: M, version: i16, parts: &[&[u8]]) {
    let bytes = encoded(&message, version);
    assert_eq!(bytes, parts.concat());
    assert_eq!(M::decode(&bytes, version), Ok(message));
}

fn produce_response(partition: PartitionProduceResponse, throttle_time_ms: i32) -> ProduceResponse {
    let responses = vec![TopicProduceResponse { name: "t".into(), partition_responses: vec![partition] }];
    ProduceResponse { responses, throttle_time_ms }
}

const TOPIC: &[u8] = &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1];

#[test]
fn produce_responses_of_old() {
    let partition = PartitionProduceResponse {
        index: 5,
        error_code: ErrorCode::UNSUPPORTED_VERSION,
        base_offset: -1,
        ..PartitionProduceResponse::default()
    };
    let common: &[u8] = &[0, 0, 0, 5, 0, 35];
    let offset = &(-1_i64).to_be_bytes();
    is(produce_response(partition.clone(), 0), 0, &[TOPIC, common, offset]);
    is(produce_response(partition.clone(), 9), 1, &[TOPIC, common, offset, &[0, 0, 0, 9]]);
    let at = PartitionProduceResponse { log_append_time_ms: 3, ..partition };
    is(produce_response(at, 9), 2, &[TOPIC, common, offset, &3_i64.to_be_bytes(), &[0, 0, 0, 9]]);
}

#[test]
fn list_offsets_0_answers_arrays() {
    let partition =
        ListOffsetsPartition { partition_index: 5, timestamp: -2, max_num_offsets: 1, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: "t".into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let parts: &[&[u8]] = &[&[0xff; 4], TOPIC, &[0, 0, 0, 5], &(-2_i64).to_be_bytes(), &[0, 0, 0, 1]];
    is(request, 0, parts);

    let partition = ListOffsetsPartitionResponse {
        partition_index: 5,
        error_code: ErrorCode::NONE,
        old_style_offsets: vec![7, 0],
        ..Default::default()
    };
    let topics = vec![ListOffsetsTopicResponse { name: "t".into(), partitions: vec![partition] }];
    let response = ListOffsetsResponse { topics, ..Default::default() };
    let offsets = &[7_i64.to_be_bytes(), 0_i64.to_be_bytes()].concat();
    is(response, 0, &[TOPIC, &[0, 0, 0, 5, 0, 0, 0, 0, 0, 2], offsets]);
}

#[test]
fn offset_commit_1_has_timestamps() {
    let partition = OffsetCommitRequestPartition {
        partition_index: 5,
        committed_offset: 7,
        commit_timestamp: 11,
        committed_metadata: Some("m".into()),
        ..Default::default()
    };
    let topics = vec![OffsetCommitRequestTopic { name: "t".into(), partitions: vec![partition] }];
    let request = OffsetCommitRequest {
        group_id: "g".into(),
        generation_id: 2,
        member_id: "i".into(),
        topics,
        ..Default::default()
    };
    let group: &[u8] = &[0, 1, b'g', 0, 0, 0, 2, 0, 1, b'i'];
    let offset_and_time = &[7_i64.to_be_bytes(), 11_i64.to_be_bytes()].concat();
    is(request, 1, &[group, TOPIC, &[0, 0, 0, 5], offset_and_time, &[0, 1, b'm']]);
}
