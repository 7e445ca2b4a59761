//! Hostile keys and values in etcd: whatever they say, an honest snapshot afterwards is understood.

use std::time::Duration;

use bytes::Bytes;
use kafscale_proxy_core::inputs::ClientId;
use kafscale_proxy_core::kafka::{ApiKey, Message, MetadataRequest, MetadataResponse, ResponseHeader, request_frame};
use kafscale_proxy_core::model::broker::SNAPSHOT_KEY;

use super::draw::{Draw, put_piece};
use super::hostile_client::frame;
use super::lone_shard::{Does, LoneShard, TOPIC, snapshot};
use super::transcripts::{exchanges, honest_answer};

/// Where values are written. What follows a prefix is drawn.
const PLACES: [&str; 5] = [
    SNAPSHOT_KEY,
    "/kafscale/partition-leases/",
    "/kafscale/group-leases/",
    "/kafscale/partition-leases/demo/",
    "/kafscale/",
];

/// A list of writes: place, piece that follows it in the key (not for the snapshot), piece of the value.
pub fn etcd_values(input: &[u8]) {
    let mut draw = Draw::new(input);
    let mut shard = LoneShard::new(|asked| honest_answer(asked).map_or(Does::Close, Does::Write));
    let client = shard.connect();
    while !draw.is_empty() {
        let place = *draw.choose(&PLACES);
        let mut key = place.as_bytes().to_vec();
        if place != SNAPSHOT_KEY {
            key.extend_from_slice(draw.piece());
        }
        shard.put(&key, Bytes::copy_from_slice(draw.piece()));
        shard.run(Duration::from_millis(50));
    }
    use_what_was_written(&mut shard, client);
    shard.put(SNAPSHOT_KEY.as_bytes(), snapshot().to_json());
    shard.run(Duration::from_secs(30));
    check_metadata(&mut shard);
    shard.end();
}

/// Requests that look something up.
fn use_what_was_written(shard: &mut LoneShard<'_>, client: ClientId) {
    let apis = [ApiKey::Metadata, ApiKey::Produce, ApiKey::Fetch, ApiKey::OffsetCommit, ApiKey::FindCoordinator];
    let newest = |api: ApiKey| (api, api.known_versions().max);
    let known = exchanges();
    let requests = apis.map(newest).map(|wanted| known.iter().find(|one| (one.api, one.version) == wanted));
    for (correlation_id, request) in (1..).zip(requests.into_iter().flatten()) {
        shard.send(client, &frame(request.api, request.version, correlation_id, &request.request));
    }
    shard.run(Duration::from_secs(30));
    shard.client(client).check_answered();
}

fn check_metadata(shard: &mut LoneShard<'_>) {
    const VERSION: i16 = 12;
    let client = shard.connect();
    shard.send(client, &request_frame(1, None, VERSION, &MetadataRequest::default()));
    shard.run(Duration::from_secs(30));
    let answers = shard.client(client).take_answers();
    let [answer] = &answers[..] else { panic!("no answer to Metadata") };
    let (_, body_at) = ResponseHeader::decode(answer, ApiKey::Metadata, VERSION).expect("the header can be read");
    let answer = MetadataResponse::decode(&answer.slice(body_at..), VERSION).expect("the body can be read");
    let topic = answer.topics.iter().find(|topic| topic.name.as_deref() == Some(TOPIC)).expect("the topic is listed");
    assert_eq!(topic.partitions.len(), snapshot().topics[0].partitions.len());
}

/// Appends one write; `after` is what follows the place in the key.
pub(super) fn put_write(out: &mut Vec<u8>, place: u8, after: &[u8], value: &[u8]) {
    out.push(place);
    if PLACES[usize::from(place)] != SNAPSHOT_KEY {
        put_piece(out, after);
    }
    put_piece(out, value);
}
