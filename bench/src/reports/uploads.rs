//! Runs the upload loads and makes their table.

use crate::contestants::Stand;
use crate::failure::Failure;
use crate::figures::Runs;
use crate::loads::uploads::{UPLOAD_LOADS, UploadAims, UploadLoad, Way};
use crate::options::Options;
use crate::table::{Table, figure, figures};
use crate::verdict::Verdict;

/// Measures all upload loads that are asked for. `None` when there is none.
pub(crate) fn measure(options: &Options, stand: &Stand) -> Result<Option<Table>, Failure> {
    let mut table = Table::new([
        "upload",
        "raw PUT, MiB/s",
        "kafscale-proxy, MiB/s",
        "of raw",
        "CPU s per GiB",
        "CPU ms each",
        "aim",
        "met",
        "p50 ms: raw / proxy",
        "p99 ms: raw / proxy",
        "peak MiB",
    ]);
    let through = Way::Proxy(stand.proxy.lfs, stand.proxy.process());
    let mut any = false;
    for load in UPLOAD_LOADS.iter().filter(|load| options.wants(load.name)) {
        any = true;
        let load = if options.quick { load.shortened() } else { *load };
        let (mut raw, mut proxy) = (Runs::default(), Runs::default());
        for _ in 0..options.repetitions() {
            raw.push(load.run(Way::Raw, &stand.store)?);
            proxy.push(load.run(through, &stand.store)?);
        }
        stand.check_routing()?;
        let rates = [raw.mib_per_second(), proxy.mib_per_second()].map(figure);
        eprintln!("{}: MiB/s: raw PUT {}, kafscale-proxy {}", load.name, rates[0], rates[1]);
        table.row(row(&load, &raw, &proxy));
    }
    Ok(any.then_some(table))
}

fn row(load: &UploadLoad, raw: &Runs, proxy: &Runs) -> Vec<String> {
    let ratio = proxy.mib_per_second().zip(raw.mib_per_second()).map(|(proxy, raw)| proxy / raw);
    let millis = |micros: Option<f64>| micros.map(|micros| micros / 1000.0);
    let (aim, met) = held_against(load.aims, ratio, proxy);
    vec![
        load.title.to_owned(),
        figure(raw.mib_per_second()),
        figure(proxy.mib_per_second()),
        figure(ratio),
        figure(proxy.cpu_seconds_per_gib()),
        figure(millis(proxy.cpu_micros_per_request())),
        aim,
        met,
        figures([raw, proxy].map(|runs| millis(runs.p50_micros()))),
        figures([raw, proxy].map(|runs| millis(runs.p99_micros()))),
        figure(proxy.peak_mib()),
    ]
}

/// The aims in words, and whether all of them are met.
fn held_against(aims: UploadAims, ratio: Option<f64>, proxy: &Runs) -> (String, String) {
    let mut words = Vec::new();
    let mut verdicts = Vec::new();
    if let Some(aim) = aims.of_raw {
        words.push(format!("≥ {aim} of raw"));
        verdicts.push(Verdict::at_least(ratio, aim));
    }
    if let Some(aim) = aims.cpu_seconds_per_gib {
        words.push(format!("≤ {aim} s per GiB"));
        verdicts.push(Verdict::at_most(proxy.cpu_seconds_per_gib(), aim));
    }
    if let Some(aim) = aims.cpu_micros_each {
        words.push(format!("≤ {} ms each", aim / 1000.0));
        verdicts.push(Verdict::at_most(proxy.cpu_micros_per_request(), aim));
    }
    (words.join(", "), verdicts.into_iter().reduce(Verdict::and).unwrap_or(Verdict::Unknown).to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::figures::{Run, Usage};

    #[test]
    fn one_missed_aim_is_enough() {
        let mut proxy = Runs::default();
        let usage = Usage { cpu_seconds: 2.0, peak_mib: 1.0 };
        proxy.push(Run::new(vec![1], 1024 * 1024 * 1024, Duration::from_secs(1), Some(usage)));
        let aims = UploadAims { of_raw: Some(0.4), cpu_seconds_per_gib: Some(1.5), cpu_micros_each: None };
        let expected = ("≥ 0.4 of raw, ≤ 1.5 s per GiB".to_owned(), "**no**".to_owned());
        assert_eq!(held_against(aims, Some(0.9), &proxy), expected);
        let aims = UploadAims { cpu_seconds_per_gib: Some(2.0), ..aims };
        assert_eq!(held_against(aims, Some(0.9), &proxy).1, "yes");
        let none = UploadAims { of_raw: None, cpu_seconds_per_gib: None, cpu_micros_each: None };
        assert_eq!(held_against(none, Some(0.9), &proxy), (String::new(), "–".to_owned()));
    }
}
