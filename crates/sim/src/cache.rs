//! Cache of the decisions that switches made for the flows under way. The rule tables remain authoritative.
//!
//! A lane is one direction of one connection. Its row holds one entry per switch on its path, in order; more if its
//! packets take several paths. An entry applies to packets that have the same incoming link and tag as the first one. A switch whose rules, groups or
//! ports change reports which decisions may be wrong: those about one flow, or all. Their entries are emptied at
//! once, so a packet that finds an entry need not check whether it is still valid. Frames forwarded from the cache
//! are counted in the entry. They are credited to the rules before anyone reads counters or rules time out.

mod rows;

use self::rows::Rows as LaneRows;
use crate::next_hops::{SetRef, MOST_SETS};
use crate::packet::{Packet, TagBits};
use crate::store::grow;
use crate::time::Ps;
use crate::trusted::fetch;
use pathloom_model::{LinkId, NodeId};
use pathloom_switching::RuleRef;

/// One cached decision, and the number of frames forwarded by it.
///
/// An entry takes half a cache line and never crosses a line boundary: if the fabric does not fit into the CPU's
/// caches, a hop waits for each line that it touches.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Entry {
    /// Flags and tag that a packet must have, as in [`Packet::marks`]. The flags are 0 if the decision holds for any
    /// flags.
    marks: u32,
    /// Link by which packets arrive, perhaps with the bit [`ON_SLOW_LINK`].
    in_link: u32,
    /// Link by which packets leave. In a decision for a set of next hops: the switch.
    out_link: u32,
    /// Tag with which packets leave ([`TagBits::number`]), and the bit [`ANY_FLAGS`]. In a decision for a set of next
    /// hops: the lower 16 bits of the flow's hash, the number of the set (14 bits), and the bits [`FOR_SET`] and
    /// [`ANY_FLAGS`].
    out: u32,
    /// Frames forwarded by this entry and not credited yet: their number in the upper bits, their bytes in the lower
    /// [`BYTE_BITS`].
    passed: u64,
    /// Time when the last of these frames passed.
    last: Ps,
}

/// Bit added to the number of a link that loses packets or begins at a port that is not a FIFO, so that the main loop
/// finds no decision about packets that arrive by it.
pub(crate) const ON_SLOW_LINK: u32 = 1 << 31;

/// Bit of [`Entry::out`]: the decision is for a set of next hops.
const FOR_SET: u32 = 1 << 30;
/// Bits of [`Entry::out`] below the number of a set of next hops.
const FLOW_HASH_BITS: u32 = 16;
/// The number of a set fits between these bits and [`FOR_SET`].
const _: () = assert!(MOST_SETS << FLOW_HASH_BITS <= FOR_SET as usize);

/// No link has this number, so an empty entry matches nothing.
const NO_LINK: u32 = u32::MAX;
/// Bits of [`Packet::marks`] that are flags, and those that are the tag. The others are the kind, which no rule looks
/// at.
const FLAG_BITS: u32 = 0xFF;
const TAG_BITS: u32 = 0x1_FFFF << 8;
/// Bit of [`Entry::out`]: the decision holds for packets with any flags.
const ANY_FLAGS: u32 = 1 << 31;
/// Number of the bits of [`Entry::passed`] that count bytes. They suffice for [`Entry::MOST_FRAMES`] of the longest
/// frames.
const BYTE_BITS: u32 = 40;

impl Entry {
    /// Most frames that an entry counts. A full entry matches no packet, so the switch is asked again, the frames are
    /// credited, and a new entry is made.
    const MOST_FRAMES: u64 = 1 << 23;

    /// Creates the entry for a decision about a packet: it leaves by `out_link`. `any_flags` means that no rule
    /// looked at TCP flags, so the decision holds for SYN and FIN as well.
    pub(crate) fn new(in_link: u32, packet: &Packet, any_flags: bool, out_link: u32, out_tag: TagBits) -> Entry {
        let any = if any_flags { ANY_FLAGS } else { 0 };
        let marks = packet.marks() & if any_flags { TAG_BITS } else { TAG_BITS | FLAG_BITS };
        Entry { marks, in_link, out_link, out: out_tag.number() | any, passed: 0, last: 0 }
    }

    /// The same decision for a set of next hops of the switch.
    pub(crate) fn among(self, set: SetRef) -> Entry {
        let hash = set.flow_hash & ((1 << FLOW_HASH_BITS) - 1);
        let out = self.out & ANY_FLAGS | FOR_SET | set.number << FLOW_HASH_BITS | hash;
        Entry { out, out_link: set.switch.0, ..self }
    }

