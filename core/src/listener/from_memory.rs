//! Requests that are answered from what is known of the cluster, without a broker: Metadata and FindCoordinator.
//!
//! They are read once, when they arrive: whether there will be an answer at all decides what happens to the requests
//! behind them. The answer is made when it is the oldest, for what it says must be fresh when it leaves.

use crate::cluster::Cluster;
use crate::config::ListenerConfig;
use crate::kafka::Refuse;
use crate::kafka::{ApiKey, FindCoordinatorRequest, Message, MetadataRequest, response_frame};
use crate::listener::request::{Reply, RequestHead, Undecodable};
use crate::listener::{find_coordinator, metadata, not_ready};

/// One such request, until it is the oldest.
#[derive(Debug)]
pub(super) struct FromMemory {
    correlation_id: i32,
    version: i16,
    asked: Asked,
}

#[derive(Debug)]
enum Asked {
    Topics(MetadataRequest),
    Coordinators(FindCoordinatorRequest),
}

impl FromMemory {
    /// Whether requests of this API are answered so.
    pub(super) const fn answers(api: ApiKey) -> bool {
        matches!(api, ApiKey::Metadata | ApiKey::FindCoordinator)
    }

    /// Reads the request.
    pub(super) fn read(head: RequestHead) -> Result<Self, Undecodable> {
        let RequestHead { api, version, correlation_id, frame, body_at } = head;
        let body = frame.freeze().slice(body_at..);
        let asked = if api == ApiKey::Metadata {
            MetadataRequest::decode_prefix(&body, version).map(Asked::Topics)
        } else {
            FindCoordinatorRequest::decode_prefix(&body, version).map(Asked::Coordinators)
        };
        let asked = asked.map_err(|error| {
            tracing::debug!(?api, version, %error, "request does not decode");
            Undecodable
        })?;
        Ok(Self { correlation_id, version, asked })
    }

    /// How many topics or groups it names.
    pub(super) fn items(&self) -> usize {
        match &self.asked {
            Asked::Topics(request) => request.topics.as_ref().map_or(0, Vec::len),
            Asked::Coordinators(request) => request.coordinator_keys.len(),
        }
    }

    /// The answer of this moment.
    pub(super) fn answer(self, cluster: &Cluster, config: &ListenerConfig) -> Result<Reply, Undecodable> {
        let Self { correlation_id, version, asked } = self;
        Ok(Reply::Answer(vec![match asked {
            Asked::Topics(request) => {
                response_frame(correlation_id, version, &metadata::answer(&request, version, cluster, config)?)
            }
            Asked::Coordinators(request) => {
                response_frame(correlation_id, version, &find_coordinator::answer(request, version, config))
            }
        }]))
    }

    /// What it gets when nothing can be served now ([`not_ready`]).
    pub(super) fn not_ready(self, config: &ListenerConfig) -> Reply {
        let Self { correlation_id, version, asked } = self;
        Reply::AnswerAndClose(vec![match asked {
            Asked::Topics(request) => {
                response_frame(correlation_id, version, &not_ready::metadata(request, version, config))
            }
            Asked::Coordinators(request) => {
                response_frame(correlation_id, version, &request.refusal(not_ready::NOT_READY))
            }
        }])
    }
}
