//! Where the items of one request go: the owner of a partition, the coordinator of a group, or any broker.
//!
//! What is not known is asked of etcd, each question once per request; the items that need the answer wait for it.

use std::collections::BTreeSet;

use crate::cluster::{Address, Cluster, Owner, Question, Service};
use crate::listener::request::Step;
use crate::time::Monotonic;

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
    open: BTreeSet<Question>,
    asked: BTreeSet<Question>,
}

impl Routes {
    /// Where `key` leads now. A question that was answered without helping is not asked a second time.
    pub(crate) fn way(&mut self, cluster: &Cluster, now: Monotonic, key: &Key) -> Way {
        if let Some(question) = key.question()
            && self.open.contains(&question)
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
        if matches!(way, Way::Broker(_) | Way::Anyone) && !self.open.contains(&Question::Freshness) {
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
        self.asked.insert(question.clone());
        if self.open.insert(question.clone()) {
            steps.push(Step::Ask(question));
        }
    }

    /// The broker that `key` led to could not be reached: its owner may be another by now.
    pub(crate) fn unreachable(&mut self, key: &Key, steps: &mut Vec<Step>) {
        if let Some(question) = key.question() {
            self.ask(question, steps);
        }
    }

    /// The broker that `key` led to refused it: the route is dropped and read anew.
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
        self.unreachable(key, steps);
    }

    /// Takes note of an answer; false when the question was not one of these.
    pub(crate) fn answered(&mut self, question: &Question) -> bool {
        self.open.remove(question)
    }

    /// Whether asking this may still help: it has not been answered before.
    pub(crate) fn may_ask(&self, question: &Question) -> bool {
        // An open question counts, so that further items wait for the same answer.
        !self.asked.contains(question) || self.open.contains(question)
    }

    fn unless_asked(&self, question: Question, otherwise: Way) -> Way {
        if self.may_ask(&question) { Way::Ask(question) } else { otherwise }
    }
}
