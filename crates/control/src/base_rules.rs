//! Rules and groups that belong to no single flow: those that a switch should have, and the messages that install
//! them.

use crate::assignments::Assignments;
use crate::context::Context;
use crate::cookies::{Cookie, RuleKind};
use crate::defaults::{
    read_group, read_route, route_rule, spread_group, Choice, Compiler, DefaultTable, NextHops, SpreadGroups,
    FIRST_GROUP,
};
use crate::detection;
use crate::io::Output;
use crate::switches::Purpose;
use crate::timers::Timer;
use pathloom_model::rules::{Group, GroupId, Rule, RuleKey};
use pathloom_model::{Address, Nanos, NodeId, Prefix};
use std::collections::BTreeMap;

/// How long a group stays after the last rule that used it was deleted. A switch may forward by old rules for a short
/// time and still look up the group. Open vSwitch does so until it has revalidated its cached flows, and drops
/// packets if the group is gone.
const UNUSED_GROUP_LIFETIME: Nanos = Nanos::from_secs(1);

/// The rules and groups of one switch that belong to no single flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseTable {
    /// Default routes.
    pub defaults: DefaultTable,
    /// Rules that join tables, and detection rules. Also found rules with the mark of the controller that it does not
    /// need now.
    pub others: BTreeMap<RuleKey, Rule>,
}

impl BaseTable {
    pub(crate) fn len(&self) -> usize {
        self.defaults.routes.len() + self.others.len()
    }
}

/// The rules and groups of all switches that belong to no single flow.
pub(crate) struct BaseRules {
    /// Rules and groups of each switch, by node, as far as they were sent.
    pub tables: Vec<BaseTable>,
    /// Time until which unused groups stay, by node.
    groups_until: Vec<Nanos>,
    next_hops: Option<NextHops>,
    compiler: Compiler,
    /// Changes that switches may not have got yet.
    pending_change: PendingChange,
}

/// Kind of change since rules were last sent, the more urgent ones last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum PendingChange {
    None,
    Scheme,
    Network,
}

impl BaseRules {
    pub(crate) fn new(nodes: usize) -> BaseRules {
        BaseRules {
            tables: vec![BaseTable::default(); nodes],
            groups_until: vec![Nanos::ZERO; nodes],
            next_hops: None,
            compiler: Compiler::default(),
            pending_change: PendingChange::None,
        }
    }

    /// Sends a switch the rules that it lacks, and deletes those that it should not have. Between two messages, every
    /// address is forwarded either as before or as it will be afterwards. For this purpose new rules come first, the
    /// most specific ones before the others. Old rules are deleted afterwards, the most specific ones last.
    pub(crate) fn bring_up_to_date(&mut self, cx: &mut Context, assignments: &Assignments, switch: NodeId) {
        let wanted = self.wanted(cx, assignments, switch);
        let found = std::mem::take(&mut self.tables[switch.index()]);
        self.change(cx, switch, found, wanted);
    }

    /// Changes the rules of a switch from `found` to `wanted`. Returns the number of rules and groups that were
    /// missing.
    pub(crate) fn change(&mut self, cx: &mut Context, switch: NodeId, found: BaseTable, mut wanted: BaseTable) -> u64 {
        let first = cx.last_xid();
        let mut lacked = 0;
        for (&id, ports) in &wanted.defaults.groups {
            if found.defaults.groups.get(&id) != Some(ports) {
                let xid = cx.next_xid();
                cx.put(Output::AddGroup { switch, xid, group: spread_group(id, ports) });
                cx.await_answer(switch, xid, Purpose::Base);
                lacked += 1;
            }
        }
        for (key, rule) in &wanted.others {
            let same = |other: &&Rule| Rule { cookie: rule.cookie, ..(*other).clone() } == *rule;
            if found.others.get(key).filter(same).is_none() {
                cx.add_rule(switch, rule.clone(), Purpose::Base);
                lacked += 1;
            }
        }
        for key in found.others.keys().filter(|key| !wanted.others.contains_key(key)) {
            cx.delete_rule(switch, *key);
        }
        lacked += self.change_routes(cx, switch, &found.defaults.routes, &wanted.defaults.routes);
        self.keep_groups(cx, switch, found.defaults.groups, &mut wanted.defaults.groups);
        cx.switches[switch.index()].base_rules = wanted.len() as u32;
        self.tables[switch.index()] = wanted;
        cx.count_rules(switch, 0);
        if cx.last_xid() != first {
            cx.switches[switch.index()].watch.base_changed();
        }
        lacked
    }

