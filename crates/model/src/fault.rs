//! Faults at set times. Cables and switches fail and recover, sessions are lost, switches restart with empty tables,
//! the controller is killed and started again:
//! `10s:down:e0_0-a0_1,12s:up:e0_0-a0_1,20s:reboot:c3,30s:controller-kill`. Cables become slow, lossy or flap:
//! `1s:degrade:a0_1-c3:100Mbps,2s:loss:c3:0.01,3s:restore:c3,4s:flap:c3:10ms/90ms/5`.

use crate::spec::{nearest, SpecError};
use crate::units::{parse_rate_bps, parse_time, rate_text};
use crate::{Fabric, LinkId, LinkState, Nanos, NodeId};
use std::fmt;

/// The cables or the node that a fault affects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultTarget {
    /// One cable, named by either direction: `a-b#2` is the second cable between `a` and `b`.
    Cable(LinkId),
    /// All cables between two neighbours: `a-b`.
    Between(NodeId, NodeId),
    /// A switch (or host) with all its cables: `c3`.
    Node(NodeId),
}

/// New quality of cables that stay up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Quality {
    /// Both directions send at this rate from now on, at most their rate in the fabric (`degrade`). A packet that is
    /// already being sent keeps the old rate.
    Rate {
        /// Bits per second.
        rate_bps: u64,
    },
    /// Each packet is lost with this probability when it reaches the end of the cable (`loss`).
    Loss {
        /// Packets lost out of 10^9.
        per_billion: u32,
    },
    /// The rates and losses of the fabric (`restore`).
    Restored,
}

/// Kind of a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// Cables or a node fail (`down`) or recover (`up`). A switch that recovers has empty tables.
    Carrier {
        /// Cables or node that fail or recover.
        target: FaultTarget,
        /// Whether the target recovers.
        up: bool,
    },
    /// Cables become slow or lossy, or return to their original settings.
    Quality {
        /// Cables that change.
        target: FaultTarget,
        /// Their new quality.
        quality: Quality,
    },
    /// The session between a switch and the controller is lost (`session-down`) or allowed again (`session-up`). The
    /// switch keeps forwarding by its rules.
    Session {
        /// The switch.
        switch: NodeId,
        /// Whether the session is allowed again.
        up: bool,
    },
    /// The software of a switch restarts (`reboot`): its tables become empty, and it opens a new session. Its cables
    /// stay up.
    Reboot {
        /// The switch.
        switch: NodeId,
    },
    /// The controller stops without notice (`controller-kill`). Switches keep forwarding by their rules.
    ControllerKill,
    /// A controller starts (`controller-restart`). A controller that still runs is killed at that moment.
    ControllerRestart {
        /// Whether it starts from the newest snapshot of its predecessor (`controller-restart:snapshot`). Otherwise
        /// it knows only the fabric and what it reads from the switches.
        from_snapshot: bool,
    },
}

/// A fault at a set time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fault {
    /// Time of the fault.
    pub at: Nanos,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// The words for the kinds of faults in a specification.
const VERBS: [&str; 11] = [
    "down",
    "up",
    "degrade",
    "loss",
    "restore",
    "flap",
    "session-down",
    "session-up",
    "reboot",
    "controller-kill",
    "controller-restart",
];

/// Number of packets that a loss rate refers to.
const BILLION: u32 = 1_000_000_000;
/// Largest number of faults that one text can describe.
const MOST_FAULTS: usize = 1_000_000;

impl Fault {
    /// Parses one fault, such as `10s:down:e0_0-a0_1`.
    ///
    /// # Errors
    /// As [`Fault::parse_all`]; also if the text describes several faults.
    pub fn parse(fabric: &Fabric, text: &str) -> Result<Fault, SpecError> {
        match Fault::parse_all(fabric, text)?[..] {
            [fault] => Ok(fault),
            _ => {
                let problem = "describes several faults; expected one".to_owned();
                Err(SpecError { what: "fault", spec: text.trim().to_owned(), problem })
            }
        }
    }

