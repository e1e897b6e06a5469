//! The hosts of a fabric, as traffic needs them: numbered from 0, each with an access rate and its ToRs.

use pathloom_model::{Fabric, NodeId};
use std::collections::BTreeMap;

/// Hosts in the fabric's order. All functions use host numbers, not nodes.
pub(crate) struct Hosts<'a> {
    fabric: &'a Fabric,
    /// By host, the total rate of its interfaces, without those to a switch inside its server.
    rates_bps: Vec<u64>,
    /// Host numbers, ordered by the ToR of the first interface.
    by_tor: Vec<u32>,
    /// By host, the positions in `by_tor` of the hosts that share a ToR with it, itself included. They are ranges
    /// (first position and length) in order. A host with one interface has one range.
    near: Vec<Vec<(u32, u32)>>,
    numbers: BTreeMap<&'a str, u32>,
}

impl<'a> Hosts<'a> {
    /// The hosts of `fabric`.
    pub fn of(fabric: &'a Fabric) -> Hosts<'a> {
        let uplinks = |host: &NodeId| fabric.node(*host).ports.iter().map(|&port| fabric.link(port));
        let rate_bps = |host: &NodeId| {
            let outward = uplinks(host).filter(|link| !fabric.is_inside_server(link.to));
            outward.map(|link| link.settings.rate_bps).sum()
        };
        let tors: Vec<Vec<NodeId>> =
            fabric.hosts().iter().map(|host| uplinks(host).map(|link| link.to).collect()).collect();
        let mut by_tor: Vec<u32> = (0..tors.len() as u32).collect();
        by_tor.sort_by_key(|&number| tors[number as usize].first());
        let name = |(number, &host): (usize, &NodeId)| (fabric.node(host).name.as_str(), number as u32);
        Hosts {
            fabric,
            rates_bps: fabric.hosts().iter().map(rate_bps).collect(),
            near: neighbours(&tors, &by_tor),
            by_tor,
            numbers: fabric.hosts().iter().enumerate().map(name).collect(),
        }
    }

    /// Number of hosts, at least 2.
    pub fn len(&self) -> u32 {
        self.rates_bps.len() as u32
    }

    /// The fabric of the hosts.
    pub fn fabric(&self) -> &'a Fabric {
        self.fabric
    }

    /// The node of a host.
    pub fn node(&self, number: u32) -> NodeId {
        self.fabric.hosts()[number as usize]
    }

    /// The name of a host.
    pub fn name(&self, number: u32) -> &str {
        &self.fabric.node(self.node(number)).name
    }

    /// Total rate of the host's access links.
    pub fn rate_bps(&self, number: u32) -> f64 {
        self.rates_bps[number as usize] as f64
    }

    /// Highest propagation delay of the host's access links, without those inside its server.
    pub fn access_delay_ps(&self, number: u32) -> u64 {
        let links = self.fabric.node(self.node(number)).ports.iter().map(|&port| self.fabric.link(port));
        let outward = links.filter(|link| !self.fabric.is_inside_server(link.to));
        outward.map(|link| link.settings.delay_ps).max().unwrap_or(0)
    }

    /// Rate and delay of the host's link to the switch inside its server; `None` if there is none.
    pub fn inside_link(&self, number: u32) -> Option<(u64, u64)> {
        let mut links = self.fabric.node(self.node(number)).ports.iter().map(|&port| self.fabric.link(port));
        let inside = links.find(|link| self.fabric.is_inside_server(link.to))?;
        Some((inside.settings.rate_bps, inside.settings.delay_ps))
    }

    /// Number of hosts that share no ToR with this one.
    pub fn host_count_without_common_tor(&self, number: u32) -> u32 {
        self.len() - self.near[number as usize].iter().map(|range| range.1).sum::<u32>()
    }

    /// One of the hosts that share no ToR with this one. `choice` is below
    /// [`Hosts::host_count_without_common_tor`].
    pub fn nth_host_without_common_tor(&self, number: u32, choice: u32) -> u32 {
        let beyond = |place: u32, &(first, len): &(u32, u32)| if place < first { place } else { place + len };
        self.by_tor[self.near[number as usize].iter().fold(choice, beyond) as usize]
    }

    /// The hosts of each rack, that is, behind the ToR of their first interface.
    pub fn racks(&self) -> Vec<Vec<u32>> {
        let tor = |host: u32| self.fabric.host_attachments(self.node(host)).first().map(|at| at.tor);
        self.by_tor.chunk_by(|&one, &other| tor(one) == tor(other)).map(<[u32]>::to_vec).collect()
    }

