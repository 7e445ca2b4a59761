//! Loads of Kafka requests: as many as get through, and as many as were decided on before.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::connection::{Ask, Receiver, Sender, Spread, Template, connect};
use crate::contestants::Contestant;
use crate::failure::Failure;
use crate::figures::Run;
use crate::process_usage::Meter;

/// One load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KafkaLoad {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it is, for the table.
    pub(crate) title: &'static str,
    /// What each request asks for.
    pub(crate) ask: Ask,
    /// Of which partitions.
    pub(crate) spread: Spread,
    /// Clients.
    pub(crate) connections: usize,
    /// Requests that each of them has in flight.
    pub(crate) in_flight: usize,
    /// Requests per second that the proxy should reach, as a share of what HAProxy reaches in front of one broker.
    pub(crate) aim: f64,
}

const KIB: usize = 1024;

const fn load(
    name: &'static str,
    title: &'static str,
    (ask, spread): (Ask, Spread),
    (connections, in_flight): (usize, usize),
    aim: f64,
) -> KafkaLoad {
    KafkaLoad { name, title, ask, spread, connections, in_flight, aim }
}

const SMALL: (Ask, Spread) = (Ask::Produce(KIB), Spread::Rotating);
const LARGE: (Ask, Spread) = (Ask::Produce(64 * KIB), Spread::Rotating);
const SPLIT: (Ask, Spread) = (Ask::Produce(KIB), Spread::All);
const FETCH: (Ask, Spread) = (Ask::Fetch, Spread::Rotating);
const FETCH_SPLIT: (Ask, Spread) = (Ask::Fetch, Spread::All);

/// All Kafka loads.
pub(crate) const KAFKA_LOADS: [KafkaLoad; 9] = [
    load("produce-1x1", "produce 1 KiB, 1 connection, 1 in flight", SMALL, (1, 1), 0.8),
    load("produce-1x16", "produce 1 KiB, 1 × 16", SMALL, (1, 16), 0.8),
    load("produce-64x1", "produce 1 KiB, 64 × 1", SMALL, (64, 1), 0.8),
    load("produce-64x4", "produce 1 KiB, 64 × 4", SMALL, (64, 4), 0.45),
    load("produce-64k-8x4", "produce 64 KiB, 8 × 4", LARGE, (8, 4), 1.0),
    load("produce-split-8x4", "produce 6 × 1 KiB on 3 owners, 8 × 4", SPLIT, (8, 4), 0.5),
    load("fetch-1x1", "fetch 64 KiB, 1 × 1", FETCH, (1, 1), 1.0),
    load("fetch-8x4", "fetch 64 KiB, 8 × 4", FETCH, (8, 4), 1.0),
    load("fetch-split-8x4", "fetch 6 × 64 KiB on 3 owners, 8 × 4", FETCH_SPLIT, (8, 4), 1.1),
];

impl KafkaLoad {
    /// Keeps all clients busy for so long.
    pub(crate) fn saturate(&self, contestant: &Contestant, length: Duration) -> Result<Run, Failure> {
        self.measure(contestant, |begun, (mut sender, mut receiver), _| {
            let (mut waiting, mut log) = (VecDeque::with_capacity(self.in_flight), Log::default());
            loop {
                while waiting.len() < self.in_flight && begun.elapsed() < length {
                    waiting.push_back(Instant::now());
                    sender.send()?;
                }
                let Some(sent) = waiting.pop_front() else { return Ok(log) };
                log.note(sent, receiver.receive()?);
            }
        })
    }

    /// Sends `rate` requests per second for so long, evenly spread, whether answers come or not. Latency counts from the
    /// moment at which a request was due, so that a proxy cannot hide a pause by holding the clients up.
    pub(crate) fn pace(&self, contestant: &Contestant, rate: f64, length: Duration) -> Result<Run, Failure> {
        let between_clients = Duration::from_secs_f64(1.0 / rate);
        let interval = between_clients * self.connections as u32;
        let requests = (length.as_secs_f64() / interval.as_secs_f64()).ceil() as u32;
        self.measure(contestant, |begun, (mut sender, mut receiver), client| {
            let due = |request: u32| begun + between_clients * client as u32 + interval * request;
            thread::scope(|scope| {
                let sending = scope.spawn(move || {
                    // The default of 50 µs is more than a request takes.
                    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
                    (0..requests).try_for_each(|request| {
                        thread::sleep(due(request).saturating_duration_since(Instant::now()));
                        sender.send()
                    })
                });
                let mut log = Log::default();
                for request in 0..requests {
                    let bytes = receiver.receive()?;
                    log.note(due(request), bytes);
                }
                sending.join().expect("sending does not panic").map(|()| log)
            })
        })
    }

