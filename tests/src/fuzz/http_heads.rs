//! Requests to the LFS API with any head and body: one answer each, and errors that say what they are.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use kafscale_proxy_core::inputs::ExchangeId;

use super::draw::{Draw, put_piece};
use super::lone_shard::{Does, LoneShard, TOPIC};
use super::transcripts::honest_answer;
use crate::world::{BodyEnd, HttpClient};

const METHODS: [&str; 7] = ["POST", "GET", "OPTIONS", "PUT", "DELETE", "HEAD", "BREW"];
const PATHS: [&str; 5] = ["/lfs/produce", "/lfs/download", "/lfs/uploads", "/lfs/uploads/id/parts/1", "/"];
const ENDS: [BodyEnd; 3] = [BodyEnd::Whole, BodyEnd::Cut, BodyEnd::Stalls];
/// Headers that something depends on.
const NAMES: [&str; 13] = [
    "x-kafka-topic",
    "x-kafka-key",
    "x-kafka-partition",
    "x-lfs-checksum",
    "x-lfs-checksum-alg",
    "x-lfs-size",
    "x-lfs-mode",
    "content-type",
    "content-length",
    "transfer-encoding",
    "x-request-id",
    "x-api-key",
    "authorization",
];
/// From this byte on a name or a path is drawn instead of taken from the list.
const DRAWN: u8 = 0xf0;

/// Method, path, headers (count; name and piece each), how the body ends, and the body.
pub fn http_heads(input: &[u8]) {
    let mut draw = Draw::new(input);
    let Some((head, end)) = head(&mut draw) else { return };
    let mut shard = LoneShard::new(|asked| honest_answer(asked).map_or(Does::Close, Does::Write));
    let body = draw.rest().chunks(300).map(Bytes::copy_from_slice);
    let exchange = shard.request(head, HttpClient::new(body, end));
    shard.run(Duration::from_secs(400));
    let client = shard.exchange(exchange);
    match client.status() {
        None => assert!(client.is_aborted() || end != BodyEnd::Whole, "a whole request is answered"),
        // Paths that are none of the API's.
        Some(404) if client.body() == b"404 page not found\n" => {}
        Some(status) if status >= 400 => {
            assert_ne!(status, 500, "a request is at fault, not the proxy");
            let body: serde_json::Value = serde_json::from_slice(client.body()).expect("an error is JSON");
            assert!(body["code"].is_string() && body["message"].is_string(), "{body}");
        }
        Some(_) => assert!(client.is_complete(), "a success is whole"),
    }
    shard.end();
}

/// The head; `None` when no HTTP parser would let it through.
fn head(draw: &mut Draw<'_>) -> Option<(http::request::Parts, BodyEnd)> {
    let method = Method::from_bytes(draw.choose(&METHODS).as_bytes()).ok()?;
    let path = draw.byte();
    let uri = if path >= DRAWN { Uri::try_from(draw.piece()).ok()? } else { Uri::from_static(pick(&PATHS, path)) };
    let (mut head, ()) = Request::builder().method(method).uri(uri).body(()).ok()?.into_parts();
    for _ in 0..draw.byte() % 16 {
        let name = draw.byte();
        let name = if name >= DRAWN {
            HeaderName::from_bytes(draw.piece()).ok()?
        } else {
            HeaderName::from_static(pick(&NAMES, name))
        };
        head.headers.append(name, HeaderValue::from_bytes(draw.piece()).ok()?);
    }
    Some((head, *draw.choose(&ENDS)))
}

fn pick(list: &[&'static str], byte: u8) -> &'static str {
    list[usize::from(byte) % list.len()]
}

/// An honest upload of two parts.
pub(super) fn upload(shard: &mut LoneShard<'_>) -> ExchangeId {
    let head = Request::post("/lfs/produce").header("x-kafka-topic", TOPIC).header("x-kafka-partition", "1");
    let (head, ()) = head.body(()).expect("a fixed request is valid").into_parts();
    shard.request(head, HttpClient::new([Bytes::from_static(&[9; 300])], BodyEnd::Whole))
}

/// The input that makes this request.
pub(super) fn http_input(path: u8, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut out = vec![0, path, u8::try_from(headers.len()).expect("there are few headers")];
    for (name, value) in headers {
        let index = NAMES.iter().position(|known| known == name).expect("the header is listed");
        out.push(u8::try_from(index).expect("there are few names"));
        put_piece(&mut out, value.as_bytes());
    }
    out.push(0);
    out.extend_from_slice(body);
    out
}
