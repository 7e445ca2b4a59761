//! What single requests ask of etcd: one lease, the identity of a topic, what a group has committed. Each is read once for
//! all who ask at the same time.

use super::{Cluster, answer_all};
use crate::cluster::committed::{Committed, Next};
use crate::cluster::freshness::Moment;
use crate::cluster::generation::{self, Reading};
use crate::cluster::leases::{group_key, holder_in, partition_key};
use crate::cluster::parses::ParseFor;
use crate::cluster::reader::{LEASE_READ_DEADLINE, READ_DEADLINE, ReadError, range_response, txn_response};
use crate::cluster::{Answer, Decision, Question, Read, TopicGeneration, Waiter};
use crate::etcd::{self, Keys, RangeRequest, Refusal};
use crate::operation::Outcome;

impl Cluster {
    pub(super) fn order_lease_read(
        &mut self,
        now: Moment,
        question: Question,
        asked: Vec<Waiter>,
        out: &mut Vec<Decision>,
    ) {
        let (read, key) = match &question {
            Question::PartitionOwner { topic, partition } => {
                (Read::PartitionLease { topic: topic.clone(), partition: *partition }, partition_key(topic, *partition))
            }
            Question::Coordinator { group } => (Read::GroupLease { group: group.clone() }, group_key(group)),
            Question::Freshness
            | Question::Snapshot
            | Question::PartitionOwners
            | Question::Coordinators
            | Question::Generation { .. }
            | Question::CommittedPartitions { .. }
            | Question::ProducerId => return,
        };
        let request = etcd::Request::Range(RangeRequest::of(Keys::One(key)));
        out.push(Decision::Request { read, request, deadline: LEASE_READ_DEADLINE });
        self.lease_reads.begin(question, now, (), asked);
    }

    pub(super) fn on_lease_read(
        &mut self,
        now: Moment,
        question: Question,
        outcome: Outcome<etcd::Response, Refusal>,
        out: &mut Vec<Decision>,
    ) {
        let Some(over) = self.lease_reads.finish(&question) else { return };
        let answer = match range_response(outcome) {
            Ok(range) => {
                let told = (range.revision, range.kvs.first().and_then(|kv| holder_in(&kv.value)));
                match &question {
                    Question::PartitionOwner { topic, partition } => {
                        self.partitions.leases.on_key_read(topic, *partition, over.ordered, now, told);
                    }
                    Question::Coordinator { group } => {
                        self.groups.leases.on_key_read(group, 0, over.ordered, now, told);
                    }
                    Question::Freshness
                    | Question::Snapshot
                    | Question::PartitionOwners
                    | Question::Coordinators
                    | Question::Generation { .. }
                    | Question::CommittedPartitions { .. }
                    | Question::ProducerId => {}
                }
                Answer::Learned
            }
            Err(error) => Answer::Unreadable(error.text()),
        };
        answer_all(over.asked, &question, &answer, out);
        if !over.queued.is_empty() {
            self.order_lease_read(now, question, over.queued, out);
        }
    }

    pub(super) fn order_generation(&mut self, now: Moment, topic: String, asked: Vec<Waiter>, out: &mut Vec<Decision>) {
        let (request, basis) = generation::request(&topic, self.snapshot.watched_put());
        let read = Read::Generation { topic: topic.clone() };
        out.push(Decision::Request { read, request: etcd::Request::Txn(request), deadline: READ_DEADLINE });
        self.generations.begin(topic, now, (basis, self.snapshot.last_watch()), asked);
    }

    pub(super) fn on_generation_read(
        &mut self,
        now: Moment,
        topic: String,
        outcome: Outcome<etcd::Response, Refusal>,
        out: &mut Vec<Decision>,
    ) {
        let Some((basis, watch)) = self.generations.detail(&topic) else { return };
        let watch = *watch;
        let reading = match txn_response(outcome) {
            Ok(answer) => generation::answered(basis, answer),
            Err(error) => Reading::Failed(error.text()),
        };
        match reading {
            Reading::Known(generation) => self.answer_generation(now, topic, Ok(generation), out),
            Reading::Unchanged(generation) if self.snapshot.is_still_watched(watch) => {
                self.answer_generation(now, topic, Ok(generation), out);
            }
            // The store may have been replaced meanwhile: what it has is read whole.
            Reading::Unchanged(_) => {
                if let Some(mut over) = self.generations.finish(&topic) {
                    over.asked.append(&mut over.queued);
                    self.order_generation(now, topic, over.asked, out);
                }
            }
            Reading::Failed(text) => self.answer_generation(now, topic, Err(text), out),
            Reading::Parse { value, config_create_revision } => {
                let wanted = ParseFor::Generation { topic, config_create_revision };
                let parsed = self.parses.parse(value, wanted, out);
                self.on_parsed(now, parsed, out);
            }
        }
    }

    pub(super) fn answer_generation(
        &mut self,
        now: Moment,
        topic: String,
        generation: Result<TopicGeneration, String>,
        out: &mut Vec<Decision>,
    ) {
        let Some(over) = self.generations.finish(&topic) else { return };
        let answer = generation.map_or_else(Answer::Unreadable, Answer::Generation);
        answer_all(over.asked, &Question::Generation { topic: topic.clone() }, &answer, out);
        if !over.queued.is_empty() {
            self.order_generation(now, topic, over.queued, out);
        }
    }

    pub(super) fn order_committed(&mut self, now: Moment, group: String, asked: Vec<Waiter>, out: &mut Vec<Decision>) {
        let committed = Committed::new(&group, self.page_keys);
        out.push(committed_page(&group, committed.next()));
        self.committed.begin(group, now, committed, asked);
    }

    pub(super) fn on_committed_page(
        &mut self,
        now: Moment,
        group: String,
        outcome: Outcome<etcd::Response, Refusal>,
        out: &mut Vec<Decision>,
    ) {
        let Some(committed) = self.committed.detail(&group) else { return };
        let next = match range_response(outcome) {
            Ok(page) => committed.take(page).map_err(str::to_owned),
            Err(ReadError::Compacted) => match committed.restart() {
                Some(first) => Ok(Next::Page(first)),
                None => Err(ReadError::Compacted.text()),
            },
            Err(error @ ReadError::Failed(_)) => Err(error.text()),
        };
        let answer = match next {
            Ok(Next::Page(request)) => {
                out.push(committed_page(&group, request));
                return;
            }
            Ok(Next::Done(partitions)) => Answer::CommittedPartitions(partitions),
            Err(text) => Answer::Unreadable(text),
        };
        let Some(over) = self.committed.finish(&group) else { return };
        answer_all(over.asked, &Question::CommittedPartitions { group: group.clone() }, &answer, out);
        if !over.queued.is_empty() {
            self.order_committed(now, group, over.queued, out);
        }
    }
}

fn committed_page(group: &str, request: RangeRequest) -> Decision {
    let read = Read::CommittedPartitions { group: group.to_owned() };
    Decision::Request { read, request: etcd::Request::Range(request), deadline: READ_DEADLINE }
}
