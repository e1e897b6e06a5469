//! What switches decided for the flows under way: a cache of the rule tables, which remain the truth.
//!
//! A lane is one direction of one connection; its row holds one entry per switch on its way, in order. An entry is used
//! while packets come in as the first one did (link and tag). A switch whose rules, groups or ports change says which
//! decisions that may make wrong: those about one flow, or all. Their entries are emptied at once, so that a packet that
//! finds an entry need not ask whether it still holds. Frames forwarded from the cache are counted in the entry and credited
//! to the rules before anyone reads counters or rules time out.

use crate::packet::{Packet, TagBits};
use crate::store::grow;
use crate::time::Ps;
use crate::trusted::fetch;
use pathloom_model::{LinkId, NodeId};
use pathloom_switching::RuleRef;

/// One remembered decision, and how many frames were forwarded by it.
///
/// Half a cache line, and never in two: on a fabric that does not fit the caches, a hop waits for each line it touches.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Entry {
    /// Flags and tag that a packet must have, as in [`Packet::marks`]; without flags where any will do.
    marks: u32,
    /// Link that packets come in by; one that loses packets with [`ON_LOSSY_LINK`].
    in_link: u32,
    /// Link they leave by.
    pub out_link: u32,
    /// Tag they leave with ([`TagBits::number`]), and [`ANY_FLAGS`].
    out: u32,
    /// Frames forwarded from the cache and not credited yet in the upper bits, their bytes in the lower [`BYTE_BITS`].
    passed: u64,
    /// When the last of them passed.
    last: Ps,
}

/// Added to the number of a link that loses packets: the main loop finds no decision about what comes in by such a link.
pub(crate) const ON_LOSSY_LINK: u32 = 1 << 31;

/// No link has this number, so an empty entry matches nothing.
const NO_LINK: u32 = u32::MAX;
/// Bits of [`Packet::marks`] that are flags; the others are the tag.
const FLAG_BITS: u32 = 0xFF;
/// Bit of [`Entry::out`]: the decision holds for packets with any flags.
const ANY_FLAGS: u32 = 1 << 31;
/// Bits of [`Entry::passed`] that count bytes: room for [`Entry::MOST_FRAMES`] of the longest frames.
const BYTE_BITS: u32 = 40;

impl Entry {
    /// An entry counts at most so many frames. Then it holds for no packet, so the switch is asked again, the frames are
    /// credited, and the entry is made anew.
    const MOST_FRAMES: u64 = 1 << 23;

    /// A decision about a packet: it leaves by `out_link`. `any_flags` says that no rule looked at TCP flags, so that it
    /// holds for SYN and FIN as well.
    pub(crate) fn new(in_link: u32, packet: &Packet, any_flags: bool, out_link: u32, out_tag: TagBits) -> Entry {
        let any = if any_flags { ANY_FLAGS } else { 0 };
        let marks = packet.marks() & if any_flags { !FLAG_BITS } else { u32::MAX };
        Entry { marks, in_link, out_link, out: out_tag.number() | any, passed: 0, last: 0 }
    }

    /// Whether it speaks of this packet.
    #[inline(always)]
    pub(crate) fn holds(&self, in_link: u32, packet: &Packet) -> bool {
        self.in_link == in_link
            && (self.marks == packet.marks() || self.holds_whatever_flags(packet.marks()))
            && self.passed < Entry::MOST_FRAMES << BYTE_BITS
    }

    /// Whether it holds for marks that are not its own: it does if they differ in flags alone, and no rule looked at these.
    #[cold]
    fn holds_whatever_flags(&self, marks: u32) -> bool {
        self.out & ANY_FLAGS != 0 && self.marks == marks & !FLAG_BITS
    }

    /// Tag that packets leave with.
    #[inline(always)]
    pub(crate) fn out_tag(&self) -> TagBits {
        TagBits::from_number(self.out & !ANY_FLAGS)
    }

    /// Counts a packet that it was used for.
    #[inline(always)]
    pub(crate) fn count(&mut self, now: Ps, packet: &Packet) {
        self.passed += (1 << BYTE_BITS) + packet.wire();
        self.last = now;
    }

