//! What must hold whatever the partners do, judged from the models' own state and never from the code under test.

mod blobs;
mod deletes;

pub use blobs::{BlobFault, check_blobs, envelopes};
pub use deletes::Deletes;
