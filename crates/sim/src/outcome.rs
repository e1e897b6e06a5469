//! Results of a run.

pub use crate::frames::Crossings;
use crate::victims::Victim;
use pathloom_model::{FiveTuple, LinkId, Nanos, NodeId};
use pathloom_transport::TimeoutWait;

/// Result of one transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// Its index in the workload.
    pub index: u32,
    /// Sending host.
    pub src: NodeId,
    /// Receiving host.
    pub dst: NodeId,
    /// The five-tuple of its first subflow, once it has started.
    pub five_tuple: Option<FiveTuple>,
    /// Payload bytes; `None` for a long-lived transfer.
    pub size_bytes: Option<u64>,
    /// Time when its application had data.
    pub start: Option<Nanos>,
    /// Time when its last byte had arrived.
    pub finish: Option<Nanos>,
    /// Payload bytes delivered in order.
    pub delivered_bytes: u64,
    /// Payload bytes that arrived, in order or not. With MPTCP, bytes that two subflows have buffered out of order
    /// count on each.
    pub arrived_bytes: u64,
    /// Payload rate of a transfer without end that has the access links of its subflows to itself, less headers and
    /// the acknowledgements that share these links.
    pub optimum_bps: f64,
    /// Lower bound of the FCT: the time to send all frames over the slower access links, and propagation.
    pub ideal_fct: Option<Nanos>,
    /// Long-lived: goodput / optimum. Finite: ideal FCT / FCT; `None` if it did not finish. Between 0 and 1.
    pub throughput: Option<f64>,
    /// Sum of the congestion windows of its open subflows; 0 before the start and after the end.
    pub window_bytes: u64,
    /// Number of retransmitted segments.
    pub retransmits: u32,
    /// Number of expiries of the retransmission timer.
    pub timeouts: u32,
    /// Time that its sender was silent before those expiries, or before one that is still to come.
    pub timeout_wait: TimeoutWait,
    /// Segments and acknowledgements sent.
    pub packets: u64,
    /// Segments that arrived with new data.
    pub segments: u32,
    /// Those of them that arrived after a later one, including retransmitted ones.
    pub reordered: u32,
    /// Collective, incast or coflow to which it belongs.
    pub coflow: Option<u32>,
}

/// Result of a subflow of a transfer that has several.
#[derive(Clone, Debug, PartialEq)]
pub struct SubflowOutcome {
    /// Index of its transfer in the workload.
    pub transfer: u32,
    /// The five-tuple of its data.
    pub five_tuple: FiveTuple,
    /// Links that its data crossed when it closed, or would cross at the end of the run: from its host to the place
    /// where they arrive or are lost.
    pub links: Vec<LinkId>,
    /// Payload bytes that it delivered in order. With MPTCP, bytes that were sent on several subflows count on each.
    pub delivered_bytes: u64,
    /// Number of retransmitted segments.
    pub retransmits: u32,
    /// Number of expiries of the retransmission timer.
    pub timeouts: u32,
}

/// Path of a subflow at some moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SubflowPath {
    /// Index of its transfer in the workload.
    pub transfer: u32,
    /// The five-tuple of its data.
    pub five_tuple: FiveTuple,
    /// Links that its data would cross: from its host to the place where they arrive or are lost.
    pub links: Vec<LinkId>,
    /// Why the subflow has this path, as a sentence; `None` if nobody placed it, or if it has closed.
    pub why: Option<String>,
}

/// Result of one direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkOutcome {
    /// The link.
    pub link: LinkId,
    /// Bytes sent, headers included. What waits at the end does not count; a packet that is being sent counts as a
    /// whole.
    pub sent_bytes: u64,
    /// Packets sent, counted in the same way.
    pub sent_packets: u64,
    /// Packets dropped: buffer full or link down.
    pub dropped_packets: u64,
    /// Mean number of packets waiting, not counting the one being sent.
    pub mean_queue: f64,
    /// Bytes sent, divided by the bytes that could have been sent.
    pub utilisation: f64,
    /// Number of pauses of its sender by priority-based flow control.
    pub pauses: u64,
    /// Time during which a priority of its sender was paused.
    pub paused: Nanos,
}

/// Counts of all packets. `sent + copied = delivered + misdelivered + dropped + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketTotals {
    /// Packets sent by hosts, and by switches whose programs send their own frames.
    pub sent: u64,
    /// Copies made by switches.
    pub copied: u64,
    /// Packets that reached the interface that they were for. With programs, also frames that switches consumed:
    /// their own messages, and late copies of broadcasts.
    pub delivered: u64,
    /// Packets that reached another host, or another interface of the right host, which does not take them. The cause
    /// is a wrong rule, or a program that floods frames for unknown hosts.
    pub misdelivered: u64,
    /// Packets lost: at full or failed links, or in switches.
    pub dropped: u64,
    /// Packets still on their way at the end.
    pub in_flight: u64,
    /// Packets that full queues cut down to their headers. They count as delivered or dropped like others.
    pub trimmed: u64,
    /// Links crossed.
    pub hops: u64,
    /// Number of events: one per packet-hop, and all others.
    pub events: u64,
}

/// Packets of one kind. `sent = arrived + trimmed + lost + in_flight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindOutcome {
    /// Name of the kind: `data`, `headers` (of trimmed packets), `requests`, `acks`, `nacks`, `pulls`, `notices` or `pauses`.
    pub name: &'static str,
    /// Packets that were sent; headers that full queues left of data.
    pub sent: u64,
    /// Packets that reached the host, or for pauses the port, that they were for.
    pub arrived: u64,
    /// Data that full queues cut down to headers.
    pub trimmed: u64,
    /// Packets that were lost, or reached another host; `None` if more were found than were sent, which is a mistake of the
    /// simulator.
    pub lost: Option<u64>,
    /// Packets still on their way at the end.
    pub in_flight: u64,
}

