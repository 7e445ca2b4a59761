//! Split, merged and broadcast requests, and those that any broker answers.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::cluster::Question;
use crate::kafka::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse, CreatableTopic, CreatableTopicResult,
    CreateTopicsRequest, CreateTopicsResponse, DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse,
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym, DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup,
    ErrorCode, ListGroupsRequest, ListGroupsResponse, ListOffsetsPartition, ListOffsetsPartitionResponse,
    ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic, ListOffsetsTopicResponse, ListedGroup,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult, OffsetForLeaderTopic, OffsetForLeaderTopicResult, Str,
};
use crate::listener::request::{Fate, Reply};
use crate::listener::rig::{Does, Rig, Sent};

const MS: Duration = Duration::from_millis(1);
const NOT_LEADER: ErrorCode = ErrorCode::NOT_LEADER_OR_FOLLOWER;
const NAMES: [&str; 3] = ["a", "b", "c"];

fn text(text: &str) -> Str {
    Str::from(text)
}

fn brokers(rig: &Rig) -> Vec<usize> {
    rig.sent.iter().map(|sent| sent.broker).collect()
}

fn list_offsets(topics: &[(&str, &[i32])]) -> ListOffsetsRequest {
    let partition = |partition_index: &i32| ListOffsetsPartition {
        partition_index: *partition_index,
        timestamp: -1,
        ..ListOffsetsPartition::default()
    };
    let topic = |(name, partitions): &(&str, &[i32])| ListOffsetsTopic {
        name: text(name),
        partitions: partitions.iter().map(partition).collect(),
    };
    ListOffsetsRequest { topics: topics.iter().map(topic).collect(), ..ListOffsetsRequest::default() }
}

/// Offset 100 × topic + partition, or whatever `code` says.
fn offsets(sent: &Sent, mut code: impl FnMut(&str, i32) -> ErrorCode) -> Does {
    let request: ListOffsetsRequest = sent.request();
    let mut response = ListOffsetsResponse { throttle_time_ms: sent.broker as i32, topics: Vec::new() };
    for topic in &request.topics {
        let number = NAMES.iter().position(|name| topic.name == *name).unwrap();
        let partition = |asked: &ListOffsetsPartition| ListOffsetsPartitionResponse {
            partition_index: asked.partition_index,
            error_code: code(&topic.name, asked.partition_index),
            old_style_offsets: Vec::new(),
            timestamp: asked.timestamp,
            offset: 100 * number as i64 + i64::from(asked.partition_index),
            leader_epoch: -1,
        };
        let partitions = topic.partitions.iter().map(partition).collect();
        response.topics.push(ListOffsetsTopicResponse { name: topic.name.clone(), partitions });
    }
    Does::answer(sent, &response)
}

fn answered(response: &ListOffsetsResponse) -> Vec<(String, i32, i16, i64)> {
    let mut answered = Vec::new();
    for topic in &response.topics {
        let partition = |data: &ListOffsetsPartitionResponse| {
            (topic.name.to_string(), data.partition_index, data.error_code.0, data.offset)
        };
        answered.extend(topic.partitions.iter().map(partition));
    }
    answered
}

#[test]
fn split_by_owner_and_merged_in_order() {
    let mut rig = Rig::new(3, &NAMES);
    rig.own("a", 0, 2).own("a", 1, 0).own("b", 7, 2).learn();
    let ended = rig.run(4, &list_offsets(&[("b", &[7]), ("a", &[1, 0])]), |sent| offsets(sent, |_, _| ErrorCode::NONE));
    assert_eq!(brokers(&rig), [0, 2]);
    assert_eq!(rig.sent[0].request::<ListOffsetsRequest>(), list_offsets(&[("a", &[1])]));
    assert_eq!(rig.sent[1].request::<ListOffsetsRequest>(), list_offsets(&[("b", &[7]), ("a", &[0])]));
    let response: ListOffsetsResponse = ended.answer();
    assert_eq!(response.throttle_time_ms, 2);
    assert_eq!(answered(&response), [("b".into(), 7, 0, 107), ("a".into(), 1, 0, 1), ("a".into(), 0, 0, 0)]);
}

