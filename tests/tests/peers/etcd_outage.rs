//! etcd is gone for longer than what was read from it may be used.

use std::time::{Duration, Instant};

use kafscale_proxy_core::kafka::{
    ApiVersionsRequest, ErrorCode, FetchPartition, FetchRequest, FetchTopic, FindCoordinatorRequest, JoinGroupRequest,
    JoinGroupRequestProtocol, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, MetadataRequest,
    MetadataRequestTopic,
};
use kafscale_proxy_tests::peers::{
    Client, Deployment, Job, PARTITIONS, Partners, TOPIC, Wire, eventually, produce_request,
};

/// The TTL of the boundary values in the contract, and the times that belong to it.
const TTL: &str = "20";
const PAST_THE_TTL: Duration = Duration::from_secs(35);
const BACK_WITHIN: Duration = Duration::from_secs(20);

fn metadata() -> MetadataRequest {
    let topic = MetadataRequestTopic { name: Some(TOPIC.into()), ..MetadataRequestTopic::default() };
    MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() }
}

fn find_coordinator() -> FindCoordinatorRequest {
    FindCoordinatorRequest { key: "readers".into(), ..FindCoordinatorRequest::default() }
}

fn fetch() -> FetchRequest {
    let partition = FetchPartition { partition_max_bytes: 1 << 20, ..FetchPartition::default() };
    FetchRequest {
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic { topic: TOPIC.into(), partitions: vec![partition], ..FetchTopic::default() }],
        ..FetchRequest::default()
    }
}

fn list_offsets() -> ListOffsetsRequest {
    let partition = ListOffsetsPartition { timestamp: -1, ..ListOffsetsPartition::default() };
    ListOffsetsRequest {
        topics: vec![ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] }],
        ..ListOffsetsRequest::default()
    }
}

fn join_group() -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: "readers".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata: Default::default() }],
        ..JoinGroupRequest::default()
    }
}

/// What each API answers, on a connection of its own: the code that its layout carries, and whether the connection
/// was closed after it.
async fn codes(proxy: &str) -> Vec<(&'static str, ErrorCode, bool)> {
    let mut codes = Vec::new();

    let mut wire = Wire::connect(proxy).await;
    let metadata = wire.ask(9, &metadata()).await;
    assert_eq!(metadata.brokers.len(), 1, "named topics get the proxy as the one broker");
    codes.push(("Metadata", metadata.topics[0].error_code, ends(wire).await));

    let mut wire = Wire::connect(proxy).await;
    let coordinator = wire.ask(3, &find_coordinator()).await;
    codes.push(("FindCoordinator", coordinator.error_code, ends(wire).await));

    let mut wire = Wire::connect(proxy).await;
    let produced = wire.ask(9, &produce_request(0, "outage")).await;
    codes.push(("Produce", produced.responses[0].partition_responses[0].error_code, ends(wire).await));

    let mut wire = Wire::connect(proxy).await;
    let fetched = wire.ask(11, &fetch()).await;
    let partition = &fetched.responses[0].partitions[0];
    assert_eq!(fetched.error_code, partition.error_code, "both say the same, or there is nothing to say");
    assert!(partition.records.is_some(), "a record set is never null");
    codes.push(("Fetch", partition.error_code, ends(wire).await));

    let mut wire = Wire::connect(proxy).await;
    let offsets = wire.ask(4, &list_offsets()).await;
    codes.push(("ListOffsets", offsets.topics[0].partitions[0].error_code, ends(wire).await));

    let mut wire = Wire::connect(proxy).await;
    let joined = wire.ask(4, &join_group()).await;
    codes.push(("JoinGroup", joined.error_code, ends(wire).await));
    codes
}

/// Whether the proxy closes a connection, given half a second.
async fn ends(mut wire: Wire) -> bool {
    tokio::time::timeout(Duration::from_millis(500), wire.is_closed()).await.unwrap_or(false)
}

fn all(code: ErrorCode, closed: bool) -> Vec<(&'static str, ErrorCode, bool)> {
    ["Metadata", "FindCoordinator", "Produce", "Fetch", "ListOffsets", "JoinGroup"]
        .map(|api| (api, code, closed))
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_ttl_nothing_is_served_until_etcd_is_back() {
    let partners = Partners::start().await;
    let endpoint = partners.etcd.endpoint();
    let settings = [("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", TTL), ("KAFSCALE_PROXY_ETCD_ENDPOINTS", &endpoint)];
    let mut deployment = Deployment::of(partners, &settings).await;
    let proxy = deployment.proxy.kafka.clone();
    assert_eq!(codes(&proxy).await, all(ErrorCode::NONE, false));

    deployment.partners.etcd.stop();
    let stopped = Instant::now();
    // What was proven just now may still be used. Brokers need etcd to acknowledge, Metadata comes from memory.
    assert_eq!(Wire::connect(&proxy).await.ask(9, &metadata()).await.topics[0].error_code, ErrorCode::NONE);
    assert_eq!(deployment.proxy.readiness().await, Some(200));

    tokio::time::sleep(PAST_THE_TTL.saturating_sub(stopped.elapsed())).await;
    assert_eq!(deployment.proxy.readiness().await, Some(503));
    assert_eq!(deployment.proxy.health.get("/livez").await.status, 200);
    assert_eq!(codes(&proxy).await, all(ErrorCode::REQUEST_TIMED_OUT, true));
    let everything = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let everything = Wire::connect(&proxy).await.ask(9, &everything).await;
    assert_eq!((everything.brokers.len(), everything.controller_id, everything.topics.len()), (0, -1, 0));
    let versions = Wire::connect(&proxy).await.ask(3, &ApiVersionsRequest::default()).await;
    assert!(versions.error_code.is_none() && !versions.api_keys.is_empty(), "ApiVersions is always answered");

    deployment.partners.etcd.restart().await;
    let back = Instant::now();
    eventually("the proxy is ready again", BACK_WITHIN, async || deployment.proxy.readiness().await == Some(200)).await;
    eventually("brokers acknowledge again", BACK_WITHIN, async || {
        let produced = Wire::connect(&proxy).await.ask(9, &produce_request(0, "back")).await;
        produced.responses[0].partition_responses[0].error_code.is_none()
    })
    .await;
    assert!(back.elapsed() < BACK_WITHIN, "ready and writing after {:?}", back.elapsed());
    assert_eq!(codes(&proxy).await, all(ErrorCode::NONE, false));
    let report = Client::Sarama.produce(Job::new(&proxy, TOPIC, PARTITIONS, 60)).report().await;
    assert_eq!((report.delivered.len(), report.failures), (60, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_hangs_is_no_better_than_one_that_is_gone() {
    let partners = Partners::start().await;
    let endpoint = partners.etcd.endpoint();
    let settings = [("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", "3"), ("KAFSCALE_PROXY_ETCD_ENDPOINTS", &endpoint)];
    let deployment = Deployment::of(partners, &settings).await;
    deployment.partners.etcd.freeze();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(deployment.proxy.readiness().await, Some(503));
    let answer = Wire::connect(&deployment.proxy.kafka).await.ask(9, &metadata()).await;
    assert_eq!(answer.topics[0].error_code, ErrorCode::REQUEST_TIMED_OUT);
    deployment.partners.etcd.thaw();
    eventually("the proxy is ready again", BACK_WITHIN, async || deployment.proxy.readiness().await == Some(200)).await;
}
