//! I28: what a shard is read of large answers fits into its memory for them, but for what it needs to go on.
//!
//! Brokers' bytes count from the moment in which the shard lets them be read until their request is answered towards the
//! client. Exempt is what the oldest request of a client may wait for, while the client has another large answer. Nothing
//! here knows what a shard has done with an answer, so what it may have thrown away does not count either.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::inputs::{self, BrokerConnectionId, ClientId};
use kafscale_proxy_core::kafka::{ApiKey, Message, ProduceRequest, RequestHeader, ResponseHeader, Splitter};
use kafscale_proxy_core::{Effect, Input, Monotonic, effects};

use crate::world::kafka_client::NAME;

/// Answers up to this size are free, bytes.
const FREE: usize = 64 * 1024;

/// In another version an answer is some bytes longer or shorter.
const TRANSLATED: usize = 500;

/// A Fetch may have got its answer after that, with what has come by then; what comes later is thrown away.
const CERTAIN: Duration = Duration::from_secs(1);

/// A request of a client that it has got no answer to.
struct Open {
    correlation_id: i32,
    /// False for acks 0.
    is_answered: bool,
    since: Monotonic,
    /// Answers of brokers that have come.
    answers: usize,
    /// Large ones that cannot have been thrown away: bytes, and whether they were exempt.
    held: Vec<(usize, bool)>,
}

struct Client {
    requests: Splitter,
    answers: Splitter,
    open: VecDeque<Open>,
}

/// A request that a broker has not answered.
struct InFlight {
    correlation_id: i32,
    is_produce: bool,
    /// No broker had answered any part of it before.
    is_first: bool,
}

struct Connection {
    client: ClientId,
    in_flight: VecDeque<InFlight>,
    answers: Splitter,
    is_paused: bool,
    /// The shard lets the large answer in front be read; whether that was exempt.
    admitted: Option<bool>,
}

/// What shards were read of large answers.
pub struct LargeAnswers {
    limit: usize,
    clients: BTreeMap<(usize, ClientId), Client>,
    connections: BTreeMap<(usize, BrokerConnectionId), Connection>,
}

