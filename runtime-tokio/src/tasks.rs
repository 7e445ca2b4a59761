//! Tasks of a thread, counted, so that a task that never ends shows in the metrics.

use std::cell::Cell;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

thread_local! {
    static LOCAL: Cell<usize> = const { Cell::new(0) };
}

/// A task that has not ended.
struct Alive;

impl Alive {
    fn begin() -> Self {
        LOCAL.set(LOCAL.get() + 1);
        Self
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        LOCAL.set(LOCAL.get() - 1);
    }
}

/// As [`tokio::task::spawn_local`], which no metric of tokio counts.
#[track_caller]
pub(crate) fn spawn_local<T: 'static>(task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let alive = Alive::begin();
    // Boxed, for an async block has room for what it captures and again for what it awaits.
    let task = Box::pin(task);
    tokio::task::spawn_local(async move {
        let _alive = alive;
        task.await
    })
}

/// Tasks of this thread that have not ended, those of libraries among them.
///
/// # Panics
/// Outside of a tokio runtime.
pub(crate) fn alive() -> usize {
    LOCAL.get() + Handle::current().metrics().num_alive_tasks()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn tasks_count_until_they_end_or_are_aborted() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let before = alive();
            let short = spawn_local(async { 7 });
            let endless = spawn_local(pending::<()>());
            // As libraries do it.
            let foreign = tokio::spawn(pending::<()>());
            assert_eq!(alive() - before, 3);
            assert_eq!(short.await.unwrap(), 7);
            assert_eq!(alive() - before, 2);
            endless.abort();
            assert!(endless.await.unwrap_err().is_cancelled());
            assert_eq!(alive() - before, 1);
            foreign.abort();
            assert!(foreign.await.unwrap_err().is_cancelled());
            assert_eq!(alive() - before, 0);
        });
    }
}
