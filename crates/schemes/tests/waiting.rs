//! With announced sizes, OFPT lets flows wait for shorter ones (OFPT §5.2). No flow waits for one that does not use
//! its share, for example because its host waits for a retransmission time-out, or because its application sends
//! nothing.

use crate::support::World;
use pathloom_model::Nanos;
use pathloom_scheme::{Action, Event, FlowId};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The access links are the bottleneck: the links between switches are much faster.
const FABRIC: &str = "leaf-spine:spines=2,leaves=3,hosts=3,host_rate=10Mbps,switch_rate=1Gbps";
const ACCESS_BPS: u64 = 10_000_000;
const STEP: Nanos = Nanos::from_millis(5);
/// A stopped flow is detected when it has sent too little for 700 ms. Counters are read every 200 ms while flows
/// wait. Up to 300 ms pass before that time begins, and up to 200 ms after it has ended.
const PATIENCE: Nanos = Nanos::from_millis(1_250);
/// A link is full if the senders use this share of it. Less than a twentieth is too little to start a flow. Paces
/// leave a fiftieth to short flows, and may deviate by as much.
const FULL: f64 = 0.9;

/// A transfer, as seen by its host.
#[derive(Clone, Debug)]
struct Transfer {
    size_bytes: f64,
    sent_bytes: f64,
    /// Bytes that the switches did not count, because they took the default routes.
    uncounted_bytes: Option<f64>,
    /// After this many bytes, it is silent for this time.
    stops: Option<(f64, Nanos)>,
    silent_until: Nanos,
    pace_bps: u64,
    held: bool,
    /// Last time at which it had a reason to wait, or did not wait.
    last_justified_at: Nanos,
    /// Time since which it may send but does not.
    silent_since: Nanos,
}

impl Transfer {
    fn sends(&self, now: Nanos) -> bool {
        !self.held && self.silent_until <= now
    }
}

/// Hosts that do what the controller tells them, except while they are silent.
struct Hosts {
    world: World,
    transfers: BTreeMap<FlowId, Transfer>,
    period: Nanos,
    periodic_at: Nanos,
    read_at: Nanos,
    /// How often switches update their counters, when they did last, and the values.
    lag: Nanos,
    counted_at: Nanos,
    counted: BTreeMap<FlowId, u64>,
}

impl Hosts {
    fn new(scheme: &str) -> Hosts {
        let world = World::new(FABRIC, scheme, 1);
        let period = world.scheme.needs().poll_period.unwrap();
        let mut hosts = Hosts {
            world,
            transfers: BTreeMap::new(),
            period,
            periodic_at: period,
            read_at: Nanos::ZERO,
            lag: Nanos::ZERO,
            counted_at: Nanos::ZERO,
            counted: BTreeMap::new(),
        };
        hosts.tell(&Event::Started);
        hosts
    }

    fn tell(&mut self, event: &Event) {
        let actions = self.world.deliver(event);
        self.obey(actions);
    }

    /// Lets the hosts carry out the actions, and reads the counters if the scheme requested that.
    fn obey(&mut self, actions: Vec<Action>) {
        let mut asked = false;
        for action in actions {
            let flow = match action {
                Action::Hold { flow, .. } | Action::Release { flow } | Action::Pace { flow, .. } => flow,
                Action::Measure => {
                    asked = true;
                    continue;
                }
                _ => continue,
            };
            let Some(transfer) = self.transfers.get_mut(&flow) else { continue };
            match action {
                Action::Hold { .. } => transfer.held = true,
                Action::Release { .. } => transfer.held = false,
                Action::Pace { rate_bps, .. } => transfer.pace_bps = rate_bps.unwrap_or(ACCESS_BPS),
                _ => {}
            }
        }
        if asked {
            self.read();
        }
    }

    /// Reads the counters of the ToRs. They count flows on paths of their own.
    fn read(&mut self) {
        let period = self.world.now.saturating_sub(self.read_at);
        self.read_at = self.world.now;
        let fresh = self.counted_at.saturating_add(self.lag) <= self.world.now;
        if fresh {
            self.counted_at = self.world.now;
        }
        for (id, transfer) in &mut self.transfers {
            let Some(flow) = self.world.view.flows.get_mut(id).filter(|flow| flow.route.is_some()) else { continue };
            let uncounted_bytes = *transfer.uncounted_bytes.get_or_insert(transfer.sent_bytes);
            if fresh {
                let bytes = ((transfer.sent_bytes - uncounted_bytes) * 1514.0 / 1448.0) as u64;
                self.counted.insert(*id, bytes);
            }
            flow.bytes = self.counted.get(id).copied().unwrap_or(0);
        }
        self.tell(&Event::RatesMeasured { period });
    }

