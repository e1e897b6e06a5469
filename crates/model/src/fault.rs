//! Faults at set times. Cables and switches fail and come back, sessions are lost, switches restart with empty tables, the
//! controller is killed and started again: `10s:down:e0_0-a0_1,12s:up:e0_0-a0_1,20s:reboot:c3,30s:controller-kill`.

use crate::spec::{nearest, SpecError};
use crate::units::parse_time;
use crate::{Fabric, LinkId, LinkState, Nanos, NodeId};
use std::fmt;

/// What fails or comes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultTarget {
    /// One cable, named by either direction: `a-b#2` is the second of those between `a` and `b`.
    Cable(LinkId),
    /// All cables between two neighbours: `a-b`.
    Between(NodeId, NodeId),
    /// A switch (or host) with all of its cables: `c3`.
    Node(NodeId),
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// Cables or a node fail (`down`) or come back (`up`). A switch that comes back has empty tables.
    Carrier {
        /// What.
        target: FaultTarget,
        /// Whether it comes back.
        up: bool,
    },
    /// The session between a switch and the controller is lost (`session-down`) or may stand again (`session-up`). The
    /// switch forwards by the rules it has.
    Session {
        /// The switch.
        switch: NodeId,
        /// Whether it may stand again.
        up: bool,
    },
    /// The software of a switch restarts (`reboot`): its tables are empty, and its session begins anew. Its cables stay up.
    Reboot {
        /// The switch.
        switch: NodeId,
    },
    /// The controller stops without a word (`controller-kill`). Switches forward by the rules they have.
    ControllerKill,
    /// A controller starts (`controller-restart`); one that still runs is killed at that moment.
    ControllerRestart {
        /// Whether it begins with the snapshot that the last one wrote last (`controller-restart:snapshot`). Otherwise it
        /// knows the fabric, and what it reads from the switches.
        from_snapshot: bool,
    },
}

/// Something happens at a set time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fault {
    /// When.
    pub at: Nanos,
    /// What.
    pub kind: FaultKind,
}

/// The words for what happens, as a specification has them.
const VERBS: [&str; 7] =
    ["down", "up", "session-down", "session-up", "reboot", "controller-kill", "controller-restart"];

impl Fault {
    /// Reads one fault, `10s:down:e0_0-a0_1`.
    ///
    /// # Errors
    /// One line that says what was expected, with the nearest word or node name.
    pub fn parse(fabric: &Fabric, text: &str) -> Result<Fault, SpecError> {
        let text = text.trim();
        let error = |problem: String| SpecError { what: "fault", spec: text.to_owned(), problem };
        let mut parts = text.splitn(3, ':').map(str::trim);
        let (Some(at), Some(verb), of) = (parts.next(), parts.next(), parts.next()) else {
            return Err(error(
                "expected TIME:down:WHAT or TIME:up:WHAT, such as 10s:down:e0_0-a0_1 or 10s:down:c3, or one of \
                 TIME:session-down:SWITCH, TIME:session-up:SWITCH, TIME:reboot:SWITCH, TIME:controller-kill, \
                 TIME:controller-restart, TIME:controller-restart:snapshot"
                    .into(),
            ));
        };
        let at = parse_time(at)
            .map_err(|problem| error(format!("{problem}; a fault begins with its time, as in 10s:down:e0_0-a0_1")))?;
        let kind = parse_kind(fabric, verb, of).map_err(error)?;
        Ok(Fault { at, kind })
    }

    /// How it is written in a specification.
    pub fn text<'a>(&self, fabric: &'a Fabric) -> impl fmt::Display + 'a {
        FaultText { fault: *self, fabric }
    }

    /// Reads a schedule: faults with commas between them. They are returned in order of time, those of one time in
    /// the order given. An empty text is an empty schedule.
    ///
    /// # Errors
    /// As [`Fault::parse`], about the first fault that is wrong.
    pub fn parse_schedule(fabric: &Fabric, text: &str) -> Result<Vec<Fault>, SpecError> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let faults: Result<Vec<Fault>, SpecError> = text.split(',').map(|part| Fault::parse(fabric, part)).collect();
        let mut faults = faults?;
        faults.sort_by_key(|fault| fault.at);
        Ok(faults)
    }

    /// How many controllers a schedule starts.
    pub fn restarts(faults: &[Fault]) -> usize {
        faults.iter().filter(|fault| matches!(fault.kind, FaultKind::ControllerRestart { .. })).count()
    }
}

impl FaultTarget {
    /// One direction of every cable of it.
    pub fn cables(&self, fabric: &Fabric) -> Vec<LinkId> {
        match *self {
            FaultTarget::Cable(link) => vec![link],
            FaultTarget::Between(a, b) => cables_between(fabric, a, b),
            FaultTarget::Node(node) => fabric.node(node).ports.clone(),
        }
    }
}

