//! What becomes of a stored blob when its record is published (lfs-http contract section 9).

use super::*;
use crate::kafka::{ApiKey, VersionRange};

/// How one broker reacts to the record.
#[derive(Clone, Copy)]
enum Broker {
    Answers(i16),
    /// Closes; so many bytes of the request were handed to the socket.
    Closes(u64),
    /// Sends an answer that cannot be read.
    Garbage,
    /// Does not answer.
    Silent,
    /// Cannot be connected.
    Refuses,
}

use Broker::{Answers, Closes, Garbage, Refuses, Silent};

fn react(bench: &mut Bench, broker: Broker) {
    match broker {
        Answers(code) => bench.broker_answers(code),
        Closes(accepted) => bench.closed(accepted),
        Garbage => bench.broker_sends(BytesMut::from(&[0, 0, 0, 5, 0, 0, 0, 1, 0][..])),
        Silent => {
            bench.pass(Duration::from_secs(20));
            bench.closed(1_000);
        }
        Refuses => bench.connect_failed(),
    }
}

#[test]
fn a_broker_that_cannot_be_told_has_written_nothing() {
    let lacking = usual_broker::versions_with(&[(ApiKey::Produce, VersionRange::new(0, 2))]);
    let mut bench = Bench::stored();
    // The connection from before the upload is lost, and the next brokers have no version that carries the record.
    bench.closed(0);
    bench.generation(ONE, TopicGeneration::Absent);
    for _ in 0..3 {
        bench.connected_to(lacking.clone());
        bench.pass(Duration::from_millis(500));
    }
    let log = bench.read();
    assert!(!log.iter().any(|line| line.starts_with("write")), "{log:?}");
    assert!(log.iter().any(|line| line.starts_with("delete")), "{log:?}");
    assert_eq!(bench.lfs.stats().orphans, 0);
}

/// The keep-or-delete table, played through: reactions of the brokers in turn; deleted or not; orphans; the answer.
#[test]
fn the_table() {
    let unavailable = "503 backend_unavailable";
    let error = "502 backend_error";
    let table: [(&[Broker], bool, u64, &str); 17] = [
        (&[Answers(0)], false, 0, "200 envelope"),
        (&[Answers(6), Answers(0)], false, 0, "200 envelope"),
        (&[Answers(6), Answers(5), Answers(0)], false, 0, "200 envelope"),
        (&[Answers(6), Answers(74), Answers(75)], true, 0, unavailable),
        (&[Answers(6), Refuses, Refuses], true, 0, unavailable),
        (&[Answers(7)], false, 1, error),
        (&[Answers(-1)], false, 1, error),
        (&[Answers(3)], false, 1, error),
        (&[Answers(29)], false, 1, error),
        (&[Garbage], false, 1, error),
        (&[Silent], false, 1, error),
        (&[Closes(1)], false, 1, error),
        (&[Answers(6), Closes(1)], false, 1, error),
        (&[Answers(6), Silent], false, 1, error),
        (&[Answers(6), Answers(7)], false, 1, error),
        // Closed before a byte of the request was taken: nothing was sent, so it is sent again.
        (&[Closes(0), Answers(0)], false, 0, "200 envelope"),
        (&[Closes(0), Closes(0), Closes(0)], true, 0, unavailable),
    ];
    for (row, (brokers, deleted, orphans, answer)) in table.into_iter().enumerate() {
        let mut bench = Bench::sent();
        for (place, broker) in brokers.iter().enumerate() {
            if place > 0 {
                bench.pass(Duration::from_millis(500));
                if !matches!(broker, Refuses) {
                    bench.connected();
                }
            }
            react(&mut bench, *broker);
        }
        let log = bench.read();
        assert_eq!(log.contains(&"delete".to_owned()), deleted, "row {row}: {log:?}");
        if deleted {
            assert!(!log.contains(&answer.to_owned()), "row {row}: answered when the blob is gone");
            bench.s3_done(Response::Done);
            assert_eq!(bench.read(), [answer], "row {row}");
        } else {
            assert!(log.contains(&answer.to_owned()), "row {row}: {log:?}");
        }
        assert_eq!(bench.lfs.stats().orphans, orphans, "row {row}");
        bench.assert_nothing_left();
    }
}

