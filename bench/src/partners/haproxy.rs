//! HAProxy in TCP mode: it parses nothing and routes nothing, so it is the price of one more hop.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::Ports;
use super::process::{Process, server};
use crate::failure::{During, Failure};

/// A running HAProxy in front of one broker.
#[derive(Debug)]
pub(crate) struct HaProxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    process: Process,
    _folder: TempDir,
}

impl HaProxy {
    /// Starts it, with as many threads as it chooses itself: one for each core.
    pub(crate) fn start(ports: &mut Ports, broker: SocketAddr) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().during(|| "a temporary folder".into())?;
        let address = ports.address()?;
        let file = folder.path().join("haproxy.cfg");
        fs::write(&file, configuration(address, broker)).during(|| "HAProxy's configuration".into())?;
        let mut command = server(program())?;
        command.arg("-db").arg("-f").arg(&file);
        let process = Process::start("HAProxy", &mut command, &folder.path().join("log"))?;
        let mut haproxy = Self { address, process, _folder: folder };
        haproxy.process.wait_until(Duration::from_secs(10), || {
            TcpStream::connect(address).during(|| "connecting to HAProxy".into())
        })?;
        Ok(haproxy)
    }

    /// Its process id.
    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }
}

/// Debian puts it where only root's search path leads.
fn program() -> &'static str {
    const DEBIAN: &str = "/usr/sbin/haproxy";
    if Path::new(DEBIAN).exists() { DEBIAN } else { "haproxy" }
}

fn configuration(listen: SocketAddr, broker: SocketAddr) -> String {
    format!(
        "global\n  maxconn 2000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         listen kafka\n  bind {listen}\n  server broker {broker}\n"
    )
}
