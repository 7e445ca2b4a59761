//! The identity of a topic (etcd contract section 5): was it deleted or created anew between two moments?

use bytes::Bytes;

use super::TopicGeneration;
use super::reader::SNAPSHOT_KEY;
use super::snapshot::{Snapshot, SnapshotError};
use crate::etcd::{Keys, RangeRequest, RangeResponse, Revision, TxnAnswer, TxnOperation, TxnRequest, TxnResponse};
use crate::planted::{Bug, planted};

impl TopicGeneration {
    /// The identity that `snapshot` gives a topic. A topic with an error code does not count.
    fn of(snapshot: &Snapshot, topic: &str, config_create_revision: Revision) -> Self {
        match snapshot.topic(topic).filter(|topic| topic.error_code == 0) {
            Some(topic) => {
                Self::Present { topic_id: topic.id, config_create_revision, generation: topic.generation.clone() }
            }
            None => Self::Absent,
        }
    }

    /// Whether what was written for the topic as it was `before` still belongs to the topic as it is `after`.
    ///
    /// A topic that was absent may have been created by a broker meanwhile, and a config key that was missing may have
    /// been written for the first time. Everything else that differs means that the topic was deleted or recreated.
    pub(crate) fn still(before: &Self, after: &Self) -> bool {
        match (before, after) {
            (Self::Absent, Self::Absent | Self::Present { .. }) => true,
            (Self::Present { .. }, Self::Absent) => false,
            (
                Self::Present { topic_id, config_create_revision, generation },
                Self::Present {
                    topic_id: topic_id_after,
                    config_create_revision: config_after,
                    generation: generation_after,
                },
            ) => {
                let first_written = *config_create_revision == 0 && !planted(Bug::ConfiguredTopicIsAnother);
                let same = topic_id == topic_id_after
                    && generation == generation_after
                    && (config_create_revision == config_after || first_written);
                same || planted(Bug::RecreatedTopicIsSame)
            }
        }
    }
}

/// What the answer to a generation read is measured against: the value of the snapshot is asked for only if it is newer
/// than the one in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// Nothing is known of the key.
    Nothing,
    /// At this revision of the store the topic was this, but for its config key.
    Known { revision: Revision, generation: TopicGeneration },
}

/// The transaction that reads the identity of `topic`: the snapshot and the topic's config key at one revision.
/// `known_put` is the revision of the snapshot key's last put, of the store when that was known, and what it said; only while a
/// watch stands.
pub(super) fn request(topic: &str, known_put: Option<(Revision, Revision, &Snapshot)>) -> (TxnRequest, Basis) {
    let mut snapshot_read = RangeRequest::of(Keys::One(Bytes::from_static(SNAPSHOT_KEY)));
    let basis = match known_put {
        Some((mod_revision, revision, snapshot)) => {
            snapshot_read.min_mod_revision = mod_revision.saturating_add(1);
            Basis::Known { revision, generation: TopicGeneration::of(snapshot, topic, 0) }
        }
        None => Basis::Nothing,
    };
    let config_key = Bytes::from(format!("/kafscale/topics/{topic}/config"));
    let config_read = RangeRequest { keys_only: true, ..RangeRequest::of(Keys::One(config_key)) };
    let success = vec![TxnOperation::Range(snapshot_read), TxnOperation::Range(config_read)];
    (TxnRequest { success, ..TxnRequest::default() }, basis)
}

/// What the answer to a generation read leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Known(TopicGeneration),
    /// As it was known, if the watch stands that it was known with.
    Unchanged(TopicGeneration),
    /// Parse this snapshot, then ask [`parsed`].
    Parse {
        value: Bytes,
        config_create_revision: Revision,
    },
    /// The text is for logs.
    Failed(String),
}

/// Reads the answer to [`request`].
pub(super) fn answered(basis: &Basis, answer: TxnResponse) -> Reading {
    let TxnResponse { revision, answers, succeeded: _ } = answer;
    let mut ranges = answers.into_iter().map(|answer| match answer {
        TxnAnswer::Range(range) => Some(range),
        TxnAnswer::Put | TxnAnswer::Delete(_) => None,
    });
    let (Some(Some(snapshot)), Some(Some(config)), None) = (ranges.next(), ranges.next(), ranges.next()) else {
        return Reading::Failed("not the answers of a generation read".into());
    };
    let config_create_revision = config.kvs.first().map_or(0, |kv| kv.create_revision);
    let RangeResponse { kvs, count, .. } = snapshot;
    if let Some(kv) = kvs.into_iter().next() {
        return Reading::Parse { value: kv.value, config_create_revision };
    }
    if count == 0 {
        return Reading::Known(TopicGeneration::Absent);
    }
    match basis {
        Basis::Known { revision: known, generation } if revision >= *known => {
            Reading::Unchanged(with_config(generation, config_create_revision))
        }
        Basis::Known { .. } => Reading::Failed("etcd is at an older revision than before".into()),
        Basis::Nothing => Reading::Failed("the snapshot key is counted but not told".into()),
    }
}

/// The identity after the value of [`Reading::Parse`] was parsed.
pub(super) fn parsed(
    topic: &str,
    config_create_revision: Revision,
    result: &Result<Snapshot, SnapshotError>,
) -> Result<TopicGeneration, String> {
    match result {
        Ok(snapshot) => Ok(TopicGeneration::of(snapshot, topic, config_create_revision)),
        Err(SnapshotError(text)) => Err(text.clone()),
    }
}

