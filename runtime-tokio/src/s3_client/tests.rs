//! Against an S3 server in this process (s3s with its file system), which checks signatures, and against a stub that
//! answers whatever the test wants.
#![expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes fails the test")]

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::*;

struct Bench {
    s3: Rc<S3Client>,
    facts: mpsc::UnboundedReceiver<inputs::S3>,
    next_operation: u64,
}

fn settings(address: SocketAddr, secret_key: &str) -> S3Settings {
    let endpoint = Some(format!("http://{address}"));
    S3Settings {
        bucket: "blobs".into(),
        region: "eu-west-1".into(),
        public_endpoint: Some("http://public.example:9000".into()),
        endpoint,
        credentials: Some(S3Credentials {
            access_key: "access".into(),
            secret_key: secret_key.into(),
            session_token: None,
        }),
        connect_timeout: Duration::from_secs(5),
        path_style: true,
        sign_payload: false,
        request_checksum: false,
    }
}

impl Bench {
    async fn new(settings: S3Settings) -> Self {
        let (sender, facts) = mpsc::unbounded_channel();
        let report = Report::new(move |fact| {
            if let Input::S3(fact) = fact {
                let _ = sender.send(fact);
            }
        });
        Self { s3: Rc::new(S3Client::new(settings, report).await), facts, next_operation: 0 }
    }

    fn start(&mut self, request: Request) -> OperationId {
        self.next_operation += 1;
        let operation = OperationId(self.next_operation);
        self.s3.carry_out(effects::S3::Request { operation, request });
        operation
    }

    async fn outcome(&mut self, operation: OperationId) -> Outcome<Response, Refusal> {
        let fact = tokio::time::timeout(Duration::from_secs(20), self.facts.recv()).await.expect("a fact in time");
        match fact.unwrap() {
            inputs::S3::Finished { operation: done, outcome } if done == operation => outcome,
            other => panic!("not the completion: {other:?}"),
        }
    }

    async fn ask(&mut self, request: Request) -> Outcome<Response, Refusal> {
        let operation = self.start(request);
        self.outcome(operation).await
    }

    async fn read_all(&mut self, object: OperationId, max_bytes: usize) -> (Vec<u8>, ReadResult) {
        let mut all = Vec::new();
        loop {
            self.next_operation += 1;
            let operation = OperationId(self.next_operation);
            self.s3.carry_out(effects::S3::ReadObject { operation, object, max_bytes });
            match self.facts.recv().await.unwrap() {
                inputs::S3::ObjectRead { operation: done, result } if done == operation => match result {
                    ReadResult::Chunk(bytes) => {
                        assert!(bytes.len() <= max_bytes);
                        all.extend_from_slice(&bytes);
                    }
                    end => return (all, end),
                },
                other => panic!("not the read: {other:?}"),
            }
        }
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

async fn store(folder: &std::path::Path) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(FileSystem::new(folder).unwrap());
    builder.set_auth(SimpleAuth::from_single("access", "secret"));
    let service = builder.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
            spawn_local(async move { drop(connection.await) });
        }
    });
    address
}

fn put(key: &str, body: &[&'static [u8]]) -> Request {
    let mut hasher = Sha256::new();
    body.iter().for_each(|bytes| hasher.update(bytes));
    Request::PutObject {
        key: key.into(),
        body: body.iter().map(|bytes| Bytes::from_static(bytes)).collect(),
        sha256: hasher.finalize().into(),
        content_type: Some("text/plain".into()),
    }
}

const DONE: Outcome<Response, Refusal> = Outcome::Applied(Response::Done);

#[test]
fn objects_come_back_as_they_were_stored() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let address = store(folder.path()).await;
        let mut bench = Bench::new(settings(address, "secret")).await;
        assert_eq!(bench.ask(Request::HeadBucket).await, Outcome::NotApplied(Refusal::NoSuchBucket));
        assert_eq!(bench.ask(Request::CreateBucket).await, DONE);
        assert_eq!(bench.ask(Request::CreateBucket).await, DONE, "one that is ours counts as created");
        assert_eq!(bench.ask(Request::HeadBucket).await, DONE);

        let key = "default/a topic/lfs/obj-ü+1";
        assert_eq!(bench.ask(put(key, &[b"hello ", b"", b"world"])).await, DONE);
        let object = Response::Object { size: 11, content_type: Some("text/plain".into()) };
        assert_eq!(bench.ask(Request::HeadObject { key: key.into() }).await, Outcome::Applied(object.clone()));
        let opened = bench.start(Request::GetObject { key: key.into() });
        assert_eq!(bench.outcome(opened).await, Outcome::Applied(object));
        assert_eq!(bench.read_all(opened, 4).await, (b"hello world".to_vec(), ReadResult::End));
        let again = bench.read_all(opened, 4).await;
        assert!(matches!(again.1, ReadResult::Broken(_)), "a read object is released");

        assert_eq!(bench.ask(Request::DeleteObject { key: key.into() }).await, DONE);
        assert_eq!(bench.ask(Request::GetObject { key: key.into() }).await, Outcome::NotApplied(Refusal::NoSuchKey));
        assert_eq!(bench.ask(Request::HeadObject { key: key.into() }).await, Outcome::NotApplied(Refusal::NoSuchKey));
    });
}

