//! Rules and groups of no single flow: what a switch should have of them, and the messages that bring it there.

use crate::controller::Controller;
use crate::cookies::{Cookie, RuleKind};
use crate::defaults::{read_group, read_route, route_rule, spread_group, Choice, Routes, SpreadGroups, FIRST_GROUP};
use crate::detection;
use crate::io::Output;
use crate::switches::{FixedRules, Purpose};
use crate::timers::Timer;
use pathloom_model::rules::{Group, GroupId, Rule};
use pathloom_model::{Nanos, NodeId, Prefix};

/// How long a group stays after the last rule that named it. A switch may forward for a moment as it was told before, and
/// come back to a group by its number: Open vSwitch does, until it has looked through its cached flows, and drops packets
/// of a group that is gone.
const GROUP_REST: Nanos = Nanos::from_secs(1);

impl Controller {
    /// Sends every switch what has changed since it was last told.
    pub(crate) fn refresh_fixed(&mut self) {
        if !self.stale {
            return;
        }
        let fabric = self.context.fabric.clone();
        if !fabric.switches().iter().any(|&switch| self.context.is_ready(switch)) {
            return;
        }
        self.stale = false;
        self.unstage();
        for &switch in fabric.switches() {
            if self.context.is_ready(switch) {
                self.tell_switch(switch);
            }
        }
    }

    /// Sends a switch what it lacks of what it should have, and deletes what it should not have. At every moment between
    /// two messages, an address is treated either as before or as it will be: new rules come first, the most specific
    /// of them before the others, and old ones go after them, the most specific last.
    pub(crate) fn bring_up_to_date(&mut self, switch: NodeId) {
        let wanted = self.wanted_fixed(switch);
        let found = std::mem::take(&mut self.context.switches[switch.index()].fixed);
        self.change_fixed(switch, found, wanted);
    }

    /// Takes a switch from what it has to what it should have. Returns the number of rules and groups that it lacked.
    pub(crate) fn change_fixed(&mut self, switch: NodeId, found: FixedRules, mut wanted: FixedRules) -> u64 {
        let first = self.context.last_xid();
        let mut lacked = 0;
        for (&id, ports) in &wanted.defaults.groups {
            if found.defaults.groups.get(&id) != Some(ports) {
                let xid = self.context.next_xid();
                self.context.put(Output::AddGroup { switch, xid, group: spread_group(id, ports) });
                self.context.await_answer(switch, xid, Purpose::Fixed);
                lacked += 1;
            }
        }
        for (key, rule) in &wanted.others {
            let same = |other: &&Rule| Rule { cookie: rule.cookie, ..(*other).clone() } == *rule;
            if found.others.get(key).filter(same).is_none() {
                self.context.add_rule(switch, rule.clone(), Purpose::Fixed);
                lacked += 1;
            }
        }
        for key in found.others.keys().filter(|key| !wanted.others.contains_key(key)) {
            self.context.delete_rule(switch, *key);
        }
        lacked += self.change_routes(switch, &found.defaults.routes, &wanted.defaults.routes);
        self.keep_groups(switch, found.defaults.groups, &mut wanted.defaults.groups);
        self.context.switches[switch.index()].fixed = wanted;
        self.context.count_rules(switch, 0);
        if self.context.last_xid() != first {
            self.context.switches[switch.index()].watch.fixed_changed();
        }
        lacked
    }

    /// Lets groups that no rule names any more stand for a while, for packets may still be on their way to them.
    fn keep_groups(&mut self, switch: NodeId, found: SpreadGroups, wanted: &mut SpreadGroups) {
        let standing = wanted.len();
        for (id, ports) in found {
            wanted.entry(id).or_insert(ports);
        }
        if wanted.len() > standing {
            let until = self.context.now.saturating_add(GROUP_REST);
            self.context.switches[switch.index()].groups_until = until;
            self.context.timers.set(until, Timer::Groups { switch });
        }
    }

