//! A graph as a file describes it: nodes and edges with attributes that are not interpreted yet.

use std::collections::{BTreeMap, BTreeSet};

/// Attribute names and values, as text.
pub(super) type Attributes = BTreeMap<String, String>;

/// A node of a graph file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RawNode {
    /// Identifier that edges refer to.
    pub(super) id: String,
    pub(super) attributes: Attributes,
}

/// An edge of a graph file. Its ends are indices in [`RawGraph::nodes`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RawEdge {
    pub(super) source: usize,
    pub(super) target: usize,
    pub(super) attributes: Attributes,
}

/// The contents of a graph file.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct RawGraph {
    /// Whether an edge means one direction only.
    pub(super) directed: bool,
    pub(super) attributes: Attributes,
    pub(super) nodes: Vec<RawNode>,
    pub(super) edges: Vec<RawEdge>,
    /// Omissions that the user should know about.
    pub(super) notes: Vec<String>,
}

/// Graph attribute that marks files written by this project; its value is the version of the format.
pub(super) const PATHLOOM_MARK: &str = "pathloom";

/// Attribute with the line number of an edge, in file formats that consist of lines.
pub(super) const LINE: &str = "pathloom line";

impl RawGraph {
    /// Whether this project wrote the file, so that the ids of nodes are their final names.
    pub(super) fn is_pathloom_export(&self) -> bool {
        self.attributes.contains_key(PATHLOOM_MARK)
    }

    /// Returns a readable and unique name for every node: its label, else its id. A name contains only letters,
    /// digits, `_`, `.` and `-`, so that it can be used in specifications. Adds notes about changed names.
    pub(super) fn names(&mut self) -> Vec<String> {
        if self.is_pathloom_export() {
            return self.nodes.iter().map(|node| node.id.clone()).collect();
        }
        let mut taken: BTreeSet<String> = BTreeSet::new();
        let (mut unnamed, mut shared) = (0, 0);
        let mut names = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let label = node.attributes.get("label").map(|label| clean(label)).filter(|label| label != "None");
            let by_id = match clean(&node.id) {
                id if id.starts_with(|c: char| c.is_alphabetic()) => id,
                id => format!("n{id}"),
            };
            let has_labels = node.attributes.contains_key("label");
            let wanted = label.filter(|label| !label.is_empty()).unwrap_or_else(|| {
                unnamed += usize::from(has_labels);
                by_id.clone()
            });
            shared += usize::from(taken.contains(&wanted));
            let name = unique(wanted, &by_id, &taken);
            taken.insert(name.clone());
            names.push(name);
        }
        if unnamed > 0 {
            self.notes.push(format!("nodes without a label, named by their id (as in n7): {unnamed}"));
        }
        if shared > 0 {
            self.notes.push(format!("nodes with the label of an earlier one, to which their id was added: {shared}"));
        }
        names
    }
}

/// Returns `wanted`, with a suffix if that name is taken.
pub(super) fn unique(wanted: String, id: &str, taken: &BTreeSet<String>) -> String {
    if !taken.contains(&wanted) {
        return wanted;
    }
    let mut name = format!("{wanted}_{id}");
    while taken.contains(&name) {
        name.push('_');
    }
    name
}

/// Replaces every run of characters that are not letters, digits, `_`, `.` or `-` by one `_`.
fn clean(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for c in text.trim().chars() {
        if c.is_alphanumeric() || matches!(c, '_' | '.' | '-') {
            name.push(c);
        } else if !name.ends_with('_') {
            name.push('_');
        }
    }
    name.trim_end_matches('_').to_owned()
}

/// Returns the index of every node by its id. An error names an id that two nodes have.
pub(super) fn places(nodes: &[RawNode]) -> Result<BTreeMap<&str, usize>, String> {
    let mut places = BTreeMap::new();
    for (place, node) in nodes.iter().enumerate() {
        if places.insert(node.id.as_str(), place).is_some() {
            return Err(format!("two nodes have the id {:?}; ids must differ", node.id));
        }
    }
    Ok(places)
}
