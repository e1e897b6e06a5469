//! A schedule: everything that a seed determines. As text it is JSON, and does not depend on how seeds are drawn.

use pathloom_control::Target;
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, LinkId, Nanos, NodeId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

const FABRICS: [&str; 4] = [
    "fat-tree:k=4,hosts=1,rate=10Mbps",
    "leaf-spine:spines=2,leaves=3,hosts=2,rate=10Mbps",
    "leaf-spine:spines=3,leaves=4,hosts=1,rate=10Mbps",
    "jellyfish:switches=6,ports=5,hosts=6,seed=3,rate=10Mbps",
];
const SCHEMES: [&str; 7] = [
    "move:period=1h",
    "move:period=300ms,times=8,migration=tagged",
    "move:period=300ms,times=8,migration=sfmm",
    "ecmp",
    "hedera:period=1s",
    "ofpt:detect=label,period=1s",
    "lessor",
];

/// The scheme that wants announcements of transfers, and holds some of them.
const ANNOUNCED: &str = "ofpt:sizes=announced,period=300ms";

/// A labelled flow that sends all the time, unless it is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Flow {
    /// Number of the sending host.
    pub from: usize,
    /// Number of the receiving host.
    pub to: usize,
    /// Its source port.
    pub port: u16,
    /// Bytes that its program announces, if its host has an agent.
    #[serde(default)]
    pub size_bytes: Option<u64>,
}

/// A fault, or an operation of the operator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// The session of a switch breaks.
    BreakSession(NodeId),
    /// The software of a switch restarts.
    Restart { switch: NodeId, keeps_rules: bool },
    /// The controller is killed, and another one starts after this time.
    KillController { down: Nanos, keeps_snapshot: bool },
    /// A switch refuses this many rules of flows.
    Refuse { switch: NodeId, rules: u32 },
    /// A switch answers with this many rows in each part.
    RowsInPart { switch: NodeId, rows: usize },
    /// A cable fails for this time.
    CutCable { cable: LinkId, lasts: Nanos },
    /// Another scheme is put in charge.
    ChangeScheme(String),
    /// A switch or cable leaves service for this time. Another scheme may be put in charge meanwhile.
    Drain { target: Target, lasts: Nanos, scheme: Option<String> },
    /// The connection of the agent of a host breaks.
    BreakAgent(usize),
    /// The agent of a host is killed, and starts again.
    RestartAgent(usize),
    /// A flow begins.
    Begin(Flow),
    /// The flow that began first ends.
    End,
}

impl Step {
    /// Whether packets may be lost until it is repaired.
    pub(super) fn may_lose(&self) -> bool {
        matches!(self, Step::CutCable { .. } | Step::Restart { keeps_rules: false, .. })
    }
}

