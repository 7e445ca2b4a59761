//! What becomes of a frame: an answer at once, a request that goes on, or the end of the connection
//! (spec/README.md, override 7).

use std::fmt::Display;

use bytes::BytesMut;
use tracing::field::display;

use crate::config::ClusterConfig;
use crate::kafka::{ApiKey, RequestHeader, advertised_versions};
use crate::listener::local;
use crate::listener::not_ready::unsupported_version;
use crate::listener::request::{Reply, RequestHead};
use crate::listener::software::Introduction;
use crate::log_text::Printable;

/// A decision about a frame.
#[derive(Debug)]
pub(super) enum Admission {
    /// Answered without looking at the cluster.
    Answered(Reply),
    /// ApiVersions, likewise, from a client that says what it is.
    Introduced(Introduction, Reply),
    /// To be served once the cluster may be used.
    Request(RequestHead),
}

/// Looks at the header of a frame. What cannot be answered is said in the log and ends in [`Reply::Close`].
pub(super) fn admit(cluster: &ClusterConfig, software: impl Display, frame: BytesMut) -> Admission {
    let (header, body_at) = match RequestHeader::decode(&frame) {
        Ok(decoded) => decoded,
        Err(error) => {
            tracing::warn!(%error, "request header does not decode, connection closed");
            return Admission::Answered(Reply::Close);
        }
    };
    let RequestHeader { api_version: version, correlation_id, .. } = header;
    let Some(api) = header.api() else { return unanswerable(&header, software) };
    if api == ApiKey::ApiVersions {
        let reply = local::api_versions(cluster, correlation_id, version);
        return match Introduction::read(&frame[body_at..], version) {
            Some(introduction) => Admission::Introduced(introduction, reply),
            None => Admission::Answered(reply),
        };
    }
    if api == ApiKey::SaslHandshake && api.known_versions().contains(version) {
        return Admission::Answered(local::sasl_handshake(correlation_id, version));
    }
    let Some(advertised) = advertised_versions(cluster, api) else { return unanswerable(&header, software) };
    if !api.known_versions().contains(version) {
        return unanswerable(&header, software);
    }
    let in_range = advertised.contains(version);
    if !in_range {
        let client_id = header.client_id.map(|id| display(Printable(id)));
        tracing::warn!(?api, version, client_id, %software, "version not supported");
    }
    let head = RequestHead { api, version, correlation_id, frame, body_at };
    if in_range { Admission::Request(head) } else { Admission::Answered(unsupported_version(&head)) }
}

fn unanswerable(header: &RequestHeader<'_>, software: impl Display) -> Admission {
    let RequestHeader { api_key, api_version, client_id, .. } = header;
    let client_id = client_id.map(|id| display(Printable(id)));
    tracing::warn!(api_key, api_version, client_id, %software, "request cannot be answered, connection closed");
    Admission::Answered(Reply::Close)
}
