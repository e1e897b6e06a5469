//! The rules, groups and meters of a switch. Rules that `pathloom_model::rules` can express are in a
//! [`Switch`]. The others, for frames that are not IPv4 and for actions that the controller never uses, are searched
//! one by one.

use crate::frame::Frame;
use pathloom_model::rules::{Bucket, GroupId, MeterId, Refusal, Rule, RuleAction, RuleKey};
use pathloom_model::{split_mix, Nanos, PortNo};
use pathloom_openflow::action::Action;
use pathloom_openflow::flow_match::{FlowMatch, VLAN_PRESENT};
use pathloom_openflow::instruction::Instructions;
use pathloom_openflow::{
    convert, FlowCommand, FlowMod, FlowRemoved, FlowStats, FlowStatsRequest, GroupCommand, GroupDesc, GroupMod,
    MeterCommand, MeterConfig, MeterMod, RemovedReason, TableFeatures, PORT_CONTROLLER, PORT_MAX, SEND_FLOW_REMOVED,
    TABLE_ALL,
};
use pathloom_switching::{Removed, Switch, SwitchSettings};
use std::collections::{BTreeMap, BTreeSet};

/// Tables of a switch.
const TABLES: u8 = 4;

/// A copy for the controller.
pub(crate) struct Copy {
    pub table: u8,
    pub cookie: u64,
    pub max_len: u16,
    pub tag: Option<u16>,
}

/// What a switch does with a frame.
#[derive(Default)]
pub(crate) struct Outcome {
    pub out: Vec<(u32, Option<u16>)>,
    pub copy: Option<Copy>,
}

/// A rule that only OpenFlow can express.
#[derive(Clone, Debug)]
struct Other {
    row: FlowStats,
    /// When its hard time-out expires.
    ends: Option<Nanos>,
}

/// The rules, groups and meters of a switch.
#[derive(Clone, Debug)]
pub struct Tables {
    switch: Switch,
    /// The rules of `switch` as they were sent, without counters.
    sent: BTreeMap<RuleKey, FlowStats>,
    /// Rules that only OpenFlow can express.
    others: Vec<Other>,
    most_groups: usize,
    most_rules: Option<usize>,
    /// Ports that are down.
    down: BTreeSet<u32>,
    salt: u64,
}

impl Tables {
    pub(crate) fn new(ports: u32, salt: u64, most_rules: Option<usize>) -> Tables {
        let settings = SwitchSettings { ports, tables: TABLES, rule_limit: most_rules, salt };
        let (switch, sent, others) = (Switch::new(settings), BTreeMap::new(), Vec::new());
        Tables { switch, sent, others, most_groups: usize::MAX, most_rules, down: BTreeSet::new(), salt }
    }

    pub(crate) fn clear(&mut self) {
        self.switch.clear();
        self.sent.clear();
        self.others.clear();
    }

    /// Sets the maximum number of groups.
    pub fn set_most_groups(&mut self, most: usize) {
        self.most_groups = most;
    }

    pub(crate) fn set_port(&mut self, port: u32, up: bool) {
        self.switch.set_port(PortNo(port), up);
        match up {
            true => self.down.remove(&port),
            false => self.down.insert(port),
        };
    }

    /// What the tables can hold. They share the room for rules.
    pub(crate) fn features(&self) -> Vec<TableFeatures> {
        let max_entries = self.most_rules.map_or(1_000_000, |most| u32::try_from(most).unwrap_or(u32::MAX));
        (0..TABLES).map(|table| TableFeatures { table, max_entries, has_unsupported: false }).collect()
    }

    /// The rules that `pathloom_model::rules` can express, ordered by key.
    pub fn rules(&self) -> Vec<Rule> {
        self.switch.rules().into_iter().map(|(rule, _)| rule.clone()).collect()
    }

    /// Number of meters.
    pub fn meter_count(&self) -> usize {
        self.switch.meters().count()
    }

    /// All rules as a switch lists them.
    pub fn rows(&self, request: &FlowStatsRequest) -> Vec<FlowStats> {
        let counted = self.switch.rules().into_iter().filter_map(|(rule, counters)| {
            let sent = self.sent.get(&rule.key())?;
            Some(FlowStats { packets: counters.packets, bytes: counters.bytes, ..sent.clone() })
        });
        let wanted = |row: &FlowStats| {
            let table = request.table == TABLE_ALL || request.table == row.table;
            table && row.cookie & request.cookie_mask == request.cookie && covers(&request.matches, &row.matches)
        };
        counted.chain(self.others.iter().map(|other| other.row.clone())).filter(wanted).collect()
    }

