//! What the tests of kafscale-proxy share: the simulated world, and the harness for real peers.

#[cfg(feature = "peers")]
pub mod peers;
pub mod world;
