//! Loads of HTTP uploads: through the proxy, and straight to the store.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::TOPIC;
use crate::failure::{During, Failure};
use crate::figures::Run;
use crate::http1::{Body, HttpClient};
use crate::process_usage::Meter;
use crate::sinks::store::{BUCKET, StoreSink};

/// One load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadLoad {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it is, for the table.
    pub(crate) title: &'static str,
    /// Size of one upload, bytes.
    pub(crate) bytes: u64,
    /// Clients.
    pub(crate) connections: usize,
    /// Uploads of each client, one after the other.
    pub(crate) each: usize,
    /// How late the store answers.
    pub(crate) delay: Duration,
    /// What the proxy should reach.
    pub(crate) aims: UploadAims,
}

/// What the proxy should reach under a load; `None` where nothing is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UploadAims {
    /// Throughput, as a share of that of raw PUTs.
    pub(crate) of_raw: Option<f64>,
    /// CPU time for a GiB, seconds.
    pub(crate) cpu_seconds_per_gib: Option<f64>,
    /// CPU time for an upload, microseconds.
    pub(crate) cpu_micros_each: Option<f64>,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const NEAR: Duration = Duration::ZERO;
const FAR: Duration = Duration::from_millis(30);
const NO_AIM: UploadAims = UploadAims { of_raw: None, cpu_seconds_per_gib: None, cpu_micros_each: None };

const fn load(
    (name, title): (&'static str, &'static str),
    bytes: u64,
    (connections, each): (usize, usize),
    delay: Duration,
    aims: UploadAims,
) -> UploadLoad {
    UploadLoad { name, title, bytes, connections, each, delay, aims }
}

const fn large(of_raw: f64) -> UploadAims {
    UploadAims { of_raw: Some(of_raw), cpu_seconds_per_gib: Some(1.5), ..NO_AIM }
}

const SMALL: UploadAims = UploadAims { cpu_micros_each: Some(500.0), ..NO_AIM };

/// All upload loads.
pub(crate) const UPLOAD_LOADS: [UploadLoad; 8] = [
    load(("upload-1g", "1 GiB, one at a time, store at 0 ms"), 1024 * MIB, (1, 1), NEAR, large(0.4)),
    load(("upload-64m", "16 × 64 MiB, 4 at once, 0 ms"), 64 * MIB, (4, 4), NEAR, NO_AIM),
    load(("upload-1m", "192 × 1 MiB, 8 at once, 0 ms"), MIB, (8, 24), NEAR, NO_AIM),
    load(("upload-16k", "1,600 × 16 KiB, 8 at once, 0 ms"), 16 * KIB, (8, 200), NEAR, SMALL),
    load(("upload-far-1g", "1 GiB, one at a time, store at 30 ms"), 1024 * MIB, (1, 1), FAR, large(0.35)),
    load(("upload-far-64m", "16 × 64 MiB, 4 at once, 30 ms"), 64 * MIB, (4, 4), FAR, NO_AIM),
    load(("upload-far-1m", "192 × 1 MiB, 8 at once, 30 ms"), MIB, (8, 24), FAR, NO_AIM),
    load(("upload-far-16k", "1,600 × 16 KiB, 8 at once, 30 ms"), 16 * KIB, (8, 200), FAR, SMALL),
];

/// Where uploads go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As PUT requests to the store.
    Raw,
    /// Through the HTTP API of a proxy: its address and its process.
    Proxy(SocketAddr, u32),
}

impl UploadLoad {
    /// The same with little to carry.
    pub(crate) fn shortened(self) -> Self {
        Self { bytes: self.bytes.min(32 * MIB), each: self.each.min(2), ..self }
    }

    /// Runs it once. Every object must be in the store, with all its bytes.
    pub(crate) fn run(&self, way: Way, store: &StoreSink) -> Result<Run, Failure> {
        store.set_delay(self.delay);
        let run = self.run_at_this_distance(way, store);
        store.set_delay(NEAR);
        run
    }

    fn run_at_this_distance(&self, way: Way, store: &StoreSink) -> Result<Run, Failure> {
        let (address, process) = match way {
            Way::Raw => (store.address, None),
            Way::Proxy(address, process) => (address, Some(process)),
        };
        let clients = (0..self.connections).map(|_| HttpClient::connect(address)).collect::<Result<Vec<_>, _>>()?;
        let block: Vec<u8> = (0..256 * KIB).map(|at| (at * 31 % 251) as u8).collect();
        let meter = process.map(Meter::start).transpose()?;
        let begun = Instant::now();
        let latencies = thread::scope(|scope| {
            let threads: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(number, client)| {
                    let block = &block;
                    scope.spawn(move || self.upload_all(way, client, number, block, store))
                })
                .collect();
            let all: Result<Vec<Vec<u32>>, Failure> =
                threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect();
            all
        });
        let took = begun.elapsed();
        let usage = meter.map(Meter::stop).transpose()?;
        let latencies: Vec<u32> = latencies?.into_iter().flatten().collect();
        let bytes = latencies.len() as u64 * self.bytes;
        Ok(Run::new(latencies, bytes, took, usage))
    }

    fn upload_all(
        &self,
        way: Way,
        mut client: HttpClient,
        number: usize,
        block: &[u8],
        store: &StoreSink,
    ) -> Result<Vec<u32>, Failure> {
        let mut latencies = Vec::with_capacity(self.each);
        for upload in 0..self.each {
            let begun = Instant::now();
            let body = Body::Repeated(block, self.bytes);
            let key = match way {
                Way::Raw => {
                    let key = format!("raw/{number}/{upload}");
                    client.ask("PUT", &format!("/{BUCKET}/{key}"), "", body)?;
                    key
                }
                Way::Proxy(..) => {
                    let answer = client.ask("POST", "/lfs/produce", &format!("X-Kafka-Topic: {TOPIC}\r\n"), body)?;
                    key_of(&answer)?
                }
            };
            latencies.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
            match store.take(&key) {
                Some(size) if size == self.bytes => {}
                stored => return Err(Failure::new(format!("{key}: stored {stored:?}, sent {}", self.bytes))),
            }
        }
        Ok(latencies)
    }
}

/// The object key in an envelope.
fn key_of(envelope: &[u8]) -> Result<String, Failure> {
    let envelope: Value = serde_json::from_slice(envelope).during(|| "the envelope".into())?;
    let key = envelope["key"].as_str().ok_or_else(|| Failure::new(format!("an envelope without a key: {envelope}")))?;
    Ok(key.to_owned())
}
