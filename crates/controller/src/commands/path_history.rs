//! The paths of flows over time, and the reasons for them, from the event log of a live controller.

use crate::api::path_names;
use crate::commands::replay::Recording;
use crate::config::CheckedConfig;
use pathloom_control::cookies::is_way_back;
use pathloom_control::{Controller, Decision, Reason};
use pathloom_model::{FiveTuple, LinkId, Path};
use pathloom_scheme::FlowId;
use serde::Serialize;
use std::collections::BTreeMap;

/// A decision that put a flow on a path, left it there, or put it back on the default routes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PathChange {
    /// Time of the decision, in nanoseconds since 1970. The rules follow within milliseconds.
    pub at_ns: u64,
    /// The flow.
    pub flow: FiveTuple,
    /// Names of the nodes from host to host; `None` on the default routes.
    pub path: Option<Vec<String>>,
    /// Numbers of the links from host to host; `None` on the default routes.
    pub links: Option<Vec<u32>>,
    /// The decision and the event that led to it, as a sentence.
    pub why: String,
}

/// Replays a log, and passes each change of a path to `take`, in the order of time. The log may be incomplete at its
/// end, because the controller still writes it, or was killed.
///
/// # Errors
/// As [`crate::commands::replay`]: the log cannot be read, or does not belong to the configuration.
pub fn path_history(checked: &CheckedConfig, text: &str, mut take: impl FnMut(PathChange)) -> Result<(), String> {
    let whole_lines = text.rfind('\n').map_or(text, |end| &text[..=end]);
    let mut recording = Recording::open(checked, whole_lines)?;
    recording.controller.record_decisions();
    recording.replay_to_the_end(|controller| {
        let decisions = controller.take_decisions();
        let last: BTreeMap<FlowId, usize> =
            decisions.iter().zip(0..).map(|((flow, _), index)| (*flow, index)).collect();
        for (index, (flow, reason)) in decisions.iter().enumerate() {
            path_change(controller, *flow, reason, last[flow] == index).map(&mut take);
        }
    })
}

/// `None` for a decision about the sending of a flow, for a flow that ended with it, and for the way back of a flow,
/// which follows the flow. `last`: no other decision about the flow has followed yet.
fn path_change(controller: &Controller, flow: FlowId, reason: &Reason, last: bool) -> Option<PathChange> {
    let known = controller.view().flows.get(&flow).filter(|_| !is_way_back(flow))?;
    let path = match &reason.decision {
        Decision::Route { path, .. } | Decision::Assigned { path } | Decision::Adopted { path } => Some(path),
        // The flow stays where it is, or a move to another path goes on.
        Decision::Rejected { .. } => known.intended_route(),
        Decision::Unroute | Decision::Rescued { .. } | Decision::Drained | Decision::MadeRoom { .. } => {
            known.intended_route().filter(|_| last)
        }
        Decision::Hold | Decision::Release => return None,
    };
    let links = path.and_then(|path| from_host_to_host(controller, &known.five_tuple, path));
    let fabric = &controller.view().fabric;
    let host = |node| fabric.node(node).name.clone();
    let names = |path| {
        let switches = path_names(fabric, known, path);
        [host(known.src_host)].into_iter().chain(switches).chain([host(known.dst_host)]).collect()
    };
    Some(PathChange {
        at_ns: reason.at.0,
        flow: known.five_tuple,
        path: path.filter(|_| links.is_some()).map(names),
        links: links.map(|links| links.iter().map(|link| link.0).collect()),
        why: reason.text(controller),
    })
}

