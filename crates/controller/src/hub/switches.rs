//! Which switches of the fabric have a connection, by node and by datapath identifier.

use crate::hub::connection::ConnectionId;
use pathloom_model::NodeId;
use std::collections::BTreeMap;

/// The switches, and the connections that represent them.
pub(crate) struct Switches {
    /// The switches of the fabric by datapath identifier; `None` without a fabric.
    nodes: Option<BTreeMap<u64, NodeId>>,
    /// Connections with a session, by node.
    by_node: Vec<Option<ConnectionId>>,
    /// Connections by the datapath identifier that they have sent, also before their session is up.
    by_dpid: BTreeMap<u64, ConnectionId>,
}

impl Switches {
    /// Switches without connections. `datapaths` has those of the fabric; `nodes` is its number of nodes.
    pub(crate) fn new(datapaths: Option<BTreeMap<u64, NodeId>>, nodes: usize) -> Switches {
        Switches { nodes: datapaths, by_node: vec![None; nodes], by_dpid: BTreeMap::new() }
    }

    /// The switch of the fabric with a datapath identifier. Without a fabric, every identifier is accepted.
    pub(crate) fn node(&self, dpid: u64) -> Result<Option<NodeId>, ()> {
        match &self.nodes {
            None => Ok(None),
            Some(nodes) => nodes.get(&dpid).copied().map(Some).ok_or(()),
        }
    }

    /// The datapath identifier of a switch of the fabric.
    pub(crate) fn dpid(&self, node: NodeId) -> Option<u64> {
        self.nodes.iter().flatten().find(|&(_, &other)| other == node).map(|(&dpid, _)| dpid)
    }

    /// The connection that has a datapath identifier.
    pub(crate) fn owner(&self, dpid: u64) -> Option<ConnectionId> {
        self.by_dpid.get(&dpid).copied()
    }

    /// Gives a connection a datapath identifier.
    pub(crate) fn set_owner(&mut self, dpid: u64, id: ConnectionId) {
        self.by_dpid.insert(dpid, id);
    }

    /// Number of datapath identifiers with a connection.
    pub(crate) fn owners(&self) -> usize {
        self.by_dpid.len()
    }

    /// Takes the datapath identifiers of a connection from it. Returns whether it had any.
    pub(crate) fn disown(&mut self, id: ConnectionId) -> bool {
        let before = self.by_dpid.len();
        self.by_dpid.retain(|_, other| *other != id);
        self.by_dpid.len() < before
    }

    /// The connection of a switch with a session.
    #[inline]
    pub(crate) fn session(&self, node: NodeId) -> Option<ConnectionId> {
        self.by_node.get(node.index()).copied().flatten()
    }

    /// The sessions of all nodes of the fabric, in their order.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = Option<ConnectionId>> + '_ {
        self.by_node.iter().copied()
    }

    /// Notes that the session of a switch is up.
    pub(crate) fn begin_session(&mut self, node: NodeId, id: ConnectionId) {
        self.by_node[node.index()] = Some(id);
    }

    /// Ends the session that a connection has with a switch. Returns whether it had one.
    pub(crate) fn end_session(&mut self, node: NodeId, id: ConnectionId) -> bool {
        let has = self.session(node) == Some(id);
        if has {
            self.by_node[node.index()] = None;
        }
        has
    }
}
