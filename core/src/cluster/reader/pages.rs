//! Reading a range of any size: in pages, all at the revision of the first.

use bytes::{BufMut, Bytes, BytesMut};

use crate::etcd::{KeyValue, Keys, RangeRequest, RangeResponse, Revision};
use crate::planted::{Bug, planted};

/// A reading of `keys` under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Pages {
    keys: Keys,
    keys_only: bool,
    /// Keys per page.
    limit: i64,
    progress: Option<Begun>,
    restarted: bool,
}

/// What is known after the first page.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Begun {
    revision: Revision,
    /// Keys that etcd counted at that revision.
    count: i64,
    taken: usize,
    last_key: Bytes,
}

/// A page that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Page {
    /// The revision of all pages.
    pub(in crate::cluster) revision: Revision,
    pub(in crate::cluster) kvs: Vec<KeyValue>,
    /// Whether [`Pages::next`] is to be ordered.
    pub(in crate::cluster) more: bool,
}

impl Pages {
    /// A reading in pages of `page_keys` keys.
    pub(in crate::cluster) fn new(keys: Keys, keys_only: bool, page_keys: u32) -> Self {
        // 0 would be no limit at all.
        let limit = i64::from(page_keys.max(1));
        Self { keys, keys_only, limit, progress: None, restarted: false }
    }

    /// The next page.
    pub(in crate::cluster) fn next(&self) -> RangeRequest {
        let (keys, revision) = match &self.progress {
            None => (self.keys.clone(), 0),
            Some(begun) => (after(&begun.last_key, &self.keys), begun.revision),
        };
        RangeRequest { limit: self.limit, revision, keys_only: self.keys_only, ..RangeRequest::of(keys) }
    }

    /// Begins again, because the revision of the pages was compacted. Once: the second time says no.
    pub(in crate::cluster) fn restart(&mut self) -> bool {
        self.progress = None;
        !std::mem::replace(&mut self.restarted, true)
    }

    /// Takes a page in. The error says what makes no sense about it.
    pub(in crate::cluster) fn take(&mut self, page: RangeResponse) -> Result<Page, &'static str> {
        let RangeResponse { revision, kvs, count, more } = page;
        let (count, more) = match planted(Bug::FirstPageIsAll) {
            true => (i64::try_from(kvs.len()).unwrap_or(i64::MAX), false),
            false => (count, more),
        };
        let begun = self.progress.get_or_insert(Begun { revision, count, taken: 0, last_key: Bytes::new() });
        for kv in &kvs {
            if kv.key <= begun.last_key || !self.keys.contain(&kv.key) {
                return Err("a page has keys out of order or of another range");
            }
            begun.last_key = kv.key.clone();
        }
        begun.taken += kvs.len();
        if more && kvs.is_empty() {
            return Err("an empty page says that there is more");
        }
        if !more && usize::try_from(begun.count) != Ok(begun.taken) {
            return Err("the pages do not hold as many keys as were counted");
        }
        Ok(Page { revision: begun.revision, kvs, more })
    }
}

/// Those of `keys` after `last`: the smallest key above another is that key with a zero byte appended.
fn after(last: &Bytes, keys: &Keys) -> Keys {
    match keys {
        Keys::One(key) => Keys::One(key.clone()),
        Keys::Between(_, end) => {
            let mut start = BytesMut::with_capacity(last.len() + 1);
            start.put_slice(last);
            start.put_u8(0);
            Keys::Between(start.freeze(), end.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(revision: Revision, keys: &[&'static str], count: i64, more: bool) -> RangeResponse {
        let kvs = keys.iter().map(|key| KeyValue {
            key: Bytes::from_static(key.as_bytes()),
            value: Bytes::new(),
            create_revision: 1,
            mod_revision: 1,
            lease: 0,
        });
        RangeResponse { revision, kvs: kvs.collect(), count, more }
    }

    #[test]
    fn all_pages_at_the_revision_of_the_first() {
        let mut pages = Pages::new(Keys::prefix("k/"), true, 1_000);
        let first = pages.next();
        assert_eq!((first.revision, first.limit, first.keys_only), (0, 1_000, true));
        assert_eq!(first.keys, Keys::prefix("k/"));
        let page = pages.take(response(10, &["k/a", "k/b"], 3, true)).unwrap();
        assert_eq!((page.revision, page.kvs.len(), page.more), (10, 2, true));
        let second = pages.next();
        assert_eq!(second.revision, 10);
        assert_eq!(second.keys, Keys::Between("k/b\0".into(), "k0".into()));
        let page = pages.take(response(12, &["k/c"], 1, false)).unwrap();
        assert_eq!((page.revision, page.more), (10, false));
    }

    #[test]
    fn pages_that_make_no_sense() {
        for (name, count, second) in [
            ("more of nothing", 3, response(10, &[], 1, true)),
            ("fewer than counted", 4, response(10, &["k/c"], 1, false)),
            ("more than counted", 3, response(10, &["k/c", "k/d"], 1, false)),
            ("repeated", 3, response(10, &["k/b"], 1, false)),
            ("out of order", 4, response(10, &["k/d", "k/c"], 2, false)),
            ("of another range", 3, response(10, &["l"], 1, false)),
        ] {
            let mut pages = Pages::new(Keys::prefix("k/"), false, 1_000);
            pages.take(response(10, &["k/a", "k/b"], count, true)).unwrap();
            assert!(pages.take(second).is_err(), "{name}");
        }
        assert!(Pages::new(Keys::prefix("k/"), false, 1_000).take(response(10, &[], -1, false)).is_err());
        assert!(Pages::new(Keys::prefix("k/"), false, 1_000).take(response(10, &[], 0, false)).is_ok());
    }

    #[test]
    fn a_compacted_reading_begins_again_once() {
        let mut pages = Pages::new(Keys::prefix("k/"), false, 1_000);
        pages.take(response(10, &["k/a"], 3, true)).unwrap();
        assert!(pages.restart());
        assert_eq!(pages.next().revision, 0);
        pages.take(response(20, &["k/a"], 1, false)).unwrap();
        assert!(!pages.restart());
    }

    #[test]
    fn a_page_is_as_long_as_the_settings_say() {
        for (page_keys, limit) in [(0, 1), (1, 1), (2, 2), (1_000, 1_000)] {
            assert_eq!(Pages::new(Keys::prefix("k/"), false, page_keys).next().limit, limit);
        }
    }
}
