//! Whatever happens to the proxy's partners and clients, afterwards it holds no more than before.
//!
//! Each fault is met by so many clients that one thing left behind by each of them stands out. Levels are compared
//! when nothing is under way, with the idle connections to S3 cut: the proxy may keep those.
//!
//! That it can fail was tried: one descriptor, one task or 2 MiB kept for each Kafka client end it at the first fault.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use kafscale_proxy_core::kafka::{FetchPartition, FetchRequest, FetchTopic};
use kafscale_proxy_core::kafka::{PartitionProduceData, ProduceRequest, Record, TopicProduceData, build_batch};
use kafscale_proxy_tests::peers::{
    BUCKET, Control, Deployment, Metrics, PARTITIONS, Partners, Relay, TOPIC, Wire, eventually, produce_request,
};
use tokio::task::JoinSet;

/// For how long rounds are begun; without it there is one. `tests/soak` sets it.
const SECONDS: &str = "KAFSCALE_PROXY_SOAK_SECONDS";

/// Clients that meet a fault.
const CLIENTS: usize = 16;
/// Bytes of a blob that goes up in parts, and comes back through a temporary file.
const BLOB: usize = 8 * 1024 * 1024;
/// Descriptors and tasks more than before: a health check or a watch may be under way.
const SLACK: f64 = 4.0;
/// Memory may grow by so much, KiB: pieces of the heap that are free and lie between others.
const GROWTH_KIB: f64 = 16.0 * 1024.0;
/// By default glibc keeps tens of megabytes of each thread's heap once a large piece was freed there; with these it gives large
/// pieces back at once, so that what stays is what the proxy holds.
const GIVE_MEMORY_BACK: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "131072"), ("MALLOC_TRIM_THRESHOLD_", "131072")];
/// Looks in a row that find no lower level: the first levels are those of a proxy at rest.
const SETTLED: u32 = 20;
/// After a fault: until everything works again, and until everything is given back.
const LIMIT: Duration = Duration::from_secs(60);

/// What the proxy holds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Levels {
    descriptors: f64,
    tasks: f64,
    resident_kib: f64,
    operations: f64,
    /// Connections of clients and to brokers, open requests, temporary files, and everything taken of a budget. None of
    /// it is left when nobody is there.
    in_use: f64,
}

impl Levels {
    async fn of(deployment: &Deployment) -> Self {
        let page = deployment.proxy.metrics.get("/metrics").await.text();
        let metrics = Metrics::read(&page);
        let in_use = [
            "kafscale_proxy_connections",
            "kafscale_proxy_broker_connections",
            "kafscale_proxy_kafka_requests_open",
            "kafscale_proxy_temp_files",
            "kafscale_proxy_budget_used",
        ];
        Self {
            descriptors: metrics.sum("process_open_fds", &[]),
            tasks: metrics.sum("kafscale_lfs_proxy_goroutines", &[]),
            resident_kib: metrics.sum("process_resident_memory_bytes", &[]) / 1024.0,
            operations: metrics.sum("kafscale_proxy_operations", &[]),
            in_use: in_use.into_iter().map(|name| metrics.sum(name, &[])).sum(),
        }
    }

    /// The lower of each level: something that is under way now and then is not left behind.
    fn min(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.min(other.descriptors),
            tasks: self.tasks.min(other.tasks),
            resident_kib: self.resident_kib.min(other.resident_kib),
            operations: self.operations.min(other.operations),
            in_use: self.in_use.min(other.in_use),
        }
    }

    fn is_no_more_than(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors + SLACK
            && self.tasks <= before.tasks + SLACK
            && self.resident_kib <= before.resident_kib + GROWTH_KIB
            && self.operations <= before.operations
            && self.in_use == 0.0
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { descriptors, tasks, resident_kib, operations, in_use } = self;
        write!(f, "descriptors {descriptors}, tasks {tasks}, resident {resident_kib} KiB, ")?;
        write!(f, "operations {operations}, in use {in_use}")
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    S3IsCut,
    ClientsVanishDuringUploads,
    ClientsDoNotReadDownloads,
    KafkaClientsDoNotRead,
    KafkaClientsVanish,
    EtcdIsGone,
    ABrokerIsGone,
}

const FAULTS: [Fault; 7] = [
    Fault::S3IsCut,
    Fault::ClientsVanishDuringUploads,
    Fault::ClientsDoNotReadDownloads,
    Fault::KafkaClientsDoNotRead,
    Fault::KafkaClientsVanish,
    Fault::EtcdIsGone,
    Fault::ABrokerIsGone,
];

struct Soak {
    deployment: Deployment,
    s3_link: Relay,
    /// The body of a download of a blob that is there.
    download: Bytes,
}

