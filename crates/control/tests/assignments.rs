//! Path assignments: connections take the paths that were claimed for them, no scheme hears of them, and nothing is left.

use pathloom_control::cookies::is_bound;
use pathloom_control::{
    AssignError, Assigned, AssignmentId, AssignmentLimits, ClaimKey, Config, Decision, Input, Output, Owner,
    PathRequest, PathSearch,
};
use pathloom_model::search::ShortestPaths;
use pathloom_model::{fabric_from_spec, FiveTuple, Headers, LinkId, Nanos, Path, TCP_ACK, TCP_FIN, TCP_SYN};
use pathloom_scheme::{Action, Detection, Event, FlowId, Needs};
use pathloom_testkit::{ms, strategies, World, LABEL, SECOND, SFMM, SHARED};
use proptest::prelude::*;
use std::sync::Arc;

const LIMITS: AssignmentLimits = AssignmentLimits {
    most: 6,
    most_per_owner: 4,
    most_paths: 8,
    most_claims: 8,
    claim_timeout: Nanos::from_secs(2),
    lifetime: Nanos::from_secs(20),
    longest_lifetime: Nanos::from_secs(20),
};

/// A world whose first flow the scheme knows, and the connections that applications open beside it.
struct Applications {
    world: World,
    request: u64,
}

impl Applications {
    fn new(fabric: Arc<pathloom_model::Fabric>, needs: Needs, seed: u64) -> Applications {
        let config = Config { assignments: LIMITS, ..Config::default() };
        Applications { world: World::new(fabric, needs, config, seed), request: 0 }
    }

    fn fat_tree(needs: Needs) -> Applications {
        Applications::new(Arc::new(fabric_from_spec("fat-tree:k=4").unwrap()), needs, 1)
    }

    /// Tells the controller something and takes its answer.
    fn ask(&mut self, input: impl FnOnce(u64) -> Input) -> Output {
        self.request += 1;
        let before = self.world.outputs().count();
        self.world.network.tell(input(self.request));
        let is_answer = |output: &&Output| {
            matches!(output, Output::Assigned { .. } | Output::Claimed { .. } | Output::Released { .. })
        };
        self.world.outputs().skip(before).find(is_answer).expect("every request has an answer").clone()
    }

    fn assign(&mut self, who: &str, count: u32, search: PathSearch) -> Result<Assigned, AssignError> {
        let FiveTuple { src, dst, .. } = self.world.flow.five_tuple;
        let paths = PathRequest { src, dst, count, search, lifetime: None };
        let answer = self.ask(|request| Input::AssignPaths { request, owner: owner(who), paths });
        let Output::Assigned { answer, .. } = answer else { panic!("{answer:?}") };
        answer
    }

    fn claim(&mut self, who: &str, assignment: AssignmentId, src_port: u16) -> Result<Path, AssignError> {
        let FiveTuple { src, dst, .. } = self.world.flow.five_tuple;
        self.claim_as(who, assignment, ClaimKey::to_come(src, dst, src_port))
    }

    fn claim_as(&mut self, who: &str, assignment: AssignmentId, connection: ClaimKey) -> Result<Path, AssignError> {
        self.claim_to(who, assignment, connection, None)
    }

    /// Claims a path for a connection that is about to be opened to a port.
    fn claim_to(
        &mut self,
        who: &str,
        assignment: AssignmentId,
        connection: ClaimKey,
        opens_to: Option<u16>,
    ) -> Result<Path, AssignError> {
        let owner = owner(who);
        let answer =
            self.ask(|request| Input::ClaimPath { request, owner, assignment, connection, path: None, opens_to });
        let Output::Claimed { answer, .. } = answer else { panic!("{answer:?}") };
        answer.map(|mut claimed| claimed.paths.remove(0))
    }

    fn release(&mut self, who: &str, assignment: AssignmentId) -> Result<(), AssignError> {
        let answer = self.ask(|request| Input::ReleasePaths { request, owner: owner(who), assignment });
        let Output::Released { answer, .. } = answer else { panic!("{answer:?}") };
        answer
    }

    /// Packets of a connection from a port, without a label.
    fn packet(&self, src_port: u16) -> Headers {
        Headers { tcp_flags: TCP_ACK, ..Headers::plain(FiveTuple { src_port, ..self.world.flow.five_tuple }) }
    }

