//! The table of what passed: one line for each client.

use std::fmt::Write;

use super::Row;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// Records in this compression are produced, and read in a group of two members.
    Compression(&'static str),
    /// One member of two leaves, and the other reads everything.
    Rebalance,
    /// A new member goes on where the group had committed, and reads nothing twice.
    Restart,
    /// What its users can administer.
    Admin,
    /// All of it once more while the leases of partitions and of the group move, and one member dies.
    Moved,
}

impl Column {
    /// In the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Compression("none"),
        Self::Compression("gzip"),
        Self::Compression("snappy"),
        Self::Compression("lz4"),
        Self::Compression("zstd"),
        Self::Rebalance,
        Self::Restart,
        Self::Admin,
        Self::Moved,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Compression("none") => "uncompressed",
            Self::Compression(name) => name,
            Self::Rebalance => "rebalance",
            Self::Restart => "restart",
            Self::Admin => "admin",
            Self::Moved => "leases move",
        }
    }
}

/// What became of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// It works; with a note where not all of it is there.
    Passed(Option<&'static str>),
    /// It does not, and why.
    Failed(String),
    /// The library has nothing of the kind.
    Absent,
    /// Something before it failed, or it was not asked for.
    NotRun,
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Passed(None) => "✓".to_owned(),
            Self::Passed(Some(note)) => format!("✓ ({note})"),
            Self::Failed(_) => "✗".to_owned(),
            Self::Absent => "–".to_owned(),
            Self::NotRun => "not run".to_owned(),
        }
    }
}

/// The table, in Markdown.
pub fn render(rows: &[Row]) -> String {
    let mut table = String::from("| client | library |");
    for column in Column::ALL {
        let _ = write!(table, " {} |", column.name());
    }
    table.push_str("\n|---|---|");
    table.push_str(&"---|".repeat(Column::ALL.len()));
    table.push('\n');
    for row in rows {
        let _ = write!(table, "| {} | {} |", row.client.name(), row.library);
        for column in Column::ALL {
            let _ = write!(table, " {} |", row.cells.get(&column).unwrap_or(&Cell::NotRun).text());
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::peers::Client;

    #[test]
    fn a_table_names_what_was_not_run() {
        let cells = BTreeMap::from([
            (Column::Compression("none"), Cell::Passed(None)),
            (Column::Compression("zstd"), Cell::Absent),
            (Column::Rebalance, Cell::Failed("why".into())),
            (Column::Admin, Cell::Passed(Some("topics only"))),
        ]);
        let row = Row { client: Client::Kcat, library: "librdkafka 2".into(), cells };
        let table = render(&[row]);
        let line = table.lines().last().expect("a line for the client");
        assert_eq!(
            line,
            "| kcat | librdkafka 2 | ✓ | not run | not run | not run | – | ✗ | not run | ✓ (topics only) | not run |"
        );
        let bars = |line: &str| line.matches('|').count();
        assert!(table.lines().all(|other| bars(other) == bars(line)));
    }
}