    /// Carries out a flow-mod. Returns the rules that it deleted.
    pub(crate) fn flow_mod(&mut self, now: Nanos, change: &FlowMod<'_>) -> Result<Vec<FlowRemoved>, Refusal> {
        match change.command {
            FlowCommand::Add => self.add(now, change).map(|()| Vec::new()),
            FlowCommand::Delete | FlowCommand::DeleteStrict => Ok(self.delete(change)),
            FlowCommand::Modify | FlowCommand::ModifyStrict => Err(Refusal::Unsupported),
        }
    }

    fn add(&mut self, now: Nanos, change: &FlowMod<'_>) -> Result<(), Refusal> {
        let instructions = Instructions {
            apply: change.instructions.apply.to_vec().into(),
            meter: change.instructions.meter,
            goto_table: change.instructions.goto_table,
            has_unsupported: change.instructions.has_unsupported,
        };
        let row = FlowStats {
            table: change.table,
            duration_s: 0,
            duration_ns: 0,
            priority: change.priority,
            idle_timeout_s: change.idle_timeout_s,
            hard_timeout_s: change.hard_timeout_s,
            flags: change.flags,
            cookie: change.cookie,
            packets: 0,
            bytes: 0,
            matches: change.matches,
            instructions,
        };
        let same =
            |other: &FlowStats| (other.table, other.priority, other.matches) == (row.table, row.priority, row.matches);
        match convert::read_rule(&row) {
            Some(rule) => {
                let key = rule.key();
                self.switch.add_rule(now, rule)?;
                self.others.retain(|other| !same(&other.row));
                self.sent.insert(key, row);
            }
            None if row.table >= TABLES => return Err(Refusal::BadTable),
            None => {
                let replaced: Vec<RuleKey> =
                    self.sent.iter().filter(|(_, other)| same(other)).map(|(&key, _)| key).collect();
                replaced.iter().for_each(|key| drop(self.take(key)));
                self.others.retain(|other| !same(&other.row));
                let lasts = Nanos::from_secs(u64::from(row.hard_timeout_s));
                self.others.push(Other { ends: (lasts > Nanos::ZERO).then(|| now + lasts), row });
            }
        }
        Ok(())
    }

    /// Removes a rule of `switch`.
    fn take(&mut self, key: &RuleKey) -> Option<FlowStats> {
        let Removed { counters, .. } = self.switch.delete_rule(key)?;
        let sent = self.sent.remove(key)?;
        Some(FlowStats { packets: counters.packets, bytes: counters.bytes, ..sent })
    }

    fn delete(&mut self, change: &FlowMod<'_>) -> Vec<FlowRemoved> {
        let gone = |row: &FlowStats| {
            let table = change.table == TABLE_ALL || change.table == row.table;
            let marked = row.cookie & change.cookie_mask == change.cookie & change.cookie_mask;
            let chosen = match change.command {
                FlowCommand::DeleteStrict => (row.priority, row.matches) == (change.priority, change.matches),
                _ => covers(&change.matches, &row.matches),
            };
            table && marked && chosen
        };
        let strict = change.command == FlowCommand::DeleteStrict;
        let key = strict.then(|| convert::read_key(change.table, change.priority, &change.matches)).flatten();
        let keys: Vec<RuleKey> = match key {
            Some(key) => self.sent.get(&key).filter(|row| gone(row)).map(|_| key).into_iter().collect(),
            None => self.sent.iter().filter(|(_, row)| gone(row)).map(|(&key, _)| key).collect(),
        };
        let mut removed: Vec<FlowStats> = keys.iter().filter_map(|key| self.take(key)).collect();
        let (others, kept): (Vec<Other>, Vec<Other>) =
            std::mem::take(&mut self.others).into_iter().partition(|other| gone(&other.row));
        self.others = kept;
        removed.extend(others.into_iter().map(|other| other.row));
        removed.iter().filter_map(|row| notice(row, RemovedReason::Deleted)).collect()
    }