impl Soak {
    async fn start() -> Self {
        let partners = Partners::start().await;
        let s3_link = Relay::start(partners.store.endpoint().trim_start_matches("http://")).await;
        let endpoint = format!("http://{}", s3_link.address());
        let settings = [
            ("KAFSCALE_PROXY_SHARDS", "2"),
            ("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", "5"),
            ("KAFSCALE_LFS_PROXY_S3_ENDPOINT", &endpoint),
            ("KAFSCALE_LFS_PROXY_S3_HEALTH_INTERVAL_SEC", "1"),
            ("KAFSCALE_LFS_PROXY_UPLOAD_MEMORY_BYTES", "67108864"),
        ];
        let settings = [&settings[..], &GIVE_MEMORY_BACK].concat();
        let deployment = Deployment::of(partners, &settings).await;
        let mut soak = Self { deployment, s3_link, download: Bytes::new() };
        let envelope = soak.upload(BLOB).await.expect("everything is there");
        let wanted = serde_json::json!({
            "bucket": BUCKET, "key": envelope["key"], "mode": "stream",
            "integrity": {"sha256": envelope["sha256"], "checksum_alg": "sha256", "size": BLOB},
        });
        soak.download = wanted.to_string().into();
        // Answers to whoever fetches this fill every buffer on their way.
        for partition in 0..PARTITIONS {
            let record = Record { value: Some(vec![7; 1024 * 1024].into()), ..Record::default() };
            let index = i32::try_from(partition).expect("few partitions");
            let data = PartitionProduceData { index, records: Some(build_batch(0, [record])) };
            let topic = TopicProduceData { name: TOPIC.into(), partition_data: vec![data] };
            let request =
                ProduceRequest { acks: -1, timeout_ms: 15_000, topic_data: vec![topic], ..ProduceRequest::default() };
            let mut wire = Wire::connect(&soak.deployment.proxy.kafka).await;
            let answer = wire.ask(9, &request).await;
            assert!(answer.responses[0].partition_responses[0].error_code.is_none());
        }
        soak
    }

    /// Uploads a blob; the envelope, or `None` when that was refused or broke off.
    async fn upload(&self, size: usize) -> Option<serde_json::Value> {
        let body = vec![42; size];
        let answer =
            self.deployment.proxy.lfs.try_send(Method::POST, "/lfs/produce", &[("x-kafka-topic", TOPIC)], body).await;
        answer.ok().filter(|answer| answer.status == 200).map(|answer| answer.json())
    }

