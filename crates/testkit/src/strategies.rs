//! Proptest strategies: fabrics, and paths through them.

use pathloom_model::{Fabric, FabricBuilder, LinkId, LinkSettings, NodeId, Path, Tier};
use proptest::prelude::*;
use std::sync::Arc;

/// Settings of the links of all fabrics here: a full queue takes 12 ms.
const SETTINGS: LinkSettings = LinkSettings { rate_bps: 100_000_000, delay_ps: 1_000_000, buffer_packets: 100 };

/// A connected fabric of 3 to 8 switches with arbitrary cables (also several between the same switches). At least two
/// of the switches have one or two hosts each.
pub fn fabrics() -> impl Strategy<Value = Arc<Fabric>> {
    let extra = prop::collection::vec((0..8usize, 0..8usize), 2..12);
    let hosts = prop::collection::vec(0..3usize, 8);
    (3..=8usize, prop::collection::vec(any::<prop::sample::Index>(), 8), extra, hosts)
        .prop_map(|(switches, parents, extra, hosts)| build(switches, &parents, &extra, &hosts))
}

fn build(switches: usize, parents: &[prop::sample::Index], extra: &[(usize, usize)], hosts: &[usize]) -> Arc<Fabric> {
    let mut builder = FabricBuilder::new("arbitrary");
    let nodes: Vec<NodeId> = (0..switches).map(|i| builder.switch(format!("s{i}"), Tier::Tor, None)).collect();
    for i in 1..switches {
        builder.cable(nodes[parents[i - 1].index(i)], nodes[i], SETTINGS);
    }
    for &(a, b) in extra.iter().filter(|&&(a, b)| a != b && a < switches && b < switches) {
        builder.cable(nodes[a], nodes[b], SETTINGS);
    }
    for (i, &node) in nodes.iter().enumerate() {
        let count = if i == 0 || i == switches - 1 { hosts[i].max(1) } else { hosts[i] };
        for number in 0..count {
            let host = builder.host(format!("h{i}_{number}"), None);
            builder.cable(host, node, SETTINGS);
        }
    }
    Arc::new(builder.build().expect("every fabric of this kind can be built"))
}

/// A loop-free walk from one switch to another, with turns taken from `turns`; `None` if it does not arrive within
/// 200 steps. Walks can be long, because nothing makes them short.
pub fn walk(fabric: &Fabric, from: NodeId, to: NodeId, turns: &[u8]) -> Option<Path> {
    let mut links: Vec<LinkId> = Vec::new();
    let mut seen = vec![from];
    let mut turns = turns.iter().cycle();
    descend(fabric, to, &mut seen, &mut links, &mut turns, &mut 200).then(|| Path::new(links))
}

fn descend<'a>(
    fabric: &Fabric,
    to: NodeId,
    seen: &mut Vec<NodeId>,
    links: &mut Vec<LinkId>,
    turns: &mut impl Iterator<Item = &'a u8>,
    steps: &mut u32,
) -> bool {
    let here = *seen.last().expect("the walk has begun");
    if here == to {
        return true;
    }
    let ports: Vec<LinkId> = fabric.node(here).ports.iter().copied().filter(|&l| fabric.is_switch_link(l)).collect();
    let first = usize::from(*turns.next().unwrap_or(&0));
    for offset in 0..ports.len() {
        let link = ports[(first + offset) % ports.len()];
        let next = fabric.link(link).to;
        if seen.contains(&next) || *steps == 0 {
            continue;
        }
        *steps -= 1;
        seen.push(next);
        links.push(link);
        if descend(fabric, to, seen, links, turns, steps) {
            return true;
        }
        seen.pop();
        links.pop();
    }
    false
}
