//! One module for each table: it runs its loads, contestant by contestant in each repetition, and reports.

pub(crate) mod idle;
pub(crate) mod kafka;
pub(crate) mod partitions;
pub(crate) mod uploads;
