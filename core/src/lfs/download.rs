//! One `POST /lfs/download`: no byte of a blob reaches the client before the whole blob is verified.
//!
//! A small blob is verified in memory, a larger one through a temporary file; bytes of both are taken from a budget first.
//! Neither etcd nor a broker is needed.

use std::time::Duration;

use bytes::BytesMut;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::effect::ResponseBody;
use crate::http::answer::ApiAnswer;
use crate::http::error_body::{ApiError, Code};
use crate::input::{FileError, FileId, ReadResult};
use crate::lifecycle::Lifecycle;
use crate::operation::{OperationId, Outcome};
use crate::s3::{Refusal, Request, Response};
use crate::timers::Timer;

use super::Decision;
use super::budget::Reserved;
use super::call::Call;
use super::checksum::hex;
use super::download_request::{BODY_MAX_BYTES, DownloadRequest, Mode};
use super::purpose::Purpose;
use super::requester::{self, Requester};
use super::s3_call;
use super::utc;
use crate::log_text::Printable;

/// Largest piece that is read, hashed or sent in one call.
const READ_BYTES: usize = 256 * 1024;
/// Longest wait for a budget.
const BUDGET_WAIT: Duration = Duration::from_secs(10);
/// A temporary file must be created, or take a piece, within this time: a disk may hang.
const FILE_PROGRESS: Duration = Duration::from_secs(30);

/// One exchange.
#[derive(Debug)]
pub(crate) struct Download {
    /// Name of the state: while it is being taken apart, its place is held by another.
    at: &'static str,
    requester: Requester,
    /// Bytes taken from the memory budget.
    memory: u64,
    /// Bytes taken from the disk budget.
    disk: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// So much memory for the body of the request is not free yet.
    AwaitingBodyMemory(u64),
    /// The body of the request is read.
    ReadingRequest(BytesMut),
    /// A URL is signed.
    Presigning(DownloadRequest),
    /// So much memory for the blob is not free yet.
    AwaitingMemory(Wanted, u64),
    /// Temporary storage for the blob is not free yet.
    AwaitingDisk(Wanted),
    /// The object is opened for the so-manieth time.
    Opening(Wanted, u32),
    /// The blob is read from S3, hashed, and put aside.
    Verifying(Verifying),
    /// The verified blob is sent from its file.
    Sending { file: FileId, left: u64 },
    /// Nothing is left to do.
    Over,
}

/// A blob that is to be streamed.
#[derive(Clone, Debug)]
struct Wanted {
    key: String,
    sha256: String,
    size: u64,
}

struct Verifying {
    wanted: Wanted,
    object: OperationId,
    content_type: Option<String>,
    digest: Sha256,
    got: u64,
    aside: Aside,
    awaited: Awaited,
}

/// Whose answer is due while a blob is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Object,
    File,
}

impl std::fmt::Debug for Verifying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifying").field("wanted", &self.wanted).field("got", &self.got).finish_non_exhaustive()
    }
}

/// Where unverified bytes wait.
#[derive(Debug)]
enum Aside {
    Memory(BytesMut),
    File(FileId),
}

/// Its moves.
pub(crate) const LIFECYCLE: Lifecycle = Lifecycle {
    name: "POST /lfs/download",
    file: "core/src/lfs/download.rs",
    start: "AwaitingBodyMemory",
    moves: &[
        ("AwaitingBodyMemory", "ReadingRequest", "memory is free"),
        ("ReadingRequest", "Presigning", "a URL is wanted"),
        ("ReadingRequest", "AwaitingMemory", "the bytes are wanted"),
        ("AwaitingMemory", "AwaitingDisk", "too large for memory"),
        ("AwaitingMemory", "Opening", "memory is free"),
        ("AwaitingDisk", "Opening", "disk is free"),
        ("Opening", "Verifying", "S3 has the object"),
        ("Verifying", "Sending", "verified, from its file"),
        ("AwaitingBodyMemory", "Over", "no memory in time, or the client has gone"),
        ("ReadingRequest", "Over", "refused, or the client has gone"),
        ("Presigning", "Over", "the URL is signed"),
        ("AwaitingMemory", "Over", "no memory in time, or the client has gone"),
        ("AwaitingDisk", "Over", "no disk in time, or the client has gone"),
        ("Opening", "Over", "S3 has no such object, or the client has gone"),
        ("Verifying", "Over", "verified in memory and answered, refuted, or the client has gone"),
        ("Sending", "Over", "sent, or the client has gone"),
    ],
};

