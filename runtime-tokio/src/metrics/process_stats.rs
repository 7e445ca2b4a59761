//! What the system says of this process.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};

/// The process now. Systems without `/proc` tell nothing, and then nothing is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessStats {
    /// From `/proc`.
    pub(super) usage: Option<Usage>,
    /// Open descriptors.
    pub(super) open_descriptors: Option<usize>,
    /// The most there may be; `None` is without limit.
    pub(super) max_descriptors: Option<u64>,
}

/// What a process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) cpu: Duration,
    pub(super) threads: u64,
    pub(super) virtual_bytes: u64,
    pub(super) resident_bytes: u64,
}

impl ProcessStats {
    pub(super) fn read() -> Self {
        let ticks = rustix::param::clock_ticks_per_second();
        let page = rustix::param::page_size() as u64;
        let stat = std::fs::read_to_string("/proc/self/stat").ok();
        Self {
            usage: stat.and_then(|stat| usage(&stat, ticks, page)),
            // One is the folder that is being read.
            open_descriptors: std::fs::read_dir("/proc/self/fd").ok().map(|open| open.count().saturating_sub(1)),
            max_descriptors: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Reads a line of `/proc/PID/stat` (proc_pid_stat(5)).
fn usage(stat: &str, ticks_per_second: u64, page_bytes: u64) -> Option<Usage> {
    // The second field is the name in parentheses, which may itself contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first field here is the third of the line.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = field(14)? + field(15)?;
    Some(Usage {
        cpu: Duration::from_millis(ticks.checked_mul(1_000)?.checked_div(ticks_per_second)?),
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)?.checked_mul(page_bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat() {
        let line =
            "4 (a) b (c) S 1 2 3 0 -1 4194560 7 8 9 10 250 50 0 0 20 0 12 0 99 104857600 25 18446744073709551615 1";
        let usage = usage(line, 100, 4096).unwrap();
        let expected =
            Usage { cpu: Duration::from_secs(3), threads: 12, virtual_bytes: 104_857_600, resident_bytes: 102_400 };
        assert_eq!(usage, expected);
        assert_eq!(super::usage("4 (a) S 1", 100, 4096), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process() {
        let stats = ProcessStats::read();
        let usage = stats.usage.unwrap();
        assert!(usage.threads > 0 && usage.resident_bytes > 100_000, "{usage:?}");
        // Other tests open and close descriptors meanwhile, but not so many.
        let files: Vec<_> = (0..300).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        let open = ProcessStats::read().open_descriptors.unwrap();
        assert!((files.len()..2 * files.len()).contains(&open), "{open}");
        assert!(stats.max_descriptors.is_none_or(|most| most > open as u64), "{stats:?}");
    }
}
