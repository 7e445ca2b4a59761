//! One connection to one broker.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::dialect::{Dialect, Said, Turned};
use super::handshake::{SaslPlain, Step};
use crate::cluster::Address;
use crate::config::ClusterKind;
use crate::kafka::{ResponseHeader, Splitter, payload};
use crate::lifecycle::Lifecycle;
use crate::planted::{Bug, planted};
use crate::time::Monotonic;

/// A request on its way to a broker. `R` tells the owner what the answer is for.
#[derive(Debug)]
pub(crate) struct Request<R> {
    /// The whole frame, length prefix included.
    pub(crate) bytes: Bytes,
    /// The correlation id in it, which the answer must carry.
    pub(crate) correlation_id: i32,
    /// What the answer is for.
    pub(crate) reply_to: R,
    /// Whether the broker answers it; it does not answer Produce with acks 0.
    pub(crate) answered: bool,
    /// When to give up.
    pub(crate) deadline: Monotonic,
}

/// What is known of a request that got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// None of its bytes were handed over.
    NotApplied,
    /// It may have been carried out.
    Unknown,
}

/// Why a connection is being closed from our side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The oldest request is past its deadline.
    Deadline,
    /// The broker sent what no answer can be.
    BadAnswer(String),
    /// SASL or ApiVersions failed.
    Handshake(String),
}

/// What the owner has to do or to know.
#[derive(Debug)]
pub(crate) enum Event<R> {
    /// Requests can be sent; those that waited follow.
    Ready,
    /// Hand these bytes to the socket.
    Write(Bytes),
    /// A request that gets no answer was written: the owner is done with it.
    Silent { reply_to: R },
    /// An answer: the whole frame, length prefix included, so that one that passes as it came is one piece. Its
    /// correlation id is verified.
    Answered { reply_to: R, frame: BytesMut },
    /// Nothing was sent, for the broker cannot understand the request: what it would answer to that, whole frame.
    Refused { reply_to: R, frame: BytesMut },
    /// A request that will not be answered, oldest first.
    Unanswered { reply_to: R, fate: Fate },
    /// The socket closed before it had accepted the last request that gets no answer: records may be lost
    /// and nobody was told.
    SilentLost,
    /// Close the socket; the rest follows when it is closed.
    Close(CloseReason),
}

#[derive(Debug)]
struct InFlight<R> {
    correlation_id: i32,
    reply_to: R,
    /// Set when it was put into another version.
    turned: Option<Turned>,
    /// As it was said, for a planted bug.
    #[cfg(planted_bugs)]
    said: Bytes,
    /// Offset of its first byte among all bytes written.
    begin: u64,
    deadline: Monotonic,
}

#[derive(Debug)]
enum State {
    /// The socket is being opened, or the handshake is under way (`Some`).
    Opening { handshake: Option<Step>, deadline: Monotonic },
    /// Requests are written as they come.
    Ready,
    /// We have asked for the end; nothing more is sent, what arrives is dropped.
    Closing,
}

/// Its moves; closed and failed connections are dropped.
pub(crate) const LIFECYCLE: Lifecycle = Lifecycle {
    name: "Connection to a broker",
    file: "core/src/broker/connection.rs",
    start: "Opening",
    moves: &[
        ("Opening", "Handshaking", "connected"),
        ("Opening", "Closing", "dial deadline"),
        ("Handshaking", "Ready", "last step accepted"),
        ("Handshaking", "Closing", "refused, unreadable, or dial deadline"),
        ("Ready", "Closing", "request deadline, or an answer that makes no sense"),
    ],
};

impl State {
    const fn name(&self) -> &'static str {
        match self {
            Self::Opening { handshake: None, .. } => "Opening",
            Self::Opening { handshake: Some(_), .. } => "Handshaking",
            Self::Ready => "Ready",
            Self::Closing => "Closing",
        }
    }
}

