//! Detection, measurement and end of flows.

use pathloom_control::{Config, Controller, Input};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{
    FiveTuple, Headers, MptcpOption, Nanos, Path, LONG_FLOW_DSCP, PROTO_TCP, PROTO_UDP, TCP_ACK, TCP_FIN, TCP_SYN,
};
use pathloom_scheme::{Action, Detection, Event, FlowId, Needs};
use pathloom_testkit::{ms, strategies, Network, Script, Timing, LABEL, SECOND};
use std::sync::Arc;

const MEASURED: Needs = Needs {
    detection: Detection::Measured { nic_share: 0.1 },
    poll_period: Some(Nanos::from_secs(5)),
    ..Needs::NOTHING
};

struct World {
    network: Network,
    script: Script,
}

impl World {
    fn new(needs: Needs, config: Config) -> World {
        let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=10Mbps").unwrap());
        let script = Script::new();
        let controller = Controller::new(config, fabric.clone(), script.scheme(needs));
        let ms = Nanos::from_millis;
        let timing =
            Timing { link: (ms(1), ms(2)), message: (ms(1), ms(2)), work: (ms(0), ms(1)), hasty_barriers: false };
        let mut network = Network::new(fabric, controller, timing, 1);
        network.start();
        script.clear();
        World { network, script }
    }

    /// Returns a packet of a flow from the first host to the last.
    fn packet(&self, src_port: u16, tcp_flags: u8) -> Headers {
        let attachments = self.network.fabric.attachments();
        let (src, dst) = (attachments[0].address, attachments[attachments.len() - 1].address);
        let five_tuple = FiveTuple::new(PROTO_TCP, (src, src_port), (dst, 80));
        Headers { tcp_flags, dscp: LONG_FLOW_DSCP, ..Headers::plain(five_tuple) }
    }

    fn pass(&mut self, time: Nanos) {
        let end = self.network.now() + time;
        self.network.run_until(end);
    }

    /// Sends packets evenly over a second.
    fn second(&mut self, headers: Headers, packets: u64) {
        for _ in 0..packets {
            self.network.send(headers);
            self.pass(Nanos(SECOND.0 / packets));
        }
    }

    fn events(&self) -> Vec<Event> {
        self.script.events()
    }

    fn flows(&self) -> Vec<FlowId> {
        self.network.controller.view().flows.keys().copied().collect()
    }

    /// Number of rules at the ToR of the first host.
    fn rules(&self) -> usize {
        let tor = self.network.fabric.attachments()[0].tor;
        self.network.switches[tor.index()].entries.len()
    }

    fn some_path(&self) -> Path {
        let attachments = self.network.fabric.attachments();
        let (from, to) = (attachments[0].tor, attachments[attachments.len() - 1].tor);
        strategies::walk(&self.network.fabric, from, to, &[2]).unwrap()
    }
}

#[test]
fn a_label_makes_a_flow_known_once() {
    let mut world = World::new(LABEL, Config::default());
    let plain = Headers { dscp: 0, ..world.packet(1, TCP_SYN) };
    world.network.send(plain);
    world.network.send(world.packet(2, TCP_SYN | TCP_ACK));
    world.network.send(world.packet(3, TCP_ACK));
    world.pass(SECOND);
    assert_eq!(world.events(), []);
    for _ in 0..3 {
        world.network.send(world.packet(4, TCP_SYN));
    }
    world.pass(SECOND);
    let flow = world.flows()[0];
    assert_eq!(world.events(), [Event::FlowArrived { flow }]);
    let view = &world.network.controller.view().flows[&flow];
    assert_eq!((view.long, view.size_bytes.get(), &view.route), (true, None, &None));
    assert!(world.network.delivery_errors().is_empty(), "detection forwards what it copies");
}

#[test]
fn the_last_packet_ends_a_flow_and_its_rules_stay_a_while() {
    let mut world = World::new(LABEL, Config::default());
    let bare = world.rules();
    world.network.send(world.packet(4, TCP_SYN));
    world.pass(SECOND);
    let (flow, path) = (world.flows()[0], world.some_path());
    world.script.at(world.network.now(), Action::Route { flow, path: path.clone(), rate_bps: Some(7) });
    world.pass(SECOND);
    assert_eq!(world.events()[1], Event::RouteConfirmed { flow });
    assert_eq!(world.network.controller.view().flows[&flow].route, Some(path));
    world.network.send(world.packet(4, TCP_FIN | TCP_ACK));
    world.pass(SECOND);
    assert_eq!(world.events()[2], Event::FlowFinished { flow });
    assert!(world.flows().is_empty());
    assert_eq!(world.rules(), bare + 1, "the last packet may be sent again");
    world.network.send(world.packet(4, TCP_FIN | TCP_ACK));
    world.pass(Nanos::from_secs(30));
    assert_eq!(world.rules(), bare);
    assert_eq!(world.events().len(), 3);
    let ruled = |&switch: &pathloom_model::NodeId| {
        world.network.controller.rules_at(switch) as usize == world.network.switches[switch.index()].entries.len()
    };
    assert!(world.network.fabric.switches().iter().all(ruled));
}

