//! Sequences that were tried on KafScale brokers, put to the model; unless a test says otherwise, codes and offsets are
//! those that the brokers gave.

mod lives_and_faults;

use super::*;
use crate::kafka::*;
use crate::model::etcd::{EtcdModel, WatchFacts, WatchToken};
use crate::model::{Fate, Link};

/// A cluster of models: brokers, their etcd and their log.
struct Cluster {
    etcd: EtcdModel,
    log: SharedLog,
    brokers: Vec<BrokerModel>,
    links: Vec<Link>,
    watches: BTreeMap<WatchToken, (usize, EtcdToken)>,
    watches_opened: u64,
    now: Monotonic,
    written: BTreeMap<ConnectionId, VecDeque<Bytes>>,
    closed: BTreeSet<ConnectionId>,
    stopped: Vec<usize>,
    connections: u64,
}

/// A client's connection to one broker.
#[derive(Clone, Copy)]
struct Client {
    broker: usize,
    connection: ConnectionId,
}

fn settings(id: i32) -> Settings {
    Settings {
        id,
        host: format!("broker-{id}"),
        port: 9092,
        auto_create_partitions: 1,
        idle_close: None,
        seed: [id as u8; 32],
        versions: BTreeMap::new(),
    }
}

impl Cluster {
    fn new(brokers: i32) -> Self {
        Self::with(brokers, |settings| settings)
    }

    fn with(brokers: i32, change: impl Fn(Settings) -> Settings) -> Self {
        let mut cluster = Self {
            etcd: EtcdModel::new(),
            log: SharedLog::new(),
            brokers: (0..brokers).map(|id| BrokerModel::new(change(settings(id)))).collect(),
            links: vec![Link::default(); brokers as usize],
            watches: BTreeMap::new(),
            watches_opened: 0,
            now: Monotonic::ZERO,
            written: BTreeMap::new(),
            closed: BTreeSet::new(),
            stopped: Vec::new(),
            connections: 0,
        };
        let hosts: Vec<String> = (0..brokers).map(|id| format!("broker-{id}")).collect();
        let snapshot = ClusterSnapshot::new("demo", (0..brokers).map(|id| (id, hosts[id as usize].as_str(), 9092)))
            .with_topic("two", 2);
        cluster.etcd.put(SNAPSHOT_KEY, snapshot.to_json(), &mut WatchFacts::new());
        for broker in 0..brokers as usize {
            cluster.tell(broker, Input::Started);
        }
        cluster
    }

    fn now(&self) -> Now {
        Now { monotonic: self.now, unix_ms: 1_700_000_000_000 }
    }

    fn tell(&mut self, broker: usize, input: Input) {
        let mut effects = Vec::new();
        let now = self.now();
        self.brokers[broker].handle_input(now, input, &mut self.log, &mut effects);
        self.carry_out(broker, effects);
    }

    fn carry_out(&mut self, broker: usize, effects: Vec<Effect>) {
        let mut facts = WatchFacts::new();
        for effect in effects {
            match effect {
                Effect::Write { connection, bytes } => self.written.entry(connection).or_default().push_back(bytes),
                Effect::Close { connection } => drop(self.closed.insert(connection)),
                Effect::Etcd { token, request } => {
                    let reply = self.etcd.request(self.now, self.links[broker], &request, &mut facts);
                    self.spread(&mut facts);
                    self.tell(broker, Input::EtcdFinished { token, outcome: reply.outcome });
                }
                Effect::EtcdWatch { token, request } => {
                    self.watches_opened += 1;
                    let watch = WatchToken(self.watches_opened);
                    self.watches.insert(watch, (broker, token));
                    self.etcd.watch(self.links[broker], watch, &request, &mut facts);
                }
                Effect::Stopped => {
                    self.stopped.push(broker);
                    self.watches.retain(|_, (watching, _)| *watching != broker);
                }
            }
        }
        self.spread(&mut facts);
    }

