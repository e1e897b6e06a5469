//! A match/action switch with tables, groups, meters and ports.

use crate::decision::{Decision, Emission};
use crate::group::choose;
use crate::meter::MeterState;
use crate::stale::Stale;
use crate::table::{Entry, RuleRef, Slab, Table};
use pathloom_model::rules::{
    Bucket, Group, GroupId, GroupKind, Meter, MeterId, Refusal, Rule, RuleAction, RuleCounters, RuleKey,
};
use pathloom_model::{FiveTuple, Headers, Nanos, PortNo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Settings that do not change while a switch runs.
#[derive(Clone, Copy, Debug)]
pub struct SwitchSettings {
    /// Number of ports. They have the numbers 1 to `ports`.
    pub ports: u32,
    /// Number of tables. They have the numbers 0 to `tables` - 1.
    pub tables: u8,
    /// Maximum number of rules (TCAM size). `None`: no limit.
    pub rule_limit: Option<usize>,
    /// Salt of the ECMP hash of this switch.
    pub salt: u64,
}

/// A rule that was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removed {
    /// The rule.
    pub rule: Rule,
    /// Its last counters.
    pub counters: RuleCounters,
    /// Whether it was removed by its hard time-out.
    pub hard: bool,
}

/// A match/action switch.
#[derive(Clone, Debug)]
pub struct Switch {
    settings: SwitchSettings,
    tables: Vec<Table>,
    rules: Slab,
    groups: BTreeMap<GroupId, Group>,
    meters: BTreeMap<MeterId, MeterState>,
    port_up: Vec<bool>,
    /// Decisions that may have become wrong since the last call of [`Switch::take_stale`].
    stale: Stale,
    /// Times at which rules with a time-out are checked. A rule is checked at its deadline or earlier.
    deadlines: BinaryHeap<Reverse<(Nanos, u32, RuleRefOrder)>>,
    inserted: u32,
}

/// Makes all references equal, so that heap entries are ordered by insertion and never by the number of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RuleRefOrder(RuleRef);

impl PartialOrd for RuleRefOrder {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RuleRefOrder {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// Maximum nesting of groups. Groups may refer to other groups. OpenFlow forbids loops, and this limit ends them.
const GROUP_DEPTH: u32 = 4;

impl Switch {
    /// Creates a switch without rules. All ports are up.
    pub fn new(settings: SwitchSettings) -> Switch {
        Switch {
            settings,
            tables: vec![Table::default(); usize::from(settings.tables)],
            rules: Slab::default(),
            groups: BTreeMap::new(),
            meters: BTreeMap::new(),
            port_up: vec![true; settings.ports as usize],
            stale: Stale::Nothing,
            deadlines: BinaryHeap::new(),
            inserted: 0,
        }
    }

    /// Deletes all rules, groups and meters, as a loss of power does. Ports keep their state.
    pub fn clear(&mut self) {
        let port_up = std::mem::take(&mut self.port_up);
        *self = Switch { stale: Stale::Everything, port_up, ..Switch::new(self.settings) };
    }

    /// Returns the remembered decisions that may have become wrong since the last call. A change of a rule for one
    /// five-tuple affects only the decisions about that flow. Changes of other rules, groups and ports affect all
    /// flows. Changes of meters affect none, because decisions with meters are not remembered.
    pub fn take_stale(&mut self) -> Stale {
        std::mem::take(&mut self.stale)
    }

    /// A rule that [`Switch::decide`] returned; `None` if it was removed since.
    pub fn rule(&self, reference: RuleRef) -> Option<&Rule> {
        self.rules.get(reference).map(|entry| &entry.rule)
    }

    /// Number of installed rules.
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// Brings a port up or down. Groups avoid buckets whose watched port is down.
    pub fn set_port(&mut self, port: PortNo, up: bool) {
        if let Some(state) = (port.0 as usize).checked_sub(1).and_then(|index| self.port_up.get_mut(index)) {
            if *state != up {
                *state = up;
                self.stale = Stale::Everything;
            }
        }
    }