    /// Frames counted and not credited yet.
    fn packets(&self) -> u64 {
        self.passed >> BYTE_BITS
    }

    /// Their bytes.
    fn bytes(&self) -> u64 {
        self.passed & ((1 << BYTE_BITS) - 1)
    }
}

/// Rules behind an entry: where the credit goes. One rule per table passed.
#[derive(Clone, Copy)]
struct Backing {
    switch: NodeId,
    rules: [Option<RuleRef>; Backing::RULES],
    listed: bool,
}

impl Backing {
    /// Tables a cached decision may pass; longer ones are not cached.
    const RULES: usize = 4;
}

/// Behind an entry that has held no decision.
const UNUSED: Backing = Backing { switch: NodeId(u32::MAX), rules: [None; Backing::RULES], listed: false };

/// Credit due to some rules of a switch.
pub(crate) struct Credit {
    /// Whose frames were forwarded.
    pub(crate) lane: u32,
    pub(crate) rules: [Option<RuleRef>; Backing::RULES],
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) last: Ps,
}

pub(crate) struct Cache {
    stride: usize,
    entries: Vec<Entry>,
    backing: Vec<Backing>,
    /// Entries that have held a decision of this switch since it was last collected: all that hold one, and others.
    by_switch: Vec<Vec<u32>>,
}

impl Cache {
    /// A cache for flows that pass at most `switches_on_path` switches; longer ways are decided packet by packet.
    pub(crate) fn new(nodes: usize, switches_on_path: usize) -> Cache {
        let stride = switches_on_path.clamp(2, 64);
        let mut cache = Cache { stride, entries: Vec::new(), backing: Vec::new(), by_switch: vec![Vec::new(); nodes] };
        // Frames of no connection find rows, too, which stay empty.
        cache.reserve_lanes(2);
        cache
    }

    /// A cache that holds nothing. To take the place of one that has not been used.
    pub(crate) fn off(nodes: usize) -> Cache {
        Cache { stride: 0, ..Cache::new(nodes, 2) }
    }

    /// Makes room for this many lanes.
    pub(crate) fn reserve_lanes(&mut self, lanes: usize) {
        let places = lanes * self.stride;
        if self.entries.len() < places {
            grow(&mut self.entries, places);
            grow(&mut self.backing, places);
            self.entries.resize(places, empty());
            self.backing.resize(places, UNUSED);
        }
    }

    /// Place of the entry for a lane's `hop`-th switch, if there is one.
    #[inline(always)]
    pub(crate) fn place(&self, lane: u32, hop: u8) -> Option<usize> {
        (usize::from(hop) < self.stride).then(|| lane as usize * self.stride + usize::from(hop))
    }

    /// The entry for a lane's `hop`-th switch, if there is one: no packet can make it look beyond the rows reserved.
    #[inline(always)]
    pub(crate) fn entry(&mut self, lane: u32, hop: u8) -> Option<&mut Entry> {
        let place = self.place(lane, hop)?;
        self.entries.get_mut(place)
    }

    /// Asks for the cache line of the entry for a packet, and tells its place, which may be beyond the rows reserved. Changes
    /// nothing but time.
    #[inline(always)]
    pub(crate) fn fetch(&self, packet: &Packet) -> usize {
        let place = packet.lane() as usize * self.stride + usize::from(packet.hop());
        fetch(&self.entries, place);
        place
    }

    /// Link that an entry sends packets to; without meaning if it is empty or there is none in this place.
    #[inline(always)]
    pub(crate) fn out_link(&self, place: usize) -> u32 {
        self.entries.get(place).map_or(NO_LINK, |entry| entry.out_link)
    }

    /// Remembers a decision. What the entry held before must have been taken by [`Cache::take`].
    pub(crate) fn store(&mut self, place: usize, switch: NodeId, entry: Entry, rules: &[RuleRef]) {
        if rules.len() > Backing::RULES {
            return;
        }
        let backing = &self.backing[place];
        if !(backing.listed && backing.switch == switch) {
            self.list(place, switch);
        }
        let backing = &mut self.backing[place];
        let mut kept = [None; Backing::RULES];
        for (slot, &rule) in kept.iter_mut().zip(rules) {
            *slot = Some(rule);
        }
        *backing = Backing { switch, rules: kept, listed: true };
        self.entries[place] = entry;
    }

