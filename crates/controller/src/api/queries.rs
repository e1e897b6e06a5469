//! Queries of the API to a hub, between two messages of switches. Each is short and its answer is an owned copy. Long
//! lists come page by page.

use super::rows::{
    link_name, seconds, AgentCounts, CableCounts, Cabling, ClusterRow, FlowCounts, FlowRow, LinkRow, LogPosition,
    MemberRow, OffenderRow, Page, ReasonRow, SchemeProcessRow, StateRow, SwitchRow,
};
use crate::hub::gauges;
use crate::hub::hosts::Offences;
use crate::hub::live_discovery::LiveDiscovery;
use crate::hub::scheme_process::{ProcessCounts, SchemeProcess, Stage};
use crate::hub::Hub;
use pathloom_control::{Controller, DrainError, Input, Reason, Target};
use pathloom_model::{Fabric, FiveTuple, LinkId, Nanos, NodeId};
use pathloom_scheme::{FlowId, FlowView, View};
use std::sync::Arc;

/// The position and size of a page of a list.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// Maximum number of items.
    pub limit: usize,
    /// The last item of the previous page.
    pub after: Option<u64>,
}

/// How a request names a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlowName {
    Id(FlowId),
    Tuple(FiveTuple),
}

/// The stored reasons for the path of a flow; the caller computes the rest.
pub(crate) struct Why {
    pub flow: FlowRow,
    pub known: FlowView,
    pub placed: Option<ReasonRow>,
    pub history: Vec<ReasonRow>,
    pub view: View,
    pub scheme: String,
}

/// The part of the state of a link that changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct LinkState {
    /// As in a [`LinkRow`].
    pub state: &'static str,
    pub flows: u32,
    pub load_bps: Option<u64>,
    pub dropped_packets: u64,
}

/// A copy of the controller's state, for a dry run of another scheme.
pub(crate) struct Fork {
    pub view: View,
    pub now: Nanos,
    pub scheme: String,
}

/// The controller and its fabric. The API runs only if there are both.
fn parts(hub: &mut Hub) -> Option<(&Controller, Arc<Fabric>)> {
    let fabric = hub.fabric.clone()?;
    Some((hub.controller()?, fabric))
}

/// This controller among several ones; `None` if it is the only one.
pub(crate) fn cluster_row(hub: &Hub, now: Nanos) -> Option<ClusterRow> {
    let member = hub.gauges.member.clone()?;
    let lead = hub.gauges.leadership.as_ref();
    let since_s = |at: Nanos| now.saturating_sub(at).0 as f64 / 1e9;
    let now_s = seconds(now);
    let row = |row: gauges::MemberRow| MemberRow {
        name: row.name,
        api: row.api,
        version: row.version,
        lag_s: (now_s - row.said_s).max(0.0),
    };
    Some(ClusterRow {
        leader: if lead.is_some() { Some(member.name.clone()) } else { member.follows },
        name: member.name,
        election: lead.map(|lead| lead.election),
        leads_since_s: lead.map(|lead| seconds(lead.since)),
        confirmed: lead.is_some_and(|lead| lead.is_confirmed),
        age_s: member.etcd_answered.map(since_s),
        members: member.members.into_iter().map(row).collect(),
        hand_over: member.hand_over.map(Into::into),
        stored_before_s: member.stored.map(since_s),
    })
}