    /// Adds a rule, or replaces the rule with the same key. Its counters start at 0 (OpenFlow 1.3 §6.4).
    pub fn add_rule(&mut self, now: Nanos, rule: Rule) -> Result<(), Refusal> {
        self.check_rule(&rule)?;
        let key = rule.key();
        match self.tables[usize::from(key.table)].remove(&key) {
            Some(old) => drop(self.rules.remove(old)),
            None if self.settings.rule_limit.is_some_and(|limit| self.rules.len() >= limit) => {
                return Err(Refusal::TableFull);
            }
            None => {}
        }
        let entry = Entry { rule, counters: RuleCounters::default(), added: now, last_used: now };
        let deadline = entry.deadline();
        let reference = self.rules.insert(entry);
        self.tables[usize::from(key.table)].insert(&key, reference);
        if let Some(at) = deadline {
            self.watch(at, reference);
        }
        self.stale.add(&key.matches);
        Ok(())
    }

    /// Deletes exactly this rule. `None` if it is not installed.
    pub fn delete_rule(&mut self, key: &RuleKey) -> Option<Removed> {
        let reference = self.tables.get_mut(usize::from(key.table))?.remove(key)?;
        self.stale.add(&key.matches);
        let entry = self.rules.remove(reference)?;
        Some(Removed { rule: entry.rule, counters: entry.counters, hard: false })
    }

    /// Adds or replaces a group.
    pub fn add_group(&mut self, group: Group) -> Result<(), Refusal> {
        for bucket in &group.buckets {
            self.check_actions(&bucket.actions)?;
        }
        self.groups.insert(group.id, group);
        self.stale = Stale::Everything;
        Ok(())
    }

    /// Deletes a group to which no rule and no group refers. It is not an error if the group does not exist (OpenFlow
    /// 1.3 §6.4).
    pub fn delete_group(&mut self, id: GroupId) -> Result<(), Refusal> {
        let names = |actions: &[RuleAction]| actions.contains(&RuleAction::Group(id));
        let in_rules = self.rules.iter().any(|(_, entry)| names(&entry.rule.actions));
        let in_groups = self.groups.values().any(|group| group.buckets.iter().any(|b| names(&b.actions)));
        if in_rules || in_groups {
            return Err(Refusal::InUse);
        }
        self.groups.remove(&id);
        Ok(())
    }

    /// Adds or replaces a meter.
    pub fn add_meter(&mut self, now: Nanos, meter: Meter) {
        self.meters.insert(meter.id, MeterState::new(now, meter));
    }

    /// Deletes a meter to which no rule refers.
    pub fn delete_meter(&mut self, id: MeterId) -> Result<(), Refusal> {
        if self.rules.iter().any(|(_, entry)| entry.rule.meter == Some(id)) {
            return Err(Refusal::InUse);
        }
        self.meters.remove(&id);
        Ok(())
    }

    /// Decides what to do with a frame. Counters do not change: see [`Switch::credit`].
    pub fn decide(&self, in_port: PortNo, headers: &Headers) -> Decision {
        let mut decision = Decision::default();
        let mut tag = headers.tag;
        let mut table = 0u8;
        loop {
            let current = &self.tables[usize::from(table)];
            decision.looked_at_flags |= current.looks_at_flags();
            decision.looked_at_more |= current.looks_at_more_than_destination();
            let seen = Headers { tag, ..*headers };
            let Some(reference) = current.look_up(in_port, &seen) else { return decision };
            let Some(entry) = self.rules.get(reference) else { return decision };
            decision.rules.push(reference);
            decision.meters.extend(entry.rule.meter);
            self.act(&entry.rule.actions, (in_port, &headers.five_tuple), &mut tag, &mut decision, 0);
            match entry.rule.goto {
                Some(next) => table = next,
                None => return decision,
            }
        }
    }

