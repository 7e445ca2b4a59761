//! What a broker as usual answers at the start of a connection, for tests.

use bytes::{BufMut, BytesMut};

use super::handshake::Step;
use crate::config::ClusterKind;
use crate::kafka::{ApiKey, VersionRange, spoken};

/// Whether this frame asks what the broker speaks.
pub(crate) fn is_question(frame: &[u8]) -> bool {
    frame == &Step::ApiVersions.request(None)[..]
}

/// Bytes of the question.
pub(crate) fn question_bytes() -> u64 {
    Step::ApiVersions.request(None).len() as u64
}

/// The answer: all that is usual for a KafScale broker.
pub(crate) fn versions() -> BytesMut {
    versions_with(&[])
}

/// As [`versions`], with these ranges instead.
pub(crate) fn versions_with(changed: &[(ApiKey, VersionRange)]) -> BytesMut {
    let instead = |api| changed.iter().find(|(other, _)| *other == api).map(|(_, range)| *range);
    let usual = ApiKey::ALL.iter().filter_map(|api| Some((*api, spoken(ClusterKind::KafScale, *api)?)));
    let rows: Vec<[i16; 3]> = usual
        .map(|(api, range)| (api, instead(api).unwrap_or(range)))
        .map(|(api, range)| [api.into(), range.min, range.max])
        .collect();
    let mut frame = BytesMut::new();
    frame.put_i32(i32::try_from(10 + 6 * rows.len()).expect("a few rows"));
    frame.put_i32(Step::ApiVersions.correlation_id());
    frame.put_i16(0);
    frame.put_i32(i32::try_from(rows.len()).expect("a few rows"));
    rows.into_iter().flatten().for_each(|number| frame.put_i16(number));
    frame
}
