//! Bytes that are no Kafka, or a broken Kafka, on the port for Kafka clients: each gets an end or an answer, and nobody else
//! notices.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use kafscale_proxy_core::kafka::{
    ApiKey, ApiVersionsRequest, ErrorCode, Message, MetadataRequest, MetadataResponse, ResponseHeader, request_frame,
};
use kafscale_proxy_tests::peers::{Deployment, PARTITIONS, Wire, eventually, produce_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Whatever is refused is refused at once; a busy machine may take longer.
const AT_ONCE: Duration = Duration::from_secs(15);
/// Time for what must not happen.
const QUIET: Duration = Duration::from_millis(500);

/// What the proxy does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The connection ends without an answer, and the log says this.
    Closed(&'static str),
    /// Nothing yet: more may come.
    Waits,
}

/// A frame around these bytes.
fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(i32::try_from(payload.len()).expect("short"));
    frame.put_slice(payload);
    frame
}

/// A request with this head, client id `hostile`, and this body.
fn request(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_i16(api);
    payload.put_i16(version);
    payload.put_i32(7);
    payload.put_i16(7);
    payload.put_slice(b"hostile");
    payload.put_slice(body);
    frame(&payload)
}

async fn connect(deployment: &Deployment) -> TcpStream {
    TcpStream::connect(&deployment.proxy.kafka).await.expect("the proxy listens")
}

/// What the peer says until it closes; `None` when it does not close in time.
async fn read_to_end(stream: &mut TcpStream, limit: Duration) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    match timeout(limit, stream.read_to_end(&mut answer)).await {
        Ok(Ok(_)) => Some(answer),
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionReset => Some(answer),
        Ok(Err(error)) => panic!("{error}"),
        Err(_) => None,
    }
}

async fn is_well(deployment: &Deployment) {
    let mut wire = Wire::connect(&deployment.proxy.kafka).await;
    for partition in 0..PARTITIONS {
        let produced = timeout(AT_ONCE, wire.ask(9, &produce_request(partition, "well"))).await;
        let produced = produced.expect("a healthy client is served");
        assert_eq!(produced.responses[0].partition_responses[0].error_code, ErrorCode::NONE);
    }
}

#[tokio::test]
async fn what_is_no_kafka_is_closed_with_the_reason_in_the_log() {
    let deployment = Deployment::start(&[]).await;
    let out_of_range = Fate::Closed("out of range");
    let rows: &[(&str, Vec<u8>, Fate)] = &[
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), Fate::Closed("looks like TLS")),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n".to_vec(), Fate::Closed("looks like HTTP")),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), Fate::Closed("looks like HTTP")),
        ("length 0", vec![0; 4], out_of_range),
        ("length 3", frame(b"abc"), out_of_range),
        ("length -1", vec![0xff; 4], out_of_range),
        ("length 2^31-1", vec![0x7f, 0xff, 0xff, 0xff], out_of_range),
        ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), out_of_range),
        ("no bytes of a frame", frame(&[0; 64])[..20].to_vec(), Fate::Waits),
        ("half a length", vec![0, 0], Fate::Waits),
        ("an API that nobody has", request(999, 0, b""), Fate::Closed("api_key=999 ")),
        ("a negative API key", request(-1, 0, b""), Fate::Closed("api_key=-1 ")),
        ("a version that nobody has", request(3, 99, b""), Fate::Closed("api_version=99 ")),
        ("a negative version", request(3, -1, b""), Fate::Closed("api_version=-1 ")),
        ("2^31-1 topics", request(3, 1, &[0x7f, 0xff, 0xff, 0xff]), Fate::Closed("api=Some(Metadata)")),
        (
            "a topic that is longer than its frame",
            request(3, 1, &[0, 0, 0, 1, 0x7f, 0xff, b'x']),
            Fate::Closed("api=Some(Metadata)"),
        ),
        (
            "a topic that is not UTF-8",
            request(3, 1, &[0, 0, 0, 1, 0, 2, 0xc3, 0x28]),
            Fate::Closed("api=Some(Metadata)"),
        ),
        (
            "a client id that is longer than its frame",
            frame(b"\0\x03\0\x01\0\0\0\x07\x7f\xff"),
            Fate::Closed("request header does not decode"),
        ),
        ("Produce of nothing", request(0, 8, b""), Fate::Closed("api=Some(Produce)")),
        ("a head without its tags", request(0, 9, b""), Fate::Closed("request header does not decode")),
    ];
    for (name, bytes, fate) in rows {
        let logged = deployment.proxy.log().len();
        let mut stream = connect(&deployment).await;
        stream.write_all(bytes).await.expect("the proxy takes bytes");
        match fate {
            Fate::Waits => assert_eq!(read_to_end(&mut stream, QUIET).await, None, "{name}"),
            Fate::Closed(reason) => {
                assert_eq!(read_to_end(&mut stream, AT_ONCE).await, Some(Vec::new()), "{name}");
                let said = || deployment.proxy.log()[logged..].to_owned();
                eventually("the log names the reason", AT_ONCE, async || said().contains(reason)).await;
            }
        }
        is_well(&deployment).await;
    }
}

