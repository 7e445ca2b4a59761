//! One message body: what can be read can be written, and reads the same again; an independent codec agrees.

use std::fmt::Debug;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{self, Decodable, Encodable};
use kafscale_proxy_core::kafka::{self as ours, ApiKey, Message};

use super::draw::Draw;

/// Calls `$check!(Type, index)` for every message; indexes stand in the corpus and do not change.
macro_rules! for_every_message {
    ($check:ident) => {
        for_every_message! { $check
            0 ProduceRequest, 1 ProduceResponse, 2 FetchRequest, 3 FetchResponse, 4 ApiVersionsRequest,
            5 ApiVersionsResponse, 6 MetadataRequest, 7 MetadataResponse, 8 FindCoordinatorRequest,
            9 FindCoordinatorResponse, 10 ListOffsetsRequest, 11 ListOffsetsResponse, 12 OffsetForLeaderEpochRequest,
            13 OffsetForLeaderEpochResponse, 14 JoinGroupRequest, 15 JoinGroupResponse, 16 SyncGroupRequest,
            17 SyncGroupResponse, 18 HeartbeatRequest, 19 HeartbeatResponse, 20 LeaveGroupRequest,
            21 LeaveGroupResponse, 22 OffsetCommitRequest, 23 OffsetCommitResponse, 24 OffsetFetchRequest,
            25 OffsetFetchResponse, 26 DescribeGroupsRequest, 27 DescribeGroupsResponse, 28 ListGroupsRequest,
            29 ListGroupsResponse, 30 DeleteGroupsRequest, 31 DeleteGroupsResponse, 32 DescribeConfigsRequest,
            33 DescribeConfigsResponse, 34 AlterConfigsRequest, 35 AlterConfigsResponse, 36 CreatePartitionsRequest,
            37 CreatePartitionsResponse, 38 CreateTopicsRequest, 39 CreateTopicsResponse, 40 DeleteTopicsRequest,
            41 DeleteTopicsResponse, 42 InitProducerIdRequest, 43 InitProducerIdResponse, 44 SaslHandshakeRequest,
            45 SaslHandshakeResponse, 46 SaslAuthenticateRequest, 47 SaslAuthenticateResponse
        }
    };
    ($check:ident $($index:literal $message:ident),*) => { $($check!($message, $index);)* };
}

/// How many messages there are: one more than the largest index.
const MESSAGES: u8 = 48;

/// Index of the message, version, body.
pub fn codec(input: &[u8]) {
    let mut draw = Draw::new(input);
    let (index, version) = (draw.byte() % MESSAGES, draw.byte());
    let body = Bytes::copy_from_slice(draw.rest());
    macro_rules! check {
        ($message:ident, $index:literal) => {
            if index == $index {
                check::<ours::$message, theirs::$message>(version, &body);
            }
        };
    }
    for_every_message!(check);
}

/// The bytes that make [`codec`] look at this body.
pub(super) fn codec_input(api: ApiKey, is_response: bool, version: i16, body: &[u8]) -> Vec<u8> {
    let mut found = None;
    macro_rules! find {
        ($message:ident, $index:literal) => {
            if ours::$message::KEY == api && ($index % 2 == 1) == is_response {
                found = Some($index);
            }
        };
    }
    for_every_message!(find);
    let index: u8 = found.expect("every API has both messages");
    let version = version - api.known_versions().min;
    [&[index, u8::try_from(version).expect("versions are small")], body].concat()
}

fn check<Ours, Theirs>(version: u8, body: &Bytes)
where
    Ours: Message + PartialEq + Debug,
    Theirs: Decodable + Encodable + protocol::Message + Debug,
{
    let known = Ours::KEY.known_versions();
    let version = known.min + i16::from(version) % (known.max - known.min + 1);
    let Ok(message) = Ours::decode(body, version) else { return };
    let written = encoded(&message, version);
    assert_eq!(Ours::decode(&written, version).as_ref(), Ok(&message), "version {version}");
    assert_eq!(message.lost_in(version), None, "version {version}: what was read can be written");
    if !(Theirs::VERSIONS.min..=Theirs::VERSIONS.max).contains(&version) {
        return;
    }
    // It trusts lengths, so it never sees bytes that were not written here.
    let again = through_theirs::<Theirs>(&written, version);
    // It leaves tagged fields at their default out, and only those.
    let tags_at_default = again.len() < written.len() && Ours::KEY == ApiKey::Fetch && Ours::KEY.is_flexible(version);
    if !tags_at_default {
        assert_eq!(again, written, "version {version}: {message:?}");
        return;
    }
    let reduced = Ours::decode(&again, version).expect("ours decodes theirs");
    assert_eq!(encoded(&reduced, version), again, "version {version}: {message:?}");
}

fn through_theirs<Theirs: Decodable + Encodable + Debug>(written: &Bytes, version: i16) -> Bytes {
    let mut rest = written.clone();
    let decoded = Theirs::decode(&mut rest, version).expect("theirs decodes ours");
    assert_eq!(rest.remaining(), 0, "version {version}: {decoded:?}");
    let mut again = BytesMut::new();
    decoded.encode(&mut again, version).expect("theirs encodes what it decoded");
    again.freeze()
}

fn encoded<M: Message>(message: &M, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(version, &mut out);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_dense_and_requests_are_even() {
        let mut seen = Vec::new();
        macro_rules! check {
            ($message:ident, $index:literal) => {
                assert_eq!(usize::from(u8::from($index)), seen.len());
                assert_eq!(stringify!($message).ends_with("Response"), $index % 2 == 1);
                seen.push(ours::$message::KEY);
            };
        }
        for_every_message!(check);
        assert_eq!(seen.len(), usize::from(MESSAGES));
        assert!(ApiKey::ALL.iter().all(|api| seen.contains(api)));
    }
}
