//! Which nodes of a graph file are hosts, and the tiers of its switches.
//!
//! What a node states counts first: `tier`, `is_host`, or a known word in `role`, `type`, `kind` and the like. If no
//! node is a host so far, nodes named like hosts are (`h0`, `server-3`, `gpu7`), or else nodes with a single
//! neighbour, if at least half of the nodes are such leaves, and two or more are not. Leaves of a map (nodes have coordinates) are switches.
//! Where this leaves a doubt, the file is refused.

use super::graph::{Attributes, RawGraph};
use pathloom_model::Tier;
use std::collections::BTreeSet;

/// What the specification says about hosts.
#[derive(Clone, Copy)]
pub(super) struct Wishes {
    /// `leaves=`: whether nodes with a single neighbour are hosts.
    pub(super) leaves_are_hosts: Option<bool>,
    /// Whether `hosts=` gives hosts to the nodes of the file.
    pub(super) adds_hosts: bool,
}

/// The tier of each node, and notes on what was taken for what.
pub(super) struct Roles {
    pub(super) tiers: Vec<Tier>,
    pub(super) notes: Vec<String>,
}

/// Attributes that may say what a node is, if their value is a known word. `tier` must be one.
const ROLE_ATTRIBUTES: [&str; 7] = ["role", "type", "kind", "layer", "node_type", "device_type", "device"];
const WORDS: [(Tier, &[&str]); 4] = [
    (Tier::Host, &["host", "server", "compute", "gpu", "npu", "vm", "client", "worker", "endpoint"]),
    (Tier::Tor, &["tor", "leaf", "edge", "access", "rack"]),
    (Tier::Aggregation, &["aggregation", "agg", "aggr", "distribution"]),
    (Tier::Core, &["core", "spine", "superspine", "intermediate"]),
];
/// Words before the number in the name of a host, beside those for its role.
const HOST_NAMES: [&str; 3] = ["h", "srv", "rank"];

/// What a node says about itself.
#[derive(Clone, Copy, PartialEq)]
enum Stated {
    Nothing,
    Tier(Tier),
    /// That it is no host.
    Switch,
}

/// Finds the tier of each node. An error is one line.
pub(super) fn roles(graph: &RawGraph, names: &[String], wishes: Wishes) -> Result<Roles, String> {
    let stated: Vec<Stated> = graph
        .nodes
        .iter()
        .zip(names)
        .map(|(node, name)| stated(&node.attributes).map_err(|problem| format!("node {name:?}: {problem}")))
        .collect::<Result<_, _>>()?;
    let neighbours = neighbours(graph);
    let mut notes = Vec::new();
    let mut is_host: Vec<bool> = stated.iter().map(|stated| *stated == Stated::Tier(Tier::Host)).collect();
    let is_open = |node: usize| stated[node] == Stated::Nothing;
    let looks = wishes.leaves_are_hosts.unwrap_or(!wishes.adds_hosts);
    if looks && !is_host.contains(&true) {
        let named: Vec<usize> = (0..names.len()).filter(|&node| is_open(node) && is_host_name(&names[node])).collect();
        let apart = |&node: &usize| neighbours[node].iter().all(|other| !named.contains(other));
        let leaf = |&node: &usize| {
            is_open(node)
                && neighbours[node].len() == 1
                && neighbours[node].iter().all(|&other| neighbours[other].len() > 1)
        };
        let leaves: Vec<usize> = (0..names.len()).filter(leaf).collect();
        let (found, why) = if !named.is_empty() && named.iter().all(apart) && wishes.leaves_are_hosts.is_none() {
            (named, "by their names")
        } else if has_leaf_hosts(graph, leaves.len(), wishes, &mut notes)? {
            (leaves, "because they have a single neighbour; hosts= or leaves=switches makes them switches")
        } else {
            (Vec::new(), "")
        };
        if let Some(&first) = found.first() {
            notes.push(format!("nodes taken as hosts, {why}: {}, such as {}", found.len(), names[first]));
        }
        found.into_iter().for_each(|node| is_host[node] = true);
    }
    let mut tiers: Vec<Tier> = stated
        .iter()
        .zip(&is_host)
        .map(|(stated, &is_host)| match stated {
            Stated::Tier(tier) => *tier,
            _ if is_host => Tier::Host,
            _ => Tier::Tor,
        })
        .collect();
    let has_tiers = stated.iter().any(|stated| matches!(stated, Stated::Tier(tier) if *tier != Tier::Host));
    if is_host.contains(&true) && !has_tiers {
        notes.extend(tiers_by_distance(&mut tiers, &neighbours));
    }
    Ok(Roles { tiers, notes })
}

