//! What is kept of one request of a client, from its arrival until its answer is written.

use std::collections::VecDeque;

use crate::kafka::ApiKey;
use crate::listener::RequestId;
use crate::listener::from_memory::FromMemory;
use crate::listener::request::{Reply, RequestHead, RequestMachine};
use crate::stats::RetryReason;

/// A request from its arrival until its answer is written.
pub(super) struct Slot {
    pub(super) request: RequestId,
    /// Bytes of its frame or of its items, whichever are more, and of its answer once that waits here.
    pub(super) size: usize,
    /// Bytes of it that are held in the shard's memory for large frames.
    pub(super) reserved: usize,
    /// Bytes of it that are held in the shard's memory for small requests.
    pub(super) small: usize,
    /// Bytes of brokers' answers to it that are held in the shard's memory for large answers.
    pub(super) answers: usize,
    pub(super) correlation_id: i32,
    /// `None` for one that was answered or refused at once.
    pub(super) api: Option<ApiKey>,
    /// Why the next part that it sends is one more round.
    pub(super) retry: Option<RetryReason>,
    pub(super) state: State,
}

impl Slot {
    /// Whether it changes something: a broker carries that out although the client is gone. What only asks, or makes the
    /// client a member of a group, is of no use to anybody then, and may wait long.
    pub(super) fn outlives_client(&self) -> bool {
        matches!(
            self.api,
            Some(
                ApiKey::Produce
                    | ApiKey::OffsetCommit
                    | ApiKey::LeaveGroup
                    | ApiKey::CreateTopics
                    | ApiKey::DeleteTopics
                    | ApiKey::CreatePartitions
                    | ApiKey::AlterConfigs
                    | ApiKey::DeleteGroups
            )
        )
    }
}

/// Where the slot of a request is. Requests get ascending numbers, so slots are in their order.
pub(super) fn position(slots: &VecDeque<Slot>, request: RequestId) -> Option<usize> {
    slots.binary_search_by_key(&request, |slot| slot.request).ok()
}

/// Whether the oldest request may have to wait for what a broker answers to this one: for its own parts, and for those of
/// any other Produce, whose fate may decide whether its batches are sent again. A request that has no slot any more is
/// one, for the lanes go on hearing of it.
pub(super) fn oldest_needs(slots: &VecDeque<Slot>, request: RequestId) -> bool {
    let Some(oldest) = slots.front() else { return false };
    if oldest.request == request {
        return true;
    }
    let is_produce = |position: usize| matches!(slots[position].state, State::Producing);
    is_produce(0) && position(slots, request).is_none_or(is_produce)
}

pub(super) enum State {
    /// Waits for a read of etcd before anything is decided, or, as a commit, for the commit before it.
    Gated(RequestHead),
    /// To be answered without a broker, once it is the oldest.
    FromMemory(FromMemory),
    /// Its batches are with the producer.
    Producing,
    /// Under way.
    Running(Box<dyn RequestMachine>),
    /// Waits for the answers before it.
    Answered(Reply),
}