#[test]
fn parts_become_one_object_signed_or_not() {
    for sign_payload in [false, true] {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let address = store(folder.path()).await;
            let mut bench = Bench::new(S3Settings { sign_payload, ..settings(address, "secret") }).await;
            assert_eq!(bench.ask(Request::CreateBucket).await, DONE);
            let key = String::from("default/t/lfs/obj-1");
            let created = bench.ask(Request::CreateMultipartUpload { key: key.clone(), content_type: None }).await;
            let Outcome::Applied(Response::UploadCreated(upload_id)) = created else { panic!("{created:?}") };
            let mut parts = Vec::new();
            for (part_number, size) in [(1, 5 << 20), (2, 1000)] {
                let body = vec![Bytes::from(vec![part_number as u8; size - 1]), Bytes::from_static(b"!")];
                let stored = Request::UploadPart { key: key.clone(), upload_id: upload_id.clone(), part_number, body };
                let stored = bench.ask(stored).await;
                let Outcome::Applied(Response::PartStored(etag)) = stored else { panic!("{stored:?}") };
                assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
                parts.push((part_number, etag));
            }
            let complete = Request::CompleteMultipartUpload { key: key.clone(), upload_id, parts };
            assert_eq!(bench.ask(complete).await, DONE);
            let opened = bench.start(Request::GetObject { key });
            let opened_outcome = bench.outcome(opened).await;
            assert!(
                matches!(opened_outcome, Outcome::Applied(Response::Object { size, .. }) if size == (5 << 20) + 1000)
            );
            let (bytes, end) = bench.read_all(opened, 256 * 1024).await;
            assert_eq!((bytes.len(), end), ((5 << 20) + 1000, ReadResult::End));
        });
    }
}

#[test]
fn a_wrong_key_is_denied_and_a_wrong_digest_is_refused() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let address = store(folder.path()).await;
        let mut bench = Bench::new(settings(address, "secret")).await;
        assert_eq!(bench.ask(Request::CreateBucket).await, DONE);
        let mut wrong = Bench::new(settings(address, "guess")).await;
        let denied = wrong.ask(put("default/t/lfs/x", &[b"x"])).await;
        assert!(matches!(denied, Outcome::NotApplied(Refusal::AccessDenied(_))), "{denied:?}");
        let Request::PutObject { key, body, content_type, .. } = put("default/t/lfs/x", &[b"x"]) else { panic!() };
        let refused = bench.ask(Request::PutObject { key, body, content_type, sha256: [0; 32] }).await;
        // The store compares the digest that was signed with the bytes that came.
        assert!(!matches!(refused, Outcome::Applied(_)), "{refused:?}");
    });
}

#[test]
fn urls_are_presigned_for_the_public_endpoint() {
    run(async {
        let mut bench = Bench::new(settings("127.0.0.1:1".parse().unwrap(), "secret")).await;
        let url = bench.ask(Request::PresignGetObject { key: "default/t/lfs/x".into(), expires_seconds: 77 }).await;
        let Outcome::Applied(Response::Url(url)) = url else { panic!("{url:?}") };
        assert!(url.starts_with("http://public.example:9000/blobs/default/t/lfs/x?"), "{url}");
        assert!(url.contains("X-Amz-Expires=77") && url.contains("X-Amz-Signature="), "{url}");
    });
}