/// Whether nodes with a single neighbour are hosts; `count` is their number.
fn has_leaf_hosts(graph: &RawGraph, count: usize, wishes: Wishes, notes: &mut Vec<String>) -> Result<bool, String> {
    let nodes = graph.nodes.len();
    let is_map = graph.nodes.iter().any(|node| node.attributes.contains_key("Latitude"));
    match wishes.leaves_are_hosts {
        Some(wish) => Ok(wish),
        None if count == 0 => Ok(false),
        None if is_map => {
            notes.push(format!(
                "nodes with a single neighbour, taken as switches because nodes have coordinates: {count}; leaves=hosts \
                 makes them hosts"
            ));
            Ok(false)
        }
        None if 2 * count >= nodes && nodes - count >= 2 => Ok(true),
        None => Err(format!(
            "{count} of {nodes} nodes have a single neighbour; leaves=hosts takes them as hosts, hosts=1 gives each node \
             a host of its own (or state tier=host in the file)"
        )),
    }
}

fn stated(attributes: &Attributes) -> Result<Stated, String> {
    let word = |text: &str| {
        let lower = text.trim().to_ascii_lowercase();
        let singular = lower.strip_suffix('s').unwrap_or(&lower);
        WORDS
            .iter()
            .find(|(_, words)| words.contains(&lower.as_str()) || words.contains(&singular))
            .map(|known| known.0)
    };
    if let Some(text) = attributes.get("tier") {
        let unknown = || format!("tier: {text:?} is not one of host, tor, aggregation, core");
        return word(text).map(Stated::Tier).ok_or_else(unknown);
    }
    for name in ["is_host", "host"] {
        match attributes.get(name).map(|text| text.to_ascii_lowercase()).as_deref() {
            Some("true" | "1" | "yes") => return Ok(Stated::Tier(Tier::Host)),
            Some("false" | "0" | "no") => return Ok(Stated::Switch),
            _ => {}
        }
    }
    let role = ROLE_ATTRIBUTES.iter().find_map(|name| attributes.get(*name).and_then(|text| word(text)));
    Ok(role.map_or(Stated::Nothing, Stated::Tier))
}

/// Whether a name is a word for a host with a number after it, as in `h0`, `server_1_3` or `GPU-7`.
fn is_host_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let Some(number) = lower.find(|letter: char| letter.is_ascii_digit()) else { return false };
    let word = lower[..number].trim_end_matches(['_', '-', '.']);
    let rest = &lower[number..];
    let is_number = rest.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '_' | '-' | '.'));
    is_number && (WORDS[0].1.contains(&word) || HOST_NAMES.contains(&word))
}

/// The neighbours of each node.
fn neighbours(graph: &RawGraph) -> Vec<BTreeSet<usize>> {
    let mut neighbours = vec![BTreeSet::new(); graph.nodes.len()];
    for edge in graph.edges.iter().filter(|edge| edge.source != edge.target) {
        neighbours[edge.source].insert(edge.target);
        neighbours[edge.target].insert(edge.source);
    }
    neighbours
}

