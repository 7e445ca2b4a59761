//! One `POST /lfs/produce`: check, connect, store the blob, check again, publish the record.
//!
//! A broker is connected before the first byte goes to S3, so that a cluster that is away costs no upload. After the upload the
//! topic must still be the same one and the knowledge of the cluster fresh; only then the record is sent. Until it is
//! sent, a client that goes takes its blob with it; from then on the answer is awaited for nobody.

mod state;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::{Answer, NotServing, Question, TopicGeneration};
use crate::http::answer::ApiAnswer;
use crate::http::error_body::{ApiError, Code};
use crate::input::{self, ReadResult};
use crate::operation::Outcome;
use crate::planted::{Bug, planted};
use crate::s3::{Refusal, Response};
use crate::time::Monotonic;
use crate::timers::Timer;

use super::Decision;
use super::broker_choice::{self, Asked};
use super::budget::Reserved;
use super::call::Call;
use super::checksum::Digests;
use super::cleanup::{LeftObject, LeftUpload, Leftovers, Unwanted};
use super::envelope::Envelope;
use super::idle_links::IdleLinks;
use super::link::{Fact, Link};
use super::object_key;
use super::partitioner;
use super::produce_request::{self, ProduceRequest};
use super::publish::{Publish, Published};
use super::purpose::UploadStep;
use super::reach::{NotReached, Partition, Reach, Reached};
use super::requester::{self, Requester};
use super::upload::{self, Blob, Failure, Progress, Stored, Upload};
use super::verdict::{Blob as Fate, Ending};
use crate::log_text::Printable;
use state::State;

pub(crate) use state::LIFECYCLE;

/// Longest wait for memory.
const MEMORY_WAIT: Duration = Duration::from_secs(10);

/// One exchange.
#[derive(Debug)]
pub(crate) struct Produce {
    /// Name of the state: while it is being taken apart, its place is held by another.
    at: &'static str,
    requester: Requester,
    request: ProduceRequest,
    started: Monotonic,
    /// Object key; nothing is stored under it before the upload.
    key: String,
    link: Option<Link>,
    state: State,
}

impl Produce {
    fn enter(&mut self, next: State) {
        LIFECYCLE.step(&mut self.at, next.name());
        self.state = next;
    }

    /// Begins.
    pub(crate) fn start(call: &mut Call<'_, '_>, requester: Requester, request: ProduceRequest) -> Self {
        let (namespace, unix_ms) = (&call.shared.config.namespace, call.ctx.now.unix_ms);
        let key = object_key::draw(namespace, &request.topic, unix_ms, call.ctx.random);
        let started = call.ctx.now.monotonic;
        let produce = Self {
            requester,
            request,
            started,
            key,
            link: None,
            at: "ReadingGeneration",
            state: State::ReadingGeneration,
        };
        produce.ask_generation(call);
        produce
    }

    pub(crate) fn requester(&mut self) -> &mut Requester {
        &mut self.requester
    }

    /// Whether nothing is left to do, but for the answer to leave.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    // --- facts ---

