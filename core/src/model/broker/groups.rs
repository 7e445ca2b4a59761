//! The group APIs of a coordinator.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::group::{Group, Joining};
use super::job::{Answer, Job, Writing};
use super::lease::Kind;
use super::{BrokerModel, keys};
use crate::etcd::Keys;
use crate::kafka::{
    DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    DescribedGroup, DescribedGroupMember, ErrorCode, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest,
    JoinGroupResponse, JoinGroupResponseMember, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest,
    ListGroupsResponse, ListedGroup, OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic, OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponsePartition,
    OffsetFetchResponseTopic, SyncGroupRequest, SyncGroupResponse,
};
use crate::time::Now;

/// A committed offset as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct CommittedOffset {
    offset: i64,
    metadata: String,
    committed_at: String,
}

impl BrokerModel {
    /// Takes a group that another coordinator stored into memory.
    fn load_group(&mut self, now: Now, job: &Job, id: &str) {
        if !self.groups.contains_key(id)
            && let Some(kv) = job.read.get(&keys::group(id))
            && let Some(group) = Group::restore(&kv.value, now.monotonic)
        {
            self.groups.insert(id.to_owned(), group);
        }
    }

    /// Stores the group, or removes one without members.
    fn store_group(&mut self, id: &str, writing: &mut Writing) {
        match self.groups.get(id) {
            Some(group) if !group.is_empty() => writing.writes.put(keys::group(id), group.to_json()),
            Some(_) | None => {
                self.groups.remove(id);
                writing.writes.delete(Keys::One(keys::group(id)));
            }
        }
    }

    pub(super) fn answer_join_group(&mut self, now: Now, job: &Job, request: &JoinGroupRequest) -> Answer {
        let head = job.head;
        let refused = |error_code| JoinGroupResponse { error_code, ..JoinGroupResponse::default() };
        if let Err(code) = self.coordination(job, &request.group_id) {
            return Answer::Now(head.frame(&refused(code)));
        }
        if job.read_failed {
            return Answer::Now(head.empty::<JoinGroupResponse>());
        }
        self.load_group(now, job, &request.group_id);
        let new_id = format!("{}-{}", request.group_id.as_str(), self.random.below(1 << 63));
        let group = self.groups.entry(request.group_id.as_str().to_owned()).or_default();
        let joining = Joining {
            member: &request.member_id,
            protocol_type: &request.protocol_type,
            protocol: request.protocols.first().map(|protocol| (protocol.name.as_str(), &protocol.metadata)),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
        };
        let joined = group.join(now.monotonic, &joining, new_id);
        let member = |(id, metadata): (String, Bytes)| JoinGroupResponseMember {
            member_id: id.into(),
            metadata,
            ..JoinGroupResponseMember::default()
        };
        let response = JoinGroupResponse {
            error_code: joined.error,
            generation_id: group.generation,
            protocol_name: Some(group.protocol.as_str().into()),
            leader: group.leader.as_str().into(),
            member_id: joined.member.into(),
            members: joined.members.into_iter().map(member).collect(),
            ..JoinGroupResponse::default()
        };
        let failed = JoinGroupResponse { error_code: ErrorCode::UNKNOWN_SERVER_ERROR, ..response.clone() };
        self.after_storing(&request.group_id, head.frame(&response), head.frame(&failed))
    }

