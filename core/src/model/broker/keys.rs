//! Keys in etcd that brokers write for themselves.

use bytes::Bytes;

use crate::etcd::Keys;

/// The offset after the newest record that consumers may read, in decimal.
pub(super) fn next_offset(topic: &str, partition: i32) -> Bytes {
    format!("/kafscale/topics/{topic}/partitions/{partition}/next_offset").into()
}

/// The settings of a topic.
pub(super) fn topic_config(topic: &str) -> Bytes {
    format!("/kafscale/topics/{topic}/config").into()
}

/// Everything about a topic except the snapshot.
pub(super) fn topic(topic: &str) -> Keys {
    Keys::prefix(format!("/kafscale/topics/{topic}/"))
}

/// The state of a group.
pub(super) fn group(group: &str) -> Bytes {
    format!("/kafscale/consumers/{group}/metadata").into()
}

/// The group that this key holds the state of.
pub(super) fn group_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key).ok()?.strip_prefix("/kafscale/consumers/")?.strip_suffix("/metadata")
}

/// A committed offset.
pub(super) fn offset(group: &str, topic: &str, partition: i32) -> Bytes {
    format!("/kafscale/consumers/{group}/offsets/{topic}/{partition}").into()
}

/// Groups and their offsets.
pub(super) fn consumers() -> Keys {
    Keys::prefix("/kafscale/consumers/")
}

/// Whether this key holds an offset of the topic, in any group.
pub(super) fn is_offset_of(key: &[u8], topic: &str) -> bool {
    std::str::from_utf8(key).is_ok_and(|key| key.contains(&format!("/offsets/{topic}/")))
}