    /// How a packet leaves. Counts it.
    #[inline(always)]
    pub(crate) fn pass(&mut self, now: Ps, packet: &Packet) -> Onward {
        self.count(now, packet);
        match self.set() {
            None => Onward::Link(self.out_link, self.out_tag()),
            Some(set) => Onward::Among(set),
        }
    }

    /// The set of next hops, if the decision is for one.
    #[inline(always)]
    fn set(&self) -> Option<SetRef> {
        let number = (self.out & !ANY_FLAGS & !FOR_SET) >> FLOW_HASH_BITS;
        let set = SetRef { switch: NodeId(self.out_link), number, flow_hash: self.out };
        (self.out & FOR_SET != 0).then_some(set)
    }

    /// Whether the decision applies to this packet.
    #[inline(always)]
    pub(crate) fn matches(&self, in_link: u32, packet: &Packet) -> bool {
        self.in_link == in_link
            && (self.marks == packet.marks() || self.matches_other_kind(packet.marks()))
            && self.passed < Entry::MOST_FRAMES << BYTE_BITS
    }

    /// Whether the decision applies to other marks than the stored ones: the kind may differ, and flags if no rule looked
    /// at them.
    #[cold]
    fn matches_other_kind(&self, marks: u32) -> bool {
        let relevant = if self.out & ANY_FLAGS != 0 { TAG_BITS } else { TAG_BITS | FLAG_BITS };
        self.marks == marks & relevant
    }

    /// Tag that packets leave with.
    #[inline(always)]
    pub(crate) fn out_tag(&self) -> TagBits {
        TagBits::from_number(self.out & !ANY_FLAGS)
    }

    /// Link and tag with which a packet leaves by a decision for one link. Counts the packet.
    #[inline(always)]
    pub(crate) fn pass_on(&mut self, now: Ps, packet: &Packet) -> (u32, TagBits) {
        self.count(now, packet);
        (self.out_link, self.out_tag())
    }

    /// Counts a packet that this entry forwarded.
    #[inline(always)]
    fn count(&mut self, now: Ps, packet: &Packet) {
        self.passed += (1 << BYTE_BITS) + packet.wire();
        self.last = now;
    }

    /// Number of frames counted but not credited yet.
    fn packets(&self) -> u64 {
        self.passed >> BYTE_BITS
    }

    /// Bytes of the frames counted but not credited yet.
    fn bytes(&self) -> u64 {
        self.passed & ((1 << BYTE_BITS) - 1)
    }
}

/// The rules that made a decision, one per table that the packet passed. They get the credit.
pub(crate) type Rules = [Option<RuleRef>; Backing::RULES];

/// The rules of a decision; `None` if it passes more tables than a remembered decision may.
pub(crate) fn kept_rules(rules: &[RuleRef]) -> Option<Rules> {
    let mut kept = [None; Backing::RULES];
    kept.get_mut(..rules.len())?.iter_mut().zip(rules).for_each(|(slot, &rule)| *slot = Some(rule));
    Some(kept)
}

/// What belongs to the decision of an entry.
#[derive(Clone, Copy)]
struct Backing {
    switch: NodeId,
    rules: Rules,
    listed: bool,
    /// In a decision for a set of next hops: place in the set of the link that the switch chooses by the five-tuple alone.
    usual: u32,
}

impl Backing {
    /// Most tables that a cached decision may pass. Decisions over more tables are not cached.
    const RULES: usize = 4;
}

/// Backing of an entry that has held no decision.
const UNUSED: Backing = Backing { switch: NodeId(u32::MAX), rules: [None; Backing::RULES], listed: false, usual: 0 };

/// Frames and bytes to add to the counters of some rules of a switch.
pub(crate) struct Credit {
    /// Lane of the frames that were forwarded.
    pub(crate) lane: u32,
    pub(crate) rules: Rules,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) last: Ps,
}

/// How a packet leaves a switch, according to its cached decision.
pub(crate) enum Onward {
    /// By this link, with this tag.
    Link(u32, TagBits),
    /// By one of these next hops.
    Among(SetRef),
}

pub(crate) struct Cache {
    stride: usize,
    /// Entries of a row for each hop: a power of two. More than one if packets of a flow take several paths.
    ways: usize,
    /// The rows of lanes, if packets of a flow take several paths. Otherwise each lane has the row with its number.
    rows: Option<LaneRows>,
    entries: Vec<Entry>,
    backing: Vec<Backing>,
    /// By switch: places of the entries that held a decision of the switch when its credit was last collected, or
    /// later. All entries that hold one now are among them.
    by_switch: Vec<Vec<u32>>,
}

