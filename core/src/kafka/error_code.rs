//! Error codes of the protocol.

use std::fmt;

/// An error code as it stands in messages. Codes without a name here are carried unchanged.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// The name that the protocol guide gives it, if it is known here.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    Self(_) => None,
                }
            }
        }
    };
}

codes! {
    /// The server failed in a way that it did not expect.
    UNKNOWN_SERVER_ERROR = -1;
    /// No error.
    NONE = 0;
    /// The offset is not in the range of the log.
    OFFSET_OUT_OF_RANGE = 1;
    /// The record set is damaged.
    CORRUPT_MESSAGE = 2;
    /// No such topic or partition.
    UNKNOWN_TOPIC_OR_PARTITION = 3;
    /// The size of the fetch is not valid.
    INVALID_FETCH_SIZE = 4;
    /// The partition has no leader right now.
    LEADER_NOT_AVAILABLE = 5;
    /// The broker does not lead the partition.
    NOT_LEADER_OR_FOLLOWER = 6;
    /// The request timed out.
    REQUEST_TIMED_OUT = 7;
    /// The broker is not available.
    BROKER_NOT_AVAILABLE = 8;
    /// The replica is not available.
    REPLICA_NOT_AVAILABLE = 9;
    /// The record set is larger than the topic allows.
    MESSAGE_TOO_LARGE = 10;
    /// The metadata of the committed offset is too long.
    OFFSET_METADATA_TOO_LARGE = 12;
    /// The server disconnected before it answered.
    NETWORK_EXCEPTION = 13;
    /// The coordinator is still loading.
    COORDINATOR_LOAD_IN_PROGRESS = 14;
    /// There is no coordinator right now.
    COORDINATOR_NOT_AVAILABLE = 15;
    /// The broker does not coordinate the group.
    NOT_COORDINATOR = 16;
    /// The topic name or the operation on it is not valid.
    INVALID_TOPIC_EXCEPTION = 17;
    /// The record set is larger than a segment.
    RECORD_LIST_TOO_LARGE = 18;
    /// The acknowledgements asked for are not valid.
    INVALID_REQUIRED_ACKS = 21;
    /// The generation of the group is another.
    ILLEGAL_GENERATION = 22;
    /// The protocols of the group members do not match.
    INCONSISTENT_GROUP_PROTOCOL = 23;
    /// The group id is not valid.
    INVALID_GROUP_ID = 24;
    /// The coordinator does not know the member.
    UNKNOWN_MEMBER_ID = 25;
    /// The session timeout is out of range.
    INVALID_SESSION_TIMEOUT = 26;
    /// The group is rebalancing: join again.
    REBALANCE_IN_PROGRESS = 27;
    /// The committed offset is too large.
    INVALID_COMMIT_OFFSET_SIZE = 28;
    /// Not authorized for the topic.
    TOPIC_AUTHORIZATION_FAILED = 29;
    /// Not authorized for the group.
    GROUP_AUTHORIZATION_FAILED = 30;
    /// Not authorized for the cluster.
    CLUSTER_AUTHORIZATION_FAILED = 31;
    /// The timestamp of the record is out of range.
    INVALID_TIMESTAMP = 32;
    /// The broker does not have this SASL mechanism.
    UNSUPPORTED_SASL_MECHANISM = 33;
    /// The request does not fit the state of authentication.
    ILLEGAL_SASL_STATE = 34;
    /// The version of the API is not supported.
    UNSUPPORTED_VERSION = 35;
    /// The topic exists.
    TOPIC_ALREADY_EXISTS = 36;
    /// The number of partitions is not valid.
    INVALID_PARTITIONS = 37;
    /// The replication factor is not valid.
    INVALID_REPLICATION_FACTOR = 38;
    /// The replica assignment is not valid.
    INVALID_REPLICA_ASSIGNMENT = 39;
    /// The configuration is not valid.
    INVALID_CONFIG = 40;
    /// The broker is not the controller.
    NOT_CONTROLLER = 41;
    /// The request is malformed or contradicts itself.
    INVALID_REQUEST = 42;
    /// The message format does not support this.
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43;
    /// The request violates a policy.
    POLICY_VIOLATION = 44;
    /// A sequence number is missing.
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45;
    /// The sequence number has been written.
    DUPLICATE_SEQUENCE_NUMBER = 46;
    /// The epoch of the producer is old.
    INVALID_PRODUCER_EPOCH = 47;
    /// Not authorized for the transactional id.
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53;
    /// The disk of the broker failed.
    KAFKA_STORAGE_ERROR = 56;
    /// The credentials were refused.
    SASL_AUTHENTICATION_FAILED = 58;
    /// The producer id is not known.
    UNKNOWN_PRODUCER_ID = 59;
    /// The group has members.
    NON_EMPTY_GROUP = 68;
    /// No such group.
    GROUP_ID_NOT_FOUND = 69;
    /// No such fetch session.
    FETCH_SESSION_ID_NOT_FOUND = 70;
    /// The epoch of the fetch session is another.
    INVALID_FETCH_SESSION_EPOCH = 71;
    /// Topics cannot be deleted here.
    TOPIC_DELETION_DISABLED = 73;
    /// The leader epoch of the client is older than the broker's.
    FENCED_LEADER_EPOCH = 74;
    /// The leader epoch of the client is newer than the broker's.
    UNKNOWN_LEADER_EPOCH = 75;
    /// The client cannot read this compression.
    UNSUPPORTED_COMPRESSION_TYPE = 76;
    /// The member has to join again with the id it got.
    MEMBER_ID_REQUIRED = 79;
    /// Another member has the same group instance id.
    FENCED_INSTANCE_ID = 82;
    /// A record is not valid.
    INVALID_RECORD = 87;
    /// Transactions of the partition are not decided yet.
    UNSTABLE_OFFSET_COMMIT = 88;
    /// A quota is exceeded.
    THROTTLING_QUOTA_EXCEEDED = 89;
    /// No such resource.
    RESOURCE_NOT_FOUND = 91;
    /// No such topic id.
    UNKNOWN_TOPIC_ID = 100;
    /// Topic ids are used in an inconsistent way.
    INCONSISTENT_TOPIC_ID = 103;
}

impl ErrorCode {
    /// Whether there is no error.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        Self(code)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}({})", self.0),
            None => write!(f, "ErrorCode({})", self.0),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {}", self.0),
        }
    }
}
