//! A server of the suite as a child process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A running child. It is killed when the value goes; in a test that fails the end of its log is shown.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; both its outputs go to `log`, behind what is there.
    ///
    /// # Panics
    /// When it cannot be started: then it is not installed.
    pub(super) fn start(name: &'static str, command: &mut Command, log: &Path) -> Self {
        let output = File::options().create(true).append(true).open(log).expect("the log's folder is there");
        let errors = output.try_clone().expect("a file can be opened twice");
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name} cannot be started ({error}); tests/run installs it"));
        Self { name, child, log: log.to_owned() }
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child has a process id");
        kill_process(pid, signal).expect("a child that was not waited for can be signalled");
    }

    /// How it ended; `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Asks it to end and waits; after `limit` it is killed.
    pub(super) fn stop(&mut self, limit: Duration) -> ExitStatus {
        if let Some(status) = self.ended() {
            return status;
        }
        self.signal(Signal::TERM);
        let asked = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            if asked.elapsed() > limit {
                self.signal(Signal::KILL);
                return self.child.wait().expect("a child can be waited for");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it has written so far.
    pub(super) fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::KILL);
            // The test is over either way; a child that cannot be waited for is the system's to collect.
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- end of the log of {}", self.name);
            for line in &lines[lines.len().saturating_sub(60)..] {
                eprintln!("{line}");
            }
        }
    }
}
