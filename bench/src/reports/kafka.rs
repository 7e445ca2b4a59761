//! Runs the Kafka loads and makes their table.

use std::time::Duration;

use crate::contestants::{Contestant, Role, Stand};
use crate::failure::Failure;
use crate::figures::Runs;
use crate::loads::kafka::{KAFKA_LOADS, KafkaLoad};
use crate::options::Options;
use crate::table::{Table, figure, figures};
use crate::verdict::Verdict;

/// What one contestant has shown under one load.
#[derive(Debug)]
struct Shown<'a> {
    contestant: &'a Contestant,
    saturated: Runs,
    /// At half of what the proxy reached; none where the contestant does not reach that itself.
    paced: Runs,
}

/// Measures all Kafka loads that are asked for. `None` when there is none.
pub(crate) fn measure(options: &Options, stand: &Stand) -> Result<Option<Table>, Failure> {
    let loads: Vec<&KafkaLoad> = KAFKA_LOADS.iter().filter(|load| options.wants(load.name)).collect();
    if loads.is_empty() {
        return Ok(None);
    }
    let mut table = Table::new(header(&stand.contestants));
    for load in loads {
        let shown = measure_load(options, &stand.contestants, load)?;
        stand.check_routing()?;
        table.row(row(load, &shown));
    }
    Ok(Some(table))
}

fn measure_load<'a>(
    options: &Options,
    contestants: &'a [Contestant],
    load: &KafkaLoad,
) -> Result<Vec<Shown<'a>>, Failure> {
    let length = Duration::from_secs_f64(options.seconds());
    let mut shown: Vec<Shown<'_>> = contestants
        .iter()
        .map(|contestant| Shown { contestant, saturated: Runs::default(), paced: Runs::default() })
        .collect();
    for _ in 0..options.repetitions() {
        for one in &mut shown {
            one.saturated.push(load.saturate(one.contestant, length)?);
        }
    }
    let reached = |one: &Shown<'_>| one.saturated.requests_per_second().unwrap_or(0.0);
    let half = shown.iter().find(|one| one.contestant.role == Role::Proxy).map_or(0.0, reached) / 2.0;
    for _ in 0..options.repetitions() {
        for one in shown.iter_mut().filter(|one| half > 0.0 && reached(one) > half) {
            one.paced.push(load.pace(one.contestant, half, length)?);
        }
    }
    let rates: Vec<String> =
        shown.iter().map(|one| format!("{} {}", one.contestant.name, figure(Some(reached(one))))).collect();
    eprintln!("{}: requests/s: {}", load.name, rates.join(", "));
    Ok(shown)
}

fn header(contestants: &[Contestant]) -> Vec<String> {
    let names: Vec<&str> = contestants.iter().map(|contestant| contestant.name.as_str()).collect();
    let in_the_middle = names[1..].join(" / ");
    let mut header = vec!["load".to_owned()];
    header.extend(names.iter().map(|name| format!("{name}, req/s")));
    header.extend(["of HAProxy", "aim", "met"].map(str::to_owned));
    header.push(format!("CPU µs per request: {in_the_middle}"));
    header.push(format!("p50 µs: {}", names.join(" / ")));
    header.push(format!("p99 µs: {}", names.join(" / ")));
    header.push(format!("added p99 µs at half load: {in_the_middle}"));
    header.push(format!("peak MiB: {in_the_middle}"));
    header
}

fn row(load: &KafkaLoad, shown: &[Shown<'_>]) -> Vec<String> {
    let rate_of =
        |role| shown.iter().find(|one| one.contestant.role == role).and_then(|one| one.saturated.requests_per_second());
    let ratio = rate_of(Role::Proxy).zip(rate_of(Role::HaProxy)).map(|(proxy, haproxy)| proxy / haproxy);
    let direct_p99 =
        shown.iter().find(|one| one.contestant.role == Role::Direct).and_then(|one| one.paced.p99_micros());
    let in_the_middle = || shown.iter().filter(|one| one.contestant.role != Role::Direct);
    let mut row = vec![load.title.to_owned()];
    row.extend(shown.iter().map(|one| figure(one.saturated.requests_per_second())));
    row.push(figure(ratio));
    row.push(format!("≥ {}", load.aim));
    row.push(Verdict::at_least(ratio, load.aim).to_string());
    row.push(figures(in_the_middle().map(|one| one.saturated.cpu_micros_per_request())));
    row.push(figures(shown.iter().map(|one| one.saturated.p50_micros())));
    row.push(figures(shown.iter().map(|one| one.saturated.p99_micros())));
    row.push(figures(in_the_middle().map(|one| Some(one.paced.p99_micros()? - direct_p99?))));
    row.push(figures(in_the_middle().map(|one| one.saturated.peak_mib())));
    row
}
