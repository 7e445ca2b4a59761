//! One timer for a machine that says when it wants to be called.

use std::cell::Cell;

use kafscale_proxy_core::Monotonic;
use tokio::sync::Notify;

use crate::clock;

/// The timer. It may ring early, never for good too late.
#[derive(Default)]
pub(crate) struct Alarm {
    set_for: Cell<Option<Monotonic>>,
    moved: Notify,
}

impl Alarm {
    /// Moves the timer forward when `next` is earlier than what it is set for. A timer that rings too early is harmless,
    /// so it is not moved back.
    pub(crate) fn look_at(&self, next: Option<Monotonic>) {
        if let Some(at) = next
            && self.set_for.get().is_none_or(|set_for| at < set_for)
        {
            self.set_for.set(next);
            self.moved.notify_one();
        }
    }

    /// Rings whenever it is time, for ever.
    pub(crate) async fn run(&self, next: impl Fn() -> Option<Monotonic>, ring: impl Fn()) {
        loop {
            let at = next();
            self.set_for.set(at);
            match at {
                None => self.moved.notified().await,
                Some(at) => tokio::select! {
                    () = tokio::time::sleep(at.since(clock::now().monotonic)) => ring(),
                    () = self.moved.notified() => {}
                },
            }
        }
    }
}