    fn spread(&mut self, facts: &mut WatchFacts) {
        for (watch, fact) in std::mem::take(facts) {
            if let Some((broker, token)) = self.watches.get(&watch).copied() {
                self.tell(broker, Input::EtcdWatched { token, fact });
            }
        }
    }

    /// Lets time pass; everybody is called when he wants to be.
    fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        loop {
            let wanted =
                self.brokers.iter().filter_map(BrokerModel::poll_timeout).chain(self.etcd.poll_timeout()).min();
            let Some(at) = wanted.filter(|at| *at <= end) else { break };
            self.now = at.max(self.now);
            let mut facts = WatchFacts::new();
            self.etcd.handle_timeout(self.now, &mut facts);
            self.spread(&mut facts);
            self.call_all();
        }
        self.now = end;
    }

    fn call_all(&mut self) {
        for broker in 0..self.brokers.len() {
            let mut effects = Vec::new();
            let now = self.now();
            self.brokers[broker].handle_timeout(now, &mut self.log, &mut effects);
            self.carry_out(broker, effects);
        }
    }

    fn connect(&mut self, broker: usize) -> Client {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.tell(broker, Input::Connected { connection });
        Client { broker, connection }
    }

    fn send<R: Request>(&mut self, client: Client, version: i16, request: &R) {
        let bytes = BytesMut::from(&request_frame(7, Some("test"), version, request)[..]);
        self.tell(client.broker, Input::Received { connection: client.connection, bytes });
    }

    fn raw(&mut self, client: Client, key: i16, version: i16, body: &[u8]) -> Option<Bytes> {
        let mut bytes = BytesMut::new();
        let header = RequestHeader { api_key: key, api_version: version, correlation_id: 7, client_id: None };
        header.encode(&mut bytes);
        bytes.extend_from_slice(body);
        let length = (bytes.len() as i32).to_be_bytes();
        let frame = BytesMut::from(&[&length[..], &bytes[..]].concat()[..]);
        self.tell(client.broker, Input::Received { connection: client.connection, bytes: frame });
        self.written.get_mut(&client.connection).and_then(VecDeque::pop_front)
    }

    fn received<R: Request>(&mut self, client: Client, version: i16) -> Option<R::Response> {
        let frame = self.written.get_mut(&client.connection)?.pop_front()?;
        let (header, body_at) = ResponseHeader::decode(&frame, R::KEY, version).unwrap();
        assert_eq!(header.correlation_id, 7);
        Some(R::Response::decode(&frame.slice(body_at..), version).unwrap())
    }

    fn ask<R: Request>(&mut self, client: Client, version: i16, request: &R) -> R::Response {
        self.send(client, version, request);
        self.received::<R>(client, version).expect("an answer at once")
    }

    fn is_closed(&self, client: Client) -> bool {
        self.closed.contains(&client.connection)
    }

    /// Error and base offset of one produced batch.
    fn produce(&mut self, client: Client, topic: &str, partition: i32, records: usize) -> (i16, i64) {
        let response = self.ask(client, 3, &produce(topic, partition, batch(records), -1));
        let answer = &response.responses[0].partition_responses[0];
        (answer.error_code.0, answer.base_offset)
    }

    /// Error, high watermark and length of the records of each partition.
    fn fetched(&mut self, client: Client) -> Option<Vec<(i16, i64, Option<usize>)>> {
        let response = self.received::<FetchRequest>(client, 11)?;
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        Some(partitions.map(|p| (p.error_code.0, p.high_watermark, p.records.as_ref().map(Bytes::len))).collect())
    }

    fn key(&self, key: &str) -> Option<&str> {
        self.etcd.get(key.as_bytes()).map(|kv| std::str::from_utf8(&kv.value).unwrap())
    }

    fn join(&mut self, client: Client, group: &str, member: &str) -> JoinGroupResponse {
        let mut metadata = BytesMut::from(&[0, 0, 0, 0, 0, 1, 0, 3][..]);
        metadata.extend_from_slice(b"two\0\0\0\0");
        let request = JoinGroupRequest {
            group_id: group.into(),
            session_timeout_ms: 30_000,
            rebalance_timeout_ms: 30_000,
            member_id: member.into(),
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata: metadata.freeze() }],
            ..JoinGroupRequest::default()
        };
        self.ask(client, 4, &request)
    }

    fn sync(&mut self, client: Client, joined: &JoinGroupResponse, group: &str) -> SyncGroupResponse {
        let request = SyncGroupRequest {
            group_id: group.into(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            ..SyncGroupRequest::default()
        };
        self.ask(client, 4, &request)
    }

    fn commit(&mut self, client: Client, group: &str, generation_id: i32, member: &str, offset: i64) -> i16 {
        let partition = OffsetCommitRequestPartition {
            partition_index: 0,
            committed_offset: offset,
            committed_metadata: Some("meta".into()),
            ..OffsetCommitRequestPartition::default()
        };
        let request = OffsetCommitRequest {
            group_id: group.into(),
            generation_id,
            member_id: member.into(),
            topics: vec![OffsetCommitRequestTopic { name: "two".into(), partitions: vec![partition] }],
            ..OffsetCommitRequest::default()
        };
        self.ask(client, 3, &request).topics[0].partitions[0].error_code.0
    }
}

