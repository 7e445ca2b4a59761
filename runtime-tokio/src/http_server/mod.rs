//! HTTP exchanges of one shard: requests become facts, orders become responses.
//!
//! hyper sends `100 Continue` when a body is first read, and not before; `Upgrade` headers mean nothing here.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use kafscale_proxy_core::effects::ResponseBody;
use kafscale_proxy_core::inputs::{ExchangeId, HttpServer, ReadResult};
use kafscale_proxy_core::{Input, OperationId, effects, inputs};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

use crate::door::Place;
use crate::http_connection::{self, ConnectionState};
use crate::pulled::{Pulled, Source};
use crate::report::Report;
use crate::settings::HttpServerSettings;
use crate::tasks::spawn_local;

impl Source for Incoming {
    async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.frame().await? {
                // Trailers carry nothing that this API knows.
                Ok(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Some(Ok(bytes));
                    }
                }
                Err(error) => return Some(Err(error.to_string())),
            }
        }
    }

    fn is_at_end(&self) -> bool {
        self.is_end_stream()
    }
}

/// The request body of an exchange.
enum RequestBody {
    /// Nobody reads it now.
    Waiting(Pulled<Incoming>),
    /// A `ReadBody` is open; dropping the sender cancels it.
    Reading { operation: OperationId, _cancel: oneshot::Sender<()> },
    /// It was given up, or there was none.
    Gone,
}

/// The response of an exchange.
enum ResponseState {
    /// None yet.
    Awaited(oneshot::Sender<Response<SentBody>>),
    /// Chunks go through here.
    Streaming(Rc<Chunks>),
    /// Nothing more is expected of the machine.
    Given,
}

struct Exchange {
    body: RequestBody,
    response: ResponseState,
    connection: Option<Rc<ConnectionState>>,
    /// The machine broke it: its end is no news.
    aborted: bool,
    /// The connection is gone: nothing can be read or sent.
    gone: bool,
}

/// The place between the machine and hyper for one chunk of a streamed body.
struct Chunks {
    next: RefCell<Option<(OperationId, Bytes)>>,
    waker: RefCell<Option<Waker>>,
}

/// A response body as hyper sees it.
pub(crate) struct SentBody {
    exchange: ExchangeId,
    report: Report,
    left: u64,
    content: Content,
    /// To HEAD: hyper tells the length and drops the body.
    length_only: bool,
    written: Rc<Written>,
}

enum Content {
    Whole(Bytes),
    Streamed(Rc<Chunks>),
    /// The bytes have been taken elsewhere.
    Taken,
}

/// Exchanges of one connection whose answer hyper has taken whole, but not yet handed to the socket.
#[derive(Default)]
struct Written(RefCell<Vec<ExchangeId>>);

/// The exchanges of a shard.
pub(crate) struct HttpExchanges {
    report: Report,
    exchanges: RefCell<HashMap<ExchangeId, Exchange>>,
    connections: RefCell<HashMap<u64, Rc<ConnectionState>>>,
    stopping: Cell<bool>,
    closed: Notify,
    last_id: Cell<u64>,
}

impl HttpExchanges {
    pub(crate) fn new(report: Report) -> Self {
        Self {
            report,
            exchanges: RefCell::default(),
            connections: RefCell::default(),
            stopping: Cell::new(false),
            closed: Notify::new(),
            last_id: Cell::new(0),
        }
    }

    fn next_id(&self) -> u64 {
        self.last_id.set(self.last_id.get() + 1);
        self.last_id.get()
    }

    /// Serves an accepted connection of the API on a task of its own.
    pub(crate) fn serve(
        self: &Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        limits: HttpServerSettings,
        place: Place,
    ) {
        let this = Rc::clone(self);
        spawn_local(async move {
            let state = Rc::new(ConnectionState::new(limits));
            let number = this.next_id();
            this.connections.borrow_mut().insert(number, Rc::clone(&state));
            if this.stopping.get() {
                state.stop();
            }
            let written = Rc::new(Written::default());
            state.when_flushed({
                let (this, written) = (Rc::clone(&this), Rc::clone(&written));
                move || {
                    for exchange in written.0.take() {
                        this.end(exchange);
                    }
                }
            });
            let latest = Rc::new(Cell::new(None));
            let service = service_fn(|request: Request<Incoming>| {
                let (head, body) = request.into_parts();
                let (exchange, response) = this.open(HttpServer::Api, head, body, peer, &state, &written);
                latest.set(Some(exchange));
                async move { response.await.map_err(|_| Broken) }
            });
            http_connection::serve(stream, peer, &state, service).await;
            drop(place);
            // Answers that never reached the socket, and the exchange that was open.
            for exchange in written.0.take().into_iter().chain(latest.get()) {
                this.connection_lost(exchange);
            }
            // The callback holds this task's state in a circle.
            state.when_flushed(|| {});
            this.connections.borrow_mut().remove(&number);
            this.closed.notify_one();
        });
    }

