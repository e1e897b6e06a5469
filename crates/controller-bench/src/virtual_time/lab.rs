//! The world of the bench of faults, with the log of its controller and what tests ask of it.

use crate::faults::world::World;
use pathloom_control::cookies::Cookie;
use pathloom_control::{Input, Snapshot};
use pathloom_model::rules::{Rule, RuleAction};
use pathloom_model::{Headers, Nanos, NodeId, PortNo};
use pathloom_scheme::FlowView;
use pathloom_testnet::{Report, Timing};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::subscriber::DefaultGuard;

pub(crate) const K4: &str = "fat-tree:k=4,rate=10Mbps";
/// Each flow has a path of its own, which never changes without need.
pub(crate) const QUIET: &str = "move:period=1h";

pub(crate) const fn s(s: u64) -> Nanos {
    Nanos::from_secs(s)
}

pub(crate) const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// The log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Lab {
    world: World,
    log: Log,
    _guard: DefaultGuard,
}

impl Deref for Lab {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Lab {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl Lab {
    /// A controller with this scheme, and additional sections of its configuration. No switch has connected.
    pub(crate) fn bare(fabric: &str, scheme: &str, more: &str, timing: Timing, seed: u64) -> Lab {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let world = World::new(fabric, scheme, more, timing, seed).expect("the settings are right");
        Lab { world, log, _guard }
    }

    /// The same, with sessions to all switches and rules in them.
    pub(crate) fn with(fabric: &str, scheme: &str, more: &str, timing: Timing, seed: u64) -> Lab {
        let mut lab = Lab::bare(fabric, scheme, more, timing, seed);
        lab.begin().expect("all switches get sessions");
        lab
    }

    pub(crate) fn k4(scheme: &str, seed: u64) -> Lab {
        Lab::with(K4, scheme, "", Timing::SLOW, seed)
    }

    /// Lines of the log that contain these words.
    pub(crate) fn logged(&self, words: &[&str]) -> Vec<String> {
        let log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&log);
        text.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
    }

    pub(crate) fn node(&self, name: &str) -> NodeId {
        self.fabric.find(name).unwrap_or_else(|| panic!("the fabric has no {name}"))
    }

    /// Begins labelled flows from the first hosts to hosts in other pods, and waits until they have paths of their own.
    pub(crate) fn begin_flows(&mut self, count: usize) {
        let hosts = self.fabric.attachments().len();
        for from in 0..count {
            let flow = self.packet(from, (from + hosts / 2) % hosts, 20_000 + from as u16);
            self.flows.push(flow);
        }
        self.await_paths();
    }

    /// Runs with traffic until all flows have paths of their own.
    pub(crate) fn await_paths(&mut self) {
        let end = self.now() + s(60);
        while !self.are_on_paths() {
            assert!(self.now() < end, "flows without a path of their own after 60 s: {:?}", self.phases());
            self.traffic(ms(50));
        }
    }

    fn phases(&mut self) -> Vec<(bool, bool)> {
        let phase = |flow: FlowView| (flow.route.is_some(), flow.pending.is_some());
        self.flows.clone().iter().map(|headers| self.view(headers).map_or((false, false), phase)).collect()
    }

    pub(crate) fn are_on_paths(&mut self) -> bool {
        self.phases().iter().all(|&phase| phase == (true, false))
    }

    /// What the controller knows about a flow.
    pub(crate) fn view(&mut self, headers: &Headers) -> Option<FlowView> {
        let controller = self.machine().hub.controller()?;
        let id = controller.find_flow(&headers.five_tuple)?;
        controller.view().flows.get(&id).cloned()
    }

    /// Names of the nodes on the present path of each flow.
    pub(crate) fn paths(&mut self) -> Vec<Vec<pathloom_model::LinkId>> {
        let links = |flow: FlowView| flow.route.map(|path| path.links().to_vec()).unwrap_or_default();
        self.flows.clone().iter().map(|headers| self.view(headers).map(links).unwrap_or_default()).collect()
    }

    /// Lets the packets under way arrive. Panics if one was lost, duplicated or tagged.
    pub(crate) fn nothing_is_lost(&mut self) {
        self.run_for(ms(200));
        let wrong = self.delivery_errors();
        let first: Option<&&Report> = wrong.first();
        assert!(wrong.is_empty(), "{} of {} packets: {first:?}", wrong.len(), self.packets.len());
    }

    /// Whether a switch sends packets of flows, or those on default routes, out of a port. The rules that replace the
    /// controller while none runs do not change with its cables.
    pub(crate) fn routes_over(&self, node: NodeId, port: PortNo) -> bool {
        let is_route = |rule: &&Rule| Cookie::decode(rule.cookie).is_some();
        self.devices[&node]
            .tables
            .rules()
            .iter()
            .filter(is_route)
            .any(|rule| rule.actions.contains(&RuleAction::Output(port)))
    }

    /// The controller gets an input that comes from no switch.
    pub(crate) fn give(&mut self, input: Input) {
        self.world.with(|machine, now| machine.hub.handle(now, input));
    }

    /// An agent of this host connects and names it. Returns the number of its connection.
    pub(crate) fn agent(&mut self, host: usize) -> usize {
        let peer = self.open_agent("a local agent").expect("there is a place for it");
        let address = self.hosts[host].address;
        self.say_line(peer, &format!(r#"{{"hello":{{"version":1,"hosts":["{address}"]}}}}"#));
        peer
    }

    pub(crate) fn say_line(&mut self, peer: usize, line: &str) {
        self.say(peer, format!("{line}\n").as_bytes());
    }

    /// Lines that an agent has received, with the verb of each.
    pub(crate) fn heard(&mut self, peer: usize) -> Vec<(String, serde_json::Value)> {
        let text = String::from_utf8(self.peer(peer).heard.clone()).expect("lines of text");
        let read = |line: &str| match serde_json::from_str(line) {
            Ok(serde_json::Value::Object(line)) => line.into_iter().next().expect("a verb"),
            other => panic!("{line}: {other:?}"),
        };
        text.lines().map(read).collect()
    }

    /// The controller is killed. Returns its last snapshot.
    pub(crate) fn kill_controller(&mut self) -> Snapshot {
        self.world.kill_controller().expect("a controller runs")
    }

    /// Another controller starts, from a snapshot if there is one.
    pub(crate) fn start_controller(&mut self, scheme: &str, snapshot: Option<Snapshot>) {
        self.world.start_controller(scheme, snapshot).expect("the snapshot fits");
    }

    /// Checks that others are served: a new flow from e1_0 to e2_0 gets a path of its own, no packet of it is lost, and
    /// the number of sessions is right.
    pub(crate) fn goes_on(&mut self, src_port: u16, sessions: usize) {
        let flow = self.packet(4, 8, src_port);
        let before = std::mem::replace(&mut self.flows, vec![flow]);
        let first = self.packets.len();
        self.await_paths();
        self.traffic(ms(100));
        self.run_for(ms(200));
        let lost = self.delivery_errors().into_iter().filter(|report| report.headers == flow).count();
        assert_eq!((lost, self.packets.len() > first + 10), (0, true));
        assert_eq!(self.sessions(), sessions);
        self.flows = before;
    }
}
