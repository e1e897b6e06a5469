//! Switch programs: protocols by which the switches of a fabric find paths without a controller. Programs are state
//! machines that do not depend on their driver.
//!
//! A driver (the simulator or a live switch) passes frames, port changes and time to a [`Program`], and carries out its
//! verdicts. Both follow these rules:
//!
//! - Ports are down until [`Program::set_port`] brings them up. To start a program, the driver calls `new` and then
//!   `set_port` for each port.
//! - After each call, the driver calls [`Program::poll_emission`] until it returns `None`. It calls
//!   [`Program::take_stale`] before it uses a remembered decision again.
//! - Each frame of a [`Verdict`] has the payload of the incoming frame: the frame is put into a message, taken out of a
//!   message, or forwarded. Frames from `poll_emission` contain no payload of a host, except ARP packets, whose bytes
//!   follow from their fields.
//! - A decision is remembered for a five-tuple and an input port ([`Verdict::remember`]), until `take_stale` returns
//!   the five-tuple. The driver calls [`Program::credit`] for frames that it forwarded from memory before it calls
//!   [`Program::handle_timeout`] or [`Program::tables`].

use crate::{Saved, SavedConnection, Stale};
use pathloom_model::{FiveTuple, Frame, Nanos, PortNo};

/// A protocol of switches. Time is an argument and never goes back.
pub trait Program {
    /// Decides what to do with a frame that arrived at `in_port`.
    fn decide(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Verdict;

    /// Performs the actions that are due at `now`: Hello, ageing, repeated recovery.
    fn handle_timeout(&mut self, now: Nanos);

    /// Latest time at which [`Program::handle_timeout`] must be called next. It may have nothing to do then.
    fn poll_timeout(&self) -> Option<Nanos>;

    /// Returns the next frame that a timer, a port change or a repair sends. `None`: no more frames.
    fn poll_emission(&mut self) -> Option<Outgoing>;

    /// Brings a port up or down.
    fn set_port(&mut self, now: Nanos, port: PortNo, up: bool);

    /// Returns the remembered decisions that may have become wrong since the last call.
    fn take_stale(&mut self) -> Stale;

    /// Counts frames of a remembered five-tuple that the driver forwarded without calling the program.
    fn credit(&mut self, five_tuple: FiveTuple, used: Used);

    /// Counts a frame between switches that the driver could not read: unknown version, truncated, invalid.
    fn note_unreadable(&mut self, in_port: PortNo);

    /// Sizes of the tables, and counters so far.
    fn tables(&self) -> Tables;

    /// Returns the state with which the next start of the program can continue. Empty if the program saves nothing.
    fn save(&self) -> Saved {
        Saved::default()
    }

    /// Like [`Program::save`], but without connections, which may be many.
    fn save_tables(&self) -> Saved {
        Saved::default()
    }

    /// Restores the state that an earlier start has saved. The boot number must be that of the earlier start. The ports
    /// that are up must have been brought up, and nothing may have been polled yet. Paths by ports that are down are
    /// broken at once.
    fn restore(&mut self, _now: Nanos, _saved: &Saved) {}

    /// Returns the path of a confirmed connection. The five-tuple may be that of either direction.
    fn connection(&self, _five_tuple: FiveTuple) -> Option<SavedConnection> {
        None
    }
}

/// What a program does with a frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// The frames that leave, at most one per port.
    pub emissions: Vec<Outgoing>,
    /// If set, the driver may treat further frames like this one: unchanged, they leave by the single port of
    /// `emissions`. This holds for frames with this five-tuple that arrive at the same port with the same DSCP and VLAN
    /// tag, and without SYN, FIN and RST. The present frame is an IP frame with this five-tuple. (The DSCP matters to
    /// TFE: a flow that is marked later becomes an elephant.)
    pub remember: Option<FiveTuple>,
    /// Cause if no frame leaves. Set if and only if `emissions` is empty.
    pub dropped: Option<DropCause>,
}

impl Verdict {
    /// The frame is dropped.
    pub fn drop(why: DropCause) -> Verdict {
        Verdict { dropped: Some(why), ..Verdict::default() }
    }

    /// One frame leaves by one port.
    pub fn one(port: PortNo, frame: Frame) -> Verdict {
        Verdict { emissions: vec![Outgoing { port, frame }], ..Verdict::default() }
    }

