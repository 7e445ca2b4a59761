//! Fetch in simulated time, against brokers that wait as KafScale brokers do.

mod owners;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use crate::kafka::{
    ErrorCode, FetchPartition, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, LeaderIdAndEpoch,
    PartitionData, Record, Str, build_batch,
};
use crate::listener::rig::{Does, Ended, Rig, Sent, topic_id};

const MS: Duration = Duration::from_millis(1);
const NOT_LEADER: ErrorCode = ErrorCode::NOT_LEADER_OR_FOLLOWER;

fn request(max_wait_ms: i32, min_bytes: i32, topics: &[(&str, &[i32])]) -> FetchRequest {
    FetchRequest {
        max_wait_ms,
        min_bytes,
        max_bytes: 1 << 20,
        topics: topics
            .iter()
            .map(|(name, partitions)| FetchTopic {
                topic: Str::from(*name),
                topic_id: [0; 16],
                partitions: partitions
                    .iter()
                    .map(|partition| FetchPartition {
                        partition: *partition,
                        partition_max_bytes: 1 << 20,
                        ..FetchPartition::default()
                    })
                    .collect(),
            })
            .collect(),
        ..FetchRequest::default()
    }
}

/// Names the first topic by its id, as version 13 does.
fn by_id(request: &mut FetchRequest, name: &str) {
    request.topics[0].topic = Str::default();
    request.topics[0].topic_id = topic_id(name);
}

fn records(bytes: usize) -> Bytes {
    build_batch(0, [Record { value: Some(vec![b'x'; bytes].into()), ..Record::default() }])
}

/// What the brokers hold: the record set of a partition, and from when on.
#[derive(Default)]
struct Stored(BTreeMap<(String, i32), (Duration, Bytes)>);

impl Stored {
    fn with(mut self, topic: &str, partition: i32, from: Duration, records: Bytes) -> Self {
        self.0.insert((topic.to_owned(), partition), (from, records));
        self
    }

    fn find(&self, topic: &FetchTopic, partition: i32) -> Option<&(Duration, Bytes)> {
        let by_id = |name: &str| topic.topic_id != [0; 16] && topic.topic_id == topic_id(name);
        let found = self
            .0
            .iter()
            .find(|((name, index), _)| *index == partition && (topic.topic == name.as_str() || by_id(name)));
        found.map(|(_, stored)| stored)
    }

    /// Waits the full time for every empty partition, one after the other; empty record sets are null.
    fn answer(&self, sent: &Sent) -> Does {
        let request: FetchRequest = sent.request();
        assert_eq!((request.session_id, request.session_epoch), (0, -1));
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap());
        let mut clock = sent.after();
        let mut response = FetchResponse::default();
        for topic in &request.topics {
            let mut partitions = Vec::new();
            for asked in &topic.partitions {
                let records = match self.find(topic, asked.partition) {
                    Some((from, records)) if *from <= clock + wait => {
                        clock = clock.max(*from);
                        Some(records.clone())
                    }
                    Some(_) | None => {
                        clock += wait;
                        None
                    }
                };
                let high_watermark = i64::from(records.is_some());
                partitions.push(PartitionData {
                    partition_index: asked.partition,
                    high_watermark,
                    last_stable_offset: high_watermark,
                    log_start_offset: 0,
                    records,
                    ..PartitionData::default()
                });
            }
            let (topic, topic_id) = (topic.topic.clone(), topic.topic_id);
            response.responses.push(FetchableTopicResponse { topic, topic_id, partitions });
        }
        Does::answer_after(clock - sent.after(), sent, &response)
    }
}

fn partitions(ended: &Ended) -> Vec<PartitionData> {
    ended.answer::<FetchResponse>().responses.into_iter().flat_map(|topic| topic.partitions).collect()
}

fn lengths(ended: &Ended) -> Vec<usize> {
    partitions(ended).into_iter().map(|data| data.records.expect("never null").len()).collect()
}

fn three_owners() -> Rig {
    let mut rig = Rig::new(3, &["t"]);
    rig.own("t", 0, 0).own("t", 1, 1).own("t", 2, 2).learn();
    rig
}

