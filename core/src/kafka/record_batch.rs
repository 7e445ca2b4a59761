//! Record batches of magic 2: walking, checking, taking apart and building.
//!
//! A record set is a sequence of batches. The CRC-32C of a batch covers everything from its attributes on, so that a
//! broker can set base offset and leader epoch in place.

use bytes::{BufMut, Bytes, BytesMut};
use nom::bytes::complete::take;
use nom::number::complete::{be_i8, be_i16, be_i32, be_i64, be_u32};
use nom::{IResult, Input, Parser};

use super::decode::{Cursor, DecodeError, Elements, Parsed, failure, prefix, whole};
use super::wire::{put_signed_varlong, signed_varint, signed_varlong};

/// Base offset and batch length, which the batch length does not count.
const LENGTH_AT: usize = 8;
const PREAMBLE: usize = 12;
const LEADER_EPOCH_AT: usize = 12;
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

/// Header of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Leader epoch in which the broker wrote it, -1 if not known.
    pub partition_leader_epoch: i32,
    /// CRC-32C as it stands in the batch.
    pub crc: u32,
    /// Compression and kind.
    pub attributes: Attributes,
    /// Offset of the last record, from the base offset.
    pub last_offset_delta: i32,
    /// Timestamp that the records count from, Unix milliseconds.
    pub base_timestamp: i64,
    /// Largest timestamp of the records, Unix milliseconds.
    pub max_timestamp: i64,
    /// Producer id, -1 if the producer is not idempotent.
    pub producer_id: i64,
    /// Epoch of the producer, -1 if it is not idempotent.
    pub producer_epoch: i16,
    /// Sequence number of the first record, -1 if the producer is not idempotent.
    pub base_sequence: i32,
    /// Number of records as announced.
    pub record_count: i32,
}

/// Header of a batch of a producer that is not idempotent, without compression and without records.
impl Default for BatchHeader {
    fn default() -> Self {
        Self {
            base_offset: 0,
            partition_leader_epoch: -1,
            crc: 0,
            attributes: Attributes::default(),
            last_offset_delta: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 0,
        }
    }
}

impl BatchHeader {
    /// Bytes of a header.
    pub const LEN: usize = 61;

    /// The offset after the last record.
    pub fn next_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta)).saturating_add(1)
    }

    fn write(&self, body_len: usize, out: &mut BytesMut) {
        let length = Self::LEN - PREAMBLE + body_len;
        out.put_i64(self.base_offset);
        out.put_i32(i32::try_from(length).expect("a batch fits into a frame below 2 GiB"));
        out.put_i32(self.partition_leader_epoch);
        out.put_i8(2);
        out.put_u32(self.crc);
        out.put_i16(self.attributes.0);
        out.put_i32(self.last_offset_delta);
        out.put_i64(self.base_timestamp);
        out.put_i64(self.max_timestamp);
        out.put_i64(self.producer_id);
        out.put_i16(self.producer_epoch);
        out.put_i32(self.base_sequence);
        out.put_i32(self.record_count);
    }
}

/// Attribute bits of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    /// How the records are compressed.
    pub fn compression(self) -> Compression {
        match self.0 & 7 {
            0 => Compression::None,
            1 => Compression::Gzip,
            2 => Compression::Snappy,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            unknown => Compression::Unknown(unknown as u8),
        }
    }

    /// The same attributes with the codec bits cleared.
    #[must_use]
    pub fn uncompressed(self) -> Self {
        Self(self.0 & !7)
    }

    /// Whether the broker's time stands in for the records' own.
    pub fn is_log_append_time(self) -> bool {
        self.0 & 1 << 3 != 0
    }

    /// Whether the batch is part of a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & 1 << 4 != 0
    }

    /// Whether the batch is a marker for consumers instead of data.
    pub fn is_control(self) -> bool {
        self.0 & 1 << 5 != 0
    }
}

/// Codec of the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// gzip.
    Gzip,
    /// Snappy, raw or in the framing of Java.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
    /// Codec bits without a meaning.
    Unknown(u8),
}

/// One batch, which shares the memory of its record set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordBatch {
    /// Its header.
    pub header: BatchHeader,
    bytes: Bytes,
}

impl RecordBatch {
    /// The whole batch.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The records, compressed as the attributes say.
    pub fn body(&self) -> Bytes {
        self.bytes.slice(BatchHeader::LEN..)
    }

