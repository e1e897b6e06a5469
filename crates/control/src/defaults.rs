//! Default routes: how every switch forwards packets of flows without a path of their own.
//!
//! Packets are routed by destination prefix. Prefixes of several ToRs with the same next hop at a switch are combined
//! into one rule ([`crate::aggregate`]). A switch of a FatTree without failures needs one rule for "up" and one for
//! each pod or ToR below it. Addresses that belong to no ToR are dropped everywhere, and a ToR never sends its own
//! prefix up. Therefore no packet loops between default routes.

use crate::aggregate::{blocks, Aggregator, Leaf};
use crate::config::Config;
use crate::cookies::{Cookie, RuleKind};
use crate::fan_out::FanOut;
use crate::places::Places;
use crate::tables;
use crate::weights::{Weights, MOST_WEIGHT};
use pathloom_model::rules::{Actions, Bucket, Group, GroupId, GroupKind, Match, Rule, RuleAction};
use pathloom_model::search::{spanning_tree, RouteTable};
use pathloom_model::{split_mix, Fabric, LinkId, LinkState, NodeId, PortNo, Prefix, GOLDEN};
use pathloom_scheme::{DefaultRoutes, PlannedWeights, Shared};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// First identifier of the groups of the controller. Groups below it belong to others and are not changed.
pub const FIRST_GROUP: u32 = 0x5000_0000;

/// Action for packets to a prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Choice {
    Drop,
    Port(PortNo),
    Group(GroupId),
    /// The rule that was found for the prefix has other contents than any rule of the controller.
    Other,
}

/// Ports over which each group spreads flows. A port is listed as often as its weight says.
pub(crate) type SpreadGroups = BTreeMap<GroupId, Vec<PortNo>>;

/// The default routes of one switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DefaultTable {
    /// Routes, sorted by prefix.
    pub routes: Vec<(Prefix, Choice)>,
    /// Groups that routes use, and those that they used a moment ago.
    pub groups: SpreadGroups,
}

impl DefaultTable {
    /// Single addresses that the switch forwards to a port, each with its port.
    pub(crate) fn single_addresses(&self) -> impl Iterator<Item = (Prefix, PortNo)> + '_ {
        self.routes.iter().filter_map(|&(prefix, choice)| match choice {
            Choice::Port(port) if prefix.is_host() => Some((prefix, port)),
            _ => None,
        })
    }

    /// Replaces the groups that the switch does not have by single ports: each prefix uses one of the ports of its
    /// group. All of them are on shortest paths, so packets still do not loop.
    pub(crate) fn replace_new_groups(&mut self, switch: NodeId, standing: &SpreadGroups) {
        for (prefix, choice) in &mut self.routes {
            let Choice::Group(id) = *choice else { continue };
            let ports = self.groups.get(&id).filter(|ports| !ports.is_empty() && standing.get(&id) != Some(ports));
            if let Some(ports) = ports {
                let turn = tie_break(prefix.address.low() as usize, switch) % ports.len() as u64;
                *choice = Choice::Port(ports[turn as usize]);
            }
        }
        self.groups.retain(|id, ports| standing.get(id) == Some(ports));
    }
}

/// Shortest paths from which default routes are made.
pub(crate) struct NextHops {
    how: DefaultRoutes,
    /// [`LinkState::version`] of the state for which they were computed.
    version: u64,
    table: RouteTable,
    /// Only for routes per host.
    fan_out: Option<FanOut>,
    /// Only for routes with weights.
    weights: Option<Weights>,
    /// Those that the scheme has set; they come before `weights`.
    planned: Shared<PlannedWeights>,
    /// The next hops that they may name; unknown until the scheme has set some.
    allowed: Option<RouteTable>,
}

impl NextHops {
    /// Next hops without weights of a scheme.
    pub(crate) fn new(fabric: &Fabric, links: &LinkState, how: DefaultRoutes) -> NextHops {
        let table = match how {
            DefaultRoutes::SpanningTree => RouteTable::new(fabric, &spanning_tree(fabric, links)),
            _ => RouteTable::new(fabric, links),
        };
        let fan_out = (how == DefaultRoutes::PerHost).then(|| FanOut::new(fabric, links, &table));
        let weights = (how == DefaultRoutes::Weighted).then(|| Weights::new(fabric, links, &table));
        NextHops { how, version: links.version(), table, fan_out, weights, planned: Shared::default(), allowed: None }
    }

    /// Whether they were computed for this state and kind.
    pub(crate) fn are_for(&self, links: &LinkState, how: DefaultRoutes) -> bool {
        self.version == links.version() && self.how == how
    }