fn with_config(generation: &TopicGeneration, config_create_revision: Revision) -> TopicGeneration {
    match generation {
        TopicGeneration::Absent => TopicGeneration::Absent,
        TopicGeneration::Present { topic_id, generation, config_create_revision: _ } => {
            TopicGeneration::Present { topic_id: *topic_id, config_create_revision, generation: generation.clone() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::KeyValue;

    fn present(id: u8, config_create_revision: Revision, generation: Option<&str>) -> TopicGeneration {
        TopicGeneration::Present {
            topic_id: [id; 16],
            config_create_revision,
            generation: generation.map(str::to_owned),
        }
    }

    #[test]
    fn the_comparison_table() {
        let absent = TopicGeneration::Absent;
        for (before, after, still) in [
            (absent.clone(), absent.clone(), true),
            (absent.clone(), present(1, 7, None), true),
            (present(1, 7, None), absent.clone(), false),
            (present(1, 0, None), absent, false),
            (present(1, 7, None), present(1, 7, None), true),
            (present(1, 0, None), present(1, 0, None), true),
            (present(1, 0, None), present(1, 7, None), true),
            (present(1, 7, None), present(1, 8, None), false),
            (present(1, 7, None), present(1, 0, None), false),
            (present(1, 7, None), present(2, 7, None), false),
            (present(1, 0, None), present(2, 7, None), false),
            (present(1, 7, Some("a")), present(1, 7, Some("a")), true),
            (present(1, 7, Some("a")), present(1, 7, Some("b")), false),
            (present(1, 0, Some("a")), present(1, 7, Some("b")), false),
            (present(1, 7, Some("a")), present(1, 7, None), false),
            (present(1, 7, None), present(1, 7, Some("a")), false),
        ] {
            assert_eq!(TopicGeneration::still(&before, &after), still, "{before:?} {after:?}");
        }
    }

    fn kv(value: &str, create_revision: Revision) -> KeyValue {
        let value = Bytes::copy_from_slice(value.as_bytes());
        KeyValue { key: Bytes::new(), value, create_revision, mod_revision: create_revision, lease: 0 }
    }

    fn txn(revision: Revision, snapshot: (Option<&str>, i64), config: Option<Revision>) -> TxnResponse {
        let range = |kvs: Vec<KeyValue>, count| TxnAnswer::Range(RangeResponse { revision, kvs, count, more: false });
        let config: Vec<_> = config.map(|create_revision| kv("", create_revision)).into_iter().collect();
        let config_count = i64::from(!config.is_empty());
        TxnResponse {
            revision,
            succeeded: true,
            answers: vec![
                range(snapshot.0.map(|value| kv(value, 3)).into_iter().collect(), snapshot.1),
                range(config, config_count),
            ],
        }
    }

    #[test]
    fn readings() {
        let snapshot =
            Snapshot::parse(br#"{"Topics":[{"Topic":"t","TopicID":[1]},{"Topic":"bad","ErrorCode":3}]}"#).unwrap();
        let (first, nothing) = request("t", None);
        let (again, known) = request("t", Some((5, 20, &snapshot)));
        let reads = |txn: &TxnRequest| {
            let reads = txn.success.iter().map(|operation| match operation {
                TxnOperation::Range(range) => (range.keys.clone(), range.min_mod_revision),
                TxnOperation::Put { .. } | TxnOperation::Delete(_) => panic!("a generation read writes nothing"),
            });
            reads.collect::<Vec<_>>()
        };
        let key = |text: &'static str| Keys::One(text.into());
        let config = (key("/kafscale/topics/t/config"), 0);
        assert_eq!(reads(&first), [(key("/kafscale/metadata/snapshot"), 0), config.clone()]);
        assert_eq!(reads(&again), [(key("/kafscale/metadata/snapshot"), 6), config]);

        let mut id = [0; 16];
        id[0] = 1;
        let topic = |config_create_revision| TopicGeneration::Present {
            topic_id: id,
            config_create_revision,
            generation: None,
        };
        let failed = |basis, answer| matches!(answered(basis, answer), Reading::Failed(_));
        assert_eq!(answered(&known, txn(30, (None, 1), Some(9))), Reading::Unchanged(topic(9)));
        assert_eq!(answered(&known, txn(30, (None, 1), None)), Reading::Unchanged(topic(0)));
        assert_eq!(answered(&known, txn(30, (None, 0), Some(9))), Reading::Known(TopicGeneration::Absent));
        assert_eq!(
            answered(&known, txn(30, (Some("{}"), 1), Some(9))),
            Reading::Parse { value: "{}".into(), config_create_revision: 9 }
        );
        assert!(failed(&known, txn(19, (None, 1), Some(9))), "a replaced store");
        assert!(failed(&nothing, txn(30, (None, 1), Some(9))));
        assert!(failed(&nothing, TxnResponse { revision: 30, succeeded: true, answers: vec![TxnAnswer::Put] }));
        let (_, of_bad) = request("bad", Some((5, 20, &snapshot)));
        assert_eq!(answered(&of_bad, txn(30, (None, 1), Some(9))), Reading::Unchanged(TopicGeneration::Absent));

        assert_eq!(parsed("t", 9, &Ok(snapshot)), Ok(topic(9)));
        assert_eq!(parsed("t", 9, &Err(SnapshotError("no".into()))), Err("no".into()));
    }
}