fn batch(records: usize) -> Bytes {
    build_batch(0, std::iter::repeat_n(Record::default(), records))
}

fn produce(topic: &str, partition: i32, records: Bytes, acks: i16) -> ProduceRequest {
    let partition_data = vec![PartitionProduceData { index: partition, records: Some(records) }];
    ProduceRequest {
        acks,
        topic_data: vec![TopicProduceData { name: topic.into(), partition_data }],
        ..ProduceRequest::default()
    }
}

fn fetch(partitions: &[(i32, i64)], max_wait_ms: i32) -> FetchRequest {
    let partitions = partitions.iter().map(|(partition, fetch_offset)| FetchPartition {
        partition: *partition,
        fetch_offset: *fetch_offset,
        partition_max_bytes: 1,
        ..FetchPartition::default()
    });
    FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        topics: vec![FetchTopic { topic: "two".into(), partitions: partitions.collect(), ..FetchTopic::default() }],
        ..FetchRequest::default()
    }
}

#[test]
fn api_versions() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    let response = cluster.ask(client, 3, &ApiVersionsRequest::default());
    let listed: Vec<_> = response.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version)).collect();
    assert_eq!(
        listed,
        [
            (18, 0, 4),
            (3, 0, 12),
            (0, 0, 9),
            (1, 11, 13),
            (10, 3, 3),
            (2, 0, 4),
            (11, 4, 4),
            (14, 4, 4),
            (12, 4, 4),
            (13, 4, 4),
            (8, 3, 3),
            (9, 5, 5),
            (15, 5, 5),
            (16, 0, 5),
            (23, 3, 3),
            (32, 4, 4),
            (33, 1, 1),
            (37, 0, 3),
            (19, 0, 2),
            (20, 0, 2),
            (42, 0, 2),
            (4, -1, -1),
            (5, -1, -1),
            (6, -1, -1),
            (7, -1, -1),
            (21, -1, -1),
            (22, -1, -1),
            (24, -1, -1),
            (25, -1, -1),
            (26, -1, -1)
        ]
    );
    let frame = cluster.raw(client, 18, 5, b"").unwrap();
    let response = ApiVersionsResponse::decode(&frame.slice(8..), 0).unwrap();
    assert_eq!((response.error_code.0, response.api_keys.len()), (35, 30));
}

