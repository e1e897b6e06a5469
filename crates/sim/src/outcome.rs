//! What a run came to.

pub use crate::frames::Crossings;
use pathloom_model::{FiveTuple, LinkId, Nanos, NodeId};
use pathloom_transport::TimeoutWait;

/// One transfer.
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
    /// Payload bytes; `None` for a long-lived one.
    pub size_bytes: Option<u64>,
    /// When its application had data.
    pub start: Option<Nanos>,
    /// When its last byte had arrived.
    pub finish: Option<Nanos>,
    /// Payload bytes delivered in order.
    pub delivered_bytes: u64,
    /// Payload bytes that arrived, in order or not; with MPTCP, bytes that two subflows hold back count on each.
    pub arrived_bytes: u64,
    /// Payload rate of a transfer without end that has the access links of its subflows to itself, headers and the acknowledgements that
    /// share them taken off.
    pub optimum_bps: f64,
    /// Lower bound of the FCT: frames at the rate of the slower access link, and propagation.
    pub ideal_fct: Option<Nanos>,
    /// Long-lived: goodput / optimum. Finite: ideal FCT / FCT; `None` if it did not finish. Between 0 and 1.
    pub throughput: Option<f64>,
    /// Congestion windows of its open subflows together; 0 before the start and after the end.
    pub window_bytes: u64,
    /// Segments sent again.
    pub retransmits: u32,
    /// Expiries of the retransmission timer.
    pub timeouts: u32,
    /// Time that its sender spent in silence for those expiries, or for one that is still to come.
    pub timeout_wait: TimeoutWait,
    /// Segments and acknowledgements sent.
    pub packets: u64,
    /// Segments that arrived after a later one, those sent again among them.
    pub reordered: u32,
    /// Collective, incast or coflow it belongs to.
    pub coflow: Option<u32>,
}

/// A subflow of a transfer that has several.
#[derive(Clone, Debug, PartialEq)]
pub struct SubflowOutcome {
    /// Its transfer's index in the workload.
    pub transfer: u32,
    /// The five-tuple of its data.
    pub five_tuple: FiveTuple,
    /// The links that its data crossed when it closed, or would cross at the end of the run: from its host to where they arrive
    /// or are lost.
    pub links: Vec<LinkId>,
    /// Payload bytes that it delivered in order. With MPTCP, bytes that were sent on several subflows count on each.
    pub delivered_bytes: u64,
    /// Segments sent again.
    pub retransmits: u32,
    /// Expiries of the retransmission timer.
    pub timeouts: u32,
}

/// The way of a subflow at some moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Its transfer's index in the workload.
    pub transfer: u32,
    /// The five-tuple of its data.
    pub five_tuple: FiveTuple,
    /// The links that its data would cross: from its host to where they arrive or are lost.
    pub links: Vec<LinkId>,
    /// Why it is there, as a sentence; `None` for one that nobody placed, and for one that has closed.
    pub why: Option<String>,
}

/// One direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkOutcome {
    /// The link.
    pub link: LinkId,
    /// Bytes sent, headers included.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets dropped: buffer full or link down.
    pub dropped_packets: u64,
    /// Mean number of packets waiting, not counting the one being sent.
    pub mean_queue: f64,
    /// Bytes sent over bytes that could have been.
    pub utilisation: f64,
}

/// All packets. `sent + copied = delivered + misdelivered + dropped + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketTotals {
    /// Put into the network by hosts, and by switches whose programs send frames of their own.
    pub sent: u64,
    /// Copies made by switches.
    pub copied: u64,
    /// Taken out by the interfaces that they were for. With programs, also what switches used up: their own messages, and
    /// late copies of broadcasts.
    pub delivered: u64,
    /// Brought to another host, or to another interface of the right one, which does not take them. Only wrong rules do
    /// so, and programs that flood frames for hosts that they do not know.
    pub misdelivered: u64,
    /// Lost: at full or failed links, or in switches.
    pub dropped: u64,
    /// Still on their way at the end.
    pub in_flight: u64,
    /// Links crossed.
    pub hops: u64,
    /// Events worked off: one per packet-hop, and everything else.
    pub events: u64,
}

/// What control cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlOutcome {
    /// Messages between controller, switches and hosts, both ways.
    pub messages: u64,
    /// Most rules in any one switch at any time.
    pub rules_max: u64,
    /// Flows that got a path of their own: moved to one from the default routes, or opened on one that their host claimed.
    pub routes: u64,
    /// Flows moved from a path of their own to another.
    pub reroutes: u64,
    /// Rounds of reading the flow counters of the ToRs; a second look within a round is none.
    pub polls: u64,
    /// Mean time from the beginning of a round to that of the next; `None` before the second.
    pub polling_period: Option<Nanos>,
    /// Share of the run that the controller was busy.
    pub busy_share: f64,
    /// How much the scheme keeps, by what it is.
    pub sizes: Vec<(&'static str, u64)>,
}

/// What the programs of switches came to, in all switches together.
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
    /// Path Fail messages, by the switches where they began.
    pub fails: u64,
    /// Copies of a broadcast that were dropped because an earlier copy had come.
    pub late_copies: u64,
    /// Frames that were forged, invalid, from stolen addresses or beyond a limit.
    pub refused: u64,
    /// Messages of the path protocol, on every link that they crossed.
    pub exploration: Crossings,
    /// ARP packets outside these messages.
    pub arp: Crossings,
    /// Hello frames.
    pub hello: Crossings,
    /// Bytes of broadcast frames that ToRs got from other switches, over all other bytes that ToRs got.
    pub broadcast_share: Option<f64>,
    /// How full the tables were while transfers arrived.
    pub samples: Vec<TableSample>,
}

/// How full the tables were at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableSample {
    /// When.
    pub at: Nanos,
    /// Entries for connections, mean over switches.
    pub entries_mean: f64,
}

/// A run, so far or whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// One per transfer of the workload, in its order.
    pub flows: Vec<FlowOutcome>,
    /// The subflows of transfers that have several, by transfer and five-tuple.
    pub subflows: Vec<SubflowOutcome>,
    /// One per directed link, in the fabric's order.
    pub links: Vec<LinkOutcome>,
    /// Packets.
    pub packets: PacketTotals,
    /// Control.
    pub control: ControlOutcome,
    /// Programs of switches; `None` where switches follow rules.
    pub programs: Option<ProgramOutcome>,
    /// Simulated time.
    pub end: Nanos,
}

impl Outcome {
    /// Whether every packet is accounted for.
    pub fn conserves_packets(&self) -> bool {
        let p = &self.packets;
        p.sent + p.copied == p.delivered + p.misdelivered + p.dropped + p.in_flight
    }
}
