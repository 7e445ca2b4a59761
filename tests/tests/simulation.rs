//! A few whole simulations in every `cargo test`; `tests/simulate` runs them by the thousand.

use kafscale_proxy_tests::simulation::{Report, run_bytes, run_seed};

/// Some seconds of a debug build; `KAFSCALE_PROXY_SEEDS` says otherwise, as tests/coverage does.
const SEEDS: u64 = 30;

fn seeds() -> u64 {
    std::env::var("KAFSCALE_PROXY_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

#[test]
fn nothing_breaks_and_there_is_something_to_learn() {
    let mut total = Report::default();
    for seed in 0..seeds() {
        match run_seed(seed, false).result {
            Ok(report) => total.add(&report),
            Err(failure) => panic!("seed {seed}: {failure:?}"),
        }
    }
    let (kafka, http) = (total.kafka, total.http);
    let learned = [kafka.acknowledged, kafka.refused, kafka.read, kafka.joined, kafka.others];
    assert!(learned.iter().all(|count| *count > 50), "{kafka:?}");
    let learned = [http.uploads, http.failed_uploads, http.downloads, http.filed_downloads, http.ready, total.deletes];
    assert!(learned.iter().all(|count| *count > 10), "{http:?} {} deletes", total.deletes);
    assert!(http.changed_topics > 0, "{http:?}");
    assert!(total.reused_connections > 10, "{} connections were used again", total.reused_connections);
    assert!(total.ended > 10, "{} processes ended in order", total.ended);
    assert!(total.routes_judged > 500, "{}", total.routes_judged);
}

#[test]
fn equal_seeds_give_equal_worlds_byte_for_byte() {
    for seed in [3, 11] {
        let (one, other) = (run_seed(seed, true), run_seed(seed, true));
        assert!(one.trace.len() > 500, "the trace has {} lines", one.trace.len());
        assert_eq!(one.trace, other.trace);
        assert_eq!(one.result, other.result);
    }
}

#[test]
fn a_fuzzer_can_choose() {
    for bytes in [&b""[..], b"abcdefghijklmnopqrstuvwxyz", &[7; 3_000], &[255; 3_000]] {
        let run = run_bytes(bytes, false);
        assert!(run.result.is_ok(), "{:?}", run.result);
    }
}
