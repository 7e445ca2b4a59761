//! Which partitions a group has ever committed: brokers answer offset 0 for those that it has not.

use super::reader::{Page, Pages};
use crate::etcd::{Keys, RangeRequest, RangeResponse};

/// A reading of the keys under `/kafscale/consumers/<group>/offsets/`, without their values.
pub(super) struct Committed {
    prefix: String,
    pages: Pages,
    found: Vec<(String, i32)>,
}

/// What a page leads to.
pub(super) enum Next {
    Page(RangeRequest),
    /// Topic and partition, in key order.
    Done(Vec<(String, i32)>),
}

impl Committed {
    pub(super) fn new(group: &str, page_keys: u32) -> Self {
        let prefix = format!("/kafscale/consumers/{group}/offsets/");
        let pages = Pages::new(Keys::prefix(prefix.clone()), true, page_keys);
        Self { prefix, pages, found: Vec::new() }
    }

    pub(super) fn next(&self) -> RangeRequest {
        self.pages.next()
    }

    /// The pages' revision was compacted. The first page again, once.
    pub(super) fn restart(&mut self) -> Option<RangeRequest> {
        self.found.clear();
        self.pages.restart().then(|| self.pages.next())
    }

    /// Takes a page in. The error says what makes no sense about it.
    pub(super) fn take(&mut self, page: RangeResponse) -> Result<Next, &'static str> {
        let Page { kvs, more, .. } = self.pages.take(page)?;
        let named = kvs.iter().filter_map(|kv| parse(&self.prefix, &kv.key));
        self.found.extend(named);
        Ok(if more { Next::Page(self.pages.next()) } else { Next::Done(std::mem::take(&mut self.found)) })
    }
}

/// A topic name holds no `/`; a key with one more belongs to another group, whose id holds `/offsets/`.
fn parse(prefix: &str, key: &[u8]) -> Option<(String, i32)> {
    let (topic, partition) = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.split_once('/')?;
    let partition = partition.parse().ok()?;
    (!topic.is_empty()).then(|| (topic.to_owned(), partition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let prefix = Committed::new("g", 1_000).prefix;
        assert_eq!(prefix, "/kafscale/consumers/g/offsets/");
        for (key, parsed) in [
            ("t/0", Some(("t", 0))),
            ("t/12", Some(("t", 12))),
            ("t", None),
            ("/0", None),
            ("t/x", None),
            ("h/offsets/t/0", None),
        ] {
            let parsed = parsed.map(|(topic, partition)| (topic.to_owned(), partition));
            assert_eq!(parse(&prefix, format!("{prefix}{key}").as_bytes()), parsed, "{key}");
        }
        assert_eq!(parse(&prefix, b"/kafscale/consumers/gg/offsets/t/0"), None);
    }
}
