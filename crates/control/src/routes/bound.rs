//! Connections on assigned paths. This module carries out the decisions of [`crate::assignments`].
//!
//! Both directions of such a connection are flows with rules, moves and counters, but schemes get no events about
//! them. A bit of their identifiers marks them. Therefore a restarted controller that finds their rules tells its
//! scheme nothing about them. Both directions end together, after the last packet of the connection or when it has
//! been idle for too long.

use crate::assignments::{self, Assignments};
use crate::context::Context;
use crate::cookies::bound_id;
use crate::flow_rules::FlowRules;
use crate::flows::Flow;
use crate::io::Output;
use crate::orphans::Orphans;
use crate::path_requests::{Owner, PathRequest};
use crate::plan::FlowKey;
use pathloom_model::{Address, Attachment, FiveTuple, Headers, Path, PROTO_TCP, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use pathloom_scheme::{FlowId, OptionU64};

/// Returns the part of the state that the assignments need.
pub(super) fn facts(cx: &Context) -> assignments::Facts<'_> {
    let Context { now, fabric, view, places, config, .. } = cx;
    assignments::Facts { now: *now, fabric, links: &view.links, places, limits: &config.assignments }
}

/// Returns the bandwidth that each of these paths between two hosts has left.
fn available_bps(cx: &Context, (src, dst): (Address, Address), paths: &[Path]) -> Vec<OptionU64> {
    let access = [src, dst].map(|address| cx.places.attachment(&cx.fabric, address));
    let [Some(from), Some(to)] = access else { return Vec::new() };
    let left = |path: &Path| {
        let links = path.links().iter().copied().chain([from.uplink, to.uplink.reverse()]);
        cx.view.available_bps(links).map_or(OptionU64::NONE, OptionU64::from)
    };
    paths.iter().map(left).collect()
}

/// Answers a request for paths.
pub(super) fn assign(cx: &mut Context, assignments: &mut Assignments, request: u64, owner: Owner, paths: PathRequest) {
    let answer = assignments.assign(&facts(cx), owner, paths);
    let found = answer.as_ref().map_or(&[][..], |assigned| &assigned.paths);
    let available_bps = available_bps(cx, (paths.src, paths.dst), found);
    cx.put(Output::Assigned { request, answer, available_bps });
}

/// Whether a copied packet is the first one of a connection that has claimed a path.
pub(super) fn is_claimed(assignments: &Assignments, headers: &Headers) -> bool {
    let (five_tuple, flags) = (headers.five_tuple, headers.tcp_flags);
    if assignments.is_empty() || five_tuple.proto() != PROTO_TCP {
        return false;
    }
    let first = flags & (TCP_SYN | TCP_ACK | TCP_FIN | TCP_RST) == TCP_SYN;
    first && assignments.waiting(&five_tuple).is_some()
}

/// Adds the flow of one direction of a connection, whose next plan is `plans`. `None` if it cannot be added.
pub(super) fn create(
    cx: &mut Context,
    rules: &mut FlowRules,
    orphans: &Orphans,
    (five_tuple, plans): (FiveTuple, u8),
    (src, dst): (Attachment, Attachment),
) -> Option<FlowId> {
    if orphans.has(&five_tuple) {
        return None;
    }
    if rules.flows.of_host(src.host) >= cx.config.max_flows_per_host {
        cx.counts.flows_refused += 1;
        return None;
    }
    let key = FlowKey { id: bound_id(rules.flows.next_id()), five_tuple, src, dst, meter: None };
    rules.insert_flow(cx, Flow { plans, ..Flow::new(key) }, false);
    Some(key.id)
}
