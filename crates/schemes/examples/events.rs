//! Measures the processor time per event of schemes that place flows when they arrive, while many flows exist. Also
//! compares the paces with max-min fair rates on the same paths:
//! `cargo run --release -p pathloom-schemes --example events -- [K [FLOWS [SCHEME]]]`.

use pathloom_allocation::{max_min, FlowSet};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{FiveTuple, Nanos, PROTO_TCP};
use pathloom_scheme::{Action, Event, FlowId, FlowView, Scheme, State, View};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Measured steps. In each, one flow departs and one arrives.
const EVENTS: u64 = 20_000;
/// Half of the time between two steps.
const GAP: Nanos = Nanos(1_000_000_000 / 15_000);

/// Share of the capacity that ofpt leaves to short flows.
const HEADROOM: f64 = 0.02;

struct World {
    view: View,
    scheme: Box<dyn Scheme>,
    now: Nanos,
    rng: Pcg64,
    next: u64,
    standing: Vec<FlowId>,
    paced_bps: BTreeMap<FlowId, u64>,
    job: Option<Job>,
    told: u64,
}

/// The current job: its ticket, its input, the view that it works on, and the time at which it ends.
type Job = (u64, State, View, Nanos);

impl World {
    fn new(k: usize, scheme: &str) -> World {
        let fabric = fabric_from_spec(&format!("fat-tree:k={k},rate=10Gbps")).expect("a FatTree");
        let scheme = pathloom_schemes::parse(scheme).expect("a scheme").central(1).expect("a central policy");
        let (view, rng) = (View::new(Arc::new(fabric)), Pcg64::seed_from_u64(7));
        let (standing, paced_bps) = (Vec::new(), BTreeMap::new());
        let mut world = World { view, scheme, now: Nanos::ZERO, rng, next: 0, standing, paced_bps, job: None, told: 0 };
        world.deliver(&Event::Started);
        world
    }

    fn deliver(&mut self, event: &Event) {
        let mut actions = Vec::new();
        self.scheme.handle(self.now, event, &self.view, &mut actions);
        self.told += actions.len() as u64;
        for action in actions {
            match action {
                Action::Route { flow, path, rate_bps } => {
                    let known = self.view.flows.get_mut(&flow).expect("a known flow");
                    (known.route, known.allocated_bps) = (Some(path), rate_bps.into());
                }
                Action::Solve { ticket, input, modelled } => {
                    self.job = Some((ticket, input, self.view.clone(), self.now.saturating_add(modelled)));
                }
                Action::Pace { flow, rate_bps } => {
                    self.paced_bps.insert(flow, rate_bps.unwrap_or(u64::MAX));
                }
                _ => {}
            }
        }
    }

    fn arrive(&mut self, size_bytes: Option<u64>) {
        let attachments = self.view.fabric.attachments();
        let from = attachments[self.rng.random_range(0..attachments.len())];
        let to = loop {
            let to = attachments[self.rng.random_range(0..attachments.len())];
            if to.tor != from.tor {
                break to;
            }
        };
        let id = FlowId(self.next);
        self.next += 1;
        let src_port = (self.next % 60_000) as u16;
        let five_tuple = FiveTuple::new(PROTO_TCP, (from.address, src_port), (to.address, 5001));
        let flow =
            FlowView { size_bytes: size_bytes.into(), long: true, ..FlowView::new(five_tuple, &from, &to, self.now) };
        self.view.flows.insert(id, flow);
        self.standing.push(id);
        self.deliver(&Event::FlowArrived { flow: id })
    }

    fn finish(&mut self) {
        let flow = self.standing.swap_remove(self.rng.random_range(0..self.standing.len()));
        self.deliver(&Event::FlowFinished { flow });
        self.view.flows.remove(&flow);
        self.paced_bps.remove(&flow);
    }

