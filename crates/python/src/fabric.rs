//! `pathloom._core.Fabric`.

use crate::errors::{read_file, Error};
use numpy::IntoPyArray;
use pathloom_fabrics::{
    fabric_file, fabric_from_file_text, fabric_from_spec, round_trip_ps, to_graphml, to_node_link_json, FabricSummary,
};
use pathloom_model::spec::nearest;
use pathloom_model::{Attachment, LinkId, LinkState, NodeId, PathSelection, PathSet};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;

/// Hosts, switches and the cables between them.
#[derive(Clone)]
#[pyclass(frozen, module = "pathloom._core")]
pub struct Fabric {
    pub fabric: Arc<pathloom_model::Fabric>,
    notes: Vec<String>,
}

impl Fabric {
    /// Builds the fabric that `spec` names. A file is read, unless `text` has its content.
    pub fn build(spec: &str, text: Option<&str>) -> Result<Fabric, Error> {
        let read;
        let text = match (text, fabric_file(spec)) {
            (None, Some(path)) => {
                read = read_file("fabric", path)?;
                Some(read.as_str())
            }
            (text, _) => text,
        };
        let Some(text) = text else {
            return Ok(Fabric { fabric: Arc::new(fabric_from_spec(spec)?), notes: Vec::new() });
        };
        let built = fabric_from_file_text(spec, text)?;
        Ok(Fabric { fabric: Arc::new(built.fabric), notes: built.notes })
    }

    /// The switch with this name, or the ToR of the host with this name.
    fn tor_of(&self, name: &str) -> Result<NodeId, Error> {
        let known = || self.fabric.nodes().iter().map(|node| node.name.as_str()).collect::<Vec<_>>();
        let unknown = || Error::Node(name.to_owned(), nearest(name, &known()).map(str::to_owned));
        let node = self.fabric.find(name).ok_or_else(unknown)?;
        Ok(self.fabric.host_attachments(node).first().map_or(node, |attachment| attachment.tor))
    }
}

#[pymethods]
impl Fabric {
    #[staticmethod]
    fn from_spec(py: Python<'_>, spec: &str) -> Result<Fabric, Error> {
        py.detach(|| Fabric::build(spec, None))
    }

    #[staticmethod]
    fn from_node_link(py: Python<'_>, text: &str, spec: &str) -> Result<Fabric, Error> {
        py.detach(|| Fabric::build(spec, Some(text)))
    }

    #[getter]
    fn spec(&self) -> &str {
        self.fabric.spec()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        for node in self.fabric.nodes() {
            let row = PyDict::new(py);
            row.set_item("name", &node.name)?;
            row.set_item("tier", node.tier.name())?;
            row.set_item("pod", node.pod)?;
            row.set_item("position", node.position)?;
            rows.append(row)?;
        }
        Ok(rows)
    }

    fn links<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let links = self.fabric.links();
        let state = LinkState::of(&self.fabric);
        let up: Vec<bool> = (0..links.len() as u32).map(|link| state.is_up(LinkId(link))).collect();
        let columns = PyDict::new(py);
        columns.set_item("source", links.iter().map(|l| l.from.0).collect::<Vec<_>>().into_pyarray(py))?;
        columns.set_item("target", links.iter().map(|l| l.to.0).collect::<Vec<_>>().into_pyarray(py))?;
        columns.set_item("source_port", links.iter().map(|l| l.from_port.0).collect::<Vec<_>>().into_pyarray(py))?;
        columns.set_item("target_port", links.iter().map(|l| l.to_port.0).collect::<Vec<_>>().into_pyarray(py))?;
        columns.set_item("rate_bps", links.iter().map(|l| l.settings.rate_bps).collect::<Vec<_>>().into_pyarray(py))?;
        columns.set_item("delay_ps", links.iter().map(|l| l.settings.delay_ps).collect::<Vec<_>>().into_pyarray(py))?;
        let buffers: Vec<u32> = links.iter().map(|l| l.settings.buffer_packets).collect();
        columns.set_item("buffer_packets", buffers.into_pyarray(py))?;
        columns.set_item("up", up.into_pyarray(py))?;
        Ok(columns)
    }

    fn simulated_keys(&self) -> Vec<&'static str> {
        self.fabric.simulated_keys()
    }

    fn addresses(&self) -> Vec<(String, u32, u32)> {
        let row = |at: &Attachment| (at.address.to_string(), at.host.0, at.uplink.0);
        self.fabric.attachments().iter().map(row).collect()
    }

    fn to_node_link(&self, py: Python<'_>) -> String {
        py.detach(|| to_node_link_json(&self.fabric))
    }

    fn to_graphml(&self, py: Python<'_>) -> String {
        py.detach(|| to_graphml(&self.fabric))
    }

    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = py.detach(|| serde_json::to_string(&FabricSummary::of(&self.fabric))).map_err(Error::from)?;
        py.import("json")?.call_method1("loads", (text,))
    }

    fn round_trip_ps(&self, py: Python<'_>) -> Option<(u64, u64)> {
        py.detach(|| round_trip_ps(&self.fabric))
    }

    #[pyo3(signature = (source, target, how = "shortest", limit = 16))]
    fn paths(
        &self,
        py: Python<'_>,
        source: &str,
        target: &str,
        how: &str,
        limit: usize,
    ) -> Result<Vec<Vec<String>>, Error> {
        let (from, to) = (self.tor_of(source)?, self.tor_of(target)?);
        let selection = path_selection(how, limit)?;
        let state = LinkState::of(&self.fabric);
        let name = |node: NodeId| self.fabric.node(node).name.clone();
        Ok(py.detach(|| {
            let paths = PathSet::new(&self.fabric, &state, from, to, selection);
            let found = paths.iter().take(limit);
            found.map(|path| path.switches(&self.fabric, from).into_iter().map(name).collect()).collect()
        }))
    }
}

pub fn path_selection(how: &str, limit: usize) -> Result<PathSelection, Error> {
    match (how, how.strip_prefix("simple:").and_then(|hops| hops.parse().ok())) {
        ("shortest", _) => Ok(PathSelection::Shortest),
        ("k-shortest", _) => Ok(PathSelection::KShortest(limit)),
        ("k-edge-disjoint", _) => Ok(PathSelection::EdgeDisjoint(limit)),
        (_, Some(hops)) => Ok(PathSelection::SimpleUpTo(hops)),
        _ => Err(Error::PathChoice(how.to_owned())),
    }
}
