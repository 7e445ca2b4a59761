//! I2: no delete is ordered for an object that a record refers to, or may come to refer to.

use std::collections::BTreeSet;

use kafscale_proxy_core::model::broker::SharedLog;

use super::envelopes;

/// Object keys whose deletion was ordered.
#[derive(Default)]
pub struct Deletes {
    keys: BTreeSet<String>,
}

impl Deletes {
    /// A delete was ordered.
    pub fn ordered(&mut self, key: &str) {
        self.keys.insert(key.to_owned());
    }

    /// Keys that were deleted although a record refers to them: now, or by a request that was on its way.
    pub fn referred(&self, log: &SharedLog) -> Vec<String> {
        let referred = envelopes(log).into_iter().map(|envelope| envelope.key);
        referred.filter(|key| self.keys.contains(key)).collect()
    }

    /// How many keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
