//! The body of an upload: it comes, it is hashed, and it is compared with what was promised.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::filling::Filling;
use super::hashing::{Away, Due, Hashing};
use super::tries::Tries;
use super::{Failure, Part, Phase, Progress, Store, Stored, Upload};
use crate::input::{ExchangeId, ReadResult};
use crate::lfs::Decision;
use crate::lfs::call::Call;
use crate::lfs::checksum::{Checksums, Digests};
use crate::lifecycle::Lifecycle;
use crate::planted::{Bug, planted};
use crate::timers::Timer;

/// Where the body stands.
#[derive(Debug)]
pub(super) enum Body {
    /// It comes.
    Coming(Box<Coming>),
    /// It has ended, and its last bytes are being hashed.
    Ended(Box<Ended>),
    /// It has come whole, and all of it is hashed.
    Whole(Stored),
}

#[derive(Debug)]
pub(super) struct Coming {
    pub(super) hashing: Hashing,
    /// Bytes so far.
    pub(super) size: u64,
    /// The part that is being filled, when there is a share for it.
    pub(super) filling: Option<Filling>,
    /// Most bytes that the open read may give.
    pub(super) reading: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Ended {
    away: Away,
    size: u64,
    /// The last part, unless the body ended with a full one.
    pub(super) filling: Option<Filling>,
}

/// Its moves.
pub(crate) const LIFECYCLE: Lifecycle = Lifecycle {
    name: "Body of a blob",
    file: "core/src/lfs/upload/body.rs",
    start: "Coming",
    moves: &[
        ("Coming", "Ended", "the end has come, bytes are still being hashed"),
        ("Coming", "Whole", "the end has come, and all is hashed"),
        ("Ended", "Whole", "all is hashed"),
    ],
};

impl Body {
    const fn name(&self) -> &'static str {
        match self {
            Self::Coming(_) => "Coming",
            Self::Ended(_) => "Ended",
            Self::Whole(_) => "Whole",
        }
    }

    fn enter(&mut self, next: Self) {
        LIFECYCLE.step(&mut self.name(), next.name());
        *self = next;
    }

    /// All of it is hashed. Returns the part that was being filled.
    fn whole(&mut self, stored: Stored) -> Option<Filling> {
        let last = match self {
            Self::Coming(coming) => coming.filling.take(),
            Self::Ended(ended) => ended.filling.take(),
            Self::Whole(_) => None,
        };
        self.enter(Self::Whole(stored));
        last
    }

    /// Whether all bytes of this full part are hashed.
    pub(super) fn has_hashed(&self, part_number: u16, part_bytes: usize) -> bool {
        let hashed = match self {
            Self::Coming(coming) => coming.hashing.hashed(),
            Self::Ended(ended) => ended.away.hashed(),
            Self::Whole(_) => return true,
        };
        u64::from(part_number) * part_bytes as u64 <= hashed
    }

    /// What a job has of it.
    pub(super) const fn away(&self) -> Option<Away> {
        match self {
            Self::Coming(coming) => match coming.hashing {
                Hashing::Here(_) => None,
                Hashing::Away(away) => Some(away),
            },
            Self::Ended(ended) => Some(ended.away),
            Self::Whole(_) => None,
        }
    }
}

/// The bytes of a body that are held: its parts, then the one that is being filled.
struct Held<'a> {
    parts: &'a BTreeMap<u16, Part>,
    filling: &'a mut Option<Filling>,
    part_bytes: usize,
    /// Bytes of the body so far.
    size: u64,
}

