//! What is still to happen, by time. The clock jumps from one entry to the next and never ticks.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::{Monotonic, Now};

/// Wall clock at the start of the world: 2026-11-29, milliseconds since 1970.
const START_UNIX_MS: i64 = 1_795_910_400_000;

/// Things to come, earliest first; equal times in the order in which they were planned.
pub struct Timeline<E> {
    now: Monotonic,
    planned: u64,
    to_come: BTreeMap<(Monotonic, u64), E>,
}

impl<E> Default for Timeline<E> {
    fn default() -> Self {
        Self { now: Monotonic::ZERO, planned: 0, to_come: BTreeMap::new() }
    }
}

impl<E> Timeline<E> {
    /// Both clocks.
    pub fn now(&self) -> Now {
        Now {
            monotonic: self.now,
            unix_ms: START_UNIX_MS + i64::try_from(self.now.as_micros() / 1_000).expect("worlds last minutes"),
        }
    }

    /// Plans something for later.
    pub fn plan(&mut self, delay: Duration, event: E) {
        self.plan_at(self.now + delay, event);
    }

    /// Plans something for a time that has not passed.
    pub fn plan_at(&mut self, at: Monotonic, event: E) {
        assert!(at >= self.now, "nothing can be planned for the past");
        self.planned += 1;
        self.to_come.insert((at, self.planned), event);
    }

    /// When the next planned thing happens.
    pub fn next_at(&self) -> Option<Monotonic> {
        self.to_come.first_key_value().map(|((at, _), _)| *at)
    }

    /// Jumps to the next planned thing and takes it.
    pub fn take_next(&mut self) -> Option<E> {
        let ((at, _), event) = self.to_come.pop_first()?;
        self.now = at;
        Some(event)
    }

    /// Jumps to a time at or before the next planned thing.
    pub fn jump(&mut self, at: Monotonic) {
        assert!(at >= self.now && self.next_at().is_none_or(|next| at <= next), "the clock would skip something");
        self.now = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_first_then_as_planned() {
        let mut timeline = Timeline::default();
        timeline.plan(Duration::from_millis(2), "c");
        timeline.plan(Duration::from_millis(1), "a");
        timeline.plan(Duration::from_millis(1), "b");
        let start = timeline.now().unix_ms;
        let order: Vec<_> = std::iter::from_fn(|| timeline.take_next()).collect();
        assert_eq!(order, ["a", "b", "c"]);
        assert_eq!(timeline.now().unix_ms - start, 2);
    }
}