impl Cache {
    /// Most entries for each hop of a lane. With more paths, some decisions are made again and again.
    const MOST_WAYS: usize = 64;
    /// Most entries if packets of a flow take several paths. With their backing they take 1.3 GB, and more while they grow.
    const MOST_ENTRIES: usize = 1 << 24;

    /// Creates a cache for flows that pass at most `switches_on_path` switches. Decisions of later switches on longer
    /// paths are not cached.
    pub(crate) fn new(nodes: usize, switches_on_path: usize) -> Cache {
        let stride = switches_on_path.clamp(2, 64);
        let by_switch = vec![Vec::new(); nodes];
        let mut cache = Cache { stride, ways: 1, rows: None, entries: Vec::new(), backing: Vec::new(), by_switch };
        // Frames of no connection get rows, too, which stay empty.
        cache.reserve_lanes(2);
        cache
    }

    /// A cache with at least this many entries for each hop of a lane, for packets of a flow that take several paths. It
    /// may only replace a cache that has not been used.
    pub(crate) fn with_ways(&self, ways: usize) -> Cache {
        let ways = ways.clamp(1, Cache::MOST_WAYS).next_power_of_two();
        let stride = self.stride * ways;
        let mut rows = LaneRows::new(Cache::MOST_ENTRIES / stride);
        rows.reserve_lanes(2);
        Cache { stride, ways, rows: Some(rows), ..Cache::new(self.by_switch.len(), 2) }
    }

    /// Creates a cache that never holds a decision. It may only replace a cache that has not been used.
    pub(crate) fn off(nodes: usize) -> Cache {
        Cache { stride: 0, ..Cache::new(nodes, 2) }
    }

    /// Limits the rows of lanes if packets of a flow take several paths.
    pub(crate) fn set_most_rows(&mut self, most: usize) {
        self.rows.iter_mut().for_each(|rows| rows.most = most);
    }

    /// Makes room for this many lanes.
    pub(crate) fn reserve_lanes(&mut self, lanes: usize) {
        match &mut self.rows {
            Some(rows) => rows.reserve_lanes(lanes),
            None => self.reserve_rows(lanes),
        }
    }

    fn reserve_rows(&mut self, rows: usize) {
        let places = rows * self.stride;
        if self.entries.len() < places {
            grow(&mut self.entries, places);
            grow(&mut self.backing, places);
            self.entries.resize(places, empty());
            self.backing.resize(places, UNUSED);
        }
    }

    /// Counts a packet of a lane about which a switch has decided by its destination. A lane that has had some gets a row.
    pub(crate) fn count(&mut self, lane: u32) {
        if self.rows.as_mut().is_some_and(|rows| rows.count(lane)) {
            self.give_row(lane);
        }
    }

    /// Gives a lane a row, as far as there may be another one.
    pub(crate) fn give_row(&mut self, lane: u32) {
        if let Some(rows) = &mut self.rows {
            rows.give(lane);
            let count = rows.len();
            self.reserve_rows(count);
        }
    }

    /// The connection of a lane is over. All its entries must have been taken.
    pub(crate) fn release_row(&mut self, lane: u32) {
        self.rows.iter_mut().for_each(|rows| rows.release(lane));
    }

    /// Returns the place of the entry for a packet that has arrived by `in_link`, if the lane has a row that is that long.
    /// If packets of a lane arrive at several switches after the same number of hops, the link distinguishes them.
    #[inline(always)]
    pub(crate) fn place(&self, packet: &Packet, in_link: u32) -> Option<usize> {
        // Both directions of a cable have successive numbers, and a lane uses only one of them.
        let column = usize::from(packet.hop()) * self.ways + ((in_link >> 1) as usize & (self.ways - 1));
        let row = match &self.rows {
            None => packet.lane() as usize,
            Some(rows) => rows.of(packet.lane())?,
        };
        (column < self.stride).then(|| row * self.stride + column)
    }

    /// The entry in a place, if it exists.
    #[inline(always)]
    pub(crate) fn entry_at(&mut self, place: usize) -> Option<&mut Entry> {
        self.entries.get_mut(place)
    }

    /// Place in its set of next hops of the link that a switch chooses by the five-tuple alone.
    pub(crate) fn usual(&self, place: usize) -> u32 {
        self.backing.get(place).map_or(0, |backing| backing.usual)
    }