/// Gives the switches tiers by their distance from hosts, if there are at most three tiers. Returns a note.
fn tiers_by_distance(tiers: &mut [Tier], neighbours: &[BTreeSet<usize>]) -> Option<String> {
    let mut distance: Vec<usize> = tiers.iter().map(|tier| if *tier == Tier::Host { 0 } else { usize::MAX }).collect();
    let mut queue: Vec<usize> = (0..tiers.len()).filter(|&node| distance[node] == 0).collect();
    let mut next = 0;
    while let Some(&node) = queue.get(next) {
        next += 1;
        for &other in neighbours[node].iter().filter(|&&other| distance[other] == usize::MAX).collect::<Vec<_>>() {
            distance[other] = distance[node] + 1;
            queue.push(other);
        }
    }
    let farthest = distance.iter().copied().max()?;
    if !(2..=3).contains(&farthest) {
        return None;
    }
    for (tier, &distance) in tiers.iter_mut().zip(&distance) {
        *tier = match distance {
            0 => Tier::Host,
            1 => Tier::Tor,
            2 if farthest == 3 => Tier::Aggregation,
            _ => Tier::Core,
        };
    }
    let count = |at: usize| distance.iter().filter(|&&distance| distance == at).count();
    Some(match farthest {
        2 => format!("switches by their distance from hosts: {} ToRs, {} cores", count(1), count(2)),
        _ => {
            let (tors, aggregations, cores) = (count(1), count(2), count(3));
            format!("switches by their distance from hosts: {tors} ToRs, {aggregations} aggregations, {cores} cores")
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::{fabric_from_file_text, fabric_from_spec, to_node_link_json, FileFabric};
    use pathloom_model::Tier;

    /// A leaf-spine of 2 spines and 2 leaves, with `hosts` servers at each leaf and attributes for all servers.
    fn leaf_spine(hosts: usize, server: impl Fn(usize) -> (String, String)) -> String {
        let servers: Vec<(String, String)> = (0..2 * hosts).map(server).collect();
        let switches = ["spine0", "spine1", "leaf0", "leaf1"].map(|name| format!(r#"{{"id": "{name}"}}"#));
        let nodes = servers.iter().map(|(id, attributes)| format!(r#"{{"id": "{id}"{attributes}}}"#)).chain(switches);
        let edge = |a: &str, b: &str, rate: &str| format!(r#"{{"source": "{a}", "target": "{b}", "rate": "{rate}"}}"#);
        let mut edges: Vec<String> = servers
            .iter()
            .enumerate()
            .map(|(at, (id, _))| edge(id, ["leaf0", "leaf1"][at / hosts], "25Gbps"))
            .collect();
        for leaf in ["leaf0", "leaf1"] {
            edges.extend(["spine0", "spine1"].map(|spine| edge(leaf, spine, "100Gbps")));
        }
        let nodes: Vec<String> = nodes.collect();
        format!(r#"{{"nodes": [{}], "edges": [{}]}}"#, nodes.join(", "), edges.join(", "))
    }

    fn read(spec: &str, text: &str) -> Result<FileFabric, String> {
        fabric_from_file_text(spec, text).map_err(|error| error.to_string())
    }

    fn counts(of: &FileFabric) -> [usize; 4] {
        [Tier::Host, Tier::Tor, Tier::Aggregation, Tier::Core]
            .map(|tier| of.fabric.nodes().iter().filter(|node| node.tier == tier).count())
    }

    #[test]
    fn servers_of_a_leaf_spine_are_hosts_by_attribute_by_name_or_by_structure() {
        let id = |at: usize| format!("x{at}");
        let cases: [(&str, String); 6] = [
            ("tier", leaf_spine(1, |at| (id(at), r#", "tier": "host""#.into()))),
            ("role", leaf_spine(1, |at| (id(at), r#", "role": "Servers""#.into()))),
            ("is_host", leaf_spine(1, |at| (id(at), r#", "is_host": true"#.into()))),
            ("h", leaf_spine(1, |at| (format!("h{at}"), String::new()))),
            ("gpu", leaf_spine(1, |at| (format!("GPU-0_{at}"), String::new()))),
            ("leaves", leaf_spine(2, |at| (id(at), String::new()))),
        ];
        for (case, text) in cases {
            let of = read("x.json", &text).unwrap();
            let hosts = if case == "leaves" { 4 } else { 2 };
            assert_eq!(counts(&of), [hosts, 2, 0, 2], "{case}");
            assert!(of.fabric.links()[0].settings.rate_bps == 25_000_000_000, "{case}");
            let notes = of.notes.join("\n");
            let guessed = ["h", "gpu", "leaves"].contains(&case);
            assert_eq!(notes.contains("nodes taken as hosts"), guessed, "{case}: {notes}");
            assert!(notes.contains("switches by their distance from hosts: 2 ToRs, 2 cores"), "{case}: {notes}");
        }
    }

    #[test]
    fn a_doubt_is_refused_with_the_keys_that_decide() {
        let text = leaf_spine(1, |at| (format!("x{at}"), String::new()));
        let error = read("x.json", &text).unwrap_err();
        assert!(
            error.contains("2 of 6 nodes have a single neighbour; leaves=hosts takes them as hosts, hosts=1"),
            "{error}"
        );
        assert_eq!(counts(&read("x.json:leaves=hosts", &text).unwrap()), [2, 2, 0, 2]);
        assert_eq!(counts(&read("x.json:hosts=1", &text).unwrap()), [6, 6, 0, 0]);
        assert_eq!(counts(&read("x.json:leaves=switches", &text).unwrap()), [6, 6, 0, 0]);
        let path = r#"{"nodes": [{"id": 1}, {"id": 2}, {"id": 3}],
            "edges": [{"source": 1, "target": 2}, {"source": 2, "target": 3}]}"#;
        assert!(read("x.json", path).unwrap_err().contains("2 of 3 nodes have a single neighbour"));
        let both = read("x.json:leaves=hosts,hosts=1", &text).unwrap_err();
        assert!(both.contains("the file already contains hosts"), "{both}");
        let switches = leaf_spine(2, |at| (format!("h{at}"), r#", "is_host": "false""#.into()));
        assert_eq!(counts(&read("x.json", &switches).unwrap()), [8, 8, 0, 0]);
    }

    #[test]
    fn leaves_of_a_map_are_switches() {
        let text = leaf_spine(2, |at| (format!("x{at}"), r#", "Latitude": 50.1, "Longitude": 8.7"#.into()));
        let of = read("x.json", &text).unwrap();
        assert_eq!(counts(&of), [8, 8, 0, 0]);
        let notes = of.notes.join("\n");
        assert!(notes.contains("taken as switches because nodes have coordinates: 4; leaves=hosts"), "{notes}");
        assert_eq!(counts(&read("x.json:leaves=hosts", &text).unwrap()), [4, 2, 0, 2]);
    }

    #[test]
    fn a_list_of_edges_has_hosts_too() {
        let of = read(
            "x.csv",
            "source,target,rate\nsrv1,leaf1,25Gbps\nsrv2,leaf2,25Gbps\nleaf1,spine1,100Gbps\nleaf2,spine1,100Gbps\n",
        );
        assert_eq!(counts(&of.unwrap()), [2, 2, 0, 1]);
        for name in ["h", "hall1", "s1", "h1x", "Host", "7"] {
            assert!(!super::is_host_name(name), "{name}");
        }
    }

    #[test]
    fn three_tiers_are_found_in_a_fat_tree_without_tiers() {
        let text = to_node_link_json(&fabric_from_spec("fat-tree:k=4").unwrap()).replace("\"tier\"", "\"was\"");
        let of = read("x.json", &text.replace("\"pathloom\"", "\"other\"")).unwrap();
        assert_eq!(counts(&of), [16, 8, 8, 4]);
    }
}
