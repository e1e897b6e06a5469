//! Addresses that the fabric does not lay out and that the configuration puts at hosts' ports.

use pathloom_model::{Address, Fabric, NodeId, PortNo, Prefix};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A place of the fabric: a switch and its port that leads to a host.
pub(crate) type HostPort = (NodeId, PortNo);

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
    let address: Address = address.parse::<Ipv4Addr>().map_err(|_| wrong())?.into();
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

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    fn given(at: &str, prefixes: &[&str]) -> AddressesAt {
        AddressesAt { at: at.into(), prefixes: prefixes.iter().map(|&text| text.into()).collect() }
    }

    #[test]
    fn prefixes_are_placed_at_hosts_and_invalid_ones_are_named() {
        let fabric = fabric_from_spec("fat-tree:k=4").unwrap();
        let all = [given("h15", &["0.0.0.0/0", "192.168.5.0/24"]), given("h3", &["10.0.0.1", "10.200.0.0/16"])];
        let placed = places(&fabric, &all).unwrap();
        assert_eq!(placed.len(), 4);
        let h3 = fabric.host_attachments(fabric.find("h3").unwrap())[0];
        let h3 = (h3.tor, fabric.link(h3.uplink).to_port);
        assert!(placed.contains(&(Prefix::host(Address::new(10, 0, 0, 1)), h3)));
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
}