    /// Carries out a group-mod.
    pub(crate) fn group_mod(&mut self, change: GroupMod) -> Result<(), Refusal> {
        let id = GroupId(change.id);
        let exists = self.switch.groups().any(|group| group.id == id);
        match change.command {
            GroupCommand::Delete => return self.switch.delete_group(id),
            // §A.4.4: OFPGMFC_GROUP_EXISTS, OFPGMFC_OUT_OF_GROUPS and OFPGMFC_UNKNOWN_GROUP.
            GroupCommand::Add if exists => return Err(Refusal::Exists),
            GroupCommand::Add if self.switch.groups().count() >= self.most_groups => return Err(Refusal::GroupsFull),
            GroupCommand::Modify if !exists => return Err(Refusal::UnknownGroup),
            GroupCommand::Add | GroupCommand::Modify => {}
        }
        let group = GroupDesc { kind: change.kind, id: change.id, buckets: change.buckets };
        self.switch.add_group(convert::read_group(&group).ok_or(Refusal::Unsupported)?)
    }

    /// Carries out a meter-mod.
    pub(crate) fn meter_mod(&mut self, now: Nanos, change: MeterMod) -> Result<(), Refusal> {
        let id = MeterId(change.id);
        let exists = self.switch.meters().any(|meter| meter.id == id);
        match change.command {
            MeterCommand::Delete => return self.switch.delete_meter(id),
            MeterCommand::Add if exists => return Err(Refusal::Exists),
            MeterCommand::Modify if !exists => return Err(Refusal::UnknownMeter),
            MeterCommand::Add | MeterCommand::Modify => {}
        }
        let meter = MeterConfig { id: change.id, bands: change.bands };
        self.switch.add_meter(now, convert::read_meter(&meter).ok_or(Refusal::Unsupported)?);
        Ok(())
    }

    /// All groups as a switch lists them.
    pub fn group_rows(&self) -> Vec<GroupDesc> {
        let row = |group| match convert::group_mod(group, false).ok()? {
            pathloom_openflow::Message::GroupMod(GroupMod { kind, id, buckets, .. }) => {
                Some(GroupDesc { kind, id, buckets })
            }
            _ => None,
        };
        self.switch.groups().filter_map(row).collect()
    }

    /// All meters as a switch lists them.
    pub(crate) fn meter_rows(&self) -> Vec<MeterConfig> {
        let row = |meter| match convert::meter_mod(meter, false) {
            pathloom_openflow::Message::MeterMod(MeterMod { id, bands, .. }) => Some(MeterConfig { id, bands }),
            _ => None,
        };
        self.switch.meters().filter_map(row).collect()
    }

