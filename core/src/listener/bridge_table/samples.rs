//! Drawn requests that go to a broker, and drawn answers that belong to them.

use crate::kafka::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse, DeleteTopicsRequest,
    DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, DescribedGroup, ErrorCode, FetchPartition, FetchRequest, FetchResponse, FetchTopic,
    FetchableTopicResponse, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, ListOffsetsPartition,
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic, ListOffsetsTopicResponse,
    MemberResponse, OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
    OffsetFetchRequest, OffsetFetchResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition, OffsetForLeaderPartitionResult, OffsetForLeaderTopic, OffsetForLeaderTopicResult,
    PartitionData, Request, Str, SyncGroupRequest, SyncGroupResponse,
};

/// A request of which samples go to a broker.
pub(super) trait Asked: Request {
    /// Leaves out what other tests look at: waits, requests for nothing, and for what cannot be.
    fn fit(&mut self) {}

    /// Makes a drawn answer one to this request, without what makes the proxy ask again. Throttle times are merged, so
    /// there is none below 0.
    fn tie(&self, answer: Self::Response) -> Self::Response;
}

/// Codes on which the proxy does something else than passing them on.
const ACTED_ON: &[ErrorCode] = &[
    ErrorCode::OFFSET_OUT_OF_RANGE,
    ErrorCode::NOT_LEADER_OR_FOLLOWER,
    ErrorCode::NOT_COORDINATOR,
    ErrorCode::ILLEGAL_GENERATION,
    ErrorCode::UNKNOWN_MEMBER_ID,
    ErrorCode::REBALANCE_IN_PROGRESS,
    ErrorCode::KAFKA_STORAGE_ERROR,
    ErrorCode::GROUP_ID_NOT_FOUND,
    ErrorCode::MEMBER_ID_REQUIRED,
];

fn quieten(code: &mut ErrorCode) {
    if ACTED_ON.contains(code) {
        *code = ErrorCode::NONE;
    }
}

/// The drawn answers to single items, again and again.
fn endless<T: Clone + Default>(drawn: Vec<T>) -> impl Iterator<Item = T> {
    let drawn = if drawn.is_empty() { vec![T::default()] } else { drawn };
    drawn.into_iter().cycle()
}

impl Asked for FetchRequest {
    fn fit(&mut self) {
        self.max_wait_ms = self.max_wait_ms.rem_euclid(300);
        self.min_bytes = 0;
        self.max_bytes = i32::MAX - self.max_bytes.rem_euclid(100);
        self.session_id %= 3;
        self.session_epoch = self.session_epoch.rem_euclid(3) - 1;
        self.topics.retain(|topic| !topic.partitions.is_empty());
        if self.topics.is_empty() {
            self.topics.push(FetchTopic { partitions: vec![FetchPartition::default()], ..FetchTopic::default() });
        }
        let partitions = self.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        partitions.for_each(|asked| asked.partition = asked.partition.max(0));
    }

    fn tie(&self, answer: FetchResponse) -> FetchResponse {
        let mut drawn = endless(answer.responses.into_iter().flat_map(|topic| topic.partitions).collect());
        let mut partition = |asked: &FetchPartition| {
            let mut data = PartitionData { partition_index: asked.partition, ..drawn.next().unwrap() };
            quieten(&mut data.error_code);
            data
        };
        let responses = self
            .topics
            .iter()
            .map(|topic| FetchableTopicResponse {
                topic: topic.topic.clone(),
                topic_id: topic.topic_id,
                partitions: topic.partitions.iter().map(&mut partition).collect(),
            })
            .collect();
        FetchResponse {
            throttle_time_ms: answer.throttle_time_ms.max(0),
            error_code: ErrorCode::NONE,
            responses,
            ..answer
        }
    }
}

impl Asked for ListOffsetsRequest {
    fn fit(&mut self) {
        self.topics.retain(|topic| !topic.partitions.is_empty());
        if self.topics.is_empty() {
            let partitions = vec![ListOffsetsPartition::default()];
            self.topics.push(ListOffsetsTopic { partitions, ..ListOffsetsTopic::default() });
        }
        let partitions = self.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        partitions.for_each(|asked| asked.partition_index = asked.partition_index.max(0));
    }

    fn tie(&self, answer: ListOffsetsResponse) -> ListOffsetsResponse {
        let mut drawn = endless(answer.topics.into_iter().flat_map(|topic| topic.partitions).collect());
        let mut partition = |asked: &ListOffsetsPartition| {
            let mut data =
                ListOffsetsPartitionResponse { partition_index: asked.partition_index, ..drawn.next().unwrap() };
            quieten(&mut data.error_code);
            data
        };
        let topics = self
            .topics
            .iter()
            .map(|topic| ListOffsetsTopicResponse {
                name: topic.name.clone(),
                partitions: topic.partitions.iter().map(&mut partition).collect(),
            })
            .collect();
        ListOffsetsResponse { throttle_time_ms: answer.throttle_time_ms.max(0), topics }
    }
}

impl Asked for OffsetForLeaderEpochRequest {
    fn fit(&mut self) {
        self.topics.retain(|topic| !topic.partitions.is_empty());
        if self.topics.is_empty() {
            let partitions = vec![OffsetForLeaderPartition::default()];
            self.topics.push(OffsetForLeaderTopic { partitions, ..OffsetForLeaderTopic::default() });
        }
        let partitions = self.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        partitions.for_each(|asked| asked.partition = asked.partition.max(0));
    }