impl LargeAnswers {
    /// For shards that may hold so many bytes.
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, clients: BTreeMap::new(), connections: BTreeMap::new() }
    }

    /// A shard is told something.
    pub(super) fn told(&mut self, shard: usize, input: &Input, now: Monotonic) {
        match input {
            Input::Client(inputs::Client::Received { client, bytes }) => self.asked((shard, *client), bytes, now),
            Input::Client(inputs::Client::Closed { client }) => _ = self.clients.remove(&(shard, *client)),
            Input::Broker(inputs::Broker::Received { connection, bytes }) => {
                self.answered((shard, *connection), bytes, now);
            }
            Input::Broker(inputs::Broker::Closed { connection, .. }) => {
                self.connections.remove(&(shard, *connection));
            }
            Input::Client(_)
            | Input::Broker(_)
            | Input::Http(_)
            | Input::Etcd(_)
            | Input::S3(_)
            | Input::TempFile(_)
            | Input::Computed { .. }
            | Input::ShutdownRequested => {}
        }
    }

    fn asked(&mut self, client: (usize, ClientId), bytes: &[u8], now: Monotonic) {
        let client = self.clients.entry(client).or_insert_with(|| Client {
            requests: Splitter::for_requests(i32::MAX as usize),
            answers: Splitter::for_responses(i32::MAX as usize),
            open: VecDeque::new(),
        });
        client.requests.push(BytesMut::from(bytes));
        while let Ok(Some(frame)) = client.requests.next_frame() {
            let frame = frame.freeze();
            let Ok((header, body_at)) = RequestHeader::decode(&frame) else { continue };
            let is_silent = is_silent(&header, &frame.slice(body_at..));
            client.open.push_back(Open {
                correlation_id: header.correlation_id,
                is_answered: !is_silent,
                since: now,
                answers: 0,
                held: Vec::new(),
            });
        }
    }

    /// A socket took bytes of a request for a broker.
    pub(super) fn written(&mut self, key: (usize, BrokerConnectionId), request: &Bytes) {
        let Ok((header, body_at)) = RequestHeader::decode(request) else { return };
        let name = header.client_id.and_then(|name| name.strip_prefix(NAME)?.parse().ok());
        // The proxy's own.
        let Some(client) = name.map(ClientId) else { return };
        if is_silent(&header, &request.slice(body_at..)) {
            return;
        }
        let is_produce = header.api() == Some(ApiKey::Produce);
        let open = self.clients.get(&(key.0, client));
        let open = open.and_then(|client| client.open.iter().find(|open| open.correlation_id == header.correlation_id));
        let is_first = open.is_some_and(|open| open.answers == 0);
        let connection = self.connections.entry(key).or_insert_with(|| Connection {
            client,
            in_flight: VecDeque::new(),
            answers: Splitter::for_responses(i32::MAX as usize),
            is_paused: false,
            admitted: None,
        });
        connection.in_flight.push_back(InFlight { correlation_id: header.correlation_id, is_produce, is_first });
    }

    fn answered(&mut self, key: (usize, BrokerConnectionId), bytes: &[u8], now: Monotonic) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        connection.answers.push(BytesMut::from(bytes));
        while let Ok(Some(frame)) = connection.answers.next_frame() {
            let admitted = connection.admitted.take();
            let Some(asked) = connection.in_flight.pop_front() else { continue };
            let client = self.clients.get_mut(&(key.0, connection.client));
            let mut open = client.into_iter().flat_map(|client| &mut client.open);
            let Some(open) = open.find(|open| open.correlation_id == asked.correlation_id) else { continue };
            open.answers += 1;
            if let Some(is_exempt) = admitted
                && asked.is_first
                && now.since(open.since) < CERTAIN
            {
                open.held.push((frame.len(), is_exempt));
            }
        }
    }

    /// A shard orders this.
    pub(super) fn ordered(&mut self, shard: usize, effect: &Effect) {
        match effect {
            Effect::Client(effects::Client::Write { client, bytes }) => {
                let Some(client) = self.clients.get_mut(&(shard, *client)) else { return };
                client.answers.push(BytesMut::from(&bytes[..]));
                while let Ok(Some(frame)) = client.answers.next_frame() {
                    let answered = ResponseHeader::correlation_id(&frame).ok();
                    let place = client.open.iter().position(|open| Some(open.correlation_id) == answered);
                    client.open.drain(..place.map_or(0, |place| place + 1));
                }
            }
            Effect::Client(effects::Client::Close { client }) => _ = self.clients.remove(&(shard, *client)),
            Effect::Broker(effects::Broker::Pause { connection }) => self.pause((shard, *connection), true),
            Effect::Broker(effects::Broker::Resume { connection }) => self.pause((shard, *connection), false),
            Effect::Broker(effects::Broker::Close { connection }) => {
                self.connections.remove(&(shard, *connection));
            }
            Effect::Client(_)
            | Effect::Broker(_)
            | Effect::Http(_)
            | Effect::Etcd(_)
            | Effect::S3(_)
            | Effect::TempFile(_)
            | Effect::Compute { .. } => {}
        }
    }

    fn pause(&mut self, key: (usize, BrokerConnectionId), is_paused: bool) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.is_paused = is_paused;
        }
    }

    /// A call of a shard is over: what is in front of a connection that is not paused was let in.
    pub(super) fn called(&mut self, shard: usize) -> Option<String> {
        let of_shard = (shard, BrokerConnectionId(0))..=(shard, BrokerConnectionId(u64::MAX));
        let let_in = |connection: &Connection| !connection.is_paused && connection.admitted.is_none();
        let new: Vec<BrokerConnectionId> = self
            .connections
            .range(of_shard.clone())
            .filter(|(_, connection)| let_in(connection) && connection.announces_large())
            .map(|((_, id), _)| *id)
            .collect();
        for id in &new {
            let is_exempt = self.is_exempt((shard, *id));
            self.connections.entry((shard, *id)).and_modify(|connection| connection.admitted = Some(is_exempt));
        }
        if new.is_empty() {
            return None;
        }
        let fronts = self.connections.range(of_shard).filter(|(_, connection)| connection.admitted == Some(false));
        let fronts = fronts.map(|(_, connection)| connection.answers.announced().ok().flatten().unwrap_or(0));
        let clients = self.clients.range((shard, ClientId(0))..=(shard, ClientId(u64::MAX)));
        let whole = clients.flat_map(|(_, client)| &client.open).flat_map(|open| &open.held);
        let whole = whole.filter(|(_, is_exempt)| !is_exempt).map(|(bytes, _)| *bytes);
        let counted: Vec<usize> = fronts.chain(whole).collect();
        let (taken, largest) = (counted.iter().sum::<usize>(), counted.iter().max().copied().unwrap_or(0));
        let bound = self.limit.max(self.limit / 2 + largest) + counted.len() * TRANSLATED;
        (taken > bound).then(|| format!("shard {shard} lets {taken} bytes of large answers come: {counted:?}"))
    }

    /// Whether the oldest request of the client may wait for this connection, and the client has something else that is large.
    fn is_exempt(&self, key: (usize, BrokerConnectionId)) -> bool {
        let Some(connection) = self.connections.get(&key) else { return true };
        // What one that is gone has sent is carried out in an order that is not known here.
        let Some(client) = self.clients.get(&(key.0, connection.client)) else { return true };
        let oldest = client.open.iter().find(|open| open.is_answered).map(|open| open.correlation_id);
        let is_needed = |asked: &InFlight| asked.is_produce || Some(asked.correlation_id) == oldest;
        let others = self.connections.iter().any(|(other, there)| {
            *other != key && other.0 == key.0 && there.client == connection.client && there.announces_large()
        });
        let holds = others || client.open.iter().any(|open| open.answers > 0);
        holds && connection.in_flight.iter().any(is_needed)
    }

    /// A shard is gone.
    pub(super) fn shard_died(&mut self, shard: usize) {
        self.clients.retain(|(of, _), _| *of != shard);
        self.connections.retain(|(of, _), _| *of != shard);
    }
}

