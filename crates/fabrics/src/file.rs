//! Fabrics from graph files. The caller reads the file; this module parses its text.

use super::graph::{unique, Attributes, RawEdge, RawGraph, LINE};
use super::guesses::{Guess, Guesses};
use super::rates::{rate_of, RateRead};
use super::roles::{roles, Wishes};
use super::settings::{parse_delay_ps, LinkKeys, PartialSettings, DEFAULT_LINK};
use super::{check_size, edge_csv, graphml, htsim_topo, node_link};
use pathloom_model::fault::parse_share;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::units::rate_text;
use pathloom_model::{Fabric, FabricBuilder, FabricError, LinkId, LinkSettings, LinkState, NodeId, Tier};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A fabric from a file, with notes for the user.
#[derive(Clone, PartialEq, Debug)]
pub struct FileFabric {
    /// The fabric.
    pub fabric: Fabric,
    /// What was omitted, renamed or guessed, and the disconnected parts of the fabric; one line each.
    pub notes: Vec<String>,
}

/// Endings of the file names that a fabric can be read from.
pub const FILE_KINDS: [&str; 4] = [".graphml", ".json", ".csv", ".topo"];

/// Returns the path of the file that a specification names: `../zoo/Abilene.graphml:rate=1Gbps` →
/// `../zoo/Abilene.graphml`. `None` if it does not name a file, that is, no part of it ends in one of [`FILE_KINDS`].
pub fn fabric_file(text: &str) -> Option<&str> {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let ends = FILE_KINDS.into_iter().flat_map(|extension| {
        lower.match_indices(extension).map(move |(start, _)| start + extension.len()).collect::<Vec<_>>()
    });
    ends.filter(|&end| end == text.len() || text[end..].starts_with(':')).min().map(|end| &text[..end])
}

/// Builds the fabric that a file describes. `text` is the specification (`FILE.graphml:hosts=1,rate=1Gbps`),
/// `contents` the text of the file: GraphML as the Internet Topology Zoo and networkx write it, node-link JSON, a
/// list of edges as CSV, or a topology of htsim (`.topo`).
///
/// - Nodes become ToRs with `hosts=` (default 1) hosts each, unless the file contains hosts (`roles`).
/// - Edges become cables. A directed edge and its opposite form one cable, and each direction keeps its own settings.
///   A self-loop is omitted.
/// - Keys of the specification take precedence over the file. Otherwise, the rate is `rate_bps`, `rate` (`10Mbps`),
///   `LinkSpeedRaw` (bit/s), `capacity`, `bandwidth`, `bw` or `speed` (Mbit/s if they have no unit), `LinkSpeed` with
///   `LinkSpeedUnits`, or the rate in a label (`OC-192`, `10 Gbps`). The delay is `delay_ps`, `delay` (`1ms`), or
///   that of light in fibre along the great circle between the nodes. The buffer is `buffer_packets` or `buffer`.
/// - A note reports each kind of guess, with a count and an example.
///
/// # Errors
/// [`FabricError::Spec`] with one line that says what is wrong with the specification or the file, and where.
pub fn fabric_from_file_text(text: &str, contents: &str) -> Result<FileFabric, FabricError> {
    let text = text.trim();
    let path = fabric_file(text).unwrap_or_else(|| text.split_once(':').map_or(text, |(path, _)| path));
    let spec = Spec::parse_named("fabric", text, path)?;
    let keys = LinkKeys::read(&spec)?;
    let hosts = spec.count("hosts", 1, 100_000)?;
    let leaves_are_hosts = spec.choice("leaves", &[("hosts", true), ("switches", false)])?;
    spec.finish()?;
    // Spreadsheets and editors write a byte-order mark.
    let contents = contents.strip_prefix('\u{feff}').unwrap_or(contents);
    let parsed = match path.to_ascii_lowercase().rsplit('.').next() {
        Some("graphml") => graphml::parse(contents),
        Some("csv") => edge_csv::parse(contents),
        Some("topo") => htsim_topo::parse(contents),
        _ => node_link::parse(contents),
    };
    let graph = parsed.map_err(|problem| spec.error(problem))?;
    let mut reader = Reader { spec: &spec, keys, graph, notes: Vec::new(), guesses: Guesses::default() };
    let fabric = reader.fabric(hosts, leaves_are_hosts)?;
    let fabric = reader.keys.apply(&spec, fabric)?;
    let mut notes = std::mem::take(&mut reader.graph.notes);
    notes.append(&mut reader.notes);
    notes.extend(parts(&fabric));
    Ok(FileFabric { fabric, notes })
}

