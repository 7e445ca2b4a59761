//! Whether the size of the cluster makes a request dearer.

use std::time::Duration;

use crate::cluster::TOPIC;
use crate::contestants::{Contestant, Role, Stand, by_id};
use crate::failure::Failure;
use crate::figures::Runs;
use crate::loads::connection::{Ask, Spread};
use crate::loads::kafka::KafkaLoad;
use crate::options::Options;
use crate::partners::Ports;
use crate::partners::etcd::Etcd;
use crate::partners::proxy::Proxy;
use crate::process_usage::resident_mib;
use crate::table::{Table, count, figure};
use crate::verdict::Verdict;

/// Name of the load on the command line.
pub(crate) const NAME: &str = "partitions";

const COUNTS: [i32; 4] = [10, 1_000, 10_000, 100_000];
/// CPU time per request, as a multiple of that in the smallest cluster. Flat, but for noise.
const AIM: f64 = 1.1;

const LOAD: KafkaLoad = KafkaLoad {
    name: NAME,
    title: "produce 1 KiB to one partition, 8 × 4",
    ask: Ask::Produce(1024),
    spread: Spread::Only(0),
    connections: 8,
    in_flight: 4,
    aim: AIM,
};

/// A cluster of some size with a proxy in front of it.
struct Sized {
    partitions: i32,
    contestant: Contestant,
    runs: Runs,
    proxy: Proxy,
    _etcd: Etcd,
}

/// Measures it; the proxies of all sizes run side by side. `None` when it is not asked for.
pub(crate) fn measure(options: &Options, stand: &Stand, ports: &mut Ports) -> Result<Option<Table>, Failure> {
    if !options.wants(NAME) {
        return Ok(None);
    }
    let counts = if options.quick { &COUNTS[..2] } else { &COUNTS[..] };
    let mut all =
        counts.iter().map(|count| start(options, stand, ports, *count)).collect::<Result<Vec<Sized>, Failure>>()?;
    let length = Duration::from_secs_f64(options.seconds());
    for _ in 0..options.repetitions() {
        for sized in &mut all {
            sized.runs.push(LOAD.saturate(&sized.contestant, length)?);
        }
    }
    stand.check_routing()?;
    let mut table = Table::new([
        "partitions of the cluster",
        "req/s",
        "CPU µs per request",
        "of the smallest cluster's",
        "aim",
        "met",
        "p99 µs",
        "resident MiB",
    ]);
    let smallest = all[0].runs.cpu_micros_per_request();
    for sized in &all {
        let cost = sized.runs.cpu_micros_per_request();
        eprintln!("{NAME}: {} partitions: CPU µs per request: {}", sized.partitions, figure(cost));
        let ratio = cost.zip(smallest).map(|(cost, smallest)| cost / smallest);
        table.row([
            count(sized.partitions as usize),
            figure(sized.runs.requests_per_second()),
            figure(cost),
            figure(ratio),
            format!("≤ {AIM}"),
            Verdict::at_most(ratio, AIM).to_string(),
            figure(sized.runs.p99_micros()),
            figure(Some(resident_mib(sized.proxy.process())?)),
        ]);
    }
    Ok(Some(table))
}

fn start(options: &Options, stand: &Stand, ports: &mut Ports, partitions: i32) -> Result<Sized, Failure> {
    let etcd = Etcd::start(ports)?;
    etcd.write_cluster(&by_id(&stand.owners), TOPIC, partitions)?;
    let proxy = Proxy::start(&options.proxy, ports, etcd.address, stand.store.address)?;
    let contestant = Contestant {
        role: Role::Proxy,
        name: format!("kafscale-proxy with {partitions} partitions"),
        address: proxy.kafka,
        process: Some(proxy.process()),
    };
    Ok(Sized { partitions, contestant, runs: Runs::default(), proxy, _etcd: etcd })
}