    /// Opens a connection, which sends in both directions from now on.
    fn open(&mut self, src_port: u16) {
        let forth = self.packet(src_port);
        let back = Headers { five_tuple: forth.five_tuple.reverse(), ..forth };
        self.world.network.send(Headers { tcp_flags: TCP_SYN, ..forth });
        self.world.traffic(ms(5));
        self.world.network.send(Headers { tcp_flags: TCP_SYN | TCP_ACK, ..back });
        self.world.flows.extend([forth, back]);
    }

    /// A connection falls silent, after its last packet if it says goodbye.
    fn close(&mut self, src_port: u16, says_so: bool) {
        let forth = self.packet(src_port);
        let five_tuple = forth.five_tuple;
        self.world.flows.retain(|headers| ![five_tuple, five_tuple.reverse()].contains(&headers.five_tuple));
        if says_so {
            self.world.network.send(Headers { tcp_flags: TCP_FIN | TCP_ACK, ..forth });
        }
    }

    /// The switches that a packet visits now.
    fn way(&mut self, headers: Headers) -> Vec<pathloom_model::NodeId> {
        let sent = self.world.network.send(headers);
        self.world.pass(ms(100));
        self.world.network.packets[sent].switches.clone()
    }

    /// Both directions of a connection visit the switches of this path.
    fn takes(&mut self, src_port: u16, path: &Path) {
        let forth = self.packet(src_port);
        let mut switches = path.switches(&self.world.network.fabric, self.world.tor());
        assert_eq!(self.way(forth), switches);
        switches.reverse();
        assert_eq!(self.way(Headers { five_tuple: forth.five_tuple.reverse(), ..forth }), switches);
    }

    fn bound(&self) -> Vec<FlowId> {
        self.world.network.controller.view().flows.keys().copied().filter(|&id| is_bound(id)).collect()
    }

    /// Everything ends; whatever was there is gone, and no packet was lost.
    fn nothing_is_lost_or_left(mut self) {
        self.world.nothing_is_lost_or_left();
        self.is_empty();
    }

    fn is_empty(&self) {
        let all = self.world.network.controller.assignments();
        assert_eq!((all.len(), all.waiting_claims(), all.connections()), (0, 0, 0));
    }
}

fn owner(who: &str) -> Owner {
    Owner(who.into())
}

#[test]
fn connections_take_the_paths_that_were_claimed_for_them() {
    let measured = Needs { detection: Detection::Measured { nic_share: 0.0 }, poll_period: Some(ms(200)), ..LABEL };
    for needs in [LABEL, SFMM, SHARED, Needs::NOTHING, measured] {
        let mut applications = Applications::fat_tree(needs);
        let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
        applications.world.traffic(ms(300));
        applications.world.events();
        for (port, path) in (2000..).zip(&paths) {
            assert_eq!(applications.claim("me", assignment, port).as_ref(), Ok(path));
            applications.open(port);
        }
        applications.world.traffic(SECOND);
        for (port, path) in (2000..).zip(&paths) {
            applications.takes(port, path);
        }
        let bound = applications.bound();
        assert_eq!(bound.len(), 8);
        let why = applications.world.network.controller.placement(bound[0]).unwrap();
        assert!(matches!(why.decision, Decision::Assigned { .. }), "{why:?}");
        // A scheme has no say in them, and hears nothing.
        applications.world.act(Action::Unroute { flow: bound[0] });
        applications.world.traffic(SECOND);
        applications.takes(2000, &paths[0]);
        let plain = pathloom_schemes::parse("ecmp").unwrap().central(1).unwrap();
        applications.world.network.set_scheme(plain);
        applications.world.traffic(SECOND);
        applications.takes(2000, &paths[0]);
        let hears_of = |event: &Event| match *event {
            Event::FlowArrived { flow } | Event::RouteConfirmed { flow } | Event::FlowFinished { flow } => {
                is_bound(flow)
            }
            Event::FlowAdopted { flow } | Event::RouteRejected { flow, .. } => is_bound(flow),
            _ => false,
        };
        assert!(!applications.world.events().iter().any(hears_of));
        assert_eq!(applications.world.network.controller.counts().reroutes, 0);
        let scripted = applications.world.scheme();
        applications.world.network.set_scheme(scripted);
        applications.world.traffic(SECOND);
        // One says goodbye, the others fall silent: all paths are free again.
        applications.close(2000, true);
        applications.world.traffic(ms(500));
        assert_eq!(applications.world.network.controller.assignments().connections(), 3);
        assert_eq!(applications.bound().len(), 6);
        applications.world.flows.truncate(1);
        applications.nothing_is_lost_or_left();
    }
}

