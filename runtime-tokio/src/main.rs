//! `kafscale-proxy`: the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use kafscale_proxy::dev::DevOptions;
use kafscale_proxy::settings::{Given, Settings, arguments};
use kafscale_proxy::tail::TailOptions;
use kafscale_proxy::{logging, process};

fn command() -> Command {
    Command::new("kafscale-proxy")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Kafka and LFS proxy for KafScale clusters")
        .after_help("Without a command the proxy runs. Settings come before the command.")
        .args(arguments())
        .subcommand(Command::new("check-config").about("Print the effective settings, secrets hidden, and check them"))
        .subcommand(dev_command())
        .subcommand(tail_command())
}

fn dev_command() -> Command {
    Command::new("dev")
        .about("Try it out: the proxy with models of brokers, etcd and S3 inside; nothing is kept")
        .arg(option("kafka", "ADDRESS").default_value("127.0.0.1:9092").help("Kafka listener, host:port"))
        .arg(option("http", "ADDRESS").default_value("127.0.0.1:8080").help("HTTP API, host:port"))
        .arg(option("folder", "PATH").help("Where objects lie [default: a temporary folder, removed at the end]"))
        .arg(option("log", "FILTER").default_value("warn").help("Log filter"))
}

fn tail_command() -> Command {
    Command::new("tail")
        .about("Print the records of a topic, one value per line")
        .arg(Arg::new("topic").value_name("TOPIC").required(true))
        .arg(option("bootstrap", "ADDRESS").default_value("127.0.0.1:9092").help("Kafka listener, host:port"))
        .arg(flag("from-beginning").conflicts_with("from-end").help("Begin with the oldest record, as is the default"))
        .arg(flag("from-end").help("Begin with what is written from now on"))
        .arg(option("count", "N").value_parser(value_parser!(u64)).help("End after N records"))
        .arg(
            flag("download-body")
                .conflicts_with_all(["count", "from-end"])
                .help("In place of the records: the body that gets the last blob from /lfs/download"),
        )
}

fn option(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value)
}

fn flag(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

/// A broken invariant ends the process in every build, not only where the profile says so: a task that is gone while
/// its shard runs on would leave clients without answers.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    abort_on_panic();
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
        Some(("dev", matches)) => dev(matches),
        Some(("tail", matches)) => tail(matches),
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
    process::run(settings)?;
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

/// The text of an argument that has a value or a default.
fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
}

fn dev(matches: &ArgMatches) -> CommandResult {
    let options = DevOptions {
        kafka_address: text(matches, "kafka"),
        http_address: text(matches, "http"),
        folder: matches.get_one::<String>("folder").map(PathBuf::from),
        log: text(matches, "log"),
    };
    logging::start(&options.log).map_err(|error| format!("--log: {error}"))?;
    kafscale_proxy::dev::run(&options)?;
    Ok(())
}

fn tail(matches: &ArgMatches) -> CommandResult {
    kafscale_proxy::tail::run(&TailOptions {
        topic: text(matches, "topic"),
        bootstrap: text(matches, "bootstrap"),
        from_end: matches.get_flag("from-end"),
        count: matches.get_one::<u64>("count").copied(),
        download_body: matches.get_flag("download-body"),
    })?;
    Ok(())
}
