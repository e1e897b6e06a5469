use super::upkeep::DueNow;
use super::*;
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::LinkId;

const SECOND: Nanos = Nanos::from_secs(1);

/// A FatTree, and the state of the controller that assignments use.
struct Setting {
    fabric: Fabric,
    links: LinkState,
    places: Places,
    limits: AssignmentLimits,
    now: Nanos,
    all: Assignments,
}

impl Setting {
    fn new() -> Setting {
        let fabric = fabric_from_spec("fat-tree:k=4").unwrap();
        let (links, places) = (LinkState::of(&fabric), Places::default());
        let limits = AssignmentLimits::default();
        Setting { fabric, links, places, limits, now: SECOND, all: Assignments::new(1) }
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Assignments, &Facts<'_>) -> R) -> R {
        let Setting { fabric, links, places, limits, now, all } = self;
        act(all, &Facts { now: *now, fabric, links, places, limits })
    }

    fn address(&self, host: usize) -> Address {
        self.fabric.attachments()[host].address
    }

    fn request(&self, count: u32) -> PathRequest {
        let search = PathSearch::BreadthFirst;
        PathRequest { src: self.address(0), dst: self.address(15), count, search, lifetime: None }
    }

    fn assign(&mut self, request: PathRequest) -> Result<Assigned, AssignError> {
        self.act(|all, at| all.assign(at, me(), request))
    }

    fn claim(&mut self, id: AssignmentId, src_port: u16) -> Result<Path, AssignError> {
        let PathRequest { src, dst, .. } = self.request(1);
        self.act(|all, at| all.claim(at, &me(), id, ClaimKey::to_come(src, dst, src_port), None))
    }

    /// The first packet from a port has arrived, and the connection has two flows.
    fn bind(&mut self, src_port: u16) -> (FlowId, FlowId) {
        let flows = (FlowId(u64::from(src_port)), FlowId(u64::from(src_port) << 16));
        self.all.bind(ClaimKey::of(&self.syn(src_port)), Some(flows.0), Some(flows.1));
        flows
    }

    fn syn(&self, src_port: u16) -> FiveTuple {
        let PathRequest { src, dst, .. } = self.request(1);
        FiveTuple::new(PROTO_TCP, (src, src_port), (dst, 80))
    }

    fn pass(&mut self, time: Nanos) -> Vec<FlowId> {
        self.pass_all(time).again
    }

    fn pass_all(&mut self, time: Nanos) -> DueNow {
        self.now += time;
        self.all.handle_timeout(self.now)
    }

    fn fail(&mut self, link: LinkId) -> Vec<FlowId> {
        self.links.set_cable(link, false);
        self.act(|all, at| all.links_changed(at))
    }

    fn nothing_is_left(&self) {
        let Assignments { assignments, claims, flows, per_owner, per_source, retries, unseen, due, .. } = &self.all;
        assert!(assignments.is_empty() && claims.is_empty() && flows.is_empty() && per_owner.is_empty());
        assert!(per_source.is_empty() && retries.is_empty() && unseen.is_empty() && due.is_empty());
    }
}

fn me() -> Owner {
    Owner("me".into())
}

fn disjoint(paths: &[Path]) -> bool {
    let cables = paths.iter().flat_map(Path::links).map(|link| link.cable());
    let all: Vec<u32> = cables.collect();
    all.iter().collect::<BTreeSet<_>>().len() == all.len()
}

