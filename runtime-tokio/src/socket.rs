//! One TCP connection that speaks Kafka: queued vectored writes, pausable reads, watermarks.
//!
//! Writes are tried at once, from wherever the machine's orders are carried out; only when the socket is full does
//! the connection's own task wait until it can be written again.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Result};
use std::net::Shutdown;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Above this many queued bytes the peer counts as clogged.
const HIGH_WATERMARK: usize = 1024 * 1024;
/// Below this many it counts as drained again.
const LOW_WATERMARK: usize = 256 * 1024;
/// Buffers of one system call.
const SLICES: usize = 64;
/// How often a peer that takes its bytes slowly is told of.
const BLOCKED_INTERVAL: Duration = Duration::from_secs(1);
/// Size of a read buffer, and so of the largest read: a frame of 64 KiB comes with one system call. Larger ones leave the
/// processor's cache and cost more than they save.
const READ_BUFFER: usize = 80 * 1024;
/// A read buffer with less room than this is replaced.
const SMALLEST_ROOM: usize = 16 * 1024;
/// Reads up to this size are copied out, so that a short request that waits long does not hold a whole buffer.
const COPIED: usize = 4 * 1024;
/// How long the last bytes may take to leave before a close.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// How long a closing side reads on, so that the peer sees the last bytes and not a reset.
const LINGER_LIMIT: Duration = Duration::from_secs(1);

/// What a connection tells its adapter.
pub(crate) enum SocketFact {
    /// Bytes arrived.
    Received(BytesMut),
    /// Above the high watermark.
    Clogged,
    /// Below the low watermark again.
    Drained,
    /// Bytes wait and the socket takes none now; again when it has taken some.
    Blocked,
    /// No bytes wait any more.
    Unblocked,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    AfterFlush,
    Now,
}

/// One system call. The vectored one costs more and is left for more than one buffer.
fn write(stream: &TcpStream, queue: &VecDeque<Bytes>) -> Result<usize> {
    if queue.len() == 1 {
        return stream.try_write(&queue[0]);
    }
    let mut slices = [IoSlice::new(&[]); SLICES];
    for (slice, bytes) in slices.iter_mut().zip(queue) {
        *slice = IoSlice::new(bytes);
    }
    stream.try_write_vectored(&slices[..queue.len().min(SLICES)])
}

/// The read buffer that all connections of a shard share: a connection that waits holds no buffer.
#[derive(Default)]
pub(crate) struct ReadBuffer(RefCell<BytesMut>);

/// A connection. Shared between its task, which reads, and the adapter, which writes.
pub(crate) struct Socket {
    stream: RefCell<TcpStream>,
    tell: Box<dyn Fn(SocketFact)>,
    queue: RefCell<VecDeque<Bytes>>,
    queued_bytes: Cell<usize>,
    accepted_bytes: Cell<u64>,
    in_unsent: Cell<bool>,
    paused: Cell<bool>,
    full: Cell<bool>,
    clogged: Cell<bool>,
    /// When the peer was last told of as blocked, while it is.
    blocked: Cell<Option<Instant>>,
    broken: Cell<bool>,
    closing: Cell<Closing>,
    task: RefCell<Option<Waker>>,
}

enum Ready {
    Read(BytesMut),
    Writing,
    Over,
}

