//! Predicts what another scheme would do with the present flows. It works on a copy of the controller's view and
//! sends no message.

use crate::cookies::is_way_back;
use crate::defaults::{Choice, Compiler, DefaultTable, NextHops};
use crate::places::Places;
use pathloom_model::{split_mix, Fabric, FiveTuple, LinkId, LinkState, Nanos, NodeId, Path, PortNo, GOLDEN};
use pathloom_scheme::{Action, DefaultRoutes, Event, FlowId, FlowView, Scheme, View};
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of events for a scheme, in addition to some for each flow. The run of a scheme that never settles
/// ends there.
const MOST_EVENTS: usize = 10_000;
/// Maximum number of jobs that are solved.
const MOST_JOBS: usize = 16;
/// Number of polling periods in a run. A scheme that measures gets as many measurements.
const ROUNDS: u32 = 2;
/// Length of a polling period if the scheme has none.
const PERIOD: Nanos = Nanos::from_secs(5);
/// Maximum number of hops of a path on default routes.
const MOST_HOPS: usize = 64;

/// Result of a dry run.
pub struct DryRun {
    /// The view afterwards, with the flows on the paths that the scheme wants.
    pub view: View,
    /// Number of jobs solved.
    pub jobs: usize,
    /// Number of requested paths that could not be set up.
    pub rejected: usize,
    /// Whether the scheme settled, that is, requested nothing more.
    pub settled: bool,
}

/// Puts a scheme in charge of the flows in `view`, from `now` on, and carries out its actions at once. No new flows
/// arrive, and flows keep the rates that were measured last.
pub fn dry_run(view: View, scheme: Box<dyn Scheme>, now: Nanos) -> DryRun {
    let needs = scheme.needs();
    let period = needs.poll_period.unwrap_or(PERIOD);
    let both = needs.both_directions;
    let mut run = Run { now, scheme, events: VecDeque::new(), jobs: 0, rejected: 0, left: 0, both, view };
    if !both {
        let ways_back = run.view.flows.iter().filter(|(&id, flow)| is_way_back(id) && !flow.long);
        for id in ways_back.map(|(&id, _)| id).collect::<Vec<_>>() {
            run.place(id, None, None);
        }
    }
    run.left = MOST_EVENTS + 64 * run.view.flows.len();
    let adopted: Vec<Event> = run.view.long_flows().map(|(flow, _)| Event::FlowAdopted { flow }).collect();
    run.events.push_back(Event::Started);
    run.events.extend(adopted);
    let mut settled = run.settle();
    for _ in 0..ROUNDS {
        let end = run.now.saturating_add(period);
        while let Some(at) = run.scheme.poll_timeout().filter(|&at| settled && at <= end) {
            run.now = run.now.max(at);
            run.events.push_back(Event::Timeout);
            settled = run.settle();
        }
        run.now = end;
        if needs.poll_period.is_some() {
            run.events.push_back(Event::RatesMeasured { period });
            settled &= run.settle();
        }
    }
    DryRun { jobs: run.jobs, rejected: run.rejected, settled, view: run.view }
}

struct Run {
    now: Nanos,
    scheme: Box<dyn Scheme>,
    view: View,
    events: VecDeque<Event>,
    jobs: usize,
    rejected: usize,
    left: usize,
    /// Whether ways back follow their flows.
    both: bool,
}

impl Run {
    /// Passes all events to the scheme. Returns whether it settled.
    fn settle(&mut self) -> bool {
        let mut actions = Vec::new();
        while let Some(event) = self.events.pop_front() {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            self.scheme.handle(self.now, &event, &self.view, &mut actions);
            actions.drain(..).for_each(|action| self.act(action));
        }
        self.left > 0
    }

