//! A broker that acknowledges what it gets and answers every fetch with the same records.

use std::io::{self, IoSlice, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut, Bytes};
use kafscale_proxy_core::kafka::{
    ApiKey, ApiVersion, ApiVersionsResponse, ErrorCode, FetchRequest, FetchResponse, FetchableTopicResponse, Message,
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic, PartitionData,
    PartitionProduceResponse, ProduceRequest, ProduceResponse, RequestHeader, TopicProduceResponse, response_frame,
};

use crate::cluster::{PARTITIONS, TOPIC, owner_of};
use crate::failure::{During, Failure};
use crate::frames::{Fields, FrameReader};

/// APIs and versions, as a KafScale broker has them where it matters here.
const SPOKEN: [(ApiKey, i16, i16); 4] =
    [(ApiKey::Produce, 3, 9), (ApiKey::Fetch, 11, 12), (ApiKey::Metadata, 0, 12), (ApiKey::ApiVersions, 0, 4)];

/// Which partitions a broker answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owns {
    /// All of them: what clients and proxies see that do not route.
    Everything,
    /// Those that this broker owns; the others are refused with NOT_LEADER_OR_FOLLOWER, as a real broker does.
    PartitionsOf(i32),
}

impl Owns {
    fn covers(self, partition: i32) -> bool {
        match self {
            Self::Everything => true,
            Self::PartitionsOf(broker) => owner_of(partition) == broker,
        }
    }
}

/// A running broker.
#[derive(Clone, Debug)]
pub(crate) struct BrokerSink {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    refused: Arc<AtomicU64>,
}

impl BrokerSink {
    /// Starts it. Metadata name `brokers`, by id; a fetch of a partition brings `records`.
    pub(crate) fn start(
        listener: TcpListener,
        owns: Owns,
        brokers: &[(i32, SocketAddr)],
        records: Bytes,
    ) -> Result<Self, Failure> {
        let address = listener.local_addr().during(|| "a broker's listener".into())?;
        let refused = Arc::new(AtomicU64::new(0));
        let broker = Broker { owns, brokers: brokers.into(), records, refused: Arc::clone(&refused) };
        super::serve(listener, move |stream| {
            // A client that goes away in the middle is noticed by the load that it belongs to.
            let _ = broker.serve(&stream);
        });
        Ok(Self { address, refused })
    }

    /// How many partitions it was asked for that it does not own.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct Broker {
    owns: Owns,
    brokers: Arc<[(i32, SocketAddr)]>,
    records: Bytes,
    refused: Arc<AtomicU64>,
}

/// What follows a request that was read.
enum Reply<'a> {
    /// These slices, as one frame.
    Frame(Vec<IoSlice<'a>>),
    /// Nothing: acks 0.
    Silence,
}