#[test]
fn three_empty_partitions_never_take_longer_than_max_wait() {
    for owners in [[0, 0, 0], [0, 1, 2], [0, 0, 1]] {
        for max_wait_ms in [0, 1, 7, 100, 1_000, 5_000] {
            let mut rig = Rig::new(3, &["t"]);
            rig.own("t", 0, owners[0]).own("t", 1, owners[1]).own("t", 2, owners[2]).learn();
            let ended =
                rig.run(11, &request(max_wait_ms, 1, &[("t", &[0, 1, 2])]), |sent| Stored::default().answer(sent));
            let max_wait = MS * u32::try_from(max_wait_ms).unwrap();
            assert!(ended.after <= max_wait.max(10 * MS), "{owners:?} {max_wait:?}: {:?}", ended.after);
            assert!(ended.after + 2 * MS >= max_wait, "{owners:?} {max_wait:?}: {:?}", ended.after);
            assert_eq!(lengths(&ended), [0, 0, 0]);
            // An idle consumer is no busy loop: a question without a wait, then one for each slice, then the rest.
            assert!(rig.sent.len() <= 3 * (3 + max_wait_ms as usize / 198), "{}", rig.sent.len());
        }
    }
}

#[test]
fn no_wait_is_longer_than_clients_may_wait() {
    let mut rig = three_owners();
    rig.config.listener.client_wait_max = Duration::from_secs(5);
    let ended = rig.run(11, &request(i32::MAX, 1, &[("t", &[0, 1, 2])]), |sent| Stored::default().answer(sent));
    assert!((4_500 * MS..=5_000 * MS).contains(&ended.after), "{:?}", ended.after);
}

#[test]
fn one_full_and_one_empty_answer_at_once() {
    for owners in [[0, 0], [0, 1]] {
        let mut rig = Rig::new(3, &["t"]);
        rig.own("t", 0, owners[0]).own("t", 1, owners[1]).learn();
        let stored = Stored::default().with("t", 1, Duration::ZERO, records(100));
        let ended = rig.run(11, &request(5_000, 1, &[("t", &[0, 1])]), |sent| stored.answer(sent));
        assert!(ended.after < 10 * MS, "{:?}", ended.after);
        assert_eq!(lengths(&ended), [0, records(100).len()]);
        assert_eq!(rig.sent.len(), 1 + owners[1], "nobody is asked to wait");
    }
}

#[test]
fn data_that_comes_during_the_wait_is_delivered_soon() {
    for (owners, soon) in [([0, 0, 0], 140), ([0, 1, 2], 10)] {
        let mut rig = Rig::new(3, &["t"]);
        rig.own("t", 0, owners[0]).own("t", 1, owners[1]).own("t", 2, owners[2]).learn();
        let stored = Stored::default().with("t", 1, 700 * MS, records(100));
        let ended = rig.run(12, &request(5_000, 1, &[("t", &[0, 1, 2])]), |sent| stored.answer(sent));
        assert!(ended.after >= 700 * MS, "{:?}", ended.after);
        assert!(ended.after <= (700 + soon) * MS, "{:?}", ended.after);
        assert_eq!(lengths(&ended), [0, records(100).len(), 0]);
    }
}

#[test]
fn a_single_partition_waits_at_its_broker() {
    let mut rig = Rig::new(1, &["t"]);
    rig.own("t", 0, 0).learn();
    let stored = Stored::default().with("t", 0, 300 * MS, records(10));
    let ended = rig.run(11, &request(400, 1, &[("t", &[0])]), |sent| stored.answer(sent));
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(rig.sent[0].request::<FetchRequest>().max_wait_ms, 400);
    assert_eq!(ended.after, 301 * MS);
}

#[test]
fn min_bytes_holds_for_all_owners_together() {
    let one = records(100).len();
    for (min_bytes, early) in [(2 * one, true), (2 * one + 1, false)] {
        let mut rig = three_owners();
        let stored =
            Stored::default().with("t", 0, Duration::ZERO, records(100)).with("t", 2, Duration::ZERO, records(100));
        let min_bytes = i32::try_from(min_bytes).unwrap();
        let ended = rig.run(11, &request(2_000, min_bytes, &[("t", &[0, 1, 2])]), |sent| stored.answer(sent));
        assert_eq!(ended.after < 10 * MS, early, "{:?}", ended.after);
        assert!(ended.after <= 2_000 * MS);
        assert_eq!(lengths(&ended), [one, 0, one]);
        // Partitions that have brought something are not asked for again: they would bring the same.
        assert_eq!(rig.sent.iter().filter(|sent| sent.broker != 1).count(), 2);
    }
}

