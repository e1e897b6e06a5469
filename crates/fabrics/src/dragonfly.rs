//! Dragonfly (Kim et al., ISCA 2008): groups of fully meshed switches, and cables between all groups.

use super::check_size;
use super::clos::add_hosts;
use super::settings::LinkKeys;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{FabricBuilder, NodeId, Tier};
use std::collections::BTreeSet;

const MOST_EACH: u64 = 10_000;

/// A dragonfly with the parameters of §3: a group has a = `routers` switches. Each has p = `hosts` hosts, cables to all
/// switches of its group and h = `global` ports for cables to other groups. By default a = 2p = 2h, which §3.1 calls balanced,
/// and there are a*h + 1 groups, the most that are one cable apart.
///
/// With fewer groups, each pair of groups has ⌊a*h / (groups - 1)⌋ cables, but two switches share at most one. Port k of a
/// group, counted over its switches, leads to the group that is k mod (groups - 1) + 1 further on.
pub(super) fn dragonfly(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let routers = spec.count("routers", 1, MOST_EACH)?.unwrap_or(4);
    let global = spec.count("global", 1, MOST_EACH)?.unwrap_or(routers.div_ceil(2));
    let hosts = spec.count("hosts", 1, MOST_EACH)?.unwrap_or(routers.div_ceil(2));
    let ports = routers * global;
    let groups = spec.count("groups", 1, u64::MAX)?.unwrap_or(ports + 1);
    spec.finish()?;
    if groups > ports + 1 {
        return Err(spec.error(format!(
            "groups: {groups} groups need {} ports each for cables to all others, and {routers} switches with {global} global \
             ports have {ports}; expected at most {} groups",
            groups - 1,
            ports + 1
        )));
    }
    let per_group = routers.saturating_mul(routers + global + hosts);
    check_size(spec, groups.saturating_mul(per_group))?;
    let mut builder = FabricBuilder::new(spec.text());
    let switch = |builder: &mut FabricBuilder, group: u64, index: u64| {
        builder.switch(format!("e{group}_{index}"), Tier::Tor, Some(group as u32))
    };
    let switches: Vec<Vec<NodeId>> =
        (0..groups).map(|group| (0..routers).map(|index| switch(&mut builder, group, index)).collect()).collect();
    let pods = switches.iter().enumerate();
    let tors: Vec<(NodeId, Option<u32>)> =
        pods.flat_map(|(group, members)| members.iter().map(move |&tor| (tor, Some(group as u32)))).collect();
    add_hosts(&mut builder, &tors, hosts, keys);
    for members in &switches {
        for (place, &one) in members.iter().enumerate() {
            for &other in &members[place + 1..] {
                builder.cable(one, other, keys.switch());
            }
        }
    }
    for ((group, port), (other, other_port)) in global_cables(groups, ports, global) {
        let end = |group: u64, port: u64| switches[group as usize][(port / global) as usize];
        builder.cable(end(group, port), end(other, other_port), keys.switch());
    }
    Ok(builder)
}

/// A port of a group.
type GlobalPort = (u64, u64);

/// Returns the two ends of all cables between groups.
fn global_cables(groups: u64, ports: u64, per_switch: u64) -> Vec<(GlobalPort, GlobalPort)> {
    let Some(others) = groups.checked_sub(1).filter(|&others| others > 0) else { return Vec::new() };
    let mut cables = Vec::new();
    let mut joined = BTreeSet::new();
    for group in 0..groups {
        for port in 0..ports / others * others {
            let (turn, ahead) = (port / others, port % others + 1);
            let other = (group + ahead) % groups;
            // The same cable seen from its other end: this group is `groups - ahead` further on.
            let other_port = turn * others + (groups - ahead) - 1;
            let ends = ((group, port / per_switch), (other, other_port / per_switch));
            if group < other && joined.insert(ends) {
                cables.push(((group, port), (other, other_port)));
            }
        }
    }
    cables
}
