//! The API key of the LFS API.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Whether the request may pass. Without a configured key everybody may.
///
/// The key comes from `X-API-Key`; only if that is empty, from `Authorization: Bearer` (RFC 6750). A wrong
/// `X-API-Key` is not rescued by a right bearer token. Digests are compared, so that the time tells neither how much of a
/// key is right nor how long it is.
pub(crate) fn is_authorized(headers: &HeaderMap, api_key: Option<&str>) -> bool {
    let Some(api_key) = api_key else { return true };
    let own = headers.get("x-api-key").map_or(&b""[..], |value| value.as_bytes().trim_ascii());
    let given = if own.is_empty() { bearer(headers) } else { own };
    bool::from(Sha256::digest(given).ct_eq(&Sha256::digest(api_key)))
}

/// The token of a bearer authorization, empty when there is none.
fn bearer(headers: &HeaderMap) -> &[u8] {
    const SCHEME: &[u8] = b"bearer ";
    headers.get(AUTHORIZATION).map_or(b"", |value| {
        let value = value.as_bytes().trim_ascii();
        match value.split_at_checked(SCHEME.len()) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => token.trim_ascii(),
            Some(_) | None => b"",
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let table: [(&[(&str, &str)], bool); 9] = [
            (&[], false),
            (&[("x-api-key", "secret")], true),
            (&[("x-api-key", "  secret ")], true),
            (&[("x-api-key", "secre")], false),
            (&[("authorization", "Bearer secret")], true),
            (&[("authorization", "bEARER   secret")], true),
            (&[("authorization", "Basic secret")], false),
            (&[("x-api-key", ""), ("authorization", "Bearer secret")], true),
            (&[("x-api-key", "wrong"), ("authorization", "Bearer secret")], false),
        ];
        for (given, expected) in table {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.insert(*name, value.parse().unwrap());
            }
            assert_eq!(is_authorized(&headers, Some("secret")), expected, "{given:?}");
            assert!(is_authorized(&headers, None));
        }
    }
}