impl State {
    const fn name(&self) -> &'static str {
        match self {
            Self::AwaitingBodyMemory(_) => "AwaitingBodyMemory",
            Self::ReadingRequest(_) => "ReadingRequest",
            Self::Presigning(_) => "Presigning",
            Self::AwaitingMemory(..) => "AwaitingMemory",
            Self::AwaitingDisk(_) => "AwaitingDisk",
            Self::Opening(..) => "Opening",
            Self::Verifying(_) => "Verifying",
            Self::Sending { .. } => "Sending",
            Self::Over => "Over",
        }
    }
}

impl Download {
    fn enter(&mut self, next: State) {
        LIFECYCLE.step(&mut self.at, next.name());
        self.state = next;
    }

    /// Begins. `content_length` is what the framing of the request's body promises.
    pub(crate) fn start(call: &mut Call<'_, '_>, requester: Requester, content_length: Option<u64>) -> Self {
        let mut download = Self { at: "AwaitingBodyMemory", requester, memory: 0, disk: 0, state: State::Over };
        let bytes = content_length.unwrap_or(BODY_MAX_BYTES);
        if bytes > BODY_MAX_BYTES {
            download.refuse(call, &body_too_large());
        } else {
            download.reserve_memory(call, State::AwaitingBodyMemory(bytes), bytes);
        }
        download
    }

    pub(crate) fn requester(&mut self) -> &mut Requester {
        &mut self.requester
    }

    /// Whether nothing is left to do, but for the answer to leave.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    // --- facts ---

    /// The bytes that were waited for are reserved.
    pub(crate) fn on_budget(&mut self, call: &mut Call<'_, '_>) {
        self.clear_progress(call);
        match std::mem::replace(&mut self.state, State::Over) {
            State::AwaitingBodyMemory(bytes) => {
                self.memory = bytes;
                self.enter(State::ReadingRequest(BytesMut::new()));
                self.read_body(call);
            }
            State::AwaitingMemory(wanted, bytes) => {
                self.memory = bytes;
                self.reserve_disk(call, wanted);
            }
            State::AwaitingDisk(wanted) => {
                self.disk = wanted.size;
                self.open(call, wanted, 1);
            }
            other @ (State::ReadingRequest(_)
            | State::Presigning(_)
            | State::Opening(..)
            | State::Verifying(_)
            | State::Sending { .. }
            | State::Over) => self.enter(other),
        }
    }

    /// A piece of the request's body.
    pub(crate) fn on_body(&mut self, call: &mut Call<'_, '_>, result: ReadResult) {
        let State::ReadingRequest(body) = &mut self.state else { return };
        match result {
            ReadResult::Chunk(bytes) if (body.len() + bytes.len()) as u64 > self.memory => {
                self.refuse(call, &body_too_large());
            }
            ReadResult::Chunk(bytes) => {
                body.extend_from_slice(&bytes);
                self.read_body(call);
            }
            ReadResult::End => {
                let parsed = DownloadRequest::parse(body, &call.shared.config);
                self.release_memory(call);
                self.clear_progress(call);
                match parsed {
                    Ok(request) => self.begin(call, request),
                    Err(error) => self.refuse(call, &error),
                }
            }
            ReadResult::Broken(reason) => self.refuse(call, &requester::body_broken(&reason)),
        }
    }

    /// A URL was signed, or not.
    pub(crate) fn on_presigned(&mut self, call: &mut Call<'_, '_>, outcome: Outcome<Response, Refusal>) {
        let State::Presigning(request) = &self.state else { return };
        let url = match s3_call::expect(outcome, url) {
            Outcome::Applied(url) => url,
            Outcome::NotApplied(refusal) => return self.presign_failed(call, &format!("{refusal:?}")),
            Outcome::Unknown(reason) => return self.presign_failed(call, &reason),
        };
        let json = presign_answer(request, url, call.ctx.now.unix_ms);
        let answer = ApiAnswer::json(&json, self.requester.request_id());
        self.finish(call);
        self.requester.answer(call, answer);
    }

    fn presign_failed(&mut self, call: &mut Call<'_, '_>, reason: &str) {
        call.shared.stats.s3_errors += 1;
        tracing::warn!(reason, "a URL could not be signed");
        self.refuse(call, &ApiError::new(Code::S3PresignFailed, "the URL could not be signed"));
    }