    /// Deletes the groups that no rule has named for long enough.
    pub(crate) fn delete_unnamed_groups(&mut self, switch: NodeId) {
        let state = &self.context.switches[switch.index()];
        // A lost session reads what there is when it stands again; groups that came to rest later have their own timer.
        if !self.context.is_ready(switch) || state.groups_until > self.context.now {
            return;
        }
        let defaults = &state.fixed.defaults;
        let named = |id: &GroupId| defaults.routes.iter().any(|&(_, choice)| choice == Choice::Group(*id));
        let unnamed: Vec<GroupId> = defaults.groups.keys().copied().filter(|id| !named(id)).collect();
        if !unnamed.is_empty() {
            self.context.switches[switch.index()].watch.fixed_changed();
        }
        for group in unnamed {
            self.context.switches[switch.index()].fixed.defaults.groups.remove(&group);
            let xid = self.context.next_xid();
            self.context.put(Output::DeleteGroup { switch, xid, group });
        }
    }

    fn change_routes(&mut self, switch: NodeId, found: &[(Prefix, Choice)], wanted: &[(Prefix, Choice)]) -> u64 {
        let choice_in = |table: &[(Prefix, Choice)], prefix: Prefix| {
            table.binary_search_by_key(&prefix, |&(other, _)| other).ok().map(|index| table[index].1)
        };
        let differs = |&&(prefix, choice): &&(Prefix, Choice)| choice_in(found, prefix) != Some(choice);
        let mut added: Vec<_> = wanted.iter().filter(differs).copied().collect();
        added.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len));
        let lacked = added.len() as u64;
        for (prefix, choice) in added {
            let rule = route_rule(&self.context.config, prefix, choice);
            self.context.add_rule(switch, rule, Purpose::Fixed);
        }
        let stale = |&&(prefix, _): &&(Prefix, Choice)| choice_in(wanted, prefix).is_none();
        let mut deleted: Vec<_> = found.iter().filter(stale).copied().collect();
        deleted.sort_by_key(|(prefix, _)| prefix.len);
        for (prefix, choice) in deleted {
            let key = route_rule(&self.context.config, prefix, choice).key();
            self.context.delete_rule(switch, key);
        }
        lacked
    }

    fn wanted_fixed(&mut self, switch: NodeId) -> FixedRules {
        let (links, how) = (&self.context.view.links, self.context.view.defaults);
        let routes = match self.routes.take().filter(|routes| routes.are_for(links, how)) {
            Some(routes) => routes,
            None => Routes::new(&self.context.fabric, links, how),
        };
        let standing = &self.context.switches[switch.index()].fixed.defaults.groups;
        let defaults = self.compiler.compile((&self.context.fabric, &self.context.places), &routes, switch, standing);
        self.routes = Some(routes);
        let sources = self.assigned_sources(switch);
        let others = detection::rules(
            &self.context.config,
            &self.context.needs,
            (&self.context.fabric, &self.context.places),
            switch,
            &sources,
        );
        FixedRules { defaults, others: others.into_iter().map(|rule| (rule.key(), rule)).collect() }
    }

    /// What of the rules and groups found in a switch are of ours and of no single flow.
    pub(crate) fn read_fixed(&self, rules: &[Rule], groups: &[Group]) -> FixedRules {
        let mut fixed = FixedRules::default();
        for rule in rules {
            let kind = Cookie::decode(rule.cookie).map(|cookie| cookie.kind);
            let route = read_route(&self.context.config, rule).filter(|_| kind == Some(RuleKind::Default));
            match (kind, route) {
                (_, Some(route)) => fixed.defaults.routes.push(route),
                (Some(RuleKind::Default | RuleKind::Detection), None) => {
                    fixed.others.insert(rule.key(), rule.clone());
                }
                _ => {}
            }
        }
        fixed.defaults.routes.sort_unstable_by_key(|&(prefix, _)| prefix);
        // A group of ours that was changed by someone matches no set of ports, and is replaced or deleted.
        let ours = groups.iter().filter(|group| group.id >= GroupId(FIRST_GROUP));
        fixed.defaults.groups = ours.map(|group| (group.id, read_group(group).unwrap_or_default())).collect();
        fixed
    }
}
