//! Agreement with the independent `kafka-protocol` crate. It trusts lengths, so it only sees what was encoded here.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::collection::vec;
use proptest::prelude::{any, proptest};

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
    #[test]
    fn with_an_independent_codec(bytes in vec(any::<u8>(), 0..400)) {
        agree::<ours::ProduceRequest, theirs::ProduceRequest>(&bytes);
        agree::<ours::ProduceResponse, theirs::ProduceResponse>(&bytes);
        agree::<ours::FetchRequest, theirs::FetchRequest>(&bytes);
        agree::<ours::FetchResponse, theirs::FetchResponse>(&bytes);
    }
}
