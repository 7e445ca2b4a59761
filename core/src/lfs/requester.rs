//! The client of one exchange: it waits, has its answer, or has gone.

use crate::http::answer::ApiAnswer;
use crate::http::error_body::{ApiError, Code};
use crate::input::ExchangeId;
use crate::timers::Timer;

use super::Decision;
use super::call::Call;
use crate::log_text::Printable;

/// Who is to be answered.
#[derive(Debug)]
pub(crate) struct Requester {
    exchange: ExchangeId,
    request_id: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// An answer is due.
    Waiting,
    /// The head of the answer was ordered.
    Answered,
    /// Nobody takes an answer any more.
    Gone,
    /// The driver has said its last word about the exchange.
    Ended,
}

impl Requester {
    pub(crate) const fn new(exchange: ExchangeId, request_id: String) -> Self {
        Self { exchange, request_id, state: State::Waiting }
    }

    pub(crate) const fn exchange(&self) -> ExchangeId {
        self.exchange
    }

    pub(crate) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Whether an answer is due.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// Whether the answer is on its way.
    pub(crate) fn is_answered(&self) -> bool {
        self.state == State::Answered
    }

    /// Whether the exchange is over for the driver.
    pub(crate) fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Answers, if somebody waits for it; says whether that is so.
    pub(crate) fn answer(&mut self, call: &mut Call<'_, '_>, answer: ApiAnswer) -> bool {
        if self.state != State::Waiting {
            return false;
        }
        self.state = State::Answered;
        self.watch_progress(call);
        let ApiAnswer { head, body } = answer;
        call.out.push(Decision::Respond { exchange: self.exchange, head, body });
        true
    }

    /// Answers with an error, and writes it to the log.
    pub(crate) fn refuse(&mut self, call: &mut Call<'_, '_>, error: &ApiError, topic: &str) {
        tracing::warn!(
            status = error.code.status().as_u16(),
            code = error.code.text(),
            request_id = %Printable(&self.request_id),
            topic = %Printable(topic),
            gone = !self.is_waiting(),
            "LFS request failed: {}",
            error.message
        );
        let answer = ApiAnswer::error(error, &self.request_id);
        self.answer(call, answer);
    }

    /// The answer must make progress from now on.
    pub(crate) fn watch_progress(&self, call: &mut Call<'_, '_>) {
        let at = call.ctx.now.monotonic + call.shared.config.write_timeout;
        call.ctx.timers.set(Timer::ExchangeProgress(self.exchange), at);
    }

    /// The answer makes no progress, or cannot go on: the connection is broken. Says whether there was an answer.
    pub(crate) fn abort_answer(&mut self, call: &mut Call<'_, '_>) -> bool {
        if self.state != State::Answered {
            return false;
        }
        self.state = State::Gone;
        call.ctx.timers.clear(Timer::ExchangeProgress(self.exchange));
        call.out.push(Decision::Abort { exchange: self.exchange });
        true
    }

    /// The client has gone.
    pub(crate) fn on_gone(&mut self) {
        match self.state {
            State::Waiting | State::Answered => self.state = State::Gone,
            State::Gone | State::Ended => {}
        }
    }

    /// The exchange is over for the driver.
    pub(crate) fn on_ended(&mut self, call: &mut Call<'_, '_>) {
        self.state = State::Ended;
        call.ctx.timers.clear(Timer::ExchangeProgress(self.exchange));
    }
}

/// A body that ended before its end, or whose framing is none (RFC 9112, 7.1 and 8). Who sent it may still read.
pub(crate) fn body_broken(reason: &str) -> ApiError {
    ApiError::new(Code::InvalidRequest, format!("the body broke off, nothing was stored, send it again: {reason}"))
}
