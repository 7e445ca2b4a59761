//! One Produce request: what goes to whom, and what its client is answered.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::cluster::Address;
use crate::kafka::{
    ApiKey, DecodeError, ErrorCode, Message, PartitionProduceData, PartitionProduceResponse, ProduceRequest,
    ProduceResponse, RequestHeader, ResponseHeader, Str, TopicProduceData, TopicProduceResponse, batches,
    request_frame, response_frame,
};
use crate::listener::lane_table::{LaneId, LaneTable};
use crate::listener::lanes::BatchResult;
use crate::listener::request::{Part, Reply, RequestHead, Step, Target, Undecodable};

/// What a broker gets beyond the timeout that the client gave it.
const GRACE: Duration = Duration::from_secs(15);

/// First version with record batches of magic 2; older ones are only listed because clients look for them.
const FIRST_VERSION: i16 = 3;

/// A request under way.
#[derive(Debug)]
pub(super) struct Produce {
    frame: Bytes,
    version: i16,
    correlation_id: i32,
    body: ProduceRequest,
    /// Its partitions, in request order.
    entries: Vec<Entry>,
    /// Entries that are not over.
    open: usize,
    parts: Vec<(Part, Vec<u32>)>,
    next_part: u32,
    throttle_time_ms: i32,
    /// The broker's answer, when it holds for the whole request as it is.
    whole_answer: Option<Bytes>,
    /// Something could not be sent: with acks 0 there is no other way to tell the client than to close.
    failed: bool,
}

#[derive(Debug)]
struct Entry {
    topic: u32,
    partition: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Open(LaneId),
    /// As the broker answered it, or made here.
    Answered(PartitionProduceResponse),
    /// By [`Produce::whole_answer`], or by nothing, with acks 0.
    Over,
}

impl Produce {
    /// Reads a request and refuses at once what no broker may get.
    pub(super) fn new(head: RequestHead) -> Result<Self, Undecodable> {
        let RequestHead { api: _, version, correlation_id, frame, body_at } = head;
        let frame = frame.freeze();
        let body = ProduceRequest::decode(&frame.slice(body_at..), version).map_err(|error| {
            tracing::debug!(%error, version, "Produce does not decode");
            Undecodable
        })?;
        let partitions = body.topic_data.iter().enumerate().flat_map(|(topic, data)| {
            (0..data.partition_data.len()).map(move |partition| (topic as u32, partition as u32))
        });
        let entries: Vec<_> =
            partitions.map(|(topic, partition)| Entry { topic, partition, state: State::Over }).collect();
        Ok(Self {
            frame,
            version,
            correlation_id,
            body,
            entries,
            open: 0,
            parts: Vec::new(),
            next_part: 0,
            throttle_time_ms: 0,
            whole_answer: None,
            failed: false,
        })
    }

    /// Gives each partition that may be sent its lane; the others are answered.
    pub(super) fn assign_lanes(&mut self, lanes: &mut LaneTable) -> Vec<(u32, LaneId)> {
        let refused = (self.version < FIRST_VERSION || self.body.transactional_id.is_some())
            .then_some(ErrorCode::UNSUPPORTED_VERSION);
        let mut assigned = Vec::with_capacity(self.entries.len());
        for (number, entry) in (0..).zip(&mut self.entries) {
            let topic = &self.body.topic_data[entry.topic as usize];
            let data = &topic.partition_data[entry.partition as usize];
            entry.state = match refused.or_else(|| refusal(data.records.as_ref())) {
                Some(code) => State::Answered(made(data.index, code)),
                None => {
                    let lane = lanes.find(&topic.name, data.index);
                    assigned.push((number, lane));
                    State::Open(lane)
                }
            };
        }
        self.open = assigned.len();
        assigned
    }

    /// The step that sends these entries.
    pub(super) fn send(&mut self, target: Target, entries: Vec<u32>) -> Step {
        let part = Part(self.next_part);
        self.next_part += 1;
        let bytes = if entries.len() == self.entries.len() {
            self.frame.clone()
        } else {
            let client_id = RequestHeader::decode(&self.frame).ok().and_then(|(header, _)| header.client_id);
            request_frame(self.correlation_id, client_id, self.version, &self.excerpt(&entries))
        };
        self.parts.push((part, entries));
        let timeout = Duration::from_millis(u64::try_from(self.body.timeout_ms).unwrap_or(0));
        Step::Send { part, target, bytes, answered: self.body.acks != 0, deadline: timeout + GRACE }
    }