    /// Stores what [`Cache::usual`] returns for a place.
    pub(crate) fn set_usual(&mut self, place: usize, usual: u32) {
        self.backing[place].usual = usual;
    }

    /// Returns the entry for a lane's `hop`-th switch, if it exists. No packet can reach beyond the reserved rows.
    #[inline(always)]
    pub(crate) fn entry(&mut self, lane: u32, hop: u8) -> Option<&mut Entry> {
        let column = usize::from(hop);
        let place = (column < self.stride).then(|| lane as usize * self.stride + column)?;
        self.entries.get_mut(place)
    }

    /// Prefetches the cache line of the entry for a packet that arrives by `in_link`, and returns its place, which may
    /// be beyond the reserved rows. Affects only speed.
    #[inline(always)]
    pub(crate) fn fetch(&self, packet: &Packet, in_link: u32) -> usize {
        let place = self.place(packet, in_link).unwrap_or(usize::MAX);
        fetch(&self.entries, place);
        place
    }

    /// Link to which an entry sends a packet; `among` returns it for a set of next hops. The value has no meaning if the
    /// entry is empty or does not exist.
    #[inline(always)]
    pub(crate) fn out_link(&self, place: usize, among: impl FnOnce(SetRef) -> Option<u32>) -> u32 {
        let Some(entry) = self.entries.get(place) else { return NO_LINK };
        match entry.set() {
            None => entry.out_link,
            Some(set) => among(set).unwrap_or(NO_LINK),
        }
    }

    /// Stores a decision. The caller must first take the credit of the old entry by [`Cache::take`].
    pub(crate) fn store(&mut self, place: usize, switch: NodeId, entry: Entry, rules: Rules) {
        let backing = &self.backing[place];
        if !(backing.listed && backing.switch == switch) {
            self.list(place, switch);
        }
        self.backing[place] = Backing { switch, rules, listed: true, usual: 0 };
        self.entries[place] = entry;
    }

    /// Replaces the number of an incoming link in all decisions of a switch.
    pub(crate) fn renumber(&mut self, switch: NodeId, from: u32, to: u32) {
        for &place in &self.by_switch[switch.index()] {
            let entry = &mut self.entries[place as usize];
            if entry.in_link == from {
                entry.in_link = to;
            }
        }
    }

    /// Notes that an entry holds a decision of this switch. Before the list grows, entries that now belong to other
    /// switches are removed from it. So its length stays proportional to the number of flows under way.
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

    /// Empties an entry. If it counted frames, returns their credit and the switch whose rules get it.
    pub(crate) fn take(&mut self, place: usize) -> Option<(NodeId, Credit)> {
        let lane = self.lane(place);
        let entry = &mut self.entries[place];
        let owed = credit(lane, entry, &self.backing[place].rules);
        let packets = entry.packets();
        *entry = empty();
        (packets > 0).then(|| (self.backing[place].switch, owed))
    }

    /// Lane of an entry.
    fn lane(&self, place: usize) -> u32 {
        let row = place / self.stride;
        self.rows.as_ref().map_or(row as u32, |rows| rows.lane(row))
    }

    /// Places of all entries of a lane. They must be taken when its connection is over.
    pub(crate) fn lane_places(&self, lane: u32) -> std::ops::Range<usize> {
        let row = self.rows.as_ref().map_or(Some(lane as usize), |rows| rows.of(lane));
        row.map_or(0..0, |row| row * self.stride..(row + 1) * self.stride)
    }

