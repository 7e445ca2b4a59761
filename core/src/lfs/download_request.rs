//! The body of `POST /lfs/download`, validated (lfs-http contract section 6).

use serde::de::{Deserialize, MapAccess};

use super::object_key;
use crate::config::LfsConfig;
use crate::http::error_body::{ApiError, Code};
use crate::json_object::{Members, Object, skip};

/// Largest body of a request, bytes.
pub(crate) const BODY_MAX_BYTES: u64 = 1024 * 1024;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DownloadRequest {
    /// Object key.
    pub(crate) key: String,
    /// SHA-256, lower-case hex.
    pub(crate) sha256: String,
    pub(crate) mode: Mode,
}

/// How the blob gets to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Through the proxy, verified: at most so many bytes.
    Stream { size: u64 },
    /// By a signed URL that is valid for so long; the size is only repeated.
    Presign { expires_seconds: u64, size: u64 },
}

#[derive(Default)]
struct Root {
    bucket: Option<String>,
    key: Option<String>,
    mode: Option<String>,
    expires_seconds: Option<i64>,
    integrity: Integrity,
}

impl Members for Root {
    const WHAT: &'static str = "a JSON object";

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "bucket" => set(&mut self.bucket, map),
            "key" => set(&mut self.key, map),
            "mode" => set(&mut self.mode, map),
            "expires_seconds" => set(&mut self.expires_seconds, map),
            "integrity" => {
                if let Some(Object(integrity)) = map.next_value()? {
                    self.integrity = integrity;
                }
                Ok(())
            }
            _ => skip(map),
        }
    }
}

#[derive(Default)]
struct Integrity {
    sha256: Option<String>,
    checksum_alg: Option<String>,
    size: Option<i64>,
}

impl Members for Integrity {
    const WHAT: &'static str = "a JSON object in integrity";

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "sha256" => set(&mut self.sha256, map),
            "checksum_alg" => set(&mut self.checksum_alg, map),
            "size" => set(&mut self.size, map),
            _ => skip(map),
        }
    }
}

/// Null leaves a member as it is.
fn set<'de, T: Deserialize<'de>, A: MapAccess<'de>>(member: &mut Option<T>, map: &mut A) -> Result<(), A::Error> {
    if let Some(value) = map.next_value()? {
        *member = Some(value);
    }
    Ok(())
}

impl DownloadRequest {
    /// Reads the first JSON value of the body; what follows it is ignored, and so are unknown members.
    pub(crate) fn parse(body: &[u8], config: &LfsConfig) -> Result<Self, ApiError> {
        let Object(members) = serde_json::Deserializer::from_slice(body)
            .into_iter::<Object<Root>>()
            .next()
            .unwrap_or_else(|| Ok(Object(Root::default())))
            .map_err(|error| invalid(format!("the body is not the JSON object that is expected: {error}")))?;
        let bucket = trimmed(members.bucket);
        let key = trimmed(members.key);
        if bucket.is_empty() || key.is_empty() {
            return Err(invalid("bucket and key are required"));
        }
        if bucket != config.bucket {
            return Err(ApiError::new(Code::InvalidBucket, "this proxy serves another bucket"));
        }
        if !object_key::may_be_read(&key, &config.namespace) {
            return Err(ApiError::new(Code::InvalidKey, "the key is not that of an LFS blob of this proxy"));
        }
        let mode = trimmed(members.mode).to_lowercase();
        let presign = match mode.as_str() {
            "" | "stream" => false,
            "presign" => true,
            _ => return Err(ApiError::new(Code::InvalidMode, "mode is stream or presign")),
        };
        if presign && !config.presign_enabled {
            return Err(ApiError::new(Code::PresignDisabled, "signed URLs are not enabled at this proxy"));
        }
        let integrity = members.integrity;
        let sha256 = trimmed(integrity.sha256).to_lowercase();
        if sha256.is_empty() {
            return Err(ApiError::new(Code::MissingIntegrity, "integrity.sha256 is required"));
        }
        if sha256.len() != 64 || !sha256.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(ApiError::new(Code::InvalidIntegrity, "integrity.sha256 is 64 hex digits"));
        }
        let algorithm = trimmed(integrity.checksum_alg).to_lowercase();
        if !algorithm.is_empty() && algorithm != "sha256" {
            return Err(ApiError::new(Code::UnsupportedChecksumAlg, "downloads are verified by sha256 only"));
        }
        let size = match integrity.size.map(u64::try_from) {
            Some(Ok(size)) => Some(size),
            Some(Err(_)) => return Err(ApiError::new(Code::InvalidIntegrity, "integrity.size is not negative")),
            None => None,
        };
        if presign {
            let most = config.presign_ttl.as_secs();
            let wanted = members.expires_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|one| *one > 0);
            let expires_seconds = wanted.map_or(most, |wanted| wanted.min(most));
            return Ok(Self { key, sha256, mode: Mode::Presign { expires_seconds, size: size.unwrap_or(0) } });
        }
        // An envelope of size 0 stands for an empty value: a size of 0 that is given on purpose is a size.
        let size = size.ok_or_else(|| ApiError::new(Code::MissingIntegritySize, "integrity.size is required"))?;
        let largest = config.max_blob_bytes.unwrap_or(i64::MAX as u64 - 1);
        if size > largest || size == i64::MAX as u64 {
            let message = format!("integrity.size is larger than {largest} bytes");
            return Err(ApiError::new(Code::PayloadTooLarge, message));
        }
        Ok(Self { key, sha256, mode: Mode::Stream { size } })
    }
}

