//! Settings of a run.

use pathloom_control::Enforcement;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{Fabric, Fault, Nanos};
use pathloom_scheme::Scheme;
use pathloom_switching::deployment::Deployment;
use pathloom_transport::mptcp::MOST_SUBFLOWS;
use pathloom_transport::TransportSpec;
use pathloom_workload::Workload;
use std::sync::Arc;

/// When a link hands a packet on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Handover {
    /// When the last bit has been sent: store and forward.
    #[default]
    End,
    /// When sending begins; the next packet waits until sending ends. The links of the lab work like this: a shaper
    /// lets a packet go and then counts its cost, so a packet that meets no queue takes no transmission time.
    Begin,
}

/// What is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fidelity {
    /// Every packet.
    #[default]
    Packets,
    /// Every packet, except that phases in which all rates have settled are advanced at once.
    Skip,
    /// Flows as max-min fair rates over the paths that rules give them; no packet is sent. Of an outcome, only times,
    /// payload and bytes of flows and links, utilisation, and the costs of control have a meaning.
    Fluid,
}

/// Names of the values of [`Fidelity`].
const FIDELITIES: [(&str, Fidelity); 3] =
    [("packets", Fidelity::Packets), ("skip", Fidelity::Skip), ("fluid", Fidelity::Fluid)];

impl Fidelity {
    /// The fidelity of this name; `None` if there is none.
    pub fn of_name(name: &str) -> Option<Fidelity> {
        FIDELITIES.iter().find(|(known, _)| *known == name).map(|&(_, fidelity)| fidelity)
    }
}

/// Names of the values of [`Handover`].
const HANDOVERS: [(&str, Handover); 2] = [("end", Handover::End), ("begin", Handover::Begin)];

/// The longest run, with its drain, that the simulator's clock can represent.
pub const LONGEST_RUN: Nanos = Nanos::from_secs(200 * 86_400);

/// How controller and switches communicate, and how long they take.
#[derive(Clone, PartialEq, Debug)]
pub struct ControlSettings {
    /// Delay of the control channel in one direction.
    pub delay: Nanos,
    /// Time that the controller takes for each message that it gets.
    pub service: Nanos,
    /// Time that a switch takes to carry out each change of a rule, group or meter.
    pub install: Nanos,
    /// Number of rules that a switch has room for (TCAM size); `None` for as many as fit into memory. The controller
    /// knows it too.
    pub rule_limit: Option<usize>,
    /// Who enforces the rates that a scheme gives its flows.
    pub enforcement: Enforcement,
    /// Share of the hosts that have an agent, 0..=1, drawn with the seed of the run. The other hosts label and
    /// announce nothing, and they neither hold nor pace flows.
    pub agents: f64,
    /// Transfers of at least this many bytes, and those without end, are labelled as long by their hosts, or
    /// announced if the scheme requires that.
    pub long_bytes: u64,
    /// When links hand packets on.
    pub handover: Handover,
    /// Messages that the controller takes from its queue at a time. It sends one barrier to a switch for all changes
    /// that follow from them.
    pub batch: usize,
    /// How often the controller writes a snapshot, from which a fault may start the next controller.
    pub snapshot: Nanos,
}

impl Default for ControlSettings {
    fn default() -> ControlSettings {
        ControlSettings {
            delay: Nanos::from_micros(500),
            service: Nanos::from_micros(20),
            install: Nanos::from_micros(100),
            rule_limit: None,
            enforcement: Enforcement::Host,
            agents: 1.0,
            long_bytes: 100_000,
            handover: Handover::End,
            batch: 1,
            snapshot: Nanos::from_secs(5),
        }
    }
}

impl ControlSettings {
    /// Reads `delay=1ms,service=20us,install=100us,tcam=2000,long=100KB,enforcement=host|meter|any,agents=1,
    /// handover=end|begin,batch=1,snapshot=5s`, with or without `control:` before it. `rules` is another name
    /// of `tcam`.
    pub fn parse(text: &str) -> Result<ControlSettings, SpecError> {
        let full = if text.starts_with("control:") { text.to_owned() } else { format!("control:{text}") };
        let spec = Spec::parse("control", &full)?;
        let d = ControlSettings::default();
        let agents = spec.number("agents", 0.0, 1.0)?.unwrap_or(d.agents);
        // The live controller does the same if hosts have no agent.
        let usual = if agents < 1.0 { Enforcement::Any } else { d.enforcement };
        let settings = ControlSettings {
            delay: spec.time("delay")?.unwrap_or(d.delay),
            service: spec.time("service")?.unwrap_or(d.service),
            install: spec.time("install")?.unwrap_or(d.install),
            rule_limit: rule_limit(&spec)?,
            enforcement: spec.choice("enforcement", &ENFORCEMENTS)?.unwrap_or(usual),
            agents,
            long_bytes: spec.size_bytes("long")?.unwrap_or(d.long_bytes),
            handover: spec.choice("handover", &HANDOVERS)?.unwrap_or(d.handover),
            batch: spec.count("batch", 1, MOST_RULES)?.map_or(d.batch, |batch| batch as usize),
            snapshot: spec.time("snapshot")?.unwrap_or(d.snapshot),
        };
        if settings.snapshot == Nanos::ZERO {
            return Err(spec.error("snapshot is 0; expected the time between two snapshots, such as 5s"));
        }
        spec.finish()?;
        Ok(settings)
    }
}

/// Names of the values of [`Enforcement`].
const ENFORCEMENTS: [(&str, Enforcement); 3] =
    [("host", Enforcement::Host), ("meter", Enforcement::Meter), ("any", Enforcement::Any)];

