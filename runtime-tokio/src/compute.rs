//! Jobs that would hold a shard up run on a worker thread.

use kafscale_proxy_core::{Input, Job, OperationId};
use tokio::task::spawn_blocking;

use crate::report::Report;
use crate::tasks::spawn_local;

/// Runs a job; `Computed` follows.
pub(crate) fn run(report: &Report, operation: OperationId, job: Job) {
    let report = report.clone();
    spawn_local(async move {
        match spawn_blocking(move || job.run()).await {
            Ok(result) => report.tell(Input::Computed { operation, result }),
            // The runtime is going down; the machine with it.
            Err(error) => tracing::error!(%error, "a job did not end"),
        }
    });
}