/// What the stub does with each connection after a whole request.
#[derive(Clone, Copy)]
enum Answer {
    Text(&'static str),
    /// As a bucket with Object Lock: 400 unless the head has a checksum.
    IfChecksum(&'static str),
    /// This, and nothing more; the connection stays until the client closes it.
    Stall(&'static str),
    Reset,
    Silence,
}

const DEMANDS_A_CHECKSUM: &str =
    "HTTP/1.1 400 Bad Request\r\nContent-Length: 42\r\n\r\n<Error><Code>InvalidRequest</Code></Error>";

/// Answers every request the same and keeps the heads.
async fn stub(answer: Answer) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heads);
    spawn_local(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            let text = loop {
                let mut bytes = [0; 4096];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                received.extend_from_slice(&bytes[..read]);
                let text = String::from_utf8_lossy(&received).to_lowercase();
                let length =
                    text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
                if read == 0 || body.is_some_and(|body| body >= length.unwrap_or(0)) {
                    break text;
                }
            };
            let has_checksum = text.contains("\r\ncontent-md5: ") || text.contains("\r\nx-amz-checksum-");
            kept.lock().unwrap().push(text);
            match answer {
                Answer::IfChecksum(_) if !has_checksum => drop(stream.write_all(DEMANDS_A_CHECKSUM.as_bytes()).await),
                Answer::IfChecksum(text) => drop(stream.write_all(text.as_bytes()).await),
                Answer::Text(text) => drop(stream.write_all(text.as_bytes()).await),
                Answer::Stall(text) => {
                    stream.write_all(text.as_bytes()).await.unwrap();
                    let _ = stream.read(&mut [0]).await;
                    kept.lock().unwrap().push("closed".into());
                }
                Answer::Reset => {
                    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                }
                Answer::Silence => std::future::pending().await,
            }
        }
    });
    (address, heads)
}

/// Neither chunks with trailers nor checksums that stores may not know, whether a checksum is sent or not.
#[test]
fn what_goes_over_the_wire_suits_stores_that_know_no_trailers() {
    for request_checksum in [false, true] {
        run(async {
            let (address, heads) = stub(Answer::Text(STORED)).await;
            let mut bench = Bench::new(S3Settings { request_checksum, ..settings(address, "secret") }).await;
            assert_eq!(bench.ask(put("k", &[b"hel", b"lo"])).await, DONE);
            assert_eq!(bench.ask(part()).await, Outcome::Applied(Response::PartStored("\"e\"".into())));
            let heads = heads.lock().unwrap();
            let digest = "x-amz-content-sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
            assert!(heads[0].contains(digest) && heads[0].contains("content-length: 5\r\n"), "{}", heads[0]);
            assert!(heads[1].contains("x-amz-content-sha256: unsigned-payload"), "{}", heads[1]);
            assert_eq!(
                heads[0].contains("content-md5: xufakrxlkna5cz2rebffkg==\r\n"),
                request_checksum,
                "{}",
                heads[0]
            );
            for head in heads.iter() {
                assert_eq!(head.contains("content-md5"), request_checksum, "{head}");
                for unwanted in [
                    "x-amz-trailer",
                    "aws-chunked",
                    "x-amz-checksum",
                    "x-amz-sdk-checksum",
                    "transfer-encoding",
                    "expect:",
                ] {
                    assert!(!head.contains(unwanted), "{head}");
                }
            }
        });
    }
}

#[test]
fn a_bucket_that_demands_a_checksum_gets_one_when_told_to() {
    run(async {
        let (address, _) = stub(Answer::IfChecksum(STORED)).await;
        let mut without = Bench::new(settings(address, "secret")).await;
        let mut with = Bench::new(S3Settings { request_checksum: true, ..settings(address, "secret") }).await;
        for request in [put("k", &[b"x"]), part()] {
            let refused = without.ask(request.clone()).await;
            assert!(matches!(refused, Outcome::NotApplied(Refusal::Other(_))), "{refused:?}");
            assert!(matches!(with.ask(request).await, Outcome::Applied(_)));
        }
    });
}

const STORED: &str = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n";

/// What something that is no S3 may say to anything.
const NOTHING: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>";
const PAGE_WITH_ETAG: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"5f\"\r\nContent-Length: 6\r\n\r\n<html>";
const EMPTY_ETAG: &str = "HTTP/1.1 200 OK\r\nETag: \r\nContent-Length: 0\r\n\r\n";
const EMPTY_ID: &str = "HTTP/1.1 200 OK\r\nContent-Length: 96\r\n\r\n<InitiateMultipartUploadResult><Key>k</Key><UploadId></UploadId></InitiateMultipartUploadResult>";