    /// Parses the faults that one text describes, and returns them in order of time. In `a-b+c`, several things fail
    /// together (shared risk). `4s:flap:c3:10ms/90ms/5` fails five times, for 10 ms each, with 90 ms in between.
    ///
    /// # Errors
    /// A one-line message that says what was expected, with the nearest word or node name.
    pub fn parse_all(fabric: &Fabric, text: &str) -> Result<Vec<Fault>, SpecError> {
        let text = text.trim();
        let error = |problem: String| SpecError { what: "fault", spec: text.to_owned(), problem };
        let mut parts = text.splitn(3, ':').map(str::trim);
        let (Some(at), Some(verb), of) = (parts.next(), parts.next(), parts.next()) else {
            return Err(error(
                "expected TIME:down:WHAT or TIME:up:WHAT, such as 10s:down:e0_0-a0_1 or 10s:down:c3+c4, or one of \
                 TIME:degrade:WHAT:RATE, TIME:loss:WHAT:SHARE, TIME:restore:WHAT, TIME:flap:WHAT:DOWN/UP/TIMES, \
                 TIME:session-down:SWITCH, TIME:session-up:SWITCH, TIME:reboot:SWITCH, TIME:controller-kill, \
                 TIME:controller-restart, TIME:controller-restart:snapshot"
                    .into(),
            ));
        };
        let at = parse_time(at)
            .map_err(|problem| error(format!("{problem}; a fault begins with its time, as in 10s:down:e0_0-a0_1")))?;
        if verb == "flap" {
            return flapping(fabric, at, of).map_err(error);
        }
        let kinds = parse_kinds(fabric, verb, of).map_err(error)?;
        Ok(kinds.into_iter().map(|kind| Fault { at, kind }).collect())
    }

    /// Returns the text of the fault, as in a specification.
    pub fn text<'a>(&self, fabric: &'a Fabric) -> impl fmt::Display + 'a {
        FaultText { fault: *self, fabric }
    }

    /// Parses a schedule: faults with commas between them. The result is in order of time; faults at the same time
    /// keep the order of the text. An empty text is an empty schedule.
    ///
    /// # Errors
    /// As [`Fault::parse_all`], for the first fault that is wrong.
    pub fn parse_schedule(fabric: &Fabric, text: &str) -> Result<Vec<Fault>, SpecError> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let faults: Result<Vec<Vec<Fault>>, SpecError> =
            text.split(',').map(|part| Fault::parse_all(fabric, part)).collect();
        let mut faults = faults?.concat();
        faults.sort_by_key(|fault| fault.at);
        Ok(faults)
    }

    /// Returns the number of controllers that a schedule starts.
    pub fn restarts(faults: &[Fault]) -> usize {
        faults.iter().filter(|fault| matches!(fault.kind, FaultKind::ControllerRestart { .. })).count()
    }
}

impl FaultTarget {
    /// Returns one direction of each cable of the target.
    pub fn cables(&self, fabric: &Fabric) -> Vec<LinkId> {
        match *self {
            FaultTarget::Cable(link) => vec![link],
            FaultTarget::Between(a, b) => cables_between(fabric, a, b),
            FaultTarget::Node(node) => fabric.node(node).ports.clone(),
        }
    }
}

/// A fault, written in the form that [`Fault::parse`] reads.
struct FaultText<'a> {
    fault: Fault,
    fabric: &'a Fabric,
}

