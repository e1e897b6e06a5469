//! Connections that stand: hosts of one job, such as a collective, open them when the job begins and keep them, as NCCL
//! does. A transfer takes a connection of its pair of interfaces that is not in use, and continues with its congestion
//! window and RTT estimate; if all are in use, it takes a further one. No SYN can be lost, and none delays a transfer.
//!
//! Each transfer still has a five-tuple of its own, as with a job that spreads its transfers over several connections.
//! Its first segment has the SYN flag, so that controllers learn of a transfer when it begins, as they learn of a
//! connection. Members of MPTCP and parallel streams begin with the initial window, because their number differs from
//! transfer to transfer.

use super::Hosts;
use crate::subflow::Subflows;
use crate::time::{to_nanos, Ps};
use crate::transfers::Ends;
use pathloom_model::LinkId;
use pathloom_transport::{Settings, Standing};
use std::collections::BTreeMap;

/// The standing connections of all hosts.
pub(super) struct StandingConnections {
    /// Whether there are any. Schemes that identify connections by their SYN exchange exclude them.
    enabled: bool,
    /// By uplinks of the sending and the receiving interface.
    by_pair: BTreeMap<(LinkId, LinkId), Vec<Connection>>,
}

enum Connection {
    Idle(Standing),
    /// In use by the subflow in this slot with this use count.
    InUse(u32, u32),
}

impl Connection {
    fn is_used_by(&self, slot: usize, use_count: u32) -> bool {
        matches!(self, Connection::InUse(of, count) if (*of as usize, *count) == (slot, use_count))
    }
}

impl StandingConnections {
    pub(super) fn new(enabled: bool) -> StandingConnections {
        StandingConnections { enabled, by_pair: BTreeMap::new() }
    }

    /// Takes a connection of a pair of interfaces that carries no data. Returns `None` if all are in use. A transfer whose
    /// last byte has arrived no longer needs its connection, even if the last acknowledgement is under way.
    fn take(&mut self, pair: (LinkId, LinkId), subflows: &mut Subflows) -> Option<Standing> {
        let connections = self.by_pair.get_mut(&pair)?;
        let free = connections.iter().enumerate().find_map(|(place, connection)| match connection {
            Connection::Idle(standing) => Some((place, standing.clone())),
            Connection::InUse(slot, use_count) => {
                let subflow = subflows.current(*slot, *use_count).filter(|subflow| subflow.delivered)?;
                Some((place, subflow.sender.standing()))
            }
        });
        let (place, standing) = free?;
        connections.swap_remove(place);
        Some(standing)
    }
}

impl Hosts {
    /// Whether a transfer uses connections that stand.
    pub(super) fn stands(&self, transfer: u32) -> bool {
        self.standing.enabled && self.transfers.spec(transfer).standing
    }

    /// Lets the sender of a subflow that was just opened continue a standing connection.
    pub(super) fn resume(&mut self, now: Ps, slot: usize, transfer: u32, ends: &Ends) {
        let pair = (ends.src.uplink, ends.dst.uplink);
        let keeps = !self.is_multipath() && !self.has_streams();
        let known = if keeps { self.standing.take(pair, &mut self.subflows) } else { None };
        let settings: &Settings = &self.transport;
        let standing = known.unwrap_or_else(|| Standing::new(settings, self.transfers.idle_round_trip(transfer)));
        let subflow = self.subflows.get(slot);
        subflow.sender.resume(settings, standing, to_nanos(now));
        subflow.stands = true;
        if keeps {
            let used = Connection::InUse(slot as u32, subflow.use_count);
            self.standing.by_pair.entry(pair).or_default().push(used);
        }
    }

    /// The sender of a subflow is done. Its connection is idle, unless a later transfer has taken it already.
    pub(super) fn keep_connection(&mut self, slot: usize) {
        let subflow = self.subflows.get(slot);
        if !subflow.stands {
            return;
        }
        let pair = (subflow.interfaces[0].uplink(), subflow.interfaces[1].uplink());
        let mut connections = self.standing.by_pair.get_mut(&pair).into_iter().flatten();
        if let Some(own) = connections.find(|connection| connection.is_used_by(slot, subflow.use_count)) {
            *own = Connection::Idle(subflow.sender.standing());
        }
    }
}
