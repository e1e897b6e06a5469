//! What hosts are made of at the start, and the packets that they make.

use crate::agents::Agents;
use crate::packet::Packet;
use crate::settings::ControlSettings;
use crate::time::Ps;
use pathloom_model::{Address, Fabric, TCP_FIN, TCP_SYN};
use pathloom_scheme::Needs;
use pathloom_switching::deployment::Deployment;
use pathloom_transport::{Segment, SegmentKind, TimerClock, TransportSpec};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// Settings of a run that decide what hosts do.
pub(crate) struct HostSettings<'a> {
    pub(crate) transport: &'a TransportSpec,
    pub(crate) needs: &'a Needs,
    pub(crate) control: &'a ControlSettings,
    pub(crate) agents: Agents,
    pub(crate) deployment: Option<&'a Deployment>,
    pub(crate) duration: Ps,
    pub(crate) seed: u64,
    /// Whether flows are rates, and no packet is sent.
    pub(crate) fluid: bool,
}

/// Addresses of the interfaces of hosts, by the links that they send into.
pub(super) fn addresses(fabric: &Fabric) -> Vec<Option<Address>> {
    let mut found = vec![None; fabric.links().len()];
    for at in fabric.attachments() {
        found[at.uplink.index()] = Some(at.address);
    }
    found
}

/// The clocks of the timers of all nodes. They depend only on the seed, so they are the same for every scheme.
pub(super) fn timer_clocks(fabric: &Fabric, seed: u64) -> Vec<TimerClock> {
    let mut rng = Pcg64::seed_from_u64(seed ^ 0x7469_6d65_7273);
    fabric.nodes().iter().map(|_| TimerClock::new(rng.next_u64())).collect()
}

pub(super) fn packet_of(slot: usize, segment: &Segment, stands: bool, header_bytes: u32) -> Packet {
    let mut flags = match segment.kind {
        SegmentKind::Syn => TCP_SYN,
        SegmentKind::Data if segment.last => TCP_FIN,
        SegmentKind::Data => 0,
    };
    if stands && segment.seq == 0 {
        flags |= TCP_SYN;
    }
    let (lane, wire) = ((slot as u32) << 1, (segment.len + header_bytes) as u16);
    Packet::new(lane, segment.seq, segment.len as u16, wire, flags)
}