    fn start(
        &mut self,
        id: u64,
        (src, dst): (usize, usize),
        known: bool,
        size_bytes: u64,
        stops: Option<(f64, Nanos)>,
    ) {
        let id = FlowId(id);
        let hosts = self.world.view.fabric.hosts().to_vec();
        self.world.add_flow(id, (hosts[src], 0), (hosts[dst], 0), id.0 as u16);
        self.world.view.flows.get_mut(&id).unwrap().size_bytes = known.then_some(size_bytes).into();
        let transfer = Transfer {
            size_bytes: size_bytes as f64,
            sent_bytes: 0.0,
            uncounted_bytes: None,
            stops,
            silent_until: Nanos::ZERO,
            pace_bps: ACCESS_BPS,
            held: false,
            last_justified_at: self.world.now,
            silent_since: self.world.now,
        };
        self.transfers.insert(id, transfer);
        self.tell(&Event::FlowArrived { flow: id });
    }

    /// Advances by [`STEP`]: transfers that may send do so, and the scheme gets the time-outs that it requested.
    fn step(&mut self) {
        self.world.now = self.world.now.saturating_add(STEP);
        let now = self.world.now;
        let actions = self.world.settle();
        self.obey(actions);
        for transfer in self.transfers.values_mut().filter(|transfer| transfer.sends(now)) {
            transfer.sent_bytes += transfer.pace_bps as f64 * STEP.as_secs_f64() / 8.0 * 1448.0 / 1514.0;
            if let Some((_, pause)) = transfer.stops.take_if(|(after, _)| *after <= transfer.sent_bytes) {
                transfer.silent_until = now.saturating_add(pause);
            }
        }
        let done = |(&id, transfer): (&FlowId, &Transfer)| (transfer.sent_bytes >= transfer.size_bytes).then_some(id);
        for flow in self.transfers.iter().filter_map(done).collect::<Vec<_>>() {
            self.transfers.remove(&flow);
            self.tell(&Event::FlowFinished { flow });
        }
        if self.periodic_at <= now {
            self.periodic_at = now.saturating_add(self.period);
            self.read();
        }
        for turn in 0.. {
            assert!(turn < 100, "the scheme requests the same time-out for ever");
            if self.world.scheme.poll_timeout().is_none_or(|at| at > now) {
                break;
            }
            self.tell(&Event::Timeout);
        }
    }

    /// The sum of the paces, in bits per second, of the sending transfers on these access links.
    fn used_bps(&self, ends: [usize; 2]) -> u64 {
        let now = self.world.now;
        let crosses = |id: &FlowId| self.ends(*id).iter().any(|end| ends.contains(end));
        self.transfers.iter().filter(|(id, one)| one.sends(now) && crosses(id)).map(|(_, one)| one.pace_bps).sum()
    }

    /// The access links of a flow.
    fn ends(&self, id: FlowId) -> [usize; 2] {
        let (fabric, flow) = (&self.world.view.fabric, &self.world.view.flows[&id]);
        let uplink = |address| fabric.attachment(address).unwrap().uplink;
        [uplink(flow.five_tuple.src()).index(), uplink(flow.five_tuple.dst()).reverse().index()]
    }