#[test]
fn ports_can_be_reused_at_once() {
    let mut world = World::new(LABEL, Config::default());
    world.network.send(world.packet(4, TCP_SYN));
    world.pass(SECOND);
    let (first, path) = (world.flows()[0], world.some_path());
    world.script.at(world.network.now(), Action::Route { flow: first, path: path.clone(), rate_bps: None });
    world.pass(SECOND);
    for flags in [TCP_FIN, TCP_SYN] {
        world.network.send(world.packet(4, flags));
        world.pass(Nanos::from_millis(10));
    }
    let second = world.flows()[0];
    assert_ne!(first, second);
    world.script.at(world.network.now(), Action::Route { flow: second, path, rate_bps: None });
    world.second(world.packet(4, TCP_ACK), 50);
    let expected = [Event::FlowArrived { flow: second }, Event::RouteConfirmed { flow: second }];
    assert_eq!(world.events()[3..], expected);
    world.second(world.packet(4, TCP_ACK), 50);
    assert!(world.network.delivery_errors().is_empty());
    world.pass(Nanos::from_secs(30));
    assert_eq!(world.events()[5..], [Event::FlowFinished { flow: second }]);
    assert!(world.network.delivery_errors().is_empty());
}

#[test]
fn udp_flows_are_found_without_a_handshake_and_end_when_idle() {
    let mut world = World::new(LABEL, Config::default());
    let bare = world.rules();
    let mut datagram = world.packet(9, 0);
    datagram.five_tuple = datagram.five_tuple.with_proto(PROTO_UDP);
    world.second(datagram, 20);
    let flow = world.flows()[0];
    assert_eq!(world.events(), [Event::FlowArrived { flow }]);
    let copies = world.network.controller.counts().packet_ins;
    assert!((1..=3).contains(&copies), "copies stop when the flow has a rule: {copies}");
    world.pass(Nanos::from_secs(12));
    assert_eq!(world.events()[1], Event::FlowFinished { flow });
    assert_eq!(world.rules(), bare);
}

#[test]
fn measured_flows_are_long_above_their_share_of_the_nic() {
    let mut world = World::new(MEASURED, Config::default());
    // Packets have 1000 bytes and the NIC 10 Mbit/s: 100 packets a second are 8 %, 150 are 12 %.
    let (mouse, elephant) = (world.packet(1, TCP_ACK), world.packet(2, TCP_ACK));
    for headers in [mouse, elephant] {
        world.network.send(Headers { tcp_flags: TCP_SYN, ..headers });
    }
    world.pass(SECOND);
    assert_eq!(world.events(), []);
    assert_eq!(world.flows().len(), 2, "known, but the scheme was not told");
    for _ in 0..13 {
        world.second(mouse, 100);
        world.second(elephant, 300);
    }
    let views = &world.network.controller.view().flows;
    let flow = *views.iter().find(|(_, view)| view.five_tuple == elephant.five_tuple).unwrap().0;
    let arrived: Vec<Event> =
        world.events().into_iter().filter(|event| matches!(event, Event::FlowArrived { .. })).collect();
    assert_eq!(arrived, [Event::FlowArrived { flow }]);
    let rounds: Vec<(Nanos, Event)> =
        world.script.heard().into_iter().filter(|(_, event)| matches!(event, Event::RatesMeasured { .. })).collect();
    assert!(rounds.len() >= 5);
    assert!(rounds[1..].iter().all(|(_, event)| *event == Event::RatesMeasured { period: Nanos::from_secs(5) }));
    let view = &views[&flow];
    // 300 packets a second during half of the time.
    assert!((900_000..1_600_000).contains(&view.rate_bps.get().unwrap()), "{:?}", view.rate_bps);
    assert!(view.bytes > 3_000_000 && view.bytes <= 3_900_000, "{}", view.bytes);
}

