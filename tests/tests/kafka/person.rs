//! A Kafka client that pipelines what it likes and checks every answer as it comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use kafscale_proxy_core::inputs::ClientId;
use kafscale_proxy_core::kafka::{
    ErrorCode, FetchPartition, FetchRequest, FetchResponse, FetchTopic, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, MetadataRequest, MetadataResponse, OffsetCommitRequest, OffsetCommitRequestPartition,
    OffsetCommitRequestTopic, OffsetCommitResponse, PartitionProduceData, ProduceRequest, ProduceResponse, Record,
    TopicProduceData, batches, build_batch,
};
use kafscale_proxy_tests::world::World;

pub(crate) const TOPIC: &str = "walk";
pub(crate) const PARTITIONS: i32 = 6;

/// A batch, as its value names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Batch {
    pub(crate) person: u64,
    pub(crate) partition: i32,
    pub(crate) number: u64,
}

impl Batch {
    fn value(self) -> Bytes {
        format!("{}/{}/{}", self.person, self.partition, self.number).into()
    }

    fn read(value: &[u8]) -> Self {
        let text = std::str::from_utf8(value).expect("values are text");
        let mut parts = text.split('/').map(|part| part.parse::<u64>().expect("a number"));
        let mut next = || parts.next().expect("three numbers");
        Self { person: next(), partition: next() as i32, number: next() }
    }
}

/// The batches in a record set, each with its offset.
pub(crate) fn read_batches(records: &Bytes) -> Vec<(i64, Batch)> {
    let mut found = Vec::new();
    for batch in batches(records) {
        let batch = batch.expect("whole batches");
        for record in batch.records().expect("plain records") {
            let value = record.value.as_ref().expect("every record has a value");
            found.push((batch.header.base_offset, Batch::read(value)));
        }
    }
    found
}

/// A request whose answer is awaited.
enum Asked {
    Produce { version: i16, batches: Vec<Batch> },
    Fetch { version: i16, partitions: Vec<i32> },
    Offsets { version: i16, partitions: Vec<i32> },
    Metadata,
    Join,
    Heartbeat,
    Commit,
}

/// One client, from its connection to its end.
pub(crate) struct Person {
    pub(crate) name: u64,
    pub(crate) id: ClientId,
    asked: VecDeque<Asked>,
    numbers: BTreeMap<i32, u64>,
    /// Where it goes on reading.
    positions: BTreeMap<i32, i64>,
    fetching: bool,
    /// Batches that were acknowledged, with the offset that it was told.
    pub(crate) acknowledged: Vec<(Batch, i64)>,
    /// Batches that nobody answers: the next may be with a new owner before the former one has looked at them.
    pub(crate) silent: BTreeSet<Batch>,
    /// What it has read, in order.
    pub(crate) read: BTreeMap<i32, Vec<Batch>>,
    pub(crate) answers: usize,
    /// Codes that it got for partitions that exist.
    pub(crate) codes: BTreeMap<i16, usize>,
}

impl Person {
    pub(crate) fn connect(world: &mut World, name: u64) -> Self {
        Self {
            name,
            id: world.connect(0),
            asked: VecDeque::new(),
            numbers: BTreeMap::new(),
            positions: BTreeMap::new(),
            fetching: false,
            acknowledged: Vec::new(),
            silent: BTreeSet::new(),
            read: BTreeMap::new(),
            answers: 0,
            codes: BTreeMap::new(),
        }
    }

    /// Requests that are not answered.
    pub(crate) fn awaits(&self) -> usize {
        self.asked.len()
    }

    pub(crate) fn is_gone(&self, world: &World) -> bool {
        world.client(self.id).is_closed()
    }

    pub(crate) fn produce(&mut self, world: &mut World, version: i16, acks: i16, partitions: &[i32]) {
        let mut batches = Vec::new();
        for partition in partitions {
            let number = self.numbers.entry(*partition).or_default();
            *number += 1;
            batches.push(Batch { person: self.name, partition: *partition, number: *number });
        }
        let data = batches.iter().map(|batch| {
            let record = Record { value: Some(batch.value()), ..Record::default() };
            PartitionProduceData { index: batch.partition, records: Some(build_batch(0, [record])) }
        });
        let topic_data = vec![TopicProduceData { name: TOPIC.into(), partition_data: data.collect() }];
        let request = ProduceRequest { acks, timeout_ms: 5_000, topic_data, ..ProduceRequest::default() };
        world.send(self.id, version, &request, acks != 0);
        if acks == 0 {
            self.silent.extend(batches);
        } else {
            self.asked.push_back(Asked::Produce { version, batches });
        }
    }

    /// At most one at a time: it goes on where the last one ended.
    pub(crate) fn fetch(&mut self, world: &mut World, version: i16, max_wait_ms: i32, partitions: &[i32]) {
        if std::mem::replace(&mut self.fetching, true) {
            return;
        }
        let asked = partitions.iter().map(|partition| FetchPartition {
            partition: *partition,
            fetch_offset: self.positions.get(partition).copied().unwrap_or(0),
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        });
        let topics = vec![FetchTopic { topic: TOPIC.into(), topic_id: [0; 16], partitions: asked.collect() }];
        let request = FetchRequest { max_wait_ms, min_bytes: 1, topics, ..FetchRequest::default() };
        world.send(self.id, version, &request, true);
        self.asked.push_back(Asked::Fetch { version, partitions: partitions.to_vec() });
    }