/// One connection to one broker, from the order to open it until it is closed.
#[derive(Debug)]
pub(crate) struct Connection<R> {
    address: Address,
    state: State,
    splitter: Splitter,
    in_flight: VecDeque<InFlight<R>>,
    written: u64,
    silent_end: u64,
    kind: ClusterKind,
    sasl: Option<SaslPlain>,
    dialect: Dialect,
}

impl<R> Connection<R> {
    /// A connection that was just ordered. It is given up at `deadline` unless it is ready by then; answers
    /// longer than `answer_max_bytes` end it. The broker is asked what it speaks, and expected to be one of `kind`.
    pub(crate) fn new(address: Address, kind: ClusterKind, deadline: Monotonic, answer_max_bytes: usize) -> Self {
        Self {
            address,
            state: State::Opening { handshake: None, deadline },
            splitter: Splitter::for_responses(answer_max_bytes),
            in_flight: VecDeque::new(),
            written: 0,
            silent_end: 0,
            kind,
            sasl: None,
            dialect: Dialect::default(),
        }
    }

    /// Logs in first, when there are credentials.
    #[must_use]
    pub(crate) fn with_login(mut self, sasl: Option<SaslPlain>) -> Self {
        self.sasl = sasl;
        self
    }

    /// The broker's address.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Whether a request would be written at once.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Whether a request would be the only one: none waits for its answer, and nothing of another answer has come.
    pub(crate) fn is_idle(&self) -> bool {
        let answered = self.in_flight.is_empty() || planted(Bug::UnansweredLinkKept);
        self.is_ready() && answered && self.splitter.buffered() == 0
    }

    /// Whether a request has no answer yet, for a planted bug.
    #[cfg(planted_bugs)]
    pub(crate) fn awaits_answer(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether a request may be handed to it, now or once it is ready.
    pub(crate) fn is_usable(&self) -> bool {
        match self.state {
            State::Opening { .. } | State::Ready => true,
            State::Closing => false,
        }
    }

    /// Bytes that the answer in front will have when it is whole, length prefix included; `None` while its length has not
    /// come.
    pub(crate) fn announced(&self) -> Option<usize> {
        self.splitter.announced().ok().flatten().filter(|_| self.is_ready())
    }

    /// What the broker owes answers for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &R> {
        self.in_flight.iter().map(|request| &request.reply_to)
    }

    /// Writes a request. Order is kept.
    ///
    /// The connection must be ready: elsewhere a request would be neither sent nor reported.
    pub(crate) fn send(&mut self, request: Request<R>, out: &mut Vec<Event<R>>) {
        assert!(self.is_ready(), "a request was given to a connection that is not ready");
        self.write(request, out);
    }

    /// The socket stands.
    pub(crate) fn connected(&mut self, out: &mut Vec<Event<R>>) {
        self.go_on(None, out);
    }