#[test]
fn refusals_and_losses_of_partitions() {
    type Broker = fn(&Sent) -> Does;
    let cases: [(Broker, usize, ErrorCode); 5] = [
        (|sent| offsets(sent, |_, _| NOT_LEADER), 3, NOT_LEADER),
        (|_| Does::Lose(Fate::Unknown), 3, NOT_LEADER),
        (|_| Does::Answer(MS, Bytes::from_static(b"\0\0\0\x05\0\0\0\x4d\xff")), 3, NOT_LEADER),
        (|sent| Does::answer(sent, &ListOffsetsResponse::default()), 3, NOT_LEADER),
        (|_| Does::Hang, 1, ErrorCode::REQUEST_TIMED_OUT),
    ];
    for (broker, attempts, code) in cases {
        let mut rig = Rig::new(3, &NAMES);
        rig.own("a", 0, 1).learn();
        let ended = rig.run(1, &list_offsets(&[("a", &[0])]), broker);
        assert_eq!(rig.sent.len(), attempts);
        assert_eq!(answered(&ended.answer()), [("a".into(), 0, code.0, -1)]);
        assert!(ended.after <= Duration::from_secs(30));
    }
}

#[test]
fn only_the_owner_is_asked_about_a_partition() {
    let asked = list_offsets(&[("a", &[0])]);
    let owner = Question::PartitionOwner { topic: "a".into(), partition: 0 };
    let mut rig = Rig::new(3, &NAMES);
    rig.own("a", 0, 1).learn().down.insert(1);
    let ended = rig.run(1, &asked, |_| unreachable!());
    assert_eq!(rig.asked, [owner.clone(), owner.clone()]);
    assert_eq!(answered(&ended.answer()), [("a".into(), 0, NOT_LEADER.0, -1)]);

    let mut rig = Rig::new(3, &NAMES);
    rig.own("a", 0, 1).learn().own("a", 0, 2).down.insert(1);
    let ended = rig.run(1, &asked, |sent| offsets(sent, |_, _| ErrorCode::NONE));
    assert_eq!((brokers(&rig), &rig.asked[..]), (vec![2], &[owner][..]));
    assert_eq!(answered(&ended.answer()), [("a".into(), 0, 0, 0)]);

    for partition in 0..10 {
        let mut rig = Rig::new(3, &NAMES);
        rig.learn();
        rig.run(1, &list_offsets(&[("a", &[partition])]), |sent| offsets(sent, |_, _| ErrorCode::NONE));
        assert_eq!(brokers(&rig), [rig.taker("a", partition)], "nobody owns it: who would take it");
    }
}

#[test]
fn a_partition_that_a_known_topic_lacks_goes_to_no_broker() {
    for (added, code) in [(false, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), (true, ErrorCode::NONE)] {
        let mut rig = Rig::new(3, &NAMES);
        rig.learn();
        if added {
            rig.add_partitions("a", 11);
        }
        let ended = rig.run(1, &list_offsets(&[("a", &[10])]), |sent| offsets(sent, |_, _| ErrorCode::NONE));
        assert_eq!((&rig.asked[..], rig.sent.len()), (&[Question::Snapshot][..], usize::from(added)));
        let answer: ListOffsetsResponse = ended.answer();
        assert_eq!(answer.topics[0].partitions[0].error_code, code);
    }
}

#[test]
fn the_earlier_refusal_survives_that_nothing_can_be_sent() {
    let mut rig = Rig::new(3, &NAMES);
    rig.config.cluster.cache_ttl = Duration::from_secs(5);
    rig.own("a", 0, 1).learn();
    rig.readable = false;
    let ended = rig.run(1, &list_offsets(&[("a", &[0])]), |sent| {
        let Does::Answer(_, frame) = offsets(sent, |_, _| NOT_LEADER) else { unreachable!() };
        Does::Answer(Duration::from_secs(6), frame)
    });
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(answered(&ended.answer()), [("a".into(), 0, NOT_LEADER.0, -1)]);
}

