//! The records of a cluster: KafScale brokers keep their segments in S3, so the log belongs to all of them.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use crate::kafka::batches;

/// One stored segment: one produced record set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset after the last one.
    pub next_offset: i64,
    /// The record set, with its base offset set.
    pub records: Bytes,
}

/// The log of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionLog {
    segments: Vec<Segment>,
    high_watermark: i64,
}

impl PartitionLog {
    /// What is stored, oldest first.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Offset of the oldest record; 0 for an empty log.
    pub fn start_offset(&self) -> i64 {
        self.segments.first().map_or(0, |segment| segment.base_offset)
    }

    /// Offset after the newest record.
    pub fn end_offset(&self) -> i64 {
        self.segments.last().map_or(0, |segment| segment.next_offset)
    }

    /// Up to where brokers let consumers read: what etcd was told last.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// The segment with this offset, or the next one when the offset lies in a gap.
    pub(super) fn segment_at(&self, offset: i64) -> Option<&Segment> {
        let index = self.segments.partition_point(|segment| segment.next_offset <= offset);
        self.segments.get(index)
    }
}

/// All partitions of a cluster. Handed to every call of a broker; outlives brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedLog {
    partitions: BTreeMap<String, BTreeMap<i32, PartitionLog>>,
    version: u64,
}

impl SharedLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Grows whenever consumers may see more. After a call that changed it, call
    /// [`super::BrokerModel::handle_timeout`] on the other brokers of the cluster: their fetches may be waiting for it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The log of a partition that something was written to.
    pub fn partition(&self, topic: &str, partition: i32) -> Option<&PartitionLog> {
        self.partitions.get(topic)?.get(&partition)
    }

    /// Every partition that something was written to, by topic and index.
    pub fn partitions(&self) -> impl Iterator<Item = (&str, i32, &PartitionLog)> {
        self.partitions
            .iter()
            .flat_map(|(topic, logs)| logs.iter().map(move |(index, log)| (topic.as_str(), *index, log)))
    }

    /// Stores a record set behind the last one. Only the first batch header is looked at and given an offset, as brokers
    /// do: more than one batch in a record set is damaged by it. Returns the offset of the first record, or `None`
    /// when this is not a batch of magic 2.
    pub(super) fn append(&mut self, topic: &str, partition: i32, records: &Bytes) -> Option<i64> {
        let header = batches(records).next()?.ok()?.header;
        if header.last_offset_delta < 0 {
            return None;
        }
        let log = self.partition_mut(topic, partition);
        let base_offset = log.end_offset();
        let mut stored = BytesMut::from(&records[..]);
        stored[..8].copy_from_slice(&base_offset.to_be_bytes());
        let next_offset = base_offset + i64::from(header.last_offset_delta) + 1;
        log.segments.push(Segment { base_offset, next_offset, records: stored.freeze() });
        Some(base_offset)
    }

    /// Lets consumers read up to `high_watermark`; it never goes back.
    pub(super) fn advance(&mut self, topic: &str, partition: i32, high_watermark: i64) {
        let log = self.partition_mut(topic, partition);
        if log.high_watermark < high_watermark {
            log.high_watermark = high_watermark;
            self.version += 1;
        }
    }

    /// Deletes a topic. Its segments stay in S3 for ever in KafScale and come back when a topic of this name is written
    /// to again; here they are gone, so that a record of a deleted topic is not held against anybody.
    pub(super) fn delete_topic(&mut self, topic: &str) {
        self.partitions.remove(topic);
    }

    fn partition_mut(&mut self, topic: &str, partition: i32) -> &mut PartitionLog {
        if !self.partitions.contains_key(topic) {
            self.partitions.insert(topic.to_owned(), BTreeMap::new());
        }
        self.partitions.get_mut(topic).expect("it was inserted above").entry(partition).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::{Record, build_batch};

    fn batch(records: usize) -> Bytes {
        build_batch(0, std::iter::repeat_n(Record::default(), records))
    }

    #[test]
    fn offsets_go_on_from_segment_to_segment() {
        let mut log = SharedLog::new();
        for (records, base) in [(2, 0), (1, 2), (3, 3)] {
            assert_eq!(log.append("t", 0, &batch(records)), Some(base));
        }
        let partition = log.partition("t", 0).unwrap();
        assert_eq!((partition.start_offset(), partition.end_offset(), partition.high_watermark()), (0, 6, 0));
        for (offset, base) in [(0, Some(0)), (1, Some(0)), (2, Some(2)), (5, Some(3)), (6, None)] {
            assert_eq!(partition.segment_at(offset).map(|segment| segment.base_offset), base);
        }
        let stored = batches(&partition.segments()[1].records).next().unwrap().unwrap();
        assert_eq!(stored.header.base_offset, 2);
        assert_eq!(stored.check_crc(), Ok(()));
    }

    #[test]
    fn what_is_not_a_batch_of_magic_2_is_not_stored() {
        let mut log = SharedLog::new();
        let mut old = batch(1).to_vec();
        old[16] = 1;
        for records in [Bytes::new(), Bytes::from_static(&[0; 30]), old.into()] {
            assert_eq!(log.append("t", 0, &records), None);
        }
        assert_eq!(log.partitions().count(), 0);
    }

    #[test]
    fn the_watermark_and_the_version_only_grow() {
        let mut log = SharedLog::new();
        log.append("t", 0, &batch(5));
        for (watermark, seen, version) in [(3, 3, 1), (2, 3, 1), (5, 5, 2)] {
            log.advance("t", 0, watermark);
            assert_eq!((log.partition("t", 0).unwrap().high_watermark(), log.version()), (seen, version));
        }
        log.delete_topic("t");
        assert!(log.partition("t", 0).is_none());
    }
}
