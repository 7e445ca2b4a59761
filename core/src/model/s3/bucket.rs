//! Keys, uploads and parts: the rules of the bucket, without the bytes.

use std::collections::BTreeMap;

use super::blobs::BlobId;
use crate::s3::Refusal;

const MAX_PART_NUMBER: u16 = 10_000;

/// Bytes that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where.
    pub blob: BlobId,
    /// How many.
    pub size: u64,
}

/// A stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// As given when it was created.
    pub content_type: Option<String>,
    /// Its bytes, in order.
    pub pieces: Vec<Piece>,
}

impl Object {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.size).sum()
    }
}

/// A stored part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its bytes.
    pub piece: Piece,
    /// MD5 in hex, in quotes.
    pub etag: String,
}

/// A multipart upload under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The key of the object to be.
    pub key: String,
    /// For the object to be.
    pub content_type: Option<String>,
    /// By part number.
    pub parts: BTreeMap<u16, Part>,
}

/// The bucket's content. What falls out of it is returned, to be freed.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
    uploads_created: u64,
}

impl Bucket {
    pub(super) fn object(&self, key: &str) -> Option<&Object> {
        self.objects.get(key)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (&str, &Object)> {
        self.objects.iter().map(|(key, object)| (key.as_str(), object))
    }

    pub(super) fn uploads(&self) -> impl Iterator<Item = (&str, &Upload)> {
        self.uploads.iter().map(|(id, upload)| (id.as_str(), upload))
    }

    pub(super) fn put(&mut self, key: String, object: Object) -> Vec<BlobId> {
        self.objects.insert(key, object).map(blobs).unwrap_or_default()
    }

    pub(super) fn delete(&mut self, key: &str) -> Vec<BlobId> {
        self.objects.remove(key).map(blobs).unwrap_or_default()
    }

    pub(super) fn create_upload(&mut self, key: String, content_type: Option<String>) -> String {
        self.uploads_created += 1;
        let id = format!("upload-{:08}", self.uploads_created);
        self.uploads.insert(id.clone(), Upload { key, content_type, parts: BTreeMap::new() });
        id
    }

    /// Whether a part of this upload would be taken.
    pub(super) fn check_part(&self, key: &str, upload_id: &str, number: u16) -> Result<(), Refusal> {
        if number == 0 || number > MAX_PART_NUMBER {
            return Err(Refusal::Other("InvalidArgument: part number must be between 1 and 10000".into()));
        }
        self.upload(key, upload_id).map(|_| ())
    }

    /// Stores a part, in place of an earlier one of the same number.
    pub(super) fn store_part(
        &mut self,
        key: &str,
        upload_id: &str,
        number: u16,
        part: Part,
    ) -> Result<Vec<BlobId>, Refusal> {
        let upload = self.uploads.get_mut(upload_id).filter(|upload| upload.key == key).ok_or(Refusal::NoSuchUpload)?;
        Ok(upload.parts.insert(number, part).map(|before| before.piece.blob).into_iter().collect())
    }

    /// Makes an object of the listed parts; parts that are not listed are dropped.
    pub(super) fn complete(
        &mut self,
        key: &str,
        upload_id: &str,
        listed: &[(u16, String)],
        min_part_bytes: u64,
    ) -> Result<Vec<BlobId>, Refusal> {
        let upload = self.upload(key, upload_id)?;
        if listed.is_empty() {
            return Err(Refusal::Other("MalformedXML: no parts".into()));
        }
        if !listed.is_sorted_by(|(before, _), (number, _)| before < number) {
            return Err(Refusal::Other("InvalidPartOrder".into()));
        }
        let mut pieces = Vec::with_capacity(listed.len());
        for (number, etag) in listed {
            match upload.parts.get(number) {
                Some(part) if part.etag.trim_matches('"') == etag.trim_matches('"') => pieces.push(part.piece),
                Some(_) | None => return Err(Refusal::Other(format!("InvalidPart: {number}"))),
            }
        }
        let (last, others) = pieces.split_last().expect("the list is not empty");
        if others.iter().any(|piece| piece.size < min_part_bytes) {
            return Err(Refusal::Other("EntityTooSmall".into()));
        }
        // AWS takes parts of any size, R2 and its kin do not.
        if others.iter().any(|piece| piece.size != others[0].size || piece.size < last.size) {
            return Err(Refusal::Other("InvalidPart: all non-trailing parts must have the same length".into()));
        }
        let dropped = upload.parts.iter().filter(|(number, _)| !listed.iter().any(|(listed, _)| listed == *number));
        let mut freed: Vec<BlobId> = dropped.map(|(_, part)| part.piece.blob).collect();
        let object = Object { content_type: upload.content_type.clone(), pieces };
        self.uploads.remove(upload_id);
        freed.extend(self.put(key.to_owned(), object));
        Ok(freed)
    }

    pub(super) fn abort(&mut self, key: &str, upload_id: &str) -> Result<Vec<BlobId>, Refusal> {
        self.upload(key, upload_id)?;
        let upload = self.uploads.remove(upload_id);
        Ok(upload.iter().flat_map(|upload| upload.parts.values()).map(|part| part.piece.blob).collect())
    }

    fn upload(&self, key: &str, upload_id: &str) -> Result<&Upload, Refusal> {
        self.uploads.get(upload_id).filter(|upload| upload.key == key).ok_or(Refusal::NoSuchUpload)
    }
}

fn blobs(object: Object) -> Vec<BlobId> {
    object.pieces.into_iter().map(|piece| piece.blob).collect()
}