    /// A broker answered a part: what that means for each of its entries.
    pub(super) fn answered(&mut self, part: Part, by: &Address, frame: BytesMut) -> Vec<(u32, LaneId, BatchResult)> {
        let Some(entries) = self.take_part(part) else { return Vec::new() };
        let frame = frame.freeze();
        let response = match self.decode(&frame) {
            Ok(response) => response,
            Err(error) => {
                tracing::warn!(broker = %by, %error, "Produce answer does not decode");
                return self.end(entries, |_| None, &BatchResult::Unknown);
            }
        };
        self.throttle_time_ms = self.throttle_time_ms.max(response.throttle_time_ms);
        if entries.len() == self.entries.len() && self.is_complete(&response) {
            self.whole_answer = Some(frame);
            return self.end(entries, |_| None, &BatchResult::Answered);
        }
        let mut answers = Answers::new(response);
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(State::Open(lane)) = self.entries.get(entry as usize).map(|entry| &entry.state) else { continue };
            let lane = *lane;
            let (topic, index) = self.partition(entry);
            let result = match answers.take(topic, index) {
                Some(answer) if was_not_appended(answer.error_code) => {
                    BatchResult::Refused { by: by.clone(), code: answer.error_code.0 }
                }
                Some(answer) => {
                    self.answer(entry, answer);
                    BatchResult::Answered
                }
                // Brokers answer some internal failures with an empty response: it may have been appended.
                None => {
                    self.answer(entry, made(index, ErrorCode::REQUEST_TIMED_OUT));
                    BatchResult::Unknown
                }
            };
            results.push((entry, lane, result));
        }
        results
    }

    /// A part got no answer.
    pub(super) fn unanswered(&mut self, part: Part, result: &BatchResult) -> Vec<(u32, LaneId, BatchResult)> {
        let Some(entries) = self.take_part(part) else { return Vec::new() };
        match result {
            BatchResult::Unknown => self.end(entries, |index| Some(made(index, ErrorCode::REQUEST_TIMED_OUT)), result),
            BatchResult::NotSent
            | BatchResult::NotApplied { .. }
            | BatchResult::Refused { .. }
            | BatchResult::Answered => {
                let lanes = entries.into_iter().filter_map(|entry| Some((entry, self.lane(entry)?, result.clone())));
                lanes.collect()
            }
        }
    }

    /// A part that gets no answer was handed over.
    pub(super) fn silent(&mut self, part: Part) -> Vec<(u32, LaneId, BatchResult)> {
        let Some(entries) = self.take_part(part) else { return Vec::new() };
        self.end(entries, |_| None, &BatchResult::Answered)
    }

    /// This entry gets an answer made here.
    pub(super) fn fail(&mut self, entry: u32, code: ErrorCode) {
        self.failed = true;
        let (_, index) = self.partition(entry);
        self.answer(entry, made(index, code));
    }

    /// Whether every partition is answered.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0
    }

    /// What the client gets. Every partition asked for is in it exactly once, in request order.
    pub(super) fn reply(self) -> Reply {
        if self.body.acks == 0 {
            return if self.failed { Reply::Close } else { Reply::Silence };
        }
        if let Some(payload) = self.whole_answer {
            let length = i32::try_from(payload.len()).expect("an answer came with an int32 length");
            return Reply::Answer(vec![Bytes::copy_from_slice(&length.to_be_bytes()), payload]);
        }
        let topics = self.body.topic_data.iter();
        let mut responses: Vec<_> = topics
            .map(|topic| TopicProduceResponse { name: topic.name.clone(), partition_responses: Vec::new() })
            .collect();
        for entry in self.entries {
            let index = self.body.topic_data[entry.topic as usize].partition_data[entry.partition as usize].index;
            let answer = match entry.state {
                State::Answered(answer) => answer,
                State::Open(_) | State::Over => made(index, ErrorCode::REQUEST_TIMED_OUT),
            };
            responses[entry.topic as usize].partition_responses.push(answer);
        }
        let response = ProduceResponse { responses, throttle_time_ms: self.throttle_time_ms };
        Reply::Answer(vec![response_frame(self.correlation_id, self.version, &response)])
    }

    fn take_part(&mut self, part: Part) -> Option<Vec<u32>> {
        let position = self.parts.iter().position(|(open, _)| *open == part)?;
        Some(self.parts.swap_remove(position).1)
    }

    fn lane(&self, entry: u32) -> Option<LaneId> {
        match self.entries.get(entry as usize)?.state {
            State::Open(lane) => Some(lane),
            State::Answered(_) | State::Over => None,
        }
    }

    fn partition(&self, entry: u32) -> (&Str, i32) {
        let entry = &self.entries[entry as usize];
        let topic = &self.body.topic_data[entry.topic as usize];
        (&topic.name, topic.partition_data[entry.partition as usize].index)
    }

    fn answer(&mut self, entry: u32, answer: PartitionProduceResponse) {
        self.close(entry, State::Answered(answer));
    }

    fn close(&mut self, entry: u32, state: State) -> Option<LaneId> {
        match mem::replace(&mut self.entries[entry as usize].state, state) {
            State::Open(lane) => {
                self.open -= 1;
                Some(lane)
            }
            before @ (State::Answered(_) | State::Over) => {
                self.entries[entry as usize].state = before;
                None
            }
        }
    }

    /// All entries of a part end alike.
    fn end(
        &mut self,
        entries: Vec<u32>,
        answer: impl Fn(i32) -> Option<PartitionProduceResponse>,
        result: &BatchResult,
    ) -> Vec<(u32, LaneId, BatchResult)> {
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            let (_, index) = self.partition(entry);
            let state = answer(index).map_or(State::Over, State::Answered);
            if let Some(lane) = self.close(entry, state) {
                results.push((entry, lane, result.clone()));
            }
        }
        results
    }

    fn decode(&self, payload: &Bytes) -> Result<ProduceResponse, DecodeError> {
        let body_at = ResponseHeader::body_at(payload, ApiKey::Produce, self.version)?;
        ProduceResponse::decode(&payload.slice(body_at..), self.version)
    }

    /// Whether the answer names exactly what was asked, in order, and refuses nothing.
    fn is_complete(&self, response: &ProduceResponse) -> bool {
        self.body.topic_data.len() == response.responses.len()
            && self.body.topic_data.iter().zip(&response.responses).all(|(asked, answered)| {
                asked.name == answered.name
                    && asked.partition_data.len() == answered.partition_responses.len()
                    && asked.partition_data.iter().zip(&answered.partition_responses).all(|(asked, answered)| {
                        asked.index == answered.index && !was_not_appended(answered.error_code)
                    })
            })
    }

    /// The request with only these entries, which ascend.
    fn excerpt(&self, entries: &[u32]) -> ProduceRequest {
        let mut topic_data: Vec<TopicProduceData> = Vec::new();
        let mut last = None;
        for entry in entries.iter().map(|entry| &self.entries[*entry as usize]) {
            let topic = &self.body.topic_data[entry.topic as usize];
            let data: PartitionProduceData = topic.partition_data[entry.partition as usize].clone();
            match topic_data.last_mut() {
                Some(open) if last == Some(entry.topic) => open.partition_data.push(data),
                Some(_) | None => {
                    topic_data.push(TopicProduceData { name: topic.name.clone(), partition_data: vec![data] });
                }
            }
            last = Some(entry.topic);
        }
        ProduceRequest {
            transactional_id: self.body.transactional_id.clone(),
            acks: self.body.acks,
            timeout_ms: self.body.timeout_ms,
            topic_data,
        }
    }
}

