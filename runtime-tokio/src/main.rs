//! `kafscale-proxy`: the command line.

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use kafscale_proxy::settings::{Given, Settings, arguments};
use kafscale_proxy::{logging, process};

fn command() -> Command {
    Command::new("kafscale-proxy")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Kafka and LFS proxy for KafScale clusters")
        .after_help("Without a command the proxy runs. Settings come before the command.")
        .args(arguments())
        .subcommand(Command::new("check-config").about("Print the effective settings, secrets hidden, and check them"))
}

fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let failed = error.use_stderr();
            // Nothing can be done about a closed terminal.
            let _ = error.print();
            return if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let result = match matches.subcommand() {
        Some(("check-config", _)) => check_config(&matches),
        _ => run(&matches),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kafscale-proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

type CommandResult = Result<(), Box<dyn std::error::Error>>;

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn run(matches: &ArgMatches) -> CommandResult {
    let settings = Settings::read(&Given::new(Some(matches), &environment))?;
    logging::start(&settings.log).map_err(|error| format!("KAFSCALE_PROXY_LOG: {:?}: {error}", settings.log))?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    process::run(&settings)?;
    Ok(())
}

fn check_config(matches: &ArgMatches) -> CommandResult {
    let given = Given::new(Some(matches), &environment);
    for (name, value, origin) in given.effective() {
        println!("{name}={value} ({origin})");
    }
    let settings = Settings::read(&given)?;
    for warning in &settings.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(())
}
