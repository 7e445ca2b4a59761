//! HTTP clients of a simulation: uploads, downloads and probes, and what their answers must say.

use bytes::Bytes;
use kafscale_proxy_core::Monotonic;
use kafscale_proxy_core::inputs::ExchangeId;

use super::scenario::{Manner, PART, TOPICS};
use crate::world::invariants::{Uploads, envelopes, sha256_hex};
use crate::world::{BodyEnd, HttpClient, World};

/// A client gives its body in pieces of this size.
const PIECE: usize = 700;
/// A slow client takes so long for each of them.
const SLOWNESS: std::time::Duration = std::time::Duration::from_millis(1_500);

/// What an exchange is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Upload(Sent),
    /// The bytes that a good answer has; none: a good answer is none.
    Download(Option<Bytes>),
    Probe,
}

/// The body of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    /// It comes whole, and is what its head promises.
    good: bool,
    size: usize,
    sha256: String,
}

impl Sent {
    /// What is wrong with an answer of 200.
    fn is_belied_by(&self, answer: &serde_json::Value) -> Option<String> {
        if !self.good {
            return Some("200 for a body that broke off, or has another checksum".into());
        }
        let same = answer["size"] == self.size && answer["sha256"] == self.sha256.as_str();
        (!same).then(|| format!("{answer} for {} bytes with SHA-256 {}", self.size, self.sha256))
    }
}

/// One exchange.
pub(super) struct HttpActor {
    pub(super) exchange: ExchangeId,
    purpose: Purpose,
    answered: bool,
}

/// What HTTP clients learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpLearned {
    /// Uploads that succeeded.
    pub uploads: u64,
    /// Uploads that were refused or failed.
    pub failed_uploads: u64,
    /// Those among them whose topic was deleted or made anew meanwhile.
    pub changed_topics: u64,
    /// Downloads that succeeded.
    pub downloads: u64,
    /// Those among them that were too large for memory, so that a temporary file held them.
    pub filed_downloads: u64,
    /// Probes that were told ready.
    pub ready: u64,
}

impl HttpActor {
    pub(super) fn upload(world: &mut World, shard: usize, length: u64, partition: u64, manner: Manner) -> Self {
        let mut body = Uploads::tag(world.next_exchange()).into_bytes();
        let filler = (body.len()..length as usize).map(|place| (place % 251) as u8);
        body.extend(filler);
        let partitions: Vec<(&str, i32)> =
            TOPICS.iter().flat_map(|(topic, count)| (0..*count).map(move |index| (*topic, index))).collect();
        let (topic, index) = partitions[partition as usize % partitions.len()];
        let mut head = http::Request::post("/lfs/produce").header("X-Kafka-Topic", topic);
        head = head.header("X-Kafka-Partition", index.to_string());
        if partition.is_multiple_of(3) {
            head = head.header("Content-Length", body.len().to_string());
        }
        if manner == Manner::Mismatch {
            head = head.header("X-LFS-Checksum", "0".repeat(64));
        }
        let (head, ()) = head.body(()).expect("headers of the simulation are valid").into_parts();
        let pieces = body.chunks(PIECE).map(Bytes::copy_from_slice).collect::<Vec<_>>();
        let client = match manner {
            Manner::Whole => HttpClient::new(pieces, BodyEnd::Whole),
            Manner::Cut => HttpClient::new(pieces, BodyEnd::Cut),
            Manner::Stalls => HttpClient::new(pieces, BodyEnd::Stalls),
            Manner::Mismatch => HttpClient::new(pieces, BodyEnd::Whole),
            Manner::Slow => HttpClient::new(pieces, BodyEnd::Whole).that_is_slow(SLOWNESS),
        };
        let good = matches!(manner, Manner::Whole | Manner::Slow);
        let purpose = Purpose::Upload(Sent { good, size: body.len(), sha256: sha256_hex(&body) });
        Self { exchange: world.request(shard, head, client), purpose, answered: false }
    }