fn part() -> Request {
    let body = vec![Bytes::from_static(b"part")];
    Request::UploadPart { key: "k".into(), upload_id: "u".into(), part_number: 1, body }
}

fn create() -> Request {
    Request::CreateMultipartUpload { key: "k".into(), content_type: None }
}

fn delete() -> Request {
    Request::DeleteObject { key: "k".into() }
}

fn abort() -> Request {
    Request::AbortMultipartUpload { key: "k".into(), upload_id: "u".into() }
}

#[test]
fn what_stores_say_to_a_delete_an_abort_and_a_head_is_enough() {
    let no_content = "HTTP/1.1 204 No Content\r\n\r\n";
    let identified = "HTTP/1.1 200 OK\r\nx-amz-request-id: 17\r\nContent-Length: 0\r\n\r\n";
    let xml = "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\r\n";
    for (answer, request) in [
        (no_content, delete()),
        (no_content, abort()),
        (identified, delete()),
        (identified, abort()),
        (identified, Request::HeadBucket),
        (xml, Request::HeadBucket),
        (NOTHING, Request::HeadBucket),
    ] {
        run(async {
            let (address, _) = stub(Answer::Text(answer)).await;
            let mut bench = Bench::new(settings(address, "secret")).await;
            assert_eq!(bench.ask(request.clone()).await, DONE, "{answer} to {request:?}");
        });
    }
}

