//! What the machines ordered, as text: equal seeds must give equal traces, byte for byte.

use std::fmt::Write as _;

use kafscale_proxy_core::{Effect, Monotonic};

/// Every effect with its time and its shard.
#[derive(Default)]
pub struct Trace {
    lines: Vec<String>,
    off: bool,
}

impl Trace {
    /// Writes nothing down from now on: worlds that are made by the thousand have no time for it.
    pub fn switch_off(&mut self) {
        self.off = true;
    }

    /// Adds what somebody else than a machine did.
    pub fn note(&mut self, at: Monotonic, what: impl FnOnce() -> String) {
        if !self.off {
            self.lines.push(format!("{at:?} {}", what()));
        }
    }

    /// Adds the effects of one call.
    pub fn add(&mut self, at: Monotonic, shard: usize, effects: &[Effect]) {
        if self.off {
            return;
        }
        for effect in effects {
            let mut line = String::new();
            write!(line, "{at:?} shard {shard} {effect:?}").expect("text can be written to a string");
            self.lines.push(line);
        }
    }

    /// One line per effect.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The lines that contain `text`.
    pub fn matching<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().map(String::as_str).filter(move |line| line.contains(text))
    }
}
