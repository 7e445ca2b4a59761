//! The head of `POST /lfs/produce`, validated (lfs-http contract section 3, steps 2 to 7).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::checksum::Algorithm;
use super::object_key::is_topic_name;
use crate::config::LfsConfig;
use crate::http::content_length;
use crate::http::error_body::{ApiError, Code};

/// What a client asks to be produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProduceRequest {
    /// Topic name.
    pub(crate) topic: String,
    /// Record key, decoded.
    pub(crate) key: Option<Bytes>,
    /// Partition that the client chose.
    pub(crate) partition: Option<i32>,
    /// Checksum beside the SHA-256.
    pub(crate) algorithm: Algorithm,
    /// The digest that the client expects.
    pub(crate) checksum: Option<String>,
    /// Media type as sent, empty when absent.
    pub(crate) content_type: String,
    /// Bytes that the framing of the body promises.
    pub(crate) content_length: Option<u64>,
    /// Bytes that `X-LFS-Size` promises.
    pub(crate) promised_size: Option<u64>,
}

impl ProduceRequest {
    /// Reads the headers. Nothing of the body has been read yet, so a refusal costs nothing.
    pub(crate) fn parse(headers: &HeaderMap, config: &LfsConfig) -> Result<Self, ApiError> {
        let topic = text(headers, "x-kafka-topic");
        if topic.is_empty() {
            return Err(ApiError::new(Code::MissingTopic, "the header X-Kafka-Topic names the topic"));
        }
        if !is_topic_name(&topic, config.topic_max_length) {
            let message = format!(
                "a topic name has letters, digits, '.', '_' and '-', at most {}, and is not '.' or '..'",
                config.topic_max_length
            );
            return Err(ApiError::new(Code::InvalidTopic, message));
        }
        let key = record_key(&text(headers, "x-kafka-key"))?;
        let partition = match text(headers, "x-kafka-partition") {
            absent if absent.is_empty() => None,
            given => Some(given.parse().ok().filter(|partition: &i32| *partition >= 0).ok_or_else(|| {
                ApiError::new(Code::InvalidPartition, "X-Kafka-Partition is a decimal number from 0 to 2147483647")
            })?),
        };
        let algorithm = match text(headers, "x-lfs-checksum-alg") {
            absent if absent.is_empty() => config.checksum_algorithm,
            given => Algorithm::parse(&given).ok_or_else(|| {
                ApiError::new(Code::InvalidRequest, "X-LFS-Checksum-Alg is one of sha256, md5, crc32, none")
            })?,
        };
        let checksum = Some(text(headers, "x-lfs-checksum")).filter(|given| !given.is_empty());
        if checksum.is_some() && algorithm == Algorithm::None {
            return Err(ApiError::new(Code::InvalidChecksum, "a checksum is given, but its algorithm is none"));
        }
        let content_length = content_length(headers);
        let promised_size = promised_size(&text(headers, "x-lfs-size"))?;
        let content_type = headers
            .get(CONTENT_TYPE)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
            .unwrap_or_default();
        Ok(Self { topic, key, partition, algorithm, checksum, content_type, content_length, promised_size })
    }

    /// What is promised of the size. From here on a refusal counts as an error of the topic.
    pub(crate) fn check_size(&self, max_blob_bytes: Option<u64>) -> Result<(), ApiError> {
        let largest = self.content_length.max(self.promised_size);
        if let (Some(max), Some(largest)) = (max_blob_bytes, largest)
            && largest > max
        {
            return Err(too_large(max));
        }
        match (self.promised_size, self.content_length) {
            (Some(promised), Some(framed)) if promised != framed => Err(size_mismatch(promised)),
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// Size of the body, as far as somebody has promised it.
    pub(crate) fn announced_size(&self) -> Option<u64> {
        self.content_length.or(self.promised_size)
    }
}

/// The blob is larger than the configured limit.
pub(crate) fn too_large(max_bytes: u64) -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("the body is larger than {max_bytes} bytes"))
}

/// The body is not as long as `X-LFS-Size` says.
pub(crate) fn size_mismatch(promised: u64) -> ApiError {
    ApiError::new(Code::SizeMismatch, format!("the body has not the {promised} bytes that X-LFS-Size promises"))
}

