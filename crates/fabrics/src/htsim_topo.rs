//! Topologies of htsim (`.topo`): a tree of two or three tiers, described tier by tier.
//!
//! A file has `Nodes` (hosts), `Tiers` (2 or 3) and `Podsize` (hosts per pod). Then it has a section for each `Tier`;
//! tier 0 are the ToRs. The keys of a section are `Downlink_speed_Gbps`, `Radix_Down`, `Radix_Up` (not in the last
//! tier), `Downlink_Latency_ns`, `Switch_Latency_ns`, `Queue_Down` and `Queue_Up` (bytes), `Bundle` (cables between a
//! switch and each switch below it) and `Oversubscribed`, which follows from the radixes too. Keys can have any case;
//! `#` begins a comment.

use super::graph::{Attributes, RawEdge, RawGraph, RawNode};
use std::collections::BTreeMap;

/// Bytes of a full packet, to convert htsim's queue lengths in bytes to packets.
const PACKET_BYTES: u64 = 1500;
/// Largest number of hosts, and of anything else that the file counts.
const MOST: u64 = 1_000_000;
const PS_PER_NS: u64 = 1000;

/// The keys of a tier, in lower case, with the smallest value of each.
const TIER_KEYS: [(&str, u64); 9] = [
    ("downlink_speed_gbps", 1),
    ("radix_down", 1),
    ("radix_up", 1),
    ("downlink_latency_ns", 0),
    ("switch_latency_ns", 0),
    ("queue_down", 1),
    ("queue_up", 1),
    ("bundle", 1),
    ("oversubscribed", 1),
];
const HEADER_KEYS: [&str; 3] = ["nodes", "tiers", "podsize"];

/// Values by key, each with its line.
type Section = BTreeMap<&'static str, (u64, usize)>;

/// Parses a topology. An error says what is wrong and in which line.
pub(super) fn parse(text: &str) -> Result<RawGraph, String> {
    let (header, tiers) = sections(text)?;
    let tree = Tree::of(&header, &tiers)?;
    let mut graph = tree.graph()?;
    if tiers.iter().all(|tier| !tier.contains_key("queue_down") && !tier.contains_key("queue_up")) {
        graph
            .notes
            .push("the file states no queues, which htsim takes from its command line; buffer= sets them".into());
    } else {
        graph.notes.push(format!("queues of the file are in bytes; {PACKET_BYTES} bytes count as one packet"));
    }
    if tree.tiers.iter().any(|tier| tier.switch_latency_ps > 0) {
        graph.notes.push("the latency of a switch is part of the delay of the links that lead to it".into());
    }
    Ok(graph)
}

/// Returns the header, and the sections of the tiers from the ToRs upwards.
fn sections(text: &str) -> Result<(Section, Vec<Section>), String> {
    let mut header = Section::new();
    let mut tiers: BTreeMap<u64, Section> = BTreeMap::new();
    let mut current: Option<u64> = None;
    for (index, line) in text.lines().enumerate() {
        let mut words = pathloom_model::spec::without_comment(line).split_whitespace();
        let Some(word) = words.next() else { continue };
        let number = index + 1;
        let key = word.to_ascii_lowercase();
        let value = words.next().ok_or_else(|| format!("line {number}: {word} has no value"))?;
        if let Some(more) = words.next() {
            return Err(format!("line {number}: `{more}` follows {word} {value}; expected one value"));
        }
        let whole = |least: u64, most: u64| {
            let whole = value.parse::<u64>().ok().filter(|value| (least..=most).contains(value));
            whole
                .ok_or_else(|| format!("line {number}: {word}: `{value}` is not a whole number from {least} to {most}"))
        };
        if key == "tier" {
            let tier = whole(0, 2)?;
            if tiers.insert(tier, Section::new()).is_some() {
                return Err(format!("line {number}: tier {tier} is described twice"));
            }
            current = Some(tier);
            continue;
        }
        let (section, known) = match current {
            None => (&mut header, HEADER_KEYS.iter().find(|&&known| known == key).map(|&known| (known, 1))),
            Some(tier) => {
                let known = TIER_KEYS.iter().find(|(known, _)| *known == key).copied();
                (tiers.entry(tier).or_default(), known)
            }
        };
        let (known, least) = known.ok_or_else(|| unknown_key(number, word, current.is_some()))?;
        let value = whole(least, if known.starts_with("queue") { u64::MAX } else { MOST })?;
        if let Some((_, first)) = section.insert(known, (value, number)) {
            return Err(format!("line {number}: {word} is given in line {first} already"));
        }
    }
    let count = required(&header, "tiers", "the header")?;
    if !(2..=3).contains(&count) {
        let line = header["tiers"].1;
        return Err(format!("line {line}: Tiers: `{count}` is neither 2 nor 3"));
    }
    if let Some(missing) = (0..count).find(|tier| !tiers.contains_key(tier)) {
        return Err(format!("has {count} tiers, but describes no tier {missing}"));
    }
    if tiers.contains_key(&count) {
        return Err(format!("has {count} tiers, 0 to {}, but describes tier {count} too", count - 1));
    }
    Ok((header, tiers.into_values().collect()))
}

