//! Addresses that the fabric does not lay out: those that the configuration puts at hosts' ports, and those that hosts
//! use in ARP and that get routes.

use crate::log_limiter::LogLimiter;
use pathloom_control::Input;
use pathloom_model::{Fabric, Nanos, NodeId, PortNo, Prefix};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A place of the fabric: a switch and its port that leads to a host.
pub(crate) type HostPort = (NodeId, PortNo);

/// Number of requests for an address without an answer after which its route is removed.
const QUESTIONS: u32 = 12;

/// Addresses at the port of a host: of virtual machines and containers, or of networks behind a router.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressesAt {
    /// Name of the host in the fabric. Its first port is used.
    pub at: String,
    /// For example `192.168.5.0/24`; `0.0.0.0/0` for all addresses that are nowhere else.
    pub prefixes: Vec<String>,
}

/// Reads a prefix.
fn prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("`{text}` is not a prefix; ADDRESS/LENGTH was expected, as in 192.168.5.0/24");
    let (address, len) = text.split_once('/').unwrap_or((text, "32"));
    let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
    let len: u8 = len.parse().ok().filter(|&len| len <= 32).ok_or_else(wrong)?;
    let prefix = Prefix::new(address, len);
    if prefix.address != address {
        return Err(format!("`{text}` has bits beyond its length; {}/{len} was expected", prefix.address));
    }
    Ok(prefix)
}

/// Reads a list of prefixes; `place` is its place in the configuration.
pub(crate) fn prefixes(place: &str, texts: &[String]) -> Result<Vec<Prefix>, String> {
    texts.iter().map(|text| prefix(text).map_err(|problem| format!("{place}: {problem}"))).collect()
}

/// The ports at which the configuration puts prefixes.
pub(crate) fn places(fabric: &Fabric, given: &[AddressesAt]) -> Result<Vec<(Prefix, HostPort)>, String> {
    let mut places: BTreeMap<Prefix, HostPort> = BTreeMap::new();
    for AddressesAt { at, prefixes: texts } in given {
        let place = format!("addresses.{at}");
        let host = fabric.find(at).filter(|&node| fabric.is_host(node));
        let host = host.ok_or(format!("{place}: the fabric has no host of this name; see pathloom fabric show"))?;
        let port = fabric.host_attachments(host)[0];
        let port = (port.tor, fabric.link(port.uplink).to_port);
        for prefix in prefixes(&place, texts)? {
            if let Some(own) = overlap(fabric, prefix) {
                return Err(format!(
                    "{place}: {}/{} overlaps {}/{} of the fabric's own addresses; choose a longer prefix beside them, \
                     single addresses, or one that holds all of 10.0.0.0/8",
                    prefix.address, prefix.len, own.address, own.len
                ));
            }
            if places.insert(prefix, port).is_some_and(|other| other != port) {
                return Err(format!("{place}: {}/{} is at another port already", prefix.address, prefix.len));
            }
        }
    }
    Ok(places.into_iter().collect())
}

