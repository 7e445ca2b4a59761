//! The machine: questions and facts in, decisions out.

mod asked;

use std::collections::BTreeSet;
use std::time::Duration;

use super::committed::Committed;
use super::freshness::{Moment, Ttl, service};
use super::generation::{self, Basis};
use super::leases::{Holder, Leases, Prefix};
use super::parses::{ParseFor, Parsed, Parses};
use super::producer_ids::{Handed, ProducerIds};
use super::proof_waiters::ProofWaiters;
use super::questions::Coalesced;
use super::reader::{LeaseReader, Progress, READ_DEADLINE, SnapshotReader, SnapshotStep};
use super::round::{Ended, Rounds};
use super::snapshot::{LeftOut, Snapshot, SnapshotError};
use super::{Address, Answer, Decision, NotServing, Owner, Question, Read, Service, Source, Waiter, choice};
use crate::config::ClusterConfig;
use crate::context::Context;
use crate::etcd::{self, Refusal, Revision, WatchEnd, WatchEvent};
use crate::operation::Outcome;
use crate::planted::{Bug, planted};
use crate::stats::KnowledgeStats;
use crate::time::Monotonic;
use crate::timers::Timer;

/// What makes no sense in the snapshot. Said in the log when it changes, not with every snapshot.
#[derive(Default, PartialEq, Eq)]
struct Said {
    left_out: Vec<LeftOut>,
    refused: Vec<Address>,
}

impl Said {
    fn say(&mut self, now: Self) {
        if *self != now {
            for address in &now.refused {
                tracing::error!(%address, "the cluster snapshot lists this proxy's own address as a broker, which is not used");
            }
            for left_out in &now.left_out {
                tracing::warn!(%left_out, "the cluster snapshot has what makes no sense, which is left out");
            }
            *self = now;
        }
    }
}

/// What one shard knows of the cluster.
pub(crate) struct Cluster {
    ttl: Ttl,
    static_backends: Vec<Address>,
    own_addresses: Vec<Address>,
    /// What was last said in the log about the snapshot.
    said: Said,
    /// How many calls there were.
    steps: u64,
    /// Keys of one page.
    page_keys: u32,
    snapshot: SnapshotReader,
    partitions: LeaseReader,
    groups: LeaseReader,
    /// They asked for a read of the snapshot; the one under way was ordered for them.
    snapshot_asked: Vec<Waiter>,
    /// They asked while a read was under way: the next one is for them.
    snapshot_queued: Vec<Waiter>,
    partition_waiters: ProofWaiters,
    group_waiters: ProofWaiters,
    rounds: Rounds,
    lease_reads: Coalesced<Question, ()>,
    /// With the number of the watch that stood when each was ordered.
    generations: Coalesced<String, (Basis, u64)>,
    committed: Coalesced<String, Committed>,
    producer_ids: ProducerIds,
    parses: Parses,
    /// Sources whose last read failed: said once in the log.
    failing: BTreeSet<Source>,
}

