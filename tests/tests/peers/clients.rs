//! Client libraries with their usual settings, over six partitions of three owners.

use std::collections::BTreeMap;
use std::time::Duration;

use kafscale_proxy_core::kafka::ErrorCode;
use kafscale_proxy_core::model::broker::Fault;
use kafscale_proxy_tests::peers::{
    Client, Control, Deployment, Job, PARTITIONS, Record, Report, TOPIC, eventually, move_partition, owner,
    wait_until_lost,
};

/// Those that write.
const WRITERS: [Client; 5] = [Client::Sarama, Client::KafkaGo, Client::Java, Client::Kafkajs, Client::Librdkafka];
/// Those that read without a group.
const READERS: [Client; 3] = [Client::Sarama, Client::Java, Client::Librdkafka];
/// Those that read in a group.
const GROUP_READERS: [Client; 2] = [Client::Sarama, Client::Java];

/// Records that each writer sends.
const COUNT: usize = 300;
/// Records that are there from the start, one in each partition.
const SPREAD: usize = PARTITIONS;

fn job(deployment: &Deployment, count: usize) -> Job {
    Job::new(&deployment.proxy.kafka, TOPIC, PARTITIONS, count)
}

/// Index of the first record of a writer, so that all can write to one topic.
fn first(writer: usize) -> usize {
    writer * 10_000
}

/// Every record of a writer was acknowledged once, with offsets in the order in which it was sent.
fn check_delivered(client: Client, report: &Report, first: usize, count: usize) {
    assert_eq!(report.failures, Vec::<String>::new(), "{client:?}");
    let mut partitions: BTreeMap<i32, Vec<(i64, usize)>> = BTreeMap::new();
    for delivered in &report.delivered {
        assert_eq!(usize::try_from(delivered.partition), Ok(delivered.index % PARTITIONS), "{client:?}: {delivered:?}");
        partitions.entry(delivered.partition).or_default().push((delivered.offset, delivered.index));
    }
    for (partition, mut records) in partitions {
        records.sort_unstable();
        assert!(records.is_sorted_by_key(|(_, index)| *index), "{client:?}, partition {partition}: {records:?}");
    }
    let mut indices: Vec<usize> = report.delivered.iter().map(|delivered| delivered.index).collect();
    indices.sort_unstable();
    assert_eq!(indices, (first..first + count).collect::<Vec<_>>(), "{client:?}");
}

/// Indices of a writer's records in each partition, in the order of their offsets; offsets come once each and ascend.
fn indices_of(records: &[Record], first: usize, count: usize) -> BTreeMap<i32, Vec<usize>> {
    let mut ends: BTreeMap<i32, i64> = BTreeMap::new();
    let mut indices: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for record in records {
        let end = ends.entry(record.partition).or_insert(-1);
        assert!(record.offset > *end, "offset {} comes after {end} in partition {}", record.offset, record.partition);
        *end = record.offset;
        let index = record.key.strip_prefix("key-").map(|index| index.parse::<usize>().expect("a key of this suite"));
        if let Some(index) = index.filter(|index| (first..first + count).contains(index)) {
            assert_eq!(record.value, format!("value-{index}"));
            indices.entry(record.partition).or_default().push(index);
        }
    }
    indices
}

