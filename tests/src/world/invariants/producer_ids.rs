//! I25: no producer id is given to two producers, whatever answers of etcd are lost. Where etcd was restored from a backup, ids
//! that were reserved after it are given again, which nobody can know: then nothing is judged any more.

use std::collections::BTreeSet;

use kafscale_proxy_core::model::etcd::EtcdModel;

/// Where the next id that no block has stands in etcd.
const NEXT_FREE: &[u8] = b"/kafscale/lfs/v1/producer-ids";

/// The ids that producers were given.
#[derive(Default)]
pub struct ProducerIds {
    given: BTreeSet<i64>,
    was_restored: bool,
}

impl ProducerIds {
    /// etcd forgets what was reserved.
    pub(super) fn etcd_restored(&mut self) {
        self.was_restored = true;
    }

    /// A producer got an id; gives what is wrong with that. One that etcd has not reserved may be given once more by anybody.
    pub fn given(&mut self, id: i64, etcd: &EtcdModel) -> Option<String> {
        if self.was_restored {
            return None;
        }
        let next_free = etcd.get(NEXT_FREE).map(|kv| String::from_utf8_lossy(&kv.value).parse::<i64>());
        match next_free {
            Some(Ok(next_free)) if id >= next_free => {
                return Some(format!("producer id {id} is given, and etcd reserves none from {next_free} on"));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) => return Some("etcd holds no number of producer ids".into()),
            None => return Some(format!("producer id {id} is given, and etcd reserves none")),
        }
        (!self.given.insert(id)).then(|| format!("two producers have the id {id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_given_once_and_only_from_what_is_reserved() {
        let (mut etcd, mut ids) = (EtcdModel::new(), ProducerIds::default());
        assert!(ids.given(0, &etcd).is_some_and(|fault| fault.contains("reserves none")));
        etcd.put(NEXT_FREE, "1000", &mut Vec::new());
        assert_eq!((ids.given(0, &etcd), ids.given(999, &etcd)), (None, None));
        assert!(ids.given(1_000, &etcd).is_some_and(|fault| fault.contains("from 1000 on")));
        assert!(ids.given(999, &etcd).is_some_and(|fault| fault.contains("two producers")));
        ids.etcd_restored();
        assert_eq!(ids.given(999, &etcd), None);
    }
}
