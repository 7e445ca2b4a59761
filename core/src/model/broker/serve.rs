//! From the bytes of a connection to its answers: one request at a time, each through the stages of [`super::job`].

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};

use super::fetch::Fetching;
use super::job::{Answer, Head, Job, Stage, Writing, chunks, partition_resource};
use super::lease::{Acquired, Kind, Need, TTL_SECONDS};
use super::log::SharedLog;
use super::request::{Differing, Request, advertised};
use super::{BrokerModel, ConnectionId, Effect, EtcdToken, Fault, Lifecycle, Purpose, SNAPSHOT_KEY, hints, keys};
use crate::etcd;
use crate::etcd::{RangeRequest, TxnAnswer, TxnOperation, TxnRequest};
use crate::kafka::{
    ApiKey, ApiVersionsResponse, ErrorCode, FetchResponse, FindCoordinatorResponse, InitProducerIdResponse,
    LeaderIdAndEpoch, MetadataResponse, RequestHeader, SaslAuthenticateResponse, SaslHandshakeResponse, response_frame,
};
use crate::operation::Outcome;
use crate::time::Now;

/// First version of Fetch with tagged fields.
const FETCH_TAGGED: i16 = 12;

/// What one step of a request led to.
enum Step {
    /// Go on at once.
    Next,
    /// Something is awaited.
    Wait,
    /// Done; with the answer, if there is one.
    Done(Option<Bytes>),
}

/// What a frame asks for.
enum Read {
    Request(Head, Request),
    /// Answered by a look at the header.
    Answered(Bytes),
    /// Not answered, and the connection goes on.
    Ignored,
    /// Not understood: the connection closes.
    Refused,
}