#[test]
fn paths_are_found_breadth_first_or_disjoint() {
    let mut setting = Setting::new();
    let found = setting.assign(setting.request(6)).unwrap();
    assert_eq!(
        found.paths.iter().map(Path::hops).collect::<Vec<_>>(),
        [4, 4, 4, 4, 6, 6],
        "the shortest, then the next"
    );
    let search = PathSearch::EdgeDisjoint;
    let request = PathRequest { search, ..setting.request(6) };
    let found = setting.assign(request).unwrap();
    assert_eq!((found.paths.len(), disjoint(&found.paths)), (2, true), "an edge switch has two links up");
    let request = PathRequest { dst: setting.address(1), ..setting.request(2) };
    assert_eq!(setting.assign(request).unwrap().paths[0], Path::empty(), "both are at one edge switch");
}

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let mut setting = Setting::new();
    setting.limits.most_per_owner = 1;
    let good = setting.request(4);
    let nobody = Address::new(192, 0, 2, 1);
    let longest = setting.limits.longest_lifetime;
    let cases = [
        (PathRequest { count: 0, ..good }, "0 paths were asked for; ask for 1 to 64"),
        (PathRequest { count: 10_000, ..good }, "10000 paths were asked for; ask for 1 to 64"),
        (PathRequest { src: nobody, ..good }, "no host of the fabric has the address 192.0.2.1"),
        (PathRequest { dst: nobody, ..good }, "no host of the fabric has the address 192.0.2.1"),
        (PathRequest { dst: good.src, ..good }, "addresses of one host"),
        (PathRequest { lifetime: Some(Nanos::ZERO), ..good }, "a lifetime of 0 s was asked for"),
        (PathRequest { lifetime: Some(longest + SECOND), ..good }, "a lifetime of 86401 s was asked for"),
    ];
    for (request, why) in cases {
        let answer = setting.assign(request).unwrap_err().to_string();
        assert!(answer.contains(why), "{answer}");
    }
    setting.nothing_is_left();
    let id = setting.assign(good).unwrap().assignment;
    assert_eq!(setting.assign(good), Err(AssignError::OwnerFull { most: 1 }));
    setting.limits.most = 1;
    let other = setting.act(|all, at| all.assign(at, Owner("other".into()), good));
    assert_eq!(other, Err(AssignError::Full { most: 1 }));
    let key = ClaimKey::to_come(good.src, good.dst, 5);
    let other = Owner("other".into());
    assert_eq!(setting.act(|all, at| all.claim(at, &other, id, key, None)), Err(AssignError::NotYours(id)));
    assert_eq!(setting.all.release(SECOND, &other, id), Err(AssignError::NotYours(id)));
    let unknown = AssignmentId(7);
    assert_eq!(setting.claim(unknown, 5), Err(AssignError::Unknown(unknown)));
    assert_eq!(setting.claim(id, 0), Err(AssignError::Port));
    let away = ClaimKey { dst: good.src, ..key };
    let ends = AssignError::OtherEnds { id, src: good.src, dst: good.dst };
    assert_eq!(setting.act(|all, at| all.claim(at, &me(), id, away, None)), Err(ends));
    setting.all.release(SECOND, &me(), id).unwrap();
    setting.nothing_is_left();
}

#[test]
fn each_claim_gets_the_next_path_and_a_repeated_claim_the_same_one() {
    let mut setting = Setting::new();
    let Assigned { assignment, paths } = setting.assign(setting.request(4)).unwrap();
    let got: Vec<Path> = (1..=6).map(|port| setting.claim(assignment, port).unwrap()).collect();
    assert_eq!(got, [0, 1, 2, 3, 0, 1].map(|path: usize| paths[path].clone()));
    assert_eq!(setting.claim(assignment, 2).unwrap(), paths[1]);
    assert_eq!(setting.all.waiting(&setting.syn(3)), Some(&paths[2]));
    assert_eq!(setting.all.waiting(&setting.syn(3).with_proto(17)), None, "claims are for TCP");
    let (flow, back) = setting.bind(2);
    assert_eq!(setting.all.path_of(flow), Some(paths[1].clone()));
    assert_eq!(setting.all.path_of(back), Some(paths[1].reverse()));
    assert_eq!(setting.claim(assignment, 2).unwrap(), paths[1], "it is there already");
    // A connection that ends makes room on its path: 2 and 6 had the second one.
    assert_eq!(setting.all.flow_ended(SECOND, flow), Some(back));
    assert_eq!(setting.all.flow_ended(SECOND, back), None);
    assert_eq!(setting.claim(assignment, 7).unwrap(), paths[1]);
    // Another assignment takes over an unused claim, but not a connection.
    let other = setting.assign(setting.request(1)).unwrap();
    setting.claim(other.assignment, 7).unwrap();
    assert_eq!(setting.all.waiting_claims(), 6);
    setting.bind(1);
    let taken = AssignError::PortTaken { src_port: 1, id: assignment };
    assert_eq!(setting.claim(other.assignment, 1), Err(taken));
    setting.limits.most_claims = 1;
    let most = AssignError::TooManyClaims { id: other.assignment, most: 1 };
    assert_eq!(setting.claim(other.assignment, 8), Err(most));
}

