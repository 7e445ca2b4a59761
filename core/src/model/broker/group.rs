//! One consumer group, as its coordinator keeps it.
//!
//! A KafScale coordinator answers every JoinGroup at once: 0 when all members have joined the present generation, else
//! 27, and the client is to ask again. The leader's assignment is ignored; partitions are dealt round robin.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::kafka::ErrorCode;
use crate::time::Monotonic;

const DEFAULT_TIMEOUT_MS: i32 = 30_000;

/// Where a group stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    #[default]
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl Phase {
    /// As DescribeGroups and ListGroups spell it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// Partitions by topic.
type Assignment = BTreeMap<String, Vec<i32>>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    topics: Vec<String>,
    session_timeout_ms: i32,
    join_generation: i32,
    #[serde(skip)]
    last_heartbeat: Monotonic,
}

/// A group; the serialized form is what survives its coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) phase: Phase,
    pub(super) protocol_type: String,
    pub(super) protocol: String,
    pub(super) generation: i32,
    pub(super) leader: String,
    members: BTreeMap<String, Member>,
    assignments: BTreeMap<String, Assignment>,
    rebalance_timeout_ms: i32,
    #[serde(skip)]
    rebalance_deadline: Option<Monotonic>,
}

/// What a member asks for when it joins.
pub(super) struct Joining<'a> {
    pub(super) member: &'a str,
    pub(super) protocol_type: &'a str,
    pub(super) protocol: Option<(&'a str, &'a Bytes)>,
    pub(super) session_timeout_ms: i32,
    pub(super) rebalance_timeout_ms: i32,
}

/// The answer to a JoinGroup.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) error: ErrorCode,
    pub(super) member: String,
    /// Member ids and subscriptions; only for the leader of a settled generation.
    pub(super) members: Vec<(String, Bytes)>,
}