/// The partitions of an answer, each to be taken once.
struct Answers(BTreeMap<(Str, i32), VecDeque<PartitionProduceResponse>>);

impl Answers {
    fn new(response: ProduceResponse) -> Self {
        let mut answers: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for topic in response.responses {
            for answer in topic.partition_responses {
                answers.entry((topic.name.clone(), answer.index)).or_default().push_back(answer);
            }
        }
        Self(answers)
    }

    fn take(&mut self, topic: &Str, index: i32) -> Option<PartitionProduceResponse> {
        self.0.get_mut(&(topic.clone(), index))?.pop_front()
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

/// Why a record set goes to no broker: old formats, and transactions, which the cluster does not have. Damage is left
/// for the broker to judge.
fn refusal(records: Option<&Bytes>) -> Option<ErrorCode> {
    batches(records?).find_map(|batch| match batch {
        Ok(batch) if batch.header.attributes.is_transactional() => Some(ErrorCode::UNSUPPORTED_VERSION),
        Err(DecodeError::Magic(0 | 1)) => Some(ErrorCode::INVALID_RECORD),
        Ok(_) | Err(_) => None,
    })
}

/// A partition's answer that no broker gave.
fn made(index: i32, error_code: ErrorCode) -> PartitionProduceResponse {
    PartitionProduceResponse { index, error_code, base_offset: -1, ..PartitionProduceResponse::default() }
}