#[test]
fn claims_and_assignments_expire() {
    let mut setting = Setting::new();
    let request = PathRequest { lifetime: Some(Nanos::from_secs(100)), ..setting.request(4) };
    let id = setting.assign(request).unwrap().assignment;
    setting.pass(Nanos::from_secs(99));
    setting.claim(id, 1).unwrap();
    setting.claim(id, 2).unwrap();
    setting.pass(Nanos::from_secs(20));
    setting.claim(id, 1).unwrap();
    let (flow, _) = setting.bind(2);
    setting.pass(Nanos::from_secs(29));
    assert_eq!(setting.all.waiting_claims(), 1, "it was claimed again");
    setting.pass(SECOND);
    assert_eq!((setting.all.waiting_claims(), setting.all.connections()), (0, 1));
    setting.pass(Nanos::from_secs(1000));
    assert_eq!(setting.all.len(), 1, "it has a connection");
    setting.all.flow_ended(setting.now, flow);
    setting.pass(Nanos::from_secs(99));
    assert_eq!(setting.all.len(), 1);
    setting.pass(SECOND);
    setting.nothing_is_left();
    assert_eq!(setting.claim(id, 3), Err(AssignError::Unknown(id)));
}

#[test]
fn an_unseen_connection_is_due_once_unless_its_claim_has_ended() {
    let mut setting = Setting::new();
    let id = setting.assign(setting.request(4)).unwrap().assignment;
    let PathRequest { src, dst, .. } = setting.request(1);
    let [unseen, seen, again, restarted] = [1, 2, 3, 4].map(|port| ClaimKey::to_come(src, dst, port));
    for port in 1..=4 {
        setting.claim(id, port).unwrap();
        setting.all.open_unseen_later(setting.now, ClaimKey::to_come(src, dst, port), 80);
    }
    setting.all.open_unseen_later(setting.now, ClaimKey::to_come(src, dst, 5), 80);
    setting.bind(2);
    assert_eq!(setting.pass_all(Nanos::from_millis(60)), DueNow::default());
    setting.all.open_unseen_later(setting.now, again, 443);
    setting.all.end_claim(setting.now, restarted);
    let due = setting.pass_all(Nanos::from_millis(40));
    assert_eq!(due.unseen, [(unseen, setting.syn(1))]);
    assert!(!setting.all.unseen.contains_key(&seen));
    let saved = setting.all.save();
    setting.all = Assignments::new(2);
    setting.act(|all, at| all.restore(at, saved, |_| true));
    assert_eq!(setting.pass_all(Nanos::from_millis(99)).unseen, []);
    let port = setting.syn(3).with_dst_port(443);
    assert_eq!(setting.pass_all(Nanos::from_millis(1)).unseen, [(again, port)], "a restart keeps it");
    setting.all.release(setting.now, &me(), id).unwrap();
    setting.all.flow_ended(setting.now, FlowId(2));
    setting.nothing_is_left();
}

#[test]
fn a_claim_may_name_its_path() {
    let mut setting = Setting::new();
    let Assigned { assignment: id, paths } = setting.assign(setting.request(3)).unwrap();
    let PathRequest { src, dst, .. } = setting.request(1);
    let claim = |setting: &mut Setting, src_port: u16, path: u32| {
        setting.act(|all, at| all.claim(at, &me(), id, ClaimKey::to_come(src, dst, src_port), Some(path)))
    };
    assert_eq!(claim(&mut setting, 1, 2), Ok(paths[2].clone()));
    assert_eq!(claim(&mut setting, 2, 2), Ok(paths[2].clone()));
    assert_eq!(claim(&mut setting, 3, 3), Err(AssignError::NoSuchPath { id, asked: 3, paths: 3 }));
    assert_eq!(setting.claim(id, 4), Ok(paths[0].clone()), "other claims get the path with the fewest users");
    setting.links.set_cable(paths[2].links()[1], false);
    assert_eq!(claim(&mut setting, 5, 2), Ok(paths[1].clone()), "a dead path is not assigned");
}

