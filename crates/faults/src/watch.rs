//! A tap that records which packets switches lost, or delivered to hosts in a form that hosts do not accept.

use pathloom_model::{Fabric, Headers, LinkId, Nanos, NodeId};
use pathloom_sim::{Fate, Loss, SeenPacket, Tap};

/// Most losses that are recorded; one is enough to break a promise.
const MOST: usize = 10_000;

/// Why a packet was not delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// A switch lost the packet.
    Switch(Loss),
    /// A switch left a tag on the packet, so its host does not accept it.
    Tagged,
}

/// A packet that was not delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) at: Nanos,
    pub(crate) switch: NodeId,
    pub(crate) headers: Headers,
    pub(crate) why: Why,
}

/// Records packets that were not delivered.
pub(crate) struct Watch {
    pub(crate) lost: Vec<Lost>,
    /// By link: the switch at its beginning, if it leads to a host.
    to_host: Vec<Option<NodeId>>,
}

impl Watch {
    pub(crate) fn new(fabric: &Fabric) -> Watch {
        let to_host = fabric.links().iter().map(|link| fabric.is_host(link.to).then_some(link.from)).collect();
        Watch { lost: Vec::new(), to_host }
    }

    fn note(&mut self, now_ps: u64, switch: NodeId, headers: &Headers, why: Why) {
        if self.lost.len() < MOST {
            self.lost.push(Lost { at: Nanos(now_ps / 1000), switch, headers: *headers, why });
        }
    }
}

impl Tap for Watch {
    const ON: bool = true;

    fn seen(&mut self, now_ps: u64, link: LinkId, packet: &SeenPacket, fate: Fate) {
        if packet.headers.tag.is_some() && fate == Fate::Queued {
            if let Some(switch) = self.to_host[link.index()] {
                self.note(now_ps, switch, &packet.headers, Why::Tagged);
            }
        }
    }

    fn lost(&mut self, now_ps: u64, switch: NodeId, headers: &Headers, why: Loss) {
        if why != Loss::Metered {
            self.note(now_ps, switch, headers, Why::Switch(why));
        }
    }
}
