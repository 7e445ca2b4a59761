//! What is written is read again.

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::prop_assert_eq;

use super::{encoded, for_every_message, sample, versions};
use crate::kafka::message::Message;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn decoding_undoes_encoding(bytes in vec(any::<u8>(), 0..400)) {
        macro_rules! check {
            ($message:ty) => {
                for version in versions::<$message>() {
                    let message: $message = sample(&bytes, version);
                    let body = encoded(&message, version);
                    prop_assert_eq!(<$message>::decode(&body, version), Ok(message.clone()), "version {}", version);
                    prop_assert_eq!(message.lost_in(version), None, "version {}", version);
                }
            };
        }
        for_every_message!(check);
    }
}

#[test]
fn defaults_survive_every_version() {
    macro_rules! check {
        ($message:ty) => {
            for version in versions::<$message>() {
                let body = encoded(&<$message>::default(), version);
                let decoded = <$message>::decode(&body, version).unwrap();
                assert_eq!(encoded(&decoded, version), body, "version {version}");
            }
        };
    }
    for_every_message!(check);
}
