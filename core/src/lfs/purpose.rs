//! What each S3 request of this path is for.

use crate::input::ExchangeId;

use super::cleanup::CleanupId;

/// Comes back with the outcome of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The periodic HeadBucket.
    Health,
    /// The bucket is to be created at start.
    EnsureBucket,
    /// A step of a blob's upload.
    Upload {
        /// Whose blob.
        exchange: ExchangeId,
        /// Which step.
        step: UploadStep,
    },
    /// An object is to be opened for a download.
    OpenObject(ExchangeId),
    /// A URL is to be signed for a download.
    Presign(ExchangeId),
    /// A blob without a record is to be removed.
    Cleanup(CleanupId),
}

/// Steps of a blob's upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadStep {
    /// The whole blob in one PutObject.
    Put,
    /// CreateMultipartUpload.
    Create,
    /// UploadPart with this number.
    Part(u16),
    /// CompleteMultipartUpload.
    Complete,
}
