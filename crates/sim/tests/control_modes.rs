//! Requests of a scheme to its controller, tested end to end: holds, limits, shared rules, moves in place, full
//! tables, and the cost of all these.

use pathloom_control::{Input, Output};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Nanos, NodeId, Path};
use pathloom_scheme::{
    Action, DefaultRoutes, Detection, Event, FlowId, Migration, Needs, RuleSharing, Scheme, State, View,
};
use pathloom_sim::{ControlSettings, Journal, NoTap, Outcome, SimSettings, Simulation};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

const LABEL: Needs = Needs { detection: Detection::Label, ..Needs::NOTHING };
const SFMM: Needs = Needs { migration: Migration::Sfmm, ..LABEL };
const SHARED: Needs = Needs { rules: RuleSharing::PerPath, ..LABEL };

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

type Handler = fn(&mut Asker, Nanos, &Event, &View, &mut Vec<Action>);

/// A scheme for tests: calls a function for each event.
struct Asker {
    needs: Needs,
    handler: Handler,
    /// Time of the next time-out that the scheme requests.
    wake: Option<Nanos>,
    turn: usize,
}

impl Scheme for Asker {
    fn name(&self) -> &'static str {
        "asker"
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        if *event == Event::Started {
            actions.push(Action::SetDefaults(DefaultRoutes::SinglePath));
        }
        if *event == Event::Timeout {
            self.wake = None;
        }
        (self.handler)(self, now, event, view, actions);
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.wake
    }
}

/// Counts messages over the control channel.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Journal for Counter {
    fn input(&mut self, at: Nanos, input: &Input) {
        let own = matches!(input, Input::Timeout | Input::Load { .. } | Input::Rtt { .. } | Input::Solved { .. });
        self.0.fetch_add(u64::from(at > Nanos::ZERO && !own), Relaxed);
    }

    fn output(&mut self, at: Nanos, output: &Output) {
        let own = matches!(output, Output::Solve { .. });
        self.0.fetch_add(u64::from(at > Nanos::ZERO && !own), Relaxed);
    }
}

/// Records when a transfer was reported to be over.
#[derive(Clone, Default)]
struct Ends(Arc<AtomicU64>);

impl Journal for Ends {
    fn input(&mut self, at: Nanos, input: &Input) {
        if matches!(input, Input::TransferEnded { .. }) {
            self.0.store(at.0, Relaxed);
        }
    }

    fn output(&mut self, _at: Nanos, _output: &Output) {}
}

fn settings(fabric: &str, traffic: &str, control: &str, duration: Nanos, central: Box<dyn Scheme>) -> SimSettings {
    let fabric = Arc::new(fabric_from_spec(fabric).unwrap());
    let traffic = TrafficSpec::parse(traffic).unwrap();
    SimSettings {
        workload: Arc::new(traffic.generate(&fabric, duration, 1, None).unwrap()),
        central: Some(central),
        successor: None,
        programs: None,
        transport: TransportSpec::parse("newreno").unwrap(),
        control: ControlSettings::parse(control).unwrap(),
        duration,
        drain: 60,
        faults: Vec::new(),
        seed: 1,
        fabric,
    }
}

fn run(settings: SimSettings) -> (Outcome, u64) {
    let counter = Counter::default();
    let mut simulation = Simulation::with_tap(settings, NoTap, Some(Box::new(counter.clone()))).unwrap();
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
    (outcome, counter.0.load(Relaxed))
}

fn asker(needs: Needs, handler: Handler) -> Box<dyn Scheme> {
    Box::new(Asker { needs, handler, wake: None, turn: 0 })
}

/// FCT of one transfer of 1 MB at 100 Mbit/s, which takes 90 ms alone.
fn fct(handler: Handler) -> Nanos {
    let traffic = "incast:senders=1,size=1MB";
    let (outcome, _) = run(settings("dumbbell:rate=100Mbps", traffic, "delay=50us", ms(500), asker(LABEL, handler)));
    let flow = &outcome.flows[0];
    flow.finish.unwrap() - flow.start.unwrap()
}

#[test]
fn a_hold_ends_by_itself_or_by_a_release() {
    let free = fct(|_, _, _, _, _| {});
    assert!(free < ms(120), "{free:?}");
    // Nobody releases the flow, so the lease ends the hold.
    let held = fct(|_, _, event, _, actions| {
        if let Event::FlowArrived { flow } = event {
            actions.push(Action::Hold { flow: *flow, lease: ms(300) });
        }
    });
    assert!(held > ms(300) && held < ms(300) + free, "{held:?}");
    let released = fct(|asker, now, event, view, actions| match event {
        Event::FlowArrived { flow } => {
            actions.push(Action::Hold { flow: *flow, lease: ms(5_000) });
            asker.wake = Some(now + ms(100));
        }
        Event::Timeout => actions.extend(view.flows.keys().map(|&flow| Action::Release { flow })),
        _ => {}
    });
    assert!(released > ms(100) && released < ms(105) + free, "{released:?}");
    // The end of the first lease does not end the second hold.
    let twice = fct(|asker, now, event, view, actions| match event {
        Event::FlowArrived { flow } => {
            actions.push(Action::Hold { flow: *flow, lease: ms(50) });
            asker.wake = Some(now + ms(20));
        }
        Event::Timeout => actions.extend(view.flows.keys().map(|&flow| Action::Hold { flow, lease: ms(300) })),
        _ => {}
    });
    assert!(twice > ms(320) && twice < ms(325) + free, "{twice:?}");
    let at_once = fct(|_, _, event, _, actions| {
        if let Event::FlowArrived { flow } = event {
            actions.push(Action::Hold { flow: *flow, lease: Nanos::ZERO });
        }
    });
    assert!(at_once < ms(120), "{at_once:?}");
}