#[test]
fn a_broker_with_more_than_it_sends_is_not_waited_for() {
    let mut rig = three_owners();
    let ended = rig.run(11, &request(2_000, 1 << 20, &[("t", &[0, 1])]), |sent| {
        let Does::Answer(_, _) = Stored::default().answer(sent) else { unreachable!() };
        let request: FetchRequest = sent.request();
        let response = answer_with(&request, |_| PartitionData {
            high_watermark: 50,
            records: Some(records(10)),
            ..PartitionData::default()
        });
        Does::answer(sent, &response)
    });
    assert!(ended.after < 10 * MS);
}

fn answer_with(request: &FetchRequest, mut data: impl FnMut(i32) -> PartitionData) -> FetchResponse {
    let responses = request
        .topics
        .iter()
        .map(|topic| FetchableTopicResponse {
            topic: topic.topic.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|asked| PartitionData { partition_index: asked.partition, ..data(asked.partition) })
                .collect(),
        })
        .collect();
    FetchResponse { responses, ..FetchResponse::default() }
}

#[test]
fn a_hanging_broker_holds_nobody_back() {
    for max_wait_ms in [0, 500, 2_000] {
        let mut rig = three_owners();
        let stored = Stored::default().with("t", 0, Duration::ZERO, records(100));
        let ended = rig.run(11, &request(max_wait_ms, 1, &[("t", &[0, 1, 2])]), |sent| {
            if sent.broker == 2 { Does::Hang } else { stored.answer(sent) }
        });
        let patience = Duration::from_millis(u64::try_from(max_wait_ms).unwrap()).max(Duration::from_secs(1));
        assert_eq!(ended.after, patience);
        assert_eq!(lengths(&ended), [records(100).len(), 0, 0]);
        let hanging = &partitions(&ended)[2];
        assert_eq!((hanging.error_code, hanging.high_watermark), (ErrorCode::NONE, -1));
        assert_eq!((hanging.last_stable_offset, hanging.log_start_offset), (-1, -1));
        assert_eq!((hanging.preferred_read_replica, &hanging.aborted_transactions), (-1, &None));
    }
}

#[test]
fn a_broker_that_hangs_in_a_later_round_is_reported_as_it_was() {
    let mut rig = three_owners();
    let ended = rig.run(11, &request(2_000, 1, &[("t", &[0, 1, 2])]), |sent| {
        if sent.broker == 2 && sent.after() > 100 * MS { Does::Hang } else { Stored::default().answer(sent) }
    });
    assert_eq!(ended.after, 2_000 * MS);
    assert_eq!(partitions(&ended)[2].high_watermark, 0);
}

#[test]
fn the_only_broker_gets_the_time_it_needs() {
    let mut rig = Rig::new(1, &["t"]);
    rig.own("t", 0, 0).own("t", 1, 0).learn();
    let ended = rig.run(11, &request(500, 1, &[("t", &[0, 1])]), |sent| {
        let request: FetchRequest = sent.request();
        let data = |_| PartitionData { high_watermark: 1, records: Some(records(10)), ..PartitionData::default() };
        Does::answer_after(4_000 * MS, sent, &answer_with(&request, data))
    });
    assert_eq!(ended.after, 4_001 * MS);
    assert_eq!(lengths(&ended), [records(10).len(), records(10).len()]);
}

#[test]
fn one_owner_passes_the_bytes_both_ways() {
    for version in 11..=13 {
        let mut rig = Rig::new(3, &["t"]);
        rig.own("t", 0, 1).own("t", 1, 1).learn();
        let mut asked = request(0, 1, &[("t", &[0, 1])]);
        asked.rack_id = Str::from("rack");
        asked.isolation_level = 1;
        if version == 13 {
            by_id(&mut asked, "t");
        }
        let stored = Stored::default().with("t", 1, Duration::ZERO, records(100));
        let ended = rig.run(version, &asked, |sent| stored.answer(sent));
        let expected = FetchRequest { max_wait_ms: 0, min_bytes: 1, session_epoch: -1, ..asked.clone() };
        assert_eq!(rig.sent.len(), 1);
        assert_eq!((rig.sent[0].broker, rig.sent[0].version), (1, version));
        assert_eq!(rig.sent[0].request::<FetchRequest>(), expected);
        assert_eq!(lengths(&ended), [0, records(100).len()]);
        assert_eq!(ended.answer::<FetchResponse>().responses[0].topic_id, asked.topics[0].topic_id);
        assert_eq!(rig.asked, []);
    }
}