/// A cable of the file: the edge that describes it and, in a directed graph, the opposite edge.
struct RawCable {
    from: usize,
    to: usize,
    edge: usize,
    opposite: Option<usize>,
}

struct Reader<'a> {
    spec: &'a Spec,
    keys: LinkKeys,
    graph: RawGraph,
    notes: Vec<String>,
    guesses: Guesses,
}

impl Reader<'_> {
    fn fabric(&mut self, hosts: Option<u64>, leaves_are_hosts: Option<bool>) -> Result<Fabric, FabricError> {
        if self.graph.edges.is_empty() {
            let what = if self.graph.nodes.is_empty() { "nodes" } else { "edges" };
            return Err(self.spec.error(format!("the file has no {what}; a fabric needs cables")).into());
        }
        let names = self.graph.names();
        let mut builder = FabricBuilder::new(self.spec.text());
        let wishes = Wishes { leaves_are_hosts, adds_hosts: hosts.is_some() };
        let roles = roles(&self.graph, &names, wishes).map_err(|problem| self.spec.error(problem))?;
        self.notes.extend(roles.notes);
        let nodes = self.add_nodes(&mut builder, &names, &roles.tiers)?;
        let is_host: Vec<bool> = roles.tiers.iter().map(|tier| *tier == Tier::Host).collect();
        let own_hosts = is_host.contains(&true);
        if own_hosts && hosts.is_some() {
            return Err(self.spec.error("hosts: the file already contains hosts; leave hosts= out").into());
        }
        let hosts = if own_hosts { 0 } else { hosts.unwrap_or(1) };
        let cables = self.cables(&names);
        check_size(self.spec, hosts * nodes.len() as u64 + cables.len() as u64)?;
        self.add_hosts(&mut builder, &nodes, &names, hosts);
        if hosts > 0 && self.keys.stated_host.rate_bps.is_none() {
            let rate = rate_text(self.keys.host().rate_bps);
            self.notes.push(format!("hosts at each node of the file: {hosts}, on links of {rate}; host_rate= sets it"));
        }
        let (mut failed, mut lossy) = (Vec::new(), Vec::new());
        for cable in &cables {
            let touches_host = is_host[cable.from] || is_host[cable.to];
            let (there, back) = self.settings(cable, touches_host, &names)?;
            let link = builder.cable(nodes[cable.from], nodes[cable.to], there);
            builder.set(link.reverse(), back);
            if self.is_failed(cable) {
                failed.push(link);
            }
            let [there, back] = self.losses(cable, &names)?;
            lossy.extend([(link, there), (link.reverse(), back)]);
        }
        self.notes.append(&mut self.guesses.notes());
        Ok(builder.build()?.with_failed(failed).with_losses(lossy))
    }

    fn add_nodes(
        &self,
        builder: &mut FabricBuilder,
        names: &[String],
        tiers: &[Tier],
    ) -> Result<Vec<NodeId>, SpecError> {
        let mut ids = Vec::with_capacity(names.len());
        for ((node, name), &tier) in self.graph.nodes.iter().zip(names).zip(tiers) {
            let bad = |problem: String| self.spec.error(format!("node {name:?}: {problem}"));
            let pod = node.attributes.get("pod").map(|text| whole(text, u64::from(u32::MAX)).map(|pod| pod as u32));
            let pod = pod.transpose().map_err(|problem| bad(format!("pod: {problem}")))?;
            let id = match tier {
                Tier::Host => builder.host(name.clone(), pod),
                tier => builder.switch(name.clone(), tier, pod),
            };
            let drawn = number(&node.attributes, "x").zip(number(&node.attributes, "y"));
            if let Some(position) = drawn.or_else(|| coordinates(&node.attributes)) {
                builder.place(id, position);
            }
            ids.push(id);
        }
        Ok(ids)
    }

    /// Adds hosts `h0`, `h1`, … to every node. Their cables come before all others.
    fn add_hosts(&self, builder: &mut FabricBuilder, nodes: &[NodeId], names: &[String], each: u64) {
        let taken: BTreeSet<String> = names.iter().cloned().collect();
        let mut count = 0;
        for &tor in nodes {
            for _ in 0..each {
                let host = builder.host(unique(format!("h{count}"), "host", &taken), None);
                builder.cable(tor, host, self.keys.host());
                count += 1;
            }
        }
    }

    /// Pairs the edges of a directed graph, omits self-loops, and sorts the cables of a file that this project wrote.
    fn cables(&mut self, names: &[String]) -> Vec<RawCable> {
        let mut cables: Vec<RawCable> = Vec::new();
        let mut waiting: BTreeMap<(usize, usize), VecDeque<usize>> = BTreeMap::new();
        let mut loops = 0;
        for (edge, raw) in self.graph.edges.iter().enumerate() {
            let RawEdge { source, target, attributes } = raw;
            if source == target {
                loops += 1;
                continue;
            }
            let turned = attributes.get("from").is_some_and(|from| *from == names[*target]);
            if self.graph.directed && attributes.contains_key("from") {
                // Both edges come from one undirected edge. The edge in the direction of `from` has all information.
                if !turned {
                    cables.push(RawCable { from: *source, to: *target, edge, opposite: None });
                }
                continue;
            }
            let (from, to) = if turned { (*target, *source) } else { (*source, *target) };
            let partner = waiting.get_mut(&(to, from)).filter(|_| self.graph.directed).and_then(VecDeque::pop_front);
            match partner {
                Some(cable) => cables[cable].opposite = Some(edge),
                None => {
                    waiting.entry((from, to)).or_default().push_back(cables.len());
                    cables.push(RawCable { from, to, edge, opposite: None });
                }
            }
        }
        if loops > 0 {
            self.notes.push(format!("edges from a node to itself, left out: {loops}"));
        }
        let one_way: usize = waiting.values().map(VecDeque::len).sum();
        if self.graph.directed && one_way > 0 {
            self.notes.push(format!("edges without an opposite edge, used in both directions: {one_way}"));
        }
        self.sort_by_cable_number(&mut cables);
        cables
    }

    /// Sorts cables by their `cable` attribute, if all have one and no two are equal.
    fn sort_by_cable_number(&self, cables: &mut [RawCable]) {
        let number = |cable: &RawCable| self.graph.edges[cable.edge].attributes.get("cable")?.parse::<u64>().ok();
        let numbers: Option<BTreeSet<u64>> = cables.iter().map(number).collect();
        if numbers.is_some_and(|numbers| numbers.len() == cables.len()) {
            cables.sort_by_key(number);
        }
    }

    fn is_failed(&self, cable: &RawCable) -> bool {
        let failed = self.graph.edges[cable.edge].attributes.get("failed");
        failed.is_some_and(|text| text.eq_ignore_ascii_case("true") || text == "1")
    }

    /// Returns the losses of a cable in the file, in packets out of 10^9, forwards and backwards.
    fn losses(&self, cable: &RawCable, names: &[String]) -> Result<[u32; 2], SpecError> {
        let read = |edge: usize, name: &str| {
            let bad = |problem| self.spec.error(format!("{}: {name}: {problem}", self.place(edge, cable, names)));
            let text = self.graph.edges[edge].attributes.get(name);
            text.map(|text| parse_share(text).map_err(bad)).transpose()
        };
        let there = read(cable.edge, "loss")?;
        let back = match cable.opposite {
            Some(edge) => read(edge, "loss")?,
            None => read(cable.edge, "back_loss")?.or(there),
        };
        Ok([there, back].map(Option::unwrap_or_default))
    }

    /// Returns the place in the file where an edge of a cable is described, for errors.
    fn place(&self, edge: usize, cable: &RawCable, names: &[String]) -> String {
        let line = self.graph.edges[edge].attributes.get(LINE);
        let ends = || format!("edge {:?} - {:?}", names[cable.from], names[cable.to]);
        line.map_or_else(ends, |line| format!("line {line}"))
    }

    /// Returns the settings forwards and backwards. They come from the specification, else from the file, else from
    /// the opposite direction, else from the defaults.
    fn settings(
        &mut self,
        cable: &RawCable,
        touches_host: bool,
        names: &[String],
    ) -> Result<(LinkSettings, LinkSettings), SpecError> {
        let keys = if touches_host { self.keys.stated_host } else { self.keys.stated_switch };
        let (from, to) = (&names[cable.from], &names[cable.to]);
        let bad =
            |edge: usize, problem: String| self.spec.error(format!("{}: {problem}", self.place(edge, cable, names)));
        let mine = &self.graph.edges[cable.edge].attributes;
        let (there, read) = stated(mine, "", keys).map_err(|problem| bad(cable.edge, problem))?;
        let opposite = cable.opposite.map(|edge| &self.graph.edges[edge].attributes);
        let (back, read_back) = match opposite {
            Some(attributes) => stated(attributes, "", keys),
            None => stated(mine, "back_", keys),
        }
        .map_err(|problem| bad(cable.opposite.unwrap_or(cable.edge), problem))?;
        let ends = [cable.from, cable.to].map(|end| coordinates(&self.graph.nodes[end].attributes));
        let place = format!("{from} - {to}");
        for read in [&read, &read_back].into_iter().flatten() {
            self.guesses.note_rate(read, &place);
        }
        if there.rate_bps.is_none() && back.rate_bps.is_none() {
            self.guesses.add(Guess::NoRate, || place.clone());
        } else if opposite.is_some() && (there.rate_bps.is_none() || back.rate_bps.is_none()) {
            self.guesses.add(Guess::OneRate, || place.clone());
        }
        let mut base = DEFAULT_LINK;
        if there.delay_ps.is_none() && back.delay_ps.is_none() {
            match ends {
                [Some(from), Some(to)] => base.delay_ps = fibre_delay_ps(from, to),
                _ => self.guesses.add(Guess::NoDelay, || place.clone()),
            }
        }
        Ok((there.or(back).with_defaults(base), back.or(there).with_defaults(base)))
    }
}

