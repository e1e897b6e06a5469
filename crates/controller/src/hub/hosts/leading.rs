//! What all agents are told: whether this controller leads, by which election, and what its scheme needs.

use super::{AgentId, Hosts};
use crate::hub::log_limiter::subject;
use pathloom_control::Input;
use pathloom_host_agent::protocol::{ControllerMessage, Wants, VERSION};

/// What this controller is to agents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Leading {
    /// The only controller.
    Alone,
    /// A follower.
    Follows {
        /// The name of the leader, if it is known.
        leader: Option<String>,
    },
    /// The leader of an election.
    Leads {
        /// The number of the election.
        election: u64,
        /// Whether etcd confirms it. If not, another controller may lead by now.
        is_confirmed: bool,
    },
}

impl Leading {
    pub(super) fn follows(&self) -> bool {
        matches!(self, Leading::Follows { .. })
    }

    /// The number that each order has.
    pub(super) fn election(&self) -> Option<u64> {
        match self {
            Leading::Leads { election, .. } => Some(*election),
            Leading::Alone | Leading::Follows { .. } => None,
        }
    }

    /// The answer to a hello.
    pub(super) fn answer(&self, wants: Wants) -> ControllerMessage<'_> {
        match self {
            Leading::Follows { leader } => ControllerMessage::Standby { leader: leader.as_deref().map(Into::into) },
            _ => ControllerMessage::Welcome { version: VERSION, wants, election: self.election() },
        }
    }

    /// Why applications get no paths here.
    pub(super) fn why_no_paths(&self) -> Option<String> {
        match self {
            Leading::Follows { leader: Some(leader) } => {
                Some(format!("this controller follows {leader}; send the request there"))
            }
            Leading::Follows { leader: None } => {
                Some("this controller does not lead; send the request to the leader".to_owned())
            }
            Leading::Leads { is_confirmed: false, .. } => {
                Some("etcd does not confirm that this controller leads; try again".to_owned())
            }
            Leading::Alone | Leading::Leads { .. } => None,
        }
    }
}

impl Hosts {
    /// This controller follows another one. Its agents get no orders from it.
    pub(crate) fn follow(&mut self, leader: Option<String>) {
        self.leading = Leading::Follows { leader };
    }

    /// This controller leads by the election with this number. Its agents obey it from now on, and none of an earlier one.
    pub(crate) fn lead(&mut self, election: u64) {
        let before = std::mem::replace(&mut self.leading, Leading::Leads { election, is_confirmed: true });
        if before.election() == Some(election) {
            return;
        }
        let welcome = ControllerMessage::Welcome { version: VERSION, wants: self.wants, election: Some(election) };
        self.tell_all(&welcome);
    }

    /// Notes that etcd does not confirm any more that this controller leads.
    pub(crate) fn doubt(&mut self) {
        if let Leading::Leads { is_confirmed, .. } = &mut self.leading {
            *is_confirmed = false;
        }
    }

    /// Tells agents what the new scheme needs, if that differs.
    pub(crate) fn set_wants(&mut self, wants: Wants) {
        if std::mem::replace(&mut self.wants, wants) != wants {
            self.tell_all(&ControllerMessage::Wants(wants));
        }
    }

    /// Sends a message to all agents that have named their hosts.
    fn tell_all(&mut self, message: &ControllerMessage<'_>) {
        for agent in self.agents.values_mut().filter(|agent| agent.greeted) {
            agent.send((&mut self.writable, self.now), message);
        }
    }

    /// An agent has refused an order, because a newer leader has sent it one. Only switches and etcd depose a leader: a
    /// host is trusted less than they are.
    pub(super) fn stale(&mut self, id: AgentId, newest: u64) -> Option<Input> {
        if self.leading.election().is_none_or(|own| newest <= own) {
            return self.refuse(id, &format!("election {newest} is not newer than that of this controller"));
        }
        self.stale += 1;
        let peer = self.agents.get(&id)?.peer.clone();
        let why = "it obeys a newer leader";
        if let Some(times) = self.log_limiter.count_to_log(self.now, &subject(&peer, why)) {
            tracing::warn!(peer, newest, times, "an agent refuses orders of this controller: it obeys a newer leader");
        }
        None
    }

    /// Number of times that agents refused orders of this controller, because they obey a newer leader.
    pub(crate) fn stale_orders(&self) -> u64 {
        self.stale
    }
}