impl fmt::Display for FaultText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: NodeId| &self.fabric.node(node).name;
        let verb = |up: bool| if up { "up" } else { "down" };
        let at_ns = self.fault.at.0;
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
        let (unit_ns, unit) =
            units.into_iter().find(|(unit_ns, _)| at_ns.is_multiple_of(*unit_ns)).unwrap_or((1, "ns"));
        write!(f, "{}{unit}:", at_ns / unit_ns)?;
        let of = |target: FaultTarget| match target {
            FaultTarget::Node(node) => name(node).clone(),
            FaultTarget::Between(a, b) => format!("{}-{}", name(a), name(b)),
            FaultTarget::Cable(link) => {
                let ends = self.fabric.link(link);
                let cables = cables_between(self.fabric, ends.from, ends.to);
                let number = cables.iter().position(|&cable| cable == link).map_or(1, |index| index + 1);
                format!("{}-{}#{number}", name(ends.from), name(ends.to))
            }
        };
        match self.fault.kind {
            FaultKind::Carrier { target, up } => write!(f, "{}:{}", verb(up), of(target)),
            FaultKind::Quality { target, quality: Quality::Rate { rate_bps } } => {
                let units = [(1_000_000_000, "Gbps"), (1_000_000, "Mbps"), (1000, "kbps"), (1, "bps")];
                let (scale, unit) = units.into_iter().find(|(scale, _)| rate_bps % scale == 0).unwrap_or((1, "bps"));
                write!(f, "degrade:{}:{}{unit}", of(target), rate_bps / scale)
            }
            FaultKind::Quality { target, quality: Quality::Loss { per_billion } } => {
                write!(f, "loss:{}:{}", of(target), f64::from(per_billion) / f64::from(BILLION))
            }
            FaultKind::Quality { target, quality: Quality::Restored } => write!(f, "restore:{}", of(target)),
            FaultKind::Session { switch, up } => write!(f, "session-{}:{}", verb(up), name(switch)),
            FaultKind::Reboot { switch } => write!(f, "reboot:{}", name(switch)),
            FaultKind::ControllerKill => f.write_str("controller-kill"),
            FaultKind::ControllerRestart { from_snapshot: false } => f.write_str("controller-restart"),
            FaultKind::ControllerRestart { from_snapshot: true } => f.write_str("controller-restart:snapshot"),
        }
    }
}

/// Returns the kinds of fault that a verb means for its targets.
fn parse_kinds(fabric: &Fabric, verb: &str, of: Option<&str>) -> Result<Vec<FaultKind>, String> {
    let needs = |example: &str| of.ok_or_else(|| format!("{verb} needs a target; expected TIME:{verb}:{example}"));
    let with_value = |example: &'static str| {
        let missing = || format!("the value is missing; expected TIME:{verb}:{example}");
        needs(example)?.rsplit_once(':').ok_or_else(missing)
    };
    let each = |name: &str, kind: &dyn Fn(FaultTarget) -> FaultKind| {
        parse_targets(fabric, name).map(|targets| targets.into_iter().map(kind).collect::<Vec<_>>())
    };
    match verb {
        "down" | "up" => {
            each(needs("WHAT, such as 10s:down:c3")?, &|target| FaultKind::Carrier { target, up: verb == "up" })
        }
        "degrade" => {
            let (name, rate) = with_value("WHAT:RATE, such as 10s:degrade:a0_1-c3:100Mbps")?;
            let rate_bps = parse_rate_bps(rate.trim()).map_err(|error| error.to_string())?;
            for link in parse_targets(fabric, name)?.iter().flat_map(|target| target.cables(fabric)) {
                let own_bps = [link, link.reverse()].map(|link| fabric.link(link).settings.rate_bps);
                let least_bps = own_bps[0].min(own_bps[1]);
                if rate_bps > least_bps {
                    return Err(format!("{rate} is more than the {} that {name} has", rate_text(least_bps)));
                }
            }
            each(name, &|target| FaultKind::Quality { target, quality: Quality::Rate { rate_bps } })
        }
        "loss" => {
            let (name, share) = with_value("WHAT:SHARE, such as 10s:loss:a0_1-c3:0.01")?;
            let per_billion = parse_share(share)?;
            each(name, &|target| FaultKind::Quality { target, quality: Quality::Loss { per_billion } })
        }
        "restore" => each(needs("WHAT, such as 10s:restore:c3")?, &|target| FaultKind::Quality {
            target,
            quality: Quality::Restored,
        }),
        _ => parse_kind(fabric, verb, of).map(|kind| vec![kind]),
    }
}

/// Parses a share of packets from 0 to 1, and returns it as a number out of 10^9.
pub fn parse_share(text: &str) -> Result<u32, String> {
    let share = text.trim().parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    let share = share.ok_or_else(|| format!("`{text}` is not a share of packets from 0 to 1"))?;
    Ok((share * f64::from(BILLION)).round() as u32)
}