/// Returns the settings of one direction from the keys and the attributes of an edge, and how the rate was read. The
/// names of the attributes begin with `prefix`.
fn stated(
    attributes: &Attributes,
    prefix: &str,
    keys: PartialSettings,
) -> Result<(PartialSettings, Option<RateRead>), String> {
    let get = |name: &str| attributes.get(&format!("{prefix}{name}")).map(String::as_str);
    let delay = || match (get("delay_ps"), get("delay")) {
        (Some(text), _) => parse_delay_ps(&format!("{text}ps")).map(Some).map_err(|e| format!("delay_ps: {e}")),
        (_, Some(text)) => parse_delay_ps(text).map(Some).map_err(|problem| format!("delay: {problem}")),
        _ => Ok(None),
    };
    let buffer = || match get("buffer_packets").or(get("buffer")) {
        Some(text) => whole(text, 1_000_000_000).map(Some).map_err(|problem| format!("buffer: {problem}")),
        None => Ok(None),
    };
    let read = if keys.rate_bps.is_some() { None } else { rate_of(attributes, prefix)? };
    let stated = PartialSettings {
        rate_bps: keys.rate_bps.or(read.as_ref().map(|read| read.rate_bps)),
        delay_ps: if keys.delay_ps.is_some() { keys.delay_ps } else { delay()? },
        buffer_packets: match keys.buffer_packets {
            Some(packets) => Some(packets),
            None => buffer()?.map(|packets| packets as u32),
        },
    };
    Ok((stated, read))
}

