//! The hub's state of one connection to a switch.

use crate::hub::hash_steps::HashStep;
use crate::hub::places::Place;
use crate::hub::reading::{ForeignRules, Reading, Why};
use pathloom_control::{PortStats, RuleStats};
use pathloom_model::{Nanos, NodeId};
use pathloom_openflow::convert::{self, Absent};
use pathloom_openflow::{ErrorMessage, Message, Port, PortReason, PortStatus};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of ports per switch, the same as in discovery.
const MOST_PORTS: usize = 4096;
/// Maximum number of tables per switch (OpenFlow 1.3 §7.2.4.3: OFPTT_MAX is 0xfe).
const MOST_TABLES: usize = 255;
/// Maximum number of rows of one answer.
const MOST_ROWS: usize = 1 << 20;
/// Maximum number of rules, groups and meters of one switch.
const MOST_RULES: usize = 1 << 23;
/// Number of complaints about one connection that are all logged. Later ones are logged ever less often.
const PLAIN_COMPLAINTS: u64 = 16;
/// Transaction identifiers of the driver have this bit; those of the controller count from 1.
const OF_DRIVER: u32 = 1 << 31;
/// Time from a refusal to the first repetition. It doubles with each one, up to 64 times.
const REPEATED_AFTER: Nanos = Nanos::from_secs(1);
/// Number of repetitions of the driver's own rules in a session. After them, reviews restore what is missing.
const OWN_RULES_TRIES: u32 = 4;

/// The result of handling received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Number of bytes handled. The caller passes the remaining bytes again. Unless `late` is set, they are the
    /// beginning of an incomplete message.
    pub used: usize,
    /// Whether the remaining bytes may have whole messages, because as many as the caller wanted were handled.
    pub late: bool,
}

/// Identifier of a connection within this run. A later connection may reuse its place in the hub; the serial number
/// tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId {
    slot: u32,
    serial: u32,
}

impl ConnectionId {
    /// Creates the identifier of a connection from its place and its number, counted since the start.
    pub(crate) fn new(slot: usize, serial: u64) -> ConnectionId {
        // The lower half is enough, because no task outlives four billion connections.
        ConnectionId { slot: slot as u32, serial: serial as u32 }
    }

    /// Index of its place in the hub.
    #[inline]
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }
}

/// What a driver must do with a session after it has written the bytes that it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// Nothing.
    Open,
    /// Shut the connection down: these were its last bytes.
    Closing,
    /// Nothing: the session is over. There were no bytes.
    Gone,
}

/// The stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// No hello yet.
    Hello,
    /// It has not sent its datapath identifier.
    Features,
    /// Another session has its datapath identifier. If that session stays silent, this connection takes its place.
    Duplicate { dpid: u64, since: Nanos },
    /// It is known, and this controller does not lead there.
    Standby { dpid: u64 },
    /// Its ports are being read.
    Ports { dpid: u64 },
    /// The session is up.
    Up { dpid: u64 },
    /// It is being closed.
    Closed,
}

/// A request of the driver whose answer is not complete.
#[derive(Debug)]
pub(crate) enum Pending {
    Description,
    Ports(Vec<Port>),
    FlowStats {
        asked: Nanos,
        rows: Vec<RuleStats>,
    },
    PortStats(Vec<PortStats>),
    /// The counters of rules that refuse frames.
    Refused(Vec<crate::hub::refused::Row>),
    /// One of the three requests for the rules, groups and meters of a switch.
    Reading,
    /// What the tables can hold: the number of rules of the table of paths, and the number of tables read.
    Capacity(u32, usize),
}

impl Pending {
    /// What the controller does not know if the switch refuses the request. `None` if the refusal is an answer: a switch
    /// without meters refuses to list them. Otherwise an answer without rows would say that the switch has no rules, no
    /// flows or no traffic. `is_list`: whether the refusal leaves a list of the switch unknown; `is_rules`: whether it is that of
    /// all rules.
    pub(crate) fn unread(&self, is_list: bool, is_rules: bool) -> Option<&'static str> {
        match self {
            Pending::FlowStats { .. } => Some("the counters of flows; the last ones stand"),
            Pending::PortStats(_) => Some("the counters of ports; the last ones stand"),
            Pending::Refused(_) => Some("the counters of refused frames; the last ones stand"),
            Pending::Reading if is_rules => Some("the list of its rules; they stay as they are until it answers"),
            Pending::Reading if is_list => {
                Some("the list of its groups or meters; its rules stay as they are until it answers")
            }
            Pending::Description | Pending::Ports(_) | Pending::Reading | Pending::Capacity(..) => None,
        }
    }

    /// Whether the answer has more rows than any real switch has.
    pub(crate) fn is_endless(&self, reading: Option<&Reading>) -> bool {
        let (rows, most) = match self {
            Pending::Description => (0, 1),
            Pending::Ports(ports) => (ports.len(), MOST_PORTS),
            Pending::FlowStats { rows, .. } => (rows.len(), MOST_ROWS),
            Pending::PortStats(rows) => (rows.len(), MOST_PORTS),
            Pending::Refused(rows) => (rows.len(), MOST_ROWS),
            Pending::Reading => (reading.map_or(0, |reading| reading.rows), MOST_RULES),
            Pending::Capacity(_, tables) => (*tables, MOST_TABLES),
        };
        rows > most
    }
}