/// Returns the failures and recoveries of a `flap` fault.
fn flapping(fabric: &Fabric, at: Nanos, of: Option<&str>) -> Result<Vec<Fault>, String> {
    let expected = "expected TIME:flap:WHAT:DOWN/UP/TIMES, such as 10s:flap:a0_1-c3:100ms/400ms/5";
    let (name, rhythm) = of.and_then(|of| of.rsplit_once(':')).ok_or(expected)?;
    let [down, up, times] = rhythm.split('/').map(str::trim).collect::<Vec<_>>()[..] else {
        return Err(format!("`{rhythm}` is not DOWN/UP/TIMES; {expected}"));
    };
    let targets = parse_targets(fabric, name)?;
    let [down, up] = [down, up].map(|text| match parse_time(text) {
        Ok(time) if time > Nanos::ZERO => Ok(time),
        Ok(_) => Err(format!("`{text}` must be more than 0s; {expected}")),
        Err(error) => Err(format!("{error}; {expected}")),
    });
    let (down, period) = (down.clone()?, down?.saturating_add(up?));
    let most = MOST_FAULTS / 2 / targets.len().max(1);
    let count = times.parse::<usize>().ok().filter(|count| (1..=most).contains(count));
    let count = count.ok_or_else(|| format!("`{times}` is not a number of times from 1 to {most}"))?;
    let last = period.0.checked_mul(count as u64).and_then(|all| at.0.checked_add(all));
    last.ok_or_else(|| format!("`{rhythm}` ends later than the largest time, 2^64 ns"))?;
    let mut faults = Vec::with_capacity(2 * count * targets.len());
    for number in 0..count {
        let begin = Nanos(at.0 + period.0 * number as u64);
        for (at, up) in [(begin, false), (begin.saturating_add(down), true)] {
            faults.extend(targets.iter().map(|&target| Fault { at, kind: FaultKind::Carrier { target, up } }));
        }
    }
    Ok(faults)
}

/// Returns the targets that are named with `+` between them.
fn parse_targets(fabric: &Fabric, text: &str) -> Result<Vec<FaultTarget>, String> {
    match parse_target(fabric, text) {
        Err(_) if text.contains('+') => text.split('+').map(|part| parse_target(fabric, part.trim())).collect(),
        one => one.map(|target| vec![target]),
    }
}

fn parse_kind(fabric: &Fabric, verb: &str, of: Option<&str>) -> Result<FaultKind, String> {
    let target = || of.ok_or_else(|| format!("{verb} needs a switch; expected TIME:{verb}:WHAT, as in 10s:{verb}:c3"));
    let switch = || target().and_then(|name| parse_switch(fabric, name));
    match verb {
        "session-down" | "session-up" => Ok(FaultKind::Session { switch: switch()?, up: verb == "session-up" }),
        "reboot" => Ok(FaultKind::Reboot { switch: switch()? }),
        "controller-kill" => match of {
            None => Ok(FaultKind::ControllerKill),
            Some(of) => Err(format!("controller-kill has no target; remove `{of}`")),
        },
        "controller-restart" => match of {
            None => Ok(FaultKind::ControllerRestart { from_snapshot: false }),
            Some("snapshot") => Ok(FaultKind::ControllerRestart { from_snapshot: true }),
            Some(of) => Err(format!("controller-restart is followed by `snapshot` or nothing, not `{of}`")),
        },
        _ => {
            let hint = nearest(verb, &VERBS).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            Err(format!("`{verb}` is not one of {}{hint}", VERBS.join(", ")))
        }
    }
}

fn parse_switch(fabric: &Fabric, name: &str) -> Result<NodeId, String> {
    match fabric.find(name) {
        Some(node) if fabric.is_host(node) => Err(format!("{name} is a host; expected a switch")),
        Some(node) => Ok(node),
        None => Err(unknown_node(fabric, name)),
    }
}

fn cables_between(fabric: &Fabric, a: NodeId, b: NodeId) -> Vec<LinkId> {
    fabric.node(a).ports.iter().copied().filter(|&link| fabric.link(link).to == b).collect()
}

/// Returns one direction of each cable with this name, from `a` in `a-b` and `a-b#2`, and away from a switch that stands
/// for all its cables. An error names the problem.
pub fn cables_named(fabric: &Fabric, name: &str) -> Result<Vec<LinkId>, String> {
    parse_target(fabric, name).map(|target| target.cables(fabric))
}