#[test]
fn what_is_not_spoken() {
    for (key, version, body, closes) in [
        (0, 10, &b""[..], false),
        (1, 10, b"", true),
        (1, 14, b"", true),
        (11, 5, b"", true),
        (68, 0, b"\0", true),
        (3, 1, b"not a body", true),
        (-1, 0, b"", true),
    ] {
        let mut cluster = Cluster::new(1);
        let client = cluster.connect(0);
        assert_eq!(cluster.raw(client, key, version, body), None);
        assert_eq!(cluster.is_closed(client), closes, "{key} {version}");
    }
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".into() };
    assert_eq!(cluster.ask(client, 1, &handshake), SaslHandshakeResponse::default(), "looks like a success");
    let initialized = cluster.ask(client, 0, &InitProducerIdRequest::default());
    assert_eq!((initialized.error_code.0, initialized.producer_id), (0, -1));
}

#[test]
fn a_produce_takes_the_lease_creates_the_topic_and_tells_etcd() {
    let mut cluster = Cluster::new(2);
    let (owner, other) = (cluster.connect(0), cluster.connect(1));
    assert_eq!(cluster.produce(owner, "new", 0, 2), (0, 0));
    assert_eq!(cluster.produce(owner, "new", 0, 1), (0, 2));
    assert_eq!(cluster.produce(other, "new", 0, 1), (6, 0));
    assert_eq!(cluster.key("/kafscale/partition-leases/new/0"), Some("0"));
    assert_eq!(cluster.key("/kafscale/topics/new/partitions/0/next_offset"), Some("3"));
    assert_eq!(cluster.brokers[0].owned_partitions().collect::<Vec<_>>(), ["new/0"]);
    let snapshot = ClusterSnapshot::parse(cluster.key(SNAPSHOT_KEY).unwrap().as_bytes()).unwrap();
    assert_eq!(snapshot.topic("new").map(|topic| topic.partitions.len()), Some(1));
    let metadata = cluster.ask(other, 1, &MetadataRequest::default());
    assert_eq!(metadata.topics.len(), 2, "the other broker has seen the topic");
    assert_eq!((metadata.brokers.len(), metadata.brokers[1].host.as_str()), (2, "broker-1"));
}

#[test]
fn record_sets_that_are_not_stored() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    let mut old = batch(1).to_vec();
    old[16] = 1;
    for records in [Bytes::new(), Bytes::from(old)] {
        let response = cluster.ask(client, 3, &produce("two", 0, records, -1));
        assert_eq!(response.responses[0].partition_responses[0].error_code.0, -1);
    }
    assert_eq!(cluster.produce(client, "two", 0, 1), (0, 0));
}

#[test]
fn no_answer_to_a_producer_that_wants_none() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    cluster.send(client, 3, &produce("two", 0, batch(1), 0));
    assert_eq!(cluster.received::<ProduceRequest>(client, 3), None);
    assert_eq!(cluster.produce(client, "two", 0, 1), (0, 1));
}

#[test]
fn a_partition_that_a_known_topic_lacks_hangs_its_connection_for_ever() {
    let mut cluster = Cluster::new(1);
    let (hung, fetches, fine) = (cluster.connect(0), cluster.connect(0), cluster.connect(0));
    cluster.send(hung, 3, &produce("two", 5, batch(1), -1));
    cluster.send(hung, 0, &ApiVersionsRequest::default());
    cluster.send(fetches, 11, &fetch(&[(5, 0)], 0));
    cluster.pass(60_000);
    assert!(cluster.written.is_empty());
    assert_eq!(cluster.produce(fine, "two", 0, 1), (0, 0));
}

#[test]
fn a_fetch_gives_one_segment_and_waits_for_each_empty_partition_in_turn() {
    let mut cluster = Cluster::new(2);
    let (owner, other) = (cluster.connect(0), cluster.connect(1));
    cluster.produce(owner, "two", 0, 2);
    cluster.produce(owner, "two", 0, 1);
    let (first, second) = (batch(2).len(), batch(1).len());
    for (offset, answer) in [
        (0, (0, 3, Some(first))),
        (1, (0, 3, Some(first))),
        (2, (0, 3, Some(second))),
        (3, (0, 3, None)),
        (9, (1, 3, None)),
    ] {
        cluster.send(other, 11, &fetch(&[(0, offset)], 0));
        assert_eq!(cluster.fetched(other), Some(vec![answer]), "{offset}, at a broker that owns nothing");
    }
    cluster.send(other, 11, &fetch(&[(0, 3), (0, 0), (1, 0)], 700));
    cluster.pass(1_399);
    assert_eq!(cluster.fetched(other), None);
    cluster.pass(1);
    assert_eq!(cluster.fetched(other), Some(vec![(0, 3, None), (0, 3, Some(first)), (0, 0, None)]));
}