fn trimmed(text: Option<String>) -> String {
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(Code::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "2CF24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    fn parse(body: &str) -> Result<DownloadRequest, &'static str> {
        let config = LfsConfig {
            bucket: "b".into(),
            namespace: "ns".into(),
            presign_enabled: true,
            max_blob_bytes: Some(100),
            ..LfsConfig::default()
        };
        DownloadRequest::parse(body.as_bytes(), &config).map_err(|error| error.code.text())
    }

    #[test]
    fn streams() {
        let body = format!(
            r#"{{"bucket":" b ","key":"ns/t/lfs/x","integrity":{{"sha256":"{SHA}","size":5}},"more":[1]}} trailing"#
        );
        let expected =
            DownloadRequest { key: "ns/t/lfs/x".into(), sha256: SHA.to_lowercase(), mode: Mode::Stream { size: 5 } };
        assert_eq!(parse(&body), Ok(expected));
        assert_eq!(parse(&body.replace("\"size\":5", "\"size\":0")).unwrap().mode, Mode::Stream { size: 0 });
    }

    /// As the original reads it: names in any case, null is nothing, the last of repeated members counts.
    #[test]
    fn names_in_any_case_and_repeated_members() {
        let plain = format!(r#"{{"bucket":"b","key":"ns/t/lfs/x","integrity":{{"sha256":"{SHA}","size":5}}}}"#);
        let expected = parse(&plain);
        assert!(expected.is_ok());
        for body in [
            plain.replace("bucket", "Bucket").replace("key", "KEY").replace("integrity", "Integrity"),
            plain.replace("sha256", "SHA256").replace("size", "Size"),
            plain.replace(r#""key""#, r#""key":"other","key""#),
            plain.replace(r#""ns/t/lfs/x""#, r#""ns/t/lfs/x","key":null"#),
            plain.replace(r#""size":5"#, r#""size":7,"size":5"#),
            plain.replace(r#""integrity""#, r#""integrity":null,"mode":null,"integrity""#),
        ] {
            assert_eq!(parse(&body), expected, "{body}");
        }
    }

    /// An array with the right values in the right places is no object.
    #[test]
    fn what_is_no_object() {
        let array = format!(r#"["b","ns/t/lfs/x","stream",0,["{SHA}",null,5]]"#);
        let inside = format!(r#"{{"bucket":"b","key":"ns/t/lfs/x","integrity":["{SHA}",null,5]}}"#);
        let deep = format!(r#"{{"more":{}"#, "[".repeat(1_000_000));
        let expires = r#"{"bucket":"b","expires_seconds":9223372036854775808}"#.to_owned();
        for body in [array, inside, "[".repeat(1_000_000), deep, "null".into(), "7".into(), r#""b""#.into(), expires] {
            assert_eq!(parse(&body), Err("invalid_request"), "{:.80}", body);
        }
    }

    #[test]
    fn presigned_urls_live_as_long_as_asked_within_the_limit() {
        for (wanted, expected) in [("0", 120), ("-3", 120), ("60", 60), ("121", 120), ("null", 120)] {
            let body = format!(
                r#"{{"bucket":"b","key":"ns/t/lfs/x","mode":"PreSign","expires_seconds":{wanted},"integrity":{{"sha256":"{SHA}"}}}}"#
            );
            let mode = Mode::Presign { expires_seconds: expected, size: 0 };
            assert_eq!(parse(&body).map(|request| request.mode), Ok(mode), "{wanted}");
        }
    }

    #[test]
    fn checks_in_their_order() {
        let with = |bucket: &str, key: &str, mode: &str, integrity: &str| {
            format!(r#"{{"bucket":"{bucket}","key":"{key}","mode":"{mode}","integrity":{integrity}}}"#)
        };
        let key = "ns/t/lfs/x";
        let integrity = |sha: &str, more: &str| format!(r#"{{"sha256":"{sha}"{more}}}"#);
        let table = [
            (String::new(), "invalid_request"),
            ("{".into(), "invalid_request"),
            ("[]x".into(), "invalid_request"),
            (r#"{"bucket":1}"#.into(), "invalid_request"),
            (with(" ", key, "x", "null"), "invalid_request"),
            (with("c", "x", "x", "null"), "invalid_bucket"),
            (with("b", "ns/t/segments/x", "x", "null"), "invalid_key"),
            (with("b", key, "copy", "null"), "invalid_mode"),
            (with("b", key, "", "null"), "missing_integrity"),
            (with("b", key, "", &integrity("ab", "")), "invalid_integrity"),
            (with("b", key, "", &integrity(SHA, r#","checksum_alg":"md5","size":-1"#)), "unsupported_checksum_alg"),
            (with("b", key, "", &integrity(SHA, r#","size":-1"#)), "invalid_integrity"),
            (with("b", key, "", &integrity(SHA, "")), "missing_integrity_size"),
            (with("b", key, "", &integrity(SHA, r#","size":101"#)), "payload_too_large"),
            (with("b", key, "", &integrity(SHA, r#","size":9223372036854775807"#)), "payload_too_large"),
            (with("b", key, "", &integrity(SHA, r#","size":"5""#)), "invalid_request"),
        ];
        for (body, code) in table {
            assert_eq!(parse(&body), Err(code), "{body}");
        }
        let config = LfsConfig { bucket: "b".into(), namespace: "ns".into(), ..LfsConfig::default() };
        let body = with("b", key, "presign", &integrity(SHA, ""));
        let error = DownloadRequest::parse(body.as_bytes(), &config).unwrap_err();
        assert_eq!(error.code, Code::PresignDisabled);
    }
}