#[test]
fn answers_that_prove_nothing_are_unknown_and_are_not_repeated() {
    let complete = || Request::CompleteMultipartUpload {
        key: "k".into(),
        upload_id: "u".into(),
        parts: vec![(1, "\"e\"".into())],
    };
    let error = "HTTP/1.1 200 OK\r\nContent-Length: 106\r\n\r\n<?xml version=\"1.0\"?>     <Error><Code>InternalError</Code><Message>try again, please</Message></Error>     ";
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n<CompleteMultipartUploadResult><Buck";
    for (name, answer, request) in [
        ("200 and an error", Answer::Text(error), complete()),
        ("200 and nothing", Answer::Text("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), complete()),
        ("200 and a cut document", Answer::Text(cut), complete()),
        ("500", Answer::Text("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), put("k", &[b"x"])),
        ("a page of a gateway", Answer::Text("HTTP/1.1 502 No\r\nContent-Length: 6\r\n\r\n<html>"), put("k", &[b"x"])),
        ("a reset", Answer::Reset, put("k", &[b"x"])),
        ("a part without an ETag", Answer::Text(NOTHING), part()),
        ("a part with an empty ETag", Answer::Text(EMPTY_ETAG), part()),
        ("an object without an ETag", Answer::Text(NOTHING), put("k", &[b"x"])),
        ("an object with an empty ETag", Answer::Text(EMPTY_ETAG), put("k", &[b"x"])),
        ("a page in place of an object", Answer::Text(PAGE), put("k", &[b"x"])),
        ("a page with an ETag in place of an object", Answer::Text(PAGE_WITH_ETAG), put("k", &[b"x"])),
        ("a page with an ETag in place of a part", Answer::Text(PAGE_WITH_ETAG), part()),
        ("a page in place of a new bucket", Answer::Text(PAGE), Request::CreateBucket),
        ("an upload with an empty id", Answer::Text(EMPTY_ID), create()),
        ("a page in place of a delete", Answer::Text(PAGE), delete()),
        ("a delete by whoever answers 200", Answer::Text(NOTHING), delete()),
        ("a delete and an error", Answer::Text(error), delete()),
        ("a page in place of an abort", Answer::Text(PAGE), abort()),
        ("an abort and an error", Answer::Text(error), abort()),
        ("a page in place of a bucket", Answer::Text(PAGE), Request::HeadBucket),
    ] {
        run(async {
            let (address, heads) = stub(answer).await;
            let mut bench = Bench::new(settings(address, "secret")).await;
            let outcome = bench.ask(request).await;
            assert!(matches!(outcome, Outcome::Unknown(_)), "{name}: {outcome:?}");
            assert_eq!(heads.lock().unwrap().len(), 1, "{name}: sent again");
        });
    }
}

#[test]
fn a_log_line_names_code_message_and_request_id_and_nothing_else() {
    let refused = "HTTP/1.1 403 Forbidden\r\nx-amz-request-id: 4711\r\nX-Secret: s3cr3t\r\nContent-Length: 95\r\n\r\n<Error><Code>AccessDenied</Code><Message>not\nfor you</Message><Resource>s3cr3t</Resource></Error>";
    run(async {
        for (answer, expected) in [
            (Answer::Text(refused), "403 AccessDenied: not for you; request id 4711"),
            (Answer::Text("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"), "403 no error document; request id none"),
        ] {
            let (address, _) = stub(answer).await;
            let mut bench = Bench::new(settings(address, "secret")).await;
            let denied = Outcome::NotApplied(Refusal::AccessDenied(expected.into()));
            assert_eq!(bench.ask(put("k", &[b"x"])).await, denied);
        }
        for (answer, word) in [(Answer::Reset, "dispatch failure"), (Answer::Text(NOTHING), "no ETag")] {
            let (address, _) = stub(answer).await;
            let mut bench = Bench::new(settings(address, "secret")).await;
            let outcome = bench.ask(put("k", &[b"x"])).await;
            let Outcome::Unknown(text) = outcome else { panic!("{outcome:?}") };
            assert!(text.contains(word) && text.len() < 300 && !text.contains("HttpResponse"), "{text}");
        }
    });
}

#[test]
fn no_connection_is_no_request() {
    run(async {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let mut bench = Bench::new(settings(closed, "secret")).await;
        let outcome = bench.ask(put("k", &[b"x"])).await;
        assert!(matches!(outcome, Outcome::NotApplied(Refusal::Unreachable(_))), "{outcome:?}");
    });
}

#[test]
fn a_cancelled_request_completes_at_once_as_unknown() {
    run(async {
        let (address, _) = stub(Answer::Silence).await;
        let mut bench = Bench::new(settings(address, "secret")).await;
        let operation = bench.start(put("k", &[b"x"]));
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.s3.carry_out(effects::S3::Cancel { operation });
        assert!(matches!(bench.outcome(operation).await, Outcome::Unknown(_)));
        bench.s3.carry_out(effects::S3::Cancel { operation });
        assert!(bench.facts.try_recv().is_err());
    });
}

#[test]
fn an_object_that_breaks_off_never_ends() {
    run(async {
        let (address, _) = stub(Answer::Text("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")).await;
        let mut bench = Bench::new(settings(address, "secret")).await;
        let opened = bench.start(Request::GetObject { key: "k".into() });
        assert!(matches!(bench.outcome(opened).await, Outcome::Applied(Response::Object { size: 10, .. })));
        let (bytes, end) = bench.read_all(opened, 100).await;
        assert!(bytes.len() <= 3 && matches!(end, ReadResult::Broken(_)), "{end:?}");
    });
}

/// A store that opens an object and falls silent costs nothing once the object is released: no open read, no socket.
#[test]
fn a_released_object_ends_its_read_and_its_connection() {
    run(async {
        let (address, heads) = stub(Answer::Stall("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")).await;
        let mut bench = Bench::new(settings(address, "secret")).await;
        let object = bench.start(Request::GetObject { key: "k".into() });
        assert!(matches!(bench.outcome(object).await, Outcome::Applied(Response::Object { size: 10, .. })));
        for (number, expected) in [(100, ReadResult::Chunk("abc".into())), (101, ReadResult::Broken("released".into()))]
        {
            let operation = OperationId(number);
            bench.s3.carry_out(effects::S3::ReadObject { operation, object, max_bytes: 100 });
            if number == 101 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                assert!(bench.facts.try_recv().is_err(), "nothing has come");
                bench.s3.carry_out(effects::S3::ReleaseObject { object });
            }
            let fact = tokio::time::timeout(Duration::from_secs(5), bench.facts.recv()).await.expect("a fact in time");
            let expected = inputs::S3::ObjectRead { operation, result: expected };
            assert_eq!(format!("{:?}", fact.unwrap()), format!("{expected:?}"));
        }
        assert!(bench.s3.objects.borrow().is_empty());
        tokio::time::timeout(Duration::from_secs(5), async {
            while heads.lock().unwrap().last().is_none_or(|last| last != "closed") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the connection is closed");
    });
}
