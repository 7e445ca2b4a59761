//! One Produce request: what goes to whom, and what its client is answered.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::cluster::Address;
use crate::config::ListenerConfig;
use crate::kafka::{
    ApiKey, DecodeError, ErrorCode, Message, PartitionProduceResponse, ProduceRequest, ProduceResponse, RequestHeader,
    ResponseHeader, Str, TopicProduceResponse, batches, merged_response_frame, request_frame, scan_produce_request,
    scan_produce_response,
};
use crate::listener::lane_table::{LaneId, LaneTable};
use crate::listener::lanes::BatchResult;
use crate::listener::request::{Part, Reply, RequestHead, Step, Target, Undecodable};
use crate::planted::{Bug, planted};

/// What a broker gets beyond the timeout that the client may give it.
const GRACE: Duration = Duration::from_secs(15);

/// First version with record batches of magic 2; older ones are only listed because clients look for them.
const FIRST_VERSION: i16 = 3;

/// A request under way.
#[derive(Debug)]
pub(super) struct Produce {
    frame: Bytes,
    body_at: usize,
    version: i16,
    correlation_id: i32,
    acks: i16,
    timeout: Duration,
    /// Its partitions, in request order.
    entries: Vec<Entry>,
    /// Entries that are not over.
    open: usize,
    parts: Vec<(Part, Entries)>,
    next_part: u32,
    throttle_time_ms: i32,
    /// The broker's answer, when it holds for the whole request as it is.
    whole_answer: Option<Bytes>,
    /// Something could not be sent: with acks 0 there is no other way to tell the client than to close.
    failed: bool,
}

/// What becomes of one partition of the request.
#[derive(Debug)]
enum Entry {
    /// With its lane.
    Open(LaneId),
    /// As the broker answered it.
    Answered(PartitionProduceResponse),
    /// With a code that no broker gave.
    Failed(ErrorCode),
    /// By [`Produce::whole_answer`], or by nothing, with acks 0.
    Over,
}

/// Which partitions of a request a part carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entries {
    /// The client's bytes as they came.
    All,
    /// These, ascending.
    Some(Vec<u32>),
}

impl Produce {
    /// Reads a request, gives each partition that may be sent its lane, and refuses the others.
    pub(super) fn new(head: RequestHead, lanes: &mut LaneTable, config: &ListenerConfig) -> Result<Self, Undecodable> {
        let RequestHead { api: _, version, correlation_id, frame, body_at } = head;
        let frame = frame.freeze();
        let body = frame.slice(body_at..);
        let mut entries = Vec::new();
        let mut open = 0;
        let scanned = scan_produce_request(&body, version, |partition| {
            entries.push(match partition.records.and_then(|range| refusal(&body.slice(range))) {
                Some(code) => Entry::Failed(code),
                None => {
                    open += 1;
                    Entry::Open(lanes.find(partition.topic, partition.index))
                }
            });
        });
        let head = scanned.map_err(|error| {
            tracing::debug!(%error, version, "Produce does not decode");
            Undecodable
        })?;
        if version < FIRST_VERSION || head.transactional_id.is_some() {
            entries.fill_with(|| Entry::Failed(ErrorCode::UNSUPPORTED_VERSION));
            open = 0;
        }
        let (acks, timeout) = (head.acks, config.granted_wait(head.timeout_ms));
        Ok(Self {
            frame,
            body_at,
            version,
            correlation_id,
            acks,
            timeout,
            entries,
            open,
            parts: Vec::new(),
            next_part: 0,
            throttle_time_ms: 0,
            whole_answer: None,
            failed: false,
        })
    }

    /// How many partitions it has.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The lane of a partition that is not over.
    pub(super) fn lane(&self, entry: u32) -> Option<LaneId> {
        match self.entries.get(entry as usize)? {
            Entry::Open(lane) => Some(*lane),
            Entry::Answered(_) | Entry::Failed(_) | Entry::Over => None,
        }
    }

    /// The step that sends these entries.
    pub(super) fn send(&mut self, target: Target, entries: Entries) -> Step {
        let part = Part(self.next_part);
        self.next_part += 1;
        let bytes = match &entries {
            Entries::All => self.frame.clone(),
            Entries::Some(entries) => {
                let client_id = RequestHeader::client_id(&self.frame);
                request_frame(self.correlation_id, client_id, self.version, &self.excerpt(entries))
            }
        };
        self.parts.push((part, entries));
        Step::Send { part, target, bytes, answered: self.acks != 0, deadline: self.timeout + GRACE }
    }