    /// Connections of the API that have not ended.
    pub(crate) fn connections(&self) -> usize {
        self.connections.borrow().len()
    }

    /// Lets every connection finish what it does and take no further request.
    pub(crate) fn stop(&self) {
        self.stopping.set(true);
        for connection in self.connections.borrow().values() {
            connection.stop();
        }
    }

    /// Waits until every connection has ended, at most so long.
    pub(crate) async fn wait_until_closed(&self, limit: Duration) {
        self.stop();
        let closed = async {
            while !self.connections.borrow().is_empty() {
                self.closed.notified().await;
            }
        };
        // Past the limit what is still open is given up.
        let _ = tokio::time::timeout(limit, closed).await;
    }

    fn open(
        &self,
        server: HttpServer,
        head: Parts,
        body: Incoming,
        peer: SocketAddr,
        connection: &Rc<ConnectionState>,
        written: &Rc<Written>,
    ) -> (ExchangeId, impl Future<Output = Result<Response<SentBody>, oneshot::error::RecvError>> + use<>) {
        let exchange = ExchangeId(self.next_id());
        let (respond, response) = oneshot::channel();
        connection.serving();
        let length_only = head.method == Method::HEAD;
        self.exchanges.borrow_mut().insert(
            exchange,
            Exchange {
                body: RequestBody::Waiting(Pulled::new(body)),
                response: ResponseState::Awaited(respond),
                connection: Some(Rc::clone(connection)),
                aborted: false,
                gone: false,
            },
        );
        self.report.tell(Input::Http(inputs::Http::Requested { exchange, server, head: Box::new(head), peer }));
        let written = Rc::clone(written);
        let response = async move {
            let mut response: Response<SentBody> = response.await?;
            let body = response.body_mut();
            body.written = written;
            body.length_only = length_only;
            Ok(response)
        };
        (exchange, response)
    }

    /// Asks the machine for its health, on behalf of the process.
    pub(crate) async fn health(&self, head: Parts, peer: SocketAddr) -> Option<(http::response::Parts, Bytes)> {
        let exchange = ExchangeId(self.next_id());
        let (respond, response) = oneshot::channel();
        self.exchanges.borrow_mut().insert(
            exchange,
            Exchange {
                body: RequestBody::Gone,
                response: ResponseState::Awaited(respond),
                connection: None,
                aborted: false,
                gone: false,
            },
        );
        let server = HttpServer::Health;
        self.report.tell(Input::Http(inputs::Http::Requested { exchange, server, head: Box::new(head), peer }));
        let answer = match response.await {
            Ok(response) => {
                let (head, mut body) = response.into_parts();
                match std::mem::replace(&mut body.content, Content::Taken) {
                    Content::Whole(bytes) => Some((head, bytes)),
                    Content::Streamed(_) | Content::Taken => None,
                }
            }
            Err(_) => None,
        };
        self.end(exchange);
        answer
    }

    /// Carries out one order.
    pub(crate) fn carry_out(self: &Rc<Self>, order: effects::Http) {
        match order {
            effects::Http::ReadBody { operation, exchange, max_bytes } => {
                self.read_body(operation, exchange, max_bytes);
            }
            effects::Http::CancelRead { exchange } => self.cancel_read(exchange),
            effects::Http::Respond { exchange, head, body } => self.respond(exchange, *head, body),
            effects::Http::SendChunk { operation, exchange, bytes } => self.send_chunk(operation, exchange, bytes),
            effects::Http::Abort { exchange } => self.abort(exchange),
        }
    }

    fn read_body(self: &Rc<Self>, operation: OperationId, exchange: ExchangeId, max_bytes: usize) {
        let mut exchanges = self.exchanges.borrow_mut();
        let open = exchanges.get_mut(&exchange).filter(|open| !open.gone);
        let (cancel, cancelled) = oneshot::channel();
        let reading = RequestBody::Reading { operation, _cancel: cancel };
        let body = open.map(|open| std::mem::replace(&mut open.body, reading));
        let Some(RequestBody::Waiting(mut body)) = body else {
            if let Some(open) = exchanges.get_mut(&exchange) {
                open.body = RequestBody::Gone;
            }
            drop(exchanges);
            let result = ReadResult::Broken("there is no body to read".into());
            self.report.tell(Input::Http(inputs::Http::BodyRead { operation, result }));
            return;
        };
        let this = Rc::clone(self);
        spawn_local(async move {
            let result = tokio::select! {
                biased;
                _ = cancelled => return,
                result = body.read(max_bytes) => result,
            };
            if let Some(open) = this.exchanges.borrow_mut().get_mut(&exchange) {
                open.body = RequestBody::Waiting(body);
            }
            this.report.tell(Input::Http(inputs::Http::BodyRead { operation, result }));
        });
    }