impl Broker {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = FrameReader::new();
        let mut heads = Vec::new();
        let mut written_by_codec;
        while let Some(frame) = reader.next(stream)? {
            heads.clear();
            let mut fields = Fields::of(frame);
            let header = (|| Some((fields.i16()?, fields.i16()?, fields.i32()?)))();
            let (key, version, correlation_id) = header.ok_or_else(too_short)?;
            let _client_id = fields.string();
            let reply = match (ApiKey::from_key(key), version) {
                (Some(ApiKey::Produce), 3..=8) => {
                    self.produced(fields, version, correlation_id, &mut heads).ok_or_else(too_short)?
                }
                (Some(ApiKey::Fetch), 11) => self.fetched(fields, correlation_id, &mut heads).ok_or_else(too_short)?,
                (Some(api), version) => {
                    written_by_codec = self.by_codec(api, version, frame)?;
                    Reply::Frame(vec![IoSlice::new(&written_by_codec)])
                }
                (None, _) => return Err(unspoken(key, version)),
            };
            if let Reply::Frame(mut slices) = reply {
                write_all(stream, &mut slices)?;
            }
        }
        Ok(())
    }

    fn error_of(&self, partition: i32) -> ErrorCode {
        if self.owns.covers(partition) {
            return ErrorCode::NONE;
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    }

    /// Produce 3 to 8, read and answered in one pass.
    fn produced<'a>(
        &self,
        mut request: Fields<'_>,
        version: i16,
        correlation_id: i32,
        out: &'a mut Vec<u8>,
    ) -> Option<Reply<'a>> {
        out.put_i32(0);
        out.put_i32(correlation_id);
        let _transactional_id = request.string()?;
        let acks = request.i16()?;
        let _timeout = request.i32()?;
        answer_partitions(&mut request, out, |request, out, partition| {
            request.long_bytes()?;
            out.put_i32(partition);
            out.put_i16(self.error_of(partition).0);
            out.put_i64(0);
            out.put_i64(-1);
            if version >= 5 {
                out.put_i64(0);
            }
            if version >= 8 {
                out.put_i32(0);
                out.put_i16(-1);
            }
            Some(())
        })?;
        out.put_i32(0);
        if acks == 0 {
            return Some(Reply::Silence);
        }
        set_length(out, 0);
        Some(Reply::Frame(vec![IoSlice::new(out)]))
    }

    /// Fetch 11, read and answered in one pass; the records are not copied.
    fn fetched<'a>(&'a self, mut request: Fields<'_>, correlation_id: i32, out: &'a mut Vec<u8>) -> Option<Reply<'a>> {
        out.put_i32(0);
        out.put_i32(correlation_id);
        // Throttle time, error code, session.
        out.put_slice(&[0; 10]);
        // Replica, wait, least and most bytes, isolation, session and its epoch.
        request.bytes(4 + 4 + 4 + 4 + 1 + 4 + 4)?;
        let mut cuts = Vec::with_capacity(8);
        answer_partitions(&mut request, out, |request, out, partition| {
            // Leader epoch, offset, log start, most bytes.
            request.bytes(4 + 8 + 8 + 4)?;
            let error = self.error_of(partition);
            out.put_i32(partition);
            out.put_i16(error.0);
            for offset in [1, 1, 0] {
                out.put_i64(offset);
            }
            out.put_i32(-1);
            out.put_i32(-1);
            if error.is_none() {
                out.put_i32(i32::try_from(self.records.len()).ok()?);
                cuts.push(out.len());
            } else {
                out.put_i32(0);
            }
            Some(())
        })?;
        set_length(out, cuts.len() * self.records.len());
        let mut slices = Vec::with_capacity(2 * cuts.len() + 1);
        let mut from = 0;
        for cut in cuts {
            slices.push(IoSlice::new(&out[from..cut]));
            slices.push(IoSlice::new(&self.records));
            from = cut;
        }
        slices.push(IoSlice::new(&out[from..]));
        Some(Reply::Frame(slices))
    }

    /// Whatever is not asked for in a loop.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the four that are spoken, of all there are")]
    fn by_codec(&self, api: ApiKey, version: i16, frame: &[u8]) -> io::Result<Bytes> {
        let spoken = SPOKEN.iter().any(|(key, low, high)| *key == api && (*low..=*high).contains(&version));
        if !spoken {
            return Err(unspoken(api.into(), version));
        }
        let mut whole = Vec::with_capacity(4 + frame.len());
        whole.put_i32(i32::try_from(frame.len()).map_err(io::Error::other)?);
        whole.put_slice(frame);
        let whole = Bytes::from(whole);
        let (header, body) = RequestHeader::decode(&whole).map_err(io::Error::other)?;
        let body = whole.slice(body..);
        let id = header.correlation_id;
        Ok(match api {
            ApiKey::Produce => {
                let request = ProduceRequest::decode(&body, version).map_err(io::Error::other)?;
                response_frame(id, version, &self.produce_response(request))
            }
            ApiKey::Fetch => {
                let request = FetchRequest::decode(&body, version).map_err(io::Error::other)?;
                response_frame(id, version, &self.fetch_response(request))
            }
            ApiKey::Metadata => response_frame(id, version, &self.metadata()),
            ApiKey::ApiVersions => response_frame(id, version, &api_versions()),
            _ => return Err(unspoken(api.into(), version)),
        })
    }

    fn produce_response(&self, request: ProduceRequest) -> ProduceResponse {
        let responses = request.topic_data.into_iter().map(|topic| TopicProduceResponse {
            name: topic.name,
            partition_responses: topic
                .partition_data
                .into_iter()
                .map(|data| PartitionProduceResponse {
                    index: data.index,
                    error_code: self.error_of(data.index),
                    ..PartitionProduceResponse::default()
                })
                .collect(),
        });
        ProduceResponse { responses: responses.collect(), ..ProduceResponse::default() }
    }

    fn fetch_response(&self, request: FetchRequest) -> FetchResponse {
        let responses = request.topics.into_iter().map(|topic| FetchableTopicResponse {
            topic: topic.topic,
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .into_iter()
                .map(|asked| {
                    let error_code = self.error_of(asked.partition);
                    let records = error_code.is_none().then(|| self.records.clone());
                    PartitionData {
                        partition_index: asked.partition,
                        error_code,
                        high_watermark: 1,
                        last_stable_offset: 1,
                        log_start_offset: 0,
                        records,
                        ..PartitionData::default()
                    }
                })
                .collect(),
        });
        FetchResponse { responses: responses.collect(), ..FetchResponse::default() }
    }

    fn metadata(&self) -> MetadataResponse {
        let brokers = self.brokers.iter().map(|(node_id, address)| MetadataResponseBroker {
            node_id: *node_id,
            host: address.ip().to_string().as_str().into(),
            port: address.port().into(),
            ..MetadataResponseBroker::default()
        });
        let partitions = (0..PARTITIONS).map(|partition| {
            let owner = owner_of(partition);
            // Where one broker owns everything, nobody else is named.
            let leader = self.brokers.iter().find(|(id, _)| *id == owner).unwrap_or(&self.brokers[0]).0;
            MetadataResponsePartition {
                partition_index: partition,
                leader_id: leader,
                replica_nodes: vec![leader],
                isr_nodes: vec![leader],
                ..MetadataResponsePartition::default()
            }
        });
        let topic = MetadataResponseTopic {
            name: Some(TOPIC.into()),
            partitions: partitions.collect(),
            ..MetadataResponseTopic::default()
        };
        MetadataResponse {
            brokers: brokers.collect(),
            cluster_id: Some("bench".into()),
            controller_id: self.brokers[0].0,
            topics: vec![topic],
            ..MetadataResponse::default()
        }
    }
}