    /// Whether the CRC-32C matches.
    pub fn check_crc(&self) -> Result<(), DecodeError> {
        if crc32c::crc32c(&self.bytes[CRC_FROM..]) == self.header.crc { Ok(()) } else { Err(DecodeError::Crc) }
    }

    /// The records of an uncompressed batch; see [`records`].
    pub fn records(&self) -> Result<Vec<Record>, DecodeError> {
        records(&self.body(), self.header.record_count)
    }
}

/// Walks the batches of a record set.
///
/// After an error there is nothing more. A Fetch answer may end in a batch that is cut off
/// ([`DecodeError::Truncated`]), which a consumer is to ignore; in a Produce request it is damage. Batches of magic 0
/// and 1 are [`DecodeError::Magic`].
pub fn batches(record_set: &Bytes) -> impl Iterator<Item = Result<RecordBatch, DecodeError>> {
    let mut rest = record_set.clone();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let batch = first_batch(&rest);
        match &batch {
            Ok(batch) => drop(rest.split_to(batch.bytes.len())),
            Err(_) => rest.clear(),
        }
        Some(batch)
    })
}

fn first_batch(record_set: &Bytes) -> Result<RecordBatch, DecodeError> {
    let total = batch_len(record_set)?;
    let bytes = record_set.slice(..total);
    let (_, header) = prefix(&bytes[..], batch_header)?;
    Ok(RecordBatch { header, bytes })
}

/// Length of the first batch of a record set, which is there to its end and of magic 2.
fn batch_len(record_set: &[u8]) -> Result<usize, DecodeError> {
    let (rest, (_, length, _, magic)) = prefix(record_set, |input| (be_i64, be_i32, be_i32, be_i8).parse(input))?;
    // Older formats have their magic at the same place, but other lengths.
    if magic != 2 {
        return Err(DecodeError::Magic(magic));
    }
    let length = usize::try_from(length).map_err(|_| DecodeError::Length)?;
    let read = record_set.len() - rest.len() - PREAMBLE;
    match length.checked_sub(read) {
        None => Err(DecodeError::Length),
        Some(_) if length < BatchHeader::LEN - PREAMBLE => Err(DecodeError::Length),
        Some(missing) if missing > rest.len() => Err(DecodeError::Truncated),
        Some(_) => Ok(PREAMBLE + length),
    }
}

fn batch_header(input: &[u8]) -> IResult<&[u8], BatchHeader, DecodeError> {
    let (rest, (base_offset, _, partition_leader_epoch, _, crc)) =
        (be_i64, be_i32, be_i32, be_i8, be_u32).parse(input)?;
    let (rest, (attributes, last_offset_delta, base_timestamp, max_timestamp)) =
        (be_i16.map(Attributes), be_i32, be_i64, be_i64).parse(rest)?;
    let (rest, (producer_id, producer_epoch, base_sequence, record_count)) =
        (be_i64, be_i16, be_i32, be_i32).parse(rest)?;
    let header = BatchHeader {
        base_offset,
        partition_leader_epoch,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    };
    Ok((rest, header))
}

/// One record. Null and empty are different things, of keys and of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Attribute bits, none of which has a meaning so far.
    pub attributes: i8,
    /// Timestamp, from the batch's base timestamp, milliseconds.
    pub timestamp_delta: i64,
    /// Offset, from the batch's base offset.
    pub offset_delta: i32,
    /// Key.
    pub key: Option<Bytes>,
    /// Value.
    pub value: Option<Bytes>,
    /// Headers, in order; names may repeat.
    pub headers: Vec<RecordHeader>,
}

/// One header of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordHeader {
    /// Name; UTF-8 by convention, not checked.
    pub name: Bytes,
    /// Value.
    pub value: Option<Bytes>,
}

/// Takes apart the uncompressed records of a batch.
///
/// [`DecodeError::Inconsistent`] unless there are exactly as many as announced and no byte is left.
pub fn records(body: &Bytes, announced: i32) -> Result<Vec<Record>, DecodeError> {
    let elements = Elements::new();
    let mut input = Cursor::new(body, &elements);
    // Grows with the records found: the announced number reserves nothing.
    let mut records = Vec::new();
    while input.input_len() > 0 {
        let (rest, record) = prefix(input, record)?;
        records.push(record);
        input = rest;
    }
    if usize::try_from(announced) == Ok(records.len()) { Ok(records) } else { Err(DecodeError::Inconsistent) }
}