    /// Ends an open read as broken; whoever cancels gets the completion at once.
    fn cancel_read(&self, exchange: ExchangeId) {
        let body = match self.exchanges.borrow_mut().get_mut(&exchange) {
            Some(Exchange { body: body @ RequestBody::Reading { .. }, .. }) => {
                std::mem::replace(body, RequestBody::Gone)
            }
            Some(_) | None => return,
        };
        if let RequestBody::Reading { operation, .. } = body {
            let result = ReadResult::Broken("cancelled".into());
            self.report.tell(Input::Http(inputs::Http::BodyRead { operation, result }));
        }
    }

    fn respond(&self, exchange: ExchangeId, mut head: http::response::Parts, body: ResponseBody) {
        let mut exchanges = self.exchanges.borrow_mut();
        let Some(open) = exchanges.get_mut(&exchange).filter(|open| !open.gone) else { return };
        let (left, content, next) = match body {
            ResponseBody::Whole(bytes) => (bytes.len() as u64, Content::Whole(bytes), ResponseState::Given),
            ResponseBody::Streamed { length } => {
                let chunks = Rc::new(Chunks { next: RefCell::default(), waker: RefCell::default() });
                (length, Content::Streamed(Rc::clone(&chunks)), ResponseState::Streaming(chunks))
            }
        };
        let ResponseState::Awaited(respond) = std::mem::replace(&mut open.response, next) else { return };
        // What is left of an unread body is never taken for the next request: the connection ends after the answer.
        let unread = match &open.body {
            RequestBody::Waiting(body) => !body.is_at_end(),
            RequestBody::Reading { .. } => true,
            RequestBody::Gone => open.connection.is_some(),
        };
        if unread {
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let RequestBody::Waiting(_) = open.body {
            open.body = RequestBody::Gone;
        }
        let body = SentBody {
            exchange,
            report: self.report.clone(),
            left,
            content,
            length_only: false,
            written: Rc::new(Written::default()),
        };
        // Fails when the connection has just ended; its task reports that.
        let _ = respond.send(Response::from_parts(head, body));
    }

    fn send_chunk(&self, operation: OperationId, exchange: ExchangeId, bytes: Bytes) {
        let chunks = match self.exchanges.borrow().get(&exchange) {
            Some(Exchange { gone: false, response: ResponseState::Streaming(chunks), .. }) => Some(Rc::clone(chunks)),
            Some(_) | None => None,
        };
        match chunks {
            Some(chunks) => {
                chunks.next.replace(Some((operation, bytes)));
                if let Some(waker) = chunks.waker.take() {
                    waker.wake();
                }
            }
            // The end of the exchange is told already, or is about to be.
            None => self.report.tell(Input::Http(inputs::Http::ChunkAccepted { operation })),
        }
    }

    fn abort(&self, exchange: ExchangeId) {
        if let Some(open) = self.exchanges.borrow_mut().get_mut(&exchange) {
            open.aborted = true;
            match &open.connection {
                Some(connection) => connection.kill(),
                None => open.response = ResponseState::Given,
            }
        }
    }

    /// The answer is out.
    fn end(&self, exchange: ExchangeId) {
        let connection = self.exchanges.borrow().get(&exchange).and_then(|open| open.connection.clone());
        if let Some(connection) = connection {
            connection.served();
        }
        self.close(exchange);
    }

    fn connection_lost(&self, exchange: ExchangeId) {
        let aborted = match self.exchanges.borrow_mut().get_mut(&exchange) {
            Some(open) => {
                open.gone = true;
                open.aborted
            }
            None => return,
        };
        if !aborted {
            self.report.tell(Input::Http(inputs::Http::ClientGone { exchange }));
        }
        self.close(exchange);
    }

    /// Completes what is open, then tells the end.
    fn close(&self, exchange: ExchangeId) {
        self.cancel_read(exchange);
        let Some(open) = self.exchanges.borrow_mut().remove(&exchange) else { return };
        if let ResponseState::Streaming(chunks) = open.response
            && let Some((operation, _)) = chunks.next.take()
        {
            self.report.tell(Input::Http(inputs::Http::ChunkAccepted { operation }));
        }
        self.report.tell(Input::Http(inputs::Http::Ended { exchange }));
    }
}

/// No answer could be given.
#[derive(Debug)]
struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no answer was given")
    }
}

impl std::error::Error for Broken {}

impl Body for SentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let (bytes, operation) = match &mut self.content {
            Content::Taken => return Poll::Ready(None),
            Content::Whole(bytes) => (std::mem::take(bytes), None),
            Content::Streamed(chunks) => {
                let next = chunks.next.take();
                match next {
                    Some((operation, bytes)) => (bytes, Some(operation)),
                    None => {
                        chunks.waker.replace(Some(context.waker().clone()));
                        return Poll::Pending;
                    }
                }
            }
        };
        self.left = self.left.saturating_sub(bytes.len() as u64);
        if let Some(operation) = operation {
            self.report.tell(Input::Http(inputs::Http::ChunkAccepted { operation }));
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        if self.left == 0 || self.length_only {
            self.written.0.borrow_mut().push(self.exchange);
        }
    }
}