impl Connection {
    fn announces_large(&self) -> bool {
        self.answers.announced().ok().flatten().is_some_and(|bytes| bytes > FREE)
    }
}

/// Whether nobody answers it.
fn is_silent(header: &RequestHeader<'_>, body: &Bytes) -> bool {
    header.api() == Some(ApiKey::Produce)
        && ProduceRequest::decode(body, header.api_version).is_ok_and(|request| request.acks == 0)
}

#[cfg(test)]
mod tests {
    use kafscale_proxy_core::kafka::{FetchRequest, FetchResponse, HeartbeatRequest, request_frame};

    use super::*;

    const CLIENT: ClientId = ClientId(7);
    const KIB: usize = 1024;

    /// A shard of one client, whose connections are to brokers 1 to 3.
    struct Bench(LargeAnswers);

    impl Bench {
        fn asks(&mut self, correlation_id: i32, brokers: &[u64]) {
            let request = request_frame(correlation_id, Some("world-7"), 11, &FetchRequest::default());
            let bytes = BytesMut::from(&request[..]);
            self.0.told(0, &Input::Client(inputs::Client::Received { client: CLIENT, bytes }), Monotonic::ZERO);
            self.sends(correlation_id, brokers);
        }

        fn sends(&mut self, correlation_id: i32, brokers: &[u64]) {
            let request = request_frame(correlation_id, Some("world-7"), 11, &FetchRequest::default());
            brokers.iter().for_each(|broker| self.0.written((0, BrokerConnectionId(*broker)), &request));
        }

        fn sees(&mut self, broker: u64, correlation_id: i32, kib: usize, pieces: usize) -> Option<String> {
            let mut bytes = BytesMut::from(&(kib as u32 * 1024 - 4).to_be_bytes()[..]);
            bytes.extend_from_slice(&correlation_id.to_be_bytes());
            bytes.resize(kib * KIB, 0);
            for piece in bytes.chunks(40 * KIB).take(pieces) {
                let received =
                    inputs::Broker::Received { connection: BrokerConnectionId(broker), bytes: BytesMut::from(piece) };
                self.0.told(0, &Input::Broker(received), Monotonic::ZERO);
                if let Some(fault) = self.0.called(0) {
                    return Some(fault);
                }
            }
            None
        }
    }

    fn bench() -> Bench {
        Bench(LargeAnswers::new(100 * KIB))
    }

    #[test]
    fn the_parts_of_the_oldest_request_may_exceed_the_memory() {
        let mut bench = bench();
        bench.asks(1, &[1, 2, 3]);
        for broker in 1..=3 {
            assert_eq!(bench.sees(broker, 1, 90, 9), None);
        }
        let answer = FetchResponse::default();
        let bytes = kafscale_proxy_core::kafka::response_frame(1, 11, &answer);
        bench.0.ordered(0, &Effect::Client(effects::Client::Write { client: CLIENT, bytes }));
        assert!(bench.0.clients[&(0, CLIENT)].open.is_empty());
    }

    #[test]
    fn later_requests_may_not_unless_they_are_not_read() {
        for paused in [false, true] {
            let mut bench = bench();
            bench.asks(1, &[1, 2]);
            bench.asks(2, &[1]);
            assert_eq!(bench.sees(1, 1, 90, 9), None);
            let connection = BrokerConnectionId(1);
            if paused {
                bench.0.ordered(0, &Effect::Broker(effects::Broker::Pause { connection }));
            }
            assert_eq!(bench.sees(1, 2, 90, 1).is_some(), !paused);
            bench.0.ordered(0, &Effect::Broker(effects::Broker::Resume { connection }));
            assert_eq!(bench.0.called(0).is_some(), paused, "one fault is found once");
        }
    }

    #[test]
    fn what_stands_in_front_of_the_oldest_may() {
        let mut bench = bench();
        bench.asks(1, &[1, 2]);
        bench.asks(2, &[2]);
        assert_eq!(bench.sees(1, 1, 90, 9), None);
        assert_eq!(bench.sees(2, 1, 1, 1), None, "a refusal");
        bench.sends(1, &[2]);
        assert_eq!(bench.sees(2, 2, 90, 9), None);
    }

    #[test]
    fn other_requests_of_the_proxy_are_its_own() {
        let mut bench = bench();
        let request = request_frame(1, Some("other"), 4, &HeartbeatRequest::default());
        bench.0.written((0, BrokerConnectionId(1)), &request);
        assert!(bench.0.connections.is_empty());
    }
}
