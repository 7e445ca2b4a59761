//! I5 and the second half of I4: what stands in the log is what clients sent, once, in their order, and what was
//! acknowledged stands there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use kafscale_proxy_core::inputs::{BrokerConnectionId, ClientId};
use kafscale_proxy_core::kafka::ErrorCode;
use kafscale_proxy_core::model::broker::SharedLog;

use super::deletes::key_in_envelope;

/// Brokers write the base offset of a batch, its first field, and nothing else.
const BASE_OFFSET_BYTES: usize = 8;

/// Names one batch that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId(usize);

/// What the client knows of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// On its way.
    Awaited,
    /// It got this code.
    Answered(ErrorCode),
    /// Nobody will ever tell: acks 0, or the connection has ended.
    Untold,
}

struct Batch {
    client: ClientId,
    topic: String,
    partition: i32,
    fate: Fate,
    /// Offset at which it stands.
    appended: Option<i64>,
    way: Way,
}

/// Where a batch was last written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// To no broker so far.
    Unsent,
    /// Along this connection, which stands.
    Sent(Carrier),
    /// Along a connection that has ended: its shard does not know whether a broker has it.
    Lost,
}

/// A connection of a shard to a broker.
type Carrier = (usize, BrokerConnectionId);

/// All batches that were sent, and how much of the log was looked at.
#[derive(Default)]
pub struct Order {
    batches: Vec<Batch>,
    by_content: HashMap<Bytes, BatchId>,
    looked_at: BTreeMap<(String, i32), usize>,
    /// The last batch of each client in each partition.
    last: BTreeMap<(ClientId, String, i32), BatchId>,
    envelopes: BTreeSet<String>,
}

impl Order {
    /// A client sends a batch. Its content must be unlike that of all others.
    ///
    /// # Panics
    ///
    /// When it is not.
    pub fn sent(&mut self, client: ClientId, topic: &str, partition: i32, records: &Bytes, answered: bool) -> BatchId {
        let id = BatchId(self.batches.len());
        let before = self.by_content.insert(records.slice(BASE_OFFSET_BYTES..), id);
        assert!(before.is_none(), "batches of the simulation differ");
        let fate = if answered { Fate::Awaited } else { Fate::Untold };
        let topic = topic.to_owned();
        self.batches.push(Batch { client, topic, partition, fate, appended: None, way: Way::Unsent });
        id
    }

    /// A client has learned what became of a batch; gives what is wrong with that.
    pub fn answered(&mut self, id: BatchId, code: ErrorCode, base_offset: i64) -> Option<String> {
        let batch = &mut self.batches[id.0];
        batch.fate = Fate::Answered(code);
        (code == ErrorCode::NONE && batch.appended != Some(base_offset))
            .then(|| format!("{id:?} was acknowledged at offset {base_offset} and stands at {:?}", batch.appended))
    }

    /// A client has ended: nobody learns what became of these.
    pub fn untold(&mut self, id: BatchId) {
        if self.batches[id.0].fate == Fate::Awaited {
            self.batches[id.0].fate = Fate::Untold;
        }
    }

    /// A connection took a batch.
    pub(super) fn written(&mut self, carrier: Carrier, records: &Bytes) {
        if records.len() > BASE_OFFSET_BYTES
            && let Some(id) = self.by_content.get(&records[BASE_OFFSET_BYTES..])
        {
            self.batches[id.0].way = Way::Sent(carrier);
        }
    }

    /// A shard learns that a connection has ended.
    pub(super) fn connection_ended(&mut self, carrier: Carrier) {
        let carried = self.batches.iter_mut().filter(|batch| batch.way == Way::Sent(carrier));
        carried.for_each(|batch| batch.way = Way::Lost);
    }

    /// How many batches stand in the log.
    pub fn appended_batches(&self) -> usize {
        self.batches.iter().filter(|batch| batch.appended.is_some()).count()
    }

    /// Whether a record refers to this object.
    pub fn has_envelope(&self, key: &str) -> bool {
        self.envelopes.contains(key)
    }

    /// Looks at what was added to the log.
    pub(super) fn look(&mut self, log: &SharedLog) -> Vec<String> {
        let mut faults = Vec::new();
        for (topic, partition, stored) in log.partitions() {
            let segments = stored.segments();
            if self.looked_at.get(&(topic.to_owned(), partition)).copied().unwrap_or_default() == segments.len() {
                continue;
            }
            let seen = self.looked_at.entry((topic.to_owned(), partition)).or_default();
            let from = std::mem::replace(seen, segments.len());
            for segment in &segments[from..] {
                match self.by_content.get(&segment.records[BASE_OFFSET_BYTES..]).copied() {
                    Some(id) => faults.extend(self.stands(id, topic, partition, segment.base_offset)),
                    None => match key_in_envelope(&segment.records) {
                        Some(key) => {
                            self.envelopes.insert(key);
                        }
                        None => faults.push(format!("{topic}/{partition} holds a batch that nobody sent")),
                    },
                }
            }
        }
        faults
    }

    fn stands(&mut self, id: BatchId, topic: &str, partition: i32, offset: i64) -> Option<String> {
        let batch = &mut self.batches[id.0];
        if (batch.topic.as_str(), batch.partition) != (topic, partition) {
            return Some(format!("{id:?} for {}/{} stands in {topic}/{partition}", batch.topic, batch.partition));
        }
        if let Some(before) = batch.appended.replace(offset) {
            return Some(format!("{id:?} stands in {topic}/{partition} twice, at {before} and {offset}"));
        }
        // A batch of which nobody knows may still arrive, for a slow broker does not look at the socket. Its client may
        // wait for the other partitions of the request still.
        let late = batch.fate != Fate::Awaited || batch.way == Way::Lost;
        let place = (batch.client, topic.to_owned(), partition);
        match self.last.get(&place).copied() {
            Some(last) if last > id && !late => {
                Some(format!("{id:?} stands in {topic}/{partition} behind the later {last:?} of {:?}", place.0))
            }
            Some(last) if last > id => None,
            Some(_) | None => {
                self.last.insert(place, id);
                None
            }
        }
    }
}