impl Socket {
    /// Takes a connected stream: no delay, keep-alive.
    pub(crate) fn new(stream: TcpStream, tell: impl Fn(SocketFact) + 'static) -> Self {
        let options = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));
        // A socket that refuses an option works all the same, only slower to notice a dead peer.
        let refused = options.set_tcp_nodelay(true).and_then(|()| options.set_tcp_keepalive(&keepalive));
        if let Err(error) = refused {
            tracing::debug!(%error, "socket option refused");
        }
        Self {
            stream: RefCell::new(stream),
            tell: Box::new(tell),
            queue: RefCell::default(),
            queued_bytes: Cell::new(0),
            accepted_bytes: Cell::new(0),
            in_unsent: Cell::new(false),
            paused: Cell::new(false),
            full: Cell::new(false),
            clogged: Cell::new(false),
            blocked: Cell::new(None),
            broken: Cell::new(false),
            closing: Cell::new(Closing::No),
            task: RefCell::new(None),
        }
    }

    /// Appends to what is written; [`Socket::flush`] sends it. Returns whether the socket has to be put on the list
    /// of sockets to flush.
    pub(crate) fn append(&self, bytes: Bytes) -> bool {
        if bytes.is_empty() || self.broken.get() || self.closing.get() != Closing::No {
            return false;
        }
        self.queued_bytes.set(self.queued_bytes.get() + bytes.len());
        self.queue.borrow_mut().push_back(bytes);
        !self.in_unsent.replace(true)
    }

    /// Writes as much as the socket takes now, many buffers in one system call.
    pub(crate) fn flush(&self) {
        self.in_unsent.set(false);
        // After its end nothing leaves and nothing is told: what it has accepted by then is what counts.
        if self.closing.get() == Closing::Now {
            return;
        }
        if !self.full.get() {
            self.write_queue();
        }
        if self.closing.get() == Closing::AfterFlush {
            self.wake();
        }
        let queued = self.queued_bytes.get();
        if queued > 0 && self.blocked.get().is_none() {
            self.tell_blocked();
        }
        if queued > HIGH_WATERMARK && !self.clogged.replace(true) {
            (self.tell)(SocketFact::Clogged);
        }
    }

    fn write_queue(&self) {
        let mut queue = self.queue.borrow_mut();
        while !queue.is_empty() && !self.broken.get() && self.closing.get() != Closing::Now {
            match write(&self.stream.borrow(), &queue) {
                Ok(mut written) => {
                    self.accepted_bytes.set(self.accepted_bytes.get() + written as u64);
                    self.queued_bytes.set(self.queued_bytes.get() - written);
                    while let Some(first) = queue.front_mut().filter(|_| written > 0) {
                        let part = written.min(first.len());
                        first.advance(part);
                        written -= part;
                        if first.is_empty() {
                            queue.pop_front();
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.full.set(true);
                    self.wake();
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::debug!(%error, "write failed");
                    self.broken.set(true);
                    self.wake();
                    return;
                }
            }
        }
    }

    /// Stops reading. The peer is held back by TCP.
    pub(crate) fn pause(&self) {
        self.paused.set(true);
    }

    /// Reads again.
    pub(crate) fn resume(&self) {
        self.paused.set(false);
        self.wake();
    }

    /// Reads no more, writes what is queued within a bound, then ends.
    pub(crate) fn close_after_flush(&self) {
        if self.closing.get() == Closing::No {
            self.closing.set(Closing::AfterFlush);
        }
        self.wake();
    }

    /// Ends at once; what is queued is dropped.
    pub(crate) fn close_now(&self) {
        self.closing.set(Closing::Now);
        self.wake();
    }

    /// How many bytes of all writes the socket has accepted.
    pub(crate) fn accepted_bytes(&self) -> u64 {
        self.accepted_bytes.get()
    }

    fn wake(&self) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.wake();
        }
    }

    /// Reads and tells until the connection ends, by whichever side.
    pub(crate) async fn run(&self, buffer: &ReadBuffer) {
        let ended = async {
            loop {
                match poll_fn(|context| self.poll_ready(context, buffer)).await {
                    Ready::Read(bytes) => (self.tell)(SocketFact::Received(bytes)),
                    Ready::Writing => self.write_on(),
                    Ready::Over => return,
                }
            }
        };
        tokio::pin!(ended);
        // Has no timer until the connection is closing: it is polled whenever the connection is woken.
        let flush_bound = async {
            poll_fn(|_| if self.closing.get() == Closing::AfterFlush { Poll::Ready(()) } else { Poll::Pending }).await;
            tokio::time::sleep(FLUSH_LIMIT).await;
        };
        tokio::select! {
            biased;
            () = &mut ended => {}
            () = flush_bound => {}
        }
        if self.closing.get() == Closing::AfterFlush && !self.broken.get() {
            self.linger().await;
        }
        self.closing.set(Closing::Now);
    }

    fn poll_ready(&self, context: &mut Context<'_>, buffer: &ReadBuffer) -> Poll<Ready> {
        // The waker is stored before anything is looked at: an order that comes during this poll wakes it again.
        self.task.borrow_mut().replace(context.waker().clone());
        if self.broken.get() {
            return Poll::Ready(Ready::Over);
        }
        match self.closing.get() {
            Closing::Now => return Poll::Ready(Ready::Over),
            Closing::AfterFlush if self.queue.borrow().is_empty() => return Poll::Ready(Ready::Over),
            Closing::AfterFlush | Closing::No => {}
        }
        // An error of this poll shows up in the write that follows.
        if self.full.get() && self.stream.borrow().poll_write_ready(context).is_ready() {
            return Poll::Ready(Ready::Writing);
        }
        if self.paused.get() || self.closing.get() != Closing::No {
            return Poll::Pending;
        }
        self.poll_read(context, buffer).map(|read| match read {
            Ok(bytes) if bytes.is_empty() => Ready::Over,
            Ok(bytes) => Ready::Read(bytes),
            Err(error) => {
                tracing::debug!(%error, "read failed");
                Ready::Over
            }
        })
    }

    fn tell_blocked(&self) {
        self.blocked.set(Some(Instant::now()));
        (self.tell)(SocketFact::Blocked);
    }

    fn write_on(&self) {
        let accepted_before = self.accepted_bytes.get();
        self.full.set(false);
        self.write_queue();
        // Looked at before anything is told: whoever is told may append.
        let queued = self.queued_bytes.get();
        if queued < LOW_WATERMARK && self.clogged.replace(false) {
            (self.tell)(SocketFact::Drained);
        }
        if let Some(told) = self.blocked.get() {
            if queued == 0 {
                self.blocked.set(None);
                (self.tell)(SocketFact::Unblocked);
            } else if self.accepted_bytes.get() > accepted_before && told.elapsed() >= BLOCKED_INTERVAL {
                self.tell_blocked();
            }
        }
    }

    /// Bytes, none at the end of the stream. Asks the system once where a read that fills the buffer only in part shows
    /// that there is no more.
    fn poll_read(&self, context: &mut Context<'_>, buffer: &ReadBuffer) -> Poll<Result<BytesMut>> {
        let mut buffer = buffer.0.borrow_mut();
        if buffer.capacity() < SMALLEST_ROOM {
            *buffer = BytesMut::with_capacity(READ_BUFFER);
        }
        let mut stream = self.stream.borrow_mut();
        let read = ready!(pin!(stream.read_buf(&mut *buffer)).poll(context))?;
        Poll::Ready(Ok(if read <= COPIED {
            let copy = BytesMut::from(&buffer[..]);
            buffer.clear();
            copy
        } else {
            buffer.split()
        }))
    }

    /// Ends our side and reads on for a while: closing with unread bytes would reset the connection, and the peer
    /// might lose the answer that it has not read yet.
    async fn linger(&self) {
        if SockRef::from(&*self.stream.borrow()).shutdown(Shutdown::Write).is_err() {
            return;
        }
        let drain = async {
            let mut discarded = [0; 4096];
            loop {
                let read = poll_fn(|context| pin!(self.stream.borrow_mut().read(&mut discarded)).poll(context)).await;
                if !read.is_ok_and(|read| read > 0) {
                    return;
                }
            }
        };
        // Past the limit the peer has had its chance.
        let _ = tokio::time::timeout(LINGER_LIMIT, drain).await;
    }
}
