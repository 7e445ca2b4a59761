//! Reading from one client: frames, room for large ones, how long one may take, and whether to read at all.

use bytes::BytesMut;

use super::Env;
use crate::input::ClientId;
use crate::kafka::{FrameError, Splitter};
use crate::listener::frame_memory::{Claimed, LARGE, Turn};
use crate::listener::request::Decision;
use crate::planted::{Bug, planted};
use crate::time::Monotonic;
use crate::timers::Timer;

/// Room for the frame in front, if it is large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// The frame in front is not large, or not even its length is known.
    NotNeeded,
    /// It holds `held` bytes and waits for more.
    Awaited { turn: Turn, held: usize, since: Monotonic },
    /// It holds so many bytes.
    Held(usize),
}

/// When the unfinished frame in front began and when its last bytes came, without the time in which nothing was read.
#[derive(Clone, Copy, Debug)]
struct Started {
    first: Monotonic,
    last: Monotonic,
}

/// Why a frame is given up, and its connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// No room came free for it.
    NoRoom,
    /// No byte of it came.
    Silent,
    /// It was not whole in time.
    Slow,
}

impl GivenUp {
    /// For the log.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::NoRoom => "no room for a large request in time",
            Self::Silent => "the rest of a request does not come",
            Self::Slow => "a request comes too slowly",
        }
    }
}

/// The reading side of a client.
pub(super) struct Reading {
    splitter: Splitter,
    room: Room,
    started: Option<Started>,
    /// Since when nothing is read although the client may take its answers: that is no fault of its own.
    excused: Option<Monotonic>,
    /// What the driver was last told.
    is_reading: bool,
    /// Bytes came since this was last asked.
    active: bool,
    /// The client does not take its answers.
    pub(super) client_is_clogged: bool,
}

impl Reading {
    pub(super) fn new(splitter: Splitter) -> Self {
        Self {
            splitter,
            room: Room::NotNeeded,
            started: None,
            excused: None,
            is_reading: true,
            active: false,
            client_is_clogged: false,
        }
    }

    pub(super) fn push(&mut self, now: Monotonic, bytes: BytesMut) {
        self.active = true;
        if let Some(started) = &mut self.started {
            started.last = now;
        }
        self.splitter.push(bytes);
    }

    /// Whether the frame in front is large: its bytes are in the memory for those, and what it holds there others wait for.
    pub(super) fn is_in_large_frame(&self) -> bool {
        self.splitter.announced().is_ok_and(|announced| announced.is_some_and(|bytes| bytes > LARGE))
    }

    /// Whether the driver was told to read.
    pub(super) fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Whether bytes came since the last call.
    pub(super) fn was_active(&mut self) -> bool {
        std::mem::take(&mut self.active)
    }

    /// Whether a whole frame has come.
    pub(super) fn has_frame(&self) -> bool {
        let announced = self.splitter.announced();
        announced.is_ok_and(|announced| announced.is_some_and(|bytes| bytes <= self.splitter.buffered()))
    }

    /// The next frame with what is reserved for it; `None` while it is not complete or there is no room.
    pub(super) fn next_frame(
        &mut self,
        client: ClientId,
        env: &mut Env<'_, '_>,
    ) -> Result<Option<(BytesMut, usize)>, FrameError> {
        let announced = self.splitter.announced()?;
        if announced.is_some_and(|bytes| bytes > LARGE && !self.has_room(client, env, bytes)) {
            return Ok(None);
        }
        let Some(frame) = self.splitter.next_frame()? else {
            self.watch(client, env);
            return Ok(None);
        };
        self.started = None;
        let held = match std::mem::replace(&mut self.room, Room::NotNeeded) {
            Room::Held(bytes) => bytes,
            Room::NotNeeded | Room::Awaited { .. } => 0,
        };
        env.shared.memory.finish(held);
        Ok(Some((frame, held)))
    }

