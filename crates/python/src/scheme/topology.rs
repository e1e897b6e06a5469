//! Nodes and links as Python objects, created once for all views of a run.

use pathloom_model::{Fabric, LinkId, NodeId};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// A host or switch.
#[pyclass(frozen, get_all, module = "pathloom._core")]
pub struct Node {
    /// Its number: the index in `View.nodes`.
    id: u32,
    /// Its name, such as `e0_1`.
    name: String,
    /// Its tier in the fabric.
    tier: &'static str,
    /// Its pod, if the fabric has pods.
    pod: Option<u32>,
}

#[pymethods]
impl Node {
    fn __repr__(&self) -> String {
        format!("Node(id={}, name={:?}, tier={:?})", self.id, self.name, self.tier)
    }
}

/// One direction of a cable.
#[pyclass(frozen, get_all, module = "pathloom._core")]
pub struct Link {
    /// Its number: the index in `View.links`.
    id: u32,
    /// The node that sends into it.
    source: u32,
    /// The node that receives from it.
    target: u32,
    /// The other direction of the cable.
    reverse: u32,
    /// Bits per second.
    rate_bps: u64,
    /// Propagation delay in picoseconds.
    delay_ps: u64,
    /// Packets that may wait, not counting the one being sent.
    buffer_packets: u32,
    /// Whether neither of its ends is a host.
    between_switches: bool,
}

#[pymethods]
impl Link {
    fn __repr__(&self) -> String {
        format!("Link(id={}, source={}, target={}, rate_bps={})", self.id, self.source, self.target, self.rate_bps)
    }
}

/// Objects that do not change during a run.
pub struct Topology {
    nodes: PyOnceLock<Py<PyTuple>>,
    links: PyOnceLock<Py<PyTuple>>,
}

impl Default for Topology {
    fn default() -> Topology {
        Topology { nodes: PyOnceLock::new(), links: PyOnceLock::new() }
    }
}

impl Topology {
    /// All nodes, by number.
    pub fn nodes<'py>(&self, py: Python<'py>, fabric: &Fabric) -> PyResult<Bound<'py, PyTuple>> {
        let made = || {
            let nodes = fabric.nodes().iter().zip(0..).map(|(node, id)| {
                Bound::new(py, Node { id, name: node.name.clone(), tier: node.tier.name(), pod: node.pod })
            });
            PyTuple::new(py, nodes.collect::<PyResult<Vec<_>>>()?).map(Bound::unbind)
        };
        Ok(self.nodes.get_or_try_init(py, made)?.bind(py).clone())
    }

    /// All directed links, by number.
    pub fn links<'py>(&self, py: Python<'py>, fabric: &Fabric) -> PyResult<Bound<'py, PyTuple>> {
        let made = || {
            let links = (0..fabric.links().len() as u32).map(|id| Bound::new(py, link(fabric, LinkId(id))));
            PyTuple::new(py, links.collect::<PyResult<Vec<_>>>()?).map(Bound::unbind)
        };
        Ok(self.links.get_or_try_init(py, made)?.bind(py).clone())
    }
}

fn link(fabric: &Fabric, id: LinkId) -> Link {
    let (ends, NodeId(source)) = (fabric.link(id), fabric.link(id).from);
    Link {
        id: id.0,
        source,
        target: ends.to.0,
        reverse: id.reverse().0,
        rate_bps: ends.settings.rate_bps,
        delay_ps: ends.settings.delay_ps,
        buffer_packets: ends.settings.buffer_packets,
        between_switches: fabric.is_switch_link(id),
    }
}