#[test]
fn the_polling_period_ignores_additional_readings() {
    let mut world = World::new(Needs { detection: Detection::Label, ..Needs::NOTHING }, Config::default());
    let ms = Nanos::from_millis;
    for (at, action) in [
        (1000, Action::Measure),
        (1200, Action::MeasureAgain),
        (2000, Action::Measure),
        // Both are requested while a reading is in progress, which takes at least 1 ms. Only the round is carried
        // out.
        (2000, Action::MeasureAgain),
        (2000, Action::Measure),
        (4000, Action::Measure),
    ] {
        world.script.at(ms(at), action);
    }
    world.network.send(world.packet(1, TCP_SYN));
    for at in [1000, 1200, 2000, 4000, 60_000] {
        assert_eq!(world.network.controller.counts().polling_period().is_some(), at > 2000, "it takes two rounds");
        world.network.run_until(ms(at));
    }
    let counts = world.network.controller.counts();
    assert_eq!((counts.polls, counts.polls_again), (4, 1), "{counts:?}");
    // From 1 s to 4 s, whatever time has passed since.
    let period = counts.polling_period().unwrap();
    assert!((ms(999)..=ms(1001)).contains(&period), "{period:?}");
}

#[test]
fn a_round_tells_when_the_first_switch_answered() {
    let mut world = World::new(Needs { detection: Detection::Label, ..Needs::NOTHING }, Config::default());
    let packet = world.packet(1, TCP_SYN);
    world.network.send(packet);
    world.network.send(Headers { five_tuple: packet.five_tuple.reverse(), ..packet });
    world.pass(SECOND);
    assert_eq!((world.flows().len(), world.network.controller.view().first_answer), (2, None));
    let asked = world.network.now() + SECOND;
    world.script.at(asked, Action::Measure);
    world.pass(SECOND + SECOND);
    let heard = world.script.heard();
    let (ended, _) = heard.iter().find(|(_, event)| matches!(event, Event::RatesMeasured { .. })).unwrap();
    // Messages take different times, so one of the two ToRs answers before the other.
    let first = world.network.controller.view().first_answer.unwrap();
    assert!(asked < first && first < *ended, "{asked:?} {first:?} {ended:?}");
}

#[test]
fn bytes_are_counted_across_moves() {
    let needs = Needs { detection: Detection::Label, poll_period: Some(SECOND), ..Needs::NOTHING };
    let mut world = World::new(needs, Config::default());
    world.network.send(world.packet(1, TCP_SYN));
    world.pass(SECOND);
    let flow = world.flows()[0];
    let path = world.some_path();
    for path in [Some(path.clone()), None, Some(path)] {
        world.second(world.packet(1, TCP_ACK), 100);
        world.script.at(
            world.network.now(),
            match path {
                Some(path) => Action::Route { flow, path, rate_bps: None },
                None => Action::Unroute { flow },
            },
        );
    }
    world.second(world.packet(1, TCP_ACK), 100);
    world.pass(Nanos::from_secs(3));
    // All except the SYN, which came before the counting rule.
    assert_eq!(world.network.controller.view().flows[&flow].bytes, 400_000);
}

#[test]
fn bytes_from_before_a_restart_do_not_count_as_rate() {
    let mut world = World::new(MEASURED, Config::default());
    let mouse = world.packet(1, TCP_ACK);
    world.network.send(world.packet(1, TCP_SYN));
    for _ in 0..4 {
        world.second(mouse, 50);
    }
    // The counter is at 200,000 bytes when the next controller starts. This is more than a flow needs in a round to
    // be long.
    let script = Script::new();
    let fabric = world.network.fabric.clone();
    world.network.kill_controller();
    let config = Config { epoch: 2, poll_period: Some(SECOND), ..Config::default() };
    world.network.start_controller(Controller::new(config, fabric.clone(), script.scheme(MEASURED)));
    fabric.switches().iter().for_each(|&switch| world.network.connect(switch));
    for _ in 0..5 {
        world.second(mouse, 50);
    }
    assert!(!script.events().iter().any(|event| matches!(event, Event::FlowArrived { .. })), "{:?}", script.events());
    let view = world.network.controller.view().flows.values().next().unwrap();
    assert!((350_000..450_000).contains(&view.rate_bps.get().unwrap()), "{:?}", view.rate_bps);
}

