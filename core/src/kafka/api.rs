//! Which APIs exist here, which versions of them are known, and which are told to clients.

use crate::config::{ClusterConfig, ClusterKind, IdempotentProducers};

/// Versions of an API, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// Lowest.
    pub min: i16,
    /// Highest.
    pub max: i16,
}

impl VersionRange {
    /// From both ends, the lower first.
    pub const fn new(min: i16, max: i16) -> Self {
        Self { min, max }
    }

    /// Whether the version is one of them.
    pub const fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    /// What both have in common, if anything.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let common = Self { min: self.min.max(other.min), max: self.max.min(other.max) };
        (common.min <= common.max).then_some(common)
    }

    /// Every version, ascending.
    pub fn iter(self) -> impl Iterator<Item = i16> {
        self.min..=self.max
    }
}

/// One row per API: name, key, versions whose layout is known, first flexible version (requests and responses alike).
macro_rules! apis {
    ($($(#[$doc:meta])* $name:ident = $key:literal, $min:literal..=$max:literal, $flexible:expr;)*) => {
        /// An API of the Kafka protocol that this crate knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $($(#[$doc])* $name = $key,)*
        }

        impl ApiKey {
            /// All of them, by key.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// By its key, if it is known here.
            pub fn from_key(key: i16) -> Option<Self> {
                match key {
                    $($key => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Versions whose layout is known: what can be decoded and encoded, whatever is advertised.
            pub const fn known_versions(self) -> VersionRange {
                match self {
                    $(Self::$name => VersionRange::new($min, $max),)*
                }
            }

            /// First version with compact lengths and tagged fields, of the request and of the response; `None` if
            /// there is no such version.
            pub const fn flexible_from(self) -> Option<i16> {
                match self {
                    $(Self::$name => $flexible,)*
                }
            }
        }
    };
}

apis! {
    /// Produce.
    Produce = 0, 0..=9, Some(9);
    /// Fetch.
    Fetch = 1, 4..=13, Some(12);
    /// ListOffsets.
    ListOffsets = 2, 0..=4, Some(6);
    /// Metadata.
    Metadata = 3, 0..=12, Some(9);
    /// OffsetCommit.
    OffsetCommit = 8, 1..=8, Some(8);
    /// OffsetFetch.
    OffsetFetch = 9, 1..=7, Some(6);
    /// FindCoordinator.
    FindCoordinator = 10, 0..=4, Some(3);
    /// JoinGroup.
    JoinGroup = 11, 0..=9, Some(6);
    /// Heartbeat.
    Heartbeat = 12, 0..=4, Some(4);
    /// LeaveGroup.
    LeaveGroup = 13, 0..=4, Some(4);
    /// SyncGroup.
    SyncGroup = 14, 0..=5, Some(4);
    /// DescribeGroups.
    DescribeGroups = 15, 0..=5, Some(5);
    /// ListGroups.
    ListGroups = 16, 0..=5, Some(3);
    /// SaslHandshake.
    SaslHandshake = 17, 0..=1, None;
    /// ApiVersions.
    ApiVersions = 18, 0..=4, Some(3);
    /// CreateTopics.
    CreateTopics = 19, 0..=7, Some(5);
    /// DeleteTopics.
    DeleteTopics = 20, 0..=6, Some(4);
    /// InitProducerId.
    InitProducerId = 22, 0..=4, Some(2);
    /// OffsetForLeaderEpoch.
    OffsetForLeaderEpoch = 23, 0..=3, Some(4);
    /// DescribeConfigs.
    DescribeConfigs = 32, 0..=4, Some(4);
    /// AlterConfigs.
    AlterConfigs = 33, 0..=2, Some(2);
    /// SaslAuthenticate.
    SaslAuthenticate = 36, 0..=2, Some(2);
    /// CreatePartitions.
    CreatePartitions = 37, 0..=3, Some(2);
    /// DeleteGroups.
    DeleteGroups = 42, 0..=2, Some(2);
}

impl ApiKey {
    /// Whether this version has compact lengths and tagged fields.
    pub fn is_flexible(self, version: i16) -> bool {
        self.flexible_from().is_some_and(|first| version >= first)
    }
}

impl From<ApiKey> for i16 {
    fn from(key: ApiKey) -> Self {
        key as Self
    }
}

/// One API in front of one kind of cluster.
struct Row {
    api: ApiKey,
    /// What clients are told.
    advertised: VersionRange,
    /// What brokers of the kind speak; `None` where the proxy answers by itself. A broker that lacks it is spoken to in
    /// the nearest version that it has.
    spoken: Option<VersionRange>,
}

const fn row(api: ApiKey, advertised: (i16, i16), spoken: (i16, i16)) -> Row {
    Row {
        api,
        advertised: VersionRange::new(advertised.0, advertised.1),
        spoken: Some(VersionRange::new(spoken.0, spoken.1)),
    }
}

const fn own(api: ApiKey, advertised: (i16, i16)) -> Row {
    Row { api, advertised: VersionRange::new(advertised.0, advertised.1), spoken: None }
}

/// What common clients need of a KafScale cluster; what its brokers do not speak is translated. Produce 0 to 2 are listed
/// because librdkafka looks for them, and refused when used.
const KAFSCALE: &[Row] = &[
    own(ApiKey::ApiVersions, (0, 4)),
    own(ApiKey::Metadata, (0, 12)),
    row(ApiKey::Produce, (0, 9), (3, 9)),
    row(ApiKey::Fetch, (4, 13), (11, 13)),
    own(ApiKey::FindCoordinator, (0, 4)),
    row(ApiKey::ListOffsets, (0, 4), (0, 4)),
    row(ApiKey::JoinGroup, (0, 9), (4, 4)),
    row(ApiKey::SyncGroup, (0, 4), (4, 4)),
    row(ApiKey::Heartbeat, (0, 4), (4, 4)),
    row(ApiKey::LeaveGroup, (0, 4), (4, 4)),
    row(ApiKey::OffsetCommit, (1, 8), (3, 3)),
    row(ApiKey::OffsetFetch, (1, 7), (5, 5)),
    row(ApiKey::DescribeGroups, (0, 5), (5, 5)),
    row(ApiKey::ListGroups, (0, 5), (0, 5)),
    row(ApiKey::OffsetForLeaderEpoch, (0, 3), (3, 3)),
    row(ApiKey::DescribeConfigs, (0, 4), (4, 4)),
    row(ApiKey::AlterConfigs, (1, 1), (1, 1)),
    row(ApiKey::CreatePartitions, (0, 3), (0, 3)),
    row(ApiKey::CreateTopics, (0, 2), (0, 2)),
    row(ApiKey::DeleteTopics, (0, 2), (0, 2)),
    row(ApiKey::DeleteGroups, (0, 2), (0, 2)),
];

/// What producers with idempotence look for in addition. The proxy answers it, for brokers do not know it.
const ACCEPTED_PRODUCERS: &[Row] = &[own(ApiKey::InitProducerId, (0, 4))];

/// What clients of a cluster are told, in this order (ApiVersions).
pub fn advertised(cluster: &ClusterConfig) -> impl Iterator<Item = (ApiKey, VersionRange)> {
    let (always, further) = match cluster.kind {
        ClusterKind::KafScale => match cluster.idempotent_producers {
            IdempotentProducers::Refuse => (KAFSCALE, &[][..]),
            IdempotentProducers::Accept => (KAFSCALE, ACCEPTED_PRODUCERS),
        },
    };
    always.iter().chain(further).map(|row| (row.api, row.advertised))
}

/// What clients of a cluster are told of one API; `None` if it is not listed.
pub fn advertised_versions(cluster: &ClusterConfig, api: ApiKey) -> Option<VersionRange> {
    advertised(cluster).find(|(listed, _)| *listed == api).map(|(_, range)| range)
}

/// What the brokers of a kind speak of an API; `None` where it never reaches them.
pub(crate) fn spoken(kind: ClusterKind, api: ApiKey) -> Option<VersionRange> {
    let rows = match kind {
        ClusterKind::KafScale => KAFSCALE,
    };
    rows.iter().find(|row| row.api == api).and_then(|row| row.spoken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_advertised_can_be_decoded() {
        let accepting = ClusterConfig { idempotent_producers: IdempotentProducers::Accept, ..ClusterConfig::default() };
        for (api, range) in advertised(&accepting) {
            assert_eq!(api.known_versions().intersection(range), Some(range), "{api:?}");
        }
    }

    #[test]
    fn what_brokers_speak_can_be_encoded() {
        for api in ApiKey::ALL {
            if let Some(range) = spoken(ClusterKind::KafScale, *api) {
                assert_eq!(api.known_versions().intersection(range), Some(range), "{api:?}");
            }
        }
    }

    #[test]
    fn ids_for_producers_are_listed_only_where_they_are_given() {
        for (idempotent_producers, listed) in
            [(IdempotentProducers::Refuse, None), (IdempotentProducers::Accept, Some(VersionRange::new(0, 4)))]
        {
            let cluster = ClusterConfig { idempotent_producers, ..ClusterConfig::default() };
            assert_eq!(advertised_versions(&cluster, ApiKey::InitProducerId), listed);
        }
    }

    #[test]
    fn keys_lead_back_to_their_api() {
        for api in ApiKey::ALL {
            assert_eq!(ApiKey::from_key(i16::from(*api)), Some(*api));
        }
        assert_eq!(ApiKey::from_key(-1), None);
        assert_eq!(ApiKey::from_key(68), None);
    }

    #[test]
    fn intersections() {
        let range = VersionRange::new;
        assert_eq!(range(0, 9).intersection(range(3, 13)), Some(range(3, 9)));
        assert_eq!(range(0, 2).intersection(range(2, 2)), Some(range(2, 2)));
        assert_eq!(range(0, 2).intersection(range(3, 13)), None);
    }
}
