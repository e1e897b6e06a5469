//! Metrics for Prometheus (text format of OpenMetrics 1.0). All values are an owned copy of one moment.

use super::queries::cluster_row;
use super::rows::ClusterRow;
use crate::hub::counts::HubCounts;
use crate::hub::live_discovery::LiveDiscovery;
use crate::hub::scheme_process::{ProcessCounts, Stage};
use crate::hub::Hub;
use pathloom_control::{Counts, DurationHistogram, DURATION_BOUNDS};
use pathloom_model::{Nanos, NodeId};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    text::encode, DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeSet;
use std::fmt::Error;

/// Names of the messages that switches send.
const KINDS: [(u8, &str); 12] = [
    (0, "hello"),
    (1, "error"),
    (2, "echo_request"),
    (3, "echo_reply"),
    (6, "features_reply"),
    (8, "get_config_reply"),
    (10, "packet_in"),
    (11, "flow_removed"),
    (12, "port_status"),
    (19, "multipart_reply"),
    (21, "barrier_reply"),
    (25, "role_reply"),
];

/// Names of the phases of flows.
const FLOWS: [&str; 3] = ["default_routes", "changing_path", "own_path"];
/// Names of the states of cables.
const LINKS: [&str; 3] = ["up", "down", "drained"];

/// All metrics at one moment.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    hub: HubCounts,
    control: Counts,
    kinds: Vec<(String, u64)>,
    connections: usize,
    sessions: usize,
    flows: [(&'static str, u64); 3],
    held: u64,
    set_up: DurationHistogram,
    solver: DurationHistogram,
    lag: DurationHistogram,
    busy_share: f64,
    sizes: Vec<(&'static str, u64)>,
    links: [(&'static str, u64); 3],
    /// Cables used at other ports than configured, and differences from the configuration that are not used.
    cabling: [(&'static str, u64); 2],
    switches: Vec<SwitchSample>,
    scheme: String,
    /// The process of a scheme: its state, the events that it has not answered, and what it has done.
    process: Option<(Stage, usize, ProcessCounts)>,
    /// This controller among several ones.
    cluster: Option<ClusterRow>,
    uptime_s: f64,
    resident_bytes: u64,
    /// Frames of hosts that switches refused, by switch and kind.
    refused: Vec<(String, &'static str, u64)>,
    /// Problems with ports and hosts, by kind.
    trouble: Vec<(String, u64)>,
    agents_refused: u64,
    stale_orders: u64,
    /// Offences of host agents, by agent.
    agent_offences: Vec<(String, u64)>,
    /// Requests to the API, by status.
    pub requests: Vec<(String, u64)>,
    /// Connections to the API that were closed before they were done, by the reason.
    pub requests_closed: Vec<(String, u64)>,
}

#[derive(Debug)]
struct SwitchSample {
    name: String,
    connected: bool,
    rules: u64,
    foreign: u64,
    rtt_s: Option<f64>,
}

impl Sample {
    /// Takes all metrics of a hub.
    pub(crate) fn take(hub: &mut Hub, now: Nanos) -> Sample {
        let mut kinds: Vec<(String, u64)> = Vec::new();
        for (kind, &count) in hub.gauges.kinds.iter().enumerate().filter(|(_, &count)| count > 0) {
            let name = KINDS.iter().find(|(other, _)| usize::from(*other) == kind);
            kinds.push((name.map_or_else(|| format!("kind_{kind}"), |(_, name)| (*name).to_owned()), count));
        }
        let mut sample = Sample {
            hub: hub.counts,
            kinds,
            connections: hub.connections.iter().count(),
            sessions: hub.session_count(),
            solver: hub.gauges.solver,
            lag: hub.gauges.lag,
            scheme: hub.gauges.scheme.0.clone(),
            process: hub.process.as_ref().map(|one| (one.stage(), one.waiting(), *one.counts())),
            cluster: cluster_row(hub, now),
            flows: FLOWS.map(|name| (name, 0)),
            links: LINKS.map(|name| (name, 0)),
            uptime_s: now.saturating_sub(hub.gauges.started).0 as f64 / 1e9,
            resident_bytes: crate::drivers::load::resident_bytes().unwrap_or(0),
            agents_refused: hub.hosts.refused(),
            stale_orders: hub.hosts.stale_orders(),
            agent_offences: hub.hosts.offences().map(|(agent, offences)| (agent.to_owned(), offences.times)).collect(),
            cabling: [("adopted", hub.adopted_ends() as u64), ("refused", hub.cabling_differences().count() as u64)],
            trouble: hub
                .discovery
                .iter()
                .flat_map(LiveDiscovery::trouble)
                .map(|(kind, count)| (kind.to_owned(), count))
                .collect(),
            ..Sample::default()
        };
        let name = |node: NodeId| hub.fabric.as_ref().map_or(String::new(), |fabric| fabric.node(node).name.clone());
        let refused = hub.refused.totals().map(|(node, kind, frames)| (name(node), kind, frames)).collect();
        let foreign: Vec<u64> =
            (0..).zip(hub.switches.sessions()).map(|(node, _)| hub.foreign_at(NodeId(node))).collect();
        let connected: Vec<bool> = hub.switches.sessions().map(|session| session.is_some()).collect();
        let Some((controller, fabric)) = hub.fabric.clone().and_then(|fabric| Some((hub.controller()?, fabric))) else {
            return sample;
        };
        sample.refused = refused;
        let view = controller.view();
        sample.control = controller.counts();
        sample.set_up = *controller.set_up_times();
        sample.busy_share = view.busy_share;
        sample.sizes = controller.scheme_sizes();
        let mut phases = [0u64; 3];
        for flow in view.flows.values() {
            phases[if flow.pending.is_some() { 1 } else { usize::from(flow.route.is_some()) * 2 }] += 1;
        }
        sample.flows = std::array::from_fn(|index| (FLOWS[index], phases[index]));
        sample.held = controller.held_flows() as u64;
        let mut links = [0u64; 3];
        for link in fabric.switch_cables() {
            let drained = controller.is_drained(link);
            links[if drained { 2 } else { usize::from(!view.links.is_up(link)) }] += 1;
        }
        sample.links = std::array::from_fn(|index| (LINKS[index], links[index]));
        let one = |&switch: &NodeId| SwitchSample {
            name: fabric.node(switch).name.clone(),
            connected: connected[switch.index()],
            rules: u64::from(controller.rules_at(switch)),
            foreign: foreign[switch.index()],
            rtt_s: view.switch_rtt[switch.index()].map(|rtt| rtt.0 as f64 / 1e9),
        };
        sample.switches = fabric.switches().iter().map(one).collect();
        sample
    }

    /// Returns the metrics in the text format.
    pub(crate) fn into_text(self) -> Result<String, Error> {
        let mut registry = Registry::with_prefix("pathloom");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }

    /// What concerns several controllers. A controller that is alone has these series without samples.
    fn of_cluster(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let cluster = self.cluster.as_ref();
        let flag = |is_so: bool| f64::from(u8::from(is_so));
        let lead = cluster.filter(|cluster| cluster.election.is_some());
        let hand_over = cluster.and_then(|cluster| cluster.hand_over.as_ref());
        let all = [
            ("leads", "1 if this controller leads, otherwise 0.", cluster.map(|_| flag(lead.is_some()))),
            (
                "leader_known",
                "1 if this controller leads or knows which one does, otherwise 0.",
                cluster.map(|cluster| flag(cluster.leader.is_some())),
            ),
            (
                "election",
                "Number of the election by which this controller leads.",
                lead.and_then(|lead| lead.election).map(|election| election as f64),
            ),
            (
                "confirmed",
                "1 if etcd confirms that this controller leads, otherwise 0.",
                lead.map(|lead| flag(lead.confirmed)),
            ),
            ("etcd_age_seconds", "Seconds since etcd has answered.", cluster.and_then(|cluster| cluster.age_s)),
            (
                "state_age_seconds",
                "Seconds since etcd stored the state of this leader.",
                lead.and_then(|lead| lead.stored_before_s),
            ),
            ("hand_overs", "Hand-overs between controllers so far.", hand_over.map(|one| one.count as f64)),
            ("hand_over_time_seconds", "Time of the last hand-over, since 1970.", hand_over.map(|one| one.at_s)),
        ];
        for (name, help, value) in all {
            let name = format!("cluster_{name}");
            let one = out.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            value.map_or(Ok(()), |value| ConstGauge::new(value).encode(one))?;
        }
        let help = "Times that host agents refused orders, because they obey a newer leader.";
        counter(out, "cluster_stale_orders", help, self.stale_orders)?;
        let help = "Seconds since a controller has told etcd about itself.";
        let mut lags = out.encode_descriptor("cluster_member_lag", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for member in cluster.into_iter().flat_map(|cluster| &cluster.members) {
            ConstGauge::new(member.lag_s).encode(lags.encode_family(&[("member", member.name.as_str())])?)?;
        }
        Ok(())
    }

    /// The process of a scheme. Without one there are no such series.
    fn of_process(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some((stage, waiting, counts)) = &self.process else { return Ok(()) };
        let is_up = f64::from(u8::from(matches!(stage, Stage::Up(_))));
        gauge(out, "scheme_process_up", "1 if the process of the scheme takes events, otherwise 0.", is_up)?;
        let help = "Events that the process of the scheme has not answered.";
        gauge(out, "scheme_process_waiting", help, *waiting as f64)?;
        let totals = [
            ("starts", "Processes of the scheme that were started.", counts.starts),
            ("answers", "Events that the process of the scheme has answered.", counts.answered),
            ("failed_answers", "Of these, those at which the scheme had an error.", counts.errors),
            ("late_answers", "Processes of the scheme that were ended because an answer took too long.", counts.late),
            ("lost_events", "Events that a process of the scheme left without an answer when it ended.", counts.lost),
        ];
        for (name, help, total) in totals {
            counter(out, &format!("scheme_process_{name}"), help, total)?;
        }
        let help = "Time from an event to its answer, or from the answer before if that was later.";
        histogram(out, "scheme_process_answer", help, &counts.times)
    }

    fn of_sessions(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Sample { hub, .. } = self;
        gauge(out, "connections", "Connections that are open.", self.connections as f64)?;
        gauge(out, "sessions", "Switches with a session.", self.sessions as f64)?;
        counter(out, "connections_taken", "Connections accepted.", hub.connections)?;
        counter(out, "sessions_begun", "Sessions established.", hub.sessions)?;
        counter(out, "packet_ins_limited", "Packet-ins refused because their port sent too many.", hub.limited)?;
        counter(out, "offences", "Connections closed because of what their peer did.", hub.offences)?;
        let help = "Connections refused, or closed before they identified their switch, because there were too many.";
        counter(out, "connections_crowded_out", help, hub.crowded)?;
        counter(out, "handshakes_failed", "TLS handshakes that failed or exceeded a limit.", hub.handshakes)?;
        counter(out, "agents_refused", "Host agents disconnected or refused.", self.agents_refused)?;
        let help = "Times that a host agent was limited, refused or disconnected.";
        family(out, "agent_offences", help, "agent", &self.agent_offences)?;
        family(out, "port_and_host_trouble", "Problems with ports and hosts.", "kind", &self.trouble)?;
        counter(out, "punts_restored", "Rules for control traffic that were restored.", hub.punts_restored)?;
        counter(out, "foreign_removed", "Times that foreign rules were deleted.", hub.foreign_removed)?;
        counter(out, "switch_errors", "Errors that switches sent.", hub.errors)?;
        family(out, "messages_in", "Messages from switches.", "kind", &self.kinds)?;
        let help = "Connections to the API closed early: without a token in time, or to make room.";
        family(out, "api_connections_closed", help, "why", &self.requests_closed)?;
        family(out, "api_requests", "Requests to the API.", "status", &self.requests)
    }

    fn of_control(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let counts = &self.control;
        let totals = [
            ("inputs", "Inputs of the controller.", counts.messages_in),
            ("outputs", "Outputs of the controller.", counts.messages_out),
            ("packet_ins", "Packet-ins that the controller handled.", counts.packet_ins),
            ("flows_found", "Flows found.", counts.flows),
            ("flows_labelled", "Of the flows found, those with the label of long ones.", counts.labelled),
            ("flows_announced", "Flows that an announcement made known, or known to be long.", counts.announced),
            ("flows_found_standing", "Existing flows found without their first packet.", counts.standing),
            ("flows_refused", "First packets ignored because their host had too many flows.", counts.flows_refused),
            (
                "flows_uncounted",
                "First packets ignored because their ToR counts as many flows as it may.",
                counts.uncounted,
            ),
            (
                "over_budget",
                "Flows and paths refused because their host has its share of the rules of a switch.",
                counts.over_budget,
            ),
            (
                "flows_made_room",
                "Flows put back on default routes to make room for the rules of other hosts.",
                counts.made_room,
            ),
            ("flows_adopted", "Existing flows found after a restart.", counts.adopted),
            ("routes", "Paths confirmed for flows that were on the default routes.", counts.routes),
            ("reroutes", "Paths confirmed for flows that were on another path.", counts.reroutes),
            ("reroutes_in_place", "Of these, those moved in place.", counts.reroutes_in_place),
            ("paths_rejected", "Paths that could not be set up.", counts.rejected),
            ("flows_rescued", "Flows put back on default routes because a link went down.", counts.rescued),
            ("connections_bound", "Connections put on paths that applications had claimed.", counts.bound),
            ("rules_refused", "Rules and groups that switches refused.", counts.refused),
            ("polls", "Rounds in which flow counters were read.", counts.polls),
            ("polls_again", "Repeated requests for flow counters within a round.", counts.polls_again),
            ("reviews", "Times that all rules of a switch were read and compared.", counts.reviews),
            ("rules_restored", "Rules and groups that somebody else deleted or changed, restored.", counts.restored),
            ("rules_surplus", "Surplus rules with the controller's mark that were deleted.", counts.surplus),
            ("nonsense", "Invalid inputs.", counts.invalid_inputs),
        ];
        for (name, help, total) in totals {
            counter(out, name, help, total)?;
        }
        let flows = self.flows.iter().map(|&(phase, count)| (phase.to_owned(), count)).collect::<Vec<_>>();
        gauges(out, "flows", "Known flows.", "phase", &flows)?;
        let links = self.links.iter().map(|&(state, count)| (state.to_owned(), count)).collect::<Vec<_>>();
        gauges(out, "links", "Cables between switches.", "state", &links)?;
        let cabling = self.cabling.iter().map(|&(what, count)| (what.to_owned(), count)).collect::<Vec<_>>();
        let help = "Cabling that differs from the configuration: used at other ports, or not used.";
        gauges(out, "cabling_differences", help, "treatment", &cabling)?;
        if !self.sizes.is_empty() {
            let sizes = self.sizes.iter().map(|&(what, size)| (what.to_owned(), size)).collect::<Vec<_>>();
            gauges(out, "scheme_size", "Sizes of the state of the scheme in charge.", "what", &sizes)?;
        }
        gauge(out, "flows_held", "Flows told to wait.", self.held as f64)?;
        gauge(out, "rules_max", "Most rules that one switch should have.", f64::from(counts.rules_now))?;
        gauge(out, "busy_share", "Share of a core that the controller uses.", self.busy_share)?;
        histogram(out, "plan", "Time from the request for a path to its confirmation.", &self.set_up)?;
        histogram(out, "solver", "Duration of the jobs of schemes.", &self.solver)?;
        histogram(out, "loop_lag", "How late the controller wakes up.", &self.lag)
    }

    fn of_switches(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Frames of hosts that a switch refused.";
        let mut refused = out.encode_descriptor("frames_refused", help, None, MetricType::Counter)?;
        for (switch, kind, frames) in &self.refused {
            one(&mut refused, &[("switch", switch.as_str()), ("kind", kind)], &ConstCounter::new(*frames))?;
        }
        let help = "Whether a switch has a session.";
        let mut connected = out.encode_descriptor("switch_connected", help, None, MetricType::Gauge)?;
        for switch in &self.switches {
            let labels = [("switch", switch.name.as_str())];
            ConstGauge::new(i64::from(switch.connected)).encode(connected.encode_family(&labels)?)?;
        }
        let help = "Rules that a switch should have.";
        let mut rules = out.encode_descriptor("switch_rules", help, None, MetricType::Gauge)?;
        for switch in &self.switches {
            let labels = [("switch", switch.name.as_str())];
            ConstGauge::new(switch.rules as i64).encode(rules.encode_family(&labels)?)?;
        }
        let help = "Rules of a switch that are not the controller's.";
        let mut foreign = out.encode_descriptor("switch_foreign_rules", help, None, MetricType::Gauge)?;
        for switch in &self.switches {
            let labels = [("switch", switch.name.as_str())];
            ConstGauge::new(switch.foreign as i64).encode(foreign.encode_family(&labels)?)?;
        }
        let help = "Round-trip time to a switch.";
        let mut rtts = out.encode_descriptor("switch_rtt", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for (switch, rtt_s) in self.switches.iter().filter_map(|switch| Some((switch, switch.rtt_s?))) {
            ConstGauge::new(rtt_s).encode(rtts.encode_family(&[("switch", switch.name.as_str())])?)?;
        }
        Ok(())
    }
}

/// Converts the text format of OpenMetrics to the older one of Prometheus (0.0.4), in which the help and the type of
/// a counter have its whole name.
pub(crate) fn in_plain_text(open: &str) -> String {
    let words = |line: &str| -> Option<[String; 3]> {
        let mut words = line.splitn(4, ' ').skip(1).map(str::to_owned);
        Some([words.next()?, words.next()?, words.next().unwrap_or_default()])
    };
    let counter = |line: &str| line.strip_prefix("# TYPE ")?.strip_suffix(" counter").map(str::to_owned);
    let counters: BTreeSet<String> = open.lines().filter_map(counter).collect();
    let mut plain = String::with_capacity(open.len());
    for line in open.lines() {
        match words(line).filter(|_| line.starts_with("# ")) {
            Some([kind, name, rest]) if kind == "HELP" || kind == "TYPE" => {
                let total = if counters.contains(&name) { "_total" } else { "" };
                plain.push_str(&format!("# {kind} {name}{total} {rest}\n"));
            }
            Some(_) => {}
            None if line == "# EOF" => {}
            None => {
                plain.push_str(line);
                plain.push('\n');
            }
        }
    }
    plain
}

impl Collector for Sample {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> Result<(), Error> {
        let out = &mut out;
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("scheme", self.scheme.as_str())];
        let mut info = out.encode_descriptor("controller", "The controller.", None, MetricType::Gauge)?;
        ConstGauge::new(1i64).encode(info.encode_family(&labels)?)?;
        let up = out.encode_descriptor("uptime", "Time since the start.", Some(&Unit::Seconds), MetricType::Gauge)?;
        ConstGauge::new(self.uptime_s).encode(up)?;
        let help = "Resident memory.";
        let resident = out.encode_descriptor("resident", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        ConstGauge::new(self.resident_bytes as i64).encode(resident)?;
        self.of_cluster(out)?;
        self.of_sessions(out)?;
        self.of_control(out)?;
        self.of_process(out)?;
        self.of_switches(out)
    }
}

fn counter(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, total: u64) -> Result<(), Error> {
    ConstCounter::new(total).encode(out.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn gauge(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> Result<(), Error> {
    ConstGauge::new(value).encode(out.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

type Rows = [(String, u64)];

fn family(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, label: &str, rows: &Rows) -> Result<(), Error> {
    let mut all: MetricEncoder<'_> = out.encode_descriptor(name, help, None, MetricType::Counter)?;
    rows.iter().try_for_each(|(value, total)| one(&mut all, &[(label, value.as_str())], &ConstCounter::new(*total)))
}

fn gauges(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, label: &str, rows: &Rows) -> Result<(), Error> {
    let mut all: MetricEncoder<'_> = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
    rows.iter()
        .try_for_each(|(value, count)| one(&mut all, &[(label, value.as_str())], &ConstGauge::new(*count as i64)))
}

fn one(all: &mut MetricEncoder<'_>, labels: &impl EncodeLabelSet, metric: &impl EncodeMetric) -> Result<(), Error> {
    metric.encode(all.encode_family(labels)?)
}

fn histogram(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, times: &DurationHistogram) -> Result<(), Error> {
    let mut one = out.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    let bounds = DURATION_BOUNDS.iter().map(|bound| bound.0 as f64 / 1e9).chain([f64::MAX]);
    let buckets: Vec<(f64, u64)> = bounds.zip(times.counts).collect();
    one.encode_histogram::<NoLabelSet>(times.sum.0 as f64 / 1e9, times.count(), &buckets, None)
}
