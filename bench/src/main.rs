//! Measures kafscale-proxy side by side with what else could stand in its place: `bench/run`, docs/benchmarks.md.
//!
//! Clients, brokers and the store are threads of this program; the contestants are processes. In each repetition all
//! contestants take their turns, so that whatever disturbs the machine hits them alike, and every figure is a median.
//! A wrong answer ends the run.

mod cluster;
mod contestants;
mod failure;
mod figures;
mod frames;
mod http1;
mod loads;
mod options;
mod partners;
mod process_usage;
mod reports;
mod sinks;
mod table;
mod verdict;

use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use contestants::Stand;
use failure::{During, Failure};
use options::Options;
use partners::process::become_server;
use partners::{Ports, eventually};
use table::Table;

/// How long another proxy may take to come up.
const OTHERS_START: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if let Some(failure) = become_server(&mut std::env::args_os()) {
        eprintln!("bench: {failure}; is it installed?");
        return ExitCode::FAILURE;
    }
    let options = Options::parse();
    if options.list {
        names().for_each(|name| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    let kafka = loads::kafka::KAFKA_LOADS.iter().map(|load| load.name);
    let uploads = loads::uploads::UPLOAD_LOADS.iter().map(|load| load.name);
    kafka.chain(uploads).chain([reports::idle::NAME, reports::partitions::NAME])
}

fn run(options: &Options) -> Result<(), Failure> {
    if let Some(unknown) = options.loads.iter().find(|asked| !names().any(|name| options::names(asked, name))) {
        return Err(Failure::new(format!("no load is named {unknown}; --list shows them all")));
    }
    if options.quick {
        println!("A quick run, everything once and small: the figures mean nothing.\n");
    }
    let mut ports = Ports::from(options.first_port);
    let stand = Stand::start(&options.proxy, &mut ports, &options.other)?;
    for other in &options.other {
        eventually(OTHERS_START, || {
            TcpStream::connect(other.address).during(|| format!("connecting to {}", other.name))
        })?;
    }
    print_tables("Kafka", reports::kafka::measure(options, &stand)?.into_iter().flatten());
    print_tables("Uploads", reports::uploads::measure(options, &stand)?);
    print_tables("Idle connections", reports::idle::measure(options, &stand, &mut ports)?);
    print_tables("Size of the cluster", reports::partitions::measure(options, &stand, &mut ports)?);
    Ok(())
}

/// Prints a section, unless there is nothing in it.
fn print_tables(title: &str, tables: impl IntoIterator<Item = Table>) {
    for (number, table) in tables.into_iter().enumerate() {
        if number == 0 {
            println!("## {title}\n");
        }
        println!("{table}");
    }
}
