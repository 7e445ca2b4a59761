//! Which client libraries are connected, as they say of themselves in ApiVersions (KIP-511).
//!
//! What clients say becomes labels of a metric and stands in logs, so names are cut to what KIP-511 allows, and a shard
//! tells only so many apart.

use std::collections::HashMap;

use bytes::Bytes;

use crate::kafka::{ApiKey, ApiVersionsRequest, Message};
use crate::stats::SoftwareStats;

/// Pairs of name and version that a shard tells apart; clients with further ones count as `other`.
const TOLD_APART: usize = 100;

/// Longest name or version that is shown, bytes.
const LONGEST: usize = 64;

/// First version of ApiVersions in which clients say what they are.
const FIRST_VERSION: i16 = 3;

/// A row of [`SoftwareTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Software(u8);

impl Software {
    /// Of clients that have said nothing.
    pub(super) const UNKNOWN: Self = Self(0);
    const OTHER: Self = Self(1);
}

/// What a client says it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Introduction {
    name: String,
    version: String,
}

impl Introduction {
    /// From the body of an ApiVersions request; `None` when it says nothing that can be shown.
    pub(super) fn read(body: &[u8], version: i16) -> Option<Self> {
        if version < FIRST_VERSION || !ApiKey::ApiVersions.known_versions().contains(version) {
            return None;
        }
        let request = ApiVersionsRequest::decode_prefix(&Bytes::copy_from_slice(body), version).ok()?;
        let name = allowed(&request.client_software_name);
        (!name.is_empty()).then(|| Self { name, version: allowed(&request.client_software_version) })
    }
}

/// The characters of KIP-511.
fn allowed(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || ".-".contains(*c)).take(LONGEST).collect()
}

/// How many clients of each kind are connected.
#[derive(Debug)]
pub(super) struct SoftwareTable {
    rows: Vec<SoftwareStats>,
    by_name: HashMap<Introduction, Software>,
}

impl SoftwareTable {
    pub(super) fn new() -> Self {
        let row = |name: &str| SoftwareStats { name: name.to_owned(), version: String::new(), clients: 0 };
        Self { rows: vec![row("unknown"), row("other")], by_name: HashMap::new() }
    }

    /// A client has connected.
    pub(super) fn connected(&mut self) -> Software {
        self.rows[0].clients += 1;
        Software::UNKNOWN
    }

    /// A client says what it is.
    pub(super) fn introduced(&mut self, before: Software, introduction: Introduction) -> Software {
        self.disconnected(before);
        let known = self.by_name.get(&introduction).copied();
        let software = known.unwrap_or_else(|| self.add(introduction));
        self.rows[usize::from(software.0)].clients += 1;
        software
    }

    /// A client is gone.
    pub(super) fn disconnected(&mut self, software: Software) {
        self.rows[usize::from(software.0)].clients -= 1;
    }

    /// To be shown in log lines.
    pub(super) fn show(&self, software: Software) -> &SoftwareStats {
        &self.rows[usize::from(software.0)]
    }

    /// All of them.
    pub(super) fn rows(&self) -> &[SoftwareStats] {
        &self.rows
    }

    fn add(&mut self, introduction: Introduction) -> Software {
        match u8::try_from(self.rows.len()) {
            Ok(row) if self.by_name.len() < TOLD_APART => {
                let Introduction { name, version } = introduction.clone();
                self.rows.push(SoftwareStats { name, version, clients: 0 });
                self.by_name.insert(introduction, Software(row));
                Software(row)
            }
            Ok(_) | Err(_) => Software::OTHER,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::kafka::Str;

    fn introduction(name: &str, software_version: &str) -> Option<Introduction> {
        let request = ApiVersionsRequest {
            client_software_name: Str::from(name),
            client_software_version: Str::from(software_version),
        };
        let mut body = BytesMut::new();
        request.encode(3, &mut body);
        Introduction::read(&body, 3)
    }

    #[test]
    fn what_clients_say() {
        for (name, version, shown) in [
            ("librdkafka", "2.0.2", Some("librdkafka 2.0.2")),
            ("apache-kafka-java", "", Some("apache-kafka-java")),
            ("a\n\"b}", "1 {", Some("ab 1")),
            ("", "1", None),
            ("\u{1b}\u{fc}", "1", None),
        ] {
            let mut table = SoftwareTable::new();
            let told = introduction(name, version).map(|introduction| {
                let client = table.connected();
                let software = table.introduced(client, introduction);
                table.show(software).to_string()
            });
            assert_eq!(told.as_deref(), shown, "{name:?}");
        }
        let long = introduction(&"x".repeat(1_000), "1").unwrap();
        assert_eq!(long.name.len(), LONGEST);
        assert_eq!(Introduction::read(b"\x02a\x02b\0", 2), None, "says nothing");
        assert_eq!(Introduction::read(b"\xff\xff", 3), None, "does not decode");
        assert_eq!(Introduction::read(b"\x02a\x02b\0", 5), None, "is not known");
    }

    #[test]
    fn clients_come_and_go() {
        let mut table = SoftwareTable::new();
        let (first, second) = (table.connected(), table.connected());
        let first = table.introduced(first, introduction("a", "1").unwrap());
        let second = table.introduced(second, introduction("a", "1").unwrap());
        assert_eq!(first, second);
        let second = table.introduced(second, introduction("a", "2").unwrap());
        let clients = |table: &SoftwareTable| table.rows().iter().map(|row| row.clients).collect::<Vec<_>>();
        assert_eq!(clients(&table), [0, 0, 1, 1]);
        table.disconnected(first);
        table.disconnected(second);
        assert_eq!(clients(&table), [0, 0, 0, 0]);
    }

    #[test]
    fn nobody_can_fill_the_table() {
        let mut table = SoftwareTable::new();
        for number in 0..1_000 {
            let client = table.connected();
            table.introduced(client, introduction("made-up", &number.to_string()).unwrap());
        }
        assert_eq!(table.rows().len(), TOLD_APART + 2);
        assert_eq!(table.rows()[1].clients, 1_000 - TOLD_APART);
    }
}