/// For any number of segments: the last one carries the FIN, whose acknowledgement is not delayed.
#[test]
fn the_end_of_an_announced_transfer_is_known_at_once() {
    const ANNOUNCED: Needs = Needs { detection: Detection::Announced, ..Needs::NOTHING };
    for size in ["1000000B", "1001448B"] {
        let ends = Ends::default();
        let idle = asker(ANNOUNCED, |_, _, _, _, _| {});
        let settings =
            settings("dumbbell:rate=100Mbps", &format!("incast:senders=1,size={size}"), "delay=50us", ms(500), idle);
        let mut simulation = Simulation::with_tap(settings, NoTap, Some(Box::new(ends.clone()))).unwrap();
        simulation.advance(simulation.end());
        let finish = simulation.outcome().flows[0].finish.unwrap();
        let told_after = Nanos(ends.0.load(Relaxed)) - finish;
        assert!(told_after > Nanos::ZERO && told_after < ms(1), "{size}: {told_after:?}");
    }
}

#[test]
fn links_with_handover_begin_hand_packets_on_when_sending_begins() {
    let fct = |control| {
        let traffic = "incast:senders=1,size=1KB";
        let (outcome, _) =
            run(settings("dumbbell:rate=100Mbps", traffic, control, ms(500), asker(LABEL, |_, _, _, _, _| {})));
        (outcome.flows[0].finish.unwrap() - outcome.flows[0].start.unwrap(), outcome.packets.sent)
    };
    let ((end, sent), (begin, sent_too)) = (fct("handover=end"), fct("handover=begin"));
    assert_eq!(sent, sent_too);
    // A kilobyte takes 80 us per link and crosses two or three links; the segments that open the connection are
    // small.
    let saved = end - begin;
    assert!(saved > Nanos::from_micros(160) && saved < Nanos::from_micros(400), "{end:?} {begin:?}");
    assert!(ControlSettings::parse("handover=middle").is_err());
}

/// Share of a limit that a flow achieves, and whether its packets were dropped.
fn limited(needs: Needs, control: &str) -> (f64, bool) {
    let central = asker(needs, |_, _, event, _, actions| {
        if let Event::FlowArrived { flow } = event {
            actions.push(Action::Pace { flow: *flow, rate_bps: Some(20_000_000) });
        }
    });
    let traffic = "incast:senders=1,size=5MB";
    // A window of one segment must be less than the limit; otherwise TCP can stay below it only by time-outs.
    let (outcome, _) = run(settings("dumbbell:rate=100Mbps,delay=5ms", traffic, control, ms(500), central));
    let flow = &outcome.flows[0];
    let seconds = (flow.finish.unwrap() - flow.start.unwrap()).0 as f64 / 1e9;
    (5e6 * 8.0 / seconds / 20e6, outcome.packets.dropped > 0)
}

#[test]
fn a_limit_is_kept_by_the_host_or_by_a_meter() {
    for (control, least) in [("enforcement=host", 0.9), ("enforcement=meter", 0.4)] {
        let (share, dropped) = limited(LABEL, control);
        assert!((least..1.05).contains(&share), "{control}: {share} of the limit");
        assert_eq!(dropped, control.ends_with("meter"), "{control}");
    }
}

#[test]
fn flows_of_hosts_without_an_agent_are_measured_and_metered() {
    const NIC_SHARE: f64 = 0.1;
    let any = Needs { detection: Detection::Any { nic_share: NIC_SHARE }, poll_period: Some(ms(50)), ..Needs::NOTHING };
    let (share, dropped) = limited(any, "enforcement=any,agents=1");
    assert!((0.9..1.05).contains(&share) && !dropped, "labelled, and paced by its host: {share}");
    let (share, dropped) = limited(any, "enforcement=any,agents=0");
    assert!((0.4..1.5).contains(&share) && dropped, "measured, and limited by a meter: {share}");
    let (share, _) = limited(any, "enforcement=host,agents=0");
    assert!(share > 2.0, "nobody limits it: {share}");
    let (share, _) = limited(LABEL, "enforcement=any,agents=0");
    assert!(share > 2.0, "nobody labels it: {share}");
    assert!(ControlSettings::parse("agents=1.1").is_err());
}

