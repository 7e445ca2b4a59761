//! A reference model of an S3 store with one bucket.
//!
//! It knows keys, uploads, parts, sizes and ETags, and orders the bytes to be stored, loaded and removed as blobs: memory
//! backs them in the simulated world ([`MemoryBlobs`]), files in `dev` mode. What it refuses, and with which code, follows
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations.html>; where stores differ (a second completion of the
//! same upload, parts of unequal sizes) it takes the stricter answer.

mod blobs;
mod bucket;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use md5::Md5;
use sha2::{Digest, Sha256};

use self::blobs::Holders;
pub use self::blobs::{BlobId, MemoryBlobs};
use self::bucket::Bucket;
pub use self::bucket::{Object, Part, Piece, Upload};
use super::{Fate, Link, Reply};
use crate::input::ReadResult;
use crate::operation::Outcome;
use crate::s3::{Refusal, Request, Response};

/// Names a request or an opened object; the caller draws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What the store suffers from; holds for every request that arrives while it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// 503 SlowDown before anything is done.
    SlowDown,
    /// 500 InternalError; nobody can tell from outside whether the request was carried out.
    InternalError {
        /// Whether it was.
        applied: bool,
    },
    /// CompleteMultipartUpload answers 200 and then an error in the body; other requests work.
    CompletionError {
        /// Whether the object was made.
        applied: bool,
    },
    /// Opened objects break at the next read; other requests work.
    BrokenReads,
    /// Opened objects give nothing at the next read, which ends only when the object is released; other requests work.
    StalledReads,
}

/// What does not change while the model runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Smallest part that is not the last one; S3 wants 5 MiB.
    pub min_part_bytes: u64,
    /// Where presigned URLs point to, without a slash at the end.
    pub public_url: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { min_part_bytes: 5 * 1024 * 1024, public_url: "http://127.0.0.1/bucket".into() }
    }
}

/// What the model is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A request.
    Requested {
        /// Its name; for `GetObject` also that of the opened object.
        token: Token,
        /// The way it takes.
        link: Link,
        /// What to do.
        request: Request,
    },
    /// The next bytes of an opened object are wanted.
    ReadRequested {
        /// Names the read.
        token: Token,
        /// The `GetObject` that opened the object.
        object: Token,
        /// At most so many bytes.
        max_bytes: usize,
    },
    /// An opened object is not read on. An open read of it ends.
    Released {
        /// The `GetObject` that opened the object.
        object: Token,
    },
    /// An [`Effect::StoreBlob`] is done, or failed.
    BlobStored {
        /// Which.
        blob: BlobId,
        /// Why not.
        result: Result<(), String>,
    },
    /// An [`Effect::LoadBlob`] is done, or failed.
    BlobLoaded {
        /// The read that it is for.
        token: Token,
        /// The bytes asked for.
        result: Result<Bytes, String>,
    },
}

/// What the model orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Keep these bytes; `BlobStored` follows.
    StoreBlob {
        /// Under this name.
        blob: BlobId,
        /// In order.
        body: Vec<Bytes>,
    },
    /// Give bytes of a blob; `BlobLoaded` follows.
    LoadBlob {
        /// The read that it is for.
        token: Token,
        /// Which blob.
        blob: BlobId,
        /// From here.
        offset: u64,
        /// Exactly so many bytes; they are there.
        length: usize,
    },
    /// Forget a blob. No completion.
    RemoveBlob {
        /// Which.
        blob: BlobId,
    },
    /// A request is done. Comes exactly once per [`Input::Requested`].
    Finished {
        /// The request.
        token: Token,
        /// What became of it.
        reply: Reply<Response, Refusal>,
    },
    /// A read is done. Comes exactly once per [`Input::ReadRequested`].
    ObjectRead {
        /// The read.
        token: Token,
        /// What it gave. After `End` and `Broken` the object is released.
        result: ReadResult,
    },
}

/// What is done once a body is kept.
#[derive(Debug)]
enum Storing {
    Object { key: String, content_type: Option<String>, size: u64 },
    Part { key: String, upload_id: String, number: u16, size: u64, etag: String },
}

