//! What becomes of a frame: an answer at once, a request that goes on, or the end of the connection
//! (spec/README.md, override 7).

use bytes::BytesMut;
use tracing::field::display;

use crate::config::ClusterConfig;
use crate::kafka::{ApiKey, RequestHeader, advertised_versions};
use crate::listener::local;
use crate::listener::not_ready::unsupported_version;
use crate::listener::request::{Reply, RequestHead};
use crate::log_text::Printable;

/// A decision about a frame.
#[derive(Debug)]
pub(super) enum Admission {
    /// Answered without looking at the cluster.
    Answered(Reply),
    /// To be served once the cluster may be used.
    Request(RequestHead),
}

/// Looks at the header of a frame. What cannot be answered is said in the log and ends in [`Reply::Close`].
pub(super) fn admit(cluster: &ClusterConfig, frame: BytesMut) -> Admission {
    let (header, body_at) = match RequestHeader::decode(&frame) {
        Ok(decoded) => decoded,
        Err(error) => {
            tracing::warn!(%error, "request header does not decode, connection closed");
            return Admission::Answered(Reply::Close);
        }
    };
    let RequestHeader { api_version: version, correlation_id, .. } = header;
    let Some(api) = header.api() else { return unanswerable(&header) };
    if api == ApiKey::ApiVersions {
        return Admission::Answered(local::api_versions(cluster, correlation_id, version));
    }
    if api == ApiKey::SaslHandshake && api.known_versions().contains(version) {
        return Admission::Answered(local::sasl_handshake(correlation_id, version));
    }
    let Some(advertised) = advertised_versions(cluster, api) else { return unanswerable(&header) };
    if !api.known_versions().contains(version) {
        return unanswerable(&header);
    }
    let in_range = advertised.contains(version);
    if !in_range {
        let client_id = header.client_id.map(|id| display(Printable(id)));
        tracing::warn!(?api, version, client_id, "version not supported");
    }
    let head = RequestHead { api, version, correlation_id, frame, body_at };
    if in_range { Admission::Request(head) } else { Admission::Answered(unsupported_version(&head)) }
}

fn unanswerable(header: &RequestHeader<'_>) -> Admission {
    let RequestHeader { api_key, api_version, client_id, .. } = header;
    let client_id = client_id.map(|id| display(Printable(id)));
    tracing::warn!(api_key, api_version, client_id, "request cannot be answered, connection closed");
    Admission::Answered(Reply::Close)
}
