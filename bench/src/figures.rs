//! Percentiles, medians, and what one run of a load has shown.

use std::time::Duration;

/// The value below which `share` (0 to 1) of the sorted values lie; nearest rank. 0 when there are none.
pub(crate) fn percentile(sorted: &[u32], share: f64) -> u32 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
}

/// The middle value; of an even number of values the mean of the two in the middle. `None` when there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// What a process has used while a load ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    /// CPU time of all its threads, in user and in kernel mode, seconds.
    pub(crate) cpu_seconds: f64,
    /// Largest resident memory, MiB.
    pub(crate) peak_mib: f64,
}

/// One run of a load against one contestant.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    requests: u64,
    bytes: u64,
    seconds: f64,
    p50_micros: u32,
    p99_micros: u32,
    usage: Option<Usage>,
}

impl Run {
    /// Of requests that took this long each (microseconds) and carried `bytes` together. `usage` is of the process in
    /// the middle, where there is one.
    pub(crate) fn new(mut latencies: Vec<u32>, bytes: u64, took: Duration, usage: Option<Usage>) -> Self {
        latencies.sort_unstable();
        Self {
            requests: latencies.len() as u64,
            bytes,
            seconds: took.as_secs_f64(),
            p50_micros: percentile(&latencies, 0.5),
            p99_micros: percentile(&latencies, 0.99),
            usage,
        }
    }

    /// How many requests were answered.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    fn cpu_seconds(&self) -> Option<f64> {
        self.usage.map(|usage| usage.cpu_seconds)
    }
}

/// All runs of a load against one contestant; every figure is the median of its runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// Adds one.
    pub(crate) fn push(&mut self, run: Run) {
        self.0.push(run);
    }

    /// Requests per second.
    pub(crate) fn requests_per_second(&self) -> Option<f64> {
        median(self.0.iter().map(|run| run.requests as f64 / run.seconds))
    }

    /// MiB of payload per second.
    pub(crate) fn mib_per_second(&self) -> Option<f64> {
        median(self.0.iter().map(|run| run.bytes as f64 / MIB / run.seconds))
    }

    /// Median latency, microseconds.
    pub(crate) fn p50_micros(&self) -> Option<f64> {
        median(self.0.iter().map(|run| f64::from(run.p50_micros)))
    }

    /// Latency that 99 of 100 requests stay below, microseconds.
    pub(crate) fn p99_micros(&self) -> Option<f64> {
        median(self.0.iter().map(|run| f64::from(run.p99_micros)))
    }

    /// CPU time of the process in the middle per request, microseconds.
    pub(crate) fn cpu_micros_per_request(&self) -> Option<f64> {
        median(self.0.iter().filter_map(|run| Some(run.cpu_seconds()? * 1e6 / run.requests as f64)))
    }

    /// CPU time of the process in the middle per GiB of payload, seconds.
    pub(crate) fn cpu_seconds_per_gib(&self) -> Option<f64> {
        median(self.0.iter().filter_map(|run| Some(run.cpu_seconds()? * 1024.0 * MIB / run.bytes as f64)))
    }

    /// Largest resident memory of the process in the middle, MiB.
    pub(crate) fn peak_mib(&self) -> Option<f64> {
        median(self.0.iter().filter_map(|run| Some(run.usage?.peak_mib)))
    }
}

const MIB: f64 = 1024.0 * 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        assert_eq!(percentile(&[], 0.99), 0);
        assert_eq!(percentile(&[7], 0.5), 7);
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| percentile(&hundred, share)), [1, 50, 99, 100]);
        assert_eq!(percentile(&[1, 2, 3], 0.99), 3);
    }

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn every_figure_is_the_median_of_its_own_runs() {
        let mut runs = Runs::default();
        for (seconds, cpu_seconds) in [(1, 0.5), (2, 0.1), (4, 0.2)] {
            let usage = Usage { cpu_seconds, peak_mib: 3.0 };
            runs.push(Run::new(vec![10, 30], 2 * 1024 * 1024, Duration::from_secs(seconds), Some(usage)));
        }
        assert_eq!(runs.requests_per_second(), Some(1.0));
        assert_eq!(runs.mib_per_second(), Some(1.0));
        assert_eq!(runs.cpu_micros_per_request(), Some(100_000.0));
        assert_eq!(runs.cpu_seconds_per_gib(), Some(102.4));
        assert_eq!((runs.p50_micros(), runs.p99_micros()), (Some(10.0), Some(30.0)));
        assert_eq!(runs.peak_mib(), Some(3.0));
    }

    #[test]
    fn without_a_process_there_is_no_cost() {
        let mut runs = Runs::default();
        runs.push(Run::new(vec![1], 1, Duration::from_secs(1), None));
        assert_eq!((runs.cpu_micros_per_request(), runs.peak_mib()), (None, None));
    }
}