#[test]
fn a_waiting_fetch_is_answered_when_any_broker_appends() {
    let mut cluster = Cluster::new(2);
    let (owner, reader, other) = (cluster.connect(0), cluster.connect(0), cluster.connect(1));
    cluster.send(reader, 11, &fetch(&[(0, 0)], 60_000));
    cluster.send(other, 11, &fetch(&[(0, 0)], 60_000));
    let before = cluster.log.version();
    cluster.produce(owner, "two", 0, 1);
    assert!(cluster.fetched(reader).is_some());
    assert!(cluster.log.version() > before);
    cluster.call_all();
    assert!(cluster.fetched(other).is_some());
}

#[test]
fn topics_by_id() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    cluster.produce(client, "two", 0, 1);
    let id =
        cluster.ask(client, 10, &MetadataRequest { topics: None, ..MetadataRequest::default() }).topics[0].topic_id;
    for (topic_id, error) in [(id, 0), ([9; 16], 100)] {
        let mut request = fetch(&[(0, 0)], 0);
        request.topics[0] = FetchTopic { topic: Str::default(), topic_id, ..request.topics[0].clone() };
        let response = cluster.ask(client, 13, &request);
        assert_eq!(response.responses[0].partitions[0].error_code.0, error);
        assert_eq!(response.responses[0].topic_id, topic_id);
    }
}

#[test]
fn offsets_of_a_log() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    cluster.produce(client, "two", 0, 3);
    for (topic, partition, timestamp, error, offset) in [
        ("two", 0, -2, 0, 0),
        ("two", 0, -1, 0, 3),
        ("two", 0, 1, 0, 3),
        ("two", 1, -1, 0, 0),
        ("two", 9, -1, -1, -1),
        ("none", 0, -1, -1, -1),
    ] {
        let partition =
            ListOffsetsPartition { partition_index: partition, timestamp, ..ListOffsetsPartition::default() };
        let topics = vec![ListOffsetsTopic { name: topic.into(), partitions: vec![partition] }];
        let response = cluster.ask(client, 2, &ListOffsetsRequest { topics, ..ListOffsetsRequest::default() });
        let answer = &response.topics[0].partitions[0];
        assert_eq!((answer.error_code.0, answer.offset), (error, offset), "{topic} {timestamp}");
    }
    let asked = OffsetForLeaderPartition { partition: 0, ..OffsetForLeaderPartition::default() };
    let missing = OffsetForLeaderPartition { partition: 7, ..asked.clone() };
    let topics = vec![OffsetForLeaderTopic { topic: "two".into(), partitions: vec![asked, missing] }];
    let response =
        cluster.ask(client, 3, &OffsetForLeaderEpochRequest { topics, ..OffsetForLeaderEpochRequest::default() });
    let answers = response.topics[0].partitions.iter().map(|p| (p.error_code.0, p.end_offset)).collect::<Vec<_>>();
    assert_eq!(answers, [(0, 3), (3, -1)]);
}

