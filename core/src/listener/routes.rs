//! Where the items of one request go: the owner of a partition, the coordinator of a group, or any broker.
//!
//! What is not known is asked of etcd, each question once per request; the items that need the answer wait for it. Many
//! owners are not read one by one: a proof of all leases is one read, whatever the number.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use crate::cluster::{Address, Cluster, Owner, Question, Service};
use crate::listener::request::Step;
use crate::time::Monotonic;

/// So many owners are read one by one at once; above that all leases are proven instead.
const READ_SINGLY: usize = 16;

/// Whether so many owners are not read one by one, but proven together.
pub(crate) const fn proves_all(owners: usize) -> bool {
    owners > READ_SINGLY
}

/// What decides where an item goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The owner of this partition, and nobody else. A KafScale broker that has looked at a partition of another and
    /// comes to own it later goes on from what it saw, and overwrites what was acknowledged since. So where nobody owns
    /// it, the one broker is asked that would take it for a batch, too.
    Partition { topic: String, partition: i32 },
    /// The coordinator of this group.
    Group(String),
    /// Nothing: any broker is as good.
    Anyone,
}

impl Key {
    /// Where it leads when nobody owns it.
    fn without_owner(&self, cluster: &Cluster) -> Way {
        match self {
            Self::Partition { topic, partition } => {
                let choice = cluster.stable_choice(topic, *partition);
                choice.map_or(Way::Stale, |address| Way::Broker(address.clone()))
            }
            Self::Group(_) | Self::Anyone => Way::Anyone,
        }
    }

    /// Where it leads when nobody can say who owns it.
    fn without_knowledge(&self) -> Way {
        match self {
            // Somebody may own it, and only the owner may be asked.
            Self::Partition { .. } => Way::Stale,
            Self::Group(_) | Self::Anyone => Way::Anyone,
        }
    }

    /// What reads its owner anew.
    fn question(&self) -> Option<Question> {
        match self {
            Self::Partition { topic, partition } => {
                Some(Question::PartitionOwner { topic: topic.clone(), partition: *partition })
            }
            Self::Group(group) => Some(Question::Coordinator { group: group.clone() }),
            Self::Anyone => None,
        }
    }
}

/// Where an item goes now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// To this broker.
    Broker(Address),
    /// To any broker.
    Anyone,
    /// Not known before this is answered.
    Ask(Question),
    /// Nowhere: the topic is known and does not have this partition.
    Absent,
    /// Nowhere: what is known is older than the TTL and could not be renewed.
    Stale,
}

/// The questions of one request.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// What items wait for, and what was asked for that.
    open: BTreeMap<Question, Question>,
    /// What items wait for and was not asked yet.
    wanted: BTreeSet<Question>,
    asked: BTreeSet<Question>,
}

impl Routes {
    /// Where `key` leads now. A question that was answered without helping is not asked a second time.
    pub(crate) fn way(&mut self, cluster: &Cluster, now: Monotonic, key: &Key) -> Way {
        #[cfg(test)]
        crate::tests::count(crate::tests::Work::LookUp);
        if let Some(question) = key.question()
            && self.is_open(&question)
        {
            return Way::Ask(question);
        }
        match cluster.service(now) {
            Service::Serving => {}
            Service::AfterRead => return self.unless_asked(Question::Freshness, Way::Stale),
            Service::Refused(_) => return Way::Stale,
        }
        let owner = match key {
            Key::Partition { topic, partition } if cluster.lacks_partition(topic, *partition) => {
                return self.unless_asked(Question::Snapshot, Way::Absent);
            }
            Key::Partition { topic, partition } => cluster.partition_owner(now, topic, *partition),
            Key::Group(group) => cluster.coordinator(now, group),
            Key::Anyone => Owner::Nobody,
        };
        let way = match owner {
            Owner::Broker(address) => Way::Broker(address),
            Owner::Nobody => key.without_owner(cluster),
            Owner::UnknownBroker(_) => self.unless_asked(Question::Snapshot, key.without_owner(cluster)),
            Owner::Forgotten => match key.question() {
                Some(question) => self.unless_asked(question, key.without_knowledge()),
                None => Way::Anyone,
            },
            Owner::Unproven => self.unless_asked(Question::Freshness, Way::Stale),
        };
        if matches!(way, Way::Broker(_) | Way::Anyone) && !self.is_open(&Question::Freshness) {
            // Proven fresh: should it age during a long request, it may be asked for again. So may the owner be.
            self.asked.remove(&Question::Freshness);
            if let Some(question) = key.question() {
                self.asked.remove(&question);
            }
        }
        way
    }

    /// Asks, unless the same question is open.
    pub(crate) fn ask(&mut self, question: Question, steps: &mut Vec<Step>) {
        self.want(question);
        self.put_questions(steps);
    }

    /// To be asked with [`Routes::put_questions`], unless the same question is open.
    pub(crate) fn want(&mut self, question: Question) {
        if !self.open.contains_key(&question) {
            self.wanted.insert(question.clone());
        }
        self.asked.insert(question);
    }

