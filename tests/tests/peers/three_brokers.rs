//! Requests about many things at once, each of which only one of three brokers can answer; and what is missing when one
//! of them is gone must be seen.
//!
//! That it can fail was tried with a ListGroups that leaves out the error of a broker that could not be asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafscale_proxy_core::kafka::{
    DescribeGroupsRequest, ErrorCode, JoinGroupRequest, JoinGroupRequestProtocol, ListGroupsRequest,
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, PartitionProduceData, ProduceRequest, Record, Str,
    SyncGroupRequest, TopicProduceData, build_batch,
};
use kafscale_proxy_tests::peers::{Control, Deployment, Wire, eventually};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

const TOPIC: &str = "twelve";
const PARTITIONS: usize = 12;
const GROUPS: usize = 20;
/// Partition `p` and group `g` are at broker `p % 3` and `g % 3`; this one goes away.
const GONE: usize = 1;
const LIMIT: Duration = Duration::from_secs(20);

fn group(index: usize) -> String {
    format!("group-{index}")
}

fn number(index: usize) -> i32 {
    i32::try_from(index).expect("a small number")
}

/// Those of `0..count` that the broker has that goes away.
fn of_the_gone(count: usize) -> BTreeSet<usize> {
    (0..count).filter(|index| index % 3 == GONE).collect()
}

/// Writes one record to each partition, at the broker that is to have it.
async fn spread_partitions(deployment: &Deployment) {
    for partition in 0..PARTITIONS {
        let data =
            PartitionProduceData { index: number(partition), records: Some(build_batch(0, [Record::default()])) };
        let topic_data = vec![TopicProduceData { name: TOPIC.into(), partition_data: vec![data] }];
        let request = ProduceRequest { acks: -1, timeout_ms: 15_000, topic_data, ..ProduceRequest::default() };
        let answer = Wire::connect(&deployment.partners.brokers.address(partition % 3)).await.ask(9, &request).await;
        assert!(answer.responses[0].partition_responses[0].error_code.is_none(), "partition {partition}");
    }
}

/// Forms each group, of one member, at the broker that is to coordinate it.
async fn form_groups(deployment: &Deployment) {
    for index in 0..GROUPS {
        let mut wire = Wire::connect(&deployment.partners.brokers.address(index % 3)).await;
        let join = JoinGroupRequest {
            group_id: group(index).as_str().into(),
            session_timeout_ms: 60_000,
            rebalance_timeout_ms: 10_000,
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata: Default::default() }],
            ..JoinGroupRequest::default()
        };
        let joined = wire.ask(4, &join).await;
        assert!(joined.error_code.is_none(), "{}: {:?}", group(index), joined.error_code);
        let sync = SyncGroupRequest {
            group_id: join.group_id,
            generation_id: joined.generation_id,
            member_id: joined.member_id,
            ..SyncGroupRequest::default()
        };
        assert!(wire.ask(4, &sync).await.error_code.is_none(), "{}", group(index));
    }
}

/// Error of the list, and the groups in it.
async fn list_groups(proxy: &str) -> (ErrorCode, Vec<String>) {
    let answer = Wire::connect(proxy).await.ask(2, &ListGroupsRequest::default()).await;
    (answer.error_code, answer.groups.iter().map(|group| group.group_id.as_str().to_owned()).collect())
}

/// Code of each group.
async fn describe_groups(proxy: &str) -> BTreeMap<usize, ErrorCode> {
    let groups = (0..GROUPS).map(|index| Str::from(group(index).as_str())).collect();
    let request = DescribeGroupsRequest { groups, ..DescribeGroupsRequest::default() };
    let answer = Wire::connect(proxy).await.ask(2, &request).await;
    let codes = answer.groups.iter().map(|group| {
        let index = group.group_id.strip_prefix("group-").and_then(|index| index.parse().ok()).expect("one of them");
        assert!(!group.error_code.is_none() || group.group_state.as_str() == "Stable", "{group:?}");
        (index, group.error_code)
    });
    let codes: Vec<(usize, ErrorCode)> = codes.collect();
    assert_eq!(codes.len(), GROUPS, "each comes once");
    codes.into_iter().collect()
}

