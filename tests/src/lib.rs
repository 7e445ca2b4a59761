//! What the tests of kafscale-proxy share: the simulated world, and the harness for real peers.

pub mod world;
