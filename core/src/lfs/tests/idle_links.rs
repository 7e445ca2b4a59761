//! Connections to brokers that one upload leaves for the next.

use super::*;

/// One broker, which every upload wants.
fn one_broker() -> LfsConfig {
    LfsConfig { static_backends: vec!["a:1".into()], ..small_parts() }
}

/// The body of an exchange comes and its blob is stored; the topic is being read again.
fn store(bench: &mut Bench, exchange: ExchangeId) {
    bench.chunk(exchange, b"abc");
    bench.body(exchange, ReadResult::End);
    bench.s3_done(Response::Done);
}

/// A first upload has been answered by this, 20 ms ago, and its exchange is over.
fn after_one(config: LfsConfig, code: i16) -> Bench {
    let mut bench = Bench::new(config);
    bench.produce(ONE, &[]);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.connected();
    store(&mut bench, ONE);
    bench.generation(ONE, TopicGeneration::Absent);
    bench.broker_answers(code);
    bench.ended(ONE);
    bench.pass(Duration::from_millis(20));
    bench.read();
    bench
}

/// The next upload begins: its body is read at once when it found a link.
fn begin_next(bench: &mut Bench) -> Vec<String> {
    bench.produce(TWO, &[]);
    bench.generation(TWO, TopicGeneration::Absent);
    bench.read()
}

const TAKEN: [&str; 2] = ["ask generation t", "read 8"];
const DIALLED: [&str; 2] = ["ask generation t", "connect a:1"];

#[test]
fn the_next_upload_takes_the_connection_of_the_last_one() {
    let mut bench = after_one(one_broker(), 0);
    let connection = bench.connection();
    for _ in 0..3 {
        assert_eq!(begin_next(&mut bench), TAKEN);
        assert!(!bench.timers.is_set(Timer::BrokerConnection(connection)), "nothing is on its way");
        store(&mut bench, TWO);
        bench.read();
        bench.generation(TWO, TopicGeneration::Absent);
        assert_eq!(bench.read(), ["write a:1"]);
        bench.broker_answers(0);
        assert_eq!(bench.read(), ["200 envelope"]);
        bench.answers.clear();
        bench.ended(TWO);
        bench.pass(Duration::from_millis(20));
    }
    assert_eq!((bench.connection(), bench.lfs.stats().reused_connections), (connection, 3));
    bench.assert_nothing_left();
}

#[test]
fn a_connection_is_kept_for_a_second_after_the_last_answer() {
    for (later, expected) in [(979, TAKEN), (980, DIALLED)] {
        let mut bench = after_one(one_broker(), 0);
        let due = bench.pass(Duration::from_millis(later));
        let closed = bench.read();
        assert_eq!(closed.is_empty(), expected == TAKEN, "{later}: {due:?} {closed:?}");
        assert_eq!(begin_next(&mut bench), expected, "after {later} ms");
        if expected == DIALLED {
            assert_eq!(closed, ["close a:1"]);
            bench.connected();
        }
        bench.assert_nothing_left();
    }
}

/// A process that stood still looks at its timers last: what is past its time is not taken.
#[test]
fn a_connection_that_is_past_its_time_is_not_taken_before_its_timer() {
    let mut bench = after_one(one_broker(), 0);
    bench.now = bench.now + Duration::from_secs(30);
    assert_eq!(begin_next(&mut bench), DIALLED);
    bench.pass(Duration::ZERO);
    assert_eq!(bench.read(), ["close a:1"]);
    bench.assert_nothing_left();
}

/// However busy it is.
#[test]
fn no_connection_lives_for_ever() {
    let mut bench = after_one(one_broker(), 0);
    for second in 0.. {
        if begin_next(&mut bench) == DIALLED {
            assert_eq!(second, 67, "67 waits of 900 ms and the 20 ms before are more than a minute");
            break;
        }
        store(&mut bench, TWO);
        bench.generation(TWO, TopicGeneration::Absent);
        bench.broker_answers(0);
        bench.answers.clear();
        bench.ended(TWO);
        bench.pass(Duration::from_millis(900));
        bench.read();
    }
}