    /// The ports among which a group has chosen the port of this decision by a hash, with their weights. Empty if no
    /// group has, or if its buckets do more than send the frame.
    pub fn equal_ports(&self, in_port: PortNo, decision: &Decision) -> Vec<(PortNo, u16)> {
        let entry = decision.rules.last().and_then(|&reference| self.rules.get(reference));
        let Some([RuleAction::Group(id)]) = entry.map(|entry| &entry.rule.actions[..]) else { return Vec::new() };
        let Some(group) = self.groups.get(id).filter(|group| group.kind == GroupKind::Select) else {
            return Vec::new();
        };
        let live = group.buckets.iter().filter(|bucket| bucket.watch_port.is_none_or(|port| self.is_up(port)));
        let port = |bucket: &Bucket| match bucket.actions[..] {
            [RuleAction::Output(port)] if port != in_port => Some((port, bucket.weight)),
            _ => None,
        };
        live.map(port).collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// The number by which the hashes of this switch differ from those of others.
    pub fn salt(&self) -> u64 {
        self.settings.salt
    }

    /// Returns whether a frame passes a meter. A meter that does not exist passes every frame.
    pub fn pass_meter(&mut self, now: Nanos, meter: MeterId, bytes: u32) -> bool {
        self.meters.get_mut(&meter).is_none_or(|state| state.pass(now, bytes))
    }

    /// Counts frames that were forwarded by these rules. `last` is the time of the last frame. Invalid references are
    /// ignored.
    pub fn credit(&mut self, rules: &[RuleRef], packets: u64, bytes: u64, last: Nanos) {
        for &reference in rules {
            if let Some(entry) = self.rules.get_mut(reference) {
                entry.counters.packets += packets;
                entry.counters.bytes += bytes;
                entry.last_used = entry.last_used.max(last);
            }
        }
    }

    /// Time at which [`Switch::expire`] should be called next.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.deadlines.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Removes the rules that have timed out by `now`. A driver that remembers decisions calls [`Switch::credit`]
    /// before.
    pub fn expire(&mut self, now: Nanos) -> Vec<Removed> {
        let mut removed = Vec::new();
        while let Some(&Reverse((at, _, RuleRefOrder(reference)))) = self.deadlines.peek() {
            if at > now {
                break;
            }
            self.deadlines.pop();
            let Some(entry) = self.rules.get(reference) else { continue };
            match entry.deadline() {
                Some(later) if later > now => self.watch(later, reference),
                _ => removed.extend(self.time_out(now, reference)),
            }
        }
        removed
    }

    /// All rules with their counters, ordered by key.
    pub fn rules(&self) -> Vec<(&Rule, RuleCounters)> {
        let mut rules: Vec<_> = self.rules.iter().map(|(_, entry)| (&entry.rule, entry.counters)).collect();
        rules.sort_by_key(|(rule, _)| rule.key());
        rules
    }

    /// All groups, ordered by identifier.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// All meters, ordered by identifier.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.meters.values().map(|state| &state.meter)
    }

    fn act(
        &self,
        actions: &[RuleAction],
        (in_port, tuple): (PortNo, &FiveTuple),
        tag: &mut Option<u16>,
        decision: &mut Decision,
        depth: u32,
    ) {
        for action in actions {
            match *action {
                // Only OFPP_IN_PORT, which Pathloom's rules do not use, sends a frame back (OpenFlow 1.3.5 §7.2.1).
                RuleAction::Output(port) if port == in_port => decision.looked_at_more = true,
                RuleAction::Output(port) => decision.emissions.push(Emission { port, tag: *tag }),
                RuleAction::Copy => decision.copied = true,
                RuleAction::SetTag(value) => *tag = Some(value),
                RuleAction::PopTag => *tag = None,
                RuleAction::Group(id) if depth < GROUP_DEPTH => {
                    let Some(group) = self.groups.get(&id) else { continue };
                    decision.hashed |= group.kind == GroupKind::Select;
                    for bucket in choose(group, tuple, self.settings.salt, |port| self.is_up(port)) {
                        // A bucket changes only its own copy of the frame (OpenFlow 1.3 §5.6.1).
                        let mut inner = *tag;
                        self.act(&bucket.actions, (in_port, tuple), &mut inner, decision, depth + 1);
                    }
                }
                RuleAction::Group(_) => {}
            }
        }
    }

    fn is_up(&self, port: PortNo) -> bool {
        (port.0 as usize).checked_sub(1).and_then(|index| self.port_up.get(index)).copied().unwrap_or(false)
    }

    fn check_rule(&self, rule: &Rule) -> Result<(), Refusal> {
        let later = rule.goto.is_none_or(|next| next > rule.table && next < self.settings.tables);
        if rule.table >= self.settings.tables || !later {
            return Err(Refusal::BadTable);
        }
        if rule.meter.is_some_and(|meter| !self.meters.contains_key(&meter)) {
            return Err(Refusal::UnknownMeter);
        }
        self.check_actions(&rule.actions)
    }

