//! The world as a driver: it carries out what machines and brokers order.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;
use kafscale_proxy_core::inputs::{self, BrokerConnectionId, ConnectError, ExchangeId, ReadResult};
use kafscale_proxy_core::model::broker::{self, ConnectionId};
use kafscale_proxy_core::{Effect, Effects, Input, OperationId, effects, s3};

use super::invariants::names_a_broker;
use super::kafka_client::HeldBack;
use super::processes::BrokerProcess;
use super::{Event, FIN, HOP, S3Fault, Watcher, World};
use crate::world::shard::Socket;

/// Longest read from a broker, bytes.
const READ: usize = 40 * 1024;

impl World {
    pub(super) fn carry_out(&mut self, shard: usize, effects: Effects) {
        let now = self.now().monotonic;
        self.trace.add(now, shard, &effects);
        self.judges.ordered(shard, now, effects.len());
        for effect in effects {
            self.judges.orders(shard, &effect, now);
            match effect {
                Effect::Client(order) => self.carry_out_client(shard, order),
                Effect::Broker(order) => self.carry_out_socket(shard, order),
                Effect::Http(order) => self.carry_out_http(shard, order),
                Effect::Etcd(effects::Etcd::Request { operation, request }) => {
                    self.timeline.plan(HOP, Event::EtcdRequest { from: Watcher::Shard(shard, operation), request });
                }
                Effect::Etcd(effects::Etcd::Watch { operation, request }) => {
                    self.timeline.plan(HOP, Event::EtcdWatch { from: Watcher::Shard(shard, operation), request });
                }
                Effect::Etcd(effects::Etcd::Cancel { operation }) => {
                    self.timeline.plan(HOP, Event::EtcdCancel { from: Watcher::Shard(shard, operation) });
                }
                Effect::S3(order) => self.carry_out_s3(shard, order),
                Effect::TempFile(order) => self.carry_out_file(shard, order),
                Effect::Compute(job) => {
                    let jitter = self.jitter(self.job_jitter);
                    self.fact(HOP + jitter, shard, Input::Computed(job.run()));
                }
            }
        }
        self.judges.called(shard, now);
    }

    fn carry_out_client(&mut self, shard: usize, order: effects::Client) {
        match order {
            effects::Client::Write { client, bytes } => {
                if self.clients.get(&client).is_some_and(|open| open.machine.was_closed_by_proxy()) {
                    let fault = format!("{client:?} is written to after it was closed");
                    self.judges.violated("answers", self.timeline.now().monotonic, fault);
                }
                if let Some(fault) = names_a_broker(&bytes) {
                    self.judges.violated("hints", self.timeline.now().monotonic, fault);
                }
                // One that has vanished takes nothing more.
                if let Some(open) = self.clients.get_mut(&client).filter(|open| !open.machine.is_closed()) {
                    if let Err(fault) = open.machine.received(&bytes) {
                        self.judges.violated("answers", self.timeline.now().monotonic, fault);
                    }
                    self.news.insert(client);
                    for held in open.machine.news_of_driver() {
                        let told = match held {
                            HeldBack::Blocked => inputs::Client::Blocked { client },
                            HeldBack::Clogged => inputs::Client::Clogged { client },
                        };
                        self.timeline.plan(Duration::ZERO, Event::Fact { shard, input: Input::Client(told) });
                    }
                }
            }
            effects::Client::Close { client } => {
                if let Some(open) = self.clients.get_mut(&client).filter(|open| !open.machine.is_closed()) {
                    open.machine.closed();
                    self.news.insert(client);
                    self.fact(FIN, shard, Input::Client(inputs::Client::Closed { client }));
                }
            }
            effects::Client::Pause { client } => {
                if let Some(open) = self.clients.get_mut(&client) {
                    open.machine.pause(true);
                }
            }
            effects::Client::Resume { client } => {
                if let Some(open) = self.clients.get_mut(&client) {
                    open.machine.pause(false);
                    self.timeline.plan(Duration::ZERO, Event::ClientSends { client, bytes: BytesMut::new() });
                }
            }
            effects::Client::StopAccepting => {}
        }
    }

