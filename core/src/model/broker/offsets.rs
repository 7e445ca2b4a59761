//! Ends of logs: ListOffsets and OffsetForLeaderEpoch.

use super::BrokerModel;
use super::job::Job;
use super::keys;
use super::log::{PartitionLog, SharedLog};
use crate::kafka::{
    ErrorCode, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
};

/// The timestamp that asks for the start of the log.
pub(super) const EARLIEST: i64 = -2;

impl BrokerModel {
    /// Knows the start of a log; every other timestamp gets its end.
    pub(super) fn answer_list_offsets(
        &self,
        job: &Job,
        request: &ListOffsetsRequest,
        log: &SharedLog,
    ) -> ListOffsetsResponse {
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let partition_index = asked.partition_index;
                let found = if asked.timestamp == EARLIEST {
                    let start = log.partition(&topic.name, partition_index).map(PartitionLog::start_offset);
                    Some(start.unwrap_or(0)).filter(|_| !job.failed_topics.contains(topic.name.as_str()))
                } else {
                    self.next_offset(job, &topic.name, partition_index).ok()
                };
                match found {
                    Some(offset) => ListOffsetsPartitionResponse {
                        partition_index,
                        old_style_offsets: vec![offset],
                        timestamp: asked.timestamp,
                        offset,
                        ..ListOffsetsPartitionResponse::default()
                    },
                    None => ListOffsetsPartitionResponse {
                        partition_index,
                        error_code: ErrorCode::UNKNOWN_SERVER_ERROR,
                        ..ListOffsetsPartitionResponse::default()
                    },
                }
            });
            ListOffsetsTopicResponse { name: topic.name.clone(), partitions: partitions.collect() }
        });
        ListOffsetsResponse { topics: topics.collect(), ..ListOffsetsResponse::default() }
    }

    pub(super) fn answer_offset_for_leader_epoch(
        &self,
        job: &Job,
        request: &OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse {
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let partition = asked.partition;
                match self.next_offset(job, &topic.topic, partition) {
                    Ok(end_offset) => OffsetForLeaderPartitionResult {
                        partition,
                        leader_epoch: 0,
                        end_offset,
                        ..OffsetForLeaderPartitionResult::default()
                    },
                    Err(error_code) => OffsetForLeaderPartitionResult {
                        partition,
                        error_code,
                        ..OffsetForLeaderPartitionResult::default()
                    },
                }
            });
            OffsetForLeaderTopicResult { topic: topic.topic.clone(), partitions: partitions.collect() }
        });
        OffsetForLeaderEpochResponse { topics: topics.collect(), ..OffsetForLeaderEpochResponse::default() }
    }

    /// The end of a log as etcd has it.
    fn next_offset(&self, job: &Job, topic: &str, partition: i32) -> Result<i64, ErrorCode> {
        if !self.snapshot.has_partition(topic, partition) {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        if job.read_failed {
            return Err(ErrorCode::UNKNOWN_SERVER_ERROR);
        }
        match job.read.get(&keys::next_offset(topic, partition)) {
            None => Ok(0),
            Some(kv) => std::str::from_utf8(&kv.value)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or(ErrorCode::UNKNOWN_SERVER_ERROR),
        }
    }
}