impl Cluster {
    /// Knows nothing yet; [`Cluster::start`] begins to read.
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        let static_backends: Vec<Address> = config.static_backends.iter().map(|text| Address::new(text)).collect();
        let ttl = if static_backends.is_empty() { Ttl::Limited(config.cache_ttl) } else { Ttl::Unlimited };
        Self {
            ttl,
            static_backends,
            own_addresses: config.own_addresses.iter().filter_map(|(host, port)| Address::of(host, *port)).collect(),
            said: Said::default(),
            steps: 0,
            page_keys: config.page_keys,
            snapshot: SnapshotReader::new(),
            partitions: LeaseReader::new(Prefix::Partitions, config.page_keys),
            groups: LeaseReader::new(Prefix::Groups, config.page_keys),
            snapshot_asked: Vec::new(),
            snapshot_queued: Vec::new(),
            partition_waiters: ProofWaiters::default(),
            group_waiters: ProofWaiters::default(),
            rounds: Rounds::new(),
            lease_reads: Coalesced::new(),
            generations: Coalesced::new(),
            committed: Coalesced::new(),
            producer_ids: ProducerIds::new(),
            parses: Parses::new(),
            failing: BTreeSet::new(),
        }
    }

    /// Begins to read all sources.
    pub(crate) fn start(&mut self, ctx: &mut Context<'_>, out: &mut Vec<Decision>) {
        let now = self.moment(ctx);
        self.read_all(now, out);
        self.set_timers(ctx);
    }

    /// Asks etcd. Exactly one [`Decision::Answered`] follows for each call, possibly at once, unless the waiter is
    /// forgotten before.
    pub(crate) fn ask(&mut self, ctx: &mut Context<'_>, question: Question, waiter: Waiter, out: &mut Vec<Decision>) {
        let now = self.moment(ctx);
        match question {
            Question::Freshness => {
                if let Some(failure) = self.rounds.pause(now) {
                    let answer = Answer::Unreadable(failure.to_owned());
                    out.push(Decision::Answered { waiter, question: Question::Freshness, answer });
                } else if self.rounds.join(now, waiter) {
                    self.read_all(now, out);
                }
            }
            Question::Snapshot => {
                if !self.snapshot.is_idle() {
                    self.snapshot_queued.push(waiter);
                } else if let Some(failure) = self.rounds.pause(now) {
                    let answer = Answer::Unreadable(failure.to_owned());
                    out.push(Decision::Answered { waiter, question: Question::Snapshot, answer });
                } else {
                    self.snapshot_asked.push(waiter);
                    self.snapshot.read(now, out);
                }
            }
            Question::PartitionOwners | Question::Coordinators => {
                self.ask_all_leases(now, question, waiter, out);
            }
            Question::PartitionOwner { .. } | Question::Coordinator { .. } => {
                if let Err(waiter) = self.lease_reads.queue(&question, waiter) {
                    self.order_lease_read(now, question, vec![waiter], out);
                }
            }
            Question::Generation { topic } => {
                if let Err(waiter) = self.generations.queue(&topic, waiter) {
                    self.order_generation(now, topic, vec![waiter], out);
                }
            }
            Question::CommittedPartitions { group } => {
                if let Err(waiter) = self.committed.queue(&group, waiter) {
                    self.order_committed(now, group, vec![waiter], out);
                }
            }
            Question::ProducerId => hand_out(self.producer_ids.ask(waiter), out),
        }
        self.set_timers(ctx);
    }

    /// The waiter has vanished: it gets no more answers. What was ordered for it goes on.
    pub(crate) fn forget_waiter(&mut self, waiter: Waiter) {
        self.snapshot_asked.retain(|other| *other != waiter);
        self.snapshot_queued.retain(|other| *other != waiter);
        self.partition_waiters.forget(waiter);
        self.group_waiters.forget(waiter);
        self.rounds.forget(waiter);
        self.lease_reads.forget(waiter);
        self.generations.forget(waiter);
        self.committed.forget(waiter);
        self.producer_ids.forget(waiter);
    }

    /// A [`Decision::Request`] is done.
    pub(crate) fn on_finished(
        &mut self,
        ctx: &mut Context<'_>,
        read: Read,
        outcome: Outcome<etcd::Response, Refusal>,
        out: &mut Vec<Decision>,
    ) {
        let now = self.moment(ctx);
        match read {
            Read::Snapshot => match self.snapshot.on_finished(now, outcome, out) {
                SnapshotStep::Read(progress) => self.on_snapshot_progress(now, progress, out),
                SnapshotStep::Parse(value) => {
                    let parsed = self.parses.parse(value, ParseFor::State, out);
                    self.on_parsed(now, parsed, out);
                }
            },
            Read::Leases(source) => {
                if let Some(reader) = self.lease_reader(source) {
                    let progress = reader.on_page(now, outcome, out);
                    self.on_progress(now, source, &progress, out);
                    self.on_leases_progress(now, source, &progress, out);
                }
            }
            Read::Proof(source) => {
                let waiters = self.waiters(source);
                let urgent =
                    waiters.is_some_and(|(_, waiters)| waiters.is_waited_for()) || self.rounds.waits_for(source);
                if let Some(reader) = self.lease_reader(source) {
                    let progress = reader.on_proof(now, outcome, urgent, out);
                    self.on_progress(now, source, &progress, out);
                    self.on_leases_progress(now, source, &progress, out);
                }
            }
            Read::PartitionLease { topic, partition } => {
                self.on_lease_read(now, Question::PartitionOwner { topic, partition }, outcome, out);
            }
            Read::GroupLease { group } => self.on_lease_read(now, Question::Coordinator { group }, outcome, out),
            Read::Generation { topic } => self.on_generation_read(now, topic, outcome, out),
            Read::CommittedPartitions { group } => self.on_committed_page(now, group, outcome, out),
            Read::ProducerIds => hand_out(self.producer_ids.on_finished(outcome), out),
        }
        self.set_timers(ctx);
    }

    /// The watch stands, in a store of this revision. From then on, and if that store is not behind what was read before,
    /// "nothing newer" may prove something; that the watch is told nothing never does.
    pub(crate) fn on_watch_created(
        &mut self,
        ctx: &mut Context<'_>,
        source: Source,
        revision: Revision,
        out: &mut Vec<Decision>,
    ) {
        let now = self.moment(ctx);
        match source {
            Source::Snapshot => self.snapshot.on_watch_created(revision, out),
            Source::PartitionLeases => self.partitions.on_watch_created(now, revision),
            Source::GroupLeases => self.groups.on_watch_created(now, revision),
        }
        self.set_timers(ctx);
    }

    /// The watch has told changes. The revision beside them is not used: etcd also sends one ahead of events that
    /// are still to come when a watch is catching up, so knowledge is dated by the changes themselves.
    pub(crate) fn on_watch_events(
        &mut self,
        ctx: &mut Context<'_>,
        source: Source,
        _revision: Revision,
        events: &[WatchEvent],
        out: &mut Vec<Decision>,
    ) {
        let now = self.moment(ctx);
        match source {
            Source::Snapshot => self.snapshot.on_watch_events(now, events, out),
            Source::PartitionLeases => self.partitions.on_watch_events(events),
            Source::GroupLeases => self.groups.on_watch_events(events),
        }
        self.set_timers(ctx);
    }

    /// The watch is over.
    pub(crate) fn on_watch_ended(
        &mut self,
        ctx: &mut Context<'_>,
        source: Source,
        end: WatchEnd,
        out: &mut Vec<Decision>,
    ) {
        let now = self.moment(ctx);
        match source {
            Source::Snapshot => self.snapshot.on_watch_ended(now, end, out),
            Source::PartitionLeases => self.partitions.on_watch_ended(now, end, out),
            Source::GroupLeases => self.groups.on_watch_ended(now, end, out),
        }
        self.set_timers(ctx);
    }

    /// A [`Decision::ParseSnapshot`] is done.
    pub(crate) fn on_parsed_elsewhere(
        &mut self,
        ctx: &mut Context<'_>,
        result: Result<Snapshot, SnapshotError>,
        out: &mut Vec<Decision>,
    ) {
        let now = self.moment(ctx);
        let parsed = self.parses.on_parsed_elsewhere(result, out);
        self.on_parsed(now, parsed, out);
        self.set_timers(ctx);
    }

    /// [`Timer::ClusterReload`] of this source is due.
    pub(crate) fn on_timer(&mut self, ctx: &mut Context<'_>, source: Source, out: &mut Vec<Decision>) {
        let now = self.moment(ctx);
        match source {
            Source::Snapshot => {
                if let Some(ended) = self.rounds.on_timer(now) {
                    answer_round(ended, out);
                }
                self.snapshot.on_timer(now, out);
            }
            Source::PartitionLeases => self.partitions.on_timer(now, out),
            Source::GroupLeases => self.groups.on_timer(now, out),
        }
        if let Some((question, waiters)) = self.waiters(source) {
            let text = Answer::Unreadable("the leases could not be read in time".into());
            answer_all(waiters.on_timer(now), &question, &text, out);
        }
        self.set_timers(ctx);
    }

    /// A broker refused what was sent to it as the partition's owner: the route stays unknown until something newer is known
    /// of it. A refusal by any other broker says nothing about the owner.
    pub(crate) fn forget_partition_owner(&mut self, topic: &str, partition: i32, refused_by: &Address) {
        let holder = self.partitions.leases.holder(topic, partition);
        if self.is_another(holder, refused_by) {
            return;
        }
        self.steps += 1;
        self.partitions.leases.drop_route(topic, partition, self.steps);
    }

    /// A broker refused what was sent to it as the group's coordinator.
    pub(crate) fn forget_coordinator(&mut self, group: &str, refused_by: &Address) {
        let holder = self.groups.leases.holder(group, 0);
        if self.is_another(holder, refused_by) {
            return;
        }
        self.steps += 1;
        self.groups.leases.drop_route(group, 0, self.steps);
    }

    /// Row of the TTL decision table for `now`.
    pub(crate) fn service(&self, now: Monotonic) -> Service {
        let listed = self.snapshot().is_some_and(|snapshot| !snapshot.addresses().is_empty());
        service(self.ttl, self.snapshot.proven(), listed, now)
    }

    /// As [`Cluster::service`], after the one read: never [`Service::AfterRead`].
    pub(crate) fn service_after_read(&self, now: Monotonic) -> Service {
        match self.service(now) {
            Service::AfterRead => Service::Refused(NotServing::Unreadable),
            decided @ (Service::Serving | Service::Refused(_)) => decided,
        }
    }

    /// Whether both lease prefixes are proven for `now`: for what was routed by them some time ago and has not left yet.
    pub(crate) fn routes_are_proven(&self, now: Monotonic) -> bool {
        let proven = self.partitions.leases.proven().min(self.groups.leases.proven());
        self.ttl.covers(proven, now)
    }

    /// The broker that holds the lease of a partition.
    pub(crate) fn partition_owner(&self, now: Monotonic, topic: &str, partition: i32) -> Owner {
        self.owner(now, &self.partitions.leases, topic, partition)
    }

    /// The broker that holds the lease of a group.
    pub(crate) fn coordinator(&self, now: Monotonic, group: &str) -> Owner {
        self.owner(now, &self.groups.leases, group, 0)
    }

    /// A route is as fresh as the older of two proofs: that of its lease and that of the snapshot that says where
    /// the broker is.
    fn owner(&self, now: Monotonic, leases: &Leases, name: &str, number: i32) -> Owner {
        let Holder { broker, proven } = leases.holder(name, number);
        let proven = if planted(Bug::LeaseProofIgnored) { self.snapshot.proven() } else { proven };
        if !self.ttl.covers(proven.min(self.snapshot.proven()), now) {
            return Owner::Unproven;
        }
        match broker {
            None if leases.is_dropped(name, number) => Owner::Forgotten,
            None => Owner::Nobody,
            Some(id) => match self.address_of(id) {
                Some(address) => Owner::Broker(address.clone()),
                None => Owner::UnknownBroker(id),
            },
        }
    }

    fn is_another(&self, holder: Holder, broker: &Address) -> bool {
        holder.broker.and_then(|id| self.address_of(id)).is_some_and(|owner| owner != broker)
    }

    /// Brokers that may be asked when nobody in particular must be: the static list if there is one, else those
    /// listed, in listing order. Meaningful while [`Cluster::service`] says so.
    pub(crate) fn brokers(&self) -> &[Address] {
        if self.is_static() { &self.static_backends } else { self.snapshot().map_or(&[], Snapshot::addresses) }
    }

    /// The broker to ask for a partition that nobody owns: the same for the same candidates.
    pub(crate) fn stable_choice(&self, topic: &str, partition: i32) -> Option<&Address> {
        choice::stable(self.brokers(), topic, partition)
    }

    /// Whether the topic is known and has no such partition.
    ///
    /// A KafScale broker looks for such a partition for ever, so the request must not reach one. Topics that are not known
    /// are left to brokers, which create them.
    pub(crate) fn lacks_partition(&self, topic: &str, partition: i32) -> bool {
        self.snapshot().map_or(partition < 0, |snapshot| snapshot.lacks(topic, partition))
    }

    /// What the last successful read of the snapshot said.
    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.snapshot()
    }

    /// Where the broker with this id is.
    pub(crate) fn address_of(&self, broker: i32) -> Option<&Address> {
        self.snapshot()?.address_of(broker)
    }

    /// Age of the snapshot's proof; `None` when there is none.
    pub(crate) fn age(&self, now: Monotonic) -> Option<Duration> {
        self.snapshot.proven().map(|proven| now.since(proven))
    }

    /// Ages of all proofs.
    pub(crate) fn stats(&self, now: Monotonic) -> KnowledgeStats {
        let age = |proven: Option<Monotonic>| proven.map(|proven| now.since(proven));
        KnowledgeStats {
            serving: match self.service(now) {
                Service::Serving => true,
                Service::AfterRead | Service::Refused(_) => false,
            },
            snapshot_age: self.age(now),
            partition_leases_age: age(self.partitions.leases.proven()),
            group_leases_age: age(self.groups.leases.proven()),
        }
    }

    /// Whether a static list replaces discovery.
    pub(crate) fn is_static(&self) -> bool {
        !self.static_backends.is_empty()
    }

    fn moment(&mut self, ctx: &Context<'_>) -> Moment {
        self.steps += 1;
        Moment { at: ctx.now.monotonic, step: self.steps }
    }

    fn lease_reader(&mut self, source: Source) -> Option<&mut LeaseReader> {
        match source {
            Source::Snapshot => None,
            Source::PartitionLeases => Some(&mut self.partitions),
            Source::GroupLeases => Some(&mut self.groups),
        }
    }

    /// Who waits for the leases of this source, and for the answer to what.
    fn waiters(&mut self, source: Source) -> Option<(Question, &mut ProofWaiters)> {
        match source {
            Source::Snapshot => None,
            Source::PartitionLeases => Some((Question::PartitionOwners, &mut self.partition_waiters)),
            Source::GroupLeases => Some((Question::Coordinators, &mut self.group_waiters)),
        }
    }

    fn ask_all_leases(&mut self, now: Moment, question: Question, waiter: Waiter, out: &mut Vec<Decision>) {
        if let Some(failure) = self.rounds.pause(now) {
            let answer = Answer::Unreadable(failure.to_owned());
            out.push(Decision::Answered { waiter, question, answer });
            return;
        }
        let (reader, waiters) = if question == Question::PartitionOwners {
            (&mut self.partitions, &mut self.partition_waiters)
        } else {
            (&mut self.groups, &mut self.group_waiters)
        };
        if waiters.join(now, waiter, !reader.is_idle()) {
            reader.read(now, out);
        }
    }

    /// Answers those who wait for all leases of a source.
    fn on_leases_progress(&mut self, now: Moment, source: Source, progress: &Progress, out: &mut Vec<Decision>) {
        let Some((question, waiters)) = self.waiters(source) else { return };
        match progress {
            Progress::Pending => {}
            Progress::Proven => {
                answer_all(waiters.on_proven(), &question, &Answer::Learned, out);
                let again = waiters.is_waited_for();
                if again && let Some(reader) = self.lease_reader(source) {
                    reader.read(now, out);
                }
            }
            Progress::Failed(text) => {
                let answered = waiters.on_failed();
                if !answered.is_empty() {
                    self.rounds.note_failure(now, text);
                }
                answer_all(answered, &question, &Answer::Unreadable(text.clone()), out);
            }
        }
    }

    fn read_all(&mut self, now: Moment, out: &mut Vec<Decision>) {
        self.snapshot.read(now, out);
        self.partitions.read(now, out);
        self.groups.read(now, out);
    }

    fn set_timers(&self, ctx: &mut Context<'_>) {
        let earlier_of = |one: Option<Monotonic>, other: Option<Monotonic>| one.into_iter().chain(other).min();
        for (source, due) in [
            (Source::Snapshot, earlier_of(self.snapshot.due(), self.rounds.deadline())),
            (Source::PartitionLeases, earlier_of(self.partitions.due(), self.partition_waiters.deadline())),
            (Source::GroupLeases, earlier_of(self.groups.due(), self.group_waiters.deadline())),
        ] {
            match due {
                Some(due) => ctx.timers.set(Timer::ClusterReload(source), due),
                None => ctx.timers.clear(Timer::ClusterReload(source)),
            }
        }
    }

    fn on_snapshot_progress(&mut self, now: Moment, progress: Progress, out: &mut Vec<Decision>) {
        self.on_progress(now, Source::Snapshot, &progress, out);
        match progress {
            Progress::Pending => {}
            Progress::Proven => {
                let asked = std::mem::replace(&mut self.snapshot_asked, std::mem::take(&mut self.snapshot_queued));
                answer_all(asked, &Question::Snapshot, &Answer::Learned, out);
                if !self.snapshot_asked.is_empty() {
                    self.snapshot.read(now, out);
                }
            }
            Progress::Failed(text) => {
                let mut asked = std::mem::take(&mut self.snapshot_asked);
                asked.append(&mut self.snapshot_queued);
                if !asked.is_empty() {
                    self.rounds.note_failure(now, &text);
                }
                answer_all(asked, &Question::Snapshot, &Answer::Unreadable(text), out);
            }
        }
    }

    fn on_progress(&mut self, now: Moment, source: Source, progress: &Progress, out: &mut Vec<Decision>) {
        let ended = match progress {
            Progress::Pending => None,
            Progress::Proven => {
                if self.failing.remove(&source) {
                    tracing::info!(?source, "cluster state is readable again");
                }
                self.rounds.on_proven(source)
            }
            Progress::Failed(error) => {
                if self.failing.insert(source) {
                    tracing::warn!(?source, %error, "cluster state is not readable");
                }
                self.rounds.on_failed(now, source, error)
            }
        };
        if let Some(ended) = ended {
            answer_round(ended, out);
        }
    }

    fn on_parsed(&mut self, now: Moment, parsed: Option<Parsed>, out: &mut Vec<Decision>) {
        let Some(Parsed { result, wanted }) = parsed else { return };
        let mut for_state = false;
        for wanted in wanted {
            match wanted {
                ParseFor::State => for_state = true,
                ParseFor::Generation { topic, config_create_revision } => {
                    let generation = generation::parsed(&topic, config_create_revision, &result);
                    self.answer_generation(now, topic, generation, out);
                }
            }
        }
        if for_state {
            let mut result = result;
            if let Ok(snapshot) = &mut result {
                let refused = snapshot.refuse(&self.own_addresses);
                self.said.say(Said { left_out: snapshot.left_out().to_vec(), refused });
            }
            let progress = self.snapshot.on_parsed(now, result, out);
            self.on_snapshot_progress(now, progress, out);
        }
    }
}

fn hand_out(handed: Handed, out: &mut Vec<Decision>) {
    for (waiter, id) in handed.answers {
        let answer = id.map_or_else(Answer::Unreadable, Answer::ProducerId);
        out.push(Decision::Answered { waiter, question: Question::ProducerId, answer });
    }
    if let Some(txn) = handed.order {
        let (read, request) = (Read::ProducerIds, etcd::Request::Txn(txn));
        out.push(Decision::Request { read, request, deadline: READ_DEADLINE });
    }
}

fn answer_round(Ended { waiters, result }: Ended, out: &mut Vec<Decision>) {
    let answer = result.map_or_else(Answer::Unreadable, |()| Answer::Learned);
    answer_all(waiters, &Question::Freshness, &answer, out);
}

fn answer_all(waiters: Vec<Waiter>, question: &Question, answer: &Answer, out: &mut Vec<Decision>) {
    for waiter in waiters {
        out.push(Decision::Answered { waiter, question: question.clone(), answer: answer.clone() });
    }
}