#[test]
fn a_refusal_drops_the_route_and_leads_to_a_broker_that_was_not_asked() {
    let mut bench = Bench::sent();
    bench.broker_answers(6);
    assert_eq!(bench.read(), ["forget owner t-0"]);
    assert_eq!(bench.pass(Duration::from_millis(499)), []);
    bench.pass(Duration::from_millis(1));
    let log = bench.read();
    assert!(log == ["connect b:1"] || log == ["connect c:1"], "{log:?}");
}

#[test]
fn with_one_broker_nobody_is_left_after_the_first_refusal() {
    let mut bench = Bench::new(LfsConfig { static_backends: vec!["a:1".into()], ..small_parts() });
    bench.produce(ONE, &[]);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.connected();
    bench.chunk(ONE, b"abc");
    bench.body(ONE, ReadResult::End);
    bench.s3_done(Response::Done);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.read();
    bench.broker_answers(6);
    assert_eq!(bench.read(), ["forget owner t-0", "delete"]);
    bench.s3_done(Response::Done);
    assert_eq!(bench.read(), ["503 backend_unavailable"]);
    bench.assert_nothing_left();
}

#[test]
fn the_connection_of_the_check_is_used_and_dialled_again_when_it_is_gone() {
    let mut bench = Bench::stored();
    bench.closed(0);
    bench.generation(ONE, TopicGeneration::Absent);
    assert_eq!(bench.read(), ["connect b:1"]);
    bench.connected();
    assert_eq!(bench.read(), ["write b:1"]);
}

#[test]
fn no_broker_after_the_upload() {
    let mut bench = Bench::stored();
    bench.closed(0);
    bench.generation(ONE, TopicGeneration::Absent);
    for _ in 0..6 {
        for _ in 0..3 {
            bench.connect_failed();
        }
        bench.pass(Duration::from_millis(500));
    }
    assert_eq!(bench.read().last().unwrap(), "delete");
    bench.s3_done(Response::Done);
    assert_eq!(bench.read(), ["503 backend_unavailable"]);
    assert_eq!(bench.lfs.stats().orphans, 0);
    bench.assert_nothing_left();
}

#[test]
fn the_topic_is_checked_again_after_the_upload() {
    let present = |id: u8| TopicGeneration::Present { topic_id: [id; 16], config_create_revision: 7, generation: None };
    let recreated = Answer::Generation(present(2));
    let table = [
        (recreated, "409 topic_changed"),
        (Answer::Generation(TopicGeneration::Absent), "409 topic_changed"),
        (Answer::Unreadable("timeout".into()), "503 metadata_unavailable"),
    ];
    for (answer, expected) in table {
        let mut bench = Bench::new(small_parts());
        bench.produce(ONE, &[]);
        bench.generation(ONE, present(1));
        bench.connected();
        bench.chunk(ONE, b"abc");
        bench.body(ONE, ReadResult::End);
        bench.s3_done(Response::Done);
        bench.read();
        bench.answer(ONE, Question::Generation { topic: "t".into() }, answer);
        assert_eq!(bench.read(), ["delete"]);
        bench.s3(denied());
        assert_eq!(bench.read(), [expected], "the answer does not change when the delete fails");
        bench.pass(Duration::from_secs(1));
        bench.s3(denied());
        bench.pass(Duration::from_secs(4));
        bench.s3(denied());
        assert_eq!(bench.lfs.stats().orphans, 1);
        assert_eq!(bench.lfs.stats().unknown_topics.errors, 1);
        bench.read();
        bench.assert_nothing_left();
    }
}

#[test]
fn a_connection_that_took_nothing_is_replaced_by_one_other() {
    let mut bench = Bench::sent();
    bench.closed(0);
    let log = bench.read();
    assert_eq!(log.len(), 1, "one dial, and it is not disturbed by the end of the old one: {log:?}");
    bench.connected();
    assert!(bench.read()[0].starts_with("write"));
}
