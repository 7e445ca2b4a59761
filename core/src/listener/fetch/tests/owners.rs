//! Whom a Fetch asks, and what becomes of refusals, lost connections and knowledge that is too old.

use std::time::Duration;

use bytes::Bytes;

use super::{MS, NOT_LEADER, Stored, answer_with, by_id, lengths, partitions, records, request, three_owners};
use crate::cluster::Question;
use crate::kafka::{ErrorCode, FetchRequest, FetchableTopicResponse, PartitionData, Str};
use crate::listener::request::Fate;
use crate::listener::rig::{Does, Rig, Sent};
use crate::tests::{Work, counted};

const UNKNOWN_PARTITION: ErrorCode = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;

fn refusing(mut refuses: impl FnMut(&Sent) -> bool) -> impl FnMut(&Sent) -> Does {
    move |sent| {
        let request: FetchRequest = sent.request();
        let refused = refuses(sent);
        let data = |_| {
            if refused {
                PartitionData { error_code: NOT_LEADER, ..PartitionData::default() }
            } else {
                PartitionData { high_watermark: 1, records: Some(records(10)), ..PartitionData::default() }
            }
        };
        Does::answer(sent, &answer_with(&request, data))
    }
}

#[test]
fn a_refusal_leads_to_the_owner_that_etcd_names_now() {
    for version in [11, 13] {
        let mut rig = Rig::new(3, &["t"]);
        rig.own("t", 0, 0).own("t", 1, 1).learn().own("t", 0, 2);
        let mut asked = request(500, 1, &[("t", &[0, 1])]);
        if version == 13 {
            by_id(&mut asked, "t");
        }
        let ended = rig.run(version, &asked, refusing(|sent| sent.broker == 0));
        assert_eq!(rig.asked, [Question::PartitionOwner { topic: "t".to_owned(), partition: 0 }]);
        assert_eq!(rig.sent.iter().map(|sent| sent.broker).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(rig.sent[2].request::<FetchRequest>().topics[0].partitions.len(), 1);
        assert_eq!(lengths(&ended), [records(10).len(), records(10).len()]);
    }
}

#[test]
fn a_refused_partition_whose_new_owner_hangs_is_empty() {
    let mut rig = Rig::new(3, &["t"]);
    rig.own("t", 0, 0).own("t", 1, 0).learn().own("t", 1, 2);
    let ended = rig.run(11, &request(500, 1, &[("t", &[0, 1])]), |sent| {
        if sent.broker == 2 {
            return Does::Hang;
        }
        let request: FetchRequest = sent.request();
        let data = |partition| match partition {
            0 => PartitionData { high_watermark: 1, records: Some(records(10)), ..PartitionData::default() },
            _ => PartitionData { error_code: NOT_LEADER, ..PartitionData::default() },
        };
        Does::answer(sent, &answer_with(&request, data))
    });
    assert_eq!(lengths(&ended), [records(10).len(), 0]);
    assert_eq!(partitions(&ended)[1].error_code, ErrorCode::NONE);
}

#[test]
fn three_refusals_go_to_the_client() {
    let mut rig = three_owners();
    let ended = rig.run(11, &request(500, 1, &[("t", &[0, 1])]), refusing(|sent| sent.broker != 1));
    assert_eq!(rig.sent.iter().filter(|sent| sent.broker == 0).count(), 3);
    let answered = partitions(&ended);
    assert_eq!(answered[0].error_code, NOT_LEADER);
    assert_eq!((answered[0].high_watermark, answered[0].records.as_deref()), (-1, Some(&[][..])));
    assert_eq!(answered[1].records, Some(records(10)));
}

#[test]
fn without_an_owner_the_one_broker_is_asked_that_would_take_it() {
    for partition in 0..10 {
        let mut rig = Rig::new(3, &["t"]);
        rig.learn();
        let ended = rig.run(11, &request(500, 1, &[("t", &[partition])]), refusing(|_| false));
        assert_eq!(rig.sent.iter().map(|sent| sent.broker).collect::<Vec<_>>(), [rig.taker("t", partition)]);
        assert_eq!(lengths(&ended), [records(10).len()]);
    }
}

#[test]
fn an_owner_that_cannot_be_reached_is_not_replaced() {
    for moves in [false, true] {
        let mut rig = Rig::new(3, &["t"]);
        rig.own("t", 0, 1).learn().down.insert(1);
        if moves {
            rig.own("t", 0, 2);
        }
        let ended = rig.run(11, &request(500, 1, &[("t", &[0])]), refusing(|_| false));
        let owner = Question::PartitionOwner { topic: "t".into(), partition: 0 };
        if moves {
            assert_eq!((rig.sent.len(), rig.sent[0].broker), (1, 2), "whom etcd names now");
            assert_eq!((rig.asked, lengths(&ended)), (vec![owner], vec![records(10).len()]));
        } else {
            assert!(rig.sent.is_empty(), "a broker that reads what it does not own spoils it");
            assert_eq!(rig.asked, [owner.clone(), owner]);
            assert_eq!(partitions(&ended)[0].error_code, NOT_LEADER);
        }
    }
}

#[test]
fn an_owner_that_has_refused_somebody_is_read_anew_and_nobody_is_asked_instead() {
    for readable in [true, false] {
        let mut rig = Rig::new(3, &["t"]);
        rig.own("t", 0, 1).learn().forget("t", 0, 1).readable = readable;
        let ended = rig.run(11, &request(500, 1, &[("t", &[0])]), refusing(|_| false));
        assert_eq!(rig.asked, [Question::PartitionOwner { topic: "t".into(), partition: 0 }]);
        if readable {
            assert_eq!((rig.sent.len(), rig.sent[0].broker), (1, 1));
        } else {
            assert_eq!((rig.sent.len(), partitions(&ended)[0].error_code), (0, NOT_LEADER));
        }
    }
    let mut rig = Rig::new(3, &["t"]);
    rig.own("t", 0, 1).learn().forget("t", 0, 2);
    rig.run(11, &request(500, 1, &[("t", &[0])]), refusing(|_| false));
    assert_eq!((rig.asked.len(), rig.sent[0].broker), (0, 1), "a refusal by somebody else says nothing of the owner");
}

#[test]
fn a_partition_that_a_known_topic_lacks_goes_to_no_broker() {
    for version in [4, 12, 13] {
        let mut rig = three_owners();
        let mut asked = request(500, 1, &[("t", &[0, 10, -1])]);
        if version == 13 {
            by_id(&mut asked, "t");
        }
        let ended = rig.run(version, &asked, refusing(|_| false));
        assert_eq!(rig.sent.len(), 1);
        assert_eq!(rig.sent[0].request::<FetchRequest>().topics[0].partitions.len(), 1);
        assert_eq!(rig.asked, [Question::Snapshot], "it may have been added");
        let codes: Vec<_> = partitions(&ended).into_iter().map(|data| data.error_code).collect();
        assert_eq!(codes, [ErrorCode::NONE, UNKNOWN_PARTITION, UNKNOWN_PARTITION]);
        assert_eq!(lengths(&ended), [records(10).len(), 0, 0]);
    }
    let mut rig = three_owners();
    rig.add_partitions("t", 11);
    let ended = rig.run(11, &request(500, 1, &[("t", &[10])]), refusing(|_| false));
    assert_eq!((&rig.asked[..], lengths(&ended)), (&[Question::Snapshot][..], vec![records(10).len()]));
}

#[test]
fn a_broker_that_cannot_read_etcd_does_not_reset_consumers() {
    let out_of_range = ErrorCode(1);
    for (high_watermark, code) in [(0, NOT_LEADER), (1, out_of_range), (7, out_of_range)] {
        for version in [4, 11, 13] {
            let mut rig = three_owners();
            let mut asked = request(500, 1, &[("t", &[0])]);
            if version == 13 {
                by_id(&mut asked, "t");
            }
            let ended = rig.run(version, &asked, |sent| {
                let data = PartitionData { error_code: out_of_range, high_watermark, ..PartitionData::default() };
                Does::answer(sent, &answer_with(&sent.request(), |_| data.clone()))
            });
            let data = partitions(&ended).remove(0);
            let expected = if code == NOT_LEADER { -1 } else { high_watermark };
            assert_eq!((data.error_code, data.high_watermark), (code, expected), "{version}");
            assert_eq!(rig.sent.len(), 1);
        }
    }
}

#[test]
fn a_dead_owner_of_many_partitions_costs_a_few_reads_of_etcd() {
    const MANY: i32 = 2_000;
    let mut rig = Rig::new(2, &["t"]);
    rig.add_partitions("t", MANY);
    (0..MANY).for_each(|partition| {
        rig.own("t", partition, 0);
    });
    rig.learn().down.insert(0);
    // Its leases have gone to another, and no watch has told of that.
    (0..MANY).for_each(|partition| {
        rig.own("t", partition, 1);
    });
    let stored = Stored::default().with("t", 7, Duration::ZERO, records(10));
    let before = counted(Work::LookUp);
    let asked: Vec<i32> = (0..MANY).collect();
    let ended = rig.run(12, &request(100, 1, &[("t", &asked)]), |sent| stored.answer(sent));
    assert!(lengths(&ended)[7] > 0);
    assert_eq!(rig.asked, [Question::PartitionOwners]);
    let looked = counted(Work::LookUp) - before;
    assert!(looked <= 10 * asked.len(), "{looked}");
}

#[test]
fn a_broker_that_lost_many_partitions_costs_a_few_reads_of_etcd() {
    const MANY: i32 = 500;
    let mut rig = Rig::new(2, &["t"]);
    rig.add_partitions("t", MANY);
    let asked: Vec<i32> = (0..MANY).collect();
    for partition in &asked {
        rig.own("t", *partition, 0);
    }
    rig.learn();
    for partition in &asked {
        rig.own("t", *partition, 1);
    }
    let ended = rig.run(12, &request(0, 1, &[("t", &asked)]), refusing(|sent| sent.broker == 0));
    assert!(partitions(&ended).iter().all(|data| data.error_code == ErrorCode::NONE));
    assert_eq!(rig.asked, [Question::PartitionOwners]);
}

#[test]
fn lost_connections_and_nonsense_are_retried() {
    for nonsense in [false, true] {
        for lost in 0..=3 {
            let mut rig = three_owners();
            let mut left = lost;
            let ended = rig.run(11, &request(500, 1, &[("t", &[0])]), |sent| {
                if left == 0 {
                    return refusing(|_| false)(sent);
                }
                left -= 1;
                if nonsense {
                    Does::Answer(MS, Bytes::from_static(b"\0\0\0\x07\0\0\0\x4dxyz"))
                } else {
                    Does::Lose(Fate::Unknown)
                }
            });
            let data = partitions(&ended).remove(0);
            let expected = if lost < 3 { ErrorCode::NONE } else { NOT_LEADER };
            assert_eq!(data.error_code, expected);
            assert_eq!(rig.sent.len(), 3.min(lost + 1));
        }
    }
}

#[test]
fn what_cannot_be_sent_fails_by_partition() {
    let mut rig = Rig::new(1, &["t"]);
    rig.own("t", 0, 0).learn().down.insert(0);
    let ended = rig.run(11, &request(500, 1, &[("t", &[0])]), |_| unreachable!());
    assert_eq!(partitions(&ended)[0].error_code, NOT_LEADER);
}

#[test]
fn a_partition_missing_in_the_answer_is_asked_for_again() {
    let mut rig = Rig::new(1, &["t"]);
    rig.own("t", 0, 0).own("t", 1, 0).learn();
    let ended = rig.run(11, &request(500, 1, &[("t", &[0, 1])]), |sent| {
        let mut request: FetchRequest = sent.request();
        request.topics[0].partitions.truncate(1);
        let mut response = answer_with(&request, |_| PartitionData {
            high_watermark: 1,
            records: Some(records(10)),
            ..PartitionData::default()
        });
        // Not asked for: ignored.
        response.responses.push(FetchableTopicResponse {
            topic: Str::from("other"),
            partitions: vec![PartitionData::default()],
            ..FetchableTopicResponse::default()
        });
        Does::answer(sent, &response)
    });
    assert_eq!(rig.sent.len(), 2);
    assert_eq!(lengths(&ended), [records(10).len(), records(10).len()]);
}

#[test]
fn an_id_that_the_snapshot_lacks_is_looked_for_once() {
    for added in [true, false] {
        let mut rig = Rig::new(3, &["t"]);
        rig.own("late", 0, 2).learn();
        if added {
            rig.add_topic("late");
        }
        let mut asked = request(500, 1, &[("", &[0])]);
        by_id(&mut asked, "late");
        let ended = rig.run(13, &asked, |sent| {
            let request: FetchRequest = sent.request();
            let error_code = if sent.broker == 2 { ErrorCode::NONE } else { ErrorCode(100) };
            Does::answer(sent, &answer_with(&request, |_| PartitionData { error_code, ..PartitionData::default() }))
        });
        assert_eq!(rig.asked, [Question::Snapshot]);
        let expected = if added { ErrorCode::NONE } else { ErrorCode(100) };
        assert_eq!(partitions(&ended)[0].error_code, expected);
    }
}

#[test]
fn nothing_is_sent_on_stale_knowledge() {
    let mut rig = three_owners();
    rig.now = rig.now + rig.config.cluster.cache_ttl + Duration::from_secs(1);
    rig.readable = false;
    let ended = rig.run(11, &request(500, 1, &[("t", &[0, 1])]), |_| unreachable!());
    assert_eq!(rig.asked, [Question::Freshness]);
    assert!(partitions(&ended).iter().all(|data| data.error_code == NOT_LEADER));
}

#[test]
fn stale_knowledge_is_renewed() {
    let mut rig = three_owners();
    rig.now = rig.now + rig.config.cluster.cache_ttl + Duration::from_secs(1);
    let ended = rig.run(11, &request(0, 1, &[("t", &[0, 1])]), refusing(|_| false));
    assert_eq!(lengths(&ended), [records(10).len(), records(10).len()]);
}

#[test]
fn knowledge_that_ages_during_a_wait_ends_it() {
    let mut rig = three_owners();
    rig.now = rig.now + rig.config.cluster.cache_ttl;
    rig.readable = false;
    let ended = rig.run(11, &request(2_000, 1, &[("t", &[0, 1, 2])]), |sent| Stored::default().answer(sent));
    assert!(partitions(&ended).iter().all(|data| data.error_code == NOT_LEADER));
    assert!(ended.after < 300 * MS, "{:?}", ended.after);
}