    /// Takes the weights that the scheme has set, for the links of [`NextHops::new`].
    pub(crate) fn set_planned(&mut self, fabric: &Fabric, links: &LinkState, planned: &Shared<PlannedWeights>) {
        self.planned = planned.clone();
        if self.weights.is_some() && !planned.is_empty() {
            self.allowed.get_or_insert_with(|| RouteTable::with_sideways(fabric, links));
        }
    }

    /// The next hops of a switch to ToR number `tor` with weights above 0, as the scheme has set them. `None` if it has set none that
    /// may be used.
    fn planned(&self, fabric: &Fabric, switch: NodeId, tor: usize) -> Option<Vec<(LinkId, u16)>> {
        let (allowed, planned) = (self.allowed.as_ref()?, self.planned.get(&(switch, fabric.tors()[tor]))?);
        let weight = |link| planned.iter().find(|&&(known, _)| known == link).map_or(0, |&(_, weight)| weight);
        let hops = allowed.next_hops(switch, tor).iter().map(|&link| (link, weight(link)));
        Some(hops.filter(|&(_, weight)| weight > 0).collect()).filter(|hops: &Vec<_>| !hops.is_empty())
    }

    /// The next hops of a switch to ToR number `tor` with weights by capacity; `None` if these are equal.
    fn by_capacity(&self, switch: NodeId, tor: usize) -> Option<Vec<(LinkId, u16)>> {
        let weights = self.weights.as_ref()?.of(switch, tor)?;
        Some(self.table.next_hops(switch, tor).iter().copied().zip(weights.iter().copied()).collect())
    }
}

/// Computes the default routes of switches, one switch after another.
#[derive(Default)]
pub(crate) struct Compiler {
    space: Aggregator,
    leaves: Vec<Leaf>,
    numbers: FxHashMap<UnnamedChoice, u32>,
    wanted: Vec<UnnamedChoice>,
    /// Ports of the choices with weights.
    weighted: Vec<Vec<PortNo>>,
}

/// A choice before groups have identifiers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum UnnamedChoice {
    Drop,
    Port(PortNo),
    /// Spread over the links of this group of the [`RouteTable`].
    Set(u32),
    /// Spread over ports by weight; their number in [`Compiler::weighted`].
    Weighted(u32),
}

impl Compiler {
    /// Returns the default routes of `switch`. Groups in `standing` keep their identifiers.
    pub(crate) fn compile(
        &mut self,
        (fabric, places): (&Fabric, &Places),
        routes: &NextHops,
        switch: NodeId,
        standing: &SpreadGroups,
    ) -> DefaultTable {
        self.leaves.clear();
        self.numbers.clear();
        self.wanted.clear();
        self.weighted.clear();
        let own = fabric.tor_index(switch);
        let attachments = fabric.attachments();
        let mut first = 0;
        for (index, &tor) in fabric.tors().iter().enumerate() {
            let count = attachments[first..].partition_point(|at| at.tor == tor);
            let prefix = fabric.tor_prefix(tor).expect("a ToR has a prefix");
            if own == Some(index) {
                self.local(fabric, prefix, first..first + count);
            } else {
                self.remote(fabric, routes, (switch, index), prefix, first..first + count);
            }
            first += count;
        }
        self.unowned(fabric);
        let mut rules = self.space.aggregate(fabric.whole_prefix(), &self.leaves);
        self.placed(fabric, places, routes, switch, &mut rules);
        self.name_groups(fabric, routes, rules, standing)
    }

    fn number(&mut self, wanted: UnnamedChoice) -> u32 {
        let Compiler { numbers, wanted: list, .. } = self;
        *numbers.entry(wanted).or_insert_with(|| {
            list.push(wanted);
            list.len() as u32 - 1
        })
    }

    fn leaf(&mut self, prefix: Prefix, wanted: UnnamedChoice) {
        let choice = self.number(wanted);
        self.leaves.push(Leaf { start: prefix.address.low(), len: 32 - prefix.host_bits(), choice });
    }

    /// Adds the hosts of this switch. The rest of its prefix is dropped.
    fn local(&mut self, fabric: &Fabric, prefix: Prefix, hosts: std::ops::Range<usize>) {
        let mut next = u64::from(prefix.address.low());
        let end = next + (1u64 << prefix.host_bits());
        let nowhere = self.number(UnnamedChoice::Drop);
        for at in &fabric.attachments()[hosts] {
            let address = u64::from(at.address.low());
            self.leaves.extend(blocks(next, address, nowhere));
            self.leaf(Prefix::host(at.address), UnnamedChoice::Port(fabric.link(at.uplink).to_port));
            next = address + 1;
        }
        self.leaves.extend(blocks(next, end, nowhere));
    }

