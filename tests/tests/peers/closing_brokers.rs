//! Brokers that close connections: idle ones, and one in the middle of a request.
//!
//! That it can fail was tried with a proxy that does not notice that a broker has closed, and with one that takes a Produce
//! without an answer for one that was not carried out.

use std::time::Duration;

use http::Method;
use kafscale_proxy_core::kafka::ProduceRequest;
use kafscale_proxy_core::model::broker::Fault;
use kafscale_proxy_tests::peers::{
    Client, Control, Deployment, Job, Metrics, PARTITIONS, TOPIC, Wire, eventually, produce_request, read_all,
};

/// Brokers close what is idle for so long.
const IDLE: Duration = Duration::from_millis(1_000);
/// A client uses one partition after the other, each of another broker, and so comes back to one after three times this.
const EVERY: Duration = Duration::from_millis(1_000);
const TIMES: usize = 12;
/// A request is answered within this, whatever has become of a connection.
const LIMIT: Duration = Duration::from_secs(5);

/// Connections to brokers.
async fn broker_connections(deployment: &Deployment) -> f64 {
    let page = deployment.proxy.metrics.get("/metrics").await.text();
    Metrics::read(&page).sum("kafscale_proxy_broker_connections", &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_brokers_close_while_idle_cost_clients_nothing() {
    let deployment = Deployment::start(&[]).await;
    let brokers = &deployment.partners.brokers;
    (0..brokers.count()).for_each(|broker| brokers.control(broker, Control::IdleClose(IDLE)));
    let proxy = &deployment.proxy.kafka;
    // Without retries of the library every error that leaves the proxy would be seen.
    let slow = [Client::Librdkafka, Client::Sarama, Client::Java].into_iter().enumerate().map(|(writer, client)| {
        let job = Job::new(proxy, TOPIC, PARTITIONS, TIMES);
        (client, client.produce(Job { first: writer * 10_000, rate: Some(1), retries: Some(0), ..job }))
    });
    let slow: Vec<_> = slow.collect();
    let mut wire = Wire::connect(proxy).await;
    for turn in 0..TIMES {
        let answer = tokio::time::timeout(LIMIT, wire.ask(9, &produce_request(turn % PARTITIONS, "by hand"))).await;
        let answer = answer.unwrap_or_else(|_| panic!("turn {turn}: no answer within {LIMIT:?}"));
        let code = answer.responses[0].partition_responses[0].error_code;
        assert!(code.is_none(), "turn {turn}: {code:?}");
        let blob = deployment.proxy.lfs.send(Method::POST, "/lfs/produce", &[("x-kafka-topic", TOPIC)], "a blob").await;
        assert_eq!(blob.status, 200, "turn {turn}: {}", blob.text());
        tokio::time::sleep(EVERY).await;
    }
    for (client, writing) in slow {
        let report = writing.report().await;
        assert_eq!((report.delivered.len(), report.failures), (TIMES, vec![]), "{client:?}");
    }
    // They do close them, and the proxy does not believe in one that is closed. This client is still there.
    eventually("no connection is left", IDLE * 5, async || broker_connections(&deployment).await == 0.0).await;
    let answer = wire.ask(9, &produce_request(0, "by hand")).await;
    assert!(answer.responses[0].partition_responses[0].error_code.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_closes_over_a_produce_leaves_one_record_or_an_error() {
    let deployment = Deployment::start(&[]).await;
    let brokers = &deployment.partners.brokers;
    let proxy = &deployment.proxy.kafka;
    for (fault, copies) in [(Fault::CloseUnappended, 0), (Fault::CrashAfterAppend, 1)] {
        // Partition 1 is at broker 1.
        brokers.control(1, Control::Inject(fault));
        let value = format!("{fault:?}");
        let mut wire = Wire::connect(proxy).await;
        wire.send(9, &produce_request(1, &value)).await.expect("the proxy reads requests");
        let answer = tokio::time::timeout(Duration::from_secs(20), wire.receive::<ProduceRequest>(9)).await;
        // A connection that is closed is as honest: then the client does not know.
        if let Ok(Some((_, answer))) = answer.expect("the proxy says something in time") {
            let code = answer.responses[0].partition_responses[0].error_code;
            assert!(!code.is_none(), "{fault:?}: nobody has acknowledged it");
        }
        assert_eq!(brokers.waiting_faults().await, 0, "{fault:?} has struck");
        if fault == Fault::CrashAfterAppend {
            // When it looks at the partition for the first time it finds what is stored.
            brokers.control(1, Control::Start);
        }
        // Time for what the proxy must not do.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let records = read_all(&brokers.address(1), TOPIC, 1).await;
        let there = records.iter().filter(|record| record.value == value).count();
        assert_eq!(there, copies, "{fault:?}: it was not sent again by the proxy");
    }
    eventually("the partition is written to again", Duration::from_secs(30), async || {
        let answer = Wire::connect(proxy).await.ask(9, &produce_request(1, "again")).await;
        answer.responses[0].partition_responses[0].error_code.is_none()
    })
    .await;
}