#[test]
fn nothing_is_sent_on_stale_knowledge() {
    let mut rig = Rig::new(1, &NAMES);
    rig.own("a", 0, 0).learn();
    rig.now = rig.now + rig.config.cluster.cache_ttl + MS;
    rig.readable = false;
    let ended = rig.run(1, &list_offsets(&[("a", &[0])]), |_| unreachable!());
    assert_eq!(answered(&ended.answer()), [("a".into(), 0, ErrorCode::REQUEST_TIMED_OUT.0, -1)]);
}

#[test]
fn epochs_of_old_clients() {
    for version in 0..=3 {
        let mut rig = Rig::new(3, &NAMES);
        rig.own("a", 0, 2).learn();
        let partition = OffsetForLeaderPartition { partition: 0, current_leader_epoch: -1, leader_epoch: 4 };
        let topic = OffsetForLeaderTopic { topic: text("a"), partitions: vec![partition.clone()] };
        let asked = OffsetForLeaderEpochRequest { topics: vec![topic], ..OffsetForLeaderEpochRequest::default() };
        let ended = rig.run(version, &asked, |sent| {
            assert_eq!((sent.version, sent.broker), (3, 2));
            assert_eq!(sent.request::<OffsetForLeaderEpochRequest>(), asked);
            let result = OffsetForLeaderPartitionResult { leader_epoch: 4, end_offset: 9, ..Default::default() };
            let topic = OffsetForLeaderTopicResult { topic: text("a"), partitions: vec![result] };
            Does::answer(sent, &OffsetForLeaderEpochResponse { throttle_time_ms: 0, topics: vec![topic] })
        });
        let response: OffsetForLeaderEpochResponse = ended.answer();
        let result = &response.topics[0].partitions[0];
        assert_eq!((result.end_offset, result.leader_epoch), (9, if version == 0 { -1 } else { 4 }));
    }
}

proptest! {
    #[test]
    fn every_partition_is_answered_once_and_in_order(
        topics in vec(vec(0..5_i32, 0..5), 0..=3),
        owners in vec(0..4_usize, 15),
        refusals in vec(0..4_u8, 15),
    ) {
        let mut rig = Rig::new(3, &NAMES);
        for (number, owner) in owners.iter().enumerate() {
            if *owner < 3 {
                rig.own(NAMES[number / 5], i32::try_from(number % 5).unwrap(), *owner);
            }
        }
        rig.learn();
        let topics: Vec<(&str, &[i32])> = NAMES.iter().copied().zip(topics.iter().map(Vec::as_slice)).collect();
        let mut left = refusals;
        let mut once = false;
        let ended = rig.run(3, &list_offsets(&topics), |sent| offsets(sent, |topic, partition| {
            let number = NAMES.iter().position(|name| topic == *name).unwrap() * 5 + partition as usize;
            let refused = left[number] > 0;
            left[number] = left[number].saturating_sub(1);
            once |= refused;
            if refused { NOT_LEADER } else { ErrorCode::NONE }
        }));
        let response: ListOffsetsResponse = ended.answer();
        let expected: Vec<(String, i32)> = topics
            .iter()
            .flat_map(|(name, partitions)| partitions.iter().map(|partition| ((*name).to_owned(), *partition)))
            .collect();
        let got = answered(&response);
        prop_assert_eq!(got.iter().map(|(name, partition, ..)| (name.clone(), *partition)).collect::<Vec<_>>(), expected.clone());
        for (name, partition, code, offset) in got {
            let number = NAMES.iter().position(|known| name == *known).unwrap();
            let right = if code == 0 { 100 * number as i64 + i64::from(partition) } else { -1 };
            prop_assert_eq!(offset, right);
        }
        if !once {
            let mut asked: Vec<(String, i32)> = Vec::new();
            for sent in &rig.sent {
                for topic in sent.request::<ListOffsetsRequest>().topics {
                    asked.extend(topic.partitions.iter().map(|partition| (topic.name.to_string(), partition.partition_index)));
                }
            }
            asked.sort();
            let mut expected = expected;
            expected.sort();
            prop_assert_eq!(asked, expected, "the union of the parts is the request");
        }
    }
}

fn describe(groups: &[&str]) -> DescribeGroupsRequest {
    DescribeGroupsRequest {
        groups: groups.iter().map(|group| text(group)).collect(),
        ..DescribeGroupsRequest::default()
    }
}