    /// A broker answered a part: what that means for each of its entries.
    pub(super) fn answered(
        &mut self,
        part: Part,
        by: &Address,
        frame: BytesMut,
        lanes: &LaneTable,
    ) -> Vec<(u32, LaneId, BatchResult)> {
        let Some(entries) = self.take_part(part) else { return Vec::new() };
        let frame = frame.freeze();
        if entries == Entries::All && self.holds_whole(&frame, lanes) {
            self.whole_answer = Some(frame);
            return self.end(entries, || Entry::Over, &BatchResult::Answered);
        }
        let response = match self.decode(&frame) {
            Ok(response) => response,
            Err(error) => {
                tracing::warn!(broker = %by, %error, "Produce answer does not decode");
                return self.end(entries, || Entry::Failed(ErrorCode::REQUEST_TIMED_OUT), &BatchResult::Unknown);
            }
        };
        self.throttle_time_ms = self.throttle_time_ms.max(response.throttle_time_ms);
        let mut answers = Answers::new(response);
        let mut results = Vec::new();
        for entry in self.numbers(entries) {
            let Some(lane) = self.lane(entry) else { continue };
            let (topic, index) = lanes.partition(lane);
            let result = match answers.take(topic, index) {
                Some(answer) if was_not_appended(answer.error_code) => {
                    BatchResult::Refused { by: by.clone(), code: answer.error_code.0 }
                }
                Some(answer) if contradicts_itself(answer.error_code, answer.base_offset) => {
                    tracing::warn!(broker = %by, topic, index, "Produce answer has neither an error nor an offset");
                    self.close(entry, Entry::Failed(ErrorCode::REQUEST_TIMED_OUT));
                    BatchResult::Unknown
                }
                Some(answer) => {
                    self.close(entry, Entry::Answered(answer));
                    BatchResult::Answered
                }
                // Brokers answer some internal failures with an empty response: it may have been appended.
                None => {
                    self.close(entry, Entry::Failed(ErrorCode::REQUEST_TIMED_OUT));
                    BatchResult::Unknown
                }
            };
            results.push((entry, lane, result));
        }
        results
    }

    /// Nothing of a part was sent.
    pub(super) fn not_sent(&mut self, part: Part, result: &BatchResult) -> Vec<(u32, LaneId, BatchResult)> {
        let Some(entries) = self.take_part(part) else { return Vec::new() };
        let numbers = self.numbers(entries).into_iter();
        numbers.filter_map(|entry| Some((entry, self.lane(entry)?, result.clone()))).collect()
    }

    /// A part may have been appended, and nobody knows.
    pub(super) fn unknown(&mut self, part: Part) -> Vec<(u32, LaneId, BatchResult)> {
        let Some(entries) = self.take_part(part) else { return Vec::new() };
        self.end(entries, || Entry::Failed(ErrorCode::REQUEST_TIMED_OUT), &BatchResult::Unknown)
    }

    /// A part that gets no answer was handed over.
    pub(super) fn silent(&mut self, part: Part) -> Vec<(u32, LaneId, BatchResult)> {
        let Some(entries) = self.take_part(part) else { return Vec::new() };
        self.end(entries, || Entry::Over, &BatchResult::Answered)
    }

    /// This entry gets a code that no broker gave, or one that a broker gave for an earlier round.
    pub(super) fn fail(&mut self, entry: u32, code: ErrorCode) {
        self.failed = true;
        self.close(entry, Entry::Failed(code));
    }

    /// Whether nobody answers it: acks 0.
    pub(super) fn is_silent(&self) -> bool {
        self.acks == 0
    }

