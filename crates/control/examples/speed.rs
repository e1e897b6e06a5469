//! Measures the speed of the controller alone, without switches, sockets or a simulator: `cargo run --release -p
//! pathloom-control --example speed`.

use pathloom_control::{Config, Controller, Input, Output};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, FiveTuple, Headers, Nanos, LONG_FLOW_DSCP, PROTO_TCP, TCP_SYN};
use pathloom_model::{LinkId, NodeId, Path};
use pathloom_scheme::{Action, DefaultRoutes, Detection, Event, Needs, Scheme, View};
use std::sync::Arc;
use std::time::Instant;

/// Number of runs. The best one counts, because other programs may use the machine.
const ROUNDS: usize = 10;

/// Routes every flow on one of its shortest paths, or routes no flow.
struct FirstPath {
    needs: Needs,
    defaults: DefaultRoutes,
    routes: bool,
}

impl Scheme for FirstPath {
    fn name(&self) -> &'static str {
        "first-path"
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn handle(&mut self, _now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match event {
            Event::Started => actions.push(Action::SetDefaults(self.defaults)),
            Event::FlowArrived { flow } if self.routes => {
                let known = &view.flows[flow];
                let turn = usize::from(known.five_tuple.src_port());
                let path = up_and_down(&view.fabric, known.src_tor, known.dst_tor, turn);
                actions.push(Action::Route { flow: *flow, path, rate_bps: None });
            }
            _ => {}
        }
    }
}

/// Returns a path up to a core of a FatTree and down again.
fn up_and_down(fabric: &Fabric, from: NodeId, to: NodeId, turn: usize) -> Path {
    let up = |node: NodeId| -> Vec<LinkId> {
        let tier = fabric.node(node).tier;
        fabric.node(node).ports.iter().copied().filter(|&link| fabric.node(fabric.link(link).to).tier > tier).collect()
    };
    let ups = up(from);
    let first = ups[turn % ups.len()];
    let aggregation = fabric.link(first).to;
    if let Some(down) = fabric.link_between(aggregation, to) {
        return Path::new([first, down]);
    }
    let cores = up(aggregation);
    let second = cores[turn / ups.len() % cores.len()];
    let core = fabric.link(second).to;
    let pod = fabric.node(to).pod;
    let third = fabric.node(core).ports.iter().copied().find(|&link| fabric.node(fabric.link(link).to).pod == pod);
    let third = third.expect("a core reaches every pod");
    let last = fabric.link_between(fabric.link(third).to, to).expect("an aggregation switch reaches its ToRs");
    Path::new([first, second, third, last])
}

/// Connects all switches, with empty tables. Returns the number of rules sent.
fn connect(controller: &mut Controller, fabric: &Fabric) -> usize {
    let mut rules = 0;
    for &switch in fabric.switches() {
        controller.handle(Nanos::ZERO, Input::SwitchUp { switch, ports_down: vec![] });
        rules += answer(controller, &mut Vec::new());
    }
    rules
}

/// Answers rule dumps and barriers until there are no more. Returns the number of rules added.
fn answer(controller: &mut Controller, answers: &mut Vec<Input>) -> usize {
    let mut rules = 0;
    loop {
        while let Some(output) = controller.poll_output() {
            match output {
                Output::AddRule { .. } => rules += 1,
                Output::Barrier { switch, xid } => answers.push(Input::BarrierReply { switch, xid }),
                Output::DumpRequest { switch } => {
                    answers.push(Input::RuleDump { switch, rules: vec![], groups: vec![], meters: vec![] });
                }
                _ => {}
            }
        }
        if answers.is_empty() {
            return rules;
        }
        for input in answers.drain(..) {
            controller.handle(Nanos::from_millis(1), input);
        }
    }
}

fn scheme(detection: Detection, defaults: DefaultRoutes, routes: bool) -> Box<dyn Scheme> {
    let poll_period = Some(Nanos::from_secs(5));
    Box::new(FirstPath { needs: Needs { detection, poll_period, ..Needs::NOTHING }, defaults, routes })
}