    fn tie(&self, answer: OffsetForLeaderEpochResponse) -> OffsetForLeaderEpochResponse {
        let mut drawn = endless(answer.topics.into_iter().flat_map(|topic| topic.partitions).collect());
        let mut partition = |asked: &OffsetForLeaderPartition| {
            let mut data = OffsetForLeaderPartitionResult { partition: asked.partition, ..drawn.next().unwrap() };
            quieten(&mut data.error_code);
            data
        };
        let topics = self
            .topics
            .iter()
            .map(|topic| OffsetForLeaderTopicResult {
                topic: topic.topic.clone(),
                partitions: topic.partitions.iter().map(&mut partition).collect(),
            })
            .collect();
        OffsetForLeaderEpochResponse { throttle_time_ms: answer.throttle_time_ms.max(0), topics }
    }
}

impl Asked for DescribeGroupsRequest {
    fn fit(&mut self) {
        self.groups.push(Str::from("one at least"));
    }

    fn tie(&self, answer: DescribeGroupsResponse) -> DescribeGroupsResponse {
        let mut drawn = endless(answer.groups);
        let mut group = |asked: &Str| {
            let mut group = DescribedGroup { group_id: asked.clone(), ..drawn.next().unwrap() };
            quieten(&mut group.error_code);
            group
        };
        let groups = self.groups.iter().map(&mut group).collect();
        DescribeGroupsResponse { throttle_time_ms: answer.throttle_time_ms.max(0), groups }
    }
}

impl Asked for DeleteGroupsRequest {
    fn fit(&mut self) {
        self.groups_names.push(Str::from("one at least"));
    }

    fn tie(&self, answer: DeleteGroupsResponse) -> DeleteGroupsResponse {
        let mut drawn = endless(answer.results);
        let mut group = |asked: &Str| {
            let mut group = DeletableGroupResult { group_id: asked.clone(), ..drawn.next().unwrap() };
            quieten(&mut group.error_code);
            group
        };
        let results = self.groups_names.iter().map(&mut group).collect();
        DeleteGroupsResponse { throttle_time_ms: answer.throttle_time_ms.max(0), results }
    }
}

impl Asked for ListGroupsRequest {
    /// A group is listed once.
    fn tie(&self, mut answer: ListGroupsResponse) -> ListGroupsResponse {
        for (number, group) in answer.groups.iter_mut().enumerate() {
            group.group_id = Str::from(format!("{}{number}", group.group_id));
        }
        answer.throttle_time_ms = answer.throttle_time_ms.max(0);
        answer
    }
}

impl Asked for JoinGroupRequest {
    fn tie(&self, mut answer: JoinGroupResponse) -> JoinGroupResponse {
        quieten(&mut answer.error_code);
        answer
    }
}

impl Asked for SyncGroupRequest {
    fn tie(&self, mut answer: SyncGroupResponse) -> SyncGroupResponse {
        quieten(&mut answer.error_code);
        answer
    }
}

impl Asked for HeartbeatRequest {
    fn tie(&self, mut answer: HeartbeatResponse) -> HeartbeatResponse {
        quieten(&mut answer.error_code);
        answer
    }
}

impl Asked for LeaveGroupRequest {
    /// An error of the whole answer stands beside no members, and the other way round.
    fn tie(&self, answer: LeaveGroupResponse) -> LeaveGroupResponse {
        let mut drawn = endless(answer.members);
        let members = self
            .members
            .iter()
            .map(|member| MemberResponse {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                ..drawn.next().unwrap()
            })
            .collect();
        LeaveGroupResponse { error_code: ErrorCode::NONE, members, ..answer }
    }
}

impl Asked for OffsetCommitRequest {
    fn fit(&mut self) {
        self.topics.push(OffsetCommitRequestTopic {
            name: Str::from("one at least"),
            partitions: vec![OffsetCommitRequestPartition::default()],
        });
    }

    fn tie(&self, mut answer: OffsetCommitResponse) -> OffsetCommitResponse {
        let partitions = answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        partitions.for_each(|partition| quieten(&mut partition.error_code));
        answer
    }
}

impl Asked for OffsetFetchRequest {
    /// All topics are asked for in a way of its own.
    fn fit(&mut self) {
        self.topics.get_or_insert_default();
    }

    fn tie(&self, mut answer: OffsetFetchResponse) -> OffsetFetchResponse {
        answer.error_code = ErrorCode::NONE;
        for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            quieten(&mut partition.error_code);
            // Zeroes are doubted.
            partition.committed_offset |= 1;
        }
        answer
    }
}

impl Asked for DescribeConfigsRequest {
    /// Sources that there are.
    fn tie(&self, mut answer: DescribeConfigsResponse) -> DescribeConfigsResponse {
        for entry in answer.results.iter_mut().flat_map(|result| &mut result.configs) {
            entry.config_source = entry.config_source.rem_euclid(6);
        }
        answer
    }
}

/// Requests that any broker answers: whatever it says is for the client.
macro_rules! answered_by_any_broker {
    ($($request:ty => $response:ty;)*) => {
        $(impl Asked for $request {
            fn tie(&self, answer: $response) -> $response {
                answer
            }
        })*
    };
}

answered_by_any_broker! {
    AlterConfigsRequest => AlterConfigsResponse;
    CreatePartitionsRequest => CreatePartitionsResponse;
    CreateTopicsRequest => CreateTopicsResponse;
    DeleteTopicsRequest => DeleteTopicsResponse;
}
