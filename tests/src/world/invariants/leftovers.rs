//! I9: what no record refers to is gone, or was counted.

use std::collections::BTreeSet;

use kafscale_proxy_core::model::broker::SharedLog;

use super::envelopes;
use crate::world::S3Side;

/// Keys of objects and open multipart uploads to which no record refers.
pub fn leftovers(log: &SharedLog, s3: &S3Side) -> BTreeSet<String> {
    let referred: BTreeSet<String> = envelopes(log).into_iter().map(|envelope| envelope.key).collect();
    let objects = s3.model.objects().map(|(key, _)| key).filter(|key| !referred.contains(*key));
    let uploads = s3.model.uploads().map(|(_, upload)| upload.key.as_str());
    objects.chain(uploads).map(str::to_owned).collect()
}
