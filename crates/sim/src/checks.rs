//! Checks before a run begins.

use crate::settings::{SimError, SimSettings, LONGEST_RUN};
use pathloom_control::Enforcement;
use pathloom_model::{Fabric, Fault, FaultKind, LinkState, Nanos, NodeId, Quality};
use pathloom_scheme::{Detection, Entropy, Needs, Selection};
use pathloom_transport::TransportSpec;
use pathloom_workload::Workload;

/// Checks whether a run can be set up: it has flows, they run between hosts, its duration is valid, and its settings do
/// not contradict each other.
pub(crate) fn check(settings: &SimSettings, has_journal: bool) -> Result<(), SimError> {
    let Workload { flows, .. } = &*settings.workload;
    if flows.is_empty() {
        return Err(SimError::NoFlows);
    }
    check_without_flows(settings, has_journal)?;
    match flows.iter().position(|flow| !are_hosts(&settings.fabric, flow.src, flow.dst)) {
        Some(flow) => Err(SimError::NotHosts { flow }),
        None => Ok(()),
    }
}

/// Whether these nodes are two different hosts.
pub(crate) fn are_hosts(fabric: &Fabric, src: NodeId, dst: NodeId) -> bool {
    src != dst && [src, dst].iter().all(|node| fabric.hosts().binary_search(node).is_ok())
}

/// As [`check`], except for the flows.
pub(crate) fn check_without_flows(settings: &SimSettings, has_journal: bool) -> Result<(), SimError> {
    let whole = settings.duration.0.checked_mul(u64::from(settings.drain) + 1);
    if settings.duration == Nanos::ZERO {
        return Err(SimError::NoDuration);
    }
    if whole.is_none_or(|whole| whole > LONGEST_RUN.0) {
        return Err(SimError::TooLong);
    }
    if Fault::restarts(&settings.faults) > 0 {
        if settings.successor.is_none() {
            return Err(SimError::NoSuccessor);
        }
        if has_journal {
            return Err(SimError::EventLogWithRestart);
        }
    }
    if let Some(packets) = settings.transport.packets() {
        check_without_tcp(settings, packets.chooses_entropy())?;
    }
    let divides = settings.central.as_ref().is_some_and(|scheme| scheme.needs().entropy == Entropy::Part);
    if divides && !matches!(settings.transport, TransportSpec::Tcp(_)) {
        return Err(SimError::NeedsTcp {
            needs: "divides transfers into TCP connections",
            transport: settings.transport.name(),
        });
    }
    if settings.programs.is_some() && !settings.transport.settings().handshake {
        return Err(SimError::NoHandshake);
    }
    check_tier(settings)?;
    let ports = settings.fabric.ports();
    if (ports.red.is_some() || ports.ecn.is_some()) && settings.transport.settings().mark_packets.is_some() {
        return Err(SimError::ConflictingMarking);
    }
    if settings.central.as_ref().is_some_and(|scheme| scheme.needs().ageing.is_some()) && ports.weights.is_some() {
        return Err(SimError::AgesNeedPriorities);
    }
    Ok(())
}

/// Checks that the fabric has switches of the tier that chooses next hops.
fn check_tier(settings: &SimSettings) -> Result<(), SimError> {
    let tier = settings.central.as_ref().and_then(|scheme| scheme.needs().selection_tier);
    match tier.filter(|&tier| settings.fabric.nodes().iter().all(|node| node.tier != tier)) {
        Some(tier) => Err(SimError::NoSwitchOfTier(tier.name())),
        None => Ok(()),
    }
}

/// Checks that neither the scheme nor its programs need TCP connections. `hosts_choose` says whether senders use the place in
/// packets that load balancers write their notes into.
fn check_without_tcp(settings: &SimSettings, hosts_choose: bool) -> Result<(), SimError> {
    let needs = settings.central.as_ref().map_or(Needs::NOTHING, |central| central.needs());
    let reason = if settings.programs.is_some() {
        "finds paths by the SYN of a connection"
    } else if needs.subflows {
        "places the subflows of MPTCP"
    } else if needs.paces {
        "limits the rates of connections"
    } else if needs.selection == Selection::Flowcut {
        "lets switches read acknowledgements of bytes"
    } else if needs.selection.has_balancer() && hosts_choose {
        "lets switches choose the path, not hosts"
    } else if needs.detection == Detection::Announced && needs.ageing.is_none() {
        "is told of connections by their hosts"
    } else {
        return Ok(());
    };
    Err(SimError::NeedsTcp { needs: reason, transport: settings.transport.name() })
}

/// Checks that nothing in a run needs packets: what depends on queues, marks or losses, and on what switches do with a
/// single packet.
pub(crate) fn check_without_packets(settings: &SimSettings) -> Result<(), SimError> {
    let needs = settings.central.as_ref().map_or(Needs::NOTHING, |central| central.needs());
    let loses = |fault: &Fault| matches!(fault.kind, FaultKind::Quality { quality: Quality::Loss { .. }, .. });
    let (other, tcp, whole) = ("a scheme such as ecmp, hedera or ofpt", "a TCP transport or mptcp", "no losses");
    let (what, instead) = if settings.programs.is_some() {
        ("the switches of the scheme run a program that decides about packets", other)
    } else if needs.selection.has_balancer() || matches!(needs.selection, Selection::ShortestQueue { .. }) {
        ("the switches of the scheme choose by their queues or by probes", other)
    } else if needs.takes_several_paths() && !is_even(&needs) {
        ("the hosts of the scheme choose by marks, losses or pauses between packets", other)
    } else if needs.ageing.is_some() {
        ("the scheme has priorities for packets", other)
    } else if !matches!(settings.transport, TransportSpec::Tcp(_) | TransportSpec::Mptcp(_)) {
        ("the transport decides about each packet", tcp)
    } else if needs.paces && settings.control.enforcement != Enforcement::Host {
        ("meters drop the packets above a rate", "enforcement=host of --control")
    } else if !settings.fabric.lossy_links().is_empty() || settings.faults.iter().any(loses) {
        ("links lose packets", whole)
    } else if settings.workload.flows.iter().any(|flow| flow.under_way.is_some()) {
        ("transfers begin with a congestion window", "transfers that begin in the run")
    } else {
        return Ok(());
    };
    Err(SimError::NeedsPackets { what, instead })
}

/// Whether a scheme spreads each flow evenly over all equal next hops.
fn is_even(needs: &Needs) -> bool {
    let by_packet = matches!(needs.entropy, Entropy::Packet | Entropy::Cell { .. });
    match needs.selection {
        Selection::RoundRobin => matches!(needs.entropy, Entropy::Flow) || by_packet,
        Selection::Hash | Selection::Numbered => by_packet,
        _ => false,
    }
}

/// Number of switches on the longest of the shortest paths between two ToRs, plus two for detours. Computed for a
/// sample of ToRs.
pub(crate) fn longest_path_switches(fabric: &Fabric) -> usize {
    let state = LinkState::of(fabric);
    let step = fabric.tors().len().div_ceil(16).max(1);
    let hops = fabric.tors().iter().step_by(step).flat_map(|&tor| {
        let distances = pathloom_model::search::distances_to(fabric, &state, tor);
        fabric.tors().iter().filter_map(|&other| distances.hops(other)).max()
    });
    hops.max().unwrap_or(0) as usize + 1 + 2
}