    /// Whether a large frame has room for the bytes that come next. If not, it waits.
    fn has_room(&mut self, client: ClientId, env: &mut Env<'_, '_>, announced: usize) -> bool {
        let held = match self.room {
            Room::Awaited { .. } => return false,
            Room::NotNeeded => 0,
            Room::Held(bytes) => bytes,
        };
        let buffered = self.splitter.buffered();
        if held == announced || buffered < held {
            return true;
        }
        match env.shared.memory.claim(client, held, buffered, announced) {
            Claimed::Now(held) => {
                self.hold(held);
                true
            }
            Claimed::Later(turn) => {
                let now = env.ctx.now.monotonic;
                self.room = Room::Awaited { turn, held, since: now };
                let at = now + env.ctx.config.listener.read_timeout;
                env.ctx.timers.set_no_later(Timer::ClientFrame(client), at);
                false
            }
        }
    }

    fn hold(&mut self, bytes: usize) {
        self.room = Room::Held(bytes);
        self.splitter.reserve(bytes);
    }

    /// The frame in front is not whole: from now on its time counts.
    fn watch(&mut self, client: ClientId, env: &mut Env<'_, '_>) {
        if self.splitter.buffered() == 0 || planted(Bug::HalfFrameForgotten) {
            return;
        }
        let now = env.ctx.now.monotonic;
        self.started.get_or_insert(Started { first: now, last: now });
        // One that is set already is left: when it comes, it looks at what is in front then.
        let listener = &env.ctx.config.listener;
        let at = now + listener.read_timeout.min(listener.request_timeout);
        env.ctx.timers.set_no_later(Timer::ClientFrame(client), at);
    }

    /// What was awaited is held now.
    pub(super) fn granted(&mut self, bytes: usize) {
        if let Room::Awaited { .. } = self.room {
            self.hold(bytes);
        }
    }

    /// Whether the frame in front has to be given up, and why. Sets the timer anew where it may go on.
    pub(super) fn on_timer(&mut self, client: ClientId, env: &mut Env<'_, '_>) -> Option<GivenUp> {
        let now = env.ctx.now.monotonic;
        let listener = &env.ctx.config.listener;
        let (at, reason) = match (self.room, self.started) {
            (Room::Awaited { since, .. }, _) => (since + listener.read_timeout, GivenUp::NoRoom),
            (Room::NotNeeded | Room::Held(_), None) => return None,
            (Room::NotNeeded | Room::Held(_), Some(_)) if self.excused.is_some() || self.has_frame() => {
                (now + listener.read_timeout, GivenUp::Silent)
            }
            (Room::NotNeeded | Room::Held(_), Some(Started { first, last })) => {
                let (silent, slow) = (last + listener.read_timeout, first + listener.request_timeout);
                // While it does not take its answers it is not read, and cannot be told from one that sends nothing.
                if silent <= slow && !self.client_is_clogged {
                    (silent, GivenUp::Silent)
                } else {
                    (slow, GivenUp::Slow)
                }
            }
        };
        if at <= now {
            if let Room::Awaited { turn, .. } = self.room {
                env.shared.memory.refuse(turn);
            }
            return Some(reason);
        }
        env.ctx.timers.set(Timer::ClientFrame(client), at);
        None
    }

    /// Nothing more is read: gives back what is held or awaited, and drops what came of an unfinished frame.
    pub(super) fn leave(&mut self, client: ClientId, env: &mut Env<'_, '_>) {
        let held = match std::mem::replace(&mut self.room, Room::NotNeeded) {
            Room::NotNeeded => 0,
            Room::Awaited { turn, held, .. } => {
                env.shared.memory.leave(turn);
                held
            }
            Room::Held(bytes) => bytes,
        };
        if !planted(Bug::FrameNeverReleased) {
            env.shared.memory.give_up(held);
        }
        self.splitter.clear();
        self.started = None;
        env.ctx.timers.clear(Timer::ClientFrame(client));
    }

    /// Tells the driver whether to read, when that has changed.
    pub(super) fn order(&mut self, client: ClientId, now: Monotonic, wanted: bool, out: &mut Vec<Decision>) {
        let ours = wanted && !matches!(self.room, Room::Awaited { .. });
        if ours {
            if let (Some(since), Some(started)) = (self.excused.take(), &mut self.started) {
                // A frame that had to wait for room from its first byte on has begun only now.
                let unread = now.since(since.max(started.first));
                *started = Started { first: started.first + unread, last: started.last + unread };
            }
        } else {
            self.excused.get_or_insert(now);
        }
        let read = ours && !self.client_is_clogged;
        if read != self.is_reading {
            self.is_reading = read;
            out.push(if read { Decision::Resume { client } } else { Decision::Pause { client } });
        }
    }
}