fn set_up(spec: &str, defaults: DefaultRoutes) {
    let fabric = Arc::new(fabric_from_spec(spec).expect("the specification is right"));
    let start = Instant::now();
    let mut controller =
        Controller::new(Config::default(), fabric.clone(), scheme(Detection::Nothing, defaults, false));
    let rules = connect(&mut controller, &fabric);
    let took = start.elapsed();
    let most = controller.counts().rules_max;
    let link = LinkId(fabric.links().len() as u32 - 1);
    let cable = (0..=link.0).rev().map(LinkId).find(|&link| fabric.is_switch_link(link)).expect("there are cables");
    let record = *fabric.link(cable);
    let start = Instant::now();
    controller
        .handle(Nanos::from_secs(1), Input::PortStatus { switch: record.from, port: record.from_port, up: false });
    let changed = answer(&mut controller, &mut Vec::new());
    println!(
        "{spec} {defaults:?}: {rules} rules on {} switches (at most {most} each) in {took:.1?}; \
         a dead link: {changed} rules in {:.1?}",
        fabric.switches().len(),
        start.elapsed(),
    );
}

fn first_packets(fabric: &Fabric, count: usize) -> impl Iterator<Item = Input> + '_ {
    let attachments = fabric.attachments();
    (0..count).map(move |number| {
        let src = &attachments[number % attachments.len()];
        let dst = &attachments[(number + attachments.len() / 2) % attachments.len()];
        let five_tuple =
            FiveTuple::new(PROTO_TCP, (src.address, (number / attachments.len()) as u16), (dst.address, 80));
        let headers = Headers { dscp: LONG_FLOW_DSCP, tcp_flags: TCP_SYN, ..Headers::plain(five_tuple) };
        Input::PacketIn { switch: src.tor, in_port: fabric.link(src.uplink).to_port, headers }
    })
}

fn flows(what: &str, detection: Detection, routes: bool, standing: usize, count: usize) {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=8").expect("the specification is right"));
    let inputs: Vec<Input> = first_packets(&fabric, standing + count).collect();
    let mut best: Option<(f64, usize)> = None;
    for _ in 0..ROUNDS {
        let config = Config { max_flows_per_host: 1_000_000, max_counted_per_tor: u32::MAX, ..Config::default() };
        let mut controller = Controller::new(config, fabric.clone(), scheme(detection, DefaultRoutes::Ecmp, routes));
        connect(&mut controller, &fabric);
        let (mut rules, mut answers, mut start) = (0, Vec::new(), Instant::now());
        for (number, input) in inputs.iter().enumerate() {
            if number == standing {
                (rules, start) = (0, Instant::now());
            }
            controller.handle(Nanos::from_secs(1), input.clone());
            rules += answer(&mut controller, &mut answers);
        }
        let rate = count as f64 / start.elapsed().as_secs_f64();
        best = best.filter(|&(other, _)| other > rate).or(Some((rate, rules)));
    }
    let (rate, rules) = best.expect("there is a round");
    let each = rules as f64 / count as f64;
    println!(
        "{what}: {rate:.0} flows/s ({each:.1} rules each), while flows grow from {standing} to {}",
        standing + count
    );
}

fn main() {
    for how in [DefaultRoutes::Ecmp, DefaultRoutes::SinglePath, DefaultRoutes::PerHost] {
        set_up("fat-tree:k=8", how);
        set_up("fat-tree:k=16", how);
    }
    set_up("fat-tree:k=32", DefaultRoutes::Ecmp);
    set_up("fat-tree:k=32", DefaultRoutes::SinglePath);
    flows("counting flows", Detection::Measured { nic_share: 0.1 }, false, 10_000, 10_000);
    flows("paths, confirmed", Detection::Label, true, 10_000, 10_000);
}