/// A fault, written as [`Fault::parse`] reads it.
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
        let (unit_ns, unit) = units.into_iter().find(|(unit_ns, _)| at_ns % unit_ns == 0).unwrap_or((1, "ns"));
        write!(f, "{}{unit}:", at_ns / unit_ns)?;
        match self.fault.kind {
            FaultKind::Carrier { target: FaultTarget::Node(node), up } => write!(f, "{}:{}", verb(up), name(node)),
            FaultKind::Carrier { target: FaultTarget::Between(a, b), up } => {
                write!(f, "{}:{}-{}", verb(up), name(a), name(b))
            }
            FaultKind::Carrier { target: FaultTarget::Cable(link), up } => {
                let ends = self.fabric.link(link);
                let cables = cables_between(self.fabric, ends.from, ends.to);
                let number = cables.iter().position(|&cable| cable == link).map_or(1, |index| index + 1);
                write!(f, "{}:{}-{}#{number}", verb(up), name(ends.from), name(ends.to))
            }
            FaultKind::Session { switch, up } => write!(f, "session-{}:{}", verb(up), name(switch)),
            FaultKind::Reboot { switch } => write!(f, "reboot:{}", name(switch)),
            FaultKind::ControllerKill => f.write_str("controller-kill"),
            FaultKind::ControllerRestart { from_snapshot: false } => f.write_str("controller-restart"),
            FaultKind::ControllerRestart { from_snapshot: true } => f.write_str("controller-restart:snapshot"),
        }
    }
}