impl BrokerModel {
    /// Carries the request of a connection on, and then the next ones, as far as it goes.
    pub(super) fn go_on(&mut self, now: Now, id: ConnectionId, log: &mut SharedLog, effects: &mut Vec<Effect>) {
        while !self.silent && self.snapshot_read && self.lifecycle != Lifecycle::Stopped {
            if let Some(mut job) = self.jobs.remove(&id) {
                match self.step(now, &mut job, log, effects) {
                    Step::Next => {}
                    Step::Wait => {
                        self.jobs.insert(id, job);
                        return;
                    }
                    Step::Done(answer) => {
                        if let Some(bytes) = answer {
                            self.respond(id, bytes, effects);
                        }
                        continue;
                    }
                }
                if self.lifecycle != Lifecycle::Stopped {
                    self.jobs.insert(id, job);
                }
                continue;
            }
            let Some(connection) = self.connections.get_mut(&id) else { return };
            let frame = match connection.splitter.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(_) => return self.close(id, effects),
            };
            match read(&self.settings.versions, id, frame) {
                Read::Request(head, request) => drop(self.jobs.insert(id, Job::new(head, request))),
                // Faults strike what is asked for, not what is said before.
                Read::Answered(bytes) => effects.push(Effect::Write { connection: id, bytes }),
                Read::Ignored => {}
                Read::Refused => return self.close(id, effects),
            }
        }
    }

    pub(super) fn close(&mut self, connection: ConnectionId, effects: &mut Vec<Effect>) {
        if self.connections.remove(&connection).is_some() {
            effects.push(Effect::Close { connection });
        }
    }

    fn respond(&mut self, connection: ConnectionId, bytes: Bytes, effects: &mut Vec<Effect>) {
        if !self.connections.contains_key(&connection) {
            return;
        }
        let wrong = self.take_fault(|fault| match fault {
            Fault::WrongCorrelation => Some(()),
            Fault::RefuseProduce(_)
            | Fault::CrashAfterAppend
            | Fault::MissingPartition
            | Fault::CloseUnappended
            | Fault::LeaderHints(_) => None,
        });
        let bytes = if wrong.is_some() {
            let mut bytes = BytesMut::from(&bytes[..]);
            // The last byte of the correlation id, which follows the length.
            bytes[7] ^= 1;
            bytes.freeze()
        } else {
            bytes
        };
        effects.push(Effect::Write { connection, bytes });
    }

    fn step(&mut self, now: Now, job: &mut Job, log: &mut SharedLog, effects: &mut Vec<Effect>) -> Step {
        if job.outstanding > 0 {
            return Step::Wait;
        }
        match &mut job.stage {
            Stage::Owning => self.own(job, effects),
            Stage::Creating => self.create(job, effects),
            Stage::Reading => self.answer(now, job, log, effects),
            Stage::Writing(writing) => {
                let Writing { writes: _, watermarks, written, failed } = std::mem::take(&mut **writing);
                if job.write_failed {
                    return Step::Done(failed);
                }
                if !watermarks.is_empty() {
                    for (topic, partition, offset) in watermarks {
                        log.advance(&topic, partition, offset);
                    }
                    self.wake_fetches(now, log, effects);
                }
                Step::Done(written)
            }
            Stage::Fetching(fetching) => match fetching.advance(now.monotonic, log) {
                None => Step::Wait,
                Some((head, response)) => Step::Done(Some(self.fetched(head, response))),
            },
            Stage::Stuck => Step::Wait,
        }
    }

    /// Acquires what the request needs and nobody else has.
    fn own(&mut self, job: &mut Job, effects: &mut Vec<Effect>) -> Step {
        let connection = job.head.connection;
        let mut waits = false;
        for (kind, resource) in job.request.resources() {
            let key = (kind, resource.clone());
            if job.owned.contains_key(&key) {
                continue;
            }
            if self.ownership(kind).owns(&resource) {
                job.owned.insert(key, Ok(()));
                continue;
            }
            match self.ownership(kind).need() {
                Need::Ready(lease) => {
                    let txn = self.ownership(kind).acquire(&resource, lease);
                    // Asked for once, also when the request names it twice; the answer replaces this.
                    job.owned.insert(key, Err(ErrorCode::REQUEST_TIMED_OUT));
                    job.outstanding += 1;
                    let purpose = Purpose::Own { connection, kind, resource, lease };
                    self.ask_etcd(purpose, etcd::Request::Txn(txn), effects);
                }
                Need::Grant => {
                    waits = true;
                    let request = etcd::Request::LeaseGrant { ttl_seconds: TTL_SECONDS };
                    self.ask_etcd(Purpose::Grant(kind), request, effects);
                }
                Need::Wait => waits = true,
                Need::Never => drop(job.owned.insert(key, Err(not_owner(kind)))),
            }
        }
        if waits || job.outstanding > 0 {
            return Step::Wait;
        }
        job.stage = Stage::Creating;
        Step::Next
    }

    /// Creates topics that are wanted and not there.
    fn create(&mut self, job: &mut Job, effects: &mut Vec<Effect>) -> Step {
        let mut created = BTreeSet::new();
        if self.available || matches!(job.request, Request::Fetch(_) | Request::Metadata(_) | Request::ListOffsets(_)) {
            for (topic, partition) in job.request.wanted_topics(&self.snapshot) {
                let owned = partition.is_none_or(|partition| {
                    job.ownership(Kind::Partition, &partition_resource(&topic, partition)).is_ok()
                });
                if !owned {
                    continue;
                }
                if self.snapshot.topic(&topic).is_none() {
                    let partitions = self.settings.auto_create_partitions.max(partition.unwrap_or(0).saturating_add(1));
                    match self.snapshot.create(&topic, partitions, 1) {
                        Ok(()) => drop(created.insert(topic)),
                        Err(_) => drop(job.failed_topics.insert(topic)),
                    }
                } else if partition.is_some_and(|partition| !self.snapshot.has_partition(&topic, partition)) {
                    job.stage = Stage::Stuck;
                    return Step::Wait;
                }
            }
        }
        if !created.is_empty() {
            let put = TxnOperation::Put { key: SNAPSHOT_KEY.into(), value: self.snapshot.to_json().into(), lease: 0 };
            let request = etcd::Request::Txn(TxnRequest { success: vec![put], ..TxnRequest::default() });
            job.outstanding += 1;
            self.ask_etcd(Purpose::Create { connection: job.head.connection, topics: created }, request, effects);
        }
        self.read(job, effects);
        job.stage = Stage::Reading;
        if job.outstanding > 0 { Step::Wait } else { Step::Next }
    }

    fn read(&mut self, job: &mut Job, effects: &mut Vec<Effect>) {
        let reads = job.request.reads(&self.snapshot, |group| self.groups.contains_key(group));
        let ranges = reads.into_iter().map(|keys| TxnOperation::Range(RangeRequest::of(keys))).collect();
        for success in chunks(ranges) {
            let request = etcd::Request::Txn(TxnRequest { success, ..TxnRequest::default() });
            job.outstanding += 1;
            self.ask_etcd(Purpose::Read { connection: job.head.connection }, request, effects);
        }
    }

    /// Everything is known: answers, or begins to write or to wait.
    fn answer(&mut self, now: Now, job: &mut Job, log: &mut SharedLog, effects: &mut Vec<Effect>) -> Step {
        if !self.available && matches!(job.request, Request::Produce(_)) {
            for key in job.request.resources() {
                job.owned.insert(key, Err(ErrorCode::REQUEST_TIMED_OUT));
            }
        }
        if matches!(job.request, Request::Fetch(_)) {
            for (topic, partition) in job.request.wanted_topics(&self.snapshot) {
                self.restore(&topic, partition.unwrap_or(0), log, effects);
            }
        }
        let head = job.head;
        let known: &Job = job;
        let Some(answer) = self.answer_known(now, known, log, effects) else { return Step::Done(None) };
        match answer {
            Answer::Now(bytes) => Step::Done(Some(bytes)),
            Answer::Fetch(fetching) => {
                job.stage = Stage::Fetching(Box::new(fetching));
                Step::Next
            }
            Answer::AfterWrites(mut writing) => {
                for success in writing.writes.take() {
                    let request = etcd::Request::Txn(TxnRequest { success, ..TxnRequest::default() });
                    job.outstanding += 1;
                    self.ask_etcd(Purpose::Write { connection: head.connection }, request, effects);
                }
                job.stage = Stage::Writing(Box::new(writing));
                Step::Next
            }
        }
    }

    /// `None` when the broker crashed over it, or its connection is gone.
    fn answer_known(&mut self, now: Now, job: &Job, log: &mut SharedLog, effects: &mut Vec<Effect>) -> Option<Answer> {
        let head = job.head;
        Some(match &job.request {
            Request::Metadata(_) if !job.failed_topics.is_empty() => Answer::Now(head.empty::<MetadataResponse>()),
            Request::Metadata(request) => Answer::Now(head.frame(&self.answer_metadata(request))),
            Request::Produce(request) => return self.answer_produce(now, job, request, log, effects),
            Request::Fetch(request) => Answer::Fetch(Fetching::new(job, request, &self.snapshot)),
            Request::FindCoordinator(_) => Answer::Now(head.frame(&FindCoordinatorResponse {
                node_id: self.settings.id,
                host: self.settings.host.as_str().into(),
                port: i32::from(self.settings.port),
                ..FindCoordinatorResponse::default()
            })),
            Request::ListOffsets(request) => Answer::Now(head.frame(&self.answer_list_offsets(job, request, log))),
            Request::OffsetForLeaderEpoch(request) => {
                Answer::Now(head.frame(&self.answer_offset_for_leader_epoch(job, request)))
            }
            Request::JoinGroup(request) => self.answer_join_group(now, job, request),
            Request::SyncGroup(request) => self.answer_sync_group(now, job, request),
            Request::Heartbeat(request) => self.answer_heartbeat(now, job, request),
            Request::LeaveGroup(request) => self.answer_leave_group(now, job, request),
            Request::OffsetCommit(request) => self.answer_offset_commit(now, job, request),
            Request::OffsetFetch(request) => Answer::Now(head.frame(&self.answer_offset_fetch(job, request))),
            Request::DescribeGroups(request) => {
                Answer::Now(head.frame(&self.answer_describe_groups(now, job, request)))
            }
            Request::ListGroups(request) => Answer::Now(head.frame(&self.answer_list_groups(now, job, request))),
            Request::DeleteGroups(request) => self.answer_delete_groups(job, request),
            Request::DescribeConfigs(request) => Answer::Now(head.frame(&self.answer_describe_configs(job, request))),
            Request::AlterConfigs(request) => self.answer_alter_configs(job, request),
            Request::CreatePartitions(request) => self.answer_create_partitions(job, request),
            Request::CreateTopics(request) => self.answer_create_topics(job, request),
            Request::DeleteTopics(request) => self.answer_delete_topics(job, request, log),
        })
    }

    fn fetched(&mut self, head: Head, mut response: FetchResponse) -> Bytes {
        if self.takes_missing_partition()
            && let Some(topic) = response.responses.last_mut()
        {
            topic.partitions.pop();
        }
        if head.version >= FETCH_TAGGED
            && let Some(host) = self.takes_leader_hints()
        {
            let leader = LeaderIdAndEpoch { leader_id: self.settings.id, leader_epoch: 1 };
            let partitions = response.responses.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|partition| partition.current_leader = Some(leader.clone()));
            return hints::with_endpoint(&head.frame(&response), self.settings.id, host);
        }
        head.frame(&response)
    }

    /// A broker that looks at a partition for the first time finds segments in S3 that etcd was not told of.
    fn restore(&mut self, topic: &str, partition: i32, log: &mut SharedLog, effects: &mut Vec<Effect>) {
        if !self.restored.insert((topic.to_owned(), partition)) {
            return;
        }
        let Some(known) = log.partition(topic, partition) else { return };
        let end = known.end_offset();
        if known.high_watermark() < end {
            log.advance(topic, partition, end);
            let mut writing = Writing::default();
            writing.writes.put(keys::next_offset(topic, partition), end.to_string());
            self.write_in_background(writing, effects);
        }
    }

    /// Fetches of this broker that wait for what was just written.
    fn wake_fetches(&mut self, now: Now, log: &mut SharedLog, effects: &mut Vec<Effect>) {
        let waiting = self.jobs.iter().filter(|(_, job)| matches!(job.stage, Stage::Fetching(_)));
        let waiting: Vec<ConnectionId> = waiting.map(|(id, _)| *id).collect();
        for connection in waiting {
            self.go_on(now, connection, log, effects);
        }
    }

    pub(super) fn etcd_finished(
        &mut self,
        now: Now,
        token: EtcdToken,
        outcome: Outcome<etcd::Response, etcd::Refusal>,
        log: &mut SharedLog,
        effects: &mut Vec<Effect>,
    ) {
        let Some(purpose) = self.operations.remove(&token) else { return };
        let applied = match &outcome {
            Outcome::Applied(response) => Some(response),
            Outcome::NotApplied(_) | Outcome::Unknown(_) => None,
        };
        match purpose {
            Purpose::Own { connection, kind, resource, lease } => {
                let acquired = applied.and_then(|response| self.ownership(kind).acquired(&resource, lease, response));
                let Some(job) = self.jobs.get_mut(&connection) else { return };
                job.outstanding -= 1;
                let result = match acquired {
                    Some(Acquired::Ours) => Ok(()),
                    Some(Acquired::Theirs) => Err(not_owner(kind)),
                    None => Err(ErrorCode::REQUEST_TIMED_OUT),
                    Some(Acquired::TakeOver) => {
                        job.outstanding += 1;
                        let txn = self.ownership(kind).take_over(&resource, lease);
                        let purpose = Purpose::Own { connection, kind, resource, lease };
                        return self.ask_etcd(purpose, etcd::Request::Txn(txn), effects);
                    }
                };
                job.owned.insert((kind, resource), result);
                self.go_on(now, connection, log, effects);
            }
            Purpose::Create { connection, topics } => {
                self.available = applied.is_some();
                if let Some(job) = self.jobs.get_mut(&connection) {
                    job.outstanding -= 1;
                    if applied.is_none() {
                        job.failed_topics.extend(topics);
                    }
                    self.go_on(now, connection, log, effects);
                }
            }
            Purpose::Read { connection } => {
                self.available = applied.is_some();
                if let Some(job) = self.jobs.get_mut(&connection) {
                    job.outstanding -= 1;
                    job.read_failed |= applied.is_none();
                    for kv in read_keys(applied) {
                        job.read.insert(kv.key.clone(), kv.clone());
                    }
                    self.go_on(now, connection, log, effects);
                }
            }
            Purpose::Write { connection } => {
                self.available = applied.is_some();
                if let Some(job) = self.jobs.get_mut(&connection) {
                    job.outstanding -= 1;
                    job.write_failed |= applied.is_none();
                    self.go_on(now, connection, log, effects);
                }
            }
            Purpose::Grant(kind) => {
                let lease = match applied {
                    Some(etcd::Response::LeaseGranted { lease, .. }) => Some(*lease),
                    Some(_) | None => None,
                };
                self.ownership(kind).granted(now.monotonic, lease);
                self.granted(now, kind, lease.is_some(), log, effects);
            }
            Purpose::KeepAlive { kind, lease } => {
                // Brokers look at etcd often enough to see that it is back; here the lease does it for them.
                self.available = applied.is_some();
                let ttl_seconds = match applied {
                    Some(etcd::Response::LeaseKeptAlive { ttl_seconds }) => Some(*ttl_seconds),
                    Some(_) | None => None,
                };
                self.ownership(kind).kept_alive(now.monotonic, lease, ttl_seconds);
            }
            Purpose::Revoke => {
                if let Lifecycle::ShuttingDown { revoking } = &mut self.lifecycle {
                    *revoking -= 1;
                }
                self.stop_when_revoked(effects);
            }
            Purpose::Snapshot => {
                self.available = applied.is_some();
                self.snapshot_answered(now, &outcome, log, effects);
            }
            Purpose::Background => self.available = applied.is_some(),
        }
    }

    /// Goes on with everything that waited for a lease; without one it has failed for now.
    fn granted(&mut self, now: Now, kind: Kind, granted: bool, log: &mut SharedLog, effects: &mut Vec<Effect>) {
        let waiting: Vec<ConnectionId> =
            self.jobs.iter().filter(|(_, job)| matches!(job.stage, Stage::Owning)).map(|(id, _)| *id).collect();
        for connection in waiting {
            if !granted && let Some(job) = self.jobs.get_mut(&connection) {
                for key in job.request.resources().into_iter().filter(|(wanted, _)| *wanted == kind) {
                    job.owned.entry(key).or_insert(Err(ErrorCode::REQUEST_TIMED_OUT));
                }
            }
            self.go_on(now, connection, log, effects);
        }
    }
}

