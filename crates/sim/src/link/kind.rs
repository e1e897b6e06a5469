//! The bits of [`LinkQueue::kind`](super::LinkQueue::kind): what the main loop must know of a link.

/// The other end is a host, and the link is not slow ([`LinkQueue::is_slow`](super::LinkQueue::is_slow)). The main loop
/// checks only this bit of `kind`. For a packet of a slow link it finds no cached decision, so the packet takes the slow path.
pub(super) const HANDS_TO_HOST: u16 = 1;
/// Packets are handed on when their sending begins.
pub(super) const HANDS_ON_AT_BEGIN: u16 = 2;
/// Packets may be lost on their way.
pub(super) const LOSSY: u16 = 4;
/// The other end is a host.
pub(super) const TO_HOST: u16 = 8;
/// The link does not queue packets itself: a port beside it ([`crate::port`]) decides which packet is sent next.
pub(super) const AT_PORT: u16 = 16;
/// The link is down.
pub(super) const DOWN: u16 = 32;
/// All packets take the slow path at the other end.
pub(super) const SLOW: u16 = 128;
/// The other end is in another part of the network.
pub(super) const CROSSING: u16 = 64;
