//! Measures how long mptcp-aware takes for a subflow, for pairs of addresses that are new and that are cached:
//! `cargo run --release -p pathloom-schemes --example subflows`.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{FiveTuple, Nanos, PROTO_TCP};
use pathloom_scheme::{Action, Event, FlowId, FlowView, View};
use std::sync::Arc;
use std::time::Instant;

const FABRICS: [&str; 3] =
    ["fat-tree:k=8", "jellyfish:switches=60,ports=8,hosts=120", "jellyfish:switches=60,ports=8,hosts=120,homes=2"];
const SCHEMES: [&str; 3] = ["mptcp-aware", "mptcp-aware:paths=shortest,k=16", "mptcp-aware:paths=k-shortest"];

fn main() {
    for fabric in FABRICS {
        let fabric = Arc::new(fabric_from_spec(fabric).expect("a fabric"));
        for scheme in SCHEMES {
            let [first, again] = measure(&fabric, scheme);
            println!("{}, {scheme}: {} uncached, {} cached", fabric.spec(), text(first), text(again));
        }
    }
}

/// Median and 99th percentile as text, in microseconds.
fn text(mut times_ns: Vec<u128>) -> String {
    times_ns.sort_unstable();
    let at = |share: usize| times_ns[times_ns.len() * share / 100] as f64 / 1e3;
    format!("{:.1} µs (99 %: {:.1} µs)", at(50), at(99))
}

/// Times of `handle` for the first subflow of each pair of hosts, and for a second one.
fn measure(fabric: &Arc<pathloom_model::Fabric>, scheme: &str) -> [Vec<u128>; 2] {
    let mut scheme = pathloom_schemes::parse(scheme).expect("a scheme").central(1).expect("a central policy");
    let mut view = View::new(fabric.clone());
    let mut actions = Vec::new();
    scheme.handle(Nanos::ZERO, &Event::Started, &view, &mut actions);
    let hosts = fabric.hosts();
    let pairs = hosts.iter().enumerate().flat_map(|(index, &src)| {
        (1..hosts.len()).step_by(7).map(move |step| (src, hosts[(index + step) % hosts.len()]))
    });
    let mut times = [Vec::new(), Vec::new()];
    for (number, (src, dst)) in pairs.enumerate() {
        for (turn, times) in times.iter_mut().enumerate() {
            let (from, to) = (*fabric.host_attachments(src)[0], *fabric.host_attachments(dst)[0]);
            let (id, token) = (FlowId((2 * number + turn) as u64), Some(number as u32));
            let five_tuple = FiveTuple::new(PROTO_TCP, (from.address, turn as u16), (to.address, 80));
            let mut flow = FlowView::new(five_tuple, &from, &to, Nanos::ZERO);
            (flow.long, flow.mptcp_token) = (true, token);
            view.flows.insert(id, flow);
            actions.clear();
            let begun = Instant::now();
            scheme.handle(Nanos::ZERO, &Event::SubflowArrived { flow: id, token }, &view, &mut actions);
            times.push(begun.elapsed().as_nanos());
            for action in &actions {
                if let Action::Route { flow, path, .. } = action {
                    view.flows.get_mut(flow).into_iter().for_each(|flow| flow.route = Some(path.clone()));
                }
            }
        }
    }
    times
}