    /// When to call [`Tables::expire`].
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        self.others.iter().filter_map(|other| other.ends).chain(self.switch.poll_timeout()).min()
    }

    /// Removes rules that have timed out.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<FlowRemoved> {
        let removed = self.switch.expire(now).into_iter().filter_map(|Removed { rule, counters, hard }| {
            let sent = self.sent.remove(&rule.key())?;
            let row = FlowStats { packets: counters.packets, bytes: counters.bytes, ..sent };
            notice(&row, if hard { RemovedReason::Hard } else { RemovedReason::Idle })
        });
        let (over, kept): (Vec<Other>, Vec<Other>) =
            std::mem::take(&mut self.others).into_iter().partition(|other| other.ends.is_some_and(|ends| ends <= now));
        self.others = kept;
        removed.chain(over.iter().filter_map(|other| notice(&other.row, RemovedReason::Hard))).collect()
    }

    /// Handles a frame of this size. Counters change if `counts` is set.
    pub(crate) fn forward(&mut self, now: Nanos, in_port: u32, frame: &Frame, counts: Option<u64>) -> Outcome {
        let Some(headers) = &frame.headers else { return self.forward_other(in_port, frame, counts) };
        let decision = self.switch.decide(PortNo(in_port), headers);
        let mut outcome = Outcome::default();
        let (mut table, mut tag, mut acted) = (Some(0), frame.tag, 0);
        for reference in decision.rules.iter().map(Some).chain([None]) {
            let Some(number) = table else { break };
            let rule = reference.and_then(|&reference| self.switch.rule(reference));
            let other = self.best_other(number, in_port, frame);
            if let Some(index) =
                other.filter(|&index| rule.is_none_or(|r| r.priority < self.others[index].row.priority))
            {
                self.credit(&decision.rules[..acted], now, counts);
                self.apply_other((index, in_port), frame, &mut outcome, counts);
                return outcome;
            }
            let Some(rule) = rule else { break };
            for action in &rule.actions {
                match *action {
                    RuleAction::Copy => outcome.copy = self.sent.get(&rule.key()).map(|row| copy(row, tag)),
                    RuleAction::SetTag(next) => tag = Some(next),
                    RuleAction::PopTag => tag = None,
                    RuleAction::Output(_) | RuleAction::Group(_) => {}
                }
            }
            (table, acted) = (rule.goto, acted + 1);
        }
        if let Some(bytes) = counts {
            // Frames are short, so a meter never fails in the middle of one.
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            if !decision.meters.iter().all(|&meter| self.switch.pass_meter(now, meter, bytes)) {
                return Outcome::default();
            }
        }
        self.credit(&decision.rules, now, counts);
        outcome.out = decision.emissions.iter().map(|emission| (emission.port.0, emission.tag)).collect();
        outcome
    }

    fn credit(&mut self, rules: &[pathloom_switching::RuleRef], now: Nanos, counts: Option<u64>) {
        if let Some(bytes) = counts {
            self.switch.credit(rules, 1, bytes, now);
        }
    }

    /// Index of the rule among `others` that has the highest priority of those that match.
    fn best_other(&self, table: u8, in_port: u32, frame: &Frame) -> Option<usize> {
        let matching = (0..self.others.len()).filter(|&index| {
            let row = &self.others[index].row;
            row.table == table && frame.matches(&row.matches, in_port)
        });
        matching.max_by_key(|&index| self.others[index].row.priority)
    }

    fn apply_other(
        &mut self,
        (index, in_port): (usize, u32),
        frame: &Frame,
        outcome: &mut Outcome,
        counts: Option<u64>,
    ) {
        if let Some(bytes) = counts {
            let row = &mut self.others[index].row;
            row.packets += 1;
            row.bytes += bytes;
        }
        apply(&self.others[index].row, None, in_port, outcome);
        let groups = self.others[index].row.instructions.apply.iter().filter_map(|action| match *action {
            Action::Group(id) => self.port_of_group(GroupId(id), frame),
            _ => None,
        });
        outcome.out.extend(groups.filter(|&port| port != in_port).map(|port| (port, frame.tag)));
    }

    /// The port over which a group sends a frame that is not IPv4: one of those that are up, by a hash of the Ethernet
    /// addresses.
    fn port_of_group(&self, id: GroupId, frame: &Frame) -> Option<u32> {
        let group = self.switch.groups().find(|group| group.id == id)?;
        let port = |bucket: &Bucket| match bucket.actions[..] {
            [RuleAction::Output(port)] => vec![port.0; usize::from(bucket.weight)],
            _ => Vec::new(),
        };
        let is_up = |bucket: &&Bucket| bucket.watch_port.is_none_or(|port| !self.down.contains(&port.0));
        let ports: Vec<u32> = group.buckets.iter().filter(is_up).flat_map(port).collect();
        let bytes = frame.to_bytes();
        let hash = bytes[..12].iter().fold(self.salt, |hash, &byte| split_mix(hash ^ u64::from(byte)));
        ports.get(usize::try_from(hash % ports.len().max(1) as u64).unwrap_or(0)).copied()
    }

    /// Handles a frame that is not IPv4. Rules of `switch` that match it do not count it.
    fn forward_other(&mut self, in_port: u32, frame: &Frame, counts: Option<u64>) -> Outcome {
        let (mut outcome, mut table) = (Outcome::default(), Some(0));
        while let Some(number) = table {
            let plain = self.sent.iter().rev().skip_while(|(key, _)| key.table > number);
            let plain = plain
                .take_while(|(key, _)| key.table == number)
                .find(|(_, row)| frame.matches(&row.matches, in_port))
                .map(|(_, row)| row);
            let other = self.best_other(number, in_port, frame);
            match (plain, other) {
                (plain, Some(index)) if plain.is_none_or(|row| row.priority < self.others[index].row.priority) => {
                    table = self.others[index].row.instructions.goto_table;
                    self.apply_other((index, in_port), frame, &mut outcome, counts);
                }
                (Some(row), _) => {
                    table = row.instructions.goto_table;
                    apply(row, frame.tag, in_port, &mut outcome);
                }
                (None, _) => break,
            }
        }
        outcome
    }
}

/// Applies the outputs of a rule. None is to the port at which the frame arrived (§5.10).
fn apply(row: &FlowStats, tag: Option<u16>, in_port: u32, outcome: &mut Outcome) {
    for action in row.instructions.apply.iter() {
        match *action {
            Action::Output { port: PORT_CONTROLLER, .. } => outcome.copy = Some(copy(row, tag)),
            Action::Output { port, .. } if port <= PORT_MAX && port != in_port => outcome.out.push((port, tag)),
            _ => {}
        }
    }
}

