//! One client through everything: it produces, reads in a group, loses a member, starts again, administers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use kafscale_proxy_core::kafka::{
    CreatableTopic, CreateTopicsRequest, DescribeGroupsRequest, ListGroupsRequest, ListOffsetsPartition,
    ListOffsetsRequest, ListOffsetsTopic, MetadataRequest,
};
use serde_json::Value;
use tokio::sync::Mutex;

use super::judge;
use super::table::{Cell, Column};
use crate::peers::{
    Client, Control, Deployment, Job, PARTITIONS, Partners, Record, Running, Wire, coordinator, move_group,
    move_partition, owner,
};

/// Members may take as long as their library's patience with a group that settles.
const SETTLING: Duration = Duration::from_secs(90);
/// Records are read within this.
const READING: Duration = Duration::from_secs(60);
/// Records that follow a change of the group.
const FOLLOWING: usize = 60;
/// A member that starts again is watched for so long after its last record.
const QUIET: Duration = Duration::from_secs(2);
/// Brokers know within this what another one has written into the snapshot.
const LEARNING: Duration = Duration::from_millis(300);
/// Indices of different runs of a producer lie so far apart.
const RUN: usize = 100_000;

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Records for each compression.
    pub records: usize,
    /// Every compression that the client has, or one.
    pub every_compression: bool,
    /// While leases move, a member dies instead of leaving: its session has to end first.
    pub members_die: bool,
}

impl Length {
    /// All of it.
    pub const FULL: Self = Self { records: 1_000, every_compression: true, members_die: true };
    /// What fits among other tests.
    pub const QUICK: Self = Self { records: 120, every_compression: false, members_die: false };
}

/// A client, and what passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which.
    pub client: Client,
    /// Its library and version, by its own words.
    pub library: String,
    /// What is not there was not run.
    pub cells: BTreeMap<Column, Cell>,
}

impl Row {
    /// Of a client whose check broke off: the suite itself, or the proxy, did what nobody expects.
    pub fn broken(client: Client, why: &str) -> Self {
        let cells = BTreeMap::from([(Column::Moved, Cell::Failed(format!("the check broke off: {why}")))]);
        Self { client, library: String::new(), cells }
    }

    /// Reasons of what failed.
    pub fn failures(&self) -> impl Iterator<Item = (Column, &str)> {
        self.cells.iter().filter_map(|(column, cell)| match cell {
            Cell::Failed(why) => Some((*column, why.as_str())),
            Cell::Passed(_) | Cell::Absent | Cell::NotRun => None,
        })
    }
}

/// Compressions that a library has.
fn compressions(client: Client) -> &'static [&'static str] {
    match client {
        // Anything else is a matter of packages that its users add.
        Client::Kafkajs => &["none", "gzip"],
        Client::Sarama
        | Client::KafkaGo
        | Client::FranzGo
        | Client::Java
        | Client::Java39
        | Client::Java28
        | Client::Librdkafka
        | Client::Rdkafka029
        | Client::Kcat
        | Client::Confluent
        | Client::Aiokafka
        | Client::KafkaPython => &["none", "gzip", "snappy", "lz4", "zstd"],
    }
}

/// Administrative requests that a library has, and what is to be said of those that it lacks.
fn verbs(client: Client) -> (&'static [&'static str], Option<&'static str>) {
    const ALL: [&str; 7] =
        ["create-topic", "list-topics", "delete-topic", "offsets", "list-groups", "describe-group", "delete-group"];
    match client {
        Client::Kcat => (&["list-topics", "offsets"], Some("lists topics and offsets")),
        Client::Rdkafka029 => (&ALL[..6], Some("no deletion of groups")),
        Client::Aiokafka => (&ALL[..6], Some("no deletion of groups")),
        Client::Sarama
        | Client::KafkaGo
        | Client::FranzGo
        | Client::Java
        | Client::Java39
        | Client::Java28
        | Client::Kafkajs
        | Client::Librdkafka
        | Client::Confluent
        | Client::KafkaPython => (&ALL, None),
    }
}

/// What all clients share.
#[derive(Debug)]
pub struct Stage {
    /// Where clients find the proxy.
    bootstrap: String,
    /// What runs behind it; `None` when that is somebody else's.
    deployment: Option<Deployment>,
    /// Held by who creates or deletes topics. Without it all thirteen passed two runs of three; in the third, on a busy machine, the
    /// members of one (librdkafka 1.9.2) never joined, and what it lacked is not known.
    topics: Mutex<()>,
}

