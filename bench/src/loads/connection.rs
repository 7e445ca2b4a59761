//! One Kafka client: requests that are made once and sent again and again, and the answers to them.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::kafka::{
    FetchPartition, FetchRequest, FetchTopic, PartitionProduceData, ProduceRequest, TopicProduceData, request_frame,
};

use super::answers::Expected;
use crate::cluster::{PARTITIONS, TOPIC};
use crate::contestants::{FETCHED, batch};
use crate::failure::{During, Failure};
use crate::frames::{FrameReader, set_correlation_id};

/// An answer that takes longer will not come.
const SILENCE: Duration = Duration::from_secs(20);
/// The brokers never wait. Once it is over, though, a proxy may rightly answer for the partitions that it has, and on a
/// busy machine half a second is soon over: fewer bytes would then be no wrong answer.
const FETCH_WAIT_MS: i32 = 10_000;
/// Versions that every broker and every proxy speaks, and that can be read at a glance.
const PRODUCE_VERSION: i16 = 7;
const FETCH_VERSION: i16 = 11;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To append one batch of so many bytes to each partition.
    Produce(usize),
    /// [`FETCHED`] bytes of each partition.
    Fetch,
}

/// Which partitions a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// One; the next request the next one, so that every owner has its turn.
    Rotating,
    /// Always the same one.
    Only(i32),
    /// All of them, which belong to three owners.
    All,
}

/// A request frame and what its answer must hold.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    frame: Vec<u8>,
    partitions: Vec<i32>,
    ask: Ask,
}

impl Template {
    /// The requests of a client, to be sent in turns.
    pub(crate) fn all(ask: Ask, spread: Spread) -> Vec<Self> {
        match spread {
            Spread::Rotating => (0..PARTITIONS).map(|partition| Self::new(ask, vec![partition])).collect(),
            Spread::Only(partition) => vec![Self::new(ask, vec![partition])],
            Spread::All => vec![Self::new(ask, (0..PARTITIONS).collect())],
        }
    }

    fn new(ask: Ask, partitions: Vec<i32>) -> Self {
        let frame = match ask {
            Ask::Produce(bytes) => produce(&partitions, &batch(bytes)),
            Ask::Fetch => fetch(&partitions),
        };
        Self { frame: frame.into(), partitions, ask }
    }

    /// Payload that one request moves, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let each = match self.ask {
            Ask::Produce(bytes) => bytes,
            Ask::Fetch => FETCHED,
        };
        (each * self.partitions.len()) as u64
    }

    fn check(&self, correlation_id: i32, fetched: usize, answer: &[u8]) -> Result<(), Failure> {
        let expected = Expected { correlation_id, partitions: &self.partitions, records: 0 };
        match self.ask {
            Ask::Produce(_) => expected.check_produced(answer),
            Ask::Fetch => Expected { records: fetched, ..expected }.check_fetched(answer),
        }
    }
}

fn produce(partitions: &[i32], records: &Bytes) -> Bytes {
    let partition_data = partitions
        .iter()
        .map(|partition| PartitionProduceData { index: *partition, records: Some(records.clone()) })
        .collect();
    let request = ProduceRequest {
        acks: 1,
        timeout_ms: 15_000,
        topic_data: vec![TopicProduceData { name: TOPIC.into(), partition_data }],
        ..ProduceRequest::default()
    };
    request_frame(0, Some("bench"), PRODUCE_VERSION, &request)
}

fn fetch(partitions: &[i32]) -> Bytes {
    let partitions = partitions
        .iter()
        .map(|partition| FetchPartition {
            partition: *partition,
            partition_max_bytes: FETCHED as i32,
            ..FetchPartition::default()
        })
        .collect();
    let request = FetchRequest {
        max_wait_ms: FETCH_WAIT_MS,
        min_bytes: 1,
        max_bytes: 64 * 1024 * 1024,
        topics: vec![FetchTopic { topic: TOPIC.into(), partitions, ..FetchTopic::default() }],
        ..FetchRequest::default()
    };
    request_frame(0, Some("bench"), FETCH_VERSION, &request)
}

/// The half of a client that sends.
#[derive(Debug)]
pub(crate) struct Sender {
    stream: TcpStream,
    templates: Vec<Template>,
    next: i32,
}

impl Sender {
    /// Sends the next request.
    pub(crate) fn send(&mut self) -> Result<(), Failure> {
        let turn = self.next as usize % self.templates.len();
        let template = &mut self.templates[turn];
        set_correlation_id(&mut template.frame, self.next);
        self.next = self.next.wrapping_add(1);
        self.stream.write_all(&template.frame).during(|| "sending a request".into())
    }
}

/// The half of a client that reads answers, in the order of the requests.
#[derive(Debug)]
pub(crate) struct Receiver {
    stream: TcpStream,
    reader: FrameReader,
    templates: Vec<Template>,
    fetched: usize,
    next: i32,
}

impl Receiver {
    /// Waits for the next answer, looks at it, and tells its request's payload in bytes.
    pub(crate) fn receive(&mut self) -> Result<u64, Failure> {
        let what = || "waiting for an answer".to_owned();
        let answer = self.reader.next(&self.stream).during(what)?;
        let answer = answer.ok_or_else(|| Failure::new("closed instead of an answer"))?;
        let template = &self.templates[self.next as usize % self.templates.len()];
        template.check(self.next, self.fetched, answer)?;
        self.next = self.next.wrapping_add(1);
        Ok(template.bytes())
    }
}

/// Connects, and asks everything once, so that a proxy has dialled what it needs. `first` is the number of the template
/// that comes first: clients that all began with the same partition would march in step.
pub(crate) fn connect(
    address: SocketAddr,
    templates: &[Template],
    first: usize,
) -> Result<(Sender, Receiver), Failure> {
    let mut templates = templates.to_vec();
    let first = first % templates.len();
    templates.rotate_left(first);
    let stream = TcpStream::connect(address).during(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let reader = stream.try_clone()?;
    let mut sender = Sender { stream, templates: templates.clone(), next: 0 };
    let fetched = batch(FETCHED).len();
    let mut receiver = Receiver { stream: reader, reader: FrameReader::new(), templates, fetched, next: 0 };
    for _ in 0..sender.templates.len() {
        sender.send()?;
        receiver.receive()?;
    }
    Ok((sender, receiver))
}

#[cfg(test)]
mod tests {
    use kafscale_proxy_core::kafka::{Message, RequestHeader};

    use super::*;

    #[test]
    fn requests_are_what_they_say() {
        let [mut template] = Template::all(Ask::Produce(1024), Spread::All).try_into().expect("one request for all");
        set_correlation_id(&mut template.frame, 77);
        let frame = Bytes::from(template.frame.clone());
        let (header, body) = RequestHeader::decode(&frame).expect("a header");
        assert_eq!((header.correlation_id, header.api_version), (77, PRODUCE_VERSION));
        let request = ProduceRequest::decode(&frame.slice(body..), PRODUCE_VERSION).expect("a body");
        let indexes: Vec<i32> = request.topic_data[0].partition_data.iter().map(|data| data.index).collect();
        assert_eq!(indexes, template.partitions);
        assert_eq!(template.bytes(), 6 * 1024);

        let rotating = Template::all(Ask::Fetch, Spread::Rotating);
        let partitions: Vec<i32> = rotating.iter().flat_map(|template| template.partitions.clone()).collect();
        assert_eq!(partitions, [0, 1, 2, 3, 4, 5]);
        assert_eq!(rotating[0].bytes(), 64 * 1024);
    }
}
