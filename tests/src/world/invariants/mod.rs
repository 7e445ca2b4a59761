//! What must hold whatever the partners do, judged from the models' own state and never from the code under test.

mod blobs;
mod deletes;
mod leftovers;
mod routing;

pub use blobs::{BlobFault, Envelope, check_blobs, envelopes};
pub use deletes::Deletes;
pub use leftovers::leftovers;
pub use routing::Routing;
