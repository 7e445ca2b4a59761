use super::*;
use crate::kafka::{
    ErrorCode, FetchPartition, FetchResponse, FetchTopic, FetchableTopicResponse, HeartbeatResponse, PartitionData,
    PartitionProduceData, ProduceResponse, Str, TopicProduceData, response_frame,
};

const KIND: ClusterKind = ClusterKind::KafScale;

/// What a usual broker tells, with `changed` instead.
fn told(changed: &[(ApiKey, Option<(i16, i16)>)]) -> VersionRanges {
    let usual = ApiKey::ALL.iter().filter_map(|api| Some((i16::from(*api), spoken(KIND, *api)?)));
    let mut told: VersionRanges = usual.map(|(api, range)| (api, (range.min, range.max))).collect();
    for (api, has) in changed {
        match has {
            Some(has) => told.insert(i16::from(*api), *has),
            None => told.remove(&i16::from(*api)),
        };
    }
    told
}

fn frame<R: Request>(version: i16, request: &R) -> Bytes {
    request_frame(7, Some("c"), version, request)
}

fn read<R: Request>(frame: &Bytes) -> (i16, R) {
    let (header, body_at) = RequestHeader::decode(frame).unwrap();
    assert_eq!((header.correlation_id, header.client_id), (7, Some("c")));
    (header.api_version, R::decode(&frame.slice(body_at..), header.api_version).unwrap())
}

fn produce() -> ProduceRequest {
    ProduceRequest {
        acks: -1,
        timeout_ms: 100,
        topic_data: vec![TopicProduceData {
            name: Str::from("t"),
            partition_data: vec![PartitionProduceData { index: 3, records: Some(Bytes::from_static(b"records")) }],
        }],
        ..ProduceRequest::default()
    }
}

#[test]
fn a_usual_broker_is_spoken_to_as_usual() {
    let dialect = Dialect::of(KIND, &told(&[]));
    assert_eq!(dialect.lacking().count(), 0);
    let sent = frame(9, &produce());
    assert!(matches!(dialect.say(sent.clone()), Said::AsItWas(said) if said == sent));
}

#[test]
fn what_a_broker_has() {
    use ApiKey::{Fetch, Heartbeat, LeaveGroup, ListOffsets, Produce};
    for (api, has, usable) in [
        (Produce, Some((0, 9)), None),
        (Produce, Some((0, 13)), None),
        (Produce, Some((3, 8)), Some(Some((3, 8)))),
        (Produce, Some((0, 8)), Some(Some((0, 8)))),
        (Produce, Some((10, 13)), Some(None)),
        (Produce, Some((0, 2)), Some(Some((0, 2)))),
        (Produce, None, Some(None)),
        (Fetch, Some((0, 11)), Some(Some((4, 11)))),
        (Heartbeat, Some((0, 3)), Some(Some((0, 3)))),
        (Heartbeat, Some((5, 5)), Some(None)),
        (LeaveGroup, Some((0, 2)), Some(Some((0, 2)))),
        (ListOffsets, Some((0, 2)), Some(Some((0, 2)))),
        (Heartbeat, Some((4, 3)), Some(None)),
    ] {
        let dialect = Dialect::of(KIND, &told(&[(api, has)]));
        let lacking: Vec<_> = dialect.lacking().collect();
        let expected: Vec<_> =
            usable.map(|usable| (api, usable.map(|(min, max)| VersionRange::new(min, max)))).into_iter().collect();
        assert_eq!(lacking, expected, "{api:?} {has:?}");
    }
}

#[test]
fn a_request_and_its_answer_in_another_version() {
    for (has, asked, said) in [((0, 8), 9, 8), ((0, 8), 5, 5), ((4, 13), 3, 4), ((7, 8), 3, 7)] {
        let dialect = Dialect::of(KIND, &told(&[(ApiKey::Produce, Some(has))]));
        let turned = match dialect.say(frame(asked, &produce())) {
            Said::AsItWas(bytes) => {
                assert_eq!(read::<ProduceRequest>(&bytes), (said, produce()));
                assert_eq!(said, asked);
                continue;
            }
            Said::Turned(bytes, turned) => {
                assert_eq!(read::<ProduceRequest>(&bytes), (said, produce()));
                turned
            }
            Said::NotAtAll(_) => panic!("{asked} to {said}"),
        };
        let answer = ProduceResponse { throttle_time_ms: 5, ..ProduceResponse::default() };
        let back = turned.answer(BytesMut::from(&response_frame(7, said, &answer)[..])).unwrap();
        assert_eq!(back, response_frame(7, asked, &answer));
        assert!(turned.answer(BytesMut::from(&b"\0\0\0\x05\0\0\0\x07\xff"[..])).is_err());
    }
}