impl Held<'_> {
    /// Hashes what the digests lack, or has it hashed elsewhere, if they are here and it is due.
    fn hash(&mut self, call: &mut Call<'_, '_>, exchange: ExchangeId, hashing: &mut Hashing, wanted: bool) {
        let Hashing::Here(here) = hashing else { return };
        match Due::of(&call.shared.config, self.size - here.hashed(), wanted) {
            Due::Nothing => {}
            Due::Inline => here.update(&self.pieces_from(here.hashed())),
            Due::Job => {
                let pieces = self.pieces_from(here.hashed());
                if let Some((digests, pieces)) = hashing.go_away(pieces) {
                    call.out.push(Decision::Hash { exchange, digests, pieces });
                }
            }
        }
    }

    /// Everything from this place of the body on. Nothing is missing: a part is held until it is hashed.
    fn pieces_from(&mut self, place: u64) -> Vec<Bytes> {
        let part = self.part_bytes as u64;
        let (before, mut skip) = (place / part, place % part);
        let full = self.parts.iter().filter(|(number, _)| u64::from(**number) > before);
        let last = self.filling.as_mut().map(Filling::pieces).unwrap_or_default();
        let mut pieces = Vec::new();
        for piece in full.flat_map(|(_, part)| &part.pieces).chain(last) {
            let skipped = skip.min(piece.len() as u64);
            skip -= skipped;
            if skipped < piece.len() as u64 {
                pieces.push(piece.slice(skipped as usize..));
            }
        }
        pieces
    }
}

impl Upload {
    /// The next piece of the body. One that comes after the upload was given up is dropped.
    pub(crate) fn on_body(&mut self, call: &mut Call<'_, '_>, result: ReadResult) -> Progress {
        let Phase::Sending { body: Body::Coming(coming), .. } = &mut self.phase else { return Progress::Pending };
        let Some(asked) = coming.reading.take() else { return Progress::Pending };
        call.ctx.timers.clear(Timer::ExchangeProgress(self.exchange));
        match result {
            ReadResult::Chunk(bytes) if bytes.len() > asked => {
                self.fail(call, Failure::Broken("more bytes than asked for".into()))
            }
            ReadResult::Chunk(bytes) => self.take(call, bytes),
            ReadResult::End => self.end(call),
            ReadResult::Broken(_) if planted(Bug::CutBodyIsWhole) => self.end(call),
            ReadResult::Broken(reason) => self.fail(call, Failure::Broken(reason)),
        }
    }

    fn take(&mut self, call: &mut Call<'_, '_>, bytes: Bytes) -> Progress {
        let Phase::Sending { body: Body::Coming(coming), .. } = &mut self.phase else { return Progress::Pending };
        coming.size += bytes.len() as u64;
        let size = coming.size;
        if let Some(max) = call.shared.config.max_blob_bytes.filter(|max| size > *max) {
            return self.fail(call, Failure::TooLarge(max));
        }
        if self.blob.content_length.is_some_and(|length| size > length) {
            return self.fail(call, Failure::Broken("more bytes than Content-Length".into()));
        }
        if let Some(promised) = self.blob.promised_size.filter(|promised| size > *promised) {
            return self.fail(call, Failure::SizeMismatch(promised));
        }
        let filling = coming.filling.get_or_insert_default();
        filling.push(bytes);
        if filling.bytes() == self.window.part_bytes()
            && let Some(full) = coming.filling.take()
            && !self.cut_part(call, full)
        {
            return self.fail(call, Failure::TooManyParts);
        }
        self.hash_full_parts(call);
        self.advance(call);
        Progress::Pending
    }

    /// Begins to hash what has come, if it is much or fills a part.
    fn hash_full_parts(&mut self, call: &mut Call<'_, '_>) {
        let Phase::Sending { body: Body::Coming(coming), parts, .. } = &mut self.phase else { return };
        let Coming { hashing, size, filling, .. } = &mut **coming;
        let (part_bytes, size) = (self.window.part_bytes(), *size);
        let wanted = hashing.hashed() < size - size % part_bytes as u64;
        Held { parts, filling, part_bytes, size }.hash(call, self.exchange, hashing, wanted);
    }

