//! Parsing snapshots: small ones at once, large ones one after the other on a worker.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Decision;
use super::snapshot::{Snapshot, SnapshotError};
use crate::etcd::Revision;

/// Values up to this size are parsed inside the call, bytes: about a millisecond.
const INLINE: usize = 256 * 1024;

/// What a snapshot is parsed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ParseFor {
    /// The state of the cluster.
    State,
    /// The identity of a topic, whose config key was created at this revision.
    Generation { topic: String, config_create_revision: Revision },
}

struct Parse {
    value: Bytes,
    wanted: Vec<ParseFor>,
}

/// A parsed snapshot and what it was parsed for.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) result: Result<Snapshot, SnapshotError>,
    pub(super) wanted: Vec<ParseFor>,
}

/// Values that are being parsed or wait for it. Equal values are parsed, and held, once.
pub(super) struct Parses {
    queue: VecDeque<Parse>,
}

impl Parses {
    pub(super) const fn new() -> Self {
        Self { queue: VecDeque::new() }
    }

    /// Parses a small value at once; a large one is ordered, and [`Parses::on_parsed_elsewhere`] ends it.
    pub(super) fn parse(&mut self, value: Bytes, wanted: ParseFor, out: &mut Vec<Decision>) -> Option<Parsed> {
        if value.len() <= INLINE {
            return Some(Parsed { result: Snapshot::parse(&value), wanted: vec![wanted] });
        }
        if let Some(parse) = self.queue.iter_mut().find(|parse| parse.value == value) {
            parse.wanted.push(wanted);
            return None;
        }
        self.queue.push_back(Parse { value, wanted: vec![wanted] });
        if self.queue.len() == 1 {
            self.order_first(out);
        }
        None
    }

    /// The first value was parsed.
    pub(super) fn on_parsed_elsewhere(
        &mut self,
        result: Result<Snapshot, SnapshotError>,
        out: &mut Vec<Decision>,
    ) -> Option<Parsed> {
        let Parse { wanted, .. } = self.queue.pop_front()?;
        self.order_first(out);
        Some(Parsed { result, wanted })
    }

    fn order_first(&self, out: &mut Vec<Decision>) {
        if let Some(Parse { value, .. }) = self.queue.front() {
            out.push(Decision::ParseSnapshot(value.clone()));
        }
    }
}
