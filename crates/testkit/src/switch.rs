//! A switch written for tests. It searches all its rules for every frame and shares no code with `switching`, so that
//! the two can be compared with each other.

use pathloom_control::{Removal, RuleStats};
use pathloom_model::rules::{
    Bucket, Group, GroupId, GroupKind, Meter, MeterId, Refusal, Rule, RuleAction, RuleCounters, RuleKey,
};
use pathloom_model::units::NS_PER_S;
use pathloom_model::{Headers, Nanos, PortNo};
use std::collections::{BTreeMap, BTreeSet};

/// A rule and its state.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The rule.
    pub rule: Rule,
    /// Its counters.
    pub counters: RuleCounters,
    /// Time when it was added.
    pub added: Nanos,
    /// Time when it last matched a frame.
    pub used: Nanos,
}

/// A rule that timed out or was deleted, and why.
#[derive(Clone, Debug)]
pub struct RemovedRule {
    /// The rule.
    pub rule: Rule,
    /// Its counters when it was removed.
    pub counters: RuleCounters,
    /// Why it was removed.
    pub why: Removal,
}

/// What a switch does with one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Frames that leave, with the headers that they leave with.
    pub out: Vec<(PortNo, Headers)>,
    /// Frames copied to the controller, with the headers that they had then.
    pub copies: Vec<Headers>,
    /// Whether some table had no rule for the frame.
    pub missed: bool,
}

/// One switch.
#[derive(Clone, Debug, Default)]
pub struct FakeSwitch {
    /// Its rules, in no particular order.
    pub entries: Vec<Entry>,
    /// Its groups.
    pub groups: BTreeMap<GroupId, Group>,
    /// Its meters.
    pub meters: BTreeMap<MeterId, Meter>,
    /// Ports without carrier.
    pub ports_down: BTreeSet<PortNo>,
    /// Number of its ports.
    pub ports: u32,
    /// Most rules that it accepts; `None` for any number.
    pub room: Option<usize>,
    /// Number that makes its hash differ from that of other switches.
    pub salt: u64,
}

impl FakeSwitch {
    /// An empty switch.
    pub fn new(ports: u32, salt: u64) -> FakeSwitch {
        FakeSwitch { ports, salt, ..FakeSwitch::default() }
    }

    /// Adds a rule, or replaces the one with its key.
    pub fn add_rule(&mut self, now: Nanos, rule: Rule) -> Result<(), Refusal> {
        if rule.goto.is_some_and(|next| next <= rule.table) {
            return Err(Refusal::BadTable);
        }
        for action in &rule.actions {
            match *action {
                RuleAction::Output(port) if port.0 == 0 || port.0 > self.ports => return Err(Refusal::BadPort),
                RuleAction::Group(group) if !self.groups.contains_key(&group) => return Err(Refusal::UnknownGroup),
                _ => {}
            }
        }
        if rule.meter.is_some_and(|meter| !self.meters.contains_key(&meter)) {
            return Err(Refusal::UnknownMeter);
        }
        let key = rule.key();
        let place = self.entries.iter().position(|entry| entry.rule.key() == key);
        if place.is_none() && self.room.is_some_and(|room| self.entries.len() >= room) {
            return Err(Refusal::TableFull);
        }
        let entry = Entry { rule, counters: RuleCounters::default(), added: now, used: now };
        match place {
            Some(index) => self.entries[index] = entry,
            None => self.entries.push(entry),
        }
        Ok(())
    }

    /// Deletes a rule, if it exists.
    pub fn delete_rule(&mut self, key: &RuleKey) -> Option<RemovedRule> {
        let index = self.entries.iter().position(|entry| entry.rule.key() == *key)?;
        let entry = self.entries.swap_remove(index);
        Some(RemovedRule { rule: entry.rule, counters: entry.counters, why: Removal::Deleted })
    }

    /// Deletes a group that no rule uses.
    pub fn delete_group(&mut self, group: GroupId) -> Result<(), Refusal> {
        let names = |entry: &Entry| entry.rule.actions.contains(&RuleAction::Group(group));
        if self.entries.iter().any(names) {
            return Err(Refusal::InUse);
        }
        self.groups.remove(&group);
        Ok(())
    }

    /// Removes and returns the rules that have timed out.
    pub fn expire(&mut self, now: Nanos) -> Vec<RemovedRule> {
        let (mut gone, mut kept) = (Vec::new(), Vec::new());
        for entry in self.entries.drain(..) {
            match Self::ends(&entry) {
                Some((at, why)) if at <= now => {
                    gone.push(RemovedRule { rule: entry.rule, counters: entry.counters, why })
                }
                _ => kept.push(entry),
            }
        }
        self.entries = kept;
        gone
    }

