//! One produce and one upload through the machine and the models, in simulated time: the whole way, twice with equal
//! traces, and with an owner that refuses.

use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::inputs::{ClientId, ExchangeId};
use kafscale_proxy_core::kafka::{
    ErrorCode, PartitionProduceData, ProduceRequest, ProduceResponse, Record, TopicProduceData, build_batch,
};
use kafscale_proxy_core::model::broker::Fault;
use kafscale_proxy_core::{Config, LfsConfig, ListenerConfig};
use kafscale_proxy_tests::world::invariants::{check_blobs, envelopes};
use kafscale_proxy_tests::world::{BodyEnd, HttpClient, Plan, World};
use sha2::{Digest, Sha256};

const TOPIC: &str = "demo";
const SOON: Duration = Duration::from_secs(5);

fn world(seed: u64) -> World {
    let lfs =
        LfsConfig { bucket: "blobs".into(), chunk_bytes: 4096, single_put_below_bytes: 4096, ..LfsConfig::default() };
    let listener = ListenerConfig { advertised_host: "proxy".into(), ..ListenerConfig::default() };
    World::new(Plan {
        seed,
        config: Config { lfs: Some(lfs), listener, ..Config::default() },
        shards: 1,
        brokers: 3,
        topics: vec![(TOPIC.into(), 6)],
        min_part_bytes: 1,
    })
}

fn produce(partition: i32, value: &'static [u8]) -> ProduceRequest {
    let record = Record { value: Some(Bytes::from_static(value)), ..Record::default() };
    let records = Some(build_batch(0, [record]));
    let partition_data = vec![PartitionProduceData { index: partition, records }];
    let topic_data = vec![TopicProduceData { name: TOPIC.into(), partition_data }];
    ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data, ..ProduceRequest::default() }
}

/// Sends one batch and gives the code and offset that the client got.
fn produce_one(world: &mut World, client: ClientId, partition: i32, value: &'static [u8]) -> (ErrorCode, i64) {
    let request = produce(partition, value);
    let records = request.topic_data[0].partition_data[0].records.clone().expect("it has a batch");
    let batch = world.judges.order.sent(client, TOPIC, partition, &records, true);
    world.send(client, 9, &request, true);
    world.run_until(SOON, "the produce is answered", |world| world.client(client).awaited() == 0);
    let answer: ProduceResponse = world.take_answer(client, 9).expect("an answer has come");
    let partition = &answer.responses[0].partition_responses[0];
    assert_eq!(world.judges.order.answered(batch, partition.error_code, partition.base_offset), None);
    nothing_is_broken(world);
    (partition.error_code, partition.base_offset)
}

fn nothing_is_broken(world: &World) {
    assert_eq!(world.judges.violations(), []);
}

fn upload(world: &mut World, body: &[u8], end: BodyEnd) -> ExchangeId {
    let pieces: Vec<Bytes> = body.chunks(1_400).map(Bytes::copy_from_slice).collect();
    let head = http::Request::post("/lfs/produce")
        .header("X-Kafka-Topic", TOPIC)
        .header("X-Kafka-Partition", "1")
        .header("Content-Type", "text/plain");
    let (head, ()) = head.body(()).expect("a fixed request is valid").into_parts();
    world.request(0, head, HttpClient::new(pieces, end))
}

fn upload_one(world: &mut World, body: &[u8]) -> (u16, serde_json::Value) {
    let exchange = upload(world, body, BodyEnd::Whole);
    world.run_until(SOON, "the upload is answered", |world| world.exchange(exchange).status().is_some());
    let client = world.exchange(exchange);
    let answer = serde_json::from_slice(client.body()).expect("the answer is JSON");
    (client.status().expect("there is an answer"), answer)
}

fn body() -> Vec<u8> {
    (0..20_000_u32).map(|number| (number % 251) as u8).collect()
}

