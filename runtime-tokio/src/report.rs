//! The way back: adapters tell the machine facts.

use std::rc::Rc;

use kafscale_proxy_core::Input;

/// Tells the machine of one shard a fact. Cheap to clone; stays on the shard's thread.
///
/// A fact that is told while the machine is at work waits in the shard's inbox, so nothing recurs.
#[derive(Clone)]
pub(crate) struct Report(Rc<dyn Fn(Input)>);

impl Report {
    /// Facts go to `tell`.
    pub(crate) fn new(tell: impl Fn(Input) + 'static) -> Self {
        Self(Rc::new(tell))
    }

    /// Tells a fact.
    pub(crate) fn tell(&self, fact: Input) {
        (self.0)(fact);
    }
}