/// Everything that a seed determines.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Schedule {
    /// Seed of all delays, and of how byte streams are divided.
    pub seed: u64,
    /// Specification of the fabric.
    pub fabric: String,
    /// Specification of the first scheme.
    pub scheme: String,
    /// Longest time that a switch takes for a message.
    pub work: Nanos,
    /// Maximum number of bytes that arrive at once.
    pub read: usize,
    /// Numbers of the hosts that have agents.
    #[serde(default)]
    pub agents: Vec<usize>,
    /// The flows that begin before the first step.
    pub flows: Vec<Flow>,
    /// The steps, each with the time until the next one.
    pub steps: Vec<(Step, Nanos)>,
}

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn draw<T: Copy>(rng: &mut Pcg64, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// A fault or an operation that must not cost a packet.
fn disturbance(rng: &mut Pcg64, fabric: &Fabric, agents: &[usize]) -> Step {
    let switch = draw(rng, fabric.switches());
    match rng.random_range(0..if agents.is_empty() { 9 } else { 14 }) {
        0 | 1 => Step::BreakSession(switch),
        2 => Step::Restart { switch, keeps_rules: true },
        3 | 4 => Step::KillController { down: ms(rng.random_range(0..500)), keeps_snapshot: rng.random_bool(0.5) },
        5 => Step::Refuse { switch, rules: rng.random_range(1..4) },
        6 => Step::RowsInPart { switch, rows: rng.random_range(1..40) },
        7 => Step::ChangeScheme(draw(rng, &SCHEMES).to_owned()),
        8 => {
            let cables: Vec<LinkId> = fabric.switch_cables().collect();
            let target = if rng.random_bool(0.5) { Target::Switch(switch) } else { Target::Cable(draw(rng, &cables)) };
            let scheme = rng.random_bool(0.3).then(|| draw(rng, &SCHEMES).to_owned());
            Step::Drain { target, lasts: ms(rng.random_range(0..2000)), scheme }
        }
        9 => Step::BreakAgent(draw(rng, agents)),
        10 => Step::RestartAgent(draw(rng, agents)),
        11 => Step::ChangeScheme(ANNOUNCED.to_owned()),
        12 => Step::End,
        _ => {
            let (from, port) = (draw(rng, agents), rng.random_range(4000..5000));
            Step::Begin(flow(rng, fabric, from, port))
        }
    }
}

/// A flow from a host to one of the first four others, with a size to announce.
fn flow(rng: &mut Pcg64, fabric: &Fabric, from: usize, port: u16) -> Flow {
    let hosts = fabric.attachments().len();
    let to = (from + rng.random_range(1..hosts.min(5))) % hosts;
    Flow { from, to, port, size_bytes: Some(rng.random_range(100_000..5_000_000)) }
}

/// A step that may cost packets until it is repaired.
fn damage(rng: &mut Pcg64, fabric: &Fabric) -> Step {
    if rng.random_bool(0.3) {
        return Step::Restart { switch: draw(rng, fabric.switches()), keeps_rules: false };
    }
    let cables: Vec<LinkId> = fabric.switch_cables().collect();
    Step::CutCable { cable: draw(rng, &cables), lasts: ms(rng.random_range(0..1500)) }
}

impl Schedule {
    /// Draws a schedule. The same seed gives the same schedule.
    ///
    /// # Errors
    /// A fabric of the list is not valid.
    pub(super) fn draw(seed: u64) -> Result<Schedule, String> {
        let mut rng = Pcg64::seed_from_u64(seed);
        let (spec, mut scheme) = (draw(&mut rng, &FABRICS), draw(&mut rng, &SCHEMES));
        let work = draw(&mut rng, &[ms(0), ms(5), ms(30)]);
        let read = draw(&mut rng, &[40, 300, usize::MAX]);
        let fabric = fabric_from_spec(spec).map_err(|problem| problem.to_string())?;
        let hosts = fabric.attachments().len();
        let (mut agents, mut flows) = (Vec::new(), Vec::new());
        if rng.random_bool(0.4) {
            scheme = if rng.random_bool(0.6) { ANNOUNCED } else { scheme };
            agents.extend(0..rng.random_range(1..=2));
            for number in 0..4 {
                flows.push(flow(&mut rng, &fabric, number % 2, 3000 + number as u16));
            }
        } else {
            let to = |from: usize| (from + hosts / 2) % hosts;
            flows.extend((0..hosts.min(4)).map(|from| Flow {
                from,
                to: to(from),
                port: 3000 + from as u16,
                size_bytes: None,
            }));
        }
        let calm = rng.random_bool(0.6);
        let mut steps = Vec::new();
        for _ in 0..rng.random_range(1..=6) {
            let step = match calm || rng.random_bool(0.5) {
                true => disturbance(&mut rng, &fabric, &agents),
                false => damage(&mut rng, &fabric),
            };
            steps.push((step, ms(rng.random_range(0..1200))));
        }
        Ok(Schedule { seed, fabric: spec.to_owned(), scheme: scheme.to_owned(), work, read, agents, flows, steps })
    }
}