    /// A question was answered.
    pub(crate) fn on_answer(&mut self, call: &mut Call<'_, '_>, question: &Question, answer: Answer) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::ReadingGeneration => match answer {
                Answer::Generation(before) => self.gate(call, before, Asked::default()),
                Answer::Unreadable(reason) => self.refuse_unreadable(call, &reason),
                Answer::Learned | Answer::CommittedPartitions(_) | Answer::ProducerId(_) => {
                    self.enter(State::ReadingGeneration)
                }
            },
            State::Refreshing { before, asked } => self.gate(call, before, asked.and(question)),
            State::Reaching { before, partition, mut reach } => {
                let reached = reach.on_answer(call, &partition, &mut self.link, question);
                self.enter(State::Reaching { before, partition, reach });
                self.on_reached(call, reached);
            }
            State::CheckingGeneration { before, partition, stored } => {
                let ending = match answer {
                    Answer::Generation(after)
                        if TopicGeneration::still(&before, &after) || planted(Bug::TopicChangeUnnoticed) =>
                    {
                        return self.publish(call, partition, stored);
                    }
                    Answer::Generation(_) => Some(Ending::TopicChanged),
                    Answer::Unreadable(_) => Some(Ending::Unreadable),
                    Answer::Learned | Answer::CommittedPartitions(_) | Answer::ProducerId(_) => None,
                };
                self.enter(State::CheckingGeneration { before, partition, stored });
                if let Some(ending) = ending {
                    self.end(call, ending);
                }
            }
            State::Publishing { stored, envelope, mut publish } => {
                let published = publish.on_answer(call, &mut self.link, question);
                self.enter(State::Publishing { stored, envelope, publish });
                self.on_published(call, published);
            }
            other @ (State::AwaitingMemory { .. }
            | State::Uploading { .. }
            | State::Stopping { .. }
            | State::Removing { .. }
            | State::Over) => self.enter(other),
        }
    }

    /// A fact about a broker connection of this exchange, which may be one that is not needed any more.
    pub(crate) fn on_broker(&mut self, call: &mut Call<'_, '_>, input: input::Broker) {
        for fact in Link::on_broker(&mut self.link, call, input) {
            self.on_link(call, fact);
        }
    }

    /// The connection's timer is due.
    pub(crate) fn on_broker_timer(&mut self, call: &mut Call<'_, '_>) {
        let is_sent = matches!(&self.state, State::Publishing { publish, .. } if publish.is_sent());
        if is_sent && planted(Bug::UnansweredLinkKept) {
            return self.end(call, Ending::Ambiguous);
        }
        let facts = self.link.as_mut().map(|link| link.on_timer(call)).unwrap_or_default();
        for fact in facts {
            self.on_link(call, fact);
        }
    }

    pub(crate) const fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    fn on_link(&mut self, call: &mut Call<'_, '_>, fact: Fact) {
        match &mut self.state {
            State::Reaching { partition, reach, .. } => {
                let reached = match fact {
                    Fact::Ready => reach.on_ready(call, partition, &mut self.link),
                    Fact::Down => reach.on_down(call, &mut self.link),
                    Fact::Answered(_) | Fact::Unanswered(_) => Reached::Pending,
                };
                self.on_reached(call, reached);
            }
            State::Publishing { publish, .. } => {
                let published = publish.on_link(call, &mut self.link, fact);
                self.on_published(call, published);
            }
            // A link that ends during the upload is dialled again when the record is due.
            State::ReadingGeneration
            | State::Refreshing { .. }
            | State::AwaitingMemory { .. }
            | State::Uploading { .. }
            | State::CheckingGeneration { .. }
            | State::Stopping { .. }
            | State::Removing { .. }
            | State::Over => {}
        }
    }

    /// The memory that was waited for is reserved.
    pub(crate) fn on_memory(&mut self, call: &mut Call<'_, '_>) {
        call.ctx.timers.clear(Timer::ExchangeProgress(self.requester.exchange()));
        if matches!(self.state, State::AwaitingMemory { .. })
            && let State::AwaitingMemory { before, partition } = std::mem::replace(&mut self.state, State::Over)
        {
            self.upload(call, before, partition);
        }
    }

    /// A piece of the body.
    pub(crate) fn on_body(&mut self, call: &mut Call<'_, '_>, result: ReadResult) {
        if let State::Uploading { upload, .. } = &mut self.state {
            let progress = upload.on_body(call, result);
            self.on_progress(call, progress);
        }
    }

    /// Bytes of the body were hashed elsewhere.
    pub(crate) fn on_hashed(&mut self, call: &mut Call<'_, '_>, digests: Box<Digests>) {
        match &mut self.state {
            State::Uploading { upload, .. } => {
                let progress = upload.on_hashed(call, digests);
                self.on_progress(call, progress);
            }
            State::Stopping { upload } => {
                upload.on_hashed(call, digests);
                self.when_settled(call);
            }
            State::ReadingGeneration
            | State::Refreshing { .. }
            | State::Reaching { .. }
            | State::AwaitingMemory { .. }
            | State::CheckingGeneration { .. }
            | State::Publishing { .. }
            | State::Removing { .. }
            | State::Over => {}
        }
    }

    /// An S3 request of the upload has ended.
    pub(crate) fn on_upload_step(
        &mut self,
        call: &mut Call<'_, '_>,
        step: UploadStep,
        outcome: Outcome<Response, Refusal>,
    ) {
        match &mut self.state {
            State::Uploading { upload, .. } => {
                let progress = upload.on_s3(call, step, outcome);
                self.on_progress(call, progress);
            }
            State::Stopping { upload } => {
                upload.on_s3(call, step, outcome);
                self.when_settled(call);
            }
            State::ReadingGeneration
            | State::Refreshing { .. }
            | State::Reaching { .. }
            | State::AwaitingMemory { .. }
            | State::CheckingGeneration { .. }
            | State::Publishing { .. }
            | State::Removing { .. }
            | State::Over => {}
        }
    }

    /// The removal of the blob has had its first try.
    pub(crate) fn on_removed(&mut self, call: &mut Call<'_, '_>) {
        if matches!(self.state, State::Removing { .. })
            && let State::Removing { error } = std::mem::replace(&mut self.state, State::Over)
            && let Some(error) = error
        {
            self.requester.refuse(call, &error, &self.request.topic);
        }
    }

    /// A wait is over.
    pub(crate) fn on_retry(&mut self, call: &mut Call<'_, '_>) {
        match &mut self.state {
            State::Reaching { partition, reach, .. } => {
                let reached = reach.on_retry(call, partition, &mut self.link);
                self.on_reached(call, reached);
            }
            State::Uploading { upload, .. } => upload.on_retry(call),
            State::Publishing { publish, .. } => {
                let published = publish.on_retry(call, &mut self.link);
                self.on_published(call, published);
            }
            State::ReadingGeneration
            | State::Refreshing { .. }
            | State::AwaitingMemory { .. }
            | State::CheckingGeneration { .. }
            | State::Stopping { .. }
            | State::Removing { .. }
            | State::Over => {}
        }
    }

    /// No progress for too long: of the wait for memory, of the body, or of the answer.
    pub(crate) fn on_no_progress(&mut self, call: &mut Call<'_, '_>) {
        if self.requester.abort_answer(call) {
            return;
        }
        match &mut self.state {
            State::AwaitingMemory { .. } => {
                call.shared.memory.refuse(&self.requester.exchange());
                self.refuse(call, &ApiError::busy("no memory for this upload is free: try again later"));
            }
            State::Uploading { upload, .. } => {
                upload.stop(call);
                self.on_progress(call, Progress::Failed(Failure::ReadTimeout));
            }
            State::ReadingGeneration
            | State::Refreshing { .. }
            | State::Reaching { .. }
            | State::CheckingGeneration { .. }
            | State::Publishing { .. }
            | State::Stopping { .. }
            | State::Removing { .. }
            | State::Over => {}
        }
    }

    /// The client has gone.
    pub(crate) fn on_client_gone(&mut self, call: &mut Call<'_, '_>) {
        self.requester.on_gone();
        let exchange = self.requester.exchange();
        match &mut self.state {
            State::ReadingGeneration | State::Refreshing { .. } | State::Reaching { .. } => {
                self.finish(call);
            }
            State::AwaitingMemory { .. } => {
                call.shared.memory.forget(&exchange);
                self.finish(call);
            }
            State::Uploading { upload, .. } => {
                upload.stop(call);
                self.on_progress(call, Progress::Failed(Failure::ClientGone));
            }
            State::CheckingGeneration { .. } => self.end(call, Ending::ClientGone),
            State::Publishing { .. } if planted(Bug::RetryForNobody) => {}
            State::Publishing { publish, .. } if !publish.is_sent() => self.end(call, Ending::ClientGone),
            State::Publishing { .. } if planted(Bug::UnansweredLinkKept) => self.end(call, Ending::Ambiguous),
            State::Publishing { .. } | State::Stopping { .. } | State::Removing { .. } | State::Over => {}
        }
    }

    /// The machine ends: what may stay in the bucket is counted, and nothing more is put there. A blob whose removal is under
    /// way is counted there.
    pub(crate) fn give_up(&mut self, call: &mut Call<'_, '_>) {
        let left = match &self.state {
            State::Publishing { publish, .. } if publish.is_sent() => Some("kafka_produce_failed"),
            State::Publishing { .. } | State::CheckingGeneration { .. } => Some("delete_failed"),
            State::Uploading { upload, .. } | State::Stopping { upload } if upload.may_leave_something() => {
                Some("delete_failed")
            }
            State::Uploading { .. }
            | State::Stopping { .. }
            | State::ReadingGeneration
            | State::Refreshing { .. }
            | State::Reaching { .. }
            | State::AwaitingMemory { .. } => None,
            State::Removing { .. } | State::Over => return,
        };
        if planted(Bug::GivenUpUncounted) {
            return;
        }
        if let Some(reason) = left {
            call.orphan(&self.request.topic, &self.key, reason);
        }
        self.enter(State::Over);
    }

    // --- steps ---

    fn ask_generation(&self, call: &mut Call<'_, '_>) {
        let question = Question::Generation { topic: self.request.topic.clone() };
        call.out.push(Decision::Ask { question, exchange: self.requester.exchange() });
    }

    /// The TTL check before anything is uploaded, then the choice of the partition.
    fn gate(&mut self, call: &mut Call<'_, '_>, before: TopicGeneration, asked: Asked) {
        let now = call.ctx.now.monotonic;
        let may_serve = broker_choice::may_serve(call.cluster, &call.shared.config, now, asked.freshness);
        match if planted(Bug::UploadBeforeBroker) { Ok(true) } else { may_serve } {
            Ok(true) => match self.choose_partition(call) {
                Ok(index) => {
                    let partition = Partition { topic: self.request.topic.clone(), index };
                    let attempts = call.shared.config.connect_attempts;
                    let mut reach = Reach::new(call, self.requester.exchange(), Vec::new(), attempts);
                    let reached = match planted(Bug::UploadBeforeBroker) {
                        true => Reached::Ready,
                        false => reach.start(call, &partition, &mut self.link),
                    };
                    self.enter(State::Reaching { before, partition, reach });
                    self.on_reached(call, reached);
                }
                // It may just have been added.
                Err(_) if !asked.snapshot => self.refresh(call, before, asked, Question::Snapshot),
                Err(lacking) => self.refuse(call, &ApiError::new(Code::InvalidPartition, lacking.to_string())),
            },
            Ok(false) => self.refresh(call, before, asked, Question::Freshness),
            Err(reason) => self.refuse(call, &not_serving(reason)),
        }
    }

    fn refresh(&mut self, call: &mut Call<'_, '_>, before: TopicGeneration, asked: Asked, question: Question) {
        self.enter(State::Refreshing { before, asked });
        call.out.push(Decision::Ask { question, exchange: self.requester.exchange() });
    }

    fn choose_partition(&self, call: &Call<'_, '_>) -> Result<i32, partitioner::Lacking> {
        let topic = call.cluster.snapshot().and_then(|snapshot| snapshot.topic(&self.request.topic));
        partitioner::choose(topic, self.request.partition, self.request.key.as_deref())
    }

    fn on_reached(&mut self, call: &mut Call<'_, '_>, reached: Reached) {
        match reached {
            Reached::Pending => {}
            Reached::Ready => {
                if matches!(self.state, State::Reaching { .. })
                    && let State::Reaching { before, partition, .. } = std::mem::replace(&mut self.state, State::Over)
                {
                    self.reserve(call, before, partition);
                }
            }
            Reached::Failed(NotReached::NotServing(reason)) => self.refuse(call, &not_serving(reason)),
            Reached::Failed(NotReached::Unreachable | NotReached::NobodyLeft) => {
                let error = ApiError::new(Code::BackendUnavailable, "no broker can be reached; nothing was uploaded");
                self.refuse(call, &error);
            }
        }
    }

    fn share_bytes(&self, call: &Call<'_, '_>) -> u64 {
        upload::share_bytes(call.shared.config.chunk_bytes, self.request.announced_size())
    }

    fn reserve(&mut self, call: &mut Call<'_, '_>, before: TopicGeneration, partition: Partition) {
        let exchange = self.requester.exchange();
        let bytes = self.share_bytes(call);
        match call.shared.memory.reserve(exchange, bytes) {
            Reserved::Granted => self.upload(call, before, partition),
            Reserved::Queued => {
                self.enter(State::AwaitingMemory { before, partition });
                call.ctx.timers.set(Timer::ExchangeProgress(exchange), call.ctx.now.monotonic + MEMORY_WAIT);
            }
            Reserved::Never => {
                let message = "10,000 parts of this body do not fit into the memory for uploads";
                self.refuse(call, &ApiError::new(Code::PayloadTooLarge, message));
            }
        }
    }

    fn upload(&mut self, call: &mut Call<'_, '_>, before: TopicGeneration, partition: Partition) {
        let content_type = &self.request.content_type;
        let blob = Blob {
            key: self.key.clone(),
            content_type: Some(content_type.clone()).filter(|text| is_header_text(text)),
            algorithm: self.request.algorithm,
            checksum: self.request.checksum.clone(),
            content_length: self.request.content_length,
            promised_size: self.request.promised_size,
        };
        let mut upload = Upload::new(self.requester.exchange(), blob, call.shared.config.chunk_bytes);
        upload.start(call);
        self.enter(State::Uploading { before, partition, upload });
    }

    fn on_progress(&mut self, call: &mut Call<'_, '_>, progress: Progress) {
        match progress {
            Progress::Pending => {}
            Progress::Stored(stored) => {
                if matches!(self.state, State::Uploading { .. })
                    && let State::Uploading { before, partition, .. } = std::mem::replace(&mut self.state, State::Over)
                {
                    self.enter(State::CheckingGeneration { before, partition, stored });
                    self.ask_generation(call);
                }
            }
            Progress::Failed(failure) => {
                if matches!(self.state, State::Uploading { .. })
                    && let State::Uploading { upload, .. } = std::mem::replace(&mut self.state, State::Over)
                {
                    self.enter(State::Stopping { upload });
                    self.on_upload_failed(call, &failure);
                    if planted(Bug::MismatchLeft) && failure == Failure::ChecksumMismatch {
                        return self.enter(State::Over);
                    }
                    self.when_settled(call);
                }
            }
        }
    }

    fn on_upload_failed(&mut self, call: &mut Call<'_, '_>, failure: &Failure) {
        self.let_link_go(call);
        call.topic_stats(&self.request.topic).errors += 1;
        if let Some(error) = failure_error(failure) {
            self.requester.refuse(call, &error, &self.request.topic);
            return;
        }
        tracing::info!(
            request_id = %Printable(self.requester.request_id()),
            topic = self.request.topic,
            ?failure,
            "an upload broke off"
        );
    }

    /// Removes what an upload that was given up has left behind, once nothing of it is in flight.
    fn when_settled(&mut self, call: &mut Call<'_, '_>) {
        if let State::Stopping { upload } = &self.state
            && let Some(leftovers) = upload.settled()
        {
            let leftovers = leftovers.clone();
            call.clean_up(self.unwanted(leftovers, false));
            self.enter(State::Over);
        }
    }

    fn publish(&mut self, call: &mut Call<'_, '_>, partition: Partition, stored: Stored) {
        let envelope = Envelope {
            bucket: &call.shared.config.bucket,
            key: &self.key,
            size: stored.size,
            checksums: &stored.checksums,
            content_type: &self.request.content_type,
            original_headers: BTreeMap::new(),
            created_unix_ms: call.ctx.now.unix_ms,
            proxy_id: &call.shared.config.proxy_id,
        }
        .encode();
        let record = (self.request.key.clone(), envelope.clone());
        let exchange = self.requester.exchange();
        let (publish, published) = Publish::start(call, exchange, partition, record, &mut self.link);
        self.enter(State::Publishing { stored, envelope, publish });
        self.on_published(call, published);
    }

    fn on_published(&mut self, call: &mut Call<'_, '_>, published: Published) {
        match published {
            Published::Pending => {
                // A refusal has come after the client had gone: nobody waits for another try.
                if let State::Publishing { publish, .. } = &self.state
                    && !publish.is_sent()
                    && !self.requester.is_waiting()
                    && !planted(Bug::RetryForNobody)
                {
                    self.end(call, Ending::ClientGone);
                }
            }
            Published::Ended(ending, offset) => {
                if let (State::Publishing { stored, envelope, .. }, Ending::Acknowledged) = (&self.state, ending) {
                    let (size, envelope) = (stored.size, envelope.clone());
                    self.succeed(call, size, &envelope, offset);
                } else {
                    self.end(call, ending);
                }
            }
        }
    }

    fn succeed(&mut self, call: &mut Call<'_, '_>, size: u64, envelope: &[u8], offset: Option<i64>) {
        let duration = call.ctx.now.monotonic.since(self.started);
        call.topic_stats(&self.request.topic).ok += 1;
        call.shared.stats.uploaded_bytes += size;
        call.shared.stats.upload_duration.observe(duration);
        tracing::debug!(
            request_id = %Printable(self.requester.request_id()),
            topic = self.request.topic,
            object = self.key,
            size,
            offset,
            "LFS blob produced"
        );
        let answer = ApiAnswer::json(envelope, self.requester.request_id());
        self.requester.answer(call, answer);
        self.finish(call);
    }

    /// The blob is stored and the publication is over without success.
    fn end(&mut self, call: &mut Call<'_, '_>, ending: Ending) {
        let exchange = self.requester.exchange();
        let object = self.stored_object();
        call.topic_stats(&self.request.topic).errors += 1;
        self.finish(call);
        match ending.blob() {
            Fate::Keep => {}
            Fate::KeepAsOrphan => {
                call.orphan(&self.request.topic, &self.key, "kafka_produce_failed");
            }
            Fate::Delete => {
                let leftovers = Leftovers { upload: LeftUpload::None, object };
                let tell = self.requester.is_waiting();
                call.clean_up(self.unwanted(leftovers, tell));
                if tell {
                    // The client sees its answer when the bucket is as it was, or when a first try has failed.
                    self.enter(State::Removing { error: ending.error() });
                    return;
                }
            }
        }
        if let Some(error) = ending.error() {
            self.requester.refuse(call, &error, &self.request.topic);
        }
        debug_assert!(!call.ctx.timers.is_set(Timer::ExchangeRetry(exchange)));
    }

    /// What the bucket holds of a blob that was stored.
    fn stored_object(&self) -> LeftObject {
        match &self.state {
            State::CheckingGeneration { stored, .. } | State::Publishing { stored, .. } if stored.late_put => {
                LeftObject::Late
            }
            State::CheckingGeneration { .. } | State::Publishing { .. } => LeftObject::Stored,
            State::ReadingGeneration
            | State::Refreshing { .. }
            | State::Reaching { .. }
            | State::AwaitingMemory { .. }
            | State::Uploading { .. }
            | State::Stopping { .. }
            | State::Removing { .. }
            | State::Over => LeftObject::None,
        }
    }

    fn unwanted(&self, leftovers: Leftovers, tell: bool) -> Unwanted {
        Unwanted {
            topic: self.request.topic.clone(),
            key: self.key.clone(),
            leftovers,
            tell: tell.then_some(self.requester.exchange()),
        }
    }

    fn refuse_unreadable(&mut self, call: &mut Call<'_, '_>, reason: &str) {
        tracing::warn!(reason, "the identity of a topic could not be read");
        let error = ApiError::new(Code::MetadataUnavailable, "the cluster's metadata cannot be read");
        self.refuse(call, &error);
    }

    /// Refuses before anything was uploaded.
    fn refuse(&mut self, call: &mut Call<'_, '_>, error: &ApiError) {
        call.topic_stats(&self.request.topic).errors += 1;
        self.finish(call);
        self.requester.refuse(call, error, &self.request.topic);
    }

    fn let_link_go(&mut self, call: &mut Call<'_, '_>) {
        if let Some(link) = self.link.take() {
            IdleLinks::keep(call, link);
        }
    }

    /// Takes no more answers and lets everything go.
    fn finish(&mut self, call: &mut Call<'_, '_>) {
        let exchange = self.requester.exchange();
        self.let_link_go(call);
        call.ctx.timers.clear(Timer::ExchangeRetry(exchange));
        if self.requester.is_waiting() || matches!(self.state, State::AwaitingMemory { .. }) {
            call.ctx.timers.clear(Timer::ExchangeProgress(exchange));
        }
        call.out.push(Decision::ForgetWaiter { exchange });
        self.enter(State::Over);
    }
}

