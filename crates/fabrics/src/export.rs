//! Export of fabrics as GraphML and node-link JSON. [`super::fabric_from_file_text`] reads the files back to an equal
//! fabric, even after networkx has rewritten them.

use super::graph::PATHLOOM_MARK;
use pathloom_model::{Fabric, LinkId, Node};
use serde_json::{json, Map, Value};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Version of the attributes below.
const FORM: u32 = 1;

/// An attribute of the exported graph, with its type in GraphML.
struct Attribute {
    domain: &'static str,
    name: &'static str,
    kind: &'static str,
}

const fn attribute(domain: &'static str, name: &'static str, kind: &'static str) -> Attribute {
    Attribute { domain, name, kind }
}

/// `cable` stores the order of cables, and so of ports. `from` stores the end where a cable starts. Undirected edges
/// store neither. `back_…` attributes store settings that differ in the direction towards `from`.
const ATTRIBUTES: [Attribute; 17] = [
    attribute("graph", PATHLOOM_MARK, "int"),
    attribute("graph", "spec", "string"),
    attribute("node", "tier", "string"),
    attribute("node", "pod", "long"),
    attribute("node", "x", "double"),
    attribute("node", "y", "double"),
    attribute("edge", "cable", "long"),
    attribute("edge", "from", "string"),
    attribute("edge", "rate_bps", "long"),
    attribute("edge", "delay_ps", "long"),
    attribute("edge", "buffer_packets", "long"),
    attribute("edge", "failed", "boolean"),
    attribute("edge", "loss", "double"),
    attribute("edge", "back_loss", "double"),
    attribute("edge", "back_rate_bps", "long"),
    attribute("edge", "back_delay_ps", "long"),
    attribute("edge", "back_buffer_packets", "long"),
];

/// Exports the fabric as an undirected multigraph in node-link JSON: `networkx.node_link_graph(data, edges="edges")`.
///
/// Node attributes are `tier`, `pod`, `x`, `y`; edge attributes `rate_bps`, `delay_ps`, `buffer_packets`, `failed`,
/// `loss`. The queue settings of switch ports ([`Fabric::ports`]) are only in `spec`.
pub fn to_node_link_json(fabric: &Fabric) -> String {
    let failed: BTreeSet<u32> = fabric.failed_links().iter().map(|link| link.cable()).collect();
    let node = |node: &Node| {
        let mut object = node_attributes(node);
        object.insert("id".into(), json!(node.name));
        Value::Object(object)
    };
    let edge = |link: LinkId| {
        let mut object = edge_attributes(fabric, link, &failed);
        object.insert("source".into(), json!(fabric.node(fabric.link(link).from).name));
        object.insert("target".into(), json!(fabric.node(fabric.link(link).to).name));
        object.insert("key".into(), json!(link.cable()));
        Value::Object(object)
    };
    let value = json!({
        "directed": false,
        "multigraph": true,
        "graph": { PATHLOOM_MARK: FORM, "spec": fabric.spec() },
        "nodes": fabric.nodes().iter().map(node).collect::<Vec<_>>(),
        "edges": fabric.cables().map(edge).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

/// Exports the fabric as an undirected GraphML graph: `networkx.read_graphml(path, force_multigraph=True)`, yEd, Gephi.
///
/// The attributes are those of [`to_node_link_json`].
pub fn to_graphml(fabric: &Fabric) -> String {
    let failed: BTreeSet<u32> = fabric.failed_links().iter().map(|link| link.cable()).collect();
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n",
    );
    for Attribute { domain, name, kind } in ATTRIBUTES {
        let line = format!("  <key id=\"{name}\" for=\"{domain}\" attr.name=\"{name}\" attr.type=\"{kind}\"/>\n");
        text.push_str(&line);
    }
    text.push_str("  <graph edgedefault=\"undirected\">\n");
    let mut graph = Map::new();
    graph.insert(PATHLOOM_MARK.into(), json!(FORM));
    graph.insert("spec".into(), json!(fabric.spec()));
    write_data(&mut text, &graph);
    for node in fabric.nodes() {
        let _ = writeln!(text, "    <node id=\"{}\">", escape(&node.name));
        write_data(&mut text, &node_attributes(node));
        text.push_str("    </node>\n");
    }
    for link in fabric.cables() {
        let ends = fabric.link(link);
        let (from, to) = (escape(&fabric.node(ends.from).name), escape(&fabric.node(ends.to).name));
        let _ = writeln!(text, "    <edge id=\"{}\" source=\"{from}\" target=\"{to}\">", link.cable());
        write_data(&mut text, &edge_attributes(fabric, link, &failed));
        text.push_str("    </edge>\n");
    }
    text.push_str("  </graph>\n</graphml>\n");
    text
}

fn node_attributes(node: &Node) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("tier".into(), json!(node.tier.name()));
    if let Some(pod) = node.pod {
        object.insert("pod".into(), json!(pod));
    }
    if let Some((x, y)) = node.position {
        object.insert("x".into(), json!(x));
        object.insert("y".into(), json!(y));
    }
    object
}

fn edge_attributes(fabric: &Fabric, link: LinkId, failed: &BTreeSet<u32>) -> Map<String, Value> {
    let (there, back) = (fabric.link(link), fabric.link(link.reverse()).settings);
    let mut object = Map::new();
    object.insert("cable".into(), json!(link.cable()));
    object.insert("from".into(), json!(fabric.node(there.from).name));
    let there = there.settings;
    object.insert("rate_bps".into(), json!(there.rate_bps));
    object.insert("delay_ps".into(), json!(there.delay_ps));
    object.insert("buffer_packets".into(), json!(there.buffer_packets));
    if failed.contains(&link.cable()) {
        object.insert("failed".into(), json!(true));
    }
    let losses = [link, link.reverse()].map(|link| loss(fabric, link));
    if losses != [0.0; 2] {
        object.insert("loss".into(), json!(losses[0]));
    }
    if losses[0] != losses[1] {
        object.insert("back_loss".into(), json!(losses[1]));
    }
    if back != there {
        object.insert("back_rate_bps".into(), json!(back.rate_bps));
        object.insert("back_delay_ps".into(), json!(back.delay_ps));
        object.insert("back_buffer_packets".into(), json!(back.buffer_packets));
    }
    object
}

/// Returns the share of packets that a link loses.
fn loss(fabric: &Fabric, link: LinkId) -> f64 {
    let lossy = fabric.lossy_links();
    let place = lossy.binary_search_by_key(&link, |&(lossy, _)| lossy);
    place.map_or(0.0, |place| f64::from(lossy[place].1) / 1e9)
}

fn write_data(text: &mut String, attributes: &Map<String, Value>) {
    for (name, value) in attributes {
        let plain = value.as_str().map_or_else(|| value.to_string(), escape);
        let _ = writeln!(text, "      <data key=\"{name}\">{plain}</data>");
    }
}

/// Escapes text for XML. White space other than a blank becomes a character reference, because a parser would change
/// it. Characters that XML does not allow become U+FFFD.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