impl Stage {
    /// Starts everything. Producers run as their libraries want them to: idempotence is accepted.
    pub async fn start() -> Self {
        let deployment = Deployment::start(&[("KAFSCALE_PROXY_IDEMPOTENT_PRODUCERS", "accept")]).await;
        Self { bootstrap: deployment.proxy.kafka.clone(), deployment: Some(deployment), topics: Mutex::new(()) }
    }

    /// A proxy that runs already, at `host:port`, with idempotence accepted. Nothing moves there.
    pub fn elsewhere(bootstrap: &str) -> Self {
        Self { bootstrap: bootstrap.to_owned(), deployment: None, topics: Mutex::new(()) }
    }
}

/// Takes a client through the cycle twice: while nothing moves, and while leases do.
pub async fn check(stage: &Stage, client: Client, length: Length) -> Row {
    let mut row = Row { client, library: String::new(), cells: BTreeMap::new() };
    let offered = compressions(client);
    for column in Column::ALL {
        if let Column::Compression(name) = column
            && !offered.contains(&name)
        {
            row.cells.insert(column, Cell::Absent);
        }
    }
    let number = Client::ALL.iter().position(|other| *other == client).unwrap_or_default();
    let chosen = if length.every_compression { offered } else { &offered[number % offered.len()..][..1] };

    let cycle = Cycle::new(stage, client, length, false);
    cycle.run(chosen, &mut row).await;
    if stage.deployment.is_none() {
        return row;
    }
    let mut moved = Row { cells: BTreeMap::new(), ..row.clone() };
    let cycle = Cycle::new(stage, client, length, true);
    cycle.run(&chosen[..1], &mut moved).await;
    let failed = moved.failures().next().map(|(column, why)| format!("{column:?}: {why}"));
    row.cells.insert(Column::Moved, failed.map_or(Cell::Passed(None), Cell::Failed));
    row
}

/// One way through.
struct Cycle<'a> {
    stage: &'a Stage,
    client: Client,
    length: Length,
    /// Whether leases move.
    moving: bool,
    topic: String,
    /// Indices that were sent so far.
    sent: Vec<Range<usize>>,
}

impl<'a> Cycle<'a> {
    fn new(stage: &'a Stage, client: Client, length: Length, moving: bool) -> Self {
        let topic = format!("{}.{}", client.name(), if moving { "moved" } else { "still" });
        Self { stage, client, length, moving, topic, sent: Vec::new() }
    }

