//! The keep-or-delete table of `POST /lfs/produce`, line by line: what becomes of the object, and what the client is told.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use kafscale_proxy_core::kafka::{ErrorCode, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use kafscale_proxy_core::model::broker::Fault as BrokerFault;
use kafscale_proxy_tests::peers::{
    Answer, Control, Deployment, Fault, Http, Operation, Partners, TOPIC, Wire, eventually, move_partition,
    write_snapshot,
};
use tokio::task::JoinHandle;

/// How long an upload is held up in S3, for something to happen meanwhile.
const HELD_UP: Duration = Duration::from_secs(2);
/// Time for what must not happen.
const QUIET: Duration = Duration::from_millis(700);
/// The partition that blobs without a key go to, and its owner.
const PARTITION: i32 = 0;
const OWNER: usize = 0;

const UNAVAILABLE: (u16, &str) = (503, "backend_unavailable");
const UNREADABLE: (u16, &str) = (503, "metadata_unavailable");
const BACKEND_ERROR: (u16, &str) = (502, "backend_error");

const WRONG_CHECKSUM: (&str, &str) =
    ("x-lfs-checksum", "0000000000000000000000000000000000000000000000000000000000000000");

/// What becomes of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blob {
    Kept,
    KeptAsOrphan,
    Deleted,
}

/// A POST under way.
fn post(lfs: &Http) -> JoinHandle<Answer> {
    let lfs = lfs.clone();
    tokio::spawn(async move {
        lfs.send(Method::POST, "/lfs/produce", &[("x-kafka-topic", TOPIC)], Bytes::from_static(b"a blob")).await
    })
}

/// What there was before a POST.
struct Before {
    keys: Vec<String>,
    orphans: usize,
    puts: usize,
}

impl Before {
    fn of(deployment: &Deployment) -> Self {
        let Partners { store, .. } = &deployment.partners;
        Self { keys: store.keys(), orphans: deployment.proxy.orphans().len(), puts: store.count(Operation::PutObject) }
    }

    /// The object of the one POST since then: it was stored once, and this became of it.
    async fn check(&self, deployment: &Deployment, blob: Blob) {
        let Partners { store, .. } = &deployment.partners;
        assert_eq!(store.count(Operation::PutObject), self.puts + 1, "one object was stored");
        let new = || -> Vec<String> { store.keys().into_iter().filter(|key| !self.keys.contains(key)).collect() };
        if blob == Blob::Deleted {
            eventually("the object is deleted", Duration::from_secs(15), async || new().is_empty()).await;
            assert_eq!(deployment.proxy.orphans().len(), self.orphans, "{}", deployment.proxy.log());
            return;
        }
        tokio::time::sleep(QUIET).await;
        let kept = new();
        assert_eq!(kept.len(), 1, "the object is kept");
        assert_eq!(store.object(&kept[0]), "a blob");
        let orphans = deployment.proxy.orphans().split_off(self.orphans);
        let expected = if blob == Blob::KeptAsOrphan { kept } else { vec![] };
        assert_eq!(orphans, expected, "what is reported as an orphan");
    }
}

/// One POST, while the deployment is as it was made.
async fn line(deployment: &Deployment, answer: (u16, &str), blob: Blob) {
    let before = Before::of(deployment);
    let answered = post(&deployment.proxy.lfs).await.expect("no panic");
    assert_eq!(answered.code(), (answer.0, answer.1.to_owned()), "{}", answered.text());
    before.check(deployment, blob).await;
}

/// One POST that is held up in S3 while `happens` does.
async fn line_during_upload(
    deployment: &Deployment,
    happens: impl AsyncFnOnce(&Deployment),
    answer: (u16, &str),
    blob: Blob,
) {
    let before = Before::of(deployment);
    deployment.partners.store.inject(Operation::PutObject, [Fault::Delay(HELD_UP)]);
    let posted = post(&deployment.proxy.lfs);
    eventually("the upload has begun", Duration::from_secs(5), async || {
        deployment.partners.store.count(Operation::PutObject) > before.puts
    })
    .await;
    happens(deployment).await;
    let answered = posted.await.expect("no panic");
    assert_eq!(answered.code(), (answer.0, answer.1.to_owned()), "{}", answered.text());
    before.check(deployment, blob).await;
}