fn not_serving(reason: NotServing) -> ApiError {
    match reason {
        NotServing::NoBrokers => {
            ApiError::new(Code::BackendUnavailable, "the cluster lists no broker; nothing was uploaded")
        }
        NotServing::Unreadable => ApiError::new(Code::MetadataUnavailable, "the cluster's metadata cannot be read"),
    }
}

/// What the client is told; `None` when there is nobody to tell.
fn failure_error(failure: &Failure) -> Option<ApiError> {
    let error = match failure {
        Failure::TooLarge(max) => produce_request::too_large(*max),
        Failure::TooManyParts => ApiError::new(
            Code::PayloadTooLarge,
            "the body needs more than 10,000 parts: send Content-Length, or let the operator raise the chunk size",
        ),
        Failure::Empty => ApiError::new(Code::EmptyUpload, "the body is empty"),
        Failure::SizeMismatch(promised) => produce_request::size_mismatch(*promised),
        Failure::ChecksumMismatch => {
            ApiError::new(Code::ChecksumMismatch, "the body has not the checksum that X-LFS-Checksum names")
        }
        Failure::ReadTimeout => ApiError::new(Code::RequestTimeout, "no byte of the body came for too long"),
        Failure::S3 => ApiError::new(Code::S3UploadFailed, "the blob could not be stored in S3"),
        Failure::Broken(reason) => requester::body_broken(reason),
        Failure::ClientGone => return None,
    };
    Some(error)
}

/// Whether text may stand in a header of an S3 request.
fn is_header_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}
