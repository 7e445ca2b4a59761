//! The vocabulary of S3: the requests that the machine orders and their answers.
//!
//! Names follow <https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations.html>. The bucket is the
//! configured one and known to the adapter; keys are whole object keys.

use bytes::Bytes;

/// A request with one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Is the bucket there and allowed?
    HeadBucket,
    /// Create the configured bucket; one that is already ours counts as created.
    CreateBucket,
    /// Store an object in one request.
    PutObject {
        /// Object key.
        key: String,
        /// The bytes, in order; their length is known and they are not copied together.
        body: Vec<Bytes>,
        /// SHA-256 of the body: signature and integrity in one.
        sha256: [u8; 32],
        /// `Content-Type` of the object.
        content_type: Option<String>,
    },
    /// Begin a multipart upload.
    CreateMultipartUpload {
        /// Object key.
        key: String,
        /// `Content-Type` of the object.
        content_type: Option<String>,
    },
    /// Store one part.
    UploadPart {
        /// Object key.
        key: String,
        /// The upload, as S3 named it.
        upload_id: String,
        /// 1 to 10,000.
        part_number: u16,
        /// The bytes, in order.
        body: Vec<Bytes>,
    },
    /// Make one object of the parts.
    CompleteMultipartUpload {
        /// Object key.
        key: String,
        /// The upload.
        upload_id: String,
        /// Part numbers and ETags in order.
        parts: Vec<(u16, String)>,
    },
    /// Give the parts up; an upload that is not there counts as aborted ([`Refusal::NoSuchUpload`]).
    AbortMultipartUpload {
        /// Object key.
        key: String,
        /// The upload.
        upload_id: String,
    },
    /// Remove an object; a missing one counts as removed.
    DeleteObject {
        /// Object key.
        key: String,
    },
    /// Size of an object.
    HeadObject {
        /// Object key.
        key: String,
    },
    /// Open an object for reading. The answer opens a stream, read by `Effect::S3(ReadObject)`.
    GetObject {
        /// Object key.
        key: String,
    },
    /// A signed URL for GET on the public endpoint; no call is made.
    PresignGetObject {
        /// Object key.
        key: String,
        /// Validity, seconds.
        expires_seconds: u64,
    },
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Done, nothing more to tell (HeadBucket, CreateBucket, PutObject, Complete, Abort, Delete).
    Done,
    /// To CreateMultipartUpload: the upload id.
    UploadCreated(String),
    /// To UploadPart: the ETag, quotes included.
    PartStored(String),
    /// To HeadObject and GetObject.
    Object {
        /// Bytes.
        size: u64,
        /// `Content-Type`, when the store names one.
        content_type: Option<String>,
    },
    /// To PresignGetObject.
    Url(String),
}

/// Why S3 proved that nothing happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing was handed over: no connection.
    Unreachable(String),
    /// No such object.
    NoSuchKey,
    /// No such multipart upload.
    NoSuchUpload,
    /// No such bucket.
    NoSuchBucket,
    /// Credentials or policy do not allow it.
    AccessDenied(String),
    /// The store asks to slow down (503 SlowDown and its kin), before doing anything.
    SlowDown(String),
    /// Another definite refusal (4xx).
    Other(String),
}
