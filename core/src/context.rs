//! What every part of the machine is handed in a call: the time, the deadlines and the randomness.

use crate::config::Config;
use crate::input::{BrokerConnectionId, FileId};
use crate::random::Random;
use crate::time::Now;
use crate::timers::Timers;

/// Numbers that the machine draws for what it orders.
#[derive(Default)]
pub(crate) struct Ids {
    connections: u64,
    files: u64,
}

impl Ids {
    pub(crate) fn broker_connection(&mut self) -> BrokerConnectionId {
        self.connections += 1;
        BrokerConnectionId(self.connections)
    }

    pub(crate) fn file(&mut self) -> FileId {
        self.files += 1;
        FileId(self.files)
    }
}

/// Handed down by [`crate::Proxy`]; holds nothing of any part's state.
pub(crate) struct Context<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a Config,
    pub(crate) timers: &'a mut Timers,
    pub(crate) random: &'a mut Random,
    pub(crate) ids: &'a mut Ids,
}
