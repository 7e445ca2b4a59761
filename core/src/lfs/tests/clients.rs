//! Requests that are refused at once, and clients that go.

use super::*;

#[test]
fn refusals_cost_nothing() {
    type Header = (&'static str, &'static str);
    type Row = (&'static str, &'static str, &'static [Header], &'static str);
    const KEY: Header = ("x-api-key", "secret");
    const TOPIC: Header = ("x-kafka-topic", "t");
    let config = LfsConfig { api_key: Some("secret".into()), ..small_parts() };
    let table: [Row; 10] = [
        ("GET", "/lfs/produce", &[], "405 method_not_allowed"),
        ("POST", "/lfs/produce", &[TOPIC], "401 unauthorized"),
        ("POST", "/lfs/produce", &[KEY], "400 missing_topic"),
        ("POST", "/lfs/produce", &[KEY, TOPIC, ("content-length", "65")], "400 payload_too_large"),
        ("POST", "/lfs/download", &[], "401 unauthorized"),
        ("POST", "/lfs/download", &[KEY, ("content-length", "2000000")], "400 payload_too_large"),
        ("OPTIONS", "/lfs/produce", &[], "204 "),
        ("POST", "/lfs/uploads", &[KEY], "404 not_found"),
        ("POST", "/lfs/uploads", &[], "401 unauthorized"),
        ("GET", "/nothing", &[], "404 404 page not found"),
    ];
    for (method, path, headers, expected) in table {
        let mut bench = Bench::new(config.clone());
        bench.request(ONE, method, path, headers);
        assert_eq!(bench.read(), [expected], "{method} {path} {headers:?}");
        bench.assert_nothing_left();
    }
}

#[test]
fn without_a_bucket_nothing_is_served() {
    let mut bench = Bench::new(small_parts());
    bench.call(|lfs, ctx, _, out| lfs.start(ctx, out));
    assert_eq!(bench.read(), ["head bucket"]);
    bench.s3(lost());
    bench.produce(ONE, &[]);
    bench.request(TWO, "POST", "/lfs/download", &[]);
    assert_eq!(bench.read(), ["503 proxy_not_ready", "503 proxy_not_ready"]);
    bench.pass(Duration::from_secs(5));
    bench.s3_done(Response::Done);
    bench.produce(ExchangeId(3), &[]);
    assert_eq!(bench.read(), ["head bucket", "ask generation t"]);
}

#[test]
fn a_proxy_that_is_full_or_ends_says_when_to_come_back() {
    let mut bench = Bench::new(LfsConfig { exchanges: 1, ..small_parts() });
    bench.produce(ONE, &[]);
    bench.produce(TWO, &[]);
    assert_eq!(bench.read(), ["ask generation t", "503 proxy_not_ready"]);
    assert_eq!(bench.answers[&TWO].headers["retry-after"], "1");
    assert_eq!(bench.lfs.stats().exchange_slots, BudgetStats { limit: 1, waits: 0, refusals: 1 });
    bench.gone(ONE);
    bench.assert_nothing_left();
    bench.call(|lfs, ctx, cluster, out| lfs.drain(ctx, cluster, out));
    bench.produce(ExchangeId(3), &[]);
    assert_eq!(bench.read(), ["503 proxy_not_ready"]);
}

#[test]
fn without_a_broker_nothing_is_uploaded() {
    let mut bench = Bench::new(small_parts());
    assert_eq!(bench.lfs.stats().memory.limit, 1024, "sizes are known before anything has happened");
    bench.produce(ONE, &[]);
    bench.generation(ONE, TopicGeneration::Absent);
    for attempt in 0..6 {
        for _ in 0..3 {
            bench.connect_failed();
        }
        if attempt < 5 {
            assert_eq!(bench.pass(Duration::from_millis(500)), [Timer::ExchangeRetry(ONE)]);
        }
    }
    let log = bench.read();
    assert_eq!(log.iter().filter(|decision| decision.starts_with("connect")).count(), 18);
    assert_eq!(log.last().unwrap(), "503 backend_unavailable", "at once, without a wait after the last attempt");
    assert!(bench.s3.is_empty());
    assert_eq!(bench.lfs.stats().unknown_topics.errors, 1);
    assert_eq!(bench.lfs.stats().failed_dials, 18);
    assert_eq!(bench.lfs.stats().retries.of(RetryReason::Unreachable), 17, "the last one is not followed by another");
    bench.assert_nothing_left();
}