    fn carry_out_socket(&mut self, shard: usize, order: effects::Broker) {
        match order {
            effects::Broker::Connect { connection, address } => {
                self.dialling.insert((shard, connection));
                self.timeline.plan(HOP, Event::Dial { shard, connection, address });
            }
            effects::Broker::Write { connection, bytes } => {
                let Some(socket) = self.shards[shard].sockets.get_mut(&connection) else { return };
                let struck = self.faults.of_broker_write(&bytes);
                let accepted = struck.map_or(bytes.len(), |accepted| bytes.len().min(accepted as usize));
                socket.accepted += accepted as u64;
                let (broker, inner) = (socket.broker, socket.connection);
                if accepted > 0 {
                    let now = self.timeline.now().monotonic;
                    self.judges.written_to_broker((shard, connection), broker, &bytes, &self.etcd, now);
                    self.deletes.record_handed_over((shard, connection), &bytes);
                    let bytes = BytesMut::from(&bytes[..accepted]);
                    self.tell_broker(HOP, broker, broker::Input::Received { connection: inner, bytes });
                }
                if struck.is_some() {
                    self.close_socket(shard, connection);
                }
            }
            effects::Broker::Close { connection } => self.close_socket(shard, connection),
            effects::Broker::Pause { connection } => {
                if let Some(socket) = self.shards[shard].sockets.get_mut(&connection) {
                    socket.paused = true;
                }
            }
            effects::Broker::Resume { connection } => {
                if let Some(socket) = self.shards[shard].sockets.get_mut(&connection) {
                    socket.paused = false;
                    for _ in 0..socket.unread.len() {
                        self.timeline.plan(Duration::ZERO, Event::BrokerRead { shard, connection });
                    }
                }
            }
        }
    }

    /// The proxy closes a connection, or gives a dial up.
    fn close_socket(&mut self, shard: usize, connection: BrokerConnectionId) {
        let told = match self.shards[shard].sockets.remove(&connection) {
            Some(socket) => {
                self.peers.remove(&(socket.broker, socket.connection));
                self.tell_broker(FIN, socket.broker, broker::Input::Closed { connection: socket.connection });
                inputs::Broker::Closed { connection, accepted_bytes: socket.accepted }
            }
            None if self.dialling.remove(&(shard, connection)) => {
                inputs::Broker::ConnectFailed { connection, error: ConnectError("given up".into()) }
            }
            None => return,
        };
        self.fact(FIN, shard, Input::Broker(told));
    }

    pub(super) fn dialled(&mut self, shard: usize, connection: BrokerConnectionId, address: &str) {
        // Given up meanwhile.
        if !self.dialling.contains(&(shard, connection)) {
            return;
        }
        let host = address.split(':').next().unwrap_or_default();
        let number = host.strip_prefix("broker-").and_then(|number| number.parse::<usize>().ok());
        if number.is_some_and(|number| self.faults.swallows_dials(number)) {
            return;
        }
        self.dialling.remove(&(shard, connection));
        let running = number.filter(|number| self.brokers.get(*number).is_some_and(BrokerProcess::is_running));
        let told = match running {
            Some(broker) => {
                let inner = ConnectionId(self.draw());
                self.peers.insert((broker, inner), (shard, connection));
                let socket = Socket { broker, connection: inner, accepted: 0, paused: false, unread: VecDeque::new() };
                self.shards[shard].sockets.insert(connection, socket);
                self.tell_broker(Duration::ZERO, broker, broker::Input::Connected { connection: inner });
                inputs::Broker::Connected { connection }
            }
            None => {
                let error = ConnectError("connection refused".into());
                inputs::Broker::ConnectFailed { connection, error }
            }
        };
        self.fact(HOP, shard, Input::Broker(told));
    }

    pub(super) fn carry_out_broker(&mut self, broker: usize, effects: Vec<broker::Effect>) {
        let life = self.brokers[broker].life;
        for effect in effects {
            match effect {
                broker::Effect::Write { connection, bytes } => {
                    if let Some((shard, connection)) = self.peers.get(&(broker, connection)).copied() {
                        self.deletes.record_answered((shard, connection), &bytes);
                        self.answer_comes(shard, connection, &bytes);
                    }
                }
                broker::Effect::Close { connection } => self.broker_closed(broker, connection),
                broker::Effect::Etcd { token, request } => {
                    self.timeline.plan(HOP, Event::EtcdRequest { from: Watcher::Broker(broker, life, token), request });
                }
                broker::Effect::EtcdWatch { token, request } => {
                    self.timeline.plan(HOP, Event::EtcdWatch { from: Watcher::Broker(broker, life, token), request });
                }
                broker::Effect::Stopped => {
                    let open: Vec<ConnectionId> =
                        self.peers.keys().filter(|(of, _)| *of == broker).map(|(_, connection)| *connection).collect();
                    open.into_iter().for_each(|connection| self.broker_closed(broker, connection));
                }
            }
        }
    }