pub(crate) fn state_row(hub: &mut Hub, now: Nanos) -> Option<StateRow> {
    let sessions = hub.session_count();
    let (started, scheme) = (hub.gauges.started, hub.gauges.scheme.clone());
    let words = |lines: &mut dyn Iterator<Item = &str>| lines.map(str::to_owned).collect();
    let cabling = Cabling {
        adopted: words(&mut hub.discovery.iter().flat_map(LiveDiscovery::adopted)),
        refused: words(&mut hub.cabling_differences()),
    };
    let offender = |(agent, Offences { times, last }): (&str, Offences)| OffenderRow {
        agent: agent.to_owned(),
        times,
        last_s: seconds(last),
    };
    let agents =
        AgentCounts { hosts: hub.hosts.represented(), offenders: hub.hosts.offences().map(offender).collect() };
    let cluster = cluster_row(hub, now);
    let scheme_process = hub.process.as_ref().map(process_row);
    let (controller, fabric) = parts(hub)?;
    let (view, counts) = (controller.view(), controller.counts());
    let mut cables = CableCounts { up: 0, down: 0, drained: 0 };
    for link in fabric.switch_cables() {
        *match (controller.is_drained(link), view.links.is_up(link)) {
            (true, _) => &mut cables.drained,
            (false, true) => &mut cables.up,
            (false, false) => &mut cables.down,
        } += 1;
    }
    let mut flows = FlowCounts { known: view.flows.len(), held: controller.held_flows(), ..FlowCounts::default() };
    for flow in view.flows.values() {
        flows.long += usize::from(flow.long);
        *match (&flow.pending, &flow.route) {
            (Some(_), _) => &mut flows.changing_path,
            (None, Some(_)) => &mut flows.own_path,
            (None, None) => &mut flows.default_routes,
        } += 1;
    }
    Some(StateRow {
        version: env!("CARGO_PKG_VERSION"),
        scheme: scheme.0,
        scheme_since_s: seconds(scheme.1),
        scheme_process,
        epoch: controller.config().epoch,
        uptime_s: seconds(now.saturating_sub(started)),
        cluster,
        fabric: fabric.spec().to_owned(),
        hosts: fabric.hosts().len(),
        switches: fabric.switches().len(),
        sessions,
        cables,
        cabling,
        flows,
        agents,
        busy_share: view.busy_share,
        staging: controller.is_staging(),
        log: LogPosition { inputs: counts.messages_in, outputs: counts.messages_out },
    })
}

fn process_row(process: &SchemeProcess) -> SchemeProcessRow {
    let state = match process.stage() {
        Stage::Down(_) => "down",
        Stage::Starting(_) => "starting",
        Stage::Up(_) => "up",
    };
    let problem = process.problem().map(str::to_owned);
    let ProcessCounts { starts, errors, .. } = *process.counts();
    SchemeProcessRow { state, starts, problem, waiting: process.waiting(), errors }
}

pub(crate) fn switch_rows(hub: &mut Hub, cut: &Cut) -> Option<Page<SwitchRow>> {
    let fabric = hub.fabric.clone()?;
    let first = cut.after.map_or(0, |after| after as usize + 1);
    let all = fabric.switches();
    let shown = all.get(first..(first + cut.limit).min(all.len())).unwrap_or(&[]);
    let items = shown.iter().filter_map(|&switch| switch_row(hub, switch)).collect();
    let next = (first + cut.limit < all.len()).then(|| (first + cut.limit - 1).to_string());
    Some(Page { items, next })
}

pub(crate) fn all_switch_rows(hub: &mut Hub) -> Option<Vec<SwitchRow>> {
    let fabric = hub.fabric.clone()?;
    Some(fabric.switches().iter().filter_map(|&switch| switch_row(hub, switch)).collect())
}

pub(crate) fn switch_row(hub: &mut Hub, switch: NodeId) -> Option<SwitchRow> {
    let (peer, foreign_rules) = (hub.peer_of(switch), hub.foreign_at(switch));
    let datapath_id = format!("{:016x}", hub.switches.dpid(switch)?);
    let (controller, fabric) = parts(hub)?;
    let (node, view) = (fabric.node(switch), controller.view());
    let ports = 1..=node.ports.len() as u32;
    let links = ports.filter_map(|port| fabric.out_link(switch, pathloom_model::PortNo(port)));
    Some(SwitchRow {
        name: node.name.clone(),
        datapath_id,
        tier: format!("{:?}", node.tier).to_lowercase(),
        peer,
        drained: controller.is_switch_drained(switch),
        rules: controller.rules_at(switch),
        foreign_rules,
        rtt_us: view.switch_rtt[switch.index()].map(|rtt| rtt.0 as f64 / 1e3),
        ports: node.ports.len(),
        ports_up: links.filter(|&link| view.links.is_up(link) || controller.is_drained(link)).count(),
    })
}

pub(crate) fn link_rows(hub: &mut Hub, cut: &Cut) -> Option<Page<LinkRow>> {
    let flows = hub.controller()?.flows_on_links();
    let all = flows.len();
    let first = cut.after.map_or(0, |after| after as usize + 1);
    let shown = first.min(all)..(first + cut.limit).min(all);
    let items = shown.filter_map(|link| link_row(hub, LinkId(link as u32), &flows)).collect();
    Some(Page { items, next: (first + cut.limit < all).then(|| (first + cut.limit - 1).to_string()) })
}

