//! Temporary files without a name, in the system's folder for them.
//!
//! The operations of one file are carried out in order, on a worker thread. What all shards write together stays within
//! the limit of the process.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kafscale_proxy_core::{Input, OperationId, effects, inputs};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::report::Report;
use crate::tasks::spawn_local;

enum Step {
    Create,
    Append(Bytes),
    Read { max_bytes: usize },
}

enum Done {
    Written(Result<(), inputs::FileError>),
    Read(inputs::ReadResult),
}

impl Step {
    /// What is told when it was not carried out to its end.
    fn failed(&self) -> Done {
        let error = "the file operation did not end";
        match self {
            Self::Create | Self::Append(_) => Done::Written(Err(error.into())),
            Self::Read { .. } => Done::Read(inputs::ReadResult::Broken(error.into())),
        }
    }
}

/// Bytes that the temporary files of all shards may still take.
pub(crate) struct DiskSpace(AtomicU64);

impl DiskSpace {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    fn take(&self, bytes: u64) -> bool {
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What one file has taken of the space; given back when it ends.
struct Taken {
    space: Arc<DiskSpace>,
    bytes: u64,
}

impl Taken {
    fn more(&mut self, bytes: u64) -> bool {
        let taken = self.space.take(bytes);
        if taken {
            self.bytes += bytes;
        }
        taken
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.space.give_back(self.bytes);
    }
}

/// The temporary files of a shard.
pub(crate) struct TempFiles {
    report: Report,
    space: Arc<DiskSpace>,
    files: RefCell<HashMap<inputs::FileId, mpsc::UnboundedSender<(OperationId, Step)>>>,
    open: Rc<Cell<usize>>,
}

/// A file and whether it has been turned from writing to reading.
struct OpenFile {
    file: File,
    reading: bool,
}

impl TempFiles {
    pub(crate) fn new(report: Report, space: Arc<DiskSpace>) -> Self {
        Self { report, space, files: RefCell::default(), open: Rc::default() }
    }

    /// Files that are there, also those that are removed and still have an operation to carry out.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// Carries out one order.
    pub(crate) fn carry_out(self: &Rc<Self>, order: effects::TempFile) {
        match order {
            effects::TempFile::Create { operation, file } => self.step(file, operation, Step::Create),
            effects::TempFile::Append { operation, file, bytes } => self.step(file, operation, Step::Append(bytes)),
            effects::TempFile::Read { operation, file, max_bytes } => {
                self.step(file, operation, Step::Read { max_bytes });
            }
            // The task ends when it has carried out what is queued, and the file ends with it.
            effects::TempFile::Remove { file } => {
                self.files.borrow_mut().remove(&file);
            }
        }
    }

    fn step(self: &Rc<Self>, file: inputs::FileId, operation: OperationId, step: Step) {
        let mut files = self.files.borrow_mut();
        let steps = files.entry(file).or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            let taken = Taken { space: Arc::clone(&self.space), bytes: 0 };
            let (report, open) = (self.report.clone(), Rc::clone(&self.open));
            spawn_local(async move {
                open.set(open.get() + 1);
                carry_out_steps(report, taken, receiver, carry_out).await;
                open.set(open.get() - 1);
            });
            sender
        });
        // The receiver lives as long as the sender stands in the table.
        let _ = steps.send((operation, step));
    }
}

async fn carry_out_steps(
    report: Report,
    mut taken: Taken,
    mut steps: mpsc::UnboundedReceiver<(OperationId, Step)>,
    carry_out: fn(Option<OpenFile>, Step) -> (Option<OpenFile>, Done),
) {
    let mut open: Option<OpenFile> = None;
    while let Some((operation, step)) = steps.recv().await {
        if let Step::Append(bytes) = &step
            && !taken.more(bytes.len() as u64)
        {
            let result = Err(inputs::FileError::NoSpace);
            report.tell(Input::TempFile(inputs::TempFile::Finished { operation, result }));
            continue;
        }
        let (current, failed) = (open.take(), step.failed());
        let carried_out = spawn_blocking(move || carry_out(current, step)).await;
        // The file is lost, and each step still gets its one completion: whoever waits for it would wait for ever.
        let (file, done) = carried_out.unwrap_or_else(|error| {
            tracing::error!(%error, "a file operation did not end");
            (None, failed)
        });
        open = file;
        report.tell(Input::TempFile(match done {
            Done::Written(result) => inputs::TempFile::Finished { operation, result },
            Done::Read(result) => inputs::TempFile::ChunkRead { operation, result },
        }));
    }
}

