//! I26: while a group settles, a JoinGroup goes out again with the member id that came back, so that no member is left
//! behind that nobody is.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use kafscale_proxy_core::inputs::{self, BrokerConnectionId};
use kafscale_proxy_core::kafka::{
    ApiKey, ErrorCode, JoinGroupRequest, JoinGroupResponse, Message, ResponseHeader, Str,
};

/// A connection of a shard to a broker.
type Connection = (usize, BrokerConnectionId);

/// A JoinGroup that was written and not answered.
struct Written {
    correlation_id: i32,
    version: i16,
    subscription: Bytes,
}

/// Which member ids came back for which request of a client. Clients make each known by the subscription in it.
#[derive(Default)]
pub struct Members {
    written: BTreeMap<Connection, VecDeque<Written>>,
    came_back: BTreeMap<Bytes, Str>,
}

impl Members {
    /// A JoinGroup is written; gives what is wrong with that.
    pub(super) fn written(
        &mut self,
        connection: Connection,
        correlation_id: i32,
        version: i16,
        body: &Bytes,
    ) -> Option<String> {
        let request = JoinGroupRequest::decode(body, version).ok()?;
        let subscription = request.protocols.first()?.metadata.clone();
        let fault = self.came_back.get(&subscription).filter(|came_back| **came_back != request.member_id);
        let fault = fault.map(|came_back| format!("joins as '{}', and '{came_back}' came back", request.member_id));
        let written = Written { correlation_id, version, subscription };
        self.written.entry(connection).or_default().push_back(written);
        fault
    }

    /// A shard is told something of a broker. Answers to JoinGroup are shorter than what is read at once.
    pub(super) fn told(&mut self, shard: usize, input: &inputs::Broker) {
        match input {
            inputs::Broker::Received { connection, bytes } => self.received((shard, *connection), &bytes[..]),
            inputs::Broker::Closed { connection, .. } => _ = self.written.remove(&(shard, *connection)),
            inputs::Broker::Connected { .. }
            | inputs::Broker::ConnectFailed { .. }
            | inputs::Broker::Clogged { .. }
            | inputs::Broker::Drained { .. } => {}
        }
    }

    fn received(&mut self, connection: Connection, bytes: &[u8]) {
        let Some(open) = self.written.get_mut(&connection) else { return };
        let Ok(correlation_id) = ResponseHeader::correlation_id(bytes) else { return };
        // Answers come in order: one with the id of a later request is no answer to it, but a fault of the broker.
        let Some(Written { version, subscription, .. }) =
            open.pop_front_if(|written| written.correlation_id == correlation_id)
        else {
            return;
        };
        let frame = Bytes::copy_from_slice(bytes);
        let Ok((_, body_at)) = ResponseHeader::decode(&frame, ApiKey::JoinGroup, version) else { return };
        let Ok(answer) = JoinGroupResponse::decode(&frame.slice(body_at..), version) else { return };
        let settles = [ErrorCode::REBALANCE_IN_PROGRESS, ErrorCode::MEMBER_ID_REQUIRED].contains(&answer.error_code);
        if settles && !answer.member_id.is_empty() {
            self.came_back.insert(subscription, answer.member_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafscale_proxy_core::kafka::{JoinGroupRequestProtocol, RequestHeader, request_frame, response_frame};

    use super::*;

    #[test]
    fn the_next_join_of_a_request_has_the_id_that_came_back() {
        let at = (0, BrokerConnectionId(1));
        let joins = |members: &mut Members, id: i32, member_id: &'static str, subscription: &'static str| {
            let protocol = JoinGroupRequestProtocol {
                name: "range".into(),
                metadata: Bytes::from_static(subscription.as_bytes()),
            };
            let request = JoinGroupRequest {
                member_id: Str::from_static(member_id),
                protocols: vec![protocol],
                ..JoinGroupRequest::default()
            };
            let frame = request_frame(id, None, 4, &request);
            let (_, body_at) = RequestHeader::decode(&frame).unwrap();
            members.written(at, id, 4, &frame.slice(body_at..))
        };
        let mut members = Members::default();
        assert_eq!(joins(&mut members, 7, "", "one"), None);
        assert_eq!(joins(&mut members, 8, "", "other"), None);
        let answer = JoinGroupResponse {
            error_code: ErrorCode::REBALANCE_IN_PROGRESS,
            member_id: "m-1".into(),
            ..JoinGroupResponse::default()
        };
        // An answer with the id of a later request is that of nobody.
        for id in [8, 7] {
            let bytes = BytesMut::from(&response_frame(id, 4, &answer)[..]);
            members.told(0, &inputs::Broker::Received { connection: at.1, bytes });
        }
        assert_eq!(joins(&mut members, 9, "", "other"), None);
        assert_eq!(joins(&mut members, 9, "m-1", "one"), None);
        assert!(joins(&mut members, 9, "", "one").is_some_and(|fault| fault.contains("'m-1' came back")));
    }
}