    /// The body has ended: its size is compared with what was promised, and the rest of it is hashed.
    fn end(&mut self, call: &mut Call<'_, '_>) -> Progress {
        let Phase::Sending { body, parts, .. } = &mut self.phase else { return Progress::Pending };
        let Body::Coming(coming) = body else { return Progress::Pending };
        let Coming { hashing, size, filling, .. } = &mut **coming;
        let (part_bytes, size) = (self.window.part_bytes(), *size);
        if self.blob.content_length.is_some_and(|length| size != length) {
            return self.fail(call, Failure::Broken("fewer bytes than Content-Length".into()));
        }
        if size == 0 {
            return self.fail(call, Failure::Empty);
        }
        if let Some(promised) = self.blob.promised_size.filter(|promised| size != *promised) {
            return self.fail(call, Failure::SizeMismatch(promised));
        }
        Held { parts, filling, part_bytes, size }.hash(call, self.exchange, hashing, true);
        match hashing {
            Hashing::Here(here) => {
                let checksums = here.finish();
                self.finalize(call, size, checksums)
            }
            Hashing::Away(away) => {
                let ended = Ended { away: *away, size, filling: filling.take() };
                body.enter(Body::Ended(Box::new(ended)));
                Progress::Pending
            }
        }
    }

    /// Bytes of the body were hashed elsewhere. Of an upload that was given up, they are held until now.
    pub(crate) fn on_hashed(&mut self, call: &mut Call<'_, '_>, digests: Box<Digests>) -> Progress {
        match &mut self.phase {
            Phase::Sending { body: Body::Coming(coming), .. } => {
                if let Hashing::Away(away) = coming.hashing {
                    coming.hashing = away.back(digests);
                }
                self.hash_full_parts(call);
                self.advance(call);
                Progress::Pending
            }
            Phase::Sending { body: Body::Ended(ended), parts, .. } => {
                let Ended { away, size, filling } = &mut **ended;
                let (part_bytes, size) = (self.window.part_bytes(), *size);
                let mut hashing = away.back(digests);
                if !planted(Bug::LateBytesUnhashed) {
                    Held { parts, filling, part_bytes, size }.hash(call, self.exchange, &mut hashing, true);
                }
                match hashing {
                    Hashing::Here(here) => self.finalize(call, size, here.finish()),
                    Hashing::Away(next) => {
                        *away = next;
                        self.advance(call);
                        Progress::Pending
                    }
                }
            }
            Phase::Stopping { away, .. } => {
                let parts = away.take().map_or(0, |away| away.parts(self.window.part_bytes()));
                self.window.keep(call, self.window.shares().saturating_sub(parts));
                Progress::Pending
            }
            Phase::Sending { body: Body::Whole(_), .. }
            | Phase::Putting { .. }
            | Phase::Completing { .. }
            | Phase::Over => Progress::Pending,
        }
    }

    /// All of the body is hashed: its checksum is compared with what was promised, then it is finalized.
    fn finalize(&mut self, call: &mut Call<'_, '_>, size: u64, checksums: Checksums) -> Progress {
        let Phase::Sending { body, store, .. } = &mut self.phase else { return Progress::Pending };
        let stored = Stored { size, checksums, late_put: false };
        let last = body.whole(stored.clone());
        if self.blob.checksum.as_deref().is_some_and(|expected| !stored.checksums.matches(expected)) {
            return self.fail(call, Failure::ChecksumMismatch);
        }
        let filled = last.as_ref().map_or(0, Filling::bytes);
        if matches!(store, Store::Nothing) && filled < call.shared.config.single_put_below_bytes {
            let pieces = last.unwrap_or_default().into_pieces();
            self.enter(Phase::Putting { pieces, tries: Tries::InFlight(1), stored });
            self.put(call);
            return Progress::Pending;
        }
        if let Some(last) = last.filter(|_| filled > 0)
            && !self.cut_part(call, last)
        {
            return self.fail(call, Failure::TooManyParts);
        }
        self.advance(call);
        Progress::Pending
    }
}
