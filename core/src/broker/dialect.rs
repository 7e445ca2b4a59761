//! What one broker speaks, and how a request is said to one that lacks the version it comes in.
//!
//! Everybody speaks to brokers in the versions that are usual for the kind of cluster ([`spoken`]). On each connection
//! the broker is asked once what it has (ApiVersions, KIP-35). Where it lacks what is usual, the request is put into the nearest
//! version that it has, and its answer back into the one that was asked in, so that nobody else needs to know. A request that
//! would lose something on the way is not sent: it is answered with UNSUPPORTED_VERSION.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::handshake::VersionRanges;
use crate::config::ClusterKind;
use crate::kafka::{
    AlterConfigsRequest, ApiKey, CreatePartitionsRequest, CreateTopicsRequest, DecodeError, DeleteGroupsRequest,
    DeleteTopicsRequest, DescribeConfigsRequest, DescribeGroupsRequest, ErrorCode, FetchRequest, HeartbeatRequest,
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, ListOffsetsRequest, Message, OffsetCommitRequest,
    OffsetFetchRequest, OffsetForLeaderEpochRequest, ProduceRequest, Request, RequestHeader, ResponseHeader,
    SyncGroupRequest, VersionRange, merged_response_frame, refused, request_frame, spoken,
};
use crate::planted::{Bug, planted};

/// What one broker speaks, as far as it lacks what is usual.
#[derive(Debug, Default)]
pub(crate) struct Dialect {
    /// The versions that it has instead; `None` when it has none that is known here.
    lacking: BTreeMap<ApiKey, Option<VersionRange>>,
}

/// A request as this broker understands it.
#[derive(Debug)]
pub(crate) enum Said {
    /// As it was.
    AsItWas(Bytes),
    /// In another version; its answer has to be put back.
    Turned(Bytes, Turned),
    /// Not at all. This is its answer, if the protocol has one.
    NotAtAll(Option<Bytes>),
}

/// The two versions of a request that was put into another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turned {
    api: ApiKey,
    asked: i16,
    said: i16,
}

impl Dialect {
    /// From the broker's answer to ApiVersions.
    pub(crate) fn of(kind: ClusterKind, told: &VersionRanges) -> Self {
        let lacking = ApiKey::ALL.iter().filter_map(|api| {
            let usual = spoken(kind, *api)?;
            let has = told.get(&i16::from(*api)).map(|(min, max)| VersionRange::new(*min, *max));
            let has_all = has.is_some_and(|has| has.contains(usual.min) && has.contains(usual.max));
            (!has_all).then(|| (*api, has.and_then(|has| has.intersection(api.known_versions()))))
        });
        Self { lacking: lacking.collect() }
    }

    /// The APIs in which it differs, for a log line; empty for a broker as usual.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = (ApiKey, Option<VersionRange>)> {
        self.lacking.iter().map(|(api, has)| (*api, *has))
    }

    /// Puts a request, whole frame, into a version that the broker has.
    pub(crate) fn say(&self, frame: Bytes) -> Said {
        if self.lacking.is_empty() {
            return Said::AsItWas(frame);
        }
        let Ok((header, body_at)) = RequestHeader::decode(&frame) else { return Said::AsItWas(frame) };
        let asked = header.api_version;
        let Some((api, has)) = header.api().and_then(|api| Some((api, *self.lacking.get(&api)?))) else {
            return Said::AsItWas(frame);
        };
        if has.is_some_and(|has| has.contains(asked)) {
            return Said::AsItWas(frame);
        }
        let body = frame.slice(body_at..);
        let alike = translated(api);
        let said = has.and_then(|has| has.intersection(alike)).filter(|_| alike.contains(asked));
        let said = said.map(|has| asked.clamp(has.min, has.max));
        let turned = said.and_then(|said| Some((said, turn_request(api, &header, &body, said)?)));
        match turned {
            Some((said, frame)) => Said::Turned(frame, Turned { api, asked, said }),
            None => {
                tracing::warn!(
                    ?api,
                    version = asked,
                    "the broker lacks this version, and in another something would be lost"
                );
                let code = ErrorCode::UNSUPPORTED_VERSION;
                Said::NotAtAll(refused(api, asked, header.correlation_id, &body, code))
            }
        }
    }
}

impl Turned {
    /// Puts the answer, whole frame, back into the version that was asked in.
    pub(crate) fn answer(self, frame: BytesMut) -> Result<BytesMut, String> {
        let Self { api, asked, said } = self;
        turn_answer(api, &frame.freeze(), said, asked)
    }

    /// Whether this answer, whole frame, refuses all batches of a Produce.
    #[cfg(planted_bugs)]
    pub(crate) fn is_refused_batch(self, frame: &[u8]) -> bool {
        let frame = Bytes::copy_from_slice(frame);
        let Ok((_, body_at)) = ResponseHeader::decode(&frame, self.api, self.said) else { return false };
        let response = crate::kafka::ProduceResponse::decode(&frame.slice(body_at..), self.said);
        self.api == ApiKey::Produce
            && response.is_ok_and(|response| {
                let mut batches = response.responses.iter().flat_map(|topic| &topic.partition_responses);
                batches.all(|batch| batch.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER)
            })
    }
}

