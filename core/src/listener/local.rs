//! Answers that need nothing but the proxy itself: ApiVersions and SaslHandshake.

use crate::config::ClusterConfig;
use crate::kafka::{
    ApiKey, ApiVersion, ApiVersionsResponse, ErrorCode, SaslHandshakeResponse, advertised, response_frame,
};
use crate::listener::request::Reply;

/// What the proxy speaks, also when nothing can be served.
///
/// A version that is not known gets error 35 with the whole list in the layout of version 0, which every client can read
/// (KIP-511), and may try again on the same connection.
pub(super) fn api_versions(cluster: &ClusterConfig, correlation_id: i32, version: i16) -> Reply {
    let is_known = ApiKey::ApiVersions.known_versions().contains(version);
    let (version, error_code) = if is_known { (version, ErrorCode::NONE) } else { (0, ErrorCode::UNSUPPORTED_VERSION) };
    let listed = advertised(cluster).map(|(api, range)| ApiVersion {
        api_key: i16::from(api),
        min_version: range.min,
        max_version: range.max,
    });
    let response = ApiVersionsResponse { error_code, api_keys: listed.collect(), throttle_time_ms: 0 };
    Reply::Answer(vec![response_frame(correlation_id, version, &response)])
}

/// The listener has no authentication, so it has no mechanism either.
pub(super) fn sasl_handshake(correlation_id: i32, version: i16) -> Reply {
    let error_code = ErrorCode::UNSUPPORTED_SASL_MECHANISM;
    let response = SaslHandshakeResponse { error_code, mechanisms: Vec::new() };
    Reply::Answer(vec![response_frame(correlation_id, version, &response)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::{Message, ResponseHeader};

    fn answer(reply: Reply, api: ApiKey, version: i16) -> (i32, bytes::Bytes) {
        let Reply::Answer(pieces) = reply else { panic!("no answer") };
        let frame = pieces.concat();
        let (header, body_at) = ResponseHeader::decode(&frame, api, version).unwrap();
        (header.correlation_id, bytes::Bytes::from(frame).slice(body_at..))
    }

    #[test]
    fn every_version_of_api_versions_is_answered() {
        for (asked, answered, error_code) in [
            (0, 0, ErrorCode::NONE),
            (1, 1, ErrorCode::NONE),
            (2, 2, ErrorCode::NONE),
            (3, 3, ErrorCode::NONE),
            (4, 4, ErrorCode::NONE),
            (5, 0, ErrorCode::UNSUPPORTED_VERSION),
            (127, 0, ErrorCode::UNSUPPORTED_VERSION),
            (-1, 0, ErrorCode::UNSUPPORTED_VERSION),
        ] {
            let reply = api_versions(&ClusterConfig::default(), 9, asked);
            let (correlation_id, body) = answer(reply, ApiKey::ApiVersions, answered);
            let response = ApiVersionsResponse::decode(&body, answered).unwrap();
            assert_eq!((correlation_id, response.error_code), (9, error_code), "version {asked}");
            assert_eq!(response.api_keys.len(), advertised(&ClusterConfig::default()).count());
            assert!(response.api_keys.iter().all(|listed| 0 <= listed.min_version));
        }
    }

    #[test]
    fn no_mechanism() {
        let (_, body) = answer(sasl_handshake(1, 1), ApiKey::SaslHandshake, 1);
        let response = SaslHandshakeResponse::decode(&body, 1).unwrap();
        assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_SASL_MECHANISM);
        assert!(response.mechanisms.is_empty());
    }
}
