//! I2: no delete is ordered for an object that a record refers to, or may come to refer to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use kafscale_proxy_core::inputs::BrokerConnectionId;
use kafscale_proxy_core::kafka::{ApiKey, ErrorCode, Message, ProduceResponse, RequestHeader, ResponseHeader};
use kafscale_proxy_core::model::broker::SharedLog;

use super::envelopes;

/// A connection of a shard to a broker.
type Connection = (usize, BrokerConnectionId);

/// The version in which the proxy writes records of its own, to brokers that have it.
const VERSION: i16 = 9;

/// Object keys whose deletion was ordered, and those to which a record on its way refers.
#[derive(Default)]
pub struct Deletes {
    keys: BTreeSet<String>,
    /// Records that were handed to brokers, by the key that they refer to, until each of the brokers proves that it wrote
    /// nothing.
    handed_over: BTreeMap<String, BTreeSet<Connection>>,
    /// Keys whose records have no answer yet, oldest first, and the version in which each was handed over.
    unanswered: BTreeMap<Connection, VecDeque<(String, i16)>>,
    premature: Vec<String>,
}

impl Deletes {
    /// A delete was ordered.
    pub fn ordered(&mut self, key: &str) {
        self.keys.insert(key.to_owned());
        if self.handed_over.contains_key(key) {
            self.premature.push(key.to_owned());
        }
    }

    /// At least one byte of this request was handed to a socket.
    pub(in crate::world) fn record_handed_over(&mut self, connection: Connection, request: &Bytes) {
        if let Some(key) = key_in_envelope(request) {
            self.unanswered.entry(connection).or_default().push_back((key.clone(), version_of(request)));
            self.handed_over.entry(key).or_default().insert(connection);
        }
    }

    /// A broker answered; only a refusal proves that nothing was written.
    pub(in crate::world) fn record_answered(&mut self, connection: Connection, answer: &Bytes) {
        let Some((key, version)) = self.unanswered.get_mut(&connection).and_then(VecDeque::pop_front) else { return };
        if proves_nothing_was_written(answer, version)
            && let Some(open) = self.handed_over.get_mut(&key)
        {
            open.remove(&connection);
            if open.is_empty() {
                self.handed_over.remove(&key);
            }
        }
    }

    /// Keys that were deleted although a record refers to them now, or might have come to when the delete was ordered.
    pub fn referred(&self, log: &SharedLog) -> Vec<String> {
        let referred = envelopes(log).into_iter().map(|envelope| envelope.key);
        referred.filter(|key| self.keys.contains(key)).chain(self.premature.iter().cloned()).collect()
    }

    /// Whether a record that refers to this key may have been written: bytes of it were handed over, and no broker has
    /// proven that it wrote nothing.
    pub fn may_be_referred(&self, key: &str) -> bool {
        self.handed_over.contains_key(key)
    }

    /// Whether the delete of this key was ever ordered.
    pub fn was_ordered(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// How many keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// The key of the envelope in a Produce request: its record is neither compressed nor encoded.
pub(in crate::world) fn key_in_envelope(request: &[u8]) -> Option<String> {
    const START: &[u8] = b"{\"kfs_lfs\"";
    let start = request.windows(START.len()).position(|window| window == START)?;
    let text = String::from_utf8_lossy(&request[start..]);
    let key = text.split("\"key\":\"").nth(1)?.split('"').next()?;
    Some(key.to_owned())
}

/// Whether a code says that nothing was written: LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
/// UNKNOWN_LEADER_EPOCH.
pub(super) fn proves_absence(code: ErrorCode) -> bool {
    [5, 6, 74, 75].contains(&code.0)
}

/// The version of a request, whole frame or part of one.
pub(super) fn version_of(request: &[u8]) -> i16 {
    RequestHeader::decode(request).map_or(VERSION, |(header, _)| header.api_version)
}

/// Whether an answer of this version says so of its one partition.
pub(super) fn proves_nothing_was_written(answer: &Bytes, version: i16) -> bool {
    let Ok((_, body_at)) = ResponseHeader::decode(answer, ApiKey::Produce, version) else { return false };
    let Ok(response) = ProduceResponse::decode(&answer.slice(body_at..), version) else { return false };
    let mut codes = response.responses.iter().flat_map(|topic| &topic.partition_responses).map(|one| one.error_code);
    codes.next().is_some_and(proves_absence) && codes.next().is_none()
}

#[cfg(test)]
mod tests {
    use kafscale_proxy_core::kafka::{PartitionProduceResponse, TopicProduceResponse, response_frame};

    use super::*;

    const BROKERS: [Connection; 2] = [(0, BrokerConnectionId(1)), (0, BrokerConnectionId(2))];

    fn answer(code: ErrorCode) -> Bytes {
        let partition_responses = vec![PartitionProduceResponse { error_code: code, ..Default::default() }];
        let responses = vec![TopicProduceResponse { partition_responses, ..Default::default() }];
        response_frame(1, VERSION, &ProduceResponse { responses, ..ProduceResponse::default() })
    }

    #[test]
    fn a_refusal_speaks_for_its_broker_alone() {
        let record = Bytes::from_static(br#"{"kfs_lfs":1,"key":"a"}"#);
        let mut deletes = Deletes::default();
        BROKERS.iter().for_each(|broker| deletes.record_handed_over(*broker, &record));
        deletes.record_answered(BROKERS[1], &answer(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        assert!(deletes.may_be_referred("a"), "the other broker has said nothing");
        deletes.record_answered(BROKERS[0], &answer(ErrorCode(7)));
        assert!(deletes.may_be_referred("a"), "a timeout proves nothing");
        deletes.record_handed_over(BROKERS[1], &record);
        deletes.record_answered(BROKERS[1], &answer(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        assert!(deletes.may_be_referred("a"), "nothing takes that back");
    }

    /// Records of several uploads follow each other on a connection.
    #[test]
    fn a_refusal_speaks_for_its_record_alone() {
        let record = |key| Bytes::from(format!(r#"{{"kfs_lfs":1,"key":"{key}"}}"#));
        let mut deletes = Deletes::default();
        for (key, code) in [("a", ErrorCode::NONE), ("b", ErrorCode::NOT_LEADER_OR_FOLLOWER)] {
            deletes.record_handed_over(BROKERS[0], &record(key));
            deletes.record_answered(BROKERS[0], &answer(code));
        }
        assert!(deletes.may_be_referred("a"), "it was acknowledged");
        assert!(!deletes.may_be_referred("b"));
    }
}