/// A switch forwards by what it has cached until it has looked at its new rules, and sends only so many copies.
#[test]
fn a_connection_whose_first_packet_was_not_seen_has_its_path_all_the_same() {
    for needs in [LABEL, SFMM, SHARED, Needs::NOTHING] {
        let mut applications = Applications::fat_tree(needs);
        let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
        applications.world.traffic(ms(300));
        let FiveTuple { src, dst, dst_port, .. } = applications.world.flow.five_tuple;
        for (port, path) in (2000..).zip(&paths[..3]) {
            let key = ClaimKey::to_come(src, dst, port);
            let opens_to = (port < 2002).then_some(dst_port);
            assert_eq!(applications.claim_to("me", assignment, key, opens_to).as_ref(), Ok(path));
        }
        // They send, and nobody saw how they began. One has a first packet that comes late, and finds its rules.
        for port in [2000, 2002] {
            let forth = applications.packet(port);
            let back = Headers { five_tuple: forth.five_tuple.reverse(), ..forth };
            applications.world.flows.extend([forth, back]);
        }
        applications.world.traffic(ms(300));
        applications.open(2001);
        applications.world.traffic(SECOND);
        for (port, path) in (2000..).zip(&paths[..2]) {
            applications.takes(port, path);
        }
        // Of the third, the port is not known.
        let all = applications.world.network.controller.assignments();
        assert_eq!((all.waiting_claims(), all.connections()), (1, 2));
        // One that is never opened takes no place for ever.
        let never = ClaimKey::to_come(src, dst, 2004);
        applications.claim_to("me", assignment, never, Some(dst_port)).unwrap();
        applications.world.traffic(ms(300));
        assert_eq!(applications.bound().len(), 6);
        applications.world.flows.truncate(1);
        applications.nothing_is_lost_or_left();
    }
}

/// Announcements come when a connection is open already, often from the server, whose connections share a port.
#[test]
fn connections_that_stand_move_to_the_paths_that_are_claimed_for_them() {
    for needs in [LABEL, SFMM, SHARED, Needs::NOTHING] {
        let mut applications = Applications::fat_tree(needs);
        let FiveTuple { src: client, dst: server, dst_port: service, .. } = applications.world.flow.five_tuple;
        let ports = [2000, 2001, 2002];
        for port in ports {
            applications.open(port);
        }
        applications.world.traffic(ms(500));
        let standing = |port| ClaimKey { src: server, dst: client, src_port: service, dst_port: Some(port) };
        let request =
            PathRequest { src: server, dst: client, count: 4, search: PathSearch::BreadthFirst, lifetime: None };
        let answer = applications.ask(|request_id| Input::AssignPaths {
            request: request_id,
            owner: owner("server"),
            paths: request,
        });
        let Output::Assigned { answer: Ok(Assigned { assignment, paths }), .. } = answer else { panic!("{answer:?}") };
        for (port, path) in ports.into_iter().zip(&paths) {
            let claimed = applications.claim_as("server", assignment, standing(port));
            assert_eq!(claimed.as_ref(), Ok(path));
        }
        applications.world.traffic(SECOND);
        for (port, path) in ports.into_iter().zip(&paths) {
            applications.takes(port, &path.reverse());
        }
        // Said again it is the same, and the other end cannot have another path for it.
        assert_eq!(applications.claim_as("server", assignment, standing(2001)).as_ref(), Ok(&paths[1]));
        let other = applications.assign("client", 4, PathSearch::BreadthFirst).unwrap().assignment;
        let again = ClaimKey { src: client, dst: server, src_port: 2000, dst_port: Some(service) };
        let taken = AssignError::PortTaken { src_port: 2000, id: assignment };
        assert_eq!(applications.claim_as("client", other, again), Err(taken));
        let nothing = ClaimKey { dst_port: Some(0), ..again };
        assert_eq!(applications.claim_as("client", other, nothing), Err(AssignError::Port));
        // One that is announced and never comes takes no place for ever.
        applications.claim_as("server", assignment, standing(2999)).unwrap();
        assert_eq!(applications.bound().len(), 8);
        applications.close(2000, false);
        let last = applications.packet(2000);
        let last = Headers { five_tuple: last.five_tuple.reverse(), tcp_flags: TCP_FIN | TCP_ACK, ..last };
        applications.world.network.send(last);
        applications.world.traffic(ms(500));
        assert_eq!(applications.world.network.controller.assignments().connections(), 3);
        applications.world.flows.truncate(1);
        applications.nothing_is_lost_or_left();
    }
}