/// Costs of control.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlOutcome {
    /// Messages between controller, switches and hosts, both ways.
    pub messages: u64,
    /// Most rules in any one switch at any time.
    pub rules_max: u64,
    /// Flows that got a path of their own: moved to it from the default routes, or opened on a path that their host
    /// claimed.
    pub routes: u64,
    /// Flows moved from a path of their own to another.
    pub reroutes: u64,
    /// Rounds of reading the flow counters of the ToRs. A second reading within a round does not count.
    pub polls: u64,
    /// Mean time between the beginnings of successive rounds; `None` before the second round.
    pub polling_period: Option<Nanos>,
    /// Share of the run during which the controller was busy.
    pub busy_share: f64,
    /// Sizes of the scheme's state, each with its name.
    pub sizes: Vec<(&'static str, u64)>,
}

/// Results of the programs of all switches.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramOutcome {
    /// Most entries for connections in any one switch, of all samples.
    pub entries_max: u64,
    /// Entries for connections in a switch: mean over switches and samples.
    pub entries_mean: f64,
    /// Most hosts whose ports any one switch knew, of all samples.
    pub hosts_max: u64,
    /// Explorations for a SYN or a broadcast.
    pub explorations: u64,
    /// Recoveries of broken paths.
    pub recoveries: u64,
    /// Path Fail messages, counted at the switches where they began.
    pub fails: u64,
    /// Copies of a broadcast that were dropped because an earlier copy had arrived.
    pub late_copies: u64,
    /// Frames that were forged, invalid, from stolen addresses or beyond a limit.
    pub refused: u64,
    /// Messages of the path protocol, counted on every link that they crossed.
    pub exploration: Crossings,
    /// ARP packets outside these messages.
    pub arp: Crossings,
    /// Hello frames.
    pub hello: Crossings,
    /// Bytes of broadcast frames that ToRs received from other switches, divided by all other bytes that ToRs
    /// received.
    pub broadcast_share: Option<f64>,
    /// How full the tables were while transfers arrived.
    pub samples: Vec<TableSample>,
}

/// How full the tables were at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableSample {
    /// Time of the sample.
    pub at: Nanos,
    /// Mean number of entries for connections per switch.
    pub entries_mean: f64,
}

/// What priority-based flow control (IEEE 802.1Qbb) did.
#[derive(Clone, Debug, PartialEq)]
pub struct PauseOutcome {
    /// Pauses that senders obeyed.
    pub pauses: u64,
    /// Frames that paused or resumed.
    pub frames: u64,
    /// Time during which links were paused, summed over all links.
    pub paused: Nanos,
    /// Most bytes by which what waited of a link and priority exceeded the threshold XOFF. Headroom of this size was in use.
    pub most_beyond_xoff_bytes: u64,
    /// Connections held back by pauses whose cause they did not feed, those held back longest first.
    pub victims: Vec<Victim>,
    /// Links that will never be resumed; `None` if there are none.
    pub deadlock: Option<Deadlock>,
}

/// Paused links that wait for each other. Whatever the rest of the network does, none of them is resumed.
#[derive(Clone, Debug, PartialEq)]
pub struct Deadlock {
    /// The links of the cycle. Packets of each wait for the next one, and packets of the last for the first.
    pub cycle: Vec<LinkId>,
    /// When the last link of the cycle was paused.
    pub since: Nanos,
    /// All links that will never be resumed: those of cycles, and those that wait for them.
    pub stuck: Vec<LinkId>,
}

/// Result of a run, complete or so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// One per transfer of the workload, in its order.
    pub flows: Vec<FlowOutcome>,
    /// The subflows of transfers that have several, by transfer and five-tuple.
    pub subflows: Vec<SubflowOutcome>,
    /// One per directed link, in the fabric's order.
    pub links: Vec<LinkOutcome>,
    /// Counts of packets.
    pub packets: PacketTotals,
    /// Costs of control.
    pub control: ControlOutcome,
    /// Results of the programs of switches; `None` if switches follow rules.
    pub programs: Option<ProgramOutcome>,
    /// Results of priority-based flow control; `None` if ports pause no sender.
    pub pauses: Option<PauseOutcome>,
    /// Packets by kind; `None` if hosts run a transport that acknowledges bytes.
    pub kinds: Option<Vec<KindOutcome>>,
    /// Simulated time.
    pub end: Nanos,
}

impl LinkOutcome {
    /// The result of a link that has sent these bytes, and about which nothing else is known.
    pub(crate) fn of_bytes(link: LinkId, sent_bytes: u64) -> LinkOutcome {
        LinkOutcome {
            link,
            sent_bytes,
            sent_packets: 0,
            dropped_packets: 0,
            mean_queue: 0.0,
            utilisation: 0.0,
            pauses: 0,
            paused: Nanos::ZERO,
        }
    }
}

impl Outcome {
    /// Whether every packet is accounted for, and every kind of packets if they are counted.
    pub fn conserves_packets(&self) -> bool {
        let p = &self.packets;
        let in_all = p.sent + p.copied == p.delivered + p.misdelivered + p.dropped + p.in_flight;
        in_all && self.kinds.as_ref().is_none_or(|kinds| self.conserves(kinds))
    }

    /// Whether the kinds together have lost what links and switches have dropped, and have as many packets under way.
    fn conserves(&self, kinds: &[KindOutcome]) -> bool {
        let lost: Option<u64> = kinds.iter().map(|kind| kind.lost).sum();
        let in_flight: u64 = kinds.iter().map(|kind| kind.in_flight).sum();
        lost == Some(self.packets.dropped + self.packets.misdelivered) && in_flight == self.packets.in_flight
    }
}