#[test]
fn groups_are_described_by_their_coordinators() {
    for version in 0..=5 {
        let mut rig = Rig::new(3, &[]);
        rig.coordinate("g0", 0).coordinate("g1", 1).coordinate("g2", 1).learn();
        let ended = rig.run(version, &describe(&["g1", "g0", "none", "g2", "g1"]), |sent| {
            assert_eq!(sent.version, 5);
            let request: DescribeGroupsRequest = sent.request();
            let group = |group_id: &Str| DescribedGroup {
                error_code: if *group_id == "none" { ErrorCode::GROUP_ID_NOT_FOUND } else { ErrorCode::NONE },
                group_id: group_id.clone(),
                group_state: text(&format!("at {}", sent.broker)),
                ..DescribedGroup::default()
            };
            let groups = request.groups.iter().map(group).collect();
            Does::answer(sent, &DescribeGroupsResponse { throttle_time_ms: 0, groups })
        });
        let response: DescribeGroupsResponse = ended.answer();
        let got: Vec<_> = response.groups.iter().map(|group| (&*group.group_id, &*group.group_state)).collect();
        let expected = [("g1", "at 1"), ("g0", "at 0"), ("none", "Dead"), ("g2", "at 1"), ("g1", "at 1")];
        assert_eq!(got, expected);
        assert!(response.groups.iter().all(|group| group.error_code == ErrorCode::NONE));
        assert_eq!(rig.sent.len(), 3);
    }
}

#[test]
fn a_group_whose_coordinator_is_not_found() {
    let mut rig = Rig::new(3, &[]);
    rig.coordinate("g", 0).learn();
    let ended = rig.run(5, &describe(&["g"]), |sent| {
        let group =
            DescribedGroup { error_code: ErrorCode::NOT_COORDINATOR, group_id: text("g"), ..DescribedGroup::default() };
        Does::answer(sent, &DescribeGroupsResponse { throttle_time_ms: 0, groups: vec![group] })
    });
    assert_eq!(ended.answer::<DescribeGroupsResponse>().groups[0].error_code, ErrorCode::NOT_COORDINATOR);
}

#[test]
fn groups_that_moved_all_at_once_cost_a_few_reads_of_etcd() {
    let groups: Vec<String> = (0..100).map(|number| format!("g{number}")).collect();
    let mut rig = Rig::new(2, &[]);
    for group in &groups {
        rig.coordinate(group, 0);
    }
    rig.learn();
    for group in &groups {
        rig.coordinate(group, 1);
    }
    let names: Vec<&str> = groups.iter().map(String::as_str).collect();
    let ended = rig.run(5, &describe(&names), |sent| {
        let request: DescribeGroupsRequest = sent.request();
        let error_code = if sent.broker == 0 { ErrorCode::NOT_COORDINATOR } else { ErrorCode::NONE };
        let described = |group: &Str| DescribedGroup { error_code, group_id: group.clone(), ..Default::default() };
        let groups = request.groups.iter().map(described).collect();
        Does::answer(sent, &DescribeGroupsResponse { throttle_time_ms: 0, groups })
    });
    let response: DescribeGroupsResponse = ended.answer();
    assert!(response.groups.iter().all(|group| group.error_code == ErrorCode::NONE));
    assert_eq!((response.groups.len(), brokers(&rig)), (100, vec![0, 1]));
    assert_eq!(rig.asked, [Question::Coordinators]);
}

fn delete(groups: &[&str]) -> DeleteGroupsRequest {
    DeleteGroupsRequest { groups_names: groups.iter().map(|group| text(group)).collect() }
}

#[test]
fn groups_are_deleted_once() {
    for (does, attempts, code, asked) in [
        (None, 1, ErrorCode::NONE, vec![Question::Snapshot]),
        (Some(Fate::Unknown), 1, ErrorCode::REQUEST_TIMED_OUT, vec![]),
        (Some(Fate::NotApplied), 3, ErrorCode::NOT_COORDINATOR, vec![]),
    ] {
        let mut rig = Rig::new(3, &[]);
        rig.coordinate("g", 2).learn();
        let ended = rig.run(1, &delete(&["g"]), |sent| match does {
            Some(fate) => Does::Lose(fate),
            None => {
                let results = vec![DeletableGroupResult { group_id: text("g"), error_code: ErrorCode::NONE }];
                Does::answer(sent, &DeleteGroupsResponse { throttle_time_ms: 0, results })
            }
        });
        assert_eq!(brokers(&rig), vec![2; attempts]);
        assert_eq!(rig.asked, asked);
        assert_eq!(ended.answer::<DeleteGroupsResponse>().results[0].error_code, code);
    }
}

