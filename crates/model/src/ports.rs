//! How switch ports queue packets: one drop-tail queue, or several with strict priorities or weights, RED, marks at
//! departure, trimming, pauses and a buffer that the ports of a switch share.

use serde::{Deserialize, Serialize};

/// Largest number of queues per port: one for each class selector (RFC 2474 §4.2.2).
pub const MOST_QUEUES: u8 = 8;

/// How every port of a switch queues packets. Ports of hosts always have one drop-tail queue.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct PortSettings {
    /// Queues per port, 1 to [`MOST_QUEUES`]. Without `weights`, a port sends from the highest queue that is not empty.
    /// Without `shared`, each queue has the full buffer of the link.
    pub queues: u8,
    /// Random early detection in each queue; `None` means drop tail only.
    pub red: Option<RedSettings>,
    /// Bytes that each queue holds, with the packet that is being sent from it; `None` for the buffer of the link.
    pub queue_bytes: Option<u64>,
    /// When packets are marked as they leave; `None` for the threshold of the transport.
    pub ecn: Option<EcnSettings>,
    /// Whether `queue_bytes` and `ecn` are those of the fastest port. Slower ports have them in proportion to their
    /// rates, so that all queues take the same time to drain.
    pub scale_queues: bool,
    /// Whether there is one more queue, above the others, for acknowledgements and headers.
    pub control_queue: bool,
    /// Bytes of the header to which a full queue cuts a packet instead of dropping it (Handley et al., Re-architecting
    /// datacenter networks and stacks for low latency and high performance, SIGCOMM 2017, §3.1), if the transport
    /// understands headers; `None` if packets are dropped. It needs `control_queue`.
    pub trim_bytes: Option<u16>,
    /// Priority-based flow control (IEEE 802.1Qbb) of each data queue; `None` if full queues drop packets. It excludes
    /// `trim_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pfc: Option<PfcSettings>,
    /// Weights of the queues, the lowest queue first, each at least 1: queues that are not empty share the port in
    /// proportion (deficit round robin). `None` for strict priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<[u8; MOST_QUEUES as usize]>,
    /// The buffer that all ports of a switch share; `None` if each queue has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedBuffer>,
}

/// A buffer that the data queues of all ports of a switch share, with dynamic thresholds (Choudhury and Hahne, Dynamic Queue
/// Length Thresholds for Shared-Memory Packet Switches, IEEE/ACM Transactions on Networking 1998).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SharedBuffer {
    /// Bytes of the buffer of each switch. Packets that are being sent are not in it.
    pub bytes: u64,
    /// A queue may hold this many times the free bytes of the buffer; more than 0.
    pub alpha: f64,
}

/// When a switch pauses the sender at the other end of a link: by the bytes that have come by this link, belong to a data
/// queue, and wait anywhere in the switch. Each `None` stands for a value that follows from the link and the largest frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PfcSettings {
    /// Above this many bytes, the sender is paused (XOFF); `None` for the buffer of the port.
    pub xoff_bytes: Option<u64>,
    /// The sender is resumed at this many bytes or fewer (XON), at most `xoff_bytes`; `None` for two frames below
    /// `xoff_bytes` (Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, §4).
    pub xon_bytes: Option<u64>,
    /// Room beyond `xoff_bytes` for what arrives before the pause takes effect; `None` for as much as the link needs.
    pub headroom_bytes: Option<u64>,
}

/// Marks by the length of the queue that a packet leaves behind, without the packet itself.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct EcnSettings {
    /// Up to this many bytes, no packet is marked. From here on, the probability rises linearly (`K_min`).
    pub min_bytes: u64,
    /// Above this many bytes, all packets are marked; not less than `min_bytes` (`K_max`).
    pub max_bytes: u64,
    /// Probability of a mark at `max_bytes`, more than 0, at most 1 (`P_max` of Zhu et al., Congestion Control for Large-Scale
    /// RDMA Deployments, SIGCOMM 2015, §3.1).
    // Settings written before this option existed mean 1.
    #[serde(default = "certain")]
    pub most_probability: f64,
}

fn certain() -> f64 {
    1.0
}

/// Random early detection (Floyd and Jacobson, Random Early Detection Gateways for Congestion Avoidance, 1993).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct RedSettings {
    /// Below this mean number of waiting packets, all packets are accepted (`min_th`).
    pub min_packets: u32,
    /// From this mean number on, all packets are dropped or marked (`max_th`); more than `min_packets`.
    pub max_packets: u32,
    /// Probability of a drop just below `max_packets` (`max_p`), more than 0, at most 1.
    pub most_probability: f64,
    /// Weight of the current queue length in the mean (`w_q`), more than 0, at most 1.
    pub weight: f64,
    /// Whether data packets of ECN-capable transports are marked instead of dropped (RFC 3168 §5).
    pub ecn: bool,
}

impl PortSettings {
    /// One queue, drop tail.
    pub const DROP_TAIL: PortSettings = PortSettings {
        queues: 1,
        red: None,
        queue_bytes: None,
        ecn: None,
        scale_queues: false,
        control_queue: false,
        trim_bytes: None,
        pfc: None,
        weights: None,
        shared: None,
    };

    /// Returns the settings of a port with a rate, if the fastest one of the fabric has `fastest_bps`.
    #[must_use]
    pub fn at_rate(self, rate_bps: u64, fastest_bps: u64) -> PortSettings {
        if !self.scale_queues {
            return self;
        }
        let scaled = |bytes: u64| {
            let bytes = u128::from(bytes) * u128::from(rate_bps) / u128::from(fastest_bps.max(1));
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let ecn = |ecn: EcnSettings| EcnSettings {
            min_bytes: scaled(ecn.min_bytes),
            max_bytes: scaled(ecn.max_bytes),
            ..ecn
        };
        PortSettings { queue_bytes: self.queue_bytes.map(scaled), ecn: self.ecn.map(ecn), ..self }
    }

    /// Returns the settings of a port with at least this many queues.
    #[must_use]
    pub fn with_queues(self, least: u8) -> PortSettings {
        PortSettings { queues: self.queues.max(least.min(MOST_QUEUES)), ..self }
    }

    /// Whether ports have one drop-tail queue.
    pub fn is_drop_tail(&self) -> bool {
        *self == PortSettings::DROP_TAIL
    }

    /// Returns the queue for packets with a DSCP; 0 is the lowest. Class selectors are in ascending order, except
    /// CS1, which labels long flows. It is the lower effort of RFC 3662, below the default class: CS1, CS0, CS2, …,
    /// CS7. If there are fewer queues than classes, the remaining classes share the highest queue.
    pub fn queue_of(&self, dscp: u8) -> usize {
        let rank = match dscp >> 3 {
            0 => 1,
            1 => 0,
            class => class,
        };
        usize::from(rank.min(self.queues - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LONG_FLOW_DSCP;

    #[test]
    fn long_flows_have_the_lowest_queue_and_classes_share_the_highest() {
        let queues = |queues: u8| -> Vec<usize> {
            let ports = PortSettings { queues, ..PortSettings::DROP_TAIL };
            [LONG_FLOW_DSCP, 0, 16, 26, 46, 48, 63].map(|dscp| ports.queue_of(dscp)).to_vec()
        };
        assert_eq!(queues(1), [0; 7]);
        assert_eq!(queues(2), [0, 1, 1, 1, 1, 1, 1]);
        assert_eq!(queues(3), [0, 1, 2, 2, 2, 2, 2]);
        assert_eq!(queues(8), [0, 1, 2, 3, 5, 6, 7]);
    }
}