    /// What a switch decided about packets of a link holds from now on for another number of that link.
    pub(crate) fn renumber(&mut self, switch: NodeId, from: u32, to: u32) {
        for &place in &self.by_switch[switch.index()] {
            let entry = &mut self.entries[place as usize];
            if entry.in_link == from {
                entry.in_link = to;
            }
        }
    }

    /// Notes that an entry holds a decision of this switch. Entries that have gone elsewhere are weeded out whenever the
    /// list would have to grow, so it stays in proportion to the flows under way.
    fn list(&mut self, place: usize, switch: NodeId) {
        let list = &mut self.by_switch[switch.index()];
        if list.len() == list.capacity() {
            list.retain(|&known| {
                let backing = &self.backing[known as usize];
                backing.switch == switch && backing.listed
            });
            list.sort_unstable();
            list.dedup();
        }
        list.push(place as u32);
    }

    /// Empties an entry and returns the credit it owed, with the switch that it is owed by.
    pub(crate) fn take(&mut self, place: usize) -> Option<(NodeId, Credit)> {
        let lane = self.lane(place);
        let entry = &mut self.entries[place];
        let owed = credit(lane, entry, &self.backing[place].rules);
        let packets = entry.packets();
        *entry = empty();
        (packets > 0).then(|| (self.backing[place].switch, owed))
    }

    /// The lane whose entry this is.
    fn lane(&self, place: usize) -> u32 {
        (place / self.stride) as u32
    }

    /// All entries of a lane, to be taken when its connection is over.
    pub(crate) fn lane_places(&self, lane: u32) -> std::ops::Range<usize> {
        let first = lane as usize * self.stride;
        first..first + self.stride
    }

    /// The links that remembered decisions send the packets of a lane to, up to the first switch without one.
    pub(crate) fn out_links(&self, lane: u32) -> impl Iterator<Item = LinkId> + '_ {
        let row = self.entries.get(self.lane_places(lane)).unwrap_or_default();
        row.iter().take_while(|entry| entry.in_link != NO_LINK).map(|entry| LinkId(entry.out_link))
    }

    /// Decisions remembered for a lane.
    #[cfg(test)]
    pub(crate) fn remembered(&self, lane: u32) -> usize {
        let row = self.entries.get(self.lane_places(lane)).unwrap_or_default();
        row.iter().filter(|entry| entry.in_link != NO_LINK).count()
    }

    /// Collects what the cache owes the rules of a switch; the entries stay in use.
    pub(crate) fn collect(&mut self, switch: NodeId, mut give: impl FnMut(Credit)) {
        let mut places = std::mem::take(&mut self.by_switch[switch.index()]);
        places.retain(|&place| {
            let lane = self.lane(place as usize);
            let (entry, backing) = (&mut self.entries[place as usize], &mut self.backing[place as usize]);
            if backing.switch != switch {
                return false;
            }
            if entry.packets() > 0 {
                give(credit(lane, entry, &backing.rules));
                entry.passed = 0;
            }
            backing.listed = entry.in_link != NO_LINK;
            backing.listed
        });
        self.by_switch[switch.index()] = places;
    }

    /// Empties all entries that hold a decision of a switch, and collects what they owe.
    pub(crate) fn forget(&mut self, switch: NodeId, give: impl FnMut(Credit)) {
        self.collect(switch, give);
        for place in self.by_switch[switch.index()].drain(..) {
            self.backing[place as usize].listed = false;
            self.entries[place as usize] = empty();
        }
    }

    /// The decisions of some switches, for the part of a network that they are in.
    pub(crate) fn part(&self, is_in: impl Fn(NodeId) -> bool) -> Cache {
        let mut part = Cache {
            stride: self.stride,
            entries: vec![empty(); self.entries.len()],
            backing: vec![UNUSED; self.backing.len()],
            by_switch: vec![Vec::new(); self.by_switch.len()],
        };
        for (place, backing) in self.backing.iter().enumerate() {
            if backing.switch != UNUSED.switch && is_in(backing.switch) {
                (part.backing[place], part.entries[place]) = (*backing, self.entries[place]);
            }
        }
        for (index, list) in self.by_switch.iter().enumerate().filter(|(index, _)| is_in(NodeId(*index as u32))) {
            part.by_switch[index].clone_from(list);
        }
        part
    }

    /// Takes the decisions of a part back. Where both have one in a place, as when a lane's way has changed, what that of this
    /// cache owed is given to `settle`, with the switch that it is owed by.
    pub(crate) fn join(&mut self, part: Cache, mut settle: impl FnMut(NodeId, Credit)) {
        self.entries.resize(self.entries.len().max(part.entries.len()), empty());
        self.backing.resize(self.backing.len().max(part.backing.len()), UNUSED);
        for (place, (entry, backing)) in part.entries.iter().zip(&part.backing).enumerate() {
            if entry.in_link != NO_LINK {
                if let Some((switch, owed)) = self.take(place) {
                    settle(switch, owed);
                }
                (self.entries[place], self.backing[place]) = (*entry, *backing);
            } else if backing.listed && self.entries[place].in_link == NO_LINK {
                self.backing[place] = *backing;
            }
        }
        for (own, list) in self.by_switch.iter_mut().zip(part.by_switch) {
            own.extend(list);
        }
    }

    /// Whether an entry holds a decision of this switch.
    pub(crate) fn is_of(&self, place: usize, switch: NodeId) -> bool {
        self.backing[place].switch == switch && self.entries[place].in_link != NO_LINK
    }
}

