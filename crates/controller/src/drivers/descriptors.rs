//! File descriptors: the process raises its limit as far as it may, and divides what it has, so that connections of the
//! API take none that switches and host agents need.

use crate::config::CheckedConfig;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Descriptors for files, listening sockets, the runtime, and connections that are closed at once.
const OWN: usize = 64;
/// TLS handshakes of switches and of agents, before their connections count.
const HANDSHAKES: usize = crate::drivers::encrypted::HANDSHAKES + crate::drivers::agents::HANDSHAKES;
/// The API keeps this many connections, whatever the limit is, so that an operator can still ask.
const LEAST: usize = 2;

/// Numbers of connections by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Connections {
    switches: usize,
    agents: usize,
    api: usize,
    paths: usize,
}

/// Raises the limit of open files to the highest that this process may have. Lowers the maximum numbers of connections in
/// the configuration if they do not fit into it.
pub(crate) fn fit(checked: &mut CheckedConfig) {
    let Some(limit) = raise_limit() else { return };
    let config = &mut checked.config;
    let agents_connect = config.hosts.unix.is_some() || config.hosts.address.is_some();
    let hosts = if agents_connect { checked.fabric.hosts().len() } else { 0 };
    let needed = (checked.fabric.switches().len(), hosts.min(config.hosts.agents));
    let wanted = Connections {
        switches: config.limits.connections,
        agents: if agents_connect { config.hosts.agents } else { 0 },
        api: checked.api.as_ref().map_or(0, |api| api.limits.connections),
        paths: checked.paths.as_ref().map_or(0, |paths| paths.limits.connections),
    };
    let tls = config.listen.tls.is_some() || config.hosts.tls.is_some();
    let own = if tls { OWN + HANDSHAKES } else { OWN };
    let fitting = divide(limit.saturating_sub(own), needed, wanted);
    (config.limits.connections, config.hosts.agents) = (fitting.switches, fitting.agents.max(1));
    checked.api.iter_mut().for_each(|api| api.limits.connections = fitting.api);
    checked.paths.iter_mut().for_each(|paths| paths.limits.connections = fitting.paths);
    if fitting != wanted {
        let Connections { switches, agents, api, paths } = fitting;
        tracing::warn!(
            limit,
            switches,
            agents,
            api,
            paths,
            "few file descriptors: fewer connections than configured; raise LimitNOFILE of the unit, or `ulimit -Hn`"
        );
    }
}

/// Raises the soft limit of open files to the hard one. Returns the limit; `None` for no limit.
fn raise_limit() -> Option<usize> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current };
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Divides descriptors: first those that the switches of the fabric and the agents of its hosts need, then those of the API
/// and of the applications, in proportion to what they want. The rest is for further connections of switches and agents.
fn divide(descriptors: usize, (switches, agents): (usize, usize), wanted: Connections) -> Connections {
    let rest = descriptors.saturating_sub(switches.saturating_add(agents));
    let clients = wanted.api.saturating_add(wanted.paths);
    let share = |most: usize| match clients <= rest {
        true => most,
        false => most.min((most as u128 * rest as u128 / clients as u128) as usize).max(LEAST.min(most)),
    };
    let (api, paths) = (share(wanted.api), share(wanted.paths));
    let half = rest.saturating_sub(api + paths) / 2;
    Connections {
        switches: wanted.switches.min(switches.saturating_add(half)),
        agents: wanted.agents.min(agents.saturating_add(half)),
        api,
        paths,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WANTED: Connections = Connections { switches: 4096, agents: 1024, api: 64, paths: 256 };

    #[test]
    fn switches_and_agents_come_first() {
        assert_eq!(divide(1 << 20, (20, 16), WANTED), WANTED);
        let few = Connections { switches: 20, agents: 16, api: 8, paths: 32 };
        assert_eq!(divide(76, (20, 16), WANTED), few);
        let none_left = Connections { switches: 20, agents: 16, api: LEAST, paths: LEAST };
        assert_eq!(divide(0, (20, 16), WANTED), none_left);
        let some = Connections { switches: 20 + 90, agents: 16 + 90, api: 64, paths: 256 };
        assert_eq!(divide(536, (20, 16), WANTED), some);
    }

    proptest! {
        #[test]
        fn the_sum_fits(descriptors in 0usize..10_000, switches in 0usize..3000, agents in 0usize..1024,
            api in 0usize..300, paths in 0usize..300,
        ) {
            let wanted = Connections { switches: 4096, agents: 1024, api, paths };
            let fitting = divide(descriptors, (switches, agents), wanted);
            let sum = fitting.switches + fitting.agents + fitting.api + fitting.paths;
            prop_assert!(sum <= descriptors.max(switches + agents) + 2 * LEAST, "{fitting:?}");
            prop_assert!(fitting.switches >= switches && fitting.agents >= agents);
        }
    }
}