    pub(crate) fn list_offsets(&mut self, world: &mut World, version: i16, partitions: &[i32]) {
        let asked = partitions.iter().map(|partition| ListOffsetsPartition {
            partition_index: *partition,
            timestamp: if partition % 2 == 0 { -2 } else { -1 },
            ..ListOffsetsPartition::default()
        });
        let topics = vec![ListOffsetsTopic { name: TOPIC.into(), partitions: asked.collect() }];
        world.send(self.id, version, &ListOffsetsRequest { topics, ..ListOffsetsRequest::default() }, true);
        self.asked.push_back(Asked::Offsets { version, partitions: partitions.to_vec() });
    }

    pub(crate) fn metadata(&mut self, world: &mut World) {
        world.send(self.id, 12, &MetadataRequest::default(), true);
        self.asked.push_back(Asked::Metadata);
    }

    pub(crate) fn join(&mut self, world: &mut World, group: &str) {
        let request = JoinGroupRequest {
            group_id: group.into(),
            session_timeout_ms: 6_000,
            rebalance_timeout_ms: 3_000,
            protocol_type: "consumer".into(),
            ..JoinGroupRequest::default()
        };
        world.send(self.id, 4, &request, true);
        self.asked.push_back(Asked::Join);
    }

    pub(crate) fn heartbeat(&mut self, world: &mut World, group: &str) {
        let request = HeartbeatRequest { group_id: group.into(), ..HeartbeatRequest::default() };
        world.send(self.id, 4, &request, true);
        self.asked.push_back(Asked::Heartbeat);
    }

    pub(crate) fn commit(&mut self, world: &mut World, group: &str) {
        let partitions = vec![OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() }];
        let topics = vec![OffsetCommitRequestTopic { name: TOPIC.into(), partitions }];
        let request = OffsetCommitRequest { group_id: group.into(), topics, ..OffsetCommitRequest::default() };
        world.send(self.id, 3, &request, true);
        self.asked.push_back(Asked::Commit);
    }

    /// Takes the answers that have come.
    pub(crate) fn listen(&mut self, world: &mut World) {
        while let Some(asked) = self.asked.pop_front() {
            let id = self.id;
            let answered = match &asked {
                Asked::Produce { version, batches } => {
                    let answer = world.take_answer::<ProduceResponse>(id, *version);
                    answer.map(|answer| self.produced(batches, answer))
                }
                Asked::Fetch { version, partitions } => {
                    let answer = world.take_answer::<FetchResponse>(id, *version);
                    answer.map(|answer| self.fetched(partitions, answer))
                }
                Asked::Offsets { version, partitions } => {
                    let answer = world.take_answer::<ListOffsetsResponse>(id, *version);
                    answer.map(|answer| self.offsets(partitions, &answer))
                }
                Asked::Metadata => world.take_answer::<MetadataResponse>(id, 12).map(drop),
                Asked::Join => world.take_answer::<JoinGroupResponse>(id, 4).map(drop),
                Asked::Heartbeat => world.take_answer::<HeartbeatResponse>(id, 4).map(drop),
                Asked::Commit => world.take_answer::<OffsetCommitResponse>(id, 3).map(drop),
            };
            if answered.is_none() {
                return self.asked.push_front(asked);
            }
            self.answers += 1;
        }
    }

    fn code(&mut self, partition: i32, code: ErrorCode, allowed: &[i16]) {
        let exists = (0..PARTITIONS).contains(&partition);
        assert!(
            allowed.contains(&code.0) || (!exists && code.0 == 3),
            "person {} partition {partition}: {code:?}",
            self.name
        );
        if exists {
            *self.codes.entry(code.0).or_default() += 1;
        }
    }

    fn produced(&mut self, batches: &[Batch], answer: ProduceResponse) {
        let answers: Vec<_> = answer.responses.into_iter().flat_map(|topic| topic.partition_responses).collect();
        assert_eq!(answers.len(), batches.len(), "every partition is answered once");
        for (batch, answer) in batches.iter().zip(answers) {
            assert_eq!(answer.index, batch.partition, "in request order");
            // 7 and -1 are brokers' own, while etcd is away from them.
            self.code(batch.partition, answer.error_code, &[0, 6, 7, -1]);
            assert!(answer.error_code != ErrorCode::NONE || batch.partition < PARTITIONS, "nobody can have stored it");
            if answer.error_code == ErrorCode::NONE {
                self.acknowledged.push((*batch, answer.base_offset));
            }
        }
    }

    fn fetched(&mut self, partitions: &[i32], answer: FetchResponse) {
        self.fetching = false;
        if answer.error_code != ErrorCode::NONE {
            assert_eq!(answer.error_code.0, 7, "not ready");
            return;
        }
        let answers: Vec<_> = answer.responses.into_iter().flat_map(|topic| topic.partitions).collect();
        assert_eq!(answers.len(), partitions.len(), "every partition is answered once");
        for (partition, answer) in partitions.iter().zip(answers) {
            assert_eq!(answer.partition_index, *partition, "in request order");
            self.code(*partition, answer.error_code, &[0, 6]);
            let records = answer.records.expect("never null");
            for (offset, batch) in read_batches(&records) {
                let position = self.positions.entry(*partition).or_default();
                assert_eq!((offset, batch.partition), (*position, *partition), "it goes on where the last one ended");
                *position += 1;
                self.read.entry(*partition).or_default().push(batch);
            }
        }
    }

    fn offsets(&mut self, partitions: &[i32], answer: &ListOffsetsResponse) {
        let answers: Vec<_> = answer.topics.iter().flat_map(|topic| &topic.partitions).collect();
        assert_eq!(answers.len(), partitions.len(), "every partition is answered once");
        for (partition, answer) in partitions.iter().zip(answers) {
            assert_eq!(answer.partition_index, *partition, "in request order");
            self.code(*partition, answer.error_code, &[0, 6, 7, -1]);
        }
    }
}
