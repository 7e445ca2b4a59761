//! Agreement with the independent `kafka-protocol` crate. It trusts lengths, so it only sees what was encoded here.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable};
use kafka_protocol::records::{Compression, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

use super::{encoded, sample, versions};
use crate::kafka as ours;
use crate::kafka::message::Message;
use crate::kafka::wire::Wire;

/// Ours encodes, theirs decodes and encodes again, ours decodes: the same bytes and the same message must come back.
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
        assert_eq!(again, body, "version {version}: {decoded:?}");
        assert_eq!(Ours::decode(&again.freeze(), version), Ok(message), "version {version}");
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

#[test]
fn record_batches_with_an_independent_codec() {
    let text = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let headers = vec![
        ours::RecordHeader { name: Bytes::from_static(b"a"), value: text("1") },
        ours::RecordHeader { name: Bytes::from_static(b"b"), value: None },
    ];
    let sent = [
        ours::Record { key: text("k"), value: text("v"), headers, ..ours::Record::default() },
        ours::Record { key: None, value: text(""), timestamp_delta: 250, ..ours::Record::default() },
        ours::Record { key: text(""), value: None, timestamp_delta: -250, ..ours::Record::default() },
    ];
    let batch = ours::build_batch(1_700_000_000_000, sent.clone());

    // Theirs checks the CRC.
    let mut rest = batch.clone();
    let decoded = RecordBatchDecoder::decode(&mut rest).expect("theirs decodes ours");
    assert_eq!(rest.remaining(), 0);
    for (offset, (sent, theirs)) in sent.iter().zip(&decoded.records).enumerate() {
        assert_eq!(theirs.offset, offset as i64);
        assert_eq!(theirs.timestamp, 1_700_000_000_000 + sent.timestamp_delta);
        assert_eq!((&theirs.key, &theirs.value), (&sent.key, &sent.value));
        let headers: Vec<_> = theirs.headers.iter().map(|(name, value)| (name.as_bytes(), value)).collect();
        let expected: Vec<_> = sent.headers.iter().map(|header| (&header.name[..], &header.value)).collect();
        assert_eq!(headers, expected);
    }

    let mut again = BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    RecordBatchEncoder::encode(&mut again, &decoded.records, &options).expect("theirs encodes what it decoded");
    let batches: Vec<_> = ours::batches(&again.freeze()).map(|batch| batch.expect("ours decodes theirs")).collect();
    let mut read = Vec::new();
    for batch in &batches {
        assert_eq!(batch.check_crc(), Ok(()));
        read.extend(batch.records().expect("ours reads the records of theirs"));
    }
    let content = |record: &ours::Record| (record.key.clone(), record.value.clone(), record.headers.clone());
    assert_eq!(read.iter().map(content).collect::<Vec<_>>(), sent.iter().map(content).collect::<Vec<_>>());
}

#[test]
fn headers_with_an_independent_codec() {
    for api in ours::ApiKey::ALL {
        let key = i16::from(*api);
        let their_key = theirs::ApiKey::try_from(key).expect("theirs knows all of our APIs");
        for version in api.known_versions().iter() {
            for client_id in [None, Some(""), Some("client")] {
                let header = ours::RequestHeader { api_key: key, api_version: version, correlation_id: 5, client_id };
                let mut out = BytesMut::new();
                header.encode(&mut out);
                let bytes = out.freeze();
                let mut rest = bytes.clone();
                let header_version = their_key.request_header_version(version);
                let decoded = theirs::RequestHeader::decode(&mut rest, header_version).expect("theirs decodes ours");
                assert_eq!(rest.remaining(), 0, "{api:?} {version}");
                assert_eq!(decoded.client_id.as_deref(), client_id);
                let mut again = BytesMut::new();
                decoded.encode(&mut again, header_version).expect("theirs encodes what it decoded");
                assert_eq!(again, bytes, "{api:?} {version}");
            }
            let mut ours = BytesMut::new();
            ours::ResponseHeader { correlation_id: 5 }.encode(*api, version, &mut ours);
            let mut expected = BytesMut::new();
            theirs::ResponseHeader::default()
                .with_correlation_id(5)
                .encode(&mut expected, their_key.response_header_version(version))
                .expect("theirs encodes a response header");
            assert_eq!(ours, expected, "{api:?} {version}");
        }
    }
}
