//! Errors by blame. What a peer does is an input, never an error of the core.

use std::fmt;

use crate::input::{ClientId, ExchangeId};
use crate::operation::OperationId;

/// The driver broke its side of the contract. Nothing was changed by the call that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverMisuse {
    /// A completion for an operation that was never ordered, or a second completion.
    UnknownOperation(OperationId),
    /// A completion of the wrong kind for this operation.
    WrongCompletion(OperationId),
    /// A client id was used twice.
    ClientExists(ClientId),
    /// An HTTP exchange id was used twice.
    ExchangeExists(ExchangeId),
    /// The monotonic clock went backwards.
    TimeWentBackwards,
}

impl fmt::Display for DriverMisuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOperation(id) => {
                write!(f, "operation {} is not open: completed twice, or never ordered", id.0)
            }
            Self::WrongCompletion(id) => write!(f, "operation {} was completed with an answer of another kind", id.0),
            Self::ClientExists(id) => write!(f, "client {} was accepted twice", id.0),
            Self::ExchangeExists(id) => write!(f, "HTTP exchange {} was opened twice", id.0),
            Self::TimeWentBackwards => write!(f, "the monotonic clock went backwards"),
        }
    }
}

impl std::error::Error for DriverMisuse {}
