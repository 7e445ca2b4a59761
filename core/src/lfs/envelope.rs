//! The envelope: the small JSON record that stands on the topic in place of a blob.
//!
//! Readers look for `{` as byte 0 and for `"kfs_lfs"` in the first 50 bytes, and some refuse members that they do
//! not know: the order of the members and the set of them are the contract.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

use super::checksum::{Checksums, hex};
use super::utc;

/// What an envelope says of its blob.
pub(crate) struct Envelope<'a> {
    /// Bucket of the blob.
    pub(crate) bucket: &'a str,
    /// Object key of the blob.
    pub(crate) key: &'a str,
    /// Bytes.
    pub(crate) size: u64,
    /// Digests of the blob.
    pub(crate) checksums: &'a Checksums,
    /// Media type as the client sent it; empty is left out.
    pub(crate) content_type: &'a str,
    /// Headers of the record before it was rewritten; empty is left out. On equal names the last value wins.
    pub(crate) original_headers: BTreeMap<String, String>,
    /// When, milliseconds since 1970.
    pub(crate) created_unix_ms: i64,
    /// Which proxy; empty is left out.
    pub(crate) proxy_id: &'a str,
}

/// The members in their order.
#[derive(Serialize)]
struct Members<'a> {
    kfs_lfs: u8,
    bucket: &'a str,
    key: &'a str,
    size: u64,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<&'a str>,
    checksum_alg: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    content_type: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    original_headers: &'a BTreeMap<String, String>,
    created_at: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    proxy_id: &'a str,
}

impl Envelope<'_> {
    /// Compact JSON.
    pub(crate) fn encode(&self) -> Bytes {
        let members = Members {
            kfs_lfs: 1,
            bucket: self.bucket,
            key: self.key,
            size: self.size,
            sha256: hex(&self.checksums.sha256),
            checksum: self.checksums.chosen.as_deref(),
            checksum_alg: self.checksums.algorithm.name(),
            content_type: self.content_type,
            original_headers: &self.original_headers,
            created_at: utc::seconds(self.created_unix_ms),
            proxy_id: self.proxy_id,
        };
        serde_json::to_vec(&members).expect("text, numbers and maps with text keys always have a JSON form").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lfs::checksum::{Algorithm, Digests};

    fn checksums(algorithm: Algorithm) -> Checksums {
        let mut digests = Digests::new(algorithm);
        digests.update(b"hello");
        digests.finish()
    }

    /// The example of the contract.
    #[test]
    fn contract_example() {
        let checksums = checksums(Algorithm::Sha256);
        let envelope = Envelope {
            bucket: "my-bucket",
            key: "default/orders/lfs/2026/11/29/obj-5b1e0c7a-2b1f-4c7e-8f19-2f4d7e0a9c11",
            size: 5,
            checksums: &checksums,
            content_type: "text/plain",
            original_headers: BTreeMap::from([
                ("traceparent".to_owned(), "00-…".to_owned()),
                ("content-type".to_owned(), "text/plain".to_owned()),
            ]),
            created_unix_ms: 1_795_952_645_000,
            proxy_id: "lfs-proxy-0",
        };
        let expected = concat!(
            r#"{"kfs_lfs":1,"bucket":"my-bucket","#,
            r#""key":"default/orders/lfs/2026/11/29/obj-5b1e0c7a-2b1f-4c7e-8f19-2f4d7e0a9c11","size":5,"#,
            r#""sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","#,
            r#""checksum":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","#,
            r#""checksum_alg":"sha256","content_type":"text/plain","#,
            r#""original_headers":{"content-type":"text/plain","traceparent":"00-…"},"#,
            r#""created_at":"2026-11-29T11:44:05Z","proxy_id":"lfs-proxy-0"}"#,
        );
        assert_eq!(envelope.encode(), expected);
    }

    #[test]
    fn empty_members_are_left_out_and_size_never() {
        let checksums = checksums(Algorithm::None);
        let envelope = Envelope {
            bucket: "b",
            key: "k",
            size: 0,
            checksums: &checksums,
            content_type: "",
            original_headers: BTreeMap::new(),
            created_unix_ms: 0,
            proxy_id: "",
        };
        let expected = concat!(
            r#"{"kfs_lfs":1,"bucket":"b","key":"k","size":0,"#,
            r#""sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","#,
            r#""checksum_alg":"none","created_at":"1970-01-01T00:00:00Z"}"#,
        );
        assert_eq!(envelope.encode(), expected);
    }
}