    /// The hosts of each server with a switch inside ([`Fabric::is_inside_server`]), in order. None if servers have no such
    /// switches.
    pub fn servers(&self) -> Vec<Vec<u32>> {
        let mut servers: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for number in 0..self.len() {
            let attached = self.fabric.host_attachments(self.node(number));
            let inside = attached.iter().map(|at| at.tor).find(|&tor| self.fabric.is_inside_server(tor));
            if let Some(switch) = inside {
                servers.entry(switch).or_default().push(number);
            }
        }
        servers.into_values().collect()
    }

    /// Finds a host by its name, or by its number if no host has such a name.
    pub fn find(&self, text: &str) -> Result<u32, String> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(number);
        }
        match text.parse::<u32>() {
            Ok(number) if number < self.len() => Ok(number),
            _ => Err(format!(
                "`{text}` is not a host of the fabric; hosts are {} to {}, or 0 to {} by number",
                self.name(0),
                self.name(self.len() - 1),
                self.len() - 1
            )),
        }
    }

    /// The hosts as text, such as `16 hosts of 10 Mbps`.
    pub fn describe(&self) -> String {
        let low = self.rates_bps.iter().copied().min().unwrap_or(0);
        let high = self.rates_bps.iter().copied().max().unwrap_or(0);
        let rate = |rate_bps: u64| crate::quantity::rate(rate_bps as f64);
        if low == high {
            format!("{} hosts of {}", self.len(), rate(low))
        } else {
            format!("{} hosts of {} to {}", self.len(), rate(low), rate(high))
        }
    }
}

/// For each host, the positions in `by_tor` of all hosts that share a ToR with it, as ranges.
fn neighbours(tors: &[Vec<NodeId>], by_tor: &[u32]) -> Vec<Vec<(u32, u32)>> {
    let mut places: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
    for (place, &number) in by_tor.iter().enumerate() {
        for &tor in &tors[number as usize] {
            let of_tor = places.entry(tor).or_default();
            // Several interfaces of a host may lead to one ToR.
            if of_tor.last() != Some(&(place as u32)) {
                of_tor.push(place as u32);
            }
        }
    }
    let ranges: BTreeMap<NodeId, Vec<(u32, u32)>> = places.into_iter().map(|(tor, all)| (tor, ranges(all))).collect();
    let of_host = |tors: &Vec<NodeId>| match tors[..] {
        [tor] => ranges[&tor].clone(),
        _ => {
            let all = tors.iter().flat_map(|tor| &ranges[tor]).flat_map(|&(first, len)| first..first + len);
            let mut all: Vec<u32> = all.collect();
            all.sort_unstable();
            all.dedup();
            self::ranges(all)
        }
    };
    tors.iter().map(of_host).collect()
}

/// Ascending numbers as ranges: first number and length.
fn ranges(numbers: Vec<u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((first, len)) if *first + *len == number => *len += 1,
            _ => ranges.push((number, 1)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    fn tors(fabric: &Fabric, hosts: &Hosts, number: u32) -> Vec<NodeId> {
        fabric.host_attachments(hosts.node(number)).iter().map(|at| at.tor).collect()
    }

    #[test]
    fn elsewhere_has_all_hosts_that_share_no_tor() {
        for spec in
            ["jellyfish:switches=9,ports=6,hosts=12,homes=2", "jellyfish:switches=9,ports=6,hosts=12", "fat-tree:k=4"]
        {
            let fabric = fabric_from_spec(spec).unwrap();
            let hosts = Hosts::of(&fabric);
            for number in 0..hosts.len() {
                let own = tors(&fabric, &hosts, number);
                let shares = |other: &u32| tors(&fabric, &hosts, *other).iter().any(|tor| own.contains(tor));
                let expected: Vec<u32> = (0..hosts.len()).filter(|other| !shares(other)).collect();
                let mut found: Vec<u32> = (0..hosts.host_count_without_common_tor(number))
                    .map(|choice| hosts.nth_host_without_common_tor(number, choice))
                    .collect();
                found.sort_unstable();
                assert_eq!(found, expected, "{spec}: host {number}");
            }
        }
    }

    #[test]
    fn a_host_with_two_interfaces_sends_at_the_rate_of_both() {
        let spec = |homes| format!("jellyfish:switches=9,ports=6,hosts=12,homes={homes},rate=10Mbps");
        let rate_bps = |homes| Hosts::of(&fabric_from_spec(&spec(homes)).unwrap()).rate_bps(3);
        assert_eq!((rate_bps(1), rate_bps(2)), (10e6, 20e6));
    }
}
