//! Produce and Fetch bodies: reading them where they lie agrees with decoding them, and so does changing them.

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::kafka::{
    ApiKey, FetchRequest, FetchResponse, Message, ProduceRequest, ProduceResponse, TopicRef, patch_fetch_request,
    patch_fetch_response, scan_fetch_request, scan_produce_request, scan_produce_response,
};

use super::draw::Draw;

/// Which of the four bodies, version, body.
pub fn scan_and_patch(input: &[u8]) {
    let mut draw = Draw::new(input);
    let (which, version) = (draw.byte() % 4, draw.byte());
    let body = Bytes::copy_from_slice(draw.rest());
    let version_of = |api: ApiKey| {
        let known = api.known_versions();
        known.min + i16::from(version) % (known.max - known.min + 1)
    };
    match which {
        0 => produce_request(&body, version_of(ApiKey::Produce)),
        1 => produce_response(&body, version_of(ApiKey::Produce)),
        2 => fetch_request(&body, version_of(ApiKey::Fetch)),
        _ => fetch_response(&body, version_of(ApiKey::Fetch)),
    }
}

fn produce_request(body: &Bytes, version: i16) {
    let mut scanned = Vec::new();
    let head = scan_produce_request(body, version, |partition| scanned.push(partition));
    let decoded = ProduceRequest::decode(body, version);
    let (Ok(head), Ok(request)) = (&head, &decoded) else {
        assert_eq!(head.is_ok(), decoded.is_ok(), "version {version}: {head:?}, {decoded:?}");
        return;
    };
    assert_eq!(head.transactional_id, request.transactional_id.as_deref());
    assert_eq!((head.acks, head.timeout_ms), (request.acks, request.timeout_ms));
    let partitions =
        request.topic_data.iter().flat_map(|topic| topic.partition_data.iter().map(move |data| (topic, data)));
    let expected: Vec<_> =
        partitions.map(|(topic, data)| (topic.name.as_str(), data.index, data.records.as_deref())).collect();
    let found: Vec<_> = scanned
        .iter()
        .map(|partition| (partition.topic, partition.index, partition.records.clone().map(|range| &body[range])))
        .collect();
    assert_eq!(found, expected, "version {version}");
}

fn produce_response(body: &Bytes, version: i16) {
    let mut scanned = Vec::new();
    let answer =
        scan_produce_response(body, version, |topic, index, code, offset| scanned.push((topic, index, code, offset)));
    let decoded = ProduceResponse::decode(body, version);
    let (Ok(answer), Ok(response)) = (&answer, &decoded) else {
        assert_eq!(answer.is_ok(), decoded.is_ok(), "version {version}: {answer:?}, {decoded:?}");
        return;
    };
    assert_eq!(answer.throttle_time_ms, response.throttle_time_ms);
    let partitions =
        response.responses.iter().flat_map(|topic| topic.partition_responses.iter().map(move |one| (topic, one)));
    let expected: Vec<_> =
        partitions.map(|(topic, one)| (topic.name.as_str(), one.index, one.error_code, one.base_offset)).collect();
    assert_eq!(scanned, expected, "version {version}");
}

fn by_version<'a>(name: &'a str, id: [u8; 16], version: i16) -> TopicRef<'a> {
    if version >= 13 { TopicRef::Id(id) } else { TopicRef::Name(name) }
}

fn fetch_request(body: &Bytes, version: i16) {
    let mut scanned = Vec::new();
    let head = scan_fetch_request(body, version, |partition| scanned.push(partition));
    let decoded = FetchRequest::decode(body, version);
    let (Ok(head), Ok(mut request)) = (&head, decoded) else {
        // A scan passes over the content of tagged fields.
        assert!(head.is_ok() || FetchRequest::decode(body, version).is_err(), "version {version}: {head:?}");
        return;
    };
    assert_eq!((head.replica_id, head.max_wait_ms), (request.replica_id, request.max_wait_ms));
    assert_eq!((head.min_bytes, head.max_bytes), (request.min_bytes, request.max_bytes));
    assert_eq!(head.isolation_level, request.isolation_level);
    assert_eq!((head.session_id, head.session_epoch), (request.session_id, request.session_epoch));
    let partitions = request.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |one| (topic, one)));
    let expected: Vec<_> = partitions
        .map(|(topic, one)| {
            let topic = by_version(&topic.topic, topic.topic_id, version);
            (topic, one.partition, one.fetch_offset, one.partition_max_bytes)
        })
        .collect();
    let found: Vec<_> = scanned.iter().map(|one| (one.topic, one.index, one.fetch_offset, one.max_bytes)).collect();
    assert_eq!(found, expected, "version {version}");

    let mut patched = BytesMut::from(&body[..]);
    patch_fetch_request(&mut patched, version, 11, 22, 33).expect("what was scanned can be patched");
    (request.max_wait_ms, request.min_bytes, request.max_bytes) = (11, 22, 33);
    (request.session_id, request.session_epoch) = (0, -1);
    assert_eq!(FetchRequest::decode(&patched.freeze(), version), Ok(request), "version {version}");
}

fn fetch_response(body: &Bytes, version: i16) {
    let mut found = Vec::new();
    let mut patched = BytesMut::from(&body[..]);
    let answer = patch_fetch_response(&mut patched, version, |data| {
        let topic = match data.topic {
            TopicRef::Name(name) => Err(name.to_owned()),
            TopicRef::Id(id) => Ok(id),
        };
        found.push((topic, data.index, data.error_code, data.record_bytes));
    });
    let decoded = FetchResponse::decode(body, version);
    let (Ok(answer), Ok(mut response)) = (&answer, decoded) else {
        assert!(answer.is_ok() || FetchResponse::decode(body, version).is_err(), "version {version}: {answer:?}");
        return;
    };
    assert_eq!((answer.throttle_time_ms, answer.error_code), (response.throttle_time_ms, response.error_code));
    assert_eq!(answer.session_id, response.session_id);
    let mut expected = Vec::new();
    for topic in &mut response.responses {
        for data in &mut topic.partitions {
            let records = data.records.get_or_insert_default();
            let name = if version >= 13 { Ok(topic.topic_id) } else { Err(topic.topic.as_str().to_owned()) };
            expected.push((name, data.partition_index, data.error_code, records.len()));
        }
    }
    assert_eq!(found, expected, "version {version}");
    assert_eq!(answer.record_bytes, expected.iter().map(|one| one.3).sum::<usize>());
    assert_eq!(FetchResponse::decode(&patched.freeze(), version), Ok(response), "version {version}");
}
