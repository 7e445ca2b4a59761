//! The LFS path driven by hand-made facts: each test tells what happened and reads what was decided, as short text.

mod bodies;
mod clients;
mod discovery;
mod downloads;
mod hashing;
mod idle_links;
mod records;
mod uploads;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::checksum::Digests;
use super::*;
use crate::broker::usual_broker;
use crate::cluster::{Answer, Cluster, Question, TopicGeneration};
use crate::config::{Config, LfsConfig};
use crate::context::{Context, Ids};
use crate::effect::ResponseBody;
use crate::input::{self, BrokerConnectionId, ConnectError, ExchangeId, ReadResult};
use crate::kafka::{
    ErrorCode, PartitionProduceResponse, ProduceResponse, RequestHeader, Str, TopicProduceResponse, response_frame,
};
use crate::operation::{OperationId, Outcome};
use crate::random::Random;
use crate::s3::{Refusal, Request, Response};
use crate::stats::{BudgetStats, RetryReason};
use crate::time::{Monotonic, Now};
use crate::timers::{Timer, Timers};

/// The exchange of most tests.
const ONE: ExchangeId = ExchangeId(1);
const TWO: ExchangeId = ExchangeId(2);

/// Parts of 8 bytes, bodies below 4 bytes in one PutObject.
fn small_parts() -> LfsConfig {
    LfsConfig {
        bucket: "bucket".into(),
        namespace: "ns".into(),
        static_backends: vec!["a:1".into(), "b:1".into(), "c:1".into()],
        chunk_bytes: 8,
        single_put_below_bytes: 4,
        parts_in_flight: 2,
        upload_memory_bytes: 1024,
        download_memory_bytes: 8,
        download_disk_bytes: 100,
        max_blob_bytes: Some(64),
        ..LfsConfig::default()
    }
}

struct Bench {
    config: Config,
    timers: Timers,
    random: Random,
    ids: Ids,
    now: Monotonic,
    cluster: Cluster,
    lfs: Lfs,
    /// S3 requests without an outcome, oldest first.
    s3: VecDeque<(Purpose, Request)>,
    operations: u64,
    /// Hashing that is not done, oldest first.
    jobs: VecDeque<(ExchangeId, Box<Digests>, Vec<Bytes>)>,
    /// Broker connections that have not ended: where to, and bytes written.
    brokers: BTreeMap<BrokerConnectionId, (String, usize)>,
    /// Correlation id of the record that was written last.
    correlation_id: i32,
    /// What was decided and not read yet.
    log: Vec<String>,
    /// Heads of answers.
    answers: BTreeMap<ExchangeId, Box<http::response::Parts>>,
}

impl Bench {
    fn new(lfs: LfsConfig) -> Self {
        let config = Config { lfs: Some(lfs.clone()), ..Config::default() };
        Self {
            timers: Timers::default(),
            random: Random::new([3; 32]),
            ids: Ids::default(),
            now: Monotonic::from_millis(1_000),
            cluster: Cluster::new(&config.cluster),
            lfs: Lfs::new(&lfs),
            s3: VecDeque::new(),
            operations: 0,
            jobs: VecDeque::new(),
            brokers: BTreeMap::new(),
            correlation_id: 0,
            log: Vec::new(),
            answers: BTreeMap::new(),
            config,
        }
    }

