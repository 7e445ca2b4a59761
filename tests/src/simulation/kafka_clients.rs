//! Kafka clients of a simulation: they pipeline, and hold every answer against what they asked and what the log holds.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use bytes::{BufMut, Bytes, BytesMut};
use kafscale_proxy_core::Monotonic;
use kafscale_proxy_core::inputs::ClientId;
use kafscale_proxy_core::kafka::{
    CreatableTopic, CreateTopicsRequest, CreateTopicsResponse, ErrorCode, FetchPartition, FetchRequest, FetchResponse,
    FetchTopic, FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    InitProducerIdRequest, InitProducerIdResponse, JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse,
    LeaveGroupRequest, LeaveGroupResponse, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, MemberIdentity, MetadataRequest, MetadataResponse, OffsetCommitRequest,
    OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchRequestTopic, OffsetFetchResponse, PartitionProduceData, ProduceRequest, ProduceResponse, Record,
    Request, Str, SyncGroupRequest, SyncGroupResponse, TopicProduceData, batches, build_batch,
};

use super::scenario::{Ask, TOPICS};
use crate::world::World;
use crate::world::invariants::BatchId;

/// What makes a request need room for large ones, bytes.
const LARGE: usize = 70_000;

const GROUP: &str = "readers";
/// A group whose coordinator is looked for beside that of [`GROUP`], where a version asks for several.
const OTHER_GROUP: &str = "writers";

/// Ids of topics, by name.
type TopicIds = BTreeMap<String, [u8; 16]>;

/// Never created, only validated.
const DRY_RUN: &str = "dry-run";

/// What was asked and is not answered yet.
enum Asked {
    Produce {
        batches: Vec<(String, i32, BatchId)>,
    },
    /// Ids as they were then: answers name topics by them from version 13 on.
    Fetch {
        partitions: Vec<(String, i32)>,
        ids: TopicIds,
    },
    ListOffsets {
        partitions: Vec<(String, i32)>,
    },
    Metadata,
    FindCoordinator,
    ProducerId,
    JoinGroup,
    SyncGroup,
    Heartbeat,
    OffsetCommit,
    OffsetFetch,
    LeaveGroup,
    DryRun,
}

/// One client.
pub(super) struct KafkaActor {
    pub(super) id: ClientId,
    /// With the version that it was asked in.
    asked: VecDeque<(i16, Asked)>,
    /// How often it has asked: no two batches of it are equal.
    requests: u64,
    member_id: Str,
    generation_id: i32,
    /// As Metadata told them last, or as they were when it connected.
    topic_ids: TopicIds,
    ended: bool,
}

/// What clients learned, to see that a simulation is worth something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Partitions that were acknowledged.
    pub acknowledged: u64,
    /// Partitions that were refused.
    pub refused: u64,
    /// Partitions that were read.
    pub read: u64,
    /// Error codes in answers to Fetch and Metadata.
    pub errors: u64,
    /// Groups that were joined.
    pub joined: u64,
    /// Other answers.
    pub others: u64,
}

/// The partitions whose bits are set, by topic.
fn partitions(bits: u64) -> Vec<(&'static str, Vec<i32>)> {
    let mut bit = 0;
    let mut chosen = Vec::new();
    for (topic, count) in TOPICS {
        let indexes: Vec<i32> = (0..count).filter(|index| bits & 1 << (bit + index) != 0).collect();
        bit += count;
        if !indexes.is_empty() {
            chosen.push((topic, indexes));
        }
    }
    chosen
}

