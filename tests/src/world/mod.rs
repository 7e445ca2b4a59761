//! Several machines and their partners in one thread and simulated time.

pub mod choices;
pub mod timeline;
