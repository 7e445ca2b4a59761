//! What can be asked for on the command line.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::Parser;

/// Measures kafscale-proxy side by side with HAProxy in TCP mode, with no proxy at all, and with raw PUTs. The tables go
/// to standard output, progress to standard error.
#[derive(Debug, Parser)]
#[command(name = "bench/run")]
pub(crate) struct Options {
    /// Loads to run, by their names or the first words of them: `produce`, `fetch-8x4`. All of them when none is named.
    #[arg(value_name = "LOAD")]
    pub(crate) loads: Vec<String>,
    /// Names of all loads.
    #[arg(long)]
    pub(crate) list: bool,
    /// Length of one run of a Kafka load, seconds.
    #[arg(long, default_value_t = 3.0, value_name = "S")]
    pub(crate) secs: f64,
    /// Repetitions; the figures are medians.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Another proxy to measure in the same run. It runs already, or comes up within a minute, in front of the brokers that
    /// are printed at the start. With its process id its cost is measured too.
    #[arg(long, value_name = "NAME=HOST:PORT[@PID]", value_parser = Other::parse)]
    pub(crate) other: Vec<Other>,
    /// Everything once and short, to see that it works. The figures mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,
    /// First port of the servers that are started; taken ones are passed over. The default lies below the ports of the tests
    /// against real peers (12000 to 31999) and those that Linux draws for outgoing connections.
    #[arg(long, default_value_t = 10_000, value_name = "PORT")]
    pub(crate) first_port: u16,
    /// The binary that is measured.
    #[arg(long, value_name = "FILE")]
    pub(crate) proxy: PathBuf,
}

impl Options {
    /// Whether a load of this name is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.loads.is_empty() || self.loads.iter().any(|asked| names(asked, name))
    }

    /// Length of one run of a Kafka load, seconds.
    pub(crate) fn seconds(&self) -> f64 {
        if self.quick { 0.2 } else { self.secs }
    }

    /// Repetitions.
    pub(crate) fn repetitions(&self) -> u32 {
        if self.quick { 1 } else { self.runs }
    }
}

/// Whether what was asked for is the name of a load, or whole words at its beginning.
pub(crate) fn names(asked: &str, load: &str) -> bool {
    load.strip_prefix(asked).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// A proxy that somebody else has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Other {
    /// Its name in tables.
    pub(crate) name: String,
    /// Its Kafka listener.
    pub(crate) address: SocketAddr,
    /// Its process.
    pub(crate) process: Option<u32>,
}

impl Other {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').ok_or("NAME= is missing")?;
        let (address, process) = match rest.split_once('@') {
            None => (rest, None),
            Some((address, process)) => (address, Some(process.parse().map_err(|_| "the process id is no number")?)),
        };
        let address = address.to_socket_addrs().map_err(|error| error.to_string())?.next().ok_or("no such host")?;
        Ok(Self { name: name.to_owned(), address, process })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_proxy() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9092));
        let other = Other { name: "x".into(), address, process: None };
        assert_eq!(Other::parse("x=127.0.0.1:9092"), Ok(other.clone()));
        assert_eq!(Other::parse("x=127.0.0.1:9092@42"), Ok(Other { process: Some(42), ..other }));
        for wrong in ["127.0.0.1:9092", "x=127.0.0.1", "x=127.0.0.1:9092@y"] {
            assert!(Other::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn loads_are_named_by_their_first_words() {
        let options = |loads: &[&str]| Options::parse_from(["bench", "--proxy", "p"].iter().chain(loads));
        assert!(options(&[]).wants("fetch-1x1"));
        assert!(options(&["idle", "fetch"]).wants("fetch-1x1"));
        assert!(!options(&["fetch"]).wants("produce-1x1"));
        assert!(options(&["produce-1x1"]).wants("produce-1x1"));
        assert!(!options(&["produce-1x1"]).wants("produce-1x16"));
    }

    #[test]
    fn a_quick_run_is_short_whatever_else_is_asked_for() {
        let options = Options::parse_from(["bench", "--proxy", "p", "--quick", "--secs", "9", "--runs", "9"]);
        assert_eq!((options.seconds(), options.repetitions()), (0.2, 1));
    }
}
