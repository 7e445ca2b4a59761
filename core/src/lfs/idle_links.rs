//! Connections to brokers that an upload has left ready: kept for a moment, so that the next upload to the same broker need
//! not dial.
//!
//! Nothing is on its way on a kept link. What comes on it was not asked for and ends it, as its peer does; one on which a
//! request was not answered, or not in a way that makes sense, is never kept. Only dialling is saved: who owns the
//! partition, and whether that is still proven, is decided as if there were no kept links.

use std::collections::VecDeque;
use std::time::Duration;

use crate::cluster::Address;
use crate::input::{self, BrokerConnectionId, ExchangeId};
use crate::time::Monotonic;
use crate::timers::Timer;

use super::call::{Call, Holder};
use super::link::Link;

/// So long after its broker's last answer a link is kept. A broker that has died without a word is noticed by a dial before
/// anything is uploaded; along a kept link it would get the record, whose fate then is unknown. A link from before an
/// upload proves no more than this either, and a busy proxy has its next upload within less.
const SINCE_ANSWER: Duration = Duration::from_secs(1);
/// So long after its dial a link is kept at most, however busy it is: names come to lead elsewhere, and logins end
/// (KIP-368). As long as the contract lets an idle connection of a multipart upload live.
const SINCE_DIAL: Duration = Duration::from_secs(60);
/// Links kept for one broker. While uploads end and begin at about the same rate only a few are idle at a time, whatever
/// the number of uploads; the rest is what a burst leaves behind, and costs its broker a second of an idle socket.
const PER_BROKER: usize = 16;
/// Links kept by a shard.
const TOTAL: usize = 64;

/// The kept links of a shard.
#[derive(Debug)]
pub(crate) struct IdleLinks {
    /// In the order in which they were kept.
    links: VecDeque<Link>,
    /// Until the shutdown.
    keeps: bool,
}

impl Default for IdleLinks {
    fn default() -> Self {
        Self { links: VecDeque::new(), keeps: true }
    }
}

impl IdleLinks {
    /// Keeps a link that its upload is done with, if it is idle and proven; else closes it.
    pub(crate) fn keep(call: &mut Call<'_, '_>, link: Link) {
        #[cfg(planted_bugs)]
        let link = given_up(link, call.ctx.now.monotonic);
        let until = kept_until(&link);
        if !call.shared.idle_links.keeps || !link.is_idle() || until <= call.ctx.now.monotonic {
            return link.close(call);
        }
        if let Some(crowded_out) = call.shared.idle_links.make_room(link.address()) {
            crowded_out.close(call);
        }
        call.shared.connections.insert(link.id(), Holder::Kept);
        call.ctx.timers.set(Timer::BrokerConnection(link.id()), until);
        call.shared.idle_links.links.push_back(link);
    }

    /// The newest kept link to a broker, for an exchange.
    pub(crate) fn take(call: &mut Call<'_, '_>, exchange: ExchangeId, address: &Address) -> Option<Link> {
        let now = call.ctx.now.monotonic;
        let links = &mut call.shared.idle_links.links;
        // The timer of one that is past its time may not have been looked at yet.
        let place = links.iter().rposition(|link| link.address() == address && kept_until(link) > now)?;
        let link = links.remove(place)?;
        call.shared.connections.insert(link.id(), Holder::Exchange(exchange));
        call.shared.stats.reused_connections += 1;
        call.ctx.timers.clear(Timer::BrokerConnection(link.id()));
        Some(link)
    }

    /// A fact about the socket of a link that was kept, and may have been closed since.
    pub(crate) fn on_broker(call: &mut Call<'_, '_>, id: BrokerConnectionId, input: &input::Broker) {
        match input {
            input::Broker::Received { .. } => {
                if let Some(link) = call.shared.idle_links.remove(id) {
                    tracing::warn!(broker = %link.address(), "a broker sent what nobody has asked for");
                    link.close(call);
                }
            }
            input::Broker::ConnectFailed { .. } | input::Broker::Closed { .. } => {
                if call.shared.idle_links.remove(id).is_some() {
                    call.ctx.timers.clear(Timer::BrokerConnection(id));
                }
            }
            input::Broker::Connected { .. } | input::Broker::Clogged { .. } | input::Broker::Drained { .. } => {}
        }
    }

    /// A kept link is past its time.
    pub(crate) fn on_timer(call: &mut Call<'_, '_>, id: BrokerConnectionId) {
        if let Some(link) = call.shared.idle_links.remove(id) {
            link.close(call);
        }
    }

    /// The shutdown has begun: it waits for no kept link, and none is kept any more.
    pub(crate) fn drain(call: &mut Call<'_, '_>) {
        call.shared.idle_links.keeps = false;
        for link in std::mem::take(&mut call.shared.idle_links.links) {
            link.close(call);
        }
    }

    fn remove(&mut self, id: BrokerConnectionId) -> Option<Link> {
        let place = self.links.iter().position(|link| link.id() == id)?;
        self.links.remove(place)
    }

    /// The oldest link that must go before another one to this broker is kept.
    fn make_room(&mut self, address: &Address) -> Option<Link> {
        let mut of_broker = self.links.iter().enumerate().filter(|(_, link)| link.address() == address);
        let place = match of_broker.next() {
            Some((oldest, _)) if of_broker.count() + 1 >= PER_BROKER => oldest,
            Some(_) | None if self.links.len() >= TOTAL => 0,
            Some(_) | None => return None,
        };
        self.links.remove(place)
    }
}

/// As if it had been answered.
#[cfg(planted_bugs)]
fn given_up(mut link: Link, now: Monotonic) -> Link {
    if crate::planted::planted(crate::planted::Bug::UnansweredLinkKept) {
        link.seem_answered(now);
    }
    link
}

fn kept_until(link: &Link) -> Monotonic {
    (link.answered_at() + SINCE_ANSWER).min(link.dialled_at() + SINCE_DIAL)
}
