//! `pathloom._core.View`: what a scheme in Python can see.

use super::topology::Topology;
use crate::errors::Error;
use crate::fabric::path_selection;
use pathloom_model::{LinkId, NodeId, Path, PathSet};
use pathloom_scheme::{FlowId, FlowView};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyMappingProxy, PyTuple};
use std::sync::Arc;

/// What a controller knows about one flow.
#[pyclass(frozen, module = "pathloom._core")]
pub struct Flow {
    id: FlowId,
    flow: FlowView,
}

fn links_of<'py>(py: Python<'py>, path: Option<&Path>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    path.map(|path| PyTuple::new(py, path.links().iter().map(|link| link.0))).transpose()
}

#[pymethods]
impl Flow {
    /// Its number, which no other flow ever gets.
    #[getter]
    fn id(&self) -> u64 {
        self.id.0
    }

    /// Sending host.
    #[getter]
    fn src_host(&self) -> u32 {
        self.flow.src_host.0
    }

    /// Receiving host.
    #[getter]
    fn dst_host(&self) -> u32 {
        self.flow.dst_host.0
    }

    /// Switch that the sender is attached to: where its paths begin.
    #[getter]
    fn src_tor(&self) -> u32 {
        self.flow.src_tor.0
    }

    /// Switch that the receiver is attached to: where its paths end.
    #[getter]
    fn dst_tor(&self) -> u32 {
        self.flow.dst_tor.0
    }

    /// Source address and port, destination address and port, IP protocol.
    #[getter]
    fn five_tuple(&self) -> (String, u16, String, u16, u8) {
        let tuple = self.flow.five_tuple;
        (tuple.src().to_string(), tuple.src_port(), tuple.dst().to_string(), tuple.dst_port(), tuple.proto())
    }

    /// Time when the controller first knew of it.
    #[getter]
    fn arrived_ns(&self) -> u64 {
        self.flow.arrived.0
    }

    /// Payload bytes in all, if the application announced them.
    #[getter]
    fn size_bytes(&self) -> Option<u64> {
        self.flow.size_bytes.get()
    }

    /// Token of the MPTCP connection to which it belongs.
    #[getter]
    fn mptcp_token(&self) -> Option<u32> {
        self.flow.mptcp_token
    }

    /// Whether the scheme was informed of it.
    #[getter]
    fn long(&self) -> bool {
        self.flow.long
    }

    /// Links of the path it is on; None on the default routes.
    #[getter]
    fn route<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        links_of(py, self.flow.route.as_ref())
    }

    /// Links of a path that was requested and is not confirmed yet.
    #[getter]
    fn pending<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        links_of(py, self.flow.pending.as_ref())
    }

    /// The path it is on, or is about to be on.
    #[getter]
    fn intended_route<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        links_of(py, self.flow.intended_route())
    }

    /// Bandwidth that the scheme has allocated to it.
    #[getter]
    fn allocated_bps(&self) -> Option<u64> {
        self.flow.allocated_bps.get()
    }

    /// Bytes counted at its source ToR, headers included, at the last reading.
    #[getter]
    fn counted_bytes(&self) -> u64 {
        self.flow.bytes
    }

    /// Rate over the last measuring period, headers included.
    #[getter]
    fn rate_bps(&self) -> Option<u64> {
        self.flow.rate_bps.get()
    }

    fn __repr__(&self) -> String {
        format!("Flow(id={}, src_tor={}, dst_tor={})", self.id.0, self.flow.src_tor.0, self.flow.dst_tor.0)
    }
}

/// A snapshot of what the controller knows. It shares its content with the controller's own view. A Python object is
/// created only when it is read.
#[pyclass(frozen, module = "pathloom._core")]
pub struct View {
    view: pathloom_scheme::View,
    topology: Arc<Topology>,
    flows: PyOnceLock<Py<PyMappingProxy>>,
}

impl View {
    pub fn new(view: pathloom_scheme::View, topology: Arc<Topology>) -> View {
        View { view, topology, flows: PyOnceLock::new() }
    }

    /// The view of the controller.
    pub(super) fn shown(&self) -> &pathloom_scheme::View {
        &self.view
    }

    fn flow_objects<'py>(
        &'py self,
        py: Python<'py>,
        wanted: impl Fn(&FlowView) -> bool + 'py,
    ) -> impl Iterator<Item = PyResult<(u64, Bound<'py, Flow>)>> + 'py {
        let flows = self.view.flows.iter().filter(move |(_, flow)| wanted(flow));
        flows.map(move |(&id, flow)| Ok((id.0, Bound::new(py, Flow { id, flow: flow.clone() })?)))
    }

    fn known_link(&self, link: u32) -> PyResult<LinkId> {
        let count = self.view.fabric.links().len();
        let unknown = || PyIndexError::new_err(format!("link {link}: the fabric has links 0 to {}", count - 1));
        ((link as usize) < count).then_some(LinkId(link)).ok_or_else(unknown)
    }

    fn known_switch(&self, node: u32) -> PyResult<NodeId> {
        let fabric = &self.view.fabric;
        let unknown = || PyIndexError::new_err(format!("node {node}: is not a switch of the fabric"));
        let switch = fabric.nodes().get(node as usize).filter(|_| !fabric.is_host(NodeId(node)));
        switch.map(|_| NodeId(node)).ok_or_else(unknown)
    }
}

