//! Why a benchmark ended without figures.

use std::fmt;
use std::io;

/// What went wrong, for the person who runs the program. Whatever it is, the program ends: figures of a load that was
/// not answered rightly say nothing.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// A failure with this text.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Says what was being done when something failed.
pub(crate) trait During<T> {
    /// Puts `what` in front of the error's text.
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> During<T> for Result<T, E> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure(format!("{}: {error}", what())))
    }
}
