//! Group requests against coordinators with the habits of KafScale brokers.

use std::time::Duration;

use bytes::Bytes;

use crate::cluster::Question;
use crate::kafka::{
    ErrorCode, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember,
    LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse, OffsetCommitRequest,
    OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic, OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse,
    OffsetFetchResponsePartition, OffsetFetchResponseTopic, Str, SyncGroupRequest, SyncGroupResponse,
};
use crate::listener::request::{Fate, Reply};
use crate::listener::rig::{Does, Rig, Sent};

const MS: Duration = Duration::from_millis(1);

fn text(text: &str) -> Str {
    Str::from(text)
}

fn rig() -> Rig {
    let mut rig = Rig::new(3, &["t"]);
    rig.coordinate("g", 1).learn();
    rig
}

fn heartbeat() -> HeartbeatRequest {
    HeartbeatRequest { group_id: text("g"), generation_id: 3, member_id: text("m"), group_instance_id: None }
}

/// Only this broker coordinates.
fn coordinator(number: usize) -> impl Fn(&Sent) -> Does {
    move |sent| {
        let error_code = if sent.broker == number { ErrorCode::NONE } else { ErrorCode::NOT_COORDINATOR };
        Does::answer(sent, &HeartbeatResponse { throttle_time_ms: 5, error_code })
    }
}

fn brokers(rig: &Rig) -> Vec<usize> {
    rig.sent.iter().map(|sent| sent.broker).collect()
}

fn coordinator_of(group: &str) -> Question {
    Question::Coordinator { group: group.to_owned() }
}

#[test]
fn to_the_coordinator_and_back() {
    for version in 0..=4 {
        let mut rig = rig();
        let ended = rig.run(version, &heartbeat(), coordinator(1));
        assert_eq!(brokers(&rig), [1]);
        assert_eq!(rig.sent[0].version, 4);
        assert_eq!(rig.sent[0].request::<HeartbeatRequest>(), heartbeat());
        let expected =
            HeartbeatResponse { throttle_time_ms: if version > 0 { 5 } else { 0 }, error_code: ErrorCode::NONE };
        assert_eq!(ended.answer::<HeartbeatResponse>(), expected);
    }
}

#[test]
fn a_refusal_leads_to_the_coordinator_that_etcd_names_now() {
    let mut rig = rig();
    rig.coordinate("g", 2);
    let ended = rig.run(4, &heartbeat(), coordinator(2));
    assert_eq!(brokers(&rig), [1, 2]);
    assert_eq!(rig.asked, [coordinator_of("g")]);
    assert_eq!(ended.answer::<HeartbeatResponse>().error_code, ErrorCode::NONE);
}

#[test]
fn a_broker_that_refused_is_not_asked_again() {
    let mut rig = rig();
    let ended = rig.run(4, &heartbeat(), coordinator(2));
    assert_eq!(brokers(&rig), [1, 0, 2]);
    assert_eq!(ended.answer::<HeartbeatResponse>().error_code, ErrorCode::NONE);
}

#[test]
fn exhausted_calls_send_the_client_to_look_for_its_coordinator() {
    for (attempts, mut broker) in [
        (3, Box::new(coordinator(9)) as Box<dyn FnMut(&Sent) -> Does>),
        (3, Box::new(|_: &Sent| Does::Lose(Fate::Unknown))),
        (3, Box::new(|_: &Sent| Does::Lose(Fate::NotApplied))),
        (3, Box::new(|_: &Sent| Does::Answer(MS, Bytes::from_static(b"\0\0\0\x04\0\0\0\x4d")))),
        // The time is up.
        (1, Box::new(|_: &Sent| Does::Hang)),
    ] {
        for version in [0, 4] {
            let mut rig = rig();
            let ended = rig.run(version, &heartbeat(), &mut broker);
            assert_eq!(rig.sent.len(), attempts);
            assert_eq!(ended.answer::<HeartbeatResponse>().error_code, ErrorCode::NOT_COORDINATOR);
            assert!(matches!(ended.reply, Reply::Answer(_)));
            assert!(ended.after <= Duration::from_secs(30));
        }
    }
}

