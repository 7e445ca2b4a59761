//! Faults that a test orders for one thing to come: the next S3 request of a kind, the next record that is written to a
//! broker, a temporary file. Lasting troubles are switches of the models.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::Outcome;
use kafscale_proxy_core::etcd::{Refusal, Request, Response};
use kafscale_proxy_core::kafka::{ApiKey, RequestHeader};
use kafscale_proxy_core::model::Link;
use kafscale_proxy_core::model::s3::Trouble;
use kafscale_proxy_core::s3;

/// Kinds of S3 requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Verb {
    /// HeadBucket.
    HeadBucket,
    /// CreateBucket.
    CreateBucket,
    /// PutObject.
    Put,
    /// CreateMultipartUpload.
    Create,
    /// UploadPart.
    Part,
    /// CompleteMultipartUpload.
    Complete,
    /// AbortMultipartUpload.
    Abort,
    /// DeleteObject.
    Delete,
    /// HeadObject.
    Head,
    /// GetObject.
    Get,
    /// PresignGetObject.
    Presign,
}

impl S3Verb {
    /// The kind of a request.
    pub fn of(request: &s3::Request) -> Self {
        match request {
            s3::Request::HeadBucket => Self::HeadBucket,
            s3::Request::CreateBucket => Self::CreateBucket,
            s3::Request::PutObject { .. } => Self::Put,
            s3::Request::CreateMultipartUpload { .. } => Self::Create,
            s3::Request::UploadPart { .. } => Self::Part,
            s3::Request::CompleteMultipartUpload { .. } => Self::Complete,
            s3::Request::AbortMultipartUpload { .. } => Self::Abort,
            s3::Request::DeleteObject { .. } => Self::Delete,
            s3::Request::HeadObject { .. } => Self::Head,
            s3::Request::GetObject { .. } => Self::Get,
            s3::Request::PresignGetObject { .. } => Self::Presign,
        }
    }
}

/// What strikes one S3 request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Fault {
    /// It takes this way.
    Way(Link),
    /// The store is in this trouble while it carries the request out.
    Trouble(Trouble),
    /// It arrives so much later. If its sender has given it up by then, it is carried out for nobody.
    Late(Duration),
}

/// What is still to strike.
#[derive(Default)]
pub struct Faults {
    s3: VecDeque<(S3Verb, S3Fault)>,
    record_writes: VecDeque<u64>,
    black_holes: BTreeSet<usize>,
    broken_files: bool,
    compaction_between_pages: bool,
}

impl Faults {
    /// The next S3 request of this kind is struck; faults of one kind strike in the order in which they were ordered.
    pub fn strike_s3(&mut self, verb: S3Verb, fault: S3Fault) {
        self.s3.push_back((verb, fault));
    }

    /// The next Produce request that is written to a broker meets a socket that takes so many bytes of it and is then
    /// gone.
    pub fn break_record_write(&mut self, accepted_bytes: u64) {
        self.record_writes.push_back(accepted_bytes);
    }

    /// Dials to this broker get no answer from now on, or get one again.
    pub fn swallow_dials(&mut self, broker: usize, swallow: bool) {
        if swallow {
            self.black_holes.insert(broker);
        } else {
            self.black_holes.remove(&broker);
        }
    }

    /// Temporary files cannot be written or read from now on, or can be again.
    pub fn break_files(&mut self, broken: bool) {
        self.broken_files = broken;
    }

    /// When etcd has next served a page of a reading that has more, something is written and history is compacted.
    pub fn compact_between_pages(&mut self) {
        self.compaction_between_pages = true;
    }

    /// Nothing strikes any more.
    pub fn forgive(&mut self) {
        *self = Self::default();
    }

    pub(super) fn of_s3_request(&mut self, request: &s3::Request) -> Option<S3Fault> {
        let verb = S3Verb::of(request);
        let index = self.s3.iter().position(|(struck, _)| *struck == verb)?;
        self.s3.remove(index).map(|(_, fault)| fault)
    }

    /// How many bytes of this write the socket takes before it is gone, if it is struck.
    pub(super) fn of_broker_write(&mut self, frame: &Bytes) -> Option<u64> {
        let (header, _) = RequestHeader::decode(frame).ok()?;
        if header.api() == Some(ApiKey::Produce) { self.record_writes.pop_front() } else { None }
    }

    /// Whether history is compacted after this answer.
    pub(super) fn of_etcd_answer(&mut self, request: &Request, outcome: &Outcome<Response, Refusal>) -> bool {
        // A proof asks for what is newer than a revision, and never for a second page.
        let pages = matches!(request, Request::Range(range) if range.min_mod_revision == 0);
        let more = matches!(outcome, Outcome::Applied(Response::Range(range)) if range.more && !range.kvs.is_empty());
        pages && more && std::mem::take(&mut self.compaction_between_pages)
    }

    pub(super) fn swallows_dials(&self, broker: usize) -> bool {
        self.black_holes.contains(&broker)
    }

    pub(super) fn files_are_broken(&self) -> bool {
        self.broken_files
    }
}