/// What a writer sent to each partition.
fn sent(first: usize, count: usize) -> BTreeMap<i32, Vec<usize>> {
    let mut sent: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for index in first..first + count {
        sent.entry(i32::try_from(index % PARTITIONS).expect("few partitions")).or_default().push(index);
    }
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_write_and_read_across_three_owners() {
    let deployment = Deployment::start(&[]).await;
    for (writer, client) in WRITERS.into_iter().enumerate() {
        let job = Job { first: first(writer), retries: Some(0), ..job(&deployment, COUNT) };
        let report = client.produce(job).report().await;
        check_delivered(client, &report, first(writer), COUNT);
    }
    let owners: Vec<Option<usize>> = {
        let mut owners = Vec::new();
        for partition in 0..PARTITIONS {
            owners
                .push(owner(&deployment.partners.etcd, TOPIC, i32::try_from(partition).expect("few partitions")).await);
        }
        owners
    };
    assert_eq!(owners, (0..PARTITIONS).map(|partition| Some(partition % 3)).collect::<Vec<_>>(), "nobody moved");

    let all = SPREAD + WRITERS.len() * COUNT;
    let mut readings = Vec::new();
    for client in READERS {
        readings.push((client, "alone", client.consume(job(&deployment, all)).report().await));
    }
    for client in GROUP_READERS {
        let group = Some(format!("readers-{client:?}"));
        readings.push((client, "in a group", client.consume(Job { group, ..job(&deployment, all) }).report().await));
    }
    for (client, how, report) in readings {
        assert_eq!(report.failures, Vec::<String>::new(), "{client:?} {how}");
        assert_eq!(report.records.len(), all, "{client:?} {how}");
        for (writer, name) in WRITERS.iter().enumerate() {
            let read = indices_of(&report.records, first(writer), COUNT);
            assert_eq!(read, sent(first(writer), COUNT), "{client:?} {how} reads {name:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_on_where_it_committed() {
    let deployment = Deployment::start(&[]).await;
    for client in GROUP_READERS {
        let written = Client::Sarama.produce(job(&deployment, 60)).report().await;
        check_delivered(Client::Sarama, &written, 0, 60);
        let group = Some(format!("committed-{client:?}"));
        let all =
            client.consume(Job { group: group.clone(), timeout: Duration::from_secs(20), ..job(&deployment, 100_000) });
        let all = all.report().await;
        assert!(all.records.len() >= 60 + SPREAD, "{client:?} read {}", all.records.len());

        let written = Client::Sarama.produce(Job { first: 60, ..job(&deployment, 30) }).report().await;
        check_delivered(Client::Sarama, &written, 60, 30);
        let new = client.consume(Job { group, ..job(&deployment, 30) }).report().await;
        assert_eq!(new.failures, Vec::<String>::new(), "{client:?}");
        assert_eq!(indices_of(&new.records, 60, 30), sent(60, 30), "{client:?}");
        assert_eq!(new.records.len(), 30, "{client:?} reads nothing again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_that_nobody_waits_for() {
    let mut deployment = Deployment::start(&[]).await;
    for (writer, client) in WRITERS.into_iter().enumerate() {
        let job = Job { first: first(writer), acks: "0", ..job(&deployment, 60) };
        let report = client.produce(job).report().await;
        assert_eq!((report.delivered.len(), report.failures), (60, vec![]), "{client:?}");
    }
    let all = SPREAD + WRITERS.len() * 60;
    let report = Client::Sarama.consume(job(&deployment, all)).report().await;
    for (writer, name) in WRITERS.iter().enumerate() {
        assert_eq!(indices_of(&report.records, first(writer), 60), sent(first(writer), 60), "{name:?}");
    }
    assert!(deployment.proxy.stop().success(), "asked to end, it ends in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_partitions_cost_no_error() {
    let deployment = Deployment::start(&[]).await;
    // Without retries of the library every code that leaves the proxy would be seen.
    let writing: Vec<_> = WRITERS
        .into_iter()
        .enumerate()
        .map(|(writer, client)| {
            let job = Job { first: first(writer), rate: Some(30), retries: Some(0), ..job(&deployment, COUNT) };
            (writer, client, client.produce(job))
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(4)).await;
    for (partition, to) in [(0, 1), (1, 2), (5, 0), (0, 2)] {
        let from = owner(&deployment.partners.etcd, TOPIC, partition).await.expect("it is owned");
        move_partition(&deployment.partners.etcd, TOPIC, partition, to).await;
        // The old owner knows that it lost the partition, and says so to what still comes.
        deployment
            .partners
            .brokers
            .control(from, Control::Inject(Fault::RefuseProduce(ErrorCode::NOT_LEADER_OR_FOLLOWER)));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for (writer, client, writing) in writing {
        let report = writing.report().await;
        check_delivered(client, &report, first(writer), COUNT);
    }
    assert_eq!(deployment.partners.brokers.waiting_faults().await, 0, "every refusal was met");
    let all = SPREAD + WRITERS.len() * COUNT;
    let report = Client::Sarama.consume(job(&deployment, all)).report().await;
    for (writer, name) in WRITERS.iter().enumerate() {
        let read = indices_of(&report.records, first(writer), COUNT);
        assert_eq!(read, sent(first(writer), COUNT), "{name:?}: each record once, in order");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_owner_costs_only_what_clients_retry() {
    let deployment = Deployment::start(&[]).await;
    let writing: Vec<_> = WRITERS
        .into_iter()
        .enumerate()
        .map(|(writer, client)| {
            let job = Job { first: first(writer), rate: Some(20), ..job(&deployment, COUNT) };
            (writer, client, client.produce(job))
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let crashed = owner(&deployment.partners.etcd, TOPIC, 1).await.expect("it is owned");
    deployment.partners.brokers.control(crashed, Control::Crash);
    wait_until_lost(&deployment.partners.etcd, TOPIC, 1, crashed, Duration::from_secs(15)).await;
    let mut reports = Vec::new();
    for (writer, client, writing) in writing {
        let report = writing.report().await;
        assert_eq!(report.failures, Vec::<String>::new(), "{client:?}");
        assert_eq!(report.delivered.len(), COUNT, "{client:?}");
        reports.push((writer, client, report));
    }
    eventually("another broker has the partition", Duration::from_secs(20), async || {
        owner(&deployment.partners.etcd, TOPIC, 1).await.is_some_and(|owner| owner != crashed)
    })
    .await;
    deployment.partners.brokers.control(crashed, Control::Start);

    // What was acknowledged is there, at its offset; a retry may have written a record twice.
    let all = SPREAD + WRITERS.len() * COUNT;
    let read =
        Client::Sarama.consume(Job { timeout: Duration::from_secs(15), ..job(&deployment, all * 2) }).report().await;
    let by_offset: BTreeMap<(i32, i64), &str> =
        read.records.iter().map(|record| ((record.partition, record.offset), record.key.as_str())).collect();
    for (_, client, report) in &reports {
        for delivered in report.delivered.iter().filter(|delivered| delivered.offset >= 0) {
            let key = by_offset.get(&(delivered.partition, delivered.offset)).copied();
            assert_eq!(key, Some(format!("key-{}", delivered.index).as_str()), "{client:?}: {delivered:?}");
        }
    }
}
