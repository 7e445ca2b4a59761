//! Time limits of requests to S3, and what they must be to each other.

use std::time::Duration;

use kafscale_proxy_core::{LfsConfig, S3Timeouts};

use super::given::{Given, SettingError};

const CONNECT: &str = "KAFSCALE_LFS_PROXY_S3_CONNECT_TIMEOUT_MS";
const UPLOAD: &str = "KAFSCALE_LFS_PROXY_S3_UPLOAD_TIMEOUT_SEC";
const UPLOAD_SPEED: &str = "KAFSCALE_LFS_PROXY_S3_UPLOAD_BYTES_PER_SEC";
const COMPLETE: &str = "KAFSCALE_LFS_PROXY_S3_COMPLETE_TIMEOUT_SEC";
const GET: &str = "KAFSCALE_LFS_PROXY_S3_GET_TIMEOUT_SEC";
const DELETE: &str = "KAFSCALE_LFS_PROXY_S3_DELETE_TIMEOUT_SEC";
const HEALTH: &str = "KAFSCALE_LFS_PROXY_S3_HEALTH_TIMEOUT_SEC";
const REQUEST: &str = "KAFSCALE_LFS_PROXY_S3_REQUEST_TIMEOUT_SEC";

/// A part for whose bytes more is granted is a mistake in the speed.
const LONGEST_UPLOAD: Duration = Duration::from_secs(24 * 60 * 60);

/// All of them. A dial is a part of every request: one that could take all the time of a request would never be given up for
/// another address.
pub(super) fn read(given: &Given<'_>) -> Result<S3Timeouts, SettingError> {
    let dial = given.milliseconds(CONNECT)?;
    let longer_than_dial = |variable| {
        let limit = given.seconds(variable)?;
        if limit > dial {
            return Ok(limit);
        }
        let reason = format!("{} s are not longer than one dial, which {CONNECT} gives {dial:?}", limit.as_secs());
        Err(given.error(variable, &reason))
    };
    Ok(S3Timeouts {
        upload: longer_than_dial(UPLOAD)?,
        upload_bytes_per_second: given.positive(UPLOAD_SPEED)?.unsigned_abs(),
        complete: longer_than_dial(COMPLETE)?,
        get: longer_than_dial(GET)?,
        delete: longer_than_dial(DELETE)?,
        health: longer_than_dial(HEALTH)?,
        request: longer_than_dial(REQUEST)?,
    })
}

/// Whether the largest part of the largest blob has a time limit that makes sense.
pub(super) fn check_uploads(given: &Given<'_>, lfs: &LfsConfig) -> Result<(), SettingError> {
    let part = lfs.part_bytes(lfs.max_blob_bytes);
    let for_bytes = lfs.s3_timeouts.of_upload(part).saturating_sub(lfs.s3_timeouts.upload);
    if for_bytes > LONGEST_UPLOAD {
        let reason = format!("a part of {part} bytes, which the other settings allow, would have more than a day");
        return Err(given.error(UPLOAD_SPEED, &reason));
    }
    Ok(())
}
