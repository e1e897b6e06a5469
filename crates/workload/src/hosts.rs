//! The hosts of a fabric as traffic sees them: numbered from 0, each with an access rate and a ToR.

use pathloom_model::{Fabric, NodeId};
use std::collections::BTreeMap;

/// Hosts in the fabric's order. Everything here is by host number, not by node.
pub(crate) struct Hosts<'a> {
    fabric: &'a Fabric,
    rates_bps: Vec<u64>,
    /// Host numbers, grouped by ToR.
    by_tor: Vec<u32>,
    /// Where the group of each host lies in `by_tor`: first position and length.
    group: Vec<(u32, u32)>,
    numbers: BTreeMap<&'a str, u32>,
}

impl<'a> Hosts<'a> {
    /// The hosts of `fabric`. A host with several ports counts by its first: that port's rate, that port's ToR.
    pub fn of(fabric: &'a Fabric) -> Hosts<'a> {
        let uplink = |&host: &NodeId| fabric.link(fabric.node(host).ports[0]);
        let tors: Vec<NodeId> = fabric.hosts().iter().map(|host| uplink(host).to).collect();
        let mut by_tor: Vec<u32> = (0..tors.len() as u32).collect();
        by_tor.sort_by_key(|&number| tors[number as usize]);
        let mut group = vec![(0, 0); tors.len()];
        let mut first = 0;
        for members in by_tor.chunk_by(|&a, &b| tors[a as usize] == tors[b as usize]) {
            members.iter().for_each(|&number| group[number as usize] = (first, members.len() as u32));
            first += members.len() as u32;
        }
        let name = |(number, &host): (usize, &NodeId)| (fabric.node(host).name.as_str(), number as u32);
        Hosts {
            fabric,
            rates_bps: fabric.hosts().iter().map(|host| uplink(host).settings.rate_bps).collect(),
            by_tor,
            group,
            numbers: fabric.hosts().iter().enumerate().map(name).collect(),
        }
    }

    /// How many there are, at least 2.
    pub fn len(&self) -> u32 {
        self.rates_bps.len() as u32
    }

    /// The node of a host.
    pub fn node(&self, number: u32) -> NodeId {
        self.fabric.hosts()[number as usize]
    }

    /// The name of a host.
    pub fn name(&self, number: u32) -> &str {
        &self.fabric.node(self.node(number)).name
    }

    /// Rate of the host's access link.
    pub fn rate_bps(&self, number: u32) -> f64 {
        self.rates_bps[number as usize] as f64
    }

    /// How many hosts hang on another ToR than this one.
    pub fn elsewhere(&self, number: u32) -> u32 {
        self.len() - self.group[number as usize].1
    }

    /// One of the [`Hosts::elsewhere`] hosts, `choice` below their number.
    pub fn elsewhere_at(&self, number: u32, choice: u32) -> u32 {
        let (first, len) = self.group[number as usize];
        self.by_tor[(if choice < first { choice } else { choice + len }) as usize]
    }

    /// A host by its name, or by its number where no host has such a name.
    pub fn find(&self, text: &str) -> Result<u32, String> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(number);
        }
        match text.parse::<u32>() {
            Ok(number) if number < self.len() => Ok(number),
            _ => Err(format!(
                "`{text}` is no host of the fabric; hosts are {} to {}, or 0 to {} by number",
                self.name(0),
                self.name(self.len() - 1),
                self.len() - 1
            )),
        }
    }

    /// `16 hosts of 10 Mbps`.
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
