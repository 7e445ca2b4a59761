//! Produce: append what is owned, tell etcd the new end, answer.

use super::job::{Answer, Job, Writing, partition_resource};
use super::lease::Kind;
use super::log::{PartitionLog, SharedLog};
use super::{BrokerModel, Effect, Fault, hints, keys};
use crate::kafka::{
    ErrorCode, PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use crate::time::Now;

/// First version of Produce with tagged fields.
const FIRST_TAGGED: i16 = 9;

impl BrokerModel {
    /// `None` when the broker crashed over it, or its connection is gone.
    pub(super) fn answer_produce(
        &mut self,
        now: Now,
        job: &Job,
        request: &ProduceRequest,
        log: &mut SharedLog,
        effects: &mut Vec<Effect>,
    ) -> Option<Answer> {
        let closes = self.take_fault(|fault| match fault {
            Fault::CloseUnappended => Some(()),
            Fault::RefuseProduce(_)
            | Fault::CrashAfterAppend
            | Fault::WrongCorrelation
            | Fault::MissingPartition
            | Fault::LeaderHints(_) => None,
        });
        if closes.is_some() {
            self.close(job.head.connection, effects);
            return None;
        }
        let refusal = self.take_fault(|fault| match fault {
            Fault::RefuseProduce(code) => Some(*code),
            Fault::CrashAfterAppend
            | Fault::WrongCorrelation
            | Fault::MissingPartition
            | Fault::CloseUnappended
            | Fault::LeaderHints(_) => None,
        });
        let mut writing = Writing::default();
        let mut response = ProduceResponse::default();
        for topic in &request.topic_data {
            let mut answers = Vec::with_capacity(topic.partition_data.len());
            for partition in &topic.partition_data {
                let appended = match refusal {
                    Some(code) => Err(code),
                    None => self.append(job, &topic.name, partition, log, &mut writing),
                };
                let index = partition.index;
                answers.push(match appended {
                    Ok(base_offset) => PartitionProduceResponse {
                        index,
                        base_offset,
                        log_append_time_ms: now.unix_ms,
                        log_start_offset: 0,
                        ..PartitionProduceResponse::default()
                    },
                    Err(error_code) => {
                        PartitionProduceResponse { index, error_code, ..PartitionProduceResponse::default() }
                    }
                });
            }
            response.responses.push(TopicProduceResponse { name: topic.name.clone(), partition_responses: answers });
        }
        let crashes = self.take_fault(|fault| match fault {
            Fault::CrashAfterAppend => Some(()),
            Fault::RefuseProduce(_)
            | Fault::WrongCorrelation
            | Fault::MissingPartition
            | Fault::CloseUnappended
            | Fault::LeaderHints(_) => None,
        });
        if crashes.is_some() {
            self.crash(effects);
            return None;
        }
        if self.takes_missing_partition()
            && let Some(topic) = response.responses.last_mut()
        {
            topic.partition_responses.pop();
        }
        if request.acks != 0 {
            let mut frame = job.head.frame(&response);
            if job.head.version >= FIRST_TAGGED
                && let Some(host) = self.takes_leader_hints()
            {
                frame = hints::with_endpoint(&frame, self.settings.id, host);
            }
            // The records are stored; brokers only log that etcd did not take the new end, and acknowledge.
            writing.failed = Some(frame.clone());
            writing.written = Some(frame);
        }
        Some(Answer::AfterWrites(writing))
    }

    fn append(
        &mut self,
        job: &Job,
        topic: &str,
        partition: &PartitionProduceData,
        log: &mut SharedLog,
        writing: &mut Writing,
    ) -> Result<i64, ErrorCode> {
        job.ownership(Kind::Partition, &partition_resource(topic, partition.index))?;
        if job.failed_topics.contains(topic) {
            return Err(ErrorCode::UNKNOWN_SERVER_ERROR);
        }
        let records = partition.records.clone().unwrap_or_default();
        let base_offset = log.append(topic, partition.index, &records).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        let end = log.partition(topic, partition.index).map_or(0, PartitionLog::end_offset);
        writing.writes.put(keys::next_offset(topic, partition.index), end.to_string());
        writing.watermarks.push((topic.to_owned(), partition.index, end));
        Ok(base_offset)
    }
}