    /// Keeps unused groups for a while, because packets may still be forwarded to them.
    fn keep_groups(&mut self, cx: &mut Context, switch: NodeId, found: SpreadGroups, wanted: &mut SpreadGroups) {
        let standing = wanted.len();
        for (id, ports) in found {
            wanted.entry(id).or_insert(ports);
        }
        if wanted.len() > standing {
            let until = cx.now.saturating_add(UNUSED_GROUP_LIFETIME);
            self.groups_until[switch.index()] = until;
            cx.timers.set(until, Timer::Groups { switch });
        }
    }

    /// Deletes groups that no rule has used for long enough.
    pub(crate) fn delete_unnamed_groups(&mut self, cx: &mut Context, switch: NodeId) {
        // After a lost session, the groups are read when the session is open again. Groups that became unused later
        // have their own timer.
        if !cx.is_ready(switch) || self.groups_until[switch.index()] > cx.now {
            return;
        }
        let defaults = &self.tables[switch.index()].defaults;
        let named = |id: &GroupId| defaults.routes.iter().any(|&(_, choice)| choice == Choice::Group(*id));
        let unnamed: Vec<GroupId> = defaults.groups.keys().copied().filter(|id| !named(id)).collect();
        if !unnamed.is_empty() {
            cx.switches[switch.index()].watch.base_changed();
        }
        for group in unnamed {
            self.tables[switch.index()].defaults.groups.remove(&group);
            let xid = cx.next_xid();
            cx.put(Output::DeleteGroup { switch, xid, group });
        }
    }

    /// Links or addresses have changed. Switches may need other rules at once.
    pub(crate) fn may_have_changed(&mut self) {
        self.pending_change = PendingChange::Network;
    }

    /// The kind of default routes may have changed. Switches may need other rules.
    pub(crate) fn scheme_changed(&mut self) {
        self.pending_change = self.pending_change.max(PendingChange::Scheme);
    }

    /// Whether switches must get their rules at once, regardless of the order.
    pub(crate) fn is_urgent(&self) -> bool {
        self.pending_change == PendingChange::Network
    }

    /// Whether rules may have changed since they were last sent to all switches.
    pub(crate) fn is_stale(&self) -> bool {
        self.pending_change > PendingChange::None
    }

    /// Marks the changes as sent to all switches.
    pub(crate) fn refresh(&mut self) {
        self.pending_change = PendingChange::None;
    }

    /// Stores the rules and groups that a switch has.
    pub(crate) fn found(&mut self, cx: &mut Context, switch: NodeId, rules: &[Rule], groups: &[Group]) {
        let table = self.read(cx, rules, groups);
        cx.switches[switch.index()].base_rules = table.len() as u32;
        self.tables[switch.index()] = table;
    }