fn numbers(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}

#[pymethods]
impl View {
    /// All nodes, by number.
    #[getter]
    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.topology.nodes(py, &self.view.fabric)
    }

    /// All directed links, by number.
    #[getter]
    fn links<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.topology.links(py, &self.view.fabric)
    }

    /// The hosts.
    #[getter]
    fn hosts(&self) -> Vec<u32> {
        numbers(self.view.fabric.hosts())
    }

    /// The switches.
    #[getter]
    fn switches(&self) -> Vec<u32> {
        numbers(self.view.fabric.switches())
    }

    /// The switches with hosts.
    #[getter]
    fn tors(&self) -> Vec<u32> {
        numbers(self.view.fabric.tors())
    }

    /// The node with this name.
    fn find(&self, name: &str) -> Option<u32> {
        self.view.fabric.find(name).map(|node| node.0)
    }

    /// The link from one node to another.
    fn link_between(&self, source: u32, target: u32) -> Option<u32> {
        self.view.fabric.link_between(NodeId(source), NodeId(target)).map(|link| link.0)
    }

    /// Whether packets can cross a link.
    fn is_up(&self, link: u32) -> PyResult<bool> {
        Ok(self.view.links.is_up(self.known_link(link)?))
    }

    /// The directed links that are down.
    #[getter]
    fn links_down(&self) -> Vec<u32> {
        self.view.links.down().map(|link| link.0).collect()
    }

    /// All known flows, in order of arrival. Flows that are not long are included if the switches count them.
    #[getter]
    fn flows<'py>(&'py self, py: Python<'py>) -> PyResult<Bound<'py, PyMappingProxy>> {
        let made = || {
            let flows = PyDict::new(py);
            self.flow_objects(py, |_| true)
                .try_for_each(|pair| pair.and_then(|(id, flow)| flows.set_item(id, flow)))?;
            Ok::<_, PyErr>(PyMappingProxy::new(py, flows.as_mapping()).unbind())
        };
        Ok(self.flows.get_or_try_init(py, made)?.bind(py).clone())
    }

    /// One flow, without creating an object for every other flow. Raises `KeyError` if it is not known.
    fn flow(&self, flow: u64) -> PyResult<Flow> {
        let id = FlowId(flow);
        let unknown = || PyKeyError::new_err(format!("flow {flow}: is not known, or has finished"));
        self.view.flows.get(&id).map(|known| Flow { id, flow: known.clone() }).ok_or_else(unknown)
    }

    /// The flows of which the scheme was informed.
    fn long_flows<'py>(&'py self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let flows = self.flow_objects(py, |flow| flow.long).map(|pair| pair.map(|(_, flow)| flow));
        PyList::new(py, flows.collect::<PyResult<Vec<_>>>()?)
    }

    /// Paths between two ToRs over links that are up, as tuples of links.
    ///
    /// `how` is `shortest`, `k-shortest`, `k-edge-disjoint` or `simple:N`, all paths of at most N hops.
    #[pyo3(signature = (source, target, how = "shortest", limit = 64))]
    fn paths<'py>(
        &self,
        py: Python<'py>,
        source: u32,
        target: u32,
        how: &str,
        limit: usize,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let (from, to) = (self.known_switch(source)?, self.known_switch(target)?);
        let selection = path_selection(how, limit).map_err(|error: Error| PyErr::from(error))?;
        let set = PathSet::new(&self.view.fabric, &self.view.links, from, to, selection);
        let found = set.iter().take(limit);
        found.map(|path| PyTuple::new(py, path.links().iter().map(|link| link.0))).collect()
    }

    /// By link: bandwidth that the scheme has allocated there, summed over routes and pending routes.
    fn allocated_bps(&self) -> Vec<u64> {
        self.view.allocated_bps()
    }

    /// Load of a link between the last two readings of its port's counters (`Needs.link_loads_every_ns`).
    fn link_load_bps(&self, link: u32) -> PyResult<Option<u64>> {
        let link = self.known_link(link)?;
        Ok(self.view.link_load_bps[link.index()].get())
    }

    /// How flows without a path of their own are routed.
    #[getter]
    fn defaults(&self) -> &'static str {
        super::actions::defaults_name(self.view.defaults)
    }

    /// Share of about the last second during which the controller was busy, 0 to 1.
    #[getter]
    fn busy_share(&self) -> f64 {
        self.view.busy_share
    }

    /// Round-trip time to a switch, if one was measured.
    fn switch_rtt_ns(&self, switch: u32) -> PyResult<Option<u64>> {
        let switch = self.known_switch(switch)?;
        Ok(self.view.switch_rtt[switch.index()].map(|rtt| rtt.0))
    }

    fn __repr__(&self) -> String {
        format!("View({}, {} flows)", self.view.fabric.spec(), self.view.flows.len())
    }
}