    fn remote(
        &mut self,
        fabric: &Fabric,
        routes: &NextHops,
        (switch, tor): (NodeId, usize),
        prefix: Prefix,
        hosts: std::ops::Range<usize>,
    ) {
        let group = routes.table.group(switch, tor);
        let links = routes.table.members(group);
        let port = |index: usize| UnnamedChoice::Port(fabric.link(links[index]).from_port);
        match (routes.how, links.len()) {
            (_, 0) => self.leaf(prefix, UnnamedChoice::Drop),
            (DefaultRoutes::Ecmp | DefaultRoutes::Weighted, _) => {
                let choice = self.spread(fabric, routes, switch, tor);
                self.leaf(prefix, choice);
            }
            (_, 1) => self.leaf(prefix, port(0)),
            // Not used for a spanning tree, which has only one way.
            (DefaultRoutes::SinglePath | DefaultRoutes::SpanningTree, ways) => {
                self.leaf(prefix, port((tie_break(tor, switch) % ways as u64) as usize));
            }
            (DefaultRoutes::PerHost, ways) => {
                // OFPT §4.3: the servers of a rack use the spines in turn. If an earlier switch has already spread
                // them, this switch spreads them further instead of repeating the choice.
                let before = routes.fan_out.as_ref().map_or(1, |fan_out| fan_out.at(switch, tor)) as usize;
                let turn = |host: usize| (host / before + tor) % ways;
                if (1..hosts.len()).all(|host| turn(host) == turn(0)) {
                    return self.leaf(prefix, port(turn(0)));
                }
                for (host, at) in fabric.attachments()[hosts].iter().enumerate() {
                    self.leaf(Prefix::host(at.address), port(turn(host)));
                }
            }
        }
    }

    /// Spreads flows over the next hops of a switch to a ToR: those that the scheme has planned, or else those on shortest paths, of
    /// which there is at least one.
    fn spread(&mut self, fabric: &Fabric, routes: &NextHops, switch: NodeId, tor: usize) -> UnnamedChoice {
        if let Some(hops) = routes.planned(fabric, switch, tor).or_else(|| routes.by_capacity(switch, tor)) {
            return self.weighted(fabric, &hops);
        }
        match routes.table.next_hops(switch, tor) {
            &[link] => UnnamedChoice::Port(fabric.link(link).from_port),
            _ => UnnamedChoice::Set(routes.table.group(switch, tor)),
        }
    }

    /// Spreads flows over these next hops by weight.
    fn weighted(&mut self, fabric: &Fabric, hops: &[(LinkId, u16)]) -> UnnamedChoice {
        let ports: Vec<PortNo> =
            hops.iter().flat_map(|&(link, weight)| vec![fabric.link(link).from_port; usize::from(weight)]).collect();
        if ports.iter().all(|port| *port == ports[0]) {
            return UnnamedChoice::Port(ports[0]);
        }
        let known = self.weighted.iter().position(|known| *known == ports);
        let number = known.unwrap_or(self.weighted.len());
        if known.is_none() {
            self.weighted.push(ports);
        }
        UnnamedChoice::Weighted(number as u32)
    }

    /// Adds prefixes that were placed. Each overrides the routes so far.
    fn placed(
        &mut self,
        fabric: &Fabric,
        places: &Places,
        routes: &NextHops,
        switch: NodeId,
        rules: &mut Vec<(Prefix, u32)>,
    ) {
        if places.is_empty() {
            return;
        }
        let own = rules.len();
        rules.sort_unstable_by_key(|&(prefix, _)| prefix);
        for (prefix, at) in places.iter() {
            let choice = if at.tor == switch {
                UnnamedChoice::Port(fabric.link(at.uplink).to_port)
            } else {
                let tor = fabric.tor_index(at.tor).expect("a switch with hosts is a ToR");
                let group = routes.table.group(switch, tor);
                let links = routes.table.members(group);
                let port = |index: usize| UnnamedChoice::Port(fabric.link(links[index % links.len()]).from_port);
                match (routes.how, links.len()) {
                    (_, 0) => UnnamedChoice::Drop,
                    (DefaultRoutes::Ecmp | DefaultRoutes::Weighted, _) => self.spread(fabric, routes, switch, tor),
                    (DefaultRoutes::PerHost, _) => port(prefix.address.low() as usize),
                    _ => port((tie_break(tor, switch) % links.len() as u64) as usize),
                }
            };
            let choice = self.number(choice);
            match rules[..own].binary_search_by_key(&prefix, |&(known, _)| known) {
                Ok(index) => rules[index].1 = choice,
                Err(_) => rules.push((prefix, choice)),
            }
        }
    }

    /// Drops addresses above the prefix of the last ToR.
    fn unowned(&mut self, fabric: &Fabric) {
        let nowhere = self.number(UnnamedChoice::Drop);
        let end = |prefix: Prefix| u64::from(prefix.address.low()) + (1u64 << prefix.host_bits());
        let last = fabric.tors().last().and_then(|&tor| fabric.tor_prefix(tor)).expect("a fabric has ToRs");
        self.leaves.extend(blocks(end(last), end(fabric.whole_prefix()), nowhere));
    }