    /// Whether every partition is answered.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0
    }

    /// What the client gets. Every partition asked for is in it exactly once, in request order.
    pub(super) fn reply(self) -> Reply {
        if self.acks == 0 && !planted(Bug::AcksZeroAnswered) {
            return if self.failed { Reply::Close } else { Reply::Silence };
        }
        if let Some(frame) = self.whole_answer {
            return Reply::Answer(vec![frame]);
        }
        let topics = self.body().topic_data.into_iter();
        let mut entries = self.entries.into_iter();
        let responses = topics.map(|topic| {
            let answers = topic.partition_data.iter().zip(entries.by_ref()).map(|(asked, entry)| match entry {
                Entry::Answered(answer) => answer,
                Entry::Failed(code) => made(asked.index, code),
                Entry::Open(_) | Entry::Over => made(asked.index, ErrorCode::REQUEST_TIMED_OUT),
            });
            let answers = answers.skip(usize::from(planted(Bug::PartitionLeftOut)));
            TopicProduceResponse { partition_responses: answers.collect(), name: topic.name }
        });
        let response = ProduceResponse { responses: responses.collect(), throttle_time_ms: self.throttle_time_ms };
        Reply::merged(merged_response_frame(self.correlation_id, self.version, &response))
    }

    fn take_part(&mut self, part: Part) -> Option<Entries> {
        let position = self.parts.iter().position(|(open, _)| *open == part)?;
        Some(self.parts.swap_remove(position).1)
    }

    fn numbers(&self, entries: Entries) -> Vec<u32> {
        match entries {
            Entries::All => (0..).take(self.entries.len()).collect(),
            Entries::Some(numbers) => numbers,
        }
    }

    fn close(&mut self, entry: u32, end: Entry) {
        if let Some(entry @ Entry::Open(_)) = self.entries.get_mut(entry as usize) {
            *entry = end;
            self.open -= 1;
        }
    }

    /// All entries of a part end alike.
    fn end(
        &mut self,
        entries: Entries,
        end: impl Fn() -> Entry,
        result: &BatchResult,
    ) -> Vec<(u32, LaneId, BatchResult)> {
        let mut results = Vec::with_capacity(self.entries.len());
        for entry in self.numbers(entries) {
            if let Some(lane) = self.lane(entry) {
                self.close(entry, end());
                results.push((entry, lane, result.clone()));
            }
        }
        results
    }

    /// The request, taken apart: only where it cannot pass as it came.
    fn body(&self) -> ProduceRequest {
        ProduceRequest::decode(&self.frame.slice(self.body_at..), self.version).expect("a request that scans decodes")
    }

    fn decode(&self, frame: &Bytes) -> Result<ProduceResponse, DecodeError> {
        let (_, body_at) = ResponseHeader::decode(frame, ApiKey::Produce, self.version)?;
        ProduceResponse::decode(&frame.slice(body_at..), self.version)
    }

    /// Whether an answer names exactly what was asked, in order, and refuses nothing.
    fn holds_whole(&self, frame: &[u8], lanes: &LaneTable) -> bool {
        let Ok((_, body_at)) = ResponseHeader::decode(frame, ApiKey::Produce, self.version) else { return false };
        let mut asked = self.entries.iter();
        let mut holds = true;
        let scanned =
            scan_produce_response(&frame[body_at..], self.version, |topic, index, error_code, base_offset| {
                let is_asked = match asked.next() {
                    Some(Entry::Open(lane)) => lanes.partition(*lane) == (topic, index),
                    Some(Entry::Answered(_) | Entry::Failed(_) | Entry::Over) | None => false,
                };
                holds &= is_asked && !was_not_appended(error_code) && !contradicts_itself(error_code, base_offset);
            });
        holds && asked.next().is_none() && scanned.is_ok_and(|answer| !answer.leader_hints)
    }

    /// The request with only these entries, which ascend.
    fn excerpt(&self, entries: &[u32]) -> ProduceRequest {
        let mut body = self.body();
        let (mut number, mut wanted) = (0, entries.iter().peekable());
        for topic in &mut body.topic_data {
            topic.partition_data.retain(|_| {
                let is_wanted = wanted.next_if_eq(&&number).is_some();
                number += 1;
                is_wanted
            });
        }
        body.topic_data.retain(|topic| !topic.partition_data.is_empty());
        body
    }
}

/// The partitions of an answer, each to be taken once.
struct Answers(BTreeMap<Str, BTreeMap<i32, VecDeque<PartitionProduceResponse>>>);

impl Answers {
    fn new(response: ProduceResponse) -> Self {
        let mut answers: BTreeMap<_, BTreeMap<_, VecDeque<_>>> = BTreeMap::new();
        for topic in response.responses {
            let partitions = answers.entry(topic.name).or_default();
            for answer in topic.partition_responses {
                partitions.entry(answer.index).or_default().push_back(answer);
            }
        }
        Self(answers)
    }

    fn take(&mut self, topic: &str, index: i32) -> Option<PartitionProduceResponse> {
        self.0.get_mut(topic)?.get_mut(&index)?.pop_front()
    }
}

/// Codes that prove that the broker did not append: LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER,
/// FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
fn was_not_appended(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
    )
}

/// Success without an offset proves neither that the batch was appended nor that it was not.
fn contradicts_itself(code: ErrorCode, base_offset: i64) -> bool {
    code.is_none() && base_offset < 0
}

/// Why a record set goes to no broker: old formats, and transactions, which the cluster does not have. Damage is left
/// for the broker to judge.
fn refusal(records: &Bytes) -> Option<ErrorCode> {
    batches(records).find_map(|batch| match batch {
        Ok(batch) if batch.header.attributes.is_transactional() => Some(ErrorCode::UNSUPPORTED_VERSION),
        Err(DecodeError::Magic(0 | 1)) => Some(ErrorCode::INVALID_RECORD),
        Ok(_) | Err(_) => None,
    })
}

/// A partition's answer that no broker gave.
fn made(index: i32, error_code: ErrorCode) -> PartitionProduceResponse {
    PartitionProduceResponse { index, error_code, base_offset: -1, ..PartitionProduceResponse::default() }
}
