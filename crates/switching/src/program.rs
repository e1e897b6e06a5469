//! Switch programs: protocols by which a fabric finds its paths itself, as state machines that do not know who runs them.
//!
//! A driver (the simulator, a live switch) tells a [`Program`] of frames, ports and time, and carries out what it answers.
//! The rules between the two:
//!
//! - Ports are down until [`Program::set_port`] brings them up. A start is `new` and then `set_port` for each port.
//! - After each call, the driver takes what [`Program::poll_emission`] has, until it has nothing more, and
//!   [`Program::take_stale`], before it uses a remembered decision again.
//! - Each frame of a [`Verdict`] has the payload of the frame that was decided on: a frame is put into a message, taken
//!   out of it, or passed on. Frames from `poll_emission` carry no payload of a host, but for ARP packets, whose bytes
//!   follow from their fields.
//! - A decision is remembered for a five-tuple and the port it comes in by ([`Verdict::remember`]), until `take_stale` names the
//!   five-tuple. What was forwarded from memory is credited before [`Program::handle_timeout`] and [`Program::tables`].

use crate::{Saved, SavedConnection, Stale};
use pathloom_model::{FiveTuple, Frame, Nanos, PortNo};

/// A protocol of switches. Time is an argument and never goes back.
pub trait Program {
    /// Says what becomes of a frame that came in by `in_port`.
    fn decide(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Verdict;

    /// Does what is due at `now`: Hello, ageing, repeated recovery.
    fn handle_timeout(&mut self, now: Nanos);

    /// When [`Program::handle_timeout`] is to be called next, at the latest. It may have nothing to do then.
    fn poll_timeout(&self) -> Option<Nanos>;

    /// The next frame that timers, ports and repairs bring. `None`: no more.
    fn poll_emission(&mut self) -> Option<Outgoing>;

    /// A port went up or down.
    fn set_port(&mut self, now: Nanos, port: PortNo, up: bool);

    /// Which remembered decisions may have become wrong since this was last asked.
    fn take_stale(&mut self) -> Stale;

    /// Counts frames of a remembered five-tuple that were forwarded without asking.
    fn credit(&mut self, five_tuple: FiveTuple, used: Used);

    /// Counts a frame between switches that the driver could not read: unknown version, truncated, invalid.
    fn note_unreadable(&mut self, in_port: PortNo);

    /// Sizes of the tables, and what has been counted so far.
    fn tables(&self) -> Tables;

    /// What the next start of the program can go on with. A program without lasting tables has nothing.
    fn save(&self) -> Saved {
        Saved::default()
    }

    /// The same without connections, which may be many.
    fn save_tables(&self) -> Saved {
        Saved::default()
    }

    /// Goes on with what an earlier start has saved. The boot number must be that of the earlier start, the ports that are up must
    /// have been brought up, and nothing may have been polled yet. Paths by ports that are down are broken at once.
    fn restore(&mut self, _now: Nanos, _saved: &Saved) {}

    /// The path of a confirmed connection, named by the five-tuple of either direction.
    fn connection(&self, _five_tuple: FiveTuple) -> Option<SavedConnection> {
        None
    }
}

/// What becomes of a frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// What leaves. Each port is named at most once.
    pub emissions: Vec<Outgoing>,
    /// If set, further frames of this five-tuple that come in by the same port with the same DSCP and VLAN tag, and without
    /// SYN, FIN and RST, leave as this one does: unchanged, by the single port of `emissions`. The frame decided on is an IP
    /// frame, and the five-tuple its own. (The DSCP matters to TFE: a flow that is marked later becomes an elephant.)
    pub remember: Option<FiveTuple>,
    /// Why nothing leaves. Set if and only if `emissions` is empty.
    pub dropped: Option<DropCause>,
}

impl Verdict {
    /// The frame goes no further.
    pub fn drop(why: DropCause) -> Verdict {
        Verdict { dropped: Some(why), ..Verdict::default() }
    }

    /// One frame leaves by one port.
    pub fn one(port: PortNo, frame: Frame) -> Verdict {
        Verdict { emissions: vec![Outgoing { port, frame }], ..Verdict::default() }
    }

    /// These frames leave; if there are none, the frame is dropped because no port takes it.
    pub fn all(emissions: Vec<Outgoing>) -> Verdict {
        let dropped = emissions.is_empty().then_some(DropCause::NoPort);
        Verdict { emissions, remember: None, dropped }
    }
}

/// A frame on its way out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outgoing {
    /// Port it leaves by.
    pub port: PortNo,
    /// The frame.
    pub frame: Frame,
}

/// Frames that were forwarded from memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    /// When the last of them passed.
    pub last: Nanos,
    /// How many.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

/// Why a frame goes no further.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropCause {
    /// It was for the switch itself, which has used it up.
    Consumed,
    /// A later copy of what has come already.
    LateCopy,
    /// No entry says where to.
    NoRoute,
    /// No port is there that it could leave by.
    NoPort,
    /// It came in by a port that is down, unsettled, or heard in one direction alone.
    PortNotReady,
    /// It explores, and the switch has started so lately that it cannot tell a late copy from the first.
    Quiet,
    /// It came in by a port that is not on its path.
    WrongPort,
    /// A message between switches came in by a port of a host.
    Forged,
    /// Its source address belongs to a host at another port.
    StolenAddress,
    /// Its source address is no station's, or its fields contradict each other.
    Invalid,
    /// A table is full, or its port has used up its share of a table.
    TableFull,
    /// Its port begins more explorations than it may.
    RateLimited,
    /// It has passed more switches than any path has.
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

    /// Name in results: `late-copy`.
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

/// Sizes of a program's tables and its counts, for results. What a program does not have stays 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tables {
    /// Directed entries for connections, as the paper counts them: a locked connection has one, a confirmed one has two.
    pub connections: usize,
    /// Of these, entries of confirmed connections.
    pub confirmed: usize,
    /// Hosts whose port is known.
    pub hosts: usize,
    /// Neighbours that are switches.
    pub neighbours: usize,
    /// Explorations that began here, for a SYN or a broadcast.
    pub explorations: u64,
    /// Recoveries that began here.
    pub recoveries: u64,
    /// Path Fail messages that began here.
    pub fails: u64,
    /// Dropped frames by cause, in the order of [`DropCause::ALL`].
    pub dropped: [u64; DropCause::ALL.len()],
    /// Frames between switches that could not be read.
    pub unreadable: u64,
    /// Ports with frames that were refused, the number of these, and the last cause: attackers and defects by name.
    pub refused: Vec<RefusedPort>,
}

/// A port whose frames were refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RefusedPort {
    /// The port.
    pub port: PortNo,
    /// Frames that were forged, invalid, from stolen addresses, unreadable or beyond a limit of the port.
    pub frames: u64,
    /// The last cause; `None` for a frame that could not be read.
    pub last: Option<DropCause>,
}
