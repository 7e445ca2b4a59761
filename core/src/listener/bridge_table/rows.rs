//! What a translation changes, field by field: everything that stands in no row is carried as it is.

use crate::kafka::ApiKey;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// From the client to the broker.
    Request,
    /// From the broker to the client.
    Answer,
}

/// What stands in a field that is not carried.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stands {
    /// This.
    As(&'static str),
    /// What the client's request says in this field.
    AsAsked(&'static str),
    /// What the broker's answer says in this field.
    AsAnswered(&'static str),
    /// What the proxy decides; other tests say what.
    Own,
    /// Nothing: with any value but these the request is refused with this code, and no broker hears of it.
    Refused { unless: &'static [&'static str], code: i16 },
}

/// One field, and whatever is inside it, in these versions of the client.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) api: ApiKey,
    pub(super) end: End,
    pub(super) from: i16,
    pub(super) to: i16,
    pub(super) path: &'static str,
    pub(super) stands: Stands,
}

const fn asked(api: ApiKey, from: i16, to: i16, path: &'static str, stands: Stands) -> Row {
    Row { api, end: End::Request, from, to, path, stands }
}

/// A field of a broker's answer that clients of these versions lack, or see in another way.
const fn answered(api: ApiKey, from: i16, to: i16, path: &'static str, stands: Stands) -> Row {
    Row { api, end: End::Answer, from, to, path, stands }
}

use ApiKey::{
    DescribeConfigs, DescribeGroups, Fetch, Heartbeat, JoinGroup, LeaveGroup, OffsetCommit, OffsetFetch,
    OffsetForLeaderEpoch, SyncGroup,
};
use Stands::{As, AsAnswered, AsAsked, Own, Refused};

const UNSUPPORTED_VERSION: i16 = 35;
const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
/// Members with an id of their administrator's choice.
const STATIC_MEMBER: Stands = Refused { unless: &["None"], code: UNSUPPORTED_VERSION };

/// The table.
pub(super) const ROWS: &[Row] = &[
    // Brokers are asked without a wait first, and wait only in turns.
    asked(Fetch, 4, 13, "max_wait_ms", Own),
    asked(Fetch, 4, 13, "min_bytes", As("1")),
    asked(Fetch, 7, 13, "session_id", Refused { unless: &["0"], code: FETCH_SESSION_ID_NOT_FOUND }),
    asked(Fetch, 7, 13, "session_epoch", Refused { unless: &["-1", "0"], code: FETCH_SESSION_ID_NOT_FOUND }),
    // Without a session nothing can leave it, nor does a broker say which cluster it belongs to.
    asked(Fetch, 7, 13, "forgotten_topics_data", As("[]")),
    asked(Fetch, 12, 13, "cluster_id", As("None")),
    answered(Fetch, 4, 4, "responses.partitions.log_start_offset", As("-1")),
    answered(Fetch, 4, 13, "session_id", As("0")),
    answered(Fetch, 4, 13, "responses.partitions.preferred_read_replica", As("-1")),
    answered(Fetch, 4, 13, "responses.partitions.current_leader", Own),
    answered(Fetch, 4, 13, "responses.partitions.records", Own),
    // The default of replicas is another than that of clients.
    asked(OffsetForLeaderEpoch, 0, 2, "replica_id", As("-1")),
    answered(OffsetForLeaderEpoch, 0, 1, "throttle_time_ms", As("0")),
    answered(OffsetForLeaderEpoch, 0, 0, "topics.partitions.leader_epoch", As("-1")),
    asked(JoinGroup, 0, 0, "rebalance_timeout_ms", AsAsked("session_timeout_ms")),
    asked(JoinGroup, 5, 9, "group_instance_id", STATIC_MEMBER),
    asked(JoinGroup, 8, 9, "reason", As("None")),
    answered(JoinGroup, 0, 1, "throttle_time_ms", As("0")),
    answered(JoinGroup, 7, 9, "protocol_type", AsAsked("protocol_type")),
    asked(SyncGroup, 3, 4, "group_instance_id", STATIC_MEMBER),
    answered(SyncGroup, 0, 0, "throttle_time_ms", As("0")),
    asked(Heartbeat, 3, 4, "group_instance_id", STATIC_MEMBER),
    answered(Heartbeat, 0, 0, "throttle_time_ms", As("0")),
    // One member alone and a list of one.
    asked(LeaveGroup, 0, 2, "member_id", As("\"\"")),
    asked(LeaveGroup, 0, 2, "members", As("a list")),
    asked(LeaveGroup, 0, 2, "members.member_id", AsAsked("member_id")),
    asked(LeaveGroup, 0, 2, "members.group_instance_id", As("None")),
    asked(LeaveGroup, 0, 2, "members.reason", As("None")),
    asked(LeaveGroup, 0, 2, "members.unknown_tagged_fields", As("{}")),
    answered(LeaveGroup, 0, 0, "throttle_time_ms", As("0")),
    answered(LeaveGroup, 0, 2, "error_code", AsAnswered("members.error_code")),
    answered(LeaveGroup, 0, 2, "members", As("[]")),
    asked(OffsetCommit, 1, 1, "topics.partitions.commit_timestamp", As("-1")),
    asked(OffsetCommit, 6, 8, "topics.partitions.committed_leader_epoch", As("-1")),
    asked(OffsetCommit, 7, 8, "group_instance_id", STATIC_MEMBER),
    answered(OffsetCommit, 1, 2, "throttle_time_ms", As("0")),
    asked(OffsetFetch, 7, 7, "require_stable", As("false")),
    answered(OffsetFetch, 1, 2, "throttle_time_ms", As("0")),
    answered(OffsetFetch, 1, 4, "topics.partitions.committed_leader_epoch", As("-1")),
    answered(DescribeGroups, 0, 0, "throttle_time_ms", As("0")),
    answered(DescribeGroups, 0, 2, "groups.authorized_operations", As("-2147483648")),
    answered(DescribeGroups, 0, 3, "groups.members.group_instance_id", As("None")),
    answered(DescribeConfigs, 0, 0, "results.configs.is_default", Own),
    answered(DescribeConfigs, 0, 0, "results.configs.config_source", As("-1")),
    answered(DescribeConfigs, 0, 0, "results.configs.synonyms", As("[]")),
    answered(DescribeConfigs, 0, 2, "results.configs.config_type", As("0")),
    // The default of ours and of the independent codec, which does not know version 0.
    answered(DescribeConfigs, 0, 0, "results.configs.documentation", As("None")),
    answered(DescribeConfigs, 1, 2, "results.configs.documentation", As("\"\"")),
];