fn unknown_key(line: usize, word: &str, in_tier: bool) -> String {
    let known: Vec<&str> = if in_tier {
        TIER_KEYS.iter().map(|(known, _)| *known).collect()
    } else {
        [&HEADER_KEYS[..], &["tier"]].concat()
    };
    let hint = pathloom_model::spec::nearest(&word.to_ascii_lowercase(), &known);
    let hint = hint.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!("line {line}: unknown key `{word}`{hint} (known: {})", known.join(", "))
}

fn required(section: &Section, key: &'static str, place: &str) -> Result<u64, String> {
    section.get(key).map(|&(value, _)| value).ok_or_else(|| format!("{place} has no {key}"))
}

/// A tier of switches.
struct TierOf {
    radix_down: u64,
    radix_up: u64,
    rate_bps: u64,
    delay_ps: u64,
    switch_latency_ps: u64,
    queue_down: Option<u64>,
    queue_up: Option<u64>,
    bundle: u64,
}

impl TierOf {
    fn read(section: &Section, tier: usize, is_last: bool) -> Result<TierOf, String> {
        let place = format!("tier {tier}");
        let get = |key: &'static str| section.get(key).map(|&(value, _)| value);
        if let (Some((_, line)), true) = (section.get("radix_up").or(section.get("queue_up")), is_last) {
            return Err(format!("line {line}: tier {tier} is the last and has no uplinks"));
        }
        Ok(TierOf {
            radix_down: required(section, "radix_down", &place)?,
            radix_up: if is_last { 0 } else { required(section, "radix_up", &place)? },
            rate_bps: required(section, "downlink_speed_gbps", &place)? * 1_000_000_000,
            delay_ps: required(section, "downlink_latency_ns", &place)? * PS_PER_NS,
            switch_latency_ps: get("switch_latency_ns").unwrap_or(0) * PS_PER_NS,
            queue_down: get("queue_down"),
            queue_up: get("queue_up"),
            bundle: get("bundle").unwrap_or(1),
        })
    }
}

/// The numbers of switches, and how they are connected.
struct Tree {
    hosts: u64,
    pods: u64,
    tors_per_pod: u64,
    aggregations_per_pod: u64,
    /// Switches of the last of three tiers; 0 if there are two tiers.
    cores: u64,
    tiers: Vec<TierOf>,
}

impl Tree {
    fn of(header: &Section, sections: &[Section]) -> Result<Tree, String> {
        let (hosts, pod) = (required(header, "nodes", "the header")?, required(header, "podsize", "the header")?);
        let last = sections.len() - 1;
        let read = |(tier, section)| TierOf::read(section, tier, tier == last);
        let tiers: Vec<TierOf> = sections.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        if tiers[0].bundle != 1 {
            return Err("tier 0: Bundle: several cables from a host to its ToR are not supported; expected 1".into());
        }
        let divides = |what: &str, count: u64, by_what: &str, by: u64| match count % by {
            0 => Ok(count / by),
            _ => Err(format!("{what} ({count}) is not a multiple of {by_what} ({by})")),
        };
        let pods = divides("Nodes", hosts, "Podsize", pod)?;
        if tiers.len() == 2 && pods != 1 {
            return Err(format!("two tiers make one pod, so Podsize must equal Nodes ({hosts}), but it is {pod}"));
        }
        let tors_per_pod = divides("Podsize", pod, "Radix_Down of tier 0", tiers[0].radix_down)?;
        let uplinks = tors_per_pod * tiers[0].radix_up;
        let aggregations_per_pod =
            divides("uplinks of the ToRs of a pod", uplinks, "Radix_Down of tier 1", tiers[1].radix_down)?;
        fits(1, tiers[0].radix_up, aggregations_per_pod, tiers[1].bundle)?;
        let mut cores = 0;
        if tiers.len() == 3 {
            let uplinks = pods * aggregations_per_pod * tiers[1].radix_up;
            cores = divides("uplinks of tier 1", uplinks, "Radix_Down of tier 2", tiers[2].radix_down)?;
            let of_each =
                divides("number of core switches", cores, "aggregation switches of a pod", aggregations_per_pod)?;
            fits(2, tiers[1].radix_up, of_each, tiers[2].bundle)?;
        }
        Ok(Tree { hosts, pods, tors_per_pod, aggregations_per_pod, cores, tiers })
    }

