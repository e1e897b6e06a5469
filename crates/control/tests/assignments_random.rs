//! Random actions of applications, and random events: assignments leave nothing behind.

use super::applications::{Applications, LIMITS};
use pathloom_control::{AssignError, AssignmentId, ClaimKey, PathSearch};
use pathloom_model::search::ShortestPaths;
use pathloom_model::{LinkId, Nanos, Path};
use pathloom_scheme::Needs;
use pathloom_testkit::{ms, strategies, LABEL, SECOND, SFMM, SHARED};
use proptest::prelude::*;

/// An action of an application, or an event in the network.
#[derive(Clone, Debug)]
enum Step {
    Assign { mine: bool, count: u32, disjoint: bool },
    Claim { mine: bool, which: usize, port: u16, tells: bool },
    Open { port: u16 },
    Close { port: u16, says_so: bool },
    Release { mine: bool, which: usize },
    Link { which: usize, up: bool },
    Restart,
    Wait { seconds: u64 },
}

fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
    let port = || 2000..2006u16;
    let step = prop_oneof![
        3 => (any::<bool>(), 1..5u32, any::<bool>()).prop_map(|(mine, count, disjoint)| Step::Assign { mine, count, disjoint }),
        6 => (any::<bool>(), 0..4usize, port(), any::<bool>())
            .prop_map(|(mine, which, port, tells)| Step::Claim { mine, which, port, tells }),
        6 => port().prop_map(|port| Step::Open { port }),
        3 => (port(), any::<bool>()).prop_map(|(port, says_so)| Step::Close { port, says_so }),
        2 => (any::<bool>(), 0..4usize).prop_map(|(mine, which)| Step::Release { mine, which }),
        2 => (0..30usize, any::<bool>()).prop_map(|(which, up)| Step::Link { which, up }),
        1 => Just(Step::Restart),
        1 => (1..6u64).prop_map(|seconds| Step::Wait { seconds }),
    ];
    prop::collection::vec((step, 0..150u64), 4..24)
}

impl Applications {
    /// Carries out an action, and checks the answer.
    fn carry_out(&mut self, step: &Step, made: &mut Vec<(AssignmentId, bool)>, epoch: &mut u16) {
        let who = |mine: bool| if mine { "me" } else { "you" };
        let network = &self.world.network;
        match *step {
            Step::Assign { mine, count, disjoint } => {
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
            Step::Claim { mine, which, port, tells } if !made.is_empty() => {
                let (id, owned) = made[which % made.len()];
                let open = self.world.network.controller.assignments().iter().any(|(other, ..)| other == id);
                let (src, dst, dst_port) = (
                    self.world.flow.five_tuple.src(),
                    self.world.flow.five_tuple.dst(),
                    self.world.flow.five_tuple.dst_port(),
                );
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
            Step::Open { port } if self.world.flows.iter().all(|flow| flow.five_tuple.src_port() != port) => {
                self.open(port);
            }
            Step::Close { port, says_so } => self.close(port, says_so),
            Step::Release { mine, which } if !made.is_empty() => {
                let (id, owned) = made[which % made.len()];
                assert!(self.release(who(mine), id).is_err() || mine == owned);
            }
            Step::Link { which, up } => {
                let cables: Vec<LinkId> = network.fabric.switch_cables().collect();
                self.world.network.set_cable(cables[which % cables.len()], up);
            }
            Step::Restart => {
                *epoch += 1;
                let snapshot = network.controller.snapshot();
                self.world.network.kill_controller();
                self.world.traffic(ms(50));
                let controller = self.world.restored(snapshot, *epoch).unwrap();
                self.world.network.start_controller(controller);
                self.world.connect_all();
            }
            Step::Wait { seconds } => self.world.pass(Nanos::from_secs(seconds)),
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

    /// Whether no path is up between the ends of the flow, as far as the controller knows.
    fn nothing_is_up(&self) -> bool {
        let controller = &self.world.network.controller;
        let (src, dst) = (self.world.flow.five_tuple.src(), self.world.flow.five_tuple.dst());
        let [from, to] = [src, dst].map(|address| controller.attachment(address).unwrap().tor);
        ShortestPaths::between(&self.world.network.fabric, &controller.view().links, from, to).is_empty()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Checks that no dead path is assigned while another is up, and that no owner gets a path of another owner.
    /// Packets may be lost on dead links only, and nothing may remain at the end.
    #[test]
    fn nothing_remains_after_random_events(
        fabric in strategies::fabrics(),
        needs in prop::sample::select(vec![LABEL, SFMM, SHARED, Needs::NOTHING]),
        steps in steps(),
        seed: u64,
    ) {
        let mut applications = Applications::new(fabric.clone(), needs, seed);
        let (mut made, mut epoch) = (Vec::new(), 1);
        for (step, wait) in &steps {
            applications.carry_out(step, &mut made, &mut epoch);
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
        let calm = !steps.iter().any(|(step, _)| matches!(step, Step::Link { .. }));
        if calm {
            applications.world.no_mishap();
        }
        applications.world.pass(Nanos::from_secs(60));
        prop_assert_eq!(applications.world.leaked(), Vec::<String>::new());
        prop_assert!(applications.world.network.controller.view().flows.is_empty());
        applications.is_empty();
    }
}