fn api_versions() -> ApiVersionsResponse {
    let versions =
        SPOKEN.map(|(key, min_version, max_version)| ApiVersion { api_key: key.into(), min_version, max_version });
    ApiVersionsResponse { api_keys: versions.into(), ..ApiVersionsResponse::default() }
}

/// Reads topics and their partitions, and writes both with an answer to each partition, whose number was read.
fn answer_partitions<'f>(
    request: &mut Fields<'f>,
    out: &mut Vec<u8>,
    mut answer: impl FnMut(&mut Fields<'f>, &mut Vec<u8>, i32) -> Option<()>,
) -> Option<()> {
    let topics = request.i32()?;
    out.put_i32(topics);
    for _ in 0..topics {
        put_string(out, request.string()?);
        let partitions = request.i32()?;
        out.put_i32(partitions);
        for _ in 0..partitions {
            let partition = request.i32()?;
            answer(request, out, partition)?;
        }
    }
    Some(())
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.put_u16(text.len() as u16);
    out.put_slice(text);
}

/// Writes the length of a frame whose head is `out`, prefix included, and to which `more` bytes belong.
fn set_length(out: &mut [u8], more: usize) {
    let length = (out.len() - 4 + more) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
}

fn write_all(mut stream: &TcpStream, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        let written = stream.write_vectored(slices)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut slices, written);
    }
    Ok(())
}

fn too_short() -> io::Error {
    io::Error::other("a request that is too short")
}

fn unspoken(key: i16, version: i16) -> io::Error {
    let error = io::Error::other(format!("API {key} version {version} is not spoken here"));
    eprintln!("bench: a broker was asked for something else: {error}");
    error
}