    /// What a broker has written is on its way to a shard, which reads it in pieces.
    fn answer_comes(&mut self, shard: usize, connection: BrokerConnectionId, bytes: &[u8]) {
        let Some(socket) = self.shards[shard].sockets.get_mut(&connection) else { return };
        for piece in bytes.chunks(READ) {
            socket.unread.push_back(BytesMut::from(piece));
            self.timeline.plan(HOP, Event::BrokerRead { shard, connection });
        }
    }

    pub(super) fn read_broker(&mut self, shard: usize, connection: BrokerConnectionId) {
        let socket = self.shards[shard].sockets.get_mut(&connection).filter(|socket| !socket.paused);
        if let Some(bytes) = socket.and_then(|socket| socket.unread.pop_front()) {
            self.deliver(shard, Input::Broker(inputs::Broker::Received { connection, bytes }));
        }
    }

    /// A broker closes a connection: the proxy is told after what was written before.
    fn broker_closed(&mut self, broker: usize, connection: ConnectionId) {
        if let Some((shard, connection)) = self.peers.remove(&(broker, connection))
            && let Some(socket) = self.shards[shard].sockets.remove(&connection)
        {
            for bytes in socket.unread {
                self.fact(HOP, shard, Input::Broker(inputs::Broker::Received { connection, bytes }));
            }
            let closed = inputs::Broker::Closed { connection, accepted_bytes: socket.accepted };
            self.fact(FIN, shard, Input::Broker(closed));
        }
    }

    fn carry_out_s3(&mut self, shard: usize, order: effects::S3) {
        let fault = match &order {
            effects::S3::Request { operation, request } => {
                if let s3::Request::DeleteObject { key } = request {
                    self.deletes.ordered(key);
                }
                self.judges.uploads.ordered(shard, request);
                self.s3.ordered(shard, *operation);
                self.faults.of_s3_request(request)
            }
            effects::S3::Cancel { operation } => {
                let operation = *operation;
                return self.timeline.plan(HOP, Event::S3Cancel { shard, operation });
            }
            effects::S3::ReadObject { .. } | effects::S3::ReleaseObject { .. } => None,
        };
        let later = match fault {
            Some(S3Fault::Late(later)) => later,
            Some(S3Fault::Way(_) | S3Fault::Trouble(_)) | None => Duration::ZERO,
        };
        let jitter = self.jitter(self.s3.jitter);
        self.timeline.plan(HOP + later + jitter, Event::S3 { shard, order, fault });
    }

    /// A delay of at most so much.
    fn jitter(&mut self, most: Duration) -> Duration {
        if most.is_zero() { most } else { self.choices.milliseconds(0, most.as_millis() as u64) }
    }

    fn carry_out_http(&mut self, shard: usize, order: effects::Http) {
        match order {
            effects::Http::ReadBody { operation, exchange, max_bytes } => {
                let Some(open) = self.exchanges.get_mut(&exchange) else { return };
                let slowness = open.machine.slowness();
                let result = if open.ended {
                    Some(ReadResult::Broken("there is no body to read".into()))
                } else if slowness.is_zero() {
                    open.machine.read(max_bytes)
                } else {
                    self.timeline.plan(slowness, Event::BodyArrives { exchange, operation, max_bytes });
                    None
                };
                match result {
                    Some(result) => self.fact(HOP, shard, Input::Http(inputs::Http::BodyRead { operation, result })),
                    None => open.reading = Some(operation),
                }
            }
            effects::Http::CancelRead { exchange } => self.cancel_read(exchange),
            effects::Http::Respond { exchange, head, body } => {
                let Some(open) = self.exchanges.get_mut(&exchange).filter(|open| !open.ended) else { return };
                if open.machine.status().is_some() {
                    let text = format!("a second answer to {exchange:?}");
                    return self.judges.violated("one answer per exchange", self.timeline.now().monotonic, text);
                }
                self.http_news.insert(exchange);
                match body {
                    effects::ResponseBody::Whole(bytes) => {
                        open.machine.responded(head, None);
                        open.machine.received(&bytes);
                        if !open.machine.stands_still() {
                            self.end_exchange(exchange);
                        }
                    }
                    effects::ResponseBody::Streamed { length } => {
                        open.machine.responded(head, Some(length));
                        if length == 0 && !open.machine.stands_still() {
                            self.end_exchange(exchange);
                        }
                    }
                }
            }
            effects::Http::SendChunk { operation, exchange, bytes } => {
                let Some(open) = self.exchanges.get_mut(&exchange) else { return };
                if open.machine.stands_still() && !open.ended {
                    open.machine.received(&bytes);
                    open.sending = Some(operation);
                    return;
                }
                self.fact(HOP, shard, Input::Http(inputs::Http::ChunkAccepted { operation }));
                let Some(open) = self.exchanges.get_mut(&exchange).filter(|open| !open.ended) else { return };
                open.machine.received(&bytes);
                if open.machine.is_complete() {
                    self.end_exchange(exchange);
                }
            }
            effects::Http::Abort { exchange } => {
                if let Some(open) = self.exchanges.get_mut(&exchange).filter(|open| !open.ended) {
                    open.machine.aborted();
                    self.end_exchange(exchange);
                }
            }
        }
    }

