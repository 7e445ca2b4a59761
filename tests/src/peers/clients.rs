//! Kafka clients as people use them: programs around Go, Java and Node libraries, and librdkafka in this process.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde_json::Value;
use tokio::process::Command;
use tokio::task::JoinHandle;

/// Folder with the client programs, as `tests/run` builds them.
const CLIENTS: &str = "KAFSCALE_PROXY_TEST_CLIENTS";

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// IBM/sarama.
    Sarama,
    /// segmentio/kafka-go.
    KafkaGo,
    /// Apache Kafka's own.
    Java,
    /// kafkajs.
    Kafkajs,
    /// librdkafka, by the crate rdkafka.
    Librdkafka,
}

/// What a client is to do; tests/clients/README.md tells what its members mean.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Job {
    pub bootstrap: String,
    pub topic: String,
    pub partitions: usize,
    pub count: usize,
    pub first: usize,
    pub rate: Option<u32>,
    pub retries: Option<u32>,
    pub acks: &'static str,
    pub group: Option<String>,
    pub timeout: Duration,
}

impl Job {
    /// `count` records over all `partitions` of a topic.
    pub fn new(bootstrap: &str, topic: &str, partitions: usize, count: usize) -> Self {
        Self {
            bootstrap: bootstrap.to_owned(),
            topic: topic.to_owned(),
            partitions,
            count,
            first: 0,
            rate: None,
            retries: None,
            acks: "all",
            group: None,
            timeout: Duration::from_secs(60),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        let mut option = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        option("bootstrap", self.bootstrap.clone());
        option("topic", self.topic.clone());
        option("partitions", self.partitions.to_string());
        option("count", self.count.to_string());
        option("first", self.first.to_string());
        option("acks", self.acks.to_owned());
        option("timeout-ms", self.timeout.as_millis().to_string());
        self.rate.into_iter().for_each(|rate| option("rate", rate.to_string()));
        self.retries.into_iter().for_each(|retries| option("retries", retries.to_string()));
        self.group.iter().for_each(|group| option("group", group.clone()));
        arguments
    }
}

/// An acknowledged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Index of the record in its job.
    pub index: usize,
    /// Partition.
    pub partition: i32,
    /// Offset, -1 when the client was not told.
    pub offset: i64,
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
}

/// What a client has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Acknowledged records, as they were acknowledged.
    pub delivered: Vec<Delivered>,
    /// Records, as they were read.
    pub records: Vec<Record>,
    /// Errors that the client showed its user.
    pub failures: Vec<String>,
}

/// A job under way. The client ends with this value.
#[derive(Debug)]
pub struct Running {
    client: Client,
    job: JoinHandle<Report>,
}

impl Running {
    /// Waits for the end of the job.
    ///
    /// # Panics
    /// When the client itself crashed.
    pub async fn report(self) -> Report {
        let client = self.client;
        self.job.await.unwrap_or_else(|error| panic!("{client:?}: {error}"))
    }
}

impl Client {
    /// Begins to produce.
    pub fn produce(self, job: Job) -> Running {
        self.run("produce", job)
    }

    /// Begins to read.
    pub fn consume(self, job: Job) -> Running {
        self.run("consume", job)
    }

    fn run(self, verb: &'static str, job: Job) -> Running {
        let task = match self {
            Self::Sarama | Self::KafkaGo | Self::Java | Self::Kafkajs => tokio::spawn(self.run_program(verb, job)),
            Self::Librdkafka if verb == "produce" => tokio::spawn(librdkafka_produce(job)),
            Self::Librdkafka => tokio::task::spawn_blocking(move || librdkafka_consume(&job)),
        };
        Running { client: self, job: task }
    }

    fn program(self) -> Command {
        let folder = PathBuf::from(
            std::env::var(CLIENTS).unwrap_or_else(|_| panic!("{CLIENTS} names no folder with clients; use tests/run")),
        );
        let go = |library: &str| {
            let mut command = Command::new(folder.join("client"));
            command.arg(library);
            command
        };
        match self {
            Self::Sarama => go("sarama"),
            Self::KafkaGo => go("kafka-go"),
            Self::Java => {
                let folder = folder.join("java").display().to_string();
                let mut command = Command::new("java");
                command.args(["-Xmx256m", "-cp", &format!("{folder}:{folder}/*"), "Client"]);
                command
            }
            Self::Kafkajs => {
                let mut command = Command::new("node");
                command.arg(folder.join("node/client.js"));
                command
            }
            Self::Librdkafka => unreachable!("it runs in this process"),
        }
    }

