//! The roles of this controller at switches (OpenFlow 1.3.4 §6.3.6), if several controllers hold a fabric.
//!
//! A hub that follows has a session with each switch, as a slave, and sends it nothing that changes it. When it leads, it
//! asks each switch for the role of the master with the number of its election. A session with a switch that has granted
//! it begins like any other session.

use crate::hub::connection::{AskedRole, Connection, Stage};
use pathloom_model::Nanos;
use pathloom_openflow::{ErrorMessage, Message, Role, RoleMessage, BAD_REQUEST, IS_SLAVE, ROLE_REQUEST_FAILED};

/// Time after which a role is asked for again that a switch has refused or not answered.
const ASKS_AGAIN_AFTER: Nanos = Nanos::from_secs(1);
/// Number of a switch that knows of no election (§6.3.6: the reply has the value -1).
const NO_ELECTION: u64 = u64::MAX;

/// What this controller is among those of its fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Standing {
    /// It is the only one, and asks for no role.
    #[default]
    Alone,
    /// Another one may lead.
    Follows,
    /// It leads by the election with this number.
    Leads(u64),
}

/// What an error of a switch says about roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The switch does not know roles.
    NoRoles,
    /// The switch has a newer leader. `stood`: whether this controller could change it before.
    NewerLeader { stood: bool },
}

/// What this controller is, and what switches say about that.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    standing: Standing,
    was_refused: bool,
    /// Whether the log says that a switch refuses this leader from the beginning.
    is_refusal_logged: bool,
}

impl Roles {
    /// Changes what the controller is.
    pub(crate) fn set(&mut self, standing: Standing) {
        self.standing = standing;
        self.is_refusal_logged = false;
    }

    /// Whether this is the only controller.
    pub(crate) fn is_alone(&self) -> bool {
        self.standing == Standing::Alone
    }

    /// Whether a switch has refused this controller as the leader since the last call.
    pub(crate) fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.was_refused)
    }

    /// Asks a switch for the role that the controller wants, if the switch is known.
    pub(crate) fn ask(&self, now: Nanos, connection: &mut Connection) {
        // A follower asks for the number of the last election first, without which no switch makes it a slave.
        let (role, generation) = match self.standing {
            Standing::Alone => return,
            Standing::Follows => (Role::NoChange, 0),
            Standing::Leads(election) => (Role::Master, election),
        };
        request(now, connection, RoleMessage { role, generation });
    }

    /// A switch has granted a role. Returns its datapath identifier if a session must begin.
    pub(crate) fn granted(
        &self,
        now: Nanos,
        connection: &mut Connection,
        xid: u32,
        granted: RoleMessage,
    ) -> Option<u64> {
        connection.asked_role.take_if(|asked| asked.xid == xid)?;
        match (self.standing, granted.role, connection.stage) {
            (Standing::Leads(_), Role::Master, Stage::Standby { dpid }) => Some(dpid),
            (Standing::Follows, Role::Equal | Role::Master, _) => {
                let generation = if granted.generation == NO_ELECTION { 0 } else { granted.generation };
                request(now, connection, RoleMessage { role: Role::Slave, generation });
                None
            }
            _ => None,
        }
    }

    /// Handles an error, if it is about roles. The role is asked for again after a while, because this controller may lead
    /// anew.
    pub(crate) fn refused(
        &mut self,
        now: Nanos,
        connection: &mut Connection,
        xid: u32,
        error: &ErrorMessage<'_>,
    ) -> Option<Refusal> {
        let is_answer = connection.asked_role.is_some_and(|asked| asked.xid == xid);
        let is_of_roles = error.kind == ROLE_REQUEST_FAILED || (error.kind, error.code) == (BAD_REQUEST, IS_SLAVE);
        if self.is_alone() || !is_of_roles {
            return is_answer.then_some(Refusal::NoRoles);
        }
        self.was_refused |= matches!(self.standing, Standing::Leads(_));
        connection.asked_role.get_or_insert(AskedRole { xid: 0, at: now });
        let stood = match connection.stage {
            Stage::Up { dpid } | Stage::Ports { dpid } => {
                tracing::warn!(peer = %connection.peer, switch = format!("{dpid:016x}"), "a switch has a newer leader");
                connection.stand_by(dpid);
                true
            }
            _ => {
                self.log_refusal(connection);
                false
            }
        };
        Some(Refusal::NewerLeader { stood })
    }

    /// Logs once for each election that a switch has never granted the leader's role.
    fn log_refusal(&mut self, connection: &Connection) {
        let Standing::Leads(election) = self.standing else { return };
        if !std::mem::replace(&mut self.is_refusal_logged, true) {
            tracing::error!(
                peer = %connection.peer,
                election,
                "a switch knows of a newer election; if etcd was restored from a backup, run `pathloom-controller restored`"
            );
        }
    }

    /// Whether to ask again for a role that was refused or whose answer is late.
    pub(crate) fn is_due(now: Nanos, connection: &Connection) -> bool {
        connection.asked_role.is_some_and(|asked| now.saturating_sub(asked.at) >= ASKS_AGAIN_AFTER)
    }
}

fn request(now: Nanos, connection: &mut Connection, wanted: RoleMessage) {
    if connection.is_identified() {
        let xid = connection.queue(&Message::RoleRequest(wanted));
        connection.asked_role = Some(AskedRole { xid, at: now });
    }
}
