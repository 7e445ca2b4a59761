//! `/readyz` and `/livez`.
//!
//! Readiness is the table of the cluster ([`Service`]) and nothing else: S3 does not influence it. A stale clock gets one
//! read of etcd, at most two seconds.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::request;
use http::response::Parts;
use http::{Method, Response, StatusCode};

use crate::cluster::{NotServing, Service};
use crate::effect::ResponseBody;
use crate::input::ExchangeId;
use crate::planted::{Bug, planted};
use crate::shutdown::Shutdown;

/// Longest wait of a readiness probe for etcd.
pub(crate) const READINESS_READ: Duration = Duration::from_secs(2);

/// What a probe gets.
#[derive(Debug)]
pub(crate) enum Answer {
    /// This response.
    Respond(Box<Parts>, ResponseBody),
    /// First one read of etcd.
    AfterRead,
    /// It has been answered, or has gone.
    Nothing,
}

/// Probes that wait for a read.
#[derive(Default)]
pub(crate) struct Probes {
    waiting: BTreeSet<ExchangeId>,
}

impl Probes {
    /// A request to the health server.
    pub(crate) fn on_request(
        &mut self,
        exchange: ExchangeId,
        head: &request::Parts,
        shutdown: &Shutdown,
        service: Service,
    ) -> Answer {
        if head.method != Method::GET && head.method != Method::HEAD {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "use GET");
            if let Answer::Respond(head, _) = &mut answer {
                head.headers.insert(ALLOW, http::HeaderValue::from_static("GET, HEAD"));
            }
            return answer;
        }
        match head.uri.path() {
            "/livez" => text(StatusCode::OK, "ok"),
            "/readyz" => match (shutdown, service) {
                (Shutdown::Running, Service::AfterRead) => {
                    self.waiting.insert(exchange);
                    Answer::AfterRead
                }
                (Shutdown::Running | Shutdown::Grace | Shutdown::Draining | Shutdown::Over, _) => {
                    readiness(shutdown, service)
                }
            },
            _ => text(StatusCode::NOT_FOUND, "not found: this server has /readyz and /livez"),
        }
    }

    /// The read is done. The end may have been asked for meanwhile.
    pub(crate) fn on_answer(&mut self, exchange: ExchangeId, shutdown: &Shutdown, service: Service) -> Answer {
        if self.waiting.remove(&exchange) { readiness(shutdown, service) } else { Answer::Nothing }
    }

    /// The read takes too long.
    pub(crate) fn on_timeout(&mut self, exchange: ExchangeId, shutdown: &Shutdown) -> Answer {
        self.on_answer(exchange, shutdown, Service::Refused(NotServing::Unreadable))
    }

    /// The probe has gone.
    pub(crate) fn forget(&mut self, exchange: ExchangeId) {
        self.waiting.remove(&exchange);
    }
}

fn readiness(shutdown: &Shutdown, service: Service) -> Answer {
    match (shutdown, service) {
        (Shutdown::Grace | Shutdown::Draining, Service::Serving) if planted(Bug::ReadyWhileEnding) => {
            text(StatusCode::OK, "ready")
        }
        (Shutdown::Grace | Shutdown::Draining | Shutdown::Over, _) => not_ready("shutting down"),
        (Shutdown::Running, Service::Serving) => text(StatusCode::OK, "ready"),
        (Shutdown::Running, _) if planted(Bug::ReadyForEver) => text(StatusCode::OK, "ready"),
        (Shutdown::Running, Service::Refused(NotServing::NoBrokers)) => {
            not_ready("no backends available: etcd lists no broker")
        }
        (Shutdown::Running, Service::Refused(NotServing::Unreadable) | Service::AfterRead) => {
            not_ready("no backends available: etcd could not be read within the cache TTL")
        }
    }
}

fn not_ready(reason: &str) -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, reason)
}

fn text(status: StatusCode, line: &str) -> Answer {
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = status;
    head.headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    Answer::Respond(Box::new(head), ResponseBody::Whole(Bytes::from(format!("{line}\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: Method, path: &str, shutdown: Shutdown, service: Service) -> String {
        let (head, ()) = http::Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
        show(Probes::default().on_request(ExchangeId(1), &head, &shutdown, service))
    }

    fn show(answer: Answer) -> String {
        match answer {
            Answer::Respond(head, ResponseBody::Whole(body)) => {
                format!("{} {}", head.status.as_u16(), String::from_utf8_lossy(&body))
            }
            answer @ (Answer::Respond(_, ResponseBody::Streamed { .. }) | Answer::AfterRead | Answer::Nothing) => {
                format!("{answer:?}")
            }
        }
    }

    #[test]
    fn the_table() {
        use Service::{AfterRead, Refused, Serving};
        use Shutdown::{Draining, Grace, Running};
        let rows = [
            ("/livez", Running, Refused(NotServing::Unreadable), "200 ok\n"),
            ("/livez", Draining, Serving, "200 ok\n"),
            ("/readyz", Running, Serving, "200 ready\n"),
            ("/readyz", Running, AfterRead, "AfterRead"),
            ("/readyz", Running, Refused(NotServing::NoBrokers), "503 no backends available: etcd lists no broker\n"),
            ("/readyz", Grace, Serving, "503 shutting down\n"),
            ("/metrics", Running, Serving, "404 not found: this server has /readyz and /livez\n"),
        ];
        for (path, shutdown, service, answer) in rows {
            assert_eq!(ask(Method::GET, path, shutdown, service), answer, "{path} {shutdown:?} {service:?}");
        }
        assert_eq!(ask(Method::POST, "/readyz", Running, Serving), "405 use GET\n");
    }

    #[test]
    fn a_probe_that_waits_is_answered_once() {
        let mut probes = Probes::default();
        let (head, ()) = http::Request::builder().uri("/readyz").body(()).unwrap().into_parts();
        let answer = probes.on_request(ExchangeId(1), &head, &Shutdown::Running, Service::AfterRead);
        assert_eq!(show(answer), "AfterRead");
        assert_eq!(show(probes.on_answer(ExchangeId(1), &Shutdown::Running, Service::Serving)), "200 ready\n");
        assert_eq!(show(probes.on_timeout(ExchangeId(1), &Shutdown::Running)), "Nothing");
        probes.on_request(ExchangeId(2), &head, &Shutdown::Running, Service::AfterRead);
        let answer = probes.on_answer(ExchangeId(2), &Shutdown::Grace, Service::Serving);
        assert_eq!(show(answer), "503 shutting down\n", "the end was asked for while it waited");
    }
}