    pub(super) fn answer_sync_group(&mut self, now: Now, job: &Job, request: &SyncGroupRequest) -> Answer {
        let head = job.head;
        let refused =
            |error_code| Answer::Now(head.frame(&SyncGroupResponse { error_code, ..SyncGroupResponse::default() }));
        if let Err(code) = self.coordination(job, &request.group_id) {
            return refused(code);
        }
        if job.read_failed {
            return Answer::Now(head.empty::<SyncGroupResponse>());
        }
        self.load_group(now, job, &request.group_id);
        let snapshot = &self.snapshot;
        let partitions = |topic: &str| {
            let listed = snapshot.topic(topic).map(|topic| topic.partitions.iter().map(|p| p.partition).collect());
            // A topic that does not exist yet counts as one with a single partition.
            listed.filter(|listed: &Vec<i32>| !listed.is_empty()).unwrap_or_else(|| vec![0])
        };
        let Some(group) = self.groups.get_mut(request.group_id.as_str()) else {
            return refused(ErrorCode::UNKNOWN_MEMBER_ID);
        };
        match group.sync(request.generation_id, &request.member_id, partitions) {
            Err(code) => refused(code),
            Ok(assignment) => {
                let response = SyncGroupResponse {
                    protocol_type: Some(group.protocol_type.as_str().into()),
                    protocol_name: Some(group.protocol.as_str().into()),
                    assignment,
                    ..SyncGroupResponse::default()
                };
                let failed = SyncGroupResponse { error_code: ErrorCode::UNKNOWN_SERVER_ERROR, ..response.clone() };
                self.after_storing(&request.group_id, head.frame(&response), head.frame(&failed))
            }
        }
    }

