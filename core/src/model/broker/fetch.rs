//! Fetch: partition after partition, each with its own wait.
//!
//! Brokers look at no limit of the request but `max_wait`: one segment per partition, a full wait for each partition that
//! has nothing, one after the other, though others have data. Ownership is not looked at.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::job::{Head, Job};
use super::keys;
use super::log::{PartitionLog, SharedLog};
use super::snapshot::ClusterSnapshot;
use crate::kafka::{ErrorCode, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, PartitionData};
use crate::time::Monotonic;

/// The name of a topic asked for by name or by id; `None` for an unknown id.
pub(super) fn name(topic: &FetchTopic, snapshot: &ClusterSnapshot) -> Option<String> {
    if topic.topic.is_empty() && topic.topic_id != [0; 16] {
        snapshot.topic_by_id(&topic.topic_id)?.topic.clone()
    } else {
        Some(topic.topic.as_str().to_owned())
    }
}

/// One partition that is asked for.
#[derive(Debug)]
struct Asked {
    /// Where its answer goes: index of the topic.
    topic: usize,
    /// `None` for an unknown topic id.
    name: Option<String>,
    partition: i32,
    offset: i64,
}

/// A fetch under way.
#[derive(Debug)]
pub(super) struct Fetching {
    head: Head,
    max_wait: Duration,
    asked: VecDeque<Asked>,
    /// What etcd said; `None` when it could not be read.
    watermarks: Option<BTreeMap<(String, i32), i64>>,
    /// When the wait for the partition in front is over.
    deadline: Option<Monotonic>,
    response: FetchResponse,
}

impl Fetching {
    pub(super) fn new(job: &Job, request: &FetchRequest, snapshot: &ClusterSnapshot) -> Self {
        let mut asked = VecDeque::new();
        let mut watermarks = BTreeMap::new();
        let mut response = FetchResponse::default();
        for (index, topic) in request.topics.iter().enumerate() {
            let name = name(topic, snapshot);
            for partition in &topic.partitions {
                if let Some(name) = &name {
                    let stored = job.read.get(&keys::next_offset(name, partition.partition));
                    let offset = stored.and_then(|kv| std::str::from_utf8(&kv.value).ok()?.parse().ok()).unwrap_or(0);
                    watermarks.insert((name.clone(), partition.partition), offset);
                }
                asked.push_back(Asked {
                    topic: index,
                    name: name.clone(),
                    partition: partition.partition,
                    offset: partition.fetch_offset,
                });
            }
            response.responses.push(FetchableTopicResponse {
                topic: name.unwrap_or_default().into(),
                topic_id: topic.topic_id,
                partitions: Vec::new(),
            });
        }
        Self {
            head: job.head,
            max_wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
            asked,
            watermarks: (!job.read_failed).then_some(watermarks),
            deadline: None,
            response,
        }
    }

    /// When the present wait is over.
    pub(super) fn deadline(&self) -> Option<Monotonic> {
        self.deadline
    }

    /// Goes on as far as it can; the answer when every partition has been dealt with.
    pub(super) fn advance(&mut self, now: Monotonic, log: &SharedLog) -> Option<(Head, FetchResponse)> {
        while let Some(asked) = self.asked.front() {
            let data = match &asked.name {
                None => PartitionData {
                    partition_index: asked.partition,
                    error_code: ErrorCode::UNKNOWN_TOPIC_ID,
                    ..PartitionData::default()
                },
                Some(name) => {
                    let watermark = self.watermark(name, asked.partition, log);
                    let may_wait = self.watermarks.is_some() && !self.max_wait.is_zero();
                    if may_wait && asked.offset >= watermark && self.deadline.is_none_or(|deadline| now < deadline) {
                        self.deadline.get_or_insert(now + self.max_wait);
                        return None;
                    }
                    answer(asked, name, watermark, log)
                }
            };
            self.response.responses[asked.topic].partitions.push(data);
            self.asked.pop_front();
            self.deadline = None;
        }
        Some((self.head, std::mem::take(&mut self.response)))
    }

    /// Brokers whose read of etcd failed go on with 0, so that a consumer in the middle of a partition is told that
    /// its offset is out of range (seen with etcd stopped).
    fn watermark(&self, name: &str, partition: i32, log: &SharedLog) -> i64 {
        let Some(watermarks) = &self.watermarks else { return 0 };
        let read = watermarks.get(&(name.to_owned(), partition)).copied().unwrap_or(0);
        read.max(log.partition(name, partition).map_or(0, PartitionLog::high_watermark))
    }
}

fn answer(asked: &Asked, name: &str, watermark: i64, log: &SharedLog) -> PartitionData {
    let (error_code, records) = if asked.offset > watermark {
        (ErrorCode::OFFSET_OUT_OF_RANGE, None)
    } else if asked.offset == watermark {
        (ErrorCode::NONE, None)
    } else {
        match log.partition(name, asked.partition).and_then(|log| log.segment_at(asked.offset)) {
            Some(segment) => (ErrorCode::NONE, Some(segment.records.clone())),
            None => (ErrorCode::OFFSET_OUT_OF_RANGE, None),
        }
    };
    PartitionData {
        partition_index: asked.partition,
        error_code,
        high_watermark: watermark,
        last_stable_offset: watermark,
        log_start_offset: 0,
        records,
        ..PartitionData::default()
    }
}
