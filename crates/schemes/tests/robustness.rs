//! For any events in any order, a scheme requests only what the contract allows (the world of `support` checks it).
//! If the events are repeated, it requests the same again. After a restart it continues.

use crate::support::World;
use pathloom_model::rules::Refusal;
use pathloom_model::{LinkId, Nanos, Path};
use pathloom_scheme::{Action, Event, FlowId, Rejection, State};
use pathloom_testkit::schemes::{self, Tested};
use proptest::prelude::*;

const FABRICS: [&str; 7] = [
    "fat-tree:k=4,rate=10Mbps",
    "leaf-spine:spines=2,leaves=3,hosts=3,host_rate=1Gbps,switch_rate=300Mbps",
    "jellyfish:switches=8,ports=6,hosts=8,homes=2,seed=2",
    "dumbbell:hosts=3",
    "diamond:hosts=4",
    "parallel-paths:rates=100Mbps/50Mbps,delays=1ms/20ms,hosts=2",
    "fat-tree:k=4,fail=0.2",
];

fn schemes() -> Vec<&'static Tested> {
    schemes::central().collect()
}

/// An event. Numbers are taken modulo the number of objects.
#[derive(Clone, Debug)]
enum Step {
    Flow { src: usize, dst: usize, nics: (usize, usize), long: bool },
    Adopted { src: usize, dst: usize },
    Foreign,
    Poll,
    Solve,
    Confirm(usize),
    Reject(usize, u8),
    Finish(usize),
    Link(usize, bool),
    Restart,
    Nonsense(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..64, 0usize..64, (0usize..2, 0usize..2), prop::bool::weighted(0.8))
            .prop_map(|(src, dst, nics, long)| Step::Flow { src, dst, nics, long }),
        1 => (0usize..64, 0usize..64).prop_map(|(src, dst)| Step::Adopted { src, dst }),
        1 => Just(Step::Foreign),
        3 => Just(Step::Poll),
        4 => Just(Step::Solve),
        4 => (0usize..64).prop_map(Step::Confirm),
        2 => (0usize..64, 0u8..6).prop_map(|(flow, why)| Step::Reject(flow, why)),
        2 => (0usize..64).prop_map(Step::Finish),
        2 => (0usize..200, any::<bool>()).prop_map(|(link, up)| Step::Link(link, up)),
        1 => Just(Step::Restart),
        1 => (0u8..8).prop_map(Step::Nonsense),
    ]
}

struct Scenario {
    world: World,
    scheme: &'static str,
    next_flow: u64,
    told: Vec<Vec<Action>>,
}

impl Scenario {
    fn new(fabric: &str, scheme: &'static str) -> Scenario {
        let mut scenario = Scenario { world: World::new(fabric, scheme, 7), scheme, next_flow: 0, told: Vec::new() };
        scenario.tell(&Event::Started);
        scenario
    }

    fn tell(&mut self, event: &Event) {
        let actions = self.world.deliver(event);
        self.told.push(actions);
    }

    fn add(&mut self, src: usize, dst: usize, nics: (usize, usize)) -> Option<FlowId> {
        let hosts = self.world.view.fabric.hosts().to_vec();
        let (src, dst) = (hosts[src % hosts.len()], hosts[dst % hosts.len()]);
        let flow = FlowId(self.next_flow);
        self.next_flow += 1;
        (src != dst).then(|| {
            self.world.add_flow(flow, (src, nics.0), (dst, nics.1), flow.0 as u16);
            // Some flows are announced, and some of these are short.
            let size = (!flow.0.is_multiple_of(3)).then(|| flow.0 * 7919 % 1_000_000);
            self.world.view.flows.get_mut(&flow).into_iter().for_each(|flow| flow.size_bytes = size.into());
            flow
        })
    }

    /// One of the existing flows; an unknown flow if there are none.
    fn pick(&self, number: usize) -> FlowId {
        let flows: Vec<FlowId> = self.world.view.flows.keys().copied().collect();
        flows.get(number % flows.len().max(1)).copied().unwrap_or(FlowId(1 << 40))
    }

