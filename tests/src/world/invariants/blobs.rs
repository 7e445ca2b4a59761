//! I1: every record that refers to a blob finds it whole.

use bytes::Bytes;
use kafscale_proxy_core::kafka::batches;
use kafscale_proxy_core::model::broker::SharedLog;
use sha2::{Digest, Sha256};

use crate::world::S3Side;

/// An envelope as it stands in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset of its record.
    pub offset: i64,
    /// Object key.
    pub key: String,
    /// Size of the blob, bytes.
    pub size: u64,
    /// SHA-256, lower-case hex.
    pub sha256: String,
}

/// A record whose blob is not as it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobFault {
    /// The record.
    pub envelope: Envelope,
    /// What is wrong.
    pub fault: String,
}

/// Every envelope in the log. Records that are none are passed over.
pub fn envelopes(log: &SharedLog) -> Vec<Envelope> {
    let mut found = Vec::new();
    for (topic, partition, stored) in log.partitions() {
        for segment in stored.segments() {
            for batch in batches(&segment.records) {
                let batch = batch.expect("the log holds whole batches");
                for record in batch.records().expect("the world writes plain records") {
                    let Some(value) = record.value.as_ref() else { continue };
                    let Ok(json) = serde_json::from_slice::<serde_json::Value>(value) else { continue };
                    if json.get("kfs_lfs").is_none() {
                        continue;
                    }
                    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
                    found.push(Envelope {
                        topic: topic.to_owned(),
                        partition,
                        offset: batch.header.base_offset + i64::from(record.offset_delta),
                        key: text("key"),
                        size: json["size"].as_u64().unwrap_or_default(),
                        sha256: text("sha256"),
                    });
                }
            }
        }
    }
    found
}

/// Compares every envelope with its object.
pub fn check_blobs(log: &SharedLog, s3: &S3Side) -> Vec<BlobFault> {
    let faults = envelopes(log).into_iter().filter_map(|envelope| {
        let fault = match s3.model.object(&envelope.key).and_then(|object| s3.blobs.content(object)) {
            None => Some("the object is not there".to_owned()),
            Some(content) => differs(&envelope, &content),
        };
        fault.map(|fault| BlobFault { envelope, fault })
    });
    faults.collect()
}

/// SHA-256 as envelopes and answers write it.
pub fn sha256_hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn differs(envelope: &Envelope, content: &Bytes) -> Option<String> {
    let digest = sha256_hex(content);
    if content.len() as u64 != envelope.size {
        return Some(format!("{} bytes instead of {}", content.len(), envelope.size));
    }
    (digest != envelope.sha256).then(|| format!("SHA-256 {digest}"))
}