#[test]
fn what_would_be_lost_is_refused() {
    let lacks_ids = Dialect::of(KIND, &told(&[(ApiKey::Fetch, Some((4, 12)))]));
    let by_id = FetchRequest {
        topics: vec![FetchTopic {
            topic_id: [7; 16],
            partitions: vec![FetchPartition { partition: 1, ..FetchPartition::default() }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let Said::NotAtAll(Some(answer)) = lacks_ids.say(frame(13, &by_id)) else { panic!("a topic id was lost") };
    let (_, body_at) = ResponseHeader::decode(&answer, ApiKey::Fetch, 13).unwrap();
    let refusal = FetchResponse::decode(&answer.slice(body_at..), 13).unwrap();
    let code = ErrorCode::UNSUPPORTED_VERSION;
    let topic = FetchableTopicResponse {
        topic_id: [7; 16],
        partitions: vec![PartitionData::failed(1, code)],
        ..FetchableTopicResponse::default()
    };
    assert_eq!(refusal, FetchResponse { error_code: code, responses: vec![topic], ..FetchResponse::default() });

    let lacks_lists = Dialect::of(KIND, &told(&[(ApiKey::ListOffsets, Some((1, 4)))]));
    assert!(matches!(lacks_lists.say(frame(0, &ListOffsetsRequest::default())), Said::NotAtAll(Some(_))));
    assert!(matches!(lacks_lists.say(frame(1, &ListOffsetsRequest::default())), Said::AsItWas(_)));

    let lacks_batches = Dialect::of(KIND, &told(&[(ApiKey::Produce, Some((0, 2)))]));
    assert!(matches!(lacks_batches.say(frame(9, &produce())), Said::NotAtAll(Some(_))));
    // What cannot be put into another version passes to a broker that has it.
    let old = Dialect::of(KIND, &told(&[(ApiKey::ListOffsets, Some((0, 2))), (ApiKey::LeaveGroup, Some((0, 3)))]));
    assert!(matches!(old.say(frame(0, &ListOffsetsRequest::default())), Said::AsItWas(_)));
    assert!(matches!(old.say(frame(1, &LeaveGroupRequest::default())), Said::AsItWas(_)));
    assert!(matches!(old.say(frame(4, &LeaveGroupRequest::default())), Said::Turned(..)));

    let lacks_all = Dialect::of(KIND, &told(&[(ApiKey::Heartbeat, None), (ApiKey::Produce, None)]));
    let Said::NotAtAll(Some(answer)) = lacks_all.say(frame(4, &HeartbeatRequest::default())) else { panic!() };
    let (_, body_at) = ResponseHeader::decode(&answer, ApiKey::Heartbeat, 4).unwrap();
    let refusal = HeartbeatResponse::decode(&answer.slice(body_at..), 4).unwrap();
    assert_eq!(refusal.error_code, code);
    let unacknowledged = ProduceRequest { acks: 0, ..produce() };
    assert!(matches!(lacks_all.say(frame(9, &unacknowledged)), Said::NotAtAll(None)));
}

/// Each request, in each version that is usual, to a broker that has one other version only.
#[test]
fn every_field_is_carried_or_the_request_is_refused() {
    fn walk<R: Request + PartialEq + std::fmt::Debug + crate::kafka::wire::Wire>() {
        let usual = spoken(KIND, R::KEY).unwrap();
        for said in translated(R::KEY).iter() {
            let dialect = Dialect::of(KIND, &told(&[(R::KEY, Some((said, said)))]));
            for (asked, bytes) in usual.iter().flat_map(|asked| (0..40_u8).map(move |seed| (asked, seed))) {
                let draw: Vec<u8> = (0..200).map(|n: u8| n.wrapping_mul(bytes | 1).wrapping_add(bytes)).collect();
                let request: R = crate::kafka::tests::sample(&draw, asked);
                match dialect.say(frame(asked, &request)) {
                    Said::AsItWas(as_it_was) => {
                        assert_eq!(asked, said);
                        assert_eq!(read::<R>(&as_it_was), (said, request));
                    }
                    Said::Turned(turned, _) => assert_eq!(read::<R>(&turned), (said, request), "from {asked}"),
                    Said::NotAtAll(_) => {
                        assert!(asked != said);
                        let loses = request.lost_in(said).is_some() || !translated(R::KEY).contains(asked);
                        assert!(loses, "{asked} to {said}: {request:?}");
                    }
                }
            }
        }
    }
    walk::<ProduceRequest>();
    walk::<FetchRequest>();
    walk::<ListOffsetsRequest>();
    walk::<OffsetForLeaderEpochRequest>();
    walk::<OffsetCommitRequest>();
    walk::<OffsetFetchRequest>();
    walk::<JoinGroupRequest>();
    walk::<SyncGroupRequest>();
    walk::<HeartbeatRequest>();
    walk::<LeaveGroupRequest>();
    walk::<DescribeGroupsRequest>();
    walk::<ListGroupsRequest>();
    walk::<DeleteGroupsRequest>();
    walk::<CreateTopicsRequest>();
    walk::<DeleteTopicsRequest>();
    walk::<CreatePartitionsRequest>();
    walk::<DescribeConfigsRequest>();
    walk::<AlterConfigsRequest>();
}