/// One produce and one upload; gives the world they happened in.
fn the_main_job(seed: u64) -> World {
    let mut world = world(seed);
    world.run(Duration::from_secs(1));
    let client = world.connect(0);
    assert_eq!(produce_one(&mut world, client, 0, b"hello"), (ErrorCode::NONE, 0));
    assert_eq!(produce_one(&mut world, client, 0, b"again"), (ErrorCode::NONE, 1));

    let (status, envelope) = upload_one(&mut world, &body());
    assert_eq!(status, 200, "{envelope}");
    let digest: String = Sha256::digest(body()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(envelope["sha256"], digest.as_str());
    assert_eq!(envelope["size"], 20_000);
    world.run(Duration::from_secs(1));
    nothing_is_broken(&world);
    world
}

#[test]
fn records_and_blobs_arrive_whole() {
    let world = the_main_job(1);
    let stored = envelopes(&world.log);
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].topic.as_str(), stored[0].partition, stored[0].size), (TOPIC, 1, 20_000));
    assert_eq!(check_blobs(&world.log, &world.s3), []);
    assert!(world.deletes.is_empty());
    assert_eq!(world.s3.model.uploads().count(), 0, "no multipart upload is left open");
    assert_eq!(world.log.partition(TOPIC, 0).expect("there are records").end_offset(), 2);
}

#[test]
fn equal_seeds_give_equal_effects_byte_for_byte() {
    let (one, other) = (the_main_job(7), the_main_job(7));
    assert!(one.trace.lines().len() > 40, "the trace is {} lines long", one.trace.lines().len());
    assert_eq!(one.trace.lines(), other.trace.lines());
    assert_ne!(one.trace.lines(), the_main_job(8).trace.lines(), "object keys follow from the seed");
}

#[test]
fn an_owner_that_refuses_costs_the_client_nothing() {
    let mut world = the_main_job(3);
    let client = world.connect(0);
    let owner = world.owner(TOPIC, 0).expect("the partition has an owner");
    world.broker(owner).inject(Fault::RefuseProduce(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(produce_one(&mut world, client, 0, b"once more"), (ErrorCode::NONE, 2));

    let owner = world.owner(TOPIC, 1).expect("the partition has an owner");
    world.broker(owner).inject(Fault::RefuseProduce(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    let (status, envelope) = upload_one(&mut world, &body());
    // The owner refuses once, and the others refuse because they do not own the partition.
    assert_eq!((status, envelope["code"].as_str()), (503, Some("backend_unavailable")));
    world.run(Duration::from_secs(5));
    assert_eq!(envelopes(&world.log).len(), 1);
    assert_eq!(world.deletes.len(), 1, "no record can refer to the refused blob");
    assert_eq!(world.s3.model.objects().count(), 1);
    assert_eq!(world.deletes.referred(&world.log), Vec::<String>::new());
    nothing_is_broken(&world);
}

#[test]
fn a_lost_acknowledgement_keeps_the_blob() {
    let mut world = the_main_job(4);
    let owner = world.owner(TOPIC, 1).expect("the partition has an owner");
    world.broker(owner).inject(Fault::CrashAfterAppend);
    let (status, answer) = upload_one(&mut world, &body());
    assert_eq!((status, answer["code"].as_str()), (502, Some("backend_error")));
    world.run(Duration::from_secs(30));
    assert_eq!(envelopes(&world.log).len(), 2, "the record was appended");
    assert_eq!(check_blobs(&world.log, &world.s3), []);
    assert!(world.deletes.is_empty());
    nothing_is_broken(&world);
}

#[test]
fn a_body_that_breaks_off_is_never_published() {
    for length in [0, 1, 4_095, 4_096, 8_192, 19_999] {
        let mut world = the_main_job(5);
        upload(&mut world, &body()[..length], BodyEnd::Cut);
        world.run(Duration::from_secs(5));
        assert_eq!(envelopes(&world.log).len(), 1, "cut after {length}");
        assert_eq!(world.s3.model.uploads().count(), 0, "cut after {length}: the upload is aborted");
        assert_eq!(world.s3.model.objects().count(), 1, "cut after {length}: nothing is left");
        nothing_is_broken(&world);
    }
}