/// Parses a node name, or two node names with `-` between them. Names can contain `-` themselves.
fn parse_target(fabric: &Fabric, text: &str) -> Result<FaultTarget, String> {
    if let Some(node) = fabric.find(text) {
        return Ok(FaultTarget::Node(node));
    }
    let (pair, number) = match text.rsplit_once('#') {
        Some((pair, number)) => (pair, Some(number)),
        None => (text, None),
    };
    let halves = || pair.match_indices('-').map(|(dash, _)| (&pair[..dash], &pair[dash + 1..]));
    let known = halves().find_map(|(a, b)| Some((fabric.find(a)?, fabric.find(b)?)));
    let Some((a, b)) = known else {
        let unknown = halves().next().map_or(text, |(a, b)| if fabric.find(a).is_none() { a } else { b });
        return Err(unknown_node(fabric, unknown));
    };
    let cables = cables_between(fabric, a, b);
    if cables.is_empty() {
        return Err(not_neighbours(fabric, a, b));
    }
    let Some(number) = number else { return Ok(FaultTarget::Between(a, b)) };
    let cable = number.parse::<usize>().ok().and_then(|number| cables.get(number.checked_sub(1)?));
    cable.map(|&link| FaultTarget::Cable(link)).ok_or_else(|| {
        let count = cables.len();
        format!("`#{number}` is not the number of a cable of {pair}; expected #1 to #{count}, or none for all")
    })
}

fn unknown_node(fabric: &Fabric, name: &str) -> String {
    let names: Vec<&str> = fabric.nodes().iter().map(|node| node.name.as_str()).collect();
    let hint = nearest(name, &names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!("no node is called `{name}`{hint} (expected a node, or two neighbours as in e0_0-a0_1)")
}

fn not_neighbours(fabric: &Fabric, a: NodeId, b: NodeId) -> String {
    let (name_a, name_b) = (&fabric.node(a).name, &fabric.node(b).name);
    let mut near: Vec<&str> = Vec::new();
    for &link in fabric.node(a).ports.iter().rev().take(8) {
        near.push(&fabric.node(fabric.link(link).to).name);
    }
    near.dedup();
    let more = if fabric.node(a).ports.len() > 8 { ", …" } else { "" };
    format!("{name_a} and {name_b} are not neighbours; {name_a} has cables to {}{more}", near.join(", "))
}

/// The nodes and cables that are broken at a moment. A cable is up if it is not cut and both of its ends work. The
/// recovery of a switch does not repair a cable that was cut separately.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureState {
    cut: Vec<bool>,
    dead: Vec<bool>,
}

impl FailureState {
    /// Returns the initial state of a fabric: its [`Fabric::failed_links`] are cut.
    pub fn of(fabric: &Fabric) -> FailureState {
        let mut cut = vec![false; fabric.links().len() / 2];
        for link in fabric.failed_links() {
            cut[link.cable() as usize] = true;
        }
        FailureState { cut, dead: vec![false; fabric.nodes().len()] }
    }

    /// Whether a node has failed.
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.dead[node.index()]
    }

    /// Applies a fault or a repair, and updates `state`. Returns one direction of every cable that changed.
    pub fn apply(&mut self, fabric: &Fabric, fault: &Fault, state: &mut LinkState) -> Vec<LinkId> {
        let FaultKind::Carrier { target, up } = fault.kind else { return Vec::new() };
        let cables = target.cables(fabric);
        match target {
            FaultTarget::Node(node) => self.dead[node.index()] = !up,
            FaultTarget::Cable(_) | FaultTarget::Between(..) => {
                for link in &cables {
                    self.cut[link.cable() as usize] = !up;
                }
            }
        }
        cables.into_iter().filter(|&link| state.set_cable(link, self.is_up(fabric, link))).collect()
    }

    fn is_up(&self, fabric: &Fabric, link: LinkId) -> bool {
        let ends = fabric.link(link);
        !self.cut[link.cable() as usize] && !self.dead[ends.from.index()] && !self.dead[ends.to.index()]
    }
}