/// The states of up to `most` links, from a position among all of them.
pub(crate) fn link_states(hub: &mut Hub, first: usize, most: usize, flows: &[u32]) -> Option<Vec<LinkState>> {
    (first..flows.len().min(first + most)).map(|link| link_state(hub, LinkId(link as u32), flows)).collect()
}

fn link_state(hub: &mut Hub, link: LinkId, flows: &[u32]) -> Option<LinkState> {
    let (load_bps, dropped_packets) = (hub.gauges.load_bps(link), hub.gauges.dropped(link));
    let (controller, _) = parts(hub)?;
    let busy = [link, link.reverse()].iter().any(|one| flows[one.index()] > 0);
    let state = match (controller.is_drained(link), controller.view().links.is_up(link)) {
        (true, _) if busy || controller.may_be_crossed(link) => "draining",
        (true, _) => "drained",
        (false, true) => "up",
        (false, false) => "down",
    };
    Some(LinkState { state, flows: flows[link.index()], load_bps, dropped_packets })
}

pub(crate) fn link_row(hub: &mut Hub, link: LinkId, flows: &[u32]) -> Option<LinkRow> {
    let LinkState { state, flows, load_bps, dropped_packets } = link_state(hub, link, flows)?;
    let fabric = hub.fabric.clone()?;
    let ends = fabric.link(link);
    let rate_bps = ends.settings.rate_bps;
    Some(LinkRow {
        id: link_name(&fabric, link),
        from: fabric.node(ends.from).name.clone(),
        to: fabric.node(ends.to).name.clone(),
        to_port: ends.to_port.0,
        rate_bps,
        state,
        flows,
        load_bps,
        load_share: load_bps.map(|load| load as f64 / rate_bps.max(1) as f64),
        dropped_packets,
    })
}

pub(crate) fn flow_rows(hub: &mut Hub, cut: &Cut, long: Option<bool>) -> Option<Page<FlowRow>> {
    let (controller, fabric) = parts(hub)?;
    let first = cut.after.map_or(0, |after| after.saturating_add(1));
    let wanted = |flow: &FlowView| long.is_none_or(|long| flow.long == long);
    let mut left = controller.view().flows.range(FlowId(first)..).filter(|(_, flow)| wanted(flow));
    let row = |(&id, flow): (&FlowId, &FlowView)| FlowRow::new(&fabric, id, flow, controller.is_held(id));
    let items: Vec<FlowRow> = left.by_ref().take(cut.limit).map(row).collect();
    let next = left.next().and(items.last()).map(|last| last.id.clone());
    Some(Page { items, next })
}

pub(crate) fn flow_row(hub: &mut Hub, name: FlowName) -> Option<FlowRow> {
    let (controller, fabric) = parts(hub)?;
    let id = find(controller, name)?;
    Some(FlowRow::new(&fabric, id, controller.view().flows.get(&id)?, controller.is_held(id)))
}

pub(crate) fn why(hub: &mut Hub, name: FlowName) -> Option<Why> {
    let flow = flow_row(hub, name)?;
    let scheme = hub.gauges.scheme.0.clone();
    let (controller, fabric) = parts(hub)?;
    let id = find(controller, name)?;
    let reason = |reason: &Reason| ReasonRow::new(controller, &fabric, reason);
    Some(Why {
        flow,
        known: controller.view().flows.get(&id)?.clone(),
        placed: controller.placement(id).as_ref().map(reason),
        history: controller.history(id).into_iter().map(reason).collect(),
        view: controller.view().clone(),
        scheme,
    })
}

pub(crate) fn fork(hub: &mut Hub, now: Nanos) -> Option<Fork> {
    let scheme = hub.gauges.scheme.0.clone();
    Some(Fork { view: hub.controller()?.view().clone(), now, scheme })
}

/// Takes a link or switch out of service, or puts it back into service.
pub(crate) fn take_out(hub: &mut Hub, now: Nanos, target: Target, out: bool) -> Result<(), DrainError> {
    let Some((controller, _)) = parts(hub) else { return Err(DrainError::NotDrainable) };
    controller.check_drain(now, target, out)?;
    hub.handle(now, Input::Drain { target, out });
    Ok(())
}

fn find(controller: &Controller, name: FlowName) -> Option<FlowId> {
    match name {
        FlowName::Id(id) => controller.view().flows.contains_key(&id).then_some(id),
        FlowName::Tuple(tuple) => controller.find_flow(&tuple),
    }
}