    fn name_groups(
        &self,
        fabric: &Fabric,
        routes: &NextHops,
        rules: Vec<(Prefix, u32)>,
        standing: &SpreadGroups,
    ) -> DefaultTable {
        let mut groups = SpreadGroups::new();
        let mut names: FxHashMap<UnnamedChoice, GroupId> = FxHashMap::default();
        let mut free = (FIRST_GROUP..).map(GroupId).filter(|id| !standing.contains_key(id));
        let mut table: Vec<(Prefix, Choice)> = Vec::with_capacity(rules.len());
        for (prefix, choice) in rules {
            let wanted = self.wanted[choice as usize];
            let choice = match wanted {
                UnnamedChoice::Drop => Choice::Drop,
                UnnamedChoice::Port(port) => Choice::Port(port),
                UnnamedChoice::Set(_) | UnnamedChoice::Weighted(_) => {
                    Choice::Group(*names.entry(wanted).or_insert_with(|| {
                        let ports: Vec<PortNo> = match wanted {
                            UnnamedChoice::Weighted(number) => self.weighted[number as usize].clone(),
                            UnnamedChoice::Set(set) => {
                                routes.table.members(set).iter().map(|&link| fabric.link(link).from_port).collect()
                            }
                            UnnamedChoice::Drop | UnnamedChoice::Port(_) => Vec::new(),
                        };
                        let same = standing.iter().find(|(_, other)| **other == ports).map(|(&id, _)| id);
                        let id = same.unwrap_or_else(|| free.next().expect("more identifiers than sets of ports"));
                        groups.insert(id, ports);
                        id
                    }))
                }
            };
            table.push((prefix, choice));
        }
        table.sort_unstable_by_key(|&(prefix, _)| prefix);
        DefaultTable { routes: table, groups }
    }
}

/// A pseudo-random number, always the same for a ToR and a switch.
fn tie_break(tor: usize, switch: NodeId) -> u64 {
    split_mix(((tor as u64) << 32 | u64::from(switch.0)).wrapping_add(GOLDEN))
}

/// Returns the rule for a prefix.
pub(crate) fn route_rule(config: &Config, prefix: Prefix, choice: Choice) -> Rule {
    let actions = match choice {
        Choice::Drop | Choice::Other => Actions::NONE,
        Choice::Port(port) => [RuleAction::Output(port)].into(),
        Choice::Group(id) => [RuleAction::Group(id)].into(),
    };
    let matches = Match { dst: Some(prefix), ..Match::default() };
    let priority = config.priorities.default + u16::from(prefix.len);
    let mut rule = tables::rule(tables::DEFAULTS, priority, matches, actions, None);
    rule.cookie = Cookie::of_no_flow(RuleKind::Default, config.epoch).encode();
    rule.notify_removal = config.is_watched();
    rule
}

/// Returns the route that a rule represents, if it has the key of a rule that [`route_rule`] makes, of any epoch.
pub(crate) fn read_route(config: &Config, rule: &Rule) -> Option<(Prefix, Choice)> {
    let prefix = rule.matches.dst?;
    let choice = match rule.actions.as_slice() {
        [] => Choice::Drop,
        &[RuleAction::Output(port)] => Choice::Port(port),
        &[RuleAction::Group(id)] => Choice::Group(id),
        _ => Choice::Other,
    };
    let expected = Rule { cookie: rule.cookie, ..route_rule(config, prefix, choice) };
    let choice = if *rule == expected { choice } else { Choice::Other };
    (rule.key() == expected.key()).then_some((prefix, choice))
}

/// Returns the group that spreads flows over these ports. A port that is listed several times in a row has that weight.
pub(crate) fn spread_group(id: GroupId, ports: &[PortNo]) -> Group {
    let bucket = |same: &[PortNo]| {
        let (weight, port) = (same.len() as u16, same[0]);
        Bucket { weight, watch_port: Some(port), actions: vec![RuleAction::Output(port)] }
    };
    Group { id, kind: GroupKind::Select, buckets: ports.chunk_by(|one, next| one == next).map(bucket).collect() }
}

/// Returns the ports over which a group spreads flows, if [`spread_group`] could have made it.
pub(crate) fn read_group(group: &Group) -> Option<Vec<PortNo>> {
    let same = |bucket: &Bucket| {
        let weight = (1..=MOST_WEIGHT).contains(&bucket.weight).then_some(bucket.weight)?;
        bucket.watch_port.map(|port| vec![port; usize::from(weight)])
    };
    let ports: Option<Vec<Vec<PortNo>>> = group.buckets.iter().map(same).collect();
    let ports = ports.map(|ports| ports.concat());
    ports.filter(|ports| spread_group(group.id, ports) == *group)
}