fn flat(chosen: &[(&'static str, Vec<i32>)]) -> Vec<(String, i32)> {
    chosen.iter().flat_map(|(topic, indexes)| indexes.iter().map(|index| ((*topic).to_owned(), *index))).collect()
}

impl KafkaActor {
    pub(super) fn connect(world: &mut World, shard: usize) -> Self {
        let id = world.connect(shard);
        Self {
            id,
            asked: VecDeque::new(),
            requests: 0,
            member_id: Str::default(),
            generation_id: -1,
            topic_ids: world.topic_ids(),
            ended: false,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn ask(&mut self, world: &mut World, ask: Ask) {
        self.requests += 1;
        let group_id = Str::from_static(GROUP);
        let (member_id, generation_id) = (self.member_id.clone(), self.generation_id);
        match ask {
            Ask::Large { partition } => self.produce(world, -1, 1 << partition, LARGE),
            Ask::Produce { acks, partitions } => self.produce(world, acks, partitions, 0),
            Ask::Fetch { partitions, max_wait_ms } => self.fetch(world, partitions, max_wait_ms),
            Ask::ListOffsets { partitions: bits } => {
                let chosen = partitions(bits);
                let topics = chosen.iter().map(|(topic, indexes)| ListOffsetsTopic {
                    name: Str::from_static(topic),
                    partitions: indexes
                        .iter()
                        .map(|index| ListOffsetsPartition {
                            partition_index: *index,
                            timestamp: -1,
                            ..ListOffsetsPartition::default()
                        })
                        .collect(),
                });
                let request = ListOffsetsRequest { topics: topics.collect(), ..ListOffsetsRequest::default() };
                self.send(world, 1..=4, &request, Asked::ListOffsets { partitions: flat(&chosen) });
            }
            Ask::Metadata => {
                let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
                self.send(world, 1..=12, &request, Asked::Metadata);
            }
            Ask::FindCoordinator => {
                // Each version takes what it knows.
                let coordinator_keys = vec![group_id.clone(), Str::from_static(OTHER_GROUP)];
                let request =
                    FindCoordinatorRequest { key: group_id, coordinator_keys, ..FindCoordinatorRequest::default() };
                self.send(world, 0..=4, &request, Asked::FindCoordinator);
            }
            Ask::ProducerId => {
                self.send(world, 0..=4, &InitProducerIdRequest::default(), Asked::ProducerId);
            }
            Ask::JoinGroup => {
                let metadata = subscription(&format!("client {} request {}", self.id.0, self.requests));
                let protocol = JoinGroupRequestProtocol { name: Str::from_static("range"), metadata };
                let request = JoinGroupRequest {
                    group_id,
                    session_timeout_ms: 10_000,
                    rebalance_timeout_ms: 6_000,
                    member_id,
                    protocol_type: Str::from_static("consumer"),
                    protocols: vec![protocol],
                    ..JoinGroupRequest::default()
                };
                self.send(world, 1..=9, &request, Asked::JoinGroup);
            }
            Ask::SyncGroup => {
                let request = SyncGroupRequest { group_id, generation_id, member_id, ..SyncGroupRequest::default() };
                self.send(world, 0..=4, &request, Asked::SyncGroup);
            }
            Ask::Heartbeat => {
                let request = HeartbeatRequest { group_id, generation_id, member_id, ..HeartbeatRequest::default() };
                self.send(world, 0..=4, &request, Asked::Heartbeat);
            }
            Ask::OffsetCommit => {
                let partition = OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() };
                let topic =
                    OffsetCommitRequestTopic { name: Str::from_static(TOPICS[0].0), partitions: vec![partition] };
                let request = OffsetCommitRequest {
                    group_id,
                    generation_id,
                    member_id,
                    topics: vec![topic],
                    ..OffsetCommitRequest::default()
                };
                self.send(world, 2..=8, &request, Asked::OffsetCommit);
            }
            Ask::OffsetFetch => {
                let topic =
                    OffsetFetchRequestTopic { name: Str::from_static(TOPICS[0].0), partition_indexes: vec![0, 1] };
                let request =
                    OffsetFetchRequest { group_id, topics: Some(vec![topic]), ..OffsetFetchRequest::default() };
                self.send(world, 1..=7, &request, Asked::OffsetFetch);
            }
            Ask::DryRun => {
                let topic = CreatableTopic {
                    name: Str::from_static(DRY_RUN),
                    num_partitions: 1,
                    replication_factor: 1,
                    ..CreatableTopic::default()
                };
                let request =
                    CreateTopicsRequest { topics: vec![topic], validate_only: true, ..CreateTopicsRequest::default() };
                self.send(world, 1..=2, &request, Asked::DryRun);
            }
            Ask::LeaveGroup => {
                let members = vec![MemberIdentity { member_id, ..MemberIdentity::default() }];
                let request = LeaveGroupRequest { group_id, members, ..LeaveGroupRequest::default() };
                self.send(world, 3..=4, &request, Asked::LeaveGroup);
            }
        }
    }

    fn produce(&mut self, world: &mut World, acks: i16, bits: u64, padding: usize) {
        let mut sent = Vec::new();
        let mut topic_data = Vec::new();
        for (topic, indexes) in partitions(bits) {
            let mut partition_data = Vec::new();
            for index in indexes {
                let mut value = format!("client {} request {} {topic}/{index}", self.id.0, self.requests);
                value.extend(std::iter::repeat_n(' ', padding));
                let record = Record { value: Some(Bytes::from(value)), ..Record::default() };
                let records = build_batch(0, std::iter::repeat_n(record, 1 + self.requests as usize % 3));
                let id = world.judges.order.sent(self.id, topic, index, &records, acks != 0);
                sent.push((topic.to_owned(), index, id));
                partition_data.push(PartitionProduceData { index, records: Some(records) });
            }
            topic_data.push(TopicProduceData { name: Str::from_static(topic), partition_data });
        }
        let request = ProduceRequest { acks, timeout_ms: 3_000, topic_data, ..ProduceRequest::default() };
        if acks == 0 {
            world.send(self.id, self.version(3..=9), &request, false);
        } else {
            self.send(world, 3..=9, &request, Asked::Produce { batches: sent });
        }
    }

    fn fetch(&mut self, world: &mut World, bits: u64, max_wait_ms: i32) {
        let chosen = partitions(bits);
        let ids = self.topic_ids.clone();
        // Whoever does not know the id of a topic, or has an old broker, asks by name.
        let by_id = chosen.iter().all(|(topic, _)| ids.contains_key(*topic)) && world.brokers_fetch_by_id();
        let newest = if by_id { 13 } else { 12 };
        let topics = chosen.iter().map(|(topic, indexes)| FetchTopic {
            topic: Str::from_static(topic),
            topic_id: ids.get(*topic).copied().unwrap_or_default(),
            partitions: indexes
                .iter()
                .map(|index| FetchPartition {
                    partition: *index,
                    fetch_offset: world
                        .log
                        .partition(topic, *index)
                        .map_or(0, |log| log.end_offset().saturating_sub(2)),
                    partition_max_bytes: 1 << 20,
                    ..FetchPartition::default()
                })
                .collect(),
        });
        let topics = topics.collect();
        let request = FetchRequest { max_wait_ms, min_bytes: 1, max_bytes: 1 << 20, topics, ..FetchRequest::default() };
        self.send(world, 4..=newest, &request, Asked::Fetch { partitions: flat(&chosen), ids });
    }

    /// Clients of all ages: each request in another version of those that are advertised.
    fn version(&self, versions: RangeInclusive<i16>) -> i16 {
        let count = u64::from(versions.end().abs_diff(*versions.start())) + 1;
        versions.start() + i16::try_from((self.requests * 7 + self.id.0) % count).expect("a few versions")
    }

    fn send<R: Request>(&mut self, world: &mut World, versions: RangeInclusive<i16>, request: &R, asked: Asked) {
        let version = self.version(versions);
        world.send(self.id, version, request, true);
        self.asked.push_back((version, asked));
    }

    /// Takes what came, and the end.
    pub(super) fn look(&mut self, world: &mut World, now: Monotonic, learned: &mut Learned) {
        while world.client(self.id).has_answer() {
            let Some((version, asked)) = self.asked.pop_front() else {
                return world.judges.violated("answers", now, format!("{:?} got more than it asked for", self.id));
            };
            if let Err(fault) = self.answered(world, version, asked, now, learned) {
                world.judges.violated("answers", now, format!("{:?}: {fault}", self.id));
            }
        }
        if world.client(self.id).is_closed() && !self.ended {
            self.end(world);
        }
    }

    /// It hears of nothing any more.
    pub(super) fn end(&mut self, world: &mut World) {
        self.ended = true;
        for (_, asked) in self.asked.drain(..) {
            if let Asked::Produce { batches } = asked {
                batches.into_iter().for_each(|(_, _, id)| world.judges.order.untold(id));
            }
        }
    }

    fn answered(
        &mut self,
        world: &mut World,
        version: i16,
        asked: Asked,
        now: Monotonic,
        learned: &mut Learned,
    ) -> Result<(), String> {
        let id = self.id;
        // What waited for its reader was fresh when it left.
        let is_late = world.client(id).is_late();
        match asked {
            Asked::Produce { batches } => {
                let answer: ProduceResponse = world.try_take_answer(id, version)?;
                let answered = answer
                    .responses
                    .iter()
                    .flat_map(|topic| topic.partition_responses.iter().map(|one| (topic.name.to_string(), one.index)));
                let expected = batches.iter().map(|(topic, index, _)| (topic.clone(), *index));
                if !answered.eq(expected) {
                    return Err(format!("an answer to other partitions than were asked for: {answer:?}"));
                }
                let parts = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
                for ((topic, index, batch), part) in batches.into_iter().zip(parts) {
                    if part.error_code == ErrorCode::NONE {
                        learned.acknowledged += 1;
                    } else {
                        learned.refused += 1;
                        if part.base_offset != -1 && part.base_offset != 0 {
                            return Err(format!("{topic}/{index} is refused and has an offset: {part:?}"));
                        }
                    }
                    if let Some(fault) = world.judges.order.answered(batch, part.error_code, part.base_offset) {
                        return Err(fault);
                    }
                }
            }
            Asked::Fetch { partitions, ids } => {
                let answer: FetchResponse = world.try_take_answer(id, version)?;
                let mut answered = answer.responses.iter().flat_map(|topic| &topic.partitions);
                if answered.any(|one| one.error_code == ErrorCode::UNKNOWN_TOPIC_ID) {
                    self.topic_ids = world.topic_ids();
                }
                return fetched(world, answer, &partitions, &ids, learned);
            }
            Asked::ListOffsets { partitions } => {
                let answer: ListOffsetsResponse = world.try_take_answer(id, version)?;
                let answered = answer
                    .topics
                    .iter()
                    .flat_map(|topic| topic.partitions.iter().map(|one| (topic.name.to_string(), one.partition_index)));
                if !answered.eq(partitions) {
                    return Err(format!("an answer to other partitions than were asked for: {answer:?}"));
                }
                learned.others += 1;
            }
            Asked::Metadata => {
                let answer: MetadataResponse = world.try_take_answer(id, version)?;
                if !is_late && answer.topics.iter().any(|topic| topic.error_code == ErrorCode::NONE) {
                    let shard = world.shard_of_client(id);
                    world.judges.answered_from_memory(shard, now);
                }
                let topics = answer.topics.iter().filter(|topic| topic.error_code != ErrorCode::NONE).count();
                let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
                let partitions = partitions.filter(|one| one.error_code != ErrorCode::NONE).count();
                learned.errors += (topics + partitions) as u64;
                learned.others += 1;
                for topic in answer.topics.iter().filter(|topic| topic.topic_id != [0; 16]) {
                    self.topic_ids.extend(topic.name.as_ref().map(|name| (name.to_string(), topic.topic_id)));
                }
            }
            Asked::FindCoordinator => {
                let answer: FindCoordinatorResponse = world.try_take_answer(id, version)?;
                let found = if version < 4 {
                    answer.error_code == ErrorCode::NONE
                } else {
                    let keys: Vec<&str> = answer.coordinators.iter().map(|found| found.key.as_str()).collect();
                    if keys != [GROUP, OTHER_GROUP] {
                        return Err(format!("an answer for other groups than were asked for: {keys:?}"));
                    }
                    answer.coordinators.iter().any(|found| found.error_code == ErrorCode::NONE)
                };
                if !is_late && found {
                    let shard = world.shard_of_client(id);
                    world.judges.answered_from_memory(shard, now);
                }
                learned.others += 1;
            }
            Asked::ProducerId => {
                let answer: InitProducerIdResponse = world.try_take_answer(id, version)?;
                learned.others += 1;
                if answer.error_code == ErrorCode::NONE {
                    let fault = world.judges.producer_ids.given(answer.producer_id, &world.etcd.model);
                    return fault.map_or(Ok(()), Err);
                }
            }
            Asked::JoinGroup => {
                let answer: JoinGroupResponse = world.try_take_answer(id, version)?;
                if answer.error_code == ErrorCode::NONE {
                    learned.joined += 1;
                    (self.member_id, self.generation_id) = (answer.member_id, answer.generation_id);
                }
            }
            Asked::SyncGroup => drop(world.try_take_answer::<SyncGroupResponse>(id, version)?),
            Asked::Heartbeat => {
                world.try_take_answer::<HeartbeatResponse>(id, version)?;
            }
            Asked::OffsetCommit => drop(world.try_take_answer::<OffsetCommitResponse>(id, version)?),
            Asked::OffsetFetch => drop(world.try_take_answer::<OffsetFetchResponse>(id, version)?),
            Asked::DryRun => {
                world.try_take_answer::<CreateTopicsResponse>(id, version)?;
                if world.lists_topic(DRY_RUN) {
                    return Err("a topic was created that was to be validated only".into());
                }
                learned.others += 1;
            }
            Asked::LeaveGroup => drop(world.try_take_answer::<LeaveGroupResponse>(id, version)?),
        }
        Ok(())
    }
}

/// A subscription of version 0 to no topic, with data of the user: no two requests have the same.
fn subscription(user_data: &str) -> Bytes {
    let mut bytes = BytesMut::zeroed(6);
    bytes.put_i32(i32::try_from(user_data.len()).expect("a short text"));
    bytes.put_slice(user_data.as_bytes());
    bytes.freeze()
}

/// What was read stands in the log like that.
fn fetched(
    world: &World,
    mut answer: FetchResponse,
    partitions: &[(String, i32)],
    ids: &TopicIds,
    learned: &mut Learned,
) -> Result<(), String> {
    for topic in answer.responses.iter_mut().filter(|topic| topic.topic_id != [0; 16]) {
        let name = ids.iter().find(|(_, id)| **id == topic.topic_id).map(|(name, _)| name);
        topic.topic = Str::from(name.ok_or("an answer about a topic that was not asked for")?.as_str());
    }
    let answered: Vec<(String, i32)> = answer
        .responses
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|one| (topic.topic.to_string(), one.partition_index)))
        .collect();
    if answered != partitions {
        return Err(format!("{answered:?} where {partitions:?} was asked for"));
    }
    learned.errors += u64::from(answer.error_code != ErrorCode::NONE);
    for topic in &answer.responses {
        for one in &topic.partitions {
            learned.errors += u64::from(one.error_code != ErrorCode::NONE);
            if one.current_leader.is_some() || one.preferred_read_replica != -1 {
                return Err(format!("{}/{} is said to be elsewhere", topic.topic, one.partition_index));
            }
            let Some(records) = &one.records else {
                return Err(format!("a null record set for {}/{}", topic.topic, one.partition_index));
            };
            let stored = world.log.partition(&topic.topic, one.partition_index);
            for batch in batches(records) {
                let batch = batch.map_err(|error| format!("{error:?}"))?;
                let stands = stored.is_some_and(|log| {
                    log.segments().iter().any(|segment| {
                        segment.base_offset == batch.header.base_offset && segment.records == *batch.bytes()
                    })
                });
                if !stands {
                    return Err(format!("{}/{} holds no such batch", topic.topic, one.partition_index));
                }
                learned.read += 1;
            }
        }
    }
    Ok(())
}
