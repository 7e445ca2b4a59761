//! I5 and I10: what stands in the log is what clients sent, once, in their order, and what was acknowledged stands there;
//! what was refused does not.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use kafscale_proxy_core::inputs::{BrokerConnectionId, ClientId};
use kafscale_proxy_core::kafka::ErrorCode;
use kafscale_proxy_core::model::broker::SharedLog;

use super::deletes::{key_in_envelope, proves_absence};

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

impl Batch {
    /// What is wrong with a batch that its client was told of as refused, if it is there.
    fn refused_and_there(&self) -> Option<String> {
        match (self.fate, self.appended) {
            (Fate::Answered(code), Some(offset)) if proves_absence(code) => {
                Some(format!("was refused with code {}, and stands in the log at {offset}", code.0))
            }
            (Fate::Answered(_) | Fate::Awaited | Fate::Untold, _) => None,
        }
    }
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
        if code == ErrorCode::NONE && batch.appended != Some(base_offset) {
            return Some(format!("{id:?} was acknowledged at offset {base_offset} and stands at {:?}", batch.appended));
        }
        batch.refused_and_there().map(|fault| format!("{id:?} {fault}"))
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

    /// Looks at what was added to the log. `wanted` knows the topic, and the partition if it is known, of the upload that made
    /// an object.
    pub(super) fn look(
        &mut self,
        log: &SharedLog,
        wanted: impl Fn(&str) -> Option<(String, Option<i32>)>,
    ) -> Vec<String> {
        let mut faults = Vec::new();
        for (topic, partition, stored) in log.partitions() {
            let segments = stored.segments();
            if self.looked_at.get(&(topic.to_owned(), partition)).copied().unwrap_or_default() == segments.len() {
                continue;
            }
            let seen = self.looked_at.entry((topic.to_owned(), partition)).or_default();
            let from = std::mem::replace(seen, segments.len());
            for segment in &segments[from..] {
                faults.extend(match self.by_content.get(&segment.records[BASE_OFFSET_BYTES..]).copied() {
                    Some(id) => self.stands(id, topic, partition, segment.base_offset),
                    None => match key_in_envelope(&segment.records) {
                        Some(key) => self.has_record(key.clone(), topic, partition, wanted(&key)),
                        None => Some(format!("{topic}/{partition} holds a batch that nobody sent")),
                    },
                });
            }
        }
        faults
    }

    /// A record that refers to an object stands in the log; gives what is wrong with that.
    fn has_record(
        &mut self,
        key: String,
        topic: &str,
        partition: i32,
        wanted: Option<(String, Option<i32>)>,
    ) -> Option<String> {
        if !self.envelopes.insert(key.clone()) {
            return Some(format!("the record of {key} stands twice, now in {topic}/{partition}"));
        }
        let (wanted_topic, wanted_partition) = wanted?;
        let elsewhere = wanted_topic != topic || wanted_partition.is_some_and(|index| index != partition);
        elsewhere.then(|| {
            format!("the record of {key} for {wanted_topic}/{wanted_partition:?} stands in {topic}/{partition}")
        })
    }

    fn stands(&mut self, id: BatchId, topic: &str, partition: i32, offset: i64) -> Option<String> {
        let batch = &mut self.batches[id.0];
        if (batch.topic.as_str(), batch.partition) != (topic, partition) {
            return Some(format!("{id:?} for {}/{} stands in {topic}/{partition}", batch.topic, batch.partition));
        }
        if let Some(before) = batch.appended.replace(offset) {
            return Some(format!("{id:?} stands in {topic}/{partition} twice, at {before} and {offset}"));
        }
        if let Some(fault) = batch.refused_and_there() {
            return Some(format!("{id:?} {fault}"));
        }
        let (fate, way) = (batch.fate, batch.way);
        let place = (batch.client, topic.to_owned(), partition);
        match self.last.get(&place).copied() {
            Some(last) if last > id => {
                // A batch of which nobody knows may still arrive, for a slow broker does not look at the socket. Its client
                // may wait for the other partitions of the request still. Along one connection nothing overtakes.
                let given_up = fate != Fate::Awaited && way != self.batches[last.0].way;
                (way != Way::Lost && !given_up)
                    .then(|| format!("{id:?} stands in {topic}/{partition} behind the later {last:?} of {:?}", place.0))
            }
            Some(_) | None => {
                self.last.insert(place, id);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(1);
    const CARRIERS: [Carrier; 2] = [(0, BrokerConnectionId(1)), (0, BrokerConnectionId(2))];
    const REFUSED: ErrorCode = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    const TIMED_OUT: ErrorCode = ErrorCode(7);

    fn records(number: u8) -> Bytes {
        Bytes::from([&[0; BASE_OFFSET_BYTES][..], &[number]].concat())
    }

    /// Two batches of one client, written to these connections.
    fn two(carriers: [Carrier; 2]) -> (Order, [BatchId; 2]) {
        let mut order = Order::default();
        let ids = [1, 2].map(|number| order.sent(CLIENT, "t", 0, &records(number), true));
        order.written(carriers[0], &records(1));
        order.written(carriers[1], &records(2));
        (order, ids)
    }

    #[test]
    fn what_excuses_a_batch_behind_a_later_one() {
        let [one, other] = CARRIERS;
        let (lost, answered) = (true, Some(TIMED_OUT));
        let cases = [
            ([one, other], false, None, false),
            ([one, one], false, None, false),
            ([one, other], false, answered, true),
            ([one, one], false, answered, false),
            ([one, other], lost, None, true),
            ([one, one], lost, answered, true),
        ];
        for (carriers, lost, answered, excused) in cases {
            let (mut order, [first, second]) = two(carriers);
            assert_eq!(order.stands(second, "t", 0, 0), None);
            if let Some(code) = answered {
                assert_eq!(order.answered(first, code, -1), None);
            }
            if lost {
                order.connection_ended(carriers[0]);
            }
            let fault = order.stands(first, "t", 0, 1);
            assert_eq!(fault.is_none(), excused, "{carriers:?} {lost} {answered:?}: {fault:?}");
        }
    }

    #[test]
    fn a_batch_that_was_refused_is_not_in_the_log() {
        for (code, is_fault) in [(REFUSED, true), (ErrorCode(5), true), (ErrorCode(75), true), (TIMED_OUT, false)] {
            let (mut order, [first, second]) = two(CARRIERS);
            assert_eq!(order.stands(first, "t", 0, 0), None);
            assert_eq!(order.answered(first, code, -1).is_some(), is_fault, "{code:?} for what stands there");
            assert_eq!(order.answered(second, code, -1), None);
            assert_eq!(order.stands(second, "t", 0, 1).is_some(), is_fault, "{code:?}, and then it stands there");
        }
    }

    #[test]
    fn a_record_of_an_object_stands_once_and_where_it_was_wanted() {
        let mut order = Order::default();
        let wanted = |topic: &str, partition| Some((topic.to_owned(), partition));
        assert_eq!(order.has_record("a".into(), "t", 1, wanted("t", Some(1))), None);
        assert_eq!(order.has_record("b".into(), "t", 1, wanted("t", None)), None);
        assert_eq!(order.has_record("c".into(), "t", 1, None), None);
        assert!(order.has_record("a".into(), "t", 1, wanted("t", Some(1))).is_some(), "twice");
        assert!(order.has_record("d".into(), "t", 1, wanted("t", Some(2))).is_some(), "another partition");
        assert!(order.has_record("e".into(), "u", 1, wanted("t", None)).is_some(), "another topic");
    }
}