    /// Puts a flow on a path or the default routes, together with its way back.
    fn place(&mut self, id: FlowId, path: Option<Path>, rate_bps: Option<u64>) {
        let Some(flow) = self.view.flows.get_mut(&id) else { return };
        let reverse = flow.five_tuple.reverse();
        let back = path.as_ref().map(Path::reverse);
        (flow.route, flow.pending, flow.allocated_bps) = (path, None, rate_bps.into());
        if self.both && !is_way_back(id) {
            let is_its_way_back =
                |(&id, flow): &(&FlowId, &FlowView)| is_way_back(id) && !flow.long && flow.five_tuple == reverse;
            if let Some(way_back) = self.view.flows.iter().find(is_its_way_back).map(|(&id, _)| id) {
                self.place(way_back, back, None);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::SetDefaults(how) => self.view.defaults = how,
            // It changes no path of a flow on its own route.
            Action::SetWeights(_) => {}
            Action::Route { flow, path, rate_bps } => {
                let up = path.check(&self.view.fabric).is_ok() && path.is_up(&self.view.links);
                if up && self.view.flows.contains_key(&flow) {
                    self.place(flow, Some(path), rate_bps);
                    self.events.push_back(Event::RouteConfirmed { flow });
                } else {
                    self.rejected += 1;
                    let why = pathloom_scheme::Rejection::Malformed;
                    self.events.push_back(Event::RouteRejected { flow, why });
                }
            }
            Action::Unroute { flow } => self.place(flow, None, None),
            Action::Solve { ticket, input, .. } if self.jobs < MOST_JOBS => {
                self.jobs += 1;
                let answer = (self.scheme.solver())(&self.view, &input);
                self.events.push_back(Event::Solved { ticket, answer });
            }
            Action::Solve { .. }
            | Action::Hold { .. }
            | Action::Release { .. }
            | Action::Pace { .. }
            | Action::Measure
            | Action::MeasureAgain => {}
        }
    }
}

/// The paths of flows on default routes. Where switches spread flows by a hash of their own, which is unknown,
/// another hash is used instead. The result is then correct for all flows together, but not for each flow.
pub struct DefaultPaths<'a> {
    fabric: &'a Fabric,
    routes: NextHops,
    compiler: Compiler,
    tables: BTreeMap<NodeId, DefaultTable>,
}

impl<'a> DefaultPaths<'a> {
    /// Computes default routes over the links that are up.
    pub fn new(fabric: &'a Fabric, links: &LinkState, how: DefaultRoutes) -> DefaultPaths<'a> {
        let routes = NextHops::new(fabric, links, how);
        DefaultPaths { fabric, routes, compiler: Compiler::default(), tables: BTreeMap::new() }
    }

    /// Returns the path of a flow between its ToRs, and whether it is certain. `None` if the packets are dropped.
    pub fn path(&mut self, five_tuple: &FiveTuple) -> Option<(Path, bool)> {
        let (from, to) = (self.fabric.attachment(five_tuple.src())?.tor, self.fabric.attachment(five_tuple.dst())?.tor);
        let (mut at, mut links, mut sure) = (from, Vec::<LinkId>::new(), true);
        while at != to {
            if links.len() >= MOST_HOPS {
                return None;
            }
            let ports = self.ports(at, five_tuple);
            sure &= ports.len() == 1;
            let turn = hash(five_tuple, at) % ports.len().max(1) as u64;
            let link = self.fabric.out_link(at, *ports.get(turn as usize)?)?;
            links.push(link);
            at = self.fabric.link(link).to;
        }
        Some((Path::new(links), sure))
    }

    /// The ports to which a switch may send a flow.
    fn ports(&mut self, switch: NodeId, five_tuple: &FiveTuple) -> Vec<PortNo> {
        let DefaultPaths { fabric, routes, compiler, tables } = self;
        let make = || compiler.compile((fabric, &Places::default()), routes, switch, &BTreeMap::new());
        let table = tables.entry(switch).or_insert_with(make);
        let matching = table.routes.iter().filter(|(prefix, _)| prefix.contains(five_tuple.dst()));
        let best = matching.max_by_key(|&&(prefix, _)| prefix.len);
        match best.map(|&(_, choice)| choice) {
            None | Some(Choice::Drop | Choice::Other) => Vec::new(),
            Some(Choice::Port(port)) => vec![port],
            Some(Choice::Group(group)) => table.groups.get(&group).cloned().unwrap_or_default(),
        }
    }
}

/// A pseudo-random number, always the same for a five-tuple and a switch.
fn hash(five_tuple: &FiveTuple, at: NodeId) -> u64 {
    let (proto, src_port, dst_port) = (five_tuple.proto(), five_tuple.src_port(), five_tuple.dst_port());
    let ports = u64::from(src_port) << 24 | u64::from(dst_port) << 8 | u64::from(proto);
    let mixed = |sum: u64, more: u64| split_mix((sum ^ more.rotate_left(17)).wrapping_add(GOLDEN));
    [ports, u64::from(at.0)].into_iter().fold(five_tuple.address_bits(), mixed)
}