    fn check_actions(&self, actions: &[RuleAction]) -> Result<(), Refusal> {
        for action in actions {
            match *action {
                RuleAction::Output(port) if port.0 == 0 || port.0 > self.settings.ports => {
                    return Err(Refusal::BadPort);
                }
                RuleAction::Group(id) if !self.groups.contains_key(&id) => return Err(Refusal::UnknownGroup),
                _ => {}
            }
        }
        Ok(())
    }

    fn watch(&mut self, at: Nanos, reference: RuleRef) {
        self.inserted += 1;
        self.deadlines.push(Reverse((at, self.inserted, RuleRefOrder(reference))));
    }

    fn time_out(&mut self, now: Nanos, reference: RuleRef) -> Option<Removed> {
        let entry = self.rules.remove(reference)?;
        self.tables[usize::from(entry.rule.table)].remove(&entry.rule.key());
        self.stale.add(&entry.rule.matches);
        let lived = now.saturating_sub(entry.added);
        let hard_at = Nanos::from_secs(u64::from(entry.rule.hard_timeout_s));
        let hard = entry.rule.hard_timeout_s > 0 && lived >= hard_at;
        Some(Removed { rule: entry.rule, counters: entry.counters, hard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::rules::Match;
    use pathloom_model::{Prefix, PROTO_TCP, TCP_SYN};
    use proptest::prelude::*;

    fn tuple(src_port: u16) -> FiveTuple {
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 1, 1].into());
        FiveTuple::new(PROTO_TCP, (src, src_port), (dst, 5001))
    }

    fn rule(table: u8, priority: u16, matches: Match, actions: Vec<RuleAction>) -> Rule {
        let (idle_timeout_s, hard_timeout_s, cookie) = (0, 0, 0);
        Rule {
            table,
            priority,
            matches,
            actions: actions.into(),
            goto: None,
            meter: None,
            idle_timeout_s,
            hard_timeout_s,
            cookie,
            notify_removal: false,
        }
    }

    fn switch() -> Switch {
        Switch::new(SwitchSettings { ports: 4, tables: 3, rule_limit: Some(8), salt: 1 })
    }

    fn out(port: u32) -> Vec<RuleAction> {
        vec![RuleAction::Output(PortNo(port))]
    }

    #[test]
    fn a_decision_says_whether_it_holds_for_all_packets_to_the_destination() {
        let to = Match { dst: Some(Prefix::new(tuple(1).dst(), 24)), ..Match::default() };
        let decide = |rules: &[(Match, &[RuleAction])], in_port: u32| {
            let mut switch = switch();
            for (priority, (matches, actions)) in (1..).zip(rules) {
                switch.add_rule(Nanos::ZERO, rule(0, priority, *matches, actions.to_vec())).unwrap();
            }
            let decision = switch.decide(PortNo(in_port), &Headers::plain(tuple(1)));
            (decision.single().map(|one| one.port.0), decision.looked_at_more)
        };
        let out = |port| RuleAction::Output(PortNo(port));
        assert_eq!(decide(&[(to, &[out(2)])], 1), (Some(2), false));
        let flow = Match::five_tuple(tuple(9));
        assert_eq!(decide(&[(to, &[out(2)]), (flow, &[out(3)])], 1), (Some(2), true), "another flow has a rule");
        // From other ports the packet leaves twice.
        assert_eq!(decide(&[(to, &[out(1), out(2)])], 1), (Some(2), true));
        assert_eq!(decide(&[(to, &[out(1), out(2)])], 3), (None, false));
    }

    #[test]
    fn the_highest_priority_acts_and_goto_continues_in_a_later_table() {
        let mut s = switch();
        let to_dst = Match { dst: Some(Prefix::new([10, 0, 1, 0].into(), 24)), ..Match::default() };
        s.add_rule(Nanos::ZERO, Rule { goto: Some(2), ..rule(0, 0, Match::default(), vec![]) }).unwrap();
        s.add_rule(Nanos::ZERO, rule(2, 10, to_dst, out(1))).unwrap();
        s.add_rule(Nanos::ZERO, rule(2, 20, Match::five_tuple(tuple(7)), out(2))).unwrap();
        let port = |s: &Switch, p| s.decide(PortNo(3), &Headers::plain(tuple(p))).single().map(|e| e.port.0);
        assert_eq!(port(&s, 7), Some(2));
        assert_eq!(port(&s, 8), Some(1));
        s.take_stale();
        s.delete_rule(&rule(2, 20, Match::five_tuple(tuple(7)), vec![]).key()).unwrap();
        assert_eq!(s.take_stale(), Stale::Flows(vec![tuple(7)]));
        assert_eq!(port(&s, 7), Some(1));
    }

    #[test]
    fn tags_are_set_matched_by_later_tables_and_removed() {
        let mut s = switch();
        let set = vec![RuleAction::SetTag(5)];
        s.add_rule(Nanos::ZERO, Rule { goto: Some(1), ..rule(0, 0, Match::default(), set) }).unwrap();
        let tagged = Match { tag: Some(5), ..Match::default() };
        s.add_rule(Nanos::ZERO, rule(1, 1, tagged, out(1))).unwrap();
        let emission = s.decide(PortNo(2), &Headers::plain(tuple(1))).single().unwrap();
        assert_eq!(emission, Emission { port: PortNo(1), tag: Some(5) });
        let pop = vec![RuleAction::PopTag, RuleAction::Output(PortNo(1))];
        s.add_rule(Nanos::ZERO, rule(1, 1, tagged, pop)).unwrap();
        assert_eq!(s.decide(PortNo(2), &Headers::plain(tuple(1))).single().unwrap().tag, None);
    }

    #[test]
    fn impossible_rules_and_groups_are_refused() {
        let mut s = switch();
        let any = Match::default();
        assert_eq!(s.add_rule(Nanos::ZERO, rule(3, 0, any, out(1))), Err(Refusal::BadTable));
        let back = Rule { goto: Some(1), ..rule(1, 0, any, vec![]) };
        assert_eq!(s.add_rule(Nanos::ZERO, back), Err(Refusal::BadTable));
        assert_eq!(s.add_rule(Nanos::ZERO, rule(0, 0, any, out(5))), Err(Refusal::BadPort));
        let group = vec![RuleAction::Group(GroupId(9))];
        assert_eq!(s.add_rule(Nanos::ZERO, rule(0, 0, any, group.clone())), Err(Refusal::UnknownGroup));
        let bucket = Bucket { weight: 1, watch_port: None, actions: out(1) };
        s.add_group(Group { id: GroupId(9), kind: GroupKind::All, buckets: vec![bucket] }).unwrap();
        s.add_rule(Nanos::ZERO, rule(0, 0, any, group)).unwrap();
        assert_eq!(s.delete_group(GroupId(9)), Err(Refusal::InUse));
        for priority in 1..8 {
            s.add_rule(Nanos::ZERO, rule(0, priority, any, out(1))).unwrap();
        }
        assert_eq!(s.add_rule(Nanos::ZERO, rule(0, 99, any, out(1))), Err(Refusal::TableFull));
        s.add_rule(Nanos::ZERO, rule(0, 7, any, out(2))).expect("a replaced rule needs no additional space");
    }

    #[test]
    fn idle_and_hard_timeouts_remove_rules() {
        let mut s = switch();
        let idle = Rule { idle_timeout_s: 5, ..rule(0, 1, Match::default(), out(1)) };
        let hard = Rule { hard_timeout_s: 7, ..rule(0, 2, Match::five_tuple(tuple(1)), out(1)) };
        s.add_rule(Nanos::ZERO, idle.clone()).unwrap();
        s.add_rule(Nanos::ZERO, hard.clone()).unwrap();
        assert_eq!(s.poll_timeout(), Some(Nanos::from_secs(5)));
        let used = s.decide(PortNo(1), &Headers::plain(tuple(2))).rules;
        s.credit(&used, 3, 300, Nanos::from_secs(4));
        assert!(s.expire(Nanos::from_secs(5)).is_empty());
        let gone = s.expire(Nanos::from_secs(7));
        assert_eq!(gone, vec![Removed { rule: hard, counters: RuleCounters::default(), hard: true }]);
        let gone = s.expire(Nanos::from_secs(9));
        assert_eq!(gone[0].counters, RuleCounters { packets: 3, bytes: 300 });
        assert!(!gone[0].hard && gone[0].rule == idle && s.rule_count() == 0);
        assert_eq!(s.poll_timeout(), None);
        s.take_stale();
        s.add_rule(Nanos::ZERO, rule(0, 1, Match::default(), out(1))).unwrap();
        s.take_stale();
        s.clear();
        assert_eq!((s.rule_count(), s.take_stale(), s.take_stale()), (0, Stale::Everything, Stale::Nothing));
    }

    #[test]
    fn flags_matter_only_to_tcp() {
        let mut s = switch();
        let syn = Match { tcp_flags: Some((TCP_SYN, TCP_SYN)), ..Match::default() };
        s.add_rule(Nanos::ZERO, rule(0, 9, syn, vec![RuleAction::Copy])).unwrap();
        s.add_rule(Nanos::ZERO, rule(0, 0, Match::default(), out(1))).unwrap();
        let plain = Headers::plain(tuple(1));
        assert!(s.decide(PortNo(1), &Headers { tcp_flags: TCP_SYN, ..plain }).copied);
        let decision = s.decide(PortNo(1), &plain);
        assert!(!decision.copied && decision.looked_at_flags);
        let udp = tuple(1).with_proto(17);
        assert!(!s.decide(PortNo(1), &Headers { tcp_flags: TCP_SYN, ..Headers::plain(udp) }).copied);
    }

    fn any_match() -> impl Strategy<Value = Match> {
        let bits = any::<[bool; 6]>();
        (bits, 0u8..4, 0u16..3, prop::sample::select(vec![8u8, 24, 32])).prop_map(|(on, byte, port, len)| Match {
            in_port: on[0].then_some(PortNo(u32::from(byte) + 1)),
            src: on[1].then_some(Prefix::new([10, 0, 0, byte].into(), len)),
            dst: on[2].then_some(Prefix::new([10, 0, 1, byte].into(), len)),
            src_port: on[3].then_some(port),
            tcp_flags: on[4].then_some((byte, 3)),
            tag: on[5].then_some(port),
            ..Match::default()
        })
    }

    proptest! {
        /// Tuple-space search finds the same rule as a scan over all rules, after any additions and deletions.
        #[test]
        fn look_up_agrees_with_a_scan(
            steps in prop::collection::vec((any_match(), 0u16..50, any::<bool>()), 1..40),
            frames in prop::collection::vec((0u8..4, 0u8..4, 0u16..3, 0u8..4, prop::option::of(0u16..3)), 1..20),
        ) {
            let mut s = Switch::new(SwitchSettings { ports: 4, tables: 1, rule_limit: None, salt: 1 });
            let mut model: BTreeMap<(u16, Match), Rule> = BTreeMap::new();
            for (index, (matches, priority, add)) in steps.into_iter().enumerate() {
                let mut one = rule(0, priority, matches, out(1));
                one.cookie = index as u64;
                // One match per priority, because it is undefined which of two rules with equal priority acts.
                let taken = model.keys().any(|(known, m)| *known == priority && *m != matches);
                if add && !taken {
                    s.add_rule(Nanos::ZERO, one.clone()).unwrap();
                    model.insert((priority, matches), one);
                } else if !add {
                    prop_assert_eq!(s.delete_rule(&one.key()).is_some(), model.remove(&(priority, matches)).is_some());
                }
            }
            prop_assert_eq!(s.rule_count(), model.len());
            for (port, byte, src_port, flags, tag) in frames {
                let five_tuple = tuple(src_port).with_src([10, 0, 0, byte].into()).with_dst([10, 0, 1, byte].into());
                let headers = Headers { tcp_flags: flags, tag, ..Headers::plain(five_tuple) };
                let in_port = PortNo(u32::from(port) + 1);
                let scan = model.values().rev().find(|rule| rule.matches.matches(in_port, &headers));
                let found = s.decide(in_port, &headers).rules;
                let cookie = found.first().and_then(|&r| s.rules.get(r)).map(|entry| entry.rule.cookie);
                prop_assert_eq!(cookie, scan.map(|rule| rule.cookie));
            }
        }
    }
}