    fn graph(&self) -> Result<RawGraph, String> {
        let cables = self.hosts + self.pods * self.tors_per_pod * self.tiers[0].radix_up;
        if cables > MOST {
            return Err(format!("needs at least {cables} cables; at most {MOST} can be built"));
        }
        let mut graph = RawGraph::default();
        let three = self.tiers.len() == 3;
        let mut add = |name: String, tier: &str, pod: Option<u64>| {
            let mut attributes = Attributes::from([("tier".to_owned(), tier.to_owned())]);
            attributes.extend(pod.filter(|_| three).map(|pod| ("pod".to_owned(), pod.to_string())));
            graph.nodes.push(RawNode { id: name, attributes });
            graph.nodes.len() - 1
        };
        let name = |letter: char, pod: u64, at: u64| {
            if three {
                format!("{letter}{pod}_{at}")
            } else {
                format!("{letter}{at}")
            }
        };
        let all = |each: u64| (0..self.pods).flat_map(move |pod| (0..each).map(move |at| (pod, at)));
        let tors: Vec<usize> =
            all(self.tors_per_pod).map(|(pod, at)| add(name('e', pod, at), "tor", Some(pod))).collect();
        let (letter, tier) = if three { ('a', "aggregation") } else { ('c', "core") };
        let seconds: Vec<usize> =
            all(self.aggregations_per_pod).map(|(pod, at)| add(name(letter, pod, at), tier, Some(pod))).collect();
        let cores: Vec<usize> = (0..self.cores).map(|at| add(format!("c{at}"), "core", None)).collect();
        let per_tor = self.tiers[0].radix_down;
        for host in 0..self.hosts {
            let tor = (host / per_tor) as usize;
            let at = add(format!("h{host}"), "host", Some(host / (per_tor * self.tors_per_pod)));
            graph.edges.push(self.edge(at, tors[tor], 0));
        }
        for (at, &tor) in tors.iter().enumerate() {
            let pod = at / self.tors_per_pod as usize;
            for &second in seconds.chunks(self.aggregations_per_pod as usize).nth(pod).unwrap_or_default() {
                (0..self.tiers[1].bundle).for_each(|_| graph.edges.push(self.edge(tor, second, 1)));
            }
        }
        // Aggregation switches at the same index of their pods share cores: each has every n-th core, with n
        // aggregation switches per pod.
        for (at, &aggregation) in seconds.iter().enumerate().filter(|_| three) {
            let place = at % self.aggregations_per_pod as usize;
            for &core in cores.iter().skip(place).step_by(self.aggregations_per_pod as usize) {
                (0..self.tiers[2].bundle).for_each(|_| graph.edges.push(self.edge(aggregation, core, 2)));
            }
        }
        Ok(graph)
    }

    /// Returns a cable from a node up to a switch of `tier`.
    fn edge(&self, lower: usize, upper: usize, tier: usize) -> RawEdge {
        let above = &self.tiers[tier];
        let below = tier.checked_sub(1).map(|below| &self.tiers[below]);
        let down_ps = above.delay_ps + below.map_or(0, |below| below.switch_latency_ps);
        let packets = |bytes: u64| (bytes / PACKET_BYTES).clamp(1, 1_000_000_000).to_string();
        let mut attributes = Attributes::from([
            ("rate_bps".to_owned(), above.rate_bps.to_string()),
            ("delay_ps".to_owned(), (above.delay_ps + above.switch_latency_ps).to_string()),
            ("back_delay_ps".to_owned(), down_ps.to_string()),
        ]);
        let up = below.and_then(|below| below.queue_up).map(|bytes| ("buffer_packets".to_owned(), packets(bytes)));
        let down = above.queue_down.map(|bytes| ("back_buffer_packets".to_owned(), packets(bytes)));
        attributes.extend(up.into_iter().chain(down));
        RawEdge { source: lower, target: upper, attributes }
    }
}

/// Checks that a switch below `tier` has as many uplinks as lead to the switches above it.
fn fits(tier: usize, radix_up: u64, above: u64, bundle: u64) -> Result<(), String> {
    if above * bundle == radix_up {
        return Ok(());
    }
    let way_out = match radix_up % above.max(1) {
        0 => format!("; a Bundle of {} would fit", radix_up / above.max(1)),
        _ => String::new(),
    };
    Err(format!(
        "tier {}: Radix_Up is {radix_up}, but {above} switches with Bundle {bundle} in tier {tier} need {}{way_out}",
        tier - 1,
        above * bundle
    ))
}

#[cfg(test)]
mod tests {
    use crate::fabric_from_file_text;
    use pathloom_model::LinkSettings;