#[test]
fn a_restart_keeps_connections_that_stood_when_they_were_claimed() {
    let mut applications = Applications::fat_tree(LABEL);
    applications.open(2000);
    applications.open(2001);
    let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
    applications.world.traffic(ms(300));
    let FiveTuple { src, dst, dst_port, .. } = applications.world.flow.five_tuple;
    let standing = |src_port| ClaimKey { src, dst, src_port, dst_port: Some(dst_port) };
    applications.claim_as("me", assignment, standing(2000)).unwrap();
    let snapshot = applications.world.network.controller.snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    applications.world.traffic(ms(500));
    applications.world.network.kill_controller();
    // The new controller is asked before its switches are there.
    let controller = applications.world.restored(serde_json::from_str(&text).unwrap(), 2).unwrap();
    applications.world.network.start_controller(controller);
    let later = AssignError::NotNow { src_port: 2001 };
    assert_eq!(applications.claim_as("me", assignment, standing(2001)), Err(later));
    applications.world.connect_all();
    applications.world.traffic(ms(400));
    assert_eq!(applications.claim_as("me", assignment, standing(2001)).as_ref(), Ok(&paths[1]));
    applications.world.traffic(SECOND);
    for (port, path) in [2000, 2001].into_iter().zip(&paths) {
        applications.takes(port, path);
    }
    applications.world.flows.truncate(1);
    applications.nothing_is_lost_or_left();
}

/// Of 10,000 claims, one in ten gets its connection. Some applications release their assignment, the others never do; some
/// connections say goodbye, the others fall silent.
#[test]
fn ten_thousand_claims_leave_no_rule_behind() {
    let limits = AssignmentLimits { most: 100, most_per_owner: 100, most_claims: 500, ..LIMITS };
    let config = Config { assignments: limits, ..Config::default() };
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let mut applications = Applications { world: World::new(fabric, LABEL, config, 1), request: 0 };
    let mut port = 2000;
    for round in 0..25 {
        let Assigned { assignment, .. } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
        applications.world.traffic(ms(300));
        let mut opened = Vec::new();
        for number in 0..400 {
            port += 1;
            applications.claim("me", assignment, port).unwrap();
            if number % 10 == 0 {
                applications.open(port);
                opened.push(port);
            }
        }
        applications.world.pass(ms(200));
        assert_eq!(applications.bound().len(), 2 * opened.len());
        if round % 2 == 0 {
            applications.release("me", assignment).unwrap();
        }
        opened.iter().for_each(|&port| applications.close(port, round % 3 == 0));
        applications.world.pass(Nanos::from_secs(15));
    }
    applications.world.pass(Nanos::from_secs(30));
    applications.nothing_is_lost_or_left();
}

#[test]
fn a_released_assignment_cuts_no_connection() {
    let mut applications = Applications::fat_tree(LABEL);
    let Assigned { assignment, paths } = applications.assign("me", 2, PathSearch::EdgeDisjoint).unwrap();
    applications.world.traffic(ms(300));
    applications.claim("me", assignment, 2000).unwrap();
    assert_eq!(applications.claim("you", assignment, 2001), Err(AssignError::NotYours(assignment)));
    assert_eq!(applications.release("you", assignment), Err(AssignError::NotYours(assignment)));
    applications.open(2000);
    applications.world.traffic(SECOND);
    applications.release("me", assignment).unwrap();
    applications.world.traffic(Nanos::from_secs(1));
    applications.takes(2000, &paths[0]);
    // A connection that nobody claimed a path for rides the default routes, unseen.
    applications.open(2001);
    applications.world.traffic(ms(500));
    assert_eq!(applications.bound().len(), 2);
    applications.close(2000, true);
    applications.world.traffic(ms(500));
    applications.is_empty();
    applications.nothing_is_lost_or_left();
}

