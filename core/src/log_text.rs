//! Text of clients in log lines.

use std::fmt::{self, Write};

/// So much of a text is shown, characters.
const SHOWN: usize = 200;

/// Shows text without control characters, so that a client cannot write log lines of its own, and not more than a line has
/// room for.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.chars().filter(|character| !character.is_control());
        shown.by_ref().take(SHOWN).try_for_each(|character| f.write_char(character))?;
        if shown.next().is_some() { f.write_str("...") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut() {
        assert_eq!(Printable(&"a".repeat(SHOWN)).to_string().len(), SHOWN);
        assert_eq!(Printable(&"ü".repeat(32_000)).to_string(), "ü".repeat(SHOWN) + "...");
    }

    #[test]
    fn line_breaks_are_left_out() {
        assert_eq!(Printable("a\r\nlevel=error b\u{1b}[0mü").to_string(), "alevel=error b[0mü");
    }
}