/// Parses a whole number up to `most`. networkx can turn it into `3.0`.
fn whole(text: &str, most: u64) -> Result<u64, String> {
    let number = text.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && *n >= 0.0 && *n <= most as f64);
    number.map(|n| n as u64).ok_or_else(|| format!("{text:?} is not a whole number from 0 to {most}"))
}

fn number(attributes: &Attributes, name: &str) -> Option<f64> {
    attributes.get(name)?.trim().parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Returns longitude and latitude in degrees, if a node has both.
fn coordinates(attributes: &Attributes) -> Option<(f64, f64)> {
    let longitude = number(attributes, "Longitude").filter(|degrees| degrees.abs() <= 180.0)?;
    let latitude = number(attributes, "Latitude").filter(|degrees| degrees.abs() <= 90.0)?;
    Some((longitude, latitude))
}

/// Returns the delay of light in fibre along the great circle between two places (longitude and latitude in degrees):
/// 5 µs per km, in whole microseconds (the coordinates are those of cities), and at least 1 µs.
fn fibre_delay_ps(from: (f64, f64), to: (f64, f64)) -> u64 {
    const EARTH_RADIUS_KM: f64 = 6371.0;
    const FIBRE_US_PER_KM: f64 = 5.0;
    let (from_latitude, to_latitude) = (from.1.to_radians(), to.1.to_radians());
    let half_sine = |a: f64, b: f64| ((b - a) / 2.0).sin().powi(2);
    // Haversine formula: accurate for close neighbours too.
    let chord = half_sine(from_latitude, to_latitude)
        + from_latitude.cos() * to_latitude.cos() * half_sine(from.0.to_radians(), to.0.to_radians());
    let km = 2.0 * EARTH_RADIUS_KM * chord.clamp(0.0, 1.0).sqrt().asin();
    (km * FIBRE_US_PER_KM).round().max(1.0) as u64 * 1_000_000
}

/// Returns a line that names the parts of a fabric whose hosts do not reach each other, if there is more than one part.
fn parts(fabric: &Fabric) -> Option<String> {
    let state = LinkState::of(fabric);
    let mut part = vec![u32::MAX; fabric.nodes().len()];
    let mut members: Vec<Vec<NodeId>> = Vec::new();
    for &first in fabric.switches() {
        if part[first.index()] != u32::MAX {
            continue;
        }
        let mut found = vec![first];
        part[first.index()] = members.len() as u32;
        let mut next = 0;
        while let Some(&node) = found.get(next) {
            next += 1;
            let up = |link: LinkId| state.is_up(link);
            for port in fabric.switch_ports(node).iter().filter(|port| up(port.link)) {
                if part[port.to.index()] == u32::MAX {
                    part[port.to.index()] = members.len() as u32;
                    found.push(port.to);
                }
            }
        }
        members.push(found);
    }
    // Hosts at a switch inside their server reach the others over their other interfaces.
    let is_part = |&node: &NodeId| fabric.tor_index(node).is_some() && !fabric.is_inside_server(node);
    members.retain(|found| found.iter().any(is_part));
    if members.len() < 2 {
        return None;
    }
    members.sort_by_key(|found| std::cmp::Reverse(found.len()));
    let describe = |found: &Vec<NodeId>| {
        let names: Vec<&str> = found.iter().take(3).map(|&node| fabric.node(node).name.as_str()).collect();
        let more = if found.len() > names.len() { ", …" } else { "" };
        format!("{} ({}{more})", found.len(), names.join(", "))
    };
    let shown: Vec<String> = members.iter().take(5).map(describe).collect();
    let more = if members.len() > shown.len() { ", …" } else { "" };
    Some(format!(
        "the fabric is in {} parts without a cable between them; their switches: {}{more}",
        members.len(),
        shown.join("; ")
    ))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