    /// The next piece of a slow body is there, if the read was not cancelled meanwhile.
    pub(super) fn body_arrives(&mut self, exchange: ExchangeId, operation: OperationId, max_bytes: usize) {
        let Some(open) = self.exchanges.get_mut(&exchange) else { return };
        if open.reading != Some(operation) {
            return;
        }
        if let Some(result) = open.machine.read(max_bytes) {
            open.reading = None;
            let shard = open.shard;
            self.fact(HOP, shard, Input::Http(inputs::Http::BodyRead { operation, result }));
        }
    }

    fn cancel_read(&mut self, exchange: ExchangeId) {
        let Some(open) = self.exchanges.get_mut(&exchange) else { return };
        if let Some(operation) = open.reading.take() {
            let (shard, result) = (open.shard, ReadResult::Broken("cancelled".into()));
            self.fact(HOP, shard, Input::Http(inputs::Http::BodyRead { operation, result }));
        }
    }

    /// The driver's last words about an exchange: what is open is completed, then its end.
    pub(super) fn end_exchange(&mut self, exchange: ExchangeId) {
        self.cancel_read(exchange);
        let Some(open) = self.exchanges.get_mut(&exchange) else { return };
        open.ended = true;
        self.http_news.insert(exchange);
        let shard = open.shard;
        if let Some(operation) = open.sending.take() {
            self.fact(HOP, shard, Input::Http(inputs::Http::ChunkAccepted { operation }));
        }
        self.fact(HOP, shard, Input::Http(inputs::Http::Ended { exchange }));
    }

    fn carry_out_file(&mut self, shard: usize, order: effects::TempFile) {
        let broken = self.faults.files_are_broken();
        let files = &mut self.shards[shard];
        let told = match order {
            effects::TempFile::Create { operation, .. } | effects::TempFile::Append { operation, .. } if broken => {
                inputs::TempFile::Finished { operation, result: Err("the disk is full".into()) }
            }
            effects::TempFile::Read { operation, .. } if broken => {
                inputs::TempFile::ChunkRead { operation, result: ReadResult::Broken("the disk is broken".into()) }
            }
            effects::TempFile::Create { operation, file } => {
                files.create_file(file);
                inputs::TempFile::Finished { operation, result: Ok(()) }
            }
            effects::TempFile::Append { operation, file, bytes } => {
                files.append_file(file, &bytes);
                inputs::TempFile::Finished { operation, result: Ok(()) }
            }
            effects::TempFile::Read { operation, file, max_bytes } => {
                inputs::TempFile::ChunkRead { operation, result: files.read_file(file, max_bytes) }
            }
            effects::TempFile::Remove { file } => return files.remove_file(file),
        };
        self.fact(HOP, shard, Input::TempFile(told));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafscale_proxy_core::Config;

    use super::*;
    use crate::world::Plan;

    #[test]
    fn a_client_may_be_written_to_until_the_proxy_has_closed_it() {
        let plan =
            Plan { seed: 1, config: Config::default(), shards: 1, brokers: 1, topics: vec![], min_part_bytes: 1 };
        let mut world = World::new(plan);
        let (gone, closed) = (world.connect(0), world.connect(0));
        let write = |client| Effect::Client(effects::Client::Write { client, bytes: Bytes::from_static(&[0]) });
        world.vanish(gone);
        world.carry_out(0, Effects::from([write(gone), write(closed)]));
        world.carry_out(0, Effects::from([Effect::Client(effects::Client::Close { client: closed })]));
        assert_eq!(world.judges.violations(), []);
        world.carry_out(0, Effects::from([write(closed)]));
        assert_eq!(world.judges.violations().len(), 1, "{:?}", world.judges.violations());
    }
}