#[tokio::test]
async fn bytes_by_chance_never_hurt_others() {
    let deployment = Deployment::start(&[]).await;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut streams = Vec::new();
    for round in 0..200 {
        let mut bytes: Vec<u8> = (0..next() % 400).map(|_| next() as u8).collect();
        if round % 2 == 0 && bytes.len() > 12 {
            // What looks like a frame of a known API goes further than what does not.
            let head = frame(&bytes)[..4].to_vec();
            bytes[1] = (next() % 50) as u8;
            bytes[0] = 0;
            bytes[2] = 0;
            bytes[3] = (next() % 13) as u8;
            bytes.splice(0..0, head);
        }
        let mut stream = connect(&deployment).await;
        // The proxy may have closed in the middle.
        let _ = stream.write_all(&bytes).await;
        streams.push(stream);
    }
    is_well(&deployment).await;
    drop(streams);
    is_well(&deployment).await;
}

/// KIP-511: whoever asks for a version of ApiVersions that the server lacks can read the answer and ask again.
#[tokio::test]
async fn api_versions_of_the_future_is_answered_in_the_oldest_layout() {
    let deployment = Deployment::start(&[]).await;
    for version in [5, 9, 127] {
        let mut wire = Wire::connect(&deployment.proxy.kafka).await;
        wire.send_bytes(&request(18, version, b"\x00\x42\x17what is this")).await.expect("the proxy takes bytes");
        let answer =
            timeout(AT_ONCE, wire.receive_frame()).await.expect("an answer").expect("a frame").expect("no end");
        let mut rest = &answer[4..];
        let mut take = |length: usize| {
            let (taken, left) = rest.split_at(length);
            rest = left;
            taken.iter().fold(0_i64, |number, byte| number << 8 | i64::from(*byte))
        };
        assert_eq!((take(4), take(2)), (7, i64::from(ErrorCode::UNSUPPORTED_VERSION.0)), "version {version}");
        let rows: Vec<[i64; 3]> = (0..take(4)).map(|_| [take(2), take(2), take(2)]).collect();
        assert!(rows.iter().any(|[key, min, max]| *key == 18 && min <= max), "{rows:?}");
        let again = wire.ask(3, &ApiVersionsRequest::default()).await;
        assert_eq!(again.error_code, ErrorCode::NONE);
    }
}

/// What is told is true at both ends, and one above has an end that is no silence.
#[tokio::test]
async fn the_version_after_the_last_is_no_silence() {
    let deployment = Deployment::start(&[]).await;
    let mut wire = Wire::connect(&deployment.proxy.kafka).await;
    let told = wire.ask(3, &ApiVersionsRequest::default()).await.api_keys;
    assert!(told.len() > 10, "{told:?}");
    for row in told.iter().filter(|row| row.api_key != 18) {
        let mut stream = connect(&deployment).await;
        stream.write_all(&request(row.api_key, row.max_version + 1, b"")).await.expect("the proxy takes bytes");
        let answer = read_to_end(&mut stream, AT_ONCE).await;
        assert!(answer.is_some(), "API {} version {}", row.api_key, row.max_version + 1);
    }
    is_well(&deployment).await;
}

/// Announced lengths reserve nothing: five hundred who announce the largest frame and send a byte of it cost no memory, and
/// nobody else notices.
#[tokio::test]
async fn five_hundred_half_frames_cost_nothing() {
    let deployment = Deployment::start(&[]).await;
    is_well(&deployment).await;
    let before = deployment.proxy.resident_kib();
    let mut streams = Vec::new();
    for length in [100 * 1024 * 1024, 60_000].repeat(250) {
        let mut stream = connect(&deployment).await;
        let mut bytes = Vec::new();
        bytes.put_i32(length);
        bytes.put_u8(0);
        stream.write_all(&bytes).await.expect("the proxy takes bytes");
        streams.push(stream);
    }
    is_well(&deployment).await;
    let grown = deployment.proxy.resident_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB");
    drop(streams);
    is_well(&deployment).await;
}

/// Many requests in one segment, cut anywhere, are as good as one by one.
#[tokio::test]
async fn frames_may_be_cut_anywhere() {
    let deployment = Deployment::start(&[]).await;
    let mut stream = connect(&deployment).await;
    stream.set_nodelay(true).expect("a socket has TCP_NODELAY");
    let metadata = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let frames: Vec<u8> = (1..=3).flat_map(|id| request_frame(id, Some("cut"), 9, &metadata).to_vec()).collect();
    for byte in frames {
        stream.write_all(&[byte]).await.expect("the proxy takes a byte");
        stream.flush().await.expect("the proxy takes a byte");
    }
    for id in 1..=3 {
        let length = timeout(AT_ONCE, stream.read_i32()).await.expect("an answer in time").expect("a length");
        let mut payload = vec![0; usize::try_from(length).expect("a length")];
        timeout(AT_ONCE, stream.read_exact(&mut payload)).await.expect("an answer in time").expect("an answer");
        let answer = Bytes::from(frame(&payload));
        let (header, body) = ResponseHeader::decode(&answer, ApiKey::Metadata, 9).expect("a header");
        assert_eq!(header.correlation_id, id);
        MetadataResponse::decode(&answer.slice(body..), 9).expect("Metadata");
    }
}