fn carry_out(open: Option<OpenFile>, step: Step) -> (Option<OpenFile>, Done) {
    match (step, open) {
        (Step::Create, _) => match tempfile::tempfile() {
            Ok(file) => (Some(OpenFile { file, reading: false }), Done::Written(Ok(()))),
            Err(error) => (None, Done::Written(Err(inputs::FileError::Failed(error.to_string())))),
        },
        (Step::Append(bytes), Some(mut open)) => {
            let written = open.file.write_all(&bytes).map_err(|error| inputs::FileError::Failed(error.to_string()));
            (Some(open), Done::Written(written))
        }
        (Step::Read { max_bytes }, Some(mut open)) => {
            let read = read(&mut open, max_bytes);
            (Some(open), Done::Read(read.unwrap_or_else(|error| inputs::ReadResult::Broken(error.to_string()))))
        }
        (Step::Append(_), None) => (None, Done::Written(Err("the file is not open".into()))),
        (Step::Read { .. }, None) => (None, Done::Read(inputs::ReadResult::Broken("the file is not open".into()))),
    }
}

fn read(open: &mut OpenFile, max_bytes: usize) -> std::io::Result<inputs::ReadResult> {
    if !open.reading {
        open.file.rewind()?;
        open.reading = true;
    }
    let mut bytes = Vec::with_capacity(max_bytes);
    (&mut open.file).take(max_bytes as u64).read_to_end(&mut bytes)?;
    Ok(if bytes.is_empty() { inputs::ReadResult::End } else { inputs::ReadResult::Chunk(bytes.into()) })
}

#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes fails the test")]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_from_the_start_in_pieces() {
        let (open, done) = carry_out(None, Step::Create);
        assert!(matches!(done, Done::Written(Ok(()))));
        let (open, _) = carry_out(open, Step::Append(Bytes::from_static(b"hello ")));
        let (mut open, _) = carry_out(open, Step::Append(Bytes::from_static(b"world")));
        let mut pieces = Vec::new();
        loop {
            let (next, done) = carry_out(open, Step::Read { max_bytes: 4 });
            open = next;
            match done {
                Done::Read(inputs::ReadResult::Chunk(bytes)) => pieces.push(bytes),
                Done::Read(inputs::ReadResult::End) => break,
                Done::Read(inputs::ReadResult::Broken(error)) => panic!("{error}"),
                Done::Written(_) => panic!("not a read"),
            }
        }
        assert_eq!(pieces, ["hell", "o wo", "rld"]);
    }

    #[test]
    fn files_of_all_shards_stay_within_the_space_and_give_it_back() {
        let space = Arc::new(DiskSpace::new(10));
        let file = || Taken { space: Arc::clone(&space), bytes: 0 };
        let (mut one, mut two) = (file(), file());
        assert!(one.more(4) && two.more(5));
        assert!(!one.more(2) && one.more(1));
        drop(one);
        assert!(two.more(5) && !two.more(1));
        drop(two);
        assert!(space.take(10));
    }

    #[test]
    fn a_file_that_could_not_be_created_fails_and_does_not_end() {
        assert!(matches!(carry_out(None, Step::Append(Bytes::new())).1, Done::Written(Err(_))));
        let read = carry_out(None, Step::Read { max_bytes: 1 }).1;
        assert!(matches!(read, Done::Read(inputs::ReadResult::Broken(_))));
    }

    #[test]
    fn a_file_that_finds_the_space_taken_is_told_so() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let facts = Rc::clone(&told);
        let report = Report::new(move |fact| match fact {
            Input::TempFile(inputs::TempFile::Finished { result, .. }) => facts.borrow_mut().push(result),
            _ => panic!("{fact:?}"),
        });
        let (sender, receiver) = mpsc::unbounded_channel();
        for bytes in [&b"0123456789"[..], b"0"] {
            assert!(sender.send((OperationId(1), Step::Append(Bytes::from_static(bytes)))).is_ok());
        }
        drop(sender);
        let taken = Taken { space: Arc::new(DiskSpace::new(10)), bytes: 0 };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(carry_out_steps(report, taken, receiver, |open, _| (open, Done::Written(Ok(())))));
        assert_eq!(*told.borrow(), [Ok(()), Err(inputs::FileError::NoSpace)]);
    }

    #[test]
    fn a_step_that_does_not_end_is_answered_and_so_are_those_behind_it() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let facts = Rc::clone(&told);
        let report = Report::new(move |fact| {
            facts.borrow_mut().push(match fact {
                Input::TempFile(inputs::TempFile::Finished { operation, result }) => (operation.0, result.is_err()),
                Input::TempFile(inputs::TempFile::ChunkRead { operation, result }) => {
                    (operation.0, matches!(result, inputs::ReadResult::Broken(_)))
                }
                _ => panic!("{fact:?}"),
            });
        });
        let (sender, receiver) = mpsc::unbounded_channel();
        let steps = [Step::Create, Step::Append(Bytes::from_static(b"x")), Step::Read { max_bytes: 1 }];
        for (operation, step) in (1..).map(OperationId).zip(steps) {
            assert!(sender.send((operation, step)).is_ok());
        }
        drop(sender);
        let taken = Taken { space: Arc::new(DiskSpace::new(10)), bytes: 0 };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(carry_out_steps(report, taken, receiver, |_, _| panic!("on purpose")));
        assert_eq!(*told.borrow(), [(1, true), (2, true), (3, true)]);
    }
}
