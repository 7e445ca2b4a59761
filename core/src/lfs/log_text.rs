//! Text of clients in log lines.

use std::fmt::{self, Write};

/// Shows text without control characters, so that a client cannot write log lines of its own.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().filter(|character| !character.is_control()).try_for_each(|character| f.write_char(character))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_are_left_out() {
        assert_eq!(Printable("a\r\nlevel=error b\u{1b}[0mü").to_string(), "alevel=error b[0mü");
    }
}
