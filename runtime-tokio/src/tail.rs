//! `tail`: the records of a topic, read through a Kafka listener with the core's own codecs.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::kafka::{
    self, ErrorCode, FetchPartition, FetchRequest, FetchResponse, FetchTopic, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsTopic, Message, MetadataRequest, MetadataRequestTopic, Request, ResponseHeader, Splitter,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::{self, ProcessError};

/// Versions that every listener of the proxy speaks.
const METADATA: i16 = 4;
const LIST_OFFSETS: i16 = 1;
const FETCH: i16 = 11;
/// Largest answer.
const ANSWER_LIMIT: usize = 256 * 1024 * 1024;
const FETCH_BYTES: i32 = 16 * 1024 * 1024;
/// How long one fetch waits for records.
const WAIT: Duration = Duration::from_millis(500);

/// What to read.
#[derive(Clone, Debug)]
pub struct TailOptions {
    /// The topic.
    pub topic: String,
    /// `host:port` of the listener.
    pub bootstrap: String,
    /// Only records that are written from now on.
    pub from_end: bool,
    /// End after so many records.
    pub count: Option<u64>,
    /// In place of the records: the body that gets the last blob from `/lfs/download`.
    pub download_body: bool,
}

/// A failure of `tail`.
fn failed(what: &str, error: impl fmt::Display) -> ProcessError {
    ProcessError(format!("{what}: {error}"))
}

/// Reads and prints.
///
/// # Errors
/// The listener cannot be reached, does not know the topic, or the topic has no envelope (with `download_body`).
pub fn run(options: &TailOptions) -> Result<(), ProcessError> {
    process::block_on(async {
        let mut reader = Reader::connect(options).await?;
        if options.download_body { reader.download_body().await } else { reader.follow(options.count).await }
    })
}

struct Reader {
    stream: TcpStream,
    splitter: Splitter,
    correlation_id: i32,
    topic: String,
    /// Next offset by partition.
    offsets: BTreeMap<i32, i64>,
}

/// A record's time and value.
struct Read {
    timestamp: i64,
    value: Bytes,
}

