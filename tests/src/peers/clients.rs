//! Kafka clients as people use them: programs around their libraries, driven by one command line.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

/// Folder with the client programs, as `tests/clients/build` makes them.
const CLIENTS: &str = "KAFSCALE_PROXY_TEST_CLIENTS";

/// What a client wrote before it ended is read within this.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// IBM/sarama.
    Sarama,
    /// segmentio/kafka-go.
    KafkaGo,
    /// twmb/franz-go.
    FranzGo,
    /// Apache Kafka's own, 4.1.
    Java,
    /// Apache Kafka's own, 3.9.
    Java39,
    /// Apache Kafka's own, 2.8.
    Java28,
    /// kafkajs.
    Kafkajs,
    /// librdkafka, by the crate rdkafka.
    Librdkafka,
    /// librdkafka 1.9, by the crate rdkafka 0.29.
    Rdkafka029,
    /// librdkafka 2.0, by kcat as Debian has it.
    Kcat,
    /// librdkafka, by confluent-kafka for Python.
    Confluent,
    /// aiokafka.
    Aiokafka,
    /// kafka-python.
    KafkaPython,
}

impl Client {
    /// Every one.
    pub const ALL: [Self; 13] = [
        Self::Kcat,
        Self::Rdkafka029,
        Self::Librdkafka,
        Self::Confluent,
        Self::Aiokafka,
        Self::KafkaPython,
        Self::Kafkajs,
        Self::FranzGo,
        Self::Sarama,
        Self::KafkaGo,
        Self::Java,
        Self::Java39,
        Self::Java28,
    ];

    /// As the command line of `tests/clients/run` and `tests/clients/build` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sarama => "sarama",
            Self::KafkaGo => "kafka-go",
            Self::FranzGo => "franz-go",
            Self::Java => "java",
            Self::Java39 => "java-3.9",
            Self::Java28 => "java-2.8",
            Self::Kafkajs => "kafkajs",
            Self::Librdkafka => "rdkafka",
            Self::Rdkafka029 => "rdkafka-0.29",
            Self::Kcat => "kcat",
            Self::Confluent => "confluent-kafka",
            Self::Aiokafka => "aiokafka",
            Self::KafkaPython => "kafka-python",
        }
    }
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
    pub compression: Option<&'static str>,
    /// Whether producers run with the library's own idea of idempotence, instead of without.
    pub default_idempotence: bool,
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
            compression: None,
            default_idempotence: false,
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
        option("idempotence", if self.default_idempotence { "default" } else { "off" }.to_owned());
        self.rate.into_iter().for_each(|rate| option("rate", rate.to_string()));
        self.retries.into_iter().for_each(|retries| option("retries", retries.to_string()));
        self.compression.into_iter().for_each(|compression| option("compression", compression.to_owned()));
        self.group.iter().for_each(|group| option("group", group.clone()));
        arguments
    }
}

/// An acknowledged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Index of the record in its job.
    pub index: usize,
    /// Partition, -1 when the client was not told.
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What it is, by its own words: library and version.
    pub library: Option<String>,
    /// Acknowledged records, as they were acknowledged.
    pub delivered: Vec<Delivered>,
    /// Records, as they were read.
    pub records: Vec<Record>,
    /// Answers to administrative requests, by verb.
    pub admin: Vec<(String, Value)>,
    /// Errors that the client showed its user.
    pub failures: Vec<String>,
    /// Whether it came to its own end.
    pub ended: bool,
}

impl Report {
    fn take_in(&mut self, line: &str) -> Result<(), String> {
        let line: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
        let number = |name: &str| line[name].as_i64().ok_or_else(|| format!("no {name} in {line}"));
        let text = |name: &str| line[name].as_str().map(str::to_owned).ok_or_else(|| format!("no {name} in {line}"));
        let partition = || i32::try_from(number("partition")?).map_err(|error| format!("{error}: {line}"));
        match line["event"].as_str() {
            Some("client") => self.library = Some(format!("{} {}", text("library")?, text("version")?)),
            Some("delivered") => self.delivered.push(Delivered {
                index: usize::try_from(number("index")?).map_err(|error| format!("{error}: {line}"))?,
                partition: partition()?,
                offset: number("offset")?,
            }),
            Some("record") => self.records.push(Record {
                partition: partition()?,
                offset: number("offset")?,
                key: text("key")?,
                value: text("value")?,
            }),
            Some("admin") => self.admin.push((text("verb")?, line)),
            Some("failed") => self.failures.push(text("error")?),
            Some("end") => self.ended = true,
            other => return Err(format!("unknown event {other:?}")),
        }
        Ok(())
    }
}

