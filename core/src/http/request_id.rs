//! The request id that ties an answer to logs of both sides.

use http::{HeaderMap, HeaderValue};

use crate::random::Random;

/// Longest id that is taken over from a client, bytes.
const MAX_BYTES: usize = 256;

/// The client's `X-Request-ID`, trimmed; a new UUID when it is missing, too long, or not printable text: it is
/// written to logs and sent back in a header.
pub(crate) fn of(headers: &HeaderMap, random: &mut Random) -> String {
    let given = headers.get("x-request-id").and_then(|value| std::str::from_utf8(value.as_bytes()).ok()).map(str::trim);
    match given {
        Some(id) if !id.is_empty() && id.len() <= MAX_BYTES && !id.chars().any(char::is_control) => id.to_owned(),
        Some(_) | None => random.uuid().hyphenated().to_string(),
    }
}

/// The id as a header value.
pub(crate) fn header_value(id: &str) -> HeaderValue {
    HeaderValue::from_bytes(id.as_bytes()).unwrap_or_else(|_| HeaderValue::from_static("invalid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: &[u8]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", HeaderValue::from_bytes(value).unwrap());
        of(&headers, &mut Random::new([1; 32]))
    }

    #[test]
    fn printable_ids_are_echoed_and_others_replaced() {
        assert_eq!(id(b"  job-7 "), "job-7");
        assert_eq!(id("größe".as_bytes()), "größe");
        assert_eq!(header_value("größe").as_bytes(), "größe".as_bytes());
        let long = [b'x'; 257];
        assert_eq!(id(&long[..256]).len(), 256);
        for replaced in [&long[..], b"", b"   ", b"a\tb", b"\xff\xfe"] {
            let new = id(replaced);
            assert_eq!(uuid::Uuid::parse_str(&new).unwrap().get_version_num(), 4, "{replaced:?}");
        }
    }
}
