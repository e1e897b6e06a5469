//! The agent as path manager of the kernel's MPTCP (`net.mptcp.pm_type=1`). It opens the further subflows of every
//! connection, and reopens subflows that fail. [`manager`] is the state machine, [`wire`] contains the messages of
//! generic netlink, and [`link`] the sockets. Each network namespace has a separate manager.

pub mod link;
pub mod manager;
pub mod wire;

#[cfg(test)]
mod tests;

use crate::config::{Config, Mptcp};
use crate::namespaces::Namespace;
use crate::run::register;
use link::Link;
use manager::{Denial, Denied, Manager, Settings};
use pathloom_daemon_support::system::monotonic_ns;
use pathloom_model::Nanos;
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

/// A manager and its sockets to the kernel.
pub struct PathManager {
    manager: Manager,
    link: Link,
    place: String,
    /// Number of subflows that each address did not accept, by cause.
    denied: BTreeMap<(Ipv4Addr, Denial), u64>,
}

/// Maximum number of addresses and causes in [`PathManager::denied`]. It starts again after that.
const MOST_DENIED: usize = 1024;

/// Opens a manager for each namespace of the hosts, or none if the configuration has no `[mptcp]`. The error is one
/// line.
pub fn open(config: &Config) -> Result<Vec<PathManager>, String> {
    let Some(mptcp) = &config.mptcp else { return Ok(Vec::new()) };
    let mut by_namespace: BTreeMap<Option<PathBuf>, Vec<_>> = BTreeMap::new();
    for host in &config.hosts {
        by_namespace.entry(host.namespace.clone()).or_default().extend(&host.addresses);
    }
    by_namespace.into_iter().map(|(path, own)| open_one(mptcp, path, own)).collect()
}

fn open_one(mptcp: &Mptcp, path: Option<PathBuf>, own: Vec<Ipv4Addr>) -> Result<PathManager, String> {
    let place = path.as_ref().map_or("the agent's namespace".into(), |path| format!("namespace {}", path.display()));
    let opened = Namespace::open(path.as_deref()).map_err(|problem| problem.to_string());
    let link = opened.and_then(|namespace| Link::open(&namespace));
    let link = link.map_err(|problem| format!("mptcp: {place}: {problem}"))?;
    let manager = Manager::new(Settings { subflows: mptcp.subflows, pairs: mptcp.manager, own });
    Ok(PathManager { manager, link, place, denied: BTreeMap::new() })
}

fn now() -> Nanos {
    Nanos(monotonic_ns())
}

impl PathManager {
    /// Manages the subflows until the communication with the kernel fails.
    pub async fn keep(mut self) {
        if let Err(problem) = self.turn().await {
            tracing::error!(%problem, place = self.place, "the agent no longer manages MPTCP subflows");
        }
    }

    async fn turn(&mut self) -> io::Result<()> {
        let events = register(self.link.events_fd()?)?;
        loop {
            let due = self.manager.poll_timeout().map(|at| Duration::from_nanos(at.saturating_sub(now()).0));
            tokio::select! {
                ready = events.readable() => {
                    ready?.clear_ready();
                    let heard = self.link.read_events()?;
                    if heard.lost {
                        tracing::warn!(place = self.place, "MPTCP events were lost; connections keep their subflows");
                        self.manager.handle_loss();
                    }
                    heard.events.into_iter().for_each(|event| {
                        tracing::debug!(place = self.place, ?event, "MPTCP");
                        self.manager.handle_event(now(), event);
                    });
                }
                () = sleep(due.unwrap_or(Duration::from_secs(3600))) => {}
            }
            self.manager.handle_time(now());
            self.carry_out()?;
            while let Some(denied) = self.manager.poll_denied() {
                self.report(&denied);
            }
        }
    }

    /// Logs what another end does not accept: at first, and whenever the number has at least doubled.
    fn report(&mut self, denied: &Denied) {
        let &Denied { remote, subflows, why } = denied;
        let key = (*remote.ip(), why);
        if self.denied.len() >= MOST_DENIED && !self.denied.contains_key(&key) {
            self.denied.clear();
        }
        let count = self.denied.entry(key).or_default();
        let before = *count;
        *count += subflows;
        if before.checked_ilog2() != count.checked_ilog2() {
            tracing::warn!(place = self.place, %remote, subflows = *count, "MPTCP subflows were not opened: {why}");
        }
    }

    fn carry_out(&mut self) -> io::Result<()> {
        while let Some(request) = self.manager.poll_request() {
            if let Err(error) = self.link.ask(&request)? {
                tracing::debug!(place = self.place, ?request, error, "the kernel refused a request");
                self.manager.handle_refusal(now(), &request, error);
            }
        }
        Ok(())
    }
}
