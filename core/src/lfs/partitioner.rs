//! Which partition a key belongs to: the default partitioner of Kafka's Java client, so that records of one key
//! land where every other producer puts them.

/// The partition of a key among `partitions`; 0 when the count is not known.
pub(crate) fn partition_of(key: &[u8], partitions: u32) -> i32 {
    match partitions {
        0 => 0,
        count => i32::try_from((murmur2(key) & 0x7fff_ffff) % count).unwrap_or(0),
    }
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
    fn partitions_are_never_negative() {
        assert_eq!(partition_of(b"21", 7), (-973_932_308 & 0x7fff_ffff) % 7);
        assert_eq!(partition_of(b"21", 0), 0);
        assert_eq!(partition_of(b"21", 1), 0);
    }
}
