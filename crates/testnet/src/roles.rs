//! The roles of controllers at a switch (§6.3.6).

use pathloom_openflow::{Kind, Role, RoleMessage, BAD_REQUEST, IS_SLAVE, ROLE_REQUEST_FAILED, STALE};
use std::collections::BTreeMap;

/// The roles of the connections of a switch.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    /// Connections that have asked for a role. All begin as equals. A connection that is over keeps its role, because the
    /// switch may still carry out what it has received before.
    of: BTreeMap<usize, Role>,
    /// Number of the last election that the switch knows.
    generation: Option<u64>,
    /// Number of messages that were refused because a slave sent them.
    pub slave_refusals: u64,
    /// Number of role requests that were refused because their number was old.
    pub stale_requests: u64,
}

impl Roles {
    /// The role of a connection.
    pub fn role(&self, connection: usize) -> Role {
        self.of.get(&connection).copied().unwrap_or(Role::Equal)
    }

    /// The connection of the master.
    pub fn master(&self) -> Option<usize> {
        self.of.iter().find(|(_, role)| **role == Role::Master).map(|(&connection, _)| connection)
    }

    /// Number of the last election that the switch knows.
    pub fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// Handles a request for a role. Returns the answer, or the kind and code of the error. `ignores_age`: whether the
    /// switch breaks the specification by granting roles of old elections.
    pub(crate) fn request(
        &mut self,
        connection: usize,
        asked: RoleMessage,
        ignores_age: bool,
    ) -> Result<RoleMessage, (u16, u16)> {
        if matches!(asked.role, Role::Master | Role::Slave) {
            // The numbers are cyclic: what counts is the sign of their difference.
            let is_old = |known: u64| (asked.generation.wrapping_sub(known) as i64) < 0;
            if !ignores_age && self.generation.is_some_and(is_old) {
                self.stale_requests += 1;
                return Err((ROLE_REQUEST_FAILED, STALE));
            }
            self.generation = Some(asked.generation);
        }
        if asked.role == Role::Master {
            // The master before becomes a slave, and is not informed.
            self.of.values_mut().filter(|role| **role == Role::Master).for_each(|role| *role = Role::Slave);
        }
        if asked.role != Role::NoChange {
            self.of.insert(connection, asked.role);
        }
        Ok(RoleMessage { role: self.role(connection), generation: self.generation.unwrap_or(u64::MAX) })
    }

    /// Refuses what a slave must not do.
    pub(crate) fn permit(&mut self, connection: usize, kind: u8) -> Result<(), (u16, u16)> {
        // The specification does not name meters. Open vSwitch refuses them too.
        let changes = matches!(kind, Kind::PACKET_OUT | Kind::FLOW_MOD | Kind::GROUP_MOD | Kind::METER_MOD);
        if changes && self.role(connection) == Role::Slave {
            self.slave_refusals += 1;
            return Err((BAD_REQUEST, IS_SLAVE));
        }
        Ok(())
    }

    /// Whether a connection gets messages of this kind that it has not asked for. Slaves are told about ports only.
    pub(crate) fn hears(&self, connection: usize, kind: u8) -> bool {
        kind == Kind::PORT_STATUS || self.role(connection) != Role::Slave
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(roles: &mut Roles, connection: usize, role: Role, generation: u64) -> Result<Role, (u16, u16)> {
        roles.request(connection, RoleMessage { role, generation }, false).map(|answer| answer.role)
    }

    #[test]
    fn a_new_master_makes_the_old_one_a_slave() {
        let mut roles = Roles::default();
        assert_eq!(roles.permit(1, Kind::FLOW_MOD), Ok(()), "an equal may do everything");
        assert_eq!(ask(&mut roles, 1, Role::Master, 5), Ok(Role::Master));
        assert_eq!(ask(&mut roles, 2, Role::Slave, 5), Ok(Role::Slave));
        assert_eq!(ask(&mut roles, 2, Role::Master, 7), Ok(Role::Master));
        assert_eq!((roles.role(1), roles.master()), (Role::Slave, Some(2)));
        assert_eq!(roles.permit(1, Kind::FLOW_MOD), Err((BAD_REQUEST, IS_SLAVE)));
        assert_eq!(roles.permit(1, Kind::MULTIPART_REQUEST), Ok(()), "a slave may read");
        assert!(
            roles.hears(1, Kind::PORT_STATUS) && !roles.hears(1, Kind::PACKET_IN) && roles.hears(2, Kind::PACKET_IN)
        );
    }

    #[test]
    fn old_elections_are_refused() {
        let mut roles = Roles::default();
        assert_eq!(ask(&mut roles, 1, Role::Master, 7), Ok(Role::Master));
        for role in [Role::Master, Role::Slave] {
            assert_eq!(ask(&mut roles, 2, role, 6), Err((ROLE_REQUEST_FAILED, STALE)));
        }
        assert_eq!(ask(&mut roles, 2, Role::Equal, 0), Ok(Role::Equal), "the number does not count");
        assert_eq!(ask(&mut roles, 2, Role::NoChange, 0), Ok(Role::Equal));
        assert_eq!((roles.generation(), roles.stale_requests), (Some(7), 2));
    }

    #[test]
    fn numbers_of_elections_wrap_around() {
        let mut roles = Roles::default();
        assert_eq!(ask(&mut roles, 1, Role::Master, u64::MAX), Ok(Role::Master));
        assert_eq!(ask(&mut roles, 2, Role::Master, 3), Ok(Role::Master));
        assert_eq!(ask(&mut roles, 1, Role::Master, u64::MAX), Err((ROLE_REQUEST_FAILED, STALE)));
    }
}
