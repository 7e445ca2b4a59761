//! Reading from one client: frames, room for large ones, and whether to read at all.

use std::time::Duration;

use bytes::BytesMut;

use super::Env;
use crate::input::ClientId;
use crate::kafka::{FrameError, Splitter};
use crate::listener::frame_memory::LARGE;
use crate::listener::request::Decision;
use crate::timers::Timer;

/// How long a large frame may wait for room, or for its next byte.
const FRAME_PATIENCE: Duration = Duration::from_secs(30);

/// Room for the large frame in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// The frame in front is not large, or not even its length is known.
    NotNeeded,
    /// Lined up for so many bytes.
    Awaited(usize),
    /// So many bytes are reserved; `moved` since the timer was set.
    Reserved { bytes: usize, moved: bool },
}

/// The reading side of a client.
pub(super) struct Reading {
    splitter: Splitter,
    room: Room,
    /// What the driver was last told.
    is_reading: bool,
    /// Bytes came since this was last asked.
    active: bool,
    /// The client does not take its answers.
    pub(super) client_is_clogged: bool,
}

impl Reading {
    pub(super) fn new(splitter: Splitter) -> Self {
        Self { splitter, room: Room::NotNeeded, is_reading: true, active: false, client_is_clogged: false }
    }

    pub(super) fn push(&mut self, bytes: BytesMut) {
        self.active = true;
        if let Room::Reserved { moved, .. } = &mut self.room {
            *moved = true;
        }
        self.splitter.push(bytes);
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
        if let Some(bytes) = self.splitter.announced()?.filter(|bytes| *bytes > LARGE) {
            match self.room {
                Room::Awaited(_) => return Ok(None),
                Room::Reserved { .. } => {}
                Room::NotNeeded => {
                    env.ctx.timers.set(Timer::ClientFrame(client), env.ctx.now.monotonic + FRAME_PATIENCE);
                    if !env.shared.memory.reserve(client, bytes) {
                        self.room = Room::Awaited(bytes);
                        return Ok(None);
                    }
                    self.room = Room::Reserved { bytes, moved: false };
                }
            }
        }
        let Some(frame) = self.splitter.next_frame()? else { return Ok(None) };
        let reserved = match std::mem::replace(&mut self.room, Room::NotNeeded) {
            Room::Reserved { bytes, .. } => {
                env.ctx.timers.clear(Timer::ClientFrame(client));
                bytes
            }
            Room::NotNeeded | Room::Awaited(_) => 0,
        };
        Ok(Some((frame, reserved)))
    }

    /// What was awaited is reserved now.
    pub(super) fn granted(&mut self, client: ClientId, env: &mut Env<'_, '_>) {
        if let Room::Awaited(bytes) = self.room {
            self.room = Room::Reserved { bytes, moved: false };
            env.ctx.timers.set(Timer::ClientFrame(client), env.ctx.now.monotonic + FRAME_PATIENCE);
        }
    }

    /// Whether the large frame has to be given up. One that moves gets more time.
    pub(super) fn on_timer(&mut self, client: ClientId, env: &mut Env<'_, '_>) -> bool {
        match &mut self.room {
            Room::NotNeeded => false,
            Room::Awaited(_) => {
                env.shared.memory.refuse(client);
                true
            }
            Room::Reserved { moved, .. } => {
                // While we do not read, the client cannot be blamed.
                let goes_on = std::mem::take(moved) || !self.is_reading;
                if goes_on {
                    env.ctx.timers.set(Timer::ClientFrame(client), env.ctx.now.monotonic + FRAME_PATIENCE);
                }
                !goes_on
            }
        }
    }

    /// Nothing more is read: gives back what is reserved or awaited.
    pub(super) fn leave(&mut self, client: ClientId, env: &mut Env<'_, '_>) {
        match std::mem::replace(&mut self.room, Room::NotNeeded) {
            Room::NotNeeded => return,
            Room::Awaited(_) => env.shared.memory.leave(client),
            Room::Reserved { bytes, .. } => env.shared.memory.release(bytes),
        }
        env.ctx.timers.clear(Timer::ClientFrame(client));
    }

    /// Tells the driver whether to read, when that has changed.
    pub(super) fn order(&mut self, client: ClientId, wanted: bool, out: &mut Vec<Decision>) {
        let read = wanted && !self.client_is_clogged && !matches!(self.room, Room::Awaited(_));
        if read != self.is_reading {
            self.is_reading = read;
            out.push(if read { Decision::Resume { client } } else { Decision::Pause { client } });
        }
    }
}
