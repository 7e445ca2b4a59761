//! The bytes behind objects and parts: who still needs them, and a store of them in memory.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::{Effect, Input, Object};

/// Names bytes that are kept together; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub u64);

/// How many need each blob: an object or part, and everybody who reads it just now.
#[derive(Debug)]
pub(super) struct Holders(BTreeMap<BlobId, u32>);

impl Holders {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn hold(&mut self, blob: BlobId) {
        *self.0.entry(blob).or_insert(0) += 1;
    }

    /// Takes one hold off each; a blob that nobody holds is removed.
    pub(super) fn free(&mut self, blobs: impl IntoIterator<Item = BlobId>, effects: &mut Vec<Effect>) {
        for blob in blobs {
            if let Some(holders) = self.0.get_mut(&blob) {
                *holders -= 1;
                if *holders == 0 {
                    self.0.remove(&blob);
                    effects.push(Effect::RemoveBlob { blob });
                }
            }
        }
    }
}

/// Blobs in memory.
#[derive(Debug, Default)]
pub struct MemoryBlobs(BTreeMap<BlobId, Vec<Bytes>>);

impl MemoryBlobs {
    /// Carries out an order for blobs and gives the fact that follows from it; other orders come back untouched.
    pub fn carry_out(&mut self, effect: Effect) -> Result<Option<Input>, Effect> {
        match effect {
            Effect::StoreBlob { blob, body } => {
                self.0.insert(blob, body);
                Ok(Some(Input::BlobStored { blob, result: Ok(()) }))
            }
            Effect::LoadBlob { token, blob, offset, length } => {
                let result = self.load(blob, offset, length).ok_or_else(|| "the blob is not there".to_owned());
                Ok(Some(Input::BlobLoaded { token, result }))
            }
            Effect::RemoveBlob { blob } => {
                self.0.remove(&blob);
                Ok(None)
            }
            other @ (Effect::Finished { .. } | Effect::ObjectRead { .. }) => Err(other),
        }
    }

    /// The bytes of an object: what invariants compare with what a record says.
    pub fn content(&self, object: &Object) -> Option<Bytes> {
        let mut content = BytesMut::new();
        for piece in &object.pieces {
            for bytes in self.0.get(&piece.blob)? {
                content.extend_from_slice(bytes);
            }
        }
        Some(content.freeze())
    }

    /// How many blobs are kept.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn load(&self, blob: BlobId, offset: u64, length: usize) -> Option<Bytes> {
        let mut skip = usize::try_from(offset).ok()?;
        let mut loaded = BytesMut::new();
        for bytes in self.0.get(&blob)? {
            let from = skip.min(bytes.len());
            skip -= from;
            let take = (length - loaded.len()).min(bytes.len() - from);
            if take == length {
                return Some(bytes.slice(from..from + take));
            }
            loaded.extend_from_slice(&bytes[from..from + take]);
        }
        (loaded.len() == length).then(|| loaded.freeze())
    }
}
