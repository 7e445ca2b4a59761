//! Drives librdkafka, by the crate rdkafka, for the black-box suite: one command line for all clients, JSON lines as output
//! (tests/clients/README.md). The same source is built with the newest crate and with one of 2022.

use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext, Message, Offset, TopicPartitionList};
use serde_json::{Value, json};

/// How long one administrative request may take.
const ADMIN: Duration = Duration::from_secs(20);

type Outcome = Result<(), Box<dyn std::error::Error>>;

static DONE: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicUsize = AtomicUsize::new(0);
static TOLD_TO_END: AtomicBool = AtomicBool::new(false);

fn line(fields: &Value) {
    println!("{fields}");
}

fn failed(index: i64, error: &str) {
    FAILED.fetch_add(1, Ordering::SeqCst);
    line(&json!({"event": "failed", "index": index, "error": error}));
}

struct Options(HashMap<String, String>);

impl Options {
    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.0.get(name).and_then(|number| number.parse().ok())
    }

    fn partitions(&self) -> i32 {
        self.text("partitions").parse().unwrap_or(1)
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.text("bootstrap")).set("client.id", "peer-librdkafka");
        config
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let mut options = HashMap::new();
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        options.insert(name.trim_start_matches("--").to_owned(), value);
    }
    let options = Options(options);
    line(&json!({"event": "client", "library": "librdkafka", "version": rdkafka::util::get_rdkafka_version().1}));
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        TOLD_TO_END.store(true, Ordering::SeqCst);
    });
    let outcome = match verb.as_str() {
        "produce" => produce(&options),
        "consume" => consume(&options),
        "admin" => admin(&options),
        _ => {
            eprintln!("usage: rdkafka produce|consume|admin --bootstrap HOST:PORT --topic TOPIC ...");
            std::process::exit(2);
        }
    };
    if let Err(error) = outcome {
        failed(-1, &error.to_string());
    }
    let (done, failed) = (DONE.load(Ordering::SeqCst), FAILED.load(Ordering::SeqCst));
    line(&json!({"event": "end", "done": done, "failed": failed}));
    let enough = verb == "admin" || done >= options.number("count").unwrap_or(0);
    std::process::exit(i32::from(failed > 0 || !enough));
}

struct Deliveries;

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, index: Box<usize>) {
        match result {
            Ok(message) => {
                line(&json!({
                    "event": "delivered", "index": *index, "partition": message.partition(), "offset": message.offset(),
                }));
                DONE.fetch_add(1, Ordering::SeqCst);
            }
            Err((error, _)) => failed(i64::try_from(*index).unwrap_or(-1), &error.to_string()),
        }
    }
}

