//! A rule table with tuple-space search: a look-up costs one hash per distinct mask, not one test per rule.

use pathloom_model::rules::{Match, Rule, RuleCounters, RuleKey};
use pathloom_model::{Headers, Nanos, PortNo, Prefix};
use rustc_hash::FxHashMap;
use std::num::NonZeroU32;

/// Reference to an installed rule. It becomes invalid when the rule is removed or replaced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RuleRef {
    slot: u32,
    /// Not 0, so that `Option<RuleRef>` needs no additional memory.
    epoch: NonZeroU32,
}

/// An installed rule with its counters and times.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) rule: Rule,
    pub(crate) counters: RuleCounters,
    pub(crate) added: Nanos,
    pub(crate) last_used: Nanos,
}

impl Entry {
    /// Time at which the rule times out if no frame uses it before.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let after = |since: Nanos, seconds: u16| since + Nanos::from_secs(u64::from(seconds));
        let idle = (self.rule.idle_timeout_s > 0).then(|| after(self.last_used, self.rule.idle_timeout_s));
        let hard = (self.rule.hard_timeout_s > 0).then(|| after(self.added, self.rule.hard_timeout_s));
        [idle, hard].into_iter().flatten().min()
    }
}

/// The fields that a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mask {
    in_port: bool,
    src_len: Option<u8>,
    dst_len: Option<u8>,
    proto: bool,
    src_port: bool,
    dst_port: bool,
    dscp: bool,
    tcp_flags: Option<u8>,
    tag: bool,
}

impl Mask {
    fn of(m: &Match) -> Mask {
        Mask {
            in_port: m.in_port.is_some(),
            src_len: m.src.map(|p| p.len),
            dst_len: m.dst.map(|p| p.len),
            proto: m.proto.is_some(),
            src_port: m.src_port.is_some(),
            dst_port: m.dst_port.is_some(),
            dscp: m.dscp.is_some(),
            tcp_flags: m.tcp_flags.map(|(_, mask)| mask),
            tag: m.tag.is_some(),
        }
    }

    /// Whether rules with this mask match more than the destination address and the tag.
    fn is_of_more_than_destination(&self) -> bool {
        let Mask { in_port, src_len, dst_len: _, proto, src_port, dst_port, dscp, tcp_flags, tag: _ } = *self;
        in_port || src_len.is_some() || proto || src_port || dst_port || dscp || tcp_flags.is_some()
    }

    /// Returns the match of a rule with this mask that matches this frame. `None` if no rule with this mask can match.
    fn apply(&self, in_port: PortNo, headers: &Headers) -> Option<Match> {
        let tuple = &headers.five_tuple;
        if self.tcp_flags.is_some() && tuple.proto() != pathloom_model::PROTO_TCP {
            return None;
        }
        Some(Match {
            in_port: self.in_port.then_some(in_port),
            src: self.src_len.map(|len| Prefix::new(tuple.src(), len)),
            dst: self.dst_len.map(|len| Prefix::new(tuple.dst(), len)),
            proto: self.proto.then_some(tuple.proto()),
            src_port: self.src_port.then_some(tuple.src_port()),
            dst_port: self.dst_port.then_some(tuple.dst_port()),
            dscp: self.dscp.then_some(headers.dscp),
            tcp_flags: self.tcp_flags.map(|mask| (headers.tcp_flags & mask, mask)),
            tag: if self.tag { Some(headers.tag?) } else { None },
        })
    }
}

/// Returns a match in the form that is looked up: prefixes and flags contain only the bits that are compared.
fn canonical(m: &Match) -> Match {
    Match {
        src: m.src.map(|p| Prefix::new(p.address, p.len)),
        dst: m.dst.map(|p| Prefix::new(p.address, p.len)),
        tcp_flags: m.tcp_flags.map(|(value, mask)| (value & mask, mask)),
        ..*m
    }
}

/// All rules with one mask.
#[derive(Clone, Debug)]
struct Family {
    mask: Mask,
    /// Highest priority of any present or earlier rule: an upper bound that lets a look-up stop early.
    ceiling: u16,
    /// Rules by match, highest priority first.
    rules: FxHashMap<Match, Vec<(u16, RuleRef)>>,
}

