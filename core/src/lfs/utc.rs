//! Wall-clock time as text: envelopes, object keys and answers use UTC with whole seconds.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The moment, cut to whole seconds. A clock beyond the calendar (year 9999) reads as 1970: it is wrong anyway, and
/// no request may fail for it.
fn whole_seconds(unix_ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(unix_ms.div_euclid(1000)).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// RFC 3339 with whole seconds: `2026-11-29T11:44:05Z`.
pub(crate) fn seconds(unix_ms: i64) -> String {
    whole_seconds(unix_ms).format(&Rfc3339).unwrap_or_else(|_| "1970-01-01T00:00:00Z".to_owned())
}

/// `YYYY/MM/DD`, zero-padded.
pub(crate) fn day_path(unix_ms: i64) -> String {
    let date = whole_seconds(unix_ms).date();
    format!("{:04}/{:02}/{:02}", date.year(), u8::from(date.month()), date.day())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_moments() {
        let moment = 1_795_952_645_999;
        assert_eq!(seconds(moment), "2026-11-29T11:44:05Z");
        assert_eq!(day_path(moment), "2026/11/29");
        assert_eq!(seconds(-1), "1969-12-31T23:59:59Z");
        assert_eq!(day_path(951_782_400_000), "2000/02/29");
        assert_eq!(seconds(i64::MAX), "1970-01-01T00:00:00Z");
    }
}
