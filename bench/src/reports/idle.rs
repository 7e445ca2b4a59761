//! What many connections cost that do nothing.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::kafka::{ApiVersionsRequest, request_frame};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::contestants::Stand;
use crate::failure::{During, Failure};
use crate::figures::median;
use crate::frames::{Fields, FrameReader};
use crate::options::Options;
use crate::partners::Ports;
use crate::partners::proxy::Proxy;
use crate::process_usage::resident_mib;
use crate::table::{Table, count, figure};
use crate::verdict::Verdict;

/// Name of the load on the command line.
pub(crate) const NAME: &str = "idle";

const CONNECTIONS: usize = 10_000;
/// Resident memory of the whole process with all of them, MiB.
const AIM_MIB: f64 = 80.0;
/// Files beside the connections that this program has open.
const OTHER_FILES: u64 = 1000;

/// Measures it, each time with a proxy of its own, whose memory nothing else has touched. `None` when it is not asked for.
pub(crate) fn measure(options: &Options, stand: &Stand, ports: &mut Ports) -> Result<Option<Table>, Failure> {
    if !options.wants(NAME) {
        return Ok(None);
    }
    let clients = if options.quick { 100 } else { CONNECTIONS };
    allow_files(clients as u64 + OTHER_FILES)?;
    let settle = Duration::from_millis(if options.quick { 100 } else { 2000 });
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for _ in 0..options.repetitions() {
        let proxy = Proxy::start(&options.proxy, ports, stand.etcd, stand.store.address)?;
        thread::sleep(settle);
        before.push(resident_mib(proxy.process())?);
        let mut connections = (0..clients).map(|_| greet(proxy.kafka)).collect::<Result<Vec<_>, _>>()?;
        thread::sleep(settle);
        after.push(resident_mib(proxy.process())?);
        // Memory of connections that were closed would not count for much.
        connections.iter_mut().try_for_each(ask)?;
    }
    let (before, after) = (median(before), median(after));
    eprintln!("{NAME}: {} MiB with {clients} connections", figure(after));
    let mut table =
        Table::new(["idle connections", "MiB without", "MiB with", "KiB per connection", "aim, MiB with", "met"]);
    let each = after.zip(before).map(|(after, before)| (after - before) * 1024.0 / clients as f64);
    table.row([
        count(clients),
        figure(before),
        figure(after),
        figure(each),
        format!("≤ {AIM_MIB}"),
        Verdict::at_most(after, AIM_MIB).to_string(),
    ]);
    Ok(Some(table))
}

/// The soft limit is often far below the hard one.
fn allow_files(needed: u64) -> Result<(), Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Failure::new(format!("{needed} open files are needed: raise the hard limit, ulimit -Hn")));
    }
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(needed);
        setrlimit(Resource::Nofile, limit).during(|| "raising the limit of open files".into())?;
    }
    Ok(())
}

/// What every client does first.
fn hello() -> Bytes {
    request_frame(1, Some("bench"), 0, &ApiVersionsRequest::default())
}

fn greet(address: SocketAddr) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address).during(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    ask(&mut stream)?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream) -> Result<(), Failure> {
    stream.write_all(&hello()).during(|| "an idle connection".into())?;
    let mut reader = FrameReader::with_room_for(1024);
    let answer = reader.next(stream).during(|| "an idle connection".into())?;
    let mut fields = Fields::of(answer.ok_or_else(|| Failure::new("an idle connection was closed"))?);
    match (fields.i32(), fields.i16()) {
        (Some(1), Some(0)) => Ok(()),
        wrong => Err(Failure::new(format!("an idle connection was answered with {wrong:?}"))),
    }
}
