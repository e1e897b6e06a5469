//! A tap that remembers which packets switches lost, or handed to hosts in a form that hosts do not take.

use pathloom_model::{Fabric, Headers, LinkId, Nanos, NodeId};
use pathloom_sim::{Fate, Loss, SeenPacket, Tap};

/// Losses that are remembered; one is enough to find fault.
const MOST: usize = 10_000;

/// Why a packet did not get through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// A switch lost it.
    Switch(Loss),
    /// A switch left a tag on it, for which its host does not take it.
    Tagged,
}

/// A packet that did not get through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) at: Nanos,
    pub(crate) switch: NodeId,
    pub(crate) headers: Headers,
    pub(crate) why: Why,
}

/// Remembers what did not get through.
pub(crate) struct Watch {
    pub(crate) lost: Vec<Lost>,
    /// By link: the switch that it leads from, if it leads to a host.
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