    /// The object was opened, or not.
    pub(crate) fn on_opened(
        &mut self,
        call: &mut Call<'_, '_>,
        object: OperationId,
        outcome: Outcome<Response, Refusal>,
    ) {
        let opened = s3_call::expect(outcome, opened);
        let State::Opening(wanted, tries) = &self.state else {
            if let Outcome::Applied(_) = opened {
                call.out.push(Decision::ReleaseObject { object });
            }
            return;
        };
        let (wanted, tries) = (wanted.clone(), *tries);
        let (again, reason) = match opened {
            Outcome::Applied((size, content_type)) => return self.verify(call, wanted, object, size, content_type),
            Outcome::NotApplied(refusal) => (s3_call::is_transient(&refusal), format!("{refusal:?}")),
            // Reading changes nothing, so it may be repeated.
            Outcome::Unknown(reason) => (true, reason),
        };
        if again && tries < s3_call::TRIES {
            self.enter(State::Opening(wanted, tries + 1));
            let at = call.ctx.now.monotonic + s3_call::wait_before(tries + 1);
            call.ctx.timers.set(Timer::ExchangeRetry(self.requester.exchange()), at);
        } else {
            self.get_failed(call, &reason);
        }
    }

    /// The wait before the object is opened again is over.
    pub(crate) fn on_retry(&mut self, call: &mut Call<'_, '_>) {
        if let State::Opening(wanted, _) = &self.state {
            let request = Request::GetObject { key: wanted.key.clone() };
            call.s3(Purpose::OpenObject(self.requester.exchange()), request);
        }
    }

    /// A piece of the object.
    pub(crate) fn on_object(&mut self, call: &mut Call<'_, '_>, result: ReadResult) {
        let State::Verifying(verifying) = &mut self.state else { return };
        let exchange = self.requester.exchange();
        call.ctx.timers.clear(Timer::ExchangeProgress(exchange));
        match result {
            ReadResult::Chunk(bytes) => {
                verifying.got += bytes.len() as u64;
                if verifying.got > verifying.wanted.size {
                    let object = verifying.object;
                    call.out.push(Decision::ReleaseObject { object });
                    return self.integrity_failed(call, "the object is larger than integrity.size");
                }
                verifying.digest.update(&bytes);
                match &mut verifying.aside {
                    Aside::Memory(aside) => {
                        aside.extend_from_slice(&bytes);
                        self.read_object(call);
                    }
                    Aside::File(file) => {
                        verifying.awaited = Awaited::File;
                        call.out.push(Decision::AppendFile { exchange, file: *file, bytes });
                        self.set_progress(call, FILE_PROGRESS);
                    }
                }
            }
            ReadResult::End => self.verified(call),
            ReadResult::Broken(reason) => self.get_failed(call, &reason),
        }
    }

    /// The file was created or appended to.
    pub(crate) fn on_file(&mut self, call: &mut Call<'_, '_>, result: Result<(), FileError>) {
        let State::Verifying(verifying) = &self.state else { return };
        match result {
            Ok(()) => self.read_object(call),
            Err(FileError::NoSpace) => {
                call.out.push(Decision::ReleaseObject { object: verifying.object });
                self.refuse(call, &no_disk());
            }
            Err(FileError::Failed(reason)) => {
                let object = verifying.object;
                self.storage_failed(call, object, &reason);
            }
        }
    }

    fn storage_failed(&mut self, call: &mut Call<'_, '_>, object: OperationId, reason: &str) {
        tracing::error!(reason, "temporary storage failed");
        call.out.push(Decision::ReleaseObject { object });
        self.refuse(call, &ApiError::new(Code::TempStorageFailed, "temporary storage failed"));
    }

    /// A piece of the verified file.
    pub(crate) fn on_file_chunk(&mut self, call: &mut Call<'_, '_>, result: ReadResult) {
        let State::Sending { left, .. } = &mut self.state else { return };
        match result {
            ReadResult::Chunk(bytes) if bytes.len() as u64 <= *left => {
                *left -= bytes.len() as u64;
                self.requester.watch_progress(call);
                call.out.push(Decision::SendChunk { exchange: self.requester.exchange(), bytes });
            }
            ReadResult::Chunk(_) | ReadResult::End => self.break_off(call, "the temporary file has another length"),
            ReadResult::Broken(reason) => self.break_off(call, &reason),
        }
    }