    /// Asks what is wanted. Routes that a proof of all leases is to restore have been dropped by then, and one that was
    /// ordered before would not: so what it is wanted for waits for the next.
    pub(crate) fn put_questions(&mut self, steps: &mut Vec<Step>) {
        let mut counts: BTreeMap<Question, usize> = BTreeMap::new();
        for all in self.wanted.iter().filter_map(Question::of_all) {
            *counts.entry(all).or_default() += 1;
        }
        counts.retain(|_, count| proves_all(*count));
        let is_under_way = |all: &Question| self.open.values().any(|asked| asked == all);
        // With whether it may be asked now.
        let mut put: BTreeMap<Question, bool> =
            counts.into_keys().map(|all| (all.clone(), !is_under_way(&all))).collect();
        for question in mem::take(&mut self.wanted) {
            let all = question.of_all().and_then(|all| put.get_key_value(&all));
            match all {
                None => {
                    steps.push(Step::Ask(question.clone()));
                    self.open.insert(question.clone(), question);
                }
                Some((all, true)) => {
                    self.open.insert(question, all.clone());
                }
                Some((_, false)) => {
                    self.wanted.insert(question);
                }
            }
        }
        put.retain(|_, put| *put);
        steps.extend(put.into_keys().map(Step::Ask));
    }

    /// The broker that `key` led to could not be reached: its owner may be another by now.
    pub(crate) fn unreachable(&mut self, key: &Key) {
        if let Some(question) = key.question() {
            self.want(question);
        }
    }

    /// The broker that `key` led to refused it: the route is dropped, and to be read anew.
    pub(crate) fn refused(&mut self, key: &Key, by: &Address, steps: &mut Vec<Step>) {
        match key {
            Key::Partition { topic, partition } => {
                let topic = topic.clone();
                steps.push(Step::ForgetPartitionOwner { topic, partition: *partition, by: by.clone() });
            }
            Key::Group(group) => {
                steps.push(Step::ForgetCoordinator { group: group.clone(), by: by.clone() });
            }
            Key::Anyone => {}
        }
        self.unreachable(key);
    }

    /// Takes note of an answer; false when the question was not one of these.
    pub(crate) fn answered(&mut self, question: &Question) -> bool {
        let before = self.open.len();
        self.open.retain(|_, asked| asked != question);
        self.open.len() < before
    }

    fn is_open(&self, question: &Question) -> bool {
        self.open.contains_key(question) || self.wanted.contains(question)
    }

    /// Whether asking this may still help: it has not been answered before.
    pub(crate) fn may_ask(&self, question: &Question) -> bool {
        // An open question counts, so that further items wait for the same answer.
        !self.asked.contains(question) || self.is_open(question)
    }

    fn unless_asked(&self, question: Question, otherwise: Way) -> Way {
        if self.may_ask(&question) { Way::Ask(question) } else { otherwise }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(partition: i32) -> Question {
        Question::PartitionOwner { topic: "t".into(), partition }
    }

    fn put(routes: &mut Routes) -> Vec<Question> {
        let mut steps = Vec::new();
        routes.put_questions(&mut steps);
        let question = |step| if let Step::Ask(question) = step { question } else { panic!("{step:?}") };
        steps.into_iter().map(question).collect()
    }

    #[test]
    fn few_owners_are_read_singly_and_many_with_one_proof() {
        let many = i32::try_from(READ_SINGLY).unwrap();
        let mut routes = Routes::default();
        (0..many).for_each(|partition| routes.want(owner(partition)));
        routes.want(Question::Snapshot);
        assert_eq!(put(&mut routes).len(), READ_SINGLY + 1);
        assert!(routes.answered(&owner(0)) && !routes.is_open(&owner(0)) && routes.is_open(&owner(1)));

        (0..=many).for_each(|partition| routes.want(owner(100 + partition)));
        assert_eq!(put(&mut routes), [Question::PartitionOwners]);
        assert!(
            routes.answered(&Question::PartitionOwners) && !routes.is_open(&owner(100)) && routes.is_open(&owner(1))
        );
        assert!(!routes.answered(&Question::PartitionOwners));
        assert!(!routes.may_ask(&owner(100)), "it was answered");
    }

    #[test]
    fn what_is_wanted_while_all_are_being_proven_waits_for_the_next_proof() {
        let mut routes = Routes::default();
        (0..50).for_each(|partition| routes.want(owner(partition)));
        assert_eq!(put(&mut routes), [Question::PartitionOwners]);
        (50..100).for_each(|partition| routes.want(owner(partition)));
        assert_eq!(put(&mut routes), []);
        assert!(routes.answered(&Question::PartitionOwners));
        assert!(!routes.is_open(&owner(49)) && routes.is_open(&owner(50)));
        assert_eq!(put(&mut routes), [Question::PartitionOwners]);
        assert!(routes.answered(&Question::PartitionOwners) && !routes.is_open(&owner(50)));
    }
}
