//! The NICs of long flows, as input of the estimate of natural demands.

use pathloom_allocation::HostPair;
use pathloom_model::Address;
use pathloom_scheme::{FlowView, View};
use std::collections::BTreeMap;

/// The NICs that send and receive, numbered in order of appearance, and the flows of each pair of them.
#[derive(Default)]
pub(crate) struct Nics {
    /// Rates in bit/s.
    pub(crate) transmit: Vec<f64>,
    pub(crate) receive: Vec<f64>,
    pub(crate) pairs: Vec<HostPair>,
    senders: BTreeMap<Address, u32>,
    receivers: BTreeMap<Address, u32>,
    numbers: BTreeMap<(u32, u32), usize>,
}

impl Nics {
    /// Counts one more flow. Returns the index of its pair and the rate of its sending NIC; `None` if an address does not
    /// belong to the fabric.
    pub(crate) fn add(&mut self, view: &View, flow: &FlowView) -> Option<(usize, u64)> {
        let [src, dst] = [flow.five_tuple.src(), flow.five_tuple.dst()].map(|address| view.fabric.attachment(address));
        let (src, dst) = (src?, dst?);
        let [up_bps, down_bps] =
            [src.uplink, dst.uplink.reverse()].map(|link| view.fabric.link(link).settings.rate_bps);
        Some((self.pair(src.address, up_bps, dst.address, down_bps), up_bps))
    }

    /// Counts one more flow; returns the index of its pair.
    fn pair(&mut self, src: Address, src_bps: u64, dst: Address, dst_bps: u64) -> usize {
        let number = |names: &mut BTreeMap<Address, u32>, rates: &mut Vec<f64>, address, rate_bps| {
            *names.entry(address).or_insert_with(|| {
                rates.push(rate_bps as f64);
                rates.len() as u32 - 1
            })
        };
        let src = number(&mut self.senders, &mut self.transmit, src, src_bps);
        let dst = number(&mut self.receivers, &mut self.receive, dst, dst_bps);
        let pair = *self.numbers.entry((src, dst)).or_insert_with(|| {
            self.pairs.push(HostPair { src, dst, flows: 0 });
            self.pairs.len() - 1
        });
        self.pairs[pair].flows += 1;
        pair
    }
}
