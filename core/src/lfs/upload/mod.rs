//! One blob on its way into S3, while its body comes from the client.
//!
//! The body is cut into equal parts whatever the sizes in which it is read, for some stores want them equal. A body that ends
//! early enough goes up in one PutObject; any other in a multipart upload with several parts in flight. Memory is
//! a window of part-sized shares: one was reserved before the first byte is read, further ones are taken only
//! while they are free, and the body is not read while no share is there to take it. A part goes up when all of it is hashed, and a
//! share is held until its part is stored, so nothing is held that is not counted: of an upload that was given up, what is in flight
//! and what is being hashed.
//!
//! What a client promised (size, checksum) is compared when the body has ended, all of it is hashed, and before the blob is finalized,
//! so a body that broke its promise never becomes an object.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::input::ExchangeId;
use crate::lifecycle::Lifecycle;
use crate::operation::Outcome;
use crate::planted::{Bug, planted};
use crate::s3::{Refusal, Response};
use crate::timers::Timer;

use super::Decision;
use super::call::Call;
use super::checksum::{Algorithm, Checksums, Digests};
use super::cleanup::{LeftObject, LeftUpload, Leftovers};
use super::purpose::UploadStep;
use super::s3_call;

mod body;
mod filling;
mod hashing;
mod requests;
mod tries;
mod window;

use body::{Body, Coming};
use filling::Filling;
use hashing::{Away, Hashing};
use tries::Tries;
use window::{MOST_PARTS, Window};

#[cfg(test)]
pub(crate) use body::LIFECYCLE as BODY_LIFECYCLE;
pub(crate) use window::{part_bytes, share_bytes};

/// Largest piece of a body that is read in one call.
const READ_BYTES: usize = 256 * 1024;

/// What is uploaded, and what its body must be like.
#[derive(Debug)]
pub(crate) struct Blob {
    /// Object key.
    pub(crate) key: String,
    /// `Content-Type` of the object.
    pub(crate) content_type: Option<String>,
    /// Checksum beside the SHA-256.
    pub(crate) algorithm: Algorithm,
    /// The digest that the client expects.
    pub(crate) checksum: Option<String>,
    /// Bytes that the framing promises.
    pub(crate) content_length: Option<u64>,
    /// Bytes that the client promises beside the framing.
    pub(crate) promised_size: Option<u64>,
}

/// A body that is in S3 as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Bytes.
    pub(crate) size: u64,
    /// Its digests.
    pub(crate) checksums: Checksums,
    /// A try of the PutObject was given up and may still be carried out.
    pub(crate) late_put: bool,
}

/// Why a blob does not get into S3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Larger than this configured limit.
    TooLarge(u64),
    /// It would need more than 10,000 parts.
    TooManyParts,
    /// No byte at all.
    Empty,
    /// Not the size that the client promised.
    SizeMismatch(u64),
    /// Not the digest that the client expects.
    ChecksumMismatch,
    /// The body ended before its end.
    Broken(String),
    /// No byte came for too long.
    ReadTimeout,
    /// S3 refused, or its answers did not come.
    S3,
    /// There is nobody left to answer.
    ClientGone,
}

/// What a call led to.
#[derive(Debug)]
pub(crate) enum Progress {
    Pending,
    /// The blob is in S3; nothing is open any more.
    Stored(Stored),
    /// It will not be. S3 requests may still be in flight: see [`Upload::settled`].
    Failed(Failure),
}

/// One upload.
#[derive(Debug)]
pub(crate) struct Upload {
    /// Name of the state: while it is being taken apart, its place is held by another.
    at: &'static str,
    exchange: ExchangeId,
    blob: Blob,
    window: Window,
    /// A try of an UploadPart was given up and may still be carried out.
    late_part: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The body comes, or its last parts are on their way.
    Sending { body: Body, store: Store, parts: BTreeMap<u16, Part>, etags: BTreeMap<u16, String> },
    /// The whole body in one PutObject.
    Putting { pieces: Vec<Bytes>, tries: Tries, stored: Stored },
    /// All parts are stored; one object is made of them.
    Completing { upload_id: String, etags: BTreeMap<u16, String>, tries: Tries, stored: Stored },
    /// Given up; so many requests are still in flight, and a job has so much of the body.
    Stopping { in_flight: usize, away: Option<Away>, leftovers: Leftovers },
    /// Stored.
    Over,
}

#[derive(Debug)]
enum Store {
    /// S3 was not asked for anything.
    Nothing,
    /// A multipart upload is being created.
    Creating(Tries),
    /// It has this id.
    Open(String),
    /// It may be open, under an id that was not told.
    Nameless,
}