/// A body on its way into a blob.
#[derive(Debug)]
struct Pending {
    token: Token,
    link: Link,
    fails: bool,
    storing: Storing,
}

/// An opened object: what is left of it.
#[derive(Debug, Default)]
struct Opened {
    pieces: VecDeque<Piece>,
    offset: u64,
}

/// The model. Effects go into a list that the caller owns.
#[derive(Debug)]
pub struct S3Model {
    settings: Settings,
    /// The store's present trouble.
    pub trouble: Trouble,
    bucket: Option<Bucket>,
    next_blob: u64,
    holders: Holders,
    pending: BTreeMap<BlobId, Pending>,
    opened: BTreeMap<Token, Opened>,
    reads: BTreeMap<Token, Token>,
}

/// The largest body of one PutObject or UploadPart.
const MAX_BODY_BYTES: u64 = 5 * 1024 * 1024 * 1024;
const MAX_KEY_BYTES: usize = 1024;

impl S3Model {
    /// A store without a bucket.
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            trouble: Trouble::None,
            bucket: None,
            next_blob: 1,
            holders: Holders::new(),
            pending: BTreeMap::new(),
            opened: BTreeMap::new(),
            reads: BTreeMap::new(),
        }
    }

    /// A store whose bucket exists.
    pub fn with_bucket(settings: Settings) -> Self {
        Self { bucket: Some(Bucket::default()), ..Self::new(settings) }
    }

    /// Takes in one fact.
    pub fn handle_input(&mut self, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Requested { token, link, request } => self.requested(token, link, request, effects),
            Input::ReadRequested { token, object, max_bytes } => self.read(token, object, max_bytes, effects),
            Input::Released { object } => self.release(object, effects),
            Input::BlobStored { blob, result } => self.blob_stored(blob, result, effects),
            Input::BlobLoaded { token, result } => self.blob_loaded(token, result, effects),
        }
    }

    fn requested(&mut self, token: Token, link: Link, request: Request, effects: &mut Vec<Effect>) {
        if let Some(outcome) = link.before(Refusal::Unreachable) {
            return effects.push(Effect::Finished { token, reply: Reply { outcome, delay: link.delay } });
        }
        let completes = matches!(request, Request::CompleteMultipartUpload { .. });
        let opens = matches!(request, Request::GetObject { .. });
        let (served, fails) = match self.trouble {
            Trouble::None | Trouble::BrokenReads | Trouble::StalledReads => (true, false),
            Trouble::SlowDown => {
                let refusal = Refusal::SlowDown("SlowDown: Please reduce your request rate.".into());
                return finish(token, link, false, Err(refusal), effects);
            }
            Trouble::InternalError { applied } => (applied, true),
            Trouble::CompletionError { applied } => (applied || !completes, completes),
        };
        if !served {
            return finish(token, link, true, Ok(Response::Done), effects);
        }
        let served = self.serve(token, link, fails, request, effects);
        if opens && (fails || link.fate != Fate::Delivered) {
            // Nobody will ever read or release an object whose opening was not told.
            self.release(token, effects);
        }
        match served {
            Ok(None) => {}
            Ok(Some(response)) => finish(token, link, fails, Ok(response), effects),
            Err(refusal) => finish(token, link, fails, Err(refusal), effects),
        }
    }

    /// Carries out a request; `None` when its body has to be stored first.
    fn serve(
        &mut self,
        token: Token,
        link: Link,
        fails: bool,
        request: Request,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Response>, Refusal> {
        if let Request::CreateBucket = request {
            self.bucket.get_or_insert_default();
            return Ok(Some(Response::Done));
        }
        let bucket = self.bucket.as_mut().ok_or(Refusal::NoSuchBucket)?;
        match request {
            Request::HeadBucket | Request::CreateBucket => Ok(Some(Response::Done)),
            Request::PutObject { key, body, sha256, content_type } => {
                check_key(&key)?;
                let size = check_body(&body)?;
                let mut hash = Sha256::new();
                body.iter().for_each(|piece| hash.update(piece));
                if hash.finalize()[..] != sha256 {
                    return Err(Refusal::Other("XAmzContentSHA256Mismatch".into()));
                }
                self.store(
                    Pending { token, link, fails, storing: Storing::Object { key, content_type, size } },
                    body,
                    effects,
                );
                Ok(None)
            }
            Request::CreateMultipartUpload { key, content_type } => {
                check_key(&key)?;
                Ok(Some(Response::UploadCreated(bucket.create_upload(key, content_type))))
            }
            Request::UploadPart { key, upload_id, part_number: number, body } => {
                bucket.check_part(&key, &upload_id, number)?;
                let size = check_body(&body)?;
                let mut hash = Md5::new();
                body.iter().for_each(|piece| hash.update(piece));
                let etag = format!("\"{}\"", base16(&hash.finalize()));
                let storing = Storing::Part { key, upload_id, number, size, etag };
                self.store(Pending { token, link, fails, storing }, body, effects);
                Ok(None)
            }
            Request::CompleteMultipartUpload { key, upload_id, parts } => {
                let freed = bucket.complete(&key, &upload_id, &parts, self.settings.min_part_bytes)?;
                self.holders.free(freed, effects);
                Ok(Some(Response::Done))
            }
            Request::AbortMultipartUpload { key, upload_id } => {
                let freed = bucket.abort(&key, &upload_id)?;
                self.holders.free(freed, effects);
                Ok(Some(Response::Done))
            }
            Request::DeleteObject { key } => {
                let freed = bucket.delete(&key);
                self.holders.free(freed, effects);
                Ok(Some(Response::Done))
            }
            Request::HeadObject { key } => {
                let object = bucket.object(&key).ok_or(Refusal::NoSuchKey)?;
                Ok(Some(Response::Object { size: object.size(), content_type: object.content_type.clone() }))
            }
            Request::GetObject { key } => {
                let object = bucket.object(&key).ok_or(Refusal::NoSuchKey)?;
                // An opened object is read as it was, whatever happens to its key meanwhile.
                let pieces: VecDeque<Piece> = object.pieces.iter().copied().collect();
                pieces.iter().for_each(|piece| self.holders.hold(piece.blob));
                let before = self.opened.insert(token, Opened { pieces, offset: 0 });
                assert!(before.is_none(), "a token is used once");
                Ok(Some(Response::Object { size: object.size(), content_type: object.content_type.clone() }))
            }
            Request::PresignGetObject { key, expires_seconds } => {
                Ok(Some(Response::Url(format!("{}/{key}?X-Amz-Expires={expires_seconds}", self.settings.public_url))))
            }
        }
    }

    fn store(&mut self, pending: Pending, body: Vec<Bytes>, effects: &mut Vec<Effect>) {
        let blob = BlobId(self.next_blob);
        self.next_blob += 1;
        self.holders.hold(blob);
        self.pending.insert(blob, pending);
        effects.push(Effect::StoreBlob { blob, body });
    }

    fn blob_stored(&mut self, blob: BlobId, result: Result<(), String>, effects: &mut Vec<Effect>) {
        let Some(Pending { token, link, fails, storing }) = self.pending.remove(&blob) else { return };
        let stored = result.map_err(Refusal::Other).and_then(|()| {
            let bucket = self.bucket.as_mut().ok_or(Refusal::NoSuchBucket)?;
            match storing {
                Storing::Object { key, content_type, size } => {
                    let freed = bucket.put(key, Object { content_type, pieces: vec![Piece { blob, size }] });
                    Ok((Response::Done, freed))
                }
                Storing::Part { key, upload_id, number, size, etag } => {
                    let part = Part { piece: Piece { blob, size }, etag: etag.clone() };
                    // The upload may have ended while the body was being stored.
                    let freed = bucket.store_part(&key, &upload_id, number, part)?;
                    Ok((Response::PartStored(etag), freed))
                }
            }
        });
        match stored {
            Ok((response, freed)) => {
                self.holders.free(freed, effects);
                finish(token, link, fails, Ok(response), effects);
            }
            Err(refusal) => {
                self.holders.free([blob], effects);
                finish(token, link, fails, Err(refusal), effects);
            }
        }
    }

    fn read(&mut self, token: Token, object: Token, max_bytes: usize, effects: &mut Vec<Effect>) {
        let Some(opened) = self.opened.get_mut(&object) else {
            let result = ReadResult::Broken("the object is not open".into());
            return effects.push(Effect::ObjectRead { token, result });
        };
        if self.trouble == Trouble::BrokenReads {
            effects.push(Effect::ObjectRead { token, result: ReadResult::Broken("connection reset".into()) });
            return self.release(object, effects);
        }
        if self.trouble == Trouble::StalledReads {
            self.reads.insert(token, object);
            return;
        }
        let mut left = Vec::new();
        while let Some(piece) = opened.pieces.pop_front_if(|piece| piece.size == opened.offset) {
            left.push(piece.blob);
            opened.offset = 0;
        }
        let next = opened.pieces.front().copied();
        let offset = opened.offset;
        self.holders.free(left, effects);
        match next {
            None => {
                effects.push(Effect::ObjectRead { token, result: ReadResult::End });
                self.release(object, effects);
            }
            Some(piece) => {
                let length = usize::try_from(piece.size - offset).unwrap_or(usize::MAX).min(max_bytes.max(1));
                self.reads.insert(token, object);
                effects.push(Effect::LoadBlob { token, blob: piece.blob, offset, length });
            }
        }
    }

    fn blob_loaded(&mut self, token: Token, result: Result<Bytes, String>, effects: &mut Vec<Effect>) {
        let Some(object) = self.reads.remove(&token) else { return };
        let Some(opened) = self.opened.get_mut(&object) else { return };
        let result = match result {
            Ok(bytes) => {
                opened.offset += bytes.len() as u64;
                ReadResult::Chunk(bytes)
            }
            Err(error) => {
                self.release(object, effects);
                ReadResult::Broken(error)
            }
        };
        effects.push(Effect::ObjectRead { token, result });
    }

    fn release(&mut self, object: Token, effects: &mut Vec<Effect>) {
        if let Some(opened) = self.opened.remove(&object) {
            self.holders.free(opened.pieces.into_iter().map(|piece| piece.blob), effects);
        }
        for (token, _) in self.reads.extract_if(.., |_, of| *of == object) {
            let result = ReadResult::Broken("the object was released".into());
            effects.push(Effect::ObjectRead { token, result });
        }
    }

    /// How many objects are open for reading.
    pub fn opened(&self) -> usize {
        self.opened.len()
    }

    /// The object under a key.
    pub fn object(&self, key: &str) -> Option<&Object> {
        self.bucket.as_ref().and_then(|bucket| bucket.object(key))
    }

    /// All objects, by key.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &Object)> {
        self.bucket.iter().flat_map(Bucket::objects)
    }

    /// All multipart uploads that were neither completed nor aborted, by upload id.
    pub fn uploads(&self) -> impl Iterator<Item = (&str, &Upload)> {
        self.bucket.iter().flat_map(Bucket::uploads)
    }
}

fn finish(token: Token, link: Link, fails: bool, result: Result<Response, Refusal>, effects: &mut Vec<Effect>) {
    let outcome = match result {
        _ if fails => Outcome::Unknown("InternalError: We encountered an internal error. Please try again.".into()),
        Ok(response) => Outcome::Applied(response),
        Err(refusal) => Outcome::NotApplied(refusal),
    };
    effects.push(Effect::Finished { token, reply: Reply { outcome: link.after(outcome), delay: link.delay } });
}

fn check_key(key: &str) -> Result<(), Refusal> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES { Err(Refusal::Other("KeyTooLongError".into())) } else { Ok(()) }
}

fn check_body(body: &[Bytes]) -> Result<u64, Refusal> {
    let size = body.iter().map(|piece| piece.len() as u64).sum();
    if size > MAX_BODY_BYTES { Err(Refusal::Other("EntityTooLarge".into())) } else { Ok(size) }
}

fn base16(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