    const TREE: &str =
        "# a tree\nNodes 16\nTiers 3\nPodsize 8\n\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\nRadix_Up 4\n\
        Downlink_Latency_ns 1000\nSwitch_Latency_ns 300\nQueue_Up 150000\nQueue_Down 75000\nTier 1\nBundle 2\n\
        Downlink_speed_Gbps 200\nRadix_Down 4\nRadix_Up 2\nDownlink_Latency_ns 500\nTier 2\nDownlink_speed_Gbps 400\n\
        Radix_Down 2\nDownlink_Latency_ns 700\n";

    fn problem(text: &str) -> String {
        fabric_from_file_text("t.topo", text).unwrap_err().to_string()
    }

    #[test]
    fn a_tree_has_the_switches_and_links_of_its_tiers() {
        let read = fabric_from_file_text("t.topo", TREE).unwrap();
        let fabric = &read.fabric;
        let count = |letter: char| fabric.nodes().iter().filter(|node| node.name.starts_with(letter)).count();
        assert_eq!(['h', 'e', 'a', 'c'].map(count), [16, 4, 4, 4]);
        assert_eq!(fabric.cables().count(), 16 + 4 * 4 + 4 * 2);
        let settings = |from: &str, to: &str| {
            let [from, to] = [from, to].map(|name| fabric.find(name).unwrap());
            fabric.link(fabric.link_between(from, to).unwrap()).settings
        };
        let expected = |rate: u64, delay_ns: u64, buffer_packets: u32| LinkSettings {
            rate_bps: rate * 1_000_000_000,
            delay_ps: delay_ns * 1000,
            buffer_packets,
        };
        assert_eq!(settings("h0", "e0_0"), expected(100, 1300, 50), "the latency is on the link into the switch");
        assert_eq!(settings("e0_0", "h0"), expected(100, 1000, 50));
        assert_eq!(settings("e0_0", "a0_1"), expected(200, 500, 100));
        assert_eq!(settings("a0_1", "e0_0"), expected(200, 800, 100));
        assert_eq!(settings("a1_1", "c3"), expected(400, 700, 100));
        assert!(read.notes.iter().any(|note| note.contains("latency of a switch")), "{:?}", read.notes);
    }

    #[test]
    fn keys_of_the_specification_win() {
        let read = fabric_from_file_text("t.topo:rate=1Gbps,buffer=7", TREE).unwrap();
        let one = |settings: LinkSettings| (settings.rate_bps, settings.buffer_packets) == (1_000_000_000, 7);
        assert!(read.fabric.links().iter().all(|link| one(link.settings)));
    }

    #[test]
    fn errors_name_the_problem_and_line() {
        let with = |from: &str, to: &str| problem(&TREE.replace(from, to));
        for (found, words) in [
            (problem(""), "the header has no tiers"),
            (problem("Nodes 16"), "the header has no tiers"),
            (with("Tiers 3", "Tiers 4"), "line 3: Tiers: `4` is neither 2 nor 3"),
            (with("Tiers 3", "Tiers 2"), "has 2 tiers, 0 to 1, but describes tier 2 too"),
            (with("Tiers 3", "Tiers"), "line 3: Tiers has no value"),
            (with("Tiers 3", "Tiers 3 4"), "line 3: `4` follows Tiers 3"),
            (with("Tier 2\n", "Tier 1\n"), "tier 1 is described twice"),
            (with("Tier 2\n", "Tier 9\n"), "`9` is not a whole number from 0 to 2"),
            (with("Podsize 8", "Podsize 3"), "Nodes (16) is not a multiple of Podsize (3)"),
            (with("Podsize 8", "Potsize 8"), "line 4: unknown key `Potsize`; did you mean `podsize`?"),
            (with("Radix_Down 4\nRadix_Up 4", "Radix_Down 3\nRadix_Up 4"), "Podsize (8) is not a multiple"),
            (with("Bundle 2", "Bundle 1"), "a Bundle of 2 would fit"),
            (with("Radix_Up 2\n", ""), "tier 1 has no radix_up"),
            (with("Downlink_Latency_ns 700", "Downlink_Latency_ns -1"), "line 23: Downlink_Latency_ns: `-1`"),
            (with("Radix_Down 2\nDownlink_Latency_ns 700", "Radix_Down 2\nRadix_Up 2"), "and has no uplinks"),
            (with("Nodes 16", "Nodes 16\nNodes 16"), "is given in line 2 already"),
            (with("Nodes 16", "Nodes 1600000000"), "`1600000000` is not a whole number"),
            (with("Tier 1\n", "Tier 1\nbuffers 3\n"), "unknown key `buffers`"),
        ] {
            assert!(found.contains("t.topo") && found.contains(words), "{words}: {found}");
        }
    }
}