#[test]
fn a_lost_connection_is_tried_once_more_before_others_are() {
    let mut rig = rig();
    let mut first = true;
    rig.run(
        4,
        &heartbeat(),
        |sent| {
            if std::mem::take(&mut first) { Does::Lose(Fate::Unknown) } else { coordinator(1)(sent) }
        },
    );
    assert_eq!(brokers(&rig), [1, 1]);

    let mut rig = self::rig();
    rig.run(4, &heartbeat(), |sent| if sent.broker == 1 { Does::Lose(Fate::Unknown) } else { coordinator(0)(sent) });
    assert_eq!(brokers(&rig), [1, 1, 0]);
}

#[test]
fn without_a_coordinator_any_broker_is_asked() {
    let mut rig = Rig::new(3, &[]);
    rig.learn();
    rig.run(4, &heartbeat(), coordinator(0));
    assert_eq!(brokers(&rig), [0]);
    assert_eq!(rig.asked, []);
}

#[test]
fn nothing_is_sent_on_stale_knowledge() {
    let mut rig = rig();
    rig.now = rig.now + rig.config.cluster.cache_ttl + MS;
    rig.readable = false;
    let ended = rig.run(4, &heartbeat(), |_| unreachable!());
    assert_eq!(rig.asked, [Question::Freshness]);
    assert_eq!(ended.answer::<HeartbeatResponse>().error_code, ErrorCode::NOT_COORDINATOR);
}

#[test]
fn static_members_are_refused() {
    let instance = Some(text("i"));
    let sync =
        SyncGroupRequest { group_id: text("g"), group_instance_id: instance.clone(), ..SyncGroupRequest::default() };
    let beat = HeartbeatRequest { group_instance_id: instance.clone(), ..heartbeat() };
    let join = JoinGroupRequest { group_instance_id: instance.clone(), ..join() };
    let commit = OffsetCommitRequest { group_instance_id: instance, ..commit() };
    let unsupported = ErrorCode::UNSUPPORTED_VERSION;
    let none = |_: &Sent| unreachable!();
    for version in [3, 4] {
        assert_eq!(rig().run(version, &sync, none).answer::<SyncGroupResponse>().error_code, unsupported);
        assert_eq!(rig().run(version, &beat, none).answer::<HeartbeatResponse>().error_code, unsupported);
    }
    for version in [5, 9] {
        assert_eq!(rig().run(version, &join, none).answer::<JoinGroupResponse>().error_code, unsupported);
    }
    for version in [7, 8] {
        let response: OffsetCommitResponse = rig().run(version, &commit, none).answer();
        assert_eq!(response.topics[0].partitions[0].error_code, unsupported);
    }
}

fn commit() -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: text("g"),
        topics: vec![OffsetCommitRequestTopic {
            name: text("t"),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: 4,
                committed_offset: 9,
                committed_leader_epoch: -1,
                commit_timestamp: -1,
                committed_metadata: Some(text("note")),
            }],
        }],
        ..OffsetCommitRequest::default()
    }
}

#[test]
fn offset_commit_in_every_version() {
    for version in 1..=8 {
        let mut rig = rig();
        let mut asked = commit();
        asked.topics[0].partitions[0].commit_timestamp = if version == 1 { 1_000 } else { -1 };
        asked.topics[0].partitions[0].committed_leader_epoch = if version >= 6 { 2 } else { -1 };
        asked.retention_time_ms = if (2..=4).contains(&version) { 60_000 } else { -1 };
        let mut refuse = true;
        let ended = rig.run(version, &asked, |sent| {
            let refused = std::mem::take(&mut refuse);
            let error_code = if refused { ErrorCode::NOT_COORDINATOR } else { ErrorCode::NONE };
            let partitions = vec![OffsetCommitResponsePartition { partition_index: 4, error_code }];
            let topics = vec![OffsetCommitResponseTopic { name: text("t"), partitions }];
            Does::answer(sent, &OffsetCommitResponse { throttle_time_ms: 0, topics })
        });
        assert_eq!(brokers(&rig), [1, 0]);
        let sent: OffsetCommitRequest = rig.sent[1].request();
        assert_eq!(rig.sent[1].version, 3);
        assert_eq!(sent, OffsetCommitRequest { retention_time_ms: asked.retention_time_ms, ..commit() });
        assert_eq!(ended.answer::<OffsetCommitResponse>().topics[0].partitions[0].error_code, ErrorCode::NONE);
    }
}

fn join() -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: text("g"),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 20_000,
        protocol_type: text("consumer"),
        ..JoinGroupRequest::default()
    }
}