    fn play(&mut self, step: &Step) {
        self.world.now = self.world.now.saturating_add(Nanos::from_millis(100));
        match *step {
            Step::Flow { src, dst, nics, long } => {
                let flow = self.add(src, dst, nics);
                if let (Some(flow), true) = (flow, long) {
                    self.tell(&Event::FlowArrived { flow });
                }
            }
            Step::Adopted { src, dst } => self.adopt(src, dst),
            Step::Foreign => {
                if let Some(flow) = self.add(0, 1, (0, 0)) {
                    let known = self.world.view.flows.get_mut(&flow).unwrap();
                    known.five_tuple = known.five_tuple.with_src([192, 168, 0, 1].into());
                    self.tell(&Event::FlowArrived { flow });
                }
            }
            Step::Poll => self.tell(&Event::RatesMeasured { period: Nanos::from_secs(5) }),
            Step::Solve => self.told.extend(self.world.solve().map(|(_, actions)| actions)),
            Step::Confirm(flow) => self.tell(&Event::RouteConfirmed { flow: self.pick(flow) }),
            Step::Reject(flow, why) => self.tell(&Event::RouteRejected { flow: self.pick(flow), why: rejection(why) }),
            Step::Finish(flow) => self.tell(&Event::FlowFinished { flow: self.pick(flow) }),
            Step::Link(number, up) => {
                let cables: Vec<LinkId> = self.world.view.fabric.switch_cables().collect();
                let link = cables[number % cables.len()];
                self.tell(&Event::LinkChanged { link, up });
                self.tell(&Event::LinkChanged { link: link.reverse(), up });
            }
            Step::Restart => self.restart(),
            Step::Nonsense(which) => self.nonsense(which),
        }
    }

    /// A flow that another scheme, or this one before a restart, left on a shortest path.
    fn adopt(&mut self, src: usize, dst: usize) {
        let Some(flow) = self.add(src, dst, (0, 0)) else { return };
        let view = &mut self.world.view;
        let known = view.flows.get_mut(&flow).unwrap();
        let paths =
            pathloom_model::search::ShortestPaths::between(&view.fabric, &view.links, known.src_tor, known.dst_tor);
        known.route = paths.nth(0).filter(|path| !path.is_empty());
        self.tell(&Event::FlowAdopted { flow });
    }

    fn restart(&mut self) {
        let saved = serde_json::to_string(&self.world.scheme.save()).unwrap();
        let (view, now) = (self.world.view.clone(), self.world.now);
        self.world = World::new(FABRICS[3], self.scheme, 7);
        (self.world.view, self.world.now) = (view, now);
        self.world.scheme.restore(serde_json::from_str(&saved).unwrap()).unwrap();
        assert_eq!(serde_json::to_string(&self.world.scheme.save()).unwrap(), saved);
        self.tell(&Event::Started);
        let standing: Vec<FlowId> =
            self.world.view.flows.iter().filter(|(_, flow)| flow.route.is_some()).map(|(&id, _)| id).collect();
        for flow in standing {
            self.tell(&Event::FlowAdopted { flow });
        }
    }

    fn nonsense(&mut self, which: u8) {
        let nobody = FlowId(1 << 41);
        let event = match which {
            0 => Event::RouteConfirmed { flow: nobody },
            1 => Event::RouteRejected { flow: nobody, why: Rejection::UnknownFlow },
            2 => Event::FlowFinished { flow: nobody },
            3 => Event::Solved { ticket: 1 << 40, answer: State(serde_json::json!({"moves": "none"})) },
            4 => Event::SubflowArrived { flow: nobody, token: None },
            5 => Event::SubflowArrived { flow: nobody, token: Some(1) },
            6 => Event::FlowAdopted { flow: nobody },
            _ => Event::Timeout,
        };
        self.tell(&event);
    }
}

fn rejection(why: u8) -> Rejection {
    match why {
        0 => Rejection::WrongEnds,
        1 => Rejection::Malformed,
        2 => Rejection::LinkDown(LinkId(0)),
        3 => Rejection::SwitchGone(pathloom_model::NodeId(0)),
        4 => Rejection::Refused(pathloom_model::NodeId(0), Refusal::TableFull),
        _ => Rejection::UnknownFlow,
    }
}

fn play_all(fabric: &str, scheme: &'static str, steps: &[Step]) -> Scenario {
    let mut scenario = Scenario::new(fabric, scheme);
    steps.iter().for_each(|step| scenario.play(step));
    scenario
}

type Flows = pathloom_scheme::FlowMap<pathloom_scheme::FlowView>;

/// All flows before and after a round that follows many rounds without other events. By then the longest backoff is
/// over, and every scheme that draws nothing at random has settled.
fn settle_rounds(scenario: &mut Scenario) -> (Flows, Flows) {
    let mut round = || {
        scenario.tell(&Event::RatesMeasured { period: Nanos::from_secs(5) });
        scenario.world.settle();
        Flows::clone(&scenario.world.view.flows)
    };
    (0..70).for_each(|_| drop(round()));
    (round(), round())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn actions_follow_the_contract_for_any_events(fabric in 0..FABRICS.len(), tested in prop::sample::select(schemes()), steps in prop::collection::vec(step(), 0..80)) {
        let (fabric, scheme) = (FABRICS[fabric], tested.spec.as_str());
        let mut scenario = play_all(fabric, scheme, &steps);
        let again = play_all(fabric, scheme, &steps);
        prop_assert_eq!(&scenario.told, &again.told);
        if tested.settles {
            let (before, after) = settle_rounds(&mut scenario);
            prop_assert_eq!(before, after);
        }
    }
}