#[test]
fn connections_leave_dead_paths_and_those_out_of_service() {
    for search in [PathSearch::BreadthFirst, PathSearch::EdgeDisjoint] {
        let mut applications = Applications::fat_tree(LABEL);
        let Assigned { assignment, paths } = applications.assign("me", 2, search).unwrap();
        applications.world.traffic(ms(300));
        for port in [2000, 2001] {
            applications.claim("me", assignment, port).unwrap();
            applications.open(port);
        }
        applications.world.traffic(SECOND);
        let route = |applications: &Applications| {
            let id = applications.bound()[0];
            applications.world.network.controller.view().flows[&id].route.clone().unwrap()
        };
        // Nothing is lost where a link is taken out of service.
        let target = pathloom_control::Target::Cable(paths[0].links()[1]);
        applications.world.network.tell(Input::Drain { target, out: true });
        applications.world.traffic(SECOND);
        let second = route(&applications);
        assert!(!second.links().contains(&paths[0].links()[1]));
        applications.world.no_mishap();
        applications.world.network.set_cable(second.links()[1], false);
        applications.world.traffic(SECOND);
        let third = route(&applications);
        assert!(third.is_up(&applications.world.network.controller.view().links) && third != second);
        applications.takes(2000, &third);
    }
}

/// The only path is dead when the first packet comes, which may have crossed it just before.
#[test]
fn a_connection_waits_for_its_only_path() {
    let fabric = Arc::new(fabric_from_spec("leaf-spine:spines=1,leaves=2,hosts=1").unwrap());
    let mut applications = Applications::new(fabric, LABEL, 1);
    let Assigned { assignment, paths } = applications.assign("me", 2, PathSearch::BreadthFirst).unwrap();
    assert_eq!(paths.len(), 1);
    applications.world.traffic(ms(300));
    applications.claim("me", assignment, 2000).unwrap();
    applications.world.network.set_cable(paths[0].links()[1], false);
    applications.world.traffic(ms(300));
    applications.open(2000);
    applications.world.traffic(ms(300));
    let up =
        AssignError::NoPath { src: applications.packet(1).five_tuple.src, dst: applications.packet(1).five_tuple.dst };
    assert_eq!(applications.claim("me", assignment, 2001), Err(up));
    applications.world.network.set_cable(paths[0].links()[1], true);
    applications.world.traffic(SECOND);
    let view = applications.world.network.controller.view();
    assert_eq!(view.flows[&applications.bound()[0]].route.as_ref(), Some(&paths[0]));
}

#[test]
fn a_restart_keeps_assignments_claims_and_connections() {
    for late in [false, true] {
        let mut applications = Applications::fat_tree(LABEL);
        let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
        applications.world.traffic(ms(300));
        for port in [2000, 2001, 2002] {
            applications.claim("me", assignment, port).unwrap();
        }
        applications.open(2000);
        applications.world.traffic(ms(500));
        let mut snapshot = applications.world.network.controller.snapshot();
        applications.open(2001);
        applications.world.traffic(ms(500));
        if late {
            snapshot = applications.world.network.controller.snapshot();
        }
        applications.world.network.kill_controller();
        applications.world.traffic(ms(100));
        let text = serde_json::to_string(&snapshot).unwrap();
        let controller = applications.world.restored(serde_json::from_str(&text).unwrap(), 2).unwrap();
        applications.world.network.start_controller(controller);
        applications.world.connect_all();
        applications.world.traffic(ms(400));
        // What was bound after the snapshot was taken is found in the switches.
        let all = applications.world.network.controller.assignments();
        assert_eq!((all.waiting_claims(), all.connections()), (1, 2), "{late}");
        applications.open(2002);
        applications.world.traffic(SECOND);
        for (port, path) in (2000..).zip(&paths[..3]) {
            applications.takes(port, path);
        }
        assert!(!applications
            .world
            .events()
            .iter()
            .any(|event| matches!(event, Event::FlowAdopted { flow } if is_bound(*flow))));
        applications.nothing_is_lost_or_left();
    }
}