fn joined(error_code: ErrorCode, member: &str) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code,
        generation_id: 2,
        protocol_name: Some(text("range")),
        leader: text("m1"),
        member_id: text(member),
        members: vec![JoinGroupResponseMember { member_id: text(member), ..JoinGroupResponseMember::default() }],
        ..JoinGroupResponse::default()
    }
}

/// Gives a new id to whoever has none, and settles after so many answers.
fn settles_after(answers: usize) -> impl FnMut(&Sent) -> Does {
    let mut given = 0;
    let mut left = answers;
    move |sent| {
        let request: JoinGroupRequest = sent.request();
        let member = if request.member_id.is_empty() {
            given += 1;
            format!("m{given}")
        } else {
            request.member_id.to_string()
        };
        let code = if left == 0 { ErrorCode::NONE } else { ErrorCode::REBALANCE_IN_PROGRESS };
        left = left.saturating_sub(1);
        Does::answer(sent, &joined(code, &member))
    }
}

#[test]
fn a_join_is_held_until_the_group_has_settled() {
    for version in 0..=9 {
        let mut rig = rig();
        let asked = JoinGroupRequest { reason: (version >= 8).then(|| text("restart")), ..join() };
        let ended = rig.run(version, &asked, settles_after(4));
        let response: JoinGroupResponse = ended.answer();
        assert_eq!((response.error_code, &response.member_id), (ErrorCode::NONE, &text("m1")), "{version}");
        let times: Vec<u64> = rig.sent.iter().map(|sent| sent.after().as_millis() as u64).collect();
        assert_eq!(times, [0, 101, 302, 703, 1_204]);
        assert!(rig.sent.iter().all(|sent| sent.broker == 1 && sent.version == 4));
        let ids: Vec<String> =
            rig.sent.iter().map(|sent| sent.request::<JoinGroupRequest>().member_id.to_string()).collect();
        assert_eq!(ids, ["", "m1", "m1", "m1", "m1"]);
        let timeout = if version == 0 { 10_000 } else { 20_000 };
        assert_eq!(rig.sent[4].request::<JoinGroupRequest>().rebalance_timeout_ms, timeout);
        assert_eq!(response.protocol_type, (version >= 7).then(|| text("consumer")));
        assert!(!response.skip_assignment);
    }
}

#[test]
fn a_join_is_held_no_longer_than_the_rebalance_timeout() {
    let mut rig = rig();
    let ended = rig.run(4, &join(), settles_after(usize::MAX));
    let response: JoinGroupResponse = ended.answer();
    assert_eq!((response.error_code, response.member_id), (ErrorCode::MEMBER_ID_REQUIRED, text("m1")));
    assert!((20_000 * MS..20_010 * MS).contains(&ended.after), "{:?}", ended.after);
}