/// When to repeat what a switch has refused.
#[derive(Clone, Copy, Debug, Default)]
struct Repetition {
    due: Option<Nanos>,
    /// Number of repetitions so far.
    tries: u32,
}

impl Repetition {
    fn plan(&mut self, now: Nanos) {
        let wait = Nanos(REPEATED_AFTER.0 << self.tries.min(6));
        self.due.get_or_insert(now.saturating_add(wait));
    }

    /// Whether it is time for a repetition.
    fn take(&mut self, now: Nanos) -> bool {
        let is_due = self.due.take_if(|due| *due <= now).is_some();
        self.tries += u32::from(is_due);
        is_due
    }
}

/// How many rules of the controller a switch can hold. The tables may share their memory, so the driver's own rules may
/// take room of paths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// Number of rules that the switch can hold; 0 if it has not told.
    held: u32,
    /// The driver's own rules that were subtracted.
    own: u32,
}

impl Room {
    /// Notes what the switch can hold. Returns the number of rules left for the controller; 0 if the switch has not told.
    pub(crate) fn of(&mut self, held: u32, own: usize) -> u32 {
        *self = Room { held, own: u32::try_from(own).unwrap_or(u32::MAX) };
        if held == 0 {
            return 0;
        }
        held.saturating_sub(self.own).max(1)
    }

    /// As [`Room::of`], if the number of the driver's own rules has changed and the switch has told what it can hold.
    pub(crate) fn changed(&mut self, own: usize) -> Option<u32> {
        let differs = self.held > 0 && usize::try_from(self.own).is_ok_and(|before| before != own);
        differs.then(|| self.of(self.held, own))
    }
}