    /// Links to which the cached decisions send the packets of a lane, up to the first switch without a decision.
    pub(crate) fn out_links(&self, lane: u32) -> impl Iterator<Item = LinkId> + '_ {
        let row = self.entries.get(self.lane_places(lane)).unwrap_or_default();
        row.iter().take_while(|entry| entry.in_link != NO_LINK).map(|entry| LinkId(entry.out_link))
    }

    /// Number of decisions cached for a lane.
    #[cfg(test)]
    pub(crate) fn remembered(&self, lane: u32) -> usize {
        let row = self.entries.get(self.lane_places(lane)).unwrap_or_default();
        row.iter().filter(|entry| entry.in_link != NO_LINK).count()
    }

    /// Collects the credit for the rules of a switch. Its entries stay in use.
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

    /// Empties all entries that hold a decision of a switch, and collects their credit.
    pub(crate) fn forget(&mut self, switch: NodeId, give: impl FnMut(Credit)) {
        self.collect(switch, give);
        for place in self.by_switch[switch.index()].drain(..) {
            self.backing[place as usize].listed = false;
            self.entries[place as usize] = empty();
        }
    }

    /// Copies the decisions of some switches, for the part of a network that contains these switches.
    pub(crate) fn part(&self, is_in: impl Fn(NodeId) -> bool) -> Cache {
        let mut part = Cache {
            stride: self.stride,
            ways: self.ways,
            rows: self.rows.clone(),
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

    /// Merges the decisions of a part into this cache. If both have an entry in the same place, because the path of a
    /// lane has changed, `credit_switch` gets the credit of the old entry and its switch.
    pub(crate) fn join(&mut self, part: Cache, mut credit_switch: impl FnMut(NodeId, Credit)) {
        if self.rows.is_none() {
            self.reserve_rows(part.entries.len() / part.stride.max(1));
        }
        for (from, (entry, backing)) in part.entries.iter().zip(&part.backing).enumerate() {
            if entry.in_link == NO_LINK {
                continue;
            }
            // A lane may have got its rows at different times.
            let lane = part.lane(from);
            self.give_row(lane);
            let Some(place) = self.lane_places(lane).nth(from % self.stride) else {
                credit_switch(backing.switch, credit(lane, entry, &backing.rules));
                continue;
            };
            if let Some((switch, owed)) = self.take(place) {
                credit_switch(switch, owed);
            }
            self.store(place, backing.switch, *entry, backing.rules);
            self.set_usual(place, backing.usual);
        }
    }

    /// The switch whose decision an entry holds, and the rules that made it.
    pub(crate) fn decided_by(&self, place: usize) -> Option<(NodeId, Rules)> {
        let backing = self.backing.get(place).filter(|_| self.entries[place].in_link != NO_LINK)?;
        Some((backing.switch, backing.rules))
    }

    /// Whether an entry holds a decision of this switch.
    pub(crate) fn belongs_to(&self, place: usize, switch: NodeId) -> bool {
        self.backing[place].switch == switch && self.entries[place].in_link != NO_LINK
    }
}

fn empty() -> Entry {
    Entry::new(NO_LINK, &Packet::new(0, 0, 0, 0, 0), false, 0, TagBits::of(None))
}

fn credit(lane: u32, entry: &Entry, rules: &Rules) -> Credit {
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
    fn an_entry_matches_its_link_and_marks_and_has_its_tag() {
        let (plain, syn) = (Packet::new(2, 0, 100, 154, 0), Packet::new(2, 0, 0, 54, 2));
        for tag in [None, Some(0), Some(u16::MAX)] {
            let tag = TagBits::of(tag);
            let tagged = plain.after(1, tag);
            let (strict, lax) = (Entry::new(7, &tagged, false, 9, tag), Entry::new(7, &tagged, true, 9, tag));
            let matches = |entry: &Entry, packet: &Packet| entry.matches(7, packet);
            assert!(matches(&strict, &tagged) && matches(&lax, &tagged) && !lax.matches(8, &tagged));
            assert_eq!([&strict, &lax].map(|entry| matches(entry, &syn.after(1, tag))), [false, true]);
            assert!(!matches(&lax, &plain.after(1, TagBits::of(Some(5)))));
            assert_eq!([strict.out_tag(), lax.out_tag()], [tag, tag]);
        }
    }

    #[test]
    fn a_full_entry_matches_no_packet_and_keeps_its_credit() {
        let packet = Packet::new(2, 0, 32_000, 32_767, 0);
        let mut entry = Entry::new(7, &packet, true, 9, TagBits::of(None));
        for _ in 0..Entry::MOST_FRAMES {
            assert!(entry.matches(7, &packet));
            entry.count(5, &packet);
        }
        assert!(!entry.matches(7, &packet));
        let owed = credit(2, &entry, &[None; Backing::RULES]);
        assert_eq!((owed.packets, owed.bytes, owed.last), (1 << 23, 32_767 << 23, 5));
    }

    #[test]
    fn no_lane_reaches_beyond_the_reserved_rows() {
        let mut cache = Cache::new(3, 5);
        assert!(cache.entry(1, 4).is_some() && cache.entry(1, 5).is_none() && cache.entry(2, 0).is_none());
        cache.reserve_lanes(6);
        assert!(cache.entry(5, 4).is_some() && cache.entry(6, 0).is_none() && cache.entry(u32::MAX, 4).is_none());
        assert!(Cache::off(3).entry(0, 0).is_none());
    }
}