/// A client at work. It is killed when the value goes.
#[derive(Debug)]
pub struct Running {
    client: Client,
    verb: &'static str,
    child: Child,
    /// Reading members leave their group when it ends.
    stdin: Option<ChildStdin>,
    seen: Arc<Mutex<Report>>,
    reading: JoinHandle<()>,
    log: JoinHandle<String>,
}

impl Running {
    /// What it has told so far.
    pub fn seen<T>(&self, look: impl FnOnce(&Report) -> T) -> T {
        look(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells a reader to commit, to leave its group and to end.
    pub fn end(&mut self) {
        self.stdin = None;
    }

    /// Ends it on the spot: nothing is committed, nobody is told.
    pub fn kill(&mut self) {
        // It fails when the child has ended, which is what was wanted.
        let _ = self.child.start_kill();
    }

    /// Waits for the end of the job: what it has seen, and its log.
    pub async fn finish(self) -> (Report, String) {
        let Self { mut child, stdin, seen, reading, log, .. } = self;
        // It cannot fail for a child that nobody else waits for.
        let _ = child.wait().await;
        drop(stdin);
        // A process that it left behind may still hold its outputs, and has nothing to say.
        let _ = tokio::time::timeout(LAST_WORDS, reading).await;
        let log = tokio::time::timeout(LAST_WORDS, log).await;
        let log = log.map_or_else(|_| "its outputs are still open".to_owned(), Result::unwrap_or_default);
        let report = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
        (report, log)
    }

    /// Waits for the end of the job.
    ///
    /// # Panics
    /// When the client itself crashed.
    pub async fn report(self) -> Report {
        let (client, verb) = (self.client, self.verb);
        let (report, log) = self.finish().await;
        assert!(report.ended, "{client:?} ended before its job: {log}");
        if !report.failures.is_empty() {
            eprintln!("--- log of {client:?}, told to {verb}\n{log}");
        }
        report
    }
}

impl Client {
    /// Begins to produce.
    pub fn produce(self, job: Job) -> Running {
        self.run("produce", &job)
    }

    /// Begins to read.
    pub fn consume(self, job: Job) -> Running {
        self.run("consume", &job)
    }

    /// Begins with administrative requests.
    pub fn admin(self, job: Job) -> Running {
        self.run("admin", &job)
    }

    fn program(self) -> Command {
        let folder = PathBuf::from(
            std::env::var(CLIENTS).unwrap_or_else(|_| panic!("{CLIENTS} names no folder with clients; use tests/run")),
        );
        let in_language = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        let go = |library: &str| in_language(&folder.join("client").display().to_string(), &[library]);
        let java = |version: &str| {
            let path = format!("{0}/classes:{0}/{version}/*", folder.join("java").display());
            in_language("java", &["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &path, "Client"])
        };
        let python = |library: &str| {
            let python = folder.join("python/bin/python").display().to_string();
            in_language(&python, &["-u", &folder.join("client.py").display().to_string(), library])
        };
        match self {
            Self::Sarama => go("sarama"),
            Self::KafkaGo => go("kafka-go"),
            Self::FranzGo => go("franz-go"),
            Self::Java => java("4.1"),
            Self::Java39 => java("3.9"),
            Self::Java28 => java("2.8"),
            Self::Kafkajs => in_language("node", &[&folder.join("node/client.js").display().to_string()]),
            Self::Librdkafka => Command::new(folder.join("rdkafka")),
            Self::Rdkafka029 => Command::new(folder.join("rdkafka-0.29")),
            Self::Kcat => in_language("python3", &["-u", &folder.join("kcat.py").display().to_string()]),
            Self::Confluent => python("confluent-kafka"),
            Self::Aiokafka => python("aiokafka"),
            Self::KafkaPython => python("kafka-python"),
        }
    }

    fn run(self, verb: &'static str, job: &Job) -> Running {
        let mut command = self.program();
        command.arg(verb).args(job.arguments()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{self:?} is not there ({error}); use tests/run"));
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut errors = child.stderr.take().expect("it was asked for");
        let seen = Arc::new(Mutex::new(Report::default()));
        let told = Arc::clone(&seen);
        let reading = tokio::spawn(async move {
            let mut lines = lines.lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let mut report = told.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = report.take_in(&line) {
                    report.failures.push(format!("no line of this suite: {error}"));
                }
            }
        });
        let log = tokio::spawn(async move {
            let mut log = Vec::new();
            // A log that cannot be read is empty.
            let _ = errors.read_to_end(&mut log).await;
            String::from_utf8_lossy(&log).into_owned()
        });
        Running { client: self, verb, child, stdin, seen, reading, log }
    }
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