/// A header as trimmed text, empty when absent. Bytes that are not UTF-8 become U+FFFD, which no rule accepts.
fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned()).unwrap_or_default()
}

fn record_key(base64: &str) -> Result<Option<Bytes>, ApiError> {
    if base64.is_empty() {
        return Ok(None);
    }
    let decoded = STANDARD
        .decode(base64)
        .map_err(|_| ApiError::new(Code::InvalidKey, "X-Kafka-Key is base64 (standard alphabet, with padding)"))?;
    Ok(Some(decoded.into()))
}

fn promised_size(text: &str) -> Result<Option<u64>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = text.parse().map_err(|_| ApiError::new(Code::SizeMismatch, "X-LFS-Size is a decimal number"))?;
    Ok(Some(parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &[(&'static str, &str)]) -> Result<ProduceRequest, &'static str> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().unwrap());
        }
        let config = LfsConfig { max_blob_bytes: Some(100), ..LfsConfig::default() };
        let parsed = ProduceRequest::parse(&headers, &config);
        let checked = parsed.and_then(|request| request.check_size(config.max_blob_bytes).map(|()| request));
        checked.map_err(|error| error.code.text())
    }

    #[test]
    fn all_headers() {
        let request = parse(&[
            ("x-kafka-topic", " orders "),
            ("x-kafka-key", "a2V5"),
            ("x-kafka-partition", "3"),
            ("x-lfs-checksum-alg", "MD5"),
            ("x-lfs-checksum", "ABCD"),
            ("x-lfs-size", "12"),
            ("x-lfs-mode", "multipart"),
            ("content-range", "bytes 0-1/2"),
            ("content-type", "video/mp4"),
            ("content-length", "12"),
        ]);
        let expected = ProduceRequest {
            topic: "orders".into(),
            key: Some(Bytes::from_static(b"key")),
            partition: Some(3),
            algorithm: Algorithm::Md5,
            checksum: Some("ABCD".into()),
            content_type: "video/mp4".into(),
            content_length: Some(12),
            promised_size: Some(12),
        };
        assert_eq!(request, Ok(expected));
    }

    #[test]
    fn defaults() {
        let request =
            parse(&[("x-kafka-topic", "t"), ("transfer-encoding", "chunked"), ("content-length", "9")]).unwrap();
        assert_eq!((request.key, request.partition, request.checksum), (None, None, None));
        assert_eq!(request.algorithm, Algorithm::Sha256);
        assert_eq!(request.content_length, None, "a chunked body has no length");
    }

    #[test]
    fn checks_in_their_order() {
        let topic = ("x-kafka-topic", "t");
        let table: [(&[(&'static str, &str)], &str); 14] = [
            (&[], "missing_topic"),
            (&[("x-kafka-topic", "  ")], "missing_topic"),
            (&[("x-kafka-topic", "a/b"), ("x-kafka-key", "!")], "invalid_topic"),
            (&[topic, ("x-kafka-key", "user-1"), ("x-kafka-partition", "x")], "invalid_key"),
            (&[topic, ("x-kafka-key", "YQ")], "invalid_key"),
            (&[topic, ("x-kafka-partition", "-1"), ("x-lfs-checksum-alg", "x")], "invalid_partition"),
            (&[topic, ("x-kafka-partition", "2147483648")], "invalid_partition"),
            (&[topic, ("x-lfs-checksum-alg", "sha1"), ("content-length", "101")], "invalid_request"),
            (&[topic, ("x-lfs-checksum-alg", "none"), ("x-lfs-checksum", "ab")], "invalid_checksum"),
            (&[topic, ("content-length", "101")], "payload_too_large"),
            (&[topic, ("x-lfs-size", "101")], "payload_too_large"),
            (&[topic, ("x-lfs-size", "99"), ("content-length", "100")], "size_mismatch"),
            (&[topic, ("x-lfs-size", "many")], "size_mismatch"),
            (&[topic, ("x-lfs-size", "-5")], "size_mismatch"),
        ];
        for (headers, code) in table {
            assert_eq!(parse(headers), Err(code), "{headers:?}");
        }
        assert!(parse(&[topic, ("content-length", "100")]).is_ok(), "the limit itself is allowed");
    }
}
