//! One request between a client and brokers that may not speak the same version of its API.
//!
//! A version that the brokers speak passes as the bytes that came; any other is translated into the nearest version
//! that they speak, and the answer back. What a translation means beyond plain fields stands with each API. That a single
//! broker may lack what is usual for its kind is the business of its connection.

use bytes::Bytes;

use crate::config::ClusterKind;
use crate::kafka::{
    ApiKey, DecodeError, Message, Request, ResponseHeader, Str, merged_response_frame, request_frame, spoken,
};
use crate::listener::request::{Reply, RequestHead, Undecodable};

/// The head of a request, with the versions of both sides.
#[derive(Debug)]
pub(crate) struct Bridge {
    api: ApiKey,
    correlation_id: i32,
    client_id: Option<Str>,
    client_version: i16,
    broker_version: i16,
    frame: Bytes,
    body_at: usize,
}

impl Bridge {
    /// Takes the frame over.
    pub(crate) fn new(head: RequestHead, kind: ClusterKind) -> Self {
        let broker_version = match spoken(kind, head.api) {
            Some(range) => head.version.clamp(range.min, range.max),
            None => head.version,
        };
        Self {
            api: head.api,
            correlation_id: head.correlation_id,
            client_id: head.client_id().map(Str::from),
            client_version: head.version,
            broker_version,
            frame: head.frame.freeze(),
            body_at: head.body_at,
        }
    }

    /// The version that the client speaks.
    pub(crate) fn client_version(&self) -> i16 {
        self.client_version
    }

    /// The version that goes to brokers.
    pub(crate) fn broker_version(&self) -> i16 {
        self.broker_version
    }

    /// Whether both sides speak the same version: frames can pass as they are.
    pub(crate) fn passes(&self) -> bool {
        self.client_version == self.broker_version
    }

    /// The request, read.
    pub(crate) fn decode<R: Request>(&self) -> Result<R, Undecodable> {
        R::decode_prefix(&self.frame.slice(self.body_at()..), self.client_version).map_err(|error| {
            tracing::debug!(api = ?self.api, version = self.client_version, %error, "request does not decode");
            Undecodable
        })
    }

    /// The frame as the client sent it.
    pub(crate) fn original(&self) -> &Bytes {
        &self.frame
    }

    /// Where the body begins in [`Bridge::original`].
    pub(crate) fn body_at(&self) -> usize {
        self.body_at.min(self.frame.len())
    }

    /// A frame for a broker, in the version that it speaks.
    pub(crate) fn request<R: Request>(&self, request: &R) -> Bytes {
        self.request_in(self.broker_version, request)
    }

    /// A frame for a broker in this version.
    pub(crate) fn request_in<R: Request>(&self, version: i16, request: &R) -> Bytes {
        request_frame(self.correlation_id, self.client_id.as_deref(), version, request)
    }

    /// A broker's answer, whole frame, read.
    pub(crate) fn response<M: Message>(&self, frame: &Bytes) -> Result<M, DecodeError> {
        self.response_in(self.broker_version, frame)
    }

    /// As [`Bridge::response`], for a request in this version.
    pub(crate) fn response_in<M: Message>(&self, version: i16, frame: &Bytes) -> Result<M, DecodeError> {
        let (_, body_at) = ResponseHeader::decode(frame, M::KEY, version)?;
        M::decode(&frame.slice(body_at..), version)
    }

    /// Changes the body of a broker's answer where it lies; `patch` gets it with its version.
    pub(crate) fn patch<T>(
        &self,
        frame: &mut [u8],
        patch: impl FnOnce(&mut [u8], i16) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let (_, body_at) = ResponseHeader::decode(frame, self.api, self.broker_version)?;
        patch(&mut frame[body_at..], self.broker_version)
    }

    /// The answer in the client's version, of one broker or put together of several.
    pub(crate) fn answer<M: Message>(&self, response: &M) -> Reply {
        Reply::merged(merged_response_frame(self.correlation_id, self.client_version, response))
    }

    /// A broker's answer, passed on as it is.
    pub(crate) fn pass(frame: Bytes) -> Reply {
        Reply::Answer(vec![frame])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::HeartbeatRequest;
    use crate::listener::rig::head;

    #[test]
    fn the_nearest_version_goes_to_brokers() {
        for (client, broker) in [(0, 4), (3, 4), (4, 4)] {
            let bridge = Bridge::new(head(client, &HeartbeatRequest::default()), ClusterKind::KafScale);
            assert_eq!((bridge.client_version(), bridge.broker_version()), (client, broker));
            assert_eq!(bridge.passes(), client == broker);
        }
    }
}