#[test]
fn a_group_lives_at_one_broker_and_moves_on_with_its_lease() {
    let mut cluster = Cluster::new(2);
    let (client, other) = (cluster.connect(0), cluster.connect(1));
    let joined = cluster.join(client, "g", "");
    assert_eq!((joined.error_code.0, joined.generation_id, joined.members.len()), (0, 1, 1));
    assert_eq!(joined.leader, joined.member_id);
    let member = joined.member_id.as_str();
    let assignment = cluster.sync(client, &joined, "g").assignment;
    assert_eq!(&assignment[..], b"\0\0\0\0\0\x01\0\x03two\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0");
    assert_eq!(cluster.key("/kafscale/group-leases/g"), Some("0"));
    assert_eq!(cluster.join(other, "g", "").error_code.0, 16);
    let beat = |joined: &JoinGroupResponse| HeartbeatRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..HeartbeatRequest::default()
    };
    assert_eq!(cluster.ask(client, 4, &beat(&joined)).error_code.0, 0);
    assert_eq!(cluster.ask(other, 4, &beat(&joined)).error_code.0, 16);

    assert_eq!(cluster.commit(client, "g", 1, member, 5), 0);
    assert_eq!(cluster.commit(client, "g", 2, member, 5), 22);
    assert_eq!(cluster.commit(client, "g", -1, "", 5), 25);
    assert_eq!(cluster.commit(client, "unknown", -1, "", 5), 25);
    let stored = cluster.key("/kafscale/consumers/g/offsets/two/0").unwrap();
    assert!(stored.starts_with(r#"{"offset":5,"metadata":"meta","committed_at":""#), "{stored}");

    cluster.tell(0, Input::ShutdownRequested);
    assert_eq!((cluster.key("/kafscale/group-leases/g"), cluster.stopped.as_slice()), (None, &[0][..]));
    assert!(cluster.is_closed(client));
    assert_eq!(cluster.ask(other, 4, &beat(&joined)).error_code.0, 0, "another coordinator goes on");
    assert_eq!(cluster.key("/kafscale/group-leases/g"), Some("1"));
}

#[test]
fn offsets_of_a_group() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    let joined = cluster.join(client, "g", "");
    cluster.commit(client, "g", 1, &joined.member_id, 5);
    let topics = Some(vec![OffsetFetchRequestTopic { name: "two".into(), partition_indexes: vec![0, 1] }]);
    let mut request = OffsetFetchRequest { group_id: "g".into(), topics, ..OffsetFetchRequest::default() };
    let response = cluster.ask(client, 5, &request);
    let offsets = response.topics[0].partitions.iter().map(|p| (p.committed_offset, p.metadata.as_deref()));
    assert_eq!(offsets.collect::<Vec<_>>(), [(5, Some("meta")), (0, Some(""))], "0 for never committed");
    request.topics = None;
    assert_eq!(cluster.ask(client, 5, &request).topics, []);
}

#[test]
fn leaving_works_in_version_1_only() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    let member = cluster.join(client, "g", "").member_id;
    let identity = MemberIdentity { member_id: member.clone(), group_instance_id: None };
    let by_list = LeaveGroupRequest { group_id: "g".into(), members: vec![identity], ..LeaveGroupRequest::default() };
    let response = cluster.ask(client, 4, &by_list);
    assert_eq!((response.error_code.0, response.members.len()), (25, 0));
    let by_name = LeaveGroupRequest { group_id: "g".into(), member_id: member, ..LeaveGroupRequest::default() };
    assert_eq!(cluster.ask(client, 1, &by_name).error_code.0, 0);
    assert_eq!(cluster.ask(client, 1, &by_name).error_code.0, 25);
}

