//! What Linux tells about a process: CPU time and memory.

use std::fs;

use crate::failure::{During, Failure};
use crate::figures::Usage;

/// CPU time that a process had used when something began; its peak of memory begins anew there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    process: u32,
    cpu_seconds: f64,
}

impl Meter {
    /// Begins to look at a process.
    pub(crate) fn start(process: u32) -> Result<Self, Failure> {
        // Only an own process lets its peak be reset; another's then counts from its start.
        let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
        Ok(Self { process, cpu_seconds: cpu_seconds(process)? })
    }

    /// What it has used since.
    pub(crate) fn stop(self) -> Result<Usage, Failure> {
        let peak_mib = status_mib(self.process, "VmHWM:")?;
        Ok(Usage { cpu_seconds: cpu_seconds(self.process)? - self.cpu_seconds, peak_mib })
    }
}

/// Resident memory now, MiB.
pub(crate) fn resident_mib(process: u32) -> Result<f64, Failure> {
    status_mib(process, "VmRSS:")
}

fn cpu_seconds(process: u32) -> Result<f64, Failure> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).during(|| path.clone())?;
    let ticks = cpu_ticks(&stat).ok_or_else(|| Failure::new(format!("{path} cannot be read: {stat}")))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// User and system time in `/proc/PID/stat`, clock ticks. The name before them may hold spaces and parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut field = || fields.next()?.parse::<u64>().ok();
    Some(field()? + field()?)
}

fn status_mib(process: u32, name: &str) -> Result<f64, Failure> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).during(|| path.clone())?;
    let kib = status_kib(&status, name).ok_or_else(|| Failure::new(format!("{path} has no {name}")))?;
    Ok(kib as f64 / 1024.0)
}

fn status_kib(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_is_skipped() {
        let stat = "42 (a (strange) name) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20 0 4 0 100";
        assert_eq!(cpu_ticks(stat), Some(100));
        assert_eq!(cpu_ticks("42 (cut"), None);
    }

    #[test]
    fn memory_is_found_by_its_name() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!((status_kib(status, "VmHWM:"), status_kib(status, "VmRSS:")), (Some(2048), Some(1024)));
        assert_eq!(status_kib(status, "VmSwap:"), None);
    }

    #[test]
    fn this_process_can_be_measured() {
        let meter = Meter::start(std::process::id()).expect("an own process can be looked at");
        assert!(meter.stop().expect("it still runs").peak_mib > 0.0);
        assert!(resident_mib(std::process::id()).expect("it runs") > 0.0);
    }
}