    /// There is room for the next piece.
    pub(crate) fn on_chunk_accepted(&mut self, call: &mut Call<'_, '_>) {
        if let State::Sending { left, .. } = self.state {
            self.requester.watch_progress(call);
            if left == 0 {
                self.finish(call);
            } else {
                self.read_file(call);
            }
        }
    }

    /// No progress for too long: of a wait, of the request's body, of S3, or of the answer.
    pub(crate) fn on_no_progress(&mut self, call: &mut Call<'_, '_>) {
        if self.requester.abort_answer(call) {
            self.finish(call);
            return;
        }
        match &self.state {
            State::AwaitingBodyMemory(_) | State::AwaitingMemory(..) => {
                call.shared.memory.refuse(&self.requester.exchange());
                self.refuse(call, &ApiError::busy("no memory for this download is free: try again later"));
            }
            State::AwaitingDisk(_) => {
                call.shared.disk.refuse(&self.requester.exchange());
                self.refuse(call, &no_disk());
            }
            State::ReadingRequest(_) => {
                call.out.push(Decision::CancelRead { exchange: self.requester.exchange() });
                self.refuse(call, &ApiError::new(Code::RequestTimeout, "no byte of the body came for too long"));
            }
            State::Verifying(Verifying { object, awaited: Awaited::Object, .. }) => {
                call.out.push(Decision::ReleaseObject { object: *object });
                self.get_failed(call, "no byte of the object came for too long");
            }
            State::Verifying(Verifying { object, awaited: Awaited::File, .. }) => {
                let object = *object;
                self.storage_failed(call, object, "the temporary file took nothing for too long");
            }
            State::Presigning(_) | State::Opening(..) | State::Sending { .. } | State::Over => {}
        }
    }

    /// The client has gone.
    pub(crate) fn on_client_gone(&mut self, call: &mut Call<'_, '_>) {
        self.requester.on_gone();
        if let State::Verifying(verifying) = &self.state {
            call.out.push(Decision::ReleaseObject { object: verifying.object });
        }
        self.finish(call);
    }

    // --- steps ---

    fn begin(&mut self, call: &mut Call<'_, '_>, request: DownloadRequest) {
        match request.mode {
            Mode::Presign { expires_seconds, .. } => {
                let presign = Request::PresignGetObject { key: request.key.clone(), expires_seconds };
                self.enter(State::Presigning(request));
                call.s3(Purpose::Presign(self.requester.exchange()), presign);
            }
            Mode::Stream { size } => {
                let wanted = Wanted { key: request.key, sha256: request.sha256, size };
                let in_memory = size <= call.shared.config.download_memory_bytes;
                let bytes = if in_memory { size } else { READ_BYTES as u64 };
                self.reserve_memory(call, State::AwaitingMemory(wanted, bytes), bytes);
            }
        }
    }

    /// Takes memory; `waiting` is the state until it is there.
    fn reserve_memory(&mut self, call: &mut Call<'_, '_>, waiting: State, bytes: u64) {
        self.enter(waiting);
        match call.shared.memory.reserve(self.requester.exchange(), bytes) {
            Reserved::Granted => self.on_budget(call),
            Reserved::Queued => self.set_progress(call, BUDGET_WAIT),
            Reserved::Never => self.refuse(call, &ApiError::busy("the memory of this proxy is too small")),
        }
    }

    fn reserve_disk(&mut self, call: &mut Call<'_, '_>, wanted: Wanted) {
        if wanted.size <= call.shared.config.download_memory_bytes {
            self.open(call, wanted, 1);
            return;
        }
        let size = wanted.size;
        self.enter(State::AwaitingDisk(wanted));
        match call.shared.disk.reserve(self.requester.exchange(), size) {
            Reserved::Granted => self.on_budget(call),
            Reserved::Queued => self.set_progress(call, BUDGET_WAIT),
            Reserved::Never => {
                let message = "the blob is larger than the temporary storage of this proxy";
                self.refuse(call, &ApiError::new(Code::TempStorageFailed, message));
            }
        }
    }

    fn open(&mut self, call: &mut Call<'_, '_>, wanted: Wanted, tries: u32) {
        self.enter(State::Opening(wanted, tries));
        self.on_retry(call);
    }

