//! Cross-origin requests (<https://fetch.spec.whatwg.org/#http-cors-protocol>): every answer below `/lfs/` carries
//! these headers, so that a page of any origin can read it. Nothing is guarded by cookies.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS,
};
use http::{HeaderMap, HeaderName, HeaderValue};

const HEADERS: [(HeaderName, &str); 4] = [
    (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (ACCESS_CONTROL_ALLOW_METHODS, "POST, PUT, DELETE, OPTIONS"),
    (
        ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Range, X-Kafka-Topic, X-Kafka-Key, X-Kafka-Partition, X-LFS-Checksum, \
         X-LFS-Checksum-Alg, X-LFS-Size, X-LFS-Mode, X-Request-ID, X-API-Key, Authorization",
    ),
    (ACCESS_CONTROL_EXPOSE_HEADERS, "X-Request-ID, X-Kafscale-LFS-Checksum, X-Kafscale-LFS-Content-Length"),
];

/// Adds the headers.
pub(crate) fn allow_every_origin(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