/// Number of rules that a switch has room for, by either name of the setting.
fn rule_limit(spec: &Spec) -> Result<Option<usize>, SpecError> {
    let (tcam, rules) = (spec.count("tcam", 1, MOST_RULES)?, spec.count("rules", 1, MOST_RULES)?);
    if tcam.is_some() && rules.is_some() {
        return Err(spec.error("tcam and rules both set how many rules a switch has room for; give only one of them"));
    }
    Ok(tcam.or(rules).map(|rules| rules as usize))
}

/// More rules than any switch has.
const MOST_RULES: u64 = u32::MAX as u64;

/// Makes the scheme of a controller that a fault starts; `None` if it cannot, which leaves the run without a
/// controller.
pub type Successor = Box<dyn FnMut() -> Option<Box<dyn Scheme>> + Send>;

/// Everything that determines the course of a run.
pub struct SimSettings {
    /// The network.
    pub fabric: Arc<Fabric>,
    /// The transfers.
    pub workload: Arc<Workload>,
    /// The central part of the scheme; `None` if it has none. The fabric then has no controller.
    pub central: Option<Box<dyn Scheme>>,
    /// Makes a new scheme for every controller that `faults` start; `None` if they start none.
    pub successor: Option<Successor>,
    /// The program that switches run; `None` if they follow the rules of a controller.
    pub programs: Option<Deployment>,
    /// Transport of the hosts.
    pub transport: TransportSpec,
    /// Settings of controller and switches.
    pub control: ControlSettings,
    /// Time during which transfers arrive; long-lived transfers end with it.
    pub duration: Nanos,
    /// After `duration`, the run continues for at most this many times `duration`, so that transfers under way can
    /// finish.
    pub drain: u32,
    /// Failures and repairs.
    pub faults: Vec<Fault>,
    /// Seed of all draws of the run itself, such as the source ports, and through them the choice of ECMP.
    pub seed: u64,
}

impl SimSettings {
    /// The settings with the headers of the addresses that the fabric has. Once more changes nothing.
    pub(crate) fn for_family(self) -> SimSettings {
        let transport = if self.fabric.is_ipv6() { self.transport.over_ipv6() } else { self.transport };
        SimSettings { transport, ..self }
    }
}

/// Why a run cannot be set up.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// There is nothing to simulate.
    #[error("the traffic has no flows; raise --duration or the load")]
    NoFlows,
    /// A driver adds all transfers, but the settings have some as well.
    #[error("the driver of this run adds all transfers, but its settings have {0} as well; leave the workload empty")]
    FlowsOfDriver(usize),
    /// The run has no length.
    #[error("--duration is 0s; give it a length, such as 10s")]
    NoDuration,
    /// The run is longer than the simulator's clock.
    #[error("--duration and its drain are more than 200 days in total, which the simulator's clock cannot represent")]
    TooLong,
    /// Faults restart the controller, and its scheme cannot be created again.
    #[error("a fault restarts the controller, but this scheme cannot be created a second time")]
    NoSuccessor,
    /// An event log can record only one controller.
    #[error(
        "an event log records one controller, but a fault starts another; leave out --event-log or controller-restart"
    )]
    EventLogWithRestart,
    /// A transfer between nodes that are not two hosts.
    #[error("flow {flow} does not run between two hosts of the fabric")]
    NotHosts {
        /// Index of the transfer.
        flow: usize,
    },
    /// Only switches of a tier choose next hops, and the fabric has none of them.
    #[error("the switches of the scheme that choose next hops are of tier {0}, but this fabric has none; omit at=")]
    NoSwitchOfTier(&'static str),
    /// Two settings determine when ports mark.
    #[error(
        "red= or ecn= of the fabric and mark= of the transport both set when ports mark; give one of them (queues= can \
         stay)"
    )]
    ConflictingMarking,
    /// Hosts mark packets by age for ports with strict priorities.
    #[error("the scheme's hosts mark packets by age, for strict priorities; leave out queue_weights= of the fabric")]
    AgesNeedPriorities,
    /// The scheme or its programs need TCP.
    #[error(
        "the scheme {needs}, so --transport {transport} does not fit it; use a TCP transport, or a scheme such as ecmp, \
         hedera or drill"
    )]
    NeedsTcp {
        /// What it needs, as a predicate.
        needs: &'static str,
        /// Name of the transport.
        transport: &'static str,
    },
    /// The run needs packets, but flows are rates.
    #[error("--fidelity fluid sends no packets, but {what}; use --fidelity packets, or {instead}")]
    NeedsPackets {
        /// What needs packets, as a sentence without a full stop.
        what: &'static str,
        /// What to use in its place.
        instead: &'static str,
    },
    /// Programs explore paths with the first segment of a connection.
    #[error("switches with programs find paths by the SYN of a connection; leave out handshake=off of --transport")]
    NoHandshake,
    /// A full mesh, but only one pair of addresses for each pair of hosts.
    #[error(
        "mptcp: manager=fullmesh: every host has a single address; expected hosts with several interfaces, as in \
         jellyfish:homes=2; otherwise use manager=ndiffports"
    )]
    SingleAddresses,
    /// More subflows than a connection may have.
    #[error(
        "mptcp: {count} subflows between {src} and {dst}, which have {pairs} pairs of addresses; a connection has at most \
         {MOST_SUBFLOWS}"
    )]
    ManySubflows {
        /// Name of the sending host of the first such transfer.
        src: String,
        /// Name of the receiving host.
        dst: String,
        /// Pairs of addresses.
        pairs: usize,
        /// Subflows requested.
        count: usize,
    },
    /// The controller does not stop exchanging messages at its start.
    #[error("the scheme sent more than {0} messages before the first packet; it does not stop sending them")]
    EndlessStart(u64),
}
