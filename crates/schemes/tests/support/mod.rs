//! A world for one scheme: a view, and a small controller that keeps it up to date. It does at once what the real
//! controller does by messages, and it asserts that the scheme keeps to the contract.

pub mod record;

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{FiveTuple, Nanos, NodeId, Path, PROTO_TCP};
use pathloom_scheme::{Action, Event, FlowId, FlowView, Scheme, State, View};
use std::sync::Arc;

/// A scheme and its view.
pub struct World {
    pub now: Nanos,
    pub view: View,
    pub scheme: Box<dyn Scheme>,
    /// The running job: its ticket, the view when it was sent, its input.
    job: Option<(u64, View, State)>,
}

impl World {
    /// The scheme `scheme` on the fabric `fabric`, before any event.
    pub fn new(fabric: &str, scheme: &str, seed: u64) -> World {
        let fabric = fabric_from_spec(fabric).unwrap_or_else(|error| panic!("{fabric}: {error}"));
        let spec = pathloom_schemes::Registry::WithTestSchemes.parse(scheme).unwrap_or_else(|error| panic!("{error}"));
        let scheme = spec.central(seed).unwrap_or_else(|| panic!("{scheme} has no central policy"));
        World { now: Nanos::ZERO, view: View::new(Arc::new(fabric)), scheme, job: None }
    }

    /// Adds a flow that switches count but that was not reported as long. It leaves `src` by port `src_nic` and
    /// enters `dst` by port `dst_nic` (counted from 0, modulo the number of ports).
    pub fn add_flow(&mut self, id: FlowId, src: (NodeId, usize), dst: (NodeId, usize), src_port: u16) {
        let at = |(host, nic): (NodeId, usize)| {
            let attachments = self.view.fabric.host_attachments(host);
            *attachments[nic % attachments.len()]
        };
        let (from, to) = (at(src), at(dst));
        let (src, dst) = (from.address, to.address);
        let five_tuple = FiveTuple::new(PROTO_TCP, (src, src_port), (dst, 5001));
        let flow = FlowView::new(five_tuple, &from, &to, self.now);
        self.view.flows.insert(id, flow);
    }

    /// Updates the view with an event, gives the event to the scheme, and carries out the actions.
    pub fn deliver(&mut self, event: &Event) -> Vec<Action> {
        self.learn(event);
        let mut actions = Vec::new();
        self.scheme.handle(self.now, event, &self.view, &mut actions);
        for action in &actions {
            self.carry_out(action);
        }
        if let Event::FlowFinished { flow } = event {
            self.view.flows.remove(flow);
        }
        actions
    }

    /// Ends the running job. Returns its answer and the resulting actions; `None` if there is no job.
    pub fn solve(&mut self) -> Option<(State, Vec<Action>)> {
        let (ticket, view, input) = self.job.take()?;
        let answer = self.scheme.solver()(&view, &input);
        let actions = self.deliver(&Event::Solved { ticket, answer: answer.clone() });
        Some((answer, actions))
    }

    /// Ends jobs until there is none; then every switch confirms its paths. Returns the actions of the scheme.
    pub fn settle(&mut self) -> Vec<Action> {
        let mut all = Vec::new();
        while let Some((_, actions)) = self.solve() {
            all.extend(actions);
            assert!(all.len() < 100_000, "the scheme never stops solving");
        }
        let pending: Vec<FlowId> =
            self.view.flows.iter().filter(|(_, flow)| flow.pending.is_some()).map(|(&id, _)| id).collect();
        for flow in pending {
            all.extend(self.deliver(&Event::RouteConfirmed { flow }));
        }
        all
    }

    fn learn(&mut self, event: &Event) {
        let view = &mut self.view;
        match event {
            Event::FlowArrived { flow } | Event::FlowAdopted { flow } => {
                view.flows.get_mut(flow).into_iter().for_each(|flow| flow.long = true);
            }
            Event::SubflowArrived { flow, token } => {
                view.flows.get_mut(flow).into_iter().for_each(|flow| (flow.long, flow.mptcp_token) = (true, *token));
            }
            Event::RouteConfirmed { flow } => {
                view.flows
                    .get_mut(flow)
                    .into_iter()
                    .for_each(|flow| flow.route = flow.pending.take().or(flow.route.take()));
            }
            Event::RouteRejected { flow, .. } => {
                view.flows.get_mut(flow).into_iter().for_each(|flow| flow.pending = None);
            }
            Event::LinkChanged { link, up } => {
                view.links.set_cable(*link, *up);
                let links = view.links.clone();
                view.flows.for_each_mut(|_, flow| {
                    flow.route = flow.route.take().filter(|path| path.is_up(&links));
                    flow.pending = flow.pending.take().filter(|path| path.is_up(&links));
                });
            }
            _ => {}
        }
    }

    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::SetDefaults(routes) => self.view.defaults = *routes,
            Action::Route { flow, path, rate_bps } => {
                let known = self.view.flows.get_mut(flow).unwrap_or_else(|| panic!("{flow:?} is not known"));
                assert_ne!(known.intended_route(), Some(path), "{flow:?} is on this path already");
                check(&self.view.fabric, known, path);
                assert!(path.is_up(&self.view.links), "{flow:?}: the requested path has a dead link");
                known.pending = Some(path.clone());
                known.allocated_bps = (*rate_bps).into();
            }
            Action::Unroute { flow } => {
                let known = self.view.flows.get_mut(flow).unwrap_or_else(|| panic!("{flow:?} is not known"));
                assert!(known.intended_route().is_some(), "{flow:?} has no path to remove");
                (known.route, known.pending, known.allocated_bps) = (None, None, None.into());
            }
            Action::Solve { ticket, input, .. } => {
                assert!(self.job.is_none(), "a second job was sent while one is running");
                self.job = Some((*ticket, self.view.clone(), input.clone()));
            }
            _ => {}
        }
    }
}

/// Asserts that a path is valid, is not empty, and leads from the source ToR of a flow to its destination ToR.
fn check(fabric: &pathloom_model::Fabric, flow: &FlowView, path: &Path) {
    path.check(fabric).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let ends = path.links().first().zip(path.links().last());
    let (first, last) = ends.expect("an empty path: flows within a ToR need none");
    assert_eq!((fabric.link(*first).from, fabric.link(*last).to), (flow.src_tor, flow.dst_tor));
}