/// Path of a flow in a FatTree over this core switch.
fn path_over(view: &View, flow: FlowId, core: usize) -> Option<Path> {
    let flow = &view.flows[&flow];
    let fabric = &view.fabric;
    let core = fabric.find(&format!("c{core}"))?;
    let up = |tor: NodeId| {
        let links = fabric.node(tor).ports.iter().map(|&link| fabric.link(link).to);
        links.filter(|&next| !fabric.is_host(next)).find(|&next| fabric.link_between(next, core).is_some())
    };
    let (first, last) = (up(flow.src_tor)?, up(flow.dst_tor)?);
    let hops = [(flow.src_tor, first), (first, core), (core, last), (last, flow.dst_tor)];
    let links: Option<Vec<_>> = hops.iter().map(|&(a, b)| fabric.link_between(a, b)).collect();
    (first != last).then_some(Path::new(links?))
}

/// Moves every flow to the next core switch every 20 ms.
fn wander(asker: &mut Asker, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
    if let Event::FlowArrived { .. } = event {
        asker.wake.get_or_insert(now + ms(20));
    }
    if *event == Event::Timeout {
        asker.turn += 1;
        asker.wake = Some(now + ms(20));
        actions.push(Action::Solve { ticket: asker.turn as u64, input: State::default(), modelled: ms(5) });
        let rate_bps = Some(1_000_000);
        let paths = view.long_flows().filter_map(|(flow, _)| Some((flow, path_over(view, flow, asker.turn % 4)?)));
        actions.extend(paths.map(|(flow, path)| Action::Route { flow, path, rate_bps }));
    }
}

const WANDERING: &str = "incast:senders=8,size=2MB";

#[test]
fn the_cost_of_control_is_counted_for_each_way_to_move_flows() {
    let mut costs = Vec::new();
    for needs in [LABEL, SFMM, SHARED] {
        let fabric = "fat-tree:k=4,rate=100Mbps,buffer=400";
        let (outcome, messages) = run(settings(fabric, WANDERING, "delay=500us", ms(200), asker(needs, wander)));
        let unfinished = outcome.flows.iter().filter(|flow| flow.finish.is_none()).count();
        let control = outcome.control;
        assert_eq!(unfinished, 0, "{needs:?}");
        assert_eq!(control.messages, messages, "{needs:?}");
        assert!(control.reroutes > 50 && control.rules_max > 10 && control.busy_share > 0.0, "{needs:?} {control:?}");
        costs.push(control);
    }
    let [tagged, in_place, shared] = &costs[..] else { panic!("three costs") };
    assert!(in_place.messages > tagged.messages, "two sets of rules for each move: {in_place:?} {tagged:?}");
    assert!(shared.rules_max < tagged.rules_max, "{shared:?} {tagged:?}");
}

#[test]
fn a_full_table_leaves_flows_on_the_defaults() {
    for needs in [LABEL, SFMM, SHARED] {
        let fabric = "fat-tree:k=4,rate=100Mbps,buffer=400";
        let (outcome, _) = run(settings(fabric, WANDERING, "tcam=18", ms(200), asker(needs, wander)));
        assert!(outcome.flows.iter().all(|flow| flow.finish.is_some()), "{needs:?}");
        assert!(outcome.control.rules_max <= 18, "{needs:?} {:?}", outcome.control);
        assert!(outcome.control.reroutes > 0, "{needs:?}: some fit");
    }
}

/// Without other traffic no queue overflows, so a move loses no packet in the simulator either.
#[test]
fn a_move_loses_no_packet() {
    for needs in [LABEL, SFMM, SHARED] {
        let fabric = "fat-tree:k=4,rate=100Mbps,buffer=2000";
        let (outcome, _) =
            run(settings(fabric, "incast:senders=1,size=5MB", "delay=500us", ms(200), asker(needs, wander)));
        assert!(outcome.control.reroutes > 10, "{:?}", outcome.control);
        assert_eq!((outcome.packets.dropped, outcome.flows[0].finish.is_some()), (0, true), "{needs:?}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let error = ControlSettings::parse("tcam=10,rules=20").unwrap_err().to_string();
    assert!(error.contains("tcam and rules"), "{error}");
    let error = ControlSettings::parse("enforcement=hots").unwrap_err().to_string();
    assert!(error.contains("host"), "{error}");
    assert_eq!(ControlSettings::parse("tcam=2000").unwrap(), ControlSettings::parse("rules=2000").unwrap());
}

#[test]
fn a_scheme_without_a_central_part_has_no_controller() {
    let traffic = "long-lived:pattern=stride";
    let with = |central| {
        let settings =
            settings("fat-tree:k=4,rate=10Mbps", traffic, "delay=1ms", ms(200), asker(LABEL, |_, _, _, _, _| {}));
        SimSettings { central, ..settings }
    };
    let mut simulation = Simulation::new(with(None)).unwrap();
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    // No switch has a rule, so packets of hosts end at the first switch.
    assert!(outcome.conserves_packets());
    assert!(outcome.packets.sent > 0 && outcome.packets.delivered == 0, "{:?}", outcome.packets);
    assert_eq!((outcome.control.messages, outcome.control.rules_max), (0, 0));
}