    /// `None` when no record refers to a blob.
    pub(super) fn download(
        world: &mut World,
        shard: usize,
        blob: u64,
        wrong: bool,
        stands_still: bool,
    ) -> Option<Self> {
        let mut known = envelopes(&world.log);
        if known.is_empty() {
            return None;
        }
        let index = blob as usize % known.len();
        let mut envelope = known.swap_remove(index);
        let content = world.s3.model.object(&envelope.key).and_then(|object| world.s3.blobs.content(object));
        if wrong {
            envelope.sha256 = "0".repeat(64);
        }
        let integrity = serde_json::json!({ "sha256": envelope.sha256, "size": envelope.size });
        let body = serde_json::json!({ "bucket": "blobs", "key": envelope.key, "integrity": integrity });
        let (head, ()) = http::Request::post("/lfs/download")
            .header("Content-Length", body.to_string().len().to_string())
            .body(())
            .expect("a fixed request is valid")
            .into_parts();
        let mut client = HttpClient::new([Bytes::from(body.to_string())], BodyEnd::Whole);
        if stands_still {
            client = client.that_stands_still();
        }
        let purpose = Purpose::Download(content.filter(|_| !wrong));
        Some(Self { exchange: world.request(shard, head, client), purpose, answered: false })
    }

    pub(super) fn probe(world: &mut World, shard: usize) -> Self {
        Self { exchange: world.probe(shard, "/readyz"), purpose: Purpose::Probe, answered: false }
    }

    /// Looks at the answer, once there is one that is whole.
    pub(super) fn look(&mut self, world: &mut World, now: Monotonic, learned: &mut HttpLearned) {
        let client = world.exchange(self.exchange);
        let Some(status) = client.status().filter(|_| !self.answered) else { return };
        let is_download = matches!(self.purpose, Purpose::Download(_));
        if is_download && status == 200 && !world.has_ended(self.exchange) {
            return;
        }
        self.answered = true;
        match &self.purpose {
            Purpose::Upload(sent) if status == 200 => {
                learned.uploads += 1;
                let json: serde_json::Value = serde_json::from_slice(client.body()).unwrap_or_default();
                if let Some(fault) = sent.is_belied_by(&json) {
                    world.judges.violated("answers", now, format!("{:?}: {fault}", self.exchange));
                }
                let key = json["key"].as_str().unwrap_or_default().to_owned();
                if !world.judges.order.has_envelope(&key) {
                    let text = format!("{:?}: 200 for {key:?}, and no record refers to it", self.exchange);
                    world.judges.violated("answers", now, text);
                }
            }
            Purpose::Upload(_) => {
                learned.failed_uploads += 1;
                if status == 409 {
                    learned.changed_topics += 1;
                    if let Some(fault) = world.judges.topics.refused(self.exchange, now) {
                        world.judges.violated("topics", now, fault);
                    }
                }
            }
            Purpose::Download(content) if status == 200 => {
                let got = client.body();
                learned.downloads += 1;
                learned.filed_downloads += u64::from(got.len() as u64 > PART);
                // What is sent before the connection breaks is verified as well.
                let good = content.as_ref().is_some_and(|content| {
                    if client.is_complete() { *content == got } else { content.starts_with(got) }
                });
                if !good {
                    let text = format!("{:?}: {} bytes that were not asked for", self.exchange, got.len());
                    world.judges.violated("downloads", now, text);
                }
            }
            Purpose::Download(_) => {}
            Purpose::Probe if status == 200 => {
                learned.ready += 1;
                let shard = world.shard_of_exchange(self.exchange);
                world.judges.answered_from_memory(shard, now);
            }
            Purpose::Probe => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_must_tell_of_the_body_that_was_sent() {
        let sha256 = sha256_hex(b"body");
        let whole = Sent { good: true, size: 4, sha256: sha256.clone() };
        assert_eq!(whole.is_belied_by(&json!({ "size": 4, "sha256": sha256.clone() })), None);
        for answer in [json!({ "size": 5, "sha256": sha256.clone() }), json!({ "size": 4, "sha256": "00" }), json!({})]
        {
            assert!(whole.is_belied_by(&answer).is_some(), "{answer}");
        }
        let cut = Sent { good: false, ..whole };
        assert!(cut.is_belied_by(&json!({ "size": 4, "sha256": sha256 })).is_some());
    }
}