#[test]
fn hosts_of_one_tor_have_a_path_without_links() {
    let mut world = World::new(LABEL, Config::default());
    let neighbour = world.network.fabric.attachments()[1].address;
    let mut headers = world.packet(1, TCP_SYN);
    headers.five_tuple = headers.five_tuple.with_dst(neighbour);
    world.network.send(headers);
    world.pass(SECOND);
    let flow = world.flows()[0];
    world.script.at(world.network.now(), Action::Route { flow, path: Path::empty(), rate_bps: None });
    world.pass(SECOND);
    assert_eq!(world.events()[1..], [Event::RouteConfirmed { flow }]);
    world.second(headers, 5);
    world.pass(Nanos::from_secs(20));
    assert!(world.network.delivery_errors().is_empty());
    assert!(world.flows().is_empty());
}

#[test]
fn announced_flows_have_a_size() {
    let needs = Needs { detection: Detection::Announced, ..Needs::NOTHING };
    let mut world = World::new(needs, Config::default());
    let five_tuple = world.packet(1, 0).five_tuple;
    world.network.send(world.packet(1, TCP_SYN));
    world.pass(SECOND);
    assert_eq!(world.events(), [], "first packets are ignored here");
    world.network.give_input(Input::TransferAnnounced { five_tuple, size_bytes: Some(5_000_000) });
    let flow = world.flows()[0];
    assert_eq!(world.network.controller.view().flows[&flow].size_bytes.get(), Some(5_000_000));
    world.network.give_input(Input::TransferEnded { five_tuple });
    assert_eq!(world.events(), [Event::FlowArrived { flow }, Event::FlowFinished { flow }]);
    let nobody = five_tuple.with_dst([10, 9, 9, 9].into());
    world.network.give_input(Input::TransferAnnounced { five_tuple: nobody, size_bytes: None });
    assert_eq!(world.network.controller.counts().invalid_inputs, 1);
}

#[test]
fn subflows_have_the_token_of_their_connection() {
    let needs = Needs { subflows: true, ..Needs::NOTHING };
    let mut world = World::new(needs, Config::default());
    let token = 77;
    let subflow = |world: &mut World, port, option| {
        world.network.send(Headers { mptcp: Some(option), ..world.packet(port, TCP_SYN) });
        world.pass(SECOND);
    };
    subflow(&mut world, 1, MptcpOption::Capable { token: None });
    // The receiver's key, and therefore the token, comes with the SYN+ACK. The SYN+ACK of a plain connection contains
    // none.
    let answer = |world: &World, port, mptcp| {
        let five_tuple = world.packet(port, TCP_SYN).five_tuple.reverse();
        Headers { tcp_flags: TCP_SYN | TCP_ACK, mptcp, ..Headers::plain(five_tuple) }
    };
    for mptcp in [None, Some(MptcpOption::Capable { token: Some(token) })] {
        world.network.send(answer(&world, 1, mptcp));
        world.pass(SECOND);
    }
    subflow(&mut world, 2, MptcpOption::Join { token });
    world.network.send(answer(&world, 2, None));
    world.network.send(world.packet(3, TCP_SYN));
    world.pass(SECOND);
    let flows = world.flows();
    assert_eq!(
        world.events(),
        [Event::FlowArrived { flow: flows[0] }, Event::SubflowArrived { flow: flows[1], token: Some(token) }]
    );
    assert_eq!(world.network.controller.view().flows[&flows[0]].mptcp_token, Some(token));
}

#[test]
fn joins_are_limited_per_host_and_each_flow_is_reported_once() {
    let needs = Needs { subflows: true, ..Needs::NOTHING };
    let mut world = World::new(needs, Config { max_flows_per_host: 50, ..Config::default() });
    for port in 0..200 {
        // Each has its own token, which no connection has.
        let option = MptcpOption::Join { token: u32::from(port) };
        for _ in 0..2 {
            world.network.send(Headers { mptcp: Some(option), ..world.packet(port, TCP_SYN) });
        }
    }
    world.pass(SECOND);
    assert_eq!((world.flows().len(), world.events().len()), (50, 50));
    assert_eq!(world.network.controller.counts().flows_refused, 300);
}

#[test]
fn one_host_cannot_fill_the_controller() {
    let mut world = World::new(LABEL, Config { max_flows_per_host: 50, ..Config::default() });
    for port in 0..200 {
        world.network.send(world.packet(port, TCP_SYN));
    }
    world.pass(SECOND);
    assert_eq!(world.flows().len(), 50);
    assert_eq!(world.network.controller.counts().flows_refused, 150);
    world.pass(Nanos::from_secs(15));
    assert!(world.flows().is_empty());
    world.network.send(world.packet(500, TCP_SYN));
    world.pass(SECOND);
    assert_eq!(world.flows().len(), 1, "flows that have ended make room");
}