    /// What ordinary clients do while something is wrong, whatever they are told: records, blobs, downloads.
    fn load(&self) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (kafka, lfs) = (self.deployment.proxy.kafka.clone(), self.deployment.proxy.lfs.clone());
            let download = self.download.clone();
            clients.spawn(async move {
                for round in 0..2 {
                    let mut wire = Wire::connect(&kafka).await;
                    let request = produce_request((client + round) % PARTITIONS, "soak");
                    if wire.send(9, &request).await.is_ok() {
                        let limit = Duration::from_secs(2);
                        // No answer is an answer here.
                        let _ = tokio::time::timeout(limit, wire.receive_frame()).await;
                    }
                    drop(wire);
                    let size = if client % 4 == 0 { 6 * 1024 * 1024 } else { 1_000 };
                    let headers = [("x-kafka-topic", TOPIC)];
                    let _ = lfs.try_send(Method::POST, "/lfs/produce", &headers, vec![1; size]).await;
                    if client % 4 == 1 {
                        let _ = lfs.try_send(Method::POST, "/lfs/download", &[], download.clone()).await;
                    }
                }
            });
        }
        clients
    }

    async fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::S3IsCut => {
                let load = self.load();
                for _ in 0..3 {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    self.s3_link.cut();
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    self.s3_link.restore().await;
                }
                load.join_all().await;
            }
            Fault::ClientsVanishDuringUploads => self.vanish_during_uploads().await,
            Fault::ClientsDoNotReadDownloads => self.do_not_read_downloads().await,
            Fault::KafkaClientsDoNotRead => self.do_not_read_fetches().await,
            Fault::KafkaClientsVanish => self.vanish_from_kafka().await,
            Fault::EtcdIsGone => {
                let load = self.load();
                self.deployment.partners.etcd.stop();
                // Past the time that what was read may be used.
                tokio::time::sleep(Duration::from_secs(6)).await;
                self.deployment.partners.etcd.restart().await;
                load.join_all().await;
            }
            Fault::ABrokerIsGone => {
                let load = self.load();
                self.deployment.partners.brokers.control(0, Control::Crash);
                tokio::time::sleep(Duration::from_secs(2)).await;
                self.deployment.partners.brokers.control(0, Control::Start);
                load.join_all().await;
            }
        }
    }

    /// Half of each body is sent; every other client resets, the others close.
    async fn vanish_during_uploads(&self) {
        let length = u64::try_from(BLOB).expect("a length");
        let mut uploads = Vec::new();
        for _ in 0..CLIENTS {
            let mut upload =
                self.deployment.proxy.lfs.begin_post("/lfs/produce", &[("x-kafka-topic", TOPIC)], length).await;
            // The rest of them wait for memory: there they are left, too.
            let _ = tokio::time::timeout(Duration::from_millis(300), upload.write(&vec![3; BLOB / 2])).await;
            uploads.push(upload);
        }
        for (index, upload) in uploads.into_iter().enumerate() {
            if index % 2 == 0 {
                upload.reset();
            }
        }
    }

    async fn do_not_read_downloads(&self) {
        let length = u64::try_from(self.download.len()).expect("a length");
        let mut downloads = Vec::new();
        for _ in 0..CLIENTS {
            let mut download = self.deployment.proxy.lfs.begin_post("/lfs/download", &[], length).await;
            download.write(&self.download).await.expect("the proxy reads requests");
            downloads.push(download);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let levels = Levels::of(&self.deployment).await;
        assert!(levels.in_use > 0.0, "nothing is held while nobody reads: {levels}");
    }

    async fn do_not_read_fetches(&self) {
        let topics = (0..PARTITIONS).map(|index| FetchPartition {
            partition: i32::try_from(index).expect("few partitions"),
            // Behind the records that the partitions began with lies the large one.
            fetch_offset: 1,
            partition_max_bytes: i32::MAX,
            ..FetchPartition::default()
        });
        let fetch = FetchRequest {
            max_bytes: i32::MAX,
            session_epoch: -1,
            topics: vec![FetchTopic { topic: TOPIC.into(), partitions: topics.collect(), ..FetchTopic::default() }],
            ..FetchRequest::default()
        };
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut wire = Wire::connect(&self.deployment.proxy.kafka).await;
            for _ in 0..4 {
                wire.send(11, &fetch).await.expect("the proxy reads requests");
            }
            clients.push(wire);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let levels = Levels::of(&self.deployment).await;
        assert!(levels.in_use > 0.0, "nothing is held while nobody reads: {levels}");
    }

    /// Requests without a reader, half frames, and frames that are announced and never come.
    async fn vanish_from_kafka(&self) {
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            let mut wire = Wire::connect(&self.deployment.proxy.kafka).await;
            for partition in 0..PARTITIONS {
                wire.send(9, &produce_request(partition, "vanishing")).await.expect("the proxy reads requests");
            }
            let announced: u32 = if client % 2 == 0 { 10_000_000 } else { 1_000 };
            wire.send_bytes(&announced.to_be_bytes()).await.expect("the proxy reads requests");
            wire.send_bytes(&[0; 100]).await.expect("the proxy reads requests");
            clients.push(wire);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    /// Waits until everything works as ever.
    async fn recover(&self) {
        eventually("blobs are stored", LIMIT, async || self.upload(10).await.is_some()).await;
        for partition in 0..PARTITIONS {
            eventually("records are acknowledged", LIMIT, async || {
                let mut wire = Wire::connect(&self.deployment.proxy.kafka).await;
                if wire.send(9, &produce_request(partition, "again")).await.is_err() {
                    return false;
                }
                let answer = tokio::time::timeout(Duration::from_secs(5), wire.receive::<ProduceRequest>(9)).await;
                let Ok(Ok(Some((_, answer)))) = answer else { return false };
                answer.responses[0].partition_responses[0].error_code.is_none()
            })
            .await;
        }
    }

    /// Drops the idle connections to S3, and gives the lowest levels as soon as none is higher than `before`.
    async fn levels(&self, what: &str, before: &Levels) -> Levels {
        self.s3_link.cut();
        self.s3_link.restore().await;
        let started = Instant::now();
        let mut lowest = Levels::of(&self.deployment).await;
        while !lowest.is_no_more_than(before) {
            assert!(started.elapsed() < LIMIT, "within {LIMIT:?} after {what}\n  lowest: {lowest}\n  before: {before}");
            tokio::time::sleep(Duration::from_millis(200)).await;
            lowest = lowest.min(Levels::of(&self.deployment).await);
        }
        lowest
    }

    /// The levels of a proxy that nobody uses.
    async fn first_levels(&self) -> Levels {
        self.s3_link.cut();
        self.s3_link.restore().await;
        let mut lowest = Levels::of(&self.deployment).await;
        let mut settled = 0;
        eventually("a proxy that nobody uses holds nothing, and no less a little later", LIMIT, async || {
            let lower = lowest.min(Levels::of(&self.deployment).await);
            settled = if lower == lowest { settled + 1 } else { 0 };
            lowest = lower;
            lowest.in_use == 0.0 && settled >= SETTLED
        })
        .await;
        lowest
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_given_back_after_every_fault() {
    let seconds = std::env::var(SECONDS).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{SECONDS}: {text}")));
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let mut soak = Soak::start().await;
    // Once of everything, so that what is made at first use is there: worker threads, buffers of the allocator.
    soak.load().join_all().await;
    soak.recover().await;
    let before = soak.first_levels().await;
    println!("before: {before}");
    let mut round = 0;
    loop {
        round += 1;
        for fault in FAULTS {
            let began = Instant::now();
            soak.strike(fault).await;
            soak.recover().await;
            let levels = soak.levels(&format!("{fault:?} of round {round}"), &before).await;
            println!("round {round}, {fault:?}, {:.1} s: {levels}", began.elapsed().as_secs_f64());
        }
        if Instant::now() >= until {
            break;
        }
    }
}
