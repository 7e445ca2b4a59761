//! Who is measured side by side: no proxy, HAProxy, the proxy of this project, and others that run already.

use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use kafscale_proxy_core::kafka::{Record, build_batch};

use crate::cluster::{OWNERS, PARTITIONS, TOPIC};
use crate::failure::Failure;
use crate::options::Other;
use crate::partners::Ports;
use crate::partners::etcd::Etcd;
use crate::partners::haproxy::HaProxy;
use crate::partners::proxy::Proxy;
use crate::sinks::broker::{BrokerSink, Owns};
use crate::sinks::store::StoreSink;

/// Which part a contestant plays in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing in the middle.
    Direct,
    /// The price of one more hop.
    HaProxy,
    /// What is measured.
    Proxy,
    /// What somebody wanted to see beside it.
    Other,
}

/// Somebody who answers Kafka requests.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    /// Its part.
    pub(crate) role: Role,
    /// Its name in tables.
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its process, where there is one whose cost is measured.
    pub(crate) process: Option<u32>,
}

/// Size of the record batch that a fetch of one partition brings, bytes.
pub(crate) const FETCHED: usize = 64 * 1024;

/// One record batch of `length` bytes or some few less.
pub(crate) fn batch(length: usize) -> Bytes {
    // Header of the batch and of its record.
    const HEADERS: usize = 80;
    let value: Vec<u8> = (0..length.saturating_sub(HEADERS)).map(|at| (at * 31 % 251) as u8).collect();
    build_batch(0, [Record { value: Some(value.into()), ..Record::default() }])
}

/// Everything that a run needs; it ends with this value.
#[derive(Debug)]
pub(crate) struct Stand {
    /// All contestants, in the order in which they take their turns.
    pub(crate) contestants: Vec<Contestant>,
    /// Brokers behind the proxies that route, by id.
    pub(crate) owners: Vec<BrokerSink>,
    /// The store behind the proxy.
    pub(crate) store: StoreSink,
    /// The proxy of this project.
    pub(crate) proxy: Proxy,
    _haproxy: HaProxy,
    /// etcd behind it.
    pub(crate) etcd: SocketAddr,
    _etcd: Etcd,
}

impl Stand {
    /// Starts it all.
    pub(crate) fn start(binary: &Path, ports: &mut Ports, others: &[Other]) -> Result<Self, Failure> {
        let records = batch(FETCHED);
        let alone = ports.listener()?;
        let alone = {
            let brokers = [(0, alone.local_addr()?)];
            BrokerSink::start(alone, Owns::Everything, &brokers, records.clone())?
        };
        let owners = start_owners(ports, &records)?;
        let store = StoreSink::start(ports.listener()?)?;
        let etcd = Etcd::start(ports)?;
        etcd.write_cluster(&by_id(&owners), TOPIC, PARTITIONS)?;
        let haproxy = HaProxy::start(ports, alone.address)?;
        let proxy = Proxy::start(binary, ports, etcd.address, store.address)?;
        let mut contestants = vec![
            Contestant { role: Role::Direct, name: "direct".into(), address: alone.address, process: None },
            Contestant {
                role: Role::HaProxy,
                name: "HAProxy".into(),
                address: haproxy.address,
                process: Some(haproxy.process()),
            },
            Contestant {
                role: Role::Proxy,
                name: "kafscale-proxy".into(),
                address: proxy.kafka,
                process: Some(proxy.process()),
            },
        ];
        contestants.extend(others.iter().map(|other| Contestant {
            role: Role::Other,
            name: other.name.clone(),
            address: other.address,
            process: other.process,
        }));
        eprintln!(
            "one broker that owns everything: {}; three that own two partitions each: {}; etcd: {}; store: {}",
            alone.address,
            owners.iter().map(|owner| owner.address.to_string()).collect::<Vec<_>>().join(" "),
            etcd.address,
            store.address
        );
        Ok(Self { contestants, owners, store, proxy, _haproxy: haproxy, etcd: etcd.address, _etcd: etcd })
    }

    /// Fails when a broker was asked for a partition of another one: the proxy knows the owners, so it must not.
    pub(crate) fn check_routing(&self) -> Result<(), Failure> {
        let refused: u64 = self.owners.iter().map(BrokerSink::refused).sum();
        if refused == 0 {
            return Ok(());
        }
        Err(Failure::new(format!("{refused} partitions were asked of brokers that do not own them")))
    }
}

/// Three brokers that own two partitions each.
pub(crate) fn start_owners(ports: &mut Ports, records: &Bytes) -> Result<Vec<BrokerSink>, Failure> {
    let listeners = (0..OWNERS).map(|_| ports.listener()).collect::<Result<Vec<_>, _>>()?;
    let addresses = listeners.iter().map(std::net::TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
    let brokers: Vec<(i32, SocketAddr)> = (0..).zip(addresses).collect();
    (0..)
        .zip(listeners)
        .map(|(id, listener)| BrokerSink::start(listener, Owns::PartitionsOf(id), &brokers, records.clone()))
        .collect()
}

/// The brokers with their ids.
pub(crate) fn by_id(owners: &[BrokerSink]) -> Vec<(i32, SocketAddr)> {
    (0..).zip(owners.iter().map(|owner| owner.address)).collect()
}