fn empty() -> Entry {
    Entry::new(NO_LINK, &Packet::new(0, 0, 0, 0, 0), false, 0, TagBits::of(None))
}

fn credit(lane: u32, entry: &Entry, rules: &[Option<RuleRef>; Backing::RULES]) -> Credit {
    Credit { lane, rules: *rules, packets: entry.packets(), bytes: entry.bytes(), last: entry.last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_half_a_cache_line() {
        assert_eq!((size_of::<Entry>(), align_of::<Entry>()), (32, 32));
    }

    #[test]
    fn an_entry_holds_for_its_link_and_marks_and_gives_its_tag() {
        let (plain, syn) = (Packet::new(2, 0, 100, 154, 0), Packet::new(2, 0, 0, 54, 2));
        for tag in [None, Some(0), Some(u16::MAX)] {
            let tag = TagBits::of(tag);
            let tagged = plain.after(1, tag);
            let (strict, lax) = (Entry::new(7, &tagged, false, 9, tag), Entry::new(7, &tagged, true, 9, tag));
            let holds = |entry: &Entry, packet: &Packet| entry.holds(7, packet);
            assert!(holds(&strict, &tagged) && holds(&lax, &tagged) && !lax.holds(8, &tagged));
            assert_eq!([&strict, &lax].map(|entry| holds(entry, &syn.after(1, tag))), [false, true]);
            assert!(!holds(&lax, &plain.after(1, TagBits::of(Some(5)))));
            assert_eq!([strict.out_tag(), lax.out_tag()], [tag, tag]);
        }
    }

    #[test]
    fn an_entry_that_can_count_no_more_frames_holds_for_none_and_owes_all() {
        let packet = Packet::new(2, 0, 32_000, 32_767, 0);
        let mut entry = Entry::new(7, &packet, true, 9, TagBits::of(None));
        for _ in 0..Entry::MOST_FRAMES {
            assert!(entry.holds(7, &packet));
            entry.count(5, &packet);
        }
        assert!(!entry.holds(7, &packet));
        let owed = credit(2, &entry, &[None; Backing::RULES]);
        assert_eq!((owed.packets, owed.bytes, owed.last), (1 << 23, 32_767 << 23, 5));
    }

    #[test]
    fn no_lane_reaches_beyond_the_rows_reserved() {
        let mut cache = Cache::new(3, 5);
        assert!(cache.entry(1, 4).is_some() && cache.entry(1, 5).is_none() && cache.entry(2, 0).is_none());
        cache.reserve_lanes(6);
        assert!(cache.entry(5, 4).is_some() && cache.entry(6, 0).is_none() && cache.entry(u32::MAX, 4).is_none());
        assert!(Cache::off(3).entry(0, 0).is_none());
    }
}
