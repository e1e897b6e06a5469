//! Messages from one part of a divided network to the others.

use crate::packet::Packet;
use crate::time::{Ps, NEVER};
use pathloom_model::Headers;

/// Change of a slot.
#[derive(Clone, Copy)]
pub(super) enum SlotChange {
    /// A subflow has taken the slot; its data have these headers.
    Opened(Headers),
    /// The slot is free: no packet of its subflow is in the network any more.
    Released,
}

/// Messages from one part to another at the end of a window.
#[derive(Default)]
pub(crate) struct Parcel {
    /// Packets that will arrive in the other part, and the links by which they arrive.
    pub(super) packets: Vec<Packet>,
    pub(super) links: Vec<u32>,
    /// Lanes that lost packets, and how many.
    pub(super) lost: Vec<(u32, i32)>,
    pub(super) slots: Vec<(u32, SlotChange)>,
}

/// Messages of a part for the others. Empty in an undivided network.
#[derive(Default)]
pub(super) struct Outbox {
    /// By link: the part that contains its far end.
    pub(super) ends_in: Vec<u8>,
    /// By part: the messages for it.
    pub(super) parcels: Vec<Parcel>,
    /// Time when the first of the packets in the parcels arrives.
    pub(super) earliest: Option<Ps>,
}

impl Outbox {
    /// Takes a packet that a link has put on its way to another part; `None` if the link did not take it. Returns whether
    /// there is one.
    #[inline(always)]
    pub(super) fn take(&mut self, link: u32, packet: Option<Packet>) -> bool {
        let Some(packet) = packet else { return false };
        let parcel = &mut self.parcels[usize::from(self.ends_in[link as usize])];
        parcel.packets.push(packet);
        parcel.links.push(link);
        self.earliest = Some(self.earliest.unwrap_or(NEVER).min(packet.deliver_at));
        true
    }

    /// Informs the other parts that a slot was opened.
    pub(super) fn note_opened(&mut self, slot: usize, data: Headers) {
        self.note(slot, SlotChange::Opened(data));
    }

    /// Informs the other parts that a slot was freed.
    pub(super) fn note_released(&mut self, slot: usize) {
        self.note(slot, SlotChange::Released);
    }

    fn note(&mut self, slot: usize, change: SlotChange) {
        self.parcels.iter_mut().for_each(|parcel| parcel.slots.push((slot as u32, change)));
    }
}
