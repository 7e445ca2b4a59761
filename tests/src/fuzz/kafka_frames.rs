//! A Kafka client that sends anything: it gets answers in order or a closed connection, and leaves nothing behind.

use std::time::Duration;

use kafscale_proxy_core::kafka::ApiKey;

use super::draw::{Draw, put_piece};
use super::hostile_client::frame;
use super::lone_shard::{Does, LoneShard};
use super::transcripts::honest_answer;

/// Above the keys of APIs: bytes that are no frame, and a while in which nothing is sent.
const RAW: u8 = 0xff;
const PAUSE: u8 = 0xfe;

/// A list of steps: `RAW` with a piece of bytes; `PAUSE` with tenths of seconds; anything else is an API, followed by its
/// version and a body that gets an honest header.
pub fn kafka_frames(input: &[u8]) {
    let mut draw = Draw::new(input);
    let mut shard = LoneShard::new(|asked| honest_answer(asked).map_or(Does::Close, Does::Write));
    let client = shard.connect();
    let mut correlation_id = 0;
    while !draw.is_empty() {
        match draw.byte() {
            RAW => shard.send(client, draw.piece()),
            PAUSE => shard.run(Duration::from_millis(100) * u32::from(draw.byte())),
            api => {
                let api = ApiKey::ALL[usize::from(api) % ApiKey::ALL.len()];
                let version = i16::from(draw.byte().cast_signed());
                correlation_id += 1;
                shard.send(client, &frame(api, version, correlation_id, draw.piece()));
            }
        }
    }
    shard.run(Duration::from_secs(60));
    shard.client(client).check_answered();
    shard.end();
}

/// Appends the step that sends this body.
pub(super) fn put_request(out: &mut Vec<u8>, api: ApiKey, version: i16, body: &[u8]) {
    let index = ApiKey::ALL.iter().position(|known| *known == api).expect("every API is listed");
    out.push(u8::try_from(index).expect("there are few APIs"));
    out.push(u8::try_from(version).expect("versions are small"));
    put_piece(out, body);
}

/// Appends the step that sends these bytes as they are.
pub(super) fn put_raw(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(RAW);
    put_piece(out, bytes);
}

#[cfg(test)]
mod tests {
    use kafscale_proxy_core::ClusterConfig;
    use kafscale_proxy_core::kafka::advertised;

    use super::*;
    use crate::fuzz::transcripts::exchanges;

    /// Otherwise targets would look at refusals only.
    #[test]
    fn honest_requests_are_answered() {
        for (api, versions) in advertised(&ClusterConfig::default()) {
            // Produce 0 to 2 are refused on purpose.
            let lowest = if api == ApiKey::Produce { 3 } else { versions.min };
            for one in exchanges().iter().filter(|one| one.api == api && (lowest..=versions.max).contains(&one.version))
            {
                let mut shard = LoneShard::new(|asked| honest_answer(asked).map_or(Does::Close, Does::Write));
                let client = shard.connect();
                shard.send(client, &frame(one.api, one.version, 1, &one.request));
                shard.run(Duration::from_secs(5));
                assert_eq!(shard.client(client).take_answers().len(), 1, "{api:?} {}", one.version);
                shard.end();
            }
        }
    }

    #[test]
    #[should_panic(expected = "an answer is passed over")]
    fn an_answer_that_is_passed_over_is_found() {
        let mut client = crate::fuzz::hostile_client::HostileClient::new(1_000);
        for correlation_id in 1..=2 {
            client.sends(&frame(ApiKey::Heartbeat, 0, correlation_id, b""));
        }
        client.receives(&[0, 0, 0, 4, 0, 0, 0, 2]);
    }
}
