//! Operations: what was ordered and has not been reported yet.
//!
//! Every effect that expects an answer carries an [`OperationId`] and gets exactly one completion. The
//! table remembers what each operation is for; a completion that it does not know is misuse by the driver.

use std::collections::BTreeMap;

use crate::error::DriverMisuse;

/// Names one ordered operation; unique for the lifetime of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// What became of remote work.
///
/// The three values are the backbone of the promise that no referenced blob is deleted: only
/// [`Outcome::NotApplied`] proves that the remote side did nothing. Code that deletes, retries or moves a
/// session matches all three without a wildcard arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T, R> {
    /// It happened, and this is the answer.
    Applied(T),
    /// Proof that it did not happen: a refusal by the peer, or nothing was handed over to it.
    NotApplied(R),
    /// A timeout, a reset after bytes were handed over, an answer that makes no sense. The text is for logs.
    Unknown(String),
}

/// What is under way, by id. `P` says what the operation is for.
pub(crate) struct Operations<P> {
    next: u64,
    open: BTreeMap<OperationId, P>,
}

impl<P> Operations<P> {
    pub(crate) fn new() -> Self {
        Self { next: 1, open: BTreeMap::new() }
    }

    /// Opens an operation for `purpose`.
    pub(crate) fn open(&mut self, purpose: P) -> OperationId {
        let id = OperationId(self.next);
        self.next += 1;
        self.open.insert(id, purpose);
        id
    }

    /// Ends an operation: its one completion has come. `expected` takes what the completion needs out of the purpose, or
    /// gives the purpose back when the completion is of another kind; the operation then stays open.
    pub(crate) fn close<T>(
        &mut self,
        id: OperationId,
        expected: impl FnOnce(P) -> Result<T, P>,
    ) -> Result<T, DriverMisuse> {
        let purpose = self.open.remove(&id).ok_or(DriverMisuse::UnknownOperation(id))?;
        expected(purpose).map_err(|purpose| {
            self.open.insert(id, purpose);
            DriverMisuse::WrongCompletion(id)
        })
    }

    /// What a streaming operation is for; it stays open.
    pub(crate) fn get(&self, id: OperationId) -> Result<&P, DriverMisuse> {
        self.open.get(&id).ok_or(DriverMisuse::UnknownOperation(id))
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Open operations in the order in which they were ordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (OperationId, &P)> {
        self.open.iter().map(|(id, purpose)| (*id, purpose))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_completion_each() {
        let mut operations = Operations::new();
        let first = operations.open("a");
        let second = operations.open("b");
        assert_ne!(first, second);
        assert_eq!(operations.get(first), Ok(&"a"));
        assert_eq!(operations.close(first, Err::<(), _>), Err(DriverMisuse::WrongCompletion(first)));
        assert_eq!(operations.close(first, Ok), Ok("a"));
        assert_eq!(operations.close(first, Ok), Err(DriverMisuse::UnknownOperation(first)));
        assert_eq!(operations.len(), 1);
        assert_eq!(operations.iter().map(|(id, _)| id).collect::<Vec<_>>(), vec![second]);
    }
}
