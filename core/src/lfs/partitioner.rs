//! Which partition a record goes to. For a key it is the default partitioner of Kafka's Java client, so that records of one
//! key land where every other producer puts them.

use std::fmt;

use crate::cluster::snapshot::Topic;

/// The topic is listed and has no such partition. A broker that is asked for it looks for it for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// The partition; `None` when any would have done.
    index: Option<i32>,
    /// Partitions that the topic has.
    count: u32,
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "the topic has no partition {index}; it has {} partitions", self.count),
            None => f.write_str("the topic has no partitions"),
        }
    }
}

/// The partition that is given, else that of the key, else the first. A topic that is not listed has partition 0, and
/// whatever is given: a broker will create it.
pub(crate) fn choose(topic: Option<&Topic>, given: Option<i32>, key: Option<&[u8]>) -> Result<i32, Lacking> {
    let Some(topic) = topic else { return Ok(given.unwrap_or(0)) };
    let count = topic.partition_count();
    match given {
        Some(index) if topic.has_partition(index) => Ok(index),
        Some(index) => Err(Lacking { index: Some(index), count }),
        None => {
            let place = key.map_or(0, |key| place_of(key, count));
            topic.nth_partition(place).ok_or(Lacking { index: None, count })
        }
    }
}

/// The place of a key among `partitions`; 0 when there is none.
fn place_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff).checked_rem(partitions).unwrap_or(0)
}

/// MurmurHash2, 32 bits, with Kafka's seed (`org.apache.kafka.common.utils.Utils.murmur2`).
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const MULTIPLIER: u32 = 0x5bd1_e995;
    const SHIFT: u32 = 24;

    // The algorithm takes the length modulo 2^32.
    #[allow(clippy::cast_possible_truncation)]
    let mut hash = SEED ^ data.len() as u32;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> SHIFT;
        hash = hash.wrapping_mul(MULTIPLIER) ^ mixed.wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        for (place, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::snapshot::Snapshot;

    /// The vectors of Kafka's own `UtilsTest.testMurmur2`.
    #[test]
    fn vectors_of_the_java_client() {
        let table: [(&[u8], i32); 7] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
        ];
        for (key, hash) in table {
            assert_eq!(murmur2(key).cast_signed(), hash, "{key:?}");
        }
    }

    #[test]
    fn places_are_never_negative() {
        let expected = (-973_932_308 & 0x7fff_ffff) % 7;
        assert_eq!(place_of(b"21", 7), u32::try_from(expected).unwrap());
        assert_eq!(place_of(b"21", 0), 0);
        assert_eq!(place_of(b"21", 1), 0);
    }

    #[test]
    fn the_table_of_choices() {
        let snapshot = Snapshot::parse(
            br#"{"Topics":[{"Topic":"usual","Partitions":[{"Partition":0},{"Partition":1}]},{"Topic":"none"},
                {"Topic":"odd","Partitions":[{"Partition":7},{"Partition":-1},{"Partition":3},{"Partition":3}]}]}"#,
        )
        .unwrap();
        let key: Option<&[u8]> = Some(b"21");
        let place = place_of(b"21", 2);
        let lacks = |index, count| Err(Lacking { index, count });
        let table = [
            ("usual", Some(1), None, Ok(1)),
            ("usual", Some(2), key, lacks(Some(2), 2)),
            ("usual", None, key, Ok(i32::try_from(place).unwrap())),
            ("usual", None, None, Ok(0)),
            ("odd", Some(3), None, Ok(3)),
            ("odd", Some(0), None, lacks(Some(0), 2)),
            ("odd", Some(-1), None, lacks(Some(-1), 2)),
            ("odd", None, key, Ok([3, 7][place as usize])),
            ("odd", None, None, Ok(3)),
            ("none", Some(0), None, lacks(Some(0), 0)),
            ("none", None, key, lacks(None, 0)),
            ("none", None, None, lacks(None, 0)),
            ("unknown", Some(9), key, Ok(9)),
            ("unknown", None, key, Ok(0)),
            ("unknown", None, None, Ok(0)),
        ];
        for (topic, given, key, expected) in table {
            assert_eq!(choose(snapshot.topic(topic), given, key), expected, "{topic} {given:?} {key:?}");
        }
    }
}
