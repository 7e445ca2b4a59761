//! Whether an aim of the project is met.

use std::fmt;

/// A figure held against its aim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is as good or better.
    Met,
    /// It is worse.
    Missed,
    /// It was not measured.
    Unknown,
}

impl Verdict {
    /// Of a figure that should be large.
    pub(crate) fn at_least(figure: Option<f64>, aim: f64) -> Self {
        Self::of(figure.map(|figure| figure >= aim))
    }

    /// Of a figure that should be small.
    pub(crate) fn at_most(figure: Option<f64>, aim: f64) -> Self {
        Self::of(figure.map(|figure| figure <= aim))
    }

    /// Of two aims of one load: both have to be met.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Met, Self::Met) => Self::Met,
            (Self::Missed, _) | (_, Self::Missed) => Self::Missed,
            (Self::Unknown, Self::Met | Self::Unknown) | (Self::Met, Self::Unknown) => Self::Unknown,
        }
    }

    fn of(met: Option<bool>) -> Self {
        match met {
            Some(true) => Self::Met,
            Some(false) => Self::Missed,
            None => Self::Unknown,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "yes",
            Self::Missed => "**no**",
            Self::Unknown => "–",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_met_when_it_is_reached() {
        assert_eq!(Verdict::at_least(Some(0.8), 0.8), Verdict::Met);
        assert_eq!(Verdict::at_least(Some(0.79), 0.8), Verdict::Missed);
        assert_eq!(Verdict::at_most(Some(1.5), 1.5), Verdict::Met);
        assert_eq!(Verdict::at_most(Some(1.51), 1.5), Verdict::Missed);
        assert_eq!(Verdict::at_most(None, 1.5), Verdict::Unknown);
    }

    #[test]
    fn two_aims_are_met_together_or_not() {
        use Verdict::{Met, Missed, Unknown};
        let all = [Met, Missed, Unknown];
        let table = all.map(|one| all.map(|other| one.and(other)));
        assert_eq!(table, [[Met, Missed, Unknown], [Missed, Missed, Missed], [Unknown, Missed, Unknown]]);
    }
}
