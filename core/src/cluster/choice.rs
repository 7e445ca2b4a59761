//! Which broker is asked when nobody holds the lease of a partition.

use super::Address;

/// The same broker for the same partition and the same candidates, in whatever order these are listed.
///
/// The broker that is asked takes the lease, so batches of one partition must not be spread, by one client or by
/// several replicas of the proxy. Rendezvous hashing: a candidate that comes or goes moves only its own partitions.
pub(super) fn stable<'a>(candidates: &'a [Address], topic: &str, partition: i32) -> Option<&'a Address> {
    candidates.iter().max_by_key(|address| (weight(address, topic, partition), *address))
}

fn weight(address: &Address, topic: &str, partition: i32) -> u64 {
    // FNV-1a, with a separator that no topic name contains, then the finalizer of SplitMix64, because the
    // last bytes of FNV-1a hardly reach the high bits.
    let bytes = address.as_str().bytes().chain([0]).chain(topic.bytes()).chain([0]).chain(partition.to_be_bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_spread_and_independent_of_order() {
        let three: Vec<Address> = (0..3).map(|id| Address::new(&format!("broker-{id}.ns.svc:9092"))).collect();
        let reversed: Vec<Address> = three.iter().rev().cloned().collect();
        let mut partitions_of = [0; 3];
        for partition in 0..3_000 {
            let chosen = stable(&three, "orders", partition).unwrap();
            assert_eq!(stable(&reversed, "orders", partition), Some(chosen));
            if *chosen != three[2] {
                assert_eq!(stable(&three[..2], "orders", partition), Some(chosen), "only the third one's move");
            }
            partitions_of[three.iter().position(|address| address == chosen).unwrap()] += 1;
        }
        assert!(partitions_of.iter().all(|count| (850..1_150).contains(count)), "{partitions_of:?}");
        assert_eq!(stable(&[], "orders", 0), None);
    }
}
