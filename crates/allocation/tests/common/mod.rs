//! A FatTree as numbers, and traffic on it.
#![allow(dead_code)]

use pathloom_allocation::placement::PlacedFlow;
use pathloom_allocation::{Network, NetworkLink};
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

/// A k-ary FatTree whose links all carry `rate_bps`. Links come in pairs: one direction of a cable has an even
/// number, and the other direction the next number. First come the links of the hosts (up to the ToR at even
/// numbers), then the others (up at even numbers).
pub struct FatTree {
    pub k: u32,
    pub rate_bps: u64,
}

impl FatTree {
    pub fn new(k: u32, rate_bps: u64) -> FatTree {
        FatTree { k, rate_bps }
    }

    pub fn half(&self) -> u32 {
        self.k / 2
    }

    pub fn tors(&self) -> u32 {
        self.k * self.half()
    }

    pub fn hosts(&self) -> u32 {
        self.tors() * self.half()
    }

    pub fn tor_of(&self, host: u32) -> u32 {
        host / self.half()
    }

    /// The links. Nodes `0..tors` are ToRs; aggregation switches follow, then cores.
    pub fn links(&self) -> Vec<NetworkLink> {
        let (half, tors) = (self.half(), self.tors());
        let link = |ends| NetworkLink { ends, capacity_bps: self.rate_bps };
        let mut links = vec![link(None); 2 * self.hosts() as usize];
        let mut cable = |a: u32, b: u32| links.extend([link(Some((a, b))), link(Some((b, a)))]);
        for tor in 0..tors {
            (0..half).for_each(|index| cable(tor, tors + tor / half * half + index));
        }
        for aggregation in 0..tors {
            (0..half).for_each(|index| cable(tors + aggregation, 2 * tors + aggregation % half * half + index));
        }
        links
    }

    pub fn network(&self) -> Network {
        Network::new(self.links())
    }

    /// The cables between switches, by the number of their first direction.
    pub fn switch_cables(&self) -> Vec<u32> {
        (2 * self.hosts()..2 * self.hosts() + 4 * self.hosts()).step_by(2).collect()
    }

    /// A random `share` of the cables between switches.
    pub fn failures(&self, share: f64, rng: &mut Pcg64) -> Vec<u32> {
        let mut cables = self.switch_cables();
        cables.shuffle(rng);
        cables.truncate((share * cables.len() as f64).round() as usize);
        cables
    }

    /// A flow from host to host without an announced rate.
    pub fn flow(&self, src: u32, dst: u32) -> PlacedFlow {
        PlacedFlow {
            src_tor: self.tor_of(src),
            dst_tor: self.tor_of(dst),
            src_access: Some(2 * src),
            dst_access: Some(2 * dst + 1),
            announced_bps: None,
            remaining_bytes: None,
        }
    }

    /// A permutation: every host sends to one other host and receives from one other host.
    pub fn permutation(&self, rng: &mut Pcg64) -> Vec<(u32, u32)> {
        let mut to: Vec<u32> = (0..self.hosts()).collect();
        to.shuffle(rng);
        for host in 0..self.hosts() as usize {
            if to[host] == host as u32 {
                to.swap(host, (host + 1) % self.hosts() as usize);
            }
        }
        (0..self.hosts()).zip(to).collect()
    }
}