#[test]
fn leader_hints_do_not_reach_the_client() {
    for version in [11, 12, 13] {
        let mut rig = Rig::new(3, &["t"]);
        rig.own("t", 0, 1).learn();
        let mut asked = request(0, 1, &[("t", &[0])]);
        if version == 13 {
            by_id(&mut asked, "t");
        }
        let ended = rig.run(version, &asked, |sent| {
            let request: FetchRequest = sent.request();
            let mut response = answer_with(&request, |_| PartitionData {
                high_watermark: 1,
                current_leader: (version >= 12).then_some(LeaderIdAndEpoch { leader_id: 7, leader_epoch: 3 }),
                preferred_read_replica: 2,
                records: Some(records(10)),
                ..PartitionData::default()
            });
            response.session_id = 9;
            Does::answer(sent, &response)
        });
        let response: FetchResponse = ended.answer();
        let data = &response.responses[0].partitions[0];
        assert_eq!((&data.current_leader, data.preferred_read_replica, response.session_id), (&None, -1, 0));
        assert_eq!(data.records, Some(records(10)));
    }
}

#[test]
fn sessions_are_not_known() {
    for (session_id, session_epoch, known) in
        [(0, -1, true), (0, 0, true), (5, 1, false), (5, -1, false), (0, 1, false)]
    {
        let mut rig = three_owners();
        let asked = FetchRequest { session_id, session_epoch, ..request(0, 1, &[("t", &[0])]) };
        let ended = rig.run(11, &asked, |sent| Stored::default().answer(sent));
        let response: FetchResponse = ended.answer();
        let expected = if known { ErrorCode::NONE } else { ErrorCode::FETCH_SESSION_ID_NOT_FOUND };
        assert_eq!((response.error_code, response.session_id), (expected, 0));
        assert_eq!(rig.sent.is_empty(), !known);
    }
}

#[test]
fn nothing_asked_nothing_waited() {
    let ended = three_owners().run(11, &request(5_000, 1, &[]), |_| unreachable!());
    assert_eq!(ended.after, Duration::ZERO);
    assert_eq!(ended.answer::<FetchResponse>(), FetchResponse::default());
}

#[test]
fn the_longest_throttle_time_counts() {
    let mut rig = three_owners();
    let ended = rig.run(11, &request(500, 0, &[("t", &[0, 1, 2])]), |sent| {
        let throttle_time_ms = [3, 9, 4][sent.broker];
        let request: FetchRequest = sent.request();
        Does::answer(sent, &FetchResponse { throttle_time_ms, ..answer_with(&request, |_| PartitionData::default()) })
    });
    assert_eq!(ended.answer::<FetchResponse>().throttle_time_ms, 9);
}

#[test]
fn the_merged_answer_keeps_to_max_bytes_beyond_its_first_data() {
    let one = records(100).len();
    for (max_bytes, expected) in
        [(3 * one, [one, one, one]), (3 * one - 1, [one, one, 0]), (2 * one - 1, [one, 0, 0]), (1, [one, 0, 0])]
    {
        let mut rig = three_owners();
        let asked =
            FetchRequest { max_bytes: i32::try_from(max_bytes).unwrap(), ..request(500, 1, &[("t", &[0, 1, 2])]) };
        let mut stored = Stored::default();
        for partition in 0..3 {
            stored = stored.with("t", partition, Duration::ZERO, records(100));
        }
        let ended = rig.run(11, &asked, |sent| stored.answer(sent));
        assert_eq!(lengths(&ended), expected);
        assert!(partitions(&ended).iter().all(|data| data.high_watermark == 1));
    }
}

#[test]
fn a_top_level_error_is_the_answer() {
    for (version, top_level, partition) in
        [(12, ErrorCode(9), None), (7, ErrorCode(9), None), (6, ErrorCode::NONE, Some(ErrorCode(9)))]
    {
        let mut rig = three_owners();
        let ended = rig.run(version, &request(500, 1, &[("t", &[0])]), |sent| {
            Does::answer(sent, &FetchResponse { error_code: ErrorCode(9), ..FetchResponse::default() })
        });
        assert_eq!(ended.answer::<FetchResponse>().error_code, top_level);
        assert_eq!(partitions(&ended).first().map(|data| data.error_code), partition);
    }
}