    pub(super) fn answer_heartbeat(&mut self, now: Now, job: &Job, request: &HeartbeatRequest) -> Answer {
        let head = job.head;
        let frame = |error_code| head.frame(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() });
        if let Err(code) = self.coordination(job, &request.group_id) {
            return Answer::Now(frame(code));
        }
        if job.read_failed {
            return Answer::Now(frame(ErrorCode::UNKNOWN_SERVER_ERROR));
        }
        self.load_group(now, job, &request.group_id);
        let code = match self.groups.get_mut(request.group_id.as_str()) {
            None => ErrorCode::UNKNOWN_MEMBER_ID,
            Some(group) => group.heartbeat(now.monotonic, request.generation_id, &request.member_id),
        };
        if code.is_none() {
            self.after_storing(&request.group_id, frame(code), frame(ErrorCode::UNKNOWN_SERVER_ERROR))
        } else {
            Answer::Now(frame(code))
        }
    }

    /// Reads the one member of versions 0 to 2; from version 3 on there is none, and so nobody is known.
    pub(super) fn answer_leave_group(&mut self, now: Now, job: &Job, request: &LeaveGroupRequest) -> Answer {
        let head = job.head;
        let frame = |error_code| head.frame(&LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() });
        if let Err(code) = self.coordination(job, &request.group_id) {
            return Answer::Now(frame(code));
        }
        if job.read_failed {
            return Answer::Now(frame(ErrorCode::UNKNOWN_SERVER_ERROR));
        }
        self.load_group(now, job, &request.group_id);
        let code = match self.groups.get_mut(request.group_id.as_str()) {
            None => ErrorCode::UNKNOWN_MEMBER_ID,
            Some(group) => group.leave(now.monotonic, &request.member_id),
        };
        if code.is_none() {
            self.after_storing(&request.group_id, frame(code), frame(ErrorCode::UNKNOWN_SERVER_ERROR))
        } else {
            Answer::Now(frame(code))
        }
    }

    pub(super) fn answer_offset_commit(&mut self, now: Now, job: &Job, request: &OffsetCommitRequest) -> Answer {
        let head = job.head;
        let frame = |error_code: ErrorCode| {
            let topics = request.topics.iter().map(|topic| OffsetCommitResponseTopic {
                name: topic.name.clone(),
                partitions: topic
                    .partitions
                    .iter()
                    .map(|partition| OffsetCommitResponsePartition {
                        partition_index: partition.partition_index,
                        error_code,
                    })
                    .collect(),
            });
            head.frame(&OffsetCommitResponse { topics: topics.collect(), ..OffsetCommitResponse::default() })
        };
        if let Err(code) = self.coordination(job, &request.group_id) {
            return Answer::Now(frame(code));
        }
        if job.read_failed {
            return Answer::Now(head.empty::<OffsetCommitResponse>());
        }
        self.load_group(now, job, &request.group_id);
        let code = match self.groups.get(request.group_id.as_str()) {
            None => ErrorCode::UNKNOWN_MEMBER_ID,
            Some(group) => group.check_commit(request.generation_id, &request.member_id),
        };
        if !code.is_none() {
            return Answer::Now(frame(code));
        }
        let mut writing = Writing {
            written: Some(frame(ErrorCode::NONE)),
            failed: Some(frame(ErrorCode::UNKNOWN_SERVER_ERROR)),
            ..Writing::default()
        };
        for topic in &request.topics {
            for partition in &topic.partitions {
                let committed = CommittedOffset {
                    offset: partition.committed_offset,
                    metadata: partition.committed_metadata.as_deref().unwrap_or_default().to_owned(),
                    committed_at: now.unix_ms.to_string(),
                };
                let value = serde_json::to_vec(&committed).expect("an offset has nothing that JSON cannot say");
                let key = keys::offset(&request.group_id, &topic.name, partition.partition_index);
                writing.writes.put(key, value);
            }
        }
        Answer::AfterWrites(writing)
    }

    /// A partition that was never committed is answered with offset 0, and null topics with nothing at all.
    pub(super) fn answer_offset_fetch(&self, job: &Job, request: &OffsetFetchRequest) -> OffsetFetchResponse {
        let refused = self.coordination(job, &request.group_id).err();
        let topics = request.topics.iter().flatten().map(|topic| {
            let partitions = topic.partition_indexes.iter().map(|partition| {
                if let Some(error_code) = refused {
                    return OffsetFetchResponsePartition {
                        partition_index: *partition,
                        committed_offset: -1,
                        error_code,
                        ..OffsetFetchResponsePartition::default()
                    };
                }
                let stored = job.read.get(&keys::offset(&request.group_id, &topic.name, *partition));
                let committed = stored.and_then(|kv| serde_json::from_slice::<CommittedOffset>(&kv.value).ok());
                let error_code = if job.read_failed { ErrorCode::UNKNOWN_SERVER_ERROR } else { ErrorCode::NONE };
                OffsetFetchResponsePartition {
                    partition_index: *partition,
                    committed_offset: committed.as_ref().map_or(0, |committed| committed.offset),
                    metadata: Some(committed.map(|committed| committed.metadata).unwrap_or_default().into()),
                    error_code,
                    ..OffsetFetchResponsePartition::default()
                }
            });
            OffsetFetchResponseTopic { name: topic.name.clone(), partitions: partitions.collect() }
        });
        let error_code = refused.unwrap_or_default();
        OffsetFetchResponse { topics: topics.collect(), error_code, ..OffsetFetchResponse::default() }
    }

    /// Reads the stored groups, not those in memory.
    pub(super) fn answer_describe_groups(
        &self,
        now: Now,
        job: &Job,
        request: &DescribeGroupsRequest,
    ) -> DescribeGroupsResponse {
        let groups = request.groups.iter().map(|id| {
            let refused = |error_code| DescribedGroup { error_code, group_id: id.clone(), ..DescribedGroup::default() };
            if let Err(code) = self.coordination(job, id) {
                return refused(code);
            }
            if job.read_failed {
                return refused(ErrorCode::UNKNOWN_SERVER_ERROR);
            }
            let stored = job.read.get(&keys::group(id));
            let Some(group) = stored.and_then(|kv| Group::restore(&kv.value, now.monotonic)) else {
                return refused(ErrorCode::GROUP_ID_NOT_FOUND);
            };
            DescribedGroup {
                group_id: id.clone(),
                group_state: group.phase.name().into(),
                protocol_type: protocol_type(&group).into(),
                protocol_data: group.protocol.as_str().into(),
                members: group
                    .member_ids()
                    .map(|id| DescribedGroupMember { member_id: id.into(), ..DescribedGroupMember::default() })
                    .collect(),
                authorized_operations: if request.include_authorized_operations { 0 } else { i32::MIN },
                ..DescribedGroup::default()
            }
        });
        DescribeGroupsResponse { groups: groups.collect(), ..DescribeGroupsResponse::default() }
    }

    /// Every group of the cluster, whoever coordinates it.
    pub(super) fn answer_list_groups(&self, now: Now, job: &Job, request: &ListGroupsRequest) -> ListGroupsResponse {
        if !self.available {
            return ListGroupsResponse { error_code: ErrorCode::REQUEST_TIMED_OUT, ..ListGroupsResponse::default() };
        }
        if job.read_failed {
            return ListGroupsResponse { error_code: ErrorCode::UNKNOWN_SERVER_ERROR, ..ListGroupsResponse::default() };
        }
        let wanted = |filter: &[crate::kafka::Str], name: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        let groups = job.read.values().filter_map(|kv| {
            let id = keys::group_of(&kv.key)?;
            let group = Group::restore(&kv.value, now.monotonic)?;
            let listed = ListedGroup {
                group_id: id.into(),
                protocol_type: protocol_type(&group).into(),
                group_state: group.phase.name().into(),
                group_type: "classic".into(),
            };
            let wanted = wanted(&request.states_filter, &listed.group_state)
                && wanted(&request.types_filter, &listed.group_type);
            wanted.then_some(listed)
        });
        ListGroupsResponse { groups: groups.collect(), ..ListGroupsResponse::default() }
    }

    /// Removes stored groups. Ownership is not looked at: a coordinator elsewhere keeps its memory and stores it again.
    pub(super) fn answer_delete_groups(&mut self, job: &Job, request: &DeleteGroupsRequest) -> Answer {
        let head = job.head;
        let mut writing = Writing::default();
        let mut codes = Vec::with_capacity(request.groups_names.len());
        for id in &request.groups_names {
            codes.push(if !self.available {
                ErrorCode::REQUEST_TIMED_OUT
            } else if id.trim().is_empty() {
                ErrorCode::INVALID_REQUEST
            } else if job.read_failed {
                ErrorCode::UNKNOWN_SERVER_ERROR
            } else {
                self.groups.remove(id.as_str());
                if job.read.contains_key(&keys::group(id)) {
                    writing.writes.delete(Keys::One(keys::group(id)));
                    ErrorCode::NONE
                } else {
                    ErrorCode::GROUP_ID_NOT_FOUND
                }
            });
        }
        let frame = |success: ErrorCode| {
            let results = request.groups_names.iter().zip(&codes).map(|(group_id, code)| DeletableGroupResult {
                group_id: group_id.clone(),
                error_code: if code.is_none() { success } else { *code },
            });
            head.frame(&DeleteGroupsResponse { results: results.collect(), ..DeleteGroupsResponse::default() })
        };
        writing.written = Some(frame(ErrorCode::NONE));
        writing.failed = Some(frame(ErrorCode::UNKNOWN_SERVER_ERROR));
        Answer::AfterWrites(writing)
    }

    /// Drops members that are gone, every few seconds, and stores what changed.
    pub(super) fn clean_up_groups(&mut self, now: Now) -> Writing {
        let mut writing = Writing::default();
        let changed: Vec<String> = self
            .groups
            .iter_mut()
            .filter_map(|(id, group)| (group.clean_up(now.monotonic) || group.is_empty()).then(|| id.clone()))
            .collect();
        for id in changed {
            self.store_group(&id, &mut writing);
        }
        writing
    }

    /// Whether this broker may answer for the group.
    fn coordination(&self, job: &Job, group: &str) -> Result<(), ErrorCode> {
        job.ownership(Kind::Group, group)?;
        if self.available { Ok(()) } else { Err(ErrorCode::REQUEST_TIMED_OUT) }
    }

    fn after_storing(&mut self, id: &str, written: Bytes, failed: Bytes) -> Answer {
        let mut writing = Writing { written: Some(written), failed: Some(failed), ..Writing::default() };
        self.store_group(id, &mut writing);
        Answer::AfterWrites(writing)
    }
}

fn protocol_type(group: &Group) -> &str {
    if group.protocol_type.is_empty() { "consumer" } else { &group.protocol_type }
}
