//! The owner of partitions stops as a process does that is swapped out, another broker gets them, and the first one goes
//! on as if nothing had been: for a moment two brokers take records for one partition.
//!
//! That it can fail was tried with a proxy that takes a Produce without an answer for one that was not carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafscale_proxy_tests::peers::{
    Client, Control, Deployment, Job, PARTITIONS, Record, TOPIC, eventually, move_partition, owner, read_all,
};

/// Partitions of the broker that is frozen: one is moved, the other is lost with the lease.
const MOVED: i32 = 1;
const LOST: i32 = 4;
const FROZEN: usize = 1;
/// Records of each writer, and how many it sends in a second.
const COUNT: usize = 400;
const RATE: u32 = 20;
/// What clients may make a broker wait is a second here; the proxy gives a Produce 15 more. Then it says what it knows.
const PAST_EVERY_ANSWER: Duration = Duration::from_millis(17_500);

async fn everything(proxy: &str) -> Vec<Record> {
    let mut all = Vec::new();
    for partition in 0..PARTITIONS {
        all.extend(read_all(proxy, TOPIC, i32::try_from(partition).expect("few partitions")).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_was_frozen_costs_no_record_and_doubles_none() {
    let deployment = Deployment::start(&[("KAFSCALE_PROXY_CLIENT_WAIT_MAX_SEC", "1")]).await;
    let proxy = &deployment.proxy.kafka;
    // Without retries of the library, whatever is there twice was sent twice by the proxy.
    let writers = [(Client::Librdkafka, Some(0)), (Client::Sarama, Some(0)), (Client::Java, None)];
    let writing = writers.map(|(client, retries)| {
        let first = writers.iter().position(|writer| writer.0 == client).expect("it is one of them") * 10_000;
        let job = Job::new(proxy, TOPIC, PARTITIONS, COUNT);
        (client, retries, first, client.produce(Job { first, rate: Some(RATE), retries, ..job }))
    });
    tokio::time::sleep(Duration::from_secs(4)).await;
    let brokers = &deployment.partners.brokers;
    brokers.control(FROZEN, Control::Freeze(true));
    tokio::time::sleep(Duration::from_millis(500)).await;
    move_partition(&deployment.partners.etcd, TOPIC, MOVED, 2).await;
    tokio::time::sleep(PAST_EVERY_ANSWER).await;
    assert_ne!(owner(&deployment.partners.etcd, TOPIC, LOST).await, Some(FROZEN), "its lease has ended");
    brokers.control(FROZEN, Control::Freeze(false));

    let mut reports = Vec::new();
    for (client, retries, first, writing) in writing {
        reports.push((client, retries, first, writing.report().await));
    }
    // What the frozen broker still had to append is there when nothing comes any more.
    let mut read = Vec::new();
    eventually("nothing is appended any more", Duration::from_secs(20), async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = everything(proxy).await;
        std::mem::replace(&mut read, now.clone()) == now
    })
    .await;
    let by_offset: BTreeMap<(i32, i64), &str> =
        read.iter().map(|record| ((record.partition, record.offset), record.key.as_str())).collect();

    let mut refused = 0;
    for (client, retries, first, report) in &reports {
        let acknowledged: BTreeSet<usize> = report.delivered.iter().map(|delivered| delivered.index).collect();
        for delivered in &report.delivered {
            let there = by_offset.get(&(delivered.partition, delivered.offset)).copied();
            assert_eq!(there, Some(format!("key-{}", delivered.index).as_str()), "{client:?}: {delivered:?}");
        }
        assert_eq!(acknowledged.len() + report.failures.len(), COUNT, "{client:?}: {:?}", report.failures);
        refused += report.failures.len();
        let mut copies: BTreeMap<usize, usize> = BTreeMap::new();
        for record in &read {
            let index = record.key.strip_prefix("key-").map(|index| index.parse().expect("a key of this suite"));
            if let Some(index) = index.filter(|index| (*first..first + COUNT).contains(index)) {
                *copies.entry(index).or_default() += 1;
            }
        }
        let twice: Vec<usize> = copies.iter().filter(|(_, copies)| **copies > 1).map(|(index, _)| *index).collect();
        println!("{client:?}: {} acknowledged, {} failed, twice {twice:?}", acknowledged.len(), report.failures.len());
        match retries {
            Some(_) => assert_eq!(twice, Vec::<usize>::new(), "{client:?} sends nothing twice"),
            None => {
                assert_eq!(report.failures, Vec::<String>::new(), "{client:?} tries again");
                // Its own second attempts, for what the frozen broker had not answered.
                let partition = |index: &usize| i32::try_from(index % PARTITIONS).expect("few partitions");
                let of_the_frozen = |index: &usize| [MOVED, LOST].contains(&partition(index));
                assert!(twice.iter().all(of_the_frozen), "{client:?}: {twice:?}");
            }
        }
    }
    assert!(refused > 0, "somebody was waiting for the broker that was frozen");
}