#[test]
fn who_joined_in_vain_is_told_what_its_library_knows() {
    for (version, member, code) in [
        (3, "", ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        (3, "m7", ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        (4, "m7", ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        (4, "", ErrorCode::MEMBER_ID_REQUIRED),
        (9, "", ErrorCode::MEMBER_ID_REQUIRED),
    ] {
        let asked = JoinGroupRequest { member_id: text(member), ..join() };
        let ended = rig().run(version, &asked, settles_after(usize::MAX));
        assert_eq!(ended.answer::<JoinGroupResponse>().error_code, code, "{version}, {member:?}");
    }
}

#[test]
fn who_joined_in_vain_keeps_the_id_that_the_broker_does_not_repeat() {
    let asked = JoinGroupRequest { member_id: text("m7"), ..join() };
    let ended = rig().run(4, &asked, |sent| {
        let response =
            JoinGroupResponse { error_code: ErrorCode::REBALANCE_IN_PROGRESS, ..JoinGroupResponse::default() };
        Does::answer(sent, &response)
    });
    let response: JoinGroupResponse = ended.answer();
    assert_eq!((response.error_code, response.member_id), (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, text("m7")));
}

#[test]
fn members_of_an_old_generation_join_again_under_their_id() {
    let old = ErrorCode::ILLEGAL_GENERATION;
    for version in [0, 4] {
        let ended = rig().run(version, &heartbeat(), |sent| {
            Does::answer(sent, &HeartbeatResponse { error_code: old, ..HeartbeatResponse::default() })
        });
        assert_eq!(ended.answer::<HeartbeatResponse>().error_code, ErrorCode::REBALANCE_IN_PROGRESS);
        let asked = SyncGroupRequest { group_id: text("g"), ..SyncGroupRequest::default() };
        let ended = rig().run(version, &asked, |sent| {
            Does::answer(sent, &SyncGroupResponse { error_code: old, ..SyncGroupResponse::default() })
        });
        assert_eq!(ended.answer::<SyncGroupResponse>().error_code, ErrorCode::REBALANCE_IN_PROGRESS);
    }
    for version in [3, 8] {
        let ended = rig().run(version, &commit(), |sent| {
            let partitions = vec![OffsetCommitResponsePartition { partition_index: 4, error_code: old }];
            let topics = vec![OffsetCommitResponseTopic { name: text("t"), partitions }];
            Does::answer(sent, &OffsetCommitResponse { throttle_time_ms: 0, topics })
        });
        let answer: OffsetCommitResponse = ended.answer();
        assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::REBALANCE_IN_PROGRESS);
    }
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
    let ended = rig().run(4, &heartbeat(), |sent| {
        Does::answer(sent, &HeartbeatResponse { error_code: unknown, ..HeartbeatResponse::default() })
    });
    assert_eq!(ended.answer::<HeartbeatResponse>().error_code, unknown);
}

#[test]
fn nor_longer_than_clients_may_wait() {
    let mut rig = rig();
    rig.config.listener.client_wait_max = Duration::from_secs(5);
    let asked = JoinGroupRequest { rebalance_timeout_ms: i32::MAX, ..join() };
    let ended = rig.run(4, &asked, settles_after(usize::MAX));
    assert_eq!(ended.answer::<JoinGroupResponse>().error_code, ErrorCode::MEMBER_ID_REQUIRED);
    assert!((5_000 * MS..5_510 * MS).contains(&ended.after), "{:?}", ended.after);
}

#[test]
fn another_error_ends_the_hold() {
    let mut codes = [27, 27, 25].into_iter();
    let ended = rig().run(4, &join(), |sent| Does::answer(sent, &joined(ErrorCode(codes.next().unwrap()), "m1")));
    assert_eq!(ended.answer::<JoinGroupResponse>().error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn the_coordinator_may_move_during_a_hold() {
    let mut rig = rig();
    let mut calls = 0;
    let ended = rig.run(4, &join(), |sent| {
        calls += 1;
        let code = match (calls, sent.broker) {
            (1, _) => ErrorCode::REBALANCE_IN_PROGRESS,
            (_, 1) => ErrorCode::NOT_COORDINATOR,
            _ => ErrorCode::NONE,
        };
        Does::answer(sent, &joined(code, "m1"))
    });
    assert_eq!(brokers(&rig), [1, 1, 0]);
    assert_eq!(ended.answer::<JoinGroupResponse>().error_code, ErrorCode::NONE);
}

#[test]
fn a_member_id_is_asked_for_only_where_clients_know_how() {
    for version in 0..=9 {
        let mut first = true;
        let ended = rig().run(version, &join(), |sent| {
            let code = if std::mem::take(&mut first) { ErrorCode::MEMBER_ID_REQUIRED } else { ErrorCode::NONE };
            Does::answer(sent, &joined(code, "m1"))
        });
        let expected = if version < 4 { ErrorCode::NONE } else { ErrorCode::MEMBER_ID_REQUIRED };
        assert_eq!(ended.answer::<JoinGroupResponse>().error_code, expected);
    }
}

fn leave(version: i16, members: &[&str]) -> LeaveGroupRequest {
    let list = members.iter().map(|member| MemberIdentity { member_id: text(member), group_instance_id: None });
    LeaveGroupRequest {
        group_id: text("g"),
        member_id: if version < 3 { text(members[0]) } else { Str::default() },
        members: if version < 3 { Vec::new() } else { list.collect() },
    }
}

/// Reads only the member field of old versions; knows all members but `stranger`.
fn reads_one_member(sent: &Sent) -> Does {
    let request: LeaveGroupRequest = sent.request();
    let known = sent.version < 3 && request.member_id != "stranger";
    let error_code = if known { ErrorCode::NONE } else { ErrorCode::UNKNOWN_MEMBER_ID };
    Does::answer(sent, &LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() })
}

#[test]
fn members_leave_one_by_one_where_the_list_is_not_read() {
    for version in 0..=4 {
        let members: &[&str] = if version < 3 { &["m1"] } else { &["m1", "stranger", "m2"] };
        let mut rig = rig();
        let ended = rig.run(version, &leave(version, members), reads_one_member);
        let response: LeaveGroupResponse = ended.answer();
        assert_eq!(response.error_code, ErrorCode::NONE);
        let sent: Vec<(i16, String)> = rig.sent[1..]
            .iter()
            .map(|sent| (sent.version, sent.request::<LeaveGroupRequest>().member_id.to_string()))
            .collect();
        let expected: Vec<(i16, String)> = members.iter().map(|member| (1, (*member).to_owned())).collect();
        assert_eq!((rig.sent[0].version, sent), (4, expected));
        let codes: Vec<(Str, i16)> =
            response.members.iter().map(|member| (member.member_id.clone(), member.error_code.0)).collect();
        if version < 3 {
            assert_eq!(codes, []);
        } else {
            assert_eq!(codes, [(text("m1"), 0), (text("stranger"), 25), (text("m2"), 0)]);
        }
    }
    let ended = rig().run(1, &leave(1, &["stranger"]), reads_one_member);
    assert_eq!(ended.answer::<LeaveGroupResponse>().error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_list_that_is_read_is_not_taken_apart() {
    for version in 0..=4 {
        let mut rig = rig();
        let ended = rig.run(version, &leave(version, &["m1"]), |sent| {
            let request: LeaveGroupRequest = sent.request();
            let answer = |member: &MemberIdentity| MemberResponse {
                member_id: member.member_id.clone(),
                group_instance_id: None,
                error_code: ErrorCode(9),
            };
            let members = request.members.iter().map(answer).collect();
            Does::answer(sent, &LeaveGroupResponse { members, ..LeaveGroupResponse::default() })
        });
        let response: LeaveGroupResponse = ended.answer();
        assert_eq!(rig.sent.len(), 1);
        if version < 3 {
            assert_eq!(response.error_code, ErrorCode(9));
        } else {
            assert_eq!((response.error_code, response.members[0].error_code), (ErrorCode::NONE, ErrorCode(9)));
        }
    }
}

fn offsets(topics: Option<&[(&str, &[i32])]>) -> OffsetFetchRequest {
    let topic = |(name, partitions): &(&str, &[i32])| OffsetFetchRequestTopic {
        name: text(name),
        partition_indexes: partitions.to_vec(),
    };
    OffsetFetchRequest {
        group_id: text("g"),
        topics: topics.map(|topics| topics.iter().map(topic).collect()),
        require_stable: false,
    }
}

/// Answers 10 for partition 1, and 0 for every other, whether it was committed or not.
fn answers_zero(sent: &Sent) -> Does {
    let request: OffsetFetchRequest = sent.request();
    let partition = |index: &i32| OffsetFetchResponsePartition {
        partition_index: *index,
        committed_offset: if *index == 1 { 10 } else { 0 },
        metadata: Some(Str::default()),
        ..OffsetFetchResponsePartition::default()
    };
    let topics = request
        .topics
        .iter()
        .flatten()
        .map(|topic| OffsetFetchResponseTopic {
            name: topic.name.clone(),
            partitions: topic.partition_indexes.iter().map(partition).collect(),
        })
        .collect();
    Does::answer(sent, &OffsetFetchResponse { topics, ..OffsetFetchResponse::default() })
}

fn found(response: &OffsetFetchResponse) -> Vec<(String, i32, i64)> {
    let mut found = Vec::new();
    for topic in &response.topics {
        let partition =
            |data: &OffsetFetchResponsePartition| (topic.name.to_string(), data.partition_index, data.committed_offset);
        found.extend(topic.partitions.iter().map(partition));
    }
    found
}

fn committed_of(group: &str) -> Question {
    Question::CommittedPartitions { group: group.to_owned() }
}

#[test]
fn what_was_never_committed_is_minus_one() {
    for version in 1..=7 {
        let mut rig = rig();
        rig.commit("g", "t", 1).commit("other", "t", 0);
        let ended = rig.run(version, &offsets(Some(&[("t", &[0, 1, 2])])), answers_zero);
        let response: OffsetFetchResponse = ended.answer();
        assert_eq!(found(&response), [("t".into(), 0, -1), ("t".into(), 1, 10), ("t".into(), 2, -1)]);
        assert_eq!((rig.sent.len(), rig.sent[0].version), (1, 5));
        assert_eq!(rig.asked, [committed_of("g")]);
    }
}

#[test]
fn an_offset_that_may_have_been_committed_meanwhile_is_asked_for_again() {
    let mut rig = rig();
    rig.commit("g", "t", 0);
    let mut calls = 0;
    let ended = rig.run(5, &offsets(Some(&[("t", &[0, 2])])), |sent| {
        calls += 1;
        if calls == 1 {
            return answers_zero(sent);
        }
        let partition = |partition_index, committed_offset| OffsetFetchResponsePartition {
            partition_index,
            committed_offset,
            ..OffsetFetchResponsePartition::default()
        };
        let partitions = vec![partition(0, 5), partition(2, 0)];
        let topics = vec![OffsetFetchResponseTopic { name: text("t"), partitions }];
        Does::answer(sent, &OffsetFetchResponse { topics, ..OffsetFetchResponse::default() })
    });
    assert_eq!(calls, 2);
    assert_eq!(found(&ended.answer()), [("t".into(), 0, 5), ("t".into(), 2, -1)]);
}

#[test]
fn a_committed_zero_stays() {
    let mut rig = rig();
    rig.commit("g", "t", 0);
    let ended = rig.run(5, &offsets(Some(&[("t", &[0])])), answers_zero);
    assert_eq!(found(&ended.answer()), [("t".into(), 0, 0)]);
}

#[test]
fn no_zero_no_question() {
    let mut rig = rig();
    let ended = rig.run(5, &offsets(Some(&[("t", &[1])])), answers_zero);
    assert_eq!(rig.asked, []);
    assert_eq!(found(&ended.answer()), [("t".into(), 1, 10)]);
}

#[test]
fn nothing_is_guessed_while_etcd_is_unreadable() {
    let mut rig = rig();
    rig.readable = false;
    for (version, top_level) in [(1, ErrorCode::NONE), (5, ErrorCode::NOT_COORDINATOR)] {
        let ended = rig.run(version, &offsets(Some(&[("t", &[0])])), answers_zero);
        let response: OffsetFetchResponse = ended.answer();
        assert_eq!(response.error_code, top_level);
        assert_eq!(response.topics[0].partitions[0].error_code, ErrorCode::NOT_COORDINATOR);
    }
    let response: OffsetFetchResponse = rig.run(5, &offsets(None), answers_zero).answer();
    assert_eq!(response.error_code, ErrorCode::NOT_COORDINATOR);
}

#[test]
fn all_topics_are_those_with_commits() {
    let mut rig = rig();
    rig.commit("g", "t", 1).commit("g", "t", 0).commit("g", "u", 3).commit("h", "t", 7);
    let ended = rig.run(2, &offsets(None), answers_zero);
    assert_eq!(rig.sent[0].request::<OffsetFetchRequest>(), offsets(Some(&[("t", &[0, 1]), ("u", &[3])])));
    assert_eq!(found(&ended.answer()), [("t".into(), 0, 0), ("t".into(), 1, 10), ("u".into(), 3, 0)]);

    let mut rig = self::rig();
    let ended = rig.run(7, &offsets(None), answers_zero);
    assert_eq!(ended.answer::<OffsetFetchResponse>(), OffsetFetchResponse::default());
    assert_eq!(rig.sent.len(), 0);
}

#[test]
fn an_error_of_the_whole_answer_goes_to_the_partitions_of_old_clients() {
    for version in 1..=7 {
        let ended = rig().run(version, &offsets(Some(&[("t", &[0])])), |sent| {
            let error_code = ErrorCode::GROUP_AUTHORIZATION_FAILED;
            Does::answer(sent, &OffsetFetchResponse { error_code, ..OffsetFetchResponse::default() })
        });
        let response: OffsetFetchResponse = ended.answer();
        if version == 1 {
            assert_eq!(response.topics[0].partitions[0].error_code, ErrorCode::GROUP_AUTHORIZATION_FAILED);
        } else {
            assert_eq!(response.error_code, ErrorCode::GROUP_AUTHORIZATION_FAILED);
        }
    }
}
