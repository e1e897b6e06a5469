//! Subflows whose card must not send, because a switch has paused their priority.

use crate::network::pfc::must_wait;
use crate::network::Network;
use crate::subflow::Subflow;
use crate::tap::Tap;
use crate::time::Ps;
use pathloom_model::LinkId;
use std::collections::BTreeSet;

/// The subflows whose data wait until a switch resumes their card: the link that the card sends into, and slot and use
/// count of the subflow.
#[derive(Default)]
pub(super) struct StoppedSubflows(BTreeSet<(LinkId, u32, u32)>);

impl StoppedSubflows {
    /// Whether data of a subflow must wait. It is then among those that [`StoppedSubflows::take`] returns.
    #[inline(never)]
    pub(super) fn waits<T: Tap>(&mut self, network: &mut Network<T>, now: Ps, slot: usize, subflow: &Subflow) -> bool {
        let uplink = subflow.interfaces[0].uplink();
        let stops = must_wait(&mut network.links, now, uplink.0, slot);
        if stops {
            self.0.insert((uplink, slot as u32, subflow.use_count));
        }
        stops
    }

    /// Takes out the subflows that wait for the card that sends into this link: slots and use counts.
    pub(super) fn take(&mut self, uplink: LinkId) -> Vec<(u32, u32)> {
        let of_card = self.0.range((uplink, 0, 0)..=(uplink, u32::MAX, u32::MAX));
        let taken: Vec<(LinkId, u32, u32)> = of_card.copied().collect();
        taken.iter().for_each(|one| {
            self.0.remove(one);
        });
        taken.into_iter().map(|(_, slot, use_count)| (slot, use_count)).collect()
    }
}