    async fn run_program(self, verb: &'static str, job: Job) -> Report {
        let mut command = self.program();
        command.arg(verb).args(job.arguments()).stdin(Stdio::null()).kill_on_drop(true);
        let output =
            command.output().await.unwrap_or_else(|error| panic!("{self:?} is not there ({error}); use tests/run"));
        let mut report = Report::default();
        let mut ended = false;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{self:?}: {error}: {line}"));
            let number = |name: &str| line[name].as_i64().unwrap_or_else(|| panic!("no {name} in {line}"));
            let text = |name: &str| line[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}")).to_owned();
            let partition = || i32::try_from(number("partition")).expect("a partition");
            match line["event"].as_str() {
                Some("delivered") => report.delivered.push(Delivered {
                    index: usize::try_from(number("index")).expect("an index"),
                    partition: partition(),
                    offset: number("offset"),
                }),
                Some("record") => report.records.push(Record {
                    partition: partition(),
                    offset: number("offset"),
                    key: text("key"),
                    value: text("value"),
                }),
                Some("failed") => report.failures.push(text("error")),
                Some("end") => ended = true,
                other => panic!("{self:?}: unknown event {other:?}"),
            }
        }
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(ended, "{self:?} ended before its job: {log}");
        if !report.failures.is_empty() {
            eprintln!("--- log of {self:?}, told to {verb}\n{log}");
        }
        report
    }
}

fn key(index: usize) -> String {
    format!("key-{index}")
}

fn value(index: usize) -> String {
    format!("value-{index}")
}

async fn librdkafka_produce(job: Job) -> Report {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &job.bootstrap).set("client.id", "peer-librdkafka");
    config.set("enable.idempotence", "false").set("acks", job.acks);
    if let Some(retries) = job.retries {
        config.set("message.send.max.retries", retries.to_string());
    }
    let producer: FutureProducer = config.create().expect("a producer needs no broker to begin");
    let mut report = Report::default();
    let mut sent = Vec::new();
    let started = Instant::now();
    for (n, index) in (job.first..job.first + job.count).enumerate() {
        if let Some(rate) = job.rate {
            let due = started + Duration::from_secs(1) * u32::try_from(n).expect("few records") / rate;
            tokio::time::sleep_until(due.into()).await;
        }
        let partition = i32::try_from(index % job.partitions).expect("few partitions");
        let (key, value) = (key(index), value(index));
        loop {
            match producer.send_result(FutureRecord::to(&job.topic).partition(partition).key(&key).payload(&value)) {
                Ok(future) => break sent.push((index, future)),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err((error, _)) => break report.failures.push(error.to_string()),
            }
        }
    }
    for (index, future) in sent {
        match future.await.expect("the producer is still there") {
            Ok(delivery) => {
                report.delivered.push(Delivered { index, partition: delivery.partition, offset: delivery.offset })
            }
            Err((error, _)) => report.failures.push(error.to_string()),
        }
    }
    // Dropping it waits for its threads, which must not hold up this one.
    tokio::task::spawn_blocking(move || producer.flush(Duration::from_secs(1))).await.expect("no panic").ok();
    report
}

fn librdkafka_consume(job: &Job) -> Report {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &job.bootstrap).set("client.id", "peer-librdkafka");
    config.set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
    config.set("group.id", job.group.as_deref().unwrap_or("peer-without-group"));
    let consumer: BaseConsumer = config.create().expect("a consumer needs no broker to begin");
    if job.group.is_some() {
        consumer.subscribe(&[&job.topic]).expect("a topic name");
    } else {
        let mut all = TopicPartitionList::new();
        for partition in 0..job.partitions {
            let partition = i32::try_from(partition).expect("few partitions");
            all.add_partition_offset(&job.topic, partition, Offset::Beginning).expect("a partition");
        }
        consumer.assign(&all).expect("partitions");
    }
    let mut report = Report::default();
    let deadline = Instant::now() + job.timeout;
    while report.records.len() < job.count && Instant::now() < deadline {
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => {
                let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
                report.records.push(Record {
                    partition: message.partition(),
                    offset: message.offset(),
                    key: text(message.key()),
                    value: text(message.payload()),
                });
                if job.group.is_some()
                    && let Err(error) = consumer.commit_message(&message, CommitMode::Sync)
                {
                    report.failures.push(error.to_string());
                }
            }
            Some(Err(error)) => report.failures.push(error.to_string()),
            None => {}
        }
    }
    report
}

/// Runs curl; gives its exit code and what it printed.
///
/// # Panics
/// When curl is not installed.
pub async fn curl(arguments: &[&str]) -> (i32, String) {
    let output = Command::new("curl").args(["--silent", "--show-error"]).args(arguments).output().await;
    let output = output.unwrap_or_else(|error| panic!("curl cannot be started ({error}); tests/run installs it"));
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
}