#[test]
fn rules_that_count_flows_are_bounded_and_one_host_takes_no_more_than_half() {
    let needs =
        Needs { detection: Detection::Measured { nic_share: 0.1 }, poll_period: Some(SECOND), ..Needs::NOTHING };
    let mut world = World::new(needs, Config { max_counted_per_tor: 100, ..Config::default() });
    let tor = world.network.fabric.attachments()[0].tor;
    let counting = |world: &World| {
        let rules = world.network.switches[tor.index()].rules();
        rules.iter().filter(|rule| rule.matches.src_port.is_some()).count()
    };
    for port in 1..=300 {
        world.network.send(world.packet(port, TCP_SYN));
    }
    world.pass(ms(500));
    assert_eq!((counting(&world), world.network.controller.counts().uncounted), (50, 250));
    // Another host of the ToR still has room, and flows on default routes still reach their receivers.
    let neighbour = world.network.fabric.attachments()[1];
    assert_eq!(neighbour.tor, tor);
    for port in 1..=300 {
        let packet = world.packet(port, TCP_SYN);
        let five_tuple = packet.five_tuple.with_src(neighbour.address);
        world.network.send(Headers { five_tuple, ..packet });
    }
    world.pass(ms(500));
    assert_eq!(counting(&world), 75);
    assert!(world.network.reaches(world.packet(299, 0)));
    // A flow that is announced to be long does not wait for room among unknown flows.
    let packet = world.packet(1000, 0);
    assert_eq!(world.network.controller.counts().flows, 75);
    world.pass(Nanos::from_secs(15));
    assert_eq!(counting(&world), 0, "flows that have ended make room");
    world.network.send(Headers { tcp_flags: TCP_SYN, ..packet });
    world.pass(ms(500));
    assert_eq!(counting(&world), 1);
}

#[test]
fn packets_from_a_wrong_port_are_ignored() {
    let mut world = World::new(LABEL, Config::default());
    let fabric = world.network.fabric.clone();
    let at = fabric.attachments()[0];
    let headers = world.packet(1, TCP_SYN);
    let (own, other) = (fabric.link(at.uplink).to_port, fabric.link(fabric.attachments()[1].uplink).to_port);
    let elsewhere = fabric.tors()[3];
    for (switch, in_port) in [(at.tor, other), (elsewhere, own), (at.host, own)] {
        world.network.give_input(Input::PacketIn { switch, in_port, headers });
    }
    assert!(world.flows().is_empty());
    assert_eq!(world.network.controller.counts().invalid_inputs, 3);
    world.network.give_input(Input::PacketIn { switch: at.tor, in_port: own, headers });
    assert_eq!(world.flows().len(), 1);
}

#[test]
fn a_held_flow_does_not_end_when_it_is_idle() {
    let mut world = World::new(LABEL, Config { idle_timeout_s: 2, ..Config::default() });
    world.network.send(world.packet(1, TCP_SYN));
    world.pass(SECOND);
    let flow = world.flows()[0];
    world.script.at(world.network.now(), Action::Hold { flow, lease: Nanos::from_secs(20) });
    world.pass(Nanos::from_secs(15));
    assert_eq!(world.flows(), [flow]);
    world.script.at(world.network.now(), Action::Release { flow });
    world.pass(Nanos::from_secs(10));
    assert!(world.flows().is_empty(), "released, but still idle");
}

#[test]
fn a_scheme_that_asks_for_nothing_gets_no_copies() {
    let mut world = World::new(Needs::NOTHING, Config::default());
    world.network.send(world.packet(1, TCP_SYN));
    world.pass(SECOND);
    assert_eq!(world.network.controller.counts().packet_ins, 0);
    let five_tuple = world.packet(1, 0).five_tuple;
    world.network.give_input(Input::TransferAnnounced { five_tuple, size_bytes: None });
    assert!(world.flows().is_empty());
}

#[test]
fn settings_override_the_needs_of_the_scheme() {
    let config = Config {
        detection: Some(Detection::Measured { nic_share: 0.01 }),
        poll_period: Some(SECOND),
        ..Config::default()
    };
    let mut world = World::new(LABEL, config);
    world.network.send(world.packet(1, TCP_SYN));
    for _ in 0..3 {
        world.second(world.packet(1, TCP_ACK), 50);
    }
    let flow = world.flows()[0];
    assert!(world.events().contains(&Event::FlowArrived { flow }));
}