/// A request for a role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedRole {
    pub xid: u32,
    pub at: Nanos,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub id: ConnectionId,
    pub peer: String,
    pub stage: Stage,
    /// Names in the peer's certificate, if the session is encrypted.
    pub certificate: Option<Vec<String>>,
    /// Its switch in the fabric.
    pub node: Option<NodeId>,
    /// Its datapath identifier, once discovery knows it.
    pub discovered_dpid: Option<u64>,
    pub since: Nanos,
    pub last_heard: Nanos,
    pub last_echo: Nanos,
    /// Time at which its punts were last renewed.
    pub last_renewal: Nanos,
    /// The driver's own rules, of which the switch refused some.
    own_rules: Repetition,
    /// The first reading of its rules, which the switch refused to list.
    first_reading: Repetition,
    /// What it can hold.
    pub room: Room,
    /// The request for a role that the switch has not granted.
    pub asked_role: Option<AskedRole>,
    /// Bytes to be written.
    pub out: Vec<u8>,
    /// Whether the driver will be told to write.
    pub dirty: bool,
    pub pending: BTreeMap<u32, Pending>,
    pub reading: Option<Reading>,
    /// Foreign rules at its last reading.
    pub foreign_rules: ForeignRules,
    /// Which part of a packet's hash decides at the switch.
    pub hash_step: HashStep,
    /// Groups and meters that the switch is known to have. These must be modified, not added.
    pub groups: BTreeSet<u32>,
    pub meters: BTreeSet<u32>,
    /// Ports that the switch has reported.
    ports: BTreeSet<u32>,
    /// Changes of ports that arrived while the ports were being read.
    early: Vec<PortStatus>,
    complaints: u64,
    xid: u32,
    /// Its place in the hub. Freed with the connection.
    pub place: Place,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, place: Place, peer: String, now: Nanos) -> Connection {
        Connection {
            id,
            peer,
            stage: Stage::Hello,
            certificate: None,
            node: None,
            discovered_dpid: None,
            since: now,
            last_heard: now,
            last_echo: now,
            last_renewal: now,
            own_rules: Repetition::default(),
            first_reading: Repetition::default(),
            room: Room::default(),
            asked_role: None,
            out: Vec::new(),
            dirty: false,
            pending: BTreeMap::new(),
            reading: None,
            foreign_rules: ForeignRules::default(),
            hash_step: HashStep::default(),
            groups: BTreeSet::new(),
            meters: BTreeSet::new(),
            ports: BTreeSet::new(),
            early: Vec::new(),
            complaints: 0,
            xid: 0,
            place,
        }
    }

    /// Transaction identifier for a message of the driver.
    pub(crate) fn next_xid(&mut self) -> u32 {
        self.xid = (self.xid + 1) & !OF_DRIVER;
        self.xid | OF_DRIVER
    }

    /// Notes that the switch refused the rule with this identifier. If it is one of the driver's, they are sent again soon.
    pub(crate) fn note_refused_rule(&mut self, now: Nanos, xid: u32) {
        if xid & OF_DRIVER != 0 && self.own_rules.tries < OWN_RULES_TRIES {
            self.own_rules.plan(now);
        }
    }

    /// Notes that the switch refused to list its rules. A review just ends. The first reading is repeated soon: until it
    /// succeeds, the rules of the switch are unknown.
    pub(crate) fn note_refused_reading(&mut self, now: Nanos) {
        let Some(reading) = self.reading.take() else { return };
        reading.waiting.iter().for_each(|xid| drop(self.pending.remove(xid)));
        if reading.why == Why::Dump {
            self.first_reading.plan(now);
        }
    }

    /// Forgets the group or meter that the switch does not have, by this error. The next one with its identifier is added,
    /// not modified.
    pub(crate) fn note_absent(&mut self, error: &ErrorMessage<'_>) {
        match convert::absent(error) {
            Some(Absent::Group(group)) => drop(self.groups.remove(&group)),
            Some(Absent::Meter(meter)) => drop(self.meters.remove(&meter)),
            None => {}
        }
    }

    /// Whether the driver's own rules are to be sent again now.
    pub(crate) fn take_own_rules_due(&mut self, now: Nanos) -> bool {
        self.own_rules.take(now)
    }

    /// Whether its rules are to be read again now.
    pub(crate) fn take_reading_due(&mut self, now: Nanos) -> bool {
        self.first_reading.take(now)
    }

    /// Queues a message of the driver. It is short, so there is always room.
    pub(crate) fn queue(&mut self, message: &Message<'_>) -> u32 {
        let xid = self.next_xid();
        self.answer(message, xid);
        xid
    }

    /// Queues a message with this transaction identifier. If the message is too long for OpenFlow, logs an error
    /// instead.
    pub(crate) fn answer(&mut self, message: &Message<'_>, xid: u32) {
        if let Err(problem) = message.emit(xid, &mut self.out) {
            tracing::error!(peer = %self.peer, %problem, "a message was not sent");
        }
    }

    /// Notes a port that the switch has reported.
    pub(crate) fn note_port(&mut self, number: u32) {
        if self.ports.len() < MOST_PORTS {
            self.ports.insert(number);
        }
    }

    /// Keeps a change of a port until all ports have been read. The parts of the answer may be older or newer.
    pub(crate) fn keep_for_later(&mut self, status: &PortStatus) {
        if self.early.len() < MOST_PORTS {
            self.early.push(status.clone());
        }
    }

    /// Applies the changes that arrived while these ports were being read. A switch reports each change, so the last
    /// report about a port has its state.
    pub(crate) fn update(&mut self, ports: &mut Vec<Port>) {
        for PortStatus { reason, port } in std::mem::take(&mut self.early) {
            match ports.iter().position(|known| known.number == port.number) {
                Some(index) if reason == PortReason::Deleted => drop(ports.remove(index)),
                Some(index) => ports[index] = port,
                None if reason == PortReason::Deleted => {}
                None => ports.push(port),
            }
        }
    }

    /// Ports that the switch has reported.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.ports.iter().copied()
    }

    /// Whether the switch has reported a port.
    pub(crate) fn has_port(&self, number: u32) -> bool {
        self.ports.contains(&number)
    }

    /// Counts one more complaint about this connection; `None` if it should not be logged.
    pub(crate) fn complain(&mut self) -> Option<u64> {
        self.complaints += 1;
        (self.complaints <= PLAIN_COMPLAINTS || self.complaints.is_power_of_two()).then_some(self.complaints)
    }

    /// Whether it has no session.
    pub(crate) fn is_new(&self) -> bool {
        !matches!(self.stage, Stage::Up { .. } | Stage::Standby { .. })
    }

    /// Whether its switch is known.
    pub(crate) fn is_identified(&self) -> bool {
        matches!(self.stage, Stage::Up { .. } | Stage::Ports { .. } | Stage::Standby { .. })
    }

    /// Another controller leads at the switch. The session stays, without anything that was requested in it.
    pub(crate) fn stand_by(&mut self, dpid: u64) {
        self.stage = Stage::Standby { dpid };
        self.pending.clear();
        self.reading = None;
        (self.own_rules, self.first_reading) = (Repetition::default(), Repetition::default());
        self.groups.clear();
        self.meters.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }
}
