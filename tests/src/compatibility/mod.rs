//! Whether Kafka clients work unchanged: every client library through the same cycle, its own idea of everything, in
//! front of brokers that speak exactly what KafScale's do. `tests/clients/run` runs it.
//!
//! The clients only tell what they did; what it is worth is judged here, for all of them alike.

mod cycle;
mod judge;
mod table;

pub use cycle::{Length, Row, Stage, check};
pub use table::{Cell, Column, render};
