//! Node-link JSON, as `networkx.node_link_data` writes it (with `edges` or, before networkx 3.6, `links`).

use super::graph::{places, Attributes, RawEdge, RawGraph, RawNode};
use serde_json::{Map, Value};

/// Parses a node-link text. An error says what is wrong and where.
pub(super) fn parse(text: &str) -> Result<RawGraph, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    let object = value.as_object().ok_or("is not node-link JSON: expected an object with `nodes` and `edges`")?;
    let mut raw = RawGraph {
        directed: object.get("directed").and_then(Value::as_bool).unwrap_or(false),
        attributes: object.get("graph").and_then(Value::as_object).map(attributes).unwrap_or_default(),
        ..RawGraph::default()
    };
    for (number, node) in array(object, &["nodes"])?.iter().enumerate() {
        let node = node.as_object().ok_or_else(|| format!("nodes[{number}] is not an object"))?;
        let id = node.get("id").ok_or_else(|| format!("nodes[{number}] has no `id`"))?;
        raw.nodes.push(RawNode { id: plain(id), attributes: attributes(node) });
    }
    let places = places(&raw.nodes)?;
    let mut edges = Vec::new();
    for (number, edge) in array(object, &["edges", "links"])?.iter().enumerate() {
        let edge = edge.as_object().ok_or_else(|| format!("edge {number} is not an object"))?;
        let place = |end: &str| {
            let id = edge.get(end).map(plain).ok_or_else(|| format!("edge {number} has no `{end}`"))?;
            let unknown = || format!("edge {number}: its {end} is {id:?}, but no node has that id");
            places.get(id.as_str()).copied().ok_or_else(unknown)
        };
        edges.push(RawEdge { source: place("source")?, target: place("target")?, attributes: attributes(edge) });
    }
    raw.edges = edges;
    Ok(raw)
}

fn array<'a>(object: &'a Map<String, Value>, names: &[&str]) -> Result<&'a Vec<Value>, String> {
    let missing = || format!("is not node-link JSON: it has no list `{}`", names.join("` or `"));
    names.iter().find_map(|&name| object.get(name)).and_then(Value::as_array).ok_or_else(missing)
}

/// Returns text unchanged, and any other value as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn attributes(object: &Map<String, Value>) -> Attributes {
    object.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), plain(value))).collect()
}
