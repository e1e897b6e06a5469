//! Flows in a network of slow switches, under a controller whose scheme follows a script.

use crate::{strategies, Network, Script, Timing};
use pathloom_control::{Config, Controller, Message, Output, RestoreError, Snapshot};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, FiveTuple, Headers, Nanos, NodeId, Path, LONG_FLOW_DSCP, PROTO_TCP, TCP_SYN};
use pathloom_scheme::{Action, DefaultRoutes, Detection, Event, FlowId, Migration, Needs, RuleSharing, Scheme};
use std::sync::Arc;

/// Milliseconds.
pub const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A second.
pub const SECOND: Nanos = Nanos::from_secs(1);
/// Flows are detected by their label.
pub const LABEL: Needs = Needs { detection: Detection::Label, ..Needs::NOTHING };
/// The same, with flows that move in place.
pub const SFMM: Needs = Needs { migration: Migration::Sfmm, ..LABEL };
/// The same, with rules that flows share.
pub const SHARED: Needs = Needs { rules: RuleSharing::PerPath, ..LABEL };
/// Messages take up to ten times as long as packets on a link, and so does the work of a switch, so messages overtake
/// each other.
pub const SLOW: Timing = Timing {
    link: (Nanos(100_000), Nanos(3_000_000)),
    message: (ms(1), ms(15)),
    work: (ms(0), ms(30)),
    hasty_barriers: false,
};
/// Time between two packets of a flow.
const PACKET_GAP: Nanos = Nanos(700_000);
/// Time by which all rules that nobody needs and all flows that no longer send are removed.
const AFTERMATH: Nanos = Nanos::from_secs(60);

/// The network, the script of its scheme, and the flows.
pub struct World {
    /// Switches and controller.
    pub network: Network,
    /// Actions that the scheme requests, and events that it got.
    pub script: Script,
    /// Headers of the packets of the first flow.
    pub flow: Headers,
    /// Headers of the packets of every flow, in the order in which the flows began.
    pub flows: Vec<Headers>,
    /// Needs of the scheme.
    pub needs: Needs,
    /// The controller's settings.
    pub config: Config,
    /// Number of rules of each node before there was a flow.
    pub bare: Vec<usize>,
}

impl World {
    /// A world with one labelled flow from the first host to the last, over default routes. It is 300 ms old.
    pub fn new(fabric: Arc<Fabric>, needs: Needs, config: Config, seed: u64) -> World {
        let last = fabric.attachments().len() - 1;
        World::with_flows(fabric, needs, config, seed, &[(0, last)])
    }

    /// The same on a FatTree of 20 switches, with a flow that is detected by its label.
    pub fn fat_tree() -> World {
        let fabric = fabric_from_spec("fat-tree:k=4").expect("a FatTree of four ports");
        World::new(Arc::new(fabric), LABEL, Config::default(), 1)
    }

    /// A world with labelled flows between hosts with these numbers. Their source ports count from 1000.
    pub fn with_flows(fabric: Arc<Fabric>, needs: Needs, config: Config, seed: u64, pairs: &[(usize, usize)]) -> World {
        let script = Script::new();
        let controller = Controller::new(config.clone(), fabric.clone(), scheme(&script, needs));
        let mut network = Network::new(fabric.clone(), controller, SLOW, seed);
        network.start();
        let bare = network.switches.iter().map(|switch| switch.entries.len()).collect();
        let address = |host: usize| fabric.attachments()[host].address;
        let flow = |(port, &(src, dst)): (u16, &(usize, usize))| {
            let (src, dst) = (address(src), address(dst));
            let five_tuple = FiveTuple::new(PROTO_TCP, (src, port), (dst, 80));
            Headers { dscp: LONG_FLOW_DSCP, ..Headers::plain(five_tuple) }
        };
        let flows: Vec<Headers> = (1000..).zip(pairs).map(flow).collect();
        let mut world = World { network, script, flow: flows[0], flows, needs, config, bare };
        for (number, headers) in world.flows.clone().into_iter().enumerate() {
            if number > 0 {
                world.pass(ms(50));
            }
            world.network.send(Headers { tcp_flags: TCP_SYN, ..headers });
        }
        world.pass(ms(300));
        world
    }

    /// Identifier of the first flow.
    pub fn id(&self) -> FlowId {
        *self.network.controller.view().flows.keys().next().expect("the flow is known")
    }

