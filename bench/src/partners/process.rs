//! A server as a child process, which does not outlive this program however that ends.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::failure::{During, Failure};

/// How long a server may take to end after it was asked to.
const ENDING: Duration = Duration::from_secs(5);
/// How much of a log is shown, lines.
const SHOWN: usize = 20;

/// First argument of this program where it is to become a server.
const BECOME: &str = "--become-server";

/// Where this program was started to become a server: becomes it, and returns only when that fails. A process must say
/// itself that it wants to end with its parent; servers do not, so this program says it for them first.
pub(crate) fn become_server(arguments: &mut dyn Iterator<Item = OsString>) -> Option<Failure> {
    let (option, server) = (arguments.nth(1)?, arguments.next()?);
    if option != BECOME {
        return None;
    }
    let failed = |error: &dyn std::fmt::Display| Some(Failure::new(format!("{}: {error}", server.display())));
    match set_parent_process_death_signal(Some(Signal::TERM)) {
        Ok(()) => failed(&Command::new(&server).args(arguments).exec()),
        Err(error) => failed(&error),
    }
}

/// A command for a server that ends with this program.
pub(super) fn server(program: impl AsRef<OsStr>) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(BECOME).arg(program);
    Ok(command)
}

/// A running child; it is ended with this value.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a [`server`]; both its outputs go to `log`.
    pub(super) fn start(name: &'static str, command: &mut Command, log: &Path) -> Result<Self, Failure> {
        let what = || format!("starting {name}");
        let output = File::create(log).during(what)?;
        let errors = output.try_clone().during(what)?;
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().during(what)?;
        Ok(Self { name, child, log: log.to_owned() })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tries until it succeeds. Gives up when that takes too long, and at once when the server has ended.
    pub(super) fn wait_until<T>(
        &mut self,
        limit: Duration,
        mut attempt: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        loop {
            self.must_run()?;
            match attempt() {
                Err(_) if begun.elapsed() < limit => thread::sleep(super::PAUSE),
                result => return result,
            }
        }
    }

    fn must_run(&mut self) -> Result<(), Failure> {
        match self.child.try_wait().during(|| format!("waiting for {}", self.name))? {
            None => Ok(()),
            Some(status) => Err(Failure::new(format!("{} ended with {status}:\n{}", self.name, self.end_of_log()))),
        }
    }

    /// What it has written last.
    fn end_of_log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }

    fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let asked = Instant::now();
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && !self.ended()
        {
            // It was not waited for, so the id is still its own.
            let _ = kill_process(pid, Signal::TERM);
            while !self.ended() && asked.elapsed() < ENDING {
                thread::sleep(Duration::from_millis(10));
            }
        }
        if !self.ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