impl Reader {
    async fn connect(options: &TailOptions) -> Result<Self, ProcessError> {
        let stream = TcpStream::connect(&options.bootstrap).await;
        let stream = stream.map_err(|error| failed(&options.bootstrap, error))?;
        let mut reader = Self {
            stream,
            splitter: Splitter::for_responses(ANSWER_LIMIT),
            correlation_id: 0,
            topic: options.topic.clone(),
            offsets: BTreeMap::new(),
        };
        let topic = MetadataRequestTopic { name: Some(options.topic.as_str().into()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
        let metadata = reader.ask(METADATA, &request).await?;
        let Some(topic) = metadata.topics.first() else {
            return Err(failed(&options.topic, "the listener says nothing of this topic"));
        };
        check(&options.topic, topic.error_code)?;
        let partitions = topic.partitions.iter().map(|partition| partition.partition_index);
        let timestamp = if options.from_end { -1 } else { -2 };
        reader.offsets = reader.list_offsets(partitions.collect(), timestamp).await?;
        Ok(reader)
    }

    async fn list_offsets(&mut self, partitions: Vec<i32>, timestamp: i64) -> Result<BTreeMap<i32, i64>, ProcessError> {
        let partitions = partitions
            .into_iter()
            .map(|partition_index| ListOffsetsPartition { partition_index, timestamp, ..Default::default() })
            .collect();
        let topics = vec![ListOffsetsTopic { name: self.topic.as_str().into(), partitions }];
        let answer = self.ask(LIST_OFFSETS, &ListOffsetsRequest { topics, ..Default::default() }).await?;
        let mut offsets = BTreeMap::new();
        for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            check(&self.topic, partition.error_code)?;
            offsets.insert(partition.partition_index, partition.offset);
        }
        Ok(offsets)
    }

    /// Prints values as they come, for ever or until `count` of them.
    async fn follow(&mut self, count: Option<u64>) -> Result<(), ProcessError> {
        let mut left = count;
        while left != Some(0) {
            for record in self.fetch().await? {
                if left == Some(0) {
                    break;
                }
                left = left.map(|left| left - 1);
                let mut line = record.value.to_vec();
                line.push(b'\n');
                // A closed pipe is the usual end of a `tail`.
                if std::io::stdout().write_all(&line).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads to the present end and prints what `/lfs/download` wants for the last envelope.
    async fn download_body(&mut self) -> Result<(), ProcessError> {
        let end = self.list_offsets(self.offsets.keys().copied().collect(), -1).await?;
        let mut last: Option<(i64, Value)> = None;
        while self.offsets.iter().any(|(partition, offset)| end.get(partition).is_some_and(|end| offset < end)) {
            for record in self.fetch().await? {
                let envelope = download_body_of(&record.value);
                if let Some(body) = envelope
                    && last.as_ref().is_none_or(|(timestamp, _)| *timestamp <= record.timestamp)
                {
                    last = Some((record.timestamp, body));
                }
            }
        }
        let (_, body) = last.ok_or_else(|| failed(&self.topic, "there is no envelope in this topic"))?;
        println!("{body}");
        Ok(())
    }

    async fn fetch(&mut self) -> Result<Vec<Read>, ProcessError> {
        let partitions = self
            .offsets
            .iter()
            .map(|(partition, offset)| FetchPartition {
                partition: *partition,
                fetch_offset: *offset,
                partition_max_bytes: FETCH_BYTES,
                ..Default::default()
            })
            .collect();
        let topic = FetchTopic { topic: self.topic.as_str().into(), partitions, ..Default::default() };
        let request = FetchRequest {
            max_wait_ms: i32::try_from(WAIT.as_millis()).unwrap_or(i32::MAX),
            min_bytes: 1,
            max_bytes: FETCH_BYTES,
            topics: vec![topic],
            ..Default::default()
        };
        let answer = self.ask(FETCH, &request).await?;
        self.take_in(&answer)
    }

    fn take_in(&mut self, answer: &FetchResponse) -> Result<Vec<Read>, ProcessError> {
        check(&self.topic, answer.error_code)?;
        let mut read = Vec::new();
        for partition in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            check(&self.topic, partition.error_code)?;
            let Some(next) = self.offsets.get_mut(&partition.partition_index) else { continue };
            for batch in kafka::batches(partition.records.as_ref().unwrap_or(&Bytes::new())) {
                // The last batch of an answer may be cut off: it comes again.
                let Ok(batch) = batch else { break };
                let first = *next;
                *next = batch.header.next_offset().max(first);
                match batch.records() {
                    Ok(records) => read.extend(records.into_iter().filter_map(|record| {
                        let offset = batch.header.base_offset + i64::from(record.offset_delta);
                        let timestamp = batch.header.base_timestamp + record.timestamp_delta;
                        let value = record.value.unwrap_or_default();
                        (offset >= first).then_some(Read { timestamp, value })
                    })),
                    Err(error) => eprintln!("a batch is left out ({error}): compressed batches cannot be shown"),
                }
            }
        }
        Ok(read)
    }

    async fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, ProcessError> {
        self.correlation_id += 1;
        let frame = kafka::request_frame(self.correlation_id, Some("kafscale-proxy-tail"), version, request);
        self.stream.write_all(&frame).await.map_err(|error| failed("the listener", error))?;
        loop {
            let frame = self.splitter.next_frame().map_err(|error| failed("the listener", error))?;
            if let Some(frame) = frame {
                let frame = frame.freeze();
                let (header, body) =
                    ResponseHeader::decode(&frame, R::KEY, version).map_err(|error| failed("an answer", error))?;
                if header.correlation_id != self.correlation_id {
                    return Err(failed("an answer", "it belongs to another request"));
                }
                return R::Response::decode(&frame.slice(body..), version).map_err(|error| failed("an answer", error));
            }
            let mut bytes = BytesMut::with_capacity(64 * 1024);
            let read = self.stream.read_buf(&mut bytes).await.map_err(|error| failed("the listener", error))?;
            if read == 0 {
                return Err(failed("the listener", "it closed the connection; it may not be ready yet"));
            }
            self.splitter.push(bytes);
        }
    }
}

fn check(topic: &str, error: ErrorCode) -> Result<(), ProcessError> {
    if error.is_none() {
        return Ok(());
    }
    Err(failed(topic, error.name().map_or_else(|| format!("error {}", error.0), str::to_owned)))
}

/// The body of a request to `/lfs/download`, if the value is an envelope.
fn download_body_of(value: &[u8]) -> Option<Value> {
    let envelope: Value = serde_json::from_slice(value).ok()?;
    envelope.get("kfs_lfs")?;
    Some(json!({
        "bucket": envelope.get("bucket")?,
        "key": envelope.get("key")?,
        "mode": "stream",
        "integrity": { "sha256": envelope.get("sha256")?, "checksum_alg": "sha256", "size": envelope.get("size")? },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_become_download_requests() {
        let envelope =
            br#"{"kfs_lfs":1,"bucket":"b","key":"default/t/lfs/x","size":5,"sha256":"2c","checksum_alg":"sha256"}"#;
        let body = download_body_of(envelope).unwrap();
        assert_eq!(body["bucket"], "b");
        assert_eq!(body["integrity"], json!({"sha256": "2c", "checksum_alg": "sha256", "size": 5}));
        for other in [&b"hello"[..], b"{}", b"{\"kfs_lfs\":1}", b"[1]", b""] {
            assert_eq!(download_body_of(other), None);
        }
    }
}
