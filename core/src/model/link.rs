//! The way between one peer and a model: what becomes of a request, apart from what the model decides.

use std::time::Duration;

use crate::operation::Outcome;

/// What happens on the way to the server and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// The request arrives and the answer comes back.
    #[default]
    Delivered,
    /// No connection: provably nothing was handed over.
    Refused,
    /// The request arrives and is carried out, the answer is lost.
    ReplyLost,
    /// The request is lost after its sender has handed it over: it is not carried out, and nobody can know.
    RequestLost,
}

/// The way of one peer to one server. The default is a perfect one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// What becomes of requests.
    pub fate: Fate,
    /// How long after the request the answer (or the loss) is noticed.
    pub delay: Duration,
}

/// What a peer learns of its request, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<T, R> {
    /// What became of the request.
    pub outcome: Outcome<T, R>,
    /// So long after the request.
    pub delay: Duration,
}

impl Link {
    /// What the peer learns of a request that never arrives; `None` for one that does.
    pub(crate) fn before<T, R>(self, unreachable: impl FnOnce(String) -> R) -> Option<Outcome<T, R>> {
        match self.fate {
            Fate::Delivered | Fate::ReplyLost => None,
            Fate::Refused => Some(Outcome::NotApplied(unreachable("connection refused".into()))),
            Fate::RequestLost => Some(Outcome::Unknown("the request was lost".into())),
        }
    }

    /// What the peer learns of a request that was answered. It cannot tell a lost refusal from a lost success.
    pub(crate) fn after<T, R>(self, answer: Outcome<T, R>) -> Outcome<T, R> {
        match self.fate {
            Fate::Delivered => answer,
            Fate::ReplyLost | Fate::Refused | Fate::RequestLost => Outcome::Unknown("the answer was lost".into()),
        }
    }

    /// Carries one request: `serve` runs exactly when the request arrives, `unreachable` makes the refusal of a peer that
    /// has no connection.
    pub(crate) fn carry<T, R>(
        self,
        unreachable: impl FnOnce(String) -> R,
        serve: impl FnOnce() -> Outcome<T, R>,
    ) -> Reply<T, R> {
        let outcome = self.before(unreachable).unwrap_or_else(|| self.after(serve()));
        Reply { outcome, delay: self.delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_arrive_are_served_and_only_refused_ones_are_provably_not_applied() {
        for (fate, serves, outcome) in [
            (Fate::Delivered, true, Outcome::Applied(7)),
            (Fate::Refused, false, Outcome::NotApplied("connection refused".to_owned())),
            (Fate::ReplyLost, true, Outcome::Unknown("the answer was lost".into())),
            (Fate::RequestLost, false, Outcome::Unknown("the request was lost".into())),
        ] {
            let mut served = false;
            let link = Link { fate, delay: Duration::from_millis(3) };
            let reply = link.carry(
                |text| text,
                || {
                    served = true;
                    Outcome::Applied(7)
                },
            );
            assert_eq!((served, reply), (serves, Reply { outcome, delay: Duration::from_millis(3) }));
        }
    }
}
