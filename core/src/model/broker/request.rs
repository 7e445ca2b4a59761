//! What brokers understand: which requests, in which versions, and what each needs before it can be answered.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::kafka::{
    AlterConfigsRequest, ApiKey, ApiVersion, CreatePartitionsRequest, CreateTopicsRequest, DecodeError,
    DeleteGroupsRequest, DeleteTopicsRequest, DescribeConfigsRequest, DescribeGroupsRequest, FetchRequest,
    FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest,
    ListOffsetsRequest, Message, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
    ProduceRequest, SyncGroupRequest, VersionRange,
};

/// The ranges of a broker that differ from the table below.
pub(super) type Differing = BTreeMap<ApiKey, VersionRange>;

fn spoken(differing: &Differing, api: ApiKey, min: i16, max: i16) -> VersionRange {
    differing.get(&api).copied().unwrap_or_else(|| VersionRange::new(min, max))
}

/// One row per API: key, lowest and highest advertised version, in the order in which brokers list them.
macro_rules! requests {
    ($($(#[$meta:meta])* $name:ident($type:ty) = $min:literal..=$max:literal;)*) => {
        /// A request that a broker answers after more than a look at its header.
        #[derive(Debug)]
        pub(super) enum Request {
            $($(#[$meta])* $name($type),)*
        }

        impl Request {
            /// Reads a request of an advertised version; `None` for any other.
            pub(super) fn decode(
                differing: &Differing,
                api: ApiKey,
                version: i16,
                body: &Bytes,
            ) -> Option<Result<Self, DecodeError>> {
                $(if api == ApiKey::$name && spoken(differing, api, $min, $max).contains(version) {
                    return Some(<$type>::decode(body, version).map(Self::$name));
                })*
                // Brokers advertise 4 alone, yet they read the member of version 1 and miss those of version 4.
                let leaves = api == ApiKey::LeaveGroup && version == 1;
                leaves.then(|| LeaveGroupRequest::decode(body, version).map(Self::LeaveGroup))
            }
        }

        /// What a broker says it speaks: ApiVersions first, then these, then nine keys that it says it does not.
        pub(super) fn advertised(differing: &Differing) -> Vec<ApiVersion> {
            let range = |api: ApiKey, min, max| {
                let VersionRange { min, max } = spoken(differing, api, min, max);
                (api as i16, min, max)
            };
            let spoken = [(18, 0, 4), $(range(ApiKey::$name, $min, $max),)*];
            let unsupported = [4, 5, 6, 7, 21, 22, 24, 25, 26].map(|key| (key, -1, -1));
            spoken
                .into_iter()
                .chain(unsupported)
                .map(|(api_key, min_version, max_version)| ApiVersion { api_key, min_version, max_version })
                .collect()
        }
    };
}

requests! {
    Metadata(MetadataRequest) = 0..=12;
    Produce(ProduceRequest) = 0..=9;
    Fetch(FetchRequest) = 11..=13;
    #[expect(dead_code, reason = "a broker names itself whatever it is asked for")]
    FindCoordinator(FindCoordinatorRequest) = 3..=3;
    ListOffsets(ListOffsetsRequest) = 0..=4;
    JoinGroup(JoinGroupRequest) = 4..=4;
    SyncGroup(SyncGroupRequest) = 4..=4;
    Heartbeat(HeartbeatRequest) = 4..=4;
    LeaveGroup(LeaveGroupRequest) = 4..=4;
    OffsetCommit(OffsetCommitRequest) = 3..=3;
    OffsetFetch(OffsetFetchRequest) = 5..=5;
    DescribeGroups(DescribeGroupsRequest) = 5..=5;
    ListGroups(ListGroupsRequest) = 0..=5;
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest) = 3..=3;
    DescribeConfigs(DescribeConfigsRequest) = 4..=4;
    AlterConfigs(AlterConfigsRequest) = 1..=1;
    CreatePartitions(CreatePartitionsRequest) = 0..=3;
    CreateTopics(CreateTopicsRequest) = 0..=2;
    DeleteTopics(DeleteTopicsRequest) = 0..=2;
    DeleteGroups(DeleteGroupsRequest) = 0..=2;
}