    /// Prints how far the paces are from max-min fair rates.
    fn judge(&self) {
        let links = self.view.fabric.links();
        let capacity: Vec<f64> = links.iter().map(|link| link.settings.rate_bps as f64).collect();
        let (mut flows, mut paces, mut used) = (FlowSet::new(), Vec::new(), vec![0.0; capacity.len()]);
        for (id, &pace_bps) in &self.paced_bps {
            let flow = &self.view.flows[id];
            let port = |address| self.view.fabric.attachment(address).expect("a host's address").uplink;
            let ends = [port(flow.five_tuple.src()).0, port(flow.five_tuple.dst()).reverse().0];
            let path = flow.route.iter().flat_map(|path| path.links()).map(|link| link.0);
            let crossed: Vec<u32> = ends.into_iter().chain(path).collect();
            crossed.iter().for_each(|&link| used[link as usize] += pace_bps as f64);
            flows.push(&crossed);
            paces.push(pace_bps as f64);
        }
        let Ok(fair) = max_min(&capacity, &flows) else { return };
        let mut off: Vec<f64> =
            paces.iter().zip(&fair.rates).map(|(pace, fair)| (pace / (1.0 - HEADROOM) / fair - 1.0).abs()).collect();
        off.sort_by(f64::total_cmp);
        let part = |part: f64| off.get((off.len() as f64 * part) as usize).copied().unwrap_or(0.0);
        let whole = paces.iter().sum::<f64>() / fair.rates.iter().sum::<f64>();
        let fullest = used.iter().zip(&capacity).map(|(used, capacity)| used / capacity).fold(0.0, f64::max);
        println!(
            "paces: {whole:.3} of the sum of max-min rates; deviation {:.3} median, {:.3} 95 %, {:.3} maximum; \
             fullest link {fullest:.3}",
            part(0.5),
            part(0.95),
            part(1.0 - 1e-9)
        );
    }

    /// Flows depart and arrive. The time of the solver does not count; the time that the scheme takes for its answer
    /// does.
    fn measure(&mut self, size: &mut impl FnMut() -> Option<u64>) {
        let (told, mut rounds, mut in_solver) = (self.told, 0, 0);
        let before = cpu_ns();
        for _ in 0..EVENTS {
            self.now = Nanos(self.now.0 + 2 * GAP.0);
            self.finish();
            self.arrive(size());
            while let Some((solver, ..)) = self.solve(self.now) {
                rounds += 1;
                in_solver += solver;
            }
            if self.scheme.poll_timeout().is_some_and(|at| at <= self.now) {
                self.deliver(&Event::Timeout);
            }
        }
        let us = (cpu_ns() - before - in_solver) as f64 / 1e3 / (2 * EVENTS) as f64;
        let actions = (self.told - told) as f64 / (2 * EVENTS) as f64;
        println!(
            "{us:.1} µs per arrival or departure: {:.0} per second on one core; {actions:.1} actions each",
            1e6 / us
        );
        println!(
            "{rounds} rounds during this time: {:.1} ms each in the solver",
            in_solver as f64 / 1e6 / f64::from(rounds.max(1))
        );
    }

    /// Carries out the job if it ends by `now`. Returns the time of the solver and that of the scheme for the answer,
    /// in nanoseconds, and the number of operations.
    fn solve(&mut self, now: Nanos) -> Option<(u64, u64, f64)> {
        let (ticket, input, view, _) = self.job.take_if(|(.., over)| *over <= now)?;
        let before = cpu_ns();
        let answer = self.scheme.solver()(&view, &input);
        let took = cpu_ns() - before;
        drop(view);
        let cost = answer.0.pointer("/router/cost/operations").or(answer.0.pointer("/cost/operations"));
        let operations = cost.and_then(serde_json::Value::as_u64).unwrap_or(0);
        let before = cpu_ns();
        self.deliver(&Event::Solved { ticket, answer });
        Some((took, cpu_ns() - before, operations as f64))
    }
}

/// Processor time of this thread in nanoseconds, accurate to some milliseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number")
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().map_or(default, |text| text.parse().expect("a number"));
    let (k, flows) = (number(8) as usize, number(10_000));
    let scheme = std::env::args().nth(3).unwrap_or_else(|| "ofpt".into());
    let announced = scheme.contains("announced");
    let mut world = World::new(k, &scheme);
    let mut size = {
        let mut rng = Pcg64::seed_from_u64(9);
        move || announced.then(|| rng.random_range(1_000_000..1_000_000_000))
    };
    for _ in 0..flows {
        world.arrive(size());
    }
    world.deliver(&Event::RatesMeasured { period: Nanos::from_secs(5) });
    world.judge();
    while let Some((solver, handler, operations)) = world.solve(Nanos::MAX) {
        let ns = solver as f64 / operations.max(1.0);
        println!("round: {:.1} ms in the solver, {operations:.2e} operations, {ns:.1} ns each", solver as f64 / 1e6);
        println!("  its answer: {:.2} ms in the scheme", handler as f64 / 1e6);
    }
    world.judge();
    world.measure(&mut size);
    world.judge();
}