fn parse_kind(fabric: &Fabric, verb: &str, of: Option<&str>) -> Result<FaultKind, String> {
    let target = || of.ok_or_else(|| format!("{verb} of what? expected TIME:{verb}:WHAT, such as 10s:{verb}:c3"));
    let switch = || target().and_then(|name| parse_switch(fabric, name));
    match verb {
        "down" | "up" => Ok(FaultKind::Carrier { target: parse_target(fabric, target()?)?, up: verb == "up" }),
        "session-down" | "session-up" => Ok(FaultKind::Session { switch: switch()?, up: verb == "session-up" }),
        "reboot" => Ok(FaultKind::Reboot { switch: switch()? }),
        "controller-kill" => match of {
            None => Ok(FaultKind::ControllerKill),
            Some(of) => Err(format!("nothing comes after controller-kill; `{of}` does")),
        },
        "controller-restart" => match of {
            None => Ok(FaultKind::ControllerRestart { from_snapshot: false }),
            Some("snapshot") => Ok(FaultKind::ControllerRestart { from_snapshot: true }),
            Some(of) => Err(format!("after controller-restart comes `snapshot` or nothing, not `{of}`")),
        },
        _ => {
            let hint = nearest(verb, &VERBS).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            Err(format!("`{verb}` is none of {}{hint}", VERBS.join(", ")))
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

/// One direction of each cable that a name stands for: `a-b`, `a-b#2`, or all cables of a switch. Also says what is wrong.
pub(crate) fn cables_named(fabric: &Fabric, name: &str) -> Result<Vec<LinkId>, String> {
    parse_target(fabric, name).map(|target| target.cables(fabric))
}

/// A node name, or two with `-` between them; names may hold a `-` themselves.
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

/// What is broken at a moment. A cable is up when it is not cut itself and both of its ends work: a switch that comes
/// back does not mend a cable that was cut on its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    cut: Vec<bool>,
    dead: Vec<bool>,
}

impl Damage {
    /// The damage that a fabric starts with: its [`Fabric::failed_links`] are cut.
    pub fn of(fabric: &Fabric) -> Damage {
        let mut cut = vec![false; fabric.links().len() / 2];
        for link in fabric.failed_links() {
            cut[link.cable() as usize] = true;
        }
        Damage { cut, dead: vec![false; fabric.nodes().len()] }
    }

    /// Whether a node has failed.
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.dead[node.index()]
    }

    /// Does the damage of a fault, or mends it, and brings `state` in line. Returns one direction of every cable that went
    /// up or down by it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric_from_spec;

    fn down(fabric: &Fabric, state: &LinkState) -> Vec<String> {
        let name = |node: NodeId| fabric.node(node).name.as_str();
        let cut = fabric.cables().filter(|&link| !state.is_up(link));
        cut.map(|link| format!("{}-{}", name(fabric.link(link).from), name(fabric.link(link).to))).collect()
    }

    #[test]
    fn a_switch_that_returns_does_not_mend_a_cut_cable() {
        let fabric = fabric_from_spec("diamond").unwrap();
        let text = "4s:up:c0, 1s:down:e0-c0,2s:down:c0,3s:up:e0-c0,5s:down:c0-e1,6s:down:c0,7s:up:c0";
        let faults = Fault::parse_schedule(&fabric, text).unwrap();
        let (mut damage, mut state) = (Damage::of(&fabric), LinkState::of(&fabric));
        let mut seen = Vec::new();
        for fault in &faults {
            let changed = damage.apply(&fabric, fault, &mut state);
            seen.push((fault.at.as_secs_f64() as u32, changed.len(), down(&fabric, &state).join(" ")));
        }
        let expected = [
            (1, 1, "e0-c0"),
            (2, 1, "e0-c0 c0-e1"),
            (3, 0, "e0-c0 c0-e1"),
            (4, 2, ""),
            (5, 1, "c0-e1"),
            (6, 1, "e0-c0 c0-e1"),
            (7, 1, "c0-e1"),
        ];
        assert_eq!(seen, expected.map(|(at, changed, down)| (at, changed, down.to_owned())));
    }

    #[test]
    fn cables_failed_by_the_specification_stay_cut_when_a_switch_returns() {
        let fabric = fabric_from_spec("leaf-spine:spines=2,leaves=2,hosts=1,fail=0.25").unwrap();
        let (mut damage, mut state) = (Damage::of(&fabric), LinkState::of(&fabric));
        let before = state.clone();
        for text in ["1s:down:c0", "1s:down:c1", "2s:up:c0", "2s:up:c1"] {
            damage.apply(&fabric, &Fault::parse(&fabric, text).unwrap(), &mut state);
        }
        assert_eq!(down(&fabric, &state), down(&fabric, &before));
        assert_eq!(down(&fabric, &state).len(), 1);
    }

    #[test]
    fn names_one_of_several_cables() {
        let json = r#"{"nodes": [{"id": "a-1"}, {"id": "b"}], "multigraph": true,
            "edges": [{"source": "a-1", "target": "b"}, {"source": "b", "target": "a-1"}]}"#;
        let fabric = crate::fabric_from_file_text("two.json", json).unwrap().fabric;
        let cables = |text: &str| {
            Fault::parse(&fabric, text).map(|fault| match fault.kind {
                FaultKind::Carrier { target, .. } => target.cables(&fabric).len(),
                _ => 0,
            })
        };
        assert_eq!(cables("1s:down:a-1-b"), Ok(2));
        assert_eq!(cables("1s:down:a-1-b#2"), Ok(1));
        assert_eq!(cables("1s:down:a-1"), Ok(3));
        assert!(cables("1s:down:a-1-b#3").unwrap_err().to_string().contains("expected #1 to #2"));
    }

    #[test]
    fn a_fault_is_written_as_it_is_read() {
        let fabric = fabric_from_spec("diamond").unwrap();
        for text in [
            "10us:down:c0",
            "0s:up:c0-e1",
            "5ns:down:e0-c0#1",
            "7ns:session-down:e0",
            "7ns:session-up:e0",
            "9ms:reboot:c1",
            "1001ms:controller-kill",
            "12s:controller-restart",
            "13ns:controller-restart:snapshot",
        ] {
            let fault = Fault::parse(&fabric, text).unwrap();
            assert_eq!(fault.text(&fabric).to_string(), text);
        }
        let faults = Fault::parse_schedule(&fabric, "2s:controller-restart,1s:controller-kill").unwrap();
        assert_eq!((faults[0].kind, Fault::restarts(&faults)), (FaultKind::ControllerKill, 1));
    }

    #[test]
    fn says_what_is_wrong() {
        let fabric = fabric_from_spec("fat-tree:k=4").unwrap();
        for (text, part) in [
            ("", "expected TIME:down:WHAT"),
            ("10s", "TIME:controller-restart:snapshot"),
            ("10s:down", "expected TIME:down:WHAT"),
            ("10s:reboot", "expected TIME:reboot:WHAT"),
            ("10:down:c3", "`10` is not a time"),
            ("-1s:down:c3", "is not a time"),
            ("10s:cut:c3", "`cut` is none of down, up, session-down,"),
            ("10s:controller-killed", "did you mean `controller-kill`?"),
            ("10s:controller-kill:c0", "nothing comes after controller-kill; `c0` does"),
            ("10s:controller-restart:empty", "comes `snapshot` or nothing, not `empty`"),
            ("10s:reboot:h0", "h0 is a host; expected a switch"),
            ("10s:session-down:e0_0-a0_0", "no node is called `e0_0-a0_0`"),
            ("10s:down:c9", "no node is called `c9`; did you mean `c0`?"),
            ("10s:down:e0_0-a9_1", "no node is called `a9_1`; did you mean `a0_1`?"),
            ("10s:down:e0_0-c0", "e0_0 and c0 are not neighbours; e0_0 has cables to a0_1, a0_0, h1, h0"),
            ("10s:down:-", "no node is called ``"),
        ] {
            let error = Fault::parse(&fabric, text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(Fault::parse_schedule(&fabric, " "), Ok(Vec::new()));
        assert!(Fault::parse_schedule(&fabric, "1s:down:c0,").is_err());
    }
}