    /// These frames leave. If there are none, the cause is [`DropCause::NoPort`].
    pub fn all(emissions: Vec<Outgoing>) -> Verdict {
        let dropped = emissions.is_empty().then_some(DropCause::NoPort);
        Verdict { emissions, remember: None, dropped }
    }
}

/// A frame that leaves the switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outgoing {
    /// Port by which the frame leaves.
    pub port: PortNo,
    /// The frame.
    pub frame: Frame,
}

/// Frames that a driver forwarded by a remembered decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    /// Time of the last frame.
    pub last: Nanos,
    /// Number of frames.
    pub packets: u64,
    /// Number of bytes, including headers.
    pub bytes: u64,
}

/// Cause for which a frame is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropCause {
    /// The frame was for the switch itself, which has processed it.
    Consumed,
    /// The frame is a later copy of an exploration that has already arrived.
    LateCopy,
    /// No table entry contains a way to the destination.
    NoRoute,
    /// There is no port by which the frame could leave.
    NoPort,
    /// The frame arrived at a port that is down, whose role is not yet known, or whose link works in one direction
    /// only.
    PortNotReady,
    /// The frame is an exploration. The switch started so recently that it cannot distinguish a late copy from the
    /// first one.
    Quiet,
    /// The frame arrived at a port that is not on its path.
    WrongPort,
    /// A message between switches, or a frame with a VLAN tag, arrived at a port of a host.
    Forged,
    /// The source address belongs to a host at another port.
    StolenAddress,
    /// The source address is not a station address, or fields contradict each other.
    Invalid,
    /// A table is full, or the port has used up its share of a table.
    TableFull,
    /// The port begins more explorations than allowed.
    RateLimited,
    /// The message has passed more switches than allowed.
    TooManyHops,
}

impl DropCause {
    /// All causes, in the order of [`Tables::dropped`].
    pub const ALL: [DropCause; 13] = [
        DropCause::Consumed,
        DropCause::LateCopy,
        DropCause::NoRoute,
        DropCause::NoPort,
        DropCause::PortNotReady,
        DropCause::Quiet,
        DropCause::WrongPort,
        DropCause::Forged,
        DropCause::StolenAddress,
        DropCause::Invalid,
        DropCause::TableFull,
        DropCause::RateLimited,
        DropCause::TooManyHops,
    ];

    /// Name in results, for example `late-copy`.
    pub fn name(self) -> &'static str {
        match self {
            DropCause::Consumed => "consumed",
            DropCause::LateCopy => "late-copy",
            DropCause::NoRoute => "no-route",
            DropCause::NoPort => "no-port",
            DropCause::PortNotReady => "port-not-ready",
            DropCause::Quiet => "quiet",
            DropCause::WrongPort => "wrong-port",
            DropCause::Forged => "forged",
            DropCause::StolenAddress => "stolen-address",
            DropCause::Invalid => "invalid",
            DropCause::TableFull => "table-full",
            DropCause::RateLimited => "rate-limited",
            DropCause::TooManyHops => "too-many-hops",
        }
    }
}

/// Sizes and counters of a program, for results. A value that a program does not have is 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tables {
    /// Number of directed connection entries, as in the paper: one for a locked connection, two for a confirmed one.
    pub connections: usize,
    /// Number of these entries that belong to confirmed connections.
    pub confirmed: usize,
    /// Number of hosts whose port is known.
    pub hosts: usize,
    /// Number of neighbouring switches.
    pub neighbours: usize,
    /// Number of explorations that this switch began, for a SYN or a broadcast.
    pub explorations: u64,
    /// Number of recoveries that this switch began.
    pub recoveries: u64,
    /// Number of Path Fail messages that this switch began.
    pub fails: u64,
    /// Dropped frames by cause, in the order of [`DropCause::ALL`].
    pub dropped: [u64; DropCause::ALL.len()],
    /// Number of frames between switches that could not be read.
    pub unreadable: u64,
    /// Ports whose frames were refused, with the number of these frames and the last cause. They show attackers and
    /// defects.
    pub refused: Vec<RefusedPort>,
}

/// A port whose frames were refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RefusedPort {
    /// The port.
    pub port: PortNo,
    /// Number of frames that were forged, invalid, from stolen addresses, unreadable or beyond a limit of the port.
    pub frames: u64,
    /// The last cause. `None` for a frame that could not be read.
    pub last: Option<DropCause>,
}