    /// Runs all clients at once, each on a thread of its own, and looks at the contestant's process meanwhile. Every client
    /// connects on its own thread: with all of them greeted by one thread, 64 clients got a third fewer answers without a
    /// proxy, as if the peers that it woke had gathered on one processor.
    fn measure(
        &self,
        contestant: &Contestant,
        client: impl Fn(Instant, (Sender, Receiver), usize) -> Result<Log, Failure> + Sync,
    ) -> Result<Run, Failure> {
        let templates = Template::all(self.ask, self.spread);
        let together = Barrier::new(self.connections + 1);
        let begun = OnceLock::new();
        let (usage, took, logs) = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.connections)
                .map(|number| {
                    let (together, begun, client, templates) = (&together, &begun, &client, &templates);
                    scope.spawn(move || {
                        let connection = connect(contestant.address, templates, number);
                        // Whoever has failed must come too: the others wait for everybody.
                        together.wait();
                        client(*begun.get_or_init(Instant::now), connection?, number)
                    })
                })
                .collect();
            together.wait();
            let begun = *begun.get_or_init(Instant::now);
            let meter = contestant.process.map(Meter::start).transpose();
            let logs: Result<Vec<Log>, Failure> =
                threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect();
            let took = begun.elapsed();
            (meter.and_then(|meter| meter.map(Meter::stop).transpose()), took, logs)
        });
        let logs = logs.map_err(|failure| Failure::new(format!("{}: {failure}", contestant.name)))?;
        let bytes = logs.iter().map(|log| log.bytes).sum();
        Ok(Run::new(logs.into_iter().flat_map(|log| log.latencies).collect(), bytes, took, usage?))
    }
}

/// What one client has seen.
#[derive(Debug, Default)]
struct Log {
    latencies: Vec<u32>,
    bytes: u64,
}

impl Log {
    fn note(&mut self, since: Instant, bytes: u64) {
        self.latencies.push(u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX));
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::contestants::{FETCHED, Role, batch};
    use crate::sinks::broker::{BrokerSink, Owns};

    const SHORT: Duration = Duration::from_millis(20);

    fn broker(owns: Owns) -> (BrokerSink, Contestant) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
        let brokers = [(0, listener.local_addr().expect("it is bound"))];
        let sink = BrokerSink::start(listener, owns, &brokers, batch(FETCHED)).expect("it starts");
        let contestant = Contestant { role: Role::Direct, name: "direct".into(), address: sink.address, process: None };
        (sink, contestant)
    }

    #[test]
    fn a_broker_answers_every_load() {
        let (_, contestant) = broker(Owns::Everything);
        for load in KAFKA_LOADS {
            load.saturate(&contestant, SHORT).unwrap_or_else(|failure| panic!("{}: {failure}", load.name));
            load.pace(&contestant, 1000.0, SHORT).unwrap_or_else(|failure| panic!("{}: {failure}", load.name));
        }
    }

    #[test]
    fn a_paced_load_sends_as_many_requests_as_were_asked_for() {
        let (_, contestant) = broker(Owns::Everything);
        let mut runs = crate::figures::Runs::default();
        let length = Duration::from_millis(500);
        let run = KAFKA_LOADS[3].pace(&contestant, 1280.0, length).expect("right answers");
        assert_eq!(run.requests(), 640, "64 clients with 10 requests each");
        runs.push(run);
        // On a machine that is busy the answers take longer than half a second.
        let rate = runs.requests_per_second().expect("it ran");
        assert!(rate <= 1340.0, "{rate}");
        let bytes = runs.mib_per_second().expect("it ran") * 1024.0 / rate;
        assert!((bytes - 1.0).abs() < 1e-6, "{bytes} KiB for each request");
    }

    #[test]
    fn a_request_at_a_broker_that_is_not_the_owner_ends_the_load() {
        let (sink, contestant) = broker(Owns::PartitionsOf(1));
        let failure = KAFKA_LOADS[0].saturate(&contestant, SHORT).expect_err("partition 0 belongs to another broker");
        assert!(failure.to_string().contains("error 6 of partition 0"), "{failure}");
        assert_eq!(sink.refused(), 1);
    }
}
