//! Addresses that hosts use in ARP and that the fabric does not lay out at their ports: which of them get routes.

use crate::config::HostPort;
use crate::hub::log_limiter::LogLimiter;
use pathloom_control::Input;
use pathloom_model::{Fabric, Nanos, Prefix};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Number of requests for an address without an answer after which its route is removed.
const QUESTIONS: u32 = 12;

/// Decides about the addresses that hosts use in ARP.
pub(crate) struct Learnt {
    fabric: Arc<Fabric>,
    /// Whether any address may be learnt, or only those of the fabric at their own ports.
    any: bool,
    allowed: Vec<Prefix>,
    most: usize,
    /// Addresses of the configuration.
    fixed: BTreeMap<Prefix, HostPort>,
    placed: BTreeSet<Ipv4Addr>,
    /// Addresses with a route for which no host has sent ARP, and the number of requests so far.
    unconfirmed: BTreeMap<Ipv4Addr, u32>,
    log_limiter: LogLimiter,
    refused: BTreeMap<&'static str, u64>,
}

impl Learnt {
    pub(crate) fn new(
        fabric: Arc<Fabric>,
        (any, allowed, most): (bool, Vec<Prefix>, usize),
        fixed: &[(Prefix, HostPort)],
    ) -> Learnt {
        Learnt {
            fabric,
            any,
            allowed,
            most,
            fixed: fixed.iter().copied().collect(),
            placed: BTreeSet::new(),
            unconfirmed: BTreeMap::new(),
            log_limiter: LogLimiter::default(),
            refused: BTreeMap::new(),
        }
    }

    /// How often addresses were refused, by reason.
    pub(crate) fn refused(&self) -> &BTreeMap<&'static str, u64> {
        &self.refused
    }

    /// The port at which the fabric or the configuration has an address.
    fn configured_port(&self, address: Ipv4Addr) -> Option<HostPort> {
        let fixed = self.fixed.get(&Prefix::host(address.into())).copied();
        let laid_out =
            || self.fabric.attachment(address.into()).map(|at| (at.tor, self.fabric.link(at.uplink).to_port));
        fixed.or_else(laid_out)
    }

    /// Handles a host that uses an address at a port. Returns the input for the controller.
    pub(crate) fn learnt(&mut self, now: Nanos, address: Ipv4Addr, at: HostPort, port: &str) -> Option<Input> {
        self.unconfirmed.remove(&address);
        let configured = self.configured_port(address);
        if configured == Some(at) {
            // An earlier start of the controller may have had it elsewhere, so its route goes in any case.
            self.placed.remove(&address);
            return Some(self.restore_input(address));
        }
        let faces_host =
            self.fabric.out_link(at.0, at.1).is_some_and(|link| self.fabric.is_host(self.fabric.link(link).to));
        let allowed = self.allowed.iter().any(|prefix| prefix.contains(address.into())) && is_of_a_host(address);
        let why = if !faces_host {
            (
                "host_at_strange_port",
                "the fabric has no host at this port; add it to fabric.spec, or cable the host elsewhere",
            )
        } else if !self.any {
            ("address_not_in_fabric", "the fabric does not have it at this port, and discovery.addresses is \"fabric\"")
        } else if !allowed && configured.is_none() {
            ("address_not_allowed", "it is not in discovery.prefixes")
        } else if self.placed.len() >= self.most && !self.placed.contains(&address) {
            ("too_many_addresses", "discovery.most_addresses are learnt already")
        } else {
            self.placed.insert(address);
            return Some(Input::Place { prefix: Prefix::host(address.into()), at: Some(at) });
        };
        *self.refused.entry(why.0).or_default() += 1;
        if let Some(times) = self.log_limiter.count_to_log(now, &format!("{port} {}", why.0)) {
            tracing::warn!(port, %address, why = why.1, times, "an address gets no route");
        }
        None
    }

    /// Handles an address that no host uses any more.
    pub(crate) fn gone(&mut self, address: Ipv4Addr) -> Option<Input> {
        self.unconfirmed.remove(&address);
        self.placed.remove(&address).then(|| self.restore_input(address))
    }

    fn restore_input(&self, address: Ipv4Addr) -> Input {
        let prefix = Prefix::host(address.into());
        Input::Place { prefix, at: self.fixed.get(&prefix).copied() }
    }

    /// Handles an address that has a route from an earlier start and for which no host has sent ARP. Returns whether
    /// to send a request for it. After too many requests, the error is the input that removes the route.
    pub(crate) fn ask_again(&mut self, address: Ipv4Addr) -> Result<bool, Input> {
        if self.fixed.contains_key(&Prefix::host(address.into())) {
            return Ok(false);
        }
        self.placed.insert(address);
        let asked = self.unconfirmed.entry(address).or_default();
        *asked += 1;
        if *asked <= QUESTIONS {
            return Ok(true);
        }
        Err(self.gone(address).unwrap_or_else(|| self.restore_input(address)))
    }
}

