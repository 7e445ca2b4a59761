//! Runs simulations by seed: `tests/simulate` builds and starts this. docs/simulation.md tells how to read it.
//!
//! Ends with 0, or with the code of the worst failure: 127 a crash, 128 liveness, 129 safety; 2 for a wrong command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kafscale_proxy_tests::simulation::{Failure, Report, Run, run_bytes, run_seed, shrink};

const USAGE: &str = "\
simulate --seeds N [--from S]                  runs N seeds, S and after, on two threads
simulate --seed S [--trace]                    runs one seed; with its actions and effects
simulate --bytes FILE [--trace]                runs what the fuzz target `world` makes of a file
simulate --shrink S                            cuts a failing seed down to few actions
simulate --mutant NAME --seeds N [--from S]    must fail: runs until a seed finds the planted bug
simulate --list-mutants                        names the bugs that can be planted";

/// How often the speed is told.
const TELL: Duration = Duration::from_secs(5);
const THREADS: usize = 2;

#[derive(Default)]
struct Arguments {
    seeds: Option<u64>,
    from: u64,
    seed: Option<u64>,
    bytes: Option<PathBuf>,
    shrink: Option<u64>,
    mutant: Option<String>,
    traced: bool,
    lists_mutants: bool,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seeds" => arguments.seeds = Some(words.next()?.parse().ok()?),
                "--from" => arguments.from = words.next()?.parse().ok()?,
                "--seed" => arguments.seed = Some(words.next()?.parse().ok()?),
                "--bytes" => arguments.bytes = Some(words.next()?.into()),
                "--shrink" => arguments.shrink = Some(words.next()?.parse().ok()?),
                "--mutant" => arguments.mutant = Some(words.next()?),
                "--trace" => arguments.traced = true,
                "--list-mutants" => arguments.lists_mutants = true,
                _ => return None,
            }
        }
        Some(arguments)
    }
}

/// The revision that the script was started on.
fn revision() -> String {
    std::env::var("SIMULATE_REVISION").unwrap_or_else(|_| "unknown revision".into())
}

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A panic is told as the failure of its seed.
    std::panic::set_hook(Box::new(|_| {}));
    if arguments.lists_mutants {
        for bug in kafscale_proxy_core::planted::Bug::ALL {
            println!("{}", bug.name());
        }
        return ExitCode::SUCCESS;
    }
    match (arguments.seed, arguments.bytes, arguments.shrink, arguments.mutant, arguments.seeds) {
        (Some(seed), None, None, None, None) => one(&format!("seed {seed}"), run_seed(seed, arguments.traced)),
        (None, Some(file), None, None, None) => of_bytes(&file, arguments.traced),
        (None, None, Some(seed), None, None) => cut_down(seed),
        (None, None, None, Some(mutant), Some(seeds)) => hunt(&mutant, arguments.from, seeds),
        (None, None, None, None, Some(seeds)) => {
            let run = many(arguments.from, seeds, false);
            run.failures
                .iter()
                .map(|(_, failure)| failure.kind.exit_code())
                .max()
                .map_or(ExitCode::SUCCESS, ExitCode::from)
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tell(world: &str, failure: &Failure) {
    println!("{world} of {}: {:?}: {}", revision(), failure.kind, failure.text);
}

fn of_bytes(file: &Path, traced: bool) -> ExitCode {
    match std::fs::read(file) {
        Ok(bytes) => one(&file.display().to_string(), run_bytes(&bytes, traced)),
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            ExitCode::from(2)
        }
    }
}

fn one(world: &str, run: Run) -> ExitCode {
    run.trace.iter().for_each(|line| println!("{line}"));
    match run.result {
        Ok(report) => {
            println!("{world}: {report:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            tell(world, &failure);
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

fn cut_down(seed: u64) -> ExitCode {
    let Some((scenario, failure)) = shrink(seed) else {
        println!("seed {seed} does not fail");
        return ExitCode::SUCCESS;
    };
    println!(
        "replicas {}, idle close {:?}, S3 jitter {:?}, job jitter {:?}",
        scenario.skews_ms.len(),
        scenario.idle_close,
        scenario.s3_jitter,
        scenario.job_jitter
    );
    for (at, action) in &scenario.actions {
        println!("{at:?} {action:?}");
    }
    tell(&format!("seed {seed}"), &failure);
    ExitCode::from(failure.kind.exit_code())
}

#[derive(Default)]
struct Many {
    report: Report,
    failures: Vec<(u64, Failure)>,
}

/// Runs seeds on all threads; `until_failure` stops at the first that fails.
fn many(from: u64, seeds: u64, until_failure: bool) -> Many {
    let (next, done) = (AtomicU64::new(from), Mutex::new((Many::default(), Instant::now())));
    let start = Instant::now();
    let mutant = planted_now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                plant_here(mutant);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from.saturating_add(seeds) {
                        return;
                    }
                    let run = run_seed(seed, false);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    match run.result {
                        Ok(report) => done.0.report.add(&report),
                        Err(failure) => {
                            tell(&format!("seed {seed}"), &failure);
                            done.0.failures.push((seed, failure));
                            if until_failure {
                                next.store(u64::MAX / 2, Ordering::Relaxed);
                            }
                        }
                    }
                    if done.1.elapsed() > TELL {
                        done.1 = Instant::now();
                        let count = next.load(Ordering::Relaxed).min(from + seeds) - from;
                        eprintln!("{count} seeds, {:.0} a second", count as f64 / start.elapsed().as_secs_f64());
                    }
                }
            });
        }
    });
    let (mut run, _) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    run.failures.sort_by_key(|(seed, _)| *seed);
    let seconds = start.elapsed().as_secs_f64();
    if !until_failure {
        println!("{:?}", run.report);
        println!(
            "{seeds} seeds from {from} of {}: {} failed; {seconds:.1} s, {:.0} a minute",
            revision(),
            run.failures.len(),
            seeds as f64 / seconds * 60.0
        );
    }
    run
}

#[cfg(planted_bugs)]
mod planting {
    use std::cell::Cell;

    use kafscale_proxy_core::planted::{Bug, plant};

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub(super) type Mutant = Option<Bug>;

    pub(super) fn by_name(name: &str) -> Option<Mutant> {
        Bug::from_name(name).map(Some)
    }

    pub(super) fn plant_here(mutant: Mutant) {
        PLANTED.set(mutant);
        plant(mutant);
    }

    pub(super) fn planted_now() -> Mutant {
        PLANTED.get()
    }
}

/// Nothing can be planted in this build.
#[cfg(not(planted_bugs))]
mod planting {
    /// None of them.
    #[derive(Clone, Copy)]
    pub(super) struct Mutant;

    pub(super) const fn by_name(_: &str) -> Option<Mutant> {
        None
    }

    pub(super) const fn plant_here(_: Mutant) {}

    pub(super) const fn planted_now() -> Mutant {
        Mutant
    }
}

use planting::{plant_here, planted_now};

/// A planted bug must fail: ends as the seed that finds it does, and well when none does.
fn hunt(name: &str, from: u64, seeds: u64) -> ExitCode {
    let Some(mutant) = planting::by_name(name) else {
        eprintln!("no such bug in this build: {name} (tests/simulate --mutant builds with planted bugs)");
        return ExitCode::from(2);
    };
    plant_here(mutant);
    let run = many(from, seeds, true);
    match run.failures.first() {
        Some((seed, failure)) => {
            println!("{name}: found after {} seeds", seed - from + 1);
            ExitCode::from(failure.kind.exit_code())
        }
        None => {
            println!("{name}: not found in {seeds} seeds");
            ExitCode::SUCCESS
        }
    }
}
