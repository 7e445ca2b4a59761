//! The machine of a shard.

use kafscale_proxy_core::{Config, DriverMisuse, Effects, Input, Now, Timeout};

use crate::shard::Machine;

/// Stands in until the real one is there.
struct Nothing;

impl Machine for Nothing {
    fn handle_input(&mut self, _: Now, _: Input, _: &mut Effects) -> Result<(), DriverMisuse> {
        Ok(())
    }

    fn handle_timeout(&mut self, _: Now, _: &mut Effects) {}

    fn poll_timeout(&self) -> Option<Timeout> {
        None
    }

    fn is_idle(&self) -> bool {
        true
    }
}

pub(crate) fn new(_: Config, _: [u8; 32]) -> impl Machine {
    Nothing
}
