//! Which of the items that a broker was asked for an answer belongs to.

use std::collections::{BTreeMap, VecDeque};

/// The items of one request to a broker that are not answered yet. One that was asked for twice is answered twice.
pub(super) struct Expected<'a, K, F> {
    key: F,
    left: Left<'a, K>,
}

enum Left<'a, K> {
    /// Brokers answer in order, so the next one is mostly the one that is looked for.
    InOrder(&'a [usize]),
    /// This one did not: looking along the list for each answer would take the square of what was asked.
    ByKey(BTreeMap<K, VecDeque<usize>>),
}

impl<'a, K: Ord, F: Fn(usize) -> K> Expected<'a, K, F> {
    /// `items` were asked for, in this order; `key` tells what an answer names each of them by.
    pub(super) fn new(items: &'a [usize], key: F) -> Self {
        Self { key, left: Left::InOrder(items) }
    }

    /// The item that is answered by this key; `None` when it was not asked for, or was answered before.
    pub(super) fn take(&mut self, answered: &K) -> Option<usize> {
        let by_key = match &mut self.left {
            Left::ByKey(by_key) => by_key,
            Left::InOrder(items) => {
                let (next, rest) = items.split_first()?;
                if (self.key)(*next) == *answered {
                    *items = rest;
                    return Some(*next);
                }
                let mut by_key: BTreeMap<K, VecDeque<usize>> = BTreeMap::new();
                for item in *items {
                    by_key.entry((self.key)(*item)).or_default().push_back(*item);
                }
                self.left = Left::ByKey(by_key);
                return self.take(answered);
            }
        };
        by_key.get_mut(answered)?.pop_front()
    }

    /// What was not answered, in the order of its numbers.
    pub(super) fn left(self) -> Vec<usize> {
        let mut left: Vec<usize> = match self.left {
            Left::InOrder(items) => items.to_vec(),
            Left::ByKey(by_key) => by_key.into_values().flatten().collect(),
        };
        left.sort_unstable();
        left
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Items 10, 11, 12 are named a, b and again a.
    fn name(item: usize) -> &'static str {
        ["a", "b", "a"][item - 10]
    }

    #[test]
    fn answers_find_their_items_in_any_order() {
        for (answers, found, left) in [
            (vec!["a", "b", "a"], vec![Some(10), Some(11), Some(12)], vec![]),
            (vec!["a", "a", "b"], vec![Some(10), Some(12), Some(11)], vec![]),
            (vec!["b", "x", "a"], vec![Some(11), None, Some(10)], vec![12]),
            (vec!["a", "b"], vec![Some(10), Some(11)], vec![12]),
            (vec!["b", "b"], vec![Some(11), None], vec![10, 12]),
            (vec!["x"], vec![None], vec![10, 11, 12]),
            (vec!["a", "b", "a", "a"], vec![Some(10), Some(11), Some(12), None], vec![]),
        ] {
            let items = [10, 11, 12];
            let mut expected = Expected::new(&items, name);
            let taken: Vec<_> = answers.iter().map(|answer| expected.take(answer)).collect();
            assert_eq!((taken, expected.left()), (found, left), "{answers:?}");
        }
    }

    #[test]
    fn an_answer_in_another_order_costs_no_square() {
        let asked: Vec<usize> = (0..10_000).collect();
        for answers in [
            (0..10_000).rev().collect::<Vec<usize>>(),
            (10_000..100_000).chain(0..10_000).collect(),
            (0..10_000).flat_map(|item| [item + 20_000, item]).collect(),
        ] {
            let looked = Cell::new(0);
            let mut expected = Expected::new(&asked, |item| {
                looked.set(looked.get() + 1);
                item
            });
            assert_eq!(answers.iter().filter(|answer| expected.take(answer).is_some()).count(), asked.len());
            assert!(looked.get() <= 2 * asked.len(), "{}", looked.get());
        }
    }
}