/// The versions that can be put into each other by their fields alone. Produce below 3 holds other records, ListOffsets 0
/// answers lists, LeaveGroup below 3 speaks of one member; these pass to a broker that has them, and no other way.
const fn translated(api: ApiKey) -> VersionRange {
    let VersionRange { min, max } = api.known_versions();
    let first = match api {
        ApiKey::Produce | ApiKey::LeaveGroup => 3,
        ApiKey::ListOffsets => 1,
        ApiKey::Fetch
        | ApiKey::Metadata
        | ApiKey::OffsetCommit
        | ApiKey::OffsetFetch
        | ApiKey::FindCoordinator
        | ApiKey::JoinGroup
        | ApiKey::Heartbeat
        | ApiKey::SyncGroup
        | ApiKey::DescribeGroups
        | ApiKey::ListGroups
        | ApiKey::SaslHandshake
        | ApiKey::ApiVersions
        | ApiKey::CreateTopics
        | ApiKey::DeleteTopics
        | ApiKey::InitProducerId
        | ApiKey::OffsetForLeaderEpoch
        | ApiKey::DescribeConfigs
        | ApiKey::AlterConfigs
        | ApiKey::SaslAuthenticate
        | ApiKey::CreatePartitions
        | ApiKey::DeleteGroups => min,
    };
    VersionRange::new(first, max)
}

/// One row per API that reaches brokers: its request.
macro_rules! by_request {
    ($api:expr, $call:ident($($argument:expr),*), else $otherwise:expr) => {
        match $api {
            ApiKey::Produce => $call::<ProduceRequest>($($argument),*),
            ApiKey::Fetch => $call::<FetchRequest>($($argument),*),
            ApiKey::ListOffsets => $call::<ListOffsetsRequest>($($argument),*),
            ApiKey::OffsetForLeaderEpoch => $call::<OffsetForLeaderEpochRequest>($($argument),*),
            ApiKey::OffsetCommit => $call::<OffsetCommitRequest>($($argument),*),
            ApiKey::OffsetFetch => $call::<OffsetFetchRequest>($($argument),*),
            ApiKey::JoinGroup => $call::<JoinGroupRequest>($($argument),*),
            ApiKey::SyncGroup => $call::<SyncGroupRequest>($($argument),*),
            ApiKey::Heartbeat => $call::<HeartbeatRequest>($($argument),*),
            ApiKey::LeaveGroup => $call::<LeaveGroupRequest>($($argument),*),
            ApiKey::DescribeGroups => $call::<DescribeGroupsRequest>($($argument),*),
            ApiKey::ListGroups => $call::<ListGroupsRequest>($($argument),*),
            ApiKey::DeleteGroups => $call::<DeleteGroupsRequest>($($argument),*),
            ApiKey::CreateTopics => $call::<CreateTopicsRequest>($($argument),*),
            ApiKey::DeleteTopics => $call::<DeleteTopicsRequest>($($argument),*),
            ApiKey::CreatePartitions => $call::<CreatePartitionsRequest>($($argument),*),
            ApiKey::DescribeConfigs => $call::<DescribeConfigsRequest>($($argument),*),
            ApiKey::AlterConfigs => $call::<AlterConfigsRequest>($($argument),*),
            ApiKey::Metadata
            | ApiKey::FindCoordinator
            | ApiKey::InitProducerId
            | ApiKey::ApiVersions
            | ApiKey::SaslHandshake
            | ApiKey::SaslAuthenticate => $otherwise,
        }
    };
}

/// `None` when it does not decode, or when a field that is not at its default would be lost.
fn turn_request(api: ApiKey, header: &RequestHeader<'_>, body: &Bytes, said: i16) -> Option<Bytes> {
    fn turn<R: Request>(header: &RequestHeader<'_>, body: &Bytes, said: i16) -> Option<Bytes> {
        let request = R::decode_prefix(body, header.api_version).ok()?;
        let loses = request.lost_in(said).is_some() && !planted(Bug::FieldLostInTranslation);
        (!loses).then(|| request_frame(header.correlation_id, header.client_id, said, &request))
    }
    by_request!(api, turn(header, body, said), else None)
}

fn turn_answer(api: ApiKey, frame: &Bytes, said: i16, asked: i16) -> Result<BytesMut, String> {
    fn turn<R: Request>(frame: &Bytes, said: i16, asked: i16) -> Result<BytesMut, String> {
        let unreadable = |error: DecodeError| error.to_string();
        let (header, body_at) = ResponseHeader::decode(frame, R::KEY, said).map_err(unreadable)?;
        let response = R::Response::decode(&frame.slice(body_at..), said).map_err(unreadable)?;
        let turned = merged_response_frame(header.correlation_id, asked, &response);
        turned.map(BytesMut::from).map_err(|_| "an answer that no frame can hold in the version asked in".to_owned())
    }
    by_request!(api, turn(frame, said, asked), else Err("an API that is never put into another version".to_owned()))
}

#[cfg(test)]
mod tests;
