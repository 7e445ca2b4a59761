//! Work that is counted, so that tests bound it without a clock.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// A message body was decoded.
    Decode,
    /// It was looked up where an item of a request goes.
    LookUp,
}

thread_local! {
    static DONE: RefCell<BTreeMap<Work, usize>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts one piece of work.
pub(crate) fn count(work: Work) {
    DONE.with_borrow_mut(|done| *done.entry(work).or_default() += 1);
}

/// How much of it this thread has done so far.
pub(crate) fn counted(work: Work) -> usize {
    DONE.with_borrow(|done| done.get(&work).copied().unwrap_or_default())
}
