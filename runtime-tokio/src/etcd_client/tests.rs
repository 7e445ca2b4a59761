//! Against a real etcd, started for each test on free ports of 127.0.0.1.
#![expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes fails the test")]

use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::*;

/// An etcd server that ends with the test.
struct Server {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (address, peer) = (free_address().await, format!("http://{}", free_address().await));
        let client = format!("http://{address}");
        let child = Command::new("etcd")
            .args(["--name=test", "--log-level=error", "--logger=zap"])
            .arg(format!("--data-dir={}", folder.path().join("data").display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=test={peer}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd on the PATH");
        let server = Self { child, address, _folder: folder };
        let mut bench = server.bench();
        for _ in 0..100 {
            if let Outcome::Applied(_) = bench.ask(get("/")).await {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("etcd did not start");
    }

    fn bench(&self) -> Bench {
        Bench::new(&[&self.address], None)
    }
}

struct Bench {
    etcd: Rc<EtcdClient>,
    facts: mpsc::UnboundedReceiver<inputs::Etcd>,
    next_operation: u64,
}

impl Bench {
    fn new(endpoints: &[&str], user: Option<(&str, &str)>) -> Self {
        let (sender, facts) = mpsc::unbounded_channel();
        let report = Report::new(move |fact| {
            if let Input::Etcd(fact) = fact {
                let _ = sender.send(fact);
            }
        });
        let settings = EtcdSettings {
            endpoints: endpoints.iter().map(|text| (*text).to_owned()).collect(),
            user: user.map(|(name, password)| (name.to_owned(), password.to_owned())),
        };
        Self { etcd: Rc::new(EtcdClient::new(&settings, report).unwrap()), facts, next_operation: 0 }
    }

    fn operation(&mut self) -> OperationId {
        self.next_operation += 1;
        OperationId(self.next_operation)
    }

    async fn fact(&mut self) -> inputs::Etcd {
        tokio::time::timeout(Duration::from_secs(15), self.facts.recv()).await.expect("a fact in time").unwrap()
    }

    async fn ask(&mut self, request: etcd::Request) -> Outcome<etcd::Response, Refusal> {
        let operation = self.operation();
        self.etcd.carry_out(effects::Etcd::Request { operation, request });
        match self.fact().await {
            inputs::Etcd::Finished { operation: done, outcome } if done == operation => outcome,
            other => panic!("not the completion: {other:?}"),
        }
    }

    async fn txn(&mut self, txn: etcd::TxnRequest) -> etcd::TxnResponse {
        match self.ask(etcd::Request::Txn(txn)).await {
            Outcome::Applied(etcd::Response::Txn(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    async fn put(&mut self, key: &'static str, value: &'static str) -> etcd::Revision {
        self.txn(etcd::TxnRequest { success: vec![put(key, value, 0)], ..Default::default() }).await.revision
    }

    async fn range(&mut self, request: etcd::RangeRequest) -> etcd::RangeResponse {
        match self.ask(etcd::Request::Range(request)).await {
            Outcome::Applied(etcd::Response::Range(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    fn watch(&mut self, prefix: &'static str, start_revision: etcd::Revision) -> OperationId {
        let operation = self.operation();
        let request = etcd::WatchRequest { keys: etcd::Keys::prefix(prefix), start_revision };
        self.etcd.carry_out(effects::Etcd::Watch { operation, request });
        operation
    }
}

fn get(key: &'static str) -> etcd::Request {
    etcd::Request::Range(etcd::RangeRequest::of(etcd::Keys::One(key.into())))
}

fn put(key: &'static str, value: &'static str, lease: i64) -> etcd::TxnOperation {
    etcd::TxnOperation::Put { key: key.into(), value: value.into(), lease }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn reads_and_transactions() {
    run(async {
        let server = Server::start().await;
        let mut etcd = server.bench();
        let first = etcd.put("/a/1", "one").await;
        let second = etcd.put("/a/2", "two").await;
        etcd.put("/b", "else").await;
        let all = etcd.range(etcd::RangeRequest::of(etcd::Keys::prefix("/a/"))).await;
        assert_eq!((all.count, all.more, all.kvs.len()), (2, false, 2));
        assert_eq!(
            (&all.kvs[0].key[..], &all.kvs[0].value[..], all.kvs[0].mod_revision),
            (&b"/a/1"[..], &b"one"[..], first)
        );
        let everything = etcd.range(etcd::RangeRequest::of(etcd::Keys::prefix(""))).await;
        assert_eq!(everything.count, 3);
        let page =
            etcd.range(etcd::RangeRequest { limit: 1, ..etcd::RangeRequest::of(etcd::Keys::prefix("/a/")) }).await;
        assert_eq!((page.count, page.more, page.kvs.len()), (2, true, 1));
        let newer =
            etcd::RangeRequest { min_mod_revision: second, ..etcd::RangeRequest::of(etcd::Keys::prefix("/a/")) };
        let newer = etcd.range(newer).await;
        assert_eq!((newer.count, newer.kvs.len()), (2, 1), "the count is not filtered");
        let count = etcd::RangeRequest { count_only: true, ..etcd::RangeRequest::of(etcd::Keys::prefix("/a/")) };
        assert!(etcd.range(count).await.kvs.is_empty());
        let old = etcd::RangeRequest { revision: first, ..etcd::RangeRequest::of(etcd::Keys::prefix("/a/")) };
        assert_eq!(etcd.range(old).await.count, 1);

        let swap = etcd::TxnRequest {
            compares: vec![
                etcd::Compare::ModRevision("/a/1".into(), first),
                etcd::Compare::CreateRevision("/none".into(), 0),
                etcd::Compare::Value("/b".into(), "else".into()),
            ],
            success: vec![put("/a/1", "uno", 0), etcd::TxnOperation::Delete(etcd::Keys::One("/b".into()))],
            failure: vec![etcd::TxnOperation::Range(etcd::RangeRequest::of(etcd::Keys::One("/a/1".into())))],
        };
        let done = etcd.txn(swap.clone()).await;
        assert!(done.succeeded);
        assert_eq!(done.answers, [etcd::TxnAnswer::Put, etcd::TxnAnswer::Delete(1)]);
        let again = etcd.txn(swap).await;
        assert!(!again.succeeded);
        assert!(matches!(&again.answers[..], [etcd::TxnAnswer::Range(range)] if &range.kvs[0].value[..] == b"uno"));

        let future = etcd::RangeRequest { revision: 1 << 40, ..etcd::RangeRequest::of(etcd::Keys::prefix("/a/")) };
        let future = etcd.ask(etcd::Request::Range(future)).await;
        assert!(matches!(future, Outcome::NotApplied(Refusal::Other(_))), "{future:?}");
    });
}

#[test]
fn an_answer_of_many_megabytes_is_read() {
    run(async {
        let server = Server::start().await;
        let mut etcd = server.bench();
        for index in 0..9 {
            let (key, value) = (format!("/big/{index}"), vec![b'x'; 1_000_000]);
            let put = etcd::TxnOperation::Put { key: key.into(), value: value.into(), lease: 0 };
            etcd.txn(etcd::TxnRequest { success: vec![put], ..Default::default() }).await;
        }
        assert_eq!(etcd.range(etcd::RangeRequest::of(etcd::Keys::prefix("/big/"))).await.kvs.len(), 9);
    });
}

#[test]
fn leases() {
    run(async {
        let server = Server::start().await;
        let mut etcd = server.bench();
        let granted = etcd.ask(etcd::Request::LeaseGrant { ttl_seconds: 30 }).await;
        let Outcome::Applied(etcd::Response::LeaseGranted { lease, ttl_seconds: 30 }) = granted else {
            panic!("{granted:?}")
        };
        etcd.txn(etcd::TxnRequest { success: vec![put("/leased", "x", lease)], ..Default::default() }).await;
        let kept = Outcome::Applied(etcd::Response::LeaseKeptAlive { ttl_seconds: 30 });
        assert_eq!(etcd.ask(etcd::Request::LeaseKeepAlive { lease }).await, kept);
        let revoked = Outcome::Applied(etcd::Response::LeaseRevoked);
        assert_eq!(etcd.ask(etcd::Request::LeaseRevoke { lease }).await, revoked);
        assert_eq!(etcd.ask(etcd::Request::LeaseRevoke { lease }).await, revoked, "gone counts as revoked");
        let gone = Outcome::Applied(etcd::Response::LeaseKeptAlive { ttl_seconds: 0 });
        assert_eq!(etcd.ask(etcd::Request::LeaseKeepAlive { lease }).await, gone);
        assert_eq!(etcd.range(etcd::RangeRequest::of(etcd::Keys::One("/leased".into()))).await.count, 0);
        let put = etcd::TxnRequest { success: vec![put("/leased", "x", lease)], ..Default::default() };
        let refused = etcd.ask(etcd::Request::Txn(put)).await;
        assert!(matches!(refused, Outcome::NotApplied(Refusal::Other(_))), "{refused:?}");
    });
}

#[test]
fn a_watch_tells_everything_from_its_start_and_ends_once() {
    run(async {
        let server = Server::start().await;
        let mut etcd = server.bench();
        let first = etcd.put("/w/1", "one").await;
        let mut watcher = server.bench();
        let operation = watcher.watch("/w/", first);
        assert!(
            matches!(watcher.fact().await, inputs::Etcd::WatchCreated { operation: created, .. } if created == operation)
        );
        let second = etcd.put("/w/2", "two").await;
        etcd.put("/other", "x").await;
        etcd.txn(etcd::TxnRequest {
            success: vec![etcd::TxnOperation::Delete(etcd::Keys::One("/w/1".into()))],
            ..Default::default()
        })
        .await;
        let mut seen = Vec::new();
        while seen.len() < 3 {
            match watcher.fact().await {
                inputs::Etcd::WatchEvents { revision, events, .. } => {
                    seen.extend(events.into_iter().map(|event| match event {
                        etcd::WatchEvent::Put(kv) => (true, kv.key, kv.mod_revision),
                        etcd::WatchEvent::Delete { key, mod_revision } => (false, key, mod_revision),
                    }));
                    assert!(seen.iter().all(|(_, _, seen)| *seen <= revision));
                }
                other => panic!("{other:?}"),
            }
        }
        let key = |text: &'static str| Bytes::from_static(text.as_bytes());
        let expected = [(true, key("/w/1"), first), (true, key("/w/2"), second), (false, key("/w/1"), second + 2)];
        assert_eq!(seen, expected);
        watcher.etcd.carry_out(effects::Etcd::Cancel { operation });
        let end = watcher.fact().await;
        assert!(matches!(end, inputs::Etcd::WatchEnded { end: etcd::WatchEnd::Cancelled, .. }), "{end:?}");
        watcher.etcd.carry_out(effects::Etcd::Cancel { operation });
        assert!(watcher.facts.try_recv().is_err());
    });
}

#[test]
fn compacted_history_is_named() {
    run(async {
        let server = Server::start().await;
        let mut etcd = server.bench();
        let first = etcd.put("/c", "1").await;
        etcd.put("/c", "2").await;
        let last = etcd.put("/c", "3").await;
        let client = etcd.etcd.client(&etcd.etcd.members[0]).await.map_err(|_| "no client").unwrap();
        client.kv_client().compact(last, None).await.unwrap();
        let old = etcd::RangeRequest { revision: first, ..etcd::RangeRequest::of(etcd::Keys::One("/c".into())) };
        assert_eq!(etcd.ask(etcd::Request::Range(old)).await, Outcome::NotApplied(Refusal::Compacted(0)));
        let operation = etcd.watch("/c", first);
        loop {
            match etcd.fact().await {
                inputs::Etcd::WatchCreated { .. } => {}
                inputs::Etcd::WatchEnded { operation: ended, end } => {
                    assert_eq!((ended, end), (operation, etcd::WatchEnd::Compacted(last)));
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn no_connection_is_no_request_and_another_member_is_found() {
    run(async {
        let closed = free_address().await;
        let mut alone = Bench::new(&[&closed], None);
        let refused = alone.ask(get("/x")).await;
        assert!(matches!(refused, Outcome::NotApplied(Refusal::Unreachable(_))), "{refused:?}");
        alone.watch("/x", 1);
        let end = alone.fact().await;
        assert!(matches!(end, inputs::Etcd::WatchEnded { end: etcd::WatchEnd::Lost(_), .. }), "{end:?}");

        let mut server = Server::start().await;
        let mut both = Bench::new(&[&closed, &server.address.clone()], None);
        assert!(matches!(both.ask(get("/x")).await, Outcome::Applied(_)));
        both.watch("/x", 0);
        assert!(matches!(both.fact().await, inputs::Etcd::WatchCreated { .. }));
        server.child.kill().unwrap();
        let end = both.fact().await;
        assert!(matches!(end, inputs::Etcd::WatchEnded { end: etcd::WatchEnd::Lost(_), .. }), "{end:?}");
        let gone = both.ask(get("/x")).await;
        assert!(!matches!(gone, Outcome::Applied(_)), "{gone:?}");
    });
}

#[test]
fn silence_is_cancelled_promptly_and_unknown() {
    run(async {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut etcd = Bench::new(&[&silent.local_addr().unwrap().to_string()], None);
        let operation = etcd.operation();
        etcd.etcd.carry_out(effects::Etcd::Request { operation, request: get("/x") });
        let (_held, _) = silent.accept().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let started = tokio::time::Instant::now();
        etcd.etcd.carry_out(effects::Etcd::Cancel { operation });
        assert!(matches!(etcd.fact().await, inputs::Etcd::Finished { outcome: Outcome::Unknown(_), .. }));
        assert!(started.elapsed() < Duration::from_millis(500));
    });
}

#[test]
fn users_are_signed_in_and_wrong_passwords_are_refused() {
    run(async {
        let server = Server::start().await;
        let open = server.bench();
        let mut client = open.etcd.client(&open.etcd.members[0]).await.map_err(|_| "no client").unwrap();
        client.user_add("root", "right", None).await.unwrap();
        client.role_add("root").await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.auth_enable().await.unwrap();
        let mut right = Bench::new(&[&server.address], Some(("root", "right")));
        assert!(matches!(right.ask(get("/x")).await, Outcome::Applied(_)));
        let wrong = Bench::new(&[&server.address], Some(("root", "wrong"))).ask(get("/x")).await;
        assert!(matches!(wrong, Outcome::NotApplied(Refusal::PermissionDenied(_))), "{wrong:?}");
        let nobody = server.bench().ask(get("/x")).await;
        assert!(matches!(nobody, Outcome::NotApplied(Refusal::Other(_) | Refusal::PermissionDenied(_))), "{nobody:?}");
    });
}
