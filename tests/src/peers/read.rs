//! A whole partition, record by record.

use bytes::Bytes;
use kafscale_proxy_core::kafka::{FetchPartition, FetchRequest, FetchTopic, batches};

use super::{Record, Wire};

/// Every record of a partition, fetched by hand from `host:port`.
///
/// # Panics
/// When it cannot be read from offset 0 to its end without a gap.
pub async fn read_all(address: &str, topic: &str, partition: i32) -> Vec<Record> {
    let mut wire = Wire::connect(address).await;
    let mut records = Vec::new();
    let mut offset = 0;
    loop {
        let wanted = FetchPartition {
            partition,
            fetch_offset: offset,
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        };
        let request = FetchRequest {
            max_bytes: 1 << 20,
            session_epoch: -1,
            topics: vec![FetchTopic { topic: topic.into(), partitions: vec![wanted], ..FetchTopic::default() }],
            ..FetchRequest::default()
        };
        let answer = wire.ask(11, &request).await;
        let data = &answer.responses[0].partitions[0];
        assert!(data.error_code.is_none(), "partition {partition}: {data:?}");
        let set = data.records.clone().unwrap_or_default();
        if set.is_empty() {
            assert_eq!(data.high_watermark, offset, "partition {partition}: the end was reached");
            return records;
        }
        for batch in batches(&set) {
            let batch = batch.expect("a whole batch");
            assert_eq!(batch.header.base_offset, offset, "partition {partition}: offsets go on without a gap");
            offset = batch.header.next_offset();
            for (record, at) in batch.records().expect("records").into_iter().zip(batch.header.base_offset..) {
                let text = |bytes: Option<Bytes>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
                records.push(Record { partition, offset: at, key: text(record.key), value: text(record.value) });
            }
        }
    }
}
