//! A record set of whoever: walking it, taking records out, sealing and giving offsets.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::records::RecordBatchDecoder;
use kafscale_proxy_core::kafka::{
    Compression, Record, RecordBatch, assign_offsets, batches, build_batch, records, seal_batch,
};

/// A record set.
pub fn record_batches(input: &[u8]) {
    let set = Bytes::copy_from_slice(input);
    let mut walked = Vec::new();
    let mut failed = false;
    for batch in batches(&set) {
        assert!(!failed, "nothing comes after an error");
        match batch {
            Ok(batch) => walked.push(batch),
            Err(_) => failed = true,
        }
    }
    let whole: Vec<u8> = walked.iter().flat_map(|batch| batch.bytes().to_vec()).collect();
    assert!(if failed { input.starts_with(&whole) } else { input == whole }, "batches lie one behind the other");
    walked.iter().for_each(check_batch);
    check_offsets(&set, &walked, failed);
}

fn check_batch(batch: &RecordBatch) {
    let sealed = seal_batch(batch.header, &batch.body());
    let again: Vec<_> = batches(&sealed).collect();
    let [Ok(again)] = &again[..] else { panic!("what was sealed is one batch: {again:?}") };
    assert_eq!(again.check_crc(), Ok(()));
    assert_eq!(again.body(), batch.body());
    if batch.check_crc() == Ok(()) {
        assert_eq!(&sealed, batch.bytes(), "sealing again changes nothing");
    }
    if batch.header.attributes.compression() == Compression::None
        && let Ok(found) = batch.records()
    {
        let mut body = BytesMut::new();
        found.iter().for_each(|record| record.encode(&mut body));
        assert_eq!(records(&body.freeze(), batch.header.record_count).as_ref(), Ok(&found));
        agree_with_an_independent_codec(found);
    }
}

/// The other codec trusts lengths, so it sees only a batch that was built here.
fn agree_with_an_independent_codec(mut found: Vec<Record>) {
    let names_are_text =
        |record: &Record| record.headers.iter().all(|header| std::str::from_utf8(&header.name).is_ok());
    let names_are_unique = |record: &Record| {
        let mut names: Vec<_> = record.headers.iter().map(|header| &header.name).collect();
        names.sort_unstable();
        names.windows(2).all(|pair| pair[0] != pair[1])
    };
    if found.is_empty() || !found.iter().all(|record| names_are_text(record) && names_are_unique(record)) {
        return;
    }
    for record in &mut found {
        record.attributes = 0;
        record.timestamp_delta %= 1 << 40;
    }
    let mut rest = build_batch(1_700_000_000_000, found.clone());
    let decoded = RecordBatchDecoder::decode(&mut rest).expect("theirs decodes ours");
    assert_eq!((rest.remaining(), decoded.records.len()), (0, found.len()));
    for ((offset, ours), theirs) in (0..).zip(&found).zip(&decoded.records) {
        assert_eq!((theirs.offset, theirs.timestamp), (offset, 1_700_000_000_000 + ours.timestamp_delta));
        assert_eq!((&theirs.key, &theirs.value), (&ours.key, &ours.value));
        let headers: Vec<_> = theirs.headers.iter().map(|(name, value)| (name.as_bytes(), value)).collect();
        let expected: Vec<_> = ours.headers.iter().map(|header| (&header.name[..], &header.value)).collect();
        assert_eq!(headers, expected);
    }
}

fn check_offsets(set: &Bytes, walked: &[RecordBatch], failed: bool) {
    let mut appended = set.to_vec();
    let ascends = walked.iter().all(|batch| batch.header.last_offset_delta >= 0);
    let Ok(next) = assign_offsets(&mut appended, 1_000, 7) else {
        assert!(failed || !ascends, "a record set of whole batches is appended");
        return;
    };
    assert!(!failed && ascends);
    let appended = Bytes::from(appended);
    let mut expected = 1_000;
    for (batch, before) in batches(&appended).zip(walked) {
        let batch = batch.expect("offsets change no length");
        assert_eq!((batch.header.base_offset, batch.header.partition_leader_epoch), (expected, 7));
        assert_eq!(batch.check_crc(), before.check_crc(), "the CRC does not cover what a broker fills in");
        expected = batch.header.next_offset();
    }
    assert_eq!(next, expected);
}
