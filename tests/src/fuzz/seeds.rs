//! Where the corpus begins: inputs made of what honest peers say, so that a fuzzer starts behind the first checks.

use bytes::BytesMut;
use kafscale_proxy_core::kafka::{ApiKey, assign_offsets};

use super::broker_answers::broker_answer_input;
use super::codec::codec_input;
use super::etcd_values::put_write;
use super::hostile_client::frame;
use super::http_heads::http_input;
use super::kafka_frames::{put_raw, put_request};
use super::lone_shard::snapshot;
use super::transcripts::{exchanges, record_set};
use super::world::{WorldHead, world_input};
use crate::simulation::FaultKind;

/// A file of the corpus: its target, its name, its content.
pub type Seed = (&'static str, String, Vec<u8>);

/// All seeds. Equal at every call.
pub fn seeds() -> Vec<Seed> {
    let mut all = Vec::new();
    of_messages(&mut all);
    of_conversations(&mut all);
    of_record_sets(&mut all);
    of_etcd(&mut all);
    of_http(&mut all);
    of_worlds(&mut all);
    all
}

fn of_messages(all: &mut Vec<Seed>) {
    for (index, one) in exchanges().iter().enumerate() {
        let known = one.api.known_versions();
        if one.version != known.min && one.version != known.max {
            continue;
        }
        let name = |kind: &str| format!("{:?}-{}-{kind}", one.api, one.version).to_lowercase();
        all.push(("codec", name("request"), codec_input(one.api, false, one.version, &one.request)));
        all.push(("codec", name("response"), codec_input(one.api, true, one.version, &one.answer)));
        let mut input = Vec::new();
        put_request(&mut input, one.api, one.version, &one.request);
        all.push(("kafka_frames", name("request"), input));
        if one.version == known.max {
            all.push(("broker_answers", name("response"), broker_answer_input(index, &one.answer)));
        }
        if let ApiKey::Produce | ApiKey::Fetch = one.api {
            let which = if one.api == ApiKey::Produce { 0 } else { 2 };
            let version = u8::try_from(one.version - known.min).expect("versions are small");
            all.push(("scan_and_patch", name("request"), [&[which, version], &one.request[..]].concat()));
            all.push(("scan_and_patch", name("response"), [&[which + 1, version], &one.answer[..]].concat()));
        }
    }
}

/// Several requests on one connection, as frames and as raw bytes; a blob while brokers refuse.
fn of_conversations(all: &mut Vec<Seed>) {
    let newest = |api: ApiKey| {
        exchanges().iter().find(|one| (one.api, one.version) == (api, api.known_versions().max)).expect("it is there")
    };
    let (mut framed, mut raw) = (Vec::new(), Vec::new());
    let apis =
        [ApiKey::ApiVersions, ApiKey::Metadata, ApiKey::Produce, ApiKey::Fetch, ApiKey::JoinGroup, ApiKey::Heartbeat];
    for (correlation_id, one) in (1..).zip(apis.map(newest)) {
        put_request(&mut framed, one.api, one.version, &one.request);
        let bytes = frame(one.api, one.version, correlation_id, &one.request);
        bytes.chunks(50).for_each(|piece| put_raw(&mut raw, piece));
    }
    all.push(("kafka_frames", "conversation".into(), framed));
    all.push(("kafka_frames", "conversation-in-pieces".into(), raw));
    all.push(("broker_answers", "upload".into(), vec![0, 1]));
    all.push(("broker_answers", "upload-cut-then-closed".into(), vec![0, 1, 5, 0, 9, 7]));
}

fn of_record_sets(all: &mut Vec<Seed>) {
    let one = record_set();
    let mut two = BytesMut::from(&[&one[..], &one[..]].concat()[..]);
    assign_offsets(&mut two, 40, 3).expect("what was built can be appended");
    all.push(("record_batches", "one-batch".into(), one.to_vec()));
    all.push(("record_batches", "two-batches".into(), two.to_vec()));
    all.push(("record_batches", "cut-off".into(), two[..two.len() - 5].to_vec()));
}

fn of_etcd(all: &mut Vec<Seed>) {
    let mut add = |name: &str, writes: &[(u8, &str, &[u8])]| {
        let mut input = Vec::new();
        writes.iter().for_each(|(place, after, value)| put_write(&mut input, *place, after.as_bytes(), value));
        all.push(("etcd_values", name.to_owned(), input));
    };
    add("snapshot", &[(0, "", &snapshot().to_json())]);
    add(
        "snapshot-small",
        &[(0, "", br#"{"Brokers":[{"NodeID":1,"Host":"b","Port":9092}],"Topics":[{"Topic":"demo"}]}"#)],
    );
    add("snapshot-null", &[(0, "", b"null"), (0, "", b"{\"Brokers\":null,\"Topics\":null}")]);
    add("partition-leases", &[(1, "demo/0", b"2"), (3, "1", b"0"), (3, "5", b"-1"), (1, "a/b/0", b"1")]);
    add("group-leases", &[(2, "group", b"2"), (2, "", b"1"), (2, "other", b"broker-2")]);
    add("other-keys", &[(4, "topics/demo/config", b"{}"), (4, "", b"")]);
}

fn of_http(all: &mut Vec<Seed>) {
    let mut add = |name: &str, path, headers: &[(&str, &str)], body: &[u8]| {
        all.push(("http_heads", name.to_owned(), http_input(path, headers, body)));
    };
    let topic = ("x-kafka-topic", "demo");
    add("produce", 0, &[topic], b"a small blob");
    add("produce-in-parts", 0, &[topic, ("x-kafka-partition", "2"), ("content-type", "text/plain")], &[7; 700]);
    add("produce-key-md5", 0, &[topic, ("x-kafka-key", "a2V5"), ("x-lfs-checksum-alg", "md5")], b"abc");
    let sha256 = ("x-lfs-checksum", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    add("produce-checksum-size", 0, &[topic, sha256, ("x-lfs-size", "3"), ("content-length", "3")], b"abc");
    add("produce-wrong-checksum", 0, &[topic, ("x-lfs-checksum", "00")], b"abc");
    add("produce-no-topic", 0, &[("x-request-id", "mine")], b"");
    let json = ("content-type", "application/json");
    add(
        "download-missing",
        1,
        &[json],
        br#"{"bucket":"blobs","key":"default/demo/lfs/2026/11/29/obj-1","mode":"stream"}"#,
    );
    add(
        "download-presign",
        1,
        &[json],
        br#"{"bucket":"blobs","key":"default/demo/lfs/2026/11/29/obj-1","mode":"presign"}"#,
    );
    add("uploads", 2, &[topic], b"{}");
    add("no-path-of-the-api", 4, &[], b"");
}

/// A world without faults, one with all, and one for each kind alone.
fn of_worlds(all: &mut Vec<Seed>) {
    let calm = WorldHead { seconds: 10, replicas: 1, jitter: 0, kinds: &[], calm: 1 };
    all.push(("world", "calm".into(), world_input(&calm, 0, 300)));
    let storm = WorldHead { seconds: 40, replicas: 3, jitter: 2, kinds: &FaultKind::ALL, calm: 0 };
    all.push(("world", "storm".into(), world_input(&storm, 1, 3_000)));
    for (seed, kind) in (2..).zip(FaultKind::ALL) {
        let kinds = [kind];
        let head = WorldHead { seconds: 25, replicas: 2, jitter: 1, kinds: &kinds, calm: 1 };
        all.push(("world", format!("{kind:?}").to_lowercase(), world_input(&head, seed, 400)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::TARGETS;

    #[test]
    fn every_target_has_seeds_of_its_own_and_they_are_small() {
        let all = seeds();
        for (target, _) in TARGETS {
            let names: Vec<_> = all.iter().filter(|seed| seed.0 == *target).map(|seed| &seed.1).collect();
            assert!((1..=100).contains(&names.len()), "{target}: {}", names.len());
        }
        let mut names: Vec<_> = all.iter().map(|(target, name, _)| (target, name)).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "names are unique");
        assert!(all.iter().all(|(_, _, content)| content.len() <= 4096));
    }
}
