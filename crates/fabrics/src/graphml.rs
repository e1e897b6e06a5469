//! GraphML (graphml.graphdrawing.org), as the Internet Topology Zoo and networkx write it.

use super::graph::{places, Attributes, RawEdge, RawGraph, RawNode};
use roxmltree::{Document, Node};
use std::collections::BTreeMap;

/// A `<key>`: the meaning of a `<data key=…>`.
struct Key<'a> {
    domain: &'a str,
    name: &'a str,
    default: Option<&'a str>,
}

/// Parses the first graph of a GraphML text. An error says what is wrong and in which line.
pub(super) fn parse(text: &str) -> Result<RawGraph, String> {
    let document = Document::parse(text).map_err(|error| format!("is not well-formed XML: {error}"))?;
    let root = document.root_element();
    if root.tag_name().name() != "graphml" {
        return Err(format!("is not GraphML: its outermost element is <{}>", root.tag_name().name()));
    }
    let keys = keys(root);
    let graph = children(root, "graph").next().ok_or("is GraphML without a <graph>")?;
    let mut raw = RawGraph {
        directed: graph.attribute("edgedefault") == Some("directed"),
        attributes: attributes(graph, &keys),
        ..RawGraph::default()
    };
    for node in children(graph, "node") {
        let id = required(node, "id")?.to_owned();
        raw.nodes.push(RawNode { id, attributes: attributes(node, &keys) });
    }
    let places = places(&raw.nodes)?;
    let place = |edge: Node, end: &str| -> Result<usize, String> {
        let id = required(edge, end)?;
        let unknown = || format!("line {}: an edge's {end} is {id:?}, but no node has that id", line(edge));
        places.get(id).copied().ok_or_else(unknown)
    };
    let mut edges = Vec::new();
    for edge in children(graph, "edge") {
        let (source, target) = (place(edge, "source")?, place(edge, "target")?);
        edges.push(RawEdge { source, target, attributes: attributes(edge, &keys) });
    }
    raw.edges = edges;
    let hyperedges = children(graph, "hyperedge").count();
    if hyperedges > 0 {
        raw.notes.push(format!("hyperedges, left out because a cable connects two nodes: {hyperedges}"));
    }
    Ok(raw)
}

fn children<'a, 'd>(parent: Node<'a, 'd>, name: &'static str) -> impl Iterator<Item = Node<'a, 'd>> {
    parent.children().filter(move |node| node.is_element() && node.tag_name().name() == name)
}

fn line(node: Node) -> u32 {
    node.document().text_pos_at(node.range().start).row
}

fn required<'a>(node: Node<'a, '_>, attribute: &str) -> Result<&'a str, String> {
    let missing = || format!("line {}: <{}> has no {attribute}", line(node), node.tag_name().name());
    node.attribute(attribute).ok_or_else(missing)
}

/// Returns the keys by id. The name of a key without `attr.name` is its id.
fn keys<'a>(root: Node<'a, 'a>) -> BTreeMap<&'a str, Key<'a>> {
    let read = |key: Node<'a, 'a>| {
        let id = key.attribute("id")?;
        let name = key.attribute("attr.name").unwrap_or(id);
        let default = children(key, "default").next().and_then(|node| node.text());
        Some((id, Key { domain: key.attribute("for").unwrap_or("all"), name, default }))
    };
    children(root, "key").filter_map(read).collect()
}

/// Returns the `<data>` of an element; defaults of its kind fill the gaps.
fn attributes(element: Node, keys: &BTreeMap<&str, Key>) -> Attributes {
    let kind = element.tag_name().name();
    let defaults = keys.values().filter(|key| key.domain == kind || key.domain == "all");
    let mut found: Attributes =
        defaults.filter_map(|key| Some((key.name.to_owned(), key.default?.to_owned()))).collect();
    for data in children(element, "data") {
        if let Some(id) = data.attribute("key") {
            let name = keys.get(id).map_or(id, |key| key.name);
            found.insert(name.to_owned(), data.text().unwrap_or_default().to_owned());
        }
    }
    found
}
