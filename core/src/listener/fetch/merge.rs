//! The answer to a Fetch, as the client gets it, made of what one broker or several have answered.

use bytes::Bytes;

use crate::kafka::{
    Compression, ErrorCode, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, PartitionData, batches,
};
use crate::planted::{Bug, planted};

/// First version whose clients know zstd.
const ZSTD: i16 = 10;
/// First version with an error of the whole answer and with sessions.
const TOP_LEVEL: i16 = 7;

/// An answer of the proxy's own: `top_level` for the whole request, or `partition` for every partition in versions
/// without a top-level error.
pub(crate) fn refusal(
    request: &FetchRequest,
    version: i16,
    top_level: ErrorCode,
    partition: ErrorCode,
) -> FetchResponse {
    if version >= TOP_LEVEL {
        return FetchResponse { error_code: top_level, ..FetchResponse::default() };
    }
    let mut response = FetchResponse::default();
    for topic in &request.topics {
        let partitions =
            topic.partitions.iter().map(|asked| PartitionData::failed(asked.partition, partition)).collect();
        response.responses.push(topic_response(topic, partitions));
    }
    response
}

/// Most bytes of records that several brokers' answers make together, however much the client takes: the frame around
/// them has an end.
const MOST_BYTES: usize = 1 << 30;

/// Puts partitions, in request order, under their topics. With a limit, no more bytes of records are given than that,
/// except for the first partition that has any; partitions beyond it are as if they had none yet.
pub(crate) fn response(
    request: &FetchRequest,
    throttle_time_ms: i32,
    limit: Option<i32>,
    partitions: impl IntoIterator<Item = PartitionData>,
) -> FetchResponse {
    let mut budget = Budget::new(limit);
    let mut partitions = partitions.into_iter();
    let responses = request
        .topics
        .iter()
        .map(|topic| {
            let answered = partitions.by_ref().take(topic.partitions.len()).map(|data| budget.apply(data)).collect();
            topic_response(topic, answered)
        })
        .collect();
    FetchResponse { throttle_time_ms, responses, ..FetchResponse::default() }
}

fn topic_response(topic: &FetchTopic, partitions: Vec<PartitionData>) -> FetchableTopicResponse {
    FetchableTopicResponse { topic: topic.topic.clone(), topic_id: topic.topic_id, partitions }
}

struct Budget {
    left: Option<usize>,
    spent: bool,
}

impl Budget {
    fn new(limit: Option<i32>) -> Self {
        Self { left: limit.map(|limit| usize::try_from(limit).unwrap_or(0).min(MOST_BYTES)), spent: false }
    }

    fn apply(&mut self, mut data: PartitionData) -> PartitionData {
        let length = data.records.as_ref().map_or(0, Bytes::len);
        let Some(left) = self.left else { return data };
        if length > left && self.spent {
            data.records = Some(Bytes::new());
        } else if length > 0 {
            self.left = Some(left.saturating_sub(length));
            self.spent = true;
        }
        data
    }
}

/// Whether a broker's answer can go to the client byte for byte.
pub(crate) fn is_presentable(response: &FetchResponse) -> bool {
    response.session_id == 0
        && response.responses.iter().flat_map(|topic| &topic.partitions).all(|data| {
            (data.records.is_some() || planted(Bug::NullRecordsPassed))
                && (data.current_leader.is_none() || planted(Bug::HintLetThrough))
                && data.preferred_read_replica == -1
        })
}

/// What a client of this version may see of a broker's partition: no null record set, no hint at brokers that it does
/// not know, no codes and no compression that came after its version.
pub(crate) fn presented(version: i16, mut data: PartitionData) -> PartitionData {
    if !planted(Bug::HintLetThrough) {
        data.current_leader = None;
    }
    data.preferred_read_replica = -1;
    let records = data.records.take().unwrap_or_default();
    if version < ZSTD && has_zstd(&records) {
        data.error_code = ErrorCode::UNSUPPORTED_COMPRESSION_TYPE;
        data.records = Some(Bytes::new());
        return data;
    }
    if version < 6 && data.error_code == ErrorCode::KAFKA_STORAGE_ERROR {
        data.error_code = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    }
    data.records = Some(records);
    data
}

fn has_zstd(records: &Bytes) -> bool {
    batches(records).flatten().any(|batch| batch.header.attributes.compression() == Compression::Zstd)
}
