//! What the tests of kafscale-proxy share: the simulated world, whole simulations in it, the bodies of the fuzz targets, and
//! the harness for real peers.

#[cfg(feature = "peers")]
pub mod compatibility;
pub mod fuzz;
#[cfg(feature = "peers")]
pub mod peers;
pub mod simulation;
pub mod world;
