//! Connections that stand: hosts of one job, such as a collective, open them when the job begins and keep them, as NCCL
//! does. A transfer takes a connection of its pair of interfaces that is not in use, and continues with its congestion
//! window and RTT estimate; if all are in use, it takes a further one. No SYN can be lost, and none delays a transfer.
//!
//! Each transfer still has a five-tuple of its own, as with a job that spreads its transfers over several connections.
//! Its first segment has the SYN flag, so that controllers learn of a transfer when it begins, as they learn of a
//! connection. Members of MPTCP and parallel streams begin with the initial window, because their number differs from
//! transfer to transfer.

use crate::subflow::{Subflow, Subflows};
use pathloom_model::{LinkId, Nanos};
use pathloom_transport::{Settings, Standing};
use pathloom_workload::FlowSpec;
use std::collections::BTreeMap;

/// The standing connections of all hosts.
pub(super) struct StandingConnections {
    /// Whether there are any. Schemes that identify connections by their SYN exchange exclude them.
    enabled: bool,
    /// Whether transfers continue with the window of their connection.
    keeps_windows: bool,
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
    pub(super) fn new(enabled: bool, keeps_windows: bool) -> StandingConnections {
        StandingConnections { enabled, keeps_windows, by_pair: BTreeMap::new() }
    }

    /// Whether senders may do without a SYN exchange.
    pub(super) fn are_used(&self) -> bool {
        self.enabled
    }

    /// Whether a transfer uses one of them.
    pub(super) fn serve(&self, transfer: &FlowSpec) -> bool {
        self.enabled && transfer.standing
    }

    /// Lets the sender of a subflow that was just opened continue a connection that stands, or a new one, whose set-up
    /// took `round_trip`.
    pub(super) fn resume(
        &mut self,
        now: Nanos,
        settings: &Settings,
        subflows: &mut Subflows,
        slot: usize,
        round_trip: Nanos,
    ) {
        let pair = pair(subflows.get(slot));
        let known = if self.keeps_windows { self.take(pair, subflows) } else { None };
        let standing = known.unwrap_or_else(|| Standing::new(settings, round_trip));
        let subflow = subflows.get(slot);
        standing.resume(&mut subflow.sender, settings, now);
        subflow.stands = true;
        if self.keeps_windows {
            let used = Connection::InUse(slot as u32, subflow.use_count);
            self.by_pair.entry(pair).or_default().push(used);
        }
    }

    /// The sender of a subflow is done. Its connection is idle, unless a later transfer has taken it already.
    pub(super) fn keep(&mut self, slot: usize, subflow: &Subflow) {
        if !subflow.stands {
            return;
        }
        let mut connections = self.by_pair.get_mut(&pair(subflow)).into_iter().flatten();
        if let Some(own) = connections.find(|connection| connection.is_used_by(slot, subflow.use_count)) {
            *own = Connection::Idle(Standing::of(&subflow.sender));
        }
    }

    /// Takes a connection of a pair of interfaces that carries no data. Returns `None` if all are in use. A transfer whose
    /// last byte has arrived no longer needs its connection, even if the last acknowledgement is under way.
    fn take(&mut self, pair: (LinkId, LinkId), subflows: &mut Subflows) -> Option<Standing> {
        let connections = self.by_pair.get_mut(&pair)?;
        let free = connections.iter().enumerate().find_map(|(place, connection)| match connection {
            Connection::Idle(standing) => Some((place, standing.clone())),
            Connection::InUse(slot, use_count) => {
                let subflow = subflows.current(*slot, *use_count).filter(|subflow| subflow.delivered)?;
                Some((place, Standing::of(&subflow.sender)))
            }
        });
        let (place, standing) = free?;
        connections.swap_remove(place);
        Some(standing)
    }
}

/// The uplinks of the sending and the receiving interface of a subflow.
fn pair(subflow: &Subflow) -> (LinkId, LinkId) {
    let [from, to] = &subflow.interfaces;
    (from.uplink(), to.uplink())
}