impl Group {
    /// A group as another coordinator left it: its members have a whole session from now.
    pub(super) fn restore(stored: &[u8], now: Monotonic) -> Option<Self> {
        let mut group: Self = serde_json::from_slice(stored).ok()?;
        for member in group.members.values_mut() {
            member.last_heartbeat = now;
            member.join_generation = group.generation;
        }
        if matches!(group.phase, Phase::PreparingRebalance | Phase::CompletingRebalance) {
            group.rebalance_deadline = Some(now + group.rebalance_timeout());
        }
        group.ensure_leader();
        Some(group)
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a group has nothing that JSON cannot say")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn member_ids(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// Takes a member in. An unknown member id gets `new_id`, so that each retry of a client that lost an answer leaves
    /// a ghost behind.
    pub(super) fn join(&mut self, now: Monotonic, joining: &Joining<'_>, new_id: String) -> Joined {
        joining.protocol_type.clone_into(&mut self.protocol_type);
        if let Some((name, _)) = joining.protocol {
            name.clone_into(&mut self.protocol);
        }
        let timeout = if joining.rebalance_timeout_ms > 0 { joining.rebalance_timeout_ms } else { DEFAULT_TIMEOUT_MS };
        let known = self.members.contains_key(joining.member);
        let id = if known { joining.member.to_owned() } else { new_id };
        let member = self.members.entry(id.clone()).or_default();
        if joining.session_timeout_ms > 0 {
            member.session_timeout_ms = joining.session_timeout_ms;
        } else if member.session_timeout_ms == 0 {
            member.session_timeout_ms = DEFAULT_TIMEOUT_MS;
        }
        member.topics = joining.protocol.map(|(_, metadata)| subscribed_topics(metadata)).unwrap_or_default();
        member.last_heartbeat = now;

        match self.phase {
            Phase::Empty => self.start_rebalance(now, timeout),
            Phase::Stable if !known => self.start_rebalance(now, timeout),
            Phase::Stable => {}
            Phase::PreparingRebalance | Phase::CompletingRebalance => {
                self.rebalance_timeout_ms = timeout;
                self.rebalance_deadline = Some(now + self.rebalance_timeout());
            }
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.join_generation = self.generation;
        }
        self.ensure_leader();
        if self.phase == Phase::PreparingRebalance
            && self.members.values().all(|member| member.join_generation == self.generation)
        {
            self.phase = Phase::CompletingRebalance;
            self.rebalance_deadline = None;
        }
        let settled = matches!(self.phase, Phase::Stable | Phase::CompletingRebalance);
        let members = if settled && id == self.leader {
            self.members.iter().map(|(id, member)| (id.clone(), subscription(&member.topics))).collect()
        } else {
            Vec::new()
        };
        let error = if settled { ErrorCode::NONE } else { ErrorCode::REBALANCE_IN_PROGRESS };
        Joined { error, member: id, members }
    }

    /// What a member may read. `partitions` lists those of a topic.
    pub(super) fn sync(
        &mut self,
        generation: i32,
        member: &str,
        partitions: impl Fn(&str) -> Vec<i32>,
    ) -> Result<Bytes, ErrorCode> {
        if generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        if !self.members.contains_key(member) {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        if self.phase == Phase::PreparingRebalance {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        if self.phase == Phase::CompletingRebalance && self.assignments.is_empty() {
            if member != self.leader {
                return Err(ErrorCode::REBALANCE_IN_PROGRESS);
            }
            self.deal(partitions);
            self.phase = Phase::Stable;
            self.rebalance_deadline = None;
        }
        match self.assignments.get(member) {
            None if self.phase != Phase::Stable => Err(ErrorCode::REBALANCE_IN_PROGRESS),
            assignment => Ok(assignment_bytes(assignment.unwrap_or(&Assignment::new()))),
        }
    }

    pub(super) fn heartbeat(&mut self, now: Monotonic, generation: i32, member: &str) -> ErrorCode {
        let Some(found) = self.members.get_mut(member) else { return ErrorCode::UNKNOWN_MEMBER_ID };
        if generation != self.generation {
            return ErrorCode::ILLEGAL_GENERATION;
        }
        if self.phase != Phase::Stable {
            return ErrorCode::REBALANCE_IN_PROGRESS;
        }
        found.last_heartbeat = now;
        ErrorCode::NONE
    }

    pub(super) fn leave(&mut self, now: Monotonic, member: &str) -> ErrorCode {
        if self.members.remove(member).is_none() {
            return ErrorCode::UNKNOWN_MEMBER_ID;
        }
        self.assignments.remove(member);
        self.start_rebalance(now, 0);
        ErrorCode::NONE
    }

    /// Whether a commit of this member counts.
    pub(super) fn check_commit(&self, generation: i32, member: &str) -> ErrorCode {
        if !self.members.contains_key(member) {
            ErrorCode::UNKNOWN_MEMBER_ID
        } else if generation != self.generation {
            ErrorCode::ILLEGAL_GENERATION
        } else {
            ErrorCode::NONE
        }
    }

    /// Drops members that are silent or did not join in time. Whether anything changed.
    pub(super) fn clean_up(&mut self, now: Monotonic) -> bool {
        let before = self.members.len();
        self.members.retain(|_, member| {
            now.since(member.last_heartbeat) <= Duration::from_millis(member.session_timeout_ms.unsigned_abs().into())
        });
        if self.rebalance_deadline.is_some_and(|deadline| deadline <= now) {
            let generation = self.generation;
            self.members.retain(|_, member| member.join_generation == generation);
        }
        let changed = self.members.len() != before;
        if changed {
            self.start_rebalance(now, 0);
        }
        changed
    }

    fn rebalance_timeout(&self) -> Duration {
        Duration::from_millis(self.rebalance_timeout_ms.unsigned_abs().into())
    }

    fn start_rebalance(&mut self, now: Monotonic, timeout_ms: i32) {
        self.assignments.clear();
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            self.rebalance_deadline = None;
            self.leader.clear();
            return;
        }
        if timeout_ms > 0 {
            self.rebalance_timeout_ms = timeout_ms;
        }
        self.generation += 1;
        self.phase = Phase::PreparingRebalance;
        self.rebalance_deadline = Some(now + self.rebalance_timeout());
        self.ensure_leader();
        for member in self.members.values_mut() {
            member.join_generation = 0;
        }
    }

    fn ensure_leader(&mut self) {
        if !self.members.contains_key(&self.leader) {
            self.leader = self.members.keys().next().cloned().unwrap_or_default();
        }
    }

    fn deal(&mut self, partitions: impl Fn(&str) -> Vec<i32>) {
        self.assignments = self.members.keys().map(|id| (id.clone(), Assignment::new())).collect();
        let mut topics: Vec<&String> = self.members.values().flat_map(|member| &member.topics).collect();
        topics.sort_unstable();
        topics.dedup();
        for topic in topics {
            let subscribers: Vec<&String> =
                self.members.iter().filter(|(_, member)| member.topics.contains(topic)).map(|(id, _)| id).collect();
            for (partition, id) in partitions(topic).into_iter().zip(subscribers.iter().cycle()) {
                if let Some(assignment) = self.assignments.get_mut(*id) {
                    assignment.entry(topic.clone()).or_default().push(partition);
                }
            }
        }
    }
}

/// Topics of a consumer protocol subscription; what does not parse ends the list.
fn subscribed_topics(metadata: &Bytes) -> Vec<String> {
    let mut topics = Vec::new();
    let Some(mut rest) = metadata.get(6..) else { return topics };
    let count = u32::from_be_bytes([metadata[2], metadata[3], metadata[4], metadata[5]]);
    for _ in 0..count {
        let Some((length, after)) = rest.split_first_chunk::<2>() else { break };
        let Some((name, after)) = after.split_at_checked(usize::from(u16::from_be_bytes(*length))) else { break };
        topics.push(String::from_utf8_lossy(name).into_owned());
        rest = after;
    }
    topics
}

/// A subscription of version 0: whatever else the member said about itself is lost.
fn subscription(topics: &[String]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(topics.len() as i32);
    for topic in topics {
        put_string(&mut out, topic);
    }
    out.put_i32(0);
    out.freeze()
}

fn assignment_bytes(assignment: &Assignment) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(assignment.len() as i32);
    for (topic, partitions) in assignment {
        put_string(&mut out, topic);
        out.put_i32(partitions.len() as i32);
        for partition in partitions {
            out.put_i32(*partition);
        }
    }
    out.put_i32(0);
    out.freeze()
}

fn put_string(out: &mut BytesMut, text: &str) {
    out.put_i16(text.len() as i16);
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Monotonic = Monotonic::ZERO;

    fn join(group: &mut Group, now: Monotonic, member: &str, new_id: &str) -> (ErrorCode, String, usize) {
        let metadata = subscription(&["t".to_owned()]);
        let joining = Joining {
            member,
            protocol_type: "consumer",
            protocol: Some(("range", &metadata)),
            session_timeout_ms: 6_000,
            rebalance_timeout_ms: 5_000,
        };
        let joined = group.join(now, &joining, new_id.to_owned());
        (joined.error, joined.member, joined.members.len())
    }

    fn two_partitions(_: &str) -> Vec<i32> {
        vec![0, 1]
    }

    fn assigned(partitions: &[i32]) -> Bytes {
        let mut assignment = Assignment::new();
        if !partitions.is_empty() {
            assignment.insert("t".to_owned(), partitions.to_vec());
        }
        assignment_bytes(&assignment)
    }

    /// The sequence and all its codes were seen on a broker.
    #[test]
    fn two_members_settle() {
        let (none, rebalancing) = (ErrorCode::NONE, ErrorCode::REBALANCE_IN_PROGRESS);
        let mut group = Group::default();
        assert_eq!(join(&mut group, NOW, "", "b"), (none, "b".to_owned(), 1));
        assert_eq!(group.sync(1, "b", two_partitions), Ok(assigned(&[0, 1])));
        assert_eq!(group.heartbeat(NOW, 1, "b"), none);
        assert_eq!(join(&mut group, NOW, "", "a"), (rebalancing, "a".to_owned(), 0));
        assert_eq!(group.heartbeat(NOW, 1, "b"), ErrorCode::ILLEGAL_GENERATION);
        assert_eq!(group.heartbeat(NOW, 2, "b"), rebalancing);
        assert_eq!(join(&mut group, NOW, "a", "unused"), (rebalancing, "a".to_owned(), 0));
        assert_eq!(join(&mut group, NOW, "b", "unused"), (none, "b".to_owned(), 2));
        assert_eq!(join(&mut group, NOW, "a", "unused"), (none, "a".to_owned(), 0));
        assert_eq!(group.sync(2, "a", two_partitions), Err(rebalancing));
        assert_eq!(group.sync(1, "b", two_partitions), Err(ErrorCode::ILLEGAL_GENERATION));
        assert_eq!(group.sync(2, "b", two_partitions), Ok(assigned(&[1])));
        assert_eq!(group.sync(2, "a", two_partitions), Ok(assigned(&[0])));
        assert_eq!(group.phase.name(), "Stable");
        assert_eq!(group.check_commit(2, "a"), none);
        assert_eq!(group.check_commit(1, "a"), ErrorCode::ILLEGAL_GENERATION);
        assert_eq!(group.check_commit(-1, ""), ErrorCode::UNKNOWN_MEMBER_ID);
        assert_eq!(group.leave(NOW, "b"), none);
        assert_eq!(group.leave(NOW, "b"), ErrorCode::UNKNOWN_MEMBER_ID);
        assert_eq!((group.leader.as_str(), group.generation), ("a", 3));
    }

    #[test]
    fn a_retry_without_the_member_id_leaves_a_ghost_that_gets_partitions() {
        let mut group = Group::default();
        join(&mut group, NOW, "", "a");
        join(&mut group, NOW, "", "ghost");
        join(&mut group, NOW, "a", "");
        assert_eq!(group.member_ids().collect::<Vec<_>>(), ["a", "ghost"]);
        assert_eq!(group.sync(group.generation, "a", two_partitions), Ok(assigned(&[0])));
    }

    #[test]
    fn silent_members_and_laggards_are_dropped() {
        let at = Monotonic::from_millis;
        let mut group = Group::default();
        join(&mut group, NOW, "", "a");
        group.sync(1, "a", two_partitions).unwrap();
        join(&mut group, at(4_000), "", "b");
        assert!(!group.clean_up(at(6_000)));
        assert!(group.clean_up(at(6_001)), "a has been silent for longer than its session");
        assert_eq!(group.member_ids().collect::<Vec<_>>(), ["b"]);
        assert_eq!((group.leader.as_str(), group.generation), ("b", 3));
        assert_eq!(join(&mut group, at(7_000), "b", "").0, ErrorCode::NONE);
        join(&mut group, at(8_000), "", "c");
        group.sync(3, "b", two_partitions).unwrap();
        join(&mut group, at(9_000), "", "d");
        group.heartbeat(at(13_000), group.generation, "b");
        assert!(group.clean_up(at(14_000)), "b and c did not join the new generation in time");
        assert!(group.member_ids().all(|id| id == "d"));
    }

    #[test]
    fn another_coordinator_goes_on_with_the_group() {
        let mut group = Group::default();
        join(&mut group, NOW, "", "a");
        group.sync(1, "a", two_partitions).unwrap();
        let later = Monotonic::from_millis(60_000);
        let mut restored = Group::restore(&group.to_json(), later).unwrap();
        assert!(!restored.clean_up(later));
        assert_eq!(restored.heartbeat(later, 1, "a"), ErrorCode::NONE);
        assert_eq!(restored.sync(1, "a", two_partitions), Ok(assigned(&[0, 1])));
        assert_eq!(Group::restore(b"no group", later), None);
    }

    #[test]
    fn subscriptions_that_are_cut_off_name_what_came() {
        let whole = subscription(&["one".to_owned(), "two".to_owned()]);
        for (length, topics) in [(0, 0), (5, 0), (6, 0), (10, 0), (11, 1), (15, 1), (16, 2), (whole.len(), 2)] {
            assert_eq!(subscribed_topics(&whole.slice(..length)).len(), topics, "{length}");
        }
    }
}
