//! The lifecycles of the machine: which state may follow which.
//!
//! Each lifecycle has its table beside its enum. Every move is checked against it in debug builds, so tests and the
//! simulated world fail on a move that the table lacks, and `docs/state-diagrams.md` is drawn from the same tables.

/// The states of one lifecycle by name, and the moves between them.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "some fields are only for the diagrams, which a test draws"))]
pub(crate) struct Lifecycle {
    /// Heading of its diagram.
    pub(crate) name: &'static str,
    /// Where it lives.
    pub(crate) file: &'static str,
    /// The first state.
    pub(crate) start: &'static str,
    /// From, to, and why.
    pub(crate) moves: &'static [(&'static str, &'static str, &'static str)],
}

impl Lifecycle {
    /// Checks a move, and remembers where it led. Staying is no move.
    pub(crate) fn step(&self, at: &mut &'static str, to: &'static str) {
        debug_assert!(
            *at == to || self.moves.iter().any(|(from, into, _)| from == at && *into == to),
            "{}: {at} to {to} is not in the table",
            self.name
        );
        *at = to;
    }

    /// The diagram, in the syntax of Mermaid.
    #[cfg(test)]
    fn diagram(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!("## {}\n\n`{}`\n\n```mermaid\nstateDiagram-v2\n", self.name, self.file);
        let _ = writeln!(text, "    [*] --> {}", self.start);
        for (from, to, why) in self.moves {
            let _ = writeln!(text, "    {from} --> {to}: {why}");
        }
        text.push_str("```\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> Vec<&'static Lifecycle> {
        let lfs = crate::lfs::LIFECYCLES;
        [&crate::shutdown::LIFECYCLE, &crate::broker::LIFECYCLE, &crate::listener::LANE_LIFECYCLE]
            .into_iter()
            .chain(lfs)
            .collect()
    }

    /// A table that has changed fails here, and the failure shows the page as it must read.
    #[test]
    fn the_page_shows_the_tables() {
        let mut page =
            "# State diagrams\n\nDrawn from the tables in the code by `core/src/lifecycle.rs`; not written by hand.\n"
                .to_owned();
        for lifecycle in all() {
            page.push('\n');
            page.push_str(&lifecycle.diagram());
        }
        let shown = include_str!("../../docs/state-diagrams.md");
        assert!(shown == page, "docs/state-diagrams.md differs from the tables; it must read:\n{page}");
    }

    #[test]
    fn every_state_can_be_reached() {
        for lifecycle in all() {
            let mut reached = BTreeSet::from([lifecycle.start]);
            loop {
                let before = reached.len();
                let next = lifecycle.moves.iter().filter(|(from, _, _)| reached.contains(from)).map(|(_, to, _)| *to);
                reached.extend(next.collect::<Vec<_>>());
                if reached.len() == before {
                    break;
                }
            }
            for (from, _, _) in lifecycle.moves {
                assert!(reached.contains(from), "{}: {from} is never reached", lifecycle.name);
            }
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Over to Running is not in the table")]
    fn a_move_that_the_table_lacks_fails() {
        crate::shutdown::LIFECYCLE.step(&mut "Over", "Running");
    }
}