fn lists(sent: &Sent, groups: &[&str], error_code: ErrorCode) -> Does {
    let group = |group: &&str| ListedGroup { group_id: text(group), ..ListedGroup::default() };
    let groups = groups.iter().map(group).collect();
    Does::answer(sent, &ListGroupsResponse { throttle_time_ms: 0, error_code, groups })
}

#[test]
fn groups_of_all_brokers_each_once() {
    for version in 0..=5 {
        let mut rig = Rig::new(3, &[]);
        rig.learn();
        let request = ListGroupsRequest {
            states_filter: if version >= 4 { vec![text("Stable")] } else { Vec::new() },
            ..ListGroupsRequest::default()
        };
        let ended = rig.run(version, &request, |sent| {
            assert_eq!((sent.version, sent.request::<ListGroupsRequest>()), (version, request.clone()));
            lists(sent, [&["a", "b"][..], &["b", "c"], &[]][sent.broker], ErrorCode::NONE)
        });
        let response: ListGroupsResponse = ended.answer();
        assert_eq!(response.groups.iter().map(|group| &*group.group_id).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(response.error_code, ErrorCode::NONE);
        assert_eq!(brokers(&rig).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2]));
    }
}

#[test]
fn a_list_that_may_lack_groups_does_not_look_complete() {
    for (case, code) in [("down", 15), ("lost", 15), ("error", 14), ("once", 0)] {
        let mut rig = Rig::new(3, &[]);
        rig.learn();
        if case == "down" {
            rig.down.insert(1);
        }
        let mut calls = 0;
        let ended = rig.run(3, &ListGroupsRequest::default(), |sent| {
            if sent.broker != 1 {
                return lists(sent, &[["a"], ["b"], ["c"]][sent.broker], ErrorCode::NONE);
            }
            calls += 1;
            match case {
                "error" => lists(sent, &[], ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
                "once" if calls == 2 => lists(sent, &["b"], ErrorCode::NONE),
                _ => Does::Lose(Fate::Unknown),
            }
        });
        let response: ListGroupsResponse = ended.answer();
        assert_eq!(response.error_code, ErrorCode(code), "{case}");
        assert_eq!(response.groups.len(), if case == "once" { 3 } else { 2 });
    }
}

fn create(names: &[&str]) -> CreateTopicsRequest {
    let topic = |name: &&str| CreatableTopic { name: text(name), ..CreatableTopic::default() };
    CreateTopicsRequest { topics: names.iter().map(topic).collect(), ..CreateTopicsRequest::default() }
}

fn created(sent: &Sent, error_code: ErrorCode) -> Does {
    let topic = CreatableTopicResult { name: text("new"), error_code, ..CreatableTopicResult::default() };
    Does::answer(sent, &CreateTopicsResponse { throttle_time_ms: 0, topics: vec![topic] })
}

#[test]
fn the_snapshot_is_read_before_the_client_hears_of_a_new_topic() {
    for (code, asked) in [(ErrorCode::NONE, vec![Question::Snapshot]), (ErrorCode::TOPIC_ALREADY_EXISTS, vec![])] {
        for readable in [true, false] {
            let mut rig = Rig::new(3, &[]);
            rig.learn();
            rig.readable = readable;
            let ended = rig.run(1, &create(&["new"]), |sent| created(sent, code));
            assert_eq!(ended.answer::<CreateTopicsResponse>().topics[0].error_code, code);
            assert_eq!(rig.asked, asked);
            assert!(matches!(ended.reply, Reply::Answer(_)));
        }
    }
}

#[test]
fn a_creation_never_runs_twice() {
    for (fate, attempts) in [(Fate::NotApplied, 2), (Fate::Unknown, 1)] {
        let mut rig = Rig::new(3, &[]);
        rig.learn();
        let ended = rig.run(1, &create(&["new"]), |_| Does::Lose(fate));
        assert_eq!(rig.sent.len(), attempts);
        assert!(matches!(ended.reply, Reply::AnswerAndClose(_)));
        assert_eq!(ended.answer::<CreateTopicsResponse>().topics[0].error_code, ErrorCode::REQUEST_TIMED_OUT);
    }
    let mut rig = Rig::new(1, &[]);
    rig.learn().down.insert(0);
    let ended = rig.run(1, &create(&["new"]), |_| unreachable!());
    assert!(matches!(ended.reply, Reply::AnswerAndClose(_)));
}

#[test]
fn a_lost_creation_that_was_not_sent_succeeds_elsewhere() {
    let mut rig = Rig::new(3, &[]);
    rig.learn();
    let mut first = true;
    let ended = rig.run(1, &create(&["new"]), |sent| {
        if std::mem::take(&mut first) { Does::Lose(Fate::NotApplied) } else { created(sent, ErrorCode::NONE) }
    });
    assert_eq!(ended.answer::<CreateTopicsResponse>().topics[0].error_code, ErrorCode::NONE);
}

#[test]
fn altered_configurations_count_as_changes() {
    let mut rig = Rig::new(3, &[]);
    rig.learn();
    rig.run(1, &AlterConfigsRequest::default(), |sent| {
        let responses = vec![AlterConfigsResourceResponse::default()];
        Does::answer(sent, &AlterConfigsResponse { throttle_time_ms: 0, responses })
    });
    assert_eq!(rig.asked, [Question::Snapshot]);
}

#[test]
fn configurations_show_the_advertised_address() {
    for version in 0..=4 {
        let mut rig = Rig::new(3, &[]);
        rig.config.listener.advertised_host = "proxy".to_owned();
        rig.config.listener.advertised_port = 9192;
        rig.learn();
        let resource = |resource_type, name| DescribeConfigsResource {
            resource_type,
            resource_name: text(name),
            configuration_keys: None,
        };
        let request = DescribeConfigsRequest {
            resources: vec![resource(2, "t"), resource(4, "0")],
            ..DescribeConfigsRequest::default()
        };
        let mut first = true;
        let ended = rig.run(version, &request, |sent| {
            // It only reads: asked again, whatever became of it.
            if std::mem::take(&mut first) {
                return Does::Lose(Fate::Unknown);
            }
            let entry = |name, config_source| DescribeConfigsResourceResult {
                name: text(name),
                value: Some(text("inner:9092")),
                config_source,
                synonyms: vec![DescribeConfigsSynonym { value: Some(text("inner:9092")), ..Default::default() }],
                config_type: 2,
                documentation: Some(text("words")),
                ..DescribeConfigsResourceResult::default()
            };
            let result = |resource_type| DescribeConfigsResult {
                resource_type,
                configs: vec![entry("advertised.listeners", 4), entry("retention.ms", 5)],
                ..DescribeConfigsResult::default()
            };
            assert_eq!(sent.version, 4);
            Does::answer(sent, &DescribeConfigsResponse { throttle_time_ms: 0, results: vec![result(2), result(4)] })
        });
        let response: DescribeConfigsResponse = ended.answer();
        let values: Vec<Vec<&str>> = response
            .results
            .iter()
            .map(|result| result.configs.iter().map(|entry| entry.value.as_deref().unwrap()).collect())
            .collect();
        assert_eq!(values, [["inner:9092", "inner:9092"], ["proxy:9192", "inner:9092"]]);
        for result in &response.results {
            let defaults: Vec<bool> = result.configs.iter().map(|entry| entry.is_default).collect();
            assert_eq!(defaults, if version == 0 { [false, true] } else { [false, false] });
        }
        let advertised = &response.results[1].configs[0];
        if version > 0 {
            assert_eq!(advertised.synonyms[0].value, Some(text("proxy:9192")));
        }
        assert_eq!(advertised.config_type, if version < 3 { 0 } else { 2 });
        assert_eq!(rig.asked, []);
    }
}
