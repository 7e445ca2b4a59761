//! One HTTP/1 connection: time limits that hyper does not have, notice of flushed answers, an end that lets the
//! client read the answer.
//!
//! hyper parses and frames. A request head may take so long, a pause between two requests so long; bodies and
//! answers have no limit here, the machine watches their progress.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, IoSlice, Result};
use std::net::{Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::settings::HttpServerSettings;

/// Unread bytes of a refused body that are taken in before the connection closes.
const LINGER_BYTES: usize = 256 * 1024;
/// How long a closing connection waits for the client to read its answer.
const LINGER_LIMIT: Duration = Duration::from_secs(3);
/// How often it looks whether the client has closed.
const LINGER_STEP: Duration = Duration::from_millis(50);
/// The smallest buffer that hyper accepts.
const SMALLEST_HEAD: usize = 8 * 1024;

/// What a connection is doing, as far as time limits go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between requests, until then.
    Idle(Instant),
    /// A head is coming in, until then.
    Head(Instant),
    /// A request is being served: the machine watches.
    Serving,
}

/// State of a connection that its service and its socket share.
pub(crate) struct ConnectionState {
    limits: HttpServerSettings,
    phase: Cell<Phase>,
    changed: Notify,
    kill: Notify,
    stop: Notify,
    on_flushed: RefCell<Option<Box<dyn Fn()>>>,
    /// The first bytes that came, as many as are needed to see what they are.
    first: Cell<[u8; 4]>,
    /// How many of them there are.
    first_count: Cell<usize>,
}

impl ConnectionState {
    pub(crate) fn new(limits: HttpServerSettings) -> Self {
        Self {
            limits,
            phase: Cell::new(Phase::Idle(Instant::now() + limits.idle_timeout)),
            changed: Notify::new(),
            kill: Notify::new(),
            stop: Notify::new(),
            on_flushed: RefCell::new(None),
            first: Cell::new([0; 4]),
            first_count: Cell::new(0),
        }
    }

    /// Called each time when everything that hyper had to write is with the socket.
    pub(crate) fn when_flushed(&self, call: impl Fn() + 'static) {
        self.on_flushed.borrow_mut().replace(Box::new(call));
    }

    /// A request head is complete.
    pub(crate) fn serving(&self) {
        self.phase.set(Phase::Serving);
    }

    /// The answer is out.
    pub(crate) fn served(&self) {
        self.phase.set(Phase::Idle(Instant::now() + self.limits.idle_timeout));
        self.changed.notify_one();
    }

    /// Breaks the connection.
    pub(crate) fn kill(&self) {
        self.kill.notify_one();
    }

    /// Takes no further request.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    fn received(&self, bytes: &[u8]) {
        let (mut first, count) = (self.first.get(), self.first_count.get());
        if count < first.len() {
            first[count..].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            self.first.set(first);
            self.first_count.set(count + bytes.len().min(first.len() - count));
        }
        if let Phase::Idle(_) = self.phase.get() {
            self.phase.set(Phase::Head(Instant::now() + self.limits.header_timeout));
            self.changed.notify_one();
        }
    }

    /// Ends when a time limit is over.
    async fn expired(&self) {
        loop {
            match self.phase.get() {
                Phase::Idle(limit) | Phase::Head(limit) if limit <= Instant::now() => return,
                Phase::Idle(limit) | Phase::Head(limit) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(limit) => {}
                        () = self.changed.notified() => {}
                    }
                }
                Phase::Serving => self.changed.notified().await,
            }
        }
    }
}

/// The socket as hyper sees it.
struct Socket {
    stream: Rc<TcpStream>,
    state: Rc<ConnectionState>,
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let before = buffer.filled().len();
            match self.stream.try_read_buf(buffer) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {
                    self.state.received(&buffer.filled()[before..]);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write_vectored(slices) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(call) = &*self.state.on_flushed.borrow() {
            call();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(SockRef::from(&*self.stream).shutdown(Shutdown::Write))
    }
}

/// Serves one connection until it ends. Whatever is unread then is taken in within bounds, so that the client sees
/// the answer and not a reset; nothing of it is ever taken for a request.
pub(crate) async fn serve<S, B>(stream: TcpStream, peer: SocketAddr, state: &Rc<ConnectionState>, service: S)
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "socket option refused");
    }
    let stream = Rc::new(stream);
    let socket = Socket { stream: Rc::clone(&stream), state: Rc::clone(state) };
    let connection = http1::Builder::new()
        .max_buf_size(state.limits.max_header_bytes.max(SMALLEST_HEAD))
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            () = state.kill.notified() => return,
            result = connection.as_mut() => {
                match result {
                    Err(error) if error.is_parse() => {
                        let looks_like = looks_like(&state.first.get()[..state.first_count.get()]);
                        tracing::warn!(%peer, %error, looks_like, "what came is no HTTP request, connection closed");
                    }
                    Err(error) => tracing::debug!(%error, "HTTP connection ended"),
                    Ok(()) => {}
                }
                break;
            }
            () = state.stop.notified(), if !stopping => {
                connection.as_mut().graceful_shutdown();
                stopping = true;
            }
            () = state.expired() => return,
        }
    }
    linger(&stream).await;
}

/// What a connection that is no HTTP/1 may be speaking, by its first bytes.
fn looks_like(first: &[u8]) -> &'static str {
    match first {
        [0x16, 0x03, ..] => "TLS",
        b"PRI " => "HTTP/2",
        [0, ..] => "Kafka",
        _ => "nothing known",
    }
}

async fn linger(stream: &TcpStream) {
    // Fails when the client is gone already, and then there is nobody to wait for.
    if SockRef::from(stream).shutdown(Shutdown::Write).is_err() {
        return;
    }
    let limit = Instant::now() + LINGER_LIMIT;
    let mut taken = 0;
    let mut discarded = [0; 8192];
    while Instant::now() < limit {
        let ready = tokio::time::timeout_at(limit, stream.readable()).await;
        if !matches!(ready, Ok(Ok(()))) {
            return;
        }
        if taken >= LINGER_BYTES {
            // TCP holds the client back now; it reads the answer and closes, or the limit ends this.
            let closed = stream.ready(tokio::io::Interest::READABLE).await.is_ok_and(|ready| ready.is_read_closed());
            if closed {
                return;
            }
            tokio::time::sleep(LINGER_STEP).await;
            continue;
        }
        match stream.try_read(&mut discarded) {
            Ok(0) => return,
            Ok(read) => taken += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_http_gets_a_hint() {
        let client_hello = b"\x16\x03\x01\x02\0";
        for (first, hint) in [
            (&client_hello[..4], "TLS"),
            (b"PRI ", "HTTP/2"),
            (b"\0\0\0\x23", "Kafka"),
            (b"SSH-", "nothing known"),
            (b"", "nothing known"),
        ] {
            assert_eq!(looks_like(first), hint, "{first:?}");
        }
    }

    #[test]
    fn the_first_bytes_are_kept_however_they_come() {
        for pieces in [&[&b"\x16\x03\x01\x02\0\x01"[..]][..], &[b"\x16", b"\x03\x01", b"\x02\0", b"\x01"]] {
            let limit = Duration::from_secs(1);
            let state = ConnectionState::new(HttpServerSettings {
                header_timeout: limit,
                idle_timeout: limit,
                max_header_bytes: 1,
                max_connections: 1,
            });
            pieces.iter().for_each(|piece| state.received(piece));
            assert_eq!((state.first.get(), state.first_count.get()), ([0x16, 3, 1, 2], 4));
        }
    }
}