/// Code of each partition, all of which end at offset 1.
async fn list_offsets(proxy: &str) -> BTreeMap<usize, ErrorCode> {
    let asked = |index| ListOffsetsPartition {
        partition_index: number(index),
        timestamp: -1,
        ..ListOffsetsPartition::default()
    };
    let topics = vec![ListOffsetsTopic { name: TOPIC.into(), partitions: (0..PARTITIONS).map(asked).collect() }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    let answer = Wire::connect(proxy).await.ask(4, &request).await;
    let partitions: Vec<_> = answer.topics.into_iter().flat_map(|topic| topic.partitions).collect();
    assert_eq!(partitions.len(), PARTITIONS, "each comes once");
    let codes = partitions.into_iter().map(|partition| {
        assert!(!partition.error_code.is_none() || partition.offset == 1, "{partition:?}");
        (usize::try_from(partition.partition_index).expect("an index"), partition.error_code)
    });
    codes.collect()
}

/// Those with an error.
fn failed(codes: &BTreeMap<usize, ErrorCode>) -> BTreeSet<usize> {
    codes.iter().filter(|(_, code)| !code.is_none()).map(|(index, _)| *index).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_broker_cannot_answer_is_an_error_and_the_rest_is_there() {
    let deployment = Deployment::start(&[]).await;
    let proxy = deployment.proxy.kafka.clone();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &proxy).set("group.id", "nobody");
    let admin: AdminClient<DefaultClientContext> = config.create().expect("it needs no broker to begin");
    let consumer: BaseConsumer = config.create().expect("it needs no broker to begin");
    let new = NewTopic::new(TOPIC, number(PARTITIONS), TopicReplication::Fixed(1));
    let created = admin.create_topics([&new], &AdminOptions::new()).await.expect("an answer");
    assert_eq!(created, [Ok(TOPIC.to_owned())]);
    spread_partitions(&deployment).await;
    form_groups(&deployment).await;

    let all: BTreeSet<String> = (0..GROUPS).map(group).collect();
    let (code, mut listed) = list_groups(&proxy).await;
    listed.sort_unstable();
    assert_eq!((code, listed), (ErrorCode::NONE, all.iter().cloned().collect()));
    assert_eq!(failed(&describe_groups(&proxy).await), BTreeSet::new());
    assert_eq!(failed(&list_offsets(&proxy).await), BTreeSet::new());
    // What tools show, of a client that asks every broker it knows.
    let seen = tokio::task::block_in_place(|| consumer.fetch_group_list(None, LIMIT)).expect("a list");
    let seen: Vec<(String, String)> =
        seen.groups().iter().map(|group| (group.name().to_owned(), group.state().to_owned())).collect();
    let seen_names: BTreeSet<String> = seen.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!((seen.len(), seen_names), (GROUPS, all), "each once");
    assert!(seen.iter().all(|(_, state)| state == "Stable"), "{seen:?}");
    for partition in 0..PARTITIONS {
        let marks = tokio::task::block_in_place(|| consumer.fetch_watermarks(TOPIC, number(partition), LIMIT));
        assert_eq!(marks, Ok((0, 1)), "partition {partition}");
    }

    deployment.partners.brokers.control(GONE, Control::Crash);
    let (listed, described, offsets) = tokio::join!(list_groups(&proxy), describe_groups(&proxy), list_offsets(&proxy));
    // Whether the others know of all groups nobody can tell: a list without an error would say so.
    assert_eq!(listed.0, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert!(listed.1.len() >= GROUPS - of_the_gone(GROUPS).len(), "{:?}", listed.1);
    assert_eq!(failed(&described), of_the_gone(GROUPS));
    assert_eq!(failed(&offsets), of_the_gone(PARTITIONS));
    let seen = tokio::task::block_in_place(|| consumer.fetch_group_list(None, LIMIT));
    assert!(seen.is_err(), "{} groups look like all of them", seen.map_or(0, |seen| seen.groups().len()));
    // What any broker can do is done by another one.
    let new = NewTopic::new("thirteenth", 1, TopicReplication::Fixed(1));
    let created = admin.create_topics([&new], &AdminOptions::new()).await.expect("an answer");
    assert_eq!(created, [Ok("thirteenth".to_owned())]);

    deployment.partners.brokers.control(GONE, Control::Start);
    eventually("all of it is there again", Duration::from_secs(30), async || {
        list_groups(&proxy).await.0.is_none() && failed(&list_offsets(&proxy).await).is_empty()
    })
    .await;
}