#[test]
fn groups_are_listed_described_and_deleted_from_etcd() {
    let mut cluster = Cluster::new(2);
    let (client, other) = (cluster.connect(0), cluster.connect(1));
    let joined = cluster.join(client, "g", "");
    cluster.sync(client, &joined, "g");
    for (states_filter, listed) in [(vec![], 1), (vec!["stable".into()], 1), (vec!["Empty".into()], 0)] {
        let request = ListGroupsRequest { states_filter, ..ListGroupsRequest::default() };
        assert_eq!(cluster.ask(other, 4, &request).groups.len(), listed);
    }
    let describe =
        DescribeGroupsRequest { groups: vec!["g".into(), "none".into()], ..DescribeGroupsRequest::default() };
    let response = cluster.ask(client, 5, &describe);
    let described = response.groups.iter().map(|g| (g.error_code.0, g.group_state.as_str(), g.members.len()));
    assert_eq!(described.collect::<Vec<_>>(), [(0, "Stable", 1), (69, "", 0)]);
    assert_eq!(cluster.key("/kafscale/group-leases/none"), Some("0"), "describing takes the lease");
    assert_eq!(cluster.ask(other, 5, &describe).groups[0].error_code.0, 16);

    let delete = DeleteGroupsRequest { groups_names: vec!["g".into(), "none".into(), " ".into()] };
    let response = cluster.ask(other, 1, &delete);
    let codes: Vec<i16> = response.results.iter().map(|result| result.error_code.0).collect();
    assert_eq!(codes, [0, 69, 42], "by a broker that does not coordinate the group");
    assert_eq!(cluster.ask(other, 4, &ListGroupsRequest::default()).groups.len(), 0);
    cluster.sync(client, &joined, "g");
    assert_eq!(cluster.ask(other, 4, &ListGroupsRequest::default()).groups.len(), 1, "its coordinator brought it back");
}

#[test]
fn topics_are_created_widened_and_deleted() {
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0);
    let topic = |name: &str, num_partitions, replication_factor| CreatableTopic {
        name: name.into(),
        num_partitions,
        replication_factor,
        ..CreatableTopic::default()
    };
    let topics = vec![topic("a", 3, 1), topic("two", 1, 1), topic("b", 0, 1), topic("c", 1, 9)];
    let response = cluster.ask(client, 2, &CreateTopicsRequest { topics, ..CreateTopicsRequest::default() });
    let codes = |codes: Vec<ErrorCode>| codes.into_iter().map(i16::from).collect::<Vec<_>>();
    assert_eq!(codes(response.topics.iter().map(|topic| topic.error_code).collect()), [0, 36, 17, 17]);
    let checked =
        CreateTopicsRequest { topics: vec![topic("d", 1, 1)], validate_only: true, ..CreateTopicsRequest::default() };
    assert_eq!(cluster.ask(client, 2, &checked).topics[0].error_code.0, 0);

    let widen = |name: &str, count| CreatePartitionsTopic { name: name.into(), count, assignments: None };
    let topics = vec![widen("a", 5), widen("a", 6), widen("two", 2), widen("none", 3), widen("b", 0)];
    let response = cluster.ask(client, 1, &CreatePartitionsRequest { topics, ..CreatePartitionsRequest::default() });
    assert_eq!(codes(response.results.iter().map(|result| result.error_code).collect()), [0, 42, 37, 3, 37]);

    assert_eq!(cluster.produce(client, "a", 4, 1), (0, 0));
    let member = cluster.join(client, "g", "").member_id;
    cluster.commit(client, "g", 1, &member, 5);
    let topic_names = vec!["two".into(), "a".into(), "none".into()];
    let response = cluster.ask(client, 1, &DeleteTopicsRequest { topic_names, ..DeleteTopicsRequest::default() });
    assert_eq!(codes(response.responses.iter().map(|result| result.error_code).collect()), [0, 0, 3]);
    for key in ["/kafscale/topics/a/partitions/4/next_offset", "/kafscale/consumers/g/offsets/two/0"] {
        assert_eq!(cluster.key(key), None);
    }
    let snapshot = ClusterSnapshot::parse(cluster.key(SNAPSHOT_KEY).unwrap().as_bytes()).unwrap();
    assert_eq!(snapshot.topics, []);
}