#[derive(Debug)]
struct Part {
    pieces: Vec<Bytes>,
    /// `None` until it was sent.
    tries: Option<Tries>,
}

/// Its moves.
pub(crate) const LIFECYCLE: Lifecycle = Lifecycle {
    name: "Upload of a blob",
    file: "core/src/lfs/upload/mod.rs",
    start: "Sending",
    moves: &[
        ("Sending", "Putting", "the whole body is short"),
        ("Sending", "Completing", "all parts are stored"),
        ("Putting", "Over", "stored"),
        ("Completing", "Over", "one object is made of the parts"),
        ("Sending", "Stopping", "failed or given up"),
        ("Putting", "Stopping", "failed or given up"),
        ("Completing", "Stopping", "failed, in doubt or given up"),
        ("Stopping", "Over", "nothing is in flight or being hashed any more"),
    ],
};

impl Phase {
    const fn name(&self) -> &'static str {
        match self {
            Self::Sending { .. } => "Sending",
            Self::Putting { .. } => "Putting",
            Self::Completing { .. } => "Completing",
            Self::Stopping { .. } => "Stopping",
            Self::Over => "Over",
        }
    }
}

impl Upload {
    fn enter(&mut self, next: Phase) {
        LIFECYCLE.step(&mut self.at, next.name());
        self.phase = next;
    }

    /// An upload for which one share is reserved. It reads nothing yet.
    pub(crate) fn new(exchange: ExchangeId, blob: Blob, chunk_bytes: usize) -> Self {
        let window = Window::new(chunk_bytes, blob.content_length.or(blob.promised_size));
        let hashing = Hashing::new(Digests::new(blob.algorithm));
        let body = Body::Coming(Box::new(Coming { hashing, size: 0, filling: None, reading: None }));
        let phase = Phase::Sending { body, store: Store::Nothing, parts: BTreeMap::new(), etags: BTreeMap::new() };
        Self { at: "Sending", exchange, blob, window, late_part: false, phase }
    }

    /// Begins to read.
    pub(crate) fn start(&mut self, call: &mut Call<'_, '_>) {
        self.advance(call);
    }

    /// An S3 request of this upload has ended.
    pub(crate) fn on_s3(
        &mut self,
        call: &mut Call<'_, '_>,
        step: UploadStep,
        outcome: Outcome<Response, Refusal>,
    ) -> Progress {
        if let Phase::Stopping { .. } = self.phase {
            self.on_late(call, step, outcome);
            return Progress::Pending;
        }
        match step {
            UploadStep::Put => self.on_put(call, s3_call::expect(outcome, s3_call::done)),
            UploadStep::Create => self.on_created(call, s3_call::expect(outcome, upload_id)),
            UploadStep::Part(number) => self.on_part(call, number, s3_call::expect(outcome, etag)),
            UploadStep::Complete => self.on_completed(call, s3_call::expect(outcome, s3_call::done)),
        }
    }

    fn on_put(&mut self, call: &mut Call<'_, '_>, outcome: Outcome<(), Refusal>) -> Progress {
        let Phase::Putting { tries, stored, .. } = &mut self.phase else { return Progress::Pending };
        let again = match &outcome {
            Outcome::Applied(()) => {
                let stored = stored.clone();
                return self.succeed(call, stored);
            }
            Outcome::NotApplied(refusal) => s3_call::is_transient(refusal),
            // The same bytes under the same key: a repetition makes it certain.
            Outcome::Unknown(_) => {
                stored.late_put = !planted(Bug::UnknownPutForgotten);
                true
            }
        };
        match tries.again().filter(|_| again) {
            Some(waiting) => {
                *tries = waiting;
                self.retry_later(call, waiting)
            }
            None => {
                *tries = tries.ended();
                self.fail_s3(call, "PutObject", &outcome)
            }
        }
    }

    fn on_created(&mut self, call: &mut Call<'_, '_>, outcome: Outcome<String, Refusal>) -> Progress {
        let Phase::Sending { store: store @ Store::Creating(_), .. } = &mut self.phase else {
            return Progress::Pending;
        };
        let Store::Creating(tries) = store else { return Progress::Pending };
        let again = match &outcome {
            Outcome::Applied(upload_id) => {
                *store = Store::Open(upload_id.clone());
                self.advance(call);
                return Progress::Pending;
            }
            Outcome::NotApplied(refusal) => s3_call::is_transient(refusal),
            // A repetition could leave a second upload behind that nobody knows the id of.
            Outcome::Unknown(_) => {
                *store = Store::Nameless;
                return self.fail_s3(call, "CreateMultipartUpload", &outcome);
            }
        };
        match tries.again().filter(|_| again) {
            Some(waiting) => {
                *tries = waiting;
                self.retry_later(call, waiting)
            }
            None => {
                *tries = tries.ended();
                self.fail_s3(call, "CreateMultipartUpload", &outcome)
            }
        }
    }