    fn change_routes(
        &mut self,
        cx: &mut Context,
        switch: NodeId,
        found: &[(Prefix, Choice)],
        wanted: &[(Prefix, Choice)],
    ) -> u64 {
        let choice_in = |table: &[(Prefix, Choice)], prefix: Prefix| {
            table.binary_search_by_key(&prefix, |&(other, _)| other).ok().map(|index| table[index].1)
        };
        let differs = |&&(prefix, choice): &&(Prefix, Choice)| choice_in(found, prefix) != Some(choice);
        let mut added: Vec<_> = wanted.iter().filter(differs).copied().collect();
        added.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len));
        let lacked = added.len() as u64;
        for (prefix, choice) in added {
            let rule = route_rule(&cx.config, prefix, choice);
            cx.add_rule(switch, rule, Purpose::Base);
        }
        let stale = |&&(prefix, _): &&(Prefix, Choice)| choice_in(wanted, prefix).is_none();
        let mut deleted: Vec<_> = found.iter().filter(stale).copied().collect();
        deleted.sort_by_key(|(prefix, _)| prefix.len);
        for (prefix, choice) in deleted {
            let key = route_rule(&cx.config, prefix, choice).key();
            cx.delete_rule(switch, key);
        }
        lacked
    }

    fn wanted(&mut self, cx: &mut Context, assignments: &Assignments, switch: NodeId) -> BaseTable {
        let (links, how) = (&cx.view.links, cx.view.defaults);
        let known = self.next_hops.take().filter(|routes| routes.are_for(links, how));
        let mut routes = known.unwrap_or_else(|| NextHops::new(&cx.fabric, links, how));
        routes.set_planned(&cx.fabric, links, &cx.view.weights);
        let standing = &self.tables[switch.index()].defaults.groups;
        let mut defaults = self.compiler.compile((&cx.fabric, &cx.places), &routes, switch, standing);
        if cx.switches[switch.index()].no_more_groups {
            defaults.replace_new_groups(switch, standing);
        }
        self.next_hops = Some(routes);
        let sources = sources_at(cx, assignments, switch);
        let others = detection::rules(&cx.config, &cx.needs, (&cx.fabric, &cx.places), switch, &sources);
        BaseTable { defaults, others: others.into_iter().map(|rule| (rule.key(), rule)).collect() }
    }

    /// Selects the rules and groups of a switch that have the mark of the controller and belong to no single flow.
    pub(crate) fn read(&self, cx: &Context, rules: &[Rule], groups: &[Group]) -> BaseTable {
        let mut table = BaseTable::default();
        for rule in rules {
            let kind = Cookie::decode(rule.cookie).map(|cookie| cookie.kind);
            let route = read_route(&cx.config, rule).filter(|_| kind == Some(RuleKind::Default));
            match (kind, route) {
                (_, Some(route)) => table.defaults.routes.push(route),
                (Some(RuleKind::Default | RuleKind::Detection), None) => {
                    table.others.insert(rule.key(), rule.clone());
                }
                _ => {}
            }
        }
        table.defaults.routes.sort_unstable_by_key(|&(prefix, _)| prefix);
        // A group of the controller that someone changed equals no set of ports. It will be replaced or deleted.
        let ours = groups.iter().filter(|group| group.id >= GroupId(FIRST_GROUP));
        table.defaults.groups = ours.map(|group| (group.id, read_group(group).unwrap_or_default())).collect();
        table
    }

    /// Sends the rules that copy packets to the ToRs of addresses that got their first assignment or lost their last
    /// one.
    pub(crate) fn refresh_copies(&mut self, cx: &mut Context, assignments: &mut Assignments) {
        let changed = assignments.take_changed_sources();
        if changed.is_empty() {
            return;
        }
        let mut tors: Vec<NodeId> = changed.iter().filter_map(|&at| cx.attachment(at)).map(|at| at.tor).collect();
        tors.sort_unstable();
        tors.dedup();
        for tor in tors {
            // Otherwise the switch gets the rules when its session is ready.
            if cx.is_ready(tor) {
                self.refresh_copies_at(cx, assignments, tor);
            }
        }
    }

    fn refresh_copies_at(&mut self, cx: &mut Context, assignments: &Assignments, tor: NodeId) {
        let sources = sources_at(cx, assignments, tor);
        let wanted = detection::rules(&cx.config, &cx.needs, (&cx.fabric, &cx.places), tor, &sources);
        let ours = |rule: &Rule| detection::is_of_source(&cx.config, rule);
        let wanted: BTreeMap<_, _> = wanted.into_iter().filter(ours).map(|rule| (rule.key(), rule)).collect();
        let found = &self.tables[tor.index()].others;
        let surplus = found.values().filter(|rule| ours(rule) && !wanted.contains_key(&rule.key()));
        let surplus: Vec<_> = surplus.map(|rule| rule.key()).collect();
        let missing: Vec<_> = wanted.into_iter().filter(|(key, _)| !found.contains_key(key)).collect();
        if surplus.is_empty() && missing.is_empty() {
            return;
        }
        for (key, rule) in missing {
            self.tables[tor.index()].others.insert(key, rule.clone());
            cx.add_rule(tor, rule, Purpose::Copies);
        }
        for key in surplus {
            self.tables[tor.index()].others.remove(&key);
            cx.delete_rule(tor, key);
        }
        cx.switches[tor.index()].base_rules = self.tables[tor.index()].len() as u32;
        cx.count_rules(tor, 0);
        cx.switches[tor.index()].watch.base_changed();
    }
}

/// The addresses at a switch whose first and last packets are copied because they have assignments.
fn sources_at(cx: &Context, assignments: &Assignments, switch: NodeId) -> Vec<Address> {
    let here = |address: &_| cx.attachment(*address).is_some_and(|at| at.tor == switch);
    assignments.sources().filter(here).collect()
}