#[test]
fn settings_of_topics_and_brokers() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    let alter = |resource_type, name: &str, setting: &str, value: &str| AlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type,
            resource_name: name.into(),
            configs: vec![AlterableConfig { name: setting.into(), value: Some(value.into()) }],
        }],
        validate_only: false,
    };
    for (resource_type, name, setting, value, error) in [
        (2, "two", "retention.ms", "1000", 0),
        (2, "two", "retention.ms", "-2", 40),
        (2, "two", "cleanup.policy", "compact", 40),
        (2, "none", "retention.ms", "1000", 3),
        (4, "0", "retention.ms", "1000", 42),
    ] {
        let response = cluster.ask(client, 1, &alter(resource_type, name, setting, value));
        assert_eq!(response.responses[0].error_code.0, error, "{name} {setting} {value}");
    }
    assert!(cluster.key("/kafscale/topics/two/config").is_some());
    let asked = |resource_type, name: &str| DescribeConfigsResource {
        resource_type,
        resource_name: name.into(),
        configuration_keys: None,
    };
    let resources = vec![asked(2, "two"), asked(2, "none"), asked(4, "7"), asked(1, "x")];
    let response = cluster.ask(client, 4, &DescribeConfigsRequest { resources, ..DescribeConfigsRequest::default() });
    let results = response.results.iter().map(|result| (result.error_code.0, result.configs.len())).collect::<Vec<_>>();
    assert_eq!(results, [(0, 3), (3, 0), (0, 2), (42, 0)]);
    let retention = &response.results[0].configs[0];
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("1000"), 1));
    assert_eq!(response.results[2].configs[1].value.as_deref(), Some("broker-0:9092"), "it describes itself");
}

#[test]
fn requests_of_a_connection_are_answered_one_after_the_other() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    cluster.send(client, 11, &fetch(&[(0, 0)], 500));
    cluster.send(client, 3, &produce("two", 0, batch(1), -1));
    cluster.send(client, 0, &ApiVersionsRequest::default());
    assert!(cluster.written.is_empty(), "what would end the wait waits behind it");
    cluster.pass(500);
    assert_eq!(cluster.written[&client.connection].len(), 3);
    assert_eq!(cluster.fetched(client), Some(vec![(0, 0, None)]));
}

#[test]
fn a_produce_whose_client_is_gone_is_carried_out() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    cluster.brokers[0].set_silent(true);
    cluster.send(client, 3, &produce("two", 0, batch(1), -1));
    cluster.pass(1_000);
    assert!(cluster.log.partition("two", 0).is_none());
    cluster.brokers[0].set_silent(false);
    cluster.call_all();
    assert!(cluster.received::<ProduceRequest>(client, 3).is_some());

    // Its request waits for etcd when the client closes.
    let mut effects = Vec::new();
    let now = cluster.now();
    let bytes = BytesMut::from(&request_frame(7, None, 3, &produce("two", 1, batch(1), -1))[..]);
    let connection = client.connection;
    cluster.brokers[0].handle_input(now, Input::Received { connection, bytes }, &mut cluster.log, &mut effects);
    cluster.tell(0, Input::Closed { connection });
    cluster.carry_out(0, effects);
    assert_eq!(cluster.log.partition("two", 1).map(PartitionLog::high_watermark), Some(1));
    assert_eq!(cluster.received::<ProduceRequest>(client, 3), None);
}

/// Not a habit of KafScale brokers: something in between that closes what is idle.
#[test]
fn idle_connections_are_closed_when_they_are_to_be() {
    let idle_close = Some(Duration::from_secs(5));
    let mut cluster = Cluster::with(1, |settings| Settings { idle_close, ..settings });
    let (idle, busy) = (cluster.connect(0), cluster.connect(0));
    cluster.pass(3_000);
    cluster.send(busy, 11, &fetch(&[(0, 0)], 10_000));
    cluster.pass(2_000);
    assert_eq!((cluster.is_closed(idle), cluster.is_closed(busy)), (true, false));
    cluster.pass(7_999);
    assert!(!cluster.is_closed(busy), "a request is under way");
}

#[test]
fn a_frame_that_cannot_be_one_closes_the_connection() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0);
    let bytes = BytesMut::from(&b"\xff\xff\xff\xff"[..]);
    cluster.tell(0, Input::Received { connection: client.connection, bytes });
    assert!(cluster.is_closed(client));
}
