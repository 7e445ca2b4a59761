//! What holds for every message and version: round trips, agreement with an independent codec, hostile input.

mod differential;
mod golden;
mod hostile;
mod round_trip;

use bytes::{Bytes, BytesMut};

use super::api::ApiKey;
use super::message::Message;
use super::wire::{Layout, Wire};

/// Choices drawn from a list of bytes; zeros when it is used up, which makes small values.
pub(crate) struct Draw<'a> {
    bytes: &'a [u8],
}

impl<'a> Draw<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    pub(crate) fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    /// Small ones, extremes, and now and then anything.
    pub(crate) fn integer(&mut self) -> i64 {
        match self.byte() {
            0xff => i64::MIN,
            0xfe => i64::MAX,
            0xfd => i64::from_be_bytes(std::array::from_fn(|_| self.byte())),
            0xfc => -1,
            small => i64::from(small),
        }
    }

    pub(crate) fn text(&mut self) -> String {
        // Beyond 127 bytes a compact length takes two bytes.
        let length = match self.byte() {
            long @ 0xf0.. => 100 + usize::from(long - 0xf0) * 8,
            short => usize::from(short % 8),
        };
        (0..length).map(|_| char::from(b'a' + self.below(26))).collect()
    }
}

/// Content of a tagged field. Other codecs leave one at its default out, so there is none here either.
pub(crate) fn sample_tagged<T: Wire + Default + PartialEq>(draw: &mut Draw<'_>, layout: Layout) -> Option<T> {
    Some(T::sample(draw, layout)).filter(|value| *value != T::default())
}

/// A message that can be drawn from a list of bytes.
pub(crate) trait Sampled: Message {
    /// One that survives this version.
    fn sampled(bytes: &[u8], version: i16) -> Self;
}

impl<M: Message + Wire> Sampled for M {
    fn sampled(bytes: &[u8], version: i16) -> Self {
        sample(bytes, version)
    }
}

pub(crate) fn sample<M: Message + Wire>(bytes: &[u8], version: i16) -> M {
    let layout = Layout { version, flexible: M::KEY.is_flexible(version) };
    M::sample(&mut Draw::new(bytes), layout)
}

pub(crate) fn encoded<M: Message>(message: &M, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(version, &mut out);
    out.freeze()
}

/// A message with one byte overwritten.
pub(crate) fn damaged<M: Message + Wire>(bytes: &[u8], version: i16, at: usize, value: u8) -> Bytes {
    let mut body = BytesMut::from(&encoded::<M>(&sample(bytes, version), version)[..]);
    let at = at.checked_rem(body.len());
    if let Some(byte) = at.and_then(|at| body.get_mut(at)) {
        *byte = value;
    }
    body.freeze()
}

/// Calls `$check!(Type)` for every message.
macro_rules! for_every_message {
    ($check:ident) => {
        $check!(crate::kafka::ProduceRequest);
        $check!(crate::kafka::ProduceResponse);
        $check!(crate::kafka::FetchRequest);
        $check!(crate::kafka::FetchResponse);
        $check!(crate::kafka::ApiVersionsRequest);
        $check!(crate::kafka::ApiVersionsResponse);
        $check!(crate::kafka::MetadataRequest);
        $check!(crate::kafka::MetadataResponse);
        $check!(crate::kafka::FindCoordinatorRequest);
        $check!(crate::kafka::FindCoordinatorResponse);
        $check!(crate::kafka::ListOffsetsRequest);
        $check!(crate::kafka::ListOffsetsResponse);
        $check!(crate::kafka::OffsetForLeaderEpochRequest);
        $check!(crate::kafka::OffsetForLeaderEpochResponse);
        $check!(crate::kafka::JoinGroupRequest);
        $check!(crate::kafka::JoinGroupResponse);
        $check!(crate::kafka::SyncGroupRequest);
        $check!(crate::kafka::SyncGroupResponse);
        $check!(crate::kafka::HeartbeatRequest);
        $check!(crate::kafka::HeartbeatResponse);
        $check!(crate::kafka::LeaveGroupRequest);
        $check!(crate::kafka::LeaveGroupResponse);
        $check!(crate::kafka::OffsetCommitRequest);
        $check!(crate::kafka::OffsetCommitResponse);
        $check!(crate::kafka::OffsetFetchRequest);
        $check!(crate::kafka::OffsetFetchResponse);
        $check!(crate::kafka::DescribeGroupsRequest);
        $check!(crate::kafka::DescribeGroupsResponse);
        $check!(crate::kafka::ListGroupsRequest);
        $check!(crate::kafka::ListGroupsResponse);
        $check!(crate::kafka::DeleteGroupsRequest);
        $check!(crate::kafka::DeleteGroupsResponse);
        $check!(crate::kafka::DescribeConfigsRequest);
        $check!(crate::kafka::DescribeConfigsResponse);
        $check!(crate::kafka::AlterConfigsRequest);
        $check!(crate::kafka::AlterConfigsResponse);
        $check!(crate::kafka::CreatePartitionsRequest);
        $check!(crate::kafka::CreatePartitionsResponse);
        $check!(crate::kafka::CreateTopicsRequest);
        $check!(crate::kafka::CreateTopicsResponse);
        $check!(crate::kafka::DeleteTopicsRequest);
        $check!(crate::kafka::DeleteTopicsResponse);
        $check!(crate::kafka::InitProducerIdRequest);
        $check!(crate::kafka::InitProducerIdResponse);
        $check!(crate::kafka::SaslHandshakeRequest);
        $check!(crate::kafka::SaslHandshakeResponse);
        $check!(crate::kafka::SaslAuthenticateRequest);
        $check!(crate::kafka::SaslAuthenticateResponse);
    };
}

use for_every_message;

pub(crate) fn versions<M: Message>() -> impl Iterator<Item = i16> {
    let range = M::KEY.known_versions();
    range.min..=range.max
}

#[test]
fn every_api_has_both_messages() {
    let mut seen = Vec::new();
    macro_rules! check {
        ($message:ty) => {
            seen.push(<$message>::KEY);
        };
    }
    for_every_message!(check);
    for api in ApiKey::ALL {
        assert_eq!(seen.iter().filter(|key| *key == api).count(), 2, "{api:?}");
    }
}