/// What applications do, and what befalls them.
#[derive(Clone, Debug)]
enum Deed {
    Assign { mine: bool, count: u32, disjoint: bool },
    Claim { mine: bool, which: usize, port: u16, tells: bool },
    Open { port: u16 },
    Close { port: u16, says_so: bool },
    Release { mine: bool, which: usize },
    Link { which: usize, up: bool },
    Restart,
    Wait { seconds: u64 },
}

fn deeds() -> impl Strategy<Value = Vec<(Deed, u64)>> {
    let port = || 2000..2006u16;
    let deed = prop_oneof![
        3 => (any::<bool>(), 1..5u32, any::<bool>()).prop_map(|(mine, count, disjoint)| Deed::Assign { mine, count, disjoint }),
        6 => (any::<bool>(), 0..4usize, port(), any::<bool>())
            .prop_map(|(mine, which, port, tells)| Deed::Claim { mine, which, port, tells }),
        6 => port().prop_map(|port| Deed::Open { port }),
        3 => (port(), any::<bool>()).prop_map(|(port, says_so)| Deed::Close { port, says_so }),
        2 => (any::<bool>(), 0..4usize).prop_map(|(mine, which)| Deed::Release { mine, which }),
        2 => (0..30usize, any::<bool>()).prop_map(|(which, up)| Deed::Link { which, up }),
        1 => Just(Deed::Restart),
        1 => (1..6u64).prop_map(|seconds| Deed::Wait { seconds }),
    ];
    prop::collection::vec((deed, 0..150u64), 4..24)
}

