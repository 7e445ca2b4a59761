//! What the scenarios share: a small world, uploads, and what must hold when it has come to rest.

use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::inputs::ExchangeId;
use kafscale_proxy_core::model::Link;
use kafscale_proxy_core::{Config, LfsConfig, LfsStats, ListenerConfig};
use kafscale_proxy_tests::world::invariants::{Envelope, check_blobs, envelopes, leftovers};
use kafscale_proxy_tests::world::{BodyEnd, HttpClient, Plan, World};

pub(crate) const TOPIC: &str = "demo";
pub(crate) const PARTITION: i32 = 1;
/// One part of a multipart upload; shorter bodies go up in one PutObject.
pub(crate) const PART: usize = 4096;
/// Operations that are open while nothing is going on.
const WATCHES: usize = 3;
/// Longer than every deadline, retry and removal together.
const REST: Duration = Duration::from_secs(200);

pub(crate) fn config() -> Config {
    let lfs = LfsConfig {
        bucket: "blobs".into(),
        chunk_bytes: PART,
        single_put_below_bytes: PART,
        hash_inline_bytes: 500,
        hash_job_bytes: 2_000,
        download_memory_bytes: 1_000,
        ..LfsConfig::default()
    };
    let listener = ListenerConfig { advertised_host: "proxy".into(), ..ListenerConfig::default() };
    Config { lfs: Some(lfs), listener, ..Config::default() }
}

/// A world of one shard and three brokers whose partition has an owner and one record.
pub(crate) fn world(config: Config) -> World {
    let topics = vec![(TOPIC.into(), 2)];
    let mut world = World::new(Plan { seed: 7, config, shards: 1, brokers: 3, topics, min_part_bytes: 1 });
    world.run(Duration::from_secs(1));
    let first = upload(&mut world, b"first", &[]);
    world.run(Duration::from_secs(1));
    assert_eq!(answer(&world, first), Some((200, String::new())));
    assert!(world.owner(TOPIC, PARTITION).is_some());
    world
}

/// The broker that owns the partition.
pub(crate) fn owner(world: &World) -> usize {
    world.owner(TOPIC, PARTITION).expect("the first record made somebody the owner")
}

/// Brokers that do not own the partition.
pub(crate) fn others(world: &World) -> Vec<usize> {
    let owner = owner(world);
    (0..3).filter(|broker| *broker != owner).collect()
}

/// The way of a request whose answer takes so long.
pub(crate) fn slow(seconds: u64) -> Link {
    Link { delay: Duration::from_secs(seconds), ..Link::default() }
}

pub(crate) fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place % 251) as u8).collect()
}

/// Begins `POST /lfs/produce`.
pub(crate) fn upload(world: &mut World, body: &[u8], headers: &[(&str, &str)]) -> ExchangeId {
    upload_by(world, HttpClient::new(pieces(body), BodyEnd::Whole), headers)
}

pub(crate) fn pieces(body: &[u8]) -> Vec<Bytes> {
    body.chunks(1_400).map(Bytes::copy_from_slice).collect()
}

/// Begins `POST /lfs/produce` by this client.
pub(crate) fn upload_by(world: &mut World, client: HttpClient, headers: &[(&str, &str)]) -> ExchangeId {
    let mut head = http::Request::post("/lfs/produce")
        .header("X-Kafka-Topic", TOPIC)
        .header("X-Kafka-Partition", PARTITION.to_string());
    for (name, value) in headers {
        head = head.header(*name, *value);
    }
    let (head, ()) = head.body(()).expect("headers of tests are valid").into_parts();
    world.request(0, head, client)
}

/// The request of a client that wants the blob of an envelope.
pub(crate) fn download_request(envelope: &Envelope) -> HttpClient {
    let integrity = serde_json::json!({ "sha256": envelope.sha256, "size": envelope.size });
    let body = serde_json::json!({ "bucket": "blobs", "key": envelope.key, "integrity": integrity });
    HttpClient::new([Bytes::from(body.to_string())], BodyEnd::Whole)
}

/// Begins `POST /lfs/download`.
pub(crate) fn download(world: &mut World, client: HttpClient) -> ExchangeId {
    let (head, ()) = http::Request::post("/lfs/download").body(()).expect("a fixed request is valid").into_parts();
    world.request(0, head, client)
}

/// Status and error code of the answer, if there is one; a success has no code.
pub(crate) fn answer(world: &World, exchange: ExchangeId) -> Option<(u16, String)> {
    let client = world.exchange(exchange);
    let json: serde_json::Value = serde_json::from_slice(client.body()).unwrap_or_default();
    Some((client.status()?, json["code"].as_str().unwrap_or_default().to_owned()))
}

pub(crate) fn stats(world: &World) -> LfsStats {
    world.proxy(0).stats().lfs.expect("the API is on").clone()
}

/// Records that refer to a blob, the first one of every world left out.
pub(crate) fn records(world: &World) -> usize {
    envelopes(&world.log).len() - 1
}

/// Objects in the bucket, the first one of every world left out.
pub(crate) fn objects(world: &World) -> usize {
    world.s3.model.objects().count() - 1
}

/// Waits until everything has come to rest, then checks what must hold whatever happened.
pub(crate) fn rest(world: &mut World, what: &str) {
    world.run(REST);
    // Watches stay open for ever, and reads of the cluster come and go.
    let at_rest = |world: &mut World| world.proxy(0).stats().operations <= WATCHES;
    world.run_until(Duration::from_secs(30), &format!("{what}: an operation is open for ever"), at_rest);
    check(world, what);
}

/// What must hold whenever nothing is going on.
pub(crate) fn check(world: &World, what: &str) {
    assert_eq!(world.judges.violations(), [], "{what}");
    assert_eq!(check_blobs(&world.log, &world.s3), [], "{what}: I1");
    assert_eq!(world.deletes.referred(&world.log), Vec::<String>::new(), "{what}: I2");
    let (left, stats) = (leftovers(&world.log, &world.s3), stats(world));
    let counted = stats.orphans - stats.orphans_removed;
    assert!(left.len() as u64 <= counted, "{what}: I9: {left:?} left, {counted} counted");
    assert_eq!((world.proxy(0).stats().exchanges, stats.exchanges), (0, 0), "{what}: open exchanges");
    assert_eq!((stats.memory_taken_bytes, stats.disk_taken_bytes), (0, 0), "{what}: bytes that are held");
    assert_eq!((world.files(0), world.s3.model.opened()), (0, 0), "{what}: temporary files, opened objects");
}