    /// Checks that no transfer has waited for long while its links have free capacity. An exception is a transfer on
    /// the same links that fell silent recently, because it must be detected first. Several may fall silent one after
    /// the other.
    fn check(&mut self) {
        let now = self.world.now;
        for transfer in self.transfers.values_mut().filter(|one| one.held || one.sends(now)) {
            transfer.silent_since = now;
        }
        for id in self.transfers.keys().copied().collect::<Vec<_>>() {
            let [src, dst] = self.ends(id);
            let full = |end| self.used_bps([end, end]) as f64 >= FULL * ACCESS_BPS as f64;
            let busy = full(src) || full(dst);
            let in_the_way = |other: &FlowId| self.ends(*other).iter().any(|end| [src, dst].contains(end));
            let fell_silent = |(other, one): (&FlowId, &Transfer)| {
                let silent = now.saturating_sub(one.silent_since);
                *other != id && silent > Nanos::ZERO && silent <= PATIENCE && in_the_way(other)
            };
            let unnoticed = self.transfers.iter().any(fell_silent);
            let transfer = self.transfers.get_mut(&id).unwrap();
            if busy || !transfer.held {
                transfer.last_justified_at = now;
            }
            let waited = now.saturating_sub(transfer.last_justified_at);
            assert!(
                waited <= PATIENCE || unnoticed,
                "{id:?} has waited without need for {waited:?} at {now:?}: {:?}",
                self.transfers
            );
        }
    }
}

/// The first flow falls silent before its end. The second one has the link until a reading shows that the first one
/// sends again.
#[test]
fn no_flow_waits_for_one_that_has_stopped() {
    let mut hosts = Hosts::new("ofpt:sizes=announced,period=1s");
    let pause = Nanos::from_secs(3);
    hosts.start(0, (0, 3), true, 2_000_000, Some((500_000.0, pause)));
    hosts.start(1, (0, 4), true, 8_000_000, None);
    let held = |hosts: &Hosts, id| hosts.transfers.get(&FlowId(id)).map(|transfer: &Transfer| transfer.held);
    let mut history = Vec::new();
    while held(&hosts, 0).is_some() {
        hosts.step();
        hosts.check();
        history.push((held(&hosts, 0), held(&hosts, 1)));
        history.dedup();
    }
    // The first sends; the second sends while the first is silent; the first sends again; the second sends alone.
    let (sends, waits) = (Some(false), Some(true));
    assert_eq!(history, [(sends, waits), (sends, sends), (sends, waits), (None, sends)]);
    assert!(hosts.world.now < Nanos::from_millis(6_000), "{:?}", hosts.world.now);
}

/// Open vSwitch updates its counters twice a second. A flow that sends must not count as stopped.
#[test]
fn flows_wait_for_a_sender_even_if_counters_lag() {
    let mut hosts = Hosts::new("ofpt:sizes=announced");
    hosts.lag = Nanos::from_millis(500);
    hosts.start(0, (0, 3), true, 4_000_000, None);
    hosts.start(1, (0, 4), true, 8_000_000, None);
    while hosts.transfers.contains_key(&FlowId(0)) {
        assert!(!hosts.transfers[&FlowId(0)].held);
        assert!(hosts.transfers[&FlowId(1)].held, "released at {:?}", hosts.world.now);
        hosts.step();
    }
    assert!(!hosts.transfers[&FlowId(1)].held);
}

/// A flow that never sends a byte, and that no switch counts, is overdue.
#[test]
fn no_flow_waits_for_an_overdue_one() {
    let mut hosts = Hosts::new("ofpt:sizes=announced");
    // Within a ToR: no path, no counter.
    hosts.start(0, (0, 1), true, 100_000, Some((0.0, Nanos::from_secs(10))));
    hosts.start(1, (0, 2), true, 200_000, None);
    hosts.step();
    assert!(hosts.transfers[&FlowId(1)].held);
    while hosts.transfers[&FlowId(1)].held {
        hosts.step();
    }
    // The transfer takes 86 ms at 9.8 Mbit/s. A quarter of that and 20 ms are added.
    assert!(hosts.world.now <= Nanos::from_millis(130), "{:?}", hosts.world.now);
}

/// Nobody announces a size: the more a flow has sent, the smaller is its share, and none waits.
#[test]
fn with_learned_sizes_a_new_flow_gets_most_of_the_link() {
    let mut hosts = Hosts::new("ofpt:sizes=learned");
    hosts.start(0, (0, 3), false, 4_000_000, None);
    while hosts.world.now < Nanos::from_secs(2) {
        hosts.step();
    }
    hosts.start(1, (0, 4), false, 2_000_000, None);
    hosts.step();
    let pace = |hosts: &Hosts, id| hosts.transfers[&FlowId(id)].pace_bps;
    // The first has sent 2.3 MB, so it is in class 5: 1/32 of the weight of a new flow.
    let ratio = pace(&hosts, 1) as f64 / pace(&hosts, 0) as f64;
    assert!((30.0..34.0).contains(&ratio), "{ratio}");
    // The new one gets older as well.
    while pace(&hosts, 1) as f64 / pace(&hosts, 0) as f64 > 5.0 {
        hosts.step();
        hosts.check();
        assert!(hosts.world.now < Nanos::from_secs(4), "the share of the new flow does not fall");
    }
    assert!(hosts.transfers.values().all(|transfer| !transfer.held));
}

