//! A producer and a consumer that live on through everything: an application that nobody restarts.
//!
//! That it can fail was tried with a proxy that uses what it has read from etcd for ever.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafscale_proxy_core::kafka::{
    ApiKey, ApiVersionsRequest, ErrorCode, FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic,
};
use kafscale_proxy_tests::peers::{Deployment, PARTITIONS, Partners, TOPIC, Wire, eventually};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message};
use tokio::task::JoinSet;

const TTL: &str = "3";
/// Longer than three times that.
const OUTAGE: Duration = Duration::from_secs(10);
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// Records of each phase.
const COUNT: usize = 24;

/// The two of them, in this process, with librdkafka's usual settings.
struct Application {
    producer: FutureProducer,
    read: Arc<Mutex<BTreeSet<String>>>,
    ended: Arc<AtomicBool>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Application {
    fn start(bootstrap: &str) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap).set("client.id", "peer-long-lived");
        let producer = config.clone().set("enable.idempotence", "false").create();
        let producer: FutureProducer = producer.expect("a producer needs no broker to begin");
        let consumer = config.set("group.id", "long-lived").set("auto.offset.reset", "earliest").create();
        let consumer: BaseConsumer = consumer.expect("a consumer needs no broker to begin");
        consumer.subscribe(&[TOPIC]).expect("a topic name");
        let read = Arc::new(Mutex::new(BTreeSet::new()));
        let ended = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (read, ended) = (Arc::clone(&read), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    // Errors are what librdkafka tells while it helps itself.
                    if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
                        let key = String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned();
                        read.lock().expect("nobody panics while holding it").insert(key);
                    }
                }
            }
        });
        Self { producer, read, ended, reader: Some(reader) }
    }

    /// Sends the records of a phase; each task ends when its record is acknowledged.
    fn send(&self, phase: &str) -> JoinSet<()> {
        let mut acknowledged = JoinSet::new();
        for index in 0..COUNT {
            let (producer, key) = (self.producer.clone(), format!("{phase}-{index}"));
            acknowledged.spawn(async move {
                let partition = i32::try_from(index % PARTITIONS).expect("few partitions");
                let record = FutureRecord::to(TOPIC).partition(partition).key(&key).payload("value");
                let delivery = producer.send(record, Duration::ZERO).await;
                delivery.unwrap_or_else(|(error, _)| panic!("{key}: {error}"));
            });
        }
        acknowledged
    }

    fn has_read(&self, phase: &str) -> bool {
        let read = self.read.lock().expect("nobody panics while holding it");
        (0..COUNT).all(|index| read.contains(&format!("{phase}-{index}")))
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // A panic of that thread was shown when it happened.
        self.reader.take().map(std::thread::JoinHandle::join);
    }
}

/// Brokers as `id host:port`, the controller, and the codes of the topics.
type Shape = (Vec<String>, i32, Vec<ErrorCode>);

async fn metadata(proxy: &str, version: i16, topics: Option<Vec<MetadataRequestTopic>>) -> Shape {
    let request = MetadataRequest { topics, ..MetadataRequest::default() };
    let answer = Wire::connect(proxy).await.ask(version, &request).await;
    let brokers = answer.brokers.iter().map(|broker| format!("{} {}:{}", broker.node_id, broker.host, broker.port));
    (brokers.collect(), answer.controller_id, answer.topics.iter().map(|topic| topic.error_code).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_goes_on_by_itself_after_an_outage_of_etcd() {
    let partners = Partners::start().await;
    let endpoint = partners.etcd.endpoint();
    let settings = [("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", TTL), ("KAFSCALE_PROXY_ETCD_ENDPOINTS", &endpoint)];
    let mut deployment = Deployment::of(partners, &settings).await;
    let proxy = deployment.proxy.kafka.clone();
    let application = Application::start(&proxy);
    application.send("before").join_all().await;
    eventually("what was written is read", BACK_WITHIN, async || application.has_read("before")).await;

    deployment.partners.etcd.stop();
    eventually("the proxy stops", BACK_WITHIN, async || deployment.proxy.readiness().await == Some(503)).await;
    let waiting = application.send("meanwhile");
    check_metadata_while_not_ready(&proxy).await;
    tokio::time::sleep(OUTAGE).await;
    assert_eq!(deployment.proxy.readiness().await, Some(503));

    deployment.partners.etcd.restart().await;
    let on_time = |all: JoinSet<()>| async {
        let ended = tokio::time::timeout(BACK_WITHIN, all.join_all()).await;
        assert!(ended.is_ok(), "the producer goes on within {BACK_WITHIN:?}");
    };
    on_time(waiting).await;
    on_time(application.send("after")).await;
    for phase in ["meanwhile", "after"] {
        eventually("the consumer goes on", BACK_WITHIN, async || application.has_read(phase)).await;
    }

    // One id, host and port, whoever asks.
    let coordinator = FindCoordinatorRequest { key: "long-lived".into(), ..FindCoordinatorRequest::default() };
    let coordinator = Wire::connect(&proxy).await.ask(3, &coordinator).await;
    let named = format!("{} {}:{}", coordinator.node_id, coordinator.host, coordinator.port);
    let (brokers, controller, _) = metadata(&proxy, 12, None).await;
    assert_eq!((brokers, controller), (vec![named], coordinator.node_id));
}

/// Whoever is told of topics is told of a broker, in every version; a client that sees the ones without the other is
/// lost until it is restarted.
async fn check_metadata_while_not_ready(proxy: &str) {
    let versions = Wire::connect(proxy).await.ask(3, &ApiVersionsRequest::default()).await;
    let advertised = versions.api_keys.iter().find(|api| api.api_key == ApiKey::Metadata as i16);
    let advertised = advertised.map(|api| (api.min_version, api.max_version));
    assert_eq!(advertised, Some((0, 12)));
    let itself = || vec![format!("0 {proxy}")];
    let topic = || MetadataRequestTopic { name: Some(TOPIC.into()), ..MetadataRequestTopic::default() };
    for version in 0..=12 {
        // Version 0 knows no controller.
        let controller = if version == 0 { -1 } else { 0 };
        let one = metadata(proxy, version, Some(vec![topic()])).await;
        assert_eq!(one, (itself(), controller, vec![ErrorCode::REQUEST_TIMED_OUT]), "one topic, version {version}");
        let nothing = (vec![], -1, vec![]);
        // An empty array asks for all topics in version 0, and for none later.
        let none = metadata(proxy, version, Some(vec![])).await;
        let expected = if version == 0 { nothing.clone() } else { (itself(), controller, vec![]) };
        assert_eq!(none, expected, "no topic, version {version}");
        if version > 0 {
            assert_eq!(metadata(proxy, version, None).await, nothing, "all topics, version {version}");
        }
    }
}