#[test]
fn states_of_other_schemes_are_refused() {
    for Tested { name, spec: scheme, .. } in schemes() {
        let mut fresh = World::new(FABRICS[0], scheme, 1).scheme;
        if fresh.save() == State::default() {
            continue; // The scheme saves no state.
        }
        for value in [serde_json::json!(null), serde_json::json!({"round": -1}), serde_json::json!({"name": "ofpt"})] {
            let error = fresh.restore(State(value.clone())).unwrap_err().to_string();
            assert!(error.starts_with(&format!("scheme {name} cannot read the saved state")), "{value}: {error}");
        }
        let saved = fresh.save();
        assert_eq!(fresh.restore(saved), Ok(()));
    }
}

#[test]
fn an_invalid_answer_moves_nothing() {
    let mut scenario = Scenario::new(FABRICS[0], "hedera");
    let flow = scenario.add(0, 9, (0, 0)).unwrap();
    scenario.tell(&Event::FlowArrived { flow });
    scenario.tell(&Event::RatesMeasured { period: Nanos::from_secs(5) });
    let Some([Action::Solve { ticket, .. }]) = scenario.told.last().map(Vec::as_slice) else {
        panic!("{:?}", scenario.told);
    };
    let answer = State(serde_json::json!({"moves": [{"flow": flow, "path": Path::empty(), "rate_bps": "much"}]}));
    let ticket = *ticket;
    scenario.tell(&Event::Solved { ticket, answer });
    assert_eq!(scenario.told.last(), Some(&Vec::new()));
    let solver = scenario.world.scheme.solver();
    assert_eq!(
        solver(&scenario.world.view, &State(serde_json::json!([1, 2]))),
        solver(&scenario.world.view, &State::default())
    );
}

#[test]
fn a_route_over_a_dead_link_is_ignored() {
    let mut scenario = Scenario::new(FABRICS[0], "hedera");
    scenario.adopt(0, 9);
    let flow = FlowId(0);
    let dead = scenario.world.view.flows[&flow].route.clone().unwrap();
    // The link is down in the view, but the controller has not taken the flow off it yet.
    scenario.world.view.links.set_cable(dead.links()[1], false);
    scenario.tell(&Event::RatesMeasured { period: Nanos::from_secs(5) });
    scenario.world.solve();
    let pending = scenario.world.view.flows[&flow].pending.clone();
    assert!(
        pending.as_ref().is_some_and(|path| path != &dead && path.is_up(&scenario.world.view.links)),
        "{pending:?}"
    );
}

/// A flow between two hosts by number, each on its first port.
const fn flow(src: usize, dst: usize, long: bool) -> Step {
    Step::Flow { src, dst, nics: (0, 0), long }
}

/// Three flows share two paths, and no distribution of them is better. A round without a gain must move nothing;
/// otherwise the flows would exchange their paths for ever.
#[test]
fn flows_that_gain_nothing_keep_their_paths() {
    let mut steps = vec![flow(26, 0, false), flow(0, 1, false), Step::Foreign, flow(34, 20, false)];
    steps.extend([flow(51, 27, false), flow(0, 1, false), flow(34, 0, false), flow(12, 1, false), flow(2, 0, false)]);
    // Hosts do not send to themselves, but each attempt uses up an identifier.
    steps.extend((0..5).map(|_| flow(0, 0, false)));
    steps.extend([flow(45, 51, true), flow(28, 26, true), Step::Adopted { src: 52, dst: 30 }]);
    for scheme in ["ofpt:sizes=announced,gain=0", "lessor:sizes=announced,gain=0"] {
        let (before, after) = settle_rounds(&mut play_all(FABRICS[5], scheme, &steps));
        assert_eq!(before, after, "{scheme}");
    }
}

/// One flow backs off, because a switch refused its path. A round must not rely on moving it; otherwise the other
/// flows would exchange their paths for ever.
#[test]
fn no_flow_is_moved_for_a_flow_that_backs_off() {
    let mut steps = vec![flow(50, 4, true), flow(0, 1, false), flow(1, 10, false), flow(21, 2, false)];
    steps.extend([flow(17, 2, false), flow(36, 1, false), flow(5, 0, false), flow(1, 2, false), flow(6, 3, false)]);
    steps.extend([flow(29, 2, false), flow(0, 9, false), Step::Adopted { src: 9, dst: 2 }, flow(13, 20, true)]);
    steps.extend([flow(43, 33, true), Step::Reject(13, 3)]);
    for scheme in ["ofpt", "lessor"] {
        let mut scenario = play_all(FABRICS[5], scheme, &steps);
        let (before, after) = settle_rounds(&mut scenario);
        assert_eq!(before, after, "{scheme}");
        // After the backoff, the rounds may move that flow again, and all flows settle.
        scenario.world.now = scenario.world.now.saturating_add(Nanos::from_secs(10));
        let (before, after) = settle_rounds(&mut scenario);
        assert_eq!(before, after, "{scheme}");
    }
}