/// Ends, whether its size is announced, size, when it stops and for how long, and the time until the next one comes.
type Draft = ((usize, usize), bool, u64, Option<(f64, Nanos)>, u8);

fn draft() -> impl Strategy<Value = Draft> {
    // There are few hosts, so that many flows share a link. Paths lead from one ToR to another.
    let ends = (0usize..3, 3usize..6);
    let stops = prop::option::of((0.0..1.0, 0u64..3_000).prop_map(|(part, ms)| (part, Nanos::from_millis(ms))));
    (ends, prop::bool::weighted(0.9), 100_000u64..2_000_000, stops, 0u8..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever flows arrive, fall silent and continue: none waits for long, except for flows that send.
    #[test]
    fn no_flow_waits_for_one_that_does_not_use_its_share(
        scheme in prop::sample::select(vec!["ofpt:sizes=announced", "ofpt:sizes=announced,period=300ms"]),
        drafts in prop::collection::vec(draft(), 1..12),
    ) {
        let mut hosts = Hosts::new(scheme);
        for (id, (ends, known, size_bytes, stops, gap)) in drafts.into_iter().enumerate() {
            let stops = stops.map(|(part, pause)| (part * size_bytes as f64, pause));
            hosts.start(id as u64, ends, known, size_bytes, stops);
            for _ in 0..gap {
                hosts.step();
                hosts.check();
            }
        }
        for _ in 0..20_000 {
            if hosts.transfers.is_empty() {
                break;
            }
            hosts.step();
            hosts.check();
        }
        prop_assert!(hosts.transfers.is_empty(), "not complete at {:?}: {:?}", hosts.world.now, hosts.transfers);
    }
}

/// Another scheme may have held a flow that is short for OFPT. OFPT must release it, because nothing else would.
#[test]
fn an_adopted_flow_that_takes_no_turns_is_released() {
    let mut world = World::new(FABRIC, "ofpt:sizes=announced", 1);
    let hosts = world.view.fabric.hosts().to_vec();
    world.deliver(&Event::Started);
    for (id, size_bytes) in [(1, 79_946), (2, 10_000_000)] {
        let flow = FlowId(id);
        world.add_flow(flow, (hosts[0], 0), (hosts[4], 0), id as u16);
        world.view.flows.get_mut(&flow).unwrap().size_bytes = Some(size_bytes).into();
        let actions = world.deliver(&Event::FlowAdopted { flow });
        assert!(actions.iter().any(|action| *action == Action::Release { flow }), "{size_bytes}: {actions:?}");
    }
    let actions = world.deliver(&Event::RatesMeasured { period: world.scheme.needs().poll_period.unwrap() });
    assert!(!actions.iter().any(|action| matches!(action, Action::Hold { .. })), "{actions:?}");
}

/// After a restart, a flow can be adopted a second time, when the rules of its ToR are read. By then it may be overdue.
#[test]
fn a_flow_that_is_adopted_again_does_not_wait_for_itself() {
    let mut world = World::new(FABRIC, "ofpt:sizes=announced", 1);
    let (hosts, flow) = (world.view.fabric.hosts().to_vec(), FlowId(1));
    world.deliver(&Event::Started);
    world.add_flow(flow, (hosts[0], 0), (hosts[4], 0), 1);
    world.view.flows.get_mut(&flow).unwrap().size_bytes = Some(300_000).into();
    for pause_ms in [0, 100, 2_000, 0] {
        world.now += Nanos::from_millis(pause_ms);
        let actions = world.deliver(&Event::FlowAdopted { flow });
        assert!(actions.contains(&Action::Release { flow }), "at {:?}: {actions:?}", world.now);
    }
    let actions = world.deliver(&Event::RatesMeasured { period: world.scheme.needs().poll_period.unwrap() });
    assert!(!actions.iter().any(|action| matches!(action, Action::Hold { .. })), "{actions:?}");
}