fn produce(options: &Options) -> Outcome {
    let mut config = options.config();
    config.set("acks", options.text("acks"));
    if options.text("idempotence") == "off" {
        config.set("enable.idempotence", "false");
    }
    if let Some(retries) = options.number("retries") {
        config.set("message.send.max.retries", retries.to_string());
    }
    if let Some(compression) = options.0.get("compression") {
        config.set("compression.type", compression);
    }
    let producer: ThreadedProducer<Deliveries> = config.create_with_context(Deliveries)?;
    let (first, count) = (options.number("first").unwrap_or(0), options.number("count").unwrap_or(0));
    let started = Instant::now();
    for index in first..first + count {
        if let Some(rate) = options.number("rate") {
            let due = started + Duration::from_secs(1) * (index - first) as u32 / rate as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let (key, value) = (format!("key-{index}"), format!("value-{index}"));
        let partition = index as i32 % options.partitions();
        loop {
            let record = BaseRecord::with_opaque_to(options.text("topic"), Box::new(index));
            match producer.send(record.partition(partition).key(&key).payload(&value)) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err((error, _)) => break failed(index as i64, &error.to_string()),
            }
        }
    }
    // Each record is reported in the end, by the library's own timeout if by nothing else.
    while DONE.load(Ordering::SeqCst) + FAILED.load(Ordering::SeqCst) < count {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn consume(options: &Options) -> Outcome {
    let group = options.0.get("group");
    let mut config = options.config();
    config.set("auto.offset.reset", "earliest").set("group.id", group.map_or("peer-without-group", String::as_str));
    let consumer: BaseConsumer = config.create()?;
    if group.is_some() {
        consumer.subscribe(&[options.text("topic")])?;
    } else {
        let mut all = TopicPartitionList::new();
        for partition in 0..options.partitions() {
            all.add_partition_offset(options.text("topic"), partition, Offset::Beginning)?;
        }
        consumer.assign(&all)?;
    }
    let count = options.number("count").unwrap_or(0);
    let limit = Duration::from_millis(options.number("timeout-ms").unwrap_or(60_000) as u64);
    let started = Instant::now();
    while DONE.load(Ordering::SeqCst) < count && started.elapsed() < limit && !TOLD_TO_END.load(Ordering::SeqCst) {
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => {
                let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
                line(&json!({
                    "event": "record", "partition": message.partition(), "offset": message.offset(),
                    "key": text(message.key()), "value": text(message.payload()),
                }));
                DONE.fetch_add(1, Ordering::SeqCst);
            }
            Some(Err(error)) => failed(-1, &error.to_string()),
            None => {}
        }
    }
    // Commits what was read and leaves the group.
    drop(consumer);
    Ok(())
}

fn answered(verb: &str, mut fields: Value) {
    fields["event"] = "admin".into();
    fields["verb"] = verb.into();
    line(&fields);
}

fn admin(options: &Options) -> Outcome {
    let (topic, group) = (options.text("topic"), options.text("group"));
    let new = format!("{topic}.new");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let admin: AdminClient<DefaultClientContext> = options.config().create()?;
    let limits = AdminOptions::new().operation_timeout(Some(ADMIN)).request_timeout(Some(ADMIN));
    let consumer: BaseConsumer = options.config().set("group.id", group).create()?;

    let topics = [NewTopic::new(&new, options.partitions(), TopicReplication::Fixed(1))];
    for result in runtime.block_on(admin.create_topics(&topics, &limits))? {
        result.map_err(|(name, code)| format!("create-topic {name}: {code}"))?;
    }
    answered("create-topic", json!({}));
    // Where there are several connections, not all know it at once.
    std::thread::sleep(Duration::from_millis(300));
    let metadata = consumer.fetch_metadata(None, ADMIN)?;
    let names: Vec<&str> = metadata.topics().iter().map(|topic| topic.name()).collect();
    answered("list-topics", json!({"names": names}));
    for result in runtime.block_on(admin.delete_topics(&[&new], &limits))? {
        result.map_err(|(name, code)| format!("delete-topic {name}: {code}"))?;
    }
    answered("delete-topic", json!({}));
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for partition in 0..options.partitions() {
        let (low, high) = consumer.fetch_watermarks(topic, partition, ADMIN)?;
        first.push(low);
        last.push(high);
    }
    answered("offsets", json!({"first": first, "last": last}));
    let groups = consumer.fetch_group_list(None, ADMIN)?;
    let names: Vec<&str> = groups.groups().iter().map(|group| group.name()).collect();
    answered("list-groups", json!({"names": names}));
    let groups = consumer.fetch_group_list(Some(group), ADMIN)?;
    let described = groups.groups().first().ok_or("describe-group: no answer")?;
    answered("describe-group", json!({"state": described.state(), "members": described.members().len()}));
    // The crate of 2022 cannot.
    #[cfg(feature = "peers")]
    {
        for result in runtime.block_on(admin.delete_groups(&[group], &limits))? {
            result.map_err(|(name, code)| format!("delete-group {name}: {code}"))?;
        }
        answered("delete-group", json!({}));
    }
    Ok(())
}