/// The rules of one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Sorted by ceiling, the highest first.
    families: Vec<Family>,
}

impl Table {
    /// Returns the rule that acts on a frame.
    pub(crate) fn look_up(&self, in_port: PortNo, headers: &Headers) -> Option<RuleRef> {
        let mut best: Option<(u16, RuleRef)> = None;
        for family in &self.families {
            if best.is_some_and(|(priority, _)| priority >= family.ceiling) {
                break;
            }
            let Some(key) = family.mask.apply(in_port, headers) else { continue };
            if let Some(&(priority, rule)) = family.rules.get(&key).and_then(|rules| rules.first()) {
                if best.is_none_or(|(known, _)| priority > known) {
                    best = Some((priority, rule));
                }
            }
        }
        best.map(|(_, rule)| rule)
    }

    pub(crate) fn looks_at_flags(&self) -> bool {
        self.families.iter().any(|family| family.mask.tcp_flags.is_some())
    }

    /// Whether a rule matches more than the destination address and the tag.
    pub(crate) fn looks_at_more_than_destination(&self) -> bool {
        self.families.iter().any(|family| family.mask.is_of_more_than_destination())
    }

    /// Adds a rule. No other rule of the table may have the same key.
    pub(crate) fn insert(&mut self, key: &RuleKey, rule: RuleRef) {
        let mask = Mask::of(&key.matches);
        let index = self.families.iter().position(|family| family.mask == mask).unwrap_or_else(|| {
            self.families.push(Family { mask, ceiling: 0, rules: FxHashMap::default() });
            self.families.len() - 1
        });
        let family = &mut self.families[index];
        family.ceiling = family.ceiling.max(key.priority);
        let rules = family.rules.entry(canonical(&key.matches)).or_default();
        let at = rules.partition_point(|(priority, _)| *priority > key.priority);
        rules.insert(at, (key.priority, rule));
        self.families.sort_by_key(|family| std::cmp::Reverse(family.ceiling));
    }

    pub(crate) fn remove(&mut self, key: &RuleKey) -> Option<RuleRef> {
        let mask = Mask::of(&key.matches);
        let index = self.families.iter().position(|family| family.mask == mask)?;
        let family = &mut self.families[index];
        let rules = family.rules.get_mut(&canonical(&key.matches))?;
        let at = rules.iter().position(|(priority, _)| *priority == key.priority)?;
        let (_, removed) = rules.remove(at);
        if rules.is_empty() {
            family.rules.remove(&canonical(&key.matches));
        }
        if family.rules.is_empty() {
            self.families.remove(index);
        }
        Some(removed)
    }
}

/// Storage of the rules. A reference is invalid if its epoch is not that of the slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slab {
    entries: Vec<(NonZeroU32, Option<Entry>)>,
    free: Vec<u32>,
    count: usize,
}

impl Slab {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> RuleRef {
        self.count += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push((NonZeroU32::MIN, None));
            self.entries.len() as u32 - 1
        });
        let place = &mut self.entries[slot as usize];
        place.1 = Some(entry);
        RuleRef { slot, epoch: place.0 }
    }

    pub(crate) fn get(&self, rule: RuleRef) -> Option<&Entry> {
        self.entries.get(rule.slot as usize).filter(|(epoch, _)| *epoch == rule.epoch)?.1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, rule: RuleRef) -> Option<&mut Entry> {
        self.entries.get_mut(rule.slot as usize).filter(|(epoch, _)| *epoch == rule.epoch)?.1.as_mut()
    }

    pub(crate) fn remove(&mut self, rule: RuleRef) -> Option<Entry> {
        let place = self.entries.get_mut(rule.slot as usize).filter(|(epoch, _)| *epoch == rule.epoch)?;
        let entry = place.1.take()?;
        place.0 = place.0.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.count -= 1;
        self.free.push(rule.slot);
        Some(entry)
    }

    /// Installed rules, in an order that depends only on the history of insertions and removals.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RuleRef, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(slot, (epoch, entry))| {
            entry.as_ref().map(|entry| (RuleRef { slot: slot as u32, epoch: *epoch }, entry))
        })
    }
}