    fn verify(
        &mut self,
        call: &mut Call<'_, '_>,
        mut wanted: Wanted,
        object: OperationId,
        size: u64,
        content_type: Option<String>,
    ) {
        if size > wanted.size {
            call.out.push(Decision::ReleaseObject { object });
            return self.integrity_failed(call, "the object is larger than integrity.size");
        }
        let exchange = self.requester.exchange();
        let in_memory = wanted.size <= call.shared.config.download_memory_bytes;
        // Storage was taken for what the client says; what the store says is enough, and no more will be read.
        wanted.size = size;
        let surplus = self.disk.saturating_sub(size);
        self.disk -= surplus;
        call.shared.disk.release(surplus);
        let aside = if in_memory {
            Aside::Memory(BytesMut::with_capacity(usize::try_from(size).unwrap_or(0)))
        } else {
            let file = call.ctx.ids.file();
            call.out.push(Decision::CreateFile { exchange, file });
            Aside::File(file)
        };
        let digest = Sha256::new();
        let awaited = if in_memory { Awaited::Object } else { Awaited::File };
        self.enter(State::Verifying(Verifying { wanted, object, content_type, digest, got: 0, aside, awaited }));
        match awaited {
            Awaited::Object => self.read_object(call),
            Awaited::File => self.set_progress(call, FILE_PROGRESS),
        }
    }

    fn verified(&mut self, call: &mut Call<'_, '_>) {
        if !matches!(self.state, State::Verifying(_)) {
            return;
        }
        let State::Verifying(verifying) = std::mem::replace(&mut self.state, State::Over) else { return };
        let Verifying { wanted, content_type, digest, got, aside, .. } = verifying;
        let actual = hex(&digest.finalize());
        if actual != wanted.sha256 {
            if let Aside::File(file) = aside {
                call.out.push(Decision::RemoveFile { file });
            }
            return self.integrity_failed(call, "the object has not the digest of integrity.sha256");
        }
        let (request_id, content_type) = (self.requester.request_id().to_owned(), content_type.as_deref());
        match aside {
            Aside::Memory(bytes) => {
                let body = ResponseBody::Whole(bytes.freeze());
                let answer = ApiAnswer::blob(body, got, &actual, content_type, &request_id);
                self.requester.answer(call, answer);
                // The bytes are in the answer until the exchange ends, and so is their share of the budget.
            }
            Aside::File(file) => {
                let body = ResponseBody::Streamed { length: got };
                let answer = ApiAnswer::blob(body, got, &actual, content_type, &request_id);
                self.requester.answer(call, answer);
                self.enter(State::Sending { file, left: got });
                if got == 0 {
                    self.finish(call);
                } else {
                    self.read_file(call);
                }
            }
        }
    }

    fn read_body(&mut self, call: &mut Call<'_, '_>) {
        self.set_progress(call, call.shared.config.read_timeout);
        call.out.push(Decision::ReadBody { exchange: self.requester.exchange(), max_bytes: READ_BYTES });
    }

    fn read_object(&mut self, call: &mut Call<'_, '_>) {
        let State::Verifying(verifying) = &mut self.state else { return };
        verifying.awaited = Awaited::Object;
        // One byte more than expected tells a larger object.
        let room = (verifying.wanted.size - verifying.got).saturating_add(1);
        let max_bytes = usize::try_from(room).unwrap_or(READ_BYTES).min(READ_BYTES);
        let object = verifying.object;
        self.set_progress(call, call.shared.config.s3_timeouts.get);
        call.out.push(Decision::ReadObject { exchange: self.requester.exchange(), object, max_bytes });
    }

    fn read_file(&self, call: &mut Call<'_, '_>) {
        if let State::Sending { file, .. } = self.state {
            let exchange = self.requester.exchange();
            call.out.push(Decision::ReadFile { exchange, file, max_bytes: READ_BYTES });
        }
    }

    fn get_failed(&mut self, call: &mut Call<'_, '_>, reason: &str) {
        call.shared.stats.s3_errors += 1;
        tracing::warn!(reason, "an object could not be read");
        self.refuse(call, &ApiError::new(Code::S3GetFailed, "the object could not be read from S3"));
    }