    /// Bytes arrived.
    pub(crate) fn received(&mut self, bytes: BytesMut, out: &mut Vec<Event<R>>) {
        if !self.is_usable() {
            return;
        }
        self.splitter.push(bytes);
        loop {
            let frame = match self.splitter.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(error) => return self.close(CloseReason::BadAnswer(error.to_string()), out),
            };
            match &self.state {
                State::Opening { handshake: Some(step), .. } => {
                    let step = *step;
                    match step.accept(payload(&frame)) {
                        Ok(versions) => {
                            if let Some(versions) = versions {
                                self.dialect = Dialect::of(self.kind, &versions);
                                self.say_what_is_lacking();
                            }
                            self.go_on(Some(step), out);
                        }
                        Err(error) => return self.close(CloseReason::Handshake(error), out),
                    }
                }
                State::Opening { handshake: None, .. } => {
                    return self.close(CloseReason::BadAnswer("an answer before any request".into()), out);
                }
                State::Ready => {
                    if let Err(reason) = self.match_answer(frame, out) {
                        return self.close(CloseReason::BadAnswer(reason), out);
                    }
                }
                State::Closing => return,
            }
        }
    }

    /// The socket is gone; it had accepted so many of the written bytes.
    pub(crate) fn closed(mut self, accepted_bytes: u64, out: &mut Vec<Event<R>>) {
        for request in self.in_flight.drain(..) {
            let unsent = request.begin >= accepted_bytes || planted(Bug::LostIsNotApplied);
            let fate = if unsent { Fate::NotApplied } else { Fate::Unknown };
            out.push(Event::Unanswered { reply_to: request.reply_to, fate });
        }
        if accepted_bytes < self.silent_end {
            out.push(Event::SilentLost);
        }
    }

    /// The earliest moment at which something is given up.
    pub(crate) fn oldest_deadline(&self) -> Option<Monotonic> {
        match &self.state {
            State::Opening { deadline, .. } => Some(*deadline),
            State::Ready => self.in_flight.front().map(|request| request.deadline),
            State::Closing => None,
        }
    }

    /// Gives the requests that wait for an answer more time: theirs may have come and was not read for so long.
    pub(crate) fn excuse(&mut self, unread: Duration) {
        for request in &mut self.in_flight {
            request.deadline = request.deadline + unread;
        }
    }

    /// Ends the connection when its oldest deadline is over; says whether it did.
    pub(crate) fn expire(&mut self, now: Monotonic, out: &mut Vec<Event<R>>) -> bool {
        let expired = self.oldest_deadline().is_some_and(|deadline| deadline <= now);
        if expired {
            self.close(CloseReason::Deadline, out);
        }
        expired
    }

    fn say_what_is_lacking(&self) {
        for (api, has) in self.dialect.lacking() {
            let (min, max) = has.map(|range| (range.min, range.max)).unzip();
            tracing::debug!(broker = %self.address, ?api, min, max, "the broker lacks versions that are usual");
        }
    }

    fn write(&mut self, request: Request<R>, out: &mut Vec<Event<R>>) {
        let (bytes, turned) = match self.dialect.say(request.bytes) {
            Said::AsItWas(bytes) => (bytes, None),
            Said::Turned(bytes, turned) => (bytes, Some(turned)),
            Said::NotAtAll(answer) => {
                let reply_to = request.reply_to;
                out.push(match answer.map(BytesMut::from) {
                    _ if !request.answered => Event::SilentLost,
                    Some(frame) => Event::Refused { reply_to, frame },
                    None => Event::Unanswered { reply_to, fate: Fate::NotApplied },
                });
                return;
            }
        };
        let begin = self.written;
        self.written += bytes.len() as u64;
        #[cfg(planted_bugs)]
        let said = bytes.clone();
        out.push(Event::Write(bytes));
        if request.answered {
            self.in_flight.push_back(InFlight {
                correlation_id: request.correlation_id,
                reply_to: request.reply_to,
                turned,
                #[cfg(planted_bugs)]
                said,
                begin,
                deadline: request.deadline,
            });
        } else {
            self.silent_end = self.written;
            out.push(Event::Silent { reply_to: request.reply_to });
        }
    }

    /// The next step of the handshake, or readiness.
    fn go_on(&mut self, done: Option<Step>, out: &mut Vec<Event<R>>) {
        let State::Opening { deadline, .. } = self.state else { return };
        let next = Step::after(done, self.sasl.is_some());
        if let Some(step) = next {
            let bytes = step.request(self.sasl.as_ref());
            self.written += bytes.len() as u64;
            self.enter(State::Opening { handshake: next, deadline });
            out.push(Event::Write(bytes));
        } else {
            self.enter(State::Ready);
            out.push(Event::Ready);
        }
    }

    fn enter(&mut self, next: State) {
        LIFECYCLE.step(&mut self.state.name(), next.name());
        self.state = next;
    }

    fn match_answer(&mut self, frame: BytesMut, out: &mut Vec<Event<R>>) -> Result<(), String> {
        let correlation_id = ResponseHeader::correlation_id(&frame).map_err(|error| error.to_string())?;
        let expected = self.in_flight.front().ok_or("an answer without a request")?.correlation_id;
        if correlation_id != expected && !planted(Bug::CorrelationUnchecked) {
            return Err(format!("correlation id {correlation_id} where {expected} is due"));
        }
        #[cfg(planted_bugs)]
        if self.says_again(&frame, out) {
            return Ok(());
        }
        if let Some(request) = self.in_flight.front() {
            let frame = match request.turned {
                None => frame,
                Some(_) if planted(Bug::AnswerInAnotherVersion) => frame,
                Some(turned) => turned.answer(frame)?,
            };
            out.extend(self.in_flight.pop_front().map(|request| Event::Answered { reply_to: request.reply_to, frame }));
        }
        Ok(())
    }

    /// Sends a refused batch that was put into another version once more, behind what was sent since.
    #[cfg(planted_bugs)]
    fn says_again(&mut self, frame: &[u8], out: &mut Vec<Event<R>>) -> bool {
        let others_follow = self.in_flight.len() > 1;
        let once_more = |request: &mut InFlight<R>| {
            let refused = request.turned.is_some_and(|turned| turned.is_refused_batch(frame));
            refused && others_follow && !request.said.is_empty() && planted(Bug::TranslatedRetryReordered)
        };
        let Some(mut request) = self.in_flight.pop_front_if(once_more) else { return false };
        request.begin = self.written;
        self.written += request.said.len() as u64;
        out.push(Event::Write(std::mem::take(&mut request.said)));
        self.in_flight.push_back(request);
        true
    }

    fn close(&mut self, reason: CloseReason, out: &mut Vec<Event<R>>) {
        self.enter(State::Closing);
        out.push(Event::Close(reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::usual_broker::{question_bytes, versions};
    use crate::kafka::{ApiKey, ErrorCode, HeartbeatRequest, HeartbeatResponse, request_frame, response_frame};

    const fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    fn request(correlation_id: i32, reply_to: u8) -> Request<u8> {
        Request { bytes: Bytes::from_static(&[0; 10]), correlation_id, reply_to, answered: true, deadline: at(1_000) }
    }

    fn answer(correlation_id: i32, body: &[u8]) -> BytesMut {
        let mut frame = BytesMut::new();
        frame.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
        frame.extend_from_slice(&correlation_id.to_be_bytes());
        frame.extend_from_slice(body);
        frame
    }

    fn connection() -> Connection<u8> {
        Connection::new(Address::new("b:9092"), ClusterKind::KafScale, at(500), 1_000)
    }

    /// The connection stands, and the broker has said what it speaks.
    fn open(connection: &mut Connection<u8>, out: &mut Vec<Event<u8>>) {
        connection.connected(out);
        connection.received(versions(), out);
    }

    /// Events in short: what was written is left out.
    fn short(events: &[Event<u8>]) -> Vec<String> {
        let short = events.iter().filter_map(|event| match event {
            Event::Ready => Some("ready".to_owned()),
            Event::Write(_) => None,
            Event::Silent { reply_to } => Some(format!("silent {reply_to}")),
            Event::Answered { reply_to, frame } => Some(format!("answered {reply_to} {}", frame.len())),
            Event::Refused { reply_to, frame } => Some(format!("refused {reply_to} {}", frame.len())),
            Event::Unanswered { reply_to, fate } => Some(format!("unanswered {reply_to} {fate:?}")),
            Event::SilentLost => Some("silent lost".to_owned()),
            Event::Close(CloseReason::Deadline) => Some("close deadline".to_owned()),
            Event::Close(CloseReason::BadAnswer(_)) => Some("close bad answer".to_owned()),
            Event::Close(CloseReason::Handshake(_)) => Some("close handshake".to_owned()),
        });
        short.collect()
    }

    #[test]
    fn answers_are_matched_in_order() {
        let (mut connection, mut out) = (connection(), Vec::new());
        assert!(!connection.is_ready());
        open(&mut connection, &mut out);
        assert!(connection.is_ready());
        connection.send(request(7, 1), &mut out);
        connection.send(request(7, 2), &mut out);
        connection.received(answer(7, b"x"), &mut out);
        connection.received(answer(7, b"yz"), &mut out);
        assert_eq!(short(&out), ["ready", "answered 1 9", "answered 2 10"]);
        assert_eq!(connection.oldest_deadline(), None);
    }

    #[test]
    #[should_panic(expected = "not ready")]
    fn a_request_is_not_given_to_a_connection_that_is_not_ready() {
        connection().send(request(7, 1), &mut Vec::new());
    }

    #[test]
    fn a_broker_that_speaks_another_protocol_is_noticed_at_once() {
        // A TLS alert, and an HTTP answer; as lengths they are below the limit.
        for (sent, hint) in [(&b"\x15\x03\x03\x00\x02\x02\x46"[..], "TLS"), (b"HTTP/1.1 400 Bad Request", "HTTP")] {
            let (mut connection, mut out) =
                (Connection::<u8>::new(Address::new("b:1"), ClusterKind::KafScale, at(500), 1 << 31), Vec::new());
            connection.connected(&mut out);
            connection.received(BytesMut::from(sent), &mut out);
            let Some(Event::Close(CloseReason::BadAnswer(text))) = out.pop() else { panic!("{out:?}") };
            assert!(text.contains(hint), "{text}");
        }
    }

    #[test]
    fn accepted_bytes_tell_not_applied_from_unknown() {
        for (accepted, fates) in [
            (0, ["NotApplied", "NotApplied"]),
            (1, ["Unknown", "NotApplied"]),
            (10, ["Unknown", "NotApplied"]),
            (11, ["Unknown", "Unknown"]),
        ] {
            let (mut connection, mut out) = (connection(), Vec::new());
            open(&mut connection, &mut out);
            connection.send(request(1, 1), &mut out);
            connection.send(request(2, 2), &mut out);
            out.clear();
            connection.closed(question_bytes() + accepted, &mut out);
            assert_eq!(short(&out), [format!("unanswered 1 {}", fates[0]), format!("unanswered 2 {}", fates[1])]);
        }
    }

    #[test]
    fn requests_that_get_no_answer() {
        for (accepted, lost) in [(19, vec!["silent lost"]), (20, vec![])] {
            let (mut connection, mut out) = (connection(), Vec::new());
            open(&mut connection, &mut out);
            connection.send(Request { answered: false, ..request(1, 1) }, &mut out);
            connection.send(Request { answered: false, ..request(2, 2) }, &mut out);
            assert_eq!(short(&out), ["ready", "silent 1", "silent 2"]);
            out.clear();
            connection.closed(question_bytes() + accepted, &mut out);
            assert_eq!(short(&out), lost);
        }
    }

    #[test]
    fn answers_that_make_no_sense_end_the_connection() {
        let cases: [(&str, BytesMut); 3] = [
            ("wrong correlation id", answer(8, b"")),
            ("no header", BytesMut::from(&b"\0\0\0\x02ab"[..])),
            ("too long", BytesMut::from(&b"\x15\x03\x03\0"[..])),
        ];
        for (name, bytes) in cases {
            let (mut connection, mut out) = (connection(), Vec::new());
            open(&mut connection, &mut out);
            connection.send(request(7, 1), &mut out);
            connection.received(bytes, &mut out);
            assert_eq!(short(&out), ["ready", "close bad answer"], "{name}");
            assert!(!connection.is_usable());
            out.clear();
            connection.received(answer(7, b""), &mut out);
            assert!(out.is_empty(), "what comes after is dropped");
            connection.closed(question_bytes() + 10, &mut out);
            assert_eq!(short(&out), ["unanswered 1 Unknown"], "{name}");
        }
        let (mut connection, mut out) = (connection(), Vec::new());
        open(&mut connection, &mut out);
        connection.received(answer(1, b""), &mut out);
        assert_eq!(short(&out), ["ready", "close bad answer"], "nothing was asked");
    }

    #[test]
    fn what_the_broker_does_not_understand_is_answered_at_once() {
        let heartbeat = request_frame(7, None, 4, &HeartbeatRequest::default());
        // A frame whose body makes no sense has no answer, and is not sent either.
        let senseless = heartbeat.slice(..heartbeat.len() - 3);
        for (bytes, answered, event) in [
            (&heartbeat, true, "refused 1 16"),
            (&senseless, true, "unanswered 1 NotApplied"),
            (&heartbeat, false, "silent lost"),
        ] {
            let (mut connection, mut out) = (connection(), Vec::new());
            connection.connected(&mut out);
            connection.received(answer(3, b"\0\0\0\0\0\0"), &mut out);
            out.clear();
            connection.send(Request { bytes: bytes.clone(), answered, ..request(7, 1) }, &mut out);
            assert_eq!(short(&out), [event]);
            assert_eq!(connection.oldest_deadline(), None, "nothing was sent");
        }
    }

    #[test]
    fn a_request_and_its_answer_pass_in_another_version() {
        let (mut connection, mut out) = (connection(), Vec::new());
        connection.connected(&mut out);
        // Heartbeat 0 to 3.
        connection.received(answer(3, b"\0\0\0\0\0\x01\0\x0c\0\0\0\x03"), &mut out);
        out.clear();
        let bytes = request_frame(7, None, 4, &HeartbeatRequest::default());
        connection.send(Request { bytes, ..request(7, 1) }, &mut out);
        let [Event::Write(written)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(*written, request_frame(7, None, 3, &HeartbeatRequest::default()));
        out.clear();
        let response = HeartbeatResponse { throttle_time_ms: 9, error_code: ErrorCode::REBALANCE_IN_PROGRESS };
        connection.received(BytesMut::from(&response_frame(7, 3, &response)[..]), &mut out);
        let [Event::Answered { frame, .. }] = &out[..] else { panic!("{out:?}") };
        assert_eq!(*frame, response_frame(7, 4, &response));
    }

    #[test]
    fn deadlines() {
        let (mut opening, mut out) = (connection(), Vec::new());
        assert_eq!(opening.oldest_deadline(), Some(at(500)));
        assert!(!opening.expire(at(499), &mut out));
        assert!(opening.expire(at(500), &mut out));
        assert_eq!(short(&out), ["close deadline"]);

        let (mut ready, mut out) = (connection(), Vec::new());
        open(&mut ready, &mut out);
        assert_eq!(ready.oldest_deadline(), None);
        ready.send(request(1, 1), &mut out);
        assert_eq!(ready.oldest_deadline(), Some(at(1_000)));
        assert!(ready.expire(at(1_000), &mut out));
        assert_eq!(ready.oldest_deadline(), None);
    }

    #[test]
    fn the_handshake_comes_first_and_its_failure_sends_nothing() {
        let sasl = SaslPlain { username: "u".into(), password: "p".into() };
        let (mut good, mut out) = (connection().with_login(Some(sasl.clone())), Vec::new());
        good.connected(&mut out);
        good.received(answer(1, b"\0\0\0\0\0\0"), &mut out);
        good.received(answer(2, b"\0\0"), &mut out);
        assert!(short(&out).is_empty());
        good.received(answer(3, b"\0\0\0\0\0\x01\0\0\0\x03\0\x09"), &mut out);
        assert_eq!(short(&out), ["ready"]);
        assert!(good.dialect.lacking().any(|(api, _)| api == ApiKey::Heartbeat), "it has named Produce only");
        good.send(request(7, 1), &mut out);
        good.received(answer(7, b""), &mut out);
        assert_eq!(short(&out), ["ready", "answered 1 8"]);

        let (mut bad, mut out) = (connection().with_login(Some(sasl)), Vec::new());
        bad.connected(&mut out);
        bad.received(answer(1, b"\0\0"), &mut out);
        bad.received(answer(2, b"\0\x3a"), &mut out);
        assert_eq!(short(&out), ["close handshake"]);
        assert!(!bad.is_ready() && !bad.is_usable());
    }
}
