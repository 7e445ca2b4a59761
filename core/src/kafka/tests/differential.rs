//! Agreement with the independent `kafka-protocol` crate. It trusts lengths, so it only sees what was encoded here.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

use super::{encoded, sample, versions};
use crate::kafka as ours;
use crate::kafka::message::Message;
use crate::kafka::wire::Wire;

/// Ours encodes, theirs decodes and encodes again, ours decodes: all of it must come back.
fn agree<Ours, Theirs>(bytes: &[u8])
where
    Ours: Message + Wire + PartialEq + std::fmt::Debug,
    Theirs: Decodable + Encodable + kafka_protocol::protocol::Message + std::fmt::Debug,
{
    let mut compared = 0;
    for version in versions::<Ours>().filter(|version| (Theirs::VERSIONS.min..=Theirs::VERSIONS.max).contains(version))
    {
        let message: Ours = sample(bytes, version);
        let body = encoded(&message, version);
        let mut rest: Bytes = body.clone();
        let decoded = Theirs::decode(&mut rest, version).expect("theirs decodes ours");
        assert_eq!(rest.remaining(), 0, "version {version}: {decoded:?}");
        let mut again = BytesMut::new();
        decoded.encode(&mut again, version).expect("theirs encodes what it decoded");
        let again = Ours::decode(&again.freeze(), version);
        assert_eq!(again, Ok(message), "version {version}: {decoded:?}");
        compared += 1;
    }
    assert!(compared > 0, "no version in common");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn with_an_independent_codec(bytes in vec(any::<u8>(), 0..400)) {
        agree::<ours::ProduceRequest, theirs::ProduceRequest>(&bytes);
        agree::<ours::ProduceResponse, theirs::ProduceResponse>(&bytes);
        agree::<ours::FetchRequest, theirs::FetchRequest>(&bytes);
        agree::<ours::FetchResponse, theirs::FetchResponse>(&bytes);
        agree::<ours::ApiVersionsRequest, theirs::ApiVersionsRequest>(&bytes);
        agree::<ours::ApiVersionsResponse, theirs::ApiVersionsResponse>(&bytes);
        agree::<ours::MetadataRequest, theirs::MetadataRequest>(&bytes);
        agree::<ours::MetadataResponse, theirs::MetadataResponse>(&bytes);
        agree::<ours::FindCoordinatorRequest, theirs::FindCoordinatorRequest>(&bytes);
        agree::<ours::FindCoordinatorResponse, theirs::FindCoordinatorResponse>(&bytes);
        agree::<ours::ListOffsetsRequest, theirs::ListOffsetsRequest>(&bytes);
        agree::<ours::ListOffsetsResponse, theirs::ListOffsetsResponse>(&bytes);
        agree::<ours::OffsetForLeaderEpochRequest, theirs::OffsetForLeaderEpochRequest>(&bytes);
        agree::<ours::OffsetForLeaderEpochResponse, theirs::OffsetForLeaderEpochResponse>(&bytes);
        agree::<ours::JoinGroupRequest, theirs::JoinGroupRequest>(&bytes);
        agree::<ours::JoinGroupResponse, theirs::JoinGroupResponse>(&bytes);
        agree::<ours::SyncGroupRequest, theirs::SyncGroupRequest>(&bytes);
        agree::<ours::SyncGroupResponse, theirs::SyncGroupResponse>(&bytes);
        agree::<ours::HeartbeatRequest, theirs::HeartbeatRequest>(&bytes);
        agree::<ours::HeartbeatResponse, theirs::HeartbeatResponse>(&bytes);
        agree::<ours::LeaveGroupRequest, theirs::LeaveGroupRequest>(&bytes);
        agree::<ours::LeaveGroupResponse, theirs::LeaveGroupResponse>(&bytes);
        agree::<ours::OffsetCommitRequest, theirs::OffsetCommitRequest>(&bytes);
        agree::<ours::OffsetCommitResponse, theirs::OffsetCommitResponse>(&bytes);
        agree::<ours::OffsetFetchRequest, theirs::OffsetFetchRequest>(&bytes);
        agree::<ours::OffsetFetchResponse, theirs::OffsetFetchResponse>(&bytes);
        agree::<ours::DescribeGroupsRequest, theirs::DescribeGroupsRequest>(&bytes);
        agree::<ours::DescribeGroupsResponse, theirs::DescribeGroupsResponse>(&bytes);
        agree::<ours::ListGroupsRequest, theirs::ListGroupsRequest>(&bytes);
        agree::<ours::ListGroupsResponse, theirs::ListGroupsResponse>(&bytes);
        agree::<ours::DeleteGroupsRequest, theirs::DeleteGroupsRequest>(&bytes);
        agree::<ours::DeleteGroupsResponse, theirs::DeleteGroupsResponse>(&bytes);
        agree::<ours::DescribeConfigsRequest, theirs::DescribeConfigsRequest>(&bytes);
        agree::<ours::DescribeConfigsResponse, theirs::DescribeConfigsResponse>(&bytes);
        agree::<ours::AlterConfigsRequest, theirs::AlterConfigsRequest>(&bytes);
        agree::<ours::AlterConfigsResponse, theirs::AlterConfigsResponse>(&bytes);
        agree::<ours::CreatePartitionsRequest, theirs::CreatePartitionsRequest>(&bytes);
        agree::<ours::CreatePartitionsResponse, theirs::CreatePartitionsResponse>(&bytes);
        agree::<ours::CreateTopicsRequest, theirs::CreateTopicsRequest>(&bytes);
        agree::<ours::CreateTopicsResponse, theirs::CreateTopicsResponse>(&bytes);
        agree::<ours::DeleteTopicsRequest, theirs::DeleteTopicsRequest>(&bytes);
        agree::<ours::DeleteTopicsResponse, theirs::DeleteTopicsResponse>(&bytes);
        agree::<ours::InitProducerIdRequest, theirs::InitProducerIdRequest>(&bytes);
        agree::<ours::InitProducerIdResponse, theirs::InitProducerIdResponse>(&bytes);
        agree::<ours::SaslHandshakeRequest, theirs::SaslHandshakeRequest>(&bytes);
        agree::<ours::SaslHandshakeResponse, theirs::SaslHandshakeResponse>(&bytes);
        agree::<ours::SaslAuthenticateRequest, theirs::SaslAuthenticateRequest>(&bytes);
        agree::<ours::SaslAuthenticateResponse, theirs::SaslAuthenticateResponse>(&bytes);
    }
}
