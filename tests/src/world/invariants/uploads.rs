//! Blobs by their makers: which shard made an object, for which exchange, and whether its client was still there when the
//! record was handed over.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kafscale_proxy_core::inputs::ExchangeId;
use kafscale_proxy_core::s3::Request;

/// Bodies of the simulation begin with this, the number of their exchange, and a space.
const TAG: &str = "exchange ";

/// The exchange whose body begins like this.
pub(super) fn exchange_in(body: &[Bytes]) -> Option<ExchangeId> {
    let first = body.first()?;
    let text = String::from_utf8_lossy(&first[..first.len().min(40)]);
    text.strip_prefix(TAG)?.split(' ').next()?.parse().ok().map(ExchangeId)
}

/// Objects by key.
#[derive(Default)]
pub struct Uploads {
    shards: BTreeMap<String, usize>,
    exchanges: BTreeMap<String, ExchangeId>,
    gone: BTreeSet<ExchangeId>,
}

impl Uploads {
    /// The body of an exchange begins like this, so that its object is known.
    pub fn tag(exchange: ExchangeId) -> String {
        format!("{TAG}{} ", exchange.0)
    }

    /// A shard ordered something of S3.
    pub(in crate::world) fn ordered(&mut self, shard: usize, request: &Request) {
        let (key, body) = match request {
            Request::PutObject { key, body, .. } => (key, Some(body)),
            Request::UploadPart { key, body, .. } => (key, Some(body)),
            Request::CreateMultipartUpload { key, .. } => (key, None),
            Request::HeadBucket
            | Request::CreateBucket
            | Request::CompleteMultipartUpload { .. }
            | Request::AbortMultipartUpload { .. }
            | Request::DeleteObject { .. }
            | Request::HeadObject { .. }
            | Request::GetObject { .. }
            | Request::PresignGetObject { .. } => return,
        };
        self.shards.insert(key.clone(), shard);
        if let Some(exchange) = body.and_then(|body| exchange_in(body)) {
            self.exchanges.insert(key.clone(), exchange);
        }
    }

    /// A shard was told that the client of an exchange is gone.
    pub(in crate::world) fn client_gone(&mut self, exchange: ExchangeId) {
        self.gone.insert(exchange);
    }

    /// The first or a further try to write the record of an object begins; gives what is wrong with that.
    pub(super) fn publishing(&self, key: &str) -> Option<String> {
        let exchange = self.exchanges.get(key)?;
        self.gone
            .contains(exchange)
            .then(|| format!("the record of {key} is sent after the client of {exchange:?} left"))
    }

    /// The exchange whose body an object is.
    pub(super) fn exchange(&self, key: &str) -> Option<ExchangeId> {
        self.exchanges.get(key).copied()
    }

    /// The shard that made an object.
    pub fn shard(&self, key: &str) -> Option<usize> {
        self.shards.get(key).copied()
    }
}