fn record(input: Cursor<'_>) -> Parsed<'_, Record> {
    input.elements().take(1)?;
    let (rest, length) = signed_varint(input)?;
    let length = usize::try_from(length).map_err(|_| failure(DecodeError::Length))?;
    let (rest, content) = take(length)(rest)?;
    let record = whole(content, record_content).map_err(|error| {
        failure(if let DecodeError::Trailing(_) = error { DecodeError::Inconsistent } else { error })
    })?;
    Ok((rest, record))
}

fn record_content(input: Cursor<'_>) -> Parsed<'_, Record> {
    let (rest, (attributes, timestamp_delta, offset_delta, key, value)) =
        (be_i8, signed_varlong, signed_varint, nullable_bytes, nullable_bytes).parse(input)?;
    let (mut rest, count) = signed_varint(rest)?;
    rest.elements().take(usize::try_from(count).map_err(|_| failure(DecodeError::Length))?)?;
    let mut headers = Vec::new();
    for _ in 0..count {
        let (after, name) = nullable_bytes(rest)?;
        let (after, value) = nullable_bytes(after)?;
        headers.push(RecordHeader { name: name.ok_or_else(|| failure(DecodeError::Null))?, value });
        rest = after;
    }
    Ok((rest, Record { attributes, timestamp_delta, offset_delta, key, value, headers }))
}

fn nullable_bytes(input: Cursor<'_>) -> Parsed<'_, Option<Bytes>> {
    let (rest, length) = signed_varint(input)?;
    match length {
        -1 => Ok((rest, None)),
        0.. => take(length as usize).map(|bytes: Cursor<'_>| Some(bytes.to_bytes())).parse(rest),
        ..-1 => Err(failure(DecodeError::Length)),
    }
}

impl Record {
    /// Appends the record as it stands in an uncompressed batch.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut content = BytesMut::new();
        content.put_i8(self.attributes);
        put_signed_varlong(&mut content, self.timestamp_delta);
        put_signed_varlong(&mut content, i64::from(self.offset_delta));
        put_nullable_bytes(&mut content, self.key.as_deref());
        put_nullable_bytes(&mut content, self.value.as_deref());
        put_signed_varlong(&mut content, self.headers.len() as i64);
        for header in &self.headers {
            put_nullable_bytes(&mut content, Some(&header.name));
            put_nullable_bytes(&mut content, header.value.as_deref());
        }
        put_signed_varlong(out, content.len() as i64);
        out.extend_from_slice(&content);
    }
}

fn put_nullable_bytes(out: &mut BytesMut, bytes: Option<&[u8]>) {
    put_signed_varlong(out, bytes.map_or(-1, |bytes| bytes.len() as i64));
    out.put_slice(bytes.unwrap_or_default());
}

/// A batch of this header around `body`, which is compressed as the attributes say. Length and CRC-32C are computed,
/// everything else is taken as it is.
pub fn seal_batch(header: BatchHeader, body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(BatchHeader::LEN + body.len());
    header.write(body.len(), &mut out);
    out.put_slice(body);
    let crc = crc32c::crc32c(&out[CRC_FROM..]);
    out[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    out.freeze()
}

/// A new, uncompressed batch of a producer that is not idempotent. Offsets count from 0; timestamps of the records are
/// taken as deltas from `base_timestamp` (Unix milliseconds).
pub fn build_batch(base_timestamp: i64, records: impl IntoIterator<Item = Record>) -> Bytes {
    let mut body = BytesMut::new();
    let mut count = 0_i32;
    let mut max_timestamp = base_timestamp;
    for mut record in records {
        record.offset_delta = count;
        record.encode(&mut body);
        max_timestamp = max_timestamp.max(base_timestamp.saturating_add(record.timestamp_delta));
        count += 1;
    }
    let header = BatchHeader {
        last_offset_delta: (count - 1).max(0),
        base_timestamp,
        max_timestamp,
        record_count: count,
        ..BatchHeader::default()
    };
    seal_batch(header, &body)
}

/// Gives every batch of a record set its base offset, beginning with `first_offset`, and the leader epoch, as a broker
/// does when it appends. Returns the offset after the last record; after an error the record set is not to be used.
pub fn assign_offsets(record_set: &mut [u8], first_offset: i64, leader_epoch: i32) -> Result<i64, DecodeError> {
    let mut next = first_offset;
    let mut rest = record_set;
    while !rest.is_empty() {
        let total = batch_len(rest)?;
        let (batch, after) = rest.split_at_mut(total);
        batch[..LENGTH_AT].copy_from_slice(&next.to_be_bytes());
        batch[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4].copy_from_slice(&leader_epoch.to_be_bytes());
        let (_, header) = prefix(&*batch, batch_header)?;
        if header.last_offset_delta < 0 {
            return Err(DecodeError::Inconsistent);
        }
        next = header.next_offset();
        rest = after;
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use proptest::{collection, option};

    use super::*;

    fn record(key: Option<&'static str>, value: Option<&'static str>) -> Record {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        Record { key: key.map(bytes), value: value.map(bytes), ..Record::default() }
    }

    fn one(bytes: &Bytes) -> RecordBatch {
        let batches: Vec<_> = batches(bytes).collect();
        let [Ok(batch)] = &batches[..] else { panic!("not one batch: {batches:?}") };
        batch.clone()
    }

    /// Written down from the protocol guide; the CRC is that of the bytes behind it.
    #[test]
    fn the_layout_is_that_of_the_protocol() {
        let batch = build_batch(1000, [record(None, Some("v"))]);
        let mut expected = BytesMut::new();
        expected.put_i64(0);
        expected.put_i32(49 + 8);
        expected.put_i32(-1);
        expected.put_u8(2);
        let mut covered = BytesMut::new();
        covered.put_slice(&[0, 0]);
        covered.put_i32(0);
        covered.put_i64(1000);
        covered.put_i64(1000);
        covered.put_slice(&[0xff; 14]);
        covered.put_i32(1);
        covered.put_slice(&[14, 0, 0, 0, 1, 2, b'v', 0]);
        expected.put_u32(crc32c::crc32c(&covered));
        expected.put_slice(&covered);
        assert_eq!(batch, expected);
    }

    #[test]
    fn null_and_empty_stay_apart() {
        let sent = [record(None, None), record(Some(""), Some("")), record(Some("k"), None)];
        let batch = one(&build_batch(0, sent.clone()));
        let read = batch.records().unwrap();
        for (index, (sent, read)) in sent.into_iter().zip(read).enumerate() {
            assert_eq!(read, Record { offset_delta: index as i32, ..sent });
        }
    }

    #[test]
    fn the_last_timestamp_is_the_largest() {
        let at = |timestamp_delta| Record { timestamp_delta, ..record(None, None) };
        let batch = one(&build_batch(100, [at(5), at(-3), at(2)]));
        assert_eq!((batch.header.base_timestamp, batch.header.max_timestamp), (100, 105));
        assert_eq!(batch.header.next_offset(), 3);
    }

    #[test]
    fn a_flipped_bit_breaks_the_crc() {
        let good = build_batch(0, [record(Some("k"), Some("v"))]);
        assert_eq!(one(&good).check_crc(), Ok(()));
        for at in CRC_FROM..good.len() {
            let mut bad = BytesMut::from(&good[..]);
            bad[at] ^= 1;
            assert_eq!(one(&bad.freeze()).check_crc(), Err(DecodeError::Crc), "byte {at}");
        }
    }

    #[test]
    fn several_batches_are_walked_and_a_cut_one_is_reported() {
        let first = build_batch(0, [record(None, Some("a"))]);
        let second = build_batch(0, [record(None, Some("b")), record(None, Some("c"))]);
        let both = Bytes::from([&first[..], &second[..]].concat());
        let walked: Vec<_> = batches(&both).map(|batch| batch.unwrap().bytes().clone()).collect();
        assert_eq!(walked, [first.clone(), second.clone()]);
        for end in first.len() + 1..both.len() {
            let walked: Vec<_> = batches(&both.slice(..end)).collect();
            assert_eq!(walked[1..], [Err(DecodeError::Truncated)], "{end}");
        }
    }

    #[test]
    fn other_formats_and_absurd_lengths_are_refused() {
        let good = build_batch(0, [record(None, Some("a"))]);
        let patched = |at: usize, bytes: &[u8]| {
            let mut batch = BytesMut::from(&good[..]);
            batch[at..at + bytes.len()].copy_from_slice(bytes);
            batches(&batch.freeze()).next().unwrap().map(|_| ())
        };
        assert_eq!(patched(16, &[1]), Err(DecodeError::Magic(1)));
        assert_eq!(patched(8, &(-1_i32).to_be_bytes()), Err(DecodeError::Length));
        assert_eq!(patched(8, &0_i32.to_be_bytes()), Err(DecodeError::Length));
        assert_eq!(patched(8, &48_i32.to_be_bytes()), Err(DecodeError::Length));
        assert_eq!(patched(8, &i32::MAX.to_be_bytes()), Err(DecodeError::Truncated));
    }

    #[test]
    fn the_announced_count_has_to_be_true() {
        let body = one(&build_batch(0, [record(None, None), record(None, None)])).body();
        assert_eq!(records(&body, 2).unwrap().len(), 2);
        for announced in [-1, 0, 1, 3, i32::MAX] {
            assert_eq!(records(&body, announced), Err(DecodeError::Inconsistent));
        }
        // A record that says it is longer than its fields.
        assert_eq!(records(&Bytes::from_static(&[14, 0, 0, 0, 1, 1, 0, 9]), 1), Err(DecodeError::Inconsistent));
    }

    #[test]
    fn brokers_set_offsets_in_place() {
        let batch = |count| build_batch(0, vec![record(None, Some("x")); count]);
        let mut set = BytesMut::from(&[&batch(3)[..], &batch(1)[..]].concat()[..]);
        assert_eq!(assign_offsets(&mut set, 40, 7), Ok(44));
        let walked: Vec<_> = batches(&set.freeze()).map(Result::unwrap).collect();
        assert_eq!(walked[0].header.base_offset, 40);
        assert_eq!(walked[1].header.base_offset, 43);
        for batch in walked {
            assert_eq!(batch.header.partition_leader_epoch, 7);
            assert_eq!(batch.check_crc(), Ok(()));
        }
    }

    #[test]
    fn a_sealed_batch_keeps_its_header() {
        let header = BatchHeader {
            base_offset: 9,
            partition_leader_epoch: 3,
            attributes: Attributes(1 << 4 | 1 << 3 | 1),
            last_offset_delta: 4,
            producer_id: 77,
            producer_epoch: 2,
            base_sequence: 11,
            record_count: 5,
            ..BatchHeader::default()
        };
        let batch = one(&seal_batch(header, b"compressed"));
        assert_eq!(BatchHeader { crc: 0, ..batch.header }, header);
        assert_eq!(batch.check_crc(), Ok(()));
        assert_eq!(batch.body(), "compressed");
        assert_eq!(header.attributes.compression(), Compression::Gzip);
        assert_eq!(header.attributes.uncompressed().compression(), Compression::None);
        assert!(header.attributes.is_transactional() && header.attributes.is_log_append_time());
        assert!(!header.attributes.is_control());
    }

    proptest! {
        #[test]
        fn records_survive(
            fields in collection::vec(
                (any::<i8>(), any::<i64>(), option::of("[a-z]{0,9}"), option::of("[a-z]{0,200}"),
                    collection::vec(("[a-z]{0,5}", option::of("[a-z]{0,5}")), 0..3)),
                0..5,
            )
        ) {
            let records: Vec<_> = fields.into_iter().enumerate().map(|(index, (attributes, delta, key, value, headers))| {
                Record {
                    attributes,
                    timestamp_delta: delta,
                    offset_delta: index as i32,
                    key: key.map(Bytes::from),
                    value: value.map(Bytes::from),
                    headers: headers.into_iter().map(|(name, value)| {
                        RecordHeader { name: Bytes::from(name), value: value.map(Bytes::from) }
                    }).collect(),
                }
            }).collect();
            assert_eq!(one(&build_batch(0, records.clone())).records(), Ok(records));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in collection::vec(any::<u8>(), 0..200)) {
            let bytes = Bytes::from(bytes);
            for batch in batches(&bytes).flatten() {
                let _ = batch.records();
            }
            // Bytes that are no batch are hardly ever a batch by chance: the records are tried on their own, too.
            let found = records(&bytes, 1);
            assert!(found.is_err() || found.is_ok_and(|records| records.len() == 1));
            let _ = assign_offsets(&mut BytesMut::from(&bytes[..]), 0, 0);
        }
    }
}