/// A prefix of the fabric that this one overlaps.
fn overlap(fabric: &Fabric, prefix: Prefix) -> Option<Prefix> {
    if prefix.len == 32 || prefix.len < fabric.whole_prefix().len {
        return None;
    }
    let own = fabric.tors().iter().filter_map(|&tor| fabric.tor_prefix(tor));
    own.into_iter().find(|own| own.contains(prefix.address) || prefix.contains(own.address))
}

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
        let fixed = self.fixed.get(&Prefix::host(address)).copied();
        let laid_out = || self.fabric.attachment(address).map(|at| (at.tor, self.fabric.link(at.uplink).to_port));
        fixed.or_else(laid_out)
    }

    /// Handles a host that uses an address at a port. Returns the input for the controller.
    pub(crate) fn learnt(&mut self, now: Nanos, address: Ipv4Addr, at: HostPort, port: &str) -> Option<Input> {
        self.unconfirmed.remove(&address);
        let configured = self.configured_port(address);
        if configured == Some(at) {
            return self.placed.remove(&address).then(|| self.restore_input(address));
        }
        let faces_host =
            self.fabric.out_link(at.0, at.1).is_some_and(|link| self.fabric.is_host(self.fabric.link(link).to));
        let allowed = self.allowed.iter().any(|prefix| prefix.contains(address)) && is_of_a_host(address);
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
            return Some(Input::Place { prefix: Prefix::host(address), at: Some(at) });
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
        let prefix = Prefix::host(address);
        Input::Place { prefix, at: self.fixed.get(&prefix).copied() }
    }

    /// Handles an address that has a route from an earlier start and for which no host has sent ARP. Returns whether
    /// to send a request for it. After too many requests, the error is the input that removes the route.
    pub(crate) fn ask_again(&mut self, address: Ipv4Addr) -> Result<bool, Input> {
        if self.fixed.contains_key(&Prefix::host(address)) {
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
    use pathloom_fabrics::fabric_from_spec;

    fn k4() -> Arc<Fabric> {
        Arc::new(fabric_from_spec("fat-tree:k=4").unwrap())
    }

    fn at(fabric: &Fabric, host: &str) -> HostPort {
        let at = fabric.host_attachments(fabric.find(host).unwrap())[0];
        (at.tor, fabric.link(at.uplink).to_port)
    }

    fn given(at: &str, prefixes: &[&str]) -> AddressesAt {
        AddressesAt { at: at.into(), prefixes: prefixes.iter().map(|&text| text.into()).collect() }
    }

    #[test]
    fn prefixes_are_placed_at_hosts_and_invalid_ones_are_named() {
        let fabric = k4();
        let all = [given("h15", &["0.0.0.0/0", "192.168.5.0/24"]), given("h3", &["10.0.0.1", "10.200.0.0/16"])];
        let placed = places(&fabric, &all).unwrap();
        assert_eq!(placed.len(), 4);
        assert!(placed.contains(&(Prefix::host(Ipv4Addr::new(10, 0, 0, 1)), at(&fabric, "h3"))));
        let cases = [
            ("h99", "1.2.3.0/24", "no host"),
            ("e0_0", "1.2.3.0/24", "no host"),
            ("h0", "1.2.3", "ADDRESS/LENGTH"),
            ("h0", "1.2.3.0/33", "ADDRESS/LENGTH"),
            ("h0", "1.2.3.4/24", "1.2.3.0/24"),
            ("h0", "10.0.0.0/16", "overlaps"),
            ("h0", "10.0.2.128/25", "overlaps"),
            ("h0", "10.0.0.0/8", "overlaps"),
        ];
        for (host, text, words) in cases {
            let problem = places(&fabric, &[given(host, &[text])]).unwrap_err();
            assert!(problem.contains(words) && problem.starts_with("addresses."), "{text}: {problem}");
        }
        let twice = [given("h0", &["192.168.5.0/24"]), given("h1", &["192.168.5.0/24"])];
        assert!(places(&fabric, &twice).unwrap_err().contains("another port"));
    }

    #[test]
    fn addresses_of_hosts_are_placed_moved_and_removed() {
        let fabric = k4();
        let allowed = prefixes("", &["10.0.0.0/8".into(), "192.168.0.0/16".into()]).unwrap();
        let mut learnt = Learnt::new(fabric.clone(), (true, allowed, 2), &[]);
        let [h0, h9] = ["h0", "h9"].map(|host| at(&fabric, host));
        let (own, strange) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 168, 1, 1));
        let place = |address, at| Some(Input::Place { prefix: Prefix::host(address), at });
        assert_eq!(learnt.learnt(Nanos(0), own, h0, "p"), None, "where the fabric has it");
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
        let fixed = [(Prefix::host(kept), at(&fabric, "h0"))];
        let mut learnt = Learnt::new(fabric, (true, Vec::new(), 9), &fixed);
        assert!((0..QUESTIONS).all(|_| learnt.ask_again(lost) == Ok(true)));
        assert_eq!(learnt.ask_again(lost), Err(Input::Place { prefix: Prefix::host(lost), at: None }));
        assert_eq!(learnt.ask_again(kept), Ok(false), "the configuration has it");
    }
}
