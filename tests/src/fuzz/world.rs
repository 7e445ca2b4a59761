//! Whole clusters whose every choice a fuzzer makes: see `simulation`.

use crate::simulation::{FaultKind, run_bytes};
use crate::world::choices::Choices;

/// A simulation of these bytes, judged as one of a seed is. `tests/simulate --bytes FILE --trace` tells what happens in it.
pub fn world(input: &[u8]) {
    if let Err(failure) = run_bytes(input, false).result {
        panic!("{:?}: {}", failure.kind, failure.text);
    }
}

/// What an input begins with, in the order in which [`Scenario::from_bytes`] draws it; all wall clocks are right.
///
/// [`Scenario::from_bytes`]: crate::simulation::Scenario::from_bytes
pub(super) struct WorldHead<'a> {
    /// How long clients and faults come, seconds, from 2 to 40.
    pub(super) seconds: u8,
    /// Replicas, from 1 to 3.
    pub(super) replicas: u8,
    /// S3 and jobs are late: not, a little, much.
    pub(super) jitter: u8,
    /// Which kinds of faults exist.
    pub(super) kinds: &'a [FaultKind],
    /// How long it is calm between two actions: short, middling, long.
    pub(super) calm: u8,
}

/// This head, and then as many choices as `length` bytes make, drawn from `seed`.
pub(super) fn world_input(head: &WorldHead<'_>, seed: u64, length: usize) -> Vec<u8> {
    let mut input = vec![head.seconds - 2, head.replicas - 1];
    input.extend((0..head.replicas).map(|_| 0));
    // Brokers keep idle connections; the density of faults is such that a kind is there for a 0 and not for a 7.
    input.extend([1, head.jitter, head.jitter, 3]);
    input.extend(FaultKind::ALL.map(|kind| if head.kinds.contains(&kind) { 0 } else { 7 }));
    // Every fourth action is a fault; brokers are as usual.
    input.extend([head.calm, 0, 0]);
    let mut choices = Choices::from_seed(seed);
    input.extend((0..length).map(|_| choices.number() as u8));
    input
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fuzz::seeds;
    use crate::simulation::{Report, Scenario};

    #[test]
    fn a_head_is_what_it_says() {
        let kinds = [FaultKind::BrokerSilence, FaultKind::EmptySnapshots];
        let head = WorldHead { seconds: 20, replicas: 3, jitter: 2, kinds: &kinds, calm: 1 };
        let (scenario, _) = Scenario::from_bytes(&world_input(&head, 5, 400));
        assert_eq!((scenario.lasts, &scenario.skews_ms[..]), (Duration::from_secs(20), &[0, 0, 0][..]));
        let late = Duration::from_millis(900);
        assert_eq!((scenario.idle_close, scenario.s3_jitter, scenario.job_jitter), (None, late, late));
        assert_eq!(scenario.kinds, kinds);
        assert!(scenario.actions.len() > 10);
        assert!(scenario.actions.iter().all(|(at, _)| *at < scenario.lasts));
    }

    /// Otherwise a fuzzer would begin with worlds in which nobody asks for anything.
    #[test]
    fn something_happens_in_the_worlds_of_the_corpus() {
        let mut total = Report::default();
        for (_, name, content) in seeds().iter().filter(|seed| seed.0 == "world") {
            match run_bytes(content, false).result {
                Ok(report) => total.add(&report),
                Err(failure) => panic!("{name}: {failure:?}"),
            }
        }
        let (kafka, http) = (total.kafka, total.http);
        let learned = [kafka.acknowledged, kafka.refused, kafka.read, kafka.joined, kafka.others];
        assert!(learned.iter().all(|count| *count > 20), "{kafka:?}");
        let learned = [http.uploads, http.failed_uploads, http.downloads, http.ready, total.deletes];
        assert!(learned.iter().all(|count| *count > 3), "{http:?} {} deletes", total.deletes);
    }
}