    /// The first flow's source ToR.
    pub fn tor(&self) -> NodeId {
        self.network.fabric.attachment(self.flow.five_tuple.src()).expect("the host is there").tor
    }

    /// The path between the first flow's ToRs with these turns; `None` if they do not lead there.
    pub fn walk(&self, turns: &[u8]) -> Option<Path> {
        let fabric = &self.network.fabric;
        let last = fabric.attachment(self.flow.five_tuple.dst()).expect("the host is there").tor;
        strategies::walk(fabric, self.tor(), last, turns)
    }

    /// Makes the scheme request this action now.
    pub fn act(&mut self, action: Action) {
        self.script.at(self.network.now(), action);
    }

    /// Makes the scheme put the first flow on a path.
    pub fn route(&mut self, path: &Path) {
        self.act(Action::Route { flow: self.id(), path: path.clone(), rate_bps: None });
    }

    /// Advances the time while all flows send steadily.
    pub fn traffic(&mut self, time: Nanos) {
        let end = self.network.now() + time;
        while self.network.now() < end {
            for &headers in &self.flows {
                self.network.send(headers);
            }
            self.pass(PACKET_GAP);
        }
    }

    /// Advances the time.
    pub fn pass(&mut self, time: Nanos) {
        let end = self.network.now() + time;
        self.network.run_until(end);
    }

    /// Events that the scheme got since the last call.
    pub fn events(&self) -> Vec<Event> {
        let events = self.script.events();
        self.script.clear();
        events
    }

    /// Outputs of the controller that are in the log.
    pub fn outputs(&self) -> impl Iterator<Item = &Output> {
        self.network.log.iter().filter_map(|record| match &record.message {
            Message::Output(output) => Some(output),
            Message::Input(_) | Message::Scheme(_) => None,
        })
    }

    /// A scheme that follows the script.
    pub fn scheme(&self) -> Box<dyn Scheme> {
        scheme(&self.script, self.needs)
    }

    /// The controller stops, and a new one without a snapshot takes over.
    pub fn restart(&mut self, epoch: u16) {
        self.network.kill_controller();
        let config = Config { epoch, ..self.config.clone() };
        self.network.start_controller(Controller::new(config, self.network.fabric.clone(), self.scheme()));
    }

    /// A new controller that starts from a snapshot.
    pub fn restored(&self, snapshot: Snapshot, epoch: u16) -> Result<Controller, RestoreError> {
        let config = Config { epoch, ..self.config.clone() };
        Controller::restore(config, self.network.fabric.clone(), self.scheme(), snapshot, self.network.now())
    }

    /// Every switch connects to the controller again.
    pub fn connect_all(&mut self) {
        self.network.fabric.switches().to_vec().into_iter().for_each(|switch| self.network.connect(switch));
    }

    /// Switches whose number of rules differs from that at the start, or from that which the controller counts.
    pub fn leaked(&self) -> Vec<String> {
        let mut found = Vec::new();
        for &switch in self.network.fabric.switches() {
            let now = self.network.switches[switch.index()].entries.len();
            let (then, counted) = (self.bare[switch.index()], self.network.controller.rules_at(switch) as usize);
            if (now, counted) != (then, then) {
                found.push(format!("{switch:?}: {then} rules at first, {now} now, {counted} counted"));
            }
        }
        found
    }

    /// Panics if a packet was lost, duplicated or in a loop.
    pub fn no_mishap(&mut self) {
        self.pass(ms(100));
        let errors = self.network.delivery_errors();
        assert!(errors.is_empty(), "{} of {}: {:?}", errors.len(), self.network.packets.len(), errors[0]);
    }

    /// Lets the flows end. Panics if a packet did not arrive properly, or if a rule, a meter or a flow is left.
    pub fn nothing_is_lost_or_left(&mut self) {
        self.pass(AFTERMATH);
        self.no_mishap();
        assert_eq!(self.leaked(), Vec::<String>::new());
        assert!(self.network.switches.iter().all(|switch| switch.meters.is_empty()), "meters are left");
        assert!(self.network.controller.view().flows.is_empty(), "flows are left");
    }
}

fn scheme(script: &Script, needs: Needs) -> Box<dyn Scheme> {
    script.scheme_with(needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)])
}
