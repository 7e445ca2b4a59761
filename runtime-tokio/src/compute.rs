//! Jobs that would hold a shard up run on worker threads.
//!
//! All shards share them, one for each core, for more would only take turns. They are apart from the threads on which files and
//! host names are waited for: those stand as long as a disk or a name server does. Digests that S3 alone wants (of signed or checked
//! parts, which are settings) are made there still.

use std::io;
use std::thread::available_parallelism;

use kafscale_proxy_core::{Input, Job};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::report::Report;
use crate::tasks::spawn_local;

/// The threads of the process that run jobs. They start when there is work, and end when there was none for ten seconds.
pub(crate) struct Workers(Option<Runtime>);

impl Workers {
    /// One for each core.
    ///
    /// # Errors
    /// The system denies what a runtime needs.
    pub(crate) fn new() -> io::Result<Self> {
        let threads = available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_current_thread().max_blocking_threads(threads).thread_name("compute").build()?;
        Ok(Self(Some(runtime)))
    }

    /// What a shard hands its jobs to.
    ///
    /// # Panics
    /// Never: the runtime is taken out only when this is dropped.
    pub(crate) fn entrance(&self) -> Entrance {
        Entrance(self.0.as_ref().expect("there is a runtime until the drop").handle().clone())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Jobs have nobody left to tell.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Hands jobs to the [`Workers`].
#[derive(Clone)]
pub(crate) struct Entrance(Handle);

impl Entrance {
    /// Runs a job; `Computed` follows.
    pub(crate) fn run(&self, report: &Report, job: Job) {
        let report = report.clone();
        self.compute(move || job.run(), move |computed| report.tell(Input::Computed(computed)));
    }

    /// Does work elsewhere, and tells its result on this thread.
    fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static, tell: impl FnOnce(T) + 'static) {
        let working = self.0.spawn_blocking(work);
        spawn_local(async move {
            match working.await {
                Ok(result) => tell(result),
                // The process is going down; the machine with it.
                Err(error) => tracing::error!(%error, "a job did not end"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::task::{LocalSet, spawn_blocking};
    use tokio::time::timeout;

    use super::*;

    fn on_a_shard(test: impl Future<Output = ()>) {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn jobs_do_not_wait_for_files() {
        let (release, hangs) = mpsc::channel::<()>();
        on_a_shard(async move {
            // As a disk that hangs: it has all threads of this kind.
            let file = spawn_blocking(move || hangs.recv());
            let workers = Workers::new().unwrap();
            let told = Rc::new(Notify::new());
            let tell = Rc::clone(&told);
            workers.entrance().compute(
                || 7,
                move |result| {
                    if result == 7 {
                        tell.notify_one()
                    }
                },
            );
            timeout(Duration::from_secs(30), told.notified()).await.expect("the result has come");
            release.send(()).unwrap();
            file.await.unwrap().unwrap();
        });
    }

    #[test]
    fn no_more_jobs_run_at_once_than_there_are_cores() {
        let cores = available_parallelism().map_or(1, usize::from);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        on_a_shard(async {
            let workers = Workers::new().unwrap();
            let (told, all) = (Rc::new(Notify::new()), 4 * cores);
            let done = Rc::new(AtomicUsize::new(0));
            for _ in 0..all {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                let work = move || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                    running.fetch_sub(1, Ordering::SeqCst);
                };
                let (told, done) = (Rc::clone(&told), Rc::clone(&done));
                workers.entrance().compute(work, move |()| {
                    if done.fetch_add(1, Ordering::SeqCst) + 1 == all {
                        told.notify_one();
                    }
                });
            }
            timeout(Duration::from_secs(30), told.notified()).await.expect("all results have come");
        });
        assert!((1..=cores).contains(&most.load(Ordering::SeqCst)), "{most:?} of {cores}");
    }

    /// What is told then has nobody to hear it; what matters is that nobody waits and nothing panics.
    #[test]
    fn workers_may_go_before_their_jobs_are_done() {
        on_a_shard(async {
            let workers = Workers::new().unwrap();
            let entrance = workers.entrance();
            let (release, hangs) = mpsc::channel::<()>();
            entrance.compute(move || hangs.recv().is_ok(), |_| {});
            drop(workers);
            entrance.compute(|| (), |()| panic!("nobody is there to do this"));
            tokio::task::yield_now().await;
            release.send(()).unwrap();
        });
    }
}