fn copy(row: &FlowStats, tag: Option<u16>) -> Copy {
    let sent = row.instructions.apply.iter().find_map(|action| match *action {
        Action::Output { port: PORT_CONTROLLER, max_len } => Some(max_len),
        _ => None,
    });
    Copy { table: row.table, cookie: row.cookie, max_len: sent.unwrap_or_default(), tag }
}

fn notice(row: &FlowStats, reason: RemovedReason) -> Option<FlowRemoved> {
    (row.flags & SEND_FLOW_REMOVED != 0).then_some(FlowRemoved {
        cookie: row.cookie,
        priority: row.priority,
        reason,
        table: row.table,
        duration_s: 0,
        duration_ns: 0,
        idle_timeout_s: row.idle_timeout_s,
        hard_timeout_s: row.hard_timeout_s,
        packets: row.packets,
        bytes: row.bytes,
        matches: row.matches,
    })
}

/// Whether every frame of `one` is one of `all` (§6.4). Fields are compared, not sets of frames.
fn covers(all: &FlowMatch, one: &FlowMatch) -> bool {
    fn field<T: PartialEq>(all: Option<T>, one: Option<T>) -> bool {
        all.is_none_or(|value| one == Some(value))
    }
    type Masked = Option<(std::net::Ipv4Addr, std::net::Ipv4Addr)>;
    let address = |all: Masked, one: Masked| {
        all.is_none_or(|(value, mask)| {
            one.is_some_and(|(other, narrower)| {
                u32::from(narrower) & u32::from(mask) == u32::from(mask)
                    && u32::from(other) & u32::from(mask) == u32::from(value)
            })
        })
    };
    field(all.in_port, one.in_port)
        && field(all.eth_type, one.eth_type)
        && field(all.eth_dst, one.eth_dst)
        && (!all.to_station || one.to_station || one.eth_dst.is_some_and(|mac| mac[0] & 1 == 0))
        && field(all.eth_src, one.eth_src)
        && field(all.arp_op, one.arp_op)
        && field(all.arp_spa, one.arp_spa)
        && field(all.arp_sha, one.arp_sha)
        && address(all.arp_tpa, one.arp_tpa)
        && field(all.vlan_vid, one.vlan_vid)
        && (!all.vlan_tagged || one.vlan_tagged || one.vlan_vid.is_some_and(|vid| vid & VLAN_PRESENT != 0))
        && field(all.ip_dscp, one.ip_dscp)
        && field(all.ip_proto, one.ip_proto)
        && address(all.ipv4_src, one.ipv4_src)
        && address(all.ipv4_dst, one.ipv4_dst)
        && [
            (all.tcp_src, one.tcp_src),
            (all.tcp_dst, one.tcp_dst),
            (all.udp_src, one.udp_src),
            (all.udp_dst, one.udp_dst),
        ]
        .into_iter()
        .all(|(all, one)| field(all, one))
}

/// The kind and code of the error for a refused change of a rule, a group or a meter (§A.4.4).
pub(crate) fn error(why: Refusal, of_group: bool, of_meter: bool) -> (u16, u16) {
    use pathloom_openflow::{BAD_ACTION, BAD_REQUEST, FLOW_MOD_FAILED, GROUP_MOD_FAILED, METER_MOD_FAILED};
    match why {
        Refusal::TableFull => (FLOW_MOD_FAILED, 1),
        Refusal::GroupsFull => (GROUP_MOD_FAILED, 3),
        Refusal::GroupUnsupported => (GROUP_MOD_FAILED, 10),
        Refusal::MetersFull => (METER_MOD_FAILED, 10),
        Refusal::MeterUnsupported => (METER_MOD_FAILED, 6),
        Refusal::Exists if of_meter => (METER_MOD_FAILED, 1),
        Refusal::Exists => (GROUP_MOD_FAILED, 0),
        Refusal::NotPermitted => (BAD_REQUEST, 5),
        Refusal::UnknownGroup if of_group => (GROUP_MOD_FAILED, 8),
        Refusal::UnknownGroup => (BAD_ACTION, 9),
        Refusal::UnknownMeter => (METER_MOD_FAILED, 3),
        Refusal::BadTable => (FLOW_MOD_FAILED, 2),
        Refusal::BadPort => (BAD_ACTION, 4),
        Refusal::InUse | Refusal::Unsupported => (BAD_REQUEST, 1),
    }
}