/// Adds the links of the hosts to a path between their switches. `None` if a host has no known place.
fn from_host_to_host(controller: &Controller, five_tuple: &FiveTuple, path: &Path) -> Option<Vec<LinkId>> {
    let (from, to) = (controller.attachment(five_tuple.src())?.uplink, controller.attachment(five_tuple.dst())?.uplink);
    Some(std::iter::once(from).chain(path.links().iter().copied()).chain([to.reverse()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use pathloom_model::{Headers, Nanos, LONG_FLOW_DSCP, PROTO_TCP, TCP_SYN};
    use pathloom_testkit::{Network, Timing};

    const CONFIG: &str = "[fabric]\nspec = \"fat-tree:k=4\"\n[scheme]\nspec = \"ofpt\"\n";

    #[test]
    fn a_log_tells_every_path_of_a_flow_and_why() {
        let checked = config::check(CONFIG, std::path::Path::new("")).unwrap();
        let controller =
            Controller::new(checked.control(7), checked.fabric.clone(), checked.scheme.central(1).unwrap());
        let mut network = Network::new(checked.fabric.clone(), controller, Timing::NONE, 1);
        network.start();
        let all = checked.fabric.attachments();
        let (from, to) = (all[0], all[all.len() - 1]);
        let five_tuple = FiveTuple::new(PROTO_TCP, (from.address, 1000), (to.address, 2));
        network.send(Headers { dscp: LONG_FLOW_DSCP, tcp_flags: TCP_SYN, ..Headers::plain(five_tuple) });
        let second = |network: &Network| network.now() + Nanos::from_secs(1);
        network.run_until(second(&network));
        let route = |network: &Network| {
            let flow = network.controller.find_flow(&five_tuple)?;
            network.controller.view().flows[&flow].route.clone()
        };
        let first = route(&network).expect("a long flow gets a path");
        network.set_cable(first.links()[1], false);
        let cut = network.now();
        network.run_until(second(&network));
        let next = route(&network).expect("it gets another one");
        let ecmp = config::registry().parse("ecmp").unwrap();
        network.set_scheme(ecmp.central(1).unwrap());
        network.run_until(second(&network));
        assert_eq!(route(&network), None);

        let records = network.log.iter().map(|record| record.to_line() + "\n").collect::<String>();
        let log = format!("{{\"start\":{{\"epoch\":7}}}}\n{records}");
        let changes_in = |log: &str| {
            let mut changes = Vec::new();
            path_history(&checked, log, |change| changes.push(change)).unwrap();
            changes
        };
        let changes = changes_in(&log);
        assert!(changes.iter().all(|change| change.flow == five_tuple), "the way back has no lines: {changes:#?}");
        let whole = |path: &Path| {
            let links = [from.uplink].into_iter().chain(path.links().iter().copied()).chain([to.uplink.reverse()]);
            Some(links.map(|link| link.0).collect::<Vec<_>>())
        };
        let mut links: Vec<_> = changes.iter().map(|change| change.links.clone()).collect();
        links.dedup();
        // The controller takes a flow off a dead path at once. The scheme then gives it another path.
        assert_eq!(links, [whole(&first), None, whole(&next), None], "{changes:#?}");
        assert!(changes[0].why.starts_with("ofpt put it on "), "{}", changes[0].why);
        assert!(changes[0].at_ns < cut.0 && changes[1].at_ns >= cut.0, "{changes:#?}");
        assert!(changes[1].why.contains("is down"), "{}", changes[1].why);
        assert!(changes.last().unwrap().why.contains("on the default routes"), "{changes:#?}");
        let names = changes[0].path.as_ref().unwrap();
        assert_eq!((names.len(), names[0].as_str()), (7, checked.fabric.node(from.host).name.as_str()));
        assert_eq!(names.last(), Some(&checked.fabric.node(to.host).name));
        // A log may end anywhere.
        for end in (0..log.len()).rev().step_by(log.len() / 50).filter(|&end| end > 40) {
            assert!(changes.starts_with(&changes_in(&log[..end])), "cut at {end}");
        }
        // Each change is one line of JSON.
        assert!(serde_json::to_string(&changes[1]).unwrap().contains(r#""path":null,"links":null"#));
    }
}
