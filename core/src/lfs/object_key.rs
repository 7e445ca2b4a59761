//! Names of blobs in the bucket: `<namespace>/<topic>/lfs/<YYYY>/<MM>/<DD>/obj-<uuid>`.
//!
//! A key is drawn once and never used again, so that a late delete cannot hit a newer object.

use crate::random::Random;

use super::utc;

/// Draws the key of a new blob.
pub(crate) fn draw(namespace: &str, topic: &str, unix_ms: i64, random: &mut Random) -> String {
    format!("{namespace}/{topic}/lfs/{}/obj-{}", utc::day_path(unix_ms), random.uuid().hyphenated())
}

/// Whether a download may name this key: below the namespace, in some topic's `lfs` folder, without path tricks.
///
/// Only whole segments `.` and `..` are refused: a topic may be called `a..b`, and its blobs must be readable.
pub(crate) fn may_be_read(key: &str, namespace: &str) -> bool {
    let inside = namespace.is_empty() || key.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('/'));
    !key.starts_with('/') && inside && key.contains("/lfs/") && !key.split('/').any(|part| part == "." || part == "..")
}

/// Topic names: the Kafka rule, with the configured length. They become part of keys, so `.` and `..` are refused.
pub(crate) fn is_topic_name(topic: &str, max_length: usize) -> bool {
    !topic.is_empty()
        && topic.len() <= max_length
        && topic != "."
        && topic != ".."
        && topic.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_key_has_the_contract_shape_and_can_be_read() {
        let mut random = Random::new([7; 32]);
        let key = draw("default", "a..b", 1_795_952_645_999, &mut random);
        let uuid = key.strip_prefix("default/a..b/lfs/2026/11/29/obj-").unwrap();
        assert_eq!(uuid::Uuid::parse_str(uuid).unwrap().get_version_num(), 4);
        assert_eq!(uuid, uuid.to_lowercase());
        assert!(may_be_read(&key, "default"));
        assert_ne!(key, draw("default", "a..b", 1_795_952_645_999, &mut random));
    }

    #[test]
    fn keys_that_may_be_read() {
        let table = [
            ("ns/t/lfs/2026/11/29/obj-1", "ns", true),
            ("ns/t/lfs/x", "", true),
            ("nsx/t/lfs/x", "ns", false),
            ("other/t/lfs/x", "ns", false),
            ("/ns/t/lfs/x", "ns", false),
            ("/t/lfs/x", "", false),
            ("ns/t/segments/x", "ns", false),
            ("ns/../other/lfs/x", "ns", false),
            ("ns/t/lfs/./x", "ns", false),
            ("ns/t/lfs/..", "ns", false),
            ("ns/a..b/lfs/x", "ns", true),
            ("ns", "ns", false),
        ];
        for (key, namespace, expected) in table {
            assert_eq!(may_be_read(key, namespace), expected, "{key} in {namespace}");
        }
    }

    #[test]
    fn topic_names() {
        let table = [
            ("orders", true),
            ("a..b", true),
            ("A.b_c-9", true),
            ("", false),
            (".", false),
            ("..", false),
            ("a/b", false),
            ("a b", false),
            ("straße", false),
            ("12345678", true),
            ("123456789", false),
        ];
        for (topic, expected) in table {
            assert_eq!(is_topic_name(topic, 8), expected, "{topic}");
        }
    }
}
