//! Kafka clients in the simulated world.

mod person;
mod walk;