#[test]
fn assignments_are_listed_page_by_page_and_by_owner() {
    let mut setting = Setting::new();
    let ids: Vec<AssignmentId> = (0..3).map(|_| setting.assign(setting.request(2)).unwrap().assignment).collect();
    let request = setting.request(1);
    let other = Owner("other".into());
    let others = setting.act(|all, at| all.assign(at, other.clone(), request)).unwrap().assignment;
    setting.claim(ids[1], 1).unwrap();
    setting.claim(ids[1], 2).unwrap();
    setting.bind(2);
    let names = |after, owner: Option<&Owner>| -> Vec<AssignmentId> {
        setting.all.list(after, owner).map(|listed| listed.id).collect()
    };
    assert_eq!(names(None, None), [ids[0], ids[1], ids[2], others]);
    assert_eq!(names(Some(ids[1]), Some(&me())), [ids[2]]);
    assert_eq!(names(None, Some(&other)), [others]);
    let listed = setting.all.get(ids[1]).unwrap();
    assert_eq!((listed.waiting, listed.connections, listed.until, listed.released), (1, 1, None, false));
    assert_eq!(listed.paths.iter().map(|(_, users)| *users).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(setting.all.get(ids[0]).unwrap().until, Some(setting.now + setting.limits.lifetime));
    setting.act(|all, at| all.release(at.now, &me(), ids[1])).unwrap();
    let listed = setting.all.get(ids[1]).unwrap();
    assert_eq!((listed.waiting, listed.connections, listed.released), (0, 1, true));
    assert_eq!(setting.all.get(AssignmentId(1)), None);
}

#[test]
fn a_released_assignment_stays_until_its_last_connection_has_ended() {
    let mut setting = Setting::new();
    let id = setting.assign(setting.request(2)).unwrap().assignment;
    setting.claim(id, 1).unwrap();
    setting.claim(id, 2).unwrap();
    let (flow, back) = setting.bind(1);
    setting.all.release(setting.now, &me(), id).unwrap();
    assert_eq!((setting.all.waiting_claims(), setting.all.connections()), (0, 1));
    assert!(setting.all.path_of(flow).is_some());
    assert_eq!(setting.claim(id, 3), Err(AssignError::Unknown(id)));
    assert_eq!(setting.all.release(setting.now, &me(), id), Err(AssignError::Unknown(id)));
    assert_eq!(setting.all.flow_ended(setting.now, back), Some(flow));
    setting.nothing_is_left();
}

#[test]
fn dead_paths_are_replaced_for_their_connections_too() {
    let mut setting = Setting::new();
    for search in [PathSearch::BreadthFirst, PathSearch::EdgeDisjoint] {
        let Assigned { assignment, paths } = setting.assign(PathRequest { search, ..setting.request(2) }).unwrap();
        let flows: Vec<_> = [1, 2, 3].map(|port| (setting.claim(assignment, port).unwrap(), setting.bind(port))).into();
        let dead = paths[0].links()[1];
        let again = setting.fail(dead);
        for (before, (flow, back)) in flows {
            let path = setting.all.path_of(flow).unwrap();
            assert!(path.is_up(&setting.links));
            assert_eq!(setting.all.path_of(back), Some(path.reverse()));
            assert!(path == before || again.contains(&flow) && again.contains(&back));
        }
        let (_, _, listed) = setting.all.iter().next().unwrap();
        assert_eq!(listed.iter().map(|&(_, users)| users).collect::<BTreeSet<_>>(), [1, 2].into());
        assert!(
            search == PathSearch::BreadthFirst || disjoint(&listed.iter().map(|row| row.0.clone()).collect::<Vec<_>>())
        );
        setting.links.set_cable(dead, true);
        for port in [1, 2, 3] {
            setting.all.flow_ended(SECOND, FlowId(port));
        }
        setting.all.release(SECOND, &me(), assignment).unwrap();
    }
    setting.nothing_is_left();
}

#[test]
fn paths_come_and_go_with_the_links() {
    let mut setting = Setting::new();
    let tor = setting.fabric.attachments()[0].tor;
    let ups: Vec<LinkId> = setting.fabric.switch_ports(tor).iter().map(|port| port.link).collect();
    let search = PathSearch::EdgeDisjoint;
    let id = setting.assign(PathRequest { search, ..setting.request(2) }).unwrap().assignment;
    setting.claim(id, 1).unwrap();
    let (flow, back) = setting.bind(1);
    setting.fail(ups[0]);
    assert_eq!(setting.all.iter().next().unwrap().2.len(), 1, "one path is left");
    assert_eq!(setting.fail(ups[1]), []);
    let nothing = AssignError::NoPath { src: setting.address(0), dst: setting.address(15) };
    assert_eq!(setting.claim(id, 2), Err(nothing.clone()));
    assert_eq!(setting.claim(id, 1), Err(nothing.clone()));
    assert_eq!(setting.assign(setting.request(2)), Err(nothing));
    setting.links.set_cable(ups[1], true);
    assert_eq!(setting.act(|all, at| all.links_changed(at)), [flow, back], "they waited for the link");
    setting.links.set_cable(ups[0], true);
    setting.act(|all, at| all.links_changed(at));
    assert_eq!(setting.all.iter().next().unwrap().2.len(), 2, "it has its second path again");
}

#[test]
fn refused_paths_are_tried_again_after_increasing_waits() {
    let mut setting = Setting::new();
    let id = setting.assign(setting.request(1)).unwrap().assignment;
    setting.claim(id, 1).unwrap();
    let (flow, _) = setting.bind(1);
    for seconds in [1, 2, 4, 8, 8] {
        setting.all.try_later(setting.now, flow);
        assert_eq!(setting.pass(Nanos::from_secs(seconds) - Nanos(1)), []);
        assert_eq!(setting.pass(Nanos(1)), [flow]);
    }
    setting.all.forget_retry(flow);
    setting.all.try_later(setting.now, flow);
    assert_eq!(setting.pass(SECOND), [flow], "it was on its path in between");
    setting.all.try_later(setting.now, flow);
    setting.all.flow_ended(setting.now, flow);
    setting.all.release(setting.now, &me(), id).unwrap();
    setting.nothing_is_left();
}

#[test]
fn a_restart_keeps_valid_assignments() {
    let mut setting = Setting::new();
    let id = setting.assign(setting.request(4)).unwrap().assignment;
    let claimed: Vec<Path> = (1..=3).map(|port| setting.claim(id, port).unwrap()).collect();
    let ((stands, back), (ended, _)) = (setting.bind(1), setting.bind(2));
    let idle = setting.assign(setting.request(1)).unwrap().assignment;
    let saved = serde_json::to_string(&setting.all.save()).unwrap();
    let read = |text: &str| serde_json::from_str::<SavedAssignments>(text).unwrap();
    setting.all = Assignments::new(2);
    setting.act(|all, at| all.restore(at, read(&saved), |flow| flow == stands || flow == back));
    assert_eq!((setting.all.len(), setting.all.waiting_claims(), setting.all.connections()), (2, 1, 1));
    assert_eq!(setting.all.path_of(stands), Some(claimed[0].clone()));
    assert_eq!(setting.all.path_of(ended), None);
    assert_eq!(setting.claim(id, 3).unwrap(), claimed[2]);
    assert_eq!(setting.pass(SECOND), [stands, back], "a move may have been interrupted");
    // The first packet of the third connection came after the snapshot was taken. Its flows are found in the
    // switches.
    let (forth, other) = (FlowId(77), FlowId(78));
    setting.all.adopted(setting.now, &setting.syn(3).reverse(), other);
    setting.all.adopted(setting.now, &setting.syn(3), forth);
    assert_eq!(setting.all.path_of(forth), Some(claimed[2].clone()));
    assert_eq!(setting.all.path_of(other), Some(claimed[2].reverse()));
    assert_eq!(setting.all.flow_ended(setting.now, forth), Some(other));
    setting.all.flow_ended(setting.now, stands);
    let next = setting.assign(setting.request(1)).unwrap().assignment;
    assert!(![id, idle].contains(&next));
    setting.pass(Nanos::from_secs(3600));
    setting.nothing_is_left();
    // Entries for another fabric, and invalid ones, are left out.
    for (from, to) in
        [("\"slot\":0", "\"slot\":99"), ("10.0.0.1", "192.0.2.1"), ("\"paths\":[[", "\"paths\":[[999999,")]
    {
        let broken = saved.replace(from, to);
        assert_ne!(broken, saved);
        setting.all = Assignments::new(2);
        setting.act(|all, at| all.restore(at, read(&broken), |_| true));
        assert!(setting.all.connections() < 2);
    }
}