    /// A produce that has come as far as reading its body.
    fn reading(lfs: LfsConfig, headers: &[(&'static str, &str)]) -> Self {
        let mut bench = Self::new(lfs);
        bench.produce(ONE, headers);
        bench.generation(ONE, TopicGeneration::Absent);
        bench.connected();
        assert_eq!(bench.read(), ["ask generation t", "connect a:1", "read 8"]);
        bench
    }

    /// A produce whose blob is in S3 and whose record is with broker `a:1`.
    fn sent() -> Self {
        let mut bench = Self::stored();
        bench.generation(ONE, TopicGeneration::Absent);
        assert_eq!(bench.read(), ["write a:1"]);
        bench
    }

    /// A produce whose blob is in S3; the topic is being read again.
    fn stored() -> Self {
        let mut bench = Self::reading(small_parts(), &[]);
        bench.chunk(ONE, b"abc");
        bench.body(ONE, ReadResult::End);
        assert_eq!(bench.read(), ["read 5", "put 3"]);
        bench.s3_done(Response::Done);
        assert_eq!(bench.read(), ["ask generation t"]);
        bench
    }

    fn call<R>(&mut self, tell: impl FnOnce(&mut Lfs, &mut Context<'_>, &Cluster, &mut Vec<Decision>) -> R) -> R {
        let mut out = Vec::new();
        let mut ctx = Context {
            now: Now { monotonic: self.now, unix_ms: 1_795_952_645_000 },
            config: &self.config,
            timers: &mut self.timers,
            random: &mut self.random,
            ids: &mut self.ids,
        };
        let result = tell(&mut self.lfs, &mut ctx, &self.cluster, &mut out);
        for decision in out {
            self.note(decision);
        }
        result
    }

    /// Writes a decision down as short text, and remembers what must be answered.
    fn note(&mut self, decision: Decision) {
        let text = match decision {
            Decision::ReadBody { max_bytes, .. } => format!("read {max_bytes}"),
            Decision::CancelRead { .. } => "cancel read".into(),
            Decision::Respond { exchange, head, body } => {
                let text = match body {
                    ResponseBody::Whole(body) => match serde_json::from_slice::<serde_json::Value>(&body) {
                        Ok(json) if json["code"].is_string() => json["code"].as_str().unwrap().to_owned(),
                        Ok(json) if json["kfs_lfs"] == 1 => "envelope".into(),
                        Ok(_) | Err(_) => String::from_utf8_lossy(&body).trim().to_owned(),
                    },
                    ResponseBody::Streamed { length } => format!("stream {length}"),
                };
                let text = format!("{} {text}", head.status.as_u16());
                assert!(self.answers.insert(exchange, head).is_none(), "one answer per exchange");
                text
            }
            Decision::SendChunk { bytes, .. } => format!("send {}", String::from_utf8_lossy(&bytes)),
            Decision::Abort { .. } => "break the connection".into(),
            Decision::S3 { purpose, request, .. } => {
                let text = verb(&request);
                self.s3.push_back((purpose, request));
                text
            }
            Decision::Hash { exchange, digests, pieces } => {
                let text = format!("hash {}", size(&pieces));
                self.jobs.push_back((exchange, digests, pieces));
                text
            }
            Decision::ReadObject { max_bytes, .. } => format!("read object {max_bytes}"),
            Decision::ReleaseObject { .. } => "release object".into(),
            Decision::CreateFile { .. } => "create file".into(),
            Decision::AppendFile { bytes, .. } => format!("append {}", bytes.len()),
            Decision::ReadFile { max_bytes, .. } => format!("read file {max_bytes}"),
            Decision::RemoveFile { .. } => "remove file".into(),
            Decision::Connect { connection, address } => {
                self.brokers.insert(connection, (address.as_str().to_owned(), 0));
                format!("connect {address}")
            }
            // Every connection begins with it.
            Decision::WriteBroker { bytes, .. } if usual_broker::is_question(&bytes) => return,
            Decision::WriteBroker { connection, bytes } => {
                let (address, written) = self.brokers.get_mut(&connection).unwrap();
                *written += bytes.len();
                self.correlation_id = RequestHeader::decode(&bytes).unwrap().0.correlation_id;
                format!("write {address}")
            }
            Decision::CloseBroker { connection } => format!("close {}", self.brokers[&connection].0),
            Decision::Ask { question, .. } => match question {
                Question::Generation { topic } => format!("ask generation {topic}"),
                Question::Freshness => "ask freshness".into(),
                Question::Snapshot => "ask snapshot".into(),
                Question::PartitionOwner { topic, partition } => format!("ask owner {topic}-{partition}"),
                other => format!("{other:?}"),
            },
            // Said at the end of every exchange; a question that is open is forgotten by it.
            Decision::ForgetWaiter { .. } => return,
            Decision::ForgetPartitionOwner { topic, partition, by: _ } => format!("forget owner {topic}-{partition}"),
        };
        self.log.push(text);
    }

    /// What was decided since the last look.
    fn read(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn request(&mut self, exchange: ExchangeId, method: &str, path: &str, headers: &[(&'static str, &str)]) {
        let mut builder = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let (head, ()) = builder.body(()).unwrap().into_parts();
        let peer = "127.0.0.1:9".parse().unwrap();
        self.call(|lfs, ctx, cluster, out| lfs.on_request(ctx, cluster, exchange, head, peer, out));
    }

    /// `POST /lfs/produce` to topic `t`.
    fn produce(&mut self, exchange: ExchangeId, headers: &[(&'static str, &str)]) {
        let headers = [&[("x-kafka-topic", "t")], headers].concat();
        self.request(exchange, "POST", "/lfs/produce", &headers);
    }

    fn answer(&mut self, exchange: ExchangeId, question: Question, answer: Answer) {
        self.call(|lfs, ctx, cluster, out| lfs.on_answer(ctx, cluster, exchange, question, answer, out));
    }

    fn generation(&mut self, exchange: ExchangeId, generation: TopicGeneration) {
        self.answer(exchange, Question::Generation { topic: "t".into() }, Answer::Generation(generation));
    }

    fn body(&mut self, exchange: ExchangeId, result: ReadResult) {
        self.call(|lfs, ctx, cluster, out| lfs.on_body(ctx, cluster, exchange, result, out));
    }

    fn chunk(&mut self, exchange: ExchangeId, bytes: &'static [u8]) {
        self.body(exchange, ReadResult::Chunk(Bytes::from_static(bytes)));
    }

    fn gone(&mut self, exchange: ExchangeId) {
        self.call(|lfs, ctx, cluster, out| lfs.on_client_gone(ctx, cluster, exchange, out));
    }

    fn ended(&mut self, exchange: ExchangeId) {
        self.call(|lfs, ctx, cluster, out| lfs.on_ended(ctx, cluster, exchange, out));
    }

    /// The oldest open S3 request ends. Returns its operation.
    fn s3(&mut self, outcome: Outcome<Response, Refusal>) -> OperationId {
        self.s3_at(0, outcome)
    }

    /// As [`Bench::s3`], with the request at this place among the open ones.
    fn s3_at(&mut self, place: usize, outcome: Outcome<Response, Refusal>) -> OperationId {
        let (purpose, _) = self.s3.remove(place).expect("no S3 request is open");
        self.operations += 1;
        let operation = OperationId(self.operations);
        self.call(|lfs, ctx, cluster, out| lfs.on_s3(ctx, cluster, operation, purpose, outcome, out));
        operation
    }

    fn s3_done(&mut self, response: Response) -> OperationId {
        self.s3(Outcome::Applied(response))
    }

    /// The oldest job is done.
    fn hashed(&mut self) {
        let (exchange, mut digests, pieces) = self.jobs.pop_front().expect("nothing is being hashed");
        pieces.iter().for_each(|piece| digests.update(piece));
        self.call(|lfs, ctx, cluster, out| lfs.on_hashed(ctx, cluster, exchange, digests, out));
    }

    fn broker(&mut self, input: input::Broker) {
        self.call(|lfs, ctx, cluster, out| lfs.on_broker(ctx, cluster, input, out));
    }

    /// The newest broker connection.
    fn connection(&self) -> BrokerConnectionId {
        *self.brokers.last_key_value().expect("no broker connection is open").0
    }

    fn connected(&mut self) {
        self.connected_to(usual_broker::versions());
    }

    /// As [`Bench::connected`], with a broker that answers this when it is asked what it speaks.
    fn connected_to(&mut self, versions: BytesMut) {
        let connection = self.connection();
        self.broker(input::Broker::Connected { connection });
        self.broker(input::Broker::Received { connection, bytes: versions });
    }

    fn connect_failed(&mut self) {
        let connection = self.connection();
        let error = ConnectError("refused".into());
        self.broker(input::Broker::ConnectFailed { connection, error });
        self.brokers.remove(&connection);
    }

    /// The newest connection ends; `accepted` of its bytes were taken.
    fn closed(&mut self, accepted: u64) {
        let connection = self.connection();
        let accepted_bytes = usual_broker::question_bytes() + accepted;
        self.broker(input::Broker::Closed { connection, accepted_bytes });
        self.brokers.remove(&connection);
    }

    /// The newest connection's broker answers the produce with this code.
    fn broker_answers(&mut self, code: i16) {
        self.broker_answers_and(code, &[]);
    }

    /// As [`Bench::broker_answers`], with more bytes behind it.
    fn broker_answers_and(&mut self, code: i16, more: &[u8]) {
        let partition = PartitionProduceResponse {
            index: 0,
            error_code: ErrorCode(code),
            base_offset: 17,
            ..PartitionProduceResponse::default()
        };
        let topic = TopicProduceResponse { name: Str::from_static("t"), partition_responses: vec![partition] };
        let response = ProduceResponse { responses: vec![topic], ..ProduceResponse::default() };
        let answer = response_frame(self.correlation_id, 9, &response);
        self.broker_sends(BytesMut::from(&[&answer[..], more].concat()[..]));
    }

    fn broker_sends(&mut self, bytes: BytesMut) {
        let connection = self.connection();
        self.broker(input::Broker::Received { connection, bytes });
    }

    /// Lets time pass; what is due is done on the way. Returns the timers that were due.
    fn pass(&mut self, time: Duration) -> Vec<Timer> {
        let until = self.now + time;
        let mut due = Vec::new();
        while let Some(next) = self.timers.next().filter(|next| next.at <= until) {
            self.now = next.at;
            let timer = self.timers.pop_due(next.at).unwrap();
            due.push(timer);
            self.call(|lfs, ctx, cluster, out| lfs.on_timer(ctx, cluster, timer, out));
        }
        self.now = until;
        due
    }

    /// Ends what a driver would end by itself, then nothing may be left.
    fn assert_nothing_left(&mut self) {
        for connection in self.brokers.keys().copied().collect::<Vec<_>>() {
            self.broker(input::Broker::Closed { connection, accepted_bytes: 0 });
        }
        self.brokers.clear();
        for exchange in [ONE, TWO] {
            self.ended(exchange);
        }
        assert!(self.s3.is_empty(), "open S3 requests: {:?}", self.s3);
        assert!(self.jobs.is_empty(), "{} jobs are open", self.jobs.len());
        assert!(self.lfs.is_idle(), "exchanges, removals or connections are left");
        assert_eq!(self.lfs.stats().memory_taken_bytes, 0);
        assert_eq!(self.lfs.stats().disk_taken_bytes, 0);
        assert_eq!(self.timers.next(), None);
    }
}

fn verb(request: &Request) -> String {
    match request {
        Request::HeadBucket => "head bucket".into(),
        Request::CreateBucket => "create bucket".into(),
        Request::PutObject { body, .. } => format!("put {}", size(body)),
        Request::CreateMultipartUpload { .. } => "create upload".into(),
        Request::UploadPart { part_number, body, .. } => format!("part {part_number} of {}", size(body)),
        Request::CompleteMultipartUpload { parts, .. } => {
            let numbers: Vec<String> = parts.iter().map(|(number, etag)| format!("{number}:{etag}")).collect();
            format!("complete {}", numbers.join(" "))
        }
        Request::AbortMultipartUpload { upload_id, .. } => format!("abort {upload_id}"),
        Request::DeleteObject { .. } => "delete".into(),
        Request::HeadObject { .. } => "head".into(),
        Request::GetObject { key } => format!("get {key}"),
        Request::PresignGetObject { expires_seconds, .. } => format!("presign {expires_seconds}"),
    }
}

fn size(body: &[Bytes]) -> usize {
    body.iter().map(Bytes::len).sum()
}

fn created() -> Outcome<Response, Refusal> {
    Outcome::Applied(Response::UploadCreated("u".into()))
}

fn part(etag: &str) -> Outcome<Response, Refusal> {
    Outcome::Applied(Response::PartStored(etag.into()))
}

fn lost() -> Outcome<Response, Refusal> {
    Outcome::Unknown("reset".into())
}

fn denied() -> Outcome<Response, Refusal> {
    Outcome::NotApplied(Refusal::AccessDenied("403".into()))
}

fn slow_down() -> Outcome<Response, Refusal> {
    Outcome::NotApplied(Refusal::SlowDown("503".into()))
}