#[test]
fn an_upload_that_lasts_has_no_proof_to_leave() {
    let mut bench = after_one(one_broker(), 0);
    assert_eq!(begin_next(&mut bench), TAKEN);
    bench.pass(Duration::from_secs(2));
    bench.gone(TWO);
    assert_eq!(bench.read(), ["cancel read", "close a:1"]);
    bench.assert_nothing_left();
}

#[test]
fn what_its_end_means_depends_on_what_was_said_last() {
    /// How the first upload ends, and whether its connection is kept.
    type Row = (&'static str, fn(&mut Bench), bool);
    let table: [Row; 7] = [
        ("acknowledged", |bench| bench.broker_answers(0), true),
        ("refused: not the owner", |bench| bench.broker_answers(6), true),
        ("another error", |bench| bench.broker_answers(3), true),
        (
            "the client has gone, and then it is acknowledged",
            |bench| {
                bench.gone(ONE);
                bench.broker_answers(0);
            },
            true,
        ),
        (
            "an answer that cannot be read",
            |bench| {
                let correlation_id = bench.correlation_id.to_be_bytes();
                bench.broker_sends(BytesMut::from(&[&[0, 0, 0, 5], &correlation_id[..], &[0]].concat()[..]));
            },
            false,
        ),
        (
            "the answer to another record",
            |bench| {
                bench.correlation_id += 1;
                bench.broker_answers(0);
            },
            false,
        ),
        (
            "no answer",
            |bench| {
                bench.pass(Duration::from_secs(20));
            },
            false,
        ),
    ];
    for (name, end, kept) in table {
        let mut bench = Bench::new(one_broker());
        bench.produce(ONE, &[]);
        bench.generation(ONE, TopicGeneration::Absent);
        bench.connected();
        store(&mut bench, ONE);
        bench.generation(ONE, TopicGeneration::Absent);
        bench.read();
        end(&mut bench);
        assert_eq!(bench.read().contains(&"close a:1".to_owned()), !kept, "{name}");
        assert_eq!(begin_next(&mut bench), if kept { TAKEN } else { DIALLED }, "{name}");
    }
}

/// In the middle of an answer that nobody asked for, or with one that is whole.
#[test]
fn what_nobody_asked_for_ends_a_kept_connection() {
    for bytes in [&[0][..], &[0, 0, 0, 4, 0, 0, 0, 1]] {
        let mut bench = after_one(one_broker(), 0);
        bench.broker_sends(BytesMut::from(bytes));
        assert_eq!(bench.read(), ["close a:1"]);
        bench.broker_sends(BytesMut::from(bytes));
        assert_eq!(begin_next(&mut bench), DIALLED);
        bench.assert_nothing_left();
    }
}

#[test]
fn a_half_answer_behind_the_answer_is_not_left_to_the_next() {
    let mut bench = Bench::sent();
    bench.broker_answers_and(0, &[0, 0]);
    assert_eq!(bench.read(), ["200 envelope", "close a:1"]);
    bench.assert_nothing_left();
}

#[test]
fn a_connection_that_its_broker_closes_is_forgotten() {
    let mut bench = after_one(one_broker(), 0);
    bench.closed(1_000);
    assert_eq!(bench.timers.next(), None);
    assert_eq!(begin_next(&mut bench), DIALLED);
    bench.connected();
    bench.assert_nothing_left();
}

/// The broker goes while the next upload runs over the kept connection: before its record is sent, or before a byte of it
/// was taken. The client does not notice, and another kept connection, which may be as dead, is not tried.
#[test]
fn a_taken_connection_that_is_dead_is_dialled_again() {
    for sent in [false, true] {
        let mut bench = after_one(one_broker(), 0);
        let written = bench.brokers[&bench.connection()].1 as u64;
        assert_eq!(begin_next(&mut bench), TAKEN);
        store(&mut bench, TWO);
        bench.read();
        if sent {
            bench.generation(TWO, TopicGeneration::Absent);
            assert_eq!(bench.read(), ["write a:1"]);
        }
        bench.closed(written);
        if !sent {
            bench.generation(TWO, TopicGeneration::Absent);
        }
        assert_eq!(bench.read(), ["connect a:1"]);
        bench.connected();
        assert_eq!(bench.read(), ["write a:1"]);
        bench.broker_answers(0);
        assert_eq!(bench.read(), ["200 envelope"]);
        assert_eq!(bench.lfs.stats().orphans, 0);
        bench.assert_nothing_left();
    }
}

#[test]
fn a_taken_connection_that_dies_with_the_record_leaves_its_fate_unknown() {
    let mut bench = after_one(one_broker(), 0);
    let written = bench.brokers[&bench.connection()].1 as u64;
    assert_eq!(begin_next(&mut bench), TAKEN);
    store(&mut bench, TWO);
    bench.generation(TWO, TopicGeneration::Absent);
    bench.read();
    bench.closed(written + 1);
    assert_eq!(bench.read(), ["502 backend_error"]);
    assert_eq!(bench.lfs.stats().orphans, 1);
    bench.assert_nothing_left();
}

/// Uploads at the same time have a connection each; what is left by them goes newest first, and no more than 16 are kept.
#[test]
fn what_a_burst_leaves_is_bounded() {
    let mut bench = Bench::new(one_broker());
    let exchanges: Vec<ExchangeId> = (1..=20).map(ExchangeId).collect();
    for exchange in &exchanges {
        bench.produce(*exchange, &[]);
        bench.generation(*exchange, TopicGeneration::Absent);
        bench.connected();
    }
    let connections: Vec<_> = bench.brokers.keys().copied().collect();
    assert_eq!(connections.len(), exchanges.len());
    bench.read();
    for exchange in &exchanges {
        bench.gone(*exchange);
        bench.ended(*exchange);
    }
    let log = bench.read();
    assert_eq!(log.iter().filter(|decision| *decision == "close a:1").count(), 4, "{log:?}");
    assert_eq!(bench.lfs.stats().broker_connections, 20, "four of them have not ended");
    for connection in &connections[..4] {
        bench.broker(input::Broker::Closed { connection: *connection, accepted_bytes: 0 });
    }
    assert_eq!(bench.lfs.stats().broker_connections, 16, "the four that were dialled first");
    assert_eq!(begin_next(&mut bench), TAKEN);
    assert!(!bench.timers.is_set(Timer::BrokerConnection(connections[19])), "the newest one is taken");
    assert!(bench.timers.is_set(Timer::BrokerConnection(connections[18])));
    assert_eq!(bench.pass(Duration::from_secs(1)).len(), 15, "one timer for each");
}

#[test]
fn a_shard_keeps_so_many_in_all() {
    let brokers: Vec<String> = (0..70).map(|number| format!("b{number}:1")).collect();
    let config = LfsConfig { static_backends: brokers, upload_memory_bytes: 10_000, ..small_parts() };
    let mut bench = Bench::new(config);
    for number in 1..=70 {
        bench.produce(ExchangeId(number), &[]);
        bench.generation(ExchangeId(number), TopicGeneration::Absent);
        bench.connected();
    }
    bench.read();
    (1..=70).for_each(|number| bench.gone(ExchangeId(number)));
    let closed: Vec<_> = bench.read().into_iter().filter(|decision| decision.starts_with("close")).collect();
    assert_eq!(closed, (0..6).map(|number| format!("close b{number}:1")).collect::<Vec<_>>());
}

/// The shutdown waits for no kept connection, and none is kept from then on.
#[test]
fn kept_connections_end_when_the_drain_begins() {
    let mut bench = Bench::new(one_broker());
    for exchange in [ONE, TWO] {
        bench.produce(exchange, &[]);
        bench.generation(exchange, TopicGeneration::Absent);
        bench.connected();
    }
    bench.gone(ONE);
    bench.ended(ONE);
    bench.read();
    bench.call(|lfs, ctx, cluster, out| lfs.drain(ctx, cluster, out));
    assert_eq!(bench.read(), ["close a:1"]);
    bench.gone(TWO);
    assert_eq!(bench.read(), ["cancel read", "close a:1"]);
    bench.assert_nothing_left();
}
