//! Equal questions that are under way are asked once.

use std::collections::BTreeMap;

use super::Waiter;
use super::freshness::Moment;

/// Reads under way for one kind of question, by what they ask for.
///
/// A question that comes while an equal one is under way is not answered by it: etcd may have served that read before
/// the moment that is asked about, such as the refusal by a broker or the end of an upload. All who come meanwhile
/// share one read that follows. So nobody waits for more than two reads (three where a watch is lost meanwhile), and no key has two
/// under way.
pub(super) struct Coalesced<K, D> {
    open: BTreeMap<K, UnderWay<D>>,
}

struct UnderWay<D> {
    ordered: Moment,
    detail: D,
    asked: Vec<Waiter>,
    queued: Vec<Waiter>,
}

/// A read that is over.
pub(super) struct Over {
    pub(super) ordered: Moment,
    /// To be answered now.
    pub(super) asked: Vec<Waiter>,
    /// The next read is for these; when there are none, none is wanted.
    pub(super) queued: Vec<Waiter>,
}

impl<K: Ord, D> Coalesced<K, D> {
    pub(super) const fn new() -> Self {
        Self { open: BTreeMap::new() }
    }

    /// Lets `waiter` wait behind the read of `key` that is under way. Hands it back when there is none.
    pub(super) fn queue(&mut self, key: &K, waiter: Waiter) -> Result<(), Waiter> {
        match self.open.get_mut(key) {
            Some(under_way) => {
                under_way.queued.push(waiter);
                Ok(())
            }
            None => Err(waiter),
        }
    }

    /// A read of `key` was ordered for `asked`; none was under way.
    pub(super) fn begin(&mut self, key: K, ordered: Moment, detail: D, asked: Vec<Waiter>) {
        self.open.insert(key, UnderWay { ordered, detail, asked, queued: Vec::new() });
    }

    pub(super) fn finish(&mut self, key: &K) -> Option<Over> {
        let UnderWay { ordered, asked, queued, detail: _ } = self.open.remove(key)?;
        Some(Over { ordered, asked, queued })
    }

    /// What the read of `key` that is under way is about.
    pub(super) fn detail(&mut self, key: &K) -> Option<&mut D> {
        self.open.get_mut(key).map(|under_way| &mut under_way.detail)
    }

    /// Nobody is there any more to take this waiter's answers.
    pub(super) fn forget(&mut self, waiter: Waiter) {
        for under_way in self.open.values_mut() {
            under_way.asked.retain(|other| *other != waiter);
            under_way.queued.retain(|other| *other != waiter);
        }
    }
}
