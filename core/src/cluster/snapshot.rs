//! The cluster snapshot.

/// What the snapshot key says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {}

/// Why a value is not a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotError(pub String);

impl Snapshot {
    /// Parses the value of the snapshot key.
    pub fn parse(_value: &[u8]) -> Result<Self, SnapshotError> {
        Ok(Self::default())
    }
}