    fn integrity_failed(&mut self, call: &mut Call<'_, '_>, reason: &str) {
        tracing::error!(request_id = %Printable(self.requester.request_id()), reason, "a blob is not what its envelope says");
        self.refuse(call, &ApiError::new(Code::IntegrityFailure, reason));
    }

    /// The head of the answer has left: all that honesty allows is to break the connection.
    fn break_off(&mut self, call: &mut Call<'_, '_>, reason: &str) {
        tracing::error!(reason, "a verified blob could not be read back");
        self.requester.abort_answer(call);
        self.finish(call);
    }

    fn refuse(&mut self, call: &mut Call<'_, '_>, error: &ApiError) {
        self.finish(call);
        self.requester.refuse(call, error, "");
    }

    /// Lets everything go but the answer.
    fn finish(&mut self, call: &mut Call<'_, '_>) {
        let exchange = self.requester.exchange();
        call.ctx.timers.clear(Timer::ExchangeRetry(exchange));
        if !self.requester.is_answered() {
            self.clear_progress(call);
        }
        call.shared.memory.forget(&exchange);
        call.shared.disk.forget(&exchange);
        let state = std::mem::replace(&mut self.state, State::Over);
        self.enter(State::Over);
        match state {
            State::Verifying(Verifying { aside: Aside::File(file), .. }) | State::Sending { file, .. } => {
                call.out.push(Decision::RemoveFile { file });
            }
            State::Verifying(Verifying { aside: Aside::Memory(_), .. })
            | State::AwaitingBodyMemory(_)
            | State::ReadingRequest(_)
            | State::Presigning(_)
            | State::AwaitingMemory(..)
            | State::AwaitingDisk(_)
            | State::Opening(..)
            | State::Over => {}
        }
        self.release_memory(call);
        call.shared.disk.release(std::mem::take(&mut self.disk));
    }

    /// The exchange is over for the driver: nothing is held any more.
    pub(crate) fn on_ended(&mut self, call: &mut Call<'_, '_>) {
        self.on_client_gone(call);
        self.requester.on_ended(call);
    }

    fn release_memory(&mut self, call: &mut Call<'_, '_>) {
        call.shared.memory.release(std::mem::take(&mut self.memory));
    }

    fn set_progress(&self, call: &mut Call<'_, '_>, wait: Duration) {
        let at = call.ctx.now.monotonic + wait;
        call.ctx.timers.set(Timer::ExchangeProgress(self.requester.exchange()), at);
    }

    fn clear_progress(&self, call: &mut Call<'_, '_>) {
        call.ctx.timers.clear(Timer::ExchangeProgress(self.requester.exchange()));
    }
}

/// The body of an answer to `presign`; `size` is left out when it is 0.
fn presign_answer(request: &DownloadRequest, url: String, unix_ms: i64) -> Vec<u8> {
    #[derive(Serialize)]
    struct Integrity<'a> {
        sha256: &'a str,
        checksum_alg: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    }
    #[derive(Serialize)]
    struct Members<'a> {
        mode: &'static str,
        url: String,
        expires_at: String,
        integrity: Integrity<'a>,
    }
    let (expires_seconds, size) = match request.mode {
        Mode::Presign { expires_seconds, size } => (expires_seconds, size),
        Mode::Stream { size } => (0, size),
    };
    let expires_ms = unix_ms.saturating_add(i64::try_from(expires_seconds.saturating_mul(1000)).unwrap_or(i64::MAX));
    let integrity =
        Integrity { sha256: &request.sha256, checksum_alg: "sha256", size: Some(size).filter(|size| *size > 0) };
    let members = Members { mode: "presign", url, expires_at: utc::seconds(expires_ms), integrity };
    serde_json::to_vec(&members).expect("text and numbers always have a JSON form")
}

fn no_disk() -> ApiError {
    ApiError::busy("no temporary storage is free: try again later")
}

fn body_too_large() -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("the body is larger than {BODY_MAX_BYTES} bytes"))
}

fn url(response: Response) -> Option<String> {
    match response {
        Response::Url(url) => Some(url),
        Response::Done | Response::UploadCreated(_) | Response::PartStored(_) | Response::Object { .. } => None,
    }
}

fn opened(response: Response) -> Option<(u64, Option<String>)> {
    match response {
        Response::Object { size, content_type } => Some((size, content_type)),
        Response::Done | Response::UploadCreated(_) | Response::PartStored(_) | Response::Url(_) => None,
    }
}