/// Whether a host may have this address (RFC 6890: not in "this" network, loopback, link-local, multicast or reserved).
fn is_of_a_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    !(first == 0 || address.is_loopback() || address.is_link_local() || first >= 224)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::prefixes;
    use pathloom_fabrics::fabric_from_spec;
    use pathloom_model::PortNo;

    fn k4() -> Arc<Fabric> {
        Arc::new(fabric_from_spec("fat-tree:k=4").unwrap())
    }

    fn at(fabric: &Fabric, host: &str) -> HostPort {
        let at = fabric.host_attachments(fabric.find(host).unwrap())[0];
        (at.tor, fabric.link(at.uplink).to_port)
    }

    #[test]
    fn addresses_of_hosts_are_placed_moved_and_removed() {
        let fabric = k4();
        let allowed = prefixes("", &["10.0.0.0/8".into(), "192.168.0.0/16".into()]).unwrap();
        let mut learnt = Learnt::new(fabric.clone(), (true, allowed, 2), &[]);
        let [h0, h9] = ["h0", "h9"].map(|host| at(&fabric, host));
        let (own, strange) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 168, 1, 1));
        let place = |address: Ipv4Addr, at| Some(Input::Place { prefix: Prefix::host(address.into()), at });
        assert_eq!(learnt.learnt(Nanos(0), own, h0, "p"), place(own, None), "where the fabric has it");
        assert_eq!(learnt.learnt(Nanos(0), own, h9, "p"), place(own, Some(h9)));
        assert_eq!(learnt.learnt(Nanos(0), own, h0, "p"), place(own, None), "back home");
        assert_eq!(learnt.learnt(Nanos(0), strange, h9, "p"), place(strange, Some(h9)));
        assert_eq!(learnt.gone(strange), place(strange, None));
        assert_eq!(learnt.gone(strange), None);
        for address in ["8.8.8.8", "169.254.0.1", "127.0.0.1", "224.0.0.1"] {
            assert_eq!(learnt.learnt(Nanos(0), address.parse().unwrap(), h0, "p"), None, "{address}");
        }
        assert_eq!(learnt.learnt(Nanos(0), strange, (h0.0, PortNo(9)), "p"), None, "no such port");
        for last in 1..=3 {
            learnt.learnt(Nanos(0), Ipv4Addr::new(192, 168, 2, last), h0, "p");
        }
        let counts = [("address_not_allowed", 4), ("host_at_strange_port", 1), ("too_many_addresses", 1)];
        assert_eq!(learnt.refused().iter().map(|(&why, &count)| (why, count)).collect::<Vec<_>>(), counts);
    }

    #[test]
    fn an_address_without_arp_is_forgotten_after_too_many_requests() {
        let fabric = k4();
        let (kept, lost) = (Ipv4Addr::new(192, 168, 1, 1), Ipv4Addr::new(192, 168, 1, 2));
        let fixed = [(Prefix::host(kept.into()), at(&fabric, "h0"))];
        let mut learnt = Learnt::new(fabric, (true, Vec::new(), 9), &fixed);
        assert!((0..QUESTIONS).all(|_| learnt.ask_again(lost) == Ok(true)));
        assert_eq!(learnt.ask_again(lost), Err(Input::Place { prefix: Prefix::host(lost.into()), at: None }));
        assert_eq!(learnt.ask_again(kept), Ok(false), "the configuration has it");
    }
}
