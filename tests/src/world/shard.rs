//! One machine of the world, and what a driver keeps for it: files, and what was written to which socket.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::inputs::{BrokerConnectionId, FileId, ReadResult};
use kafscale_proxy_core::model::broker::ConnectionId;
use kafscale_proxy_core::{Config, Effects, Input, Monotonic, Now, Proxy};

/// A connection of a shard to a broker.
pub(super) struct Socket {
    pub(super) broker: usize,
    pub(super) connection: ConnectionId,
    /// Bytes that the socket took from the machine.
    pub(super) accepted: u64,
    /// The machine does not want it read.
    pub(super) paused: bool,
    /// What has come from the broker and was not read yet, in the pieces in which it will be.
    pub(super) unread: VecDeque<BytesMut>,
}

/// A temporary file.
#[derive(Default)]
struct File {
    content: BytesMut,
    read: usize,
}

/// How a shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    /// Its process stands still: what it is told waits, and no deadline wakes it.
    Paused,
    /// Its process has died.
    Dead,
}

/// A shard.
pub(super) struct Shard {
    pub(super) proxy: Proxy,
    pub(super) life: Life,
    /// How far the wall clock of its host is off, milliseconds.
    skew_ms: i64,
    /// What it was told while it stood still.
    pub(super) waiting: VecDeque<Input>,
    pub(super) sockets: BTreeMap<BrokerConnectionId, Socket>,
    files: BTreeMap<FileId, File>,
}

impl Shard {
    pub(super) fn new(config: Config, seed: [u8; 32], now: Now, skew_ms: i64) -> Self {
        let proxy = Proxy::new(config, seed, skewed(now, skew_ms));
        Self {
            proxy,
            life: Life::Running,
            skew_ms,
            waiting: VecDeque::new(),
            sockets: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// When its deadline wakes it.
    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        match self.life {
            Life::Running => self.proxy.poll_timeout().map(|timeout| timeout.at),
            Life::Paused | Life::Dead => None,
        }
    }

    /// Tells a fact.
    ///
    /// # Panics
    ///
    /// When the machine says that its driver broke the contract.
    pub(super) fn tell(&mut self, now: Now, input: Input) -> Effects {
        let mut effects = Effects::new();
        if let Err(misuse) = self.proxy.handle_input(skewed(now, self.skew_ms), input, &mut effects) {
            panic!("the world broke the driver's contract: {misuse}");
        }
        effects
    }

    /// Does what is due.
    ///
    /// # Panics
    ///
    /// When something is still due afterwards: invariant I7.
    pub(super) fn wake(&mut self, now: Now) -> Effects {
        let mut effects = Effects::new();
        self.proxy.handle_timeout(skewed(now, self.skew_ms), &mut effects);
        if let Some(next) = self.proxy.poll_timeout() {
            assert!(next.at > now.monotonic, "still due after handle_timeout: {:?}", next.reason);
        }
        effects
    }

    pub(super) fn create_file(&mut self, file: FileId) {
        self.files.insert(file, File::default());
    }

    pub(super) fn append_file(&mut self, file: FileId, bytes: &Bytes) {
        self.files.get_mut(&file).expect("a file is written after it was created").content.extend_from_slice(bytes);
    }

    pub(super) fn read_file(&mut self, file: FileId, max_bytes: usize) -> ReadResult {
        let file = self.files.get_mut(&file).expect("a file is read after it was created");
        let end = file.content.len().min(file.read + max_bytes);
        let bytes = Bytes::copy_from_slice(&file.content[file.read..end]);
        file.read = end;
        if bytes.is_empty() { ReadResult::End } else { ReadResult::Chunk(bytes) }
    }

    pub(super) fn remove_file(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// Temporary files that were not removed.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }
}

const fn skewed(now: Now, skew_ms: i64) -> Now {
    Now { monotonic: now.monotonic, unix_ms: now.unix_ms + skew_ms }
}