impl Applications {
    /// Does it, and checks what is answered.
    fn carry_out(&mut self, deed: &Deed, made: &mut Vec<(AssignmentId, bool)>, epoch: &mut u16) {
        let who = |mine: bool| if mine { "me" } else { "you" };
        let network = &self.world.network;
        match *deed {
            Deed::Assign { mine, count, disjoint } => {
                let search = if disjoint { PathSearch::EdgeDisjoint } else { PathSearch::BreadthFirst };
                match self.assign(who(mine), count, search) {
                    Ok(assigned) => {
                        self.all_up(&assigned.paths);
                        made.push((assigned.assignment, mine));
                    }
                    Err(AssignError::NoPath { .. }) => assert!(self.nothing_is_up()),
                    Err(AssignError::Full { .. } | AssignError::OwnerFull { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            Deed::Claim { mine, which, port, tells } if !made.is_empty() => {
                let (id, owned) = made[which % made.len()];
                let open = self.world.network.controller.assignments().iter().any(|(other, ..)| other == id);
                let FiveTuple { src, dst, dst_port, .. } = self.world.flow.five_tuple;
                let key = ClaimKey::to_come(src, dst, port);
                match self.claim_to(who(mine), id, key, tells.then_some(dst_port)) {
                    Ok(path) => {
                        assert_eq!(mine, owned, "a claim of another owner");
                        self.all_up(&[path]);
                    }
                    Err(AssignError::NotYours(_)) => assert_ne!(mine, owned),
                    Err(AssignError::Unknown(_)) => {}
                    Err(AssignError::NoPath { .. }) => assert!(open && self.nothing_is_up()),
                    Err(AssignError::PortTaken { .. } | AssignError::TooManyClaims { .. }) => assert_eq!(mine, owned),
                    Err(other) => panic!("{other}"),
                }
            }
            Deed::Open { port } if self.world.flows.iter().all(|flow| flow.five_tuple.src_port != port) => {
                self.open(port);
            }
            Deed::Close { port, says_so } => self.close(port, says_so),
            Deed::Release { mine, which } if !made.is_empty() => {
                let (id, owned) = made[which % made.len()];
                assert!(self.release(who(mine), id).is_err() || mine == owned);
            }
            Deed::Link { which, up } => {
                let cables: Vec<LinkId> = network.fabric.switch_cables().collect();
                self.world.network.set_cable(cables[which % cables.len()], up);
            }
            Deed::Restart => {
                *epoch += 1;
                let snapshot = network.controller.snapshot();
                self.world.network.kill_controller();
                self.world.traffic(ms(50));
                let controller = self.world.restored(snapshot, *epoch).unwrap();
                self.world.network.start_controller(controller);
                self.world.connect_all();
            }
            Deed::Wait { seconds } => self.world.pass(Nanos::from_secs(seconds)),
            _ => {}
        }
        let all = self.world.network.controller.assignments();
        assert!(all.len() <= LIMITS.most as usize);
        assert!(all.iter().all(|(.., paths)| paths.len() <= LIMITS.most_paths as usize));
    }

    fn all_up(&self, paths: &[Path]) {
        let links = &self.world.network.controller.view().links;
        assert!(!paths.is_empty() && paths.iter().all(|path| path.is_up(links)), "{paths:?}");
    }

    /// No path of the fabric is up, as far as the controller knows.
    fn nothing_is_up(&self) -> bool {
        let controller = &self.world.network.controller;
        let FiveTuple { src, dst, .. } = self.world.flow.five_tuple;
        let [from, to] = [src, dst].map(|address| controller.attachment(address).unwrap().tor);
        ShortestPaths::between(&self.world.network.fabric, &controller.view().links, from, to).is_empty()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever applications do and links, time and restarts do to them: no dead path is given while another is up, nobody
    /// gets what is another's, no packet is lost but on a dead link, and in the end nothing is left.
    #[test]
    fn after_whatever_happens_nothing_is_left(
        fabric in strategies::fabrics(),
        needs in prop::sample::select(vec![LABEL, SFMM, SHARED, Needs::NOTHING]),
        deeds in deeds(),
        seed: u64,
    ) {
        let mut applications = Applications::new(fabric.clone(), needs, seed);
        let (mut made, mut epoch) = (Vec::new(), 1);
        for (deed, wait) in &deeds {
            applications.carry_out(deed, &mut made, &mut epoch);
            applications.world.traffic(ms(*wait));
        }
        for cable in fabric.switch_cables() {
            applications.world.network.set_cable(cable, true);
        }
        // Cables that flapped are used again, and every connection is on its path.
        for _ in 0..25 {
            applications.world.traffic(ms(2));
            applications.world.pass(SECOND);
        }
        let view = applications.world.network.controller.view();
        let routed = applications.bound().iter().all(|id| view.flows[id].route.is_some());
        prop_assert!(routed, "{:?}", view.flows);
        let calm = !deeds.iter().any(|(deed, _)| matches!(deed, Deed::Link { .. }));
        if calm {
            applications.world.no_mishap();
        }
        applications.world.pass(Nanos::from_secs(60));
        prop_assert_eq!(applications.world.leaked(), Vec::<String>::new());
        prop_assert!(applications.world.network.controller.view().flows.is_empty());
        applications.is_empty();
    }
}

/// Otherwise the first packet of a connection that follows at once would pass a switch that copies none.
#[test]
fn connections_of_an_address_are_seen_when_its_switch_has_confirmed_the_rules_that_copy_them() {
    let mut applications = Applications::fat_tree(Needs::NOTHING);
    let src = applications.world.flow.five_tuple.src;
    let seen = |applications: &Applications| applications.world.network.controller.sees_connections_of(src);
    assert!(seen(&applications), "there is nothing to wait for");
    let Assigned { assignment, paths } = applications.assign("me", 1, PathSearch::BreadthFirst).unwrap();
    assert!(!seen(&applications));
    let mut waited = 0;
    while !seen(&applications) {
        applications.world.pass(Nanos::from_micros(100));
        waited += 1;
        assert!(waited < 10_000, "the switch answers barriers");
    }
    applications.claim("me", assignment, 2000).unwrap();
    applications.open(2000);
    applications.world.traffic(SECOND);
    applications.takes(2000, &paths[0]);
    // A switch without a session confirms nothing.
    let tor = applications.world.tor();
    applications.release("me", assignment).unwrap();
    applications.close(2000, true);
    applications.world.traffic(SECOND);
    applications.world.network.disconnect(tor);
    applications.assign("me", 1, PathSearch::BreadthFirst).unwrap();
    assert!(seen(&applications));
}