/// Waits until the object of a POST is stored, and as long as a broker takes to answer the record.
async fn stored(deployment: &Deployment, before: &Before) {
    let Partners { store, .. } = &deployment.partners;
    eventually("the object is stored", Duration::from_secs(10), async || {
        let puts = store.seen().into_iter().filter(|seen| seen.operation == Operation::PutObject);
        puts.filter(|put| put.status == Some(200)).count() > before.puts
    })
    .await;
    tokio::time::sleep(QUIET).await;
}

fn refuse(deployment: &Deployment, brokers: impl IntoIterator<Item = usize>, code: ErrorCode) {
    for broker in brokers {
        deployment.partners.brokers.control(broker, Control::Inject(BrokerFault::RefuseProduce(code)));
    }
}

fn crash_all(deployment: &Deployment) {
    (0..3).for_each(|broker| deployment.partners.brokers.control(broker, Control::Crash));
}

/// End of the partition, as its owner has it.
async fn end_offset(deployment: &Deployment) -> i64 {
    let partition =
        ListOffsetsPartition { partition_index: PARTITION, timestamp: -1, ..ListOffsetsPartition::default() };
    let topics = vec![ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    let answer = Wire::connect(&deployment.partners.brokers.address(OWNER)).await.ask(4, &request).await;
    answer.topics[0].partitions[0].offset
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged() {
    let deployment = Deployment::start(&[]).await;
    line(&deployment, (200, ""), Blob::Kept).await;
    assert_eq!(end_offset(&deployment).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_then_acknowledged_by_the_new_owner() {
    let deployment = Deployment::start(&[("KAFSCALE_LFS_PROXY_BACKEND_BACKOFF_MS", "2000")]).await;
    let mut owner = OWNER;
    for code in [
        ErrorCode::LEADER_NOT_AVAILABLE,
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::FENCED_LEADER_EPOCH,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
    ] {
        let before = Before::of(&deployment);
        let end = end_offset(&deployment).await;
        refuse(&deployment, [owner], code);
        let posted = post(&deployment.proxy.lfs);
        stored(&deployment, &before).await;
        owner = (owner + 1) % 3;
        move_partition(&deployment.partners.etcd, TOPIC, PARTITION, owner).await;
        let answered = posted.await.expect("no panic");
        assert_eq!(answered.code(), (200, String::new()), "{code:?}: {}", answered.text());
        before.check(&deployment, Blob::Kept).await;
        assert_eq!(end_offset(&deployment).await, end + 1, "{code:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_three_times() {
    let deployment = Deployment::start(&[]).await;
    refuse(&deployment, [0, 0, 0, 1, 1, 1, 2, 2, 2], ErrorCode::NOT_LEADER_OR_FOLLOWER);
    line(&deployment, UNAVAILABLE, Blob::Deleted).await;
    assert_eq!(end_offset(&deployment).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_nobody_left_to_try() {
    let partners = Partners::start().await;
    let only = partners.brokers.address(OWNER);
    let deployment = Deployment::of(partners, &[("KAFSCALE_PROXY_BACKENDS", &only)]).await;
    line(&deployment, (200, ""), Blob::Kept).await;
    refuse(&deployment, [OWNER], ErrorCode::NOT_LEADER_OR_FOLLOWER);
    line(&deployment, UNAVAILABLE, Blob::Deleted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_the_ttl_passes_before_the_next_try() {
    let settings = [("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", "2"), ("KAFSCALE_LFS_PROXY_BACKEND_BACKOFF_MS", "4000")];
    let deployment = Deployment::start(&settings).await;
    refuse(&deployment, 0..3, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let before = Before::of(&deployment);
    let posted = post(&deployment.proxy.lfs);
    stored(&deployment, &before).await;
    deployment.partners.etcd_link.cut();
    let answered = posted.await.expect("no panic");
    assert_eq!(answered.code(), (UNAVAILABLE.0, UNAVAILABLE.1.to_owned()), "{}", answered.text());
    before.check(&deployment, Blob::Deleted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_the_next_broker_cannot_be_connected() {
    let settings = [("KAFSCALE_LFS_PROXY_BACKEND_RETRIES", "1"), ("KAFSCALE_LFS_PROXY_BACKEND_BACKOFF_MS", "3000")];
    let deployment = Deployment::start(&settings).await;
    refuse(&deployment, 0..3, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let before = Before::of(&deployment);
    let posted = post(&deployment.proxy.lfs);
    stored(&deployment, &before).await;
    crash_all(&deployment);
    let answered = posted.await.expect("no panic");
    assert_eq!(answered.code(), (UNAVAILABLE.0, UNAVAILABLE.1.to_owned()), "{}", answered.text());
    before.check(&deployment, Blob::Deleted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broker_after_the_upload() {
    let deployment = Deployment::start(&[("KAFSCALE_LFS_PROXY_BACKEND_RETRIES", "2")]).await;
    line_during_upload(&deployment, async |deployment| crash_all(deployment), UNAVAILABLE, Blob::Deleted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broker_is_listed_after_the_upload() {
    let deployment = Deployment::start(&[]).await;
    let nobody = async |deployment: &Deployment| {
        write_snapshot(&deployment.partners.etcd, |snapshot| snapshot.brokers.clear()).await;
    };
    line_during_upload(&deployment, nobody, UNAVAILABLE, Blob::Deleted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_cannot_be_read_after_the_upload() {
    for ttl in ["60", "1"] {
        let deployment = Deployment::start(&[("KAFSCALE_PROXY_BACKEND_CACHE_TTL_SEC", ttl)]).await;
        let cut = async |deployment: &Deployment| deployment.partners.etcd_link.cut();
        line_during_upload(&deployment, cut, UNREADABLE, Blob::Deleted).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topic_changes_during_the_upload() {
    let deployment = Deployment::start(&[]).await;
    let delete = async |deployment: &Deployment| {
        write_snapshot(&deployment.partners.etcd, |snapshot| snapshot.topics.clear()).await;
    };
    line_during_upload(&deployment, delete, (409, "topic_changed"), Blob::Deleted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checksum_mismatch() {
    let deployment = Deployment::start(&[]).await;
    let Partners { store, .. } = &deployment.partners;
    let headers = [("x-kafka-topic", TOPIC), WRONG_CHECKSUM];
    let answered = deployment.proxy.lfs.send(Method::POST, "/lfs/produce", &headers, "a blob").await;
    assert_eq!(answered.code(), (400, "checksum_mismatch".into()));

    // One that is in S3 already, but for its last bytes.
    let mut upload = deployment.proxy.lfs.begin_post("/lfs/produce", &headers, (6 << 20) + 1).await;
    upload.write(&vec![7; 6 << 20]).await.expect("the proxy reads");
    eventually("a part is stored", Duration::from_secs(20), async || store.count(Operation::UploadPart) > 0).await;
    upload.write(&[7]).await.expect("the proxy reads");
    let answer = upload.read_to_end().await.expect("the proxy answers");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"checksum_mismatch\""), "{answer}");
    eventually("the upload is aborted", Duration::from_secs(15), async || {
        store.seen().iter().any(|seen| seen.operation == Operation::AbortMultipartUpload && seen.status == Some(204))
    })
    .await;
    assert_eq!(store.keys(), Vec::<String>::new(), "nothing is left");
    assert_eq!(end_offset(&deployment).await, 1, "no record refers to it");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_leaves_before_anything_is_sent() {
    let deployment = Deployment::start(&[]).await;
    let before = Before::of(&deployment);
    deployment.partners.store.inject(Operation::PutObject, [Fault::Delay(HELD_UP)]);
    let mut upload = deployment.proxy.lfs.begin_post("/lfs/produce", &[("x-kafka-topic", TOPIC)], 6).await;
    upload.write(b"a blob").await.expect("the proxy reads");
    eventually("the upload has begun", Duration::from_secs(5), async || {
        deployment.partners.store.count(Operation::PutObject) > before.puts
    })
    .await;
    upload.reset();
    tokio::time::sleep(HELD_UP).await;
    before.check(&deployment, Blob::Deleted).await;
    assert_eq!(end_offset(&deployment).await, 1, "no record refers to it");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_stops_in_the_middle_of_its_body() {
    let deployment = Deployment::start(&[]).await;
    let Partners { store, .. } = &deployment.partners;
    let half = vec![7; 6 << 20];
    let mut upload = deployment.proxy.lfs.begin_post("/lfs/produce", &[("x-kafka-topic", TOPIC)], 12 << 20).await;
    upload.write(&half).await.expect("the proxy reads");
    eventually("a part is stored", Duration::from_secs(20), async || store.count(Operation::UploadPart) > 0).await;
    drop(upload);
    eventually("the upload is aborted", Duration::from_secs(15), async || {
        store.seen().iter().any(|seen| seen.operation == Operation::AbortMultipartUpload && seen.status == Some(204))
    })
    .await;
    assert_eq!(store.keys(), Vec::<String>::new());
    assert_eq!(end_offset(&deployment).await, 1, "no record refers to it");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_leaves_between_two_tries() {
    let deployment = Deployment::start(&[("KAFSCALE_LFS_PROXY_BACKEND_BACKOFF_MS", "3000")]).await;
    refuse(&deployment, 0..3, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let before = Before::of(&deployment);
    let mut upload = deployment.proxy.lfs.begin_post("/lfs/produce", &[("x-kafka-topic", TOPIC)], 6).await;
    upload.write(b"a blob").await.expect("the proxy reads");
    stored(&deployment, &before).await;
    upload.reset();
    before.check(&deployment, Blob::Deleted).await;
    assert_eq!(end_offset(&deployment).await, 1, "no record refers to it");
}

#[tokio::test(flavor = "multi_thread")]
async fn sent_and_no_usable_answer() {
    for fault in [BrokerFault::CrashAfterAppend, BrokerFault::WrongCorrelation, BrokerFault::MissingPartition] {
        let deployment = Deployment::start(&[]).await;
        deployment.partners.brokers.control(OWNER, Control::Inject(fault));
        line(&deployment, BACKEND_ERROR, Blob::KeptAsOrphan).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sent_and_no_answer_in_time() {
    let deployment = Deployment::start(&[]).await;
    line_during_upload(
        &deployment,
        async |deployment| deployment.partners.brokers.control(OWNER, Control::Silence(true)),
        BACKEND_ERROR,
        Blob::KeptAsOrphan,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_other_code() {
    let deployment = Deployment::start(&[]).await;
    for code in [
        ErrorCode::REQUEST_TIMED_OUT,
        ErrorCode::UNKNOWN_SERVER_ERROR,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::TOPIC_AUTHORIZATION_FAILED,
    ] {
        refuse(&deployment, [OWNER], code);
        line(&deployment, BACKEND_ERROR, Blob::KeptAsOrphan).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_then_no_usable_answer() {
    let deployment = Deployment::start(&[]).await;
    refuse(&deployment, [OWNER], ErrorCode::NOT_LEADER_OR_FOLLOWER);
    (0..3).for_each(|broker| {
        deployment.partners.brokers.control(broker, Control::Inject(BrokerFault::CrashAfterAppend));
    });
    line(&deployment, BACKEND_ERROR, Blob::KeptAsOrphan).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_leaves_after_sending() {
    let deployment = Arc::new(Deployment::start(&[]).await);
    let before = Before::of(&deployment);
    let end = end_offset(&deployment).await;
    deployment.partners.store.inject(Operation::PutObject, [Fault::Delay(HELD_UP)]);
    let mut upload = deployment.proxy.lfs.begin_post("/lfs/produce", &[("x-kafka-topic", TOPIC)], 6).await;
    upload.write(b"a blob").await.expect("the proxy reads");
    eventually("the upload has begun", Duration::from_secs(5), async || {
        deployment.partners.store.count(Operation::PutObject) > before.puts
    })
    .await;
    deployment.partners.brokers.control(OWNER, Control::Silence(true));
    stored(&deployment, &before).await;
    upload.reset();
    tokio::time::sleep(QUIET).await;
    deployment.partners.brokers.control(OWNER, Control::Silence(false));
    eventually("the record is written", Duration::from_secs(5), async || end_offset(&deployment).await == end + 1)
        .await;
    before.check(&deployment, Blob::Kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_deleted() {
    let deployment = Deployment::start(&[("KAFSCALE_LFS_PROXY_BACKEND_RETRIES", "1")]).await;
    let before = Before::of(&deployment);
    deployment.partners.store.inject(Operation::DeleteObject, [Fault::Refuse(403); 10]);
    deployment.partners.store.inject(Operation::PutObject, [Fault::Delay(HELD_UP)]);
    let posted = post(&deployment.proxy.lfs);
    eventually("the upload has begun", Duration::from_secs(5), async || {
        deployment.partners.store.count(Operation::PutObject) > before.puts
    })
    .await;
    crash_all(&deployment);
    let answered = posted.await.expect("no panic");
    assert_eq!(answered.code(), (UNAVAILABLE.0, UNAVAILABLE.1.to_owned()), "the answer is the same");
    eventually("the orphan is reported", Duration::from_secs(15), async || !deployment.proxy.orphans().is_empty())
        .await;
    before.check(&deployment, Blob::KeptAsOrphan).await;
}