    fn on_part(&mut self, call: &mut Call<'_, '_>, number: u16, outcome: Outcome<String, Refusal>) -> Progress {
        let Phase::Sending { parts, etags, .. } = &mut self.phase else { return Progress::Pending };
        let Some(part) = parts.get_mut(&number) else { return Progress::Pending };
        let again = match &outcome {
            Outcome::Applied(etag) => {
                etags.insert(number, etag.clone());
                parts.remove(&number);
                self.advance(call);
                return Progress::Pending;
            }
            Outcome::NotApplied(refusal) => s3_call::is_transient(refusal),
            // The same bytes under the same number: a repetition replaces what may be there.
            Outcome::Unknown(_) => {
                self.late_part = true;
                true
            }
        };
        match part.tries.and_then(Tries::again).filter(|_| again) {
            Some(waiting) => {
                part.tries = Some(waiting);
                self.retry_later(call, waiting)
            }
            None => {
                part.tries = part.tries.map(Tries::ended);
                self.fail_s3(call, "UploadPart", &outcome)
            }
        }
    }

    fn on_completed(&mut self, call: &mut Call<'_, '_>, outcome: Outcome<(), Refusal>) -> Progress {
        let Phase::Completing { tries, stored, .. } = &mut self.phase else { return Progress::Pending };
        let again = match &outcome {
            Outcome::Applied(()) => {
                let stored = stored.clone();
                return self.succeed(call, stored);
            }
            Outcome::NotApplied(refusal) => s3_call::is_transient(refusal),
            // No record refers to the blob yet: removing upload and object is certain, a repetition is not.
            Outcome::Unknown(_) => false,
        };
        match tries.again().filter(|_| again) {
            Some(waiting) => {
                *tries = waiting;
                self.retry_later(call, waiting)
            }
            None => {
                *tries = tries.ended();
                self.fail_s3(call, "CompleteMultipartUpload", &outcome)
            }
        }
    }

    /// A request that was in flight when the upload was given up.
    fn on_late(&mut self, call: &mut Call<'_, '_>, step: UploadStep, outcome: Outcome<Response, Refusal>) {
        let Phase::Stopping { in_flight, leftovers, .. } = &mut self.phase else { return };
        *in_flight = in_flight.saturating_sub(1);
        match step {
            UploadStep::Put => match (outcome, leftovers.object) {
                (Outcome::NotApplied(_), _) | (Outcome::Applied(_), LeftObject::Late) => {}
                (Outcome::Applied(_), LeftObject::None | LeftObject::Stored) => leftovers.object = LeftObject::Stored,
                (Outcome::Unknown(_), _) if planted(Bug::UnknownPutForgotten) => {}
                (Outcome::Unknown(_), _) => leftovers.object = LeftObject::Late,
            },
            UploadStep::Create => match s3_call::expect(outcome, upload_id) {
                Outcome::Applied(upload_id) => leftovers.upload = LeftUpload::Open(upload_id),
                Outcome::NotApplied(_) => {}
                Outcome::Unknown(_) => leftovers.upload = LeftUpload::Nameless,
            },
            UploadStep::Part(_) => match (outcome, std::mem::take(&mut leftovers.upload)) {
                (Outcome::Unknown(_), LeftUpload::Open(upload_id)) => leftovers.upload = LeftUpload::Late(upload_id),
                (Outcome::Applied(_) | Outcome::NotApplied(_) | Outcome::Unknown(_), upload) => {
                    leftovers.upload = upload
                }
            },
            // Already counted as an object when it was ordered.
            UploadStep::Complete => {}
        }
        match step {
            UploadStep::Put | UploadStep::Part(_) => self.window.keep(call, self.window.shares().saturating_sub(1)),
            UploadStep::Create | UploadStep::Complete => {}
        }
    }