const fn not_owner(kind: Kind) -> ErrorCode {
    match kind {
        Kind::Partition => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        Kind::Group => ErrorCode::NOT_COORDINATOR,
    }
}

fn read_keys(response: Option<&etcd::Response>) -> impl Iterator<Item = &etcd::KeyValue> {
    let answers = match response {
        Some(etcd::Response::Txn(txn)) => &txn.answers[..],
        Some(_) | None => &[],
    };
    answers.iter().flat_map(|answer| match answer {
        TxnAnswer::Range(range) => &range.kvs[..],
        TxnAnswer::Put | TxnAnswer::Delete(_) => &[],
    })
}

/// Reads a frame, length prefix included.
fn read(differing: &Differing, connection: ConnectionId, frame: BytesMut) -> Read {
    let frame = frame.freeze();
    let Ok((header, body_at)) = RequestHeader::decode(&frame) else { return Read::Refused };
    let (version, correlation_id) = (header.api_version, header.correlation_id);
    let Some(api) = header.api() else { return Read::Refused };
    let head = Head { connection, version, correlation_id };
    let body = frame.slice(body_at..);
    match Request::decode(differing, api, version, &body) {
        Some(Ok(request)) => return Read::Request(head, request),
        Some(Err(_)) => return Read::Refused,
        None => {}
    }
    if api == ApiKey::ApiVersions {
        // A version that the broker does not know gets the layout that everybody does.
        let known = (0..=4).contains(&version);
        let error_code = if known { ErrorCode::NONE } else { ErrorCode::UNSUPPORTED_VERSION };
        let response =
            ApiVersionsResponse { error_code, api_keys: advertised(differing), ..ApiVersionsResponse::default() };
        return Read::Answered(response_frame(correlation_id, if known { version } else { 0 }, &response));
    }
    if api == ApiKey::Produce {
        return Read::Ignored;
    }
    if !api.known_versions().contains(version) {
        return Read::Refused;
    }
    // Decoded, not supported, and so answered by a response with everything at its default.
    if api == ApiKey::SaslHandshake {
        Read::Answered(head.empty::<SaslHandshakeResponse>())
    } else if api == ApiKey::SaslAuthenticate {
        Read::Answered(head.empty::<SaslAuthenticateResponse>())
    } else if api == ApiKey::InitProducerId {
        Read::Answered(head.empty::<InitProducerIdResponse>())
    } else {
        Read::Refused
    }
}