    fn partners(&self) -> Option<&'a Partners> {
        self.stage.deployment.as_ref().map(|deployment| &deployment.partners)
    }

    fn job(&self, count: usize) -> Job {
        let job = Job::new(&self.stage.bootstrap, &self.topic, PARTITIONS, count);
        Job { default_idempotence: true, ..job }
    }

    /// A member of the group, whose id is that of the topic, until it is told to end.
    fn member(&self) -> Running {
        let job = Job { group: Some(self.topic.clone()), timeout: Duration::from_secs(600), ..self.job(1_000_000) };
        self.client.consume(job)
    }

    async fn run(mut self, compressions: &[&'static str], row: &mut Row) {
        let started = Instant::now();
        let (mut first, mut second) = match self.begin().await {
            Ok(members) => members,
            Err(why) => {
                row.cells.insert(Column::Compression(compressions[0]), Cell::Failed(why));
                return;
            }
        };
        for compression in compressions {
            let column = Column::Compression(compression);
            let passed = self.produce_and_read(Some(compression), &[&first, &second], row).await;
            let both = || [&first, &second].iter().all(|member| member.seen(|seen| !seen.records.is_empty()));
            let passed = passed.and_then(|()| if both() { Ok(()) } else { Err("one member got nothing".to_owned()) });
            if record(row, column, passed).is_none() {
                show_log(self.client, first).await;
                show_log(self.client, second).await;
                return;
            }
        }
        let passed = self.lose_a_member(&first, &mut second, row).await;
        let (left, left_log) = second.finish().await;
        let passed = passed.and_then(|()| no_failure_of_a_member(&left.failures));
        if record(row, Column::Rebalance, passed).is_none() {
            eprintln!("--- log of {:?}, the member that went\n{left_log}", self.client);
            show_log(self.client, first).await;
            return;
        }
        first.end();
        let (stayed, log) = finish(first).await;
        let passed = self.start_again(&[&stayed.records, &left.records], row).await;
        let passed = no_failure_of_a_member(&stayed.failures).and(passed);
        let Some(third) = record(row, Column::Restart, passed) else {
            eprintln!("--- log of {:?}, the member that stayed\n{log}", self.client);
            return;
        };
        let (verbs, note) = verbs(self.client);
        match self.administer(third, verbs).await {
            Ok(()) => row.cells.insert(Column::Admin, Cell::Passed(note)),
            Err(why) => row.cells.insert(Column::Admin, Cell::Failed(why)),
        };
        // Whatever a client made of it: what is stored is what counts in the end.
        if let Err(why) = self.judge_log().await {
            row.cells.insert(Column::Compression(compressions[0]), Cell::Failed(format!("in the log: {why}")));
        }
        let moved = if self.moving { ", leases moved" } else { "" };
        eprintln!("{}{moved}: through after {} s", self.client.name(), started.elapsed().as_secs());
    }

    /// A topic whose partitions belong to all brokers, and a group of two members that has settled.
    async fn begin(&self) -> Result<(Running, Running), String> {
        let topic = CreatableTopic {
            name: self.topic.as_str().into(),
            num_partitions: PARTITIONS as i32,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..CreateTopicsRequest::default() };
        let creating = self.stage.topics.lock().await;
        let answer = self.wire().await.ask(2, &request).await;
        // The other brokers learn of it by their watch.
        tokio::time::sleep(LEARNING).await;
        drop(creating);
        if let Some(topic) = answer.topics.iter().find(|topic| !topic.error_code.is_none()) {
            return Err(format!("the topic was not created: {:?}", topic.error_code));
        }
        if let Some(Partners { brokers, etcd, .. }) = self.partners() {
            for partition in 0..PARTITIONS {
                move_partition(etcd, &self.topic, partition as i32, partition % brokers.count()).await;
            }
        }
        let members = (self.member(), self.member());
        match self.settled(2).await {
            Ok(()) => Ok(members),
            Err(why) => {
                show_log(self.client, members.0).await;
                show_log(self.client, members.1).await;
                Err(why)
            }
        }
    }

    async fn wire(&self) -> Wire {
        Wire::connect(&self.stage.bootstrap).await
    }

    /// State of the group, and its members.
    async fn describe_group(&self) -> (String, usize) {
        let request = DescribeGroupsRequest { groups: vec![self.topic.as_str().into()], ..Default::default() };
        let answer = self.wire().await.ask(5, &request).await;
        let group = answer.groups.first();
        group.map_or_else(Default::default, |group| (group.group_state.as_str().to_owned(), group.members.len()))
    }

    async fn settled(&self, members: usize) -> Result<(), String> {
        let mut last = Default::default();
        until(SETTLING, async || {
            last = self.describe_group().await;
            last == ("Stable".to_owned(), members)
        })
        .await
        .map_err(|()| format!("the group never had {members} settled members; last seen: {last:?}"))
    }

    /// Produces a run of records and waits until these members have read all that was ever sent.
    async fn produce_and_read(
        &mut self,
        compression: Option<&'static str>,
        members: &[&Running],
        row: &mut Row,
    ) -> Result<(), String> {
        let count = if compression.is_some() { self.length.records } else { FOLLOWING };
        self.produce(compression, count, row).await?;
        let sent: usize = self.sent.iter().map(Range::len).sum();
        let read = || members.iter().map(|member| distinct(member)).sum::<usize>();
        let all = until(READING, async || read() >= sent).await;
        for member in members {
            member.seen(|seen| no_failure_of_a_member(&seen.failures))?;
        }
        if all.is_err() {
            return Err(format!("{} of {sent} records were read", read()));
        }
        let records: Vec<Vec<Record>> = members.iter().map(|member| member.seen(|seen| seen.records.clone())).collect();
        let records: Vec<&[Record]> = records.iter().map(Vec::as_slice).collect();
        judge::read(&records, &self.sent).map(drop)
    }

    async fn produce(&mut self, compression: Option<&'static str>, count: usize, row: &mut Row) -> Result<(), String> {
        let first = self.sent.len() * RUN;
        let sent = first..first + count;
        self.sent.push(sent.clone());
        let rate = self.moving.then(|| u32::try_from(count / 6).expect("few records"));
        let producing = self.client.produce(Job { first, compression, rate, ..self.job(count) });
        if self.moving {
            until(READING, async || producing.seen(|seen| seen.library.is_some())).await.ok();
            tokio::time::sleep(Duration::from_secs(2)).await;
            self.move_partition(0).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.move_group().await;
            self.move_partition(4).await;
        }
        let (report, log) = finish(producing).await;
        row.library = report.library.unwrap_or_else(|| "unknown".into());
        let delivered = no_failures(&report.failures).and_then(|()| judge::delivered(&report.delivered, &sent));
        let ended = if report.ended { Ok(()) } else { Err("the producer crashed".to_owned()) };
        let passed = delivered.and(ended);
        if passed.is_err() {
            eprintln!("--- log of {:?}, producing {compression:?}\n{log}", self.client);
        }
        passed
    }

    /// Gives a partition to the next broker; the one that had it learns so.
    async fn move_partition(&self, partition: i32) {
        let Some(partners) = self.partners() else { return };
        let Some(from) = owner(&partners.etcd, &self.topic, partition).await else { return };
        move_partition(&partners.etcd, &self.topic, partition, (from + 1) % partners.brokers.count()).await;
        partners.brokers.control(from, Control::ReleasePartition(format!("{}/{partition}", self.topic)));
    }

    /// The same for the group.
    async fn move_group(&self) {
        let Some(partners) = self.partners() else { return };
        let Some(from) = coordinator(&partners.etcd, &self.topic).await else { return };
        move_group(&partners.etcd, &self.topic, (from + 1) % partners.brokers.count()).await;
        partners.brokers.control(from, Control::ReleaseGroup(self.topic.clone()));
    }

    /// One of two members goes; the other reads what follows.
    async fn lose_a_member(&mut self, stays: &Running, goes: &mut Running, row: &mut Row) -> Result<(), String> {
        if self.moving && self.length.members_die {
            // What the library commits by itself it has committed by then.
            tokio::time::sleep(Duration::from_secs(6)).await;
            goes.kill();
        } else {
            goes.end();
        }
        self.settled(1).await?;
        self.produce_and_read(None, &[stays, goes], row).await
    }

    /// A new member begins where the group stopped. It is still there afterwards.
    async fn start_again(&mut self, before: &[&[Record]], row: &mut Row) -> Result<Running, String> {
        let gone = until(SETTLING, async || self.describe_group().await.1 == 0).await;
        gone.map_err(|()| "the last member did not leave".to_owned())?;
        self.produce(None, FOLLOWING, row).await?;
        let third = self.member();
        let read = until(READING, async || third.seen(|seen| seen.records.len()) >= FOLLOWING).await;
        tokio::time::sleep(QUIET).await;
        let (records, failures) = third.seen(|seen| (seen.records.clone(), seen.failures.clone()));
        let new = &self.sent[self.sent.len() - 1..];
        let judged = match read {
            Ok(()) => judge::read(&[&records], new).and_then(|again| match again {
                0 => Ok(()),
                again => Err(format!("{again} records were read twice by one member")),
            }),
            Err(()) => Err(format!("started again, it read {} of {FOLLOWING} records", records.len())),
        };
        let all: Vec<&[Record]> = before.iter().copied().chain([records.as_slice()]).collect();
        let passed = no_failures(&failures).and(judged).and_then(|()| judge::read(&all, &self.sent));
        match passed {
            Ok(_) => Ok(third),
            Err(why) => {
                show_log(self.client, third).await;
                Err(why)
            }
        }
    }

    /// The group still has its one member, who died without a word, when the client looks at it.
    async fn administer(&self, mut member: Running, verbs: &[&'static str]) -> Result<(), String> {
        member.kill();
        let job = Job { group: Some(self.topic.clone()), ..self.job(0) };
        let administering = self.stage.topics.lock().await;
        let (report, log) = finish(self.client.admin(job)).await;
        tokio::time::sleep(LEARNING).await;
        drop(administering);
        let judged = self.judge_admin(&report.admin, verbs).await;
        let passed = no_failures(&report.failures).and(judged);
        if passed.is_err() {
            eprintln!("--- log of {:?}, administering\n{log}", self.client);
        }
        passed
    }

    async fn judge_admin(&self, answers: &[(String, Value)], verbs: &[&'static str]) -> Result<(), String> {
        let new = format!("{}.new", self.topic);
        for verb in verbs {
            let answer = answers.iter().find(|(answered, _)| answered == verb);
            let (_, answer) = answer.ok_or_else(|| format!("{verb}: no answer"))?;
            let names = |name: &str| answer["names"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
            let right = match *verb {
                "list-topics" => names(&self.topic) && (!verbs.contains(&"create-topic") || names(&new)),
                "offsets" => {
                    let zeros = vec![0; PARTITIONS];
                    answer["first"] == Value::from(zeros) && answer["last"] == Value::from(self.ends().await)
                }
                "list-groups" => names(&self.topic),
                "describe-group" => answer["state"] == "Stable" && answer["members"] == 1,
                _ => true,
            };
            if !right {
                return Err(format!("{verb}: {answer}"));
            }
        }
        let topics = self.wire().await.ask(1, &MetadataRequest::default()).await.topics;
        if topics.iter().any(|topic| topic.name.as_deref() == Some(new.as_str())) {
            return Err("delete-topic: it is still there".to_owned());
        }
        let groups = self.wire().await.ask(5, &ListGroupsRequest::default()).await.groups;
        if verbs.contains(&"delete-group") && groups.iter().any(|group| *group.group_id == *self.topic) {
            return Err("delete-group: it is still there".to_owned());
        }
        Ok(())
    }

    /// Ends of all partitions.
    async fn ends(&self) -> Vec<i64> {
        let partition = |index| ListOffsetsPartition { partition_index: index, timestamp: -1, ..Default::default() };
        let topic = ListOffsetsTopic {
            name: self.topic.as_str().into(),
            partitions: (0..PARTITIONS as i32).map(partition).collect(),
        };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
        let answer = self.wire().await.ask(4, &request).await;
        let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        let mut ends: Vec<(i32, i64)> = partitions.map(|found| (found.partition_index, found.offset)).collect();
        ends.sort_unstable();
        ends.into_iter().map(|(_, end)| end).collect()
    }

    /// What is stored, read by one library for all.
    async fn judge_log(&self) -> Result<(), String> {
        let ends = self.ends().await;
        let all = usize::try_from(ends.iter().sum::<i64>()).unwrap_or_default();
        let job = Job { timeout: Duration::from_secs(30), ..self.job(all) };
        let (report, _) = finish(Client::Librdkafka.consume(job)).await;
        no_failures(&report.failures)?;
        judge::log(&report.records, &ends, &self.sent)
    }
}

/// Places that a member has read.
fn distinct(member: &Running) -> usize {
    member.seen(|seen| {
        let places: std::collections::BTreeSet<_> =
            seen.records.iter().map(|record| (record.partition, record.offset)).collect();
        places.len()
    })
}

fn record<T>(row: &mut Row, column: Column, passed: Result<T, String>) -> Option<T> {
    match passed {
        Ok(passed) => {
            row.cells.insert(column, Cell::Passed(None));
            Some(passed)
        }
        Err(why) => {
            row.cells.insert(column, Cell::Failed(why));
            None
        }
    }
}

/// What members of a group may say while somebody comes or goes. KafScale counts a new generation as soon as that happens, so
/// commits of the old one are refused, where Kafka takes them until all have joined; libraries that tell their users go on.
const REBALANCING: [&str; 5] =
    ["generation", "rebalanc", "ILLEGAL_GENERATION", "Commit cannot be completed", "not the coordinator"];

fn no_failure_of_a_member(failures: &[String]) -> Result<(), String> {
    let of_rebalances = |failure: &&String| REBALANCING.iter().any(|words| failure.contains(words));
    match failures.iter().find(|failure| !of_rebalances(failure)) {
        None => Ok(()),
        Some(failure) => Err(format!("the client says: {failure}")),
    }
}

fn no_failures(failures: &[String]) -> Result<(), String> {
    match failures.first() {
        None => Ok(()),
        Some(failure) => Err(format!("the client says: {failure}")),
    }
}

/// Waits for the end of a client; one that does not come to it is killed.
async fn finish(mut running: Running) -> (crate::peers::Report, String) {
    if until(Duration::from_secs(120), async || running.seen(|seen| seen.ended)).await.is_err() {
        running.kill();
    }
    running.finish().await
}

async fn show_log(client: Client, mut running: Running) {
    running.kill();
    let (_, log) = running.finish().await;
    eprintln!("--- log of {client:?}, a member\n{log}");
}

/// Asks again every 100 ms until the answer is yes, or the time is over.
async fn until(limit: Duration, mut done: impl AsyncFnMut() -> bool) -> Result<(), ()> {
    let started = Instant::now();
    while !done().await {
        if started.elapsed() > limit {
            return Err(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