    /// The wait before repeated requests is over.
    pub(crate) fn on_retry(&mut self, call: &mut Call<'_, '_>) {
        match &mut self.phase {
            Phase::Sending { store, parts, .. } => {
                if let Store::Creating(tries @ Tries::Waiting(_)) = store {
                    *tries = tries.next();
                    self.create(call);
                    return;
                }
                let mut numbers = Vec::new();
                for (number, part) in parts {
                    if let Some(tries @ Tries::Waiting(_)) = &mut part.tries {
                        *tries = tries.next();
                        numbers.push(*number);
                    }
                }
                for number in numbers {
                    self.send_part(call, number);
                }
            }
            Phase::Putting { tries: tries @ Tries::Waiting(_), .. } => {
                *tries = tries.next();
                self.put(call);
            }
            Phase::Completing { tries: tries @ Tries::Waiting(_), .. } => {
                *tries = tries.next();
                self.complete(call);
            }
            Phase::Putting { .. } | Phase::Completing { .. } | Phase::Stopping { .. } | Phase::Over => {}
        }
    }

    /// Gives the upload up. What is in flight ends on its own; until then nothing can be removed.
    pub(crate) fn stop(&mut self, call: &mut Call<'_, '_>) {
        call.ctx.timers.clear(Timer::ExchangeProgress(self.exchange));
        call.ctx.timers.clear(Timer::ExchangeRetry(self.exchange));
        let left_open = if self.late_part { LeftUpload::Late } else { LeftUpload::Open };
        let (in_flight, away, holding, leftovers) = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Sending { body, store, parts, .. } => {
                if let Body::Coming(coming) = &body
                    && coming.reading.is_some()
                {
                    call.out.push(Decision::CancelRead { exchange: self.exchange });
                }
                let sent = parts.values().filter(|part| matches!(part.tries, Some(Tries::InFlight(_)))).count();
                let (creating, upload) = match store {
                    Store::Nothing | Store::Creating(Tries::Waiting(_)) => (0, LeftUpload::None),
                    Store::Creating(Tries::InFlight(_)) => (1, LeftUpload::None),
                    Store::Open(upload_id) => (0, left_open(upload_id)),
                    Store::Nameless => (0, LeftUpload::Nameless),
                };
                let away = body.away();
                // None of them is sent: a part goes up when it is hashed.
                let hashing = away.map_or(0, |away| away.parts(self.window.part_bytes()));
                (sent + creating, away, sent + hashing, Leftovers { upload, object: LeftObject::None })
            }
            Phase::Putting { tries, stored, .. } => {
                let sent = usize::from(matches!(tries, Tries::InFlight(_)));
                let object = if stored.late_put { LeftObject::Late } else { LeftObject::None };
                (sent, None, sent, Leftovers { upload: LeftUpload::None, object })
            }
            Phase::Completing { upload_id, tries, .. } => {
                let sent = usize::from(matches!(tries, Tries::InFlight(_)));
                (sent, None, 0, Leftovers { upload: left_open(upload_id), object: LeftObject::Stored })
            }
            Phase::Stopping { in_flight, away, leftovers } => {
                self.enter(Phase::Stopping { in_flight, away, leftovers });
                return;
            }
            Phase::Over => return,
        };
        self.window.keep(call, holding);
        self.enter(Phase::Stopping { in_flight, away, leftovers });
    }

    /// What an upload that was given up has left behind, once nothing of it is in flight or being hashed.
    pub(crate) fn settled(&self) -> Option<&Leftovers> {
        match &self.phase {
            Phase::Stopping { in_flight: 0, away: None, leftovers } => Some(leftovers),
            Phase::Stopping { .. }
            | Phase::Sending { .. }
            | Phase::Putting { .. }
            | Phase::Completing { .. }
            | Phase::Over => None,
        }
    }

    /// Whether the bucket may hold anything of it.
    pub(crate) fn may_leave_something(&self) -> bool {
        match &self.phase {
            Phase::Sending { store: Store::Nothing | Store::Creating(Tries::Waiting(_)), .. } | Phase::Over => false,
            Phase::Sending {
                store: Store::Creating(Tries::InFlight(_)) | Store::Open(_) | Store::Nameless, ..
            }
            | Phase::Putting { .. }
            | Phase::Completing { .. } => true,
            Phase::Stopping { in_flight, leftovers, .. } => *in_flight > 0 || *leftovers != Leftovers::default(),
        }
    }

    fn fail(&mut self, call: &mut Call<'_, '_>, failure: Failure) -> Progress {
        self.stop(call);
        Progress::Failed(failure)
    }

    fn fail_s3<T: std::fmt::Debug>(
        &mut self,
        call: &mut Call<'_, '_>,
        verb: &str,
        outcome: &Outcome<T, Refusal>,
    ) -> Progress {
        call.shared.stats.s3_errors += 1;
        tracing::warn!(key = %self.blob.key, ?outcome, "{verb} failed");
        self.fail(call, Failure::S3)
    }

    fn succeed(&mut self, call: &mut Call<'_, '_>, stored: Stored) -> Progress {
        self.enter(Phase::Over);
        self.window.keep(call, 0);
        Progress::Stored(stored)
    }

    /// Does whatever can be done now: take a share, read, send parts, complete, give spare shares back.
    fn advance(&mut self, call: &mut Call<'_, '_>) {
        let most = call.shared.config.parts_in_flight.max(1);
        let Phase::Sending { body, store, parts, .. } = &mut self.phase else { return };
        let open_parts = parts.len();
        if let Body::Coming(coming) = body
            && coming.reading.is_none()
        {
            // The end needs no memory: a body of known length that came whole does not wait for a share.
            let whole = self.blob.content_length == Some(coming.size);
            if coming.filling.is_none() && !whole && open_parts <= most && self.window.has_room(call, open_parts + 1) {
                coming.filling = Some(Filling::default());
            }
            let room = coming.filling.as_ref().map(|filling| self.window.part_bytes() - filling.bytes());
            if let Some(max_bytes) = room.or_else(|| whole.then_some(1)).map(|room| room.min(READ_BYTES)) {
                coming.reading = Some(max_bytes);
                let give_up = call.ctx.now.monotonic + call.shared.config.read_timeout;
                if !planted(Bug::BodyTimerForgotten) {
                    call.ctx.timers.set(Timer::ExchangeProgress(self.exchange), give_up);
                }
                call.out.push(Decision::ReadBody { exchange: self.exchange, max_bytes });
            }
        }
        let held = match body {
            Body::Coming(coming) => (open_parts + usize::from(coming.filling.is_some())).max(1),
            Body::Ended(ended) => open_parts + usize::from(ended.filling.is_some()),
            Body::Whole(_) => open_parts,
        };
        self.window.keep(call, held);

        if let Store::Open(_) = store {
            let sent = parts.values().filter(|part| part.tries.is_some()).count();
            let part_bytes = self.window.part_bytes();
            let ready =
                parts.iter().filter(|(number, part)| part.tries.is_none() && body.has_hashed(**number, part_bytes));
            let unsent = ready.map(|(number, _)| *number);
            let now: Vec<u16> = unsent.take(most.saturating_sub(sent)).collect();
            for number in now {
                self.send_part(call, number);
            }
        }
        self.complete_when_whole(call);
    }

    fn complete_when_whole(&mut self, call: &mut Call<'_, '_>) {
        if let Phase::Sending { body: Body::Whole(stored), store: Store::Open(upload_id), parts, etags } =
            &mut self.phase
            && parts.is_empty()
        {
            let (upload_id, etags, stored) = (upload_id.clone(), std::mem::take(etags), stored.clone());
            self.enter(Phase::Completing { upload_id, etags, tries: Tries::InFlight(1), stored });
            self.complete(call);
        }
    }

    /// Makes a part of what was filled, and begins the multipart upload with the first one. Says whether there is a number
    /// left for it.
    fn cut_part(&mut self, call: &mut Call<'_, '_>, filling: Filling) -> bool {
        let Phase::Sending { store, parts, etags, .. } = &mut self.phase else { return true };
        let last = parts.keys().chain(etags.keys()).max().copied().unwrap_or(0);
        if last == MOST_PARTS {
            return false;
        }
        parts.insert(last + 1, Part { pieces: filling.into_pieces(), tries: None });
        if let Store::Nothing = store {
            *store = Store::Creating(Tries::InFlight(1));
            self.create(call);
        }
        true
    }

    fn retry_later(&self, call: &mut Call<'_, '_>, tries: Tries) -> Progress {
        let timer = Timer::ExchangeRetry(self.exchange);
        if !call.ctx.timers.is_set(timer) {
            let wait = s3_call::wait_before(tries.count() + 1);
            call.ctx.timers.set(timer, call.ctx.now.monotonic + wait);
        }
        Progress::Pending
    }
}

fn upload_id(response: Response) -> Option<String> {
    match response {
        Response::UploadCreated(upload_id) => Some(upload_id),
        Response::Done | Response::PartStored(_) | Response::Object { .. } | Response::Url(_) => None,
    }
}

fn etag(response: Response) -> Option<String> {
    match response {
        Response::PartStored(etag) => Some(etag),
        Response::Done | Response::UploadCreated(_) | Response::Object { .. } | Response::Url(_) => None,
    }
}