    /// Time of the next time-out, if nothing happens before.
    pub fn next_expiry(&self) -> Option<Nanos> {
        self.entries.iter().filter_map(|entry| Self::ends(entry).map(|(at, _)| at)).min()
    }

    fn ends(entry: &Entry) -> Option<(Nanos, Removal)> {
        let after = |from: Nanos, seconds: u16| Nanos(from.0 + u64::from(seconds) * NS_PER_S);
        let idle = entry.rule.idle_timeout_s;
        let hard = entry.rule.hard_timeout_s;
        let idle = (idle > 0).then(|| (after(entry.used, idle), Removal::Idle));
        let hard = (hard > 0).then(|| (after(entry.added, hard), Removal::Hard));
        [idle, hard].into_iter().flatten().min_by_key(|&(at, _)| at)
    }

    /// Handles a frame of this size now: returns what becomes of it, and updates counters.
    pub fn forward(&mut self, in_port: PortNo, headers: Headers, now: Nanos, bytes: u64) -> Verdict {
        let mut hit = Vec::new();
        let verdict = self.peek(in_port, headers, &mut hit);
        for index in hit {
            let entry = &mut self.entries[index];
            entry.used = now;
            entry.counters.packets += 1;
            entry.counters.bytes += bytes;
        }
        verdict
    }

    /// What would become of a frame. Adds the entries that it would match to `hit`.
    pub fn peek(&self, in_port: PortNo, headers: Headers, hit: &mut Vec<usize>) -> Verdict {
        let (mut verdict, mut headers, mut table) = (Verdict::default(), headers, Some(0));
        while let Some(number) = table {
            let best = (0..self.entries.len())
                .filter(|&index| {
                    let rule = &self.entries[index].rule;
                    rule.table == number && rule.matches.matches(in_port, &headers)
                })
                .max_by_key(|&index| self.entries[index].rule.priority);
            let Some(index) = best else {
                verdict.missed = true;
                return verdict;
            };
            hit.push(index);
            let rule = &self.entries[index].rule;
            table = rule.goto;
            rule.actions.iter().for_each(|&action| self.act(in_port, action, &mut headers, &mut verdict));
        }
        verdict
    }

    fn act(&self, in_port: PortNo, action: RuleAction, headers: &mut Headers, verdict: &mut Verdict) {
        match action {
            RuleAction::Output(port) if port == in_port || self.ports_down.contains(&port) => {}
            RuleAction::Output(port) => verdict.out.push((port, *headers)),
            RuleAction::Copy => verdict.copies.push(*headers),
            RuleAction::SetTag(tag) => headers.tag = Some(tag),
            RuleAction::PopTag => headers.tag = None,
            RuleAction::Group(id) => {
                let Some(group) = self.groups.get(&id) else { return };
                let up = |port: &PortNo| !self.ports_down.contains(port);
                let live: Vec<_> =
                    group.buckets.iter().filter(|bucket| bucket.watch_port.as_ref().is_none_or(up)).collect();
                let chosen = match group.kind {
                    GroupKind::All => group.buckets.iter().collect(),
                    GroupKind::FastFailover => live.into_iter().take(1).collect(),
                    GroupKind::Select if live.is_empty() => Vec::new(),
                    GroupKind::Select => {
                        let weighted = live.into_iter().flat_map(|bucket| vec![bucket; usize::from(bucket.weight)]);
                        let live: Vec<&Bucket> = weighted.collect();
                        let number = headers.five_tuple.ecmp_hash(self.salt) as usize % live.len();
                        vec![live[number]]
                    }
                };
                for bucket in chosen {
                    let mut copy = *headers;
                    bucket.actions.iter().for_each(|&action| self.act(in_port, action, &mut copy, verdict));
                }
            }
        }
    }

    /// Its rules.
    pub fn rules(&self) -> Vec<Rule> {
        self.entries.iter().map(|entry| entry.rule.clone()).collect()
    }

    /// The counters of rules whose cookie, under `mask`, is `cookie`.
    pub fn statistics(&self, cookie: u64, mask: u64) -> Vec<RuleStats> {
        let selected = self.entries.iter().filter(|entry| entry.rule.cookie & mask == cookie & mask);
        selected
            .map(|entry| RuleStats { key: entry.rule.key(), cookie: entry.rule.cookie, counters: entry.counters })
            .collect()
    }
}
