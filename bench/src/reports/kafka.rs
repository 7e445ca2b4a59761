//! Runs the Kafka loads and makes their tables: how much gets through, and how long it takes.

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
pub(crate) fn measure(options: &Options, stand: &Stand) -> Result<Option<[Table; 2]>, Failure> {
    let loads: Vec<&KafkaLoad> = KAFKA_LOADS.iter().filter(|load| options.wants(load.name)).collect();
    if loads.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = stand.contestants.iter().map(|contestant| contestant.name.as_str()).collect();
    let mut throughput = throughput_header(&names);
    let mut latency = latency_header(&names);
    for load in loads {
        let shown = measure_load(options, &stand.contestants, load)?;
        stand.check_routing()?;
        throughput.row(throughput_row(load, &shown));
        latency.row(latency_row(load, &shown));
    }
    Ok(Some([throughput, latency]))
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

fn throughput_header(names: &[&str]) -> Table {
    let mut header = vec!["load".to_owned()];
    header.extend(names.iter().map(|name| format!("{name}, req/s")));
    header.extend(["of HAProxy", "aim", "met"].map(str::to_owned));
    header.push(format!("CPU µs per request: {}", names[1..].join(" / ")));
    Table::new(header)
}

fn throughput_row(load: &KafkaLoad, shown: &[Shown<'_>]) -> Vec<String> {
    let rate_of = |role| of_role(shown, role).and_then(|one| one.saturated.requests_per_second());
    let ratio = rate_of(Role::Proxy).zip(rate_of(Role::HaProxy)).map(|(proxy, haproxy)| proxy / haproxy);
    let mut row = vec![load.title.to_owned()];
    row.extend(shown.iter().map(|one| figure(one.saturated.requests_per_second())));
    row.push(figure(ratio));
    row.push(format!("≥ {}", load.aim));
    row.push(Verdict::at_least(ratio, load.aim).to_string());
    row.push(figures(in_the_middle(shown).map(|one| one.saturated.cpu_micros_per_request())));
    row
}

fn latency_header(names: &[&str]) -> Table {
    let (all, in_the_middle) = (names.join(" / "), names[1..].join(" / "));
    Table::new([
        "load".to_owned(),
        format!("p50 µs: {all}"),
        format!("p99 µs: {all}"),
        format!("added p99 µs at half load: {in_the_middle}"),
        format!("peak MiB: {in_the_middle}"),
    ])
}

fn latency_row(load: &KafkaLoad, shown: &[Shown<'_>]) -> Vec<String> {
    let direct = of_role(shown, Role::Direct).and_then(|one| one.paced.p99_micros());
    vec![
        load.title.to_owned(),
        figures(shown.iter().map(|one| one.saturated.p50_micros())),
        figures(shown.iter().map(|one| one.saturated.p99_micros())),
        figures(in_the_middle(shown).map(|one| Some(one.paced.p99_micros()? - direct?))),
        figures(in_the_middle(shown).map(|one| one.saturated.peak_mib())),
    ]
}

fn of_role<'a>(shown: &'a [Shown<'a>], role: Role) -> Option<&'a Shown<'a>> {
    shown.iter().find(|one| one.contestant.role == role)
}

fn in_the_middle<'a>(shown: &'a [Shown<'a>]) -> impl Iterator<Item = &'a Shown<'a>> {
    shown.iter().filter(|one| one.contestant.role != Role::Direct)
}