#[test]
fn a_dial_that_hangs_is_given_up() {
    let mut bench = Bench::new(small_parts());
    bench.produce(ONE, &[]);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.read(), ["ask generation t", "connect a:1", "close a:1"]);
    bench.connect_failed();
    assert_eq!(bench.read(), ["connect b:1"]);
}

#[test]
fn unreadable_metadata_before_the_upload() {
    let mut bench = Bench::new(small_parts());
    bench.produce(ONE, &[]);
    bench.answer(ONE, Question::Generation { topic: "t".into() }, Answer::Unreadable("timeout".into()));
    assert_eq!(bench.read(), ["ask generation t", "503 metadata_unavailable"]);
    bench.assert_nothing_left();
}

#[test]
fn a_client_that_goes_before_the_upload_leaves_nothing() {
    for steps in 0..3 {
        let mut bench = Bench::new(small_parts());
        bench.produce(ONE, &[]);
        if steps > 0 {
            bench.generation(ONE, TopicGeneration::Absent);
        }
        if steps > 1 {
            bench.connect_failed();
            bench.connect_failed();
            bench.connect_failed();
        }
        bench.gone(ONE);
        assert!(bench.s3.is_empty() && bench.answers.is_empty());
        bench.assert_nothing_left();
    }
}

#[test]
fn a_client_that_goes_during_the_upload_takes_it_along() {
    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"01234567");
    bench.read();
    bench.gone(ONE);
    assert_eq!(bench.read(), ["cancel read"]);
    bench.ended(ONE);
    bench.s3(created());
    assert_eq!(bench.read(), ["abort u"], "an upload whose creation was under way is aborted too");
    bench.s3_done(Response::Done);
    bench.assert_nothing_left();

    let mut bench = Bench::reading(small_parts(), &[]);
    bench.chunk(ONE, b"abc");
    bench.body(ONE, ReadResult::End);
    bench.read();
    bench.gone(ONE);
    bench.ended(ONE);
    bench.s3_done(Response::Done);
    assert_eq!(bench.read(), ["delete"], "a PutObject that was under way is undone");
    bench.s3_done(Response::Done);
    bench.assert_nothing_left();
}

#[test]
fn a_client_that_goes_before_sending_or_between_tries_has_its_blob_removed() {
    let mut bench = Bench::stored();
    bench.gone(ONE);
    assert_eq!(bench.read(), ["delete"]);
    bench.ended(ONE);
    bench.s3_done(Response::Done);
    bench.assert_nothing_left();

    let mut bench = Bench::sent();
    bench.broker_answers(6);
    bench.read();
    bench.gone(ONE);
    assert_eq!(bench.read(), ["delete"]);
    bench.s3_done(Response::Done);
    bench.assert_nothing_left();
}

#[test]
fn a_record_that_was_sent_is_awaited_for_nobody() {
    for (code, orphans) in [(0, 0), (7, 1)] {
        let mut bench = Bench::sent();
        bench.gone(ONE);
        bench.ended(ONE);
        assert_eq!(bench.read(), [""; 0], "the answer decides, not the client");
        bench.broker_answers(code);
        assert!(bench.read().is_empty(), "it waits for nothing, and its connection is kept");
        assert_eq!(bench.lfs.stats().orphans, orphans);
        bench.assert_nothing_left();
    }
    // A refusal proves that nothing was written, and nobody waits for another try.
    let mut bench = Bench::sent();
    bench.gone(ONE);
    bench.broker_answers(6);
    assert_eq!(bench.read(), ["forget owner t-0", "delete"]);
    bench.s3_done(Response::Done);
    bench.assert_nothing_left();
}

#[test]
fn an_answer_that_nobody_takes_ends() {
    let mut bench = Bench::sent();
    bench.broker_answers(0);
    bench.read();
    bench.pass(Duration::from_secs(300));
    assert_eq!(bench.read(), ["close a:1", "break the connection"]);
    bench.assert_nothing_left();
}