#[test]
fn older_clients_get_what_they_know() {
    let zstd = {
        let mut set = records(10).to_vec();
        set[22] = 4;
        Bytes::from(set)
    };
    for version in 4..=13 {
        for (code, set) in [(ErrorCode::NONE, &zstd), (ErrorCode::KAFKA_STORAGE_ERROR, &Bytes::new())] {
            let mut rig = three_owners();
            let mut asked = request(0, 1, &[("t", &[0])]);
            if version == 13 {
                by_id(&mut asked, "t");
            }
            let ended = rig.run(version, &asked, |sent| {
                let request: FetchRequest = sent.request();
                assert_eq!(sent.version, version.max(11));
                assert_eq!(request.rack_id, "");
                let data =
                    |_| PartitionData { error_code: code, records: Some(set.clone()), ..PartitionData::default() };
                Does::answer(sent, &answer_with(&request, data))
            });
            let data = partitions(&ended).remove(0);
            let expected = match (version, code) {
                (..6, ErrorCode::KAFKA_STORAGE_ERROR) => (NOT_LEADER, Bytes::new()),
                (..10, ErrorCode::NONE) => (ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, Bytes::new()),
                _ => (code, set.clone()),
            };
            assert_eq!((data.error_code, data.records.unwrap()), expected, "version {version}");
        }
    }
}

proptest! {
    #[test]
    fn every_partition_is_answered_once_and_in_order(
        topics in proptest::collection::vec(proptest::collection::vec(0..6_i32, 0..5), 0..4),
        owners in proptest::collection::vec(0..4_usize, 24),
        refusals in proptest::collection::vec(0..4_u8, 24),
        version in 4..=13_i16,
    ) {
        let names = ["a", "b", "c", "d"];
        let mut rig = Rig::new(3, &names);
        for (number, owner) in owners.iter().enumerate() {
            if *owner < 3 {
                rig.own(names[number / 6], i32::try_from(number % 6).unwrap(), *owner);
            }
        }
        rig.learn();
        let mut asked = request(50, 1, &[]);
        for (name, partitions) in names.iter().zip(&topics) {
            let mut one = request(0, 1, &[(name, partitions)]).topics.remove(0);
            if version == 13 {
                one.topic_id = topic_id(name);
                one.topic = Str::default();
            }
            asked.topics.push(one);
        }
        let mut left = refusals;
        let ended = rig.run(version, &asked, |sent| {
            let request: FetchRequest = sent.request();
            let mut response = FetchResponse::default();
            for topic in &request.topics {
                let name = names.iter().position(|name| topic.topic == **name || topic.topic_id == topic_id(name));
                let data = |asked: &FetchPartition| {
                    let number = name.unwrap() * 6 + usize::try_from(asked.partition).unwrap();
                    let refused = left[number] > 0;
                    left[number] = left[number].saturating_sub(1);
                    PartitionData {
                        partition_index: asked.partition,
                        error_code: if refused { NOT_LEADER } else { ErrorCode::NONE },
                        high_watermark: i64::try_from(number).unwrap(),
                        ..PartitionData::default()
                    }
                };
                response.responses.push(FetchableTopicResponse {
                    topic: topic.topic.clone(),
                    topic_id: topic.topic_id,
                    partitions: topic.partitions.iter().map(data).collect(),
                });
            }
            Does::answer(sent, &response)
        });
        let response: FetchResponse = ended.answer();
        let indexes = |topic: &FetchableTopicResponse| {
            topic.partitions.iter().map(|data| data.partition_index).collect::<Vec<_>>()
        };
        prop_assert_eq!(response.responses.iter().map(indexes).collect::<Vec<_>>(), topics);
        for (topic, answered) in asked.topics.iter().zip(&response.responses) {
            prop_assert_eq!((&topic.topic, topic.topic_id), (&answered.topic, answered.topic_id));
            for data in &answered.partitions {
                prop_assert!(data.records.is_some());
                let name = names.iter().position(|name| topic.topic == **name || topic.topic_id == topic_id(name));
                let number = i64::try_from(name.unwrap() * 6).unwrap() + i64::from(data.partition_index);
                let expected = if data.error_code == NOT_LEADER { -1 } else { number };
                prop_assert_eq!(data.high_watermark, expected);
            }
        }
    }
}
